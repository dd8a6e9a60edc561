"""Tables with a mean shift that we know: drawn from a spiked model, or put into real ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

SPIKES = (14.0, 8.0)
"""Strengths ℓ of the two covariance spikes: population eigenvalues 1 + ℓ over noise of unit variance."""


def spiked_mixture(
    rng: np.random.Generator,
    n: int,
    d: int,
    share: float,
    strength: float = 25.0,
    degrees: float | None = None,
    spikes: tuple[float, ...] = SPIKES,
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Draw rows of covariance 1 + spikes, a share of them with another mean.

    Parameters
    ----------
    rng
        The source of randomness.
    n, d
        Rows and columns.
    share
        Share π of shifted rows.
    strength
        π(1 − π)‖μ‖², the spike that the shift μ (uniform on the sphere) adds to the covariance.
    degrees
        Degrees of freedom of Student's t for all entries (scaled to unit variance); ``None`` is Gaussian.
    spikes
        Strengths of the covariance spikes.

    Returns
    -------
    X
        (n, d) rows.
    shifted
        (n,) which rows are shifted; exactly round(share · n).
    directions
        (len(spikes), d) the eigenvectors of the spikes, as rows.
    """
    if degrees is None:
        X = rng.standard_normal((n, d))
    else:
        X = rng.standard_t(degrees, (n, d)) / np.sqrt(degrees / (degrees - 2))
    directions = np.linalg.qr(rng.standard_normal((d, len(spikes))))[0].T
    X += (X @ directions.T * (np.sqrt(1 + np.array(spikes)) - 1)) @ directions
    shifted = random_rows(rng, n, share)
    if shifted.any():
        X[shifted] += random_direction(rng, d) * np.sqrt(strength / (share * (1 - share)))
    return X, shifted, directions


def inject(rng: np.random.Generator, X: FloatArray, share: float, length: float) -> tuple[FloatArray, BoolArray]:
    """Add a shift of that length along a random direction to a random share of the rows of ``X`` (copied)."""
    shifted = random_rows(rng, len(X), share)
    X = X.copy()
    X[shifted] += length * random_direction(rng, X.shape[1])
    return X, shifted


def random_rows(rng: np.random.Generator, n: int, share: float) -> BoolArray:
    """Choose exactly round(share · n) of n rows."""
    rows = np.zeros(n, dtype=bool)
    rows[rng.choice(n, round(share * n), replace=False)] = True
    return rows


def random_direction(rng: np.random.Generator, d: int) -> FloatArray:
    """Draw a unit vector (d,), uniform on the sphere."""
    direction = rng.standard_normal(d)
    return direction / np.linalg.norm(direction)


def one_digit(rng: np.random.Generator) -> FloatArray:
    """Return the 8 × 8 images (about 180, 64) of a random digit, grey levels 0 to 16."""
    X, digit = load_digits(return_X_y=True)
    return np.asarray(X[digit == rng.integers(10)], dtype=np.float64)


def two_digits(rng: np.random.Generator, share: float = 0.1) -> tuple[FloatArray, BoolArray]:
    """Return all images of one random digit, and as many of another as make up that share of the rows."""
    X, digit = load_digits(return_X_y=True)
    major, minor = rng.choice(10, 2, replace=False)
    majority, others = X[digit == major], X[digit == minor]
    count = round(share / (1 - share) * len(majority))
    minority = others[rng.choice(len(others), count, replace=False)]
    order = rng.permutation(len(majority) + count)
    from_minor = np.repeat([False, True], [len(majority), count])
    return np.concatenate([majority, minority])[order].astype(np.float64), from_minor[order]
