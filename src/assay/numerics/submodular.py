"""Greedy choice for submodular functions: a number of items, a knapsack or a cover; and bounds on the best choice."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from assay.errors import InputError

__all__ = [
    "FITS",
    "Chosen",
    "SetFunction",
    "greedy_cardinality",
    "greedy_cover",
    "greedy_knapsack",
    "greedy_plus_max",
    "knapsack_upper_bound",
]

FloatArray = npt.NDArray[np.float64]

FITS = 1 + 1e-12
"""A set fits when its cost is at most this times the budget: 0.1 + 0.2 + 0.7 fits into 1."""


class SetFunction(Protocol):
    """A set function that is evaluated step by step; a state stands for a set, and is never changed.

    A method ``gain(state, item)``, where there is one, gives one of the gains: lazy greedy needs few of them.
    """

    n: int

    def empty(self) -> Any:
        """The state of the empty set."""
        ...

    def gains(self, state: Any) -> FloatArray:
        """(n,) by how much each item would raise the value; what stands at items of the set does not count."""
        ...

    def add(self, state: Any, item: int) -> Any:
        """The state with one more item."""
        ...

    def value(self, state: Any) -> float:
        """The value of the state's set."""
        ...


@dataclass(frozen=True)
class Chosen:
    """A set that was chosen.

    Attributes
    ----------
    items
        In the order in which they were chosen.
    value, cost
        Of the set; the cost is the number of items where there are no costs.
    evaluations
        How many gains were computed.
    """

    items: tuple[int, ...]
    value: float
    cost: float
    evaluations: int


