"""A classifier of prototypes on the sphere."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import InputError


class CosineHead(nn.Module):
    """Logits that are the scaled cosine of a feature with each class's prototype.

    Parameters
    ----------
    dim
        Width of the features.
    n_classes
        Number of prototypes, at least 1. They start in random directions, drawn by torch's own generator.
    scale
        Factor on the cosine, positive; default 10, a temperature of 0.1.

    Attributes
    ----------
    prototypes
        (K, dim) parameter; only the rows' directions count.

    Raises
    ------
    InputError
        If a number is out of range.
    """

    def __init__(self, dim: int, n_classes: int, scale: float = 10.0) -> None:
        super().__init__()
        if dim < 1 or n_classes < 1:
            raise InputError(f"dim and n_classes must be at least 1, got {dim} and {n_classes}")
        if not 0 < scale < math.inf:
            raise InputError(f"scale must be positive and finite, got {scale}")
        self.scale = float(scale)
        self.prototypes = nn.Parameter(F.normalize(torch.randn(n_classes, dim), dim=1))

    def forward(self, z: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch classes"]:
        """Scale · cos(z, prototype), (batch, K)."""
        if z.ndim != 2 or z.shape[1] != self.prototypes.shape[1]:
            raise InputError(f"z must have shape (batch, {self.prototypes.shape[1]}), got {tuple(z.shape)}")
        return self.scale * F.normalize(z, dim=1) @ F.normalize(self.prototypes, dim=1).T

    @torch.no_grad()
    def extend(self, new_prototypes: Float[Tensor, "new dim"]) -> None:
        """Append prototypes (new, dim). ``prototypes`` becomes a new parameter, which wants a new optimiser.

        Raises
        ------
        InputError
            If their width differs from the head's.
        """
        old = self.prototypes
        if new_prototypes.ndim != 2 or new_prototypes.shape[1] != old.shape[1]:
            raise InputError(f"new_prototypes must have shape (new, {old.shape[1]}), got {tuple(new_prototypes.shape)}")
        both = torch.cat([old, new_prototypes.to(old)])
        self.prototypes = nn.Parameter(both, requires_grad=old.requires_grad)
