"""A SQLite database on which a model's queries run without being able to harm anything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from assay.errors import InputError

_WORKER = Path(__file__).with_name("worker.py")
_LEADING = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*(?:[^*]|\*(?!/))*+\*/)*+")
_QUERY = re.compile(r"(?:select|with|values)\b", re.IGNORECASE)
_STARTING = 20.0
"""Seconds that the process may take to open the database."""


@dataclass(frozen=True)
class Rows:
    """What a query gave.

    Attributes
    ----------
    columns
        Names of the columns.
    rows
        The rows as tuples of None, int, float, str and bytes.
    truncated
        Whether there were more than the database's ``max_rows``.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool = False

    def frame(self) -> pd.DataFrame:
        """The rows as a table."""
        return pd.DataFrame(list(self.rows), columns=list(self.columns))


@dataclass(frozen=True)
class SqlError:
    """Why a query gave no rows.

    Attributes
    ----------
    message
        For people.
    kind
        ``"sql"`` (SQLite's own complaint), ``"refused"`` (no query, or one that may not run), ``"timeout"`` or
        ``"limit"`` (memory, size of a value, of the statement or of the result).
    """

    message: str
    kind: Literal["sql", "refused", "timeout", "limit"] = "sql"


@dataclass(frozen=True)
class Table:
    """A table or view: its columns with their types, its primary key, and (column, table, its column) as foreign
    keys."""

    name: str
    columns: tuple[tuple[str, str], ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Schema:
    """The tables of a database, by lower-case name."""

    tables: Mapping[str, Table]

    def has(self, table: str, column: str) -> bool:
        """Whether the table has the column; letters' case does not count."""
        there = self.tables.get(table.lower())
        return there is not None and column.lower() in {name.lower() for name, _ in there.columns}


class SafeDatabase:
    """Run a model's queries on a SQLite database; nothing that it writes can change, read or reach anything else.

    Queries run in a process of their own, which opens the file read-only, may read its tables and call harmless
    functions only, has limits on time, memory, rows and the size of values, can write no file and open no other, and
    is ended when it does not answer in time. The file is taken not to change while a query runs.

    Parameters
    ----------
    source
        Path of a database; an open connection, of which a copy is made; or tables by name, of which a database is made.
    timeout
        Seconds a query may take, 5 by default.
    max_rows
        Rows that are returned; what comes after is left out and :attr:`Rows.truncated` says so.
    max_memory
        Bytes that SQLite may use for a query, 256 MiB by default.

    Raises
    ------
    InputError
        When there is no such file, it is no SQLite database, or a limit is not positive.

    Examples
    --------
    >>> import pandas as pd
    >>> with SafeDatabase({"t": pd.DataFrame({"a": [1, 2]})}) as db:
    ...     print(db.run("SELECT sum(a) FROM t").rows, db.run("DROP TABLE t").kind)
    ((3,),) refused
    """

    def __init__(
        self,
        source: str | Path | sqlite3.Connection | Mapping[str, pd.DataFrame],
        *,
        timeout: float = 5.0,
        max_rows: int = 10_000,
        max_memory: int = 256 * 2**20,
    ) -> None:
        for name, value, least in (
            ("timeout", timeout, 0.0),
            ("max_rows", max_rows, 0),
            ("max_memory", max_memory, 2**22),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least < value < float("inf"):
                raise InputError(f"{name} must be a number above {least}, got {value!r}")
        if not isinstance(max_rows, int):
            raise InputError(f"max_rows must be a whole number, got {max_rows!r}")
        self.timeout, self.max_rows, self.max_memory = float(timeout), max_rows, int(max_memory)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._worker: subprocess.Popen[bytes] | None = None
        self._ended: weakref.finalize[..., Any] | None = None
        self._lock = threading.Lock()
        self._owner, self._stamp = 0, (0, 0)
        self._buffer = b""
        self.path = self._file_of(source)
        self._schema = Schema({})
        with self._lock:
            self._start()

    def run(self, sql: str) -> Rows | SqlError:
        """Run one query.

        Parameters
        ----------
        sql
            One SELECT, VALUES or WITH … SELECT, with or without a semicolon and comments.

        Returns
        -------
        Rows or SqlError
            Never an exception for what a model may write.

        Raises
        ------
        TypeError
            When ``sql`` is no text.
        """
        if not isinstance(sql, str):
            raise TypeError(f"sql must be a text, got {type(sql).__name__}")
        start = _LEADING.match(sql)
        if not _QUERY.match(sql, start.end() if start else 0):
            return SqlError("not a query: it must be one SELECT, VALUES or WITH … SELECT", "refused")
        if "\0" in sql:
            return SqlError("not a query: it holds a null character", "refused")
        with self._lock:
            if self._worker is None or self._owner != os.getpid() or self._stamp != _stamp(self.path):
                self._start()
            try:
                line = json.dumps({"sql": sql, "timeout": self.timeout, "max_rows": self.max_rows}).encode() + b"\n"
            except ValueError:
                return SqlError("not a query: it is no text that can be written", "refused")
            deadline = time.monotonic() + 1.1 * self.timeout + 0.05
            try:
                found = self._ask(line, deadline)
            except BaseException:
                self._stop()  # interrupted between question and answer
                raise
            if found is None:
                self._stop()
                late = time.monotonic() >= deadline
                return SqlError(
                    *((f"timeout after {self.timeout:g} s", "timeout") if late else ("out of memory", "limit"))
                )
        if "error" in found:
            return SqlError(found["error"], found["kind"])
        rows = tuple(tuple(bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in row) for row in found["rows"])
        return Rows(tuple(found["columns"]), rows, found["truncated"])

    def schema(self) -> Schema:
        """The tables and views, their columns, types and keys."""
        return self._schema

    def schema_text(self, style: Literal["ddl", "compact"] = "ddl", values: int = 3) -> str:
        """The schema for a model's prompt.

        Parameters
        ----------
        style
            ``"ddl"`` (CREATE TABLE) or ``"compact"`` (a line a table).
        values
            How many example values stand beside each column; 0 for none.

        Raises
        ------
        InputError
            For another style or a negative number of values.
        """
        if style not in ("ddl", "compact"):
            raise InputError(f"style must be 'ddl' or 'compact', got {style!r}")
        if isinstance(values, bool) or not isinstance(values, int) or values < 0:
            raise InputError(f"values must be a whole number, 0 or more, got {values!r}")
        return "\n".join(
            _described(table, style, self._examples(table, values)) for table in self._schema.tables.values()
        )

    def close(self) -> None:
        """End the process and remove what was copied."""
        with self._lock:
            self._stop()
            if self._folder is not None:
                self._folder.cleanup()

    def __enter__(self) -> SafeDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _examples(self, table: Table, values: int) -> dict[str, list[str]]:
        if not values:
            return {}
        found = self.run(f"SELECT * FROM {_quoted(table.name)} LIMIT 200")
        if isinstance(found, SqlError):
            return {}
        shown: dict[str, list[str]] = {}
        for place, column in enumerate(found.columns):
            seen = dict.fromkeys(row[place] for row in found.rows if row[place] is not None)
            shown[column] = [_short(value) for value in list(seen)[:values]]
        return shown

    def _file_of(self, source: Any) -> Path:
        """The file to open, made where there is none, and copied where another may still be writing to it."""
        if isinstance(source, str | Path):
            path = Path(source)
            if not path.is_file():
                raise InputError(f"there is no database {path}")
            with path.open("rb") as file:
                head = file.read(16)
            if head and head != b"SQLite format 3\0":
                raise InputError(f"{path} is no SQLite database")
            unfinished = [Path(f"{path}{end}") for end in ("-wal", "-journal")]
            if not any(other.is_file() and other.stat().st_size for other in unfinished):
                return path.resolve()
            copy = self._new_file()
            shutil.copyfile(path, copy)
            for other, end in zip(unfinished, ("-wal", "-journal"), strict=True):
                if other.is_file():
                    shutil.copyfile(other, f"{copy}{end}")
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                try:
                    connection.execute("PRAGMA journal_mode=DELETE").fetchall()
                except sqlite3.Error as error:
                    raise InputError(f"{path} is no SQLite database that can be read: {error}") from None
            return copy
        if isinstance(source, sqlite3.Connection):
            if source.in_transaction:
                raise InputError("source has a transaction that is not finished; commit it first")
            copy = self._new_file()
            try:
                copy.write_bytes(source.serialize())
            except sqlite3.Error as error:
                raise InputError(f"source can't be copied: {error}") from None
            return copy
        if isinstance(source, Mapping):
            if not source or not all(isinstance(n, str) and isinstance(f, pd.DataFrame) for n, f in source.items()):
                raise InputError("source must be tables (DataFrame) by name, at least one")
            copy = self._new_file()
            with contextlib.closing(sqlite3.connect(copy)) as target:
                for name, frame in source.items():
                    try:
                        frame.to_sql(name, target, index=False)
                    except (ValueError, sqlite3.Error) as error:
                        raise InputError(f"the table {name!r} can't be put into a database: {error}") from None
                target.commit()
            return copy
        raise TypeError(f"source must be a path, a sqlite3 connection or tables by name, got {type(source).__name__}")

    def _new_file(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="sqlparts-")
        return Path(self._folder.name).resolve() / "copy.sqlite"

    def _start(self) -> None:
        self._stop()
        if not self.path.is_file():
            raise InputError(f"there is no database {self.path} any more")
        self._stamp, self._owner, self._buffer = _stamp(self.path), os.getpid(), b""
        value_bytes, result_bytes = 1_000_000, 32 * 2**20
        arguments = [urllib.parse.quote(str(self.path)), *map(str, (self.max_memory, value_bytes, result_bytes))]
        # Isolated: neither the environment nor the folder where we stand changes what the process imports.
        self._worker = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_WORKER), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", close_fds=True, env={},
        )  # fmt: skip
        self._ended = weakref.finalize(self, _end, self._worker, os.getpid())
        hello = self._ask(b"", time.monotonic() + _STARTING)
        if hello is None or "error" in hello:
            self._stop()
            raise InputError(f"{self.path} can't be read as a database: {(hello or {}).get('error', 'no answer')}")
        self._schema = Schema({name.lower(): _table(name, about) for name, about in hello["schema"].items()})

    def _stop(self) -> None:
        if self._ended is not None:
            self._ended()
        self._worker = self._ended = None

    def _ask(self, line: bytes, deadline: float) -> dict[str, Any] | None:
        """The answer to a line; None where none came in time or the process has ended."""
        worker = self._worker
        assert worker is not None
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            if line:
                worker.stdin.write(line)
                worker.stdin.flush()
        except OSError:
            return None
        pieces: list[bytes] = []
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([worker.stdout], [], [], left)[0]:
                return None
            piece = os.read(worker.stdout.fileno(), 1 << 20)
            if not piece:
                return None
            pieces.append(piece)
            if piece.endswith(b"\n"):
                return dict(json.loads(b"".join(pieces)))


