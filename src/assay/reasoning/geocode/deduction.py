"""Deduction over directions and lengths: linear algebra over fractions, with the facts that each result rests on.

Angles: the unknowns are the directions δ(ab) of all lines, modulo 180°. Each fact is a linear equation whose multiple
of 180° is read off the figure. Lengths: the unknowns are the logarithms λ(ab), and right-hand sides are exact products
of powers of primes. What needs both, similar triangles and laws of sines and cosines, is added in rounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from assay.errors import InputError

from . import logs
from .figure import Coordinates, Fact, Given, InconsistentSeed, Point, Target, checked_coordinates, edge
from .linear import Reduced, Row, combined, sparsest
from .measure import angle, distance

Edge = tuple[str, str]
ONE = Fraction(1)
ROUNDS = 3
RESIDUAL = 1e-6
"""How many degrees a fact may be off in the figure."""

TOGETHER = 1e-7
"""Points closer than this share of the figure's width count as one."""


@dataclass(frozen=True)
class Equation:
    """One linear equation between directions or log-lengths.

    Attributes
    ----------
    row, right
        Coefficients by edge, and the right-hand side (degrees under the key 1, or exponents of primes).
    facts
        The facts and givens that it states.
    rule
        Its name for people; empty for a fact's own equation.
    angles, lengths
        What else must hold: combinations of directions, and of log-lengths.
    before
        How many equations of its own kind were there when it was made; its reasons are among those.
    """

    row: Row
    right: Row
    facts: tuple[Fact | Given, ...] = ()
    rule: str = ""
    angles: tuple[Row, ...] = ()
    lengths: tuple[Row, ...] = ()
    before: int = 0


@dataclass(frozen=True)
class Derivation:
    """How a target follows.

    Attributes
    ----------
    value
        Degrees, or what a length or ratio is, as exponents of primes.
    support
        The facts and givens that it rests on.
    rules
        The theorems about lengths that are used, as sentences.
    terms
        The equations that add up to the target, with their weights.
    """

    value: Row
    support: tuple[Fact | Given, ...]
    rules: tuple[str, ...]
    terms: tuple[tuple[Fraction, Equation], ...]

    @property
    def depth(self) -> int:
        """How many different facts and givens it rests on."""
        return len(self.support)


