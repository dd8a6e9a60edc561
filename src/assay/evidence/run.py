"""Running a study: cells become records.

The driver (this process) leases cells in the storage, hands them to workers through joblib, and alone writes
records. A worker runs each cell in a warm process that it can end. joblib's threads are the workers on one machine,
since the work is in their warm processes; its process or cluster backends serve as well (:mod:`assay.evidence.engine`).
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from joblib import Parallel, delayed, parallel_config

from assay.errors import InputError
from assay.evidence import warm
from assay.evidence.cell import run_cell
from assay.evidence.engine import LOCAL, Engine, worker_died
from assay.evidence.fingerprint import digest, machine, stamp
from assay.evidence.gpu import one_gpu
from assay.evidence.own import arm_content, users_function
from assay.evidence.record import Cell, Record
from assay.evidence.storage import Storage
from assay.evidence.study import Budget, Study
from assay.evidence.verdict import Verdict, judge

# The longest that one cell may take, in seconds: as long as the whole study should.
CELL_SECONDS: Mapping[Budget, float | None] = {
    Budget.SMOKE: 60.0,
    Budget.QUICK: 180.0,
    Budget.FULL: 1800.0,
    Budget.PAPER: None,
}
MOST_SEEDS = 100_000
MOST_LOST = 5  # times that a cluster may lose workers in one run
BEAT_SECONDS = 5.0
WAIT_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be run: a study at a budget and some seeds, and everything that names its records.

    ``context`` tells people what the user added, ``content`` are the fingerprints of the user's files, ``versions``
    the package versions that count, ``command`` is the command line that does it again, ``placebo`` tells that each
    claim's opponent stands in the method's place, and ``stamps`` show whether the user's files have changed.
    """

    study: Study
    budget: Budget
    seeds: tuple[int, ...]
    code: str = ""
    context: str = ""
    content: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    placebo: bool = False
    stamps: Mapping[Path, str] = field(default_factory=dict)

    def require_unchanged(self) -> None:
        """Raise ``InputError`` if a file of the user's was written since the plan was made."""
        for path, before in self.stamps.items():
            if not path.exists() or stamp(path) != before:
                # What ran on the new content must not be stored as if it had run on the old.
                raise InputError(f"{path} changed while it was being checked; run the check again")

    @property
    def cells(self) -> list[Cell]:
        """All cells, seed by seed, so that a run that is ended early leaves whole pairs."""
        named = [(task.name, arm, arm_content(arm)) for task, arm in self.study.pairs(self.budget)]
        common = [self.study.name, self.code, str(self.budget), dict(self.content), dict(self.versions)]
        return [
            Cell(
                self.study.name, task, arm.name, seed, self.budget, digest(common, task, arm.name, arm.role, own, seed)
            )
            for seed in self.seeds
            for task, arm, own in named
        ]

    @property
    def identity(self) -> str:
        """Names everything but the seeds: two plans with one identity continue each other."""
        arms = {arm.name: arm_content(arm) for _, arm in self.study.pairs(self.budget)}
        tasks = sorted({task.name for task, _ in self.study.pairs(self.budget)})
        return digest(self.code, dict(self.content), dict(self.versions), arms, tasks)


def plan(
    study: Study,
    budget: Budget | str = Budget.QUICK,
    *,
    seeds: int | None = None,
    code: str = "",
    context: str = "",
    content: Mapping[str, str] | None = None,
    versions: Mapping[str, str] | None = None,
) -> Plan:
    """Plan a study at a budget, with ``seeds`` seeds from the study's base seed on.

    Raises
    ------
    InputError
        For an unknown budget, fewer than one seed, or a budget at which nothing is left to run.
    """
    if budget not in list(Budget):
        raise InputError(f"budget {str(budget)!r} is none of {', '.join(Budget)}")
    budget = Budget(budget)
    count = study.seeds[budget] if seeds is None else seeds
    if not 1 <= count <= MOST_SEEDS:
        raise InputError(f"seeds must be at least 1 (3 to judge a claim) and at most {MOST_SEEDS}, got {count}")
    made = Plan(
        study=study,
        budget=budget,
        seeds=tuple(range(study.base_seed, study.base_seed + count)),
        code=code,
        context=context,
        content=content or {},
        versions=versions or {},
    )
    if not made.cells:
        raise InputError(f"study {study.name} has nothing to run at budget {budget} with these tasks and arms")
    return made


