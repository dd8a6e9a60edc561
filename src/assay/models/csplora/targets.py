"""Which weight matrices of a model can get a rank, what they are called, and what is alike among them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Target:
    """A weight matrix: its parameter and its shape as ``(out, in)``, whichever way round the layer keeps it."""

    weight: nn.Parameter
    shape: tuple[int, int]


def find_targets(model: nn.Module, target_modules: Sequence[str] | str | None = None) -> dict[str, Target]:
    """The target matrices by module name, in the model's order.

    Names are those of the base model: where it holds adapters already, they read as if it held none.

    Parameters
    ----------
    model
        The model, with or without PEFT adapters.
    target_modules
        ``None`` for every linear layer but heads; a list of full names or ends of names; or a regular expression for
        the whole name. This is how PEFT reads it as well.

    Raises
    ------
    ValueError
        Where nothing matches, or an entry of the list matches nothing.
    TypeError
        Where a match is no linear layer, or its weight has no gradient of its own (4 and 8 bit).
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    heads = _heads(base)
    found: dict[str, nn.Module] = {}
    matched: set[str] = set()
    for raw, module in base.named_modules():
        if not raw or "lora_" in raw or hasattr(module, "base_layer"):  # an adapter, or a layer wrapped by one
            continue
        name = raw.removesuffix(".base_layer")
        if target_modules is None or target_modules == "all-linear":
            if is_linear(module) and id(module) not in heads:
                found[name] = module
            continue
        if isinstance(target_modules, str):
            hits = [target_modules] if re.fullmatch(target_modules, name) else []
        else:
            hits = [end for end in target_modules if name == end or name.endswith(f".{end}")]
        if hits:
            matched.update(hits)
            found[name] = module
    if isinstance(target_modules, Sequence) and not isinstance(target_modules, str):
        missed = [end for end in target_modules if end not in matched]
        if missed:
            raise ValueError(
                f"target_modules: {missed[0]!r} matches no module of {type(base).__name__}; the linear layers end in "
                f"{', '.join(_ends(base)) or 'nothing: there are none'}"
            )
    if not found:
        raise ValueError(
            f"no target module in {type(base).__name__} (target_modules={target_modules!r}); its linear layers end in "
            f"{', '.join(_ends(base)) or 'nothing: there are none'}"
        )
    return {name: _target(name, module) for name, module in found.items()}


def is_linear(module: nn.Module) -> bool:
    """Whether it is ``nn.Linear`` or the ``Conv1D`` of transformers, a linear layer kept the other way round."""
    return isinstance(module, nn.Linear) or _is_conv1d(module)


def _is_conv1d(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")  # by name, so that transformers may be missing


def _target(name: str, module: nn.Module) -> Target:
    kind = type(module).__name__
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or not is_linear(module):
        raise TypeError(f"{name} is a {kind}; a target must be an nn.Linear or a Conv1D")
    if not isinstance(weight, nn.Parameter) or not weight.is_floating_point() or weight.ndim != 2:
        raise TypeError(
            f"{name} is a {kind} whose weight is {weight.dtype} of shape {tuple(weight.shape)} and has no gradient of "
            "its own; load the model in bf16, fp16 or fp32 for the probe (the plan also fits the quantised model)"
        )
    rows, columns = weight.shape
    return Target(weight, (columns, rows) if _is_conv1d(module) else (rows, columns))


def _heads(base: nn.Module) -> set[int]:
    """The modules that belong to a head, by identity.

    In a transformers model these are the output embeddings, all outside the base model, and the pooler; the output
    projection of ``nn.MultiheadAttention`` never sees its inputs as a module, so no adapter could sit on it.
    """
    heads: list[Any] = []
    for name, module in base.named_modules():
        if name.rpartition(".")[2] == "pooler":
            heads += module.modules()
        if isinstance(module, nn.MultiheadAttention):
            heads += module.modules()
    if hasattr(base, "base_model_prefix"):
        if callable(getattr(base, "get_output_embeddings", None)):
            heads.append(base.get_output_embeddings())
        body = getattr(base, base.base_model_prefix, None) if base.base_model_prefix else None
        if isinstance(body, nn.Module):
            inside = {id(module) for module in body.modules()}
            heads += [module for module in base.modules() if id(module) not in inside]
    return {id(module) for module in heads if module is not None}


def _ends(base: nn.Module) -> list[str]:
    return sorted({name.rpartition(".")[2] for name, m in base.named_modules() if is_linear(m) and "lora_" not in name})


def families(shapes: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """The family of each module: the matrices that do the same work in different layers.

    A family is called by the shortest end of the name, without the layers' numbers, that has one parent and one
    shape: ``q_proj`` in Llama; ``query`` and ``intermediate.dense`` in BERT, whose ``dense`` is three things.

    >>> list(families({"layer.0.a.dense": (4, 4), "layer.0.b.dense": (8, 4), "layer.1.a.dense": (4, 4)}).values())
    ['a.dense', 'b.dense', 'a.dense']
    """
    paths = {name: [part for part in name.split(".") if not part.isdigit()] or [name] for name in shapes}
    families: dict[str, str] = {}
    open_names, depth = list(shapes), 1
    while open_names:
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in open_names:
            groups.setdefault(tuple(paths[name][-depth:]), []).append(name)
        open_names = []
        for end, names in groups.items():
            parents = {tuple(paths[name][-depth - 1 :]) for name in names}
            same_path = len({tuple(paths[name]) for name in names}) == 1
            if same_path or (len(parents) == 1 and len({shapes[name] for name in names}) == 1):
                families.update(dict.fromkeys(names, ".".join(end)))
            else:
                open_names += names
        depth += 1
    return {name: families[name] for name in shapes}


def move(value: Any, device: torch.device) -> Any:
    """A batch's value on a device; what is no tensor stays as it is."""
    return value.to(device) if isinstance(value, Tensor) else value
