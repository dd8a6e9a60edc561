"""Teachers: published coefficients, fitted models, functions or ready scores become log risk scores of the rows."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError, one_line

FloatArray = NDArray[np.float64]

_HINT = "a teacher must give log risks (n,), as a linear predictor does; of survival probabilities take log(-log S(t0))"
_CALLS = ("predict_log_partial_hazard", "predict")


def as_list(teacher: Any) -> list[Any]:
    """The teachers one by one."""
    return list(teacher) if isinstance(teacher, list | tuple) else [] if teacher is None else [teacher]


def teacher_scores(teacher: Any, X: Any, columns: Sequence[Any] | None, teacher_risk: Any, n: int) -> FloatArray:
    """Log risk scores (n, T) of T teachers; T = 0 without any.

    Parameters
    ----------
    teacher
        One of: a fitted model with ``predict_log_partial_hazard`` or ``predict``; a mapping from columns to log hazard
        ratios; a function of X; a list of these; None.
    X
        (n, p) as the user gave it, so that a teacher may see a frame.
    columns
        The columns that teachers see; None means all.
    teacher_risk
        Ready scores (n,) or (n, T), in place of a teacher.
    """
    teachers = as_list(teacher)
    if teacher is not None and not teachers:
        raise InputError("teacher is an empty list")
    if teacher_risk is not None:
        if teachers:
            raise InputError("give a teacher or teacher_risk, not both")
        return _ready(teacher_risk, n)
    if not teachers:
        return np.zeros((n, 0))
    seen = _seen(X, columns)
    return np.column_stack([_checked(_scores(one, seen), one, n) for one in teachers])


def teacher_shares(weights: Any, n_teachers: int) -> FloatArray:
    """Weights (T,) of the teachers, summing to 1."""
    if weights is None:
        return np.full(n_teachers, 1 / max(1, n_teachers))
    try:
        array = np.asarray(weights, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise InputError(f"teacher_weights must be numbers: {error}") from None
    if len(array) != n_teachers:
        raise InputError(f"teacher_weights has {len(array)} numbers, and there are {n_teachers} teachers")
    if not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise InputError(f"teacher_weights must be finite, not negative and not all zero, got {array.tolist()}")
    return array / array.max() / np.sum(array / array.max())


def _ready(teacher_risk: Any, n: int) -> FloatArray:
    try:
        scores = _real(teacher_risk)
    except (TypeError, ValueError) as error:
        raise InputError(f"teacher_risk must be numbers: {one_line(error)}") from None
    scores = scores[:, None] if scores.ndim == 1 else scores
    if scores.ndim != 2 or scores.shape[0] != n or scores.shape[1] == 0:
        raise InputError(f"teacher_risk must have shape (n,) or (n, T) with n = {n}, got {np.shape(teacher_risk)}")
    return _finite(scores, "teacher_risk")


def _seen(X: Any, columns: Sequence[Any] | None) -> Any:
    if columns is None:
        return X
    if isinstance(columns, str) or not isinstance(columns, Sequence | np.ndarray | pd.Index):
        raise InputError(f"teacher_columns must be a list of columns, got {columns!r}")
    if isinstance(X, pd.DataFrame):
        absent = [name for name in columns if name not in X.columns]
        if absent:
            raise InputError(f"teacher_columns: X has no column {absent[0]!r}; it has {_some(X.columns)}")
        return X[list(columns)]
    return np.asarray(X)[:, [_position(column, np.shape(X)[1], "teacher_columns") for column in columns]]


def _scores(teacher: Any, X: Any) -> Any:
    if isinstance(teacher, pd.Series):  # as lifelines' params_
        return _linear(teacher.to_dict(), X)
    if isinstance(teacher, Mapping):
        return _linear(teacher, X)
    for name in _CALLS:
        if callable(getattr(teacher, name, None)) and not isinstance(teacher, type):
            if hasattr(teacher, "predict_proba"):
                raise InputError(
                    f"teacher {type(teacher).__name__} is a classifier, whose predict gives labels; give a function "
                    "that returns its log odds"
                )
            return _called(getattr(teacher, name), X, type(teacher).__name__)
    if callable(teacher) and not isinstance(teacher, type):
        return _called(teacher, X, _name(teacher))
    raise InputError(
        "teacher must be a fitted model with predict, a mapping from columns to log hazard ratios, a function of X or "
        f"a list of these, got {one_line(repr(teacher), 80)}"
    )


def _called(function: Callable[[Any], Any], X: Any, name: str) -> Any:
    try:
        return function(X)
    except Exception as error:
        raise InputError(
            f"teacher {name} cannot tell the risk of these rows: {type(error).__name__}: {one_line(error)}"
        ) from error


def _linear(teacher: Mapping[Any, Any], X: Any) -> FloatArray:
    if not teacher:
        raise InputError("teacher is an empty mapping; it must give a log hazard ratio for at least one column")
    scores = np.zeros(np.shape(X)[0])
    for column, ratio in teacher.items():
        if not isinstance(ratio, numbers.Real) or not np.isfinite(ratio):
            raise InputError(f"teacher: the log hazard ratio of {column!r} must be a finite number, got {ratio!r}")
        if isinstance(X, pd.DataFrame):
            if column not in X.columns:
                raise InputError(f"teacher names the column {column!r}, which X lacks; X has {_some(X.columns)}")
            values: Any = X[column]
        else:
            values = np.asarray(X)[:, _position(column, np.shape(X)[1], "teacher")]
        try:
            scores = scores + float(ratio) * np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"teacher: the column {column!r} of X must be numbers: {one_line(error)}") from None
    return scores


def _position(column: Any, p: int, name: str) -> int:
    if isinstance(column, numbers.Integral) and not isinstance(column, bool) and 0 <= column < p:
        return int(column)
    raise InputError(
        f"{name} names the column {column!r}, which X lacks: X is an array without names, so columns are numbers "
        f"from 0 to {p - 1}"
    )


def _checked(scores: Any, teacher: Any, n: int) -> FloatArray:
    name = _name(teacher)
    survival = "surviv" in f"{name} {getattr(scores, 'name', '')}".lower()
    try:
        array = _real(scores)
    except (TypeError, ValueError):
        raise InputError(f"teacher {name} gives no numbers but {type(scores).__name__}; {_HINT}") from None
    if array.ndim == 2 and 1 in array.shape:
        array = array.ravel()
    if array.ndim != 1 or len(array) != n:
        raise InputError(f"teacher {name} gives an array of shape {array.shape} for {n} rows; {_HINT}")
    _finite(array, f"the score of teacher {name}")
    if survival and array.min() >= 0 and array.max() <= 1:
        raise InputError(f"teacher {name} gives survival probabilities (all are between 0 and 1); {_HINT}")
    return array


def _real(values: Any) -> FloatArray:
    """Numbers as float64; dates and complex numbers, which numpy would turn into some, are none."""
    if np.asarray(values).dtype.kind in "mMc":
        raise TypeError(f"they are {np.asarray(values).dtype}")
    return np.asarray(values, dtype=np.float64)


def _finite(scores: FloatArray, name: str) -> FloatArray:
    bad = ~np.isfinite(scores) | (np.abs(scores) > 1e100)
    if bad.any():
        rows = bad if bad.ndim == 1 else bad.any(axis=1)
        raise InputError(
            f"{name} is missing (NaN), infinite or beyond 1e100 in {int(rows.sum())} of {len(rows)} rows, the first is "
            f"row {int(np.argmax(rows))}"
        )
    return scores


def warn_constant(scores: FloatArray) -> None:
    """Warn where a teacher tells no rows apart."""
    for j in np.flatnonzero(np.ptp(scores, axis=0) == 0) if len(scores) else ():
        which = f"number {j + 1} " if scores.shape[1] > 1 else ""
        warnings.warn(
            f"the score of teacher {which}is the same in every row: it pulls towards no effect at all",
            UserWarning,
            stacklevel=2,
        )


def _name(teacher: Any) -> str:
    if isinstance(teacher, Mapping | pd.Series):
        return "(coefficients)"
    return str(getattr(teacher, "__name__", type(teacher).__name__))


def _some(names: Any, most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
