"""A data set as components: all of it, and in folds of which each is left out once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError

from .components import Components, draw_controls, generator, group_codes, matched, pairs
from .concordance import concordant_members, concordant_pairs
from .partition import Partition, risk_set_partition, set_partition

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

FEWEST_CASES = 4
"""With fewer, no fold of two could have two."""


class Problem(Protocol):
    """What is fitted: rows with weights, in components."""

    n_components: int
    units: IntArray
    """The rows or sets that folds are made of, and which of them hold a case."""
    with_case: BoolArray

    def partition(self, units: IntArray | None = None) -> Partition:
        """The components of some units, or of all."""

    def concordant(self, units: IntArray, risk: FloatArray) -> tuple[float, float]:
        """Concordant and comparable pairs among some units, of risks (n,) of all rows."""


@dataclass(frozen=True)
class Cohort:
    """Rows with event and time; components are risk sets. Folds are made of rows."""

    event: BoolArray
    time: FloatArray
    stratum: IntArray
    v: FloatArray

    @property
    def units(self) -> IntArray:
        """The rows."""
        return np.arange(len(self.event))

    @property
    def with_case(self) -> BoolArray:
        """Rows with an event."""
        return self.event

    @property
    def n_components(self) -> int:
        """Events."""
        return int(self.event.sum())

    def partition(self, units: IntArray | None = None) -> Partition:
        """Risk sets among some rows."""
        if units is None:
            return risk_set_partition(self.event, self.time, self.stratum, self.v)
        part = risk_set_partition(self.event[units], self.time[units], self.stratum[units], self.v[units])
        return replace(part, rows=units[part.rows])

    def concordant(self, units: IntArray, risk: FloatArray) -> tuple[float, float]:
        """Comparable pairs among the rows, within strata."""
        pairs = [
            concordant_pairs(self.event[some], self.time[some], risk[some])
            for some in (units[self.stratum[units] == s] for s in np.unique(self.stratum[units]))
        ]
        return sum(c for c, _ in pairs), sum(n for _, n in pairs)


@dataclass(frozen=True)
class Listed:
    """Listed components; ``unit`` (K,) says which of them stay together in a fold: a set, or a case's pairs."""

    components: Components
    unit: IntArray
    v: FloatArray

    @property
    def units(self) -> IntArray:
        """Numbers of sets, or of cases."""
        return np.unique(self.unit)

    @property
    def with_case(self) -> BoolArray:
        """Every unit holds one."""
        return np.ones(len(self.units), dtype=bool)

    @property
    def n_components(self) -> int:
        """Components."""
        return len(self.components)

    def _some(self, units: IntArray | None) -> Components:
        if units is None:
            return self.components
        mine = np.isin(self.unit, units)
        return Components(self.components.index[mine], self.components.weight[mine])

    def partition(self, units: IntArray | None = None) -> Partition:
        """The components of some units."""
        return set_partition(self._some(units), self.v)

    def concordant(self, units: IntArray, risk: FloatArray) -> tuple[float, float]:
        """Each case against the others of its component."""
        return concordant_members(self._some(units), risk)


def make_problem(
    kind: str,
    event: BoolArray,
    time: FloatArray | None,
    v: FloatArray,
    *,
    group: IntArray | None,
    stratum: IntArray,
    n_controls: int,
    max_pairs: int | None,
    random_state: Any,
) -> Problem:
    """The components of a data set, by kind."""
    if kind == "matched":
        components, unit = matched(event, group_codes(group, len(event)))
        return Listed(components, unit, v)
    assert time is not None
    if kind == "risk_set":
        return Cohort(event, time, stratum, v)
    rng = generator(random_state)
    if kind == "pairwise":
        components = pairs(event, time, stratum, max_pairs, rng)
        return Listed(components, components.index[:, 0], v)
    sample = draw_controls(event, time, stratum, n_controls, rng)
    components, unit = matched(sample.case, sample.groups)
    index = np.where(components.index < 0, -1, sample.rows[components.index])
    return Listed(Components(index, components.weight), unit, v)


def canonical(
    X: FloatArray,
    event: BoolArray,
    time: FloatArray | None,
    stratum: IntArray,
    group: IntArray | None,
    v: FloatArray,
    scores: FloatArray,
) -> IntArray:
    """The rows with a positive weight in an order that depends on what is in them alone.

    So folds and draws, and with them the result, do not depend on the order of the rows.
    """
    rows = np.flatnonzero(v > 0)
    first = [stratum[rows], np.zeros(len(rows)) if time is None else time[rows], event[rows]]
    order = np.lexsort(first[::-1])
    if len(rows) > 1 and any(np.all([np.diff(key[order]) == 0 for key in first], axis=0)):
        keys = [*first, *X[rows].T, *scores[rows].T, v[rows]]
        order = np.lexsort(keys[::-1])
    return rows[order]


def folds(problem: Problem, cv: int, rng: np.random.Generator) -> Iterator[tuple[Partition, Partition, IntArray]]:
    """For each fold the components of the others, its own, and its units. Cases and others are dealt out evenly."""
    units, case = problem.units, problem.with_case
    fold = np.empty(len(units), dtype=np.int64)
    for some in (case, ~case):
        fold[some] = rng.permutation(np.arange(int(some.sum())) % cv)
    for k in range(cv):
        out = units[fold == k]
        yield problem.partition(units[fold != k]), problem.partition(out), out


def usable_folds(problem: Problem, cv: int, why: str) -> int:
    """How many folds the cases allow, at least two cases each; warns where these are fewer than asked for."""
    cases = int(problem.with_case.sum())
    if cases < FEWEST_CASES:
        raise InputError(
            f"{why} needs cross-validation, for which {cases} cases are too few (at least {FEWEST_CASES}): "
            "give eta and alphas one value each, e.g. eta=1.0, alphas=(0.1,)"
        )
    if cases >= 2 * cv:
        return cv
    fewer = max(2, cases // 2)
    if fewer < cv:
        warnings.warn(f"cv={cv} folds of {cases} cases are too thin; {fewer} are used", UserWarning, stacklevel=2)
    return min(cv, fewer)
