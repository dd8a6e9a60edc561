"""Newton's method for the penalised composite likelihood, which is convex in the coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .partition import Partition, Point

FloatArray = NDArray[np.float64]

ARMIJO = 1e-4
HALVINGS = 30
ROUNDING = 1e-14
"""Objectives that differ by less, relative to 1 + |objective|, are the same."""

SMALL_RIDGE = 1e-8
"""Below this ridge columns that repeat each other leave directions without any curvature."""


@dataclass(frozen=True)
class Minimum:
    """Coefficients (p,), the objective there, how many steps it took, and whether they were enough."""

    b: FloatArray
    loss: float
    steps: int
    converged: bool


def minimise(
    partition: Partition,
    Z: FloatArray,
    target: FloatArray,
    alpha: float,
    start: FloatArray,
    *,
    offset: FloatArray | None = None,
    max_iter: int = 100,
    tol: float = 1e-9,
) -> Minimum:
    """Minimise (A(r) / W − target'r) + alpha/2 |b|² over b, where r = Zb (+ offset).

    Parameters
    ----------
    partition
        The components.
    Z
        (n, p) features of the partition's rows.
    target
        (n,) how often each row is the case by what is fitted, / W: the components' cases, the teacher's expectation,
        or a mixture.
    alpha
        Ridge on the coefficients.
    start
        (p,) where to start.
    offset
        (n,) a part of the scores that is not fitted.
    max_iter, tol
        Steps at most; stop when a step promises less than tol (1 + |objective|).
    """
    base = 0.0 if offset is None else offset

    def at(b: FloatArray) -> tuple[Point, float]:
        r = base + Z @ b
        point = partition.at(r)
        return point, point.value - float(target @ r) + alpha / 2 * float(b @ b)

    b = start
    point, loss = at(b)
    for step in range(1, max_iter + 1):
        gradient = Z.T @ (point.expected() - target) + alpha * b
        direction = _solve(point.hessian(Z), alpha, gradient)
        slope = float(gradient @ direction)
        enough = slope / 2 <= tol * (1 + abs(loss))
        size = 1.0
        for _ in range(HALVINGS + 1):
            new = b - size * direction
            new_point, new_loss = at(new)
            if new_loss <= loss - ARMIJO * size * slope + ROUNDING * (1 + abs(loss)):
                break
            size /= 2
        else:
            return Minimum(b, loss, step, False)
        b, point, loss = new, new_point, new_loss
        if enough:
            return Minimum(b, loss, step, True)
    return Minimum(b, loss, max_iter, False)


def _solve(hessian: FloatArray, alpha: float, gradient: FloatArray) -> FloatArray:
    """The Newton direction; without a ridge the shortest one, where columns repeat each other."""
    if alpha >= SMALL_RIDGE:
        try:
            ridged = hessian + alpha * np.eye(len(gradient))
            return linalg.cho_solve(linalg.cho_factor(ridged, check_finite=False), gradient, check_finite=False)
        except linalg.LinAlgError:
            pass
    values, vectors = linalg.eigh(hessian, check_finite=False)
    values = values + alpha
    keep = values > max(values.max(initial=0.0), 0.0) * len(values) * 1e-13
    if not keep.any():
        return np.zeros_like(gradient)
    part = vectors[:, keep]
    return part @ ((part.T @ gradient) / values[keep])
