"""Merge LoRA adapters rank by rank: whole rank-one components are kept or dropped, and the result is an adapter."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from assay.errors import InputError
from assay.parts.checkpoints import new_folder, pick_device

from .connectivity import Connectivity, SignalPass, Unknown, dense, signal_pass
from .masks import keep_top, kept_count
from .report import JSON as REPORT_JSON
from .report import MARKDOWN as REPORT_MARKDOWN
from .weights import ShapeMismatchError, Source, Weights, assemble, open_weights, read_json

_PREFIX = "base_model.model."
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


@dataclass
class Adapter:
    """A LoRA adapter: for each module B (out, r), with its scaling in it, and A (r, in)."""

    label: str
    config: dict[str, Any]
    pairs: dict[str, tuple[Tensor, Tensor]]


def merge_lora(
    base: Source,
    adapters: Sequence[Any],
    *,
    keep: float = 0.5,
    rounds: int = 10,
    out: Literal["adapter", "dense"] = "adapter",
    to: str | Path | None = None,
    allow_missing: bool = False,
    connectivity: Connectivity | Literal["none"] = "auto",
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "auto",
    overwrite: bool = False,
) -> Any:
    r"""Merge LoRA adapters of one base: of each adapter and module the most salient rank-one components are kept.

    A component ``b aᵀ`` scores \|γη\|: γ is what it adds to the signal through the base with its adapter, η is how
    far it agrees with the sum of all adapters. What is kept is summed exactly: the merged adapter has the kept
    components of all adapters one after another, so its rank differs from module to module (``rank_pattern``).
    From "Saliency-Aware Model Merging" (arXiv 2606.00511).

    Parameters
    ----------
    base
        The module or Hugging Face folder that the adapters were trained on, without them.
    adapters
        Folders that PEFT wrote, or ``PeftModel`` objects (their active adapter).
    keep
        Share of each module's components that each adapter keeps, in (0, 1]; at least one is kept.
    rounds
        After round t, keep^(t/rounds) of the components are left.
    out
        ``"adapter"``, or ``"dense"`` for the base with the merged update added.
    to, overwrite
        The folder to write; it appears whole or not at all. For ``"dense"`` the base must be a folder then.
    allow_missing
        Take a module that an adapter has not as a zero update of it.
    connectivity, dtype, device
        As for :func:`assay.models.sa_merging.merge`.

    Returns
    -------
    path, PeftModel, dict or module
        The path where ``to`` is given. Else a ``PeftModel`` around the base (loaded where it is a folder); for
        ``"dense"`` a module where ``base`` is one, or a state dict.

    Raises
    ------
    ValueError
        For adapters of different bases or target modules (listed), other kinds than plain LoRA, values out of range,
        or NaN or infinity.
    """
    if not (isinstance(keep, int | float) and 0 < keep <= 1):
        raise InputError(f"keep must lie in (0, 1], got {keep!r}")
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise InputError(f"rounds must be a whole number, 1 or more, got {rounds!r}")
    if out not in ("adapter", "dense"):
        raise InputError(f"out must be 'adapter' or 'dense', got {out!r}")
    if isinstance(adapters, str | Path) or not adapters:
        raise InputError("adapters must be a list with at least one adapter")
    place = pick_device(device)
    weights = open_weights(base, "the base")
    if to is not None and out == "dense" and weights.folder is None:
        raise InputError("a dense folder can be written only where base is a folder")
    opened = [_open_adapter(adapter, n, dtype, place) for n, adapter in enumerate(adapters, start=1)]
    _check_same(opened, allow_missing)
    names = _parameters(weights, opened)
    before = [_ranks(one) for one in opened]
    _prune(weights, opened, names, keep, rounds, connectivity, dtype, place)
    merged = {
        module: (
            torch.cat([one.pairs[module][0] for one in opened if module in one.pairs], dim=1),
            torch.cat([one.pairs[module][1] for one in opened if module in one.pairs], dim=0),
        )
        for module in names
    }
    if out == "dense":
        return _dense(weights, opened[0].config, names, merged, to, overwrite)
    config = _config(opened[0].config, merged)
    state = {}
    for module, (B, A) in merged.items():
        state[f"{_PREFIX}{module}.lora_A.weight"] = A.float().cpu().contiguous()
        state[f"{_PREFIX}{module}.lora_B.weight"] = B.float().cpu().contiguous()
    if to is not None:
        with new_folder(to, overwrite) as folder:
            save_file(state, folder / TENSORS, metadata={"format": "pt"})
            (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
            _report(folder, opened, before, {"keep": keep, "rounds": rounds, "base": weights.label})
        return Path(to)
    return _attached(base, config, state)


def component_saliency(
    sensitivity: Float[Tensor, "out in"], B: Float[Tensor, "out r"], A: Float[Tensor, "r in"]
) -> Float[Tensor, " r"]:
    """γ of each rank-one component: bᵀ G a, with G the signal's gradient, signed as the weights are."""
    return (B * (sensitivity @ A.T)).sum(0)


