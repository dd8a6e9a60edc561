"""The contenders of the study: other cuts, the same router and training; and pruning, the same training."""

from __future__ import annotations

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor

from .config import DotMoEConfig
from .dense import DenseFFN
from .ffn import DotMoEFFN, capacities
from .layer_stage import convert_layer, dense_outputs, train
from .starts import written

RIDGE = 1e-4
"""Of the refit after pruning, as a share of the neurons' mean square."""


def with_cut(dense: DenseFFN, x: Float[Tensor, "n d"], config: DotMoEConfig) -> DotMoEFFN:
    """A cut that stays as it starts: at random (LLaMA-MoE), by weights (MoEfication) or by activations (CMoE)."""
    return convert_layer(dense, x, dataclasses.replace(config, learn_cut=False))


def plain(dense: DenseFFN, x: Float[Tensor, "n d"], config: DotMoEConfig) -> DotMoEFFN:
    """The source's version: random starts, straight-through gradients without the correction."""
    source = dataclasses.replace(
        config, init="random", fit_router=False, correction=False, lr_affinity=5e-2, lr_router=1e-2
    )
    return convert_layer(dense, x, source)


def pruned(dense: DenseFFN, x: Float[Tensor, "n d"], config: DotMoEConfig) -> DotMoEFFN:
    """The same neurons for every token, as many as k experts hold: those that write most.

    What they write is refitted by ridge least squares, then all matrices are trained like the experts'. The result is
    an FFN of two experts that are both always on.
    """
    dense = dense.to(dense.up.device, torch.float32)
    targets, weight = dense_outputs(dense, x, config.batch_tokens)
    keep = sum(capacities(len(dense.up), config.n_experts)[: config.top_k])
    total = torch.zeros(len(dense.up), device=dense.up.device)
    parts = list(zip(*(rows.split(config.batch_tokens) for rows in (x, targets, weight)), strict=True))
    for part, _, v in parts:
        total += written(dense.hidden(part.to(total)), dense.down, v.to(total))
    kept = torch.argsort(total, descending=True, stable=True)[:keep].sort().values

    def rows(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor[kept]

    small = dataclasses.replace(
        dense, up=dense.up[kept], down=dense.down[kept], gate=rows(dense.gate), up_bias=rows(dense.up_bias),
        gate_bias=rows(dense.gate_bias),
    )  # fmt: skip
    gram, cross = torch.zeros(keep, keep, device=total.device), torch.zeros_like(small.down)
    for part, target, v in ((part.to(total) for part in three) for three in parts):
        values = small.hidden(part)
        if dense.down_bias is not None:
            target = target - dense.down_bias
        gram += values.T @ (v[:, None] * values)
        cross += values.T @ (v[:, None] * target)
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    small = dataclasses.replace(small, down=torch.linalg.solve(gram, cross))
    ffn = DotMoEFFN(small, n_experts=2, top_k=2, n_shared=1).train()
    always = dataclasses.replace(
        config, n_experts=2, top_k=2, n_shared=1, learn_cut=False, correction=False, balance=0.0, z_loss=0.0
    )
    train(ffn, x, targets, weight, always, torch.Generator().manual_seed(config.seed))
    ffn.last = None
    return ffn.eval()


def best_neurons(dense: DenseFFN, x: Float[Tensor, "n d"], keep: int) -> Float[Tensor, "n d"]:
    """For each token the neurons that write most to it, chosen by looking at the dense layer: what no router can do."""
    values = dense.hidden(x)
    strength = values.square() * dense.down.square().sum(dim=1)
    chosen = torch.zeros_like(values).scatter_(1, strength.topk(keep, dim=1).indices, 1.0)
    y = (values * chosen) @ dense.down
    return y if dense.down_bias is None else y + dense.down_bias
