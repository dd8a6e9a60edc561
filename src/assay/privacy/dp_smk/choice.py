"""The private steps: density greedy one pick at a time, and one choice among all that greedy+max would compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.numerics.dp import Ledger, exponential_mechanism
from assay.numerics.submodular import FITS, filled

from .objectives import SensitivityError, SubmodularObjective

FloatArray = npt.NDArray[np.float64]

NOTHING_LEFT = 1e-9
"""Share of a budget below which no further pick is paid for."""


@dataclass(frozen=True)
class Prefix:
    """A set that greedy went through: its items, their cost, f of it, and the gains (n,) of one item more."""

    items: tuple[int, ...]
    used: float
    value: float
    gains: FloatArray


@dataclass
class Trace:
    """What the private greedy did: what it kept, in order, the sets it went through, and its gain evaluations."""

    kept: list[int]
    prefixes: list[Prefix] = field(default_factory=list)
    queries: int = 0


@dataclass(frozen=True)
class Problem:
    """The public side: costs (n,), the budget, how many items and how many draws at most, and both spreads."""

    costs: FloatArray
    budget: float
    most: int
    draws: int
    gain_spread: float
    value_spread: float

    def fits(self, used: float, free: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Positions of the free items that can still be paid."""
        return np.flatnonzero(free & (used + self.costs <= self.budget * FITS))


def density_steps(
    objective: SubmodularObjective,
    problem: Problem,
    ledger: Ledger,
    amount: float,
    rng: np.random.Generator,
    *,
    start: Sequence[int] = (),
    discard: float = 0.0,
) -> Trace:
    """Pick items one at a time by noisy density, and spend at most ``amount`` of the ledger.

    Parameters
    ----------
    objective, problem, rng
        What is chosen from and how.
    ledger, amount
        Where each pick is charged before it is drawn.
    start
        Items that are in the set from the beginning.
    discard
        Probability with which a pick, paid for, is thrown away for good.

    Notes
    -----
    Privacy. A score is gain·(least cost that fits)/cost: costs are public and the factor is in (0, 1], so its spread is
    that of the gains. What fits, how much is spent on a pick and when it ends hang on public costs, on coins and on
    earlier picks, which are outputs: the zCDP (or pure) filter of the ledger composes them, and the number of steps
    tells nothing more. One item that fits is taken without a draw: data cannot change it. If all gains are 0 the draw
    is uniform, not skipped: skipping would tell.
    """
    state: Any = objective.empty()
    for item in start:
        state = objective.add(state, item)
    costs = problem.costs
    free = np.ones(len(costs), dtype=bool)
    free[list(start)] = False
    trace = Trace(list(start))
    used = math.fsum(costs[list(start)])
    paid: list[float] = []
    value = set_value(objective, start)
    left, fresh = amount, True
    while len(paid) < problem.draws and len(trace.kept) < problem.most:
        fits = problem.fits(used, free)
        if not len(fits):
            break
        if fresh:
            gains = checked_gains(objective, state)
            trace.queries += len(gains)
            trace.prefixes.append(Prefix(tuple(trace.kept), used, value, gains))
        if len(fits) == 1:
            pick = int(fits[0])
        else:
            share = left / _picks_to_come(problem, used, paid, len(fits), discard)
            if share < NOTHING_LEFT * amount or share <= 0:
                break
            eps0 = ledger.charge(share, "exponential: next item", len(paid) + 1)
            left = max(0.0, left - share)
            scores = gains[fits] * (costs[fits].min() / costs[fits])
            pick = int(fits[exponential_mechanism(scores, eps0, problem.gain_spread, rng)])
        free[pick] = False
        paid.append(float(costs[pick]))
        fresh = not (discard and rng.random() < discard)
        if fresh:
            value += float(gains[pick])
            state = objective.add(state, pick)
            trace.kept.append(pick)
            used = math.fsum(costs[trace.kept])
    return trace


