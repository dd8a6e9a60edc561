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

_TRIES = 5
"""How often a query, or a copy, is begun again while another program writes to the file."""

_VALUE_BYTES, _RESULT_BYTES = 1_000_000, 32 * 2**20
_MOST_CHARACTERS = 100_000

_OPEN: weakref.WeakSet[SafeDatabase] = weakref.WeakSet()


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
    is ended when it does not answer in time. Nothing is left behind, also where this process is killed. Threads may
    share it; their queries run one after the other. When another program changes the file, the next query sees it.

    Parameters
    ----------
    source
        Path of a SQLite file, which is never written to; an open connection, of which a copy is made; or tables by
        name, of which a database is made.
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
        for name, value, least, most in (
            ("timeout", timeout, 0, 86_400),
            ("max_rows", max_rows, 0, 10**9),
            ("max_memory", max_memory, 2**22, 2**40),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or not least < value <= most:
                raise InputError(f"{name} must be a number above {least} and at most {most}, got {value!r}")
        if not isinstance(max_rows, int):
            raise InputError(f"max_rows must be a whole number, got {max_rows!r}")
        self.timeout, self.max_rows, self.max_memory = float(timeout), max_rows, int(max_memory)
        self._worker: subprocess.Popen[bytes] | None = None
        self._ended: weakref.finalize[..., Any] | None = None
        self._lock = threading.Lock()
        self._owner, self._stamp, self._closed = 0, _NOTHING, False
        self.path: Path | None = None
        self._image = b""
        if isinstance(source, str | os.PathLike):
            self.path = _file(Path(source))
        else:
            self._image = _image(source)
        self._schema = Schema({})
        with self._lock:
            self._start()
        _OPEN.add(self)

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
        InputError
            When the database is closed, or its file is gone or no database any more.
        """
        if not isinstance(sql, str):
            raise TypeError(f"sql must be a text, got {type(sql).__name__}")
        if len(sql) > _MOST_CHARACTERS:
            return SqlError(f"the statement is longer than {_MOST_CHARACTERS} characters", "limit")
        start = _LEADING.match(sql)
        if not _QUERY.match(sql, start.end() if start else 0):
            return SqlError("not a query: it must be one SELECT, VALUES or WITH … SELECT", "refused")
        if "\0" in sql:
            return SqlError("not a query: it holds a null character", "refused")
        line = json.dumps({"sql": sql, "timeout": self.timeout, "max_rows": self.max_rows}).encode() + b"\n"
        with self._lock:
            if self._closed:
                raise InputError("the database is closed")
            for _ in range(_TRIES):
                if self._worker is None or self._owner != os.getpid() or self._stamp != _stamp(self.path):
                    self._start()
                found = self._answer(line)
                if self._stamp == _stamp(self.path):
                    break
            else:
                return SqlError("another program is writing to the file", "sql")
        if isinstance(found, SqlError):
            return found
        if "error" in found:
            return SqlError(found["error"], found["kind"])
        rows = tuple(tuple(bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for v in row) for row in found["rows"])
        return Rows(tuple(found["columns"]), rows, found["truncated"])

    def _answer(self, line: bytes) -> dict[str, Any] | SqlError:
        """What the process says to a line; it is ended where it says nothing in time."""
        deadline = time.monotonic() + 1.1 * self.timeout + 0.05
        try:
            found = self._ask(line, deadline)
        except BaseException:
            self._stop()  # interrupted between question and answer
            raise
        if found is not None:
            return found
        self._stop()
        if time.monotonic() >= deadline:
            return SqlError(f"timeout after {self.timeout:g} s", "timeout")
        return SqlError("out of memory, or the process was ended by another", "limit")

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when somebody writes to the file; nothing for a copy."""
        return _stamp(self.path)

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
            _described(table, style, self._examples(table, values))
            for table in self._schema.tables.values()
            if table.columns  # not a view of what is gone
        )

    def close(self) -> None:
        """End the process; nothing can be asked any more."""
        with self._lock:
            self._closed = True
            self._stop()

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

    def _start(self) -> None:
        self._stop()
        with contextlib.ExitStack() as until_opened:
            path, unfinished = self._to_open(until_opened)
            limits = (self.max_memory, _VALUE_BYTES, _RESULT_BYTES, int(unfinished))
            # Isolated: neither the environment nor the folder where we stand changes what the process imports.
            self._worker = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WORKER), urllib.parse.quote(os.fsencode(path)), *map(str, limits)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", close_fds=True,
                env={},
            )  # fmt: skip
            self._owner = os.getpid()
            self._ended = weakref.finalize(self, _end, self._worker, self._owner)
            assert self._worker.stdin is not None
            os.set_blocking(self._worker.stdin.fileno(), False)
            try:
                hello = self._ask(b"", time.monotonic() + _STARTING)
            except BaseException:
                self._stop()
                raise
        if hello is None or "error" in hello:
            self._stop()
            what = self.path or "the database"
            raise InputError(f"{what} can't be read as a database: {(hello or {}).get('error', 'no answer')}")
        self._schema = Schema({name.lower(): _table(name, about) for name, about in hello["schema"].items()})

    def _to_open(self, until_opened: contextlib.ExitStack) -> tuple[Path, bool]:
        """The file to open, and whether it is a copy that has unfinished changes beside it.

        A copy is removed as soon as the process holds it open, so that none is left when somebody is killed.
        """
        if self.path is None:
            copy = _new_copy(until_opened)
            copy.write_bytes(self._image)
            return copy, False
        for _ in range(_TRIES):
            _file(self.path)
            self._stamp = _stamp(self.path)
            beside = [Path(f"{self.path}{end}") for end in _UNFINISHED]
            if not any(other.is_file() and other.stat().st_size for other in beside):
                return self.path, False
            copy = _new_copy(until_opened)
            with contextlib.suppress(FileNotFoundError):  # finished while we copied
                shutil.copyfile(self.path, copy)
                for other, end in zip(beside, _UNFINISHED, strict=True):
                    if other.is_file():
                        shutil.copyfile(other, f"{copy}{end}")
            if self._stamp == _stamp(self.path):
                return copy, True
        raise InputError(f"another program is writing to {self.path}; try again when it has finished")

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
        into, out = worker.stdin.fileno(), worker.stdout.fileno()
        pieces: list[bytes] = []
        size = 0
        while True:
            left = deadline - time.monotonic()
            waiting = select.poll()  # unlike select, also where more than 1024 files are open
            waiting.register(out, select.POLLIN)
            if line:
                waiting.register(into, select.POLLOUT)
            ready = {file for file, _ in waiting.poll(1000 * left)} if left > 0 else set()
            try:
                if out in ready:
                    piece = os.read(out, 1 << 20)
                    pieces.append(piece)
                    size += len(piece)
                    if not piece or size > 2 * _RESULT_BYTES:
                        return None
                    if piece.endswith(b"\n"):
                        return dict(json.loads(b"".join(pieces)))
                elif into in ready:
                    line = line[os.write(into, line) :]
                else:
                    return None
            except OSError:
                return None


