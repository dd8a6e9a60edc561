"""The user's cache folder: where costly things that can be made again are kept."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from assay.errors import InputError, one_line


def cache_folder() -> Path:
    """The folder for things that can be made again: ``$ASSAY_CACHE``, or ``assay`` in the system's cache folder."""
    own = os.environ.get("ASSAY_CACHE")
    if own:
        return Path(own)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "assay"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"


def kept(name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` in the user's cache, filled once by ``make(folder)``.

    It appears whole or not at all, and stays until the user deletes it. Who comes while it is being made waits. Treat
    what is in it as read-only.

    Parameters
    ----------
    name
        Letters, digits, ``-``, ``_`` and ``.``: says what is inside and, where that can change, its version.
    make
        Fills an empty folder.

    Raises
    ------
    ValueError
        When ``name`` is no such name.
    InputError
        When the cache cannot be written.
    """
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) or name.endswith((".part", ".lock")):
        raise ValueError(f"name must consist of letters, digits, '-', '_' and '.', not {name!r}")
    folder = cache_folder() / "kept" / name
    if not folder.is_dir():
        with in_common(folder, make):
            pass
    return folder


@contextlib.contextmanager
def in_common(folder: Path, make: Callable[[Path], object]) -> Iterator[IO[str]]:
    """Have ``folder`` there, filled once by ``make(folder)``, and hold the lock on it in common with all its users.

    The lock is on a file beside the folder, which is yielded; who wants to delete the folder takes it for himself.
    ``make`` fills a folder whose name ends in ``.part``: only a whole one gets the name.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_name(f"{folder.name}.lock").open("w")
    except OSError as error:
        raise InputError(
            f"{folder.parent} cannot be written ({one_line(error)}): name another folder in ASSAY_CACHE"
        ) from error
    with lock:
        while True:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if folder.exists():
                break
            fcntl.flock(lock, fcntl.LOCK_UN)  # two who both waited to turn theirs into the sole one would wait for ever
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _fill(folder, make)
        yield lock


@contextlib.contextmanager
def full_disk_named(folder: Path) -> Iterator[None]:
    """Where the disk is full inside, an OSError that says which; safetensors has an error of its own for it."""
    try:
        yield
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or (type(error).__name__ == "SafetensorError" and "I/O error" in str(error)):
            raise OSError(f"{folder} cannot be written: {one_line(error)}") from error
        raise


def _fill(folder: Path, make: Callable[[Path], object]) -> None:
    under_way = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(under_way, ignore_errors=True)  # left by a process that was killed
    under_way.mkdir()
    try:
        with full_disk_named(folder):
            make(under_way)
    except BaseException:
        shutil.rmtree(under_way, ignore_errors=True)
        raise
    os.rename(under_way, folder)
