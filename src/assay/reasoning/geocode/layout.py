"""Where letters and marks stand on the page, so that nothing lies on anything else."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from .figure import Point
from .measure import distance
from .scene import Mark, Scene

CHAR = (0.030, 0.042)
"""Width and height of a character on the page, at the text size that all drawings use."""

RADIUS = 0.075
"""Of the arc of an angle; grows for slim angles so that the text fits between the sides."""


@dataclass(frozen=True)
class Text:
    """A text on the page: what it says, its centre, and what it belongs to."""

    text: str
    at: Point
    owner: str | Mark

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, bottom, right, top."""
        w, h = CHAR[0] * len(self.text), CHAR[1]
        return self.at[0] - w / 2, self.at[1] - h / 2, self.at[0] + w / 2, self.at[1] + h / 2


def overlap(p: tuple[float, float, float, float], q: tuple[float, float, float, float]) -> float:
    """The area that two boxes share."""
    w, h = min(p[2], q[2]) - max(p[0], q[0]), min(p[3], q[3]) - max(p[1], q[1])
    return w * h if w > 0 and h > 0 else 0.0


def strokes(scene: Scene) -> list[tuple[Point, Point]]:
    """Everything drawn as a line: segments, and circles as short chords."""
    lines = [(scene.points[a], scene.points[b]) for a, b in scene.segments]
    for x, y, r in scene.circles:
        ring = [(x + r * math.cos(t * math.pi / 24), y + r * math.sin(t * math.pi / 24)) for t in range(49)]
        lines += list(itertools.pairwise(ring))
    return lines


def inside(box: tuple[float, float, float, float], line: tuple[Point, Point]) -> float:
    """The length of a line inside a box."""
    (x0, y0), (x1, y1) = line
    low, high = 0.0, 1.0
    for start, delta, least, most in ((x0, x1 - x0, box[0], box[2]), (y0, y1 - y0, box[1], box[3])):
        if abs(delta) < 1e-12:
            if not least <= start <= most:
                return 0.0
            continue
        t0, t1 = sorted(((least - start) / delta, (most - start) / delta))
        low, high = max(low, t0), min(high, t1)
    return max(0.0, high - low) * distance(*line)


def arc(scene: Scene, mark: Mark) -> tuple[Point, float, float, float]:
    """Vertex, radius, start and turn (radians, at most π) of the arc of an angle mark."""
    a, b, c = (scene.points[name] for name in mark.points)
    start, end = math.atan2(a[1] - b[1], a[0] - b[0]), math.atan2(c[1] - b[1], c[0] - b[0])
    turn = (end - start + math.pi) % (2 * math.pi) - math.pi
    return b, min(RADIUS, 0.45 * min(distance(a, b), distance(c, b))), start, turn


def texts(scene: Scene) -> list[Text]:
    """Every text with its place: marks first, whose places are bound, then the letters of points."""
    return list(_texts(scene.to_json()))


@lru_cache(maxsize=64)
def _texts(code: str) -> tuple[Text, ...]:
    scene = Scene.from_json(code)
    lines: list[tuple[Point, Point]] = strokes(scene)
    placed: list[Text] = []

    def cost(text: Text) -> float:
        box = text.box
        out = max(0, -box[0]) + max(0, -box[1]) + max(0, box[2] - 1) + max(0, box[3] - 1)
        hit = sum(overlap(box, other.box) for other in placed) / (CHAR[0] * CHAR[1])
        dots = sum(
            box[0] - 0.008 < x < box[2] + 0.008 and box[1] - 0.008 < y < box[3] + 0.008
            for x, y in scene.points.values()
        )
        return sum(inside(box, line) for line in lines) / CHAR[1] + 8 * hit + 50 * out + 4 * dots

    for mark in scene.marks:
        if not mark.text:
            continue
        options = []
        if mark.kind == "length":
            a, b = (scene.points[name] for name in mark.points)
            length = distance(a, b) or 1.0
            normal = (-(b[1] - a[1]) / length, (b[0] - a[0]) / length)
            for share in (0.5, 0.4, 0.6, 0.3, 0.7):
                for side in (1, -1):
                    gap = 0.5 * (CHAR[1] * abs(normal[1]) + CHAR[0] * len(mark.text) * abs(normal[0])) + 0.012
                    x, y = a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])
                    options.append(Text(mark.text, (x + side * gap * normal[0], y + side * gap * normal[1]), mark))
        else:
            vertex, radius, start, turn = arc(scene, mark)
            for more in (0.04, 0.055, 0.075, 0.1, 0.13, 0.17):
                for share in (0.5, 0.4, 0.6):
                    t = start + share * turn
                    r = radius + more
                    options.append(Text(mark.text, (vertex[0] + r * math.cos(t), vertex[1] + r * math.sin(t)), mark))
        costs = [cost(text) + 0.02 * i for i, text in enumerate(options)]
        placed.append(options[costs.index(min(costs))])
    for name, (x, y) in scene.points.items():
        options = [
            Text(name, (x + r * math.cos(k * math.pi / 8), y + r * math.sin(k * math.pi / 8)), name)
            for r in (0.036, 0.048, 0.062)
            for k in range(16)
        ]
        costs = [cost(text) + 0.01 * (i // 16) for i, text in enumerate(options)]
        placed.append(options[costs.index(min(costs))])
    return tuple(placed)
