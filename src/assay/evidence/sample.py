"""Samples: the numbers that a claim compares, read from records, and a word on each that is not there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.evidence.claim import Claim
from assay.evidence.record import Record
from assay.evidence.scope import ACROSS_TASKS, Scope

# How many kinds of gaps a reason names before it only counts them.
_NAMED = 4


class Spot(NamedTuple):
    """One cell that a claim looks at."""

    task: str
    arm: str
    seed: int


@dataclass(frozen=True)
class Gap:
    """Why a cell gives no number: what happened there, a detail, and whether it ran at all."""

    what: str
    detail: str = ""
    ran: bool = False


@dataclass(frozen=True)
class Numbers:
    """What a claim finds in the records.

    Attributes
    ----------
    values
        Cell to its numbers: one metric (for ``rate`` events and trials; for ``slope`` y and x).
    gaps
        Cell to why it gives no numbers.
    missing
        Cell to what is not installed or not reachable.
    """

    values: Mapping[Spot, tuple[float, ...]]
    gaps: Mapping[Spot, Gap]
    missing: Mapping[Spot, str]


def spots(claim: Claim, scope: Scope, seeds: Iterable[int]) -> list[Spot]:
    """The cells that a part of a claim needs."""
    arms = dict.fromkeys((claim.arm, scope.other) if scope.other else (claim.arm,))
    return [Spot(task, arm, seed) for arm in arms for task in scope.tasks for seed in seeds]


def gather(claim: Claim, wanted: Iterable[Spot], records: Iterable[Record]) -> Numbers:
    """Read what a claim needs from the records; of two records of one cell the later counts."""
    table: dict[Spot, Record] = {}
    for record in records:
        spot = Spot(record.task, record.arm, record.seed)
        old = table.get(spot)
        if old is None or (record.finished, record.key) > (old.finished, old.key):
            table[spot] = record
    values: dict[Spot, tuple[float, ...]] = {}
    gaps: dict[Spot, Gap] = {}
    missing: dict[Spot, str] = {}
    for spot in wanted:
        found = table.get(spot)
        if found is None:
            gaps[spot] = Gap("was not run")
        elif found.status == "missing":
            missing[spot] = found.reason or f"{spot.arm} on {spot.task} needs a part that is not there"
        elif found.status == "failed":
            gaps[spot] = Gap("failed", found.reason)
        else:
            read = _read(claim, found.metrics)
            if isinstance(read, Gap):
                gaps[spot] = read
            else:
                values[spot] = read
    return Numbers(values, gaps, missing)


def gaps_text(gaps: Mapping[Spot, Gap], wanted: Iterable[Spot]) -> str:
    """The gaps among the cells ``wanted`` in words, alike ones together; empty if there are none.

    For instance ``3 of 20 cells are missing: robpca on T1-20 failed at seeds 1001, 1004, 1007 (out of memory)``.
    """
    cells = list(dict.fromkeys(wanted))
    groups: dict[tuple[str, str, Gap], list[int]] = {}
    for spot in cells:
        if spot in gaps:
            groups.setdefault((spot.arm, spot.task, gaps[spot]), []).append(spot.seed)
    if not groups:
        return ""
    all_seeds = {spot.seed for spot in cells}
    told = []
    for (arm, task, gap), seeds in list(groups.items())[:_NAMED]:
        where = (
            f"all {len(seeds)} seeds"
            if len(seeds) == len(all_seeds) > 1
            else f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"
        )
        told.append(f"{arm} on {task} {gap.what} at {where}" + (f" ({gap.detail})" if gap.detail else ""))
    if len(groups) > _NAMED:
        told.append(f"and {len(groups) - _NAMED} more of this kind")
    count = sum(map(len, groups.values()))
    unusable = any(gap.ran for _, _, gap in groups)
    state = "cannot be used" if unusable else "is missing" if count == 1 else "are missing"
    return f"{count} of {len(cells)} cells {state}: {'; '.join(told)}"


def sample(claim: Claim, scope: Scope, seeds: Iterable[int], numbers: Numbers) -> tuple[NDArray[np.float64], float]:
    r"""The numbers whose mean a part is about, one a pair, and the size of the numbers they come from.

    ============================  ====================================================
    ``lower``, ``higher``,        arm − other; as a ratio :math:`\log(\text{arm}/\text{other})`
    ``not_lower``,
    ``not_higher``, ``within``,
    ``of=``
    ``at_least``, ``at_most``     the metric of the arm
    ``spread``                    for each seed the largest less the smallest over the tasks
    ``slope``                     for each seed :math:`\sum (x-\bar x)(y-\bar y) / \sum (x-\bar x)^2` over the tasks
    ============================  ====================================================

    The size (1 in logarithms) says what rounding may have done: differences far below it are nothing.
    """
    values = numbers.values
    if claim.form in ACROSS_TASKS:
        rows = [[Spot(task, claim.arm, seed) for task in scope.tasks] for seed in seeds]
    else:
        arms = (claim.arm, scope.other) if scope.other else (claim.arm,)
        rows = [[Spot(task, arm, seed) for arm in arms] for task in scope.tasks for seed in seeds]
    whole = [np.array([values[spot] for spot in row]) for row in rows if all(spot in values for spot in row)]
    if claim.ratio:
        return np.array([math.log(row[0, 0]) - math.log(row[1, 0]) for row in whole]), 1.0
    if claim.form == "slope":
        return np.array([_slope(row[:, 1], row[:, 0], claim.log) for row in whole]), 1.0
    size = max((float(np.abs(row).max()) for row in whole), default=0.0)
    if claim.form == "spread":
        return np.array([np.ptp(row) for row in whole]), size
    return np.array([row[0, 0] - (row[1, 0] if scope.other else 0.0) for row in whole]), size


def _slope(x: NDArray[np.float64], y: NDArray[np.float64], log: bool) -> float:
    """The least-squares slope; nan where all x are equal."""
    if (x == x[0]).all():
        return math.nan
    if log:
        x, y = np.log(x), np.log(y)
    off = x - x.mean()
    squares = float(off @ off)
    return float(off @ (y - y.mean())) / squares if squares > 0 else math.nan


def _read(claim: Claim, metrics: Mapping[str, Any]) -> tuple[float, ...] | Gap:
    """The numbers that a claim takes from the metrics of a cell, or why there are none."""
    reader: Callable[[Any], tuple[float, ...] | None]
    match claim.form:
        case "holds":
            reader, must = _truth, "true or false"
        case "rate":
            reader, must = _proportion, "0, 1 or (count, trials)"
        case "slope" if claim.log:
            reader, must = _positive, "a positive number, which a logarithm needs"
        case _ if claim.ratio:
            reader, must = _positive, "a positive number, which a ratio needs"
        case _:
            reader, must = _number, "a finite number"
    found: tuple[float, ...] = ()
    for metric in (claim.metric, claim.on) if claim.form == "slope" else (claim.metric,):
        if metric not in metrics:
            return Gap(f"gave no {metric}", ran=True)
        value = metrics[metric]
        read = reader(value)
        if read is None:
            told = f"{value:g}" if isinstance(value, float) else "nothing" if value is None else str(value)
            return Gap(f"gave {metric} = {told[:40]}, not {must},", ran=True)
        found += read
    return found


def _number(value: Any) -> tuple[float] | None:
    """A finite number; a proportion is its share."""
    if isinstance(value, list | tuple):
        counted = _proportion(value)
        return (counted[0] / counted[1],) if counted and counted[1] else None
    if not isinstance(value, Real | np.bool_):
        return None
    number = float(value)
    return (number,) if math.isfinite(number) else None


def _positive(value: Any) -> tuple[float] | None:
    read = _number(value)
    return read if read and read[0] > 0 else None


def _truth(value: Any) -> tuple[float] | None:
    read = None if isinstance(value, list | tuple) else _number(value)
    return read if read and read[0] in (0.0, 1.0) else None


def _proportion(value: Any) -> tuple[float, float] | None:
    """Events and trials; a single 0 or 1 is one trial. Through JSON a ``Proportion`` comes back as a list."""
    if isinstance(value, list | tuple):
        if len(value) != 2 or not all(isinstance(v, Integral) and not isinstance(v, bool) for v in value):
            return None
        count, trials = int(value[0]), int(value[1])
        return (float(count), float(trials)) if 0 <= count <= trials else None
    truth = _truth(value)
    return (truth[0], 1.0) if truth else None
