"""A user's modalities: arrays by name, checked, with what is absent; and their scale."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError, one_line

FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]

LARGEST = 1e30
"""Larger numbers leave the range of float32 somewhere on their way through a network."""

CLIP = 1e6
"""Standardised values are held within this: a new row may lie beyond anything that was seen."""


@dataclass(frozen=True)
class Views:
    """Modalities of the same rows.

    Attributes
    ----------
    arrays
        Modality to (n, …) numbers, zeros where it is absent.
    present
        Modality to (n,) truth values.
    """

    arrays: dict[str, FloatArray]
    present: dict[str, BoolArray]

    def __len__(self) -> int:
        return len(next(iter(self.present.values())))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of one row of each modality."""
        return {name: array.shape[1:] for name, array in self.arrays.items()}

    def take(self, rows: NDArray[Any]) -> Views:
        """Some of the rows."""
        return Views(
            {name: array[rows] for name, array in self.arrays.items()},
            {name: mask[rows] for name, mask in self.present.items()},
        )


def checked_views(X: Any, present: Mapping[str, Any] | None = None) -> Views:
    """A user's dict of arrays as :class:`Views`, or ``InputError`` that names the modality.

    A row of NaN alone is absent, and so is one that ``present`` says is not there.
    """
    if not isinstance(X, Mapping):
        raise TypeError(f"X must be a mapping from modality to array, got {type(X).__name__}")
    if not X:
        raise InputError("X is empty: give at least one modality")
    if not (present is None or isinstance(present, Mapping)):
        raise TypeError(f"present must be a mapping from modality to truth values, got {type(present).__name__}")
    unknown = sorted(set(map(str, present or {})) - set(map(str, X)))
    if unknown:
        raise InputError(f"present names {unknown[0]!r}, which is no modality of X; there are {', '.join(map(str, X))}")
    arrays, masks = {}, {}
    for name, values in X.items():
        if not isinstance(name, str):
            raise InputError(f"the names of modalities must be text, got {name!r}")
        arrays[name], masks[name] = _checked(name, values, (present or {}).get(name))
    rows = {name: len(array) for name, array in arrays.items()}
    frames = {name: table for name, table in X.items() if isinstance(table, pd.DataFrame)}
    for name, table in frames.items():
        first = next(iter(frames))
        if len(table) == len(frames[first]) and not table.index.equals(frames[first].index):
            raise InputError(
                f"X[{first!r}] and X[{name!r}] have different indexes, and rows are matched by position: bring both "
                "into one order with .loc, or drop both indexes with reset_index(drop=True)"
            )
    if len(set(rows.values())) > 1:
        raise InputError(f"the modalities of X must have the same number of rows, got {rows}")
    if 0 in rows.values():
        raise InputError("X has no rows")
    empty = ~np.any(list(masks.values()), axis=0)
    if empty.any():
        raise InputError(
            f"{empty.sum()} rows of X have no modality at all, the first is row {np.flatnonzero(empty)[0]}"
        )
    return Views(arrays, masks)


def matched(views: Views, shapes: Mapping[str, tuple[int, ...]]) -> Views:
    """Views at predict time, in the order of those at fit time; a modality left out is absent in every row."""
    unknown = sorted(set(views.arrays) - set(shapes))
    absent = [name for name in shapes if name not in views.arrays]
    if unknown:
        raise InputError(f"X has the modality {unknown[0]!r}, which was not there in fit; it had {', '.join(shapes)}")
    for name, array in views.arrays.items():
        if array.shape[1:] != tuple(shapes[name]):
            raise InputError(f"rows of X[{name!r}] have shape {array.shape[1:]}; in fit they had {tuple(shapes[name])}")
    gone = [*absent, *(name for name, mask in views.present.items() if not mask.any())]
    if gone:
        warnings.warn(f"the modality {gone[0]!r} is absent in every row: it enters the fusion as zeros", stacklevel=3)
    n = len(views)
    arrays = {name: views.arrays.get(name, np.zeros((n, *shape))) for name, shape in shapes.items()}
    return Views(arrays, {name: views.present.get(name, np.zeros(n, dtype=bool)) for name in shapes})


