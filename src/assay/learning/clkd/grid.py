"""Fits over a grid of eta and alpha, their cross-validation, and one model of them all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.numerics.aggregate import exp_weights

from .newton import minimise
from .partition import Partition
from .problem import Problem, folds

FloatArray = NDArray[np.float64]

NEGLIGIBLE = 1e-8
"""Fits with a smaller weight in the average are left out."""


@dataclass(frozen=True)
class Data:
    """What every fit sees.

    Attributes
    ----------
    problem
        The components.
    Z
        (n, p) scaled features.
    scores
        (n, T) log risks of the teachers.
    shares
        (T,) weights of the teachers, summing to 1.
    offset
        (n,) a part of the scores that is not fitted, or None.
    """

    problem: Problem
    Z: FloatArray
    scores: FloatArray
    shares: FloatArray
    offset: FloatArray | None = None


@dataclass(frozen=True)
class Path:
    """Fits for each eta and alpha: coefficients (E, A, p), steps (E, A), and whether all converged."""

    coef: FloatArray
    steps: NDArray[np.int64]
    converged: NDArray[np.bool_]


@dataclass(frozen=True)
class Held:
    """What cross-validation found, for each eta and alpha.

    Attributes
    ----------
    loss
        (E, A) mean −log q of the held-out cases.
    cindex
        (E, A) concordance of the held-out rows, where it was asked for.
    n_cases
        How many cases were held out: the summed loss is this times the mean.
    coef
        Of each fold (E, A, p).
    parts
        Of each fold its held-out components.
    """

    loss: FloatArray
    cindex: FloatArray | None
    n_cases: int
    coef: tuple[FloatArray, ...]
    parts: tuple[Partition, ...]


def teachers_cases(part: Partition, data: Data) -> FloatArray:
    """How often each row is the case by what the teachers say, / W."""
    rows = np.zeros(len(part.rows))
    for scores, share in zip(data.scores.T, data.shares, strict=True):
        if share > 0:
            rows += share * part.at(scores[part.rows]).expected()
    return rows


def mixed(case: FloatArray, teacher: FloatArray, eta: float) -> FloatArray:
    """(case + eta · teacher) / (1 + eta); the teacher alone for eta = inf."""
    return teacher if math.isinf(eta) else (case + eta * teacher) / (1 + eta)


def path(
    part: Partition, data: Data, etas: Sequence[float], alphas: Sequence[float], max_iter: int, tol: float
) -> Path:
    """Fit the components for all etas and alphas, each from where the fit with the eta before it ended."""
    Z = data.Z[part.rows]
    offset = None if data.offset is None else data.offset[part.rows]
    teacher = teachers_cases(part, data) if any(etas) else part.case
    shape = (len(etas), len(alphas))
    coef, steps, converged = (
        np.zeros((*shape, Z.shape[1])),
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape, dtype=bool),
    )
    for j, alpha in enumerate(alphas):
        b = np.zeros(Z.shape[1])
        for i, eta in enumerate(etas):
            target = mixed(part.case, teacher, eta)
            found = minimise(part, Z, target, alpha, b, offset=offset, max_iter=max_iter, tol=tol)
            b = found.b
            coef[i, j], steps[i, j], converged[i, j] = b, found.steps, found.converged
    return Path(coef, steps, converged)


def cross_validate(
    data: Data,
    etas: Sequence[float],
    alphas: Sequence[float],
    cv: int,
    rng: np.random.Generator,
    max_iter: int,
    tol: float,
    *,
    with_cindex: bool,
) -> Held:
    """Fit the grid without each fold in turn, and judge it on the components among the fold's own rows or sets."""
    shape = (len(etas), len(alphas))
    total, weight = np.zeros(shape), 0.0
    concordant, comparable = np.zeros(shape), 0.0
    coefs, parts = [], []
    for train, out, units in folds(data.problem, cv, rng):
        fitted = path(train, data, etas, alphas, max_iter, tol).coef
        for i, j in np.ndindex(shape):
            risk = data.Z @ fitted[i, j] + (0 if data.offset is None else data.offset)
            total[i, j] += out.total * loss(out, risk)
            if with_cindex:
                won, pairs = data.problem.concordant(units, risk)
                concordant[i, j] += won
                comparable += pairs / total.size  # the same pairs for each fit
        weight += out.total
        coefs.append(fitted)
        parts.append(out)
    cindex = None if not with_cindex else concordant / comparable if comparable else np.full(shape, 0.5)
    n_cases = int(data.problem.with_case.sum())
    return Held(total / weight, cindex, n_cases, tuple(coefs), tuple(parts))


def loss(part: Partition, risk: FloatArray) -> float:
    """Mean −log q of the cases, of risks (n,) of all rows."""
    r = risk[part.rows]
    return part.at(r).value - float(part.case @ r)


def averaging_weights(held: Held) -> FloatArray:
    """Weights (E, A), falling exponentially with the summed held-out loss."""
    return exp_weights((held.n_cases * held.loss).ravel()).reshape(held.loss.shape)


def held_out_loss(data: Data, held: Held, weights: FloatArray) -> float:
    """Mean −log q of the held-out cases by each fold's averaged coefficients."""
    total = [
        part.total * loss(part, data.Z @ np.tensordot(weights, coef, 2) + (0 if data.offset is None else data.offset))
        for coef, part in zip(held.coef, held.parts, strict=True)
    ]
    return float(sum(total) / sum(part.total for part in held.parts))


def teachers_loss(data: Data, parts: Sequence[Partition]) -> float:
    """Mean −log of the chance that the teachers together give the cases of some components.

    With one teacher that is its own loss. Several are mixed by their log chances, as the fit mixes them.
    """
    risk = data.scores @ data.shares
    return float(sum(part.total * loss(part, risk) for part in parts) / sum(part.total for part in parts))


def chosen(values: FloatArray) -> tuple[int, int]:
    """The place of the lowest value; of equal ones the first."""
    i, j = np.unravel_index(int(values.argmin()), values.shape)
    return int(i), int(j)
