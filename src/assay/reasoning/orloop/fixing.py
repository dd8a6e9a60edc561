"""Repair of a user's own model, where nobody knows the culprit: a proposal with its reasons."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.errors import EndpointError, InputError

from .actions import Action, apply
from .candidates import propose
from .conflicts import iis
from .environment import RepairEnv, row_text
from .hand_rules import outlier
from .model import LinearModel
from .saboteur import Instance
from .solving import Solution, solve


@dataclass(frozen=True)
class RepairReport:
    """What a repair did.

    Attributes
    ----------
    edits
        In order.
    before, after
        The edited rows or columns as text; ``after`` is empty for a dropped row.
    status, objective
        Of the repaired model.
    why
        For each edit, the conflict that it answers; where nothing was edited, the one reason for that.
    model
        The repaired model.
    conflicts
        For each edit, the rows that were in conflict before it.
    """

    edits: tuple[Action, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    status: str
    objective: float | None
    why: tuple[str, ...]
    model: LinearModel
    conflicts: tuple[tuple[str, ...], ...] = ()


def repair(
    model: LinearModel, *, policy: Any = None, agent: Any = None, max_steps: int = 10, time_limit: float = 30.0
) -> RepairReport:
    """Propose edits that make a model feasible.

    Parameters
    ----------
    model
        To be repaired.
    policy
        A :class:`RepairPolicy`; by default a rule that mends the row most unlike its family.
    agent
        A language model (``OpenAIAgent``, ``HFAgent``) that acts in its place.
    max_steps
        Most actions.
    time_limit
        Seconds a solve.

    Returns
    -------
    RepairReport
        With no edits for a model that is not infeasible; its status says what it is.

    Raises
    ------
    InputError
        When both a policy and an agent are given.
    EndpointError
        From an agent; what was done so far is its ``report``.
    """
    if policy is not None and agent is not None:
        raise InputError("policy and agent cannot both be given")
    for what, given in (("policy", policy), ("agent", agent)):
        if given is not None and not callable(getattr(given, "act", None)):
            raise TypeError(f"{what} must have a method act(env), and {type(given).__name__} has none")
    solved = solve(model, time_limit=time_limit)
    if solved.status != "infeasible":
        return RepairReport((), (), (), solved.status, solved.objective, (_no_need(solved),), model)
    env = RepairEnv(unknown(model), max_steps=max_steps, time_limit=time_limit)
    env.reset()
    rng = np.random.default_rng(0)
    edits: list[Action] = []
    before, after, conflicts = [], [], []

    def report() -> RepairReport:
        why = tuple(f"in conflict: {', '.join(rows) or 'bounds of columns'}" for rows in conflicts)
        state = env.state
        if not edits:
            sides = iis(model, time_limit=time_limit).col_bounds
            bounds = ", ".join(f"{side} bound of {col}" for col, side in sides)
            why = (f"no row is wrong, the bounds of columns conflict: {bounds}" if sides else "no edit was proposed",)
        return RepairReport(
            tuple(edits), tuple(before), tuple(after), state.status, state.objective, why, state.model, tuple(conflicts)
        )

    while not env.done and env.state.status == "infeasible":
        conflict, old, count = env.state.rows, env.state.model, env.n_edits
        try:
            if agent is not None:
                action: Any = agent.act(env)
            else:
                action = policy.act(env) if policy is not None else outlier(env, rng)
        except EndpointError as error:
            error.report = report()  # type: ignore[attr-defined]
            raise
        _, _, _, _, info = env.step(action)
        if not env.edits:  # also after RESET
            edits, before, after, conflicts = [], [], [], []
        elif env.n_edits > count and "error" not in info:
            done = env.edits[-1]
            edits.append(done)
            before.append(_text(old, done.target))
            after.append(_text(env.state.model, done.target))
            conflicts.append(conflict)
    return report()


def choices(
    model: LinearModel, conflict: tuple[str, ...], *, most: int = 40, time_limit: float = 20.0
) -> list[tuple[Action, Solution]]:
    """Return plausible edits of the rows in conflict, and what the model is after each alone.

    Parameters
    ----------
    model
        Infeasible.
    conflict
        Names of rows that conflict.
    most
        At most so many edits.
    time_limit
        Seconds in all; edits that are not reached are left out.
    """
    until = time.monotonic() + time_limit
    out = []
    for action in propose(model, conflict)[0][:most]:
        left = until - time.monotonic()
        if left <= 0:
            break
        out.append((action, solve(apply(model, action), time_limit=left)))
    return out


def unknown(model: LinearModel) -> Instance:
    """Return an instance whose culprit and optimum nobody knows: its scores mean nothing."""
    return Instance("own", model, model, frozenset(), (), "", "own", (), float("nan"))


def _no_need(solved: Solution) -> str:
    if solved.status == "optimal":
        return "already feasible"
    if solved.status == "limit":
        known = "feasible, though its optimum was not reached" if solved.x is not None else "neither solved nor refuted"
        return f"within the time limit the model is {known}"
    return f"the model is {solved.status}, not infeasible"


def _text(model: LinearModel, name: str) -> str:
    if name in model.row_names:
        return row_text(model, name)
    if name in model.col_names:
        j = model.col(name)
        kind = "integer" if model.integer[j] else "continuous"
        return f"{model.col_lo[j]:g} <= {name} <= {model.col_up[j]:g}, {kind}"
    return ""
