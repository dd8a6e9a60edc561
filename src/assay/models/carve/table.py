"""A user's table of queries, read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from assay.errors import InputError
from assay.parts.frames import read_json_lines, read_parquet, read_separated, suffix

FORMATS = ".csv, .tsv, .parquet or .jsonl"


def read_table(path: Path, names: Mapping[str, str | None]) -> pd.DataFrame:
    """Read a table and give its columns the names that are used here.

    Parameters
    ----------
    path
        CSV or TSV with a header, Parquet, or one JSON object a line. Texts stay texts: an id "007" is no number.
    names
        What is used here (``query``, ``id``, …) to the column's name in the file; None where the file has none.

    Raises
    ------
    InputError
        When the file cannot be read, or a column is not there.
    """
    table = _read(Path(path))
    wanted: dict[str, str] = {}
    for ours, theirs in names.items():
        if theirs in wanted:
            raise InputError(f"the column {theirs!r} cannot be both {wanted[theirs]} and {ours}")
        if theirs is not None:
            wanted[theirs] = ours
    for column in wanted:
        if column not in table.columns:
            raise InputError(f"{path} has no column {column!r}; it has {', '.join(map(str, table.columns))}")
    table = table[list(wanted)].rename(columns=wanted)
    if "experience" in table:
        table["experience"] = _numbers_if_all(table["experience"])
    return table


def read_columns(path: Path) -> list[str]:
    """The names of a file's columns."""
    return [str(name) for name in _read(path).columns]


def _read(path: Path) -> pd.DataFrame:
    kind = suffix(path)
    if kind not in (".csv", ".tsv", ".parquet", ".jsonl"):
        raise InputError(f"{path} must be {FORMATS}")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if kind == ".parquet":
        return read_parquet(path)
    if kind == ".jsonl":
        return read_json_lines(path)
    return read_separated(path, text=None)[0]


def _numbers_if_all(column: pd.Series[Any]) -> pd.Series[Any]:
    """Times as numbers if all can be read so: then 10 comes after 9."""
    numbers = pd.to_numeric(column, errors="coerce")
    return column if numbers.isna().any() else numbers
