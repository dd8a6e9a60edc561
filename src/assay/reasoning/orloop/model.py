"""Linear and mixed-integer models as arrays with names: read, written, handed to HiGHS."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import highspy
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from assay.errors import InputError, one_line
from assay.parts.highs import silent_highs

from .model_files import Read, read_highs, write_highs

_FAMILY = re.compile(r"^(.*?)(?:\[|_\d|\()")


@dataclass(frozen=True)
class LinearModel:
    """A linear or mixed-integer model: ``row_lo <= A x <= row_up`` and ``col_lo <= x <= col_up``.

    Treat the arrays as read-only; every change makes a new model, which shares what did not change.

    Attributes
    ----------
    A
        (m, n) float64, sparse by rows.
    row_lo, row_up
        (m,) float64; infinite where there is no such side.
    col_lo, col_up
        (n,) float64; crossing bounds are allowed, they are a conflict of that column.
    cost
        (n,) float64.
    integer
        (n,) bool.
    sense
        ``"min"`` or ``"max"``.
    row_names, col_names
        All different.
    family
        For each row, the part of its name before ``[``, ``(`` or ``_`` and a digit; ``""`` where there is none.
    offset
        Constant of the objective.
    """

    A: sp.csr_matrix
    row_lo: NDArray[np.float64]
    row_up: NDArray[np.float64]
    col_lo: NDArray[np.float64]
    col_up: NDArray[np.float64]
    cost: NDArray[np.float64]
    integer: NDArray[np.bool_]
    sense: Literal["min", "max"]
    row_names: tuple[str, ...]
    col_names: tuple[str, ...]
    family: tuple[str, ...]
    offset: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.A.shape

    @classmethod
    def from_arrays(
        cls,
        A: Any,
        row_lo: ArrayLike,
        row_up: ArrayLike,
        col_lo: ArrayLike,
        col_up: ArrayLike,
        cost: ArrayLike,
        integer: ArrayLike | None = None,
        sense: Literal["min", "max"] = "min",
        row_names: Sequence[str] | None = None,
        col_names: Sequence[str] | None = None,
        offset: float = 0.0,
    ) -> LinearModel:
        """Return the model of these arrays.

        Parameters
        ----------
        A
            (m, n) dense or sparse.
        row_lo, row_up, col_lo, col_up
            Bounds of rows (m,) and columns (n,), ±inf for none.
        cost
            (n,)
        integer
            (n,) which columns are integer; by default none.
        sense
            ``"min"`` or ``"max"``.
        row_names, col_names
            By default r1, r2, … and x1, x2, ….
        offset
            Constant of the objective.

        Raises
        ------
        InputError
            For wrong shapes, coefficients that are not finite, bounds that are NaN, rows with lower above upper side,
            and empty or repeated names.
        """
        matrix = sp.csr_matrix(A, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        m, n = matrix.shape
        rows = _names("row_names", row_names if row_names is not None else [f"r{i + 1}" for i in range(m)], m)
        cols = _names("col_names", col_names if col_names is not None else [f"x{j + 1}" for j in range(n)], n)
        lo, up = _vector("row_lo", row_lo, m), _vector("row_up", row_up, m)
        left, right = _vector("col_lo", col_lo, n), _vector("col_up", col_up, n)
        costs = _vector("cost", cost, n)
        whole = np.zeros(n, dtype=bool) if integer is None else np.asarray(integer, dtype=bool)
        if whole.shape != (n,):
            raise InputError(f"integer must have one truth value a column ({n}), got shape {whole.shape}")
        if sense not in ("min", "max"):
            raise InputError(f"sense must be 'min' or 'max', not {sense!r}")
        bad = ~np.isfinite(matrix.data)
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            row = int(np.searchsorted(matrix.indptr, place, side="right") - 1)
            raise InputError(
                f"the coefficient of column {cols[matrix.indices[place]]!r} in row {rows[row]!r} is "
                f"{matrix.data[place]}; it must be finite"
            )
        for what, names, values in (("row", rows, (lo, up)), ("column", cols, (left, right))):
            for side, bound in zip(("lower", "upper"), values, strict=True):
                wrong = np.isnan(bound) | (bound == (np.inf if side == "lower" else -np.inf))
                if wrong.any():
                    at = int(np.flatnonzero(wrong)[0])
                    raise InputError(f"the {side} bound of {what} {names[at]!r} is {bound[at]}; it must be a number")
        if not np.isfinite(costs).all():
            at = int(np.flatnonzero(~np.isfinite(costs))[0])
            raise InputError(f"the cost of column {cols[at]!r} is {costs[at]}; it must be finite")
        crossing = np.flatnonzero(lo > up)
        if len(crossing):
            at = int(crossing[0])
            raise InputError(f"row {rows[at]!r} has the lower side {lo[at]:g} above its upper side {up[at]:g}")
        matrix.sort_indices()
        family = tuple(family_of(name) for name in rows)
        return cls(matrix, lo, up, left, right, costs, whole, sense, rows, cols, family, float(offset))

    @classmethod
    def from_highs(cls, h: highspy.Highs) -> LinearModel:
        """Return the model that a HiGHS instance holds; InputError where it is not linear."""
        if not hasattr(h, "getModel"):
            raise TypeError(f"h must be a HiGHS instance, got {type(h).__name__}")
        held = h.getModel()
        if held.hessian_.dim_ > 0 and len(held.hessian_.value_) > 0:
            raise InputError("the model has a quadratic objective; only linear ones can be repaired")
        lp = held.lp_
        m, n = lp.num_row_, lp.num_col_
        matrix = lp.a_matrix_
        kind = sp.csc_matrix if matrix.format_ == highspy.MatrixFormat.kColwise else sp.csr_matrix
        A = kind((np.array(matrix.value_), np.array(matrix.index_), np.array(matrix.start_)), shape=(m, n))
        types = list(lp.integrality_) or [highspy.HighsVarType.kContinuous] * n
        cols = [str(name) for name in lp.col_names_] or [f"x{j + 1}" for j in range(n)]
        known = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        for name, kind_of in zip(cols, types, strict=True):
            if kind_of not in known:
                raise InputError(f"column {name!r} is semi-continuous; only continuous and integer columns are known")
        return cls.from_arrays(
            A,
            np.array(lp.row_lower_),
            np.array(lp.row_upper_),
            np.array(lp.col_lower_),
            np.array(lp.col_upper_),
            np.array(lp.col_cost_),
            [kind_of == highspy.HighsVarType.kInteger for kind_of in types],
            "max" if lp.sense_ == highspy.ObjSense.kMaximize else "min",
            [str(name) for name in lp.row_names_] or None,
            cols,
            lp.offset_,
        )

    @classmethod
    def from_pulp(cls, prob: Any) -> LinearModel:
        """Return the model of a PuLP problem (``pulp.LpProblem``); InputError for what is none."""
        if not all(hasattr(prob, name) for name in ("variables", "constraints", "objective", "sense")):
            raise InputError(f"prob must be a pulp.LpProblem, got {type(prob).__name__}")
        held = prob.constraints
        pairs = [(c.name, c) for c in held()] if callable(held) else list(held.items())
        columns = prob.variables()
        at = {v.name: j for j, v in enumerate(columns)}
        entries, lo, up = [], [], []
        for i, (_, row) in enumerate(pairs):
            entries += [(i, at[v.name], float(a)) for v, a in row.items()]
            rhs = -float(row.constant)
            lo.append(-np.inf if row.sense < 0 else rhs)
            up.append(np.inf if row.sense > 0 else rhs)
        i, j, a = zip(*entries, strict=True) if entries else ((), (), ())
        cost = np.zeros(len(columns))
        for v, c in prob.objective.items():
            cost[at[v.name]] = c
        return cls.from_arrays(
            sp.csr_matrix((a, (i, j)), shape=(len(pairs), len(columns))),
            lo,
            up,
            [-np.inf if v.lowBound is None else v.lowBound for v in columns],
            [np.inf if v.upBound is None else v.upBound for v in columns],
            cost,
            [v.cat == "Integer" for v in columns],
            "max" if prob.sense == -1 else "min",
            [str(name) for name, _ in pairs],
            [v.name for v in columns],
            float(prob.objective.constant or 0.0),
        )

    @classmethod
    def read(cls, path: str | Path) -> LinearModel:
        """Read a model from an ``.mps`` or ``.lp`` file, also ``.gz``.

        In LP files, rows with two sides (``2 <= x + y <= 8``) and names with brackets or in quotes are read too.

        Raises
        ------
        InputError
            For what cannot be read, what HiGHS would read in part only, and what is not linear.
        """
        found = read_highs(path)
        try:
            model = cls.from_highs(found.highs)
            return _as_written(model, found) if found.names or found.ranges else model
        except InputError as error:
            raise InputError(f"{Path(path).name}: {error}") from None

    def write(self, path: str | Path) -> Path:
        """Write the model as ``.mps`` or ``.lp``, also ``.gz``; return the path.

        Blanks in names become underscores. An LP file holds a row of two sides as two rows, ``…lo`` and ``…up``; so
        MPS is the format in which a model comes back as it was.

        Raises
        ------
        InputError
            For another suffix, and for names that the format cannot hold.
        """
        row_names = _names("row_names", ["_".join(name.split()) for name in self.row_names], len(self.row_names))
        col_names = _names("col_names", ["_".join(name.split()) for name in self.col_names], len(self.col_names))
        return write_highs(replace(self, row_names=row_names, col_names=col_names).to_highs(), path)

    def to_highs(self) -> highspy.Highs:
        """Return a silent HiGHS instance that holds the model, with its names."""
        h = silent_highs()
        m, n = self.shape
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = m, n
        lp.row_lower_, lp.row_upper_ = self.row_lo, self.row_up
        lp.col_lower_, lp.col_upper_, lp.col_cost_ = self.col_lo, self.col_up, self.cost
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = self.A.indptr, self.A.indices, self.A.data
        lp.sense_ = highspy.ObjSense.kMaximize if self.sense == "max" else highspy.ObjSense.kMinimize
        lp.offset_ = self.offset
        lp.row_names_, lp.col_names_ = list(self.row_names), list(self.col_names)
        if self.integer.any():
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[int(whole)] for whole in self.integer]
        if h.passModel(lp) == highspy.HighsStatus.kError:
            raise InputError("HiGHS refuses the model: its coefficients must be below 1e15 in size")
        return h

    def row(self, name: str) -> int:
        """Return the index of the row of that name; KeyError names what there is not."""
        try:
            return self.row_names.index(name)
        except ValueError:
            raise KeyError(f"the model has no row {name!r}") from None

    def col(self, name: str) -> int:
        """Return the index of the column of that name; KeyError names what there is not."""
        try:
            return self.col_names.index(name)
        except ValueError:
            raise KeyError(f"the model has no column {name!r}") from None

    def rows(self, keep: Sequence[int] | NDArray[np.int64]) -> LinearModel:
        """Return the model with these rows alone, in this order."""
        at = np.asarray(keep, dtype=np.int64)
        return replace(
            self,
            A=self.A[at],
            row_lo=self.row_lo[at],
            row_up=self.row_up[at],
            row_names=tuple(self.row_names[i] for i in at),
            family=tuple(self.family[i] for i in at),
        )

    def with_row(self, name: str, coefficients: Any, lo: float, up: float) -> LinearModel:
        """Return the model with one more row, at the end."""
        return replace(
            self,
            A=sp.vstack([self.A, sp.csr_matrix(coefficients)], format="csr"),
            row_lo=np.append(self.row_lo, lo),
            row_up=np.append(self.row_up, up),
            row_names=(*self.row_names, name),
            family=(*self.family, family_of(name)),
        )

    def with_sides(self, row: int, lo: float, up: float) -> LinearModel:
        """Return the model with other sides of one row."""
        row_lo, row_up = self.row_lo.copy(), self.row_up.copy()
        row_lo[row], row_up[row] = lo, up
        return replace(self, row_lo=row_lo, row_up=row_up)

    def with_coefficients(self, row: int, cols: Sequence[int], values: Sequence[float]) -> LinearModel:
        """Return the model with other coefficients of some columns in one row."""
        A = self.A.tolil(copy=True)
        for j, value in zip(cols, values, strict=True):
            A[row, j] = value
        out = A.tocsr()
        out.sort_indices()
        return replace(self, A=out)

    def with_column(
        self, col: int, lo: float | None = None, up: float | None = None, integer: bool | None = None
    ) -> LinearModel:
        """Return the model with other bounds or another type of one column."""
        col_lo, col_up, whole = self.col_lo.copy(), self.col_up.copy(), self.integer.copy()
        if lo is not None:
            col_lo[col] = lo
        if up is not None:
            col_up[col] = up
        if integer is not None:
            whole[col] = integer
        return replace(self, col_lo=col_lo, col_up=col_up, integer=whole)

    def same(self, other: LinearModel) -> bool:
        """Whether two models are equal in every number, whatever the order of their rows."""
        if self.shape != other.shape or set(self.row_names) != set(other.row_names):
            return False
        place = {name: i for i, name in enumerate(other.row_names)}
        there = other.rows([place[name] for name in self.row_names])
        return bool(
            self.col_names == there.col_names
            and self.sense == there.sense
            and np.array_equal(self.row_lo, there.row_lo)
            and np.array_equal(self.row_up, there.row_up)
            and np.array_equal(self.col_lo, there.col_lo)
            and np.array_equal(self.col_up, there.col_up)
            and np.array_equal(self.cost, there.cost)
            and np.array_equal(self.integer, there.integer)
            and abs(self.A - there.A).max() == 0
        )


def family_of(name: str) -> str:
    """Return the part of a name before ``[``, ``(`` or ``_`` and a digit; ``""`` where there is none.

    >>> family_of("supply_17"), family_of("demand[a,b]"), family_of("budget")
    ('supply', 'demand', '')
    """
    found = _FAMILY.match(name)
    return found.group(1) if found else ""


def _names(what: str, names: Sequence[str], count: int) -> tuple[str, ...]:
    found = tuple(str(name) for name in names)
    if len(found) != count:
        raise InputError(f"{what} must hold {count} names, got {len(found)}")
    seen: set[str] = set()
    for name in found:
        if not name.strip():
            raise InputError(f"{what} holds an empty name")
        if name in seen:
            raise InputError(f"{what} holds {name!r} twice; names must differ")
        seen.add(name)
    return found


def _vector(what: str, values: ArrayLike, count: int) -> NDArray[np.float64]:
    try:
        out = np.array(values, dtype=np.float64) + 0.0  # no negative zeros
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be numbers: {one_line(error, 80)}") from None
    if out.shape != (count,):
        raise InputError(f"{what} must have shape ({count},), got {out.shape}")
    return out


def _as_written(model: LinearModel, found: Read) -> LinearModel:
    """The model with the names and the second sides that its file has."""
    lo, up = model.row_lo.copy(), model.row_up.copy()
    for i, name in enumerate(model.row_names):
        if name in found.ranges:
            lo[i], up[i] = found.ranges[name]
    rows, cols = ([found.names.get(n, n) for n in names] for names in (model.row_names, model.col_names))
    return LinearModel.from_arrays(
        model.A, lo, up, model.col_lo, model.col_up, model.cost, model.integer, model.sense, rows, cols, model.offset
    )
