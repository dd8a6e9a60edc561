"""What random matrix theory says of a spiked covariance: how many spikes there are, how well PCA sees one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from assay.numerics.spectra import marchenko_pastur_support, noise_level

TRACY_WIDOM_99 = 2.02
"""The 99 % point of the Tracy–Widom law of order 1."""


def noise_edge(eigvals: ArrayLike, n: int, d: int) -> float:
    """Return the largest eigenvalue that noise alone would give, with a probability of about 99 %.

    The upper Marchenko–Pastur edge at the noise level of :func:`assay.numerics.spectra.noise_level`, plus the
    Tracy–Widom fluctuation of the largest eigenvalue in Johnstone's scaling,
    (1/√n + 1/√d)^{1/3} / (√n + √d) of the edge.

    Parameters
    ----------
    eigvals
        (m,) every eigenvalue of the sample covariance with divisor n (zeros may be left out).
    n, d
        Rows and columns of the data.
    """
    noise, gamma = noise_level(eigvals, n, d)
    rows = float(n)
    columns = gamma * rows
    spread = (rows**-0.5 + columns**-0.5) ** (1 / 3) / (rows**0.5 + columns**0.5)
    return marchenko_pastur_support(gamma, noise)[1] * (1 + TRACY_WIDOM_99 * spread)


def spiked_count(eigvals: ArrayLike, n: int, d: int) -> int:
    """Return how many eigenvalues stand above the edge of the noise.

    Parameters
    ----------
    eigvals
        (m,) every eigenvalue of the sample covariance with divisor n, in any order and unit (zeros may be
        left out).
    n, d
        Rows and columns of the data.

    Raises
    ------
    ValueError
        If no eigenvalue is positive.

    Examples
    --------
    >>> spiked_count([16.0, 9.5] + [1.0] * 98, n=1000, d=100)
    2
    """
    return int(np.sum(np.asarray(eigvals, dtype=np.float64) > noise_edge(eigvals, n, d)))


def predicted_alignment(spike: float, gamma: float) -> float:
    """Return the limit of |ûᵀu|, the cosine between a sample and a population eigenvector.

    √(max(0, (1 − γ/ℓ²) / (1 + γ/ℓ))) for the population eigenvalue 1 + ℓ over noise of unit variance, as n and
    d grow with d / n = γ (Paul 2007, Statistica Sinica 17).

    Parameters
    ----------
    spike
        ℓ, positive.
    gamma
        Columns over rows, positive.

    Examples
    --------
    >>> round(predicted_alignment(14, 0.9), 6), round(predicted_alignment(8, 0.9), 6)
    (0.9671, 0.941401)
    """
    if not spike > 0 or not gamma > 0:
        raise ValueError(f"spike and gamma must be positive, got spike={spike}, gamma={gamma}")
    return math.sqrt(max(0.0, (1 - gamma / spike**2) / (1 + gamma / spike)))
