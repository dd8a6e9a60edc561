"""The five checks of a problem. They read its finished parts: coordinates are measured, texts and code read back.

Each check can be left out alone.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from assay.errors import InputError
from assay.parts.packages import need

from . import logs
from .constructions import OPS, circumcentre, place
from .deduction import deduce
from .figure import Construction, Coordinates, Given, InconsistentSeed, Rejected, Seed, Target, edge
from .image import render
from .layout import arc, astray, cut_off, overlap, small_strokes, strokes, texts
from .measure import angle, distance, error, given_error, measured
from .problem import Checks, Problem, circles_of, equal_marks, right_marks, visible
from .read import read_code
from .scene import Mark, _ordered
from .wording import read_problem, read_question, spoken

CLOSE = 1e-7
SIZE = 336
NEAREST_PIXELS = 12
LABEL_OFF_LINES = 0.88
SEGMENT_DARK = 0.97
FARTHEST = 0.11
"""How far from its arc the text of an angle may stand, as a share of the page."""


def verify(problem: Problem, *, skip: tuple[str, ...] = ()) -> Checks:
    """Check a problem in five ways.

    Parameters
    ----------
    problem
        The problem.
    skip
        Names of checks to leave out; those count as passed.

    Returns
    -------
    Checks
        ``coordinate``: every fact and given, measured in the figure. ``deduction``: the answer follows, equals the
        measured one, is not contradicted in a second figure, and the solution rests on facts and givens of the seed
        and ends with it. ``semantic``: the text, read back, says the same as the seed, what it leaves out is marked,
        and segments and marks are those that seed and question call for. ``execution``: the script, read back, draws
        the scene, and points and circles of the scene are those of the figure. ``visual``: letters, points and lines
        are legible in the image.

    Raises
    ------
    TypeError
        For what is no problem.
    InputError
        For an unknown name in ``skip``.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem, got {type(problem).__name__}")
    for name in skip:
        if name not in GATES:
            raise InputError(f"skip must hold names among {', '.join(GATES)}, got {name!r}")
    detail: dict[str, str] = {}
    for name, gate in GATES.items():
        if name in skip:
            continue
        try:
            wrong = gate(problem)
        except KeyError as missing:
            wrong = f"there is no point {missing}"
        except (ValueError, TypeError, ArithmeticError, Rejected) as problem_error:
            wrong = str(problem_error) or type(problem_error).__name__
        if wrong:
            detail[name] = wrong
    return Checks(**{name: name not in detail for name in GATES}, detail=detail)


def _coordinate(problem: Problem) -> str:
    for fact in problem.seed.facts:
        if not error(fact, problem.coords) <= CLOSE:
            return f"{fact.text()} is not true in the figure: off by {error(fact, problem.coords):.2g}"
    for given in problem.seed.givens:
        if not given_error(given, problem.coords) <= CLOSE:
            return f"{given.text()} is not true in the figure: off by {given_error(given, problem.coords):.2g}"
    return ""


def _value(seed: Seed, coords: Coordinates, target: Target) -> float | None:
    value = deduce(seed.facts, coords, seed.givens, lengths=target.kind != "angle").value(target)
    if value is None:
        return None
    return float(value.get(1, 0)) if target.kind == "angle" else logs.number(value)


def _deduction(problem: Problem) -> str:
    there = measured(problem.target, problem.coords)
    if abs(problem.answer.value - there) > CLOSE * max(1.0, there):
        return f"the answer is {problem.answer.text()}, and in the figure it measures {there:.6g}"
    derived = _value(problem.seed, problem.coords, problem.target)
    if derived is None:
        return f"{problem.target.text()} does not follow from the facts and givens"
    if abs(derived - there) > CLOSE * max(1.0, there):
        return f"{derived:.6g} follows, and in the figure it measures {there:.6g}"
    return _solution(problem) or _second_figure(problem)


def _solution(problem: Problem) -> str:
    """What is wrong with the worked steps: their reasons, their number, or what they end with."""
    known = {
        "by construction": Counter(f"{fact.text()}." for fact in problem.seed.facts),
        "given": Counter(f"{given.text()}." for given in problem.seed.givens),
    }
    reasons = Counter((step.because, step.text) for step in problem.solution if step.because in known)
    for (because, text), times in reasons.items():
        if times > known[because][text]:
            return f"the solution calls {text!r} {because}, and the seed has it {known[because][text]} times"
    if reasons.total() != problem.depth:
        return f"the depth is {problem.depth}, and the solution names {reasons.total()} facts and givens"
    last = f"{problem.target.text()} = {problem.answer.text()}."
    if not problem.solution or problem.solution[-1].text != last:
        return f"the solution does not end with {last!r}"
    return ""