def run(
    plan: Plan,
    storage: Storage,
    *,
    jobs: int = 1,
    threads: int = 1,
    seconds: float | None = None,
    mib: float | None = None,
    fresh: bool = False,
    retry: bool = False,
    share_gpu: bool = False,
    engine: Engine = LOCAL,
    on_start: Callable[[Sequence[Record]], None] = lambda stored: None,
    on_record: Callable[[Record], None] = lambda record: None,
    on_wait: Callable[[int], None] = lambda cells: None,
) -> list[Record]:
    """Run what is not stored yet and return the records of all cells of the plan, in the plan's order.

    Parameters
    ----------
    plan, storage
        What to run and where its records live. Other runs may work on the same storage at the same time.
    jobs, threads
        Cells at once, and the threads that each may use.
    seconds, mib
        The limits of one cell in wall seconds and in MiB of resident memory; by default the budget's, and the cell's
        share of the memory that is free (on a cluster, what is free where it runs).
    fresh, retry
        Run again what is stored; run again what failed. What lacked a package, a model or an endpoint always is.
    share_gpu
        Whether cells of a study that uses GPUs may share one; else each waits for a GPU of its own.
    engine
        Where cells run.
    on_start, on_record, on_wait
        Told of the records that are stored already, of each record as it is written, and of the number of cells that
        another run is working on.
    """
    if jobs < 1 or threads < 1:
        raise InputError(f"jobs and threads must be at least 1, got {jobs} and {threads}")
    limits = {
        "seconds": seconds if seconds is not None else CELL_SECONDS[plan.budget],
        "mib": mib if mib is not None or not engine.is_local else _free_mib() / jobs,
    }
    alone = plan.study.uses_gpu and not share_gpu
    cells = plan.cells
    _forget_stale(cells, storage, fresh, retry)
    todo = _unfinished(cells, storage)
    on_start(list(storage.finished([c.key for c in cells]).values()))
    with _sign_of_life(storage), warnings.catch_warnings():
        # joblib's word on work that an ended run leaves undone.
        warnings.filterwarnings("ignore", message=r"\d+ tasks (which|have)", category=UserWarning)
        try:
            lost = 0
            while todo:
                try:
                    held = run_leased(plan, todo, storage, jobs, threads, limits, alone, engine.backend, on_record)
                except Exception as error:
                    lost += 1
                    if not worker_died(error) or lost == MOST_LOST:
                        raise
                    storage.release()  # a worker of the cluster died: what it had is run again
                    todo = _unfinished(todo, storage)
                    continue
                todo = _unfinished(held, storage)
                if todo:
                    on_wait(len(todo))
                    time.sleep(WAIT_SECONDS)
        finally:
            warm.close_all()
            with contextlib.suppress(ConnectionError, OSError):
                storage.release()
    stored = storage.finished([c.key for c in cells])
    return [stored[c.key] for c in cells if c.key in stored]


def run_leased(
    plan: Plan,
    todo: Sequence[Cell],
    storage: Storage,
    jobs: int,
    threads: int,
    limits: Mapping[str, float | None],
    alone: bool,
    backend: str,
    on_record: Callable[[Record], None],
) -> list[Cell]:
    """Run and store every cell that can be leased; return those that another run holds."""
    held: list[Cell] = []
    trouble: list[Exception] = []

    def leased() -> Iterator[Any]:
        # joblib draws from this in a thread of its own, where an exception would be lost.
        try:
            for cell in todo:
                if storage.lease(cell.key):
                    yield delayed(run_one)(plan.study, cell, plan.code, threads, limits, alone)
                else:
                    held.append(cell)
        except Exception as error:
            trouble.append(error)

    with parallel_config(backend=backend):
        work = Parallel(n_jobs=jobs, batch_size=1, pre_dispatch=jobs, return_as="generator_unordered")
    try:
        for cell, fields in work(leased()):
            plan.require_unchanged()
            record = _record(plan, cell, fields)
            if storage.finish(record):
                on_record(record)
    except BaseException:
        warm.close_all()  # so that joblib's workers come back at once
        raise
    if trouble:
        raise trouble[0]
    return held


