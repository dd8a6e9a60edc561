"""Triangles for the small learner: two angles are marked, x stands at the third, and no text says anything of it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from assay.errors import InputError
from assay.parts.packages import need

from .scene import Mark, Scene

BINS = 24
"""Into how many columns and rows the page is divided for the coordinates in the code."""

STEP = 5
NUMBERS = tuple(range(STEP, 180, STEP))
"""The angles that can be said, in degrees."""

QUESTIONS = ("x", "exterior")
"""What can be asked: the third angle, or the exterior angle there."""

UNKNOWN = -1
"""Stands among the marks where the drawing says x."""

PAGE = 96
DIGITS = 15
"""Pixels of an image and of the height of its digits, unless told otherwise; other sizes keep the proportion."""


@dataclass(frozen=True)
class AlignItems:
    """Drawings with what they show and what is asked of them.

    Attributes
    ----------
    images
        [items, height, width] grey levels, black on white.
    questions
        [items] 0 asks for the third angle, 1 for the exterior angle there.
    corners
        [items, 3, 2] column and row of each corner on a grid of 24 × 24, from left to right, then from below.
    marks
        [items, 3] what is written at each corner: degrees, or -1 for x.
    answers
        [items] degrees.
    """

    images: UInt8[np.ndarray, "items height width"]
    questions: Int[np.ndarray, " items"]
    corners: Int[np.ndarray, "items 3 2"]
    marks: Int[np.ndarray, "items 3"]
    answers: Int[np.ndarray, " items"]

    def __post_init__(self) -> None:
        for name, shape in (("images", 3), ("questions", 1), ("corners", 3), ("marks", 2), ("answers", 1)):
            value = np.asarray(getattr(self, name))
            if value.ndim != shape or value.dtype.kind not in "iu":
                raise InputError(f"{name} must be an array of whole numbers with {shape} axes, got {_form(value)}")
            object.__setattr__(self, name, value)
        n = len(self.images)
        if n == 0:
            raise InputError("images must hold at least one item")
        for name in ("questions", "corners", "marks", "answers"):
            if len(getattr(self, name)) != n:
                raise InputError(f"{name} must have a row for each of {n} images, got {len(getattr(self, name))}")
        if self.images.dtype != np.uint8 or min(self.images.shape[1:]) < 16:
            raise InputError(f"images must be bytes of at least 16 × 16 pixels, got {_form(self.images)}")
        if self.corners.shape[1:] != (3, 2) or self.marks.shape[1:] != (3,):
            raise InputError(
                f"corners and marks must be three an item, got {_form(self.corners)} and {_form(self.marks)}"
            )
        _within("questions", self.questions, tuple(range(len(QUESTIONS))))
        _within("corners", self.corners, tuple(range(BINS)))
        _within("marks", self.marks, (*NUMBERS, UNKNOWN))
        _within("answers", self.answers, NUMBERS)
        if not ((self.marks == UNKNOWN).sum(axis=1) == 1).all():
            raise InputError("marks must say x (-1) at exactly one corner of each item")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any) -> AlignItems:
        """The items of a slice or of row numbers."""
        if isinstance(rows, int | np.integer):
            raise TypeError("items are taken by a slice or by an array of row numbers")
        return AlignItems(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def _form(value: Any) -> str:
    return f"{value.dtype} of shape {value.shape}"


def _within(name: str, value: Any, allowed: tuple[int, ...]) -> None:
    if not np.isin(value, allowed).all():
        wrong = value[~np.isin(value, allowed)].flat[0]
        raise InputError(f"{name} must be among {allowed[0]}, {allowed[1]}, … {allowed[-1]}; got {wrong}")


def align_items(n: int, *, seed: int = 0, size: int = PAGE) -> AlignItems:
    """Draw triangles to scale, the longest side below, with two angles marked and x at the third.

    Parameters
    ----------
    n
        How many; every other one asks for the exterior angle.
    seed
        The same seed gives the same items.
    size
        Pixels of an image, 32 to 512; digits are 15 pixels high at 96.

    Returns
    -------
    AlignItems
        Angles are multiples of 5°, each at least 20°.

    Raises
    ------
    InputError
        For sizes out of range.
    MissingPart
        Where Pillow is not installed.

    Examples
    --------
    >>> items = align_items(4, seed=1)
    >>> items.images.shape, bool((items.marks[0] == -1).sum() == 1)
    ((4, 96, 96), True)
    """
    for name, value, least, most in (("n", n, 1, 10_000_000), ("size", size, 32, 512), ("seed", seed, 0, 2**63)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
            raise InputError(f"{name} must be a whole number between {least} and {most}, got {value!r}")
    rng = random.Random(f"align {seed}")
    images = np.empty((n, size, size), dtype=np.uint8)
    corners, marks = np.empty((n, 3, 2), dtype=np.int64), np.empty((n, 3), dtype=np.int64)
    questions, answers = np.arange(n) % 2, np.empty(n, dtype=np.int64)
    for i in range(n):
        drawn = None
        while drawn is None:
            angles, points = _triangle(rng)
            unknown = rng.randrange(3)
            drawn = _drawn(points, angles, unknown, size)
        order = sorted(range(3), key=lambda k, points=points: points[k])
        images[i] = drawn
        corners[i] = [[min(BINS - 1, int(v * BINS)) for v in points[k]] for k in order]
        marks[i] = [UNKNOWN if k == unknown else angles[k] for k in order]
        answers[i] = 180 - angles[unknown] if questions[i] else angles[unknown]
    return AlignItems(images, questions, corners, marks, answers)


def _triangle(rng: random.Random) -> tuple[tuple[int, int, int], list[tuple[float, float]]]:
    """Three angles, and corners on a page of 1 × 1: the longest side below, tilted a little."""
    while True:
        a, b = (STEP * rng.randint(4, 18) for _ in range(2))
        if max(a, b) <= 180 - a - b <= 140:
            break
    angles = (a, b, 180 - a - b)
    reach = math.sin(math.radians(b)) / math.sin(math.radians(angles[2]))
    turn = math.radians(rng.uniform(-15, 15))
    flat = [(0.0, 0.0), (1.0, 0.0), (reach * math.cos(math.radians(a)), reach * math.sin(math.radians(a)))]
    c, s = math.cos(turn), math.sin(turn)
    turned = [(c * x - s * y, s * x + c * y) for x, y in flat]
    low = [min(p[k] for p in turned) for k in (0, 1)]
    span = [max(p[k] for p in turned) - low[k] for k in (0, 1)]
    scale = rng.uniform(0.75, 0.86) / max(span)
    shift = [rng.uniform(0.06, 0.94 - scale * span[k]) for k in (0, 1)]
    return angles, [(shift[0] + scale * (x - low[0]), shift[1] + scale * (y - low[1])) for x, y in turned]


def _drawn(points: list[tuple[float, float]], angles: tuple[int, ...], unknown: int, size: int) -> Any:
    """The image; None where two texts touch or one runs off the page."""
    image, draw_module = need("PIL.Image", "drawing a figure"), need("PIL.ImageDraw", "drawing a figure")
    full, unit = 2 * size, 2 * size / PAGE
    at = [(x * full, (1 - y) * full) for x, y in points]
    placed: list[tuple[str, float, float, float]] = []
    for k in range(3):
        (x, y), (p, q) = at[k], (at[(k + 1) % 3], at[(k + 2) % 3])
        u, v = ((e[0] - x, e[1] - y) for e in (p, q))
        u, v = ((e[0] / math.hypot(*e), e[1] / math.hypot(*e)) for e in (u, v))
        along = (u[0] + v[0], u[1] + v[1])
        length = math.hypot(*along)
        # Deep enough between the sides that the text fits, but not so deep that it leaves its corner.
        r = unit * min(9 / math.sin(math.radians(angles[k] / 2)), 27)
        text = "x" if k == unknown else str(angles[k])
        cx, cy, half = x + r * along[0] / length, y + r * along[1] / length, unit * (0.28 * DIGITS * len(text) + 0.5)
        if not half < cx < full - half:
            return None
        for _, ox, oy, other in placed:
            if abs(ox - cx) < half + other and abs(oy - cy) < 0.8 * DIGITS * unit:
                return None
        placed.append((text, cx, cy, half))
    canvas = image.new("L", (full, full), 255)
    draw = draw_module.Draw(canvas)
    draw.line([*at, at[0]], fill=0, width=max(1, round(1.2 * unit)), joint="curve")
    font = _font(round(DIGITS * unit))
    for text, cx, cy, _ in placed:
        draw.text((cx, cy), text, fill=0, font=font, anchor="mm", stroke_width=round(unit), stroke_fill=255)
    return np.asarray(canvas.resize((size, size), image.Resampling.BOX))


@lru_cache(maxsize=8)
def _font(size: int) -> Any:
    return need("PIL.ImageFont", "drawing a figure").load_default(size=size)


def scene_of_code(corners: Any, marks: Any) -> Scene | None:
    """The drawing that a learner's code says; None where two corners fall together.

    Parameters
    ----------
    corners
        [3, 2] columns and rows.
    marks
        [3] degrees, -1 for x, or 0 for nothing.
    """
    places = [tuple(round((int(v) + 0.5) / BINS, 3) for v in corner) for corner in corners]
    if len(set(places)) < 3:
        return None
    names = ("A", "B", "C")
    written = []
    for k, value in enumerate(int(mark) for mark in marks):
        arms = (names[(k + 1) % 3], names[k], names[(k + 2) % 3])
        if value == UNKNOWN:
            written.append(Mark("unknown", arms, "x"))
        elif value > 0:
            written.append(Mark("angle", arms, f"{value}°"))
    points: dict[str, Any] = dict(zip(names, places, strict=True))
    return Scene(points, (("A", "B"), ("A", "C"), ("B", "C")), (), tuple(written))
