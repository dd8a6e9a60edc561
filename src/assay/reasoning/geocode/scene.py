"""The diagram as data: points on a page of 1 × 1, what is drawn, and what is marked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from assay.errors import InputError

from .figure import Fact, Point

MARKS = {"angle": 3, "right": 3, "length": 2, "equal": 4, "unknown": 3}
"""How many points each kind of mark names; ``unknown`` writes x in an angle, ``equal`` ticks two segments as
often as its text says."""

MOST = 64
"""More points, segments, circles or marks than this are refused."""


class ParseError(InputError):
    """Drawing code that cannot be read as a drawing; nothing of it was executed."""


@dataclass(frozen=True)
class Mark:
    """A mark in the drawing: its kind, the points it belongs to, and its text ("50°", "7")."""

    kind: str
    points: tuple[str, ...]
    text: str = ""


@dataclass(frozen=True)
class Scene:
    """A drawing.

    Attributes
    ----------
    points
        Name to (x, y) on the page, 0 to 1, y upwards, multiples of 0.001.
    segments
        Pairs of names, each pair and the list in alphabetical order.
    circles
        (x, y, radius) on the page.
    marks
        What is written or marked, in a fixed order.
    facts
        What holds in the figure; not drawn, and no part of equality or of the code.
    """

    points: Mapping[str, Point]
    segments: tuple[tuple[str, str], ...] = ()
    circles: tuple[tuple[float, float, float], ...] = ()
    marks: tuple[Mark, ...] = ()
    facts: tuple[Fact, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        points = {}
        if not isinstance(self.points, Mapping):
            raise ParseError(f"points must say the place of each name, got {type(self.points).__name__}")
        for what in ("segments", "circles", "marks", "facts"):
            if not isinstance(getattr(self, what), tuple | list | set | frozenset):
                raise ParseError(f"{what} must be a list, got {type(getattr(self, what)).__name__}")
        for name, at in self.points.items():
            if not isinstance(name, str) or not (name.isalnum() and len(name) <= 3):
                raise ParseError(f"points: a name is one to three letters or digits, got {name!r}")
            points[name] = _numbers(f"points.{name}", at, 2)
        segments = set()
        for i, pair in enumerate(self.segments):
            names = _names(f"segments[{i}]", pair, 2, points)
            segments.add((min(names), max(names)))
        circles = {_numbers(f"circles[{i}]", circle, 3) for i, circle in enumerate(self.circles)}
        for circle in circles:
            if circle[2] <= 0:
                raise ParseError(f"circles: a radius must be positive, got {circle[2]}")
        marks = set()
        for i, mark in enumerate(self.marks):
            if not isinstance(mark, Mark):
                raise ParseError(f"marks[{i}] must be a Mark, got {type(mark).__name__}")
            if not isinstance(mark.kind, str) or mark.kind not in MARKS:
                raise ParseError(f"marks[{i}].kind must be one of {', '.join(MARKS)}, got {mark.kind!r}")
            if not isinstance(mark.text, str) or len(mark.text) > 12:
                raise ParseError(f"marks[{i}].text must be a text of at most 12 characters, got {mark.text!r}")
            if mark.kind == "equal" and mark.text not in ("", "1", "2", "3"):
                raise ParseError(f"marks[{i}].text must be '', '1', '2' or '3' ticks, got {mark.text!r}")
            names = _names(f"marks[{i}].points", mark.points, MARKS[mark.kind], points)
            marks.add(Mark(mark.kind, _ordered(mark.kind, names), mark.text))
        for what, things in (("points", points), ("segments", segments), ("circles", circles), ("marks", marks)):
            if len(things) > MOST:
                raise ParseError(f"{what}: at most {MOST} are read, got {len(things)}")
        # From left to right, then from below; so that one drawing has one code.
        order = sorted(points, key=lambda name: (*points[name], name))
        object.__setattr__(self, "points", {name: points[name] for name in order})
        object.__setattr__(self, "segments", tuple(sorted(segments)))
        object.__setattr__(self, "circles", tuple(sorted(circles)))
        object.__setattr__(self, "marks", tuple(sorted(marks, key=lambda m: (m.kind, m.points, m.text))))

    def to_json(self) -> str:
        """The canonical code: one line of JSON with a fixed order of keys, points from left to right."""
        return json.dumps(
            {
                "points": {name: list(at) for name, at in self.points.items()},
                "segments": [list(pair) for pair in self.segments],
                "circles": [list(circle) for circle in self.circles],
                "marks": [[mark.kind, list(mark.points), mark.text] for mark in self.marks],
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> Scene:
        """Read what :meth:`to_json` writes.

        Raises
        ------
        ParseError
            For what is no such drawing, with the place in it.
        """
        if not isinstance(text, str):
            raise ParseError(f"code must be a text, got {type(text).__name__}")
        try:
            raw = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the code is no JSON: {str(error)[:120]}") from None
        if not isinstance(raw, dict) or not isinstance(raw.get("points"), dict):
            raise ParseError("the code must be an object with points, segments, circles and marks")
        unknown = sorted(set(raw) - {"points", "segments", "circles", "marks"})
        if unknown:
            raise ParseError(f"the code has an unknown key {unknown[0]!r}")
        lists = {}
        for key in ("segments", "circles", "marks"):
            value = raw.get(key, [])
            if not isinstance(value, list):
                raise ParseError(f"{key} must be a list, got {type(value).__name__}")
            lists[key] = value
        marks = []
        for i, mark in enumerate(lists["marks"]):
            if (
                not isinstance(mark, list)
                or len(mark) != 3
                or not isinstance(mark[0], str)
                or not isinstance(mark[1], list)
            ):
                raise ParseError(f"marks[{i}] must be [kind, [names], text], got {mark!r:.80}")
            marks.append(Mark(mark[0], tuple(mark[1]), mark[2]))
        return cls(raw["points"], tuple(lists["segments"]), tuple(lists["circles"]), tuple(marks))

    def to_matplotlib(self) -> str:
        """A Python script that draws the scene with matplotlib."""
        from .write import to_matplotlib

        return to_matplotlib(self)

    def to_svg(self) -> str:
        """The scene as SVG."""
        from .write import to_svg

        return to_svg(self)

    def to_tikz(self) -> str:
        """The scene as a TikZ picture."""
        from .write import to_tikz

        return to_tikz(self)


def _no_constant(name: str) -> Any:
    raise ParseError(f"numbers must be finite, got {name}")


def _numbers(where: str, values: Any, size: int) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple) or len(values) != size:
        raise ParseError(f"{where} must be {size} numbers, got {values!r:.80}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 100:
            raise ParseError(f"{where} must be finite numbers on the page, got {value!r:.40}")
    return tuple(round(float(value), 3) + 0.0 for value in values)


def _names(where: str, names: Any, size: int, points: Mapping[str, Any]) -> tuple[str, ...]:
    if not isinstance(names, list | tuple) or len(names) != size:
        raise ParseError(f"{where} must be {size} names, got {names!r:.80}")
    for name in names:
        if not isinstance(name, str) or name not in points:
            raise ParseError(f"{where}: there is no point {name!r:.40}")
    pairs = [names[:2], names[2:]] if size == 4 else [names]
    if any(len(set(pair)) < len(pair) for pair in pairs):
        raise ParseError(f"{where}: names must differ, got {names!r}")
    return tuple(names)


def _ordered(kind: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """One order for one mark: the arms of an angle, the ends of a segment, the two segments of a tick."""
    if kind in ("angle", "right", "unknown"):
        return names if names[0] < names[2] else names[::-1]
    if kind == "length":
        return (min(names), max(names))
    pairs = sorted((min(pair), max(pair)) for pair in (names[:2], names[2:]))
    return (*pairs[0], *pairs[1])


def on_page(
    coords: Mapping[str, Point], circles: Mapping[str, tuple[str, str]] | None = None, margin: float = 0.12
) -> Any:
    """Scale and centre a figure on the page.

    Returns
    -------
    tuple
        Page coordinates by name, and the scale: page lengths are lengths of the figure times this number.
    """
    xs, ys = [p[0] for p in coords.values()], [p[1] for p in coords.values()]
    for o, a in (circles or {}).values():
        r = math.dist(coords[o], coords[a])
        xs += [coords[o][0] - r, coords[o][0] + r]
        ys += [coords[o][1] - r, coords[o][1] + r]
    scale = (1 - 2 * margin) / max(max(xs) - min(xs), max(ys) - min(ys))
    x0, y0 = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    page = {name: (0.5 + (x - x0) * scale, 0.5 + (y - y0) * scale) for name, (x, y) in coords.items()}
    return page, scale


def fact_json(fact: Fact) -> list[Any]:
    """A fact as plain data."""
    return [fact.kind, list(fact.points), None if fact.value is None else str(fact.value)]


def fact_from_json(raw: Any) -> Fact:
    """The fact of :func:`fact_json`, or an InputError."""
    try:
        kind, points, value = raw
        return Fact(str(kind), tuple(points), None if value is None else Fraction(value))
    except (TypeError, ValueError) as error:
        raise InputError(f"a fact is [kind, [names], value], got {raw!r:.80}: {error}") from None