def _second_figure(problem: Problem) -> str:
    rng = random.Random(problem.id)
    for _ in range(6):
        try:
            seed, coords = another(problem.seed, rng)
            other = _value(seed, coords, problem.target)
        except InconsistentSeed as wrong:
            return f"in a second figure {wrong}"
        except (Rejected, InputError):
            continue  # an impossible figure, or points that fall together
        if other is None:
            continue  # a theorem may need a number: the law of cosines an angle of 60°
        there = measured(problem.target, coords)
        if abs(other - there) > 1e-6 * max(1.0, other):
            return f"in a second figure {other:.6g} follows, and it measures {there:.6g}"
        return ""
    return ""


def another(seed: Seed, rng: random.Random) -> tuple[Seed, Coordinates]:
    """The same seed with other numbers, and its figure.

    Raises
    ------
    Rejected
        For a figure that is impossible or in which something that the constructions imply turns out otherwise.
    """
    steps = tuple(
        dataclasses.replace(step, param=tuple(rng.randint(*bounds) for bounds in OPS[step.op].ranges))
        for step in seed.constructions
    )
    numbers = {(g.kind, g.points): g for step in steps for g in OPS[step.op].givens(step.out, step.args, step.param)}
    givens = tuple(numbers[given.kind, given.points] for given in seed.givens)
    coords = place(steps, math)
    for given in givens:
        if given_error(given, coords) > CLOSE:
            raise Rejected("the draw turns the figure over")
    for step in steps:
        for fact in OPS[step.op].facts(step.out, step.args):
            if not error(fact, coords) <= CLOSE:
                raise Rejected(f"{fact.text()} turns out otherwise in this draw")
    return Seed(steps, givens, seed.facts), coords


def _semantic(problem: Problem) -> str:
    steps, givens, marked = read_problem(problem.text)
    mine = [(spoken(step.op), step.out, step.args) for step in problem.seed.constructions]
    if steps != mine:
        return "the text, read back, has other constructions than the seed"
    facts = [fact for op, out, args in steps for fact in OPS[op].facts(out, args)]
    if sorted(map(repr, facts)) != sorted(map(repr, problem.seed.facts)):
        return "the constructions of the text imply other facts than the seed holds"
    if read_question(problem.question) != problem.target:
        return "the question asks for something else"
    drawn = {(m.kind, m.points, m.text) for m in problem.scene.marks if m.kind in ("angle", "length")}
    known = {_mark_of(given): given for given in problem.seed.givens}
    for given in givens:
        if given not in problem.seed.givens:
            return f"the text gives {given.text()}, which the seed has not"
    for mark, given in known.items():
        if given not in givens and not (marked and mark in drawn):
            return f"{given.text()} is neither in the text nor marked"
    for kind, points, text in sorted(drawn):
        if (kind, points, text) not in known:
            return f"the mark {text!r} at {''.join(points)} is no given"
    return _wrong_marks(problem) or _wrong_segments(problem, [known[mark] for mark in drawn])


def _mark_of(given: Given) -> tuple[str, tuple[str, ...], str]:
    """How a given is marked: kind, points in the order of a scene, text."""
    return given.kind, _ordered(given.kind, given.points), f"{given.value}{'°' if given.kind == 'angle' else ''}"


def _wrong_marks(problem: Problem) -> str:
    """What is wrong with the marks of right angles, of equal segments, and of what is asked."""
    seed, target = problem.seed, problem.target
    for mark in problem.scene.marks:
        if mark.kind == "right":
            size = angle(*(problem.coords[name] for name in mark.points))
            if abs(size - 90) > 1e-5:
                return f"{''.join(mark.points)} is marked as a right angle and measures {size:.6g}°"
    asked = [Mark("unknown", target.points, "x")] if target.kind == "angle" else []
    wanted = {
        dataclasses.replace(mark, points=_ordered(mark.kind, mark.points))
        for mark in (*right_marks(seed, problem.coords), *equal_marks(seed), *asked)
    }
    there = {mark for mark in problem.scene.marks if mark.kind in ("right", "equal", "unknown")}
    names = {"right": "a right angle", "equal": "equal segments", "unknown": "what is asked"}
    for mark in sorted(there ^ wanted, key=repr):
        where = f"the mark of {names[mark.kind]} at {''.join(mark.points)}"
        return f"{where} is missing" if mark in wanted else f"{where} has no reason in seed and question"
    return ""


