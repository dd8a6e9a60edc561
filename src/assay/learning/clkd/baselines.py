"""Contenders: models without the teacher, and the usual ways to use a score; all are tuned as the method is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from assay.numerics.aggregate import exp_weights

from . import grid
from .components import generator
from .estimator import ALPHAS, CLKDSurvival
from .problem import canonical, folds, make_problem, usable_folds
from .samples import Rows
from .tables import scales

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CV = 5
SHARES = (0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0)
"""How much the teacher counts in a blend: as many values as the method has etas."""
MAX_ITER, TOL = 100, 1e-9


@dataclass(frozen=True)
class Given:
    """What an arm sees.

    Attributes
    ----------
    rows
        Features, case (or event), time and the teacher's log risk of what was studied.
    groups
        (n,) the matched set of each row; None where ``rows`` are a whole cohort.
    cohort
        All rows of the small study, of which ``rows`` are a sample.
    test_X, test_teacher
        Features (m, p) and the teacher's log risk (m,) of the rows to be ranked.
    """

    rows: Rows
    groups: IntArray | None
    cohort: Rows
    test_X: FloatArray
    test_teacher: FloatArray


def fitted(given: Given, seed: int, teacher: bool, X: FloatArray | None = None, **parameters: object) -> CLKDSurvival:
    """The method on matched sets or on the cohort, with or without the teacher."""
    rows = given.rows
    kind = "risk_set" if given.groups is None else "matched"
    y = (rows.event, rows.time) if given.groups is None else rows.event
    model = CLKDSurvival(components=kind, cv=CV, random_state=seed, **parameters)
    risk = rows.teacher if teacher else None
    return model.fit(rows.X if X is None else X, y, groups=given.groups, teacher_risk=risk)


def internal(given: Given, seed: int, eta: float | str = 0.0) -> FloatArray:
    """Ridge-penalised likelihood of one's own outcomes: the best penalty, or averaged (``eta="aggregate"``)."""
    return fitted(given, seed, teacher=False, eta=eta).predict(given.test_X)


def stack(given: Given, seed: int) -> FloatArray:
    """The same with the teacher's score as one more column."""
    X = np.column_stack([given.rows.X, given.rows.teacher])
    return fitted(given, seed, teacher=False, X=X).predict(np.column_stack([given.test_X, given.test_teacher]))


def method(given: Given, seed: int, **parameters: object) -> FloatArray:
    """The method."""
    return fitted(given, seed, teacher=True, **parameters).predict(given.test_X)


def on_cohort(given: Given, seed: int, components: str) -> FloatArray:
    """The method on all rows of the small study, with components of another kind."""
    rows = given.cohort
    model = CLKDSurvival(components=components, cv=CV, random_state=seed)  # type: ignore[arg-type]
    return model.fit(rows.X, (rows.event, rows.time), teacher_risk=rows.teacher).predict(given.test_X)


def offset(given: Given, seed: int) -> FloatArray:
    """The teacher's score as a part of the score that is not fitted, so that features add what it lacks; averaged."""
    data, mean, scale, rng = _prepared(given, seed)
    data = replace(data, offset=data.scores[:, 0])
    cv = usable_folds(data.problem, CV, "choosing alpha")
    held = grid.cross_validate(data, (0.0,), ALPHAS, cv, rng, MAX_ITER, TOL, with_cindex=False)
    b = grid.averaging_weights(held)[0] @ _path(data.problem.partition(), data)
    return (given.test_X - mean) / scale @ b + given.test_teacher


def blend(given: Given, seed: int) -> FloatArray:
    """(1 − s) × the model without teacher + s × the teacher, averaged over shares s and penalties."""
    data, mean, scale, rng = _prepared(given, seed)
    cv = usable_folds(data.problem, CV, "choosing a share")
    split = list(folds(data.problem, cv, rng))
    share = np.array(SHARES)
    loss = np.zeros((len(SHARES), len(ALPHAS)))
    teacher = data.scores[:, 0]
    for train, out, _ in split:
        for j, b in enumerate(_path(train, data)):
            loss[:, j] += [out.total * grid.loss(out, (1 - s) * (data.Z @ b) + s * teacher) for s in share]
    # Summed over cases, as the method's weights are.
    total = loss * data.problem.n_components / sum(out.total for _, out, _ in split)
    weights = exp_weights(total.ravel()).reshape(loss.shape)
    b = ((1 - share) @ weights) @ _path(data.problem.partition(), data)
    return (given.test_X - mean) / scale @ b + float(share @ weights.sum(axis=1)) * given.test_teacher


def _path(part: grid.Partition, data: grid.Data) -> FloatArray:
    """Coefficients (A, p) without teacher."""
    return grid.path(part, data, (0.0,), ALPHAS, MAX_ITER, TOL).coef[0]


def _prepared(given: Given, seed: int) -> tuple[grid.Data, FloatArray, FloatArray, np.random.Generator]:
    """Rows in the order, and on the scale, in which the method sees them, so that the folds are the same."""
    rows = given.rows
    n = len(rows)
    ones, one = np.ones(n), np.zeros(n, dtype=np.int64)
    cohort = given.groups is None
    time = rows.time if cohort else None
    order = canonical(rows.X, rows.event, time, one, given.groups, ones, rows.teacher[:, None])
    rng = generator(seed)
    problem = make_problem(
        "risk_set" if cohort else "matched", rows.event[order], rows.time[order], ones,
        group=None if given.groups is None else given.groups[order], stratum=one,
        n_controls=1, max_pairs=None, random_state=rng,
    )  # fmt: skip
    used = problem.partition().rows
    X = rows.X[order]
    mean, scale, varies = scales(X[used], ones[used], True)
    Z = np.where(varies, (X - mean) / scale, 0.0)
    return grid.Data(problem, Z, rows.teacher[order, None], np.ones(1)), mean, scale, rng
