"""Faults put into sound problems on purpose, to see which checks notice."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable
from fractions import Fraction

from .constructions import OPS
from .figure import Construction, Coordinates, Fact, Given, Rejected, Seed
from .measure import error
from .problem import Problem, scene_of
from .scene import Mark, Scene
from .wording import problem_text, read_problem


def _scene(problem: Problem, points: object = None, marks: object = None) -> Problem:
    old = problem.scene
    new = Scene(points or old.points, old.segments, old.circles, old.marks if marks is None else marks, old.facts)  # type: ignore[arg-type]
    return dataclasses.replace(problem, scene=new, code=new.to_matplotlib())


def wrong_given(problem: Problem, rng: random.Random) -> Problem | None:
    """A given says another number, in seed, text and drawing alike."""
    if not problem.seed.givens:
        return None
    old = rng.choice(problem.seed.givens)
    if old.kind == "angle" and old.value >= 179:
        return None
    new = dataclasses.replace(old, value=old.value + 1)
    givens = tuple(new if given == old else given for given in problem.seed.givens)
    _, said, marked = read_problem(problem.text)
    text = problem_text(problem.seed.constructions, [new if g == old else g for g in said], marked)
    mine = str(old.value) + ("°" if old.kind == "angle" else "")
    marks = tuple(
        dataclasses.replace(m, text=m.text.replace(mine, mine.replace(str(old.value), str(new.value))))
        if m.kind == old.kind and m.points in (old.points, old.points[::-1]) and m.text == mine else m
        for m in problem.scene.marks
    )  # fmt: skip
    changed = dataclasses.replace(problem, seed=dataclasses.replace(problem.seed, givens=givens), text=text)
    return _scene(changed, marks=marks)


def false_fact(problem: Problem, rng: random.Random) -> Problem | None:
    """The seed claims equal distances that are not equal."""
    for _ in range(200):
        names = rng.sample(problem.seed.points, 3)
        if error(Fact("cong", tuple(names)), problem.coords) >= 1e-3:
            break
    else:
        return None  # in an equilateral triangle alone all distances are equal
    facts = (*problem.seed.facts, Fact("cong", tuple(names)))
    return dataclasses.replace(problem, seed=Seed(problem.seed.constructions, problem.seed.givens, facts))


def slid_point(problem: Problem, rng: random.Random) -> Problem | None:
    """A midpoint lies a little beside the middle, as a placement by iteration leaves it that stops too early.

    All that rests on the point follows, in the figure and in the drawing, and directions stay what they should be. A
    problem without a midpoint gets one upon one of its segments, as a surplus point that text and drawing agree on.
    """
    if not any(step.op in ("midpoint", "centroid") for step in problem.seed.constructions):
        problem = _with_midpoint(problem, rng)
    steps = problem.seed.constructions
    at, (m, a, b) = rng.choice([
        (i, fact.points)
        for i, step in enumerate(steps)
        for fact in OPS[step.op].facts(step.out, step.args)
        if fact.kind == "mid" and fact.points[0] in step.out
    ])  # fmt: skip
    share = 0.5 + rng.choice((-1, 1)) * rng.uniform(0.01, 0.05)
    coords = dict(problem.coords)
    try:
        for i, step in enumerate(steps[at:], at):
            if i > at:
                made = OPS[step.op].place(math, [coords[name] for name in step.args], step.param)
                coords |= dict(zip(step.out, made, strict=True))
            else:
                (x, y), (u, v) = coords[a], coords[b]
                coords[m] = (x + share * (u - x), y + share * (v - y))
    except (Rejected, ZeroDivisionError):
        return None
    return _figure(problem, coords)


def _with_midpoint(problem: Problem, rng: random.Random) -> Problem:
    seed = problem.seed
    a, b = rng.choice(problem.scene.segments)
    m = next(letter for letter in "ABCDEFGHIJKLMNPQRSTUVWXYZ" if letter not in seed.points)
    step = Construction("midpoint", (m,), (a, b))
    facts = (*seed.facts, *OPS["midpoint"].facts(step.out, step.args))
    steps = (*seed.constructions, step)
    _, said, marked = read_problem(problem.text)
    (x, y), (u, v) = problem.coords[a], problem.coords[b]
    return dataclasses.replace(
        problem, seed=Seed(steps, seed.givens, facts), text=problem_text(steps, said, marked),
        coords={**problem.coords, m: ((x + u) / 2, (y + v) / 2)},
    )  # fmt: skip


def _figure(problem: Problem, coords: Coordinates) -> Problem:
    """The problem with another figure, drawn as the old one is."""
    drawn = {(m.kind, m.points, m.text.removesuffix("°")) for m in problem.scene.marks}

    def marked(given: Given) -> bool:
        return any((given.kind, p, str(given.value)) in drawn for p in (given.points, given.points[::-1]))

    scene = scene_of(problem.seed, coords, problem.target, tuple(g for g in problem.seed.givens if marked(g)))
    return dataclasses.replace(problem, coords=coords, scene=scene, code=scene.to_matplotlib())


def wrong_answer(problem: Problem, rng: random.Random) -> Problem:
    """The answer is a little off."""
    off = Fraction(rng.choice((1, 2, 5)), rng.choice((1, 2)))
    return dataclasses.replace(
        problem, answer=dataclasses.replace(problem.answer, rational=problem.answer.rational + off)
    )


def changed_number(problem: Problem, rng: random.Random) -> Problem | None:
    """The text says another number than the seed."""
    numbers = list(re.finditer(r"(?<== )\d+", problem.text))
    if not numbers:
        return None
    at = rng.choice(numbers)
    return dataclasses.replace(
        problem, text=f"{problem.text[: at.start()]}{int(at.group()) + 1}{problem.text[at.end() :]}"
    )


def lost_mark(problem: Problem, rng: random.Random) -> Problem | None:
    """A given that stands in the drawing alone is missing there."""
    marks = [mark for mark in problem.scene.marks if mark.kind in ("angle", "length")]
    if not marks:
        return None
    gone: Mark = rng.choice(marks)
    return _scene(problem, marks=tuple(mark for mark in problem.scene.marks if mark != gone))


def swapped_labels(problem: Problem, rng: random.Random) -> Problem:
    """Two points of the drawing have each other's names."""
    a, b = rng.sample(list(problem.scene.points), 2)
    points = dict(problem.scene.points)
    points[a], points[b] = points[b], points[a]
    return _scene(problem, points)


