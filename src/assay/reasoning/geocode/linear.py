"""Exact linear algebra over sparse rows: row reduction over fractions, and the sparsest way to a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Row = dict[Any, Fraction]
"""Coefficients by unknown; what is not there is zero."""


def combined(rows: Sequence[Mapping[Any, Fraction]], weights: Sequence[Fraction]) -> Row:
    """The weighted sum of rows, without zeros."""
    total: Row = {}
    for row, weight in zip(rows, weights, strict=True):
        for key, value in row.items():
            total[key] = total.get(key, Fraction(0)) + weight * value
    return {key: value for key, value in total.items() if value}


class Reduced:
    """Rows in echelon form, each kept with its right-hand side; takes one row after another.

    The right-hand side is a row itself, so that it may be a number (key ``1``) or a logarithm (keys are primes).
    """

    def __init__(self) -> None:
        self.pivots: dict[Any, tuple[Row, Row]] = {}
        self.users: dict[Any, set[Any]] = {}

    def reduce(self, row: Mapping[Any, Fraction]) -> tuple[Row, Row]:
        """What is left of a row, and the right-hand side of what was taken away."""
        left: Row = dict(row)
        right: Row = {}
        # Pivot rows hold no other pivot, so that one pass is enough.
        for key in [key for key in row if key in self.pivots]:
            weight = left[key]
            coefficients, value = self.pivots[key]
            for k, c in coefficients.items():
                left[k] = left.get(k, Fraction(0)) - weight * c
            for k, c in value.items():
                right[k] = right.get(k, Fraction(0)) + weight * c
        return {k: c for k, c in left.items() if c}, {k: c for k, c in right.items() if c}

    def add(self, row: Mapping[Any, Fraction], value: Mapping[Any, Fraction]) -> Row | None:
        """Take a row in; None where it is new or true already, else by how much its right-hand side contradicts."""
        left, right = self.reduce(row)
        rest = combined([value, right], [Fraction(1), Fraction(-1)])
        if not left:
            return rest or None
        pivot = min(left, key=str)
        scale = 1 / left[pivot]
        new = ({k: c * scale for k, c in left.items()}, {k: c * scale for k, c in rest.items()})
        for other in list(self.users.get(pivot, ())):
            coefficients, old = self.pivots[other]
            weight = coefficients[pivot]
            self._put(
                other,
                combined([coefficients, new[0]], [Fraction(1), -weight]),
                combined([old, new[1]], [Fraction(1), -weight]),
            )
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
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    keys = {key: i for i, key in enumerate(dict.fromkeys(k for row in (*rows, target) for k in row))}
    entries = [(keys[k], j, float(c)) for j, row in enumerate(rows) for k, c in row.items()]
    if not entries:
        return None
    i, j, c = (np.array(part) for part in zip(*entries, strict=True))
    matrix = csr_array((c, (i, j)), shape=(len(keys), len(rows)))
    wanted = np.zeros(len(keys))
    for k, value in target.items():
        wanted[keys[k]] = float(value)
    n = len(rows)
    from scipy.sparse import hstack

    found = linprog(np.ones(2 * n), A_eq=hstack([matrix, -matrix]), b_eq=wanted, bounds=(0, None), method="highs")
    if found.status != 0:
        return None
    weights = found.x[:n] - found.x[n:]
    chosen = [int(k) for k in np.flatnonzero(np.abs(weights) > 1e-7)]
    return exact_weights(rows, target, chosen)


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
