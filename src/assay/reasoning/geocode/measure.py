"""What holds in a figure, measured from coordinates by the definition of each relation; no deduction in here."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .figure import Fact, Given, Point, Target


def distance(p: Point, q: Point) -> float:
    """The length of pq."""
    return math.hypot(q[0] - p[0], q[1] - p[1])


def angle(a: Point, b: Point, c: Point) -> float:
    """The angle abc in degrees, 0 to 180."""
    u, v = (a[0] - b[0], a[1] - b[1]), (c[0] - b[0], c[1] - b[1])
    return math.degrees(math.atan2(abs(u[0] * v[1] - u[1] * v[0]), u[0] * v[0] + u[1] * v[1]))


def measured(target: Target, at: Mapping[str, Point]) -> float:
    """The size of a target in a figure: degrees, length or quotient of lengths."""
    p = [at[name] for name in target.points]
    if target.kind == "angle":
        return angle(*p)
    if target.kind == "length":
        return distance(*p)
    return distance(p[0], p[1]) / distance(p[2], p[3])


def error(fact: Fact, at: Mapping[str, Point]) -> float:
    """How far a fact is from true, relative: sines for directions, quotients for lengths."""
    p = [at[name] for name in fact.points]

    def sine(a: Point, b: Point, c: Point, d: Point) -> float:
        cross = (b[0] - a[0]) * (d[1] - c[1]) - (b[1] - a[1]) * (d[0] - c[0])
        return abs(cross) / (distance(a, b) * distance(c, d))

    def apart(x: float, y: float) -> float:
        return abs(x - y) / max(x, y)

    if len(set(p)) < len(p) and fact.kind in ("coll", "cong", "bis", "cyc", "mid"):
        return 1.0
    match fact.kind:
        case "coll":
            return max(sine(p[0], p[1], p[0], p[2]), sine(p[0], p[1], p[1], p[2]))
        case "perp":
            dot = (p[1][0] - p[0][0]) * (p[3][0] - p[2][0]) + (p[1][1] - p[0][1]) * (p[3][1] - p[2][1])
            return abs(dot) / (distance(p[0], p[1]) * distance(p[2], p[3]))
        case "para":
            return sine(*p)
        case "cong":
            return apart(distance(p[0], p[1]), distance(p[0], p[2]))
        case "eqlen":
            return apart(distance(p[0], p[1]), distance(p[2], p[3]))
        case "bis":
            return abs(angle(p[0], p[1], p[3]) - angle(p[3], p[1], p[2])) / 90
        case "cyc":
            rows = np.array([[x * x + y * y, x, y, 1.0] for x, y in np.array(p) - np.mean(p, axis=0)])
            return float(abs(np.linalg.det(rows / np.abs(rows).max(axis=0))))
        case "turn":
            return 0.0 if (p[1][0] - p[0][0]) * (p[2][1] - p[0][1]) > (p[1][1] - p[0][1]) * (p[2][0] - p[0][0]) else 1.0
        case "mid":
            x, y = (p[1][0] + p[2][0]) / 2, (p[1][1] + p[2][1]) / 2
            return distance(p[0], (x, y)) / distance(p[1], p[2])
        case _:
            assert fact.value is not None
            return apart(distance(p[0], p[1]), float(fact.value) * distance(p[2], p[3]))


def given_error(given: Given, at: Mapping[str, Point]) -> float:
    """How far a given is from true: relative."""
    value = measured(Target(given.kind, given.points), at)
    return abs(value - float(given.value)) / float(given.value)
