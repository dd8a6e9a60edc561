"""Irreducible infeasible subsystems with a certificate, of linear and mixed-integer models."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import highspy
import numpy as np

from assay.errors import InputError
from assay.parts.highs import solved

from .model import LinearModel
from .solving import check_model, check_time

_QUICKXPLAIN_FROM = 64
"""Of so many rows of a mixed-integer model, halving asks the solver less often than one row after the other."""


@dataclass(frozen=True)
class IIS:
    """An irreducible infeasible subsystem.

    Attributes
    ----------
    rows
        Names of the rows, in the model's order; empty for a feasible model.
    col_bounds
        (column, "lower" or "upper"), with ``bounds="soft"`` or where the bounds alone conflict.
    certified
        The set was solved again on its own and is infeasible, and without any single one of its members it is
        feasible. True for a feasible model's empty set.
    solves
        How many solves it took.
    """

    rows: tuple[str, ...]
    col_bounds: tuple[tuple[str, str], ...] = ()
    certified: bool = False
    solves: int = 0

    def __len__(self) -> int:
        return len(self.rows) + len(self.col_bounds)


def iis(
    model: LinearModel,
    *,
    bounds: Literal["hard", "soft"] = "hard",
    hard_rows: Iterable[str] = (),
    order: Literal["auto"] | Sequence[str] = "auto",
    time_limit: float = 30.0,
) -> IIS:
    """Find a set of rows that conflict, from which none can be left out.

    Parameters
    ----------
    model
        A linear or mixed-integer model.
    bounds
        ``"hard"``: column bounds and integrality are background, and only rows are named. ``"soft"``: column bounds
        are members too.
    hard_rows
        Names of rows that are background: never left out, never named.
    order
        In which the rows are tried to be left out, by name; those tried first tend to be absent. ``"auto"``: those
        with the smallest multiplier in the proof of infeasibility first.
    time_limit
        Seconds. Past it the current set comes back, not certified.

    Raises
    ------
    InputError
        For unknown names or options.

    Notes
    -----
    Deletion filtering (Chinneck and Dravnieks, 1991) from the support of a Farkas ray; QuickXplain (Junker, AAAI 2004)
    for large mixed-integer models.

    Examples
    --------
    >>> m = LinearModel.from_arrays([[1, 1], [-1, -1]], [-float("inf")] * 2, [0.5, -2], [0, 0], [1, 1], [1, 1])
    >>> iis(m).rows
    ('r1', 'r2')
    """
    check_model(model)
    if not isinstance(bounds, str) or bounds not in ("hard", "soft"):
        raise InputError(f"bounds must be 'hard' or 'soft', not {bounds!r}")
    check_time(time_limit)
    names = {name: i for i, name in enumerate(model.row_names)}
    hard = {_known("hard_rows", name, names) for name in hard_rows}
    wish = None if isinstance(order, str) and order == "auto" else [_known("order", name, names) for name in order]
    crossing = np.flatnonzero(model.col_lo > model.col_up)
    if len(crossing):
        name = model.col_names[crossing[0]]
        return IIS((), ((name, "lower"), (name, "upper")), certified=True)
    search = _Search(model, hard, time_limit)
    if search.feasible() is not False:
        return IIS((), certified=search.certain, solves=search.solves)
    rows = search.filter_rows(search.seed(wish))
    sides: list[tuple[int, str]] = []
    if bounds == "soft" or not rows:
        sides = search.filter_bounds()
    certified = search.certain and _certificate(model, sorted(hard), rows, sides, bounds, search)
    return IIS(
        tuple(model.row_names[i] for i in sorted(rows)),
        tuple((model.col_names[j], side) for j, side in sides),
        certified,
        search.solves,
    )


class _Search:
    """HiGHS instances whose rows and bounds are freed and put back; each answer starts from the last basis."""

    def __init__(self, model: LinearModel, hard: set[int], time_limit: float) -> None:
        self.model, self.hard = model, hard
        self.deadline = time.monotonic() + time_limit
        self.solves, self.certain = 0, True
        n = model.shape[1]
        self.whole = np.flatnonzero(model.integer)
        # A mixed-integer model is asked only where its relaxation, which is far quicker, decides nothing.
        relaxed = replace(model, integer=np.zeros(n, dtype=bool))
        self.instances = [one.to_highs() for one in ([relaxed, model] if len(self.whole) else [relaxed])]
        for h in self.instances:
            h.changeColsCost(n, np.arange(n, dtype=np.int32), np.zeros(n))
            h.setOptionValue("presolve", "off")
        self.active = set(range(model.shape[0])) - hard

    def feasible(self) -> bool | None:
        """Whether what stands now is feasible; None (and no longer certain) where time ran out."""
        for h in self.instances:
            answer = self._answer(h)
            if answer is not True or len(self.instances) == 1:
                return answer
            values = np.array(h.getSolution().col_value)[self.whole]
            if np.abs(values - np.round(values)).max() < 1e-9 or h is self.instances[-1]:
                return True
        return None

    def _answer(self, h: Any) -> bool | None:
        left = self.deadline - time.monotonic()
        if left > 0:
            # HiGHS counts the seconds of all runs of an instance.
            h.setOptionValue("time_limit", h.getRunTime() + left)
            self.solves += 1
            status = solved(h)
            if status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kModelEmpty):
                return True
            if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
                return False  # without costs nothing is unbounded
        self.certain = False
        return None

    def set_bounds(self, col: int, lo: float, up: float) -> None:
        for h in self.instances:
            h.changeColBounds(col, float(lo), float(up))

    def free(self, row: int) -> None:
        for h in self.instances:
            h.changeRowBounds(row, -highspy.kHighsInf, highspy.kHighsInf)
        self.active.discard(row)

    def restore(self, row: int) -> None:
        for h in self.instances:
            h.changeRowBounds(row, float(self.model.row_lo[row]), float(self.model.row_up[row]))
        self.active.add(row)

    def set_rows(self, rows: Iterable[int]) -> None:
        """Let exactly these rows (and the hard ones) stand."""
        wanted = set(rows)
        for row in sorted(self.active - wanted):
            self.free(row)
        for row in sorted(wanted - self.active):
            self.restore(row)

    def seed(self, wish: list[int] | None) -> list[int]:
        """Rows to start from, in the order in which they are to be tried; a wished order is kept."""
        everything = sorted(self.active)
        weight = self._multipliers()
        found = everything
        if weight is not None and wish is None:
            support = [i for i in everything if weight[i] > 1e-9]
            self.set_rows(support)
            if self.feasible() is False:
                found = support
            else:
                self.set_rows(everything)
        if wish is not None:
            rank = {row: place for place, row in enumerate(wish)}
            return sorted(found, key=lambda i: (rank.get(i, len(rank)), i))
        return sorted(found, key=lambda i: (0.0 if weight is None else round(float(weight[i]), 9), i))

    def _multipliers(self) -> np.ndarray | None:
        """The size of each row's multiplier in the proof that the relaxation is infeasible, if it is."""
        if self._answer(self.instances[0]) is not False:
            return None
        _, has, values = self.instances[0].getDualRay()
        weight = np.abs(np.asarray(values)) if has else np.zeros(0)
        top = weight.max(initial=0.0)
        return weight / top if top > 0 else None

    def filter_rows(self, seed: list[int]) -> set[int]:
        """The rows that remain when each that can be left out is."""
        if self.model.integer.any() and len(seed) > _QUICKXPLAIN_FROM:
            kept = self._quickxplain([], False, list(reversed(seed)))
            self.set_rows(kept)
            seed = kept
        for row in seed:
            self.free(row)
            answer = self.feasible()
            if answer is not False:
                self.restore(row)
        return set(self.active)

    def _quickxplain(self, background: list[int], changed: bool, rows: list[int]) -> list[int]:
        if changed:
            self.set_rows(background)
            if self.feasible() is False:
                return []
        if len(rows) == 1:
            return rows
        half = len(rows) // 2
        first, second = rows[:half], rows[half:]
        in_second = self._quickxplain(background + first, bool(first), second)
        in_first = self._quickxplain(background + in_second, bool(in_second), first)
        return in_first + in_second

    def filter_bounds(self) -> list[tuple[int, str]]:
        """The finite bounds of columns that cannot be left out."""
        kept = []
        lo, up = self.model.col_lo.copy(), self.model.col_up.copy()
        for j in range(self.model.shape[1]):
            for side, bound in (("lower", lo), ("upper", up)):
                if not np.isfinite(bound[j]):
                    continue
                was = bound[j]
                bound[j] = -highspy.kHighsInf if side == "lower" else highspy.kHighsInf
                self.set_bounds(j, lo[j], up[j])
                if self.feasible() is not False:
                    bound[j] = was
                    self.set_bounds(j, lo[j], up[j])
                    kept.append((j, side))
        return kept