def _wrong_segments(problem: Problem, marked: list[Given]) -> str:
    """The segments are those of the constructions and those that the question and the marks speak of."""
    wanted = visible(problem.seed)
    for thing in (problem.target, *marked):
        p = thing.points
        wanted |= {edge(*p[:2]), edge(*p[1:])} if thing.kind == "angle" else {edge(*p[:2]), edge(*p[-2:])}
    there = set(problem.scene.segments)
    for a, b in sorted(there ^ wanted):
        return f"the segment {a}{b} is {'missing' if (a, b) in wanted else 'drawn without reason'}"
    return ""


def _execution(problem: Problem) -> str:
    drawn = read_code(problem.code)
    if drawn != problem.scene:
        return "the script draws something else than the scene"
    # Centres without a name widen the page, so that scale and shift are fitted rather than made again.
    names = list(problem.coords)
    if set(names) != set(problem.scene.points):
        return "the scene has other points than the figure"
    a = np.array([problem.coords[name] for name in names])
    b = np.array([problem.scene.points[name] for name in names])
    a0, b0 = a - a.mean(axis=0), b - b.mean(axis=0)
    scale = float((a0 * b0).sum() / (a0 * a0).sum())
    if scale <= 0 or np.abs(scale * a0 - b0).max() > 0.002:
        return "the scene shows the points at other places than the figure"
    rings = [(problem.coords[o], problem.coords[p]) for o, p in circles_of(problem.seed).values()]
    for step in problem.seed.constructions:
        if step.op == "cyclic":
            at = [problem.coords[name] for name in step.out[:3]]
            rings.append((circumcentre(*at), at[0]))
    middle, shown = a.mean(axis=0), b.mean(axis=0)
    wanted = [(*(scale * (np.array(o) - middle) + shown), scale * distance(o, p)) for o, p in rings]

    def among(one: Sequence[float], others: Sequence[Sequence[float]]) -> bool:
        # Wider than for points: where those lie close together, the fit is rough for a large circle.
        return any(np.abs(np.subtract(one, other)).max() <= 0.004 for other in others)

    if not all(among(ring, problem.scene.circles) for ring in wanted):
        return "a circle of the figure is missing in the scene"
    if len(problem.scene.circles) > len(wanted) or not all(among(ring, wanted) for ring in problem.scene.circles):
        return "the scene has a circle that the figure has not"
    return ""


def _visual(problem: Problem) -> str:
    scene = problem.scene
    if any(not 0.01 <= value <= 0.99 for at in scene.points.values() for value in at):
        return "a point lies off the page"
    names = list(scene.points)
    for i, name in enumerate(names):
        for other in names[:i]:
            if distance(scene.points[name], scene.points[other]) * SIZE < NEAREST_PIXELS:
                return f"{name} and {other} are less than {NEAREST_PIXELS} pixels apart"
    placed, lines = texts(scene), strokes(scene)
    small = small_strokes(scene)
    for i, text in enumerate(placed):
        box = text.box
        if min(box) < 0 or max(box) > 1:
            return f"{text.text!r} runs off the page"
        if any(overlap(box, other.box) > 0 for other in placed[:i]):
            return f"{text.text!r} lies on another text"
        spots = np.array(
            [[box[0] + (box[2] - box[0]) * u, box[1] + (box[3] - box[1]) * v] for u in _FIFTHS for v in _FIFTHS]
        )
        if (_from_lines(spots, small) > 1.0 / SIZE).mean() < LABEL_OFF_LINES:
            return f"{text.text!r} lies on a mark"
        if (_from_lines(spots, lines) > 1.2 / SIZE).mean() < LABEL_OFF_LINES:
            return f"{text.text!r} lies on lines"
        if cut_off(scene, text, lines):
            return f"a line runs between {text.text!r} and its angle"
        if astray(scene, text):
            return f"{text.text!r} stands as near to another segment as to its own"
        if not isinstance(text.owner, str) and text.owner.kind in ("angle", "unknown"):
            vertex, radius, _, _ = arc(scene, text.owner)
            if distance(vertex, text.at) > radius + FARTHEST:
                return f"{text.text!r} stands too far from its angle"
        if _from_lines(np.array([text.at]), lines)[0] < 1.5 / SIZE:
            return f"a line runs through the middle of {text.text!r}"
    grey = np.asarray(render(scene, SIZE), dtype=float)
    for a, b in scene.segments:
        p, q = np.array(scene.points[a]), np.array(scene.points[b])
        along = p + np.linspace(0, 1, 60)[:, None] * (q - p)
        rows, columns = ((1 - along[:, 1]) * SIZE).astype(int), (along[:, 0] * SIZE).astype(int)
        near = [
            grey[np.clip(rows + i, 0, SIZE - 1), np.clip(columns + j, 0, SIZE - 1)]
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
        ]
        if (np.min(near, axis=0) < 160).mean() < SEGMENT_DARK:
            return f"the segment {a}{b} cannot be seen"
    return ""


