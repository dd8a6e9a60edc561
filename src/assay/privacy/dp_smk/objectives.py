"""Benefits of sets of items that people's records define, and by how much one record can change them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from assay.errors import InputError

FloatArray = npt.NDArray[np.float64]


class SensitivityError(InputError):
    """An objective does not say by how much one record can change it, or was seen to break what it says.

    Where it is raised during a solve, it depends on the data: treat that it came as a release, and mend the objective.
    """


class SubmodularObjective(Protocol):
    """What :class:`DPKnapsack` chooses for; an own objective is any object with these members.

    A state stands for a set and is never changed. A method ``gain(state, item)`` is
    optional, and so is ``prepared(release, replace)``, by which an objective is given a share of the budget first and
    returns the one that is then used (see :class:`FeatureInformation`).

    Attributes
    ----------
    n, labels
        How many items there are, and their names; public.
    monotone
        Whether more items never lower f, on any data.
    record_sensitivity
        Δ: adding or removing one record changes f(S) by at most this, for every S. It must follow from the records'
        public schema, not from the records at hand.
    one_sided
        Whether one added record raises f(S) by between 0 and Δ for every S, and moves, for each S, all marginal gains
        in one direction, each by at most Δ. It is true of sums over people of monotone submodular functions with
        values in [0, Δ], and of cuts where a record is an edge. It saves a factor of 4 of noise.
    """

    n: int
    labels: Sequence[Hashable]
    monotone: bool
    record_sensitivity: float
    one_sided: bool

    def empty(self) -> Any:
        """The state of the empty set."""
        ...

    def gains(self, state: Any) -> FloatArray:
        """(n,) float64: by how much each item would raise f; what stands at items of the set does not count."""
        ...

    def add(self, state: Any, item: int) -> Any:
        """The state with one more item."""
        ...

    def value(self, state: Any) -> float:
        """f of the state's set."""
        ...


def spreads(objective: SubmodularObjective, replace: bool) -> tuple[float, float, float]:
    """How neighbouring data differ: spread of the gains, spread of f over sets, largest change of f.

    A spread is the largest difference between two candidates' changes. One-sided: with a record added every change lies
    in [0, Δ] or every one in [−Δ, 0], so the spread is Δ. In general a gain is a difference of two values of f,
    so it changes by at most 2Δ either way (spread 4Δ), and f by Δ either way (2Δ). Dividing gains by public costs and
    multiplying by the least of them scales each change by a number in (0, 1]: signs stay, sizes don't grow. Replacing a
    record is one removed and one added: twice the spread. f of a replacement changes by at most Δ where both can only
    raise it, else by 2Δ.
    """
    delta = float(objective.record_sensitivity)
    twice = 2.0 if replace else 1.0
    if objective.one_sided:
        return twice * delta, twice * delta, delta
    return 4 * twice * delta, 2 * twice * delta, twice * delta


