"""Repairs without learning: what chance, simple rules and common practice do."""

from __future__ import annotations

from collections.abc import Callable

import highspy
import numpy as np

from .actions import Action
from .environment import RepairEnv
from .model import LinearModel

Rule = Callable[[RepairEnv, np.random.Generator], Action]


def random_edit(env: RepairEnv, rng: np.random.Generator) -> Action:
    """Any candidate."""
    options = env.candidates()
    return options[int(rng.integers(len(options)))] if options else Action("SUBMIT")


def drop_first(env: RepairEnv, rng: np.random.Generator) -> Action:
    """Drop the first row of the IIS: nearly always feasible soon."""
    return Action("DROP", env.state.rows[0]) if env.state.rows else Action("SUBMIT")


def min_relax(env: RepairEnv, rng: np.random.Generator) -> Action:
    """Relax the row for which the least suffices; where none does alone, drop the first."""
    options = [a for a in env.candidates() if a.kind == "RELAX"]
    return min(options, key=lambda a: a.values[0]) if options else drop_first(env, rng)


def whole_model(env: RepairEnv, rng: np.random.Generator) -> Action:
    """Relax, row by row, what the least total violation over all rows says."""
    edits = elastic(env.state.model)
    return edits[0] if edits else drop_first(env, rng)


def elastic(model: LinearModel, time_limit: float = 20.0) -> list[Action]:
    """Return the relaxations with the least sum over all rows, with bounds of columns kept (``feasRelax``).

    Where time runs out, they are the best that were found; none where nothing was.
    """
    h = model.to_highs()
    h.setOptionValue("time_limit", time_limit)
    if h.feasibilityRelaxation(-1.0, -1.0, 1.0) == highspy.HighsStatus.kError:
        h = model.to_highs()  # refused one thread, where other code has made a pool: see parts.highs
        h.setOptionValue("threads", 0)
        h.setOptionValue("time_limit", time_limit)
        h.feasibilityRelaxation(-1.0, -1.0, 1.0)
    x = np.array(h.getSolution().col_value)
    if x.shape != (model.shape[1],) or not h.getSolution().value_valid:
        return []
    activity = model.A @ x
    past = np.maximum(model.row_lo - activity, activity - model.row_up)
    return [
        Action("RELAX", model.row_names[i], (float(past[i] * (1 + 1e-9) + 1e-9),))
        for i in np.argsort(-past, kind="stable")
        if past[i] > 1e-7
    ]


def outlier(env: RepairEnv, rng: np.random.Generator) -> Action:
    """Mend the row that is most unlike its family: its sense, its coefficients, its side, or an extra row."""
    options = env.candidates()
    if not options:
        return Action("SUBMIT")
    f = env.features(options)
    kind = f[:, :5].argmax(axis=1)
    odd = (
        np.select(
            [kind == 0, kind == 1, kind == 3, kind == 4],
            [
                2 * (f[:, 19] > 0.5) * f[:, 19] + (f[:, 19] > 0.5),
                0.6 * (f[:, 20] > 0) * (f[:, 5] < 0.5),
                np.where(f[:, 22] > 0.45, f[:, 22], 0.0),
                np.maximum(f[:, 21], f[:, 18] * 1.5),
            ],
            0.0,
        )
        - f[:, 15]
    )
    # A row that is like its family in all respects and yet in conflict: drop it, as everybody does.
    best = int(odd.argmax())
    return options[best] if odd[best] > 0.2 else drop_first(env, rng)


def by_kind(env: RepairEnv, rng: np.random.Generator) -> Action:
    """Edit by a fixed order of kinds (restore, flip, take back a slip, drop) in the row that is relaxed the least."""
    options = env.candidates()
    if not options:
        return Action("SUBMIT")
    f = env.features(options)
    kind = f[:, :5].argmax(axis=1)
    order = np.array([PREFERENCE.index(k) for k in kind])
    # A row that no relaxation mends comes after those that one does, and what was edited before comes last.
    return options[int(np.lexsort((f[:, 13], f[:, 12], order, f[:, 15]))[0])]


PREFERENCE = (4, 0, 3, 1, 2)
"""Kinds of edit as :func:`by_kind` prefers them, as numbers of ``candidates.KINDS``."""

RULES: dict[str, Rule] = {
    "random": random_edit,
    "drop_first": drop_first,
    "min_relax": min_relax,
    "whole_model": whole_model,
    "by_kind": by_kind,
    "outlier": outlier,
}
