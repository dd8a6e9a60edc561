"""Contrastive losses on a batch of representations: rows that belong together against all others."""

from __future__ import annotations

import math

from assay.errors import MissingPart

try:
    import torch
    from jaxtyping import Float, Shaped
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingPart(f"contrastive losses need {error.name}", "python -m pip install 'assay[torch]'") from error

__all__ = ["info_nce", "supervised_contrastive"]


def info_nce(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"], temperature: float = 0.1) -> Float[Tensor, ""]:
    """Return the contrastive loss of two views of the same rows (NT-Xent).

    Each of the 2n representations, scaled to length 1, has its other view to find among the 2n - 1 others: the mean
    cross-entropy of cosine / temperature.

    Parameters
    ----------
    a, b
        (n, d) the two views, n ≥ 1, of any scale. Half precision is computed as float32.
    temperature
        Positive.

    Raises
    ------
    TypeError
        For what are no floating-point numbers.
    ValueError
        For views that are not matrices of the same shape, no rows, or a temperature that is not positive.

    Notes
    -----
    Chen et al., A Simple Framework for Contrastive Learning of Visual Representations (ICML 2020), arXiv 2002.05709.

    Examples
    --------
    >>> same = torch.eye(2)
    >>> round(float(info_nce(same, same, temperature=1.0)), 4)  # log(1 + 2/e)
    0.5514
    """
    _check("a", a)
    _check("b", b)
    if a.shape != b.shape:
        raise ValueError(f"a and b must have the same shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    n = len(a)
    logits = _cosines(torch.cat([a, b]), temperature)
    other = torch.arange(2 * n, device=logits.device).roll(n)
    return torch.nn.functional.cross_entropy(logits, other)


def supervised_contrastive(
    z: Float[Tensor, "n d"], labels: Shaped[Tensor, " n"], temperature: float = 0.1
) -> Float[Tensor, ""]:
    """Return the contrastive loss in which the rows with the same label belong together.

    For each row, the mean over the others of its label of ``-log softmax(cosine / temperature)`` among all other rows;
    then the mean over the rows that have such others. Where no row has, it is 0, with a gradient of 0.

    Parameters
    ----------
    z
        (n, d) representations of any scale. Half precision is computed as float32.
    labels
        (n,) integers, all of them labels.
    temperature
        Positive.

    Raises
    ------
    TypeError
        For representations that are no floating-point numbers.
    ValueError
        For another shape, no rows, as many labels as there are not rows, or a temperature that is not positive.

    Notes
    -----
    Khosla et al., Supervised Contrastive Learning (NeurIPS 2020), arXiv 2004.11362, the loss "out".

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0], [2, 0], [0, 1]])
    >>> round(float(supervised_contrastive(z, torch.tensor([0, 0, 1]), temperature=1.0)), 4)  # log(1 + 1/e)
    0.3133
    """
    _check("z", z)
    if labels.shape != z.shape[:1]:
        raise ValueError(f"labels must be one for each of {len(z)} rows, got the shape {tuple(labels.shape)}")
    logits = _cosines(z, temperature)
    labels = labels.to(logits.device)
    same = labels[:, None] == labels[None, :]
    same.fill_diagonal_(False)
    count = same.sum(dim=1)
    log_softmax = torch.log_softmax(logits, dim=1).masked_fill(~same, 0.0)  # not times a mask: -inf · 0 is NaN
    per_row = -log_softmax.sum(dim=1) / count.clamp(min=1)
    return per_row.sum() / (count > 0).sum().clamp(min=1)


def _check(name: str, z: Tensor) -> None:
    if not z.is_floating_point():
        raise TypeError(f"{name} must be floating-point numbers, got {z.dtype}")
    if z.ndim != 2 or not len(z):
        raise ValueError(f"{name} must have rows and columns, got the shape {tuple(z.shape)}")


def _cosines(z: Tensor, temperature: float) -> Tensor:
    """All cosines over the temperature, ``-inf`` for a row with itself; float32 at least, also under autocast."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be positive, got {temperature}")
    with torch.autocast(z.device.type, enabled=False):
        wide = z if z.dtype in (torch.float32, torch.float64) else z.float()
        unit = torch.nn.functional.normalize(wide, dim=1)
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        return (unit @ unit.T / temperature).masked_fill(itself, -math.inf)
