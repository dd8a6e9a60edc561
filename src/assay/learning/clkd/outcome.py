"""Reading outcomes and labels of rows: event and time, cases, sets, weights. What cannot be used is named."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def split_outcome(y: Any, *, need_time: bool = True) -> tuple[BoolArray, FloatArray | None]:
    """Event (n,) and time (n,) of an outcome in any of its forms.

    Parameters
    ----------
    y
        A structured array with one bool field (event) and one of numbers (time), as scikit-survival has it; a frame
        with the columns ``event`` and ``time``, or two others in that order; an array (n, 2) in that order; a pair
        ``(event, time)`` of arrays. Without ``need_time`` also a vector (n,) of 0 and 1.
    need_time
        Whether a time must be there.
    """
    if y is None:
        raise InputError("y is needed: event and time of each row (requires y to be passed, but the target y is None)")
    if isinstance(y, pd.DataFrame):
        event, time = _of_frame(y)
    elif isinstance(y, tuple) and len(y) == 2:
        event, time = y
    else:
        array = _array(y, "y")
        if array.dtype.names is not None:
            event, time = _of_fields(array)
        elif array.ndim == 2 and array.shape[1] == 2:
            event, time = array[:, 0], array[:, 1]
        elif not need_time and (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)):
            return read_case(array.ravel(), "y"), None
        else:
            what = "event and time" if need_time else "cases (0 or 1), or event and time"
            raise InputError(
                f"y must hold {what}: a structured array, a frame with the columns event and time, or a pair "
                f"(event, time); got shape {array.shape} of dtype {array.dtype}"
            )
    return read_event_time(event, time) if need_time else (read_case(event, "y"), read_time(time))


def _of_frame(y: pd.DataFrame) -> tuple[Any, Any]:
    names = [str(name).lower() for name in y.columns]
    if set(names) == {"event", "time"}:
        return y.iloc[:, names.index("event")], y.iloc[:, names.index("time")]
    if len(names) != 2:
        raise InputError(f"y must have the columns event and time, got {', '.join(map(repr, y.columns)) or 'none'}")
    return y.iloc[:, 0], y.iloc[:, 1]


def _of_fields(y: NDArray[Any]) -> tuple[Any, Any]:
    names = y.dtype.names or ()
    truth = [name for name in names if y.dtype[name] == np.bool_]
    if len(names) != 2 or len(truth) != 1:
        raise InputError(f"y must have two fields, of which one is bool (the event), got {y.dtype}")
    (other,) = (name for name in names if name != truth[0])
    return y[truth[0]].ravel(), y[other].ravel()


def read_event_time(event: Any, time: Any) -> tuple[BoolArray, FloatArray]:
    """Event and time as arrays (n,), checked; at least one event."""
    event, time = read_case(event, "event"), read_time(time)
    if len(event) != len(time):
        raise InputError(f"event has {len(event)} rows and time {len(time)}; they must agree")
    if not event.any():
        raise InputError("y has no event: all rows are censored, so there is nothing to learn from")
    return event, time


def read_time(time: Any) -> FloatArray:
    """Positive times (n,)."""
    array = _vector(time, "time")
    if array.dtype.kind in "mM":
        raise InputError(f"time must be numbers, got {array.dtype}: divide by a unit, e.g. np.timedelta64(1, 'D')")
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"time must be numbers: {error}") from None
    bad = ~(np.isfinite(array) & (array > 0))
    if bad.any():
        raise InputError(
            f"time must be positive and finite, and {int(bad.sum())} of {len(array)} are not, the first is "
            f"{array[bad][0]:g} in row {int(np.argmax(bad))}"
        )
    return array


def read_case(values: Any, name: str) -> BoolArray:
    """Truth values (n,) from bool or 0/1."""
    array = _vector(values, name)
    if array.dtype == np.bool_:
        return array
    try:
        number = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be true or false (or 1 and 0) in each row: {error}") from None
    bad = ~np.isin(number, (0.0, 1.0))
    if bad.any():
        # scikit-learn's own checks look for its words on what kind of target this is.
        raise InputError(
            f"{name} must be true or false (or 1 and 0) in each row, and {int(bad.sum())} of {len(number)} are not: "
            f"the first is {array[bad][0]!r}. Unknown label type: continuous"
        )
    return number == 1


def codes(labels: Any, n: int, name: str, *, ordered: bool = False) -> NDArray[np.int64]:
    """Labels (n,) of any kind as numbers from 0; None is one label for all.

    In order of appearance, or (``ordered``) of the labels, so that the order of the rows does not matter.
    """
    if labels is None:
        return np.zeros(n, dtype=np.int64)
    array = _vector(labels, name)
    if len(array) != n:
        raise InputError(f"{name} has {len(array)} rows, and y has {n}")
    try:
        number, _ = pd.factorize(array, sort=ordered)
    except TypeError as error:
        raise InputError(f"{name} must be labels (numbers or text): {error}") from None
    if (number < 0).any():
        raise InputError(f"{name} is missing in {int((number < 0).sum())} of {n} rows")
    return number.astype(np.int64)


def read_weights(sample_weight: Any, n: int) -> FloatArray:
    """Weights (n,), none negative, not all zero."""
    if sample_weight is None:
        return np.ones(n)
    array = _array(sample_weight, "sample_weight")
    array = np.full(n, array) if array.ndim == 0 else _vector(sample_weight, "sample_weight")
    try:
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be numbers: {error}") from None
    if len(array) != n:
        raise InputError(f"sample_weight has {len(array)} rows, and X has {n}")
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        raise InputError(f"sample_weight must be finite and not negative, got {array[bad][0]:g}")
    if not (array > 0).any():
        raise InputError("sample_weight is zero in every row")
    array = np.where(array < 1e-12 * array.max(), 0.0, array)
    return array / array.max()  # a common factor changes nothing


def whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least ``least``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")


def number(name: str, value: Any, least: float, *, open_: bool = False, infinite: bool = False) -> None:
    """Refuse what is no number of at least (``open_``: above) ``least``; infinity only where it is allowed."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
    if real and (np.isfinite(value) or (infinite and value > 0)) and (value > least if open_ else value >= least):
        return
    what = "above" if open_ else "of at least"
    raise InputError(f"{name} must be a {'' if infinite else 'finite '}number {what} {least:g}, got {value!r}")


def _array(values: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array: {error}") from None


def _vector(values: Any, name: str) -> NDArray[Any]:
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.api.extensions.ExtensionDtype):
        if values.isna().any():
            raise InputError(f"{name} is missing in {int(values.isna().sum())} of {len(values)} rows")
        values = values.to_numpy()
    array = _array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array.ravel()
    if array.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {array.shape}")
    if array.dtype.kind == "c":
        raise InputError(f"{name} must be real, got {array.dtype}")
    return array
