"""Two sets of records side by side: what changed between two storages, package versions, machines or days."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from assay.errors import InputError
from assay.evidence.intervals import LEVEL, mean_interval
from assay.evidence.record import Record, as_number

FEWEST = 3  # pairs for a judgement, as for a claim
ROUNDING = 1e-9  # of the values: what another order of additions may leave
LEAST_SECONDS = 1e-6  # CPU clocks say no less
_OWN_ARM = re.compile(r"(^|, )[^,=]+ = [^,]+:[\w.]+(?=,|$)")


class Difference(StrEnum):
    """What a comparison of one metric came to."""

    IDENTICAL = "identical"
    ROUNDING = "equal but for rounding"
    DIFFERS = "differs"
    PERHAPS = "differs, before the correction"
    NOT_SHOWN = "no difference shown"
    FEW = "too few pairs"


class Place(NamedTuple):
    """Where cells are compared; ``brought`` are the user's files, in words."""

    study: str
    budget: str
    brought: str
    task: str
    arm: str


@dataclass(frozen=True, kw_only=True)
class MetricLine:
    """One metric of one arm on one task: means, the paired difference B − A and its 95 % interval."""

    place: Place
    metric: str
    pairs: int
    a: float
    b: float
    estimate: float
    low: float
    high: float
    p: float
    outcome: Difference


