"""Faults put into sound problems on purpose, to see which checks notice."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable
from fractions import Fraction

from .figure import Fact, Seed
from .measure import error
from .problem import Problem
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
    new = dataclasses.replace(old, value=old.value + 1)
    givens = tuple(new if given == old else given for given in problem.seed.givens)
    _, said, marked = read_problem(problem.text)
    text = problem_text(problem.seed.constructions, [new if g == old else g for g in said], marked)
    mine = str(old.value) + ("°" if old.kind == "angle" else "")
    marks = tuple(
        dataclasses.replace(m, text=m.text.replace(mine, mine.replace(str(old.value), str(new.value))))
        if m.kind == old.kind and set(m.points) == set(old.points) and m.text == mine else m
        for m in problem.scene.marks
    )  # fmt: skip
    changed = dataclasses.replace(problem, seed=dataclasses.replace(problem.seed, givens=givens), text=text)
    return _scene(changed, marks=marks)


def false_fact(problem: Problem, rng: random.Random) -> Problem:
    """The seed claims equal distances that are not equal."""
    names = rng.sample(problem.seed.points, 3)
    while error(Fact("cong", tuple(names)), problem.coords) < 1e-3:
        names = rng.sample(problem.seed.points, 3)
    facts = (*problem.seed.facts, Fact("cong", tuple(names)))
    return dataclasses.replace(problem, seed=Seed(problem.seed.constructions, problem.seed.givens, facts))


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


def changed_code(problem: Problem, rng: random.Random) -> Problem:
    """The script draws one point elsewhere."""
    line = rng.choice([line for line in problem.code.splitlines() if 'gid="point ' in line])
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
    "wrong answer": wrong_answer,
    "changed number": changed_number,
    "lost mark": lost_mark,
    "swapped labels": swapped_labels,
    "changed code": changed_code,
    "illegible": illegible,
}
