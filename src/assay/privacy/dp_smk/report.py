"""What may be told of a private choice: a text, a JSON object and two pictures. No private number goes in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .solver import SelectionResult

CHOSEN, OPEN, SPENT = "#b8430f", "#8a8a8a", "#1f4e79"

SEEDED = (
    "**Not private: a seed was given.** Who knows it can undo the noise. Run it again without `--seed` before "
    "anything is published."
)

NOT_PROTECTED = """## What it does not protect
- The sites, their costs, the budget and all options are taken to be public.
- How long the run took, and error messages.
- What is true of people in general: that many live near a chosen site can be guessed from it, as it should be."""

BEST_RUN = (
    "These are the lines of the best of many runs. How many there were is random, hangs on no data and stays secret; "
    "it is priced in ε. How long the work took would tell of it: don't publish that."
)


@dataclass(frozen=True)
class Asked:
    """What the user asked for; all of it is public.

    Attributes
    ----------
    points, sites
        The files' names.
    cost, lat, lon
        Columns.
    budget, reach, unit
        What may be spent, how far a site is of use, and in which unit.
    neighbours
        What one person is worth.
    seeded
        Whether the seed was given, so that nothing is private.
    """

    points: str
    sites: str
    cost: str
    lat: str
    lon: str
    budget: float
    reach: float
    unit: str
    neighbours: str
    seeded: bool


def report_json(catalogue: pd.DataFrame, result: SelectionResult, asked: Asked) -> dict[str, Any]:
    """The choice and its bill, for programs."""
    return {
        "chosen": [str(item) for item in result.items],
        "cost": result.cost,
        "budget": asked.budget,
        "sites": len(catalogue),
        "reach": asked.reach,
        "algorithm": result.algorithm,
        "private": not asked.seeded,
        "neighbours": asked.neighbours,
        "epsilon": result.epsilon,
        "delta": result.delta,
        "rho": result.rho,
        "value_private": result.value_private,
        "ledger": [
            {"step": step, "mechanism": mechanism, "eps0": None if math.isnan(eps0) else eps0, "rho": rho}
            for step, mechanism, eps0, rho in result.lines
        ],
    }


def report_text(catalogue: pd.DataFrame, result: SelectionResult, asked: Asked) -> str:
    """The report for people, in Markdown."""
    chosen = catalogue.loc[result.items]
    parts = [
        f"# Sites from {_code(asked.sites)} for the people of {_code(asked.points)}",
        f"{len(chosen)} of {len(catalogue)} sites were chosen; they cost {result.cost:.6g} of {asked.budget:.6g}.",
    ]
    if asked.seeded:
        parts.append(SEEDED)
    head = f"| site | {_cell(asked.cost)} | {_cell(asked.lat)} | {_cell(asked.lon)} |\n|---|---:|---:|---:|"
    numbers = chosen[[asked.cost, asked.lat, asked.lon]].to_numpy(dtype=float)
    rows = [
        f"| {_cell(item)} | {cost:.6g} | {lat:.5g} | {lon:.5g} |"
        for item, (cost, lat, lon) in zip(result.items, numbers, strict=True)
    ]
    parts += ["\n".join([head, *rows]), "![The sites; the chosen ones are filled](map.png)"]
    if result.value_private is not None:
        parts.append(
            f"Worth: {result.value_private:.6g} (noise of ± {_sigma(result):.3g} is in it, one standard deviation): "
            f"the sum over people of how near the nearest chosen site is, 1 at the site and 0 from "
            f"{asked.reach:g}{asked.unit} on."
        )
    one = "another person in someone's place" if asked.neighbours == "replace" else "one person more or less"
    chance = f", but for a chance of {result.delta:g}." if result.delta else "."
    parts += [
        f"## What this gives away\nWith {one} each result would have come out with nearly the same probability: "
        f"ε = {result.epsilon:g}, δ = {result.delta:g}. Whatever anybody knows besides, the odds that a given person "
        f"is in the table change by at most a factor of {_factor(result.epsilon)}{chance}",
        "Everything in this folder, and the list of picks, may be published. Neither the number of people nor the "
        "exact benefit is in it. People without a usable place count as near no site. Every run spends ε anew: two "
        "runs at ε = 1 make 2 together.",
        "![What was spent on what](bill.png)",
        _bill(result),
    ]
    if result.algorithm == "enumerate":
        parts.append(BEST_RUN)
    spent = math.fsum(rho for *_, rho in result.lines)
    parts.append(f"Together ρ = {spent:.4g} of {result.rho:.4g} (zero-concentrated differential privacy).")
    parts.append(NOT_PROTECTED)
    return "\n\n".join(parts) + "\n"


def draw_map(catalogue: pd.DataFrame, result: SelectionResult, asked: Asked, path: Path) -> None:
    """All sites where they are, as large as they are dear; the chosen ones filled and named. No person is drawn."""
    figure, ax = _figure(7.5, 4.8)
    cost = catalogue[asked.cost].to_numpy(dtype=float)
    size = 20 + 180 * cost / cost.max()
    chosen = catalogue.index.isin(result.items)
    x, y = catalogue[asked.lon].to_numpy(dtype=float), catalogue[asked.lat].to_numpy(dtype=float)
    ax.scatter(x[~chosen], y[~chosen], s=size[~chosen], facecolors="none", edgecolors=OPEN, label="not chosen")
    ax.scatter(x[chosen], y[chosen], s=size[chosen], c=CHOSEN, alpha=0.8, label="chosen")
    if chosen.sum() <= 25:
        for k in np.flatnonzero(chosen):
            above = (0, 3 + size[k] ** 0.5 / 2)
            name = str(catalogue.index[k])[:24].replace("$", r"\$")
            ax.annotate(name, (x[k], y[k]), xytext=above, textcoords="offset points", ha="center", fontsize=8)
    ax.margins(0.08, 0.12)
    stretch = 1 / np.cos(np.radians(np.clip(y.mean(), -80, 80))) if asked.unit else 1.0
    ax.set_aspect(stretch, adjustable="datalim")
    ax.set_xlabel(asked.lon)
    ax.set_ylabel(asked.lat)
    ax.set_title(f"{chosen.sum()} of {len(chosen)} sites, {result.cost:.4g} of {asked.budget:.4g} spent", fontsize=11)
    handles = ax.get_legend_handles_labels()
    legend = figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    for handle in legend.legend_handles:
        handle.set_sizes([60])
    figure.savefig(path, dpi=150)


def draw_bill(result: SelectionResult, path: Path) -> None:
    """What each line of the ledger cost in ρ."""
    ledger = result.ledger
    figure, ax = _figure(7.5, max(1.6, 0.9 + 0.26 * len(ledger)))
    position = np.arange(len(ledger))
    ax.barh(position, ledger["rho"], color=SPENT)
    ax.set_yticks(
        position, [f"{m} ({s})" if s else m for s, m in zip(ledger["step"], ledger["mechanism"], strict=True)]
    )
    ax.invert_yaxis()
    ax.tick_params(labelsize=8)
    ax.set_xlabel("ρ spent")
    spent = f"ρ = {ledger['rho'].sum():.4g} of {result.rho:.4g} spent"
    ax.set_title(f"{spent}; ε = {result.epsilon:g}, δ = {result.delta:g}", fontsize=11)
    figure.savefig(path, dpi=150)


def _bill(result: SelectionResult) -> str:
    lines = ["## The bill", "| step | mechanism | ε0 | ρ |", "|---:|---|---:|---:|"]
    for step, mechanism, eps0, rho in result.lines:
        lines.append(f"| {step} | {mechanism} | {'' if math.isnan(eps0) else f'{eps0:.4g}'} | {rho:.4g} |")
    return "\n".join(lines)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def _sigma(result: SelectionResult) -> float:
    """The standard deviation of the noise in the released value, from the bill alone; one person is worth at most 1."""
    rho = result.lines[-1][3]
    # With δ = 0 it is Laplace noise of the scale 1/ε, and the line says ε²/2.
    return math.sqrt(1 / rho) if result.delta == 0 else math.sqrt(1 / (2 * rho))


def _factor(epsilon: float) -> str:
    return f"{math.exp(epsilon):.3g}" if epsilon < 50 else "more than 10²¹"


def _cell(text: Any) -> str:
    """Text that a cell of a Markdown table can hold."""
    return " ".join(str(text).split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")[:80]


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'") + "`"
