"""The symbolic seed: constructions, the facts that they imply, and the numbers that are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from assay.errors import InputError

Point = tuple[float, float]
Coordinates = dict[str, Point]

FACT_POINTS = {
    "coll": 3, "perp": 4, "para": 4, "cong": 3, "eqlen": 4, "bis": 4, "cyc": 4, "mid": 3, "ratio": 4, "turn": 3,
}  # fmt: skip
"""How many points each kind of fact names."""

GIVEN_POINTS = {"angle": 3, "length": 2}

LARGEST = 10**9
"""Numbers above this, above or below the line, are refused: lengths are taken apart into primes."""


class InconsistentSeed(InputError):
    """Facts and givens that no figure fulfils; the message names the first and how far it is off."""


class Rejected(Exception):
    """A draw that cannot be used, with its reason: lines that do not meet, points that fall together."""


def _names(what: str, kind: str, names: object, size: int, differ: bool = False) -> tuple[str, ...]:
    good = isinstance(names, tuple | list) and len(names) == size and all(isinstance(name, str) for name in names)
    if not good or (differ and len(set(names)) < size):  # type: ignore[call-overload]
        different = "different " if differ else ""
        raise InputError(f"{what}.points of {kind} must be {size} {different}names, got {names!r:.60}")
    return tuple(names)  # type: ignore[arg-type]


def _number(what: str, value: object) -> Fraction:
    """A positive number as a fraction; a float as it is written, so that 3.1 is 31/10."""
    try:
        if isinstance(value, bool):
            raise TypeError
        exact = Fraction(repr(value) if isinstance(value, float) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ArithmeticError):
        raise InputError(f"{what} must be a finite number, got {value!r:.40}") from None
    if exact <= 0 or max(exact.numerator, exact.denominator) > LARGEST:
        raise InputError(f"{what} must be positive, with at most {LARGEST} above and below, got {value!r:.40}")
    return exact


@dataclass(frozen=True)
class Fact:
    """A relation between points.

    Attributes
    ----------
    kind
        ``coll(a,b,c)`` on one line · ``perp(a,b,c,d)`` ab ⊥ cd · ``para(a,b,c,d)`` ab ∥ cd · ``cong(o,a,b)`` oa = ob ·
        ``eqlen(a,b,c,d)`` ab = cd · ``bis(b,a,c,m)`` am halves the angle bac · ``cyc(a,b,c,d)`` on one circle ·
        ``mid(m,a,b)`` m halves ab · ``ratio(a,b,c,d)`` ab = value · cd ·
        ``turn(a,b,c)`` a, b, c run anticlockwise: which way round a drawing lies; nothing follows from it.
    points
        Names, in the order that the kind says.
    value
        The quotient of a ``ratio``.
    """

    kind: str
    points: tuple[str, ...]
    value: Fraction | None = None

    def __post_init__(self) -> None:
        if self.kind not in FACT_POINTS:
            raise InputError(f"fact.kind must be one of {', '.join(FACT_POINTS)}, got {self.kind!r}")
        object.__setattr__(self, "points", _names("fact", self.kind, self.points, FACT_POINTS[self.kind]))
        if (self.kind == "ratio") != (self.value is not None):
            raise InputError(f"fact.value belongs to ratio and to it alone, got {self.value!r} for {self.kind}")
        if self.value is not None:
            object.__setattr__(self, "value", _number("fact.value", self.value))

    def text(self) -> str:
        """The fact as a sentence."""
        p = self.points
        match self.kind:
            case "coll":
                return f"{p[0]}, {p[1]} and {p[2]} lie on one line"
            case "perp":
                return f"{p[0]}{p[1]} ⊥ {p[2]}{p[3]}"
            case "para":
                return f"{p[0]}{p[1]} ∥ {p[2]}{p[3]}"
            case "cong":
                return f"{p[0]}{p[1]} = {p[0]}{p[2]}"
            case "eqlen":
                return f"{p[0]}{p[1]} = {p[2]}{p[3]}"
            case "bis":
                return f"{p[1]}{p[3]} bisects ∠{p[0]}{p[1]}{p[2]}"
            case "cyc":
                return f"{p[0]}, {p[1]}, {p[2]} and {p[3]} lie on one circle"
            case "turn":
                return f"{p[0]}, {p[1]} and {p[2]} run anticlockwise"
            case "mid":
                return f"{p[0]} is the midpoint of {p[1]}{p[2]}"
            case _:
                return f"{p[0]}{p[1]} = {self.value} · {p[2]}{p[3]}"


@dataclass(frozen=True)
class Given:
    """A number that the problem states: an ``angle`` (three names, vertex in the middle; degrees) or a ``length``."""

    kind: str
    points: tuple[str, ...]
    value: Fraction

    def __post_init__(self) -> None:
        if self.kind not in GIVEN_POINTS:
            raise InputError(f"given.kind must be angle or length, got {self.kind!r}")
        object.__setattr__(self, "points", _names("given", self.kind, self.points, GIVEN_POINTS[self.kind], True))
        object.__setattr__(self, "value", _number("given.value", self.value))
        if self.kind == "angle" and self.value >= 180:
            raise InputError(f"given.value must be positive, and an angle below 180, got {self.value}")

    def text(self) -> str:
        """The given as it stands in a problem."""
        names = "".join(self.points)
        return f"∠{names} = {self.value}°" if self.kind == "angle" else f"{names} = {self.value}"


@dataclass(frozen=True)
class Target:
    """What is asked: an ``angle`` (3 names), a ``length`` (2 names) or a ``ratio`` of two lengths (4 names)."""

    kind: str
    points: tuple[str, ...]

    def __post_init__(self) -> None:
        size = {"angle": 3, "length": 2, "ratio": 4}.get(self.kind)
        if size is None:
            raise InputError(f"target.kind must be angle, length or ratio, got {self.kind!r}")
        object.__setattr__(self, "points", _names("target", self.kind, self.points, size, self.kind != "ratio"))

    def text(self) -> str:
        """The quantity, as it stands in a question."""
        names = "".join(self.points)
        return {"angle": f"∠{names}", "length": names, "ratio": f"{names[:2]}/{names[2:]}"}[self.kind]


@dataclass(frozen=True)
class Construction:
    """One step of a figure: what is done (``op``), the new points, the points it starts from, and its numbers."""

    op: str
    out: tuple[str, ...]
    args: tuple[str, ...] = ()
    param: tuple[int, ...] = ()


@dataclass(frozen=True)
class Seed:
    """A chain of constructions, with the facts and the givens that follow from them.

    Attributes
    ----------
    constructions
        The base figure first.
    givens
        The numbers that the problem states; none by default.
    facts
        What the constructions imply; none by default. :func:`~assay.reasoning.geocode.seed_of` fills both in.
    """

    constructions: tuple[Construction, ...]
    givens: tuple[Given, ...] = ()
    facts: tuple[Fact, ...] = field(default=())

    @property
    def points(self) -> tuple[str, ...]:
        """Every point, in the order of its making."""
        return tuple(name for step in self.constructions for name in step.out)


def edge(a: str, b: str) -> tuple[str, str]:
    """The two names of a segment in alphabetical order."""
    return (a, b) if a < b else (b, a)


def checked_coordinates(coords: Mapping[str, Point]) -> Coordinates:
    """Coordinates as finite numbers, or an InputError that names the point."""
    if not isinstance(coords, Mapping):
        raise InputError(f"coords must say the place of each name, got {type(coords).__name__}")
    good: Coordinates = {}
    for name, at in coords.items():
        try:
            x, y = (float(value) for value in at)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"coords[{name!r}] must be two numbers, got {at!r}") from None
        if not (math.isfinite(x) and math.isfinite(y)):
            raise InputError(f"coords[{name!r}] must be finite, got {at!r}")
        good[name] = (x, y)
    return good
