"""Weights of a population by its energies: exponential weights, their effective size, the temperature that gives it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

__all__ = ["effective_size", "ess_temperature", "gibbs_weights"]

FloatArray = npt.NDArray[np.float64]

_RANGE = (math.log(1e-8), math.log(1e8))  # of α, where the energies that matter are of order one
_HALVINGS = 40


def gibbs_weights(energies: npt.ArrayLike, alpha: float) -> FloatArray:
    """Return weights proportional to exp(−α (E − min E)), which sum to one.

    Parameters
    ----------
    energies
        (n,) finite numbers; low is good.
    alpha
        The inverse temperature, not negative, in 1 / unit of the energies; ``inf`` shares all weight among the lowest.

    Raises
    ------
    ValueError
        If there are no energies, one is not finite, or alpha is negative or NaN.

    Examples
    --------
    >>> gibbs_weights([0.0, 1.0], 0.0)
    array([0.5, 0.5])
    """
    excess = _excess(energies)
    if not alpha >= 0:
        raise ValueError(f"alpha must not be negative, got {alpha}")
    with np.errstate(over="ignore"):  # an infinite product weighs nothing
        weights = (excess == 0).astype(np.float64) if math.isinf(alpha) else np.exp(-alpha * excess)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def effective_size(weights: npt.ArrayLike) -> float:
    """Return the effective sample size (Σw)² / Σw²: n for equal weights, 1 where one has all.

    Examples
    --------
    >>> effective_size([0.5, 0.5, 0.0])
    2.0
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not np.isfinite(w).all() or (w < 0).any() or not w.sum() > 0:
        raise ValueError("weights must be a row of finite numbers, none negative and not all zero")
    w = w / w.max()
    return float(w.sum() ** 2 / np.sum(w**2))


def ess_temperature(energies: npt.ArrayLike, target: float) -> float:
    """Return the inverse temperature at which the weights exp(−α E) have a given effective sample size.

    Bisection in log α, forty halvings. The energies are first divided by what the lowest ``target`` of them span, so
    that the weights are the same for a·E + b (a > 0), and energies that are huge for the bad ones do no harm.

    Parameters
    ----------
    energies
        (n,) finite numbers; low is good.
    target
        The size wanted, 1 < target ≤ n.

    Returns
    -------
    float
        α, in 1 / unit of the energies. Where more than ``target`` energies share the lowest value no α reaches it, and
        the largest is returned; where all are equal, 0.

    Raises
    ------
    ValueError
        If there are no energies, one is not finite, or the target is out of range.

    Examples
    --------
    >>> alpha = ess_temperature([0.0, 1.0, 2.0, 3.0], target=2.0)
    >>> round(effective_size(gibbs_weights([0.0, 1.0, 2.0, 3.0], alpha)), 9)
    2.0
    """
    excess = _excess(energies)
    if not 1 < target <= len(excess):
        raise ValueError(f"target must lie above 1 and not above the {len(excess)} energies, got {target}")
    above = np.sort(excess)[math.ceil(target) - 1 :]
    unit = float(above[np.searchsorted(above, 0.0, side="right")]) if above[-1] > 0 else 0.0
    if unit == 0:
        return 0.0
    with np.errstate(over="ignore"):
        scaled = excess / unit
    low, high = _RANGE
    with np.errstate(over="ignore", under="ignore"):  # an infinite product weighs nothing
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            w = np.exp(-math.exp(middle) * scaled)
            if w.sum() ** 2 > target * (w @ w):
                low = middle
            else:
                high = middle
    return min(math.exp((low + high) / 2) / unit, np.finfo(np.float64).max)


def _excess(energies: npt.ArrayLike) -> FloatArray:
    e = np.asarray(energies, dtype=np.float64)
    if e.ndim != 1 or not len(e):
        raise ValueError(f"energies must be a row of numbers, got shape {e.shape}")
    if not np.isfinite(e).all():
        raise ValueError("energies must be finite, and have NaN or infinity in them")
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(e - e.min(), np.finfo(np.float64).max), dtype=np.float64)