def best_extension(
    objective: SubmodularObjective,
    trace: Trace,
    problem: Problem,
    ledger: Ledger,
    amount: float,
    rng: np.random.Generator,
    *,
    fallback: bool = True,
) -> tuple[int, ...]:
    """One draw among all pairs of a prefix and one item more that fits: what greedy+max compares, at one price.

    The last greedy set is one of them. Where more never harms, and with ``fallback``, each prefix filled with the
    cheapest items is a candidate too, the empty one among them: what noise has made of the later picks can be worse
    than no data at all. Where more can harm, the empty set is.

    A set's score is f of it (or of a part of it), and which sets are candidates is public given the trace. Gains that
    were computed for the picks are used again: the data may be looked at as often as one likes, what is paid for is
    what comes out.
    """
    sets: list[tuple[int, ...]] = []
    scores: list[float] = []
    if objective.monotone and fallback:
        sets = filled_prefixes(trace, problem)
        scores = [set_value(objective, items) for items in sets]
        trace.queries += len(sets)
    elif not objective.monotone:
        sets, scores = [()], [set_value(objective, ())]
    for prefix in trace.prefixes:
        free = np.ones(len(problem.costs), dtype=bool)
        free[list(prefix.items)] = False
        fits = problem.fits(prefix.used, free)
        sets.extend((*prefix.items, int(item)) for item in fits)
        scores.extend((prefix.value + prefix.gains[fits]).tolist())
    if len({frozenset(items) for items in sets}) == 1:
        return sets[0]
    eps0 = ledger.charge(amount, "exponential: prefix and what follows it", len(trace.prefixes) + 1)
    return sets[exponential_mechanism(scores, eps0, problem.value_spread, rng)]


def filled_prefixes(trace: Trace, problem: Problem) -> list[tuple[int, ...]]:
    """Each set that greedy went through, filled with the cheapest items that fit; the same set only once."""
    cheapest = np.argsort(problem.costs, kind="stable").tolist()
    sets: dict[frozenset[int], tuple[int, ...]] = {}
    for items in (*(prefix.items for prefix in trace.prefixes), tuple(trace.kept)):
        whole = filled(items, cheapest, problem.costs, problem.budget, problem.most)
        sets.setdefault(frozenset(whole), whole)
    return list(sets.values())


def set_value(objective: SubmodularObjective, items: Sequence[int]) -> float:
    """f of a set."""
    state = objective.empty()
    for item in items:
        state = objective.add(state, item)
    value = float(objective.value(state))
    if not math.isfinite(value):
        raise SensitivityError(f"value of the objective must be a finite number, got {value!r}")
    return value


def checked_gains(objective: SubmodularObjective, state: Any) -> FloatArray:
    """The gains, when they are n finite numbers."""
    gains = np.asarray(objective.gains(state), dtype=np.float64)
    if gains.shape != (objective.n,) or not np.isfinite(gains).all():
        raise SensitivityError(
            f"gains of the objective must be {objective.n} finite numbers, got shape {gains.shape}"
            f"{'' if gains.shape != (objective.n,) else ' with NaN or infinity in it'}"
        )
    return gains


def packing(costs: FloatArray, budget: float) -> int:
    """How many items fit at most: as many as the cheapest-first packing has."""
    return max(1, int(np.sum(np.cumsum(np.sort(costs)) <= budget * FITS)))


def _picks_to_come(problem: Problem, used: float, paid: list[float], fitting: int, discard: float) -> int:
    """How many draws are expected still, this one included; from public costs and what was picked."""
    payable = problem.costs[problem.costs <= problem.budget * FITS]
    typical = float(np.mean(paid)) if paid else float(np.median(payable))
    picks = math.ceil((problem.budget - used) / typical / (1 - discard)) + 1
    # The last one that fits is taken without a draw.
    return max(1, min(picks, fitting - 1, problem.draws - len(paid)))
