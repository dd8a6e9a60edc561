"""matplotlib's SVG made fit to stand in a page: small, without ids of its own, in the page's colours and font.

Colours are drawn as marks (``INK`` …) and become classes here, so that the page's style decides what they look like in
light, dark and print. Markers become symbols that the whole page shares.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, MUTED, RULE, METHOD, SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE, PAPER, REGION = (
    f"#0000{number:02x}" for number in range(1, 10)
)
_LETTERS = dict(zip((INK, MUTED, RULE, METHOD, SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE, PAPER, REGION), "imragbopn",
                    strict=True))  # fmt: skip

# Text stays text, no text is mathematics (a user's arm may be called $x_1), and no name depends on chance.
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "assay",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.size": 11.0,
}
_KEPT = ("stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "fill-opacity", "text-anchor", "font-weight",
         "font-size")  # fmt: skip
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_DRAWN = ("g", "path", "use", "text", "rect", "line")


def fit(text: str) -> str:
    """The text without the characters that no page and no drawing may hold."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def clean(text: str) -> str:
    """The same in one line."""
    return " ".join(fit(text).split())


@dataclass
class Symbols:
    """The markers of a page's plots; each stands in it once."""

    paths: dict[str, str] = field(default_factory=dict)

    def add(self, path: str) -> str:
        """Return the id of a marker."""
        name = "m" + hashlib.sha256(path.encode()).hexdigest()[:8]
        self.paths[name] = path.replace("<path", f'<path id="{name}"', 1)
        return name

    @property
    def markup(self) -> str:
        """An invisible drawing that holds them all."""
        paths = "".join(self.paths[name] for name in sorted(self.paths))
        return f'<svg class="symbols" width="0" height="0" aria-hidden="true"><defs>{paths}</defs></svg>'


@contextmanager
def style() -> Iterator[None]:
    """Draw inside this."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Text is laid out by the reader's browser, which has the glyphs that our font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many pixels."""
    figure = Figure(figsize=(width / 72, height / 72), dpi=72)
    FigureCanvasSVG(figure)
    return figure


def pieces(figure: Figure, symbols: Symbols) -> dict[str, str]:
    """The drawing in pieces: what bears each ``gid`` that begins with ``piece``, and under "" all the rest."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(out.getvalue())
    markers = {
        path.get("id", ""): symbols.add(_shape(path))
        for group in root.iter(f"{_NAMESPACE}defs")
        for path in group.findall(f"{_NAMESPACE}path")
    }
    found: dict[str, list[str]] = {"": []}
    found[""] = [text for child in root for text in _draw(child, markers, found)]
    return {name: "".join(parts) for name, parts in found.items()}


def picture(content: str, box: tuple[float, float, float, float], name: str, title: str, desc: str) -> str:
    """A drawing with its title and description; ``name`` is unique in the page."""
    title, desc = escape(clean(title)), escape(clean(desc))
    words = f'<title id="{name}-t">{title}</title><desc id="{name}-d">{desc}</desc>'
    return f'<svg class="plot" role="img" aria-labelledby="{name}-t {name}-d" {_box(box)}>{words}{content}</svg>'


def strip(content: str, box: tuple[float, float, float, float]) -> str:
    """A drawing of what stands beside it in words."""
    return f'<svg class="strip" aria-hidden="true" {_box(box)}>{content}</svg>'


def _box(box: tuple[float, float, float, float]) -> str:
    x, y, width, height = box
    return f'viewBox="{x:g} {y:g} {width:g} {height:g}" width="{width:g}" height="{height:g}"'


def _draw(element: ElementTree.Element, markers: dict[str, str], found: dict[str, list[str]]) -> Iterator[str]:
    tag = element.tag.removeprefix(_NAMESPACE)
    if tag not in _DRAWN:
        return
    if tag == "g":
        inner = [text for child in element for text in _draw(child, markers, found)]
        gid = element.get("id", "")
        if gid.startswith("piece"):
            found.setdefault(gid, []).extend(inner)
        else:
            yield from _grouped(inner)
    elif tag == "use":
        place = f'x="{_short(element.get("x"))}" y="{_short(element.get("y"))}"'
        name = markers[element.get(_HREF, "").removeprefix("#")]
        yield f'<use href="#{name}" {place}{_look(element)}/>'
    elif tag == "text":
        turn = element.get("transform", "")
        turned = f' transform="{_rounded(turn)}"' if turn and not turn.startswith("rotate(-0 ") else ""
        place = f'x="{_short(element.get("x"))}" y="{_short(element.get("y"))}"'
        yield f"<text {place}{turned}{_look(element)}>{escape(''.join(element.itertext()))}</text>"
    elif _look(element):
        yield _shape(element)


def _grouped(parts: list[str]) -> list[str]:
    """Markers in a row that look alike share what they look like."""
    looks = {re.sub(r'^<use href="#\w+" x="[^"]*" y="[^"]*"(.*)/>$', r"\1", part) for part in parts}
    if len(parts) < 3 or len(looks) != 1 or not all(part.startswith("<use") for part in parts):
        return parts
    look = looks.pop()
    return [f"<g{look}>", *(part.replace(look, "") if look else part for part in parts), "</g>"]


def _shape(element: ElementTree.Element) -> str:
    return f'<path d="{_rounded(element.get("d", ""))}"{_look(element)}/>'


def _look(element: ElementTree.Element) -> str:
    """The style of an element as classes and attributes; empty where nothing of it is seen."""
    said = dict(part.strip().split(": ", 1) for part in element.get("style", "").split(";") if ": " in part)
    classes = [f"{kind[0]}{_LETTERS[said[kind]]}" for kind in ("fill", "stroke") if said.get(kind) in _LETTERS]
    if said.get("fill") == "none":
        if "stroke" not in said:
            return ""
        classes.append("fx")
    kept = [f'{name}="{_rounded(said[name].removesuffix("px"))}"' for name in _KEPT if name in said]
    kept = [one for one in kept if one not in ('font-size="11"', 'stroke-linecap="butt"', 'text-anchor="start"')]
    look = ([f'class="{" ".join(classes)}"'] if classes else []) + kept
    return f" {' '.join(look)}" if look else ""


def _rounded(text: str) -> str:
    return re.sub(r"-?\d+\.\d+", lambda found: _short(found[0]), " ".join(text.split()))


def _short(number: str | None) -> str:
    return f"{round(float(number or 0), 1) + 0.0:g}"  # + 0.0: no −0
