"""Labels with gaps: which rows have one, the known classes, and names for new ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError, one_line
from assay.parts.supervision import aligned, unlabelled


@dataclass(frozen=True)
class Labels:
    """Labels of n rows.

    Attributes
    ----------
    known
        (C,) the known classes in order: int64, or strings.
    codes
        (n,) place of each row's class in ``known``; −1 where the row has no label.
    """

    known: NDArray[Any]
    codes: NDArray[np.int64]

    def names(self, n_classes: int) -> NDArray[Any]:
        """(K,) names of all classes: the known ones, then new ones that none of them has."""
        new = n_classes - len(self.known)
        if self.known.dtype.kind == "i":
            after = int(self.known.max()) + 1
            return np.concatenate([self.known, np.arange(after, after + new)])
        names, taken, number = [], set(self.known.tolist()), 0
        while len(names) < new:
            if f"new-{number}" not in taken:
                names.append(f"new-{number}")
            number += 1
        return np.array([*self.known.tolist(), *names])


def read_labels(y: Any, X: Any) -> Labels:
    """Labels of the rows of X: strings, whole numbers or truth values (as 0 and 1); −1, None, NaN or NA where unknown.

    Raises
    ------
    InputError
        If there is no label, the length is another, or the labels are numbers that are no classes or of mixed types.
    """
    column = aligned("y", y, X)
    if getattr(column, "ndim", 0) != 1:
        raise InputError(f"y must have one dimension, got shape {column.shape}")
    without = unlabelled(column, task="classification")
    values = np.asarray(column)[~without]
    if not len(values):
        raise InputError("y has no label: give at least one row of each known class its class")
    values = _classes(values)
    known, places = np.unique(values, return_inverse=True)
    codes = np.full(len(without), -1, dtype=np.int64)
    codes[~without] = places
    return Labels(known, codes)


def read_numbers(y: Any, n: int, n_known: int | None = None) -> NDArray[np.int64]:
    """(n,) classes that are numbers already, 0 to C − 1, −1 (or NaN) where unknown, each of them with a row.

    Raises
    ------
    InputError
        If they are none, their number is not ``n``, or a class up to the largest (or to ``n_known``) has no row.
    """
    labels = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if labels.shape != (n,) or labels.dtype.kind not in "iuf":
        raise InputError(f"y must be ({n},) whole numbers, got {labels.dtype} {labels.shape}")
    if labels.dtype.kind == "f":
        labels = np.where(np.isnan(labels), -1, labels)
        if not (labels == np.round(labels)).all():
            raise InputError(f"y must be whole numbers, got {labels[labels != np.round(labels)][0]}")
    if n and (labels.min() < -1 or labels.max() >= (n if n_known is None else n_known)):
        most = "C - 1" if n_known is None else f"{n_known - 1}"
        raise InputError(f"y must hold classes numbered 0 to {most}, or -1, got {labels.min()} to {labels.max()}")
    labels = labels.astype(np.int64)
    wanted = int(labels.max(initial=-1)) + 1 if n_known is None else n_known
    missing = np.setdiff1d(np.arange(wanted), labels)
    if len(missing):
        raise InputError(f"y must have a row of every known class, numbered 0 to C - 1; there is none of {missing[0]}")
    return labels


def _classes(values: NDArray[Any]) -> NDArray[Any]:
    kind = values.dtype.kind
    if kind == "O":
        kinds = {str if isinstance(v, str) else bool if isinstance(v, bool | np.bool_) else type(v) for v in values}
        if kinds == {str}:
            return values.astype(str)
        if str in kinds or not all(isinstance(v, int | float | np.number | np.bool_) for v in values):
            odd = next(v for v in values if not isinstance(v, str))
            raise InputError(
                f"y must hold strings or whole numbers, not both or others: it has {one_line(repr(odd), 60)}"
            )
        values = values.astype(np.float64)
        kind = "f"
    if kind == "U":
        return values
    if kind not in "iufb":
        raise InputError(f"y must hold strings or whole numbers, and is of dtype {values.dtype}")
    if kind == "f" and not (np.isfinite(values).all() and (values == np.round(values)).all()):
        odd = values[~(np.isfinite(values) & (values == np.round(values)))][0]
        raise InputError(f"y must hold classes, whole numbers or strings: {odd} is a number of something else")
    if len(values) and (float(values.max()) >= 2**62 or float(values.min()) < -(2**62)):
        raise InputError(f"y must hold whole numbers below 2^62, got {values.max()}")
    return values.astype(np.int64)
