"""Warm processes: fresh interpreters that run one call after another and can be ended at any moment.

A cell may hang, eat memory or end its process. So each runs in a process of its own, which lives on for the next
cell (warm: its imports are paid once), and which is killed with all that it started when it passes a limit.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import psutil

from assay.errors import one_line
from assay.evidence.serve import IDLE_SECONDS, UNREADABLE

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
)
START_SECONDS = 300.0  # for the start of a process and the imports of its first call
LOOK_EVERY = 0.05  # seconds between two looks at a running call's memory
LOOK_AROUND = 20  # every so many looks at the processes that it started, too: to find them is slow


class ProcessLost(RuntimeError):
    """The process ended before the call did: killed at a limit, by the system, or by itself."""


class WarmProcess:
    """A fresh Python process that runs calls; ``threads`` limits its numerical libraries from their import on."""

    def __init__(self, threads: int = 1, group: str = "", gpu: str = "") -> None:
        self.kind = (threads, group, gpu)
        ours, theirs = multiprocessing.Pipe()
        life, self._life = os.pipe()
        self.last_used = time.monotonic()
        self._pipe = ours
        self._words = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (what the process prints; closed with it)
        self._closed = False
        self._calls = 0
        self.ready = False
        environment = os.environ | {name: str(threads) for name in THREAD_VARIABLES}
        if gpu:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        # The same places to import from as here, so that a function found here is found there.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            # -P: the current folder is no place to import from; a user's json.py is not the standard library's.
            [sys.executable, "-P", "-c", f"from assay.evidence.serve import main; main({theirs.fileno()}, {life})"],
            pass_fds=[theirs.fileno(), life],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=self._words,
            start_new_session=True,
        )
        theirs.close()
        os.close(life)
        self._watch = psutil.Process(self._process.pid)

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        seconds: float | None = None,
        mib: float | None = None,
    ) -> Any:
        """Run ``function(*arguments)`` there and return what it returns.

        Raises
        ------
        ProcessLost
            When the call passed ``seconds`` or ``mib`` of resident memory, or the process died. The process is gone.
        RuntimeError
            When the function raised; the message is the error's.
        """
        end = time.monotonic() + (seconds if seconds is not None else float("inf"))
        self._calls += 1
        looks, number = 0, 0
        self._words.truncate(0)
        try:
            message = cloudpickle.dumps((self._calls, function, arguments))
        except Exception as error:
            raise RuntimeError(f"it cannot be sent to a process: {type(error).__name__}: {one_line(error)}") from None
        try:
            self._pipe.send_bytes(message)
            while number not in (self._calls, UNREADABLE):  # what answers an earlier call is not meant
                while not self._pipe.poll(LOOK_EVERY):
                    looks += 1
                    if time.monotonic() > end:
                        self._lose(f"ran past its limit of {seconds:g} s")
                    if mib is not None and self._resident_mib(looks % LOOK_AROUND == 0) > mib:
                        self._lose(f"used more memory than its limit of {mib:.0f} MiB")
                number, verdict, value = cloudpickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            self._lose("the run was ended" if self._closed else self._last_words())
        if verdict == "error":
            raise RuntimeError(value)
        return value

    def close(self) -> None:
        """End the process and everything that it started."""
        if self._closed:
            return
        self._closed = True
        started = self._started()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in started:  # those that left the group
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()
        self._pipe.close()
        os.close(self._life)
        self._words.close()

    def _lose(self, why: str) -> None:
        self.close()
        raise ProcessLost(why)

    def _resident_mib(self, with_started: bool) -> float:
        total = 0.0
        for process in (self._watch, *(self._started() if with_started else ())):
            with contextlib.suppress(psutil.Error):
                total += float(process.memory_info().rss) / 2**20
        return total

    def _started(self) -> list[psutil.Process]:
        try:
            return self._watch.children(recursive=True)
        except psutil.Error:
            return []

    def _last_words(self) -> str:
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the process closed its connection"
        how = f"exit code {code}" if code >= 0 else _signal_name(-code)
        if code == -signal.SIGKILL:
            how += ", most often for want of memory"
        self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, self._words.tell() - 4000))
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        said = next((line.strip() for line in lines if line.startswith("Fatal")), lines[-1].strip() if lines else "")
        return f"the process died ({how})" + (f": {said[:200]}" if said else "")


def _arrive(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Nothing: to be called, both had to be read, and what they name imported."""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# The warm processes of this process. Calls take one and give it back, so that each is used by one call at a time.
_idle: list[WarmProcess] = []
_all: set[WarmProcess] = set()
_lock = threading.Lock()


def call(
    function: Callable[..., Any],
    *arguments: Any,
    threads: int = 1,
    group: str = "",
    gpu: str = "",
    seconds: float | None = None,
    mib: float | None = None,
) -> Any:
    """Run ``function(*arguments)`` in a warm process of this process, started where none is idle.

    Calls of one ``group`` never share a process with those of another. ``gpu`` is the one GPU that the process sees;
    empty for all.
    """
    kind = (threads, group, gpu)
    with _lock:
        # One that has been idle for long may be about to end itself.
        recent = time.monotonic() - IDLE_SECONDS / 2
        process = next((p for p in _idle if p.kind == kind and p.last_used > recent), None)
        if process is not None:
            _idle.remove(process)
    if process is None:
        process = WarmProcess(*kind)
        with _lock:
            _all.add(process)
    try:
        if not process.ready:  # to start and to import what is called is no part of the call's time
            process.call(_arrive, function, arguments, seconds=START_SECONDS)
            process.ready = True
        value = process.call(function, *arguments, seconds=seconds, mib=mib)
    except ProcessLost:
        with _lock:
            _all.discard(process)
        raise
    except RuntimeError:
        _give_back(process)
        raise
    _give_back(process)
    return value


def _give_back(process: WarmProcess) -> None:
    process.last_used = time.monotonic()
    with _lock:
        _idle.append(process)


def close_all() -> None:
    """End every warm process of this process; calls under way raise :class:`ProcessLost`."""
    with _lock:
        processes = list(_all)
        _all.clear()
        _idle.clear()
    for process in processes:
        process.close()


atexit.register(close_all)
