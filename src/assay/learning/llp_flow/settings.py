"""The classifier's parameters, checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from assay.errors import InputError

from .fitting import Plan
from .proportions import Bags

if TYPE_CHECKING:
    from .estimator import LLPFlowClassifier

LEAST_BAGS_TO_HOLD_OUT = 8


def checked_plan(clf: LLPFlowClassifier) -> Plan:
    """The plan of training, or an ``InputError`` that names the parameter."""
    widths(clf.hidden)
    whole("head_hidden", clf.head_hidden, 0)
    if clf.encoder is not None and not isinstance(clf.encoder, nn.Module):
        raise InputError(f"encoder must be a torch module or None, got {type(clf.encoder).__name__}")
    if clf.space not in ("features", "input"):
        raise InputError(f"space must be 'features' or 'input', got {clf.space!r}")
    if clf.anchor_start not in ("predicted", "noise"):
        raise InputError(f"anchor_start must be 'predicted' or 'noise', got {clf.anchor_start!r}")
    epochs = clf.epochs
    if not isinstance(epochs, tuple | list) or len(epochs) != 2:
        raise InputError(f"epochs must be two whole numbers, of the warm start and of each round, got {epochs!r}")
    return Plan(
        anchors_per_class=whole("anchors_per_class", clf.anchors_per_class, 1),
        outer=whole("outer", clf.outer, 0),
        epochs=(whole("epochs[0]", epochs[0], 0), whole("epochs[1]", epochs[1], 0)),
        flow_steps=whole("flow_steps", clf.flow_steps, 0),
        flow_lr=number("flow_lr", clf.flow_lr, positive=True),
        lam_bag=number("lam_bag", clf.lam_bag),
        lam_anchor=number("lam_anchor", clf.lam_anchor),
        class_term=number("class_term", clf.class_term),
        label_cost=number("label_cost", clf.label_cost),
        anchor_start=clf.anchor_start,
        space=clf.space,
        lr=number("lr", clf.lr, positive=True),
        max_rows_per_bag=whole("max_rows_per_bag", clf.max_rows_per_bag, 1),
        verbose=bool(clf.verbose),
    )


def checked_share(share: Any, bags: int) -> float:
    """The share of bags to hold out: 0 where there are too few, with a warning."""
    if number("validation_bags", share) >= 1:
        raise InputError(f"validation_bags must be below 1, got {share}")
    if share > 0 and bags < LEAST_BAGS_TO_HOLD_OUT:
        warnings.warn(
            f"validation_bags={share:g} is ignored: there are {bags} bags, fewer than {LEAST_BAGS_TO_HOLD_OUT}",
            stacklevel=3,
        )
        return 0.0
    return float(share)


def class_weights(given: Any, own: Bags) -> NDArray[np.float64] | None:
    """(K,) factors of the classes."""
    if given is None:
        return None
    if isinstance(given, str) and given == "balanced":
        mean = own.proportions.mean(axis=0)
        there = mean > 0
        return np.where(there, 1 / np.where(there, mean, 1.0) / there.sum(), 0.0)
    if not isinstance(given, Mapping):
        raise InputError(f"class_weight must be None, 'balanced' or a dict of class to weight, got {given!r}")
    classes = own.classes.tolist()
    unknown = [key for key in given if key not in classes]
    if unknown:
        raise InputError(f"class_weight names the class {unknown[0]!r}; the classes are {classes!r}")
    factors = np.array([number(f"class_weight[{c!r}]", given.get(c, 1.0)) for c in classes])
    if not factors[own.proportions.max(axis=0) > 0].any():
        raise InputError("class_weight must be positive for some class that a bag has")
    return factors


def seed(random_state: Any) -> int | None:
    """A seed from whatever scikit-learn takes as one, or a NumPy generator."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    return whole("random_state", random_state, 0)


def plain(clf: LLPFlowClassifier) -> dict[str, Any]:
    """The parameters that a file holds: all but what belongs to a machine or has no plain form."""
    left = {"encoder", "device", "random_state", "classes", "class_weight", "verbose"}
    return {name: value for name, value in clf.get_params(deep=False).items() if name not in left}


def widths(hidden: Any) -> None:
    """Refuse what are no widths of layers."""
    if not isinstance(hidden, tuple | list) or not hidden:
        raise InputError(f"hidden must be a tuple of at least one width, got {hidden!r}")
    for width in hidden:
        whole("hidden", width, 1)


def whole(name: str, value: Any, least: int) -> int:
    """A whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def number(name: str, value: Any, positive: bool = False) -> float:
    """A finite number, not negative."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value < 0:
        raise InputError(f"{name} must be a finite number, not negative, got {value!r}")
    if positive and value == 0:
        raise InputError(f"{name} must be positive, got {value!r}")
    return float(value)
