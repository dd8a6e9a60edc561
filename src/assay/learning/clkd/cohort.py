"""A user's cohort from a file: features, event, time and what a teacher says, checked column by column."""

from __future__ import annotations

import json
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError, one_line
from assay.parts.frames import columns_named, read_frame, some

from .outcome import read_case, read_time

FloatArray = NDArray[np.float64]

MOST_JSON = 1_000_000
MOST_LEVELS = 50
"""A column of words with more is an id or free text."""


@dataclass(frozen=True)
class Cohort:
    """Rows of a table.

    Attributes
    ----------
    X
        (n, p) features: numbers, and words in the columns ``words``.
    words
        The columns that hold words.
    event, time
        (n,), None where they were not asked for.
    teacher
        (n,) the teacher's log risk, None where it was not asked for.
    groups, strata
        (n,) labels, None where they were not asked for.
    """

    X: pd.DataFrame
    words: tuple[str, ...]
    event: NDArray[np.bool_]
    time: FloatArray
    teacher: FloatArray
    groups: NDArray[Any] | None = None
    strata: NDArray[Any] | None = None


def read_cohort(
    path: Path,
    *,
    event: str,
    time: str,
    teacher: str | Mapping[str, float] = "teacher",
    groups: str | None = None,
    strata: str | None = None,
    drop: tuple[str, ...] = (),
) -> Cohort:
    """Read a cohort.

    Parameters
    ----------
    path
        The table.
    event, time, groups, strata
        Columns; all others are features, unless they are named in ``drop``. With ``groups`` event means case, and a
        time is neither needed nor a feature: controls outlive their case, so it would give the case away.
    teacher
        A column with log risks, or log hazard ratios by column (``"sex=male"`` for a word's level).

    Raises
    ------
    InputError
        When a column is not there, holds what it must not, or misses values; it is named.
    """
    frame = read_frame(path, text=[name for name in (groups, strata) if name is not None])
    matched = groups is not None
    special = [name for name in (event, None if matched else time, groups, strata) if name is not None]
    score = teacher if isinstance(teacher, str) else None
    named = [*special, *([score] if score is not None else [])]
    if len(set(named)) < len(named):
        raise InputError(f"{path.name}: a column has two parts to play among {', '.join(map(repr, named))}")
    columns_named(frame, path, *named, *drop)
    here = frame[named]
    if here.isna().any().any():
        empty = [name for name in named if here[name].isna().any()]
        raise InputError(f"{path.name}: the columns {some(empty)} have missing values; drop those rows")
    X = frame.drop(columns=[*named, *drop]).drop(columns=time, errors="ignore")
    words = feature_words(X, path)
    if isinstance(teacher, str):
        scores = _column(read_score, frame[teacher], teacher, path)
    else:
        scores = linear_score(frame, teacher, path)
    return Cohort(
        X=X,
        words=words,
        event=_column(lambda values: read_case(values, event), frame[event], event, path),
        time=np.ones(len(frame)) if matched else _column(read_time, frame[time], time, path),
        teacher=scores,
        groups=None if groups is None else frame[groups].to_numpy(),
        strata=None if strata is None else frame[strata].to_numpy(),
    )


def feature_words(X: pd.DataFrame, path: Path) -> tuple[str, ...]:
    """The columns of words; features must be there, and nothing may be missing."""
    if X.shape[1] == 0:
        raise InputError(f"{path.name} has no column left for a feature")
    missing = [name for name in X if X[name].isna().any()]
    if missing:
        rows = int(X[missing].isna().any(axis=1).sum())
        raise InputError(
            f"{path.name}: missing values in {some(missing)}, in {rows} of {len(X)} rows; fill them in, drop the rows "
            "or leave the columns out"
        )
    words = tuple(name for name in X if not pd.api.types.is_numeric_dtype(X[name]))
    for name in words:
        if X[name].nunique() > MOST_LEVELS:
            raise InputError(
                f"{path.name}: the column {name!r} holds {X[name].nunique()} words, as an id does; leave it out"
            )
    return words


def read_score(values: pd.Series) -> FloatArray:
    """Log risks as numbers."""
    array = pd.to_numeric(values).to_numpy(dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("it must be finite")
    return array


def read_coefficients(path: Path) -> dict[str, float]:
    """Log hazard ratios from a JSON object ``{"age": 0.03, "sex=male": 0.4}``."""
    if not path.is_file():
        raise InputError(f"{path} is no file")
    if path.stat().st_size > MOST_JSON:
        raise InputError(f"{path.name} has more than {MOST_JSON} bytes: that is no list of coefficients")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is no JSON: {one_line(error)}") from None
    if not isinstance(raw, dict) or not raw:
        raise InputError(f'{path.name} must hold an object such as {{"age": 0.03, "sex=male": 0.4}}')
    for name, ratio in raw.items():
        if not isinstance(ratio, numbers.Real) or isinstance(ratio, bool) or not np.isfinite(ratio):
            raise InputError(f"{path.name}: the log hazard ratio of {name!r} must be a finite number, got {ratio!r}")
    return {name: float(ratio) for name, ratio in raw.items()}


def linear_score(frame: pd.DataFrame, ratios: Mapping[str, float], path: Path) -> FloatArray:
    """Log risks from log hazard ratios of columns, or of levels (``column=level``)."""
    total = np.zeros(len(frame))
    for name, ratio in ratios.items():
        if name in frame.columns:
            values = frame[name]
            if not pd.api.types.is_numeric_dtype(values):
                levels = ", ".join(f"{name}={level}" for level in sorted(values.dropna().astype(str).unique())[:5])
                raise InputError(
                    f"{path.name}: {name!r} holds words; give a log hazard ratio for each level ({levels} …)"
                )
            total += ratio * values.to_numpy(dtype=np.float64)
            continue
        column, found, level = name.rpartition("=")
        columns_named(frame, path, column if found else name)
        levels = frame[column].astype(str)
        if not (levels == level).any():
            known = ", ".join(sorted(levels.unique())[:8])
            raise InputError(f"{path.name}: no row has {column!r} equal to {level!r}; there are {known}")
        total += ratio * (levels == level).to_numpy(dtype=np.float64)
    if np.isnan(total).any():
        raise InputError(f"{path.name}: the teacher's score is missing in {int(np.isnan(total).sum())} rows")
    return total


def _column(read: Any, values: pd.Series, name: str, path: Path) -> Any:
    try:
        return read(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{path.name}, column {name!r}: {one_line(error)}") from None