_FIFTHS = (0.1, 0.3, 0.5, 0.7, 0.9)


def _from_lines(spots: np.ndarray, lines: list[tuple[tuple[float, float], tuple[float, float]]]) -> np.ndarray:
    if not lines:
        return np.full(len(spots), np.inf)
    a, b = np.array([line[0] for line in lines]), np.array([line[1] for line in lines])
    d = b - a
    t = ((spots[:, None] - a) * d).sum(axis=2) / np.maximum((d * d).sum(axis=1), 1e-12)
    return np.linalg.norm(a + np.clip(t, 0, 1)[..., None] * d - spots[:, None], axis=2).min(axis=1)


GATES: dict[str, Callable[[Problem], str]] = {
    "coordinate": _coordinate,
    "deduction": _deduction,
    "semantic": _semantic,
    "execution": _execution,
    "visual": _visual,
}


def oracle(problem: Problem, draws: int = 4) -> str:
    """Look for a figure that fulfils the givens and contradicts the answer; uses no deduction.

    Every number of the constructions that the problem does not state is moved a little, the figure is placed again
    with 40 digits and the target measured there. An answer that the givens do not determine shows as a change.

    Returns
    -------
    str
        What contradicts, or the empty text.
    """
    mpmath = need("mpmath", "a second figure")

    rng = random.Random(f"oracle {problem.id}")
    stated = {(given.kind, given.points): given.value for given in problem.seed.givens}
    with mpmath.workdps(40):
        for draw in range(draws):
            steps = []
            for step in problem.seed.constructions:
                keys = [(g.kind, g.points) for g in OPS[step.op].givens(step.out, step.args, step.param)]
                param = []
                for i, value in enumerate(step.param):
                    if i < len(keys) and keys[i] in stated:
                        param.append(mpmath.mpf(stated[keys[i]].numerator) / stated[keys[i]].denominator)
                    elif i < len(keys) and draw:
                        param.append(mpmath.mpf(value) * (1 + mpmath.mpf(rng.uniform(-0.02, 0.02))))
                    else:
                        param.append(value)
                steps.append(Construction(step.op, step.out, step.args, tuple(param)))
            try:
                at = place(steps, mpmath)
            except Rejected:
                continue
            there = _measured_exactly(problem.target, at, mpmath)
            right = mpmath.mpf(problem.answer.rational.numerator) / problem.answer.rational.denominator
            right *= mpmath.sqrt(problem.answer.radicand)
            if abs(there - right) > mpmath.mpf(10) ** -25 * max(1, abs(right)):
                return f"a figure with the same givens measures {mpmath.nstr(there, 8)}, not {problem.answer.text()}"
    return ""


def _measured_exactly(target, at, m):  # type: ignore[no-untyped-def]
    p = [at[name] for name in target.points]

    def length(a, b):  # type: ignore[no-untyped-def]
        return m.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)

    if target.kind == "length":
        return length(*p)
    if target.kind == "ratio":
        return length(p[0], p[1]) / length(p[2], p[3])
    u, v = [(q[0] - p[1][0], q[1] - p[1][1]) for q in (p[0], p[2])]
    return m.degrees(m.atan2(abs(u[0] * v[1] - u[1] * v[0]), u[0] * v[0] + u[1] * v[1]))
