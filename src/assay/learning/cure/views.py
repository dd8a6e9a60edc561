"""Random views of a batch: swapped features for tables, small rotations, scalings and shifts for images."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from assay.errors import InputError

Augment = Callable[[Tensor, torch.Generator], Tensor]

SWAPPED, NOISE = 0.15, 0.1
DEGREES, SCALING, SHIFT = 14.0, 0.15, 0.25


def tabular_view(batch: Float[Tensor, "batch features"], generator: torch.Generator) -> Tensor:
    """Each feature takes another row's value with probability 0.15; noise of 0.1 on top (features have sd 1)."""
    n, d = batch.shape
    other = torch.randint(n, (n, d), generator=generator, device=batch.device)
    swap = torch.rand(n, d, generator=generator, device=batch.device) < SWAPPED
    mixed = torch.where(swap, batch.gather(0, other), batch)
    return mixed + NOISE * torch.randn(n, d, generator=generator, device=batch.device)


def image_view(batch: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate by up to 14°, scale by up to 15 %, shift by up to 25 % of half the width; noise of 0.1 on top.

    ``batch`` is (n, h, w) or (n, c, h, w); what comes from outside the image is 0.
    """
    images = batch[:, None] if batch.ndim == 3 else batch
    n = len(images)

    def uniform(most: float) -> Tensor:
        return most * (2 * torch.rand(n, generator=generator, device=batch.device) - 1)

    angle, size = uniform(math.radians(DEGREES)), 1 + uniform(SCALING)
    cos, sin = torch.cos(angle) / size, torch.sin(angle) / size
    theta = torch.stack([cos, -sin, uniform(SHIFT), sin, cos, uniform(SHIFT)], dim=1).view(n, 2, 3).to(images.dtype)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    moved = F.grid_sample(images, grid, align_corners=False)
    noise = torch.randn(moved.shape, generator=generator, device=batch.device, dtype=moved.dtype)
    return (moved + NOISE * noise).view(batch.shape)


def checked_view(augment: Augment, batch: Tensor, generator: torch.Generator) -> Tensor:
    """A view by the user's function, which must keep the shape."""
    view = augment(batch.clone(), generator)  # a function that works in place must not change the other view
    if not isinstance(view, Tensor) or view.shape != batch.shape:
        was = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
        raise InputError(f"augment must return a tensor of the batch's shape {tuple(batch.shape)}, it returned {was}")
    return view


def view_by_name(augment: str | Augment, ndim: int) -> Augment:
    """The function that makes views of a batch with ``ndim`` axes."""
    if callable(augment):
        return augment
    named = isinstance(augment, str)
    if named and augment in ("auto", "tabular") and ndim == 2:
        return tabular_view
    if named and augment in ("auto", "image") and ndim in (3, 4):
        return image_view
    raise InputError(
        "augment must be 'auto', 'tabular' for X with 2 axes, 'image' for X with 3 or 4, or a function, "
        f"got {augment!r} for {ndim}"
    )
