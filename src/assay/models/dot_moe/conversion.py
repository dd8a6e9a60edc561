"""Conversion of a dense causal language model, layer by layer, and then as a whole."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assay.parts.checkpoints import new_file

from .checkpoint import Conversion, mark
from .comparison import compare
from .config import DotMoEConfig
from .dense import Site, check_formula, sites
from .ffn import DotMoEFFN, capacities
from .global_stage import train_together
from .layer_stage import convert_layer
from .recording import record_inputs, recorded, token_rows

KEY = "dot_moe.key"
"""In the folder of an unfinished conversion: what it is of."""

Progress = Callable[[str, int, int], None]
"""``progress(what, done, total)``, called often."""


def convert(
    model: nn.Module,
    tokenizer: Any,
    data: Any,
    config: DotMoEConfig | None = None,
    stages: Sequence[str] = ("layer",),
    eval_data: Any = None,
    progress: Progress | None = None,
    work: str | Path | None = None,
) -> nn.Module:
    """Cut the feed-forward layers of a causal language model into experts; the same model object is changed.

    Parameters
    ----------
    model
        A Hugging Face causal language model in float32, bfloat16 or float16 whose decoder layers have gated
        (gate/up/down) or plain (fc1/fc2, c_fc/c_proj) feed-forward layers. Layers are trained on its device.
    tokenizer
        Needed where texts are given, else ``None``.
    data
        The calibration text: texts, a tensor (n, length) of tokens, or batches of such rows.
    config
        The settings; default :class:`DotMoEConfig`.
    stages
        ``("layer",)``, or ``("layer", "global")`` with ``config.global_steps``.
    eval_data
        Text like ``data`` that is not in it; then ``model.dot_moe.report`` says how the converted model compares with
        the dense one (see :func:`compare`).
    progress
        ``progress(what, done, total)``.
    work
        A folder for recorded inputs and finished layers: what was interrupted goes on from there. Default: a
        temporary one.

    Returns
    -------
    The model, in evaluation mode. ``model.dot_moe`` holds the settings and the report; ``model.save_pretrained`` and
    :func:`save` write it so that it is not taken for a dense one.

    Raises
    ------
    UnsupportedModelError
        For a model without feed-forward layers of a known kind.
    ValueError
        For a model that is converted already, too little text, or settings that don't fit the model.
    TypeError
        For quantised weights, or data of an unknown kind.
    ConversionError
        When a loss is not finite; the model is then as it was.

    Notes
    -----
    Bamba et al., "DOT-MoE: Differentiable Optimal Transport for MoEfication", arXiv 2606.01666.
    """
    config = config or DotMoEConfig()
    if tuple(stages) not in (("layer",), ("layer", "global")):
        raise ValueError(f"stages must be ('layer',) or ('layer', 'global'), got {stages!r}")
    together = "global" in stages
    if together and config.global_steps < 1:
        raise ValueError("the global stage needs global_steps of at least 1, got 0")
    chosen = _chosen(model, config)
    ids = token_rows(model, tokenizer, data)
    needed = max(2 * config.batch_tokens, 32 * config.n_experts)
    if ids.numel() < needed:
        raise ValueError(
            f"the calibration text has {ids.numel()} tokens; at least {needed} are needed (2 · batch_tokens and "
            "32 · n_experts), and some 50 000 are advisable"
        )
    held_out = None if eval_data is None else token_rows(model, tokenizer, eval_data)
    originals = {site.layer: (site, site.modules()) for site in chosen}
    tell = progress or (lambda what, done, total: None)
    model.eval()
    try:
        with _working_folder(work, _key(model, ids, config)) as folder:
            ffns = _layer_stage(model, chosen, ids, config, folder, tell)
        for site in chosen:
            site.put(ffns[site.layer])
        if together:
            train_together(
                model, ffns, originals, ids, config, lambda step, _: tell("global stage", step + 1, config.global_steps)
            )
        report = None if held_out is None else compare(model, ffns, originals, held_out)
    except BaseException:
        for site, modules in originals.values():
            site.restore(modules)
        raise
    mark(model, Conversion(config, tuple(originals), report))
    return model


def _chosen(model: nn.Module, config: DotMoEConfig) -> list[Site]:
    found = sites(model)
    numbers = config.layers if config.layers is not None else tuple(site.layer for site in found)
    outside = [n for n in numbers if not 0 <= n < len(found)]
    if outside or not numbers:
        raise ValueError(
            f"layers must be numbers from 0 to {len(found) - 1}, got {list(outside or numbers)}; the model has "
            f"{len(found)} layers"
        )
    chosen = [found[n] for n in numbers]
    for site in chosen:
        dense = site.dense()
        capacities(len(dense.up), config.n_experts)
        check_formula(site, dense.up.shape[1])
    return chosen


def _layer_stage(
    model: nn.Module, chosen: list[Site], ids: Tensor, config: DotMoEConfig, folder: Path, tell: Progress
) -> dict[int, DotMoEFFN]:
    if not (folder / "recorded").exists():
        record_inputs(model, chosen, ids, folder, on_batch=lambda done, total: tell("recording", done, total))
        (folder / "recorded").touch()
    ffns = {}
    for number, site in enumerate(chosen):
        tell("layers", number, len(chosen))
        dense = site.dense()
        file = folder / f"{site.layer}.safetensors"
        if file.exists():
            ffn = DotMoEFFN(dense.to(dense.up.device, torch.float32), config.n_experts, config.top_k, config.n_shared)
            ffn.load_state_dict(load_file(file))
        else:
            ffn = convert_layer(
                dense,
                recorded(folder, site.layer),
                dataclasses.replace(config, seed=config.seed + site.layer),
                site.layer,
                lambda step, _: tell("steps", step + 1, config.steps),
            )
            with new_file(file) as temporary:
                save_file({name: t.contiguous() for name, t in ffn.state_dict().items()}, temporary)
        ffns[site.layer] = ffn.to(dense.up.dtype).eval()
    tell("layers", len(chosen), len(chosen))
    return ffns


@contextmanager
def _working_folder(work: str | Path | None, key: str) -> Iterator[Path]:
    """The folder; what is in it from other settings, another model or another text goes first."""
    if work is None:
        with tempfile.TemporaryDirectory(prefix="dot-moe-") as temporary:
            yield Path(temporary)
        return
    folder = Path(work)
    if folder.exists() and not (folder / KEY).is_file() and any(folder.iterdir()):
        raise ValueError(f"work {folder} holds other things than an unfinished conversion; give another folder")
    if (folder / KEY).is_file() and (folder / KEY).read_text() != key:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / KEY).write_text(key)
    yield folder


def _key(model: nn.Module, ids: Tensor, config: DotMoEConfig) -> str:
    """What decides the layer stage's result, as one short text."""
    fields = {k: v for k, v in config.as_dict().items() if k not in ("global_steps", "lr_global", "kl", "ce")}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    digest.update(ids.cpu().numpy().tobytes())
    # All weights: what stands before a layer decides its inputs.
    for name, tensor in model.named_parameters():
        total = float(tensor.detach().sum(dtype=torch.float64))
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {total!r}".encode())
    return digest.hexdigest()
