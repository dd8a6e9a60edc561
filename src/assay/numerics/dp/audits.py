"""Audits: lower bounds on the ε that a mechanism really has, from what it gave out.

A bound above the promised ε shows a broken mechanism; one below shows nothing but that this attack did not succeed. Run
them on made-up data, since a report holds counts of what happened on the data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from assay.errors import InputError

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    eps_lower
        With the confidence below, the mechanism's ε (at the given δ) is no smaller than this; 0 if nothing was found.
    confidence
        Of that statement.
    event
        The outputs whose probabilities differ most: those of which the event consists.
    hits, runs
        How often the event came on the data where it is more probable, and of how many runs.
    hits_other, runs_other
        The same on the other data.
    """

    eps_lower: float
    confidence: float
    event: frozenset[Any]
    hits: int
    runs: int
    hits_other: int
    runs_other: int


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact two-sided confidence interval of a probability.

    Parameters
    ----------
    successes, trials
        Whole numbers, 0 ≤ successes ≤ trials, trials ≥ 1.
    confidence
        Strictly between 0 and 1.

    Raises
    ------
    InputError
        When they are not.

    Examples
    --------
    >>> [round(end, 4) for end in clopper_pearson(0, 20)]
    [0.0, 0.1684]
    """
    _check_counts(successes, trials)
    _check_confidence(confidence)
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(stats.beta.ppf(tail, successes, trials - successes + 1))
    high = 1.0 if successes == trials else float(stats.beta.ppf(1 - tail, successes + 1, trials - successes))
    return low, high


def epsilon_lower_bound(
    hits: int, runs: int, hits_other: int, runs_other: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """A lower bound on ε from how often one event came on neighbouring data.

    (ε, δ)-privacy says p ≤ e^ε·q + δ, so ε ≥ ln((p − δ)/q); p is bounded from below and q from above, each at half of
    the allowed error. The event must have been chosen on other runs.

    Parameters
    ----------
    hits, runs
        On the data where the event is more probable.
    hits_other, runs_other
        On the neighbouring data.
    delta
        The mechanism's δ.
    confidence
        Of the bound.

    Returns
    -------
    float
        At least 0.
    """
    p_low, _ = clopper_pearson(hits, runs, confidence)
    _, q_high = clopper_pearson(hits_other, runs_other, confidence)
    if not 0 <= delta < 1:
        raise InputError(f"delta must be in [0, 1), got {delta!r}")
    return max(0.0, math.log((p_low - delta) / q_high)) if p_low > delta else 0.0


def audit_outputs(
    outputs: Sequence[Hashable], others: Sequence[Hashable], *, delta: float = 0.0, confidence: float = 0.95
) -> Audit:
    """A lower bound on ε from outputs on two neighbouring data sets.

    The first half of the runs chooses the event, a set of outputs with the largest ratio of frequencies, in either
    direction; the second half measures it.

    Parameters
    ----------
    outputs, others
        The outputs on the one and on the other data, of independent runs; at least 20 of each.
    delta
        The mechanism's δ.
    confidence
        Of the bound.

    Returns
    -------
    Audit

    Raises
    ------
    InputError
        When there are fewer than 20 outputs on a side, or a parameter is out of range.
    """
    _check_confidence(confidence)
    for name, side in (("outputs", outputs), ("others", others)):
        if len(side) < 20:
            raise InputError(f"{name} must hold at least 20 outputs, got {len(side)}")
    halves = [(list(side[: len(side) // 2]), list(side[len(side) // 2 :])) for side in (outputs, others)]
    (choose, test), (choose_other, test_other) = halves
    best: tuple[float, frozenset[Any], bool] = (-1.0, frozenset(), False)
    for turned, (first, second) in ((False, (choose, choose_other)), (True, (choose_other, choose))):
        bound, event = _most_revealing(first, second, delta, confidence)
        if bound > best[0]:
            best = (bound, event, turned)
    _, event, turned = best
    more, less = (test_other, test) if turned else (test, test_other)
    hits, hits_other = (sum(output in event for output in side) for side in (more, less))
    return Audit(
        eps_lower=epsilon_lower_bound(hits, len(more), hits_other, len(less), delta=delta, confidence=confidence),
        confidence=confidence,
        event=event,
        hits=hits,
        runs=len(more),
        hits_other=hits_other,
        runs_other=len(less),
    )


def _most_revealing(
    first: list[Hashable], second: list[Hashable], delta: float, confidence: float
) -> tuple[float, frozenset[Any]]:
    """Of the sets of outputs in order of their ratios, the one with the largest bound on these runs."""
    p, q = Counter(first), Counter(second)
    order = sorted(p.keys() | q.keys(), key=lambda o: ((p[o] + 0.5) / (q[o] + 0.5), repr(o)), reverse=True)
    hits = np.cumsum([p[o] for o in order])
    hits_other = np.cumsum([q[o] for o in order])
    n, m = len(first), len(second)
    tail = (1 - confidence) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(hits == 0, 0.0, stats.beta.ppf(tail, hits, n - hits + 1))
        high = np.where(hits_other == m, 1.0, stats.beta.ppf(1 - tail, hits_other + 1, np.maximum(m - hits_other, 1)))
        bounds = np.where(low > delta, np.log((low - delta) / high), -np.inf)
    at = int(np.argmax(bounds))
    return float(bounds[at]), frozenset(order[: at + 1])


def one_run_epsilon(
    correct: int, guesses: int, canaries: int, *, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """A lower bound on ε from one run on data into which each canary record went by the toss of a fair coin.

    Parameters
    ----------
    correct
        How many of the guesses "was it in?" were right.
    guesses
        How many canaries were guessed about; the others were passed over.
    canaries
        How many there were.
    delta
        The mechanism's δ.
    confidence
        Of the bound.

    Returns
    -------
    float
        At least 0; precise to 1e-6 and rounded down.

    Raises
    ------
    InputError
        When counts don't fit together, or a parameter is out of range.

    Notes
    -----
    Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run (arXiv 2305.08846), Theorem 5.2: the number
    of right guesses is, up to δ, no larger than binomial with the probability e^ε/(1 + e^ε).

    Examples
    --------
    >>> round(one_run_epsilon(100, 100, 100), 3)
    3.493
    """
    _check_counts(correct, guesses)
    _check_confidence(confidence)
    if guesses > canaries:
        raise InputError(f"guesses must be at most canaries ({canaries}), got {guesses}")
    if not 0 <= delta < 1:
        raise InputError(f"delta must be in [0, 1), got {delta!r}")

    def refuted(epsilon: float) -> bool:
        return _one_run_p_value(correct, guesses, canaries, epsilon, delta) < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high) and high < 100:
        low, high = high, 2 * high
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _one_run_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """How probable so many right guesses are at most, under (ε, δ)."""
    right = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    p = float(right.sf(correct - 1))
    if delta > 0 and correct:
        below = np.cumsum(right.pmf(np.arange(correct - 1, -1, -1)))
        p += 2 * canaries * delta * float((below / np.arange(1, correct + 1)).max())
    return min(p, 1.0)


def _check_counts(successes: int, trials: int) -> None:
    for name, count in (("successes", successes), ("trials", trials)):
        if isinstance(count, bool) or not isinstance(count, int | np.integer):
            raise InputError(f"{name} must be a whole number, got {count!r}")
    if trials < 1 or not 0 <= successes <= trials:
        raise InputError(f"counts must have 0 ≤ successes ≤ trials and trials ≥ 1, got {successes} of {trials}")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"confidence must be strictly between 0 and 1, got {confidence!r}")
