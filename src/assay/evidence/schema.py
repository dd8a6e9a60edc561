"""The tables of a storage, their version, and the path from older versions to it."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    select,
    text,
)  # fmt: skip

from assay.errors import InputError

VERSION = 2
"""The version of the tables that this assay writes."""

TABLES = MetaData()

meta = Table(
    "assay_meta", TABLES,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)  # fmt: skip

# Seconds and memory may be NULL: SQLite keeps no NaN and stores NULL in its place.
record = Table(
    "assay_record", TABLES,
    Column("key", Text, primary_key=True),
    Column("study", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("arm", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("budget", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("cpu_seconds", Double),
    Column("wall_seconds", Double),
    Column("peak_mib", Double),
    Column("shared", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("versions", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("finished", Text, nullable=False),
    Index("assay_record_study", "study"),
)  # fmt: skip

lease = Table(
    "assay_lease", TABLES,
    Column("key", Text, primary_key=True),
    Column("owner", Text, nullable=False, index=True),
)  # fmt: skip

run = Table(
    "assay_run", TABLES,
    Column("id", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started", Text, nullable=False),
    Column("beat", BigInteger, nullable=False),
)  # fmt: skip

# `id` is a digest of the other columns: a context can be longer than an index of PostgreSQL takes.
look = Table(
    "assay_look", TABLES,
    Column("id", Text, primary_key=True),
    Column("study", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("seeds", Integer, nullable=False),
    Index("assay_look_study", "study"),
)  # fmt: skip

# `id` as above. What a report needs of a check and nobody searches for stands in `data`, as JSON.
check = Table(
    "assay_check", TABLES,
    Column("id", Text, primary_key=True),
    Column("study", Text, nullable=False),
    Column("budget", Text, nullable=False),
    Column("context", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("finished", Text, nullable=False),
    Column("data", Text, nullable=False),
    Index("assay_check_study", "study"),
)  # fmt: skip


def _add_checks(connection: Connection) -> None:
    # Written out, not taken from `check`: a later version may give that table other columns.
    for statement in (
        "CREATE TABLE assay_check (id TEXT NOT NULL PRIMARY KEY, study TEXT NOT NULL, budget TEXT NOT NULL, "
        "context TEXT NOT NULL, identity TEXT NOT NULL, finished TEXT NOT NULL, data TEXT NOT NULL)",
        "CREATE INDEX assay_check_study ON assay_check (study)",
    ):
        connection.execute(text(statement))


MIGRATIONS: dict[int, Callable[[Connection], None]] = {1: _add_checks}
"""A version to the function that makes the next one of it, inside one transaction."""

# Any number that other programs are unlikely to lock on.
_LOCK = 0x61737361


def state(connection: Connection, shown: str) -> int:
    """Return the version of the tables, 0 where the database is empty.

    Raises
    ------
    InputError
        If the database belongs to another program, or was written by a newer assay, or is incomplete.
    """
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return 0
    if meta.name not in tables:
        some = ", ".join(sorted(tables)[:3]) + (", …" if len(tables) > 3 else "")
        raise InputError(f"storage {shown} holds another program's tables ({some}); name a database of assay's own")
    value = connection.execute(select(meta.c.value).where(meta.c.name == "version")).scalar()
    if value is None or not str(value).isascii() or not str(value).isdigit() or int(value) < 1:
        raise InputError(
            f"storage {shown} is damaged: its version is {value!r}; restore a copy or name another storage"
        )
    version = int(value)
    if version > VERSION:
        raise InputError(
            f"storage {shown} was written by a newer assay (its tables have version {version}, this assay "
            f"knows {VERSION}); upgrade assay: python -m pip install --upgrade assay"
        )
    missing = sorted({table.name for table in TABLES.tables.values()} - tables)
    if version == VERSION and missing:
        raise InputError(
            f"storage {shown} is damaged: it has no table {', '.join(missing)}; restore a copy or name another storage"
        )
    return version


def prepare(connection: Connection, shown: str) -> None:
    """Create the tables, or bring them from an older version to this one; in a transaction that writes."""
    if connection.dialect.name == "postgresql":
        # SQLite's transaction is exclusive already; here the second of two must wait and look again.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    version = state(connection, shown)
    if version == 0:
        TABLES.create_all(connection, checkfirst=False)
        connection.execute(meta.insert().values(name="version", value=str(VERSION)))
        return
    for old in range(version, VERSION):
        if old not in MIGRATIONS:
            raise InputError(
                f"storage {shown} is too old (its tables have version {old}, this assay knows {VERSION}); "
                "name another storage"
            )
        MIGRATIONS[old](connection)
        connection.execute(meta.update().where(meta.c.name == "version").values(value=str(old + 1)))
