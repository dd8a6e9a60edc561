"""Defaults of the estimators, and what their parameters may be."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from assay.errors import InputError

from .alternating import checked

LAMS = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0, math.inf)
LAMS_OF_ESTIMATORS = (0.0, 0.3, 3.0, 30.0, math.inf)
ATOMS = (1, 2, 3, 5, 8, 12, 20, 30)

WIDEST = 4000
"""The direct solver holds a square matrix of this many columns, or rows where those are fewer."""

TURNS, TURNS_OF_ESTIMATORS = 1000, 10
"""Trees that are fitted to one another for long copy each other."""

LIGHTEST = 1e-3
"""Of an average of estimators, members that weigh less than this share of the heaviest are not fitted."""


def check(model: Any, classifier: bool) -> None:
    """Refuse parameters of a model that are out of range, by name."""
    if isinstance(model.lam, str):
        if model.lam not in ("aggregate", "cv"):
            raise InputError(f"lam must be 'aggregate', 'cv' or a number from 0 to inf, got {model.lam!r}")
    elif not is_real(model.lam) or not model.lam >= 0:
        raise InputError(f"lam must be 'aggregate', 'cv' or a number from 0 to inf, got {model.lam!r}")
    _numbers("lams", candidates(model), math.inf)
    _numbers("alphas", model.alphas, sys.float_info.max)
    solvers = ["auto", "direct", "alternating", *([] if classifier else ["greedy"])]
    if model.solver not in solvers:
        raise InputError(f"solver must be one of {', '.join(map(repr, solvers))}, got {model.solver!r}")
    if model.estimator is not None and model.solver not in ("auto", "alternating"):
        raise InputError(f"solver={model.solver!r} is for the linear model; with an estimator it is 'alternating'")
    if model.estimator is None and model.privileged_estimator is not None:
        raise InputError("privileged_estimator is given and estimator is not; give both")
    if classifier and model.estimator is None and model.solver == "alternating":
        raise InputError("solver='alternating' needs an estimator: the linear classifier has 'direct' only")
    if model.max_iter is not None and (not is_integer(model.max_iter) or model.max_iter < 1):
        raise InputError(f"max_iter must be None or a whole number of at least 1, got {model.max_iter!r}")
    if not is_real(model.tol) or not 0 <= model.tol < math.inf:
        raise InputError(f"tol must be a number from 0 on, got {model.tol!r}")
    sizes = [model.n_atoms] if is_integer(model.n_atoms) else model.n_atoms
    if sizes is not None and (
        isinstance(sizes, str)
        or not hasattr(sizes, "__len__")
        or len(sizes) == 0
        or any(not is_integer(size) or size < 1 for size in sizes)
    ):
        raise InputError(f"n_atoms must be None, a whole number of at least 1 or a list of such, got {model.n_atoms!r}")
    if is_integer(model.cv) and model.cv < 2:
        raise InputError(f"cv must be at least 2 folds or a splitter, got {model.cv!r}")
    if not isinstance(model.standardize, bool | np.bool_):
        raise InputError(f"standardize must be True or False, got {model.standardize!r}")
    try:
        check_random_state(model.random_state)
    except ValueError:
        what = "None, a whole number from 0 to 2**32 - 1 or a RandomState"
        raise InputError(f"random_state must be {what}, got {model.random_state!r}") from None
    for name in ("estimator", "privileged_estimator"):
        if getattr(model, name) is not None:
            checked(name, getattr(model, name), classifier)


def candidates(model: Any) -> Sequence[float]:
    """The candidates for lam."""
    if model.lams is None:
        return LAMS if model.estimator is None else LAMS_OF_ESTIMATORS
    return model.lams


def _numbers(name: str, values: Any, most: float) -> None:
    if isinstance(values, str) or not hasattr(values, "__len__") or len(values) == 0:
        raise InputError(f"{name} must be a list of numbers, got {values!r}")
    for value in values:
        if not is_real(value) or not 0 <= value <= most:
            raise InputError(f"{name} must be numbers from 0 {'to inf' if most == math.inf else 'on'}, got {value!r}")


def is_integer(value: Any) -> bool:
    """Whether a parameter is a whole number; a truth value is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether a parameter is a number; a truth value is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
