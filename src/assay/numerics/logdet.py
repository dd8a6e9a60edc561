"""The log-determinant of a regularised Gram matrix, from whichever of its two forms is smaller."""

from __future__ import annotations

import math

from assay.errors import MissingPart

try:
    import torch
    from jaxtyping import Float
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingPart(f"log-determinants need {error.name}", "python -m pip install 'assay[torch]'") from error

__all__ = ["logdet_gram"]


def logdet_gram(A: Float[Tensor, "n d"], eps: float) -> Float[Tensor, ""]:
    """Return ``log det(eps·I + AᵀA)``, the identity of size d, with its gradient.

    Where n < d it is ``(d - n)·log eps + log det(eps·I + AAᵀ)`` (Sylvester), so that the work is O(n·d·min(n, d)) and
    the memory O(n·d + min(n, d)²). By Cholesky; where rounding leaves no positive definite matrix, from the eigenvalues
    with none below eps.

    Parameters
    ----------
    A
        (n, d). Half precision is computed as float32, and autocast does not apply.
    eps
        Positive.

    Returns
    -------
    Tensor
        A scalar, float32 or float64 as A. With no rows it is d·log eps, with no columns 0.

    Raises
    ------
    TypeError
        For what are no floating-point numbers.
    ValueError
        For another number of dimensions, NaN or infinity in A, or an eps that is not positive.

    Examples
    --------
    >>> round(float(logdet_gram(torch.tensor([[1.0, 2.0, 0.0]]), eps=0.5)), 6)  # 2·log 0.5 + log 5.5
    0.318454
    """
    if not A.is_floating_point():
        raise TypeError(f"A must be floating-point numbers, got {A.dtype}")
    if A.ndim != 2:
        raise ValueError(f"A must have rows and columns, got the shape {tuple(A.shape)}")
    if not 0 < eps < math.inf:
        raise ValueError(f"eps must be positive, got {eps}")
    n, d = A.shape
    with torch.autocast(A.device.type, enabled=False):
        wide = A if A.dtype in (torch.float32, torch.float64) else A.float()
        gram = wide @ wide.T if n < d else wide.T @ wide
        gram = gram + eps * torch.eye(min(n, d), dtype=wide.dtype, device=wide.device)
        return max(d - n, 0) * math.log(eps) + _logdet(gram, eps)


def _logdet(gram: Tensor, eps: float) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(gram)
    value: Tensor = 2 * factor.diagonal().log().sum()
    if bool((info == 0) & value.isfinite()):
        return value
    if not bool(torch.isfinite(gram).all()):
        raise ValueError("A must be finite, and so must its squares; it has NaN or infinity, or is too large")
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return eigenvalues.clamp(min=eps).log().sum()