@dataclass
class Deduction:
    """The closure of facts and givens over one figure; made by :func:`deduce`."""

    coords: Coordinates
    equations: list[Equation] = field(default_factory=list)
    ratios: list[Equation] = field(default_factory=list)
    angle_space: Reduced = field(default_factory=Reduced)
    length_space: Reduced = field(default_factory=Reduced)
    _memo: dict[Any, Any] = field(default_factory=dict)
    _directions: dict[Edge, float] = field(default_factory=dict)

    def direction(self, e: Edge) -> float:
        """The direction of an edge in degrees, 0 to 180."""
        if e not in self._directions:
            (x0, y0), (x1, y1) = self.coords[e[0]], self.coords[e[1]]
            self._directions[e] = math.degrees(math.atan2(y1 - y0, x1 - x0)) % 180
        return self._directions[e]

    def angle_row(self, a: str, b: str, c: str) -> tuple[Row, int]:
        """∠abc as a combination of directions plus a multiple of 180°, which is read off the figure."""
        ba, bc = edge(b, a), edge(b, c)
        if ba == bc:
            raise InputError(f"an angle needs two different sides, got {a}{b}{c}")
        turn = self.direction(ba) - self.direction(bc)
        size = angle(self.coords[a], self.coords[b], self.coords[c])
        for sign in (1, -1):
            k = round((size - sign * turn) / 180)
            if abs(sign * turn + 180 * k - size) < 1e-5:
                return {ba: Fraction(sign), bc: Fraction(-sign)}, 180 * k
        raise AssertionError("an angle is the difference of two directions")

    def solve(self, target: Target) -> Derivation | None:
        """Derive a target; None where the facts and givens do not determine it.

        Raises
        ------
        InputError
            For a point that the figure has not.
        """
        self._known(target)
        if target.kind == "angle":
            row, shift = self.angle_row(*target.points)
            found = self._because(row, "angles", None)
            if found is None:
                return None
            value, support, rules, terms = found
            return Derivation({1: value.get(1, Fraction(0)) + shift}, support, rules, terms)
        found = self._because(_length_row(target.points), "lengths", None)
        return None if found is None else Derivation(*found)

    def _known(self, target: Target) -> None:
        if not isinstance(target, Target):
            raise TypeError(f"target must be a Target, got {type(target).__name__}")
        for name in target.points:
            if name not in self.coords:
                raise InputError(f"target.points: the figure has no point {name!r}")

    def value(self, target: Target) -> Row | None:
        """The exact value, degrees under the key 1 or exponents of primes; None where it is not determined."""
        self._known(target)
        row, shift = self.angle_row(*target.points) if target.kind == "angle" else (_length_row(target.points), 0)
        left, right = (self.angle_space if target.kind == "angle" else self.length_space).reduce(row)
        if left:
            return None
        return {1: right.get(1, Fraction(0)) + shift} if target.kind == "angle" else right

    def parallel(self, e: Edge, f: Edge) -> bool:
        """Whether two edges are known to have one direction."""
        if e == f:
            return True
        turn = (self.direction(e) - self.direction(f)) % 180
        if min(turn, 180 - turn) > 1e-4:
            return False  # not even in the figure: no need to reduce
        left, right = self.angle_space.reduce({e: ONE, f: -ONE})
        return not left and right.get(1, Fraction(0)) % 180 == 0

    def _because(self, row: Row, which: str, before: int | None) -> Any:
        """Value, support, rules and terms of a combination of unknowns, from the equations before one."""
        key = (which, tuple(sorted(row.items())), before)
        if key in self._memo:
            return self._memo[key]
        if not row:
            return {}, (), (), ()
        equations = (self.equations if which == "angles" else self.ratios)[:before]
        weights = sparsest([equation.row for equation in equations], row)
        if weights is None:
            self._memo[key] = None
            return None
        terms = tuple((weight, equations[k]) for k, weight in weights.items() if weight)
        support: dict[Fact | Given, None] = {}
        rules: dict[str, None] = {}
        for _, equation in terms:
            for what, needs in (("angles", equation.angles), ("lengths", equation.lengths)):
                for need in needs:
                    under = self._because(need, what, equation.before if what == which else None)
                    if under is None:
                        self._memo[key] = None
                        return None
                    support |= dict.fromkeys(under[1])
                    rules |= dict.fromkeys(under[2])
            support |= dict.fromkeys(equation.facts)
            if equation.rule:
                rules[equation.rule] = None
        right = combined([equation.right for _, equation in terms], [weight for weight, _ in terms])
        self._memo[key] = right, tuple(support), tuple(rules), terms
        return self._memo[key]


def _length_row(points: Sequence[str]) -> Row:
    row: Row = {}
    for e, c in ((edge(*points[:2]), ONE), *([(edge(*points[2:]), -ONE)] if len(points) == 4 else [])):
        row[e] = row.get(e, Fraction(0)) + c
    return {e: c for e, c in row.items() if c}


