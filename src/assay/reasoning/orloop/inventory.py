"""Order decisions with a known best answer, and the bias of answers towards the middle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from scipy.stats import norm

from assay.errors import InputError


@dataclass(frozen=True)
class Decision:
    """A question, its numbers and the best order.

    Attributes
    ----------
    prompt
        For a person or a language model.
    params
        Newsvendor: p (price), c (cost), s (salvage), mu, sigma. Economic order quantity: D, K, h.
    optimal
        The best order.
    """

    prompt: str
    params: dict[str, float]
    optimal: float

    @property
    def critical_ratio(self) -> float:
        """(p - c) / (p - s) of a newsvendor; NaN of other decisions."""
        if "p" not in self.params:
            return float("nan")
        return (self.params["p"] - self.params["c"]) / (self.params["p"] - self.params["s"])


def newsvendor_order(p: float, c: float, s: float, mu: float, sigma: float) -> float:
    """Return the best order for demand that is normal: ``mu + sigma * Φ⁻¹((p - c) / (p - s))``.

    >>> round(newsvendor_order(10, 4, 1, 100, 20), 4)
    108.6145
    """
    if not all(isfinite(v) for v in (p, c, s, mu, sigma)) or not s < c < p or sigma <= 0:
        raise InputError(
            f"a newsvendor needs finite s < c < p, mu and sigma > 0, got p={p}, c={c}, s={s}, mu={mu}, sigma={sigma}"
        )
    return float(mu + sigma * norm.ppf((p - c) / (p - s)))


def eoq_order(D: float, K: float, h: float) -> float:
    """Return the economic order quantity ``sqrt(2 D K / h)``.

    >>> round(eoq_order(1000, 50, 2), 4)
    223.6068
    """
    if not all(isfinite(v) and v > 0 for v in (D, K, h)):
        raise InputError(f"D, K and h must be positive, got D={D}, K={K}, h={h}")
    return sqrt(2 * D * K / h)


def newsvendor(n: int, *, cr: tuple[float, float] = (0.2, 0.8), seed: int = 0) -> list[Decision]:
    """Return ``n`` newsvendor decisions with critical ratios drawn from ``cr``; 0.05 to 0.95 is the wide range.

    Parameters
    ----------
    n
        How many.
    cr
        The least and the largest ratio; equal ones give that ratio alone.
    seed
        The same seed gives the same decisions.

    Raises
    ------
    InputError
        For ``n`` below 1, or ratios that are not 0 < low <= high < 1.
    """
    low, high = cr
    if not 0 < low <= high < 1:
        raise InputError(f"cr must be (low, high) with 0 < low <= high < 1, got {cr}")
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(_count(n)):
        p, ratio = float(rng.uniform(8, 40)), float(rng.uniform(low, high))
        s = float(rng.uniform(0, 0.2) * p)
        mu = float(rng.uniform(50, 300))
        params = {"p": p, "c": p - ratio * (p - s), "s": s, "mu": mu, "sigma": mu * float(rng.uniform(0.1, 0.3))}
        text = (
            f"Each unit sells for {p:.2f}, costs {params['c']:.2f}, and what is left over brings {s:.2f}. Demand is "
            f"normal with mean {mu:.1f} and standard deviation {params['sigma']:.1f}. How many units do you order?"
        )
        out.append(Decision(text, params, newsvendor_order(**params)))
    return out


def curriculum(n: int, seed: int = 0) -> tuple[list[Decision], list[Decision], list[Decision]]:
    """Return ``n`` newsvendor decisions in three stages, from clear-cut ones to all.

    The critical ratios are 0.1 or 0.9; then from 0.15 to 0.25 or from 0.75 to 0.85; then from 0.2 to 0.8.

    Parameters
    ----------
    n
        In all, at least 3.
    seed
        The same seed gives the same decisions.

    Raises
    ------
    InputError
        For ``n`` below 3.
    """
    if _count(n) < 3:
        raise InputError(f"n must be at least 3, one a stage, got {n}")
    bands = ([(0.1, 0.1), (0.9, 0.9)], [(0.15, 0.25), (0.75, 0.85)], [(0.2, 0.8)])
    seeds = iter(np.random.SeedSequence(seed).generate_state(5))
    stages: list[list[Decision]] = []
    for k, stage in enumerate(bands):
        size = n * (k + 1) // 3 - n * k // 3
        halves = [size] if len(stage) == 1 else [size // 2, size - size // 2]
        stages.append(
            [
                decision
                for cr, half in zip(stage, halves, strict=True)
                for decision in (newsvendor(half, cr=cr, seed=int(next(seeds))) if half else [])
            ]
        )
    return stages[0], stages[1], stages[2]


def cost_gap(decision: Decision, order: float) -> float:
    """Return what an order costs beyond the best one, in expectation, in money.

    Parameters
    ----------
    decision
        As made by :func:`newsvendor`: lost margin where demand is larger, loss on what is left where it is smaller. As
        made by :func:`eoq`: ordering and storing.
    order
        In units, not negative; above zero for :func:`eoq`.

    Raises
    ------
    InputError
        For an order out of range.
    """
    eoq_like = "D" in decision.params
    if not isfinite(order) or order < 0 or (eoq_like and order == 0):
        raise InputError(f"order must be a finite number {'above' if eoq_like else 'not below'} 0, got {order!r}")
    return _cost(decision, order) - _cost(decision, decision.optimal)


def _cost(decision: Decision, order: float) -> float:
    p = decision.params
    if "D" in p:
        return p["K"] * p["D"] / order + p["h"] * order / 2
    z = (order - p["mu"]) / p["sigma"]
    short = p["sigma"] * float(norm.pdf(z) - z * norm.sf(z))
    left = p["sigma"] * float(norm.pdf(z) + z * norm.cdf(z))
    return (p["p"] - p["c"]) * short + (p["c"] - p["s"]) * left


def eoq(n: int, seed: int = 0) -> list[Decision]:
    """Return ``n`` decisions on the size of repeated orders."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(_count(n)):
        D, K, h = float(rng.uniform(200, 5000)), float(rng.uniform(10, 200)), float(rng.uniform(0.5, 5))
        text = f"A year needs {D:.0f} units; an order costs {K:.1f}, and storing a unit {h:.2f}. How many at once?"
        out.append(Decision(text, {"D": D, "K": K, "h": h}, eoq_order(D, K, h)))
    return out


