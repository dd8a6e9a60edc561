"""Rows with all their classes: digits, news, and a user's file."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from assay.errors import InputError
from assay.parts import frames

from .labels import read_labels
from .rows import pixels, read_rows, standard

Rows = tuple[NDArray[np.float32], NDArray[np.int64]]

MOST_CHARACTERS = 500
"""Of a news text; it is embedded without the rest."""


def digits() -> Rows:
    """1 797 images of 8 × 8 (scikit-learn), values from 0 to 1."""
    data = load_digits()
    return (data.images / 16).astype(np.float32), data.target.astype(np.int64)


def mnist5k(seed: int, each: int) -> Rows:
    """``each`` images a digit of 28 × 28 from the 5 000 of MNIST in a package, drawn by the seed."""
    from assay.parts import mnist5k as part

    X, y = part.load()
    rows = drawn(y, each, seed)
    return X[rows].reshape(-1, 28, 28), y[rows]


@lru_cache(maxsize=2)
def news_texts(each: int) -> tuple[list[str], NDArray[np.int64]]:
    """``each`` texts of each of 20 newsgroups, many of which are neighbours (five on computers, three on religion)."""
    from assay.parts import text

    texts, groups = text.newsgroups("train")
    numbers = np.unique(groups, return_inverse=True)[1]
    long = np.array([len(one) >= MOST_CHARACTERS // 2 for one in texts])
    rows = np.flatnonzero(long)[drawn(numbers[long], each, 0)]
    return [texts[i][:MOST_CHARACTERS] for i in rows], numbers[rows]


def drawn(y: NDArray[np.int64], each: int, seed: int) -> NDArray[np.int64]:
    """``each`` row numbers of each class."""
    rng = np.random.default_rng([seed, 2])
    return np.concatenate([rng.permutation(np.flatnonzero(y == k))[:each] for k in np.unique(y)])


def own_rows(path: Path, label: str = "y") -> Rows:
    """A user's rows: ``X`` and the labels of an ``.npz`` file, or a table with a column of labels.

    Rows without a label are left out; columns are scaled, images to 0 … 1.

    Raises
    ------
    InputError
        If the file holds no such arrays or columns, or they are no rows and classes.
    """
    X, y, _ = read_labelled(path, label)
    table, _ = read_rows(X, at_least=2)
    labels = read_labels(y, table)
    kept = labels.codes >= 0
    table = table[kept]
    scale = standard(table) if table.ndim == 2 else pixels(table)
    return scale(table).numpy(), labels.codes[kept]


def read_labelled(
    path: Path, label: str, features: str = "X", index: str | None = None
) -> tuple[Any, Any, pd.Series | None]:
    """Features, labels and names of the rows of a file: arrays of an ``.npz``, or columns of a table.

    Raises
    ------
    InputError
        If one of them is not there.
    """
    path = Path(path)
    if path.suffix.lower() == ".npz":
        if index is not None:
            raise InputError("--index names a column of a table; an .npz file has none")
        arrays = frames.read_arrays(path)
        for name in (features, label):
            if name not in arrays:
                raise InputError(f"{path.name} has no array {name!r}; it has {', '.join(arrays) or 'none'}")
        return arrays[features], _column(pd.Series(arrays[label])) if arrays[label].ndim == 1 else arrays[label], None
    frame = frames.read_frame(path, text=() if index is None else (index,))
    frames.columns_named(frame, path, label, *([] if index is None else [index]))
    X = frame.drop(columns=[label] if index is None else [label, index])
    if not X.shape[1]:
        raise InputError(f"{path.name} has no column of features besides {label!r}")
    names = frame[index] if index is not None else None
    return X.reset_index(drop=True), _column(frame[label]), names


def _column(labels: pd.Series) -> Any:
    """Labels as they were meant: whole numbers with gaps were read as floats; blank text and "-1" are no class."""
    if pd.api.types.is_float_dtype(labels) and bool((labels.dropna() % 1 == 0).all()):
        labels = labels.astype("Int64")
    values = labels.astype(object).to_numpy()
    blank = [isinstance(value, str) and value.strip() in ("", "-1") for value in values]
    return np.where(blank, None, values)
