"""The components of a survival likelihood: sets of rows of which one, the case, has the event."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.errors import InputError

from .outcome import codes, read_case, read_event_time, whole

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

KINDS = ("risk_set", "matched", "pairwise", "ncc")


@dataclass(frozen=True)
class Components:
    """Sets of rows, in each of which the first is the case.

    Attributes
    ----------
    index
        (K, M) int64: the rows of each set, the case in column 0, −1 where a set has fewer than M members.
    weight
        (K,) float64: how much each set counts.
    """

    index: IntArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.index)


class CaseControlSample(NamedTuple):
    """Rows of a nested case-control sample.

    Attributes
    ----------
    rows
        (m,) which rows of the cohort; one may be there several times, as a control of several cases.
    groups
        (m,) the matched set of each, from 0; a set's case comes first.
    case
        (m,) bool: whether it is its set's case.
    """

    rows: IntArray
    groups: IntArray
    case: NDArray[np.bool_]


def make_components(
    event: ArrayLike,
    time: ArrayLike | None = None,
    *,
    kind: str = "risk_set",
    groups: ArrayLike | None = None,
    strata: ArrayLike | None = None,
    n_controls: int = 2,
    max_pairs: int | None = None,
    random_state: int | np.random.RandomState | np.random.Generator | None = None,
) -> Components:
    """Return the components of a likelihood as an array of row numbers.

    Parameters
    ----------
    event
        (n,) whether the event was seen (0/1 or bool); for ``kind="matched"`` whether the row is a case.
    time
        (n,) positive times of event or censoring; not needed for ``"matched"``.
    kind
        ``"risk_set"``: an event and all rows still at risk then (Breslow: tied events each see the whole tied set).
        ``"matched"``: a case and the controls of its set. ``"pairwise"``: an event and one row with a longer time.
        ``"ncc"``: an event and ``n_controls`` rows drawn from those still at risk.
    groups
        (n,) the set of each row, any labels; for ``"matched"`` only. A set with c cases gives c components, each of
        one case and all its controls.
    strata
        (n,) rows of different strata never meet; not for ``"matched"``.
    n_controls
        Controls a case, for ``"ncc"``.
    max_pairs
        Draw so many pairs, where there are more; for ``"pairwise"``.
    random_state
        For what is drawn.

    Returns
    -------
    Components
        ``"risk_set"`` needs memory for K × the largest risk set; :class:`CLKDSurvival` does without.

    Raises
    ------
    InputError
        When there is no component, or an argument has another length, a missing value or a time that is not positive.

    Examples
    --------
    >>> make_components([1, 0, 1], [3.0, 2.0, 1.0]).index
    array([[ 0, -1, -1],
           [ 2,  0,  1]])
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "matched":
        refuse_strata(strata)
        case = read_case(event, "event")
        return matched(case, group_codes(groups, len(case)))[0]
    refuse_groups(groups, kind)
    if time is None:
        raise InputError(f"time is needed for kind={kind!r}")
    event, time = read_event_time(event, time)
    stratum = codes(strata, len(event), "strata")
    if kind == "risk_set":
        return risk_sets(event, time, stratum)
    if kind == "pairwise":
        return pairs(event, time, stratum, max_pairs, generator(random_state))
    sample = draw_controls(event, time, stratum, n_controls, generator(random_state))
    sets, _ = matched(sample.case, sample.groups)
    return Components(np.where(sets.index < 0, -1, sample.rows[sets.index]), sets.weight)


def nested_case_control(
    event: ArrayLike,
    time: ArrayLike,
    n_controls: int,
    strata: ArrayLike | None = None,
    random_state: int | np.random.RandomState | np.random.Generator | None = None,
) -> CaseControlSample:
    """Draw a nested case-control sample: for each event some of the rows that are still at risk then.

    Parameters
    ----------
    event, time
        (n,) whether the event was seen, and the positive time of event or censoring.
    n_controls
        Controls a case; fewer where fewer are at risk. A case without any is left out.
    strata
        (n,) controls come from the case's stratum.
    random_state
        For the draw.

    Returns
    -------
    CaseControlSample
        ``rows, groups, case``, each (m,).

    Raises
    ------
    InputError
        When no event has a row at risk beside it.

    Examples
    --------
    >>> rows, groups, case = nested_case_control([1, 0, 1, 0], [1.0, 2.0, 3.0, 4.0], 1, random_state=0)
    >>> sorted(rows[case].tolist()), groups
    ([0, 2], array([0, 0, 1, 1]))
    """
    event, time = read_event_time(event, time)
    return draw_controls(event, time, codes(strata, len(event), "strata"), n_controls, generator(random_state))


