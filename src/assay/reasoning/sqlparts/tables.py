"""Questions and queries from files: tables of this package's own layout, and those of BIRD and Spider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from assay.errors import InputError, one_line
from assay.parts.frames import columns_named, read_frame

_MOST_BYTES = 2**29
_OTHER_NAMES = {"SQL": "sql", "query": "sql"}
_TEXT = ("question_id", "question", "sql", "SQL", "query", "completion", "db_id", "schema", "evidence")


def read_rows(path: Path, *needed: str) -> pd.DataFrame:
    """A table of questions, queries or completions.

    Parameters
    ----------
    path
        CSV, TSV, Parquet, one JSON object a line, or one JSON list of objects (``dev.json`` of BIRD and Spider). A
        column ``SQL`` or ``query`` is read as ``sql``; rows without a ``question_id`` are numbered from 0.
    needed
        Columns that it must have.

    Raises
    ------
    InputError
        When it cannot be read, lacks a column, or a ``question_id`` stands there twice.
    """
    frame = json_list(path) if path.suffix.lower() == ".json" else read_frame(path, text=_TEXT)
    if {"sql", "query"} <= set(frame) and all(isinstance(value, Mapping) for value in frame["sql"]):
        frame = frame.drop(columns="sql")  # Spider's own syntax tree beside the text
    if "sql" not in frame:
        frame = frame.rename(columns={old: new for old, new in _OTHER_NAMES.items() if old in frame})
    columns_named(frame, path, *needed)
    if "question_id" not in frame:
        frame.insert(0, "question_id", [str(i) for i in range(len(frame))])
    frame["question_id"] = frame["question_id"].astype(str)
    twice = frame.loc[frame["question_id"].duplicated(), "question_id"]
    if len(twice):
        raise InputError(f"{path.name}: the question_id {twice.iloc[0]!r} stands there twice")
    for name in needed:
        empty = frame.index[frame[name].isna()]
        if len(empty):
            raise InputError(f"{path.name}: row {int(empty[0]) + 1} has no {name}")
    for name in set(_TEXT[1:]) & set(frame):
        for row, value in enumerate(frame[name], start=1):
            if not isinstance(value, str) and (isinstance(value, list | dict) or not pd.isna(value)):
                kind = type(value).__name__
                raise InputError(f"{path.name}: row {row}: {name} must be a text, got one of type {kind}")
    return frame


def json_list(path: Path) -> pd.DataFrame:
    """The questions of a JSON list of objects; Spider has each query's parse as ``sql`` beside it, which is left out.

    Raises
    ------
    InputError
        When it cannot be read, or is no such list.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{path.name} is larger than {_MOST_BYTES} bytes")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is no JSON: {one_line(error, 100)}") from None
    if not isinstance(found, list) or not found or not all(isinstance(row, dict) for row in found):
        raise InputError(f"{path.name} must be a list of objects, at least one")
    frame = pd.DataFrame(found)
    return (
        frame.drop(columns="sql") if {"query", "sql"} <= {*frame} and isinstance(found[0].get("sql"), dict) else frame
    )


def database_file(db: Path | None, row: Mapping[str, Any]) -> Path | None:
    """The database of a row: ``db`` itself, or ``ID/ID.sqlite`` in the folder ``db`` for the row's ``db_id``.

    Raises
    ------
    InputError
        When ``db`` is a folder and the row has no ``db_id`` that is a plain name.
    """
    if db is None or not db.is_dir():
        return db
    name = row.get("db_id")
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name:
        raise InputError(f"where --db is a folder, each row needs a plain name as db_id, got {name!r}")
    return db / name / f"{name}.sqlite"