def deduce(
    facts: Sequence[Fact], coords: Mapping[str, Point], givens: Sequence[Given], lengths: bool = True
) -> Deduction:
    """Everything that facts and givens determine about directions and, with ``lengths``, about lengths.

    Parameters
    ----------
    facts, givens
        What is known.
    coords
        A figure in which it holds; only its shape (which side, which multiple of 180°) is read from it.
    lengths
        Whether lengths are deduced too.

    Raises
    ------
    InconsistentSeed
        When a fact or given does not hold in the figure, or contradicts the others.
    InputError
        For a point that the figure has not, coordinates that are not finite, and points that fall together.

    Notes
    -----
    Full angles and log-lengths as linear algebra: AlphaGeometry's algebraic reasoning (Trinh et al., Nature 2024).

    Examples
    --------
    >>> from .constructions import Construction, place, seed_of
    >>> seed = seed_of([Construction("triangle", ("A", "B", "C"), (), (50, 70, 6))])
    >>> deduce(seed.facts, place(seed.constructions, math), seed.givens).value(Target("angle", ("B", "C", "A")))
    {1: Fraction(60, 1)}
    """
    for name, things, kind in (("facts", facts, Fact), ("givens", givens, Given)):
        if not isinstance(things, Sequence) or not all(isinstance(thing, kind) for thing in things):
            raise InputError(f"{name} must be a list of {kind.__name__}, got {things!r:.60}")
    known = Deduction(checked_coordinates(coords))
    _apart(known.coords)
    for fact in (*facts, *givens):
        for name in fact.points:
            if name not in known.coords:
                raise InputError(f"{fact.text()}: the figure has no point {name!r}")
    for fact in facts:
        for row, base in _angle_equations(fact, known.coords):
            _add_angle(known, row, base, fact)
    for fact, because in _radii(facts):
        for row, base in _angle_equations(fact, known.coords):
            _add_angle(known, row, base, fact, because=because)
    for given in givens:
        if given.kind == "angle":
            row, shift = known.angle_row(*given.points)
            _add_angle(known, row, given.value - shift, given, lifted=True)
    _closed_lines(known)
    if lengths:
        _lengths(known, facts, givens)
    return known


def _apart(at: Coordinates) -> None:
    """Refuse points that fall together: the line through them has no direction."""
    width = max(
        (abs(v - w) for p, q in itertools.combinations(at.values(), 2) for v, w in zip(p, q, strict=True)), default=0.0
    )
    for (a, p), (b, q) in itertools.combinations(at.items(), 2):
        if distance(p, q) <= TOGETHER * width:
            raise InputError(f"coords: {a} and {b} fall together, so that the line {a}{b} has no direction")


def _closed_lines(known: Deduction) -> None:
    """Where ab and ac are found to have one direction, bc has it too."""
    for t in itertools.permutations(known.coords, 3):
        a, b, c = t
        if b < c and known.parallel(edge(a, b), edge(a, c)) and not known.parallel(edge(a, b), edge(b, c)):
            row = {edge(a, b): ONE, edge(b, c): -ONE}
            there = known.direction(edge(a, b)) - known.direction(edge(b, c))
            right = Fraction(180 * round(there / 180))
            if abs(there - right) > RESIDUAL:
                raise InconsistentSeed(f"{a}, {b} and {c} should lie on one line, and do not in the figure")
            value = {1: right} if right else {}
            known.angle_space.add(row, value)
            need = {edge(a, b): ONE, edge(a, c): -ONE}
            say = f"{a}{b} and {a}{c} have one direction, so {a}, {b} and {c} lie on one line"
            known.equations.append(Equation(row, value, (), say, (need,), before=len(known.equations)))


def _radii(facts: Sequence[Fact]) -> list[tuple[Fact, tuple[Fact, ...]]]:
    """oa = ob and ob = oc give oa = oc: what is missing among the facts, with those that it follows from."""
    centres: dict[str, dict[str, dict[str, Fact]]] = {}
    for fact in facts:
        if fact.kind == "cong":
            o, a, b = fact.points
            centres.setdefault(o, {}).setdefault(a, {}).setdefault(b, fact)
            centres[o].setdefault(b, {}).setdefault(a, fact)
    found = []
    for o, links in centres.items():
        for a in links:
            ways: dict[str, tuple[Fact, ...]] = {a: ()}
            queue = [a]
            for at in queue:  # grows as it goes: the shortest way comes first
                for b, fact in links[at].items():
                    if b not in ways:
                        ways[b] = (*ways[at], fact)
                        queue.append(b)
            found += [(Fact("cong", (o, a, b)), way) for b, way in ways.items() if a < b and len(way) > 1]
    return found


def _add_angle(
    known: Deduction, row: Row, base: Fraction, fact: Fact | Given, lifted: bool = False,
    because: tuple[Fact, ...] = (),
) -> None:  # fmt: skip
    row = combined([row], [ONE])
    if not row:
        return
    there = sum(float(c) * known.direction(e) for e, c in row.items())
    right = base if lifted else base + 180 * round((there - float(base)) / 180)
    if abs(there - float(right)) > RESIDUAL:
        raise InconsistentSeed(f"{fact.text()} does not hold in the figure: off by {there - float(right):.3g}°")
    if known.angle_space.add(row, {1: right} if right else {}):
        raise InconsistentSeed(f"{fact.text()} contradicts what the others say")
    known.equations.append(Equation(row, {1: right} if right else {}, because or (fact,)))