def _open_adapter(adapter: Any, n: int, dtype: torch.dtype, device: torch.device) -> Adapter:
    if isinstance(adapter, str | Path):
        folder = Path(adapter)
        if not (folder / CONFIG).is_file() or not (folder / TENSORS).is_file():
            raise InputError(f"{folder} is no adapter: it holds no {CONFIG} with {TENSORS}")
        label, config, state = str(folder), read_json(folder / CONFIG), load_file(folder / TENSORS)
    elif isinstance(adapter, nn.Module) and hasattr(adapter, "peft_config"):
        from peft import get_peft_model_state_dict

        label, active = f"adapter {n}", adapter.active_adapter
        config = adapter.peft_config[active].to_dict()
        state = get_peft_model_state_dict(adapter, adapter_name=active, save_embedding_layers=False)
    else:
        raise TypeError(f"adapter {n} must be a PEFT folder or a PeftModel, not {type(adapter).__name__}")
    kind = getattr(config.get("peft_type"), "value", config.get("peft_type"))
    if kind != "LORA":
        raise InputError(f"{label} is a {kind} adapter; only LoRA adapters can be merged")
    for key in ("use_dora", "modules_to_save", "trainable_token_indices", "alora_invocation_tokens"):
        if config.get(key):
            raise InputError(f"{label}: {key} = {config[key]!r} is not supported; only A and B can be merged")
    return Adapter(label, config, _pairs(label, config, state, dtype, device))


def _pairs(
    label: str, config: Mapping[str, Any], state: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device
) -> dict[str, tuple[Tensor, Tensor]]:
    pairs: dict[str, tuple[Tensor, Tensor]] = {}
    for name, tensor in state.items():
        module, kind, _ = name.removeprefix(_PREFIX).partition(".lora_A.weight")
        if not kind:
            if not name.endswith(".lora_B.weight"):
                raise InputError(f"{label} holds {name}; only A and B of linear layers can be merged")
            continue
        other = name.replace(".lora_A.weight", ".lora_B.weight")
        if other not in state:
            raise InputError(f"{label}: {name} has no B beside it")
        A, B = (x.detach().to(device, dtype) for x in (tensor, state[other]))
        for what, x in ((name, A), (other, B)):
            if not bool(torch.isfinite(x).all()):
                raise InputError(f"{what} of {label} holds NaN or infinity")
        if A.dim() != 2 or B.dim() != 2:
            raise InputError(f"{label}: {module} is no linear layer; convolutions can't be merged rank by rank")
        if A.shape[0] != B.shape[1]:
            raise ShapeMismatchError(f"{label}: {module} has A {list(A.shape)} and B {list(B.shape)}")
        pairs[module] = (B * _scaling(config, module, A.shape[0]), A)
    if not pairs:
        raise InputError(f"{label} holds no LoRA weights")
    return pairs


def _scaling(config: Mapping[str, Any], module: str, rank: int) -> float:
    """What PEFT multiplies B A with."""
    from peft.utils.other import get_pattern_key

    patterns = config.get("alpha_pattern") or {}
    alpha = patterns.get(get_pattern_key(patterns.keys(), module), config["lora_alpha"])
    return alpha / rank**0.5 if config.get("use_rslora") else alpha / rank


