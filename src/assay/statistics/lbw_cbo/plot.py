"""Pictures: how a search went, and the Gaussian that it found over the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .estimator import LBWCBO
from .measure import GaussianMeasure

FloatArray = npt.NDArray[np.float64]

INK, LINE, GREY = "#1f4e79", "#b8430f", "#8a8a8a"
MOST_DIMENSIONS = 5  # whose pairs are drawn
GRID = 160


def draw_trace(model: LBWCBO, path: Path) -> None:
    """Objective and diameter by iteration, as a PNG."""
    figure = _figure(7, 5.2)
    top, bottom = figure.subplots(2, 1, sharex=True)
    history = model.history_
    shown = history["consensus_objective"].to_numpy()
    top.plot(history["iter"], shown, color=LINE, linewidth=1, label="consensus")
    top.plot(history["iter"], history["best"], color=INK, linewidth=1.8, label="best so far")
    # The first consensus may lie far up; what matters is below where the best began.
    low, high = float(history["best"].iloc[-1]), float(history["best"].iloc[0])
    room = max(high - low, 1e-6 * (1 + abs(low)))
    top.set_ylim(low - 0.08 * room, high + 0.35 * room)
    top.set_ylabel("objective")
    top.legend(frameon=False)
    state = "agreed" if model.converged_ else "had not agreed"
    rows = f", {model.n_evals_:,} density rows" if model.n_evals_ else ""
    top.set_title(f"{model.n_iter_} iterations{rows}; the swarm {state}", fontsize=11)
    bottom.plot(history["iter"], np.maximum(history["diameter"], 1e-300), color=INK, linewidth=1.5)
    bottom.set_yscale("log")
    bottom.set_ylabel("diameter of the swarm")
    bottom.set_xlabel("iteration")
    for ax in (top, bottom):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def draw_marginals(
    measure: GaussianMeasure,
    path: Path,
    names: Sequence[str],
    log_density: Callable[[FloatArray], Any] | None = None,
    samples: FloatArray | None = None,
) -> bool:
    """The Gaussian over the target, each pair of dimensions, as a PNG; False where there are too many to draw.

    Of a density the slice through the Gaussian's mean is shown, and of the Gaussian the same slice (dashed) and its
    marginal (solid): 1 and 2 standard deviations. In one or two dimensions there is nothing to slice. Of samples some
    2000 are drawn.
    """
    d = measure.dim
    if d > MOST_DIMENSIONS:
        return False
    if d == 1:
        _draw_line(measure, path, names[0], log_density, samples)
        return True
    figure = _figure(max(2.6 * (d - 1) + 1, 6.2), max(2.6 * (d - 1) + 0.6, 5.4))
    axes = figure.subplots(d - 1, d - 1, squeeze=False)
    for ax in axes.ravel():
        ax.set_visible(False)
    for j, i in combinations(range(d), 2):
        ax = axes[i - 1][j]
        ax.set_visible(True)
        _draw_pair(ax, measure, j, i, log_density, samples)
        ax.set_xlabel(names[j])
        ax.set_ylabel(names[i])
    over = "the samples" if samples is not None else "the density" + ("" if d == 2 else ", sliced at its mean")
    figure.suptitle(f"The Gaussian (1 and 2 standard deviations) over {over}", fontsize=11)
    figure.savefig(path, dpi=150)
    return True


def _draw_pair(
    ax: Any,
    measure: GaussianMeasure,
    j: int,
    i: int,
    log_density: Callable[[FloatArray], Any] | None,
    samples: FloatArray | None,
) -> None:
    pick = [j, i]
    mean, cov = measure.mean[pick], measure.cov[np.ix_(pick, pick)]
    half = 4 * np.sqrt(np.diag(cov))
    if samples is not None:
        some = samples[:: max(len(samples) // 2000, 1)][:, pick]
        ax.scatter(*some.T, s=5, color=GREY, alpha=0.5, linewidths=0)
    if log_density is not None:
        xs, ys = (np.linspace(m - h, m + h, GRID) for m, h in zip(mean, half, strict=True))
        X, Y = np.meshgrid(xs, ys)
        points = np.tile(measure.mean, (GRID * GRID, 1))
        points[:, j], points[:, i] = X.ravel(), Y.ravel()
        logs = _finite(log_density(points)).reshape(GRID, GRID)
        ax.contourf(X, Y, np.exp(logs - logs.max()), levels=np.linspace(0, 1, 11), cmap="Blues")
        if measure.dim > 2:
            inverse = np.linalg.inv(measure.cov)
            _ellipses(ax, mean, np.linalg.inv(inverse[np.ix_(pick, pick)]), linestyle="--")
    _ellipses(ax, mean, cov)


def _ellipses(ax: Any, mean: FloatArray, cov: FloatArray, linestyle: str = "-") -> None:
    values, vectors = np.linalg.eigh(cov)
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    edge = vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * circle)
    for k in (1, 2):
        ax.plot(mean[0] + k * edge[0], mean[1] + k * edge[1], color=LINE, linewidth=1.4, linestyle=linestyle)
    ax.plot(*mean, "+", color=LINE)


def _draw_line(
    measure: GaussianMeasure,
    path: Path,
    name: str,
    log_density: Callable[[FloatArray], Any] | None,
    samples: FloatArray | None,
) -> None:
    figure = _figure(7, 3.8)
    ax = figure.subplots()
    mean, sd = measure.mean[0], float(measure.root[0, 0])
    x = np.linspace(mean - 6 * sd, mean + 6 * sd, 1001)
    if samples is not None:
        ax.hist(samples[:, 0], bins="auto", density=True, color=GREY, alpha=0.5, label="samples")
    if log_density is not None:
        logs = _finite(log_density(x[:, None]))
        p = np.exp(logs - logs.max())
        ax.fill_between(x, p / np.trapezoid(p, x), color=GREY, alpha=0.4, label="density, normalised in this window")
    ax.plot(x, np.exp(measure.logpdf(x[:, None])), color=LINE, linewidth=1.8, label="Gaussian")
    ax.set_xlabel(name)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _finite(logs: Any) -> FloatArray:
    """Log densities for a picture: what is no number is left white."""
    if hasattr(logs, "detach"):
        logs = logs.detach().cpu().numpy()
    array = np.asarray(logs, dtype=np.float64)
    return np.where(np.isfinite(array), array, -np.inf) if np.isfinite(array).any() else np.zeros_like(array)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