def _angle_equations(fact: Fact, coords: Coordinates) -> list[tuple[Row, Fraction]]:
    p = fact.points

    def row(*terms: tuple[int, str, str]) -> Row:
        total: Row = {}
        for c, a, b in terms:
            total[edge(a, b)] = total.get(edge(a, b), Fraction(0)) + c
        return total

    zero = Fraction(0)
    match fact.kind:
        case "coll" | "mid":
            return [(row((1, p[0], p[1]), (-1, p[0], p[2])), zero), (row((1, p[0], p[1]), (-1, p[1], p[2])), zero)]
        case "perp":
            return [(row((1, p[0], p[1]), (-1, p[2], p[3])), Fraction(90))]
        case "para":
            return [(row((1, p[0], p[1]), (-1, p[2], p[3])), zero)]
        case "bis":
            return [(row((1, p[1], p[0]), (1, p[1], p[2]), (-2, p[1], p[3])), zero)]
        case "cong":
            size = angle(coords[p[1]], coords[p[0]], coords[p[2]])
            if size < 1e-4 or size > 180 - 1e-4:
                return []  # on one line nothing follows for angles
            return [(row((1, p[0], p[1]), (1, p[0], p[2]), (-2, p[1], p[2])), zero)]
        case "cyc":
            splits = []
            for (a, b), (c, d) in (
                ((p[0], p[1]), (p[2], p[3])),
                ((p[0], p[2]), (p[1], p[3])),
                ((p[0], p[3]), (p[1], p[2])),
            ):
                splits.append((row((1, a, c), (-1, b, c), (-1, a, d), (1, b, d)), zero))
            return splits
    return []


def _lengths(known: Deduction, facts: Sequence[Fact], givens: Sequence[Given]) -> None:
    """Fill the equations between log-lengths: those of facts and givens, then rules in rounds."""
    at = known.coords
    seen: set[Any] = set()

    def add(row: Row, right: Row, source: tuple[Fact | Given, ...], rule: str = "", **needs: Any) -> bool:
        row = combined([row], [ONE])
        if not row or (known.length_space.reduce(row)[0] == {} and not source):
            return False
        there = sum(float(c) * math.log(distance(at[a], at[b])) for (a, b), c in row.items())
        value = sum(float(k) * math.log(p) for p, k in right.items())
        if abs(there - value) > 1e-7:
            raise InconsistentSeed(
                f"{source[0].text() if source else rule} does not hold in the figure: "
                f"a length is off by {abs(math.expm1(there - value)):.3g} of itself"
            )
        if known.length_space.add(row, right):
            raise InconsistentSeed(f"{source[0].text() if source else rule} contradicts what the others say")
        known.ratios.append(Equation(row, right, source, rule, before=len(known.ratios), **needs))
        return True

    for fact in facts:
        p = fact.points
        match fact.kind:
            case "cong":
                add(_length_row((p[0], p[1], p[0], p[2])), {}, (fact,))
            case "eqlen":
                add(_length_row(p), {}, (fact,))
            case "ratio":
                assert fact.value is not None
                add(_length_row(p), logs.log(fact.value), (fact,))
            case "mid":
                add(_length_row((p[0], p[1], p[0], p[2])), {}, (fact,))
                add(_length_row((p[1], p[2], p[0], p[1])), logs.log(Fraction(2)), (fact,))
    for given in givens:
        if given.kind == "length":
            add(_length_row(given.points), logs.log(given.value), (given,))
    for fact in facts:
        if fact.kind == "bis":
            b, a, c, m = fact.points
            if known.parallel(edge(b, m), edge(m, c)) and abs(angle(at[b], at[m], at[c]) - 180) < 1e-6:
                row = combined([_length_row((b, m, m, c)), _length_row((a, b, a, c))], [ONE, -ONE])
                need = ({edge(b, m): ONE, edge(m, c): -ONE},)
                add(row, {}, (fact,), f"{a}{m} bisects the angle, so {b}{m}/{m}{c} = {a}{b}/{a}{c}", angles=need)
    names = list(at)
    for fact in facts:
        if fact.kind == "mid":
            m, a, b = fact.points
            for c in names:
                if c in (m, a, b) or min(_angles(at, (a, b, c))) < 1e-3:
                    continue
                row, shift = known.angle_row(a, c, b)
                left, right = known.angle_space.reduce(row)
                if not left and right.get(1, Fraction(0)) + shift == 90:
                    say = f"{m} halves the hypotenuse {a}{b} of {a}{c}{b}, so {c}{m} = {a}{m}"
                    add(_length_row((c, m, a, m)), {}, (fact,), say, angles=(row,))
    triples = list(itertools.combinations(names, 3))
    lines, triangles = [], []
    for t in triples:
        if known.parallel(edge(t[0], t[1]), edge(t[0], t[2])):
            lines.append(t)
        elif min(_angles(at, t)) > 1e-3:
            triangles.append(t)
    forms = {t: _forms(known, t) for t in triangles}
    _isosceles(known, triangles, forms, add)
    _similar(known, triangles, forms, add)
    for _ in range(ROUNDS):
        new = False
        for t in triangles:
            new |= _triangle_rules(known, t, forms[t], add, seen)
        for t in lines:
            new |= _line_rules(known, t, add, seen)
        if not new:
            break


