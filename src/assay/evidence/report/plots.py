"""The plots of a report: intervals against their bars, every seed of every arm, quality against cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator
from matplotlib.transforms import offset_copy

from assay.evidence.report import svg
from assay.evidence.report.svg import INCONCLUSIVE, INK, METHOD, MUTED, NOT_SUPPORTED, PAPER, REGION, RULE, SUPPORTED
from assay.evidence.report.terminal import number
from assay.evidence.verdict import Outcome, Part, Verdict

# Role to marker, its size, and whether it is filled: told apart in black and white too.
ROLES: dict[str, tuple[str, float, bool]] = {
    "method": ("o", 6, True),
    "yours": ("*", 9, True),
    "baseline": ("s", 5, False),
    "trivial": ("v", 6, False),
    "ablation": ("D", 5, False),
    "ceiling": ("^", 6, False),
}
_OUTCOMES = {
    Outcome.SUPPORTED: ("o", 7.0, SUPPORTED, True),
    Outcome.NOT_SUPPORTED: ("s", 6.5, NOT_SUPPORTED, True),
    Outcome.INCONCLUSIVE: ("D", 6.0, INCONCLUSIVE, False),
    Outcome.UNTESTED: ("D", 6.0, MUTED, False),
}
STRIP, ROW, AXIS = 260, 28, 34  # pixels: the width of a strip, the height of a row and of the axis below
_WIDE_RANGE = 30.0  # from which ratio of largest to smallest on an axis is logarithmic


@dataclass(frozen=True)
class Strips:
    """A claim's part of a forest plot: one drawing for each part, and the axis below them."""

    rows: tuple[str, ...]
    axis: str


@dataclass(frozen=True)
class ArmPoints:
    """One arm's values of a metric on a task, seed by seed; ``kind`` is its role, or ``yours``."""

    name: str
    kind: str
    values: tuple[float, ...]
    seeds: int

    @property
    def label(self) -> str:
        """The name, and how many seeds are there if some are not."""
        count = len(self.values)
        return _cut(self.name, 18) + (f" ({count} of {self.seeds})" if count < self.seeds else "")


@dataclass(frozen=True)
class Scale:
    """From where to where an axis goes."""

    low: float
    high: float
    log: bool = False


def scales(tasks: Sequence[Sequence[ArmPoints]], falls: bool) -> list[Scale]:
    """The scales of one metric on several tasks: one for all where that leaves each task's points apart.

    Logarithmic only where lower is better (``falls``), which is where small differences near zero count.
    """
    values = [[value for p in points for value in p.values] for points in tasks]
    every = [value for one in values for value in one]
    log = falls and _is_wide(every)
    to, _ = _transform(log)
    spans = [to(max(one)) - to(min(one)) for one in values]
    together = bool(every) and min(spans) >= 0.2 * (to(max(every)) - to(min(every)))
    return [Scale(*_around(every if together else one, log), log) for one in values]


@dataclass(frozen=True)
class CostPoint:
    """One arm's mean cost and mean metric."""

    name: str
    kind: str
    cost: float
    quality: float


def forest(verdicts: Sequence[Verdict], symbols: svg.Symbols) -> list[Strips | None]:
    """For each claim its intervals against its bar, each claim on a scale of its own; ``None`` where it has none."""
    drawn = [(i, v) for i, v in enumerate(verdicts) if any(p.estimate is not None for p in v.parts)]
    strips: list[Strips | None] = [None] * len(verdicts)
    if not drawn:
        return strips
    heights = [len(v.parts) * ROW + AXIS for _, v in drawn]
    with svg.style():
        figure = svg.new_figure(STRIP, sum(heights))
        top = 0
        tops = []
        for (i, verdict), height in zip(drawn, heights, strict=True):
            tops.append(top)
            rows = len(verdict.parts) * ROW
            rect = (12 / STRIP, 1 - (top + rows) / sum(heights), 1 - 24 / STRIP, rows / sum(heights))
            axes = figure.add_axes(rect, gid=f"piece-{i}-axis")
            _forest_axes(axes, verdict, f"piece-{i}")
            top += height
        found = svg.pieces(figure, symbols)
    for (i, verdict), start in zip(drawn, tops, strict=True):
        rows_of = range(len(verdict.parts))
        strips[i] = Strips(
            rows=tuple(
                svg.strip(found.get(f"piece-{i}-row-{row}", ""), (0, start + row * ROW, STRIP, ROW)) for row in rows_of
            ),
            axis=svg.strip(found.get(f"piece-{i}-axis", ""), (0, start + len(verdict.parts) * ROW, STRIP, AXIS)),
        )
    return strips


