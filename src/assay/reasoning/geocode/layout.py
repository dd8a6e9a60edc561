"""Where letters and marks stand on the page, so that nothing lies on anything else."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .figure import Point
from .measure import distance
from .scene import Mark, Scene

CHAR = (0.030, 0.042)
"""Width and height of a character on the page, at the text size that all drawings use."""

RADIUS = 0.075
"""Of the arc of an angle; grows for slim angles so that the text fits between the sides."""

CLEARLY = 1.4
"""How many times farther than its own segment every other one is from the text of a length."""


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


def inside(boxes: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """The length of all lines (k × 2 × 2) inside each box (m × 4)."""
    if not len(lines):
        return np.zeros(len(boxes))
    start, along = lines[:, 0], lines[:, 1] - lines[:, 0]
    step = np.where(np.abs(along) < 1e-12, 1e-12, along)
    near, far = (boxes[:, None, :2] - start) / step, (boxes[:, None, 2:] - start) / step
    low = np.maximum(np.minimum(near, far).max(axis=2), 0.0)
    high = np.minimum(np.maximum(near, far).min(axis=2), 1.0)
    return (np.maximum(high - low, 0.0) * np.hypot(along[:, 0], along[:, 1])).sum(axis=1)


def arc(scene: Scene, mark: Mark) -> tuple[Point, float, float, float]:
    """Vertex, radius, start and turn (radians, at most π) of the arc of an angle mark."""
    a, b, c = (scene.points[name] for name in mark.points)
    start, end = math.atan2(a[1] - b[1], a[0] - b[0]), math.atan2(c[1] - b[1], c[0] - b[0])
    turn = (end - start + math.pi) % (2 * math.pi) - math.pi
    return b, min(RADIUS, 0.45 * min(distance(a, b), distance(c, b))), start, turn


def ticks(scene: Scene, mark: Mark) -> list[tuple[Point, Point]]:
    """The short strokes across two equal segments."""
    strokes, count = [], int(mark.text or 1)
    for a, b in (mark.points[:2], mark.points[2:]):
        (x0, y0), (x1, y1) = scene.points[a], scene.points[b]
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        u = ((x1 - x0) / length, (y1 - y0) / length)
        for k in range(count):
            along = 0.009 * (k - (count - 1) / 2)
            x, y = (x0 + x1) / 2 + along * u[0], (y0 + y1) / 2 + along * u[1]
            strokes.append(((x - 0.014 * u[1], y + 0.014 * u[0]), (x + 0.014 * u[1], y - 0.014 * u[0])))
    return strokes


def strokes_of(scene: Scene, mark: Mark) -> list[tuple[list[float], list[float]]]:
    """The lines of a mark, as lists of x and y."""
    if mark.kind in ("angle", "unknown"):
        (x, y), r, start, turn = arc(scene, mark)
        steps = [start + turn * i / 12 for i in range(13)]
        return [([x + r * math.cos(t) for t in steps], [y + r * math.sin(t) for t in steps])]
    if mark.kind == "right":
        (x, y), r, start, turn = arc(scene, mark)
        u, v = (math.cos(start), math.sin(start)), (math.cos(start + turn), math.sin(start + turn))
        r *= 0.45
        return [
            ([x + r * u[0], x + r * (u[0] + v[0]), x + r * v[0]], [y + r * u[1], y + r * (u[1] + v[1]), y + r * v[1]])
        ]
    if mark.kind == "equal":
        return [([p[0] for p in tick], [p[1] for p in tick]) for tick in ticks(scene, mark)]
    return []


def small_strokes(scene: Scene) -> list[tuple[Point, Point]]:
    """The lines of all marks, piece by piece."""
    found: list[tuple[Point, Point]] = []
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            found += itertools.pairwise(zip(xs, ys, strict=True))
    return found


def cut_off(scene: Scene, text: Text, lines: list[tuple[Point, Point]]) -> bool:
    """Whether a line runs between an angle's arc and its text, so that the text seems to belong elsewhere."""
    if isinstance(text.owner, str) or text.owner.kind == "length":
        return False
    vertex, radius, _, _ = arc(scene, text.owner)
    far = distance(vertex, text.at)
    start = tuple(v + (t - v) * min(0.9, radius / far) for v, t in zip(vertex, text.at, strict=True))
    return any(_cross(start, text.at, *line) for line in lines)