@dataclass(frozen=True, eq=False, repr=False)
class Coverage:
    """How many people at least one chosen item reaches. One record is one person: Δ = 1, one-sided.

    Parameters
    ----------
    reach
        (people, items) of 0 and 1, dense or SciPy sparse.
    labels
        Names of the items, 0 … n − 1 by default.

    Raises
    ------
    InputError
        When an entry is neither 0 nor 1, there is no item, or labels don't fit.

    Examples
    --------
    >>> f = Coverage([[1, 0], [1, 1], [0, 1]])
    >>> f.gains(f.add(f.empty(), 0)).tolist()
    [0.0, 1.0]
    """

    reach: Any
    labels: Sequence[Hashable] | None = None
    monotone = True
    one_sided = True
    record_sensitivity = 1.0

    def __post_init__(self) -> None:
        if not sp.issparse(self.reach):
            table = sp.csr_array(_table("reach", self.reach))
        elif self.reach.ndim == 2 and self.reach.shape[1] and self.reach.dtype.kind in "biuf":
            table = sp.csr_array(self.reach).astype(np.float64)
        else:
            raise InputError(
                f"reach must hold numbers (people, items) with at least one item, got {self.reach.dtype} of shape "
                f"{self.reach.shape}"
            )
        table.sum_duplicates()
        if not np.isin(table.data, (0.0, 1.0)).all():
            raise InputError("reach must hold only 0 and 1: one person can be reached once, or Δ would not be 1")
        _set(self, reach=table.T.tocsr(), n=table.shape[1], labels=_labels(self.labels, table.shape[1]))

    def empty(self) -> FloatArray:
        """(people,) 1 where nobody has reached the person yet."""
        return np.ones(self.reach.shape[1])

    def gains(self, state: FloatArray) -> FloatArray:
        """(n,) people whom each item would reach for the first time."""
        return np.asarray(self.reach @ state)

    def gain(self, state: FloatArray, item: int) -> float:
        """One of the gains."""
        return float(state[self._people(item)].sum())

    def add(self, state: FloatArray, item: int) -> FloatArray:
        """The state with one more item."""
        state = state.copy()
        state[self._people(item)] = 0.0
        return state

    def value(self, state: FloatArray) -> float:
        """People reached."""
        return float(len(state) - state.sum())

    def _people(self, item: int) -> npt.NDArray[np.int32]:
        start, end = self.reach.indptr[item : item + 2]
        return self.reach.indices[start:end][self.reach.data[start:end] > 0]


@dataclass(frozen=True, eq=False, repr=False)
class FacilityLocation:
    """The sum, over people, of the similarity to the nearest chosen item. One record is one person: Δ = 1, one-sided.

    Parameters
    ----------
    similarity
        (people, items) in [0, 1]; a person's similarities may depend on that person's record and public things alone.
    labels
        Names of the items, 0 … n − 1 by default.

    Raises
    ------
    InputError
        When a similarity lies outside [0, 1] (Δ would not be 1) or is NaN, there is no item, or labels don't fit.
    """

    similarity: npt.ArrayLike
    labels: Sequence[Hashable] | None = None
    monotone = True
    one_sided = True
    record_sensitivity = 1.0

    def __post_init__(self) -> None:
        table = _table("similarity", self.similarity)
        if table.size and not (table.min() >= 0 and table.max() <= 1):
            raise InputError(
                f"similarity must lie in [0, 1], or one person could change the value by more than 1; there is "
                f"{table[(table < 0) | (table > 1)][0]:g}"
            )
        by_item = np.array(table.T, order="C")  # a copy: what is changed later must not get past the check
        _set(self, similarity=by_item, n=table.shape[1], labels=_labels(self.labels, table.shape[1]))

    def empty(self) -> FloatArray:
        """(people,) similarity to the nearest chosen item: 0."""
        return np.zeros(self.similarity.shape[1])

    def gains(self, state: FloatArray) -> FloatArray:
        """(n,) by how much each item would raise the sum."""
        closer = np.maximum(self.similarity, state)
        return closer.sum(axis=1) - state.sum()

    def gain(self, state: FloatArray, item: int) -> float:
        """One of the gains."""
        return float(np.maximum(self.similarity[item] - state, 0.0).sum())

    def add(self, state: FloatArray, item: int) -> FloatArray:
        """The state with one more item."""
        return np.maximum(state, self.similarity[item])

    def value(self, state: FloatArray) -> float:
        """The sum of the similarities to the nearest chosen item."""
        return float(state.sum())


