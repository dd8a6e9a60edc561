"""The picture of a fitted model: the raw spectrum without and with the knockoff mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .shift_test import p_text

if TYPE_CHECKING:
    from .estimator import KnockoffPCA

STABLE, SHIFT, NOISE = "#1f4e79", "#b8430f", "#8a8a8a"


def plot_spectrum(model: KnockoffPCA, ax: Any = None) -> Any:
    """Draw the spectrum of a fitted :class:`KnockoffPCA` and return the matplotlib axes."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    spectrum, report = model.spectrum_, model.report_
    before, after = spectrum.eigenvalues, spectrum.knockoff_eigenvalues
    position = np.arange(len(before))
    examined = len(report)
    moved = np.zeros(len(before), dtype=bool)
    moved[:examined] = report["moved"]
    colour = np.where(moved, SHIFT, np.where(position < examined, STABLE, NOISE))

    ax.vlines(position, after, before, colors=colour, linewidth=1.5, zorder=1)
    ax.scatter(
        position, before, s=70, facecolors="white", edgecolors=colour, linewidths=1.5, label="without the knockoff"
    )
    stable = ~moved
    ax.scatter(position[stable], after[stable], s=22, c=colour[stable], zorder=3, label="with the knockoff")
    if moved.any():
        ax.scatter(
            position[moved], after[moved], s=75, c=SHIFT, marker="X", zorder=3, label="with the knockoff: a shift"
        )
    ax.axhline(model.edge_, color="0.35", linestyle="--", linewidth=1, label="edge of the noise")
    if before.max() > 20 * model.edge_:
        ax.set_yscale("log")
    for j in np.flatnonzero(moved):
        ax.annotate(
            f"shift: moved by {100 * spectrum.relative_move[j]:.0f} %\np {p_text(report['p_value'].iloc[j])}",
            (position[j], before[j]),
            xytext=(7, 4),  # up and right, where a falling spectrum leaves room
            textcoords="offset points",
            va="bottom",
            fontsize=9,
            color=SHIFT,
        )
    ax.margins(x=0.08, y=0.2)
    ax.set_xticks(position, [str(j) for j in position])
    ax.set_xlabel("component")
    ax.set_ylabel("eigenvalue about the clean centre")
    groups = len(model.shifts_)
    found = f"{groups} shift{'s' if groups != 1 else ''} found" if groups else "no shift found"
    ax.set_title(f"{model.n_samples_} rows, {model.n_features_in_} columns: {found}", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    legend = ax.legend(frameon=False, fontsize=9)
    legend.legend_handles[0].set_edgecolor("0.2")  # the open circle stands for all colours
    return ax
