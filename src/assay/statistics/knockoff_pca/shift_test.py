"""Is a move real, and is it a shifted group of rows or only skewness?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm, skewnorm

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MOST_POINTS = 4000
"""The mixture and the skew-normal are fitted to at most this many evenly spaced order statistics."""


@dataclass(frozen=True)
class TwoGaussians:
    """Two Gaussians of one variance in one dimension, fitted by maximum likelihood."""

    weight: float
    means: tuple[float, float]
    variance: float
    log_likelihood: float

    def upper(self, points: FloatArray) -> BoolArray:
        """Which points more probably belong to the Gaussian with the larger mean; its weight is ``weight``."""
        slope, intercept = _log_odds(self.weight, *self.means, self.variance)
        return slope * points + intercept > 0


def p_value(z: FloatArray, examined: int) -> FloatArray:
    """Return Bonferroni's p-value of ``z``, the larger of a two-sided and a one-sided normal statistic.

    A union bound over both statistics (3 tails) and over the examined components.
    """
    return np.minimum(1.0, 3 * examined * norm.sf(z))


def p_text(value: float) -> str:
    """Write a p-value for people, with its sign: ``= 0.012`` or ``< 0.0001``."""
    return f"= {value:.2g}" if value >= 1e-4 else "< 0.0001"


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
        width = s.std(ddof=1) * n**-0.2  # Scott's rule, as in scipy.stats.gaussian_kde
        density = np.mean(np.exp(-0.5 * ((s - median) / width) ** 2)) / (width * np.sqrt(2 * np.pi))
        variance = max(1 + 1 / (4 * density**2) - np.mean(np.abs(s - median)) / density, 0.2)
    z_mean = np.sqrt(n) * abs(c) / np.sqrt(variance)
    # Two groups of one size move the mean and the median together, but flatten the distribution.
    z_flat = (3 - np.mean(s**4)) / np.sqrt(24 / n)
    return float(max(z_mean, z_flat))


def shifted_rows(scores: FloatArray) -> tuple[float, BoolArray, float]:
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
    if np.mean(s**3) < 0:  # The sign of an eigenvector means nothing; let the long tail be on the right.
        s = -s
    points = _order_statistics(s)
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


def refined_rows(scores: FloatArray, rows: BoolArray, smallest: float, max_iter: int = 20) -> BoolArray:
    """Assign rows again along the direction that separates the two groups best, until nothing changes.

    A shift as strong as a covariance spike mixes with it: it lies along several components, and each of them
    shows it blurred.

    Parameters
    ----------
    scores
        (n, k) scores of the examined components; uncorrelated, as scores are.
    rows
        (n,) the rows of the smaller group, found along one component.
    smallest
        A group of fewer rows ends the search.
    """
    variances = scores.var(axis=0)
    for _ in range(max_iter):
        difference = scores[rows].mean(axis=0) - scores[~rows].mean(axis=0)
        # Fisher's discriminant: T⁻¹δ and W⁻¹δ are parallel, and the total covariance T of scores is diagonal.
        s = scores @ (difference / variances)
        s = (s - s.mean()) / s.std()
        mixture = _expectation_maximisation(_order_statistics(s), float(rows.mean()))
        upper = mixture.upper(s)
        if 2 * upper.sum() > len(s):
            upper = ~upper
        if upper.sum() < smallest or (upper == rows).all():
            break
        rows = upper
    return rows


def _order_statistics(s: FloatArray) -> FloatArray:
    """Sorted, so that the order of the rows plays no part, and few enough to bound the cost."""
    points = np.sort(s)
    if len(points) <= MOST_POINTS:
        return points
    return points[np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)]


def fit_two_gaussians(points: FloatArray) -> TwoGaussians:
    """Fit two Gaussians of one variance to points (n,) by EM from four splits of the ordered points.

    Tied variances make the responsibilities a logistic function of the point, so that a step is a few sums;
    ``sklearn.mixture.GaussianMixture`` reaches the same optimum from random starts, at many times the cost.
    """
    points = np.sort(points)
    return max(
        (_expectation_maximisation(points, share) for share in (0.5, 0.25, 0.1, 0.03)),
        key=lambda fit: fit.log_likelihood,
    )


def _expectation_maximisation(points: FloatArray, share: float, max_iter: int = 500) -> TwoGaussians:
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
