"""Where cut and router start: from what the neurons do on the calibration text."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay.numerics.clustering import balanced_kmeans

from .config import DotMoEConfig
from .dense import DenseFFN
from .ffn import DotMoEFFN, capacities

ACTIVE = 1 / 8
"""The share of a token's neurons, the strongest, that count as active on it."""

CLUSTER_TOKENS = 4096
"""Neurons are clustered on at most so many tokens; more changes little and costs as much more."""

LEAD = 0.1
"""By how much a neuron's affinity to the expert that it starts in leads the others."""

RIDGE = 1e-2
"""Of the router's regression, as a share of the inputs' mean square."""


def start_cut(
    dense: DenseFFN, x: Float[Tensor, "n d"], weight: Float[Tensor, " n"], config: DotMoEConfig
) -> Int[Tensor, " d_ffn"]:
    """The cut to start from: the expert of each neuron, equal numbers in each.

    With shared experts they hold the neurons that write most, the root of Σ_t v_t h_ti² times ‖w_i‖.

    Parameters
    ----------
    dense
        The layer.
    x
        (n, d) its inputs.
    weight
        (n,) v, how much each token counts.
    config
        ``init``, ``n_experts``, ``n_shared`` and ``seed`` are used.
    """
    d_ffn = len(dense.up)
    sizes = capacities(d_ffn, config.n_experts)
    shared, generator = config.n_shared, torch.Generator().manual_seed(config.seed)
    if config.init == "random":
        labels = torch.repeat_interleave(torch.arange(config.n_experts), torch.tensor(sizes))
        return labels[torch.randperm(d_ffn, generator=generator)]
    some = torch.randperm(len(x), generator=generator)[:CLUSTER_TOKENS].to(x.device)
    values = dense.hidden(x[some])
    assignment = torch.empty(d_ffn, dtype=torch.int64)
    order = torch.argsort(written(values, dense.down, weight[some]), descending=True, stable=True).cpu()
    for expert in range(shared):
        start = sum(sizes[:expert])
        assignment[order[start : start + sizes[expert]]] = expert
    rest = order[sum(sizes[:shared]) :].sort().values
    if config.init == "activation":
        features = torch.zeros_like(values)
        features.scatter_(1, values.abs().topk(max(1, int(ACTIVE * d_ffn)), dim=1).indices, 1.0)
        features = features.T.cpu()[rest]
    else:
        features = (dense.up if dense.gate is None else dense.gate).float().cpu()[rest]
    labels = balanced_kmeans(features.numpy(), config.n_experts - shared, sizes[shared:], seed=config.seed, n_init=1)
    assignment[rest] = torch.from_numpy(np.asarray(labels, dtype=np.int64)) + shared
    return assignment


def written(
    values: Float[Tensor, "n d_ffn"], down: Float[Tensor, "d_ffn d"], weight: Float[Tensor, " n"]
) -> Float[Tensor, " d_ffn"]:
    """How much each neuron writes: Σ_t v_t h_ti² ‖w_i‖²."""
    return (weight @ values.square()) * down.square().sum(dim=1)


def start_affinity(assignment: Int[Tensor, " d_ffn"], config: DotMoEConfig) -> Float[Tensor, "d_ffn E"]:
    """Affinities that round to this cut, with a little noise; with ``init="random"`` the noise alone."""
    generator = torch.Generator().manual_seed(config.seed + 1)
    noise = 0.01 * torch.randn(len(assignment), config.n_experts, generator=generator)
    if config.init == "random":
        return noise
    return noise + LEAD * nn.functional.one_hot(assignment.cpu(), config.n_experts)


@torch.no_grad()
def start_router(
    ffn: DotMoEFFN,
    dense: DenseFFN,
    assignment: Int[Tensor, " d_ffn"],
    x: Float[Tensor, "n d"],
    weight: Float[Tensor, " n"],
    config: DotMoEConfig,
) -> None:
    """Start the router of ``ffn``.

    ``fit_router``: logits are the ridge regression, on the layer's inputs, of what each expert alone gains a token on
    top of the shared ones, v_t (2 (Y_t − S_t)·o_te − ‖o_te‖²), where o_te is what expert e writes and S_t what the
    shared ones do. They are scaled to a standard deviation of 1. Otherwise normal noise of deviation 0.02.
    """
    rows = ffn.router.weight
    if not config.fit_router:
        generator = torch.Generator().manual_seed(config.seed + 2)
        rows.copy_(0.02 * torch.randn(rows.shape, generator=generator))
        return
    d = x.shape[1]
    gram, cross = torch.zeros(d, d, device=x.device), torch.zeros(d, len(rows), device=x.device)
    order = torch.argsort(assignment, stable=True).to(x.device)
    for part, v in zip(x.split(config.batch_tokens), weight.split(config.batch_tokens), strict=True):
        outputs = expert_outputs(dense.hidden(part)[:, order], dense.down[order], ffn.sizes)
        total = outputs.sum(dim=0)
        rest = total - outputs[: ffn.n_shared].sum(dim=0)
        routed = outputs[ffn.n_shared :]
        gains = v * (2 * (routed * rest).sum(dim=-1) - routed.square().sum(dim=-1))
        gram += part.T @ part
        cross += part.T @ (gains - gains.mean(dim=0)).T
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    fitted = torch.linalg.solve(gram, cross).T
    spread = torch.sqrt(((fitted @ gram) * fitted).sum() / (len(x) * len(rows)))
    rows.copy_(fitted / spread.clamp_min(1e-12))


def expert_outputs(
    values: Float[Tensor, "n d_ffn"], down: Float[Tensor, "d_ffn d"], sizes: list[int]
) -> Float[Tensor, "E n d"]:
    """What each expert writes for each token; the neurons lie expert by expert."""
    parts = zip(values.split(sizes, dim=1), down.split(sizes), strict=True)
    return torch.stack([value @ rows for value, rows in parts])
