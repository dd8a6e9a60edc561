"""What ``fit`` and ``predict`` are given: which columns are privileged, which rows have W, and what is refused."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import assert_all_finite, check_array

from assay.errors import InputError
from assay.parts.supervision import aligned

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

Table = Any
"""A float array (n, d), or a DataFrame where an estimator of the user's takes one."""


@dataclass(frozen=True)
class Training:
    """The rows that count: those with a label, and those without one that have W.

    Attributes
    ----------
    X, Z
        (n, p) the inputs, and (n, q) the inputs with the privileged columns behind them.
    y
        (n, k) targets; 0 where there is none.
    weight
        (n,) positive.
    label_weight
        (n,) what a label of the row weighs: ``weight`` times that of its class.
    labelled, has_w
        (n,) which rows have a label, and which have W.
    rows
        (n,) where they stood in what ``fit`` was given.
    """

    X: Table
    Z: Table
    y: FloatArray
    weight: FloatArray
    label_weight: FloatArray
    labelled: BoolArray
    has_w: BoolArray
    rows: IntArray


def column_numbers(privileged: Any, X: Any) -> IntArray:
    """The positions of the columns of ``X`` that ``privileged`` names, ascending.

    Parameters
    ----------
    privileged
        Names, positions (from the end where negative), truth values, a slice, or a function of ``X`` that returns one.
    X
        The table, (n, d).

    Raises
    ------
    InputError
        When a column is not there, or none is named.
    """
    chosen = _called(privileged, X) if callable(privileged) else privileged
    names = [str(c) for c in X.columns] if hasattr(X, "columns") else None
    d = X.shape[1]
    if isinstance(chosen, slice):
        if any(isinstance(end, str) for end in (chosen.start, chosen.stop)):
            raise InputError("privileged must name its columns one by one; a slice of names is not understood")
        chosen = list(range(d))[chosen]
    if isinstance(chosen, str | int | np.integer) and not isinstance(chosen, bool):
        chosen = [chosen]
    if not isinstance(chosen, list | tuple | np.ndarray | pd.Index | pd.Series):
        raise InputError(f"privileged must be names or positions of columns, or a function of X, got {privileged!r}")
    chosen = list(chosen)
    if chosen and all(isinstance(c, bool | np.bool_) for c in chosen):
        if len(chosen) != d:
            raise InputError(f"privileged has {len(chosen)} truth values, and X has {d} columns")
        chosen = list(np.flatnonzero(chosen))
    found = {_number(c, names, d) for c in chosen}
    if not found:
        raise InputError("privileged names no column; give at least one, or pass W")
    return np.array(sorted(found), dtype=np.int64)


def _called(function: Any, X: Any) -> Any:
    try:
        return function(X)
    except Exception as error:  # it is the user's
        raise InputError(
            f"privileged, called on X ({type(X).__name__}), raised {type(error).__name__}: {error}"
        ) from error


def _number(column: Any, names: list[str] | None, d: int) -> int:
    if isinstance(column, str):
        if names is None:
            raise InputError(f"privileged names the column {column!r}, but X has no column names; give positions")
        if column not in names:
            near = difflib.get_close_matches(column, names, n=3)
            like = f"; near it are {', '.join(map(repr, near))}" if near else ""
            raise InputError(f"privileged names the column {column!r}, which X does not have{like}")
        return names.index(column)
    if isinstance(column, int | np.integer) and not isinstance(column, bool):
        if not -d <= column < d:
            raise InputError(f"privileged names the column {column}, and X has {d} columns")
        return int(column) % d
    raise InputError(f"privileged must hold names or positions of columns, got {column!r}")


def completed(X: Any, names: NDArray[Any] | None, privileged: IntArray, n_features: int) -> Any:
    """``X`` with the columns that it had in ``fit``; the privileged ones are empty, whether they were there or not."""
    if isinstance(X, pd.DataFrame) and names is not None:
        if len(privileged):
            X = X.copy(deep=False)
        for i in privileged:
            if names[i] in X.columns:
                X[names[i]] = np.nan
            else:
                X.insert(min(i, X.shape[1]), names[i], np.nan)
        return X
    # One row of numbers, a list of lists and the like are for scikit-learn to judge.
    if len(privileged) and getattr(X, "ndim", 0) == 2 and X.shape[1] == n_features - len(privileged):
        if isinstance(X, pd.DataFrame):
            X = X.to_numpy()
        if isinstance(X, np.ndarray):
            kept = np.setdiff1d(np.arange(n_features), privileged)
            full = np.zeros((len(X), n_features), dtype=X.dtype)
            full[:, kept] = X
            return full
    return X


def refuse_doubles(X: pd.DataFrame, name: str) -> None:
    """Refuse a frame with columns that share a name."""
    if not X.columns.is_unique:
        raise InputError(f"{name} has two columns of the name {X.columns[X.columns.duplicated()][0]!r}")


def refuse_complex(X: Any, name: str) -> None:
    """Refuse complex numbers."""
    if getattr(getattr(X, "dtype", None), "kind", "") == "c":
        raise InputError(f"{name} has complex numbers. Complex data not supported")


