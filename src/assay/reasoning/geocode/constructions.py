"""The constructions: where their points lie, which facts they imply, which numbers they give, how they are worded.

``place`` works over any numbers: floats with ``math``, 50 digits with ``mpmath``, exact ones with ``sympy``.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import Any

from assay.errors import InputError

from .figure import LARGEST, Construction, Fact, Given, Rejected, Seed

LETTERS = frozenset(string.ascii_uppercase)
"""Names of points, as the words of a problem are read back."""

Place = Callable[[ModuleType, list[Any], tuple[int, ...]], list[Any]]
Facts = Callable[[tuple[str, ...], tuple[str, ...]], list[Fact]]
Givens = Callable[[tuple[str, ...], tuple[str, ...], tuple[int, ...]], list[Given]]


@dataclass(frozen=True)
class Op:
    """One kind of construction.

    Attributes
    ----------
    outs, args
        How many points it makes and starts from.
    place
        Coordinates of the new points from those of the old and the numbers.
    facts, givens
        What it implies and which numbers a problem may state.
    ranges
        For each number the least and the largest.
    words
        The sentence, with ``{o0}`` … for new points and ``{a0}`` … for old ones.
    lines
        Segments that a drawing shows, as pairs of indices into new points then old points.
    base
        Whether it starts a figure.
    """

    outs: int
    args: int
    place: Place
    facts: Facts
    words: str
    lines: tuple[tuple[str, str], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    givens: Givens = lambda out, args, param: []
    base: bool = False


def _add(p: Any, q: Any, t: Any = 1) -> Any:
    return (p[0] + t * q[0], p[1] + t * q[1])


def _sub(p: Any, q: Any) -> Any:
    return (p[0] - q[0], p[1] - q[1])


def _dot(p: Any, q: Any) -> Any:
    return p[0] * q[0] + p[1] * q[1]


def _cross(p: Any, q: Any) -> Any:
    return p[0] * q[1] - p[1] * q[0]


def _turn(p: Any) -> Any:
    return (-p[1], p[0])


def _length(m: Any, p: Any) -> Any:
    return m.sqrt(_dot(p, p))


def _unit(m: Any, degrees: Any) -> Any:
    angle = m.pi * degrees / 180
    return (m.cos(angle), m.sin(angle))


def _meet(p: Any, u: Any, q: Any, v: Any) -> Any:
    """Where the line through p along u meets the one through q along v."""
    turn = _cross(u, v)
    if abs(float(turn)) <= 1e-9 * float(abs(_dot(u, u)) + abs(_dot(v, v))):
        raise Rejected("two lines that should meet are parallel")
    return _add(p, u, _cross(_sub(q, p), v) / turn)


def _foot(p: Any, a: Any, b: Any) -> Any:
    u = _sub(b, a)
    return _add(a, u, _dot(_sub(p, a), u) / _dot(u, u))


def _bisector(m: Any, b: Any, a: Any, c: Any) -> Any:
    u, v = _sub(b, a), _sub(c, a)
    return _add(tuple(x / _length(m, u) for x in u), tuple(x / _length(m, v) for x in v))


def circumcentre(a: Any, b: Any, c: Any) -> Any:
    """The point with equal distances to three others, in any numbers."""
    ab, ac = _sub(b, a), _sub(c, a)
    return _meet(_add(a, ab, _half(a)), _turn(ab), _add(a, ac, _half(a)), _turn(ac))


def _half(p: Any) -> Any:
    # One half in the numbers at hand, so that exact ones stay exact.
    return (p[0] * 0 + 1) / 2


def _triangle(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    if q[0] + q[1] > 172:
        raise Rejected("two angles of a triangle leave nothing for the third")
    a, b = (m.sqrt(0), m.sqrt(0)), (q[2] * m.sqrt(1), m.sqrt(0))
    return [a, b, _meet(a, _unit(m, q[0]), b, _unit(m, 180 - q[1]))]


def _sas(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    a, b = (m.sqrt(0), m.sqrt(0)), (q[1] * m.sqrt(1), m.sqrt(0))
    return [a, b, _add(a, _unit(m, q[0]), q[2])]


def _parallelogram(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    a, b, d = _sas(m, pts, q)
    return [a, b, _add(b, d), d]


def _trapezoid(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    a, b, d = _sas(m, pts, (q[0], q[2], q[3]))
    c = _meet(b, _unit(m, 180 - q[1]), d, (1, 0))
    if float(c[0]) <= float(d[0]):
        raise Rejected("the sides of the trapezoid cross")
    return [a, b, c, d]


def _cyclic(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    if q[2] >= q[1] or q[0] + q[2] >= 180:
        raise Rejected("no quadrilateral has these angles")
    a, b, d = _triangle(m, pts, (q[0], q[2], q[3]))
    o = circumcentre(a, b, d)
    u = _unit(m, 180 - q[1])
    return [a, b, _add(b, u, 2 * _dot(_sub(o, b), u)), d]


def _on_circle(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    o, a = pts
    u, (c, s) = _sub(a, o), _unit(m, q[0] if q[1] else -q[0])
    return [_add(o, (c * u[0] - s * u[1], s * u[0] + c * u[1]))]


def _second(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    o, a, p = pts
    u = _sub(p, a)
    return [_add(a, u, 2 * _dot(_sub(o, a), u) / _dot(u, u))]


def _equal(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    a, b, c = pts
    u = _sub(b, a)
    return [_add(a, u, _length(m, _sub(c, a)) / _length(m, u))]


def _reflection(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    p, a, b = pts
    return [_add(p, _sub(_foot(p, a, b), p), 2)]


def _centroid(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    a, b, c = pts
    mid = _add(b, _sub(c, b), _half(a))
    return [_add(a, _sub(mid, a), 2 * (a[0] * 0 + 1) / 3), mid]


def _mid(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    return [_add(pts[0], _sub(pts[1], pts[0]), _half(pts[0]))]


def _incentre(m: Any, pts: list[Any], q: tuple[int, ...]) -> list[Any]:
    a, b, c = pts
    return [_meet(a, _bisector(m, b, a, c), b, _bisector(m, a, b, c))]


def _F(kind: str, *points: str) -> Fact:
    return Fact(kind, tuple(points))


def _angle(value: int, *points: str) -> Given:
    return Given("angle", tuple(points), value)  # type: ignore[arg-type]


def _len(value: int, *points: str) -> Given:
    return Given("length", tuple(points), value)  # type: ignore[arg-type]


_SIDES = (("o0", "o1"), ("o1", "o2"), ("o2", "o0"))
_QUAD = (("o0", "o1"), ("o1", "o2"), ("o2", "o3"), ("o3", "o0"))
_A, _L = (25, 115), (3, 12)

OPS: dict[str, Op] = {
    "triangle": Op(
        3, 0, _triangle, lambda o, a: [], "{o0}{o1}{o2} is a triangle.", _SIDES, (_A, _A, _L),
        lambda o, a, q: [_angle(q[0], o[1], o[0], o[2]), _angle(q[1], o[0], o[1], o[2]), _len(q[2], o[0], o[1])], True,
    ),
    "triangle_sas": Op(
        3, 0, _sas, lambda o, a: [], "{o0}{o1}{o2} is a triangle.", _SIDES, (_A, _L, _L),
        lambda o, a, q: [_angle(q[0], o[1], o[0], o[2]), _len(q[1], o[0], o[1]), _len(q[2], o[0], o[2])], True,
    ),
    "isosceles": Op(
        3, 0, lambda m, p, q: _sas(m, p, (q[0], q[1], q[1])), lambda o, a: [_F("cong", *o)],
        "{o0}{o1}{o2} is an isosceles triangle with apex {o0}.", _SIDES, (_A, _L),
        lambda o, a, q: [_angle(q[0], o[1], o[0], o[2]), _len(q[1], o[0], o[1])], True,
    ),
    "equilateral": Op(
        3, 0, lambda m, p, q: _sas(m, p, (60, q[0], q[0])),
        lambda o, a: [_F("cong", *o), _F("cong", o[1], o[0], o[2]), _F("cong", o[2], o[0], o[1])],
        "{o0}{o1}{o2} is an equilateral triangle.", _SIDES, (_L,), lambda o, a, q: [_len(q[0], o[0], o[1])], True,
    ),
    "right": Op(
        3, 0, lambda m, p, q: _sas(m, p, (90, q[0], q[1])), lambda o, a: [_F("perp", o[0], o[1], o[0], o[2])],
        "{o0}{o1}{o2} is a triangle with a right angle at {o0}.", _SIDES, (_L, _L),
        lambda o, a, q: [_len(q[0], o[0], o[1]), _len(q[1], o[0], o[2])], True,
    ),
    "right_angle": Op(
        3, 0, lambda m, p, q: _triangle(m, p, (90, q[0], q[1])), lambda o, a: [_F("perp", o[0], o[1], o[0], o[2])],
        "{o0}{o1}{o2} is a triangle with a right angle at {o0}.", _SIDES, ((20, 70), _L),
        lambda o, a, q: [_angle(q[0], o[0], o[1], o[2]), _len(q[1], o[0], o[1])], True,
    ),
    "parallelogram": Op(
        4, 0, _parallelogram,
        lambda o, a: [
            _F("para", o[0], o[1], o[3], o[2]), _F("para", o[0], o[3], o[1], o[2]),
            _F("eqlen", o[0], o[1], o[3], o[2]), _F("eqlen", o[0], o[3], o[1], o[2]),
        ],
        "{o0}{o1}{o2}{o3} is a parallelogram.", _QUAD, ((40, 140), _L, _L),
        lambda o, a, q: [_angle(q[0], o[1], o[0], o[3]), _len(q[1], o[0], o[1]), _len(q[2], o[0], o[3])], True,
    ),
    "rectangle": Op(
        4, 0, lambda m, p, q: _parallelogram(m, p, (90, *q)),
        lambda o, a: [
            _F("para", o[0], o[1], o[3], o[2]), _F("para", o[0], o[3], o[1], o[2]),
            _F("eqlen", o[0], o[1], o[3], o[2]), _F("eqlen", o[0], o[3], o[1], o[2]),
            _F("perp", o[0], o[1], o[0], o[3]),
        ],
        "{o0}{o1}{o2}{o3} is a rectangle.", _QUAD, (_L, _L),
        lambda o, a, q: [_len(q[0], o[0], o[1]), _len(q[1], o[0], o[3])], True,
    ),
    "trapezoid": Op(
        4, 0, _trapezoid, lambda o, a: [_F("para", o[0], o[1], o[3], o[2])],
        "{o0}{o1}{o2}{o3} is a trapezoid with {o0}{o1} parallel to {o3}{o2}.", _QUAD, ((45, 120), (45, 120), _L, _L),
        lambda o, a, q: [
            _angle(q[0], o[1], o[0], o[3]), _angle(q[1], o[0], o[1], o[2]),
            _len(q[2], o[0], o[1]), _len(q[3], o[0], o[3]),
        ], True,
    ),
    "cyclic": Op(
        4, 0, _cyclic, lambda o, a: [_F("cyc", *o)],
        "{o0}{o1}{o2}{o3} is a quadrilateral inscribed in a circle.", _QUAD, ((40, 130), (40, 130), (20, 100), _L),
        lambda o, a, q: [
            _angle(q[0], o[1], o[0], o[3]), _angle(q[1], o[0], o[1], o[2]),
            _angle(q[2], o[0], o[1], o[3]), _len(q[3], o[0], o[1]),
        ], True,
    ),
    "chord": Op(
        3, 0, lambda m, p, q: _sas(m, p, (q[0], q[1], q[1])), lambda o, a: [_F("cong", *o)],
        "{o1}{o2} is a chord of the circle with centre {o0}.", _SIDES, ((40, 160), _L),
        lambda o, a, q: [_angle(q[0], o[1], o[0], o[2]), _len(q[1], o[0], o[1])], True,
    ),
    "midpoint": Op(
        1, 2, _mid, lambda o, a: [_F("mid", o[0], *a)], "{o0} is the midpoint of {a0}{a1}.", (("a0", "a1"),),
    ),
    "foot": Op(
        1, 3, lambda m, p, q: [_foot(*p)],
        lambda o, a: [_F("perp", a[0], o[0], a[1], a[2]), _F("coll", o[0], a[1], a[2])],
        "{o0} is the foot of the perpendicular from {a0} to line {a1}{a2}.",
        (("a0", "o0"), ("a1", "a2"), ("a1", "o0"), ("a2", "o0")),
    ),
    "bisector": Op(
        1, 3, lambda m, p, q: [_meet(p[1], _bisector(m, *p), p[0], _sub(p[2], p[0]))],
        lambda o, a: [_F("bis", a[0], a[1], a[2], o[0]), _F("coll", o[0], a[0], a[2])],
        "The bisector of angle {a0}{a1}{a2} meets {a0}{a2} at {o0}.", (("a1", "o0"), ("a0", "a2")),
    ),
    "incentre": Op(
        1, 3, _incentre,
        lambda o, a: [
            _F("bis", a[1], a[0], a[2], o[0]), _F("bis", a[0], a[1], a[2], o[0]), _F("bis", a[0], a[2], a[1], o[0]),
        ],
        "{o0} is the incentre of triangle {a0}{a1}{a2}.", (("a0", "o0"), ("a1", "o0"), ("a2", "o0")),
    ),
    "circumcentre": Op(
        1, 3, lambda m, p, q: [circumcentre(*p)],
        lambda o, a: [_F("cong", o[0], a[0], a[1]), _F("cong", o[0], a[1], a[2]), _F("cong", o[0], a[0], a[2])],
        "{o0} is the circumcentre of triangle {a0}{a1}{a2}.", (("a0", "o0"), ("a1", "o0"), ("a2", "o0")),
    ),
    "centroid": Op(
        2, 3, _centroid,
        lambda o, a: [
            _F("mid", o[1], a[1], a[2]), _F("coll", a[0], o[0], o[1]),
            Fact("ratio", (a[0], o[0], o[0], o[1]), Fraction(2)),
        ],
        "{o0} is the centroid of triangle {a0}{a1}{a2}, and {a0}{o0} meets {a1}{a2} at {o1}.",
        (("a0", "o1"), ("a1", "a2")),
    ),
    "parallel": Op(
        1, 5, lambda m, p, q: [_meet(p[0], _sub(p[2], p[1]), p[3], _sub(p[4], p[3]))],
        lambda o, a: [_F("para", a[0], o[0], a[1], a[2]), _F("coll", o[0], a[3], a[4])],
        "The parallel to {a1}{a2} through {a0} meets line {a3}{a4} at {o0}.",
        (("a0", "o0"), ("a1", "a2"), ("a3", "a4"), ("a3", "o0"), ("a4", "o0")),
    ),
    "perpendicular": Op(
        1, 5, lambda m, p, q: [_meet(p[0], _turn(_sub(p[2], p[1])), p[3], _sub(p[4], p[3]))],
        lambda o, a: [_F("perp", a[0], o[0], a[1], a[2]), _F("coll", o[0], a[3], a[4])],
        "The perpendicular to {a1}{a2} through {a0} meets line {a3}{a4} at {o0}.",
        (("a0", "o0"), ("a1", "a2"), ("a3", "a4"), ("a3", "o0"), ("a4", "o0")),
    ),
    "reflection": Op(
        1, 3, _reflection,
        lambda o, a: [
            _F("cong", a[1], a[0], o[0]), _F("cong", a[2], a[0], o[0]), _F("perp", a[0], o[0], a[1], a[2]),
        ],
        "{o0} is the reflection of {a0} in line {a1}{a2}.", (("a1", "o0"), ("a2", "o0"), ("a1", "a2")),
    ),
    "equal": Op(
        1, 3, _equal, lambda o, a: [_F("coll", *a[:2], o[0]), _F("cong", a[0], a[2], o[0])],
        "{o0} is the point on ray {a0}{a1} with {a0}{o0} equal to {a0}{a2}.",
        (("a0", "a1"), ("a0", "o0"), ("a2", "o0"), ("a0", "a2")),
    ),
    "on_circle": Op(
        1, 2, _on_circle, lambda o, a: [_F("cong", a[0], a[1], o[0])],
        "{o0} is a point on the circle with centre {a0} through {a1}.", (("a0", "o0"), ("a1", "o0")),
        ((30, 150), (0, 1)), lambda o, a, q: [_angle(q[0], a[1], a[0], o[0])],
    ),
    "second": Op(
        1, 3, _second, lambda o, a: [_F("coll", a[1], a[2], o[0]), _F("cong", a[0], a[1], o[0])],
        "Line {a1}{a2} meets the circle with centre {a0} through {a1} again at {o0}.",
        (("a1", "a2"), ("a1", "o0"), ("a0", "o0")),
    ),
    "tangent": Op(
        1, 4, lambda m, p, q: [_meet(p[1], _turn(_sub(p[1], p[0])), p[2], _sub(p[3], p[2]))],
        lambda o, a: [_F("perp", a[0], a[1], a[1], o[0]), _F("coll", o[0], a[2], a[3])],
        "The tangent at {a1} to the circle with centre {a0} through {a1} meets line {a2}{a3} at {o0}.",
        (("a1", "o0"), ("a0", "a1"), ("a2", "a3"), ("a2", "o0"), ("a3", "o0")),
    ),
    "meet": Op(
        1, 4, lambda m, p, q: [_meet(p[0], _sub(p[1], p[0]), p[2], _sub(p[3], p[2]))],
        lambda o, a: [_F("coll", o[0], *a[:2]), _F("coll", o[0], *a[2:])],
        "Lines {a0}{a1} and {a2}{a3} meet at {o0}.",
        (("a0", "a1"), ("a2", "a3"), ("a0", "o0"), ("a1", "o0"), ("a2", "o0"), ("a3", "o0")),
    ),
}  # fmt: skip

BASES = tuple(name for name, op in OPS.items() if op.base)
STEPS = tuple(name for name, op in OPS.items() if not op.base)


def checked(constructions: Sequence[Construction]) -> tuple[Construction, ...]:
    """The chain itself, or an InputError that names the construction at fault."""
    if not isinstance(constructions, Sequence) or isinstance(constructions, str):
        raise InputError(f"constructions must be a list of Construction, got {type(constructions).__name__}")
    steps, known = tuple(constructions), set()
    if not steps:
        raise InputError("constructions must hold at least a base figure, got none")
    for i, step in enumerate(steps):
        where = f"constructions[{i}]"
        if not isinstance(step, Construction):
            raise InputError(f"{where} must be a Construction, got {type(step).__name__}")
        if not isinstance(step.op, str) or step.op not in OPS:
            raise InputError(f"{where}.op must be one of {', '.join(OPS)}, got {step.op!r}")
        op = OPS[step.op]
        if op.base != (i == 0):
            raise InputError(f"{where}.op: a chain has one base figure ({', '.join(BASES)}), and it stands first")
        for what, names, size in (("out", step.out, op.outs), ("args", step.args, op.args)):
            if not isinstance(names, tuple) or len(names) != size or not all(isinstance(n, str) for n in names):
                raise InputError(f"{where}.{what} of {step.op} must be {size} names, got {names!r}")
        if not isinstance(step.param, tuple) or len(step.param) != len(op.ranges):
            raise InputError(f"{where}.param of {step.op} must be {len(op.ranges)} numbers, got {step.param!r:.60}")
        for value in step.param:
            # Also refuses nan, which compares false.
            if isinstance(value, bool) or not isinstance(value, int | float | Fraction) or not 0 <= value <= LARGEST:
                raise InputError(f"{where}.param must be numbers, 0 to {LARGEST}, got {value!r:.40}")
        for name in step.args:
            if name not in known:
                raise InputError(f"{where}.args: there is no point {name!r} before it")
        for name in step.out:
            if name in known or name not in LETTERS:
                raise InputError(f"{where}.out: a new point has a letter A to Z of its own, got {name!r:.40}")
            known.add(name)
    return steps


def seed_of(constructions: Sequence[Construction], givens: Sequence[Given] | None = None) -> Seed:
    """The seed of a chain: with its facts, and with all numbers of the constructions where no givens are named.

    Raises
    ------
    InputError
        For an unknown construction, a wrong number of points or numbers, and a point before it is made.

    Examples
    --------
    >>> seed_of([Construction("right", ("C", "A", "B"), (), (6, 8))]).givens[0].text()
    'CA = 6'
    """
    steps = checked(constructions)
    facts = tuple(fact for step in steps for fact in OPS[step.op].facts(step.out, step.args))
    if givens is None:
        givens = [given for step in steps for given in OPS[step.op].givens(step.out, step.args, step.param)]
    return Seed(steps, tuple(givens), facts)


def place(constructions: Sequence[Construction], numbers: ModuleType) -> dict[str, Any]:
    """Coordinates of every point, in the numbers of ``math``, ``mpmath`` or ``sympy``.

    Raises
    ------
    Rejected
        Where the construction is impossible.
    """
    at: dict[str, Any] = {}
    for step in constructions:
        try:
            points = OPS[step.op].place(numbers, [at[name] for name in step.args], step.param)
        except ZeroDivisionError:
            raise Rejected(f"two points that {step.op} needs fall together") from None
        at |= dict(zip(step.out, points, strict=True))
    return at
