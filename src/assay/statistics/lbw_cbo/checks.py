"""What the estimator's parameters must be."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assay.errors import InputError


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
    if value not in among:
        raise InputError(f"{name} must be {' or '.join(map(repr, among))}, got {value!r}")
    return str(value)


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


def generator(random_state: Any) -> np.random.Generator:
    """A generator from a seed, a generator or None."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if isinstance(random_state, bool) or not (
        random_state is None or isinstance(random_state, int | np.integer | np.random.Generator)
    ):
        raise TypeError(f"random_state must be a whole number, a numpy generator or None, not {random_state!r}")
    if isinstance(random_state, int | np.integer) and random_state < 0:
        raise InputError(f"random_state must not be negative, got {random_state}")
    return np.random.default_rng(random_state)
