"""Features as numbers; what cannot be used is named by its column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from assay.errors import InputError, one_line

FloatArray = NDArray[np.float64]

LARGEST = 1e100


def features(estimator: BaseEstimator, X: Any, *, reset: bool) -> FloatArray:
    """X as (n, p) float64, checked by scikit-learn's rules and against the columns of the fit."""
    if isinstance(X, pd.DataFrame):
        twice = list(X.columns[X.columns.duplicated()].unique())
        if twice:
            raise InputError(f"X has two columns named {twice[0]!r}")
        words = [name for name, column in X.items() if not _numeric(column)]
        if words:
            raise InputError(
                f"X: {_columns(words)} no numbers ({X[words[0]].dtype}); encode words first, e.g. pandas.get_dummies("
                "X, drop_first=True, dtype=float), and fill what is missing"
            )
        if any(isinstance(dtype, pd.api.extensions.ExtensionDtype) for dtype in X.dtypes):
            missing = X.isna().any()
            _refuse_missing(list(missing.index[missing]), int(X.isna().any(axis=1).sum()), len(X))
    try:
        array = validate_data(estimator, X, dtype=np.float64, ensure_all_finite=False, reset=reset)
    except ValueError as error:
        # These two would not name X, or would print all of it.
        if "could not convert" in str(error):
            raise InputError(f"X must be numbers: {one_line(error)}; encode words first") from None
        if "Complex data" in str(error):
            raise InputError("X must be real numbers. Complex data not supported") from None
        raise
    names = getattr(estimator, "feature_names_in_", range(array.shape[1]))
    bad = ~np.isfinite(array)
    if bad.any():
        at = np.flatnonzero(bad.any(axis=0))
        _refuse_missing([names[j] for j in at], int(bad.any(axis=1).sum()), len(array))
    large = np.abs(array).max(axis=0, initial=0) > LARGEST
    if large.any():
        raise InputError(f"X: {_columns([names[j] for j in np.flatnonzero(large)])} values beyond {LARGEST:g}")
    return array


def column_names(estimator: BaseEstimator, p: int) -> list[Any]:
    """The columns' names, or their numbers."""
    return list(getattr(estimator, "feature_names_in_", range(p)))


def scales(X: FloatArray, weight: FloatArray, standardize: bool) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Means (p,), standard deviations (p,) (1 without ``standardize``) and which columns vary, of weighted rows."""
    largest = np.abs(X).max(axis=0)
    unit = np.where(largest > 0, largest, 1.0)
    scaled = X / unit
    share = weight / weight.sum()
    mean = share @ scaled
    sd = np.sqrt(share @ (scaled - mean) ** 2)
    varies = (np.ptp(X, axis=0) > 1e-100) & (sd > 1e-14)
    return mean * unit, np.where(varies, sd * unit, 1.0) if standardize else np.ones(X.shape[1]), varies


def _numeric(column: pd.Series) -> bool:
    if column.dtype.kind == "O":
        column = column.infer_objects()
    kind = column.dtype
    return bool(pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind)) and kind.kind != "c"


def _refuse_missing(names: list[Any], rows: int, n: int) -> None:
    if names:
        raise InputError(
            f"X: {_columns(names)} missing (NaN) or infinite (inf) values, in {rows} of {n} rows; fill them in or drop "
            "those rows"
        )


def _columns(names: list[Any], most: int = 5) -> str:
    shown = ", ".join(repr(name.item() if isinstance(name, np.generic) else name) for name in names[:most])
    shown += f" and {len(names) - most} more" if len(names) > most else ""
    return f"the columns {shown} have" if len(names) > 1 else f"the column {shown} has"
