"""What work costs: CPU seconds and memory of this process."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
import time
from pathlib import Path

import psutil


def cpu_seconds() -> float:
    """CPU seconds of this process with all its threads, of the processes that it has waited for, and of those alive."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = time.process_time() + ended.ru_utime + ended.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return total


class PeakMemory:
    """How far resident memory rises above its present level.

    Linux keeps a high-water mark that a process can reset, so nothing is missed between samples. Elsewhere (macOS)
    the mark cannot be reset: what is reported is the rise of the maximum, a lower bound.
    """

    def __init__(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._resets = True
        except OSError:
            self._resets = False
        self._start = psutil.Process().memory_info().rss / 2**20 if self._resets else self._peak()

    def risen_mib(self) -> float:
        """The rise so far, in MiB."""
        return max(0.0, self._peak() - self._start)

    def _peak(self) -> float:
        if self._resets:
            mark = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            if mark:
                return int(mark.group(1)) / 1024
        unit = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
