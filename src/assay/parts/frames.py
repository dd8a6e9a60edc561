"""A user's tables: read from a file, asked for their columns, and made into numbers for an estimator."""

from __future__ import annotations

import bz2
import csv
import difflib
import gzip
import json
import lzma
import math
import warnings
import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from assay.errors import InputError, MissingPart, one_line
from assay.parts.archives import MOST_BYTES, opened

SEPARATED = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
JSON_LINES = (".jsonl", ".ndjson")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zip")
_OPEN: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# What pandas takes for missing by default; it is said here because in columns of text it is not.
_MISSING = [
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
]
_DAMAGED = (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
_READ_ERRORS = (
    pd.errors.ParserError,
    pd.errors.ParserWarning,
    pd.errors.EmptyDataError,
    UnicodeError,
    csv.Error,
    *_DAMAGED,
)


def read_frame(path: str | Path, *, text: Collection[str] = ()) -> pd.DataFrame:
    """Read a user's table: CSV or TSV (also compressed, ``.csv.gz``), Parquet, or one JSON object a line.

    Of a CSV's separator and decimal sign, ``;``, a tab and a decimal comma are recognised.

    Parameters
    ----------
    path
        The file; its suffix says what it is.
    text
        The columns that stay text whatever they look like: an id ``007`` is no number, and ``NA`` no missing value
        (only an empty field is). Those that the file does not have are passed over; see :func:`columns_named`.

    Returns
    -------
    DataFrame
        Numbers as int64 or float64, other columns as found; the columns' names are text. A first column without a name,
        as pandas and R write the names of rows, is the index.

    Raises
    ------
    InputError
        When there is no such file, its suffix or its content is no table, it has no rows, or two columns share a name.
    MissingPart
        When a Parquet file is to be read, and pyarrow is not installed.
    """
    path = Path(path)
    kind = suffix(path)
    if kind not in (*SEPARATED, *PARQUET, *JSON_LINES):
        raise InputError(f"{path.name}: a table must end in .csv, .tsv, .parquet or .jsonl")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if kind in PARQUET:
        frame = read_parquet(path)
    elif kind in JSON_LINES:
        frame = read_json_lines(path, text)
    else:
        frame, _ = read_separated(path, text=text, unique=True)
    frame.columns = [str(name) for name in frame.columns]
    if not frame.columns.is_unique:
        raise InputError(f"{path.name}: column names stand there twice: {some(_twice(frame.columns))}")
    if frame.empty:
        raise InputError(f"{path.name} has {frame.shape[0]} rows and {frame.shape[1]} columns of data")
    for column in text:
        if column in frame and kind in PARQUET:
            frame[column] = frame[column].map(str, na_action="ignore").astype(object)
    return frame


def columns_named(frame: pd.DataFrame, path: str | Path, *names: str) -> None:
    """Refuse a table that lacks one of these columns.

    Parameters
    ----------
    frame, path
        The table and where it came from.
    names
        The columns that it must have.

    Raises
    ------
    InputError
        It names those that are missing and, for each, the columns whose names are like it.
    """
    for name in names:
        if name in frame.columns:
            continue
        there = [str(column) for column in frame.columns]
        near = difflib.get_close_matches(name.lower(), [column.lower() for column in there], n=3, cutoff=0.6)
        like = [column for column in there if column.lower() in near]
        hint = f"did you mean {some(like)}?" if like else f"it has {some(there, 10)}"
        raise InputError(f"{Path(path).name} has no column {name!r}; {hint}")


def read_arrays(path: str | Path, most_bytes: int = MOST_BYTES) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an ``.npz`` file by name; arrays of Python objects, which are pickles, are refused.

    Parameters
    ----------
    path
        The file.
    most_bytes
        How large the arrays may be together, 16 GiB by default.

    Raises
    ------
    InputError
        When there is no such file, it is none or damaged, too large, or holds an array of objects.
    """
    path = Path(path)
    arrays: dict[str, npt.NDArray[Any]] = {}
    with opened(path, most_bytes) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".npy"):
                raise InputError(f"{path.name} is no .npz file: it holds {one_line(entry.filename, 60)}")
            name = entry.filename.removesuffix(".npy")
            try:
                with archive.open(entry) as file:
                    _check_header(file, entry.file_size, f"{path.name}, array {name}")
                with archive.open(entry) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
            except (ValueError, EOFError, TypeError, SyntaxError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"{path.name}, array {name}: it is damaged ({one_line(error, 120)})") from None
    if not arrays:
        raise InputError(f"{path.name} holds no arrays")
    return arrays


def preprocessor(frame: pd.DataFrame, min_frequency: int = 10, most_categories: int = 100) -> ColumnTransformer:
    """An unfitted transformer that makes numbers of a mixed table, with no missing values left.

    Numbers (and true/false): the median where they are missing, and a column that says where they were. Words: a
    column for each, rare ones and those that come up later together in one; missing is a word too. Estimators that need
    columns of one scale put a ``StandardScaler`` behind it.

    Parameters
    ----------
    frame
        The table, of which the names and types of columns are taken.
    min_frequency
        A word is rare when fewer rows than this have it.
    most_categories
        Columns that a column of words may become.

    Raises
    ------
    InputError
        When the table has no columns, or some that are neither numbers nor words: dates, complex numbers.
    """
    if not isinstance(frame, pd.DataFrame) or not frame.shape[1]:
        raise InputError("the table must be a DataFrame with at least one column")
    types = pd.api.types
    numbers = [c for c in frame if types.is_numeric_dtype(frame[c]) and not types.is_complex_dtype(frame[c])]
    words = [
        c
        for c in frame
        if types.is_string_dtype(frame[c])
        or types.is_object_dtype(frame[c])
        or isinstance(frame[c].dtype, pd.CategoricalDtype)
    ]
    others = [str(c) for c in frame if c not in numbers and c not in words]
    if others:
        raise InputError(f"columns must be numbers or words, and {some(others)} are neither: encode or drop them")
    impute = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    encode = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        min_frequency=min_frequency,
        max_categories=most_categories,
        sparse_output=False,
    )
    return ColumnTransformer(
        [("numbers", impute, numbers), ("words", make_pipeline(Words(), encode), words)],
        verbose_feature_names_out=False,
    )


class Words(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Makes text of whatever columns of words hold, and the word "missing" of None, NaN and NA alike."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> Words:
        """Take note of the columns' names."""
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: pd.DataFrame) -> npt.NDArray[np.object_]:
        """(n, columns) text."""
        made = np.full(X.shape, "missing", dtype=object)
        for j, name in enumerate(X.columns):
            there = X[name].notna().to_numpy()
            made[there, j] = [str(value) for value in X[name].to_numpy(dtype=object)[there]]
        return made


