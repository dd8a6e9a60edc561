"""How a converted model compares with the dense one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.parts.lm_scoring import perplexity

from .dense import Site, decoder_layers
from .ffn import DotMoEFFN
from .global_stage import dense_again
from .recording import batches, run_body, token_rows


def converted_layers(model: nn.Module) -> dict[int, DotMoEFFN]:
    """The converted layers of a model by number.

    Raises
    ------
    ValueError
        When there is none.
    """
    found = {}
    for number, layer in enumerate(decoder_layers(model)):
        ffn = next((m for m in layer.modules() if isinstance(m, DotMoEFFN)), None)
        if ffn is not None:
            found[number] = ffn
    if not found:
        raise ValueError(f"{type(model).__name__} has no converted layer")
    return found


def set_top_k(model: nn.Module, top_k: int) -> nn.Module:
    """Have each token use so many experts in every converted layer; returns the model."""
    for ffn in converted_layers(model).values():
        ffn.top_k = top_k
    return model


def active_parameters(model: nn.Module) -> int:
    """How many of its parameters the model uses for a token; an embedding counts whole, and once where it is shared."""
    ffns = converted_layers(model).values()
    held = sum(sum(p.numel() for p in ffn.parameters()) for ffn in ffns)
    return _parameters(model) - held + sum(ffn.active_parameters() for ffn in ffns)


def report(model: nn.Module, data: Any, tokenizer: Any = None, dense: nn.Module | None = None) -> dict[str, Any]:
    """Perplexity, sizes and load of a converted model on a text that it was not trained on.

    Parameters
    ----------
    model
        The converted model.
    data
        Texts (with ``tokenizer``), tokens (n, length), or batches of them.
    dense
        The model that it was made from; adds its perplexity and the KL divergence from it.

    Returns
    -------
    dict
        ``ppl_moe``; ``ppl_all_experts`` (top_k = E: the dense model that holds the trained weights);
        ``max_load`` by layer, the busiest routed expert's share over the even share; ``active_parameters``,
        ``total_parameters``; ``seconds_moe``, the time that the text took; with ``dense`` also ``ppl_dense``,
        ``seconds_dense``, ``dense_parameters`` and ``kl`` (nats a token).
    """
    ids = token_rows(model, tokenizer, data)
    result = _of_converted(model, converted_layers(model), ids)
    if dense is not None:
        result["ppl_dense"], result["seconds_dense"] = _timed_perplexity(dense, ids)
        result["dense_parameters"] = _parameters(dense)
        result["kl"] = divergence(lambda rows: _logits(dense, rows), lambda rows: _logits(model, rows), ids)
    return result


def compare(
    model: nn.Module,
    ffns: Mapping[int, DotMoEFFN],
    originals: Mapping[int, tuple[Site, tuple[nn.Module, ...]]],
    ids: Int[Tensor, "n length"],
) -> dict[str, Any]:
    """What :func:`report` says, and each layer's relative error, of a model whose dense layers are still at hand."""
    result = _of_converted(model, ffns, ids)

    def of_dense(rows: Tensor) -> Tensor:
        with dense_again(originals):
            return _logits(model, rows)

    with dense_again(originals):
        result["ppl_dense"], result["seconds_dense"] = _timed_perplexity(model, ids)
        result["dense_parameters"] = _parameters(model)
        result["relative_error"] = layer_errors(model, ffns, originals, ids)
    result["kl"] = divergence(of_dense, lambda rows: _logits(model, rows), ids)
    return result


@torch.no_grad()
def layer_errors(
    model: nn.Module,
    ffns: Mapping[int, DotMoEFFN],
    originals: Mapping[int, tuple[Site, tuple[nn.Module, ...]]],
    ids: Int[Tensor, "n length"],
) -> dict[int, float]:
    """Mean over tokens of ‖Ŷ − Y‖²/‖Y‖² by layer, on the inputs that the layer has in the dense model."""
    sums = dict.fromkeys(ffns, 0.0)

    def add(layer: int, site: Site) -> Callable[..., None]:
        dense = site.dense()

        def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            x = arguments[0].reshape(-1, arguments[0].shape[-1])
            y = dense.output(x).float()
            away = (ffns[layer](x).float() - y).square().sum(dim=-1)
            sums[layer] += float((away / y.square().sum(dim=-1).clamp_min(1e-12)).sum())

        return hook

    handles = [modules[0].register_forward_pre_hook(add(layer, site)) for layer, (site, modules) in originals.items()]
    try:
        for rows in batches(ids, 2048):
            run_body(model, rows.to(next(model.parameters()).device))
    finally:
        for handle in handles:
            handle.remove()
    return {layer: value / ids.numel() for layer, value in sums.items()}


@torch.no_grad()
def divergence(
    dense: Callable[[Tensor], Tensor], converted: Callable[[Tensor], Tensor], ids: Int[Tensor, "n length"]
) -> float:
    """KL(dense ‖ converted) of the next-token distributions, nats, mean over tokens."""
    total = 0.0
    for rows in batches(ids, 512):
        p, q = dense(rows).float().log_softmax(dim=-1), converted(rows).float().log_softmax(dim=-1)
        total += float((p.exp() * (p - q)).sum())
    return total / ids.numel()


def _of_converted(model: nn.Module, ffns: Mapping[int, DotMoEFFN], ids: Tensor) -> dict[str, Any]:
    for ffn in ffns.values():
        ffn.reset_load()
    result: dict[str, Any] = {}
    result["ppl_moe"], result["seconds_moe"] = _timed_perplexity(model, ids)
    result["max_load"] = {layer: _max_load(ffn) for layer, ffn in ffns.items()}
    top_ks = {layer: ffn.top_k for layer, ffn in ffns.items()}
    try:
        for ffn in ffns.values():
            ffn.top_k = ffn.experts
        result["ppl_all_experts"] = perplexity(model, ids)
    finally:
        for layer, ffn in ffns.items():
            ffn.top_k = top_ks[layer]
    result["total_parameters"] = _parameters(model)
    held = sum(sum(p.numel() for p in ffn.parameters()) for ffn in ffns.values())
    active = sum(ffn.active_parameters() for ffn in ffns.values())
    result["active_parameters"] = result["total_parameters"] - held + active
    return result


def _timed_perplexity(model: nn.Module, ids: Tensor) -> tuple[float, float]:
    with torch.no_grad():
        run_body(model, ids[:1].to(next(model.parameters()).device))  # the first pass also pays for what is set up once
    start = time.perf_counter()
    value = perplexity(model, ids)
    return value, time.perf_counter() - start


def _max_load(ffn: DotMoEFFN) -> float:
    routed = ffn.load()[ffn.n_shared :]
    return float(routed.max() * len(routed) / routed.sum())


def _parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())  # shared ones once


def _logits(model: Any, rows: Tensor) -> Tensor:
    return model(input_ids=rows.to(next(model.parameters()).device), use_cache=False).logits
