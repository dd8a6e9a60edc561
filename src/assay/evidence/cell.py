"""One cell: load, run, score, and what it cost. Runs in a warm process."""

from __future__ import annotations

import gc
import sys
import sysconfig
import time
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from assay.errors import EndpointError, MissingPart, one_line
from assay.evidence.cost import PeakMemory, cpu_seconds
from assay.evidence.record import Proportion
from assay.evidence.shared import watch_shared
from assay.evidence.study import Budget, Study


def arm_seed(seed: int, stream: int = 1) -> int:
    """The seed that arms get in the cell ``seed``; other than the one that made the data, and the same for all arms."""
    return int(np.random.SeedSequence((seed, stream)).generate_state(1)[0])


def run_cell(
    study: Study, task_name: str, arm_name: str, seed: int, budget: Budget, code: str, threads: int
) -> dict[str, Any]:
    """Run one cell and return the fields of its record that it determines; never raises on behalf of the cell."""
    task, arm = study.task(task_name), study.arm(arm_name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    stage = "its task cannot be loaded"
    with threadpool_limits(limits=threads), watch_shared(code) as work:
        try:
            given, hidden = task.load(seed, budget)
            stage = ""
            _load(arm.run)
            _tidy_up()
            memory = PeakMemory()
            wall, cpu, aside = time.perf_counter(), cpu_seconds(), (work.wall_here, work.cpu_here)
            output = arm.run(given, arm_seed(seed), budget)
            costs = {
                "wall_seconds": time.perf_counter() - wall - (work.wall_here - aside[0]),
                "cpu_seconds": cpu_seconds() - cpu - (work.cpu_here - aside[1]),
                "peak_mib": memory.risen_mib(),
            }
            stage = "its output cannot be scored"
            metrics = plain_metrics(task.score(output, hidden))
        except (MissingPart, EndpointError) as error:
            return {"status": "missing", "reason": one_line(error)}
        except (Exception, SystemExit) as error:
            reason = f"{type(error).__name__}: {one_line(error)}{_place(error)}"
            return {"status": "failed", "reason": f"{stage}: {reason}" if stage else reason}
        return {"status": "ok", "metrics": metrics, "shared": dict(work.used), **costs}


def plain_metrics(metrics: object) -> dict[str, Any]:
    """Metrics as plain numbers, truth values and proportions; ``TypeError`` names one that is something else."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"score must return a mapping from names to numbers, not {type(metrics).__name__}")
    plain: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Proportion):
            events, trials = int(value.events), int(value.trials)
            if not 0 <= events <= trials or trials == 0:
                raise ValueError(f"metric {name!r}: a proportion of {events} in {trials} cannot be")
            plain[str(name)] = Proportion(events, trials)
        elif isinstance(value, bool | np.bool_):
            plain[str(name)] = bool(value)
        elif isinstance(value, int | float | np.integer | np.floating) or (
            np.ndim(value) == 0 and hasattr(value, "item")
        ):
            number = value if isinstance(value, int) else float(value)
            plain[str(name)] = number
        else:
            raise TypeError(
                f"metric {name!r} must be a number, a truth value or a Proportion, not {type(value).__name__}"
            )
    return plain


def _load(run: Any) -> None:
    """Import a user's function now, so that its imports are not taken for its work."""
    while hasattr(run, "run"):
        run = run.run
    if hasattr(run, "load"):
        run.load()


@lru_cache(maxsize=1)
def _freeze_imports() -> None:
    gc.collect()
    gc.freeze()


def _tidy_up() -> None:
    """Collect what an earlier cell left. What was imported for the first one stays; to go over it each time is slow."""
    _freeze_imports()
    gc.collect()


def _place(error: BaseException) -> str:
    """Where it happened: the innermost line that is not in an installed library."""
    libraries = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(Path(__file__).parent))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((*libraries, "<"))]
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
