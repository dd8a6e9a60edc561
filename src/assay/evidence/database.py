"""From what the user wrote to an open database, and from its errors to one line."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from assay.errors import InputError, MissingPart

WAIT_SECONDS = 30
"""How long a transaction waits for another program's."""

_FORMS = "give sqlite:///results.db, a path that ends in .db or .sqlite, or postgresql://user@host/database"
_SPARE = "restore a copy or name another storage"

# The answers of a PostgreSQL server that is there but cannot serve now.
_BUSY = re.compile(r"starting up|shutting down|too many|recovery mode|connection slots|not accepting")


def without_password(url: str) -> str:
    """Return what may be no well-formed URL without its password and its options."""
    return re.sub(r"://([^:@/]*):.*@", r"://\1@", url).partition("?")[0]


class Database:
    """An engine for SQLite or PostgreSQL, with one connection, transactions and readable errors.

    Attributes
    ----------
    engine
        SQLAlchemy's engine; its one connection is for one thread at a time.
    shown
        The URL as it may be printed.
    """

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self.shown = URL.create(
            parsed.get_backend_name(), parsed.username, None, parsed.host, parsed.port, parsed.database
        ).render_as_string()
        self._file: Path | None = None
        self._identity: tuple[int, int] | None = None
        if parsed.get_backend_name() == "postgresql":
            self.engine = _postgresql(parsed)
            return
        name = parsed.database
        in_memory = not name or ":memory:" in name or "mode=memory" in url
        if not in_memory and name and not name.startswith("file:"):
            # Absolute, so that a later change of the working directory does not lead to another file.
            self._file = Path(name).absolute()
            self._check_file(self._file)
            parsed = parsed.set(database=str(self._file))
        self.engine = _sqlite(parsed, in_memory)

    def _check_file(self, path: Path) -> None:
        if path.is_dir():
            raise InputError(f"storage {self.shown} is a folder; name a file in it, e.g. {path / 'assay.db'}")
        if not path.parent.is_dir():
            raise InputError(f"storage {self.shown}: there is no folder {path.parent}; create it first")

    def use_wal(self) -> None:
        """Let readers and a writer of an SQLite file work at the same time; kept in the file."""
        if self.engine.dialect.name != "sqlite":
            return
        end = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                with closing(self.engine.raw_connection()) as connection:
                    connection.cursor().execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                # SQLite does not wait for this one by itself when two open a new file at once.
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def note_file(self) -> None:
        """Remember which file is open."""
        if self._file is not None:
            found = self._file.stat()
            self._identity = (found.st_dev, found.st_ino)

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[Connection]:
        """Yield a connection in a transaction, committed at the end; errors become one line."""
        with (
            self.readable_errors(),
            self.engine.connect().execution_options(assay_write=write) as connection,
            connection.begin(),
        ):
            if write:
                self._check_identity()
            yield connection

    def _check_identity(self) -> None:
        # SQLite goes on writing to a file that was deleted; what it writes would be lost without a word.
        if self._file is None or self._identity is None:
            return
        try:
            found = self._file.stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise OSError(f"storage {self.shown} was removed or replaced while it was in use; open it again")

    @contextmanager
    def readable_errors(self) -> Iterator[None]:
        """Turn the database's own errors into the one-line errors that ``Storage`` names."""
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            cause = getattr(error, "orig", None) or error
            readable = self._from_sqlite(cause) if isinstance(cause, sqlite3.Error) else self._from_postgresql(cause)
            if readable is None:  # a mistake of ours
                raise
            raise readable from error

    def _from_sqlite(self, cause: sqlite3.Error) -> Exception | None:
        why = _line(cause)
        match getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF:
            case sqlite3.SQLITE_NOTADB:
                return InputError(f"storage {self.shown} is not an SQLite database; {_FORMS}")
            case sqlite3.SQLITE_CORRUPT:
                return InputError(f"storage {self.shown} is damaged ({why}); {_SPARE}")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
                return PermissionError(f"storage {self.shown} cannot be written: {why}")
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return OSError(f"storage {self.shown} is locked: another program has held it for {WAIT_SECONDS} s")
            case sqlite3.SQLITE_ERROR if isinstance(cause, sqlite3.OperationalError):
                return InputError(f"storage {self.shown} is damaged ({why}); {_SPARE}")
            case _ if isinstance(cause, sqlite3.OperationalError):
                return OSError(f"storage {self.shown} cannot be used: {why}")
            case _:
                return None

    def _from_postgresql(self, cause: BaseException) -> Exception | None:
        if not hasattr(cause, "sqlstate"):
            return None
        import psycopg

        why = _line(cause)
        lost = ConnectionError(f"storage {self.shown} cannot be reached: {why}")
        match str(getattr(cause, "sqlstate", None) or ""):
            case "" if isinstance(cause, psycopg.OperationalError) and "FATAL:" in why:
                why = why.partition("FATAL:")[2].strip()
                return lost if _BUSY.search(why) else InputError(f"storage {self.shown} refuses: {why}")
            case "" if isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
                return lost
            case "" if isinstance(cause, psycopg.ProgrammingError):
                return InputError(f"storage {self.shown} has a wrong option in its URL: {why}")
            case "57P01" | "57P02" | "57P03" | "53300":
                return lost
            case code if code.startswith("08"):
                return lost
            case code if code.startswith(("28", "3D", "3F")):
                return InputError(f"storage {self.shown} refuses: {why}")
            case "25006" | "42501":
                return PermissionError(f"storage {self.shown} cannot be written: {why}")
            case code if code.startswith(("40", "53", "55", "57", "58")):
                return OSError(f"storage {self.shown} cannot be used: {why}")
            case "42P01" | "42703" | "XX001" | "XX002":
                return InputError(f"storage {self.shown} is damaged ({why}); {_SPARE}")
        return None


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _parse(url: str) -> URL:
    if "://" not in url and Path(url).suffix in (".db", ".sqlite", ".sqlite3"):
        return URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        parsed = make_url(re.sub(r"^postgres://", "postgresql://", url))
    except (ArgumentError, ValueError):
        raise InputError(f"storage {without_password(url)!r} is not a database URL; {_FORMS}") from None
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if parsed.host:
                raise InputError(
                    f"storage {without_password(url)!r}: an SQLite URL has three slashes before a relative path "
                    "and four before an absolute one, e.g. sqlite:///results.db"
                )
            if parsed.query and "uri" not in parsed.query:
                raise InputError(f"storage {without_password(url)!r}: take {', '.join(parsed.query)} out of the URL")
            return parsed.set(drivername="sqlite+pysqlite")
        case "postgresql" | "postgresql+psycopg":
            return parsed.set(drivername="postgresql+psycopg")
    raise InputError(f"storage {without_password(url)!r}: assay knows SQLite and PostgreSQL; {_FORMS}")