def suffix(path: Path) -> str:
    """The suffix that says what kind of table a file is, in lower case, without that of a compression."""
    return next((s.lower() for s in reversed(path.suffixes) if s.lower() not in _COMPRESSED), "")


def read_separated(
    path: Path, *, header: bool | None = True, text: Collection[str] | None = (), unique: bool = False
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Read a CSV or TSV, and say how it was understood.

    Parameters
    ----------
    path
        The file; compressed ones are unpacked.
    header
        Whether the first line names the columns; None means: unless all of it is numbers.
    text
        The columns that stay text; None stands for all of them.
    unique
        Whether two columns of the same name are refused; else the second is numbered (``x.1``).

    Returns
    -------
    frame, notes
        The table, and sentences for people, none where there was nothing to decide.

    Raises
    ------
    InputError
        When it is no such table.
    OSError
        When it cannot be read.
    """
    try:
        layout = _layout(path, "," if suffix(path) == ".csv" else "\t", header)
        names = pd.Index([name for name in layout.names if name.strip()])
        if unique and layout.header and not names.is_unique:
            raise InputError(f"{path.name}: column names stand there twice: {some(_twice(names))}")
        options: dict[str, Any] = {"dtype": str, "keep_default_na": False, "na_values": [""]}
        if text is not None:
            kept = [name for name in layout.names if layout.header and name in text]
            missing = {name: [""] if name in kept else _MISSING for name in layout.names}
            options = (
                {"dtype": dict.fromkeys(kept, str), "keep_default_na": False, "na_values": missing} if kept else {}
            )
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # index_col=False: pandas would make an index of the first column where lines are longer than the header.
            frame = pd.read_csv(
                path,
                sep=layout.separator,
                decimal=layout.decimal,
                header=0 if layout.header else None,
                index_col=False,
                low_memory=False,
                **options,
            )
    except _READ_ERRORS as error:
        raise InputError(f"{path.name} cannot be read as a table: {one_line(error)}") from None
    last = frame.iloc[:, -1] if frame.shape[1] > 1 else None
    if layout.trailing and last is not None and last.isna().all() and (not layout.header or layout.names[-1] == ""):
        frame = frame.iloc[:, :-1]
    if layout.row_names:
        frame = frame.set_index(frame.columns[0]).rename_axis(index=None)
    if not layout.header:
        frame.columns = [f"column{j}" for j in range(frame.shape[1])]
    return frame, layout.notes


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file.

    Raises
    ------
    InputError
        When it is none.
    MissingPart
        When pyarrow is not installed.
    """
    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise MissingPart(
            "pyarrow, to read Parquet, is not installed", 'python -m pip install "assay[parquet]"'
        ) from error
    except OSError:
        raise
    except Exception as error:  # pyarrow's errors derive from several classes
        raise InputError(f"{path.name} cannot be read as Parquet: {one_line(error)}") from None


def read_json_lines(path: Path, text: Collection[str] = ()) -> pd.DataFrame:
    """Read a file with one JSON object a line; names that an object lacks are missing values.

    Parameters
    ----------
    path
        The file; compressed ones are unpacked.
    text
        The columns whose values become text.

    Raises
    ------
    InputError
        When a line is no JSON object; it says which.
    """
    rows: list[dict[str, Any]] = []
    try:
        with _OPEN.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row = _json_object(line, f"{path.name}, line {number}")
                    as_text = {name: str(row[name]) for name in text if row.get(name) is not None}
                    rows.append(row | as_text)
    except (UnicodeError, *_DAMAGED) as error:
        raise InputError(f"{path.name} cannot be read as JSON lines: {one_line(error)}") from None
    return pd.DataFrame(rows)


def some(names: Sequence[str], most: int = 5) -> str:
    """Names for a message, quoted, the first few of them."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


@dataclass(frozen=True)
class _Layout:
    """How a file with separated values is to be understood."""

    separator: str
    decimal: str
    header: bool
    names: list[str]
    trailing: bool
    row_names: bool
    notes: tuple[str, ...]


def _layout(path: Path, usual: str, header: bool | None) -> _Layout:
    notes: list[str] = []
    lines = _first_lines(path)
    separator, decimal = _separators(lines, usual)
    rows = list(csv.reader(lines, delimiter=separator))
    # Lines that end with a separator have an empty field at their end.
    trailing = all(len(row) > 1 and row[-1].strip() == "" for row in rows[1:] or rows)
    names = [name.strip() for name in rows[0]]
    if header is None:
        header = not all(_is_number(name, decimal) for name in (names[:-1] if trailing and not names[-1] else names))
        if not header:
            notes.append("the first line is all numbers, so it was read as a row and not as column names")
    _refuse_longer_lines(rows, trailing, path)
    # A table that pandas or R wrote with its row names: the first column has no name.
    row_names = header and names[0] == "" and len(names) > 1
    if row_names:
        notes.append("the first column has no name, so it was read as the rows' names")
    if separator != usual or decimal != ".":
        notes.append(f"columns were taken to be separated by {separator!r}, and {decimal!r} to be the decimal sign")
    return _Layout(separator, decimal, header, rows[0], trailing, row_names, tuple(notes))


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
        if len(rows[0]) < 2:  # a sentence with one comma in every row makes no second column
            continue
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
                f"{len(row)}; give every column a name (an empty first name says that the column names the rows): "
                "a row is longer than the header"
            )


def _is_number(text: str, decimal: str = ".") -> bool:
    if decimal != "." and "." in text:
        return False
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _twice(names: pd.Index[Any]) -> list[str]:
    return list(names[names.duplicated()].unique())


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be read as JSON: {one_line(error, 120)}") from None
    if not isinstance(row, dict):
        raise InputError(f"{where} must be a JSON object, and is a {type(row).__name__}")
    return row


def _check_header(file: IO[bytes], size: int, what: str) -> None:
    """Refuse an array whose header promises more than is there, or objects."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise InputError(
            f"{what} is of Python objects, which are not read from files: write text with .astype(str), and numbers "
            "with NaN where they are missing"
        )
    if math.prod(shape) * dtype.itemsize > size:
        raise InputError(f"{what} is damaged: its header promises more than is there")
