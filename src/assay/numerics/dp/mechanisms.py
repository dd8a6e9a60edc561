"""Mechanisms that draw a private answer: the exponential, the Gaussian and the Laplace mechanism."""

from __future__ import annotations

import math
import secrets

import numpy as np
import numpy.typing as npt

from assay.errors import InputError

FloatArray = npt.NDArray[np.float64]


def secret_generator(random_state: int | np.random.Generator | None = None) -> np.random.Generator:
    """A generator keyed by the system's secure source; with ``random_state``, one that repeats, for tests and studies.

    Who knows the seed can redo the draw and see the data behind it: then nothing is private. Philox is keyed with
    128 secret bits, and its draws go out only as picks and rounded numbers; it is not proven to be cryptographic.

    Parameters
    ----------
    random_state
        None, a whole number of at least 0, or a generator, which is used as it is.

    Raises
    ------
    TypeError
        When it is something else.
    InputError
        When it is a negative number.
    """
    if random_state is None:
        return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer):
        raise TypeError(
            f"random_state must be None, a whole number or a numpy Generator, not {type(random_state).__name__}"
        )
    if random_state < 0:
        raise InputError(f"random_state must be at least 0, got {random_state}")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(int(random_state))))


def exponential_probabilities(scores: npt.ArrayLike, eps0: float, spread: float) -> FloatArray:
    """The probabilities of the exponential mechanism, in proportion to exp(ε0·score/spread).

    Parameters
    ----------
    scores
        (m,) finite scores.
    eps0
        The range of the logarithm of probability ratios between neighbouring data, greater than 0.
    spread
        The largest difference, over candidates, between how much two candidates' scores change from one data set to a
        neighbouring one. Scores that all move the same way by at most Δ have the spread Δ, which is where one-sided
        scores save a factor of 2; scores that each move by at most Δ either way have 2Δ.

    Returns
    -------
    ndarray
        (m,) float64, sums to 1.

    Raises
    ------
    InputError
        When there is no candidate, a score is not finite, or ``eps0`` or ``spread`` is not greater than 0.

    Notes
    -----
    The log-ratio of two data sets is ε0/spread·(change of the score) plus a constant, so its range over candidates is
    at most ε0: bounded range (Dong, Durfee and Rogers, arXiv 1909.13830), hence ε0-DP and ε0²/8-zCDP.

    Examples
    --------
    >>> exponential_probabilities([0, 1, 2], 1.0, 1.0).round(7)
    array([0.0900306, 0.2447285, 0.665241 ])
    """
    weights = np.exp(_logits(scores, eps0, spread))
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def exponential_mechanism(scores: npt.ArrayLike, eps0: float, spread: float, rng: np.random.Generator) -> int:
    """Draw a candidate with :func:`exponential_probabilities`, by the Gumbel-max trick in float64.

    Rounding moves the probabilities by some 2⁻⁵⁰ each, and a candidate rarer than that is never drawn; a δ of 1e-12
    covers it, and pure privacy holds only up to it. The noisy maximum itself is not released.

    Parameters
    ----------
    scores, eps0, spread
        As in :func:`exponential_probabilities`.
    rng
        The source of randomness; see :func:`secret_generator`.

    Returns
    -------
    int
        The candidate's position.
    """
    logits = _logits(scores, eps0, spread)
    return int(np.argmax(logits - np.log(rng.standard_exponential(len(logits)))))


def gaussian_sigma(sensitivity: float, rho: float) -> float:
    """The standard deviation of Gaussian noise that costs ρ of zCDP at an L2 sensitivity.

    Examples
    --------
    >>> gaussian_sigma(2.0, 0.5)
    2.0
    """
    _positive("sensitivity", sensitivity)
    _positive("rho", rho)
    return sensitivity / math.sqrt(2 * rho)


def gaussian_mechanism(value: npt.ArrayLike, sensitivity: float, rho: float, rng: np.random.Generator) -> FloatArray:
    """``value`` plus Gaussian noise that costs ρ of zCDP; rounded, so that its low bits tell nothing.

    Parameters
    ----------
    value
        A finite number or an array.
    sensitivity
        L2 norm of the largest change of ``value`` between neighbouring data.
    rho
        What it may cost.
    rng
        The source of randomness.

    Returns
    -------
    ndarray
        float64, of the shape of ``value``; multiples of a power of two near σ/1000. The grid depends on σ alone.
    """
    sigma = gaussian_sigma(sensitivity, rho)
    exact = _finite(value)
    return _on_grid(exact + sigma * rng.standard_normal(exact.shape), sigma)


def laplace_mechanism(value: npt.ArrayLike, sensitivity: float, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """``value`` plus Laplace noise of the scale sensitivity/ε, which costs ε of pure privacy; rounded as above.

    Parameters
    ----------
    value
        A finite number or an array.
    sensitivity
        L1 norm of the largest change of ``value`` between neighbouring data.
    epsilon
        What it may cost.
    rng
        The source of randomness.
    """
    _positive("sensitivity", sensitivity)
    _positive("epsilon", epsilon)
    scale = sensitivity / epsilon
    exact = _finite(value)
    return _on_grid(exact + rng.laplace(0.0, scale, exact.shape), scale)


def _on_grid(noisy: FloatArray, scale: float) -> FloatArray:
    grid = 2.0 ** math.floor(math.log2(scale) - 10)
    return np.asarray(np.round(noisy / grid) * grid, dtype=np.float64)


def _logits(scores: npt.ArrayLike, eps0: float, spread: float) -> FloatArray:
    _positive("eps0", eps0)
    _positive("spread", spread)
    q = np.asarray(scores, dtype=np.float64)
    if q.ndim != 1 or not len(q):
        raise InputError(f"scores must be one number for each of at least one candidate, got the shape {q.shape}")
    if not np.isfinite(q).all():
        raise InputError("scores must be finite, and there is NaN or infinity among them")
    # Less the largest first: large scores that differ little keep their digits, and nothing becomes inf − inf.
    with np.errstate(over="ignore"):
        return np.asarray((q - q.max()) / spread * eps0, dtype=np.float64)


def _finite(value: npt.ArrayLike) -> FloatArray:
    exact = np.asarray(value, dtype=np.float64)
    if not np.isfinite(exact).all():
        raise InputError("value must be finite, and there is NaN or infinity in it")
    return exact


def _positive(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating) or not value > 0:
        raise InputError(f"{name} must be a number greater than 0, got {value!r}")
    if not math.isfinite(value):
        raise InputError(f"{name} must be finite, got {value!r}")
