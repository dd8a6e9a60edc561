"""A Gaussian as the method sees it: a mean and the symmetric root of its covariance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.errors import InputError
from assay.numerics.gaussians import bures_wasserstein, gaussian_kl, gaussian_logpdf, sym_sqrt

from . import checks

FloatArray = npt.NDArray[np.float64]

LARGEST_ROOT = 1e150


@dataclass(frozen=True, eq=False)
class GaussianMeasure:
    """The normal law N(m, Σ) with Σ = T², T symmetric: x ↦ m + T x carries a standard normal onto it optimally.

    Parameters
    ----------
    mean
        (d,) m.
    root
        (d, d) T, symmetric and positive semidefinite.

    Raises
    ------
    InputError
        When the mean is no row of finite numbers, or the root does not fit it, is not symmetric or is indefinite.

    Notes
    -----
    Source: Borghi and Carrillo, arXiv 2601.00632 (ICML 2026).

    Examples
    --------
    >>> p = GaussianMeasure([0.0, 0.0], np.diag([1.0, 2.0]))
    >>> q = GaussianMeasure.from_cov([3.0, 4.0], np.diag([9.0, 1.0]))
    >>> round(p.w2(q), 6), round(lbw_distance(p, q), 6)
    (5.477226, 5.477226)
    """

    mean: FloatArray
    root: FloatArray

    def __post_init__(self) -> None:
        mean, root = _numbers(self.mean, "mean"), _numbers(self.root, "root")
        if mean.ndim != 1 or not len(mean):
            raise InputError(f"mean must be a row of numbers, (d,), got shape {mean.shape}")
        if root.shape != (len(mean), len(mean)):
            raise InputError(f"root must be ({len(mean)}, {len(mean)}) for this mean, got shape {root.shape}")
        largest = np.abs(root).max()
        if largest > LARGEST_ROOT:
            raise InputError(f"root must be at most {LARGEST_ROOT:g} in size, so that its square is a number")
        if np.abs(root - root.T).max() > 1e-8 * largest:
            by = np.abs(root - root.T).max()
            raise InputError(f"root must be symmetric, and differs from its transpose by {by:.3g}")
        root = (root + root.T) / 2
        least = np.linalg.eigvalsh(root)[0]
        if least < -1e-10 * largest:
            raise InputError(f"root must be positive semidefinite, and has the eigenvalue {least:.3g}")
        for name, array in (("mean", mean), ("root", root)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def from_cov(cls, mean: npt.ArrayLike, cov: npt.ArrayLike) -> GaussianMeasure:
        """The law with a mean (d,) and a covariance (d, d); ``InputError`` where that is none."""
        try:
            root = sym_sqrt(_numbers(cov, "cov"))
        except ValueError as error:
            raise InputError(str(error)) from None
        return cls(_numbers(mean, "mean"), root)

    @property
    def dim(self) -> int:
        """The dimension d."""
        return len(self.mean)

    @property
    def cov(self) -> FloatArray:
        """(d, d) the covariance Σ = T²."""
        square = self.root @ self.root
        return (square + square.T) / 2

    def sample(self, n: int, rng: np.random.Generator | int | None = None) -> FloatArray:
        """Draw ``n`` points, (n, d); ``rng`` is a generator, or a seed for one."""
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"n must be a whole number of at least 1, got {n!r}")
        z = checks.generator(rng, "rng").standard_normal((int(n), self.dim))
        return self.mean + z @ self.root

    def logpdf(self, X: npt.ArrayLike) -> FloatArray:
        """The log density at each row of ``X`` (n, d), (n,); ``InputError`` where T is singular, for there is none."""
        points = _numbers(X, "X")
        if points.ndim != 2 or points.shape[1] != self.dim:
            raise InputError(f"X must be (n, {self.dim}), got shape {points.shape}")
        try:
            return gaussian_logpdf(points, self.mean, self.cov)
        except ValueError as error:
            raise InputError(str(error)) from None

    def w2(self, other: GaussianMeasure) -> float:
        """The 2-Wasserstein (Bures–Wasserstein) distance, in the unit of the mean."""
        _check_pair(self, other)
        return float(bures_wasserstein(self.mean, self.cov, other.mean, other.cov))

    def kl(self, other: GaussianMeasure) -> float:
        """KL(self ‖ other) in nats; ``InputError`` where one of them is singular."""
        _check_pair(self, other)
        try:
            return float(gaussian_kl(self.mean, self.cov, other.mean, other.cov))
        except ValueError as error:
            raise InputError(str(error)) from None


def lbw_distance(p: GaussianMeasure, q: GaussianMeasure) -> float:
    """The linearised Bures–Wasserstein distance √(‖m_p − m_q‖² + ‖T_p − T_q‖_F²).

    It is never below the 2-Wasserstein distance, and equals it where the roots commute.

    Raises
    ------
    InputError
        When the dimensions differ.
    TypeError
        When one of them is no :class:`GaussianMeasure`.
    """
    _check_pair(p, q)
    return float(np.sqrt(np.sum((p.mean - q.mean) ** 2) + np.sum((p.root - q.root) ** 2)))


def _check_pair(p: GaussianMeasure, q: GaussianMeasure) -> None:
    for one in (p, q):
        if not isinstance(one, GaussianMeasure):
            raise TypeError(f"a GaussianMeasure is compared with a GaussianMeasure, not with a {type(one).__name__}")
    if p.dim != q.dim:
        raise InputError(f"measures of {p.dim} and of {q.dim} dimensions cannot be compared")


def _numbers(values: npt.ArrayLike, name: str) -> FloatArray:
    array = checks.numbers(values, name).copy()
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, and has NaN or infinity in it")
    return array
