"""A user's own table: rows with a bag and a label, of which the arms see only the proportions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.parts.frames import columns_named, preprocessor, read_frame

from .samples import Sample, bagged

BAG, LABEL = "bag", "label"
LEAST_ROWS, LEAST_BAGS = 40, 4
HELD_OUT = 0.25
"""Share of the rows of each bag that is kept for the test."""


@dataclass(frozen=True)
class OwnTable:
    """A table with the columns ``bag`` and ``label``, checked.

    Attributes
    ----------
    columns
        The other columns: what is learnt from.
    bags, labels
        (n,) numbers 0 … B − 1 and 0 … K − 1.
    classes
        (K,) names of the labels.
    """

    columns: pd.DataFrame
    bags: NDArray[np.int64]
    labels: NDArray[np.int64]
    classes: list[str]


def read_own(path: Path) -> OwnTable:
    """Read and check a user's table.

    Raises
    ------
    InputError
        Where a column is missing, a bag or a label is, there are too few rows, bags or classes, or nothing to learn
        from.
    """
    frame = read_frame(path, text=(BAG, LABEL))
    columns_named(frame, path, BAG, LABEL)
    for name in (BAG, LABEL):
        if frame[name].isna().any():
            raise InputError(f"{path.name}: the column {name!r} is empty in {int(frame[name].isna().sum())} rows")
    columns = frame.drop(columns=[BAG, LABEL])
    if not columns.shape[1]:
        raise InputError(f"{path.name} has no columns but {BAG!r} and {LABEL!r}")
    preprocessor(columns)  # refuses columns that are neither numbers nor words
    bags, ids = pd.factorize(frame[BAG], sort=True)
    labels, classes = pd.factorize(frame[LABEL], sort=True)
    if len(frame) < LEAST_ROWS or len(ids) < LEAST_BAGS or len(classes) < 2:
        raise InputError(
            f"{path.name} has {len(frame)} rows in {len(ids)} bags, of {len(classes)} classes; this study needs at "
            f"least {LEAST_ROWS}, {LEAST_BAGS} and 2"
        )
    if len(classes) > len(frame) / 4:
        raise InputError(f"{path.name}: the column {LABEL!r} has {len(classes)} values; it must hold classes")
    return OwnTable(columns, bags.astype(np.int64), labels.astype(np.int64), [str(c) for c in classes])


def own_sample(path: Path, rng: np.random.Generator) -> Sample:
    """Keep a quarter of the rows of each bag for the test; the proportions are those of the rest."""
    table = read_own(path)
    train: list[NDArray[np.int64]] = []
    tests: list[NDArray[np.int64]] = []
    for bag in range(table.bags.max() + 1):
        rows = rng.permutation(np.flatnonzero(table.bags == bag))
        count = int(HELD_OUT * len(rows))
        tests.append(rows[:count])
        train.append(rows[count:])
    train_rows, test_rows = np.concatenate(train), np.concatenate(tests)
    encode = preprocessor(table.columns).fit(table.columns.iloc[train_rows])
    X, X_test = (
        np.asarray(encode.transform(table.columns.iloc[rows]), dtype=np.float64) for rows in (train_rows, test_rows)
    )
    starts = np.cumsum([0, *map(len, train)])
    deal = [np.arange(start, stop) for start, stop in pairwise(starts)]
    K = len(table.classes)
    return bagged(X, table.labels[train_rows], X_test, table.labels[test_rows], deal, K)
