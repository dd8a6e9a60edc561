"""Converted models on disk: a folder that nothing takes for a dense model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from assay.errors import InputError, one_line
from assay.parts.checkpoints import as_dtype, new_folder, pick_device, without_bars

from .config import DotMoEConfig
from .dense import sites
from .ffn import DotMoEFFN

MODEL_TYPE = "dot_moe"
"""In config.json and in the names of the weights' files, so that transformers refuses the folder.

Auto classes do not know the type, and a dense class asked by its own name finds no ``model.safetensors``; else it would
load what it knows and draw the missing feed-forward layers at random.
"""

FILE = "dot_moe.json"
FORMAT = 1


@dataclass(frozen=True)
class Conversion:
    """What a converted model carries with it.

    Attributes
    ----------
    config
        The settings that it was made with.
    layers
        The numbers of the converted layers.
    report
        What :func:`~assay.models.dot_moe.report` said of it, or ``None``.
    """

    config: DotMoEConfig
    layers: tuple[int, ...]
    report: dict[str, Any] | None = None


def mark(model: nn.Module, conversion: Conversion) -> None:
    """Have the model know that it is converted: it then saves itself as one."""
    if isinstance(model, PreTrainedModel):
        model.__class__ = converted_class(type(model), conversion)
    model.dot_moe = conversion  # type: ignore[assignment]


def converted_class(base: type[PreTrainedModel], conversion: Conversion) -> type[PreTrainedModel]:
    """A subclass of a transformers model whose feed-forward layers are made converted, and that saves itself so."""

    class Converted(base):  # type: ignore[misc, valid-type]
        def __init__(self, config: Any, *arguments: Any, **more: Any) -> None:
            super().__init__(config, *arguments, **more)
            settings = conversion.config
            for site in sites(self):
                if site.layer in conversion.layers:
                    ffn = DotMoEFFN(site.dense(), settings.n_experts, settings.top_k, settings.n_shared)
                    site.put(ffn)
            self.dot_moe = conversion

        def save_pretrained(self, save_directory: str | Path, *arguments: Any, **more: Any) -> None:
            with without_bars():
                base.save_pretrained(self, save_directory, *arguments, **{"variant": MODEL_TYPE, **more})
            _write_configs(self, base, Path(save_directory))

    Converted.__name__ = Converted.__qualname__ = f"DotMoE{base.__name__}"
    # transformers looks into the file of a model's module for what the architecture can do.
    Converted.__module__ = base.__module__
    return Converted


def save(model: nn.Module, out: str | Path, tokenizer: Any = None, overwrite: bool = False) -> None:
    """Write a converted model: safetensors, config.json, dot_moe.json and the tokenizer; whole or not at all.

    Raises
    ------
    ValueError
        When the model is not converted, or ``out`` exists and is not empty.
    """
    if not isinstance(getattr(model, "dot_moe", None), Conversion) or not isinstance(model, PreTrainedModel):
        raise ValueError(f"{type(model).__name__} is no converted transformers model; convert it first")
    with new_folder(out, overwrite) as folder:
        model.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def load(
    source: str | Path,
    top_k: int | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device = "auto",
) -> PreTrainedModel:
    """Load a converted model in evaluation mode.

    Parameters
    ----------
    source
        A folder that :func:`save` wrote.
    top_k
        How many experts each token uses; default as the model was made.
    dtype
        float32, bfloat16, float16; default as saved.
    device
        ``"auto"``: a GPU where torch sees one.

    Raises
    ------
    InputError
        When the folder is none, or is damaged.
    ValueError
        For a ``top_k`` that cannot be.
    """
    folder = Path(source)
    raw = _read(folder)
    try:
        conversion = _conversion(raw)
        base = getattr(transformers, str(raw["base_class"]))
        if not (isinstance(base, type) and issubclass(base, PreTrainedModel)):
            raise TypeError(f"{raw['base_class']} is no model of transformers")
        inside = dict(raw["base_config"])
        config = transformers.AutoConfig.for_model(inside.pop("model_type"), **inside)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{folder / FILE} is damaged: {one_line(error)}") from error
    place, wanted = pick_device(device), as_dtype(dtype)
    try:
        with without_bars():
            model, loaded = converted_class(base, conversion).from_pretrained(
                folder, config=config, dtype=wanted, use_safetensors=True, variant=MODEL_TYPE, output_loading_info=True
            )
    except (OSError, RuntimeError, ValueError, TypeError, AttributeError, SafetensorError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise InputError(f"{folder} cannot be loaded: {one_line(error)}") from error
    absent = sorted(loaded["missing_keys"])
    if absent:
        raise InputError(f"{folder} is damaged: it has no weights for {', '.join(absent[:3])}")
    if top_k is not None:
        for module in model.modules():
            if isinstance(module, DotMoEFFN):
                module.top_k = top_k
    return model.to(place).eval()


def _write_configs(model: Any, base: type, folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    dense = {**config, "architectures": [base.__name__]}
    own = {**config, "model_type": MODEL_TYPE, "architectures": [type(model).__name__]}
    conversion: Conversion = model.dot_moe
    top_ks = {m.top_k for m in model.modules() if isinstance(m, DotMoEFFN)}
    text = {
        "format": FORMAT,
        "base_class": base.__name__,
        "base_config": dense,
        "top_k": min(top_ks),
        "layers": list(conversion.layers),
        "config": conversion.config.as_dict(),
        "report": conversion.report,
    }
    (folder / FILE).write_text(json.dumps(text, indent=2), encoding="utf-8")
    path.write_text(json.dumps(own, indent=2), encoding="utf-8")


def _read(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    if not path.is_file():
        raise InputError(f"{folder} holds no {FILE}: it is no model that was converted by dot-moe")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {one_line(error)}") from error
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        raise InputError(f"{path} has a format that this version does not read; it reads {FORMAT}")
    return raw


def _conversion(raw: dict[str, Any]) -> Conversion:
    settings = dict(raw["config"])
    layers: Iterable[int] | None = settings.pop("layers")
    settings["top_k"] = raw["top_k"]
    report = raw["report"]
    for name in ("max_load", "relative_error") if report else ():
        report[name] = {int(layer): value for layer, value in report.get(name, {}).items()}
    config = DotMoEConfig(**settings, layers=None if layers is None else tuple(layers))
    return Conversion(config, tuple(int(n) for n in raw["layers"]), report)