def changed_code(problem: Problem, rng: random.Random) -> Problem | None:
    """The script draws one point elsewhere."""
    lines = [line for line in problem.code.splitlines() if 'gid="point ' in line]
    if not lines:
        return None  # a script of another hand
    line = rng.choice(lines)
    return dataclasses.replace(problem, code=problem.code.replace(line, line.replace("([0.", "([0.9", 1)))


def illegible(problem: Problem, rng: random.Random) -> Problem:
    """The drawing is so small that letters and points run together."""
    old = problem.scene
    points = {name: (0.5 + 0.05 * x, 0.5 + 0.05 * y) for name, (x, y) in old.points.items()}
    circles = tuple((0.5 + 0.05 * x, 0.5 + 0.05 * y, 0.05 * r) for x, y, r in old.circles)
    new = Scene(points, old.segments, circles, old.marks, old.facts)
    return dataclasses.replace(problem, scene=new, code=new.to_matplotlib())


FAULTS: dict[str, Callable[[Problem, random.Random], Problem | None]] = {
    "wrong given": wrong_given,
    "false fact": false_fact,
    "slid point": slid_point,
    "wrong answer": wrong_answer,
    "changed number": changed_number,
    "lost mark": lost_mark,
    "swapped labels": swapped_labels,
    "changed code": changed_code,
    "illegible": illegible,
}