def greedy_cardinality(f: SetFunction, k: int) -> Chosen:
    """The k items that greedy takes by their gains; at least 1 − 1/e of the best for monotone submodular f.

    Parameters
    ----------
    f
        The function.
    k
        How many, 1 ≤ k ≤ n.

    Raises
    ------
    InputError
        When ``k`` is out of range.

    Notes
    -----
    Lazy evaluation (Minoux 1978): for submodular f an item's earlier gain bounds its gain from above. Ties go to the
    first.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= f.n:
        raise InputError(f"k must be a whole number from 1 to n = {f.n}, got {k!r}")
    ones = np.ones(f.n)
    return _lazy(f, ones, ones, budget=float(k), target=math.inf)


def greedy_knapsack(f: SetFunction, costs: npt.ArrayLike, budget: float, *, by: str = "density") -> Chosen:
    """What greedy takes for a budget, passing over what no longer fits.

    Alone it has no guarantee: see :func:`greedy_plus_max`.

    Parameters
    ----------
    f
        The function.
    costs
        (n,) positive.
    budget
        At least the least cost.
    by
        ``"density"`` (gain by cost) or ``"gain"``.

    Raises
    ------
    InputError
        When costs or the budget are unusable; see :func:`greedy_plus_max`.
    """
    if by not in ("density", "gain"):
        raise InputError(f"by must be 'density' or 'gain', not {by!r}")
    costs = checked_costs(costs, budget, f.n)
    return _lazy(f, costs, costs if by == "density" else np.ones(f.n), budget=budget, target=math.inf)


def greedy_cover(f: SetFunction, target: float, costs: npt.ArrayLike | None = None) -> Chosen:
    """Items by density until the value reaches a target, or no item raises it any more.

    Parameters
    ----------
    f
        A monotone submodular function.
    target
        The value wanted; check ``value`` for whether it was reached.
    costs
        (n,) positive; 1 each by default.

    Raises
    ------
    InputError
        When the target is no finite number or costs are unusable.

    Notes
    -----
    Wolsey 1982: for integer f the cost is at most 1 + ln(max gain) times the least.
    """
    if not math.isfinite(target):
        raise InputError(f"target must be a finite number, got {target!r}")
    costs = np.ones(f.n) if costs is None else checked_costs(costs, math.inf, f.n)
    return _lazy(f, costs, costs, budget=math.inf, target=target)


def greedy_plus_max(f: SetFunction, costs: npt.ArrayLike, budget: float) -> Chosen:
    """Density greedy, or one of its prefixes with one more item: the best of them, at least half of the optimum.

    Parameters
    ----------
    f
        A monotone submodular function.
    costs
        (n,) positive, finite.
    budget
        At least the least cost.

    Raises
    ------
    InputError
        When a cost is not positive, their number is not n, the budget is not positive or nothing can be paid.

    Notes
    -----
    Yaroslavtsev, Zhou and Avdiukhin, "Bring Your Own Greedy"+Max (AISTATS 2020, arXiv 1910.05646). What the better
    prefix leaves of the budget is filled with the rest of the greedy picks.
    """
    costs = checked_costs(costs, budget, f.n)
    state, value, used, evaluations = f.empty(), 0.0, 0.0, 0
    picks: list[int] = []
    best, best_items = -math.inf, ()  # type: tuple[float, tuple[int, ...]]
    free = costs <= budget * FITS
    while True:
        fits = free & (used + costs <= budget * FITS)
        if not fits.any():
            break
        gains = np.asarray(f.gains(state), dtype=np.float64)
        evaluations += f.n
        top = int(np.argmax(np.where(fits, gains, -np.inf)))
        if value + gains[top] > best:
            best, best_items = value + float(gains[top]), (*picks, top)
        pick = int(np.argmax(np.where(fits, gains / costs, -np.inf)))
        picks.append(pick)
        state, value, used = f.add(state, pick), value + float(gains[pick]), used + float(costs[pick])
        free[pick] = False
    chosen = filled(best_items, picks, costs, budget)
    state = f.empty()
    for item in chosen:
        state = f.add(state, item)
    return Chosen(chosen, float(f.value(state)), math.fsum(costs[list(chosen)]), evaluations)


def knapsack_upper_bound(f: SetFunction, items: npt.ArrayLike, costs: npt.ArrayLike, budget: float) -> float:
    """A bound from above on the value of every set within the budget, from any choice of a monotone submodular f.

    Parameters
    ----------
    f
        The function.
    items
        A choice, in order; each of its prefixes gives a bound, and the least one is returned.
    costs, budget
        As in :func:`greedy_plus_max`; ones and k for "k items".

    Returns
    -------
    float
        ``chosen.value / bound`` is then a certificate: the choice is at least that share of the optimum.

    Notes
    -----
    f(O) ≤ f(S) + Σ over O of the gains at S, and the sum is at most that of the fractional knapsack (Leskovec et al.,
    KDD 2007).
    """
    costs = checked_costs(costs, budget, f.n)
    state, best = f.empty(), math.inf
    for item in (*np.asarray(items, dtype=np.int64).ravel().tolist(), None):
        best = min(best, float(f.value(state)) + _fractional(np.asarray(f.gains(state)), costs, budget))
        if item is not None:
            state = f.add(state, item)
    return best


def filled(
    items: tuple[int, ...], then: list[int], costs: FloatArray, budget: float, most: int | None = None
) -> tuple[int, ...]:
    """``items``, and of ``then``, in order, what still fits."""
    chosen = list(items)
    used = math.fsum(costs[chosen])
    for item in then:
        if item not in chosen and used + costs[item] <= budget * FITS and (most is None or len(chosen) < most):
            chosen.append(item)
            used = math.fsum(costs[chosen])
    return tuple(chosen)


def checked_costs(costs: npt.ArrayLike, budget: float, n: int) -> FloatArray:
    """The costs as float64, or an ``InputError`` that says what is wrong with them or with the budget."""
    try:
        array = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("costs must be numbers, one for each item") from None
    if array.shape != (n,):
        raise InputError(f"costs must be one number for each of the {n} items, got the shape {array.shape}")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0)))
    if len(bad):
        raise InputError(f"costs must be finite and greater than 0, and that of item {bad[0]} is {array[bad[0]]}")
    if isinstance(budget, bool) or not isinstance(budget, int | float | np.integer | np.floating) or not budget > 0:
        raise InputError(f"budget must be a number greater than 0, got {budget!r}")
    if not (array <= budget * FITS).any():
        raise InputError(f"no item is affordable: the least cost is {array.min():g} and the budget {budget:g}")
    return array


def _lazy(f: SetFunction, costs: FloatArray, weights: FloatArray, *, budget: float, target: float) -> Chosen:
    single: Callable[[Any, int], float] | None = getattr(f, "gain", None)
    state, value, used = f.empty(), float(f.value(f.empty())), 0.0
    first = np.asarray(f.gains(state), dtype=np.float64)
    evaluations = f.n
    # (−gain by weight, item, how many items there were when it was computed)
    heap = [(-float(first[u]) / float(weights[u]), u, 0) for u in range(f.n)]
    heapq.heapify(heap)
    picks: list[int] = []
    while heap and value < target:
        key, item, when = heapq.heappop(heap)
        if used + costs[item] > budget * FITS:
            continue
        if when == len(picks):
            if math.isfinite(target) and key >= 0:
                break
            picks.append(item)
            value += -key * float(weights[item])
            used += float(costs[item])
            state = f.add(state, item)
            continue
        gain = float(single(state, item)) if single is not None else float(f.gains(state)[item])
        evaluations += 1 if single is not None else f.n
        heapq.heappush(heap, (-gain / float(weights[item]), item, len(picks)))
    return Chosen(tuple(picks), float(f.value(state)), math.fsum(costs[picks]), evaluations)


def _fractional(gains: FloatArray, costs: FloatArray, budget: float) -> float:
    gains = np.where(costs <= budget * FITS, np.maximum(gains, 0.0), 0.0)
    order = np.argsort(-gains / costs, kind="stable")
    before = np.concatenate([[0.0], np.cumsum(costs[order])[:-1]])
    share = np.clip((budget * FITS - before) / costs[order], 0.0, 1.0)
    return float(gains[order] @ share)