@dataclass(frozen=True, eq=False, repr=False)
class GraphCut:
    """How many private edges run between the chosen places and the others. One record is one edge: Δ = 1.

    It is not monotone. Given the chosen set, an added edge raises the gains of its ends (both outside), lowers that of
    one (the other inside), or changes nothing: one direction, so it is one-sided.

    Parameters
    ----------
    edges
        (m, 2) whole numbers from 0 to n − 1, two different ends; the same edge may come several times.
    n
        How many places there are; public.
    labels
        Their names, 0 … n − 1 by default.

    Raises
    ------
    InputError
        When an end is no place, both ends are the same, or labels don't fit.
    """

    edges: npt.ArrayLike
    n: int
    labels: Sequence[Hashable] | None = None
    monotone = False
    one_sided = True
    record_sensitivity = 1.0

    def __post_init__(self) -> None:
        n = self.n
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"n must be a whole number of at least 1, got {n!r}")
        ends = np.asarray(self.edges)
        ends = ends.reshape(0, 2) if ends.size == 0 else ends
        if ends.ndim != 2 or ends.shape[1] != 2 or not (np.issubdtype(ends.dtype, np.integer) or not ends.size):
            raise InputError(f"edges must be pairs of whole numbers (m, 2), got {ends.dtype} of shape {ends.shape}")
        ends = ends.astype(np.int64)
        if ends.size and (ends.min() < 0 or ends.max() >= n):
            raise InputError(f"edges must join places from 0 to {n - 1}, and one goes to {_outside(ends, n)}")
        if (ends[:, 0] == ends[:, 1]).any():
            raise InputError("edges must have two different ends")
        joined = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n, n))
        _set(self, edges=sp.csr_array(joined + joined.T), labels=_labels(self.labels, n))

    def empty(self) -> FloatArray:
        """(n,) 1 where a place is chosen."""
        return np.zeros(self.n)

    def gains(self, state: FloatArray) -> FloatArray:
        """(n,) by how much each place would raise the cut."""
        return np.asarray(self.edges @ (1 - 2 * state))

    def add(self, state: FloatArray, item: int) -> FloatArray:
        """The state with one more place."""
        state = state.copy()
        state[item] = 1.0
        return state

    def value(self, state: FloatArray) -> float:
        """Edges between chosen places and others."""
        return float(state @ (self.edges @ (1 - state)))


@dataclass(frozen=True, eq=False, repr=False)
class Modular:
    """The sum, over people, of what each gives to the chosen items. One record is one person: Δ = ``per_person``.

    Parameters
    ----------
    votes
        (people, items), each at least 0.
    per_person
        A public bound on what one person gives to all items together.
    labels
        Names of the items, 0 … n − 1 by default.

    Raises
    ------
    InputError
        When a vote is negative or NaN, a person gives more than ``per_person``, there is no item, or labels don't fit.
    """

    votes: npt.ArrayLike
    per_person: float = 1.0
    labels: Sequence[Hashable] | None = None
    monotone = True
    one_sided = True

    def __post_init__(self) -> None:
        table = _table("votes", self.votes)
        if not (_is_number(self.per_person) and 0 < self.per_person < math.inf):
            raise InputError(f"per_person must be a finite number greater than 0, got {self.per_person!r}")
        if table.size and table.min() < 0:
            raise InputError(f"votes must be at least 0, and there is {table.min():g}")
        if table.size and table.sum(axis=1).max() > self.per_person * (1 + 1e-12):
            raise InputError(
                f"votes of one person must sum to at most per_person = {self.per_person:g}, or Δ would be larger; "
                f"scale down those of people who give more"
            )
        _set(
            self,
            votes=table.sum(axis=0),
            record_sensitivity=float(self.per_person),
            n=table.shape[1],
            labels=_labels(self.labels, table.shape[1]),
        )

    def empty(self) -> float:
        """The sum so far: 0."""
        return 0.0

    def gains(self, state: float) -> FloatArray:
        """(n,) the votes of each item."""
        return self.votes

    def add(self, state: float, item: int) -> float:
        """The sum with one more item."""
        return state + float(self.votes[item])

    def value(self, state: float) -> float:
        """The sum."""
        return state


