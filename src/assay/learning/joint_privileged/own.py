"""A user's table as tasks of the study: one column is the target, some are privileged, the rest are inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.parts.frames import preprocessor, read_frame, some

from .samples import Given, Hidden, dealt_out

FloatArray = NDArray[np.float64]

TARGETS = ("y", "target")
PREFIXES = ("w_", "priv_")
MOST_CLASSES = 10
"""Whole numbers with at most so many values are classes, as words and truth values are."""

MOST_WORDS = 20
"""A column of text with more different ones, and more than a twentieth of the rows, is taken for names of rows."""

LEAST_LABELS = 40
"""A third of these are for the test, and two of the rest for each of five folds."""

TEST_SHARE = 1 / 3
SHARES = (0.1, 0.3)
"""Of a table without gaps in the target: how many of the training rows keep their label."""


@dataclass(frozen=True)
class Table:
    """A user's table in numbers.

    Attributes
    ----------
    X, W
        (n, p) and (n, k), with NaN in gaps.
    y
        (n,) targets, or numbers of classes; NaN where there is none.
    classes
        How many; 0 for a regression.
    target, privileged
        The columns' names.
    """

    X: FloatArray
    W: FloatArray
    y: FloatArray
    classes: int
    target: str
    privileged: tuple[str, ...]


def read(path: Path) -> Table:
    """Read a table whose columns say by their names what they are.

    Raises
    ------
    InputError
        When there is no target ``y`` or ``target``, no column that begins with ``w_`` or ``priv_``, no other column, or
        fewer than 40 labels.
    """
    frame = read_frame(path)
    targets = [name for name in TARGETS if name in frame.columns]
    if len(targets) != 1:
        what = "no column" if not targets else "both columns"
        raise InputError(
            f"{path.name} has {what} {' and '.join(map(repr, TARGETS))}; exactly one of them must be there, the target "
            f"(empty where it is not known); the columns are {some(list(frame.columns), 8)}"
        )
    privileged = [name for name in frame.columns if str(name).startswith(PREFIXES)]
    inputs = [name for name in frame.columns if name not in (*targets, *privileged)]
    if not privileged or not inputs:
        raise InputError(
            f"{path.name} has {len(privileged)} privileged columns, whose names must begin with "
            f"{' or '.join(map(repr, PREFIXES))}, and {len(inputs)} other inputs; at least one of each is needed"
        )
    X, W = (_numbers(frame[names], path) for names in (inputs, privileged))
    unmeasured = frame[privileged].isna().all(axis=1).to_numpy()
    if unmeasured.all():
        raise InputError(f"the privileged columns of {path.name} are empty in every row")
    W[unmeasured] = np.nan
    y, classes = _target(frame[targets[0]], path)
    labels = int(np.isfinite(y).sum())
    if labels < LEAST_LABELS:
        raise InputError(f"{path.name} has {labels} values in {targets[0]!r}; this study needs at least {LEAST_LABELS}")
    if classes and np.bincount(y[np.isfinite(y)].astype(int)).min() < 6:
        raise InputError(f"a class of {targets[0]!r} in {path.name} has fewer than 6 rows; this study needs as many")
    return Table(X, W, y, classes, targets[0], tuple(map(str, privileged)))


def tasks_of(table: Table) -> dict[str, tuple[float, str]]:
    """Names of tasks, with the share of training labels that are kept and one line for people."""
    n, gaps = int(np.isfinite(table.y).sum()), int(np.isnan(table.y).sum())
    if gaps:
        return {
            "own": (1.0, f"a third of {n} labelled rows to test on, the others and {gaps} unlabelled ones to train on")
        }
    return {
        f"own-{share:.0%}".replace("%", ""): (
            share,
            f"a third of {n} rows to test on; {share:.0%} of the rest keep labels",
        )
        for share in SHARES
    }


def load(rng: np.random.Generator, table: Table, share: float) -> tuple[Given, Hidden]:
    """Deal the labelled rows into test and training, and hide the targets of those that do not keep them."""
    known = np.flatnonzero(np.isfinite(table.y))
    t = round(TEST_SHARE * len(known))
    n = max(20, round(share * (len(known) - t))) if share < 1 else len(known) - t
    X, W, y = table.X[known], table.W[known], table.y[known]
    given, hidden = dealt_out(rng, X, W, y, n, -1, t, table.classes)
    gaps = np.isnan(table.y) & ~np.isnan(table.W).all(axis=1)
    if not gaps.any():
        return given, hidden
    X_more, W_more = (np.where(np.isnan(T[gaps]), np.nanmedian(T, axis=0), T[gaps]) for T in (table.X, table.W))
    nothing = np.full(int(gaps.sum()), -1 if table.classes else np.nan, dtype=given.y.dtype)
    more = Given(
        np.vstack([given.X, X_more]),
        np.vstack([given.W, W_more]),
        np.concatenate([given.y, nothing]),
        given.X_test,
        table.classes,
    )
    return more, Hidden(hidden.y_test, hidden.y_train, given)


def _target(column: pd.Series, path: Path) -> tuple[FloatArray, int]:
    missing = column.isna().to_numpy()
    known = column[~missing]
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    whole = numeric and bool((known.astype(float) % 1 == 0).all()) and known.nunique() <= MOST_CLASSES
    if numeric and not whole:
        values = column.astype(float).to_numpy()
        if np.isinf(values).any():
            raise InputError(f"the column {column.name!r} of {path.name} has infinity in it")
        if len(values) and known.nunique() == 1:
            raise InputError(
                f"the column {column.name!r} of {path.name} has one value only: nothing is to be predicted"
            )
        return values, 0
    names, numbers = np.unique(known.astype(str), return_inverse=True)
    if len(names) < 2 or len(names) > 5 * MOST_CLASSES:
        raise InputError(
            f"the column {column.name!r} of {path.name} has {len(names)} classes; 2 to {5 * MOST_CLASSES} are possible"
        )
    out = np.full(len(column), np.nan)
    out[~missing] = numbers
    return out, len(names)


def _numbers(frame: pd.DataFrame, path: Path) -> FloatArray:
    """Numbers with medians in gaps and columns that say where they were; words as a column for each."""
    for name in frame.columns:
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column) and column.nunique() > max(MOST_WORDS, len(column) // 20):
            raise InputError(f"the column {name!r} of {path.name} has {column.nunique()} different texts; take it out")
        if pd.api.types.is_numeric_dtype(column) and np.isinf(column.to_numpy(dtype=float, na_value=np.nan)).any():
            raise InputError(f"the column {name!r} of {path.name} has infinity in it")
    numbers = preprocessor(frame).fit_transform(frame)
    return np.asarray(numbers, dtype=np.float64)
