"""Reading a table of numbers from a file."""

from __future__ import annotations

import csv
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from assay.errors import InputError, MissingPart


@dataclass(frozen=True)
class Table:
    """Numbers with names.

    Attributes
    ----------
    numbers
        (n, d) float64; the columns' names are text, the index names the rows.
    notes
        How the file was understood, for people; empty where there was nothing to decide.
    """

    numbers: pd.DataFrame
    notes: tuple[str, ...] = ()


def read_table(path: Path, index: str | None = None, header: bool | None = None) -> Table:
    """Read a CSV, TSV, Parquet or ``.npy`` file whose columns are numbers.

    Parameters
    ----------
    path
        The file; its suffix says what it is. CSV and TSV may be compressed (``.csv.gz``); of their separator and
        decimal sign, ``;``, a tab and a decimal comma are recognised.
    index
        The column that names the rows and is no measurement.
    header
        Whether the first line of a CSV names the columns; ``None`` means: unless all of it is numbers.

    Raises
    ------
    InputError
        If the file is no such table: it names the columns that are not numbers or have missing values.
    OSError
        If it cannot be read.
    """
    path = Path(path)
    suffix = next((s for s in reversed(path.suffixes) if s.lower() not in (".gz", ".bz2", ".xz", ".zip")), "")
    notes: list[str] = []
    match suffix.lower():
        case ".csv" | ".tsv" | ".txt":
            frame = _read_csv(path, "," if suffix.lower() == ".csv" else "\t", header, notes)
        case ".parquet" | ".pq":
            frame = _read_parquet(path)
        case ".npy":
            frame = _read_npy(path)
        case _:
            raise InputError(f"{path.name}: a table must end in .csv, .tsv, .parquet or .npy")
    frame.columns = [str(name) for name in frame.columns]
    if index is not None:
        if index not in frame.columns:
            raise InputError(f"{path.name} has no column {index!r}; it has {_some(list(frame.columns))}")
        frame = frame.set_index(index)
    return Table(_numbers(frame, path), tuple(notes))


def _read_csv(path: Path, usual: str, header: bool | None, notes: list[str]) -> pd.DataFrame:
    try:
        lines = _first_lines(path)
        separator, decimal = _separators(lines, usual)
        rows = list(csv.reader(lines, delimiter=separator))
        # Lines that end with a separator have an empty field at their end.
        trailing = all(len(row) > 1 and row[-1].strip() == "" for row in rows[1:] or rows)
        names = [name.strip() for name in rows[0]]
        if header is None:
            header = not all(
                _is_number(name, decimal) for name in (names[:-1] if trailing and not names[-1] else names)
            )
            if not header:
                notes.append("the first line is all numbers, so it was read as a row and not as column names")
        _refuse_longer_lines(rows, trailing, path)
        # A table that pandas or R wrote with its row names: the first column has no name.
        row_names = header and names[0] == "" and len(names) > 1
        if row_names:
            notes.append("the first column has no name, so it was read as the rows' names")
        if separator != usual or decimal != ".":
            notes.append(f"columns were taken to be separated by {separator!r}, and {decimal!r} to be the decimal sign")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # index_col=False: pandas would make an index of the first column where lines are longer than the header.
            frame = pd.read_csv(
                path,
                sep=separator,
                decimal=decimal,
                header=0 if header else None,
                index_col=False,
                low_memory=False,
            )
    except (
        pd.errors.ParserError,
        pd.errors.ParserWarning,
        pd.errors.EmptyDataError,
        UnicodeDecodeError,
        csv.Error,
    ) as error:
        raise InputError(f"{path.name} cannot be read as a table: {str(error).strip()}") from None
    if trailing and len(frame.columns) > 1 and frame.iloc[:, -1].isna().all() and (not header or names[-1] == ""):
        frame = frame.iloc[:, :-1]
    if row_names:
        frame = frame.set_index(frame.columns[0]).rename_axis(index=None)
    if not header:
        frame.columns = [f"column{j}" for j in range(frame.shape[1])]
    return frame


def _first_lines(path: Path, most: int = 50) -> list[str]:
    """The first lines as they are; pandas takes care of compression and empty lines."""
    lines = pd.read_csv(
        path,
        sep="\x1f",
        header=None,
        names=["line"],
        nrows=most,
        dtype=str,
        keep_default_na=False,
        quoting=csv.QUOTE_NONE,
    )
    if lines.empty:
        raise pd.errors.EmptyDataError("it is empty")
    return list(lines["line"])


def _separators(lines: list[str], usual: str) -> tuple[str, str]:
    """What separates the columns, and the decimal sign: with which most fields are numbers; else the usual."""
    best, chosen = -1.0, (usual, ".")
    for separator, decimal in ((usual, "."), (",", "."), (";", "."), ("\t", "."), (";", ","), ("\t", ",")):
        rows = list(csv.reader(lines, delimiter=separator))
        rows = rows[1:] or rows
        if len({len(row) for row in rows}) != 1 or len(rows[0]) < 2:
            continue
        fields = [field for row in rows for field in row if field.strip()]
        share = sum(_is_number(field, decimal) for field in fields) / max(1, len(fields))
        if share > best:
            best, chosen = share, (separator, decimal)
    return chosen


def _refuse_longer_lines(rows: list[list[str]], trailing: bool, path: Path) -> None:
    first = len(rows[0])
    for number, row in enumerate(rows[1:], start=2):
        if len(row) > first + (trailing and rows[0][-1].strip() != ""):
            raise InputError(
                f"{path.name} cannot be read as a table: its first line has {first} fields, line {number} has "
                f"{len(row)}; give every column a name (an empty first name says that the column names the rows)"
            )


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise MissingPart(
            "pyarrow, to read Parquet, is not installed", 'python -m pip install "assay[parquet]"'
        ) from error
    except OSError:
        raise
    except Exception as error:  # pyarrow's errors derive from several classes
        raise InputError(f"{path.name} cannot be read as Parquet: {error}") from None


def _read_npy(path: Path) -> pd.DataFrame:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{path.name} cannot be read as a NumPy array: {error}") from None
    if array.ndim != 2:
        raise InputError(f"{path.name}: the array must have two dimensions, got shape {array.shape}")
    return pd.DataFrame(array, columns=[f"column{j}" for j in range(array.shape[1])])


def _numbers(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    if frame.empty:
        raise InputError(f"{path.name} has {frame.shape[0]} rows and {frame.shape[1]} columns of data")
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()].unique()
        raise InputError(f"{path.name}: column names stand there twice: {_some(list(twice))}")
    words = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        fix = "drop the column first (assay use has --index)" if len(words) == 1 else "drop them first"
        raise InputError(
            f"{path.name}: {len(words)} of {frame.shape[1]} columns are not numbers: {_some(words)}; "
            f"{fix}, or encode as numbers what is a measurement"
        )
    if any(np.issubdtype(dtype, np.complexfloating) for dtype in frame.dtypes if isinstance(dtype, np.dtype)):
        raise InputError(f"{path.name}: complex numbers have no order of variance here; give real ones")
    numbers = frame.astype(np.float64)
    bad = [name for name in numbers.columns if not np.isfinite(numbers[name]).all()]
    if bad:
        rows = int((~np.isfinite(numbers)).any(axis=1).sum())
        raise InputError(
            f"{path.name}: {len(bad)} columns have missing or infinite values, in {rows} of {len(numbers)} rows: "
            f"{_some(bad)}; drop those rows or fill the values in"
        )
    return numbers


def _is_number(text: str, decimal: str = ".") -> bool:
    if decimal != "." and "." in text:
        return False
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _some(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
