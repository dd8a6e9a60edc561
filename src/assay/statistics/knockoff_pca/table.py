"""Reading a table of numbers from a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.parts.frames import PARQUET, SEPARATED, read_parquet, read_separated, some, suffix


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
    notes: tuple[str, ...] = ()
    kind = suffix(path)
    if kind in SEPARATED:
        frame, notes = read_separated(path, header=header)
    elif kind in PARQUET:
        frame = read_parquet(path)
    elif kind == ".npy":
        frame = _read_npy(path)
    else:
        raise InputError(f"{path.name}: a table must end in .csv, .tsv, .parquet or .npy")
    frame.columns = [str(name) for name in frame.columns]
    if index is not None:
        if index not in frame.columns:
            raise InputError(f"{path.name} has no column {index!r}; it has {some(list(frame.columns))}")
        frame = frame.set_index(index)
    return Table(_numbers(frame, path), notes)


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
        raise InputError(f"{path.name}: column names stand there twice: {some(list(twice))}")
    words = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        fix = "drop the column first (assay use has --index)" if len(words) == 1 else "drop them first"
        raise InputError(
            f"{path.name}: {len(words)} of {frame.shape[1]} columns are not numbers: {some(words)}; "
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
            f"{some(bad)}; drop those rows or fill the values in"
        )
    return numbers