def refuse_words(X: Any, name: str) -> None:
    """Refuse what is not numbers: of a frame, the message names the columns; also those that share a name."""
    if not isinstance(X, pd.DataFrame):
        refuse_complex(X, name)
        if getattr(getattr(X, "dtype", None), "kind", "") in ("O", "U", "S", "T") or isinstance(X, list | tuple):
            _refuse_texts(X, name)
        return
    refuse_doubles(X, name)
    types = pd.api.types
    words = [
        c
        for c, dtype in zip(X.columns, X.dtypes, strict=True)
        if not types.is_numeric_dtype(dtype) or types.is_complex_dtype(dtype)
    ]
    if words:
        shown = ", ".join(map(repr, words[:5])) + (f" and {len(words) - 5} more" if len(words) > 5 else "")
        raise InputError(
            f"{name} has columns that are not numbers: {shown}; encode them first, e.g. with a ColumnTransformer and a "
            "OneHotEncoder in a Pipeline, or pass an estimator that takes them"
        )


def _refuse_texts(X: Any, name: str) -> None:
    try:
        np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        text = re.search(r"could not convert string to float: (.*)", str(error))
        if text:
            raise InputError(f"{name} must be numbers, and holds {text[1][:60]}; encode words first") from None
        # Ragged lists, arrays of objects and the like are for scikit-learn to judge.


def privileged_table(W: Any, X: Any, name: str = "W", frame: bool = False) -> Table:
    """W as a float array (n, k), NaN allowed, or as it is where ``frame``; a single column may have one dimension."""
    W = aligned(name, W, X)
    if not isinstance(W, pd.DataFrame) and W.ndim == 1:
        W = W[:, None]
    if W.shape[1] == 0:
        raise InputError(f"{name} has no columns")
    if frame and isinstance(W, pd.DataFrame):
        refuse_doubles(W, name)
        return W
    refuse_words(W, name)
    array = check_array(W, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0, input_name=name)
    if np.isinf(array).any():
        raise InputError(f"{name} must be finite, or NaN in whole rows, and has infinity in it")
    return array


def rows_with_w(W: Table, allow_nan: bool, names: Sequence[Any]) -> BoolArray:
    """Which rows have W at all; a row of which only a part is there is refused, unless ``allow_nan``."""
    missing = W.isna().to_numpy() if isinstance(W, pd.DataFrame) else np.isnan(W)
    whole = missing.all(axis=1)
    partly = missing & ~whole[:, None]
    if partly.any() and not allow_nan:
        columns = [str(names[j]) for j in np.flatnonzero(partly.any(axis=0))]
        shown = ", ".join(columns[:5]) + (f" and {len(columns) - 5} more" if len(columns) > 5 else "")
        raise InputError(
            f"W is missing in part in {int(partly.any(axis=1).sum())} rows, in the columns {shown}: impute, or pass "
            "whole rows as missing"
        )
    return ~whole


def beside(X: Table, W: Table) -> Table:
    """Z: the inputs with the privileged columns behind them."""
    if isinstance(X, pd.DataFrame) or isinstance(W, pd.DataFrame):
        X = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        W = W if isinstance(W, pd.DataFrame) else pd.DataFrame(W, columns=[f"w{j}" for j in range(W.shape[1])])
        both = [str(c) for c in W.columns if c in set(X.columns)]
        if both:
            raise InputError(f"W and X both have the column {both[0]!r}; give it another name in one of them")
        Z = pd.concat([X.reset_index(drop=True), W.reset_index(drop=True)], axis=1)
        if len({isinstance(c, str) for c in Z.columns}) == 2:  # scikit-learn takes names of one kind only
            Z.columns = [str(c) for c in Z.columns]
            refuse_doubles(Z, "X beside W")
        return Z
    return np.hstack([X, W])


def take(table: Table, rows: Any) -> Table:
    """Rows of an array or a frame, by position or truth values."""
    return table.iloc[rows] if isinstance(table, pd.DataFrame) else table[rows]


def finite(X: Table, estimator: Any, allow_nan: bool) -> None:
    """Refuse NaN, unless the estimators take it, and infinity, as scikit-learn does."""
    if isinstance(X, np.ndarray):
        assert_all_finite(X, allow_nan=allow_nan, estimator_name=type(estimator).__name__, input_name="X")


def say_what_is_left_out(labelled: BoolArray, has_w: BoolArray) -> None:
    """Warn of unlabelled rows without W, and of there being no unlabelled rows."""
    useless = int((~labelled & ~has_w).sum())
    if useless:
        warnings.warn(
            f"{useless} unlabelled rows have no W; nothing can be learned from them, and they are left out",
            UserWarning,
            stacklevel=4,
        )
    if labelled.all() or not (has_w & ~labelled).any():
        warnings.warn(
            "there are no unlabelled rows with W: W cannot help, and every lam gives the model of the labelled rows",
            UserWarning,
            stacklevel=4,
        )


def refuse_no_labels(labelled: BoolArray, what: str) -> None:
    """Refuse targets without a label in a row that has a weight."""
    if not labelled.any():
        raise InputError(f"{what} that has a weight: at least one label is needed")
