"""Replies kept on disk, so that no request is paid twice: one SQLite file, found by the content of the request."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import warnings
from pathlib import Path
from types import TracebackType

from assay.errors import InputError, one_line
from assay.parts.chat.replies import Reply, Sample, Usage

# Marks the file as one of these, so that no other database is written into.
_OURS = 0x61737279
_WAIT = 30.0  # seconds for another process to finish its write


class ReplyCache:
    """A file of replies. Several processes may have it open; a reply is there whole or not at all.

    Parameters
    ----------
    path
        The file, made when it is not there, readable by its owner alone.

    Raises
    ------
    InputError
        When it cannot be opened, or is another file than one of replies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database = sqlite3.connect(path, timeout=_WAIT, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path} cannot keep replies ({one_line(error)}): name another file as cache") from error

    def _prepare(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")  # of two processes that start at once, one makes the table
        (mark,) = self._database.execute("PRAGMA application_id").fetchone()
        if mark != _OURS:
            (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if tables or mark:
                raise InputError(f"{self.path} is a database of something else: name another file as cache")
            self._database.execute(f"PRAGMA application_id = {_OURS}")
            self._database.execute(
                "CREATE TABLE replies (request TEXT PRIMARY KEY, made REAL NOT NULL, reply TEXT NOT NULL) WITHOUT ROWID"
            )
        self._database.execute("COMMIT")

    def __enter__(self) -> ReplyCache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def get(self, request: str) -> Reply | None:
        """The reply kept for the digest of a request; None where there is none, or it cannot be read."""
        try:
            row = self._database.execute("SELECT reply FROM replies WHERE request = ?", (request,)).fetchone()
        except sqlite3.Error as error:
            warnings.warn(f"{self.path} could not be read ({one_line(error)}): asking again", stacklevel=2)
            return None
        return _from_text(row[0]) if row else None

    def put(self, request: str, reply: Reply) -> None:
        """Keep a reply. Where that fails there is a warning, and the reply is still of use to its caller."""
        try:
            self._database.execute(
                "INSERT OR REPLACE INTO replies VALUES (?, ?, ?)", (request, time.time(), _to_text(reply))
            )
        except sqlite3.Error as error:
            warnings.warn(f"{self.path} could not keep a reply ({one_line(error)})", stacklevel=2)


def _to_text(reply: Reply) -> str:
    usage = reply.usage and [reply.usage.prompt_tokens, reply.usage.completion_tokens]
    samples = [[sample.text, sample.finish_reason] for sample in reply.samples]
    kept = {"samples": samples, "usage": usage, "model": reply.model, "attempts": reply.attempts}
    return json.dumps(kept | {"seconds": round(reply.seconds, 3)})


def _from_text(text: str) -> Reply | None:
    try:
        kept = json.loads(text)
        return Reply(
            tuple(Sample(str(said), None if reason is None else str(reason)) for said, reason in kept["samples"]),
            usage=Usage(*map(int, kept["usage"])) if kept["usage"] else None,
            model=str(kept["model"]),
            attempts=int(kept["attempts"]),
            seconds=float(kept["seconds"]),
            cached=True,
        )
    except (ValueError, TypeError, KeyError):
        return None
