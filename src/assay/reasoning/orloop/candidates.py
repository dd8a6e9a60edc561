"""Plausible edits of the rows in conflict, and the numbers by which a policy tells them apart."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .actions import Action
from .model import LinearModel, family_of
from .solving import solve

FEATURES = 24
MOST = 200
KINDS = ("FLIP", "DROP", "RELAX", "SET_RHS", "RESTORE")
SLIPS = (0.1, 0.2, 5.0, 10.0)


def propose(model: LinearModel, rows: Sequence[str]) -> tuple[list[Action], NDArray[np.float32]]:
    """Return candidate edits for the rows of a conflict, and their (k, 24) features.

    For each row: flip it, drop it, relax it as little as suffices, take back a slip of its right-hand side, and give
    its coefficients the sign and size that its family has. For columns in these rows: the bounds of their family.
    """
    names = list(rows)[:40]
    relaxations = least_relaxations(model, names)
    facts = [_facts(model, name) | {"relax": least} for name, least in zip(names, relaxations, strict=True)]
    smallest = min((f["relax"] for f in facts if f["relax"] is not None), default=None)
    actions: list[Action] = []
    features: list[list[float]] = []
    for name, fact in zip(names, facts, strict=True):
        for kind, action in _edits(model, name, fact):
            actions.append(action)
            features.append(_features(kind, fact, len(rows), smallest))
    for action, share in _column_edits(model, names):
        actions.append(action)
        row = [0.0] * FEATURES
        row[4], row[5], row[10], row[18], row[21] = 1.0, share, len(rows) / 10, 1.0, 1.0
        features.append(row)
    return actions[:MOST], np.array(features, dtype=np.float32).reshape(-1, FEATURES)[:MOST]


def _facts(model: LinearModel, name: str) -> dict:
    i = model.row(name)
    lo, up = float(model.row_lo[i]), float(model.row_up[i])
    mates = np.array([r for r in range(model.shape[0]) if model.family[r] == model.family[i] and r != i], dtype=int)
    below = np.isfinite(up) and not np.isfinite(lo)
    rhs = up if np.isfinite(up) else lo
    sides = np.where(np.isfinite(model.row_up[mates]), model.row_up[mates], model.row_lo[mates])
    same = (np.isfinite(model.row_up[mates]) == np.isfinite(up)) & (np.isfinite(model.row_lo[mates]) == np.isfinite(lo))
    fact: dict = {"i": i, "lo": lo, "up": up, "rhs": rhs, "equal": lo == up, "family": len(mates)}
    fact["share"] = float(same.mean()) if len(mates) else 0.5
    fact["median"] = float(np.median(sides)) if len(mates) and np.isfinite(sides).all() else None
    fact["z"], fact["slip"] = 0.0, 0.0
    if fact["median"] is not None and len(mates) > 1:
        spread = 1.4826 * float(np.median(np.abs(sides - fact["median"]))) + 0.05 * abs(fact["median"]) + 1e-9
        fact["z"] = float(np.clip((rhs - fact["median"]) / spread / 10, -3, 3))
        if rhs * fact["median"] > 0:
            fact["slip"] = float(np.log10(abs(rhs / fact["median"])))
    fact["restore"], fact["ratio"], fact["signs"] = _restored(model, i, mates)
    fact["parallel"] = _parallel(model, i, below)
    return fact


def _edits(model: LinearModel, name: str, fact: dict) -> list[tuple[str, Action]]:
    out = [("DROP", Action("DROP", name))]
    if np.isfinite(fact["lo"]) != np.isfinite(fact["up"]):
        out.append(("FLIP", Action("FLIP", name)))
    if fact["relax"] is not None:
        out.append(("RELAX", Action("RELAX", name, (fact["relax"],))))
    one_value = fact["equal"] or np.isfinite(fact["lo"]) != np.isfinite(fact["up"])
    if one_value and fact["median"] is not None and fact["rhs"] * fact["median"] > 0:
        values = [round(fact["rhs"] * slip, 9) for slip in SLIPS]
        nearest = min(values, key=lambda v: abs(np.log(v / fact["median"])))
        out.append(("SET_RHS", Action("SET_RHS", name, (nearest,))))
    if fact["restore"] is not None:
        out.append(("RESTORE", fact["restore"]))
    return out


def _restored(model: LinearModel, i: int, mates: NDArray[np.int64]) -> tuple[Action | None, float, float]:
    """The row with signs and decimal points as in its family; how far off it is, and the share of wrong signs."""
    at = slice(model.A.indptr[i], model.A.indptr[i + 1])
    cols, mine = model.A.indices[at], model.A.data[at]
    if not len(mates):
        return None, 0.0, 0.0
    theirs = model.A[mates]
    kinds = np.array([family_of(name) for name in model.col_names])
    changed, ratios, signs = [], [], 0
    for j, a in zip(cols, mine, strict=True):
        pool = theirs[:, np.flatnonzero(kinds == kinds[j])].data
        pool = pool[pool != 0]
        if not len(pool) or a == 0:
            continue
        sign = np.sign(np.median(np.sign(pool)))
        size = float(np.median(np.abs(pool)))
        ratios.append(abs(np.log10(abs(a) / size)))
        factor = min((1.0, 0.1, 10.0), key=lambda f: (abs(np.log10(abs(a) * f / size)), f != 1.0))
        flipped = sign != 0 and np.sign(a) != sign
        signs += flipped
        if factor != 1.0 or flipped:
            changed.append((int(j), float(round(a * factor * (-1 if flipped else 1), 9))))
    ratio = float(max(ratios, default=0.0))
    share = signs / max(len(cols), 1)
    if not changed:
        return None, ratio, share
    names = tuple(model.col_names[j] for j, _ in changed)
    return Action("SET_COEF", model.row_names[i], tuple(v for _, v in changed), names), ratio, share


def _parallel(model: LinearModel, i: int, below: bool) -> float:
    """1 where another row has the same direction and a limit on the other side."""
    dots = np.asarray((model.A @ model.A[i].T).todense()).ravel()
    norms = np.sqrt(np.asarray(model.A.multiply(model.A).sum(axis=1)).ravel())
    cosine = dots / np.maximum(norms * norms[i], 1e-12)
    cosine[i] = 0
    close = np.abs(cosine) > 1 - 1e-9
    other = np.isfinite(model.row_lo) if below else np.isfinite(model.row_up)
    return float((close & other).any())


def least_relaxations(model: LinearModel, names: Sequence[str], seconds: float = 15.0) -> list[float | None]:
    """Return how far the sides of each row must move for all others to hold; None where that does not help.

    Rows that are not reached within so many seconds, as in hard integer models, have None too.
    """
    until = time.monotonic() + seconds
    return [_least_relaxation(model, model.row(name), until) for name in names]


def _least_relaxation(model: LinearModel, i: int, until: float) -> float | None:
    lo, up = model.row_lo[i], model.row_up[i]
    row = np.zeros(model.shape[1])
    row[model.A.indices[model.A.indptr[i] : model.A.indptr[i + 1]]] = model.A.data[
        model.A.indptr[i] : model.A.indptr[i + 1]
    ]
    rest = model.rows([r for r in range(model.shape[0]) if r != i])
    amounts = []
    for side, sense in ((up, "min"), (lo, "max")):
        if np.isfinite(side):
            left = until - time.monotonic()
            if left <= 0:
                return None
            solved = solve(replace(rest, cost=row, sense=sense, offset=0.0), time_limit=min(2.0, left))
            if solved.status == "unbounded":
                continue
            if solved.objective is None:
                return None
            amounts.append(solved.objective - side if sense == "min" else side - solved.objective)
    least = max(amounts, default=0.0)
    return float(least * (1 + 1e-9) + 1e-9) if least > 0 else None


def _column_edits(model: LinearModel, rows: Sequence[str]) -> list[tuple[Action, float]]:
    """Bounds that most of a column's family have, for columns in these rows that have others."""
    if not rows:
        return []
    used = np.unique(model.A[[model.row(name) for name in rows]].indices)
    kinds = [family_of(name) for name in model.col_names]
    out = []
    for j in used:
        mates = [k for k in range(len(kinds)) if kinds[k] == kinds[j] and k != j]
        if len(mates) < 2:
            continue
        (bounds, count), *_ = Counter((float(model.col_lo[k]), float(model.col_up[k])) for k in mates).most_common()
        if bounds != (float(model.col_lo[j]), float(model.col_up[j])) and count > len(mates) / 2:
            out.append((Action("SET_BOUNDS", model.col_names[j], bounds), count / len(mates)))
    return out


def _features(kind: str, fact: dict, size: int, smallest: float | None) -> list[float]:
    one_hot = [float(kind == k) for k in KINDS]
    relax = fact["relax"]
    amount = 0.0 if relax is None else float(np.log1p(relax / (1 + abs(fact["rhs"]))))
    is_smallest = float(relax is not None and relax == smallest)
    minority = 1.0 - fact["share"]
    outlier = min(fact["ratio"] + fact["signs"], 3.0)
    return [
        *one_hot,
        fact["share"],
        fact["z"],
        min(fact["ratio"], 3.0),
        fact["signs"],
        fact["parallel"],
        size / 10,
        fact["family"] / 10,
        float(relax is None),
        amount,
        is_smallest,
        0.0,  # touched before: the environment knows
        float(fact["equal"]),
        0.0,  # the step
        0.0,  # a column's edit
        one_hot[0] * minority,
        one_hot[1] * fact["parallel"],
        one_hot[4] * outlier,
        one_hot[3] * abs(fact["slip"]),
        one_hot[2] * is_smallest,
    ]