@dataclass(frozen=True, kw_only=True)
class CostLine:
    """CPU seconds of one arm on one task, shared work included: means, and the ratio B / A with its interval."""

    place: Place
    pairs: int
    a: float
    b: float
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class CellsLine:
    """Cells that are no pair of results, and why."""

    place: Place
    seeds: tuple[int, ...]
    why: str
    lost: bool = False
    """Whether one side has results where the other failed."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """All that two sets of records say about each other.

    ``judged`` is the number of comparisons that Holm's correction counts; ``superseded`` the earlier records of the
    same cells that were left out, of A and of B.
    """

    metrics: tuple[MetricLine, ...]
    costs: tuple[CostLine, ...]
    cells: tuple[CellsLine, ...]
    judged: int
    superseded: tuple[int, int]

    @property
    def differs(self) -> bool:
        """Whether a metric differs, or cells have a result on one side and failed on the other."""
        return any(m.outcome is Difference.DIFFERS for m in self.metrics) or any(c.lost for c in self.cells)

    def data(self) -> dict[str, Any]:
        """The same as plain data, for programs."""

        def plain(line: MetricLine | CostLine | CellsLine) -> dict[str, Any]:
            values = dataclasses.asdict(line) | line.place._asdict()
            del values["place"]
            return values

        return {
            "metrics": [plain(line) for line in self.metrics],
            "cpu_seconds": [plain(line) for line in self.costs],
            "unpaired": [plain(line) for line in self.cells],
            "judged": self.judged,
            "differing": sum(m.outcome is Difference.DIFFERS for m in self.metrics),
            "superseded": list(self.superseded),
        }


def select(records: Sequence[Record], wanted: Iterable[str]) -> list[Record]:
    """The records that fit every ``FIELD=VALUE``.

    A field is ``machine`` (part of its words), ``budget``, ``since`` or ``until`` (a day or time of the record's
    end, the first included, the other not), or a package whose version the records hold.
    """
    fit = list(records)
    for text in wanted:
        name, given, value = text.partition("=")
        if not given or not value:
            raise InputError(f"a side is chosen by FIELD=VALUE such as numpy=2.4.6, got {text!r}")
        test = _test(name, value, records)
        fit = [record for record in fit if test(record)]
    return fit


def _test(name: str, value: str, records: Sequence[Record]) -> Callable[[Record], bool]:
    packages = sorted({package for record in records for package in record.versions})
    match name:
        case "machine":
            return lambda record: value in record.machine
        case "budget":
            return lambda record: record.budget == value
        case "since" | "until":
            if not re.match(r"\d{4}-\d\d-\d\d", value):
                raise InputError(f"{name} must be a day or time such as 2026-11-30, got {value!r}")
            # ISO times of one zone sort as text; records hold UTC.
            return (lambda r: r.finished >= value) if name == "since" else (lambda r: r.finished < value)
        case _ if name in packages:
            return lambda record: record.versions.get(name) == value
    fields = ", ".join(["machine", "budget", "since", "until", *packages])
    raise InputError(f"a side cannot be chosen by {name!r}; choose by {fields}")


def compare(a: Iterable[Record], b: Iterable[Record]) -> Compared:
    """Compare the cells that both sides have: same study, budget, files, task, arm and seed.

    Of several records of a cell, as after a change of code, the latest counts. The interval is that of a claim
    (:func:`assay.evidence.intervals.mean_interval`). A metric differs where the interval excludes 0 and the paired
    t-test still rejects after Holm's correction at 5 % over all comparisons that are not identical; identical ones
    cannot be chance findings. Costs are shown, not judged.
    """
    sides = [_latest(a), _latest(b)]
    cells_a, cells_b = (cells for cells, _ in sides)
    metrics: list[MetricLine] = []
    costs: list[CostLine] = []
    cells: list[CellsLine] = []
    for place in sorted({place for place, _ in (*cells_a, *cells_b)}):
        mine = [{seed: r for (where, seed), r in side.items() if where == place} for side in (cells_a, cells_b)]
        cells += _unpaired(place, mine[0], mine[1])
        pairs = [(mine[0][s], mine[1][s]) for s in sorted(mine[0].keys() & mine[1].keys())]
        ok = [(x, y) for x, y in pairs if x.status == y.status == "ok"]
        if ok:
            costs.append(_cost(place, ok))
            lines, missing = _metrics(place, ok)
            metrics += lines
            cells += missing
    corrected, judged = _holm(metrics)
    return Compared(
        metrics=tuple(corrected), costs=tuple(costs), cells=tuple(cells), judged=judged,
        superseded=(sides[0][1], sides[1][1]),
    )  # fmt: skip


def _latest(records: Iterable[Record]) -> tuple[dict[tuple[Place, int], Record], int]:
    cells: dict[tuple[Place, int], Record] = {}
    left_out = 0
    for record in sorted(records, key=lambda r: (r.finished, r.key)):
        # With whose arms it ran is of no concern to the other arms.
        brought = _OWN_ARM.sub("", record.context).removeprefix(", ")
        cell = Place(record.study, record.budget, brought, record.task, record.arm), record.seed
        left_out += cell in cells
        cells[cell] = record
    return cells, left_out


def _unpaired(place: Place, a: Mapping[int, Record], b: Mapping[int, Record]) -> list[CellsLine]:
    groups: dict[tuple[str, bool], list[int]] = {}
    for seed in sorted(a.keys() | b.keys()):
        if seed not in b:
            why = "only in A", False
        elif seed not in a:
            why = "only in B", False
        elif a[seed].status == b[seed].status == "ok":
            continue
        else:
            why = f"{a[seed].status} in A, {b[seed].status} in B", a[seed].status != b[seed].status
        groups.setdefault(why, []).append(seed)
    return [CellsLine(place=place, seeds=tuple(s), why=why, lost=lost) for (why, lost), s in groups.items()]


def _cost(place: Place, pairs: Sequence[tuple[Record, Record]]) -> CostLine:
    seconds = np.array([[max(r.cpu_seconds + sum(r.shared.values()), LEAST_SECONDS) for r in p] for p in pairs])
    seconds = seconds[np.isfinite(seconds).all(axis=1)]
    if not len(seconds):
        return CostLine(place=place, pairs=0, a=math.nan, b=math.nan, ratio=math.nan, low=math.nan, high=math.nan)
    logs = np.log(seconds[:, 1]) - np.log(seconds[:, 0])
    low, high = mean_interval(logs)
    return CostLine(
        place=place, pairs=len(seconds), a=float(seconds[:, 0].mean()), b=float(seconds[:, 1].mean()),
        ratio=math.exp(logs.mean()), low=math.exp(low), high=math.exp(high),
    )  # fmt: skip


def _metrics(place: Place, pairs: Sequence[tuple[Record, Record]]) -> tuple[list[MetricLine], list[CellsLine]]:
    names = dict.fromkeys(name for pair in pairs for record in pair for name in record.metrics)
    lines, missing = [], []
    for name in names:
        both = [(x.metrics[name], y.metrics[name]) for x, y in pairs if name in x.metrics and name in y.metrics]
        for side, has in (("A", 0), ("B", 1)):
            alone = tuple(p[has].seed for p in pairs if name in p[has].metrics and name not in p[1 - has].metrics)
            if alone:
                missing.append(CellsLine(place=place, seeds=alone, why=f"metric {name} only in {side}"))
        if both:
            lines.append(_metric(place, name, both))
    return lines, missing


def _metric(place: Place, name: str, values: Sequence[tuple[Any, Any]]) -> MetricLine:
    a, b = (np.array([as_number(pair[side]) for pair in values]) for side in (0, 1))
    estimate, low, high, p = math.nan, math.nan, math.nan, math.nan
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    scale = np.maximum(np.abs(a), np.abs(b))
    if all(x == y or (x != x and y != y) for x, y in values):  # of a proportion the trials, too
        outcome = Difference.IDENTICAL
    elif not (same | finite).all():
        outcome = Difference.DIFFERS  # not finite on one side: no interval could say more
    elif (same | (np.abs(b - a) <= ROUNDING * scale)).all():
        outcome = Difference.ROUNDING
    else:
        outcome = Difference.FEW if len(values) < FEWEST else Difference.NOT_SHOWN
    if (same | finite).all():
        differences = np.where(same, 0.0, np.where(finite, b, 0.0) - np.where(finite, a, 0.0))
        estimate = float(differences.mean())
        low, high = mean_interval(differences)
        p = _p_value(differences)
    return MetricLine(
        place=place, metric=name, pairs=len(values), a=_mean(a), b=_mean(b), estimate=estimate, low=low, high=high,
        p=p, outcome=outcome,
    )  # fmt: skip


def _mean(values: NDArray[np.float64]) -> float:
    with np.errstate(invalid="ignore"):  # infinities of both signs
        return float(values.mean())


def _p_value(differences: NDArray[np.float64]) -> float:
    """Of the paired t-test of no difference; 0 where all differ by the same amount, 1 where none does."""
    if differences.size < 2:
        return math.nan
    if (differences == differences[0]).all():
        return float(differences[0] == 0)
    scaled = differences / np.ptp(differences)
    t = scaled.mean() / (scaled.std(ddof=1) / math.sqrt(scaled.size))
    return float(2 * stats.t.sf(abs(t), scaled.size - 1))


def _holm(lines: Sequence[MetricLine]) -> tuple[list[MetricLine], int]:
    """Judge the lines that can be judged (Holm, "A simple sequentially rejective multiple test procedure", 1979)."""
    judged = [i for i, line in enumerate(lines) if line.outcome is Difference.NOT_SHOWN]
    result, rejecting = list(lines), True
    for rank, i in enumerate(sorted(judged, key=lambda i: lines[i].p)):
        rejecting = rejecting and lines[i].p <= (1 - LEVEL) / (len(judged) - rank)
        if lines[i].low > 0 or lines[i].high < 0:
            outcome = Difference.DIFFERS if rejecting else Difference.PERHAPS
            result[i] = dataclasses.replace(lines[i], outcome=outcome)
    return result, len(judged)
