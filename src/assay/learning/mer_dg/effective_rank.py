"""How many dimensions features really use."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike

from assay.errors import InputError
from assay.numerics import spectra

from .losses import check_not_negative


def rankme(z: torch.Tensor | ArrayLike, eps: float = 1e-12) -> float:
    """RankMe: exp of the entropy of the singular values' shares, between 1 and min(N, D).

    Parameters
    ----------
    z
        (N, D) features, finite, a tensor or an array; they are not centred.
    eps
        Added to each share, so that a share of zero has a logarithm.

    Raises
    ------
    ValueError
        If z is no finite matrix.

    Notes
    -----
    Source: Garrido et al., "RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised Representations
    by Their Rank", ICML 2023, arXiv 2210.02885.

    Examples
    --------
    >>> round(rankme(torch.eye(4)), 3), round(rankme([[1.0, 1.0], [2.0, 2.0]]), 3)
    (4.0, 1.0)
    """
    check_not_negative("eps", eps)
    try:
        array = np.asarray(z.detach().double().cpu() if isinstance(z, torch.Tensor) else z)
        array = array if array.dtype.kind == "c" else array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("z must be a matrix of real numbers") from None
    if array.dtype.kind == "c":
        raise InputError("z must hold real numbers, got complex ones")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"z must be a non-empty matrix (rows, features), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise InputError("z holds NaN or infinity")
    return float(spectra.rankme(array, eps=eps))
