"""Spectra of sample covariances: truncated eigen-decomposition, the Marchenko–Pastur law, the noise level.

Rows are samples. The sample covariance of centred rows ``Y`` of shape (n, d) is ``YᵀY / n`` (divisor n), and
``gamma = d / n`` is the aspect ratio of the Marchenko–Pastur law.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg, optimize
from scipy.linalg import lapack
from sklearn.utils import check_random_state
from sklearn.utils.extmath import randomized_svd

__all__ = [
    "Eigen",
    "marchenko_pastur_cdf",
    "marchenko_pastur_median",
    "marchenko_pastur_quantile",
    "marchenko_pastur_support",
    "noise_level",
    "rankme",
    "truncated_eigen",
]

FloatArray = npt.NDArray[np.float64]
RandomState = int | np.random.RandomState | None

GRAM_LIMIT = 1500
"""Up to this min(n, d) the smaller Gram matrix is decomposed; above it a randomized method is faster."""


class Eigen(NamedTuple):
    """The leading eigenpairs of ``YᵀY / n``, and the eigenvalues from which the noise level is read.

    Attributes
    ----------
    values
        (k,) largest eigenvalues, descending, never negative.
    vectors
        (k, d) their unit eigenvectors, as rows, orthonormal.
    total
        Sum of all eigenvalues: the total variance.
    bulk
        (min(n_bulk, d),) every eigenvalue, descending, of the covariance of ``n_bulk`` of the rows;
        empty where they were not wanted.
    n_bulk
        How many rows ``bulk`` comes from: all of them where the Gram matrix was decomposed.
    """

    values: FloatArray
    vectors: FloatArray
    total: float
    bulk: FloatArray
    n_bulk: int


def truncated_eigen(Y: npt.ArrayLike, k: int, random_state: RandomState = None, *, bulk: bool = True) -> Eigen:
    """Return the ``k`` leading eigenpairs of ``YᵀY / n`` without a (d, d) matrix when d > n.

    Parameters
    ----------
    Y
        (n, d) rows, already centred as the caller wants them; not changed.
    k
        How many pairs, 1 ≤ k ≤ min(n, d).
    random_state
        Used only where min(n, d) > 1500 and k is at most a tenth of it: then the pairs come from
        ``sklearn.utils.extmath.randomized_svd`` and ``bulk`` from 1500 random rows.
    bulk
        Whether every eigenvalue is wanted too; without them the work is about half.

    Raises
    ------
    ValueError
        If ``Y`` is not two-dimensional or ``k`` is out of range.

    Examples
    --------
    >>> eigen = truncated_eigen([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], k=1)
    >>> eigen.values, abs(eigen.vectors)
    (array([4.5]), array([[1., 0.]]))
    """
    Y = np.asarray(Y, dtype=np.float64)
    if Y.ndim != 2:
        raise ValueError(f"Y must have two dimensions (rows, columns), got shape {Y.shape}")
    n, d = Y.shape
    if not 1 <= k <= min(n, d):
        raise ValueError(f"k must lie between 1 and min(n, d) = {min(n, d)}, got {k}")
    total = float(np.einsum("ij,ij->", Y, Y) / n)
    if min(n, d) <= GRAM_LIMIT or 10 * k > min(n, d):
        gram = (Y.T @ Y if d <= n else Y @ Y.T) / n
        values, vectors, every = _largest(gram, k, bulk)
        if d > n:
            # Yᵀw is an eigenvector of length √(nλ); QR, and not a division by it, keeps the rows orthonormal
            # also where λ is tiny or zero.
            vectors = _orthonormal(Y.T @ vectors)
        return Eigen(values, np.ascontiguousarray(vectors.T), total, every, n)
    rng = check_random_state(random_state)
    _, singular, rows = randomized_svd(Y, k, n_oversamples=20, n_iter=7, random_state=rng)
    every = np.empty(0)
    if bulk:
        some = Y[rng.choice(n, GRAM_LIMIT, replace=False)]
        every = _all_eigenvalues(some @ some.T / GRAM_LIMIT)
    return Eigen(singular**2 / n, np.ascontiguousarray(_orthonormal(rows.T).T), total, every, GRAM_LIMIT)


def _all_eigenvalues(gram: FloatArray) -> FloatArray:
    return np.maximum(linalg.eigvalsh(gram)[::-1], 0.0)


def _largest(gram: FloatArray, k: int, bulk: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The k largest eigenvalues, their vectors as columns and, where wanted, all eigenvalues; all descending.

    ``gram`` may be overwritten.
    """
    m = len(gram)
    if not bulk or m < 3:
        every = _all_eigenvalues(gram) if bulk else np.empty(0)
        values, vectors = linalg.eigh(gram, subset_by_index=[m - k, m - 1], overwrite_a=True)
        return np.maximum(values[::-1], 0.0), vectors[:, ::-1], every
    # linalg.eigh gives some pairs or all eigenvalues. Most of the work of either is the reduction to a
    # tridiagonal matrix, so that is done once here for both.
    # (gram is symmetric: its transpose is the same matrix in LAPACK's order, and is overwritten to save memory.)
    reduced, diagonal, beside, tau, _ = lapack.dsytrd(gram.T, lower=1, lwork=64 * m, overwrite_a=1)
    every = np.maximum(linalg.eigvalsh_tridiagonal(diagonal, beside)[::-1], 0.0)
    _, ascending = linalg.eigh_tridiagonal(diagonal, beside, select="i", select_range=(m - k, m - 1))
    vectors = np.array(ascending[:, ::-1], dtype=np.float64, order="F")
    vectors[1:] = lapack.dormqr("L", "N", reduced[1:, :-1], tau, vectors[1:], 64 * m)[0]
    return every[:k], vectors, every


