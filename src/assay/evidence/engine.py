"""Where cells run: threads of this process on one machine, or the workers of a Dask or Ray cluster, through joblib.

Whatever the engine, a worker runs each cell in a warm process that it can end, and the driver alone writes records.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from joblib import register_parallel_backend

from assay.errors import InputError, MissingPart, one_line

KNOCK_SECONDS = 10.0
ENGINES = ("local", "dask", "ray")
INSTALL = "python -m pip install 'dask' 'distributed' 'ray'"


@dataclass(frozen=True)
class Engine:
    """A joblib backend that is ready to use, and how many cells it can run at once."""

    backend: str
    cores: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether the cells run on this machine, in processes of this driver."""
        return self.backend in ("threading", "loky")


LOCAL = Engine("threading")


@contextmanager
def connect(name: str, address: str = "") -> Iterator[Engine]:
    """Connect to an engine: ``local``, ``dask`` or ``ray``, the last two at an address.

    Ray's own words are addresses too: ``auto`` for the cluster of this machine, ``local`` for a new one.

    Raises
    ------
    InputError
        For an unknown engine, or a cluster without an address.
    MissingPart
        If the cluster's package is not installed.
    ConnectionError
        If nothing answers at the address.
    """
    if name not in ENGINES:
        raise InputError(f"--engine {name!r} is none of {', '.join(ENGINES)}")
    if name == "local":
        if address:
            raise InputError("--address is for --engine dask or ray; local cells run on this machine")
        yield LOCAL
    elif not address:
        raise InputError(f"--engine {name} needs --address, the address of its scheduler")
    elif name == "dask":
        with _dask(address) as engine:
            yield engine
    else:
        with _ray(address) as engine:
            yield engine


@contextmanager
def _dask(address: str) -> Iterator[Engine]:
    try:
        from distributed import Client
    except ImportError:
        raise MissingPart("--engine dask needs Dask", INSTALL) from None
    _must_answer("Dask scheduler", address)
    try:
        client: Any = Client(address, timeout=10, set_as_default=True)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise ConnectionError(f"no Dask scheduler answers at {address}: {one_line(error)}") from None
    with client:
        cores = sum(client.ncores().values())
        if not cores:
            raise ConnectionError(f"the Dask scheduler at {address} has no worker")
        yield Engine("dask", cores)


@contextmanager
def _ray(address: str) -> Iterator[Engine]:
    try:
        import ray
        from ray.util.joblib.ray_backend import RayBackend
    except ImportError:
        raise MissingPart("--engine ray needs Ray", INSTALL) from None

    class RayAsTheyCome(RayBackend):
        """Ray's joblib backend, whose results the driver can store one by one."""

        supports_return_generator = True

    _must_answer("Ray cluster", address)
    try:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError, SystemExit) as error:  # Ray may want to end the process
        raise ConnectionError(f"no Ray cluster answers at {address}: {one_line(error)}") from None
    register_parallel_backend("assay-ray", RayAsTheyCome)
    try:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        yield Engine("assay-ray", int(resources.get("CPU", 1)))
    finally:
        ray.shutdown()


def _must_answer(what: str, address: str) -> None:
    """Knock at a ``host:port``: the clients themselves may try for minutes."""
    found = re.fullmatch(r"(?:tcp://)?([^/:]+):(\d+)", address)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), timeout=KNOCK_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"no {what} answers at {address}: {one_line(error)}") from None


def worker_died(error: BaseException) -> bool:
    """Whether an engine's error means that a worker, not the work, was lost."""
    lost: list[Any] = []
    try:
        from distributed.client import FutureCancelledError
        from distributed.scheduler import KilledWorker

        lost += [KilledWorker, FutureCancelledError]
    except ImportError:
        pass
    try:
        from ray.exceptions import RayActorError, RaySystemError, WorkerCrashedError

        lost += [RayActorError, RaySystemError, WorkerCrashedError]
    except ImportError:
        pass
    return isinstance(error, tuple(lost))