def _angles(at: Coordinates, t: tuple[str, ...]) -> tuple[float, float, float]:
    a, b, c = (at[name] for name in t)
    return angle(b, a, c), angle(a, b, c), angle(a, c, b)


def _forms(known: Deduction, t: tuple[str, str, str]) -> list[tuple[Any, Row]]:
    """Of each angle of a triangle: its canonical form modulo what is known, and its row."""
    found = []
    for b, a, c in ((t[1], t[0], t[2]), (t[0], t[1], t[2]), (t[0], t[2], t[1])):
        row, shift = known.angle_row(b, a, c)
        left, right = known.angle_space.reduce(row)
        found.append(((tuple(sorted(left.items())), right.get(1, Fraction(0)) + shift), row))
    return found


def _difference(p: Row, q: Row) -> Row:
    return combined([p, q], [ONE, -ONE])


def _isosceles(known: Deduction, triangles: list[Any], forms: Any, add: Any) -> None:
    for t in triangles:
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if forms[t][i][0] == forms[t][j][0]:
                k = 3 - i - j
                row = _length_row((t[k], t[i], t[k], t[j]))
                say = f"equal angles at {t[i]} and {t[j]}, so {t[k]}{t[i]} = {t[k]}{t[j]}"
                add(row, {}, (), say, angles=(_difference(forms[t][i][1], forms[t][j][1]),))


def _similar(known: Deduction, triangles: list[Any], forms: Any, add: Any) -> None:
    groups: dict[Any, list[Any]] = {}
    for t in triangles:
        order = sorted(range(3), key=lambda i, t=t: repr(forms[t][i][0]))
        groups.setdefault(tuple(forms[t][i][0] for i in order), []).append((*tuple(t[i] for i in order), t, order))
    for same in groups.values():
        first = same[0]
        for other in same[1:]:
            needs = tuple(
                _difference(forms[first[3]][first[4][i]][1], forms[other[3]][other[4][i]][1]) for i in range(2)
            )
            say = f"triangles {''.join(first[:3])} and {''.join(other[:3])} have equal angles, so they are similar"
            for i, j in ((0, 1), (0, 2)):
                k, m = (i, j), (j, 3 - i - j)
                row = _difference(
                    _length_row((first[k[0]], first[k[1]], other[k[0]], other[k[1]])),
                    _length_row((first[m[0]], first[m[1]], other[m[0]], other[m[1]])),
                )
                add(row, {}, (), say, angles=needs)


