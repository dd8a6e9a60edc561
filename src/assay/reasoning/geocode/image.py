"""A scene as an image, drawn from its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import InputError
from assay.parts.packages import need

from .layout import CHAR, texts
from .scene import Scene
from .write import strokes_of

if TYPE_CHECKING:
    from PIL.Image import Image

OVER = 3
"""Drawn this many times as large and then reduced, so that lines are smooth."""


def render(scene: Scene, size: int = 336, *, line: float = 1.6) -> Image:
    """Draw a scene.

    Parameters
    ----------
    scene
        What to draw.
    size
        Width and height in pixels, 64 to 4096.
    line
        Width of lines in pixels at 336 pixels.

    Returns
    -------
    PIL.Image.Image
        Grey levels, black on white.

    Raises
    ------
    InputError
        For another size.
    MissingPart
        Where Pillow is not installed.
    """
    if not isinstance(size, int) or not 64 <= size <= 4096:
        raise InputError(f"size must be a whole number of pixels, 64 to 4096, got {size!r}")
    image, draw_module = need("PIL.Image", "drawing a figure"), need("PIL.ImageDraw", "drawing a figure")
    font_module = need("PIL.ImageFont", "drawing a figure")
    full = size * OVER
    canvas = image.new("L", (full, full), 255)
    draw = draw_module.Draw(canvas)
    width = max(1, round(line * full / 336))

    def p(x: float, y: float) -> tuple[float, float]:
        return x * full, (1 - y) * full

    for a, b in scene.segments:
        draw.line([p(*scene.points[a]), p(*scene.points[b])], fill=0, width=width)
    for x, y, r in scene.circles:
        (left, top), (right, bottom) = p(x - r, y + r), p(x + r, y - r)
        draw.ellipse([left, top, right, bottom], outline=0, width=width)
    for mark in scene.marks:
        for xs, ys in strokes_of(scene, mark):
            draw.line([p(x, y) for x, y in zip(xs, ys, strict=True)], fill=60, width=max(1, round(0.7 * width)))
    dot = 0.008 * full
    for x, y in scene.points.values():
        cx, cy = p(x, y)
        draw.ellipse([cx - dot, cy - dot, cx + dot, cy + dot], fill=0)
    font = font_module.load_default(size=round(CHAR[1] * 1.15 * full))
    for text in texts(scene):
        draw.text(p(*text.at), text.text, fill=0, font=font, anchor="mm")
    return canvas.resize((size, size), image.Resampling.LANCZOS)