def run_one(
    study: Study, cell: Cell, code: str, threads: int, limits: Mapping[str, float | None], alone: bool = False
) -> tuple[Cell, dict[str, Any]]:
    """Run one cell in a warm process of this worker; a lost process becomes a failed record.

    ``alone`` waits for a GPU of its own where there are any.
    """
    if alone:
        with one_gpu() as gpu:
            return _run_one(study, cell, code, threads, limits, gpu)
    return _run_one(study, cell, code, threads, limits, "")


def _run_one(
    study: Study, cell: Cell, code: str, threads: int, limits: Mapping[str, float | None], gpu: str
) -> tuple[Cell, dict[str, Any]]:
    start = time.perf_counter()
    # What a user's function does to its process must not reach the other arms.
    group = cell.arm if users_function(study.arm(cell.arm)) else ""
    try:
        fields = warm.call(
            run_cell, study, cell.task, cell.arm, cell.seed, Budget(cell.budget), code, threads,
            threads=threads, group=group, gpu=gpu, seconds=limits["seconds"], mib=limits["mib"] or _free_mib(),
        )  # fmt: skip
    except warm.ProcessLost as lost:
        fields = {"status": "failed", "reason": str(lost), "wall_seconds": time.perf_counter() - start}
    except RuntimeError as error:  # what could not even start: an arm that cannot be sent, a broken installation
        fields = {"status": "failed", "reason": str(error)}
    return cell, fields


def verdicts(plan: Plan, records: Sequence[Record]) -> list[Verdict]:
    """Judge every claim of the plan's study on its records."""
    return [judge(claim, plan.study, records, plan.budget, plan.seeds) for claim in plan.study.claims]


def estimate_seconds(plan: Plan, storage: Storage, jobs: int) -> tuple[int, float | None]:
    """How many cells are to run, and about how long that takes by what is stored of them; ``None`` where nothing is."""
    cells = plan.cells
    todo = _unfinished(cells, storage)
    by_arm: dict[tuple[str, str], list[float]] = {}
    for record in storage.records(study=plan.study.name, budget=str(plan.budget)):
        by_arm.setdefault((record.task, record.arm), []).append(record.wall_seconds)
    means = {pair: sum(seconds) / len(seconds) for pair, seconds in by_arm.items()}
    if not todo or not means:
        return len(todo), 0.0 if not todo else None
    overall = sum(means.values()) / len(means)
    return len(todo), sum(means.get((c.task, c.arm), overall) for c in todo) / jobs


def _free_mib() -> float:
    """Most of the memory that is free now, in MiB."""
    return float(psutil.virtual_memory().available) / 2**20 * 0.9


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _record(plan: Plan, cell: Cell, fields: Mapping[str, Any]) -> Record:
    return Record(
        key=cell.key, study=cell.study, task=cell.task, arm=cell.arm, role=plan.study.arm(cell.arm).role,
        seed=cell.seed, budget=cell.budget, context=plan.context, versions=plan.versions, machine=machine(),
        finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), **fields,
    )  # fmt: skip


def _unfinished(cells: Sequence[Cell], storage: Storage) -> list[Cell]:
    stored = storage.finished([c.key for c in cells])
    return [c for c in cells if c.key not in stored]


def _forget_stale(cells: Sequence[Cell], storage: Storage, fresh: bool, retry: bool) -> None:
    again = {"missing"} | ({"failed"} if retry else set()) | ({"failed", "ok"} if fresh else set())
    stored = storage.finished([c.key for c in cells])
    storage.forget([key for key, record in stored.items() if record.status in again])


@contextlib.contextmanager
def _sign_of_life(storage: Storage) -> Iterator[None]:
    """Renew this run's sign of life while the block runs, so that its leases stay its own."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(BEAT_SECONDS):
            with contextlib.suppress(ConnectionError, OSError):  # the driver meets the same trouble, and tells it
                storage.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
