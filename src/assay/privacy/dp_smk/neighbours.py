"""Neighbouring data, made by hand, on which a solver should differ as much as it can; and solvers that cheat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.numerics.submodular import greedy_plus_max

from .objectives import Coverage, GraphCut
from .solver import DPKnapsack, SelectionResult

EPSILON = 1.0
"""What every solver below promises, with δ = 0: pure privacy leaves no slack between promise and audit."""


@dataclass(frozen=True)
class Pair:
    """Two data sets, of which the second has one record more, and what to choose on them.

    Attributes
    ----------
    name
        Short.
    data, more
        The objective on the records, and on the records with one more.
    costs, budget
        Public.
    """

    name: str
    data: Any
    more: Any
    costs: npt.NDArray[np.float64]
    budget: float


def pairs() -> tuple[Pair, ...]:
    """Six pairs: who is added is the only one, or tips a balance; one pick or many; costs; a cut."""
    nobody, one = Coverage(np.zeros((0, 12))), Coverage(np.eye(12)[:1])
    people = np.repeat(np.eye(12), 3, axis=0)
    level, tipped = Coverage(people), Coverage(np.vstack([people, np.eye(12)[:1]]))
    dear = np.array([8.0, *np.ones(8)])
    edges = np.repeat([[0, 1], [2, 3], [4, 5]], 3, axis=0)
    return (
        Pair("first person, one pick", nobody, one, np.ones(12), 1.0),
        Pair("balance, one pick", level, tipped, np.ones(12), 1.0),
        Pair("balance, three picks", level, tipped, np.ones(12), 3.0),
        Pair("first person, six picks", nobody, one, np.ones(12), 6.0),
        Pair("dear item", Coverage(np.zeros((0, 9))), Coverage(np.eye(9)[:1]), dear, 8.0),
        Pair("one more edge", GraphCut(edges, 6), GraphCut(np.vstack([edges, [[0, 1]]]), 6), np.ones(6), 1.0),
    )


Factory = Callable[[Any, np.random.Generator], Any]


def honest(pair: Pair, **parameters: Any) -> Factory:
    """The solver as it is, at the promised ε."""

    def factory(objective: Any, rng: np.random.Generator) -> Any:
        return _solver(pair, objective, rng, EPSILON, **parameters)

    return factory


def half_the_noise(pair: Pair, **parameters: Any) -> Factory:
    """A solver that spends twice what it promises."""

    def factory(objective: Any, rng: np.random.Generator) -> Any:
        return _solver(pair, objective, rng, 2 * EPSILON, **parameters)

    return factory


def heavy_record(pair: Pair, weight: float = 3.0, **parameters: Any) -> Factory:
    """The solver on an objective whose records count more than its ``record_sensitivity`` says."""

    def factory(objective: Any, rng: np.random.Generator) -> Any:
        solver = _solver(pair, objective, rng, EPSILON, **parameters)
        solver.objective = Scaled(solver.objective, weight)
        return solver

    return factory


def not_private(pair: Pair) -> Factory:
    """Greedy+max on the exact data; with a tie it takes the last item, so that the record added to the first shows."""

    def factory(objective: Any, rng: np.random.Generator) -> Any:
        return Plain(pair, objective)

    return factory


class Scaled:
    """An objective whose values are ``weight`` times what its ``record_sensitivity`` allows: a lie."""

    def __init__(self, of: Any, weight: float) -> None:
        self._of, self._weight = of, weight

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def gains(self, state: Any) -> npt.NDArray[np.float64]:
        """The gains, too large."""
        return self._weight * np.asarray(self._of.gains(state))

    def value(self, state: Any) -> float:
        """The value, too large."""
        return self._weight * float(self._of.value(state))


@dataclass(frozen=True)
class Plain:
    """Greedy without noise, behind the solver's interface."""

    pair: Pair
    objective: Any

    def solve(self) -> SelectionResult:
        """The exact choice, as a result that promises what it does not keep."""
        objective = self.objective
        chosen = greedy_plus_max(Reversed(objective), self.pair.costs[::-1], self.pair.budget)
        items = [objective.n - 1 - item for item in chosen.items]
        return SelectionResult(items, chosen.cost, EPSILON, 0.0, EPSILON**2 / 2, (), 0, "greedy")


class Reversed:
    """An objective with its items in the opposite order: ties are broken the other way."""

    def __init__(self, of: Any) -> None:
        self._of, self.n = of, of.n

    def empty(self) -> Any:
        """The state of the empty set."""
        return self._of.empty()

    def gains(self, state: Any) -> npt.NDArray[np.float64]:
        """The gains, last item first."""
        return np.asarray(self._of.gains(state))[::-1]

    def add(self, state: Any, item: int) -> Any:
        """The state with one more item."""
        return self._of.add(state, self.n - 1 - item)

    def value(self, state: Any) -> float:
        """The value."""
        return float(self._of.value(state))


def _solver(pair: Pair, objective: Any, rng: np.random.Generator, epsilon: float, **parameters: Any) -> DPKnapsack:
    if "algorithm" not in parameters:
        parameters["algorithm"] = "greedy_max" if objective.monotone else "sample_greedy_max"
    elif not objective.monotone:
        parameters["algorithm"] = "sample_greedy_max"
    return DPKnapsack(objective, pair.costs, pair.budget, epsilon=epsilon, delta=0.0, random_state=rng, **parameters)