def _forest_axes(axes: Axes, verdict: Verdict, name: str) -> None:
    low, high = _limits(verdict)
    _bare(axes, verdict.claim.ratio and low > 0, low, high, 3, scale_text(verdict))
    axes.set_ylim(len(verdict.parts), 0)
    left, right = true_region(verdict)
    for row, part in enumerate(verdict.parts):
        gid = f"{name}-row-{row}"
        shade = (max(left, low), min(right, high))
        if shade[0] < shade[1]:
            region = Rectangle((shade[0], row), shade[1] - shade[0], 1, fc=REGION, lw=0, clip_on=False, gid=gid)
            axes.add_artist(region)
        for bar in verdict.bar if isinstance(verdict.bar, tuple) else (verdict.bar,):
            _line(axes, [bar, bar], [row, row + 1], color=INK, lw=1, ls=(0, (3, 2)), gid=gid)
        _interval(axes, part, row + 0.5, low, high, gid)


def _interval(axes: Axes, part: Part, y: float, low: float, high: float, gid: str) -> None:
    if part.estimate is None:
        return
    marker, size, colour, filled = _OUTCOMES[part.outcome]
    if part.low is not None and part.high is not None:
        ends = [min(max(end, low), high) for end in (part.low, part.high)]
        _line(axes, ends, [y, y], color=colour, lw=2, solid_capstyle="butt", gid=gid)
        # An arrow where the interval goes on beyond the scale.
        for end, shown, arrow in zip((part.low, part.high), ends, "<>", strict=True):
            mark, length = (arrow, 6) if end != shown else ("|", 8)
            _line(axes, [shown], [y], mark, ms=length, mfc=colour, mec=colour, mew=1.5, gid=gid)
    at = min(max(part.estimate, low), high)
    _line(axes, [at], [y], marker, ms=size, mfc=colour if filled else PAPER, mec=colour, mew=1.5, gid=gid)


