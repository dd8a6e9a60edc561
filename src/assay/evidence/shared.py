"""Costly work that several arms need, done once: recorded activations, a common pre-training."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.parts.cache import cache_folder

COST = "cost.json"


@dataclass
class SharedWork:
    """What a cell has used of shared work: CPU seconds by name, and the seconds spent here on making or waiting."""

    code: str = ""
    used: dict[str, float] = field(default_factory=dict)
    wall_here: float = 0.0
    cpu_here: float = 0.0


_cell: ContextVar[SharedWork | None] = ContextVar("assay_shared_work", default=None)


@contextlib.contextmanager
def watch_shared(code: str) -> Iterator[SharedWork]:
    """Note all shared work that is used inside; ``code`` names the version of the code that makes it."""
    work = SharedWork(code)
    token = _cell.set(work)
    try:
        yield work
    finally:
        _cell.reset(token)


def shared(key: Any, make: Callable[[Path], object]) -> Path:
    """Return the folder that ``make(folder)`` filled, made once for all cells and processes that ask for ``key``.

    The folder lies in the user's cache, named for the content of ``key`` and the code of the study. It appears whole
    or not at all; who comes while it is being made waits. Its CPU seconds are recorded once and shown added to every
    arm that used it. Treat what is in it as read-only.

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
    root = cache_folder() / "shared"
    root.mkdir(parents=True, exist_ok=True)
    folder, wall, cpu = root / name, time.perf_counter(), time.process_time()
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder, make)
    work.wall_here += time.perf_counter() - wall
    work.cpu_here += time.process_time() - cpu
    work.used[name] = float(json.loads((folder / COST).read_text())["cpu_seconds"])
    return folder


def _make(folder: Path, make: Callable[[Path], object]) -> None:
    under_way = folder.with_suffix(".part")
    shutil.rmtree(under_way, ignore_errors=True)  # left by a process that was killed
    under_way.mkdir()
    cpu, wall = time.process_time(), time.perf_counter()
    make(under_way)
    cost = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    (under_way / COST).write_text(json.dumps(cost))
    os.rename(under_way, folder)
