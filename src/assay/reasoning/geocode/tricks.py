"""Answers that try to earn a reward without work, beside honest work with faults; and a reward that can be gamed."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Sequence

from .grading import code_in
from .problem import Problem
from .read import read_code
from .scene import Mark, ParseError, Scene

HONEST = "honest work"


def attempts(problem: Problem, rng: random.Random) -> dict[str, str]:
    """Completions by name: honest work first, then tricks.

    The honest one has every point a little off, one mark missing where there are several, and a wrong answer. The
    tricks may know as much of the points, and nothing else.
    """
    scene = problem.scene
    points = {
        name: (round(x + rng.uniform(-0.01, 0.01), 3), round(y + rng.uniform(-0.01, 0.01), 3))
        for name, (x, y) in scene.points.items()
    }
    marks = list(scene.marks)
    if len(marks) > 1:
        marks.pop(rng.randrange(len(marks)))
    names, numbers = list(points), [str(given.value) for given in problem.seed.givens]
    pairs = tuple(itertools.combinations(names, 2))[:64]
    angles = [
        Mark("angle", (a, b, c), f"{n}°")
        for b in names
        for a, c in itertools.combinations([name for name in names if name != b], 2)
        for n in numbers
    ]
    grid = {f"P{i}": (round(0.1 + 0.8 * (i % 8) / 7, 3), round(0.1 + 0.8 * (i // 8) / 7, 3)) for i in range(64)}
    bare = Scene(points)
    return {
        HONEST: _said(Scene(points, scene.segments, scene.circles, tuple(marks)), f"{problem.answer.value * 1.1:.3f}"),
        "the text again": f"{problem.text} {problem.question}",
        "a number of the text": _said(None, rng.choice(numbers) if numbers else "1"),
        "every number of the text": " ".join(_said(None, n) for n in numbers),
        "nothing": "",
        "an empty drawing": _said(Scene({}), "0"),
        "points alone": _said(bare, "0"),
        "every segment": _said(dataclasses.replace(bare, segments=pairs), "0"),
        "every segment and mark": _said(dataclasses.replace(bare, segments=pairs, marks=tuple(angles[:64])), "0"),
        "points everywhere": _said(Scene(grid, tuple(itertools.combinations(grid, 2))[:64]), "0"),
        "many answers": "\n".join(_said(bare, str(n)) for n in range(1, 180)),
    }


def _said(scene: Scene | None, answer: str) -> str:
    code = "" if scene is None else f"```json\n{scene.to_json()}\n```\n"
    return f"{code}\\boxed{{{answer}}}"


def generous_reward(completions: Sequence[str], answer: str, gold: Scene) -> list[float]:
    """A plain reward: is the answer in the text, and how much of the drawing is in the code? It can be gamed."""
    rewards = []
    for completion in completions:
        right = answer.rstrip("°") in re.findall(r"[\d./√]+", completion)
        try:
            mine = read_code(code_in(completion))
        except ParseError:
            mine = Scene({})
        drawn = {(kind, key) for kind, keys in (("s", mine.segments), ("m", mine.marks)) for key in keys}
        wanted = {(kind, key) for kind, keys in (("s", gold.segments), ("m", gold.marks)) for key in keys}
        rewards.append(0.6 * right + 0.4 * len(drawn & wanted) / max(1, len(wanted)))
    return rewards
