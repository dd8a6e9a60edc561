"""Accuracy of discovered classes: one matching over all rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from assay.errors import InputError


def gcd_accuracy(y_true: ArrayLike, y_pred: ArrayLike, known_classes: Iterable[Any]) -> dict[str, float]:
    """Accuracy on all rows, on those of known and of new classes, and the gap between the two.

    Predicted classes have no names of their own: they are matched to the true ones once, over all rows, so that most
    rows are right (Hungarian algorithm). A matching for each group apart would count a cluster twice.

    Parameters
    ----------
    y_true, y_pred
        (n,) true classes and predicted ones, any labels; their numbers may differ.
    known_classes
        The classes of ``y_true`` that had labels.

    Returns
    -------
    ``all``, ``known``, ``novel`` between 0 and 1 and ``gap`` = known − novel; NaN for a group without rows.

    Raises
    ------
    InputError
        If there are no rows, the lengths differ, a label is missing or ``known_classes`` is no list.

    Examples
    --------
    >>> gcd_accuracy([0, 0, 1, 1, 2, 2], [5, 5, 3, 3, 3, 4], known_classes=[0, 1])["gap"]
    0.5
    """
    try:
        true, pred = np.asarray(y_true), np.asarray(y_pred)
    except ValueError:
        raise InputError("y_true and y_pred must be (n,) labels, got lists of lists of other lengths") from None
    if true.ndim != 1 or true.shape != pred.shape or not len(true):
        raise InputError(f"y_true and y_pred must be (n,) and alike, got {true.shape} and {pred.shape}")
    for name, labels in (("y_true", true), ("y_pred", pred)):
        if pd.isna(labels).any():
            raise InputError(f"{name} must not have missing labels")
    if isinstance(known_classes, str | bytes) or not isinstance(known_classes, Iterable):
        raise InputError(f"known_classes must be a list of classes, got {known_classes!r}")
    at, classes = pd.factorize(true, sort=True)
    of, clusters = pd.factorize(pred, sort=True)
    right = matched(at, of, len(classes), len(clusters))
    had = pd.Index(list(known_classes))
    known = np.array([one in had for one in classes])[at]

    def share(rows: np.ndarray) -> float:
        return float(right[rows].mean()) if rows.any() else float("nan")

    found = {"all": float(right.mean()), "known": share(known), "novel": share(~known)}
    return {**found, "gap": found["known"] - found["novel"]}


def matched(classes: np.ndarray, clusters: np.ndarray, n_classes: int, n_clusters: int) -> np.ndarray:
    """(n,) whether a row's cluster is the one that its class is matched to; both are numbers from 0."""
    table = np.zeros((n_clusters, n_classes), dtype=np.int64)
    np.add.at(table, (clusters, classes), 1)
    rows, columns = linear_sum_assignment(table, maximize=True)
    class_of = np.full(n_clusters, -1)
    class_of[rows] = columns
    return class_of[clusters] == classes
