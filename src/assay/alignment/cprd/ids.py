"""Item ids: any value that names an item, made hashable and comparable, and a short form of it for people."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.errors import InputError

_SCALARS = (str, int, float, bool, np.generic, pd.Timestamp)


def canonical(value: Any) -> Any:
    """An id as it is where it is a scalar; lists and objects (chat messages) as JSON text with sorted keys.

    Two lists of messages get the same text when, and only when, they say the same.

    >>> canonical([{"role": "user", "content": "Hi"}])
    '[{"content":"Hi","role":"user"}]'
    """
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, tuple) and all(isinstance(part, _SCALARS) for part in value):
        return value
    try:
        return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise InputError(f"an item id must be text, a number or a list of messages, not a {kind}") from None


def _plain(value: Any) -> Any:
    """What JSON can write: Parquet brings lists as arrays."""
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        # Parquet gives each message all keys that any message has.
        return {str(key): _plain(part) for key, part in value.items() if part is not None}
    return plain(value)


def plain(value: Any) -> Any:
    """A number as Python writes it, for messages; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def id_column(frame: pd.DataFrame, name: str) -> npt.NDArray[np.object_]:
    """The ids of a column, checked for missing values.

    Raises
    ------
    KeyError
        When there is no such column.
    InputError
        When an id is missing; it says in which row.
    """
    column = column_of(frame, name)
    missing = np.asarray(column.isna(), dtype=bool)
    if missing.any():
        row = int(np.argmax(missing))
        more = f" and {int(missing.sum()) - 1} more" if missing.sum() > 1 else ""
        raise InputError(f"column {name!r}: the id in row {plain(frame.index[row])!r} is missing{more}")
    values = column.to_numpy(dtype=object)
    if column.dtype == object and not all(isinstance(value, str) for value in values):
        values = np.fromiter((canonical(value) for value in values), dtype=object, count=len(values))
    return values


def column_of(frame: pd.DataFrame, name: Any) -> pd.Series:
    """A column by name; ``KeyError`` names it and those that there are."""
    if name not in frame.columns:
        there = ", ".join(repr(str(column)) for column in frame.columns[:20])
        raise KeyError(f"no column {name!r}; the frame has {there or 'none'}")
    column = frame[name]
    if not isinstance(column, pd.Series):
        raise InputError(f"column {name!r} stands there twice")
    return column


def coded(*parts: npt.NDArray[np.object_]) -> tuple[list[npt.NDArray[np.int64]], pd.Index]:
    """Numbers for the values of several arrays, and the values in order; sorted where they can be compared."""
    together = np.concatenate(parts) if len(parts) > 1 else parts[0]
    try:
        codes, values = pd.factorize(together)
        index = pd.Index(values, dtype=object).infer_objects()
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.start + 1].encode("unicode_escape").decode()
        raise InputError(f"an id holds {half}, which is half a character: write the file anew as UTF-8") from None
    try:
        order = np.argsort(values, kind="stable")
    except TypeError:  # text and numbers
        order = np.arange(len(values))
    rank = np.empty(len(values), dtype=np.int64)
    rank[order] = np.arange(len(values))
    split = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(rank[codes], split), index[order]


def shown(value: Any, most: int = 48) -> str:
    """An id for people: one short line; of a list of messages the last, of long text its beginning and a number."""
    text = str(value)
    if text.startswith("[{"):
        try:
            message = json.loads(text)[-1]
            text = f"{message.get('role', '?')}: {message['content']}"
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    if len(line) <= most:
        return line
    return f"{line[: most - 8]}… {hashlib.sha256(str(value).encode('utf-8', 'replace')).hexdigest()[:6]}"