def _end(worker: subprocess.Popen[bytes], owner: int) -> None:
    """End a process that this one has started; a fork of this one leaves it alone."""
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if os.getpid() == owner:
        worker.kill()
        worker.wait()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        about = path.stat()
    except OSError:
        return (0, 0)
    return about.st_mtime_ns, about.st_size


def _table(name: str, about: Mapping[str, Any]) -> Table:
    key = sorted((place, column) for column, _, place in about["columns"] if place)
    return Table(
        name,
        tuple((column, kind) for column, kind, _ in about["columns"]),
        tuple(column for _, column in key),
        tuple((here, there, column or here) for here, there, column in about["foreign_keys"]),
    )


def _described(table: Table, style: str, examples: Mapping[str, list[str]]) -> str:
    said = {column: ", ".join(examples.get(column, ())) for column, _ in table.columns}
    if style == "compact":
        columns = (column + (f" ({said[column]})" if said[column] else "") for column, _ in table.columns)
        return f"{table.name}: {', '.join(columns)}"
    lines = [(f"  {_quoted(c)} {kind}".rstrip(), f"  -- {said[c]}" if said[c] else "") for c, kind in table.columns]
    if table.primary_key:
        lines.append((f"  PRIMARY KEY ({', '.join(map(_quoted, table.primary_key))})", ""))
    for here, there, column in table.foreign_keys:
        lines.append((f"  FOREIGN KEY ({_quoted(here)}) REFERENCES {_quoted(there)} ({_quoted(column)})", ""))
    last = len(lines) - 1
    body = "\n".join(text + ("," if i < last else "") + note for i, (text, note) in enumerate(lines))
    return f"CREATE TABLE {_quoted(table.name)} (\n{body}\n);"


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def _short(value: Any, most: int = 40) -> str:
    text = " ".join(str(value).split()) if not isinstance(value, bytes) else f"{len(value)} bytes"
    return text if len(text) <= most else text[: most - 1] + "…"
