"""Repair of a user's own model, where nobody knows the culprit: a proposal with its reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.errors import InputError

from .actions import Action
from .environment import RepairEnv, row_text
from .hand_rules import outlier
from .model import LinearModel
from .saboteur import Instance
from .solving import solve


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
        For each edit, the conflict that it answers.
    model
        The repaired model.
    """

    edits: tuple[Action, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    status: str
    objective: float | None
    why: tuple[str, ...]
    model: LinearModel


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
        A language model (``OpenAIAgent``) that acts in its place.
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
    """
    if policy is not None and agent is not None:
        raise InputError("policy and agent cannot both be given")
    solved = solve(model, time_limit=time_limit)
    if solved.status != "infeasible":
        why = "already feasible" if solved.status == "optimal" else f"the model is {solved.status}, not infeasible"
        return RepairReport((), (), (), solved.status, solved.objective, (why,), model)
    env = RepairEnv(unknown(model), max_steps=max_steps, time_limit=time_limit)
    env.reset()
    rng = np.random.default_rng(0)
    edits, before, after, why = [], [], [], []
    while not env.done:
        conflict, old = env.state.rows, env.state.model
        if agent is not None:
            action: Any = agent.act(env)
        else:
            action = policy.act(env) if policy is not None else outlier(env, rng)
        count = env.n_edits
        env.step(action)
        if env.n_edits == count:
            continue
        done = env.edits[-1]
        edits.append(done)
        before.append(_text(old, done.target))
        after.append(_text(env.state.model, done.target))
        why.append(f"in conflict: {', '.join(conflict)}")
    return RepairReport(
        tuple(edits), tuple(before), tuple(after), env.state.status, env.state.objective, tuple(why), env.state.model
    )


def unknown(model: LinearModel) -> Instance:
    """Return an instance whose culprit and optimum nobody knows: its scores mean nothing."""
    return Instance("own", model, model, frozenset(), (), "", "own", (), float("nan"))


def _text(model: LinearModel, name: str) -> str:
    if name in model.row_names:
        return row_text(model, name)
    if name in model.col_names:
        j = model.col(name)
        kind = "integer" if model.integer[j] else "continuous"
        return f"{model.col_lo[j]:g} <= {name} <= {model.col_up[j]:g}, {kind}"
    return ""