def sampling_weights(event: ArrayLike, time: ArrayLike, n_controls: int, strata: ArrayLike | None = None) -> FloatArray:
    """Return for each row of a cohort 1 / the chance that :func:`nested_case_control` draws it.

    An event is always in the sample (weight 1, unless nobody is at risk beside it). Another row is left out with
    probability ∏ (1 − m_k / (n_k − 1)) over the events k at which it is at risk, where n_k rows are at risk and
    m_k controls are drawn. A row that is never at risk has weight 0.

    Parameters
    ----------
    event, time, n_controls, strata
        As in :func:`nested_case_control`.

    Notes
    -----
    Source: Samuelsen, "A pseudolikelihood approach to analysis of nested case-control studies", Biometrika 84 (1997).
    """
    event, time = read_event_time(event, time)
    whole("n_controls", n_controls, 1)
    stratum = codes(strata, len(event), "strata")
    weight = np.zeros(len(event))
    for rows, at_risk in _risk_counts(event, time, stratum):
        others = np.maximum(at_risk - 1, 1)
        left_out = np.where(event[rows] & (at_risk > 1), 1 - np.minimum(n_controls, others) / others, 1.0)
        # Rows of a stratum come by falling time: a row is at risk at the events of its tie and of all that follow.
        behind = np.cumprod(left_out[::-1])[::-1]
        first = np.searchsorted(-time[rows], -time[rows], side="left")
        chance = 1 - behind[first]
        chance[event[rows] & (at_risk > 1)] = 1.0
        weight[rows] = np.divide(1.0, chance, out=np.zeros(len(rows)), where=chance > 0)
    return weight


def risk_sets(event: NDArray[np.bool_], time: FloatArray, stratum: IntArray) -> Components:
    """One component an event: the event and all rows of its stratum with at least its time."""
    members = []
    for rows, at_risk in _risk_counts(event, time, stratum):
        for place in np.flatnonzero(event[rows]):
            there = rows[: at_risk[place]]
            members.append(np.concatenate([[rows[place]], there[there != rows[place]]]))
    members.sort(key=lambda m: m[0])
    index = np.full((len(members), max(map(len, members))), -1, dtype=np.int64)
    for row, one in zip(index, members, strict=True):
        row[: len(one)] = one
    return Components(index, np.ones(len(index)))


def matched(case: NDArray[np.bool_], group: IntArray) -> tuple[Components, IntArray]:
    """One component a case: it and the controls of its set. Also returns the set of each component."""
    n_groups = int(group.max()) + 1 if len(group) else 0
    n_cases = np.bincount(group, case, n_groups).astype(np.int64)
    n_free = np.bincount(group, minlength=n_groups) - n_cases
    no_case, no_control = int(np.sum(n_cases == 0)), int(np.sum((n_cases > 0) & (n_free == 0)))
    keep = case & (n_free[group] > 0)
    rows = np.flatnonzero(keep)
    if len(rows) == 0:
        raise InputError(
            f"groups has no set with a case and a control: of {n_groups} sets {no_case} have no case and {no_control} "
            "have no control"
        )
    if no_case or no_control:
        warnings.warn(
            f"{no_case} sets without a case and {no_control} without a control were dropped, of {n_groups}",
            UserWarning,
            stacklevel=2,
        )
    controls = np.flatnonzero(~case)
    controls = controls[np.argsort(group[controls], kind="stable")]
    start = np.concatenate([[0], np.cumsum(n_free)])
    index = np.full((len(rows), 1 + int(n_free[group[rows]].max())), -1, dtype=np.int64)
    index[:, 0] = rows
    place = np.arange(index.shape[1] - 1)
    there = place < n_free[group[rows]][:, None]
    at = start[group[rows]][:, None] + place
    index[:, 1:][there] = controls[at[there]]
    return Components(index, np.ones(len(rows))), group[rows]


