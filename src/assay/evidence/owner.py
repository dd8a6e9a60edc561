"""Who holds a lease, and whether that run still lives."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import psutil

DEAD = ""
"""The host of an owner that is known to be dead."""


class Owner(NamedTuple):
    """A run that can hold leases: one opened storage of one process."""

    id: str
    host: str
    pid: int
    started: str
    beat: int = 0


def this_run() -> Owner:
    """Return a new owner for this process."""
    pid = os.getpid()
    return Owner(uuid4().hex, host(), pid, process_start(pid) or "")


def host() -> str:
    """Name the space in which a process id means one process: machine, boot and, in containers, the namespace."""
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    except OSError:
        pass  # not Linux: the name of the machine has to do
    return " ".join(parts)


def process_start(pid: int) -> str | None:
    """Return when the process began, in a form that only compares; ``None`` if it is dead, empty if unknown."""
    try:
        if psutil.LINUX:
            # Ticks since boot. psutil adds the time of boot, which moves when the clock is set.
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return None if fields[0] in "ZX" else fields[19]
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else repr(process.create_time())
    except psutil.NoSuchProcess:
        return None
    except (OSError, IndexError, psutil.Error):
        pass
    try:
        os.kill(pid, 0)  # signal 0 only asks; /proc may hide the processes of other users
    except (ProcessLookupError, OverflowError):
        return None
    except OSError:
        return ""
    return ""


def gone(owner: Owner) -> bool:
    """Whether the owner's process is certainly dead, which only its own machine can tell."""
    if owner.host == DEAD:
        return True
    if owner.host != host():
        return False
    started = process_start(owner.pid)
    # The same id with another start is another process.
    return started is None or bool(started and owner.started and started != owner.started)


class Watch:
    """Judges whether other runs live, from what this process has seen of them itself."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def alive(self, owner: Owner, patience: float) -> bool:
        """Whether ``owner`` seems alive.

        A process of this machine that is gone is dead at once. Any other run, and a process that is there but hangs,
        counts as dead when its beat has not moved for ``patience`` seconds of this process's own clock: the clocks
        of two machines are never compared.
        """
        if gone(owner):
            return False
        now = time.monotonic()
        beat, since = self._seen.get(owner.id, (None, now))
        if beat != owner.beat:
            self._seen[owner.id] = (owner.beat, now)
            return True
        return now - since < patience
