"""Exact linear algebra over sparse rows: row reduction over fractions, and the sparsest way to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from assay.parts.highs import silent_highs, solved
from assay.parts.packages import need

Row = dict[Any, Fraction]
"""Coefficients by unknown; what is not there is zero."""


def combined(rows: Sequence[Mapping[Any, Fraction]], weights: Sequence[Fraction]) -> Row:
    """The weighted sum of rows, without zeros."""
    total: Row = {}
    for row, weight in zip(rows, weights, strict=True):
        for key, value in row.items():
            total[key] = total.get(key, Fraction(0)) + weight * value
    return {key: value for key, value in total.items() if value}


def _slim(value: Any) -> Any:
    """Whole numbers as int: they are most, and many times as fast as fractions."""
    return value.numerator if value.denominator == 1 else value


def _minus(row: Mapping[Any, Any], other: Mapping[Any, Any], weight: Any) -> dict[Any, Any]:
    total = dict(row)
    for key, value in other.items():
        total[key] = total.get(key, 0) - weight * value
    return {key: _slim(value) for key, value in total.items() if value}


class Reduced:
    """Rows in echelon form, each kept with its right-hand side; takes one row after another.

    The right-hand side is a row itself, so that it may be a number (key ``1``) or a logarithm (keys are primes).
    """

    def __init__(self) -> None:
        self.pivots: dict[Any, tuple[Row, Row]] = {}
        self.users: dict[Any, set[Any]] = {}

    def reduce(self, row: Mapping[Any, Fraction]) -> tuple[Row, Row]:
        """What is left of a row, and the right-hand side of what was taken away."""
        left, right = self._reduced(row)
        return {k: Fraction(c) for k, c in left.items()}, {k: Fraction(c) for k, c in right.items()}

    def _reduced(self, row: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[Any, Any]]:
        left = {k: _slim(c) for k, c in row.items()}
        right: dict[Any, Any] = {}
        # Pivot rows hold no other pivot, so that one pass is enough.
        for key in [key for key in row if key in self.pivots]:
            weight = left[key]
            coefficients, value = self.pivots[key]
            for k, c in coefficients.items():
                left[k] = left.get(k, 0) - weight * c
            for k, c in value.items():
                right[k] = right.get(k, 0) + weight * c
        return {k: _slim(c) for k, c in left.items() if c}, {k: _slim(c) for k, c in right.items() if c}

    def add(self, row: Mapping[Any, Fraction], value: Mapping[Any, Fraction]) -> Row | None:
        """Take a row in; None where it is new or true already, else by how much its right-hand side contradicts."""
        left, right = self._reduced(row)
        rest = _minus({k: _slim(c) for k, c in value.items()}, right, 1)
        if not left:
            return {k: Fraction(c) for k, c in rest.items()} or None
        pivot = min(left, key=str)
        scale = _slim(Fraction(1) / left[pivot])
        new = ({k: _slim(c * scale) for k, c in left.items()}, {k: _slim(c * scale) for k, c in rest.items()})
        for other in list(self.users.get(pivot, ())):
            coefficients, old = self.pivots[other]
            weight = coefficients[pivot]
            self._put(other, _minus(coefficients, new[0], weight), _minus(old, new[1], weight))
        self._put(pivot, *new)
        return None

    def _put(self, pivot: Any, coefficients: Row, value: Row) -> None:
        for key in self.pivots.get(pivot, ({}, {}))[0]:
            self.users.get(key, set()).discard(pivot)
        self.pivots[pivot] = (coefficients, value)
        for key in coefficients:
            if key != pivot:
                self.users.setdefault(key, set()).add(pivot)


def sparsest(rows: Sequence[Mapping[Any, Fraction]], target: Mapping[Any, Fraction]) -> dict[int, Fraction] | None:
    """Weights with Σ weight · row = target and a small Σ |weight|, exact; None where there are none.

    A linear programme finds which rows are needed; the weights are then solved over fractions and checked.
    """
    if not rows:
        return None
    keys = {key: i for i, key in enumerate(dict.fromkeys(k for row in (*rows, target) for k in row))}
    # Each row once forwards and once backwards: both weights at least 0, their sum least.
    starts, places, values = [0], [], []
    for sign in (1.0, -1.0):
        for row in rows:
            places += [keys[k] for k in row]
            values += [sign * float(c) for c in row.values()]
            starts.append(len(places))
    wanted = np.zeros(len(keys))
    for k, value in target.items():
        wanted[keys[k]] = float(value)
    n = len(rows)
    x = _cheapest(starts, places, values, wanted)
    if x is None:
        return None
    weights = x[:n] - x[n:]
    chosen = [int(k) for k in np.flatnonzero(np.abs(weights) > 1e-7)]
    return exact_weights(rows, target, chosen)


def _cheapest(starts: list[int], places: list[int], values: list[float], wanted: np.ndarray) -> np.ndarray | None:
    """The x ≥ 0 of least sum with A x = wanted; A by columns."""
    highspy = need("highspy", "the shortest derivation")
    columns = len(starts) - 1
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, len(wanted)
    model.col_cost_, model.col_lower_ = np.ones(columns), np.zeros(columns)
    model.col_upper_ = np.full(columns, highspy.kHighsInf)
    model.row_lower_ = model.row_upper_ = wanted
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = np.array(starts), np.array(places)
    model.a_matrix_.value_ = np.array(values)
    solver = silent_highs("the shortest derivation")
    solver.setOptionValue("presolve", "off")
    solver.passModel(model)
    if solved(solver) != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(solver.getSolution().col_value)


def exact_weights(
    rows: Sequence[Mapping[Any, Fraction]], target: Mapping[Any, Fraction], chosen: Sequence[int]
) -> dict[int, Fraction] | None:
    """Weights of the chosen rows that give the target exactly, or None."""
    system = Reduced()
    for k in chosen:
        system.add(rows[k], {k: Fraction(1)}) if not _dependent(system, rows[k]) else None
    left, weights = system.reduce(target)
    if left:
        return None
    check = combined([rows[k] for k in weights], list(weights.values()))
    return weights if check == {k: Fraction(c) for k, c in target.items() if c} else None


def _dependent(system: Reduced, row: Mapping[Any, Fraction]) -> bool:
    return not system.reduce(row)[0]
