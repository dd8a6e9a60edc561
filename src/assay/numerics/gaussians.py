"""Normal laws N(m, Σ): symmetric square roots, the Bures–Wasserstein distance, the Kullback–Leibler divergence.

Covariances may be stacked along leading axes; everything is computed in float64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["bures_wasserstein", "gaussian_kl", "gaussian_logpdf", "sym_sqrt"]

FloatArray = npt.NDArray[np.float64]

_ASYMMETRY = 1e-8  # of a matrix that counts as symmetric, relative to its largest entry
_INDEFINITE = 1e-10  # how far below zero rounding may put an eigenvalue, relative to the largest


def sym_sqrt(cov: npt.ArrayLike, name: str = "cov") -> FloatArray:
    """Return the symmetric positive semidefinite square root of each covariance.

    Parameters
    ----------
    cov
        (..., d, d) symmetric, positive semidefinite.
    name
        What to call it in an error.

    Returns
    -------
    array
        (..., d, d) T with T = Tᵀ exactly, T² = Σ and no negative eigenvalue.

    Raises
    ------
    ValueError
        If a matrix is not square, not finite, not symmetric, or has a negative eigenvalue.

    Examples
    --------
    >>> sym_sqrt([[2.0, 1.0], [1.0, 2.0]]).round(6)
    array([[1.366025, 0.366025],
           [0.366025, 1.366025]])
    """
    matrix = _symmetric(cov, name)
    values, vectors = np.linalg.eigh(matrix)
    if values.size and (values[..., 0] < -_INDEFINITE * np.abs(values).max(axis=-1)).any():
        raise ValueError(f"{name} must be positive semidefinite, and has the eigenvalue {values[..., 0].min():.3g}")
    root = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return np.asarray((root + np.swapaxes(root, -1, -2)) / 2, dtype=np.float64)


def bures_wasserstein(
    mean_p: npt.ArrayLike, cov_p: npt.ArrayLike, mean_q: npt.ArrayLike, cov_q: npt.ArrayLike
) -> FloatArray:
    """Return the 2-Wasserstein distance of normal laws: W₂² = ‖m_p − m_q‖² + tr(Σ_p + Σ_q − 2(Σ_p^½ Σ_q Σ_p^½)^½).

    Parameters
    ----------
    mean_p, mean_q
        (..., d) means.
    cov_p, cov_q
        (..., d, d) covariances, positive semidefinite.

    Returns
    -------
    array
        (...) distances, in the unit of the means.

    Raises
    ------
    ValueError
        If shapes do not fit, or a covariance is none.

    Notes
    -----
    The trace of (Σ_p^½ Σ_q Σ_p^½)^½ is the nuclear norm of Σ_p^½ Σ_q^½: no product of three is rounded.

    Examples
    --------
    >>> round(float(bures_wasserstein([0, 0], [[1, 0], [0, 4]], [3, 4], [[9, 0], [0, 1]])), 6)
    5.477226
    """
    m_p, m_q = np.asarray(mean_p, dtype=np.float64), np.asarray(mean_q, dtype=np.float64)
    root_p, root_q = sym_sqrt(cov_p, "cov_p"), sym_sqrt(cov_q, "cov_q")
    _check_means(m_p, root_p, "p")
    _check_means(m_q, root_q, "q")
    if m_p.shape[-1] != m_q.shape[-1]:
        raise ValueError(f"p has {m_p.shape[-1]} dimensions and q has {m_q.shape[-1]}")
    # ‖T_p − T_q R‖² with the orthogonal R that makes it least (Procrustes): a sum of squares, which also laws that are
    # close leave exact.
    u, _, vt = np.linalg.svd(root_q @ root_p)
    moved = root_p - root_q @ (u @ vt)
    squared = np.sum((m_p - m_q) ** 2, axis=-1) + np.sum(moved**2, axis=(-2, -1))
    return np.asarray(np.sqrt(squared), dtype=np.float64)


def gaussian_kl(mean_p: npt.ArrayLike, cov_p: npt.ArrayLike, mean_q: npt.ArrayLike, cov_q: npt.ArrayLike) -> FloatArray:
    """Return KL(p‖q) = ½ (tr(Σ_q⁻¹Σ_p) + (m_q − m_p)ᵀΣ_q⁻¹(m_q − m_p) − d + log det Σ_q − log det Σ_p) in nats.

    Parameters
    ----------
    mean_p, mean_q
        (..., d) means.
    cov_p, cov_q
        (..., d, d) covariances, positive definite.

    Returns
    -------
    array
        (...) divergences, never negative.

    Raises
    ------
    ValueError
        If shapes do not fit, or a covariance is not positive definite.

    Examples
    --------
    >>> float(gaussian_kl([1.0], [[1.0]], [0.0], [[1.0]]))
    0.5
    """
    m_p, m_q = np.asarray(mean_p, dtype=np.float64), np.asarray(mean_q, dtype=np.float64)
    lower_p, lower_q = _cholesky(cov_p, "cov_p"), _cholesky(cov_q, "cov_q")
    _check_means(m_p, lower_p, "p")
    _check_means(m_q, lower_q, "q")
    if m_p.shape[-1] != m_q.shape[-1]:
        raise ValueError(f"p has {m_p.shape[-1]} dimensions and q has {m_q.shape[-1]}")
    d = m_p.shape[-1]
    shift = np.linalg.solve(lower_q, (m_q - m_p)[..., None])[..., 0]
    ratio = np.linalg.solve(lower_q, np.broadcast_to(lower_p, (*shift.shape[:-1], d, d)))
    logs = np.log(np.diagonal(lower_q, axis1=-2, axis2=-1)) - np.log(np.diagonal(lower_p, axis1=-2, axis2=-1))
    twice = np.sum(ratio**2, axis=(-2, -1)) - d + np.sum(shift**2, axis=-1) + 2 * np.sum(logs, axis=-1)
    return np.asarray(np.maximum(twice / 2, 0.0), dtype=np.float64)


def gaussian_logpdf(X: npt.ArrayLike, mean: npt.ArrayLike, cov: npt.ArrayLike) -> FloatArray:
    """Return the log density of N(mean, cov) at each row of ``X``.

    Parameters
    ----------
    X
        (n, d) points.
    mean
        (d,) mean.
    cov
        (d, d) covariance, positive definite.

    Raises
    ------
    ValueError
        If shapes do not fit, or the covariance is not positive definite.

    Examples
    --------
    >>> gaussian_logpdf([[0.0]], [0.0], [[1.0]]).round(6)
    array([-0.918939])
    """
    points, centre, lower = np.asarray(X, dtype=np.float64), np.asarray(mean, dtype=np.float64), _cholesky(cov, "cov")
    if centre.ndim != 1 or points.ndim != 2 or points.shape[1] != len(centre):
        raise ValueError(f"X must be (n, {centre.size}) for a mean of shape {centre.shape}, got shape {points.shape}")
    if np.isnan(points).any():
        raise ValueError("X has NaN in it")
    _check_means(centre, lower, "the law")
    z = np.linalg.solve(lower, (points - centre).T)
    const = len(centre) * np.log(2 * np.pi) / 2 + np.log(np.diag(lower)).sum()
    return np.asarray(-0.5 * np.sum(z**2, axis=0) - const, dtype=np.float64)


def _symmetric(matrix: npt.ArrayLike, name: str) -> FloatArray:
    array = np.asarray(matrix, dtype=np.float64)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ValueError(f"{name} must be square, (..., d, d), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, and has NaN or infinity in it")
    turned = np.swapaxes(array, -1, -2)
    if (np.abs(array - turned) > _ASYMMETRY * np.abs(array).max(axis=(-2, -1), keepdims=True, initial=0.0)).any():
        raise ValueError(
            f"{name} must be symmetric, and differs from its transpose by {np.abs(array - turned).max():.3g}"
        )
    return np.asarray((array + turned) / 2, dtype=np.float64)


def _cholesky(cov: npt.ArrayLike, name: str) -> FloatArray:
    matrix = _symmetric(cov, name)
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        least = np.linalg.eigvalsh(matrix)[..., 0].min()
        raise ValueError(f"{name} must be positive definite, and has the eigenvalue {least:.3g}") from None


def _check_means(mean: FloatArray, matrix: FloatArray, of: str) -> None:
    if mean.ndim == 0 or mean.shape[-1] != matrix.shape[-1]:
        raise ValueError(f"the mean of {of} has shape {mean.shape}, and its covariance {matrix.shape}")
    if not np.isfinite(mean).all():
        raise ValueError(f"the mean of {of} must be finite, and has NaN or infinity in it")
