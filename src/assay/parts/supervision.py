"""What comes beside a design matrix: targets with gaps in them, and side data of the same rows."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.errors import InputError, one_line

BoolArray = npt.NDArray[np.bool_]
Task = Literal["classification", "regression"]


def unlabelled(y: Any, *, task: Task) -> BoolArray:
    """Which rows have no label.

    Parameters
    ----------
    y
        (n,) targets: an array, a list or a Series.
    task
        ``"regression"``: NaN, None and ``pandas.NA`` are missing. ``"classification"``: so they are, and ``-1`` where
        the labels are integers (also as categories, as objects or with a mask). Floats use NaN: there ``-1.0`` is a
        class. Booleans and words have no number that means missing.

    Returns
    -------
    ndarray
        (n,) bool.

    Raises
    ------
    InputError
        When y is not one-dimensional, or in a regression not numbers, or infinite.
    ValueError
        For another task.

    Examples
    --------
    >>> unlabelled([0, 1, -1], task="classification")
    array([False, False,  True])
    >>> unlabelled(["a", None, "b"], task="classification")
    array([False,  True, False])
    >>> unlabelled([0.5, float("nan"), -1.0], task="regression")
    array([False,  True, False])
    """
    if task not in ("classification", "regression"):
        raise ValueError(f"task must be 'classification' or 'regression', not {task!r}")
    values = _column("y", y)
    if task == "regression":
        numbers = as_numbers("y", values)
        if np.isinf(numbers).any():
            raise InputError(
                f"y must be finite, or NaN where it is missing; {int(np.isinf(numbers).sum())} are infinite"
            )
        return np.isnan(numbers)
    if values.dtype.kind in "iu":
        return np.asarray(values == -1) if values.dtype.kind == "i" else np.zeros(len(values), dtype=bool)
    missing = np.asarray(pd.isna(values), dtype=bool)
    if values.dtype.kind == "O" and all(_whole(value) for value in values[~missing]):
        missing[~missing] = [value == -1 for value in values[~missing]]
    return missing


def as_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    """A column as float64, with NaN for whatever says that a value is missing.

    Raises
    ------
    InputError
        When it is not one-dimensional, or holds anything but real numbers; the message gives an example.
    """
    column = _column(name, values)
    if column.dtype.kind in "fiub":
        return column.astype(np.float64)
    if column.dtype.kind == "O":
        missing = np.asarray(pd.isna(column), dtype=bool)
        bad = [value for value in column[~missing] if not _real(value)]
        if not bad:
            numbers = np.full(len(column), np.nan)
            numbers[~missing] = [float(value) for value in column[~missing]]
            return numbers
        raise InputError(f"{name} must be numbers, and holds {one_line(repr(bad[0]), 60)}")
    raise InputError(f"{name} must be numbers, and is of the type {column.dtype}")


@overload
def aligned(name: str, side: pd.DataFrame, X: Any) -> pd.DataFrame: ...
@overload
def aligned(name: str, side: Any, X: Any) -> npt.NDArray[Any]: ...
def aligned(name: str, side: Any, X: Any) -> Any:
    """Side data that belongs to the rows of X by position: the first of it to the first row.

    Parameters
    ----------
    name
        What the side data is called, for the errors.
    side
        An array, a list, a Series or a frame with one or two dimensions and as many rows as X.
    X
        (n, …) the rows.

    Returns
    -------
    ndarray or DataFrame
        (n,) or (n, k); a frame stays the frame it is.

    Raises
    ------
    InputError
        When it has another number of rows, no such shape, or X and it are pandas objects with different indexes: then
        it might be meant by index, and nobody can know.
    TypeError
        When it is no table, column or list at all.

    Examples
    --------
    >>> aligned("groups", ["a", "b"], np.zeros((2, 3)))
    array(['a', 'b'], dtype='<U1')
    """
    rows = len(X) if not hasattr(X, "shape") else X.shape[0]
    pandas = (pd.DataFrame, pd.Series)
    if isinstance(side, pd.DataFrame):
        array: Any = side
    else:
        array = _array(name, side)
        if array.ndim not in (1, 2):
            raise InputError(f"{name} must have one or two dimensions, not the shape {array.shape}")
    if len(array) != rows:
        raise InputError(f"{name} must have as many rows as X, {rows}; it has {len(array)}")
    if isinstance(side, pandas) and isinstance(X, pandas) and not X.index.equals(side.index):
        raise InputError(
            f"{name} and X have different indexes, and {name} is taken by position: bring it into the order of X with "
            f"{name}.loc[X.index], or drop both indexes with reset_index(drop=True)"
        )
    return array


def _array(name: str, values: Any) -> npt.NDArray[Any]:
    if hasattr(values, "toarray"):
        raise TypeError(f"{name} is sparse; give it dense, with toarray()")
    if values is None or isinstance(values, str | bytes | dict | set) or not hasattr(values, "__len__"):
        raise TypeError(f"{name} must be an array, a list, a Series or a frame, not {type(values).__name__}")
    if isinstance(values, pd.Series | pd.Index):
        if isinstance(values.dtype, pd.api.extensions.ExtensionDtype) and values.hasnans and values.dtype.kind != "f":
            return values.to_numpy(dtype=object)  # integers with gaps would become floats
        return values.to_numpy()
    if isinstance(values, list | tuple):
        words = sum(isinstance(value, str) for value in values)
        # NumPy would make the text "nan" of a NaN among words.
        if 0 < words < len(values) or any(value is None or value is pd.NA for value in values):
            return np.array([*values, None], dtype=object)[:-1]
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must have rows of the same length: {one_line(error, 120)}") from None


def _column(name: str, values: Any) -> npt.NDArray[Any]:
    array = _array(name, values)
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, not the shape {array.shape}")
    return array


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, np.complexfloating)