def _checked(name: str, values: Any, present: Any) -> tuple[FloatArray, BoolArray]:
    where = f"X[{name!r}]"
    raw = _numbers(where, values)
    array = raw if raw.dtype in (np.float32, np.float64) else raw.astype(np.float64)
    if array.ndim < 2 or 0 in array.shape[1:]:
        raise InputError(f"{where} must have the shape (rows, …) with at least one number a row, got {array.shape}")
    flat = array.reshape(len(array), -1) if len(array) else np.zeros((0, 1))
    missing = np.isnan(flat)
    there = ~missing.all(axis=1)
    if present is not None:
        told = np.asarray(present)
        if told.dtype != np.bool_ or told.shape != (len(array),):
            raise InputError(
                f"present[{name!r}] must be {len(array)} truth values, got {told.dtype} of shape {told.shape}"
            )
        there &= told
    partly = there & missing.any(axis=1)
    if partly.any():
        raise InputError(
            f"{where} has NaN in parts of {partly.sum()} rows, the first is row {np.flatnonzero(partly)[0]}: fill them "
            "in, or make the whole row NaN where the modality is absent"
        )
    large = (np.abs(flat) > LARGEST) & there[:, None]
    if large.any():
        raise InputError(
            f"{where} holds infinity or numbers beyond {LARGEST:g}, the first in row {large.any(1).argmax()}"
        )
    if not there.all():
        array = array.copy()
        array[~there] = 0
    return array, there


def _numbers(where: str, values: Any) -> NDArray[Any]:
    """A user's array, tensor, frame or nested list as an array of real numbers, NaN where it has a gap."""
    if hasattr(values, "toarray"):
        raise TypeError(f"{where} is sparse; give it dense, with toarray()")
    if hasattr(values, "detach"):  # a torch tensor; NumPy knows no bfloat16
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() and values.element_size() < 4 else values
    try:
        if isinstance(values, np.ma.MaskedArray):
            return values.astype(np.float64).filled(np.nan)
        raw = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where} is no array of real numbers: {one_line(error, 120)}") from None
    if raw.dtype.kind in "biuf":
        return raw
    # Frames with gaps in nullable columns, or with columns of several types, come as objects.
    gaps = np.asarray(pd.isna(raw))
    try:
        if raw.dtype.kind != "O" or any(isinstance(value, str | bytes) for value in raw.flat):
            raise TypeError
        return np.where(gaps, np.nan, raw).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{where} must hold real numbers, and holds values of type {_kind(raw)}") from None


def _kind(raw: NDArray[Any]) -> str:
    """What is in the way, for a message."""
    if raw.dtype.kind != "O":
        return str(raw.dtype)
    return next((type(value).__name__ for value in raw.flat if not isinstance(value, Real)), "object")


@dataclass(frozen=True)
class Scaler:
    """Mean and standard deviation of each column, or of each channel where a row is (channels, …).

    Attributes
    ----------
    mean, sd
        Modality to arrays that broadcast against its rows; sd is 1 where a column is constant.
    """

    mean: dict[str, FloatArray]
    sd: dict[str, FloatArray]

    @classmethod
    def fit(cls, views: Views, standardise: bool = True) -> Scaler:
        """From the rows that have the modality."""
        mean, sd = {}, {}
        for name, array in views.arrays.items():
            rows = array[views.present[name]].astype(np.float64)
            axes = (0, *range(2, rows.ndim))
            shape = tuple(1 if axis in axes else size for axis, size in enumerate(rows.shape))
            mean[name], sd[name] = np.zeros(shape), np.ones(shape)
            if standardise and len(rows):
                mean[name] = rows.mean(axis=axes, keepdims=True)
                spread = rows.std(axis=axes, keepdims=True)
                # Of a constant column rounding leaves a spread that is none.
                noise = 1e-12 * np.abs(rows).max(axis=axes, keepdims=True)
                sd[name] = np.where(spread > np.maximum(noise, np.finfo(np.float64).tiny), spread, 1.0)
        return cls(mean, sd)

    def __call__(self, views: Views) -> dict[str, NDArray[np.float32]]:
        """Standardised rows, zeros where a modality is absent."""
        scaled = {}
        for name, array in views.arrays.items():
            rows = np.clip((array - self.mean[name]) / self.sd[name], -CLIP, CLIP)
            rows[~views.present[name]] = 0
            scaled[name] = rows.astype(np.float32)
        return scaled
