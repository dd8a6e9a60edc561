"""The inside of a warm process: calls what its owner sends, one thing after another.

Started by :mod:`assay.evidence.warm` as ``python -c "...main(socket, life)"``. A thread reads the owner's messages, so
that the owner's death is noticed while a call runs: then the whole process group ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

IDLE_SECONDS = 600.0
UNREADABLE = -1  # answers a call whose number could not be read


def main(handle: int, life: int) -> None:
    """Serve calls that come in over the socket ``handle`` until the owner closes it or dies.

    ``life`` is a pipe that the owner holds open and never writes to.
    """
    faulthandler.enable()
    _end_at_hang_up(life)
    _be_the_first_to_go()
    owner: Connection[Any, bytes] = Connection(handle)
    socket, process = os.fstat(handle), os.getpid()
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive, args=(owner, calls), daemon=True).start()
    import cloudpickle

    from assay.errors import one_line

    while True:
        reply: tuple[int, str, Any] = (UNREADABLE, "error", "the call could not be read")
        try:
            message = calls.get(timeout=IDLE_SECONDS)
        except Empty:
            return  # on a cluster nobody tells the workers that the run is over
        try:
            number, function, arguments = cloudpickle.loads(message)
            reply = (number, "error", "the call gave no answer")
            reply = (number, "ok", function(*arguments))
        except BaseException as error:
            reply = (reply[0], "error", f"{type(error).__name__}: {one_line(error)}")
        if os.getpid() != process:
            os._exit(0)  # a call forked, and this is the copy: it has nothing to say
        if not _is(handle, socket):
            os._exit(70)  # a call closed our connection; what has its number now is somebody's file
        owner.send_bytes(cloudpickle.dumps(reply))


def _is(handle: int, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file)
    except OSError:
        return False


def _receive(owner: Connection[Any, bytes], calls: SimpleQueue[bytes]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            calls.put(owner.recv_bytes())
    # The process leads its own group, so this ends whatever a cell started, too.
    with contextlib.suppress(OSError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os._exit(1)


def _end_at_hang_up(life: int) -> None:
    """Have the system end this process when the owner dies, also while a call keeps Python's lock from our thread.

    A hang-up of the pipe then sends SIGIO to our process group, which by default ends it and what a cell started.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


def _be_the_first_to_go() -> None:
    """Where memory runs out, let Linux end a cell rather than the run that keeps the records."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
