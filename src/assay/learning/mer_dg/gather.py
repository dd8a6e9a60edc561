"""Rows of all processes of a distributed training, with their gradient."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor


def gathered(z: Float[Tensor, "n d"]) -> Float[Tensor, "all d"]:
    """The rows of every process, in the order of their ranks; z itself where torch.distributed is not initialised.

    Processes may have different numbers of rows, and none at all. Each gets the gradient of the sum of all processes'
    losses. DistributedDataParallel averages over processes, so that what every process computes from the gathered rows
    counts once, as it would in one process with all rows.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return z
    counts = [torch.zeros(1, dtype=torch.int64, device=z.device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([len(z)], device=z.device))
    return _Gather.apply(z, [int(count) for count in counts])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        # Every process must send as many rows as the longest.
        padded = z.new_zeros((max(counts), z.shape[1]))
        padded[: len(z)] = z
        every = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(every, padded)
        return torch.cat([rows[:n] for rows, n in zip(every, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        gradient = gradients[0].contiguous().clone()
        dist.all_reduce(gradient)
        return gradient.split(ctx.counts)[dist.get_rank()], None