def _sqlite(url: URL, in_memory: bool) -> Engine:
    pool: dict[str, Any] = {"poolclass": StaticPool} if in_memory else {"poolclass": QueuePool, "pool_size": 1}
    engine = create_engine(url, connect_args={"timeout": WAIT_SECONDS, "check_same_thread": False}, **pool)

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # sqlite3 must not begin transactions by itself: we do, below
        connection.execute("PRAGMA synchronous=NORMAL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later could fail half-way; one that will write says so.
        write = connection.get_execution_options().get("assay_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingPart("a storage in PostgreSQL needs psycopg", "python -m pip install 'psycopg[binary]'") from None
    # A peer that vanished is noticed within half a minute; what the URL says comes first.
    options = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
               "tcp_user_timeout": 30_000, "application_name": "assay"}  # fmt: skip
    arguments: dict[str, Any] = {name: value for name, value in options.items() if name not in url.query}
    engine = create_engine(
        url,
        # Prepared statements outlive a change of the tables and do not pass through every pooler.
        connect_args=arguments | {"prepare_threshold": None},
        isolation_level="READ COMMITTED", pool_size=1, max_overflow=0, pool_pre_ping=True,
    )  # fmt: skip

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = '{WAIT_SECONDS}s'")
        connection.commit()

    return engine
