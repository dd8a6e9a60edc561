"""How well predicted drawing code matches a drawing, names and order set aside."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from assay.errors import InputError

from .figure import Fact
from .measure import angle, distance, error
from .read import read_code
from .scene import Mark, ParseError, Scene, _ordered

DEGREES, SHARE = 2.0, 0.03
"""How far a fact may be off in a predicted drawing."""


@dataclass(frozen=True)
class CodeScore:
    """Scores of predicted code, each 0 to 1; None where the drawing has nothing of the kind.

    Attributes
    ----------
    parse
        Whether the code could be read.
    point_f1, segment_f1, circle_f1
        Points, segments and circles found and not made up.
    annotation
        Marks reproduced exactly, out of the marks of both drawings: made-up ones count against it.
    fidelity
        Facts of the drawing that hold at the predicted places.
    total
        0 if unread, else the mean of the others; 1 where both drawings are empty.
    """

    parse: bool
    point_f1: float = 0.0
    segment_f1: float | None = 0.0
    circle_f1: float | None = None
    annotation: float | None = 0.0
    fidelity: float | None = 0.0
    total: float = 0.0
    reason: str = ""


def score_code(pred: Scene | str, gold: Scene, *, tol: float = 0.03, facts: Sequence[Fact] | None = None) -> CodeScore:
    """Compare predicted drawing code with a drawing.

    Parameters
    ----------
    pred
        A scene, or code that :func:`read_code` reads; what it cannot read scores 0.
    gold
        The drawing.
    tol
        How far a point, a centre or a radius may be off, as a share of the page's diagonal.
    facts
        What must hold; by default ``gold.facts``.

    Raises
    ------
    InputError
        For a ``tol`` outside (0, 1) and a ``gold`` that is no scene.

    Examples
    --------
    >>> gold = Scene({"A": (0, 0), "B": (1, 0), "C": (0, 1)}, (("A", "B"), ("B", "C")))
    >>> score_code(gold, gold).total, score_code("import os", gold).total
    (1.0, 0.0)
    """
    if not isinstance(gold, Scene):
        raise InputError(f"gold must be a Scene, got {type(gold).__name__}")
    if not isinstance(tol, int | float) or not 0 < tol < 1:
        raise InputError(f"tol must be between 0 and 1, got {tol!r}")
    if facts is not None and not all(isinstance(fact, Fact) for fact in facts):
        raise InputError("facts must be a list of Fact")
    if not isinstance(pred, Scene):
        try:
            pred = read_code(pred)
        except ParseError as error:
            return CodeScore(False, reason=str(error))
    reach = tol * math.sqrt(2)
    to_gold = _matched(pred, gold, reach)
    point = _f1(len(to_gold), len(pred.points), len(gold.points))
    theirs = {tuple(sorted((to_gold[a], to_gold[b]))) for a, b in pred.segments if a in to_gold and b in to_gold}
    segment = _f1(len(theirs & set(gold.segments)), len(pred.segments), len(gold.segments))
    circle = _circles(pred, gold, reach)
    marks = {_renamed(mark, to_gold) for mark in pred.marks}
    right = len(marks & {_bare(mark) for mark in gold.marks})
    union = len(pred.marks) + len(gold.marks) - right
    annotation = right / union if union else None
    known = tuple(gold.facts if facts is None else facts)
    back = {name: pred.points[mine] for mine, name in to_gold.items()}
    fidelity = sum(_holds(fact, back) for fact in known) / len(known) if known else None
    parts = [p for p in (point, segment, circle, annotation, fidelity) if p is not None]
    total = sum(parts) / len(parts) if parts else 1.0
    return CodeScore(True, point or 0.0, segment, circle, annotation, fidelity, total)


def _f1(hits: int, mine: int, theirs: int) -> float | None:
    return 2 * hits / (mine + theirs) if mine + theirs else None


def _matched(pred: Scene, gold: Scene, reach: float) -> dict[str, str]:
    """Names of predicted points to names of true ones, each at most once and no further than ``reach``."""
    mine, theirs = list(pred.points), list(gold.points)
    if not mine or not theirs:
        return {}
    a, b = np.array([pred.points[n] for n in mine]), np.array([gold.points[n] for n in theirs])
    far = np.linalg.norm(a[:, None] - b[None], axis=2)
    # What is out of reach costs the same everywhere, so that it doesn't take a place within reach from another.
    rows, columns = linear_sum_assignment(np.where(far <= reach, far, 10.0))
    return {mine[i]: theirs[j] for i, j in zip(rows, columns, strict=True) if far[i, j] <= reach}


def _circles(pred: Scene, gold: Scene, reach: float) -> float | None:
    if not pred.circles or not gold.circles:
        return _f1(0, len(pred.circles), len(gold.circles))
    far = np.abs(np.array(pred.circles)[:, None] - np.array(gold.circles)[None])
    off = np.maximum(np.hypot(far[..., 0], far[..., 1]), far[..., 2])
    rows, columns = linear_sum_assignment(np.where(off <= reach, off, 10.0))
    return _f1(int((off[rows, columns] <= reach).sum()), len(pred.circles), len(gold.circles))


def _renamed(mark: Mark, names: dict[str, str]) -> Mark | None:
    if not all(name in names for name in mark.points):
        return None
    return _bare(dataclasses.replace(mark, points=_ordered(mark.kind, tuple(names[name] for name in mark.points))))


def _bare(mark: Mark) -> Mark:
    """How many ticks equal segments get is free."""
    return dataclasses.replace(mark, text="") if mark.kind == "equal" else mark


def _holds(fact: Fact, at: dict[str, tuple[float, float]]) -> bool:
    """Whether a fact is true to 2° and 3 %; false where one of its points was not found.

    A bisector and a circle compare two angles and may be 4° off; a midpoint's halves may differ by 6 %.
    """
    if not all(name in at for name in fact.points):
        return False
    p = [at[name] for name in fact.points]
    pairs = [(p[0], p[1]), (p[2], p[3])] if len(p) == 4 else [(p[0], p[1]), (p[0], p[2])]
    if any(distance(a, b) == 0 for a, b in pairs):
        return False
    lengths = [distance(a, b) for a, b in pairs]

    def turned() -> float:
        (a, b), (c, d) = pairs
        between = angle((b[0] - a[0], b[1] - a[1]), (0.0, 0.0), (d[0] - c[0], d[1] - c[1]))
        return min(between, 180 - between)

    match fact.kind:
        case "turn":
            return error(fact, at) == 0
        case "perp":
            return abs(turned() - 90) <= DEGREES
        case "para" | "coll":
            return turned() <= DEGREES
        case "bis":
            return abs(angle(p[0], p[1], p[3]) - angle(p[3], p[1], p[2])) <= 2 * DEGREES
        case "mid":
            return turned() <= DEGREES and abs(lengths[0] / lengths[1] - 1) <= 2 * SHARE
        case "cyc":
            opposite = angle(p[0], p[1], p[2]) + angle(p[2], p[3], p[0])
            return (
                abs(opposite - 180) <= 2 * DEGREES
                or abs(angle(p[0], p[1], p[2]) - angle(p[0], p[3], p[2])) <= 2 * DEGREES
            )
        case _:
            return abs(lengths[0] / (float(fact.value or 1) * lengths[1]) - 1) <= SHARE
