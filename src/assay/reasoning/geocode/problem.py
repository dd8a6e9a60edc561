"""A problem: seed, figure, words, answer, solution and drawing, and its form as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from assay.errors import InputError

from .constructions import OPS, checked, circumcentre
from .deduction import Derivation, Equation
from .figure import Construction, Coordinates, Given, Seed, Target, checked_coordinates, edge
from .grading import Answer
from .scene import Mark, Scene, fact_from_json, fact_json, on_page


@dataclass(frozen=True)
class Step:
    """One step of a worked solution: what it says, and what it rests on."""

    text: str
    because: str


@dataclass(frozen=True)
class Checks:
    """The five checks, each of which can be left out alone; ``detail`` says what was wrong."""

    coordinate: bool
    deduction: bool
    semantic: bool
    execution: bool
    visual: bool
    detail: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all five hold."""
        return self.coordinate and self.deduction and self.semantic and self.execution and self.visual


@dataclass(frozen=True)
class Problem:
    """A geometry problem whose parts are verified to agree.

    Attributes
    ----------
    id
        Its name in a data set.
    seed
        Constructions, facts and the givens.
    coords
        The figure.
    target, answer
        What is asked, and the exact answer.
    text, question
        The words; what the text leaves out is marked in the drawing.
    scene, code
        The drawing, and a script that draws it.
    solution, depth
        Worked steps, and how many facts and givens they rest on.
    report
        What :func:`verify` said; None before.
    """

    id: str
    seed: Seed
    coords: Coordinates
    target: Target
    answer: Answer
    text: str
    question: str
    scene: Scene
    code: str
    solution: tuple[Step, ...]
    depth: int
    report: Checks | None = None

    def to_dict(self) -> dict[str, Any]:
        """The problem as plain data, for JSON."""
        return {
            "id": self.id,
            "text": self.text,
            "question": self.question,
            "answer": self.answer.text(),
            "answer_value": self.answer.value,
            "answer_exact": [self.answer.kind, str(self.answer.rational), self.answer.radicand],
            "depth": self.depth,
            "solution": [[step.text, step.because] for step in self.solution],
            "scene": self.scene.to_json(),
            "code": self.code,
            "constructions": [[c.op, list(c.out), list(c.args), list(c.param)] for c in self.seed.constructions],
            "givens": [[g.kind, list(g.points), str(g.value)] for g in self.seed.givens],
            "facts": [fact_json(fact) for fact in self.seed.facts],
            "target": [self.target.kind, list(self.target.points)],
            "coords": {name: list(at) for name, at in self.coords.items()},
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Problem:
        """Read what :meth:`to_dict` writes; an InputError names the key at fault."""
        key = "row"
        try:
            key = "constructions"
            steps = checked([Construction(str(o), tuple(out), tuple(args), tuple(q)) for o, out, args, q in raw[key]])
            key = "givens"
            givens = tuple(Given(str(kind), tuple(names), Fraction(value)) for kind, names, value in raw[key])
            key = "facts"
            facts = tuple(fact_from_json(fact) for fact in raw[key])
            key = "target"
            target = Target(str(raw[key][0]), tuple(raw[key][1]))
            key = "answer_exact"
            kind, rational, radicand = raw[key]
            answer = Answer(str(kind), Fraction(rational), int(radicand))
            key = "coords"
            coords = checked_coordinates(raw[key])
            key = "scene"
            scene = Scene.from_json(raw[key])
            scene = Scene(scene.points, scene.segments, scene.circles, scene.marks, facts)
            key = "solution"
            solution = tuple(Step(str(says), str(because)) for says, because in raw[key])
            texts = {}
            for key in ("id", "text", "question", "code"):
                if not isinstance(raw[key], str):
                    raise TypeError("must be a text")
                texts[key] = raw[key]
            key = "depth"
            depth = int(raw[key])
        except KeyError:
            raise InputError(f"a problem needs the key {key!r}") from None
        except (TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
            raise InputError(f"{key} of a problem cannot be read: {str(error)[:200]}") from None
        return cls(
            texts["id"], Seed(steps, givens, facts), coords, target, answer, texts["text"], texts["question"], scene,
            texts["code"], solution, depth,
        )  # fmt: skip


def circles_of(seed: Seed) -> dict[tuple[str, str], tuple[str, str]]:
    """The circles that a figure shows, as (centre, point on it); none where the centre has no name."""
    found = {}
    for step in seed.constructions:
        if step.op == "chord":
            found[step.out[0], step.out[1]] = (step.out[0], step.out[1])
        elif step.op in ("on_circle", "second", "tangent"):
            found[step.args[0], step.args[1]] = (step.args[0], step.args[1])
    return found


def visible(seed: Seed) -> set[tuple[str, str]]:
    """The segments that a figure shows."""
    shown = set()
    for step in seed.constructions:
        names = {f"o{i}": n for i, n in enumerate(step.out)} | {f"a{i}": n for i, n in enumerate(step.args)}
        shown |= {edge(names[a], names[b]) for a, b in OPS[step.op].lines if names[a] != names[b]}
    return shown


def right_marks(seed: Seed, coords: Coordinates) -> list[Mark]:
    """A square where two perpendicular lines meet at a named point, also at a foot within a side."""
    lines = [set(fact.points) for fact in seed.facts if fact.kind in ("coll", "mid")]
    marks = []
    for fact in seed.facts:
        if fact.kind != "perp":
            continue
        one, two = fact.points[:2], fact.points[2:]
        shared = set(one) & set(two)
        if len(shared) == 1:
            (vertex,) = shared
            marks.append(Mark("right", (*(set(one) - shared), vertex, *(set(two) - shared))))
            continue
        for vertex in one:
            if {vertex, *two} in lines:
                far = max(two, key=lambda name, vertex=vertex: (math.dist(coords[vertex], coords[name]), name))
                marks.append(Mark("right", (*(set(one) - {vertex}), vertex, far)))
                break
    return marks


def equal_marks(seed: Seed) -> list[Mark]:
    """Ticks on the halves of a segment and on the equal sides of a base figure, up to three kinds."""
    shown, pairs = visible(seed), []
    for fact in seed.facts:
        p = fact.points
        if fact.kind == "mid" and edge(p[1], p[2]) in shown:
            pairs.append(((p[0], p[1]), (p[0], p[2])))
    base = seed.constructions[0]
    if base.op in ("isosceles", "equilateral"):
        a, b, c = base.out
        split = {name for step in seed.constructions[1:] for name in step.out}
        # A point upon a side would leave open which part the tick stands on.
        on_side = any(f.kind in ("coll", "mid") and split & set(f.points) and len({a, b, c} & set(f.points)) > 1
                      for f in seed.facts)  # fmt: skip
        if not on_side:
            pairs.append(((a, b), (a, c)))
            if base.op == "equilateral":
                pairs.append(((a, b), (b, c)))
    counts: dict[frozenset[str], int] = {}
    marks = []
    for p, q in pairs:
        keys = frozenset(p), frozenset(q)
        count = next((counts[key] for key in keys if key in counts), max(counts.values(), default=0) + 1)
        if count > 3:
            break
        counts |= dict.fromkeys(keys, count)
        marks.append(Mark("equal", (*p, *q), str(count)))
    return marks


def scene_of(seed: Seed, coords: Coordinates, target: Target, marked: tuple[Given, ...]) -> Scene:
    """The drawing of a figure, with the givens that are marked in it, right angles, and x at an angle asked for."""
    circles = circles_of(seed)
    hidden = [step.out for step in seed.constructions if step.op == "cyclic"]
    rings = dict(zip(map(str, circles), circles.values(), strict=True))
    extra = {}
    for i, names in enumerate(hidden):
        extra[f"·{i}"] = circumcentre(*(coords[name] for name in names[:3]))
        rings[f"·{i}"] = (f"·{i}", names[0])
    page, _ = on_page({**coords, **extra}, rings)
    drawn = []
    for o, a in rings.values():
        (x, y), (u, v) = page[o], page[a]
        drawn.append((x, y, ((u - x) ** 2 + (v - y) ** 2) ** 0.5))
    points = {name: page[name] for name in coords}
    marks = [
        Mark(given.kind, given.points, f"{given.value}°" if given.kind == "angle" else str(given.value))
        for given in marked
    ]
    marks += right_marks(seed, coords)
    marks += equal_marks(seed)
    if target.kind == "angle":
        marks.append(Mark("unknown", target.points, "x"))
    shown = visible(seed)
    # What is asked and what is marked has its lines, also where no construction draws them.
    for thing in (target, *marked):
        p = thing.points
        shown |= {edge(*p[:2]), edge(*p[1:])} if thing.kind == "angle" else {edge(*p[:2]), edge(*p[-2:])}
    return Scene(points, tuple(shown), tuple(drawn), tuple(marks), seed.facts)


def solution_of(derivation: Derivation, seed: Seed, target: Target, answer: Answer) -> tuple[Step, ...]:
    """Worked steps: facts in the order of construction, theorems, then the sum that gives the answer.

    In the sum for an angle each given counts its degrees, a right angle 90°, another fact 0°; the rest comes from
    half turns, since a line has its direction but for 180°.
    """
    order = {fact: i for i, fact in enumerate((*seed.facts, *seed.givens))}
    steps = []
    for item in sorted(derivation.support, key=lambda item: order.get(item, 0)):
        steps.append(Step(f"{item.text()}.", "given" if isinstance(item, Given) else "by construction"))
    steps += [Step(f"{rule[0].upper()}{rule[1:]}.", "theorem") for rule in derivation.rules]
    parts = []
    turns = answer.rational - sum(weight * _degrees(equation) for weight, equation in derivation.terms)
    if target.kind == "angle" and turns:
        parts.append(f"{'' if turns > 0 else '− '}{abs(turns)}°")
    for weight, equation in derivation.terms:
        what = " and ".join(fact.text() for fact in equation.facts) or equation.rule
        sign = "" if not parts and weight > 0 else ("+ " if weight > 0 else "− ")
        parts.append(f"{sign}{'' if abs(weight) == 1 else f'{abs(weight)} × '}({what})")
    over = "directions of the lines" if target.kind == "angle" else "logarithms of the lengths"
    steps.append(Step(f"{target.text()} = {answer.text()}.", f"sum over the {over}: " + " ".join(parts)))
    return tuple(steps)


def _degrees(equation: Equation) -> Fraction:
    """The angle that an equation between directions states, but for half turns."""
    first = equation.facts[0] if equation.facts else None
    if isinstance(first, Given):
        return first.value
    return Fraction(90 if first is not None and first.kind == "perp" else 0)
