"""Where records live: SQLite in a file, or PostgreSQL by URL.

Several runs can work on one storage. A run leases a cell before it works on it; the leases of a run that died pass to
whoever asks next. A record is written once, by the run that holds its lease.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, delete, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from assay.errors import InputError
from assay.evidence import schema, stored_check
from assay.evidence.database import Database
from assay.evidence.owner import DEAD, Owner, Watch, gone, this_run
from assay.evidence.record import Record
from assay.evidence.rows import JSON_COLUMNS, from_row, text, to_row
from assay.evidence.stored_check import StoredCheck

LEASE_SECONDS = 60.0
"""How long a run may give no sign of life, while its process cannot be asked, before its leases pass on."""

_CHUNK = 400  # keys in one statement, each with one more value at most; older SQLite takes at most 999 values


class Storage:
    """Records in a database, and the leases of the runs that write them.

    One object stands for one run; its methods may be called from several threads.

    Parameters
    ----------
    url
        ``sqlite:///results.db``, a path that ends in ``.db`` or ``.sqlite``, or
        ``postgresql://user@host/database``. A database that is empty gets assay's tables; one with older tables is
        brought up to date.

    Raises
    ------
    InputError
        If the URL names no database that assay can use: another program's, a damaged one, one of a newer assay.
    MissingPart
        If the package for PostgreSQL is not installed.
    ConnectionError
        If the server cannot be reached; also from every method, and the next call connects again.
    OSError
        If the file cannot be read or written, or another program has locked it; also from every method.
    """

    def __init__(self, url: str = "sqlite:///assay.db") -> None:
        self._database = Database(url)
        self._lock = threading.RLock()
        self._closed = False
        self._owner = this_run()
        self._known = False  # whether the storage knows this run; a storage that is only read is left as it is
        self._watch = Watch()
        self._insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[
            self._database.engine.dialect.name
        ]
        try:
            self._open()
        except BaseException:
            self._database.engine.dispose()
            raise

    def _open(self) -> None:
        with self._transaction(write=False) as connection:
            version = schema.state(connection, self.url)
        if version == 0:
            with self._database.readable_errors():
                self._database.use_wal()
        if version < schema.VERSION:
            with self._transaction(write=True) as connection:
                schema.prepare(connection, self.url)
        self._database.note_file()

    @property
    def url(self) -> str:
        """The database's URL as it may be printed: without a password."""
        return self._database.shown

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Connection]:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"storage {self.url} is closed")
            with self._database.transaction(write=write) as connection:
                yield connection

    # Records

    def finished(self, keys: Collection[str]) -> dict[str, Record]:
        """Return the stored records among ``keys``, whatever their status."""
        found: dict[str, Record] = {}
        with self._transaction(write=False) as connection:
            for chunk in _chunks(keys):
                rows = connection.execute(select(schema.record).where(schema.record.c.key.in_(chunk)))
                found.update((row.key, from_row(row, self.url)) for row in rows)
        return found

    def records(self, **where: str | int | float) -> list[Record]:
        """Return all records, or those whose columns equal ``where``, in the order in which they were finished.

        >>> with Storage("sqlite://") as storage:
        ...     storage.records(study="knockoff-pca", status="ok")
        []
        """
        table = schema.record
        query = select(table).order_by(table.c.finished, table.c.key)
        for name, value in where.items():
            if name not in table.c or name in JSON_COLUMNS:
                can = ", ".join(column.name for column in table.c if column.name not in JSON_COLUMNS)
                raise InputError(f"records cannot be chosen by {name!r}; choose by {can}")
            query = query.where(table.c[name] == value)
        with self._transaction(write=False) as connection:
            return [from_row(row, self.url) for row in connection.execute(query)]

    def forget(self, keys: Collection[str]) -> int:
        """Delete the records under ``keys``; return how many there were."""
        count = 0
        with self._transaction(write=True) as connection:
            for chunk in _chunks(keys):
                count += connection.execute(delete(schema.record).where(schema.record.c.key.in_(chunk))).rowcount
        return count

    def delete(self, records: Iterable[Record]) -> tuple[int, int]:
        """Delete these records as they were read, and the checks of which no record is left.

        A record that another run has written anew since, or whose cell a living run holds, stays. What was looked at
        stays noted: the same seeds give the same numbers again.

        Returns
        -------
        tuple of int
            How many records and how many checks were deleted.
        """
        table, read = schema.record, {record.key: record.finished for record in records}
        held = self.held_by_others(read)
        deleted: set[str] = set()
        with self._transaction(write=True) as connection:
            for chunk in _chunks(key for key in read if key not in held):
                as_read = tuple_(table.c.key, table.c.finished).in_([(key, read[key]) for key in chunk])
                deleted.update(connection.execute(delete(table).where(as_read).returning(table.c.key)).scalars())
            empty = self._without_records(connection, deleted)
            for chunk in _chunks(empty):
                connection.execute(delete(schema.check).where(schema.check.c.id.in_(chunk)))
        return len(deleted), len(empty)

    def _without_records(self, connection: Connection, deleted: set[str]) -> list[str]:
        """The checks that had some of the cells ``deleted`` and have no record left; one that is damaged is no such."""
        empty = []
        for row in connection.execute(select(schema.check)).all() if deleted else ():
            with suppress(InputError):
                keys = stored_check.from_row(row, self.url).keys
                if not deleted.isdisjoint(keys) and not _any_stored(connection, keys):
                    empty.append(row.id)
        return empty

    # Leases

    def lease(self, key: str) -> bool:
        """Take the cell ``key`` for this run; ``False`` where it is stored already or another run holds it."""
        self._register()
        table = schema.lease
        mine = self._owner.id
        insert = self._insert(table).values(key=key, owner=mine).on_conflict_do_nothing().returning(table.c.key)
        with self._transaction(write=True) as connection:
            # Two rounds: the lease that stood in the way may be gone when we look at it.
            for _ in range(2):
                if connection.execute(insert).first() is not None:
                    break
                owner = self._holder(connection, key)
                if owner is None:
                    continue
                if owner.id == mine:
                    return True
                if self._watch.alive(owner, LEASE_SECONDS):
                    return False
                # Of several successors one finds the old owner still there.
                taken = connection.execute(
                    update(table).where(table.c.key == key, table.c.owner == owner.id).values(owner=mine)
                )
                if taken.rowcount != 1:
                    return False
                break
            else:
                return False
            # Only now, with the lease in hand, can nobody else store the record any more.
            stored = connection.execute(select(schema.record.c.key).where(schema.record.c.key == key)).first()
            if stored is not None:
                connection.execute(delete(table).where(table.c.key == key, table.c.owner == mine))
            return stored is None

    def finish(self, record: Record) -> bool:
        """Store ``record`` and give up its lease, both or neither.

        Returns
        -------
        bool
            ``False`` where nothing was stored: this run does not hold the lease, because a successor took it over
            while this run gave no sign of life, or a record stands already.
        """
        values = to_row(record)
        held = schema.lease.c.key == record.key, schema.lease.c.owner == self._owner.id
        store = self._insert(schema.record).on_conflict_do_nothing().returning(schema.record.c.key)
        with self._transaction(write=True) as connection:
            if connection.execute(delete(schema.lease).where(*held)).rowcount != 1:
                return False
            return connection.execute(store, values).first() is not None

    def release(self, keys: Collection[str] | None = None) -> None:
        """Give up this run's leases on ``keys``, or all of them, without a record."""
        mine = delete(schema.lease).where(schema.lease.c.owner == self._owner.id)
        with self._transaction(write=True) as connection:
            if keys is None:
                connection.execute(mine)
                return
            for chunk in _chunks(keys):
                connection.execute(mine.where(schema.lease.c.key.in_(chunk)))

    def beat(self) -> None:
        """Give a sign of life; to be called every few seconds while this run holds leases.

        After :meth:`close` it does nothing, so that a thread may come late.
        """
        with self._lock:
            if self._closed:
                return
            self._register()
            table = schema.run
            with self._transaction(write=True) as connection:
                moved = connection.execute(
                    update(table).where(table.c.id == self._owner.id).values(beat=table.c.beat + 1)
                )
                self._known = moved.rowcount == 1
                others = connection.execute(select(table).where(table.c.id != self._owner.id)).all()
            for row in others:
                self._watch.alive(Owner(*row), LEASE_SECONDS)  # so that the wait for a silent one begins now

    def held_by_others(self, keys: Collection[str]) -> set[str]:
        """Return those of ``keys`` that other runs hold which seem alive."""
        held: set[str] = set()
        with self._transaction(write=False) as connection:
            for chunk in _chunks(keys):
                rows = connection.execute(
                    _holders.where(schema.lease.c.key.in_(chunk), schema.lease.c.owner != self._owner.id)
                ).all()
                owners = {row.owner: _owner(row) for row in rows}
                living = {id for id, owner in owners.items() if self._watch.alive(owner, LEASE_SECONDS)}
                held.update(row.key for row in rows if row.owner in living)
        return held

    def _holder(self, connection: Connection, key: str) -> Owner | None:
        row = connection.execute(_holders.where(schema.lease.c.key == key)).first()
        return None if row is None else _owner(row)

    def _register(self) -> None:
        with self._lock:
            if self._known:
                return
            with self._transaction(write=True) as connection:
                connection.execute(self._insert(schema.run).on_conflict_do_nothing(), self._owner._asdict())
                self._forget_the_dead(connection)
            self._known = True

    def _forget_the_dead(self, connection: Connection) -> None:
        # Killed runs leave their rows behind; those that another machine left wait for its next run.
        rows = connection.execute(select(schema.run).where(schema.run.c.host == self._owner.host)).all()
        dead = [row.id for row in rows if gone(Owner(*row))]
        for chunk in _chunks(dead):
            connection.execute(delete(schema.run).where(schema.run.c.id.in_(chunk)))

    # Looks

    def look(self, study: str, context: str, budget: str, seeds: int) -> list[int]:
        """Note that a verdict on ``seeds`` seeds was looked at; return the numbers of seeds of earlier looks.

        Who adds seeds until a verdict pleases has looked often; the report can say so.
        """
        table = schema.look
        where = {"study": study, "context": text(context), "budget": budget}
        digest = hashlib.sha256(json.dumps([*where.values(), int(seeds)]).encode()).hexdigest()
        with self._transaction(write=True) as connection:
            earlier = connection.execute(select(table.c.seeds).filter_by(**where).distinct()).scalars().all()
            connection.execute(
                self._insert(table).on_conflict_do_nothing(), {"id": digest, **where, "seeds": int(seeds)}
            )
        return sorted(earlier)

    # Checks

    def keep_check(self, check: StoredCheck) -> None:
        """Store what a check said, in place of an earlier one on the same cells."""
        values = stored_check.to_row(check)
        insert = self._insert(schema.check).values(values)
        with self._transaction(write=True) as connection:
            connection.execute(insert.on_conflict_do_update(index_elements=["id"], set_=values))

    def checks(self, **where: str) -> list[StoredCheck]:
        """Return all stored checks, or those of a ``study`` or ``budget``, the latest last."""
        table = schema.check
        query = select(table).filter_by(**where).order_by(table.c.finished, table.c.id)
        with self._transaction(write=False) as connection:
            return [stored_check.from_row(row, self.url) for row in connection.execute(query)]

    def close(self) -> None:
        """Give up all leases and close the database; a second call does nothing.

        Never raises for a database that cannot be reached any more: another run takes the leases over.
        """
        with self._lock:
            if self._closed:
                return
            try:
                with suppress(OSError, InputError):
                    if self._known:
                        with self._transaction(write=True) as connection:
                            mine = self._owner.id
                            connection.execute(delete(schema.lease).where(schema.lease.c.owner == mine))
                            connection.execute(delete(schema.run).where(schema.run.c.id == mine))
            finally:
                self._closed = True
                self._database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_holders = select(
    schema.lease.c.key, schema.lease.c.owner,
    schema.run.c.host, schema.run.c.pid, schema.run.c.started, schema.run.c.beat,
).select_from(schema.lease.outerjoin(schema.run, schema.run.c.id == schema.lease.c.owner))  # fmt: skip


def _owner(row: Any) -> Owner:
    # A lease without a run: its owner died and was forgotten.
    if row.host is None:
        return Owner(row.owner, DEAD, 0, "")
    return Owner(row.owner, row.host, row.pid, row.started, row.beat)


def _any_stored(connection: Connection, keys: Iterable[str]) -> bool:
    table = schema.record
    return any(
        connection.execute(select(table.c.key).where(table.c.key.in_(chunk)).limit(1)).first() is not None
        for chunk in _chunks(keys)
    )


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    unique = list(dict.fromkeys(keys))
    for start in range(0, len(unique), _CHUNK):
        yield unique[start : start + _CHUNK]
