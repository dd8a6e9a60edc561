"""Read drawing code back as a scene: JSON, matplotlib and SVG. Code is parsed, never executed."""

from __future__ import annotations

import ast
import itertools
import re
from typing import Any
from xml.etree import ElementTree

from .figure import Point
from .measure import distance
from .scene import MARKS, Mark, ParseError, Scene

LONGEST = 100_000
"""Longer code than this is refused."""

NEAR = 0.0015
"""Ends of lines that are this close to a point of the page are that point."""

NOTHING = {"set_xlim", "set_ylim", "set_aspect", "axis", "set_title", "grid"}
"""Calls of ``ax`` that may stand there and draw nothing that counts."""

IMPORT = "import matplotlib.pyplot as plt"


def read_code(text: str) -> Scene:
    """Read drawing code.

    Parameters
    ----------
    text
        JSON as :meth:`Scene.to_json` writes it, a script for matplotlib or SVG; a fence of Markdown around it is
        allowed. Of a script only plain calls of ``ax`` with literal arguments are understood. Where lines carry no
        ``gid``, their ends become points, and single letters of the script name the point nearest to them.

    Returns
    -------
    Scene
        What it draws.

    Raises
    ------
    ParseError
        For anything else: other calls, imports, loops, names, numbers that are not finite, entities in SVG. Nothing of
        the text is executed.

    Examples
    --------
    >>> read_code('{"points":{"A":[0,0],"B":[1,0]},"segments":[["A","B"]],"circles":[],"marks":[]}').segments
    (('A', 'B'),)
    """
    if not isinstance(text, str):
        raise ParseError(f"code must be a text, got {type(text).__name__}")
    if len(text) > LONGEST:
        raise ParseError(f"code must have at most {LONGEST} characters, got {len(text)}")
    fence = re.search(r"```[a-z]*\n(.*?)```", text, re.S)
    code = (fence.group(1) if fence else text).strip()
    if not code:
        raise ParseError("code must not be empty")
    if code.startswith("{"):
        return Scene.from_json(code)
    if code.startswith("<"):
        return _svg(code)
    return _matplotlib(code)


class _Drawing:
    """What has been read so far, before lines without names find their points."""

    def __init__(self) -> None:
        self.points: dict[str, Point] = {}
        self.segments: list[tuple[str, str]] = []
        self.bare: list[tuple[Point, Point]] = []
        self.dots: list[Point] = []
        self.letters: list[tuple[str, Point]] = []
        self.circles: list[tuple[float, float, float]] = []
        self.marks: dict[tuple[str, tuple[str, ...]], str] = {}

    def line(self, xs: list[float], ys: list[float], of: str) -> None:
        """A dot, a segment or a stroke of a mark, by what it says it is."""
        if len(xs) != len(ys) or not xs:
            raise ParseError(f"a line needs as many x as y, got {len(xs)} and {len(ys)}")
        kind, names = self._of(of)
        at = list(zip(xs, ys, strict=True))
        if kind == "point" and len(names) == 1 and len(at) == 1:
            self.points[names[0]] = at[0]
        elif kind == "segment" and len(names) == 2 and len(at) == 2:
            self._named_ends(names, at)
            self.segments.append((names[0], names[1]))
        elif kind == "equal" and len(names) == MARKS[kind] + 1:
            self.marks[kind, names[:-1]] = names[-1]  # how many ticks
        elif kind in MARKS:
            self.marks.setdefault((kind, names), "")
        elif kind:
            raise ParseError(f"a line says it is {of!r:.60}, and draws {len(at)} points")
        elif len(at) == 1:
            self.dots.append(at[0])
        else:
            self.bare += list(itertools.pairwise(at))

    def text(self, at: Point, says: str, of: str) -> None:
        """The letter of a point or the text of a mark."""
        kind, names = self._of(of)
        if kind in MARKS:
            self.marks[kind, names] = says
        elif kind not in ("", "label"):
            raise ParseError(f"a text says it is {of!r:.60}")
        elif not kind and re.fullmatch(r"\$?[A-Z][0-9']?\$?", says):
            self.letters.append((says.strip("$").replace("'", "1"), at))

    def _of(self, of: str) -> tuple[str, tuple[str, ...]]:
        kind, *names = of.split() or [""]
        return kind, tuple(names)

    def _named_ends(self, names: tuple[str, ...], at: list[Point]) -> None:
        for name, place in zip(names, at, strict=True):
            there = self.points.setdefault(name, place)
            if distance(there, place) > NEAR:
                raise ParseError(f"{name} is drawn at two places: {there} and {place}")

    def scene(self) -> Scene:
        """Give bare lines and dots their points and finish."""

        def name_of(place: Point) -> str:
            for name, there in self.points.items():
                if distance(there, place) <= NEAR:
                    return name
            new = f"P{len(self.points)}"
            self.points[new] = place
            return new

        for place in self.dots:
            name_of(place)
        for a, b in self.bare:
            if distance(a, b) > NEAR:
                self.segments.append((name_of(a), name_of(b)))
        for letter, place in self.letters:
            unnamed = [name for name in self.points if re.fullmatch(r"P\d+", name)]
            if unnamed and letter not in self.points:
                near = min(unnamed, key=lambda name: distance(self.points[name], place))
                self._rename(near, letter)
        marks = tuple(Mark(kind, names, says) for (kind, names), says in self.marks.items())
        return Scene(self.points, tuple(self.segments), tuple(self.circles), marks)

    def _rename(self, old: str, new: str) -> None:
        self.points = {new if name == old else name: at for name, at in self.points.items()}
        self.segments = [(new if a == old else a, new if b == old else b) for a, b in self.segments]


