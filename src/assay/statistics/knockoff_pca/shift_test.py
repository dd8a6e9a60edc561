"""Is a move real, and is it a shifted group of rows or only skewness?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import gaussian_kde, kurtosis, norm, skew, skewnorm

FloatArray = NDArray[np.float64]

MOST_POINTS = 4000
"""The mixture and the skew-normal are fitted to at most this many evenly spaced order statistics."""


@dataclass(frozen=True)
class TwoGaussians:
    """Two Gaussians of one variance in one dimension, fitted by maximum likelihood."""

    weight: float
    means: tuple[float, float]
    variance: float
    log_likelihood: float

    def upper(self, points: FloatArray) -> NDArray[np.bool_]:
        """Which points more probably belong to the Gaussian with the larger mean; its weight is ``weight``."""
        slope, intercept = _log_odds(self.weight, *self.means, self.variance)
        return slope * points + intercept > 0


def p_value(z: FloatArray, examined: int) -> FloatArray:
    """Return Bonferroni's p-value of ``z``, the larger of a two-sided and a one-sided normal statistic.

    A union bound over both statistics (3 tails) and over the examined components.
    """
    return np.minimum(1.0, 3 * examined * norm.sf(z))


def z_value(scores: FloatArray, centre: float, known_centre: bool) -> float:
    """Return how many standard errors the scores of one component are away from a single centred group.

    Parameters
    ----------
    scores
        (n,) centred by their mean.
    centre
        The assumed clean centre along the component.
    known_centre
        Whether ``centre`` was given; otherwise it is the scores' median.
    """
    n = len(scores)
    sd = scores.std()
    s, c = scores / sd, centre / sd
    if known_centre:
        variance = 1.0
    else:
        # Asymptotic variance of √n·(median − mean): σ² + 1/(4f²) − E|s − m|/f.
        median = np.median(s)
        density = float(gaussian_kde(s)(median)[0])
        variance = max(1 + 1 / (4 * density**2) - np.mean(np.abs(s - median)) / density, 0.2)
    z_mean = np.sqrt(n) * abs(c) / np.sqrt(variance)
    # Two groups of one size move the mean and the median together, but flatten the distribution.
    z_flat = -kurtosis(s) / np.sqrt(24 / n)
    return float(max(z_mean, z_flat))


def shifted_rows(scores: FloatArray) -> tuple[float, NDArray[np.bool_], float]:
    """Compare two groups of rows with one skewed group.

    Parameters
    ----------
    scores
        (n,) scores of one component.

    Returns
    -------
    bic_gain
        BIC of a skew-normal minus BIC of two Gaussians with one variance: positive speaks for two groups.
    rows
        (n,) the rows of the smaller group.
    weight
        The mixture's weight of that group.
    """
    mean, sd = scores.mean(), scores.std()
    s = (scores - mean) / sd
    if skew(s) < 0:  # The sign of an eigenvector means nothing; let the long tail be on the right.
        s = -s
    # Order statistics: the result does not depend on the order of the rows, and the cost is bounded.
    points = np.sort(s)
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]
    mixture = fit_two_gaussians(points)
    with np.errstate(all="ignore"):
        one = float(skewnorm.logpdf(points, *skewnorm.fit(points)).sum())
    # The mixture has one parameter more than the skew-normal's three.
    gain = 2 * (mixture.log_likelihood - one) - np.log(len(points))
    upper = mixture.upper(s)
    weight = mixture.weight
    if 2 * upper.sum() > len(s):
        upper, weight = ~upper, 1 - weight
    return float(gain), upper, min(weight, 1 - weight)


def fit_two_gaussians(points: FloatArray, max_iter: int = 500) -> TwoGaussians:
    """Fit two Gaussians of one variance to points (n,) by EM from four splits of the ordered points.

    Tied variances make the responsibilities a logistic function of the point, so that a step is a few sums;
    ``sklearn.mixture.GaussianMixture`` reaches the same optimum from random starts, at many times the cost.
    """
    points = np.sort(points)
    return max(
        (_expectation_maximisation(points, share, max_iter) for share in (0.5, 0.25, 0.1, 0.03)),
        key=lambda fit: fit.log_likelihood,
    )


def _expectation_maximisation(points: FloatArray, share: float, max_iter: int) -> TwoGaussians:
    n = len(points)
    total, squares = points.sum(), points @ points
    floor = 1e-6 * points.var()
    upper = np.zeros(n)
    upper[-max(1, round(share * n)) :] = 1.0
    previous = -np.inf
    for _ in range(max_iter):
        count = min(max(upper.sum(), 1e-9), n - 1e-9)
        weight = count / n
        high = (upper @ points) / count
        low = (total - upper @ points) / (n - count)
        variance = max((squares - count * high**2 - (n - count) * low**2) / n, floor)
        slope, intercept = _log_odds(weight, low, high, variance)
        odds = slope * points + intercept
        # log Σ = log of the lower Gaussian's part + log(1 + e^odds)
        lower = np.log1p(-weight) - (squares / n - 2 * low * total / n + low**2) / (2 * variance)
        log_likelihood = float(n * (lower - 0.5 * np.log(2 * np.pi * variance)) + np.logaddexp(0, odds).sum())
        if log_likelihood - previous < 1e-3:
            break
        previous = log_likelihood
        upper = expit(odds)
    return TwoGaussians(float(weight), (float(low), float(high)), float(variance), log_likelihood)


def _log_odds(weight: float, low: float, high: float, variance: float) -> tuple[float, float]:
    slope = (high - low) / variance
    return slope, float(np.log(weight) - np.log1p(-weight)) - slope * (low + high) / 2