def _certificate(
    model: LinearModel,
    hard: list[int],
    rows: set[int],
    sides: list[tuple[int, str]],
    bounds: str,
    search: _Search,
) -> bool:
    """Solve the set alone, in a new instance: infeasible, and feasible without any one of its members."""
    part = model.rows([*hard, *sorted(rows)])
    fresh = _Search(part, set(range(len(hard))), max(search.deadline - time.monotonic(), 1e-3))
    lo, up = model.col_lo, model.col_up
    if bounds == "soft" or not rows:
        lo, up = np.full(len(lo), -np.inf), np.full(len(up), np.inf)
        for j, side in sides:
            (lo if side == "lower" else up)[j] = (model.col_lo if side == "lower" else model.col_up)[j]
        for j in range(len(lo)):
            fresh.set_bounds(j, lo[j], up[j])
    good = fresh.feasible() is False
    for row in sorted(fresh.active) if good else ():
        fresh.free(row)
        good = good and fresh.feasible() is True
        fresh.restore(row)
    for j, side in sides if good else ():
        fresh.set_bounds(j, -np.inf if side == "lower" else lo[j], np.inf if side == "upper" else up[j])
        good = good and fresh.feasible() is True
        fresh.set_bounds(j, lo[j], up[j])
    search.solves += fresh.solves
    return good and fresh.certain


def _known(argument: str, name: str, names: dict[str, int]) -> int:
    if name not in names:
        raise InputError(f"{argument} names {name!r}, and the model has no such row")
    return names[name]
