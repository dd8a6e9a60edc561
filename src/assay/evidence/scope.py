"""Scope: what a claim is judged on at a budget, and what would have to be added for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from assay.evidence.claim import Claim
from assay.evidence.study import ALL_BUDGETS, Budget, Study

# These look at all tasks of a seed at once.
ACROSS_TASKS = ("spread", "slope")


@dataclass(frozen=True)
class Scope:
    """What one part of a claim compares: the claim's arm and ``other`` (empty: a bar alone) on ``tasks``."""

    tasks: tuple[str, ...]
    other: str = ""


def scopes(claim: Claim, study: Study, budget: Budget) -> list[Scope]:
    """The parts of a claim at a budget, in the study's order: each task with each other arm.

    One part for each other arm where the claim pools its tasks; one in all for ``spread`` and ``slope``.
    """
    runs = {(task.name, arm.name) for task, arm in study.pairs(budget)}
    found: list[Scope] = []
    for other in dict.fromkeys(claim.others) or ("",):
        both = tuple(
            task for task in _tasks(claim, study) if (task, claim.arm) in runs and (not other or (task, other) in runs)
        )
        if claim.form in ACROSS_TASKS:
            found += [Scope(both, other)] if len(both) >= 2 else []
        elif claim.pool:
            found += [Scope(both, other)] if both else []
        else:
            found += [Scope((task,), other) for task in both]
    return found


def why_untested(claim: Claim, study: Study, budget: Budget) -> str:
    """What a claim without any part at this budget needs."""
    home = _home(budget, lambda b: bool(scopes(claim, study, b)))
    if home is not None:
        return f"needs --budget {home}"
    arms = [name for name in (claim.arm, *claim.others) if not study.arm(name).budgets]
    tasks = [name for name in _tasks(claim, study) if not study.task(name).budgets]
    gone = [f"--arm left out {_and(arms)}"] if arms else []
    gone += [f"--task left out {_and(tasks)}"] if tasks else []
    if gone:
        return "; ".join(gone)
    if claim.form in ACROSS_TASKS:
        return f"needs at least 2 tasks on which {claim.arm} runs"
    return f"no task has cells of {_and([claim.arm, *claim.others])}"


def left_out(claim: Claim, study: Study, budget: Budget) -> str:
    """The arms and tasks that a claim names and its parts lack, and where they are; empty if it lacks none.

    A claim that names no tasks is about those of the run, so it lacks none.
    """
    here = scopes(claim, study, budget)
    groups: dict[str, list[str]] = {}

    def add(name: str, option: str, removed: bool, has: Callable[[Scope], bool]) -> None:
        if not any(map(has, here)):
            home = _home(budget, lambda b: any(map(has, scopes(claim, study, b))))
            groups.setdefault(_place(home, option, removed), []).append(name)

    for other in claim.others:
        add(other, "--arm", not study.arm(other).budgets, partial(_against, other))
    for task in claim.tasks or ():
        add(task, "--task", not study.task(task).budgets, partial(_on, task))
    return ", ".join(f"without {_and(names)} ({place})" for place, names in groups.items())


def _against(other: str, scope: Scope) -> bool:
    return scope.other == other


def _on(task: str, scope: Scope) -> bool:
    return task in scope.tasks


def _tasks(claim: Claim, study: Study) -> list[str]:
    return [task.name for task in study.tasks if claim.tasks is None or task.name in claim.tasks]


def _home(budget: Budget, has: Callable[[Budget], bool]) -> Budget | None:
    """The nearest budget that has it: the smallest larger one, else the largest smaller one."""
    at = ALL_BUDGETS.index(budget)
    return next((b for b in (*ALL_BUDGETS[at + 1 :], *reversed(ALL_BUDGETS[:at])) if has(b)), None)


def _place(home: Budget | None, option: str, removed: bool) -> str:
    if home is not None:
        return f"--budget {home}"
    return f"left out by {option}" if removed else "no such cells in this study"


def _and(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
