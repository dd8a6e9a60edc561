"""Costly work that several arms need, done once: recorded activations, a common pre-training."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.evidence.cost import cpu_seconds
from assay.parts.cache import cache_folder, in_common

COST = "cost.json"
_NAME = re.compile("[0-9a-f]{32}")


@dataclass
class SharedWork:
    """What a cell has used of shared work: CPU seconds by name, and the seconds spent here on making or waiting."""

    code: str = ""
    used: dict[str, float] = field(default_factory=dict)
    wall_here: float = 0.0
    cpu_here: float = 0.0
    in_use: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


_cell: ContextVar[SharedWork | None] = ContextVar("assay_shared_work", default=None)


@contextlib.contextmanager
def watch_shared(code: str) -> Iterator[SharedWork]:
    """Note all shared work that is used inside; ``code`` names the version of the code that makes it."""
    work = SharedWork(code)
    token = _cell.set(work)
    try:
        with work.in_use:
            yield work
    finally:
        _cell.reset(token)


def shared(key: Any, make: Callable[[Path], object]) -> Path:
    """Return the folder that ``make(folder)`` filled, made once for all cells and processes that ask for ``key``.

    The folder lies in the user's cache, named for the content of ``key`` and the code of the study. It appears whole
    or not at all; who comes while it is being made waits. Its CPU seconds are recorded once and shown added to every
    arm that used it. Treat what is in it as read-only. Until the cell ends, :func:`free` leaves it alone.

    Parameters
    ----------
    key
        Whatever determines the result, as JSON can write it: names, numbers, lists, dictionaries.
    make
        Fills an empty folder, e.g. ``lambda folder: numpy.save(folder / "inputs.npy", inputs)``.

    Raises
    ------
    TypeError
        When ``key`` cannot be written as JSON.
    """
    work = _cell.get() or SharedWork()
    text = json.dumps([work.code, key], sort_keys=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    folder = cache_folder() / "shared" / name
    clock = _Clock(work)
    with in_common(folder, lambda empty: _make(empty, make, work)) as lock:
        if _cell.get() is not None and name not in work.used:
            # A descriptor of its own keeps the lock when this file is closed.
            work.in_use.callback(os.close, os.dup(lock.fileno()))
    wall, cpu = clock.read()
    work.wall_here += wall
    work.cpu_here += cpu
    cost = json.loads((folder / COST).read_text())
    work.used |= {name: float(cost["cpu_seconds"]), **cost.get("used", {})}
    return folder


class _Clock:
    """Seconds since it was made, without those of shared work that was asked for meanwhile: they count there."""

    def __init__(self, work: SharedWork) -> None:
        self.work = work
        self.start = (time.perf_counter() - work.wall_here, cpu_seconds() - work.cpu_here)

    def read(self) -> tuple[float, float]:
        """Wall and CPU seconds."""
        wall, cpu = self.start
        return time.perf_counter() - self.work.wall_here - wall, cpu_seconds() - self.work.cpu_here - cpu


def _make(folder: Path, make: Callable[[Path], object], work: SharedWork) -> None:
    clock, before, work.used = _Clock(work), work.used, {}
    try:
        make(folder)
    finally:
        within, work.used = work.used, before | work.used
    wall, cpu = clock.read()
    (folder / COST).write_text(json.dumps({"cpu_seconds": cpu, "wall_seconds": wall, "used": within}))


@dataclass(frozen=True)
class Freed:
    """What :func:`free` deleted, or would delete: pieces of shared work and their MiB; and how many are in use."""

    pieces: int
    mib: float
    in_use: int

    def __str__(self) -> str:
        busy = f"; {self.in_use} in use" if self.in_use else ""
        return f"{self.mib:.1f} MiB, {self.pieces} piece{'s' if self.pieces != 1 else ''} of shared work{busy}"


def free(older_than: float = 0.0, *, dry_run: bool = False) -> Freed:
    """Delete the shared work that no cell is making or using, and what killed cells left half made.

    Parameters
    ----------
    older_than
        Only what was made so many seconds ago or earlier.
    dry_run
        Delete nothing; only tell what would go.
    """
    root, now = cache_folder() / "shared", time.time()
    pieces, size, in_use = 0, 0, 0
    for name in sorted({path.stem for path in root.glob("*") if path.is_dir() and _NAME.fullmatch(path.stem)}):
        folder, half = root / name, root / f"{name}.part"
        # The lock's file stays: who waits for it would else hold another lock than who comes later.
        with (root / f"{name}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                in_use += 1
                continue
            there = [path for path in (folder, half) if path.is_dir()]
            if not there or now - max(path.stat().st_mtime for path in there) < older_than:
                continue
            pieces += 1
            size += sum(file.lstat().st_size for path in there for file in path.rglob("*") if not file.is_dir())
            if dry_run:
                continue
            shutil.rmtree(half, ignore_errors=True)
            if folder.exists():
                os.rename(folder, half)  # half deleted it must not be found whole
                shutil.rmtree(half)
    return Freed(pieces, size / 2**20, in_use)
