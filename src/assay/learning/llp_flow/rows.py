"""The rows that a user gives: checked, as numbers that torch takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from assay.errors import InputError, one_line


def as_rows(X: Any, bags: Any, *, any_shape: bool) -> NDArray[Any]:
    """Rows as float64 (n, d), or where any shape will do as float32 (n, …).

    ``bags`` names the bag of a row that has NaN or infinity; None names the row only.
    """
    if sparse.issparse(X):
        raise TypeError("X is sparse, and must be dense: X.toarray()")
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    if isinstance(X, str | bytes | dict | set) or X is None:
        raise TypeError(f"X must be an array or a DataFrame of numbers, not {type(X).__name__}")
    try:
        if isinstance(X, np.ma.MaskedArray):
            X = X.astype(np.float64).filled(np.nan)
        if isinstance(X, pd.DataFrame):
            _refuse_dates(X)
            rows = np.array(X.to_numpy(dtype=np.float64, na_value=np.nan), order="C")
        else:
            rows = np.asarray(X)
            if rows.dtype.kind == "c":
                raise InputError("X must be real numbers, and is complex")
            if rows.dtype.kind in "mM":
                raise InputError(f"X must be numbers, and is {rows.dtype}: turn times into numbers first")
            rows = np.array(rows, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"X must be numbers; encode words first ({one_line(error, 120)})") from None
    if any_shape:
        if rows.ndim < 2 or 0 in rows.shape:
            raise InputError(f"X must be (n, …) with n ≥ 1, got shape {rows.shape}")
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
    elif rows.ndim != 2 or 0 in rows.shape:
        raise InputError(f"X must be (n, d) with n ≥ 1 and d ≥ 1, got shape {rows.shape}")
    good = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    if not good.all():
        at = int(np.argmin(good))
        where = f"row {at}"
        if bags is not None and np.ndim(bags) == 1 and len(bags) == len(rows):
            where += f", of bag {shown(np.asarray(bags)[at])}"
        raise InputError(f"X must be finite, and {int((~good).sum())} row(s) have NaN or infinity, the first {where}")
    return rows


def shown(one: Any) -> str:
    """A bag's id for a message."""
    return repr(one.item() if isinstance(one, np.generic) else one)


def _refuse_dates(X: pd.DataFrame) -> None:
    """Dates would become nanoseconds without a word."""
    for name, kind in zip(X.columns, X.dtypes, strict=True):
        if getattr(kind, "kind", "O") in "mM":
            raise InputError(f"X must be numbers, and the column {name!r} is {kind}: turn times into numbers first")


def note_names(estimator: Any, X: Any, rows: NDArray[Any]) -> None:
    """Keep how many columns there are, and their names where all are words."""
    estimator.n_features_in_ = rows.shape[1]
    names = list(X.columns) if isinstance(X, pd.DataFrame) else []
    if names and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = np.asarray(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_width(estimator: Any, X: Any, rows: NDArray[Any]) -> None:
    """Refuse rows with other columns than those of the fit."""
    if rows.shape[1] != estimator.n_features_in_:
        raise InputError(f"X has {rows.shape[1]} columns, and {estimator.n_features_in_} were fitted")
    if isinstance(X, pd.DataFrame) and hasattr(estimator, "feature_names_in_"):
        for column, fitted in zip(X.columns, estimator.feature_names_in_, strict=True):
            if column != fitted:
                raise InputError(f"X has the column {column!r} where {fitted!r} was fitted; bring them into that order")
