"""The knockoff: add a known mean to the data, and see which eigenvalues move.

A covariance spike does not care where the origin is; a spike that a shifted group of rows makes does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.utils import check_array, check_random_state

from assay.numerics.spectra import Eigen, truncated_eigen

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class KnockoffSpectrum:
    """The leading components of a table before and after the knockoff mean was added.

    Attributes
    ----------
    eigenvalues
        (k,) second moment of the rows along each component about the assumed clean centre (divisor n): the
        spectrum without the knockoff.
    knockoff_eigenvalues
        (k,) the same with the knockoff mean added, which swallows every other mean.
    knockoff_spike
        The eigenvalue of the knockoff itself, about kappa².
    kappa
        Length of the knockoff mean, in the unit of the data.
    components
        (k, d) unit eigenvectors of the sample covariance, as rows.
    scores
        (n, k) rows, centred by their mean, on the components.
    centre
        (k,) the assumed clean centre in the space of the scores.
    """

    eigenvalues: FloatArray
    knockoff_eigenvalues: FloatArray
    knockoff_spike: float
    kappa: float
    components: FloatArray
    scores: FloatArray
    centre: FloatArray

    @property
    def relative_move(self) -> FloatArray:
        """(k,) share of each eigenvalue that the knockoff took away; about π for a lone shift of a share π."""
        # Where a direction does not vary at all, nothing can move.
        taken = self.eigenvalues - self.knockoff_eigenvalues
        return np.divide(taken, self.eigenvalues, out=np.zeros_like(taken), where=self.eigenvalues > 0)


def knockoff_spectrum(
    X: ArrayLike,
    *,
    k: int = 10,
    center: str | ArrayLike = "robust",
    kappa: float | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> KnockoffSpectrum:
    """Return the ``k`` leading eigenvalues with and without a knockoff mean.

    The knockoff is a known mean of length ``kappa`` along a direction that no row has: a new coordinate. The
    problem then closes exactly in the k components and the knockoff, so one (k + 1) × (k + 1) eigenproblem
    gives what a full, uncentred PCA of the extended table would.

    Parameters
    ----------
    X
        (n, d) rows are samples; finite.
    k
        How many components; at most min(n − 1, d).
    center
        The assumed clean mean: ``"robust"`` (the median along each component), ``"zero"`` or a (d,) array.
    kappa
        Length of the knockoff mean; ``None`` means 10·√λ₁, that is κ² = 100·λ₁.
    random_state
        Used only where min(n, d) > 1500, by the randomized decomposition.

    Raises
    ------
    ValueError
        For a table that is not finite or not two-dimensional, and for ``k``, ``center`` or ``kappa`` out of
        range.

    Notes
    -----
    "Mean-Shift PCA by Knockoff Mean", arXiv 2605.25460.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 50))
    >>> X[:40, 0] += 12                                   # a tenth of the rows is shifted
    >>> X[:, 1] *= 4                                      # a direction of variation
    >>> knockoff_spectrum(X, k=2).relative_move.round(2)
    array([0.  , 0.08])
    """
    X = check_array(X, dtype=np.float64, ensure_min_samples=2)
    n, d = X.shape
    if not 1 <= k <= min(n - 1, d):
        raise ValueError(f"k must lie between 1 and min(n - 1, d) = {min(n - 1, d)}, got {k}")
    mean = X.mean(axis=0)
    known = known_centre(center, d)
    eigen = truncated_eigen(X - mean, k, check_random_state(random_state))
    if not eigen.values[-1] > 0:
        raise ValueError(f"no variance: fewer than k={k} components of X vary")
    scores = (X - mean) @ eigen.vectors.T
    return move(eigen, scores, None if known is None else known - mean, kappa)


def known_centre(center: str | ArrayLike, d: int) -> FloatArray | None:
    """Return the clean mean (d,) that the user knows, or ``None`` where it is to be estimated."""
    if isinstance(center, str):
        if center not in ("robust", "zero"):
            raise ValueError(f"center must be 'robust', 'zero' or an array of shape ({d},), got {center!r}")
        return np.zeros(d) if center == "zero" else None
    known = np.asarray(center, dtype=np.float64)
    if known.shape != (d,) or not np.isfinite(known).all():
        raise ValueError(f"center must be 'robust', 'zero' or a finite array of shape ({d},), got {center!r}")
    return known


def move(eigen: Eigen, scores: FloatArray, offset: FloatArray | None, kappa: float | None = None) -> KnockoffSpectrum:
    """Add the knockoff. ``offset`` (d,) is the known clean mean minus the rows' mean, or ``None``: medians."""
    values = eigen.values
    c = np.median(scores, axis=0) if offset is None else eigen.vectors @ offset
    if kappa is None:
        kappa = 10 * float(np.sqrt(values[0]))
    if not kappa > 0:
        raise ValueError(f"kappa must be positive, got {kappa}")
    # X' = Y − 1(Uc)ᵀ + κ1vᵀ has the second moment YᵀY/n + (κv − Uc)(κv − Uc)ᵀ, and YᵀYv = 0.
    mean = np.append(-c, kappa)
    second_moment = np.diag(np.append(values, 0.0)) + np.outer(mean, mean)
    spectrum = linalg.eigvalsh(second_moment)[::-1]
    return KnockoffSpectrum(
        eigenvalues=values + c**2,
        knockoff_eigenvalues=spectrum[1:],
        knockoff_spike=float(spectrum[0]),
        kappa=kappa,
        components=eigen.vectors,
        scores=scores,
        centre=c,
    )
