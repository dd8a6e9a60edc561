"""The contenders: what one would use instead, each ``f(instance, epsilon, delta, rng) -> (items, queries)``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.numerics.dp import exponential_mechanism, rho_of
from assay.numerics.submodular import FITS, filled, greedy_knapsack, greedy_plus_max

from .choice import set_value
from .instances import Instance
from .objectives import spreads
from .solver import DPKnapsack

FloatArray = npt.NDArray[np.float64]
Picked = tuple[tuple[int, ...], int]

STEPS, SAMPLES = 20, 20
"""Of the private continuous greedy: steps, and random sets for each gradient."""


def private(instance: Instance, epsilon: float, delta: float, rng: np.random.Generator, **parameters: Any) -> Picked:
    """The method, or a part of it, by the solver's parameters."""
    objective = instance.objective
    if "algorithm" not in parameters:
        parameters["algorithm"] = "greedy_max" if objective.monotone else "sample_greedy_max"
    solver = DPKnapsack(
        objective, instance.costs, instance.budget, epsilon=epsilon, delta=delta, random_state=rng, **parameters
    )
    result = solver.solve()
    position = {label: k for k, label in enumerate(objective.labels)}
    return tuple(position[label] for label in result.items), result.queries


def unit_cost(instance: Instance, epsilon: float, delta: float, rng: np.random.Generator) -> Picked:
    """Private greedy that looks at gains and not at costs, with the whole budget on its picks."""
    objective, costs = instance.objective, instance.costs
    if hasattr(objective, "prepared"):
        raise TypeError("unit_cost takes objectives that need no preparation")
    spread, _, _ = spreads(objective, replace=False)
    left = rho_of(epsilon, delta)
    free, used, queries = np.ones(len(costs), dtype=bool), 0.0, 0
    state, picks = objective.empty(), []  # type: Any, list[int]
    typical = float(np.median(costs[costs <= instance.budget * FITS]))
    while len(fits := np.flatnonzero(free & (used + costs <= instance.budget * FITS))):
        paid = float(np.mean(costs[picks])) if picks else typical
        to_come = max(1, min(math.ceil((instance.budget - used) / paid) + 1, len(fits) - 1))
        gains = objective.gains(state)
        queries += len(gains)
        if len(fits) == 1:
            pick = int(fits[0])
        else:
            pick = int(fits[exponential_mechanism(gains[fits], math.sqrt(8 * left / to_come), spread, rng)])
            left -= left / to_come
        if left <= 0 and len(fits) > 1:
            picks.append(pick)
            break
        picks.append(pick)
        free[pick] = False
        used = math.fsum(costs[picks])
        state = objective.add(state, pick)
    cheapest = np.argsort(costs, kind="stable").tolist()
    return filled(tuple(picks), cheapest, costs, instance.budget), queries


def continuous(
    instance: Instance, epsilon: float, delta: float, rng: np.random.Generator, *, fallback_share: float = 0.0
) -> Picked:
    """Private continuous greedy in the manner of Sadeghi and Fazel (arXiv 2006.15744), for a budget of costs.

    Each step estimates the gradient of the multilinear extension from random sets, draws an item by density with the
    exponential mechanism, and spends an equal part of the budget on it. The fractional solution is rounded by its
    probabilities, and what is left is filled in its order. Averages of one-sided gains are one-sided.

    ``fallback_share`` of the budget pays for what the method ends with as well: one draw among the beginnings of that
    set, each filled with the cheapest items.
    """
    objective, costs, budget = instance.objective, instance.costs, instance.budget
    n = len(costs)
    spread, value_spread, _ = spreads(objective, replace=False)
    rho = rho_of(epsilon, delta)
    eps0 = math.sqrt(8 * (1 - fallback_share) * rho / STEPS)
    payable = costs <= budget * FITS
    density = np.where(payable, costs[payable].min() / costs, 0.0)
    x, queries = np.zeros(n), 0
    for _ in range(STEPS):
        gradient = np.zeros(n)
        for _ in range(SAMPLES):
            inside = rng.random(n) < x
            state = objective.empty()
            for item in np.flatnonzero(inside):
                state = objective.add(state, int(item))
            gradient += np.where(inside, 0.0, objective.gains(state)) / SAMPLES
            queries += n
        open_items = np.flatnonzero(payable & (x < 1 - 1e-9))
        if not len(open_items):
            break
        item = open_items[exponential_mechanism((gradient * density)[open_items], eps0, spread, rng)]
        x[item] = min(1.0, x[item] + budget / STEPS / costs[item])
    kept = rng.random(n) < x
    order = [
        *np.flatnonzero(kept)[np.argsort(-x[kept], kind="stable")].tolist(),
        *np.argsort(-x, kind="stable").tolist(),
    ]
    chosen = filled((), order, costs, budget)
    if fallback_share > 0:
        by_cost = np.argsort(costs, kind="stable").tolist()
        sets = [filled(chosen[:k], by_cost, costs, budget) for k in range(len(chosen) + 1)]
        values = [set_value(objective, items) for items in sets]
        chosen = sets[exponential_mechanism(values, math.sqrt(8 * fallback_share * rho), value_spread, rng)]
        queries += len(sets)
    return chosen, queries


def random_choice(instance: Instance, epsilon: float, delta: float, rng: np.random.Generator) -> Picked:
    """Items in random order while they fit: no data at all."""
    return filled((), rng.permutation(len(instance.costs)).tolist(), instance.costs, instance.budget), 0


def cheapest(instance: Instance, epsilon: float, delta: float, rng: np.random.Generator) -> Picked:
    """As many items as fit, cheapest first: no data, but the costs."""
    return filled((), np.argsort(instance.costs, kind="stable").tolist(), instance.costs, instance.budget), 0


def nonprivate(instance: Instance, epsilon: float, delta: float, rng: np.random.Generator) -> Picked:
    """Greedy+max on the exact data: nothing is private."""
    objective = exact(instance.objective)
    if objective.monotone:
        chosen = greedy_plus_max(objective, instance.costs, instance.budget)
    else:
        chosen = greedy_knapsack(objective, instance.costs, instance.budget)
    return chosen.items, chosen.evaluations


def exact(objective: Any) -> Any:
    """The objective itself, or with exact tables where it would release some."""
    return objective.exact() if hasattr(objective, "exact") else objective


Contender = Callable[[Instance, float, float, np.random.Generator], Picked]
