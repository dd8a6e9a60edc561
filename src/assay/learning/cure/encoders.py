"""Encoders for arrays, and features of many rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

ROWS_AT_ONCE = 4096

Made = TypeVar("Made")


def mlp(n_features: int, dim: int) -> nn.Module:
    """In → 256 → 128 → dim with batch normalisation; images are taken row by row."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(n_features, 256),
        nn.BatchNorm1d(256),
        nn.ReLU(),
        nn.Linear(256, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Linear(128, dim),
    )


class Residual(nn.Module):
    """Features as they are, plus what a small network adds; at the start it adds nothing.

    For features that another network has learned already: their geometry is where training begins. Where ``dim`` is
    below their width, ``basis`` (n_features, dim), orthonormal, takes them down to it.
    """

    def __init__(self, basis: Float[Tensor, "n_features dim"]) -> None:
        super().__init__()
        n_features, dim = basis.shape
        self.register_buffer("basis", basis.clone())
        self.change = nn.Sequential(nn.Flatten(), nn.Linear(n_features, 256), nn.GELU(), nn.Linear(256, dim))
        nn.init.zeros_(self.change[-1].weight)
        nn.init.zeros_(self.change[-1].bias)

    def forward(self, x: Tensor) -> Float[Tensor, "batch dim"]:
        """Features (batch, dim)."""
        return x.flatten(1) @ self.basis + self.change(x)


def principal_basis(X: Float[Tensor, "n n_features"], dim: int) -> Float[Tensor, "n_features dim"]:
    """Orthonormal directions of most variance, (n_features, dim)."""
    table = X.flatten(1).double()
    table = table - table.mean(dim=0)
    values, vectors = torch.linalg.eigh(table.T @ table)
    return vectors[:, values.argsort(descending=True)[:dim]].to(X.dtype)


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Torch's own generators at ``seed`` inside, for layers' starts and dropout; afterwards as they were."""
    gpu = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpu):
        torch.manual_seed(seed)
        yield


def made_with(seed: int, make: Callable[[], Made]) -> Made:
    """What ``make`` makes on the CPU with torch's generator at ``seed``."""
    with seeded(seed):
        return make()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside; afterwards each part has the mode that it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def outputs(net: nn.Module, call: Callable[[Tensor], Tensor], X: Tensor, device: torch.device) -> Tensor:
    """``call`` on all rows in evaluation mode of ``net``, on the CPU."""
    with evaluating(net):
        # Copies: a layer that works in place must not change the rows.
        return torch.cat([call(rows.to(device, copy=True)).float().cpu() for rows in X.split(ROWS_AT_ONCE)])