@dataclass(frozen=True)
class BiasReport:
    """The bias of orders, in standard deviations of demand (or shares of the best order).

    Attributes
    ----------
    mean_abs_bias
        Mean of |order - best|.
    signed_low, signed_high
        Mean of order - best where the critical ratio is below and above one half.
    pull_to_center
        One minus the slope of the orders on the best ones: 0 is rational, 1 always orders the mean; NaN where the
        best orders don't differ.
    valid
        Share of orders that are finite numbers and not negative; only those count above.
    """

    mean_abs_bias: float
    signed_low: float
    signed_high: float
    pull_to_center: float
    valid: float


def bias_report(decisions: Sequence[Decision], orders: Sequence[float | None]) -> BiasReport:
    """Return how far orders are from the best ones.

    Parameters
    ----------
    decisions
        As made by :func:`newsvendor` or :func:`eoq`.
    orders
        One a decision; None or NaN where there was none.

    Raises
    ------
    InputError
        For lists of different lengths or no decisions.
    """
    if len(decisions) != len(orders) or not decisions:
        raise InputError(f"orders must be one a decision, got {len(orders)} for {len(decisions)}")
    given = np.array([np.nan if order is None else float(order) for order in orders])
    good = np.isfinite(given) & (given >= 0)
    best = np.array([d.optimal for d in decisions])
    scale = np.array([d.params.get("sigma", d.optimal) for d in decisions])
    middle = np.array([d.params.get("mu", 0.0) for d in decisions])
    ratio = np.array([d.critical_ratio for d in decisions])
    bias = ((given - best) / scale)[good]
    ideal, actual = ((best - middle) / scale)[good], ((given - middle) / scale)[good]
    spread = ideal - ideal.mean() if len(ideal) else ideal
    flat = len(ideal) < 2 or float(spread @ spread) < 1e-12
    return BiasReport(
        float(np.abs(bias).mean()) if len(bias) else float("nan"),
        _mean(bias[ratio[good] < 0.5]),
        _mean(bias[ratio[good] > 0.5]),
        float("nan") if flat else float(1 - spread @ actual / (spread @ spread)),
        float(good.mean()),
    )


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _count(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n must be a positive whole number, got {n!r}")
    return n