def _size(form: tuple[Any, Row]) -> Fraction | None:
    (left, value), _ = form
    return None if left else value


def _squared(known: Deduction, a: str, b: str) -> Fraction | None:
    left, right = known.length_space.reduce({edge(a, b): ONE})
    return None if left else logs.square(right)


def _triangle_rules(known: Deduction, t: tuple[str, str, str], forms: Any, add: Any, seen: set[Any]) -> bool:
    """The law of sines at angles with rational squared sines, and the law of cosines where it stays a root."""
    new = False
    sizes = [_size(form) for form in forms]
    sides = [(t[1], t[2]), (t[0], t[2]), (t[0], t[1])]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        key = ("sine", t, i, j)
        squares = [
            logs.SINES.get(int(min(s, 180 - s))) if s is not None and s.denominator == 1 else None
            for s in (sizes[i], sizes[j])
        ]
        if key in seen or None in squares:
            continue
        seen.add(key)
        right = logs.log(squares[0] / squares[1], Fraction(1, 2))
        say = f"law of sines in {''.join(t)}: {''.join(sides[i])}/{''.join(sides[j])} = sin {sizes[i]}°/sin {sizes[j]}°"
        new |= add(_length_row((*sides[i], *sides[j])), right, (), say, angles=(forms[i][1], forms[j][1]))
    for k in range(3):
        key, size = ("cosine", t, k), sizes[k]
        if key in seen or size not in (30, 45, 60, 90, 120, 135, 150):
            continue
        i, j = (n for n in range(3) if n != k)
        legs = [_squared(known, *sides[n]) for n in (i, j, k)]
        if sum(leg is not None for leg in legs) < 2:
            continue
        cosine2 = 1 - logs.SINES[int(min(size, 180 - size))]
        if legs[2] is not None and (size != 90 or None not in legs):
            continue  # the opposite side given: a quadratic, unless the angle is right
        seen.add(key)
        if legs[2] is None:
            product = logs.root(4 * legs[0] * legs[1] * cosine2)
            if product is None:
                continue
            value, unknown, from_ = legs[0] + legs[1] + (product if size > 90 else -product), k, (i, j)
        else:
            # A right angle, the hypotenuse and one leg are known: the other leg follows.
            unknown, other, leg = (i, j, legs[1]) if legs[0] is None else (j, i, legs[0])
            value, from_ = legs[2] - leg, (k, other)
        if value <= 0 or not logs.small(value):
            continue
        name = "Pythagoras" if size == 90 else "law of cosines"
        say = f"{name} in {''.join(t)}: {''.join(sides[unknown])}² = {value}"
        needs = tuple(_length_row(sides[n]) for n in from_)
        new |= add(
            _length_row(sides[unknown]), logs.log(value, Fraction(1, 2)), (), say, angles=(forms[k][1],), lengths=needs
        )
    return new


def _line_rules(known: Deduction, t: tuple[str, str, str], add: Any, seen: set[Any]) -> bool:
    """Parts of a segment add up, where their quotient is known and rational."""
    at, new = known.coords, False
    spans = {pair: distance(at[pair[0]], at[pair[1]]) for pair in itertools.combinations(t, 2)}
    a, c = max(spans, key=lambda pair: spans[pair])
    (b,) = set(t) - {a, c}
    along = {edge(a, b): ONE, edge(b, c): -ONE}
    for (p, q, r), sign in (((a, b, c), 1), ((a, c, b), -1), ((c, a, b), -1)):
        # p-q and q-r known: the third side is their sum (sign 1) or difference.
        left, right = known.length_space.reduce(_length_row((p, q, q, r)))
        key = ("line", t, p, q, r)
        if left or key in seen:
            continue
        quotient = logs.root(logs.square(right) or Fraction(-1))
        if quotient is None or quotient == 0:
            continue
        seen.add(key)
        third = abs(quotient + sign)
        if third == 0 or not logs.small(third):
            continue
        say = f"{a}{c} = {a}{b} + {b}{c}"
        new |= add(
            _length_row((p, r, q, r)), logs.log(third), (), say, angles=(along,), lengths=(_length_row((p, q, q, r)),)
        )
    return new