def _orthonormal(columns: FloatArray) -> FloatArray:
    q, r = np.linalg.qr(columns)
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0), dtype=np.float64)


def marchenko_pastur_support(gamma: float, noise: float = 1.0) -> tuple[float, float]:
    """Return the lower and the upper edge, ``noise · (1 ∓ √gamma)²``, of the nonzero eigenvalues.

    Parameters
    ----------
    gamma
        Columns over rows, d / n, positive.
    noise
        Variance of one entry, positive.

    Examples
    --------
    >>> low, high = marchenko_pastur_support(0.9)
    >>> round(high, 6)
    3.797367
    """
    _check_law(gamma, noise)
    root = math.sqrt(gamma)
    return noise * (1 - root) ** 2, noise * (1 + root) ** 2


def marchenko_pastur_cdf(x: npt.ArrayLike, gamma: float, noise: float = 1.0) -> FloatArray:
    """Return the distribution function of the nonzero eigenvalues at ``x``.

    For gamma > 1 the nonzero eigenvalues of ``YᵀY / n`` are those of ``YYᵀ / n``, gamma times a
    Marchenko–Pastur variable of ratio 1 / gamma (the companion matrix); the d − n zeros are left out.

    Parameters
    ----------
    x
        Points of any shape.
    gamma
        Columns over rows, d / n, positive.
    noise
        Variance of one entry, positive.
    """
    _check_law(gamma, noise)
    if gamma > 1:
        return marchenko_pastur_cdf(x, 1 / gamma, noise * gamma)
    low, high = marchenko_pastur_support(gamma)
    t = np.asarray(x, dtype=np.float64) / noise
    inside = (t > low) & (t < high)
    u = np.where(inside, t, (low + high) / 2)
    # The closed form of the integral of √((high−t)(t−low)) / (2π·gamma·t).
    r = np.sqrt((high - u) / (u - low))
    area = np.sqrt((high - u) * (u - low)) - (1 + gamma) * np.arctan((r**2 - 1) / (2 * r))
    if gamma < 1:
        area += (1 - gamma) * np.arctan((low * r**2 - high) / (2 * (1 - gamma) * r))
    cdf = 0.5 + area / (2 * np.pi * gamma)
    return np.asarray(np.where(inside, np.clip(cdf, 0.0, 1.0), np.where(t >= high, 1.0, 0.0)))


