"""What the estimator's parameters must be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import InputError, one_line


def positive(value: Any, name: str, at_most: float = math.inf) -> float:
    """A positive finite number; ``TypeError`` where it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not (0 < value <= at_most and math.isfinite(value)):
        bound = f" and at most {at_most:g}" if math.isfinite(at_most) else ""
        raise InputError(f"{name} must be positive{bound}, got {value}")
    return float(value)


def whole(value: Any, name: str, at_least: int) -> int:
    """A whole number; ``TypeError`` where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < at_least:
        raise InputError(f"{name} must be at least {at_least}, got {value}")
    return int(value)


def one_of(value: Any, name: str, among: tuple[str, ...]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in among:
        raise InputError(f"{name} must be {' or '.join(map(repr, among))}, got {value!r}")
    return str(value)


def yes_or_no(value: Any, name: str) -> bool:
    """True or False; ``TypeError`` for what is merely true or false, as the word "no" is true."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def numbers(value: Any, name: str) -> npt.NDArray[np.float64]:
    """An array of real numbers, NaN and infinity among them; a copy where the kind is another than float64.

    Words, dates and complex numbers are refused: numpy would make numbers of them.
    """
    if hasattr(value, "toarray"):
        raise InputError(f"{name} must be a dense array of numbers, not a {type(value).__name__}; see its toarray()")
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            return array.astype(np.float64, copy=False)
        if array.dtype.kind == "O" and not any(
            isinstance(one, str | bytes | complex | np.complexfloating) for one in array.ravel()
        ):
            return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {one_line(error)}") from None
    raise InputError(f"{name} must be an array of numbers, and holds {_kind(array)}")


def _kind(array: npt.NDArray[Any]) -> str:
    if array.dtype.kind in "OSUT":
        return "words"
    return "dates" if array.dtype.kind in "mM" else f"{array.dtype}"


def bounds(value: Any) -> tuple[float, float]:
    """Two positive numbers, the first the smaller."""
    try:
        low, high = value
    except (TypeError, ValueError):
        raise InputError(f"root_bounds must be two numbers (least, largest), got {value!r}") from None
    low, high = positive(low, "root_bounds[0]"), positive(high, "root_bounds[1]")
    if low >= high:
        raise InputError(f"root_bounds must be (least, largest) with least < largest, got {value!r}")
    return low, high


def generator(random_state: Any, name: str = "random_state") -> np.random.Generator:
    """A generator from a seed, a generator or None."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if isinstance(random_state, bool) or not (
        random_state is None or isinstance(random_state, int | np.integer | np.random.Generator)
    ):
        raise TypeError(f"{name} must be a whole number, a numpy generator or None, not {random_state!r}")
    if isinstance(random_state, int | np.integer) and random_state < 0:
        raise InputError(f"{name} must not be negative, got {random_state}")
    return np.random.default_rng(random_state)