def astray(scene: Scene, text: Text) -> bool:
    """Whether the text of a length stands so near another segment that it seems to be that one's."""
    if isinstance(text.owner, str) or text.owner.kind != "length":
        return False
    own = frozenset(text.owner.points)
    ends = {frozenset(e): tuple(scene.points[name] for name in e) for e in scene.segments if frozenset(e) != own}
    near = CLEARLY * from_line(text.at, *(scene.points[name] for name in text.owner.points))
    return any(from_line(text.at, *line) < near for line in ends.values())


def from_line(at: Point, a: Point, b: Point) -> float:
    """The distance of a point from a segment."""
    (x, y), (u, v) = (at[0] - a[0], at[1] - a[1]), (b[0] - a[0], b[1] - a[1])
    share = min(1.0, max(0.0, (x * u + y * v) / max(u * u + v * v, 1e-12)))
    return math.hypot(x - share * u, y - share * v)


def _cross(a: Point, b: Point, c: Point, d: Point) -> bool:
    def side(p: Point, q: Point, r: Point) -> float:
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def texts(scene: Scene) -> list[Text]:
    """Every text with its place: marks first, whose places are bound, then the letters of points."""
    return list(_texts(scene.to_json()))


@lru_cache(maxsize=64)
def _texts(code: str) -> tuple[Text, ...]:
    scene = Scene.from_json(code)
    lines: list[tuple[Point, Point]] = strokes(scene)
    small = small_strokes(scene)
    placed: list[Text] = []

    all_lines = np.array([*lines, *small], dtype=float).reshape(-1, 2, 2)
    dots = np.array(list(scene.points.values()), dtype=float).reshape(-1, 2)

    def costs_of(options: list[Text]) -> np.ndarray:
        boxes = np.array([text.box for text in options])
        out = np.maximum(0, -boxes[:, :2]).sum(axis=1) + np.maximum(0, boxes[:, 2:] - 1).sum(axis=1)
        hit = np.zeros(len(options))
        if placed:
            others = np.array([text.box for text in placed])
            shared = np.minimum(boxes[:, None, 2:], others[:, 2:]) - np.maximum(boxes[:, None, :2], others[:, :2])
            hit = np.maximum(shared, 0).prod(axis=2).sum(axis=1) / (CHAR[0] * CHAR[1])
        upon = ((dots > boxes[:, None, :2] - 0.008) & (dots < boxes[:, None, 2:] + 0.008)).all(axis=2).sum(axis=1)
        return inside(boxes, all_lines) / CHAR[1] + 8 * hit + 50 * out + 4 * upon

    for mark in scene.marks:
        if not mark.text or mark.kind == "equal":
            continue
        options = []
        if mark.kind == "length":
            a, b = (scene.points[name] for name in mark.points)
            length = distance(a, b) or 1.0
            normal = (-(b[1] - a[1]) / length, (b[0] - a[0]) / length)
            for share in (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8):
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
        costs = costs_of(options) + 0.02 * np.arange(len(options))
        costs += [5.0 * (cut_off(scene, text, lines) or astray(scene, text)) for text in options]
        placed.append(options[int(costs.argmin())])
    for name, (x, y) in scene.points.items():
        options = [
            Text(name, (x + r * math.cos(k * math.pi / 8), y + r * math.sin(k * math.pi / 8)), name)
            for r in (0.036, 0.048, 0.062)
            for k in range(16)
        ]
        costs = costs_of(options) + 0.01 * (np.arange(len(options)) // 16)
        placed.append(options[int(costs.argmin())])
    return tuple(placed)