def marchenko_pastur_quantile(q: float, gamma: float, noise: float = 1.0) -> float:
    """Return the ``q``-quantile (0 ≤ q ≤ 1) of the nonzero eigenvalues.

    Examples
    --------
    >>> round(float(marchenko_pastur_cdf(marchenko_pastur_quantile(0.3, 2.5), 2.5)), 9)
    0.3
    """
    low, high = marchenko_pastur_support(gamma)
    if not 0 <= q <= 1:
        raise ValueError(f"q must lie between 0 and 1, got {q}")
    if q in (0, 1):
        return noise * (low if q == 0 else high)
    root = optimize.brentq(lambda x: float(marchenko_pastur_cdf(x, gamma)) - q, low, high, xtol=1e-13)
    return noise * float(root)


@lru_cache(maxsize=256)
def marchenko_pastur_median(gamma: float) -> float:
    """Return the median of the nonzero eigenvalues for entries of unit variance."""
    return marchenko_pastur_quantile(0.5, gamma)


def noise_level(eigenvalues: npt.ArrayLike, n: int, d: int) -> tuple[float, float]:
    """Return the variance of one noise entry and the aspect ratio that goes with it.

    The median of the nonzero eigenvalues over the median of the Marchenko–Pastur law: a few spikes do not
    move it. Where the rank is below min(n − 1, d) (constant or repeated columns, repeated rows, group means
    taken out), the smaller dimension is taken to be the rank.

    Parameters
    ----------
    eigenvalues
        Every eigenvalue of the covariance, divisor n; zeros may be there or not.
    n, d
        Rows and columns.

    Returns
    -------
    noise
        The variance of one entry, in the unit of the eigenvalues.
    gamma
        The aspect ratio d / n, of the rank where that is smaller.

    Raises
    ------
    ValueError
        If no eigenvalue is positive.
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    top = values.max(initial=0.0)
    if not top > 0:
        raise ValueError("no variance: no eigenvalue is positive")
    positive = values[values > top * max(n, d) * np.finfo(np.float64).eps]
    rank = len(positive)
    if rank < min(n - 1, d):
        n, d = (n, rank) if d < n else (rank + 1, d)
    gamma = d / n
    return float(np.median(positive)) / marchenko_pastur_median(gamma), gamma


def rankme(Z: npt.ArrayLike, eps: float = 1e-12) -> float:
    """Return the effective rank of a table of representations: the exponential of the entropy of its singular values.

    With ``p = singular values / their sum + eps``, it is ``exp(-Σ p·log p)``: from 1 for a single direction to
    min(n, d) for equal ones. The rows are not centred.

    Parameters
    ----------
    Z
        (n, d) one representation a row.
    eps
        Keeps the logarithm finite, not negative.

    Returns
    -------
    float
        0 where there is nothing but zeros.

    Raises
    ------
    ValueError
        If ``Z`` is not two-dimensional, is empty, has NaN or infinity in it, or eps is negative.

    Notes
    -----
    Garrido et al., RankMe (ICML 2023), arXiv 2210.02885.

    Examples
    --------
    >>> round(rankme(np.eye(5)), 6)
    5.0
    """
    Z = np.asarray(Z, dtype=np.float64)
    if Z.ndim != 2 or not Z.size:
        raise ValueError(f"Z must have rows and columns, got shape {Z.shape}")
    if not np.isfinite(Z).all():
        raise ValueError("Z must be finite, and has NaN or infinity in it")
    if not 0 <= eps < 1:
        raise ValueError(f"eps must lie between 0 and 1, got {eps}")
    largest = np.abs(Z).max()
    if largest == 0:
        return 0.0
    singular = linalg.svdvals(Z / largest)  # scaled: the squares inside neither overflow nor vanish
    p = singular / singular.sum() + eps
    p = p[p > 0]
    return float(np.exp(-np.sum(p * np.log(p))))


def _check_law(gamma: float, noise: float) -> None:
    if not gamma > 0:
        raise ValueError(f"gamma must be positive, got {gamma}")
    if not noise > 0:
        raise ValueError(f"noise must be positive, got {noise}")
