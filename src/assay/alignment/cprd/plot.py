"""The pictures of a report: scores, calibration of scores against shares, connectivity, the audit of a reward model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from .audit import RewardAudit
from .conditional import wilson
from .fit import BTFit
from .ids import shown

BLUE, ORANGE, GREY = "#1f4e79", "#b8430f", "#8a8a8a"


def save(path: Path, draw: Callable[[Any], None], size: tuple[float, float] = (7, 4.4)) -> None:
    """Draw into a new picture and write it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    draw(axes)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def plot_scores(fit: BTFit, ax: Any, most: int = 30) -> None:
    """The scores of the largest component with their 95 % intervals: all, or the best and the worst."""
    component = fit.component.to_numpy()
    sizes = np.bincount(component)
    members = np.flatnonzero(component == sizes.argmax())
    order = members[np.argsort(-fit.values[members], kind="stable")]
    cut = len(order) > most
    drawn = np.concatenate([order[: most // 2], order[-most // 2 :]]) if cut else order
    place = -np.arange(len(drawn)).astype(float)
    if cut:
        place[most // 2 :] -= 1
        ax.axhline(-most // 2 - 0.0, color=GREY, linestyle=":", linewidth=1)
    s, error = fit.values[drawn], 1.96 * np.nan_to_num(fit.std_err.to_numpy()[drawn])
    ax.errorbar(s, place, xerr=error, fmt="o", color=BLUE, markersize=4, linewidth=1.2)
    ax.axvline(0, color=GREY, linewidth=0.8)
    labels = [_name(fit.scores.index[k]) for k in drawn]
    ax.set_yticks(place, labels, fontsize=8 if len(drawn) < 20 else 7)
    ax.set_xlabel("score (log-odds, mean 0) and 95 % interval")
    left = f", best and worst of {len(order)}" if cut else ""
    ax.set_title(f"Scores of the largest component{left}", fontsize=11)


def _name(label: Any) -> str:
    return " · ".join(shown(part, 20) for part in label) if isinstance(label, tuple) else shown(label, 32)


def plot_shares(fit: BTFit, ax: Any) -> None:
    """Observed shares against the probabilities of the scores: points are pairs, or bins of many pairs."""
    c, inside = fit.comparisons, fit.inside
    i, j = fit.graph.i, fit.graph.j
    d = fit.values[i] - fit.values[j]
    p = expit(np.abs(d))
    n = c.n[inside]
    won = np.where(d >= 0, c.wins[0][inside], c.wins[1][inside])
    if len(n) > 400:
        edges = np.unique(np.quantile(p, np.linspace(0, 1, 21)))
        at = np.clip(np.searchsorted(edges, p, side="right") - 1, 0, max(len(edges) - 2, 0))
        rows = np.bincount(at, n)
        keep = rows > 0
        p = np.bincount(at, n * p)[keep] / rows[keep]
        won, n = np.bincount(at, won)[keep], rows[keep]
        what = "20 bins of pairs"
    else:
        what = f"{len(n)} pairs"
    r = won / n
    lo, hi = wilson(r, n)
    ax.plot([0.5, 1], [0.5, 1], color=GREY, linewidth=1, label="scores represent the shares")
    if len(n) <= 60:
        ax.errorbar(p, r, yerr=[np.maximum(r - lo, 0), np.maximum(hi - r, 0)], fmt="none", ecolor=BLUE, alpha=0.35)
    size = 12 + 60 * n / n.max()
    ax.scatter(p, r, s=size, color=BLUE, alpha=0.7, linewidths=0, label=f"{what}, area by rows")
    ax.set_xlabel("probability by the scores that the higher one is chosen")
    ax.set_ylabel("share of rows in which it was")
    ax.set_ylim(-0.03, 1.03)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
    ax.set_title("What the rows say, and what the scores make of it", fontsize=11)


def plot_components(fit: BTFit, ax: Any) -> None:
    """How many items are in components of each size."""
    sizes = fit.graph.sizes
    values, counts = np.unique(sizes, return_counts=True)
    items = values * counts
    names = [str(v) for v in values]
    if len(values) > 12:
        edges = np.unique(np.concatenate([[1, 2, 3], np.geomspace(4, values.max() + 1, 8).round()]))
        at = np.searchsorted(edges, values, side="right") - 1
        items = np.bincount(at, items, len(edges))
        ends = np.append(edges[1:], values.max() + 1) - 1
        names = [f"{a:g}" if a >= b else f"{a:g}–{b:g}" for a, b in zip(edges, ends, strict=True)]
        keep = items > 0
        items, names = items[keep], [name for name, k in zip(names, keep, strict=True) if k]
    colours = [ORANGE if name == "1" else BLUE for name in names]
    bars = ax.bar(np.arange(len(names)), items, color=colours)
    ax.set_xlim(-max(0.6, 1.6 - 0.5 * len(names)), len(names) - 1 + max(0.6, 1.6 - 0.5 * len(names)))
    ax.bar_label(bars, [f"{int(x)}" for x in items], fontsize=8)
    ax.set_xticks(np.arange(len(names)), names)
    ax.set_xlabel("size of the component (1: no finite score)")
    ax.set_ylabel("items")
    ax.set_title("Where scores exist", fontsize=11)


def plot_audit(audit: RewardAudit, ax: Any) -> None:
    """Calibration of a reward model on the rows."""
    bins = audit.calibration
    low = np.maximum(bins["observed"] - bins["lo"], 0)
    high = np.maximum(bins["hi"] - bins["observed"], 0)
    ax.plot([0.5, 1], [0.5, 1], color=GREY, linewidth=1, label="calibrated")
    ax.errorbar(bins["predicted"], bins["observed"], yerr=[low, high], fmt="o", color=BLUE, label="the reward model")
    ax.set_xlabel("its probability that the higher score is preferred")
    ax.set_ylabel("share of rows in which it was")
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    ax.set_title(f"Reward model: accuracy {audit.accuracy:.1%}, log loss {audit.log_loss:.3f}", fontsize=11)