@dataclass(frozen=True, eq=False, repr=False)
class MinusPenalty:
    """f less a public penalty for each chosen item; made by :func:`minus_penalty`."""

    of: Any
    weights: FloatArray
    monotone = False

    def __post_init__(self) -> None:
        of = self.of
        # Sums with large penalties are rounded, and one record can tip each rounding: that is part of what it changes.
        rounding = 4 * (of.n + 1) * float(np.spacing(self.weights.sum()))
        _set(
            self,
            n=of.n,
            labels=of.labels,
            record_sensitivity=of.record_sensitivity + rounding,
            one_sided=of.one_sided,
        )

    def empty(self) -> tuple[Any, float]:
        """f's empty state, and the penalties so far."""
        return self.of.empty(), 0.0

    def gains(self, state: tuple[Any, float]) -> FloatArray:
        """(n,) f's gains less the penalties."""
        return np.asarray(self.of.gains(state[0]), dtype=np.float64) - self.weights

    def add(self, state: tuple[Any, float], item: int) -> tuple[Any, float]:
        """The state with one more item."""
        return self.of.add(state[0], item), state[1] + float(self.weights[item])

    def value(self, state: tuple[Any, float]) -> float:
        """f less the penalties of the set."""
        return float(self.of.value(state[0])) - state[1]

    def __getattr__(self, name: str) -> Any:
        # An objective that needs a share of the budget first still gets it.
        if name == "prepared" and hasattr(self.of, "prepared"):
            return lambda *given: MinusPenalty(self.of.prepared(*given), self.weights)
        raise AttributeError(name)


def minus_penalty(f: SubmodularObjective, weights: npt.ArrayLike) -> MinusPenalty:
    """``f`` less the sum of the chosen items' ``weights`` (n,), which are public: no data changes them.

    Raises
    ------
    InputError
        When the weights are not n numbers of at least 0 with a finite sum.

    Notes
    -----
    Sums with penalties are rounded; what one record can change by that is added to ``record_sensitivity``. It is
    some 1e-10 where penalties are of the size of the benefit, and much where they are 10¹⁵ times as large.
    """
    f = checked_objective(f)
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("weights must be numbers, one for each item") from None
    with np.errstate(over="ignore"):
        finite = np.isfinite(array.sum())
    if array.shape != (f.n,) or not finite or array.min() < 0:
        raise InputError(f"weights must be {f.n} finite numbers of at least 0, one for each item")
    return MinusPenalty(f, array.copy())


def checked_objective(objective: Any) -> Any:
    """The objective, when it has all that it must have."""
    evaluated = () if hasattr(objective, "prepared") else ("empty", "gains", "add", "value")
    missing = [name for name in ("n", "labels", "monotone", "one_sided", *evaluated) if not hasattr(objective, name)]
    if missing:
        raise TypeError(f"objective has no {', '.join(missing)}: it is no SubmodularObjective")
    delta = getattr(objective, "record_sensitivity", None)
    if not _is_number(delta) or not 0 < delta < math.inf:
        raise SensitivityError(
            f"record_sensitivity must be a finite number greater than 0 (by how much one record can change f), "
            f"got {delta!r}"
        )
    for name in ("monotone", "one_sided"):
        if not isinstance(getattr(objective, name), bool | np.bool_):
            raise TypeError(f"{name} of the objective must be True or False, got {getattr(objective, name)!r}")
    n = objective.n
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"n of the objective must be a whole number of at least 1, got {n!r}")
    _labels(objective.labels, n)
    return objective


def _table(name: str, values: Any) -> FloatArray:
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a table of numbers (people, items)") from None
    if table.ndim != 2 or table.shape[1] < 1:
        raise InputError(f"{name} must have the shape (people, items) with at least one item, got {table.shape}")
    if not np.isfinite(table).all():
        raise InputError(f"{name} must be finite, and there is NaN or infinity in it")
    return table


def _labels(labels: Sequence[Hashable] | None, n: int) -> list[Hashable]:
    if labels is None:
        return list(range(n))
    names = list(labels)
    if len(names) != n:
        raise InputError(f"labels must be one name for each of the {n} items, got {len(names)}")
    try:
        different = len(set(names))
    except TypeError as error:
        raise InputError(f"labels must be names that can be hashed, such as text or numbers: {error}") from None
    if different < n:
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise InputError(f"labels must differ, and {twice!r} stands there twice")
    return names


def _outside(ends: npt.NDArray[np.int64], n: int) -> int:
    return int(ends[(ends < 0) | (ends >= n)][0])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _set(frozen: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(frozen, name, value)