def _end(worker: subprocess.Popen[bytes], owner: int) -> None:
    """End a process that this one has started; a fork of this one leaves it alone."""
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    if os.getpid() == owner:
        worker.kill()
        worker.wait()


def _unlocked_in_child() -> None:
    """A fork may come while another thread holds a lock; in the child nobody would ever release it."""
    for database in _OPEN:
        database._lock = threading.Lock()


os.register_at_fork(after_in_child=_unlocked_in_child)

_UNFINISHED = ("-wal", "-journal")
_NOTHING: tuple[tuple[int, int, int], ...] = ()


def _stamp(path: Path | None) -> tuple[tuple[int, int, int], ...]:
    """What changes when somebody writes to a file or beside it."""
    if path is None:
        return _NOTHING
    stamps = []
    for end in ("", *_UNFINISHED):
        try:
            about = os.stat(f"{path}{end}")
            stamps.append((about.st_mtime_ns, about.st_size, about.st_ino))
        except OSError:
            stamps.append((0, 0, 0))
    return tuple(stamps)


def _file(path: Path) -> Path:
    """The path where it leads, if there is a SQLite file."""
    try:
        found = path.is_file()
    except ValueError:  # a null character
        found = False
    if not found:
        raise InputError(f"there is no database {path}")
    with path.open("rb") as file:
        head = file.read(16)
    if head and head != b"SQLite format 3\0":
        raise InputError(f"{path} is no SQLite database")
    return path.resolve()


def _image(source: Any) -> bytes:
    """A database of what is no file, as the bytes of one."""
    if isinstance(source, sqlite3.Connection):
        if source.in_transaction:
            raise InputError("source has a transaction that is not finished; commit it first")
        try:
            return source.serialize()
        except sqlite3.Error as error:
            raise InputError(f"source can't be copied: {error}") from None
    if isinstance(source, Mapping):
        if not source or not all(isinstance(n, str) and isinstance(f, pd.DataFrame) for n, f in source.items()):
            raise InputError("source must be tables (DataFrame) by name, at least one")
        with contextlib.closing(sqlite3.connect(":memory:")) as target:
            for name, frame in source.items():
                try:
                    frame.to_sql(name, target, index=False)
                except (ValueError, TypeError, OverflowError, sqlite3.Error) as error:
                    raise InputError(f"the table {name!r} can't be put into a database: {error}") from None
            target.commit()
            return target.serialize()
    raise TypeError(f"source must be a path, a sqlite3 connection or tables by name, got {type(source).__name__}")


def _new_copy(until_opened: contextlib.ExitStack) -> Path:
    folder = until_opened.enter_context(tempfile.TemporaryDirectory(prefix="sqlparts-"))
    return Path(folder).resolve() / "copy.sqlite"


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
