"""A scene as an image, drawn from its data."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import InputError
from assay.parts.packages import need

from .layout import CHAR, strokes_of, texts
from .scene import Scene

if TYPE_CHECKING:
    from PIL.Image import Image

OVER = 3
"""Drawn this many times as large and then reduced, so that lines are smooth."""


@dataclass(frozen=True)
class Style:
    """How a drawing looks.

    Attributes
    ----------
    line
        Width of lines, in pixels of an image of 336 pixels.
    ink, paper
        Grey levels, 0 to 255.
    wobble
        How far lines stray, in pixels of an image of 336 pixels: 0 for ruler and compass, 1 for a steady hand.
    noise
        Standard deviation of the grey levels, as of a photograph.
    """

    line: float = 1.6
    ink: int = 0
    paper: int = 255
    wobble: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("line", 0.5, 6),
            ("ink", 0, 255),
            ("paper", 0, 255),
            ("wobble", 0, 3),
            ("noise", 0, 40),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InputError(f"style.{name} must be between {least} and {most}, got {value!r}")
        if abs(self.ink - self.paper) < 80:
            raise InputError(f"style.ink and style.paper must differ by at least 80, got {self.ink} and {self.paper}")


PLAIN = Style()


def drawn_style(seed: int) -> Style:
    """A style at random, the same for the same seed; every one stays legible."""
    rng = random.Random(f"geocode style {seed}")
    return Style(
        line=rng.uniform(1.0, 2.6), ink=rng.randint(0, 90), paper=rng.randint(215, 255), wobble=rng.choice((0, 0, 0.6)),
        noise=rng.choice((0, 0, 6)),
    )  # fmt: skip


def render(scene: Scene, size: int = 336, *, style: Style | None = None, seed: int | None = None) -> Image:
    """Draw a scene.

    Parameters
    ----------
    scene
        What to draw.
    size
        Width and height in pixels, 64 to 4096.
    style
        How it looks; by default black lines on white.
    seed
        Without a style, one is drawn at random from this seed; it also sets wobble and noise. The same seed gives the
        same image.

    Returns
    -------
    PIL.Image.Image
        Grey levels.

    Raises
    ------
    TypeError
        For what is no scene.
    InputError
        For another size, a style that is none and a seed that is no whole number.
    MissingPart
        Where Pillow is not installed.
    """
    if not isinstance(scene, Scene):
        raise TypeError(f"scene must be a Scene, got {type(scene).__name__}")
    if isinstance(size, bool) or not isinstance(size, int) or not 64 <= size <= 4096:
        raise InputError(f"size must be a whole number of pixels, 64 to 4096, got {size!r}")
    if style is not None and not isinstance(style, Style):
        raise InputError(f"style must be a Style, got {style!r:.60}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise InputError(f"seed must be a whole number, got {seed!r}")
    style = style or (PLAIN if seed is None else drawn_style(seed))
    rng = np.random.default_rng([abs(seed or 0), int((seed or 0) < 0)])
    image, draw_module = need("PIL.Image", "drawing a figure"), need("PIL.ImageDraw", "drawing a figure")
    font_module = need("PIL.ImageFont", "drawing a figure")
    full = size * OVER
    canvas = image.new("L", (full, full), style.paper)
    draw = draw_module.Draw(canvas)
    width = max(1, round(style.line * full / 336))
    light = style.ink + round(0.24 * (style.paper - style.ink))

    def p(x: float, y: float) -> tuple[float, float]:
        return x * full, (1 - y) * full

    def line(xs: Any, ys: Any, fill: int, wide: int) -> None:
        at = [p(x, y) for x, y in zip(xs, ys, strict=True)]
        draw.line(_strayed(at, style.wobble * full / 336, rng) if style.wobble else at, fill=fill, width=wide)

    for a, b in scene.segments:
        line(*zip(scene.points[a], scene.points[b], strict=True), fill=style.ink, wide=width)
    for x, y, r in scene.circles:
        (left, top), (right, bottom) = p(x - r, y + r), p(x + r, y - r)
        draw.ellipse([left, top, right, bottom], outline=style.ink, width=width)
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            line(xs, ys, light, max(1, round(0.7 * width)))
    dot = 0.008 * full
    for x, y in scene.points.values():
        cx, cy = p(x, y)
        draw.ellipse([cx - dot, cy - dot, cx + dot, cy + dot], fill=style.ink)
    font = font_module.load_default(size=round(CHAR[1] * 1.15 * full))
    for text in texts(scene):
        draw.text(p(*text.at), text.text, fill=style.ink, font=font, anchor="mm")
    small = canvas.resize((size, size), image.Resampling.LANCZOS)
    if not style.noise:
        return small
    grey = np.asarray(small, dtype=float) + rng.normal(0, style.noise, (size, size))
    return image.fromarray(np.clip(grey, 0, 255).astype(np.uint8))


def _strayed(at: list[tuple[float, float]], far: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """A line drawn by hand: its ends stay, and what lies between leaves it by a smooth bend."""
    if len(at) != 2:
        return at
    (x0, y0), (x1, y1) = at
    length = math.hypot(x1 - x0, y1 - y0) or 1.0
    t = np.linspace(0, 1, 25)
    off = far * (rng.normal() * np.sin(math.pi * t) + 0.5 * rng.normal() * np.sin(2 * math.pi * t))
    off = np.clip(off, -2 * far, 2 * far)
    return list(
        zip(x0 + t * (x1 - x0) - off * (y1 - y0) / length, y0 + t * (y1 - y0) + off * (x1 - x0) / length, strict=True)
    )
