"""Records: what one cell of a study gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Status = Literal["ok", "failed", "missing"]


class Proportion(NamedTuple):
    """A metric that counts: ``events`` in ``trials`` trials."""

    events: int
    trials: int


def as_number(metric: Any) -> float:
    """A metric as one number: a proportion as its share, a truth value as 0 or 1."""
    return metric.events / metric.trials if isinstance(metric, Proportion) else float(metric)


class Cell(NamedTuple):
    """One piece of work: a task and an arm at a seed. Its record is stored under ``key``."""

    study: str
    task: str
    arm: str
    seed: int
    budget: str
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one cell gave: its metrics and costs, or the reason of its failure.

    Attributes
    ----------
    key
        Names the cell and everything that could change its result; unique in a storage.
    study, task, arm, role, seed, budget
        The cell.
    status
        ``ok``; ``failed``; or ``missing`` where the cell needs a package, a model or an endpoint that is not there.
    reason
        Why it failed or what is missing, in one line; empty where it is ok.
    metrics
        Name to number, truth value or :class:`Proportion`.
    cpu_seconds, wall_seconds
        Of the arm's run alone, without loading and scoring, and without the work in ``shared``.
    peak_mib
        How far the process's resident memory rose above its level when the arm began, in MiB; what processes
        that the arm started use is not in it (but counts for the limit).
    shared
        Work that several arms use, done once: name to its CPU seconds.
    context
        What the user added: files, models, own arms; empty for the embedded study.
    versions, machine, finished
        Package versions, the machine in words, and when the cell ended (UTC, ISO 8601).
    """

    key: str
    study: str
    task: str
    arm: str
    role: str
    seed: int
    budget: str
    status: Status = "ok"
    reason: str = ""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_mib: float = 0.0
    shared: Mapping[str, float] = field(default_factory=dict)
    context: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    finished: str = ""