def _check_same(adapters: Sequence[Adapter], allow_missing: bool) -> None:
    first = adapters[0]
    everything = {module: pair for adapter in adapters for module, pair in adapter.pairs.items()}
    for adapter in adapters:
        for key in ("base_model_name_or_path", "fan_in_fan_out", "task_type"):
            ours, theirs = (getattr(c.get(key), "value", c.get(key)) for c in (first.config, adapter.config))
            if (ours or None) != (theirs or None):
                raise InputError(f"{adapter.label}: {key} is {theirs!r}, and {ours!r} in {first.label}")
        missing = sorted(everything.keys() - adapter.pairs.keys())
        if missing and not allow_missing:
            shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise InputError(
                f"{adapter.label} has no update of {shown}, which others have; with allow_missing=True that counts as 0"
            )
        for module, (B, A) in adapter.pairs.items():
            other = everything[module]
            if B.shape[0] != other[0].shape[0] or A.shape[1] != other[1].shape[1]:
                raise ShapeMismatchError(
                    f"{adapter.label}: {module} is {B.shape[0]} × {A.shape[1]}, elsewhere "
                    f"{other[0].shape[0]} × {other[1].shape[1]}"
                )


def _parameters(weights: Weights, adapters: Sequence[Adapter]) -> dict[str, str]:
    """Each module's weight in the base: the parameter whose name ends as the module's, with its shape."""
    flipped = bool(adapters[0].config.get("fan_in_fan_out"))
    modules = {m: (p[0].shape[0], p[1].shape[1]) for one in adapters for m, p in one.pairs.items()}
    names = {}
    for module, shape in modules.items():
        wanted = f"{module}.weight"
        found = [n for n in weights.specs if n == wanted or n.endswith(f".{wanted}") or wanted.endswith(f".{n}")]
        if len(found) != 1:
            raise InputError(f"the base has {'no' if not found else 'more than one'} weight for the module {module}")
        there = weights.specs[found[0]].shape
        if there != (shape[::-1] if flipped else shape):
            raise ShapeMismatchError(f"{module}: {list(shape)} in the adapters, {list(there)} in the base")
        names[module] = found[0]
    return names


