"""The rows that come in: arrays and frames as a float32 tensor, on the scale that the encoder is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError, one_line

FARTHEST = 1e6
"""Rows unlike any of fit must not overflow in the network."""


@dataclass(frozen=True)
class Scale:
    """What is taken off the rows and what they are divided by: per column of a table, or once for images.

    Both are in units of ``unit`` (the largest absolute value of a column), so that no square overflows.
    """

    unit: NDArray[np.float64]
    center: NDArray[np.float64]
    spread: NDArray[np.float64]

    def __call__(self, X: NDArray[Any]) -> Tensor:
        """The rows on this scale, float32; what lies farther out than a million counts as a million."""
        scaled = np.clip((X / self.unit - self.center) / self.spread, -FARTHEST, FARTHEST)
        return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))


def standard(X: NDArray[Any]) -> Scale:
    """Each column to mean 0 and standard deviation 1; a constant column becomes 0."""
    unit = np.abs(X).max(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    part = X / unit
    spread = part.std(axis=0)
    constant = spread <= 1e-9  # of values of size 1: what is left is rounding
    return Scale(unit, np.where(constant, part[0], part.mean(axis=0)), np.where(constant, 1.0, spread))


def pixels(X: NDArray[Any]) -> Scale:
    """All pixels to 0 … 1 by the least and the largest of all images."""
    largest = float(np.abs(X).max())
    unit = largest if largest > 0 else 1.0
    low, high = float(X.min() / unit), float(X.max() / unit)
    return Scale(np.array(unit), np.array(low), np.array(high - low if high > low else 1.0))


def read_rows(X: Any, *, at_least: int = 1) -> tuple[NDArray[Any], list[str] | None]:
    """X as a finite float array with 2 axes or more, and its columns' names where it is a frame.

    Raises
    ------
    InputError
        If it holds anything but finite real numbers, or too few rows.
    TypeError
        If it is no array, frame or list of rows.
    """
    if hasattr(X, "toarray"):
        raise TypeError("X is sparse; give it dense, with toarray()")
    if X is None or isinstance(X, str | bytes | dict | set):
        raise TypeError(f"X must be an array, a frame or a tensor, not {type(X).__name__}")
    names = None
    if isinstance(X, pd.DataFrame):
        names = [str(name) for name in X.columns]
        words = [
            name
            for name, kind in zip(names, X.dtypes, strict=True)
            if not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_complex_dtype(kind)
        ]
        if words:
            raise InputError(f"X must hold real numbers; the column {words[0]!r} does not: encode it, or leave it out")
        X = X.to_numpy(dtype=np.float64, na_value=np.nan)
    elif isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise InputError(f"X must have rows of the same length: {one_line(error, 120)}") from None
    if array.ndim < 2:
        raise InputError(f"X must have rows and columns, or be images, got shape {array.shape}")
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"X must hold numbers: {one_line(error, 120)}") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"X must hold real numbers, and is of dtype {array.dtype}")
    if array.shape[0] < at_least or 0 in array.shape:
        raise InputError(f"X must have at least {at_least} rows and no empty axis, got shape {array.shape}")
    if array.dtype != np.float32:
        array = array.astype(np.float64)
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"X must be finite: {array[tuple(bad)]} stands in row {bad[0]}; fill it in, or drop the row")
    return array, names
