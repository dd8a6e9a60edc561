"""Studies: tasks × arms × seeds, and the claims about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from assay.errors import InputError
from assay.evidence.claim import Claim
from assay.evidence.record import Proportion

__all__ = ["Arm", "Budget", "Proportion", "Study", "Task"]

Role = Literal["method", "baseline", "trivial", "ablation", "ceiling"]
ROLES: tuple[str, ...] = get_args(Role)


class Budget(StrEnum):
    """How much work a study may be."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"
    PAPER = "paper"


ALL_BUDGETS = tuple(Budget)


@dataclass(frozen=True)
class Task:
    """Data and how it is scored.

    Attributes
    ----------
    name
        Short, unique in the study.
    load
        ``load(seed, budget) -> (given, hidden)``: what arms see, and what only ``score`` sees.
    score
        ``score(output, hidden) -> metrics``: name to number, truth value or :class:`Proportion`. The names
        ``parameters`` and ``steps`` are shown with the costs of an arm.
    what
        One line for people.
    control
        The method should *not* win here; such a task does not count for "should I switch?".
    budgets
        The budgets that it belongs to.
    """

    name: str
    load: Callable[[int, Budget], tuple[Any, Any]]
    score: Callable[[Any, Any], Mapping[str, Any]]
    what: str = ""
    control: bool = False
    budgets: tuple[Budget, ...] = ALL_BUDGETS


@dataclass(frozen=True)
class Arm:
    """One contender.

    Attributes
    ----------
    name
        Short, unique in the study.
    run
        ``run(given, seed, budget) -> output``. The seed is the same for all arms of a task and seed, and is not the
        seed that made the data.
    role
        ``method``, ``baseline``, ``trivial``, ``ablation`` or ``ceiling``.
    what
        One line for people.
    tasks
        The tasks that it runs on; ``None`` means all.
    budgets
        The budgets that it belongs to.
    """

    name: str
    run: Callable[[Any, int, Budget], Any]
    role: Role
    what: str = ""
    tasks: tuple[str, ...] | None = None
    budgets: tuple[Budget, ...] = ALL_BUDGETS


@dataclass(frozen=True, kw_only=True)
class Study:
    """Tasks × arms × seeds, the claims about them, the primary metric, and what a user may bring.

    Attributes
    ----------
    name
        The method's name.
    tasks, arms, claims
        The study; exactly one arm has the role ``method``.
    primary, better
        The metric on which arms are compared, and whether ``higher`` or ``lower`` is better.
    metrics
        What each metric is, with its unit, for people.
    seeds
        How many seeds each budget has; at least 3, so that claims can be judged.
    base_seed
        The first seed; the others follow it.
    contract
        What a user's own arm is given and must return: ``f(given, seed) -> output``.
    accepts
        What a user may bring: ``data`` and ``model``, each with what it must be.
    own
        ``own({"data": path}) -> Study``: the same study on what the user brought.
    uses_gpu
        Whether its arms use a GPU where there is one; then each cell gets one of its own.
    """

    name: str
    tasks: tuple[Task, ...]
    arms: tuple[Arm, ...]
    claims: tuple[Claim, ...]
    primary: str
    better: Literal["higher", "lower"]
    metrics: Mapping[str, str] = field(default_factory=dict)
    seeds: Mapping[Budget, int] = field(
        default_factory=lambda: {Budget.SMOKE: 3, Budget.QUICK: 10, Budget.FULL: 20, Budget.PAPER: 20}
    )
    base_seed: int = 1000
    contract: str = ""
    accepts: Mapping[str, str] = field(default_factory=dict)
    own: Callable[[Mapping[str, Path]], Study] | None = None
    uses_gpu: bool = False

    def __post_init__(self) -> None:
        for kind, names in (("task", [t.name for t in self.tasks]), ("arm", [a.name for a in self.arms])):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise ValueError(f"study {self.name}: {kind} {twice[0]!r} stands there twice")
        methods = [a.name for a in self.arms if a.role == "method"]
        if len(methods) != 1:
            raise ValueError(f"study {self.name}: exactly one arm has the role 'method', not {methods}")
        claims = tuple(c if c.arm else dataclasses.replace(c, arm=methods[0]) for c in self.claims)
        object.__setattr__(self, "claims", claims)
        known_arms, known_tasks = {a.name for a in self.arms}, {t.name for t in self.tasks}
        if self.better not in ("higher", "lower"):
            raise ValueError(f"study {self.name}: better must be 'higher' or 'lower', got {self.better!r}")
        if set(self.seeds) != set(Budget):
            raise ValueError(f"study {self.name}: seeds must be given for {', '.join(Budget)}, got {list(self.seeds)}")
        for arm in self.arms:
            if arm.role not in ROLES:
                raise ValueError(
                    f"study {self.name}: the role {arm.role!r} of {arm.name} is none of {', '.join(ROLES)}"
                )
            unknown = [task for task in arm.tasks or () if task not in known_tasks]
            if unknown:
                raise ValueError(f"study {self.name}: {arm.name} runs on no task {unknown[0]!r}")
        for claim in claims:
            for name in (claim.arm, *claim.others):
                if name not in known_arms:
                    raise ValueError(f"study {self.name}: the claim {claim.name!r} speaks of no arm {name!r}")
            for task in claim.tasks or ():
                if task not in known_tasks:
                    raise ValueError(f"study {self.name}: the claim {claim.name!r} speaks of no task {task!r}")

    @property
    def method(self) -> Arm:
        """The arm that the study is about."""
        return next(a for a in self.arms if a.role == "method")

    def arm(self, name: str) -> Arm:
        """The arm of that name; ``InputError`` names those that exist."""
        return _named("arm", name, self.arms, self.name)

    def task(self, name: str) -> Task:
        """The task of that name; ``InputError`` names those that exist."""
        return _named("task", name, self.tasks, self.name)

    def pairs(self, budget: Budget) -> list[tuple[Task, Arm]]:
        """Which arm runs on which task at a budget, task by task."""
        return [
            (task, arm)
            for task in self.tasks
            if budget in task.budgets
            for arm in self.arms
            if budget in arm.budgets and (arm.tasks is None or task.name in arm.tasks)
        ]

    def only(self, tasks: Iterable[str] = (), arms: Iterable[str] = ()) -> Study:
        """The same study with fewer tasks or arms; claims that speak of what is gone become untested."""
        keep_tasks = {self.task(name).name for name in tasks} or {t.name for t in self.tasks}
        keep_arms = {self.arm(name).name for name in arms} or {a.name for a in self.arms}
        return dataclasses.replace(
            self,
            tasks=tuple(t if t.name in keep_tasks else dataclasses.replace(t, budgets=()) for t in self.tasks),
            arms=tuple(a if a.name in keep_arms else dataclasses.replace(a, budgets=()) for a in self.arms),
        )


_Named = TypeVar("_Named", Task, Arm)


def _named(kind: str, name: str, among: tuple[_Named, ...], study: str) -> _Named:
    for one in among:
        if one.name == name:
            return one
    raise InputError(f"study {study} has no {kind} {name!r}; it has {', '.join(one.name for one in among)}")