def _limits(verdict: Verdict) -> tuple[float, float]:
    """From where to where the scale goes: all estimates, the bar, and intervals as far as they do not crush these."""
    if verdict.claim.form == "holds":
        return -0.05, 1.05
    to, back = _transform(verdict.claim.ratio)
    bars = verdict.bar if isinstance(verdict.bar, tuple) else (verdict.bar,)
    core = [to(x) for x in (*bars, *(p.estimate for p in verdict.parts if p.estimate is not None))]
    ends = [to(end) for p in verdict.parts for end in (p.low, p.high) if end is not None]
    low, high = min(core), max(core)
    narrow = sorted(abs(p.high - p.low) for p in verdict.parts if p.low is not None and p.high is not None)
    room = 3 * max(high - low, 0.0) or (narrow[len(narrow) // 2] if narrow else 0.0) or abs(high) or 1.0
    low, high = max(min([low, *ends]), low - room), min(max([high, *ends]), high + room)
    pad = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
    return back(low - pad), back(high + pad)


def _transform(ratio: bool) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Ratios are compared in logarithms; one of nothing stands at the scale's end."""
    return (lambda x: math.log(max(x, 1e-9)), math.exp) if ratio else (float, float)


def true_region(verdict: Verdict) -> tuple[float, float]:
    """Where the claim is true, from and to, in the verdict's unit."""
    claim, bar = verdict.claim, verdict.bar
    if isinstance(bar, tuple):
        return bar
    if claim.form == "holds":
        return 1.0, math.inf
    above = claim.form in ("higher", "not_lower", "at_least") or (claim.form == "rate" and not claim.upper)
    return (bar, math.inf) if above else (-math.inf, bar)


def scale_text(verdict: Verdict) -> str:
    """What a claim's scale shows."""
    claim = verdict.claim
    match claim.form:
        case _ if claim.ratio:
            text = f"{claim.metric}, ratio"
        case "lower" | "higher" | "not_lower" | "not_higher" | "within":
            text = f"{claim.metric}, difference"
        case "spread":
            text = f"{claim.metric}, range over tasks"
        case "rate":
            text = f"{claim.metric}, rate"
        case "slope":
            text = f"{claim.metric}, slope on {claim.on}"
        case "holds":
            text = f"{claim.metric}, share of cells"
        case _:
            text = claim.metric
    return _cut(text, 42)


def arms(
    points: Sequence[ArmPoints], scale: Scale, label: str, symbols: svg.Symbols, name: str, title: str, desc: str
) -> str:
    """Every seed of every arm on one task, the mean as an upright line."""
    names = [p.label for p in points]
    left = 16 + 7.2 * max(map(len, names))
    width, rows = 340, len(points) * 22
    height = rows + 48
    log, low, high = scale.log, scale.low, scale.high
    with svg.style():
        figure = svg.new_figure(width, height)
        axes = figure.add_axes((left / width, 42 / height, 1 - (left + 14) / width, rows / height))
        _bare(axes, log, low, high, 4, f"{label}{', log scale' if log else ''}")
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.hlines(range(len(points)), low, high, color=RULE, lw=0.8, clip_on=False)
        for row, (point, shown) in enumerate(zip(points, names, strict=True)):
            mine = point.kind in ("method", "yours")
            axes.annotate(
                shown, (0, row), (-8, 0), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
                va="center_baseline", color=METHOD if mine else INK, weight="bold" if mine else "normal",
            )  # fmt: skip
            _seeds(axes, point, row)
        content = svg.pieces(figure, symbols)[""]
    return svg.picture(content, (0, 0, width, height), name, title, desc)


def _seeds(axes: Axes, point: ArmPoints, row: int) -> None:
    """The seeds one below the other in their order, so that none hides another."""
    count = len(point.values)
    if not count:
        return
    ys = [row + (0.0 if count == 1 else 0.56 * (i / (count - 1) - 0.5)) for i in range(count)]
    mean = fmean(point.values)
    marker, size, filled = ROLES.get(point.kind, ROLES["baseline"])
    colour = METHOD if point.kind in ("method", "yours") else INK
    _line(axes, point.values, ys, marker, ms=size * 0.8, mfc=colour if filled else "none", mec=colour, mew=0.9)
    _line(axes, [mean, mean], [row - 0.42, row + 0.42], color=colour, lw=2, solid_capstyle="butt")


def cost(points: Sequence[CostPoint], x_label: str, y_label: str, symbols: svg.Symbols, name: str, title: str,
         desc: str) -> str:  # fmt: skip
    """Each arm's mean metric against its mean cost."""
    width, height, left, bottom = 340, 250, 46, 42
    costs, qualities = [p.cost for p in points], [p.quality for p in points]
    log = _is_wide(costs, 8.0)
    log_y = _is_wide(qualities)
    with svg.style():
        figure = svg.new_figure(width, height)
        axes = figure.add_axes((left / width, bottom / height, 1 - (left + 14) / width, 1 - (bottom + 26) / height))
        low, high = _around(costs, log)
        _bare(axes, log, low, high, 4, f"{x_label}{', log scale' if log else ''}")
        bottom_y, top_y = _around(qualities, log_y)
        if log_y:
            axes.set_yscale("log")
        axes.set_ylim(bottom_y, top_y)
        heights = _ticks(bottom_y, top_y, log_y, 5)
        axes.hlines(heights, low, high, color=RULE, lw=0.8, clip_on=False)
        beside = offset_copy(axes.get_yaxis_transform(), figure, -6, 0, units="dots")
        for at in heights:
            axes.text(0, at, _number(at), color=MUTED, ha="right", va="center", transform=beside)
        above = offset_copy(axes.transAxes, figure, -left + 10, 10, units="dots")
        axes.text(0, 1, _cut(f"{y_label}{', log scale' if log_y else ''}", 52), color=MUTED, transform=above)
        for point in points:
            marker, size, filled = ROLES.get(point.kind, ROLES["baseline"])
            colour = METHOD if point.kind in ("method", "yours") else INK
            _line(
                axes,
                [point.cost],
                [point.quality],
                marker,
                ms=size * 1.2,
                mfc=colour if filled else PAPER,
                mec=colour,
                mew=1.2,
            )
        _name_points(axes, points)
        content = svg.pieces(figure, symbols)[""]
    return svg.picture(content, (0, 0, width, height), name, title, desc)


def _name_points(axes: Axes, points: Sequence[CostPoint]) -> None:
    """Write each arm's name beside its point, on the side that has room, and below the names that are there."""
    box = axes.get_window_extent()
    taken: list[tuple[float, float, float, float]] = []
    places = [axes.transData.transform((p.cost, p.quality)) for p in points]
    taken += [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    for point, (x, y) in sorted(zip(points, places, strict=True), key=lambda both: -both[1][1]):
        text = _cut(point.name, 18)
        mine = point.kind in ("method", "yours")
        length = (7.0 if mine else 6.3) * len(text)
        heights = sorted((12.0 * step for step in range(-9, 10)), key=abs)
        sides = [(dx, dy) for dy in heights for dx in (9.0, -9.0 - length)]
        for dx, dy in sides:
            spot = (x + dx, y + dy - 6, x + dx + length, y + dy + 6)
            inside = box.x0 - 4 <= spot[0] and spot[2] <= box.x1 + 12 and box.y0 < spot[1] and spot[3] < box.y1 + 12
            if inside and not any(_overlap(spot, other) for other in taken):
                break
        else:
            dx, dy = sides[0] if x + length < box.x1 else sides[1]
            spot = (x + dx, y + dy - 6, x + dx + length, y + dy + 6)
        taken.append(spot)
        if abs(dy) > 12:  # too far to be read as its name without a line
            axes.annotate(
                "", (point.cost, point.quality), (dx + (length if dx < 0 else 0), dy), textcoords="offset pixels",
                arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.6, "shrinkA": 1, "shrinkB": 4},
                annotation_clip=False,
            )  # fmt: skip
        axes.annotate(
            text, (point.cost, point.quality), (dx, dy), textcoords="offset pixels", va="center",
            color=METHOD if mine else INK, weight="bold" if mine else "normal", annotation_clip=False,
        )  # fmt: skip


def _line(axes: Axes, xs: Sequence[float], ys: Sequence[float], marker: Any = "", **look: Any) -> None:
    """Draw a line, or with a ``marker`` points; unlike ``axes.plot`` without a thought for the axes' limits."""
    axes.add_artist(Line2D(xs, ys, marker=marker, clip_on=False, **({"ls": "" if marker else "-"} | look)))


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _bare(axes: Axes, log: bool, low: float, high: float, ticks: int, label: str) -> None:
    """Axes with nothing but a scale below.

    Drawn as a line with marks and texts: hundreds of matplotlib's own axes take far longer.
    """
    axes.set_axis_off()
    if log:
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    figure = axes.get_figure(root=True)
    across = axes.get_xaxis_transform()
    _line(axes, [0, 1], [0, 0], color=MUTED, lw=0.8, transform=axes.transAxes)
    places = _ticks(low, high, log, ticks)
    _line(axes, places, [0] * len(places), 3, ms=3, mec=MUTED, mew=0.8, transform=across)
    below = offset_copy(across, figure, 0, -6, units="dots")
    for place in places:
        axes.text(place, 0, _number(place), color=MUTED, ha="center", va="top", transform=below)
    lower = offset_copy(axes.transAxes, figure, 0, -20, units="dots")
    axes.text(0.5, 0, _cut(label, 46), color=MUTED, ha="center", va="top", transform=lower)


def _ticks(low: float, high: float, log: bool, count: int) -> list[float]:
    found: list[float] = []
    for subs in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)) if log else ():
        places = LogLocator(subs=subs, numticks=50).tick_values(low, high)
        found = [float(t) for t in places if low <= t <= high]
        if len(found) <= count + 1:
            break
    if len(found) > count + 1:
        found = [float(t) for t in LogLocator(numticks=count + 1).tick_values(low, high)]
    elif len(found) < 2:
        found = [float(t) for t in MaxNLocator(nbins=count, steps=[1, 2, 5, 10]).tick_values(low, high)]
    return [0.0 if abs(t) < 1e-12 * (high - low) else t for t in found if low <= t <= high]


def _number(value: float) -> str:
    if abs(value) >= 1e4:
        for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if abs(value) >= size:
                return f"{value / size:.3g}{letter}"
    return number(value).replace("-", "−")


def _around(values: Sequence[float], log: bool) -> tuple[float, float]:
    to, back = _transform(log)
    low, high = (to(min(values)), to(max(values))) if values else (0.0, 1.0)
    if low == high == 0 and not log:
        return -0.05, 1.0
    pad = 0.05 * (high - low) or 0.1 * abs(high) or 1.0
    return back(low - pad), back(high + pad)


def _is_wide(values: Sequence[float], ratio: float = _WIDE_RANGE) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > ratio


def _cut(text: str, length: int) -> str:
    text = svg.clean(text)
    return text if len(text) <= length else text[: length - 1] + "…"
