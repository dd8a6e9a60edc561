"""GPUs for cells: one each, so that no two cells share one unless asked."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from assay.parts.cache import cache_folder

LOOK_EVERY = 0.1


@lru_cache(maxsize=1)
def gpus() -> tuple[str, ...]:
    """The names of the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` takes them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name for name in chosen.split(",") if name.strip() not in ("", "-1"))
    if shutil.which("nvidia-smi") is None:
        return ()
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=60)
    return tuple(str(i) for i, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU "))


@contextmanager
def one_gpu() -> Iterator[str]:
    """Hold one GPU of this machine alone, waiting for one if need be; the empty text where there is none.

    The lock is the system's, so it also holds between runs that know nothing of each other, and ends with its holder.
    """
    names = gpus()
    if not names:
        yield ""
        return
    folder = cache_folder() / "gpus"
    folder.mkdir(parents=True, exist_ok=True)
    locks = [(name, (folder / name.replace("/", "_")).open("w")) for name in names]
    try:
        while True:
            for name, lock in locks:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield name
                return
            time.sleep(LOOK_EVERY)
    finally:
        for _, lock in locks:
            lock.close()