def _matplotlib(code: str) -> Scene:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"the code is neither JSON, SVG nor Python: {str(error)[:100]}") from None
    drawing = _Drawing()
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            if ast.unparse(statement) != IMPORT:
                raise ParseError(f"line {statement.lineno}: the only import that is read is '{IMPORT}'")
        elif isinstance(statement, ast.Assign):
            if not re.fullmatch(r"\(?fig, ax\)? = plt\.subplots\(.*\)", ast.unparse(statement)):
                raise ParseError(
                    f"line {statement.lineno}: the only assignment that is read is 'fig, ax = plt.subplots()'"
                )
            _arguments(statement.value)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            _call(statement.value, drawing)
        else:
            raise ParseError(f"line {statement.lineno}: {type(statement).__name__} is not read, only calls of ax")
    return drawing.scene()


def _call(call: ast.Call, drawing: _Drawing) -> None:
    name, line = _called(call), f"line {call.lineno}"
    if name == "plt.show":
        _arguments(call)
        return
    if name == "ax.add_patch":
        if (
            len(call.args) != 1
            or call.keywords
            or not isinstance(call.args[0], ast.Call)
            or _called(call.args[0]) != "plt.Circle"
        ):
            raise ParseError(f"{line}: ax.add_patch is read with plt.Circle alone")
        args, named = _arguments(call.args[0])
        centre = _floats(args[0] if args else named.get("xy"), line)
        (radius,) = _floats([args[1] if len(args) > 1 else named.get("radius")], line)
        if len(centre) != 2:
            raise ParseError(f"{line}: a centre must be two numbers, got {centre}")
        drawing.circles.append((centre[0], centre[1], radius))
        return
    args, named = _arguments(call)
    of = named.get("gid", "")
    if not isinstance(of, str):
        raise ParseError(f"{line}: gid must be a text, got {of!r:.40}")
    if name == "ax.plot":
        if len(args) < 2:
            raise ParseError(f"{line}: ax.plot needs x and y")
        drawing.line(_floats(args[0], line), _floats(args[1], line), of)
    elif name == "ax.text":
        if len(args) < 3 or not isinstance(args[2], str):
            raise ParseError(f"{line}: ax.text needs x, y and a text")
        x, y = _floats([args[0], args[1]], line)
        drawing.text((x, y), args[2], of)
    elif name.removeprefix("ax.") not in NOTHING or not name.startswith("ax."):
        raise ParseError(f"{line}: the call {name!r:.60} is not read")


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    raise ParseError(f"line {call.lineno}: only calls of ax and plt are read")


def _arguments(call: ast.expr) -> tuple[list[Any], dict[str, Any]]:
    if not isinstance(call, ast.Call) or any(keyword.arg is None for keyword in call.keywords):
        raise ParseError(f"line {call.lineno}: only plain calls are read")
    return [_literal(arg) for arg in call.args], {str(k.arg): _literal(k.value) for k in call.keywords}


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool | None):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _literal(node.operand)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
    raise ParseError(f"line {node.lineno}: arguments must be plain numbers, texts and lists")


def _floats(values: Any, where: str) -> list[float]:
    if not isinstance(values, list):
        raise ParseError(f"{where}: a list of numbers is needed, got {values!r:.40}")
    for value in values:
        # Also refuses nan, which compares false, and numbers such as 1e999.
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 100:
            raise ParseError(f"{where}: numbers must be finite and on the page, got {value!r:.40}")
    return [float(value) for value in values]


def _svg(code: str) -> Scene:
    if "<!" in code:
        raise ParseError("SVG with a document type, entities or comments is not read")
    try:
        root = ElementTree.fromstring(code)
    except ElementTree.ParseError as error:
        raise ParseError(f"the code is no SVG: {error}") from None
    drawing = _Drawing()
    for item in root.iter():
        tag, of = item.tag.rsplit("}", 1)[-1], item.get("data-of", "")
        if tag in ("svg", "g", "rect", "title"):
            continue
        if tag == "line":
            x0, y0, x1, y1 = (_attribute(item, key) for key in ("x1", "y1", "x2", "y2"))
            drawing.line([x0 / 1000, x1 / 1000], [1 - y0 / 1000, 1 - y1 / 1000], of)
        elif tag == "polyline":
            numbers = re.findall(r"-?\d+(?:\.\d+)?", item.get("points", ""))
            values = _floats([float(n) / 1000 for n in numbers], "polyline")
            if len(values) % 2 or not values:
                raise ParseError("polyline: points must be pairs of numbers")
            drawing.line(values[::2], [1 - y for y in values[1::2]], of)
        elif tag == "circle":
            x, y, r = (_attribute(item, key) / 1000 for key in ("cx", "cy", "r"))
            if of or r <= 0.01:
                drawing.line([x], [1 - y], of)
            else:
                drawing.circles.append((x, 1 - y, r))
        elif tag == "text":
            x, y = _attribute(item, "x") / 1000, 1 - _attribute(item, "y") / 1000
            drawing.text((x, y), item.text or "", of)
        else:
            raise ParseError(f"the element {tag!r:.40} is not read")
    return drawing.scene()


def _attribute(item: ElementTree.Element, key: str) -> float:
    try:
        value = float(item.get(key, ""))
    except ValueError:
        raise ParseError(f"{item.tag.rsplit('}', 1)[-1]}: {key} must be a number, got {item.get(key)!r:.40}") from None
    if not abs(value) <= 100_000:
        raise ParseError(f"{key} must be finite and on the page, got {value}")
    return value