def _prune(
    weights: Weights,
    adapters: Sequence[Adapter],
    names: Mapping[str, str],
    keep: float,
    rounds: int,
    connectivity: Any,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Drop components of each adapter in place, round by round."""
    if keep == 1:
        return
    sensing = _sensing(weights, connectivity, dtype, device)
    ranks = [_ranks(one) for one in adapters]
    modules = {name: module for module, name in names.items()}
    flipped = bool(adapters[0].config.get("fan_in_fan_out"))
    for t in range(1, rounds + 1):
        counts = [{m: max(1, kept_count(rank, keep, t, rounds)) for m, rank in one.items()} for one in ranks]
        sensed = []
        for adapter, wanted in zip(adapters, counts, strict=True):

            def read(name: str, adapter: Adapter = adapter) -> Tensor:
                tensor = weights.read(name)
                pair = adapter.pairs.get(modules.get(name, ""))
                if pair is None:
                    return tensor
                update = pair[0] @ pair[1]
                return tensor.to(device, dtype) + (update.T if flipped else update)

            loses = any(wanted[module] < A.shape[0] for module, (_, A) in adapter.pairs.items())
            sensed.append((sensing(read) if sensing is not None and loses else {}, read))
        for module, name in names.items():
            there = [one.pairs[module] for one in adapters if module in one.pairs]  # of the last round, for all
            for n, adapter in enumerate(adapters):
                if module not in adapter.pairs:
                    continue
                B, A = adapter.pairs[module]
                count = counts[n][module]
                if count >= A.shape[0]:
                    continue
                terms, read = sensed[n]
                signed = read(name).to(device, dtype).sign()
                if name in terms:
                    signed = signed * dense(terms[name], tuple(signed.shape)).to(dtype)
                signed = signed.T if flipped else signed
                gamma = component_saliency(signed / signed.abs().max().clamp_min(1e-30), B, A)
                eta = sum((B * (b @ (a @ A.T))).sum(0) for b, a in there)
                chosen = keep_top((gamma * eta).abs(), count)
                adapter.pairs[module] = (B[:, chosen], A[chosen])


def _sensing(weights: Weights, connectivity: Any, dtype: torch.dtype, device: torch.device) -> SignalPass | None:
    if connectivity == "none":
        return None
    try:
        sensing = signal_pass(weights, connectivity, dtype, device)
        sensing(weights.read)
    except Unknown as why:
        warnings.warn(f"{weights.label}: every sensitivity is 1: {why}", stacklevel=4)
        return None
    return sensing


def _config(config: Mapping[str, Any], merged: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
    """The first adapter's configuration with a rank for each module; scalings are in B, so each is 1."""
    ranks = {module: A.shape[0] for module, (_, A) in merged.items()}
    plain = {key: getattr(value, "value", value) for key, value in config.items()}
    plain = {key: sorted(value) if isinstance(value, set) else value for key, value in plain.items()}
    plain.pop("runtime_config", None)
    return plain | {
        "r": max(ranks.values()), "lora_alpha": max(ranks.values()), "rank_pattern": ranks,
        "alpha_pattern": dict(ranks), "use_rslora": False, "target_modules": sorted(ranks), "inference_mode": True,
        "init_lora_weights": True, "layers_to_transform": None, "layers_pattern": None, "exclude_modules": None,
    }  # fmt: skip


def _ranks(adapter: Adapter) -> dict[str, int]:
    return {module: A.shape[0] for module, (_, A) in adapter.pairs.items()}


def _report(
    folder: Path, adapters: Sequence[Adapter], before: Sequence[Mapping[str, int]], settings: Mapping[str, Any]
) -> None:
    """What was kept, for programs and for people."""
    after = [_ranks(one) for one in adapters]
    rows = [
        {"adapter": one.label, "module": module, "rank_before": rank, "rank_after": now[module]}
        for one, was, now in zip(adapters, before, after, strict=True)
        for module, rank in was.items()
    ]
    (folder / REPORT_JSON).write_text(json.dumps({"settings": settings, "ranks": rows}, indent=1), encoding="utf-8")
    lines = ["| adapter | ranks before | after |", "|---|---:|---:|"]
    lines += [
        f"| `{one.label}` | {sum(was.values())} | {sum(now.values())} |"
        for one, was, now in zip(adapters, before, after, strict=True)
    ]
    text = "# Merge report\n\n" + ", ".join(f"{key} = {value}" for key, value in settings.items()) + "\n\n"
    text += "\n".join(lines) + f"\n\nModule by module: `{REPORT_JSON}`.\n"
    (folder / REPORT_MARKDOWN).write_text(text, encoding="utf-8")


def _attached(base: Source, config: dict[str, Any], state: dict[str, Tensor]) -> Any:
    """The base with the merged adapter on it."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    if isinstance(base, Mapping):
        raise InputError("base is a state dict, which can carry no adapter; give a module, or to= a folder to write")
    model = base if isinstance(base, nn.Module) else _load(Path(base))
    peft_model = get_peft_model(model, LoraConfig(**config))
    problems = set_peft_model_state_dict(peft_model, state)
    if problems.unexpected_keys:
        raise RuntimeError(f"PEFT did not take {problems.unexpected_keys[:3]}")
    return peft_model.eval()


def _load(folder: Path) -> nn.Module:
    import transformers

    from assay.parts.checkpoints import load_config

    config = load_config(folder)
    architecture = (config.architectures or [""])[0]
    cls = getattr(transformers, architecture, transformers.AutoModel)
    return cls.from_pretrained(folder, config=config, use_safetensors=True).eval()


def _dense(
    weights: Weights,
    config: Mapping[str, Any],
    names: Mapping[str, str],
    merged: Mapping[str, tuple[Tensor, Tensor]],
    to: str | Path | None,
    overwrite: bool,
) -> Any:
    modules = {name: module for module, name in names.items()}

    def tensor(name: str) -> Tensor:
        start = weights.read(name)
        if name not in modules:
            return start
        B, A = merged[modules[name]]
        update = (B @ A).T if config.get("fan_in_fan_out") else B @ A
        return (start.to(update) + update).to(start)

    return assemble(weights, tensor, to, overwrite)
