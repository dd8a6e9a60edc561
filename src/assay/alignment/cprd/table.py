"""A user's rows of comparisons from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.parts.frames import SEPARATED, columns_named, read_frame, suffix

from .ids import canonical

FORMATS = "CSV, TSV, Parquet, or one JSON object a line"


def read_table(path: Path, ids: Sequence[str]) -> pd.DataFrame:
    """Read a file; the columns ``ids`` become ids as text, lists of chat messages among them.

    Raises
    ------
    InputError
        When the file cannot be read, lacks such a column, or an id is missing.
    """
    text = list(ids) if suffix(path) in SEPARATED else []
    try:
        frame = read_frame(path, text=text)
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.start + 1].encode("unicode_escape").decode()
        raise InputError(
            f"{path.name}: a text holds {half}, which is half a character: write the file anew as UTF-8"
        ) from None
    columns_named(frame, path, *ids)
    for name in ids:
        missing = np.asarray(frame[name].isna(), dtype=bool)
        if missing.any():
            raise InputError(f"{path.name}: {name!r} is missing in row {int(np.argmax(missing)) + 1} of {len(frame)}")
        values = frame[name].to_numpy(dtype=object)
        frame[name] = pd.Series([_text(value) for value in values], index=frame.index, dtype=object)
    return frame


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(canonical(value))


def read_triplets(
    path: Path,
    *,
    chosen: str = "chosen",
    rejected: str = "rejected",
    optional: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Columns ``chosen``, ``rejected`` and of the ``optional`` ones, each by its first name that the file has."""
    there = read_frame(path).columns
    found = {new: next((name for name in names if name in there), None) for new, names in optional.items()}
    ids = [chosen, rejected, *(name for new, name in found.items() if name is not None and new != "weight")]
    frame = read_table(path, ids)
    names = {chosen: "chosen", rejected: "rejected"} | {name: new for new, name in found.items() if name is not None}
    return frame[list(names)].rename(columns=names)
