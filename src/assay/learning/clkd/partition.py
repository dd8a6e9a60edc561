"""Sums over components, of scores of rows: log partition functions, expected cases, and their derivatives.

With scores r, component k has members S_k and weight w_k; q_k(i) = v_i exp(r_i) / Σ_{S_k} v exp(r) is the chance that
member i is the case (v: weights of rows). The composite likelihood needs no more than

    A(r) = Σ_k w_k log Σ_{S_k} v exp(r),    its gradient  e_i = Σ_k w_k q_k(i),    and in terms of coefficients its
    Hessian  Z' diag(e) Z − Σ_k w_k m_k m_k',  m_k = Σ_i q_k(i) z_i,

because the loss −Σ_k w_k Σ_i t_k(i) log q_k(i) is A(r) − Σ_i d_i r_i with d_i = Σ_k w_k t_k(i), up to a constant.
Everything is divided by W = Σ w_k.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .components import Components

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DEEPEST = -600.0
"""Logarithm below which shares of the largest weight are too small to be summed in float64."""


class Point(Protocol):
    """A and its derivatives at some scores."""

    value: float
    """A / W."""

    def expected(self) -> FloatArray:
        """e / W (n,): what the scores make one expect of each row."""

    def hessian(self, Z: FloatArray) -> FloatArray:
        """The Hessian (p, p) of A / W in the coefficients of the features ``Z`` (n, p)."""


class Partition(Protocol):
    """What both forms of components can do; scores (n,) and features (n, p) are those of the rows ``rows`` only."""

    rows: IntArray
    weight: FloatArray
    log_v: FloatArray
    case: FloatArray
    total: float

    def at(self, r: FloatArray) -> Point:
        """A at scores (n,)."""


@dataclass(frozen=True)
class RiskSets:
    """Risk sets of a cohort, in O(n) memory and time: rows sorted so that each risk set is a leading part.

    Made by :func:`risk_set_partition`.

    Attributes
    ----------
    rows
        (n,) the rows that are in a risk set, by stratum and falling time.
    starts
        (U,) where the rows begin that join at each of the U distinct risk sets.
    weight
        (U,) summed weight of the events of each risk set.
    strata
        Slices of the U risk sets that belong to one stratum each.
    log_v
        (n,) logarithm of the rows' weights.
    case
        (n,) weight of the events / W.
    """

    rows: IntArray
    starts: IntArray
    weight: FloatArray
    strata: tuple[slice, ...]
    log_v: FloatArray
    case: FloatArray
    total: float
    segment: IntArray = field(repr=False)

    def at(self, r: FloatArray) -> AtRiskSets:
        """A at scores (n,)."""
        a = r + self.log_v
        top = np.maximum.reduceat(a, self.starts)
        share = np.exp(a - top[self.segment])
        sums = np.add.reduceat(share, self.starts)
        mass = top + np.log(sums)
        log_sums = np.empty(len(mass))
        for part in self.strata:
            np.logaddexp.accumulate(mass[part], out=log_sums[part])
        return AtRiskSets(self, share / sums[self.segment], mass, log_sums)

    def hazard(self, r: FloatArray) -> FloatArray:
        """Breslow's increments (U,) of the baseline hazard at the risk sets' times, falling within each stratum."""
        return self.weight * np.exp(-self.at(r).log_sums)


class AtRiskSets:
    """Risk sets at some scores.

    Attributes
    ----------
    share
        (n,) weight of a row within those that join at the same risk set.
    mass
        (U,) logarithm of the summed weight of those that join.
    log_sums
        (U,) logarithm of the summed weight of each risk set.
    """

    def __init__(self, sets: RiskSets, share: FloatArray, mass: FloatArray, log_sums: FloatArray) -> None:
        self.sets, self.share, self.mass, self.log_sums = sets, share, mass, log_sums
        self.value = float(sets.weight @ log_sums) / sets.total

    def expected(self) -> FloatArray:
        """e / W: score's share × the baseline hazard, up to the row's time, that fits the scores."""
        log_hazard = np.log(self.sets.weight) - self.log_sums
        for part in self.sets.strata:  # of all risk sets from here on
            log_hazard[part] = np.logaddexp.accumulate(log_hazard[part][::-1])[::-1]
        return self.share * (np.exp(self.mass + log_hazard) / self.sets.total)[self.sets.segment]

    def hessian(self, Z: FloatArray) -> FloatArray:
        """The Hessian (p, p) of A / W."""
        means = np.add.reduceat(self.share[:, None] * Z, self.sets.starts)
        for part in self.sets.strata:
            means[part] = _running_means(means[part], self.mass[part], self.log_sums[part])
        weight = self.sets.weight / self.sets.total
        return (Z * self.expected()[:, None]).T @ Z - (means * weight[:, None]).T @ means


def _running_means(means: FloatArray, mass: FloatArray, log_sums: FloatArray) -> FloatArray:
    """Means (U, p) of all segments up to each, from those of the segments."""
    if mass.min() - mass.max() > DEEPEST:
        weight = np.exp(mass - mass.max())
        return np.cumsum(weight[:, None] * means, axis=0) / np.cumsum(weight)[:, None]
    out = np.empty_like(means)
    so_far = np.zeros(means.shape[1])
    for u, new in enumerate(np.exp(mass - log_sums)):
        so_far = so_far + new * (means[u] - so_far)
        out[u] = so_far
    return out


def risk_set_partition(event: NDArray[np.bool_], time: FloatArray, stratum: IntArray, weight: FloatArray) -> RiskSets:
    """The risk sets of all events with a positive weight; there must be one."""
    order = np.lexsort((np.arange(len(time)), -time, stratum))
    new_stratum = np.concatenate([[True], np.diff(stratum[order]) != 0])
    new_tie = new_stratum | np.concatenate([[True], np.diff(time[order]) != 0])
    tie = np.cumsum(new_tie) - 1
    v = weight[order]
    at_event = np.bincount(tie, v * event[order])
    with_event = at_event > 0
    # The distinct risk sets: ties with an event. A row joins at the first of them at or after its own tie.
    number = np.cumsum(with_event) - with_event
    stratum_of_tie = stratum[order][new_tie]
    stratum_of_set = stratum_of_tie[with_event]
    joins = number[tie]
    kept = joins < len(stratum_of_set)
    kept[kept] = stratum_of_set[joins[kept]] == stratum[order][kept]
    segment = joins[kept]
    case = (v * event[order])[kept]
    edges = np.flatnonzero(np.diff(stratum_of_set)) + 1
    bounds = [0, *edges.tolist(), len(stratum_of_set)]
    total = float(at_event[with_event].sum())
    return RiskSets(
        rows=order[kept],
        starts=np.searchsorted(segment, np.arange(len(stratum_of_set))),
        weight=at_event[with_event],
        strata=tuple(slice(a, b) for a, b in pairwise(bounds)),
        log_v=np.log(v[kept]),
        case=case / total,
        total=total,
        segment=segment,
    )


@dataclass(frozen=True)
class Sets:
    """Listed components: matched sets and pairs. Made by :func:`set_partition`.

    Attributes
    ----------
    rows
        (n,) the rows that are in a component.
    index
        (K, M) of those rows, the case first; 0 where there is none.
    there, absent
        (K, M) where there is one, and where not.
    weight
        (K,) weights of the components.
    log_v
        (n,) logarithm of the rows' weights.
    case
        (n,) weight with which a row is the case / W.
    """

    rows: IntArray
    index: IntArray
    there: NDArray[np.bool_]
    absent: NDArray[np.bool_]
    weight: FloatArray
    log_v: FloatArray
    case: FloatArray
    total: float
    pattern: sparse.csr_array = field(repr=False)

    def at(self, r: FloatArray) -> AtSets:
        """A at scores (n,)."""
        a = (r + self.log_v)[self.index]
        a[self.absent] = -np.inf
        top = a.max(axis=1, keepdims=True)
        q = np.exp(a - top)
        sums = q.sum(axis=1, keepdims=True)
        return AtSets(self, q / sums, (top + np.log(sums))[:, 0])


class AtSets:
    """Listed components at some scores: ``q`` (K, M), the chance of each member to be the case."""

    def __init__(self, sets: Sets, q: FloatArray, log_sums: FloatArray) -> None:
        self.sets, self.q = sets, q
        self.share = sets.weight / sets.total
        self.value = float(self.share @ log_sums)

    def expected(self) -> FloatArray:
        """e / W."""
        weighted = (self.q * self.share[:, None]).ravel()  # members that are not there have q = 0
        return np.bincount(self.sets.index.ravel(), weighted, len(self.sets.rows))

    def hessian(self, Z: FloatArray) -> FloatArray:
        """The Hessian (p, p) of A / W."""
        pattern = self.sets.pattern
        table = sparse.csr_array((self.q[self.sets.there], pattern.indices, pattern.indptr), pattern.shape)
        means = table @ Z
        return (Z * self.expected()[:, None]).T @ Z - (means * self.share[:, None]).T @ means


def set_partition(components: Components, v: FloatArray) -> Sets:
    """The sums over listed components; ``v`` (all rows) are positive weights, also of the components' cases."""
    there = components.index >= 0
    rows, index = np.unique(components.index[there], return_inverse=True)
    full = np.zeros(components.index.shape, dtype=np.int64)
    full[there] = index
    weight = components.weight * v[components.index[:, 0]]
    total = float(weight.sum())
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return Sets(
        rows=rows,
        index=full,
        there=there,
        absent=~there,
        weight=weight,
        log_v=np.log(v[rows]),
        case=np.bincount(full[:, 0], weight, len(rows)) / total,
        total=total,
        pattern=sparse.csr_array((np.ones(len(index)), index, ends), shape=(len(there), len(rows))),
    )