def pairs(
    event: NDArray[np.bool_],
    time: FloatArray,
    stratum: IntArray,
    max_pairs: int | None,
    rng: np.random.Generator,
) -> Components:
    """Pairs of an event and a row with a longer time, at most ``max_pairs`` of them; each event counts about 1."""
    if max_pairs is not None:
        whole("max_pairs", max_pairs, 1)
    cases, orders, counts = [], [], []
    for rows, _ in _risk_counts(event, time, stratum):
        longer = np.searchsorted(-time[rows], -time[rows], side="left")
        place = np.flatnonzero(event[rows] & (longer > 0))
        cases.append(rows[place])
        counts.append(longer[place])
        orders += [rows] * len(place)
    case, count = np.concatenate(cases), np.concatenate(counts)
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        raise InputError("no event has a row with a longer time, so there are no pairs")
    some = total if max_pairs is None else min(total, max_pairs)
    picked = np.arange(total) if some == total else np.sort(rng.choice(total, some, replace=False))
    which = np.searchsorted(ends, picked, side="right")
    place = picked - (ends - count)[which]
    index = np.empty((some, 2), dtype=np.int64)
    index[:, 0] = case[which]
    for k in np.unique(which):
        mine = slice(*np.searchsorted(which, [k, k + 1]))
        index[mine, 1] = orders[k][place[mine]]
    return Components(index, 1.0 / count[which])


def draw_controls(
    event: NDArray[np.bool_], time: FloatArray, stratum: IntArray, n_controls: int, rng: np.random.Generator
) -> CaseControlSample:
    """For each event its row, and ``n_controls`` others drawn from those with at least its time."""
    whole("n_controls", n_controls, 1)
    sets = []
    for rows, at_risk in _risk_counts(event, time, stratum):
        for place in np.flatnonzero(event[rows] & (at_risk > 1)):
            others = int(at_risk[place]) - 1
            drawn = rng.choice(others, min(n_controls, others), replace=False)
            drawn += drawn >= place
            sets.append(np.concatenate([[rows[place]], rows[drawn]]))
    if not sets:
        raise InputError("no event has a row at risk beside it, so no control can be drawn")
    sizes = np.array([len(one) for one in sets])
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    case = np.zeros(sizes.sum(), dtype=bool)
    case[first] = True
    return CaseControlSample(np.concatenate(sets), np.repeat(np.arange(len(sets)), sizes), case)


def group_codes(groups: ArrayLike | None, n: int) -> IntArray:
    """The sets as numbers from 0."""
    if groups is None:
        raise InputError("groups is needed for components='matched': the set of each row")
    return codes(groups, n, "groups")


def refuse_strata(strata: Any) -> None:
    """Matched sets are strata already."""
    if strata is not None:
        raise InputError("strata has no meaning for matched sets: the sets are strata already")


def refuse_groups(groups: Any, kind: str) -> None:
    """Only matched data come in sets."""
    if groups is not None:
        raise InputError(f"groups is for matched sets (components='matched'), and here they are {kind!r}")


def generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed, a ``RandomState`` (of which a number is drawn), a ``Generator`` or None."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    if random_state is None:
        return np.random.default_rng()
    whole("random_state", random_state, 0)
    return np.random.default_rng(int(random_state))


def _risk_counts(event: NDArray[np.bool_], time: FloatArray, stratum: IntArray) -> Any:
    """For each stratum its rows by falling time, and how many of them have at least the row's time."""
    order = np.lexsort((np.arange(len(time)), -time, stratum))
    cuts = np.flatnonzero(np.diff(stratum[order])) + 1
    for rows in np.split(order, cuts):
        yield rows, np.searchsorted(-time[rows], -time[rows], side="right")
