"""What ``assay use orloop`` writes: a report for people, tables for programs, and pictures for both."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .actions import EDITS, Action
from .candidates import least_relaxations
from .conflicts import IIS
from .environment import row_text
from .fixing import RepairReport, choices
from .hand_rules import elastic
from .model import LinearModel
from .solving import Solution

STATUS_WORDS = {"limit": "not solved to the end in time", "error": "given up by the solver"}
LONGER = "a longer --time-limit may tell"
SHOWN = 25
"""Rows in a picture or a text; the tables hold all."""


def write_conflict(model: LinearModel, found: IIS, status: str, name: str, folder: Path) -> None:
    """Write iis.json, iis.csv, report.md and, where a row alone can give way, relaxations.png."""
    known = {
        "file": name,
        "status": status,
        "rows": list(found.rows),
        "col_bounds": [list(pair) for pair in found.col_bounds],
        "certified": found.certified,
        "solves": found.solves,
    }
    (folder / "iis.json").write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    with (folder / "iis.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["kind", "name", "side", "text"])
        table.writerows(["row", row, "", row_text(model, row, 1000)] for row in found.rows)
        table.writerows(["bound", col, side, bound_text(model, col, side)] for col, side in found.col_bounds)
    text = conflict_text(model, found, status, name)
    if found.rows and _draw_relaxations(model, found.rows, folder / "relaxations.png"):
        text += "\n![How far each row in conflict would have to give way](relaxations.png)\n"
    (folder / "report.md").write_text(text, encoding="utf-8")


def conflict_text(model: LinearModel, found: IIS, status: str, name: str) -> str:
    """Return what conflicts, as Markdown."""
    parts = [f"# What conflicts in {name}"]
    if not len(found):
        parts.append(f"The model is {no_conflict_text(found, status)}.")
        return "\n\n".join(parts) + "\n"
    sure = (
        "Together they are infeasible, and without any one of them the others are feasible; both were solved again."
        if found.certified
        else "Time ran out: they conflict, and it is not sure that none of them can be left out. A longer --time-limit "
        "may tell."
    )
    members = [_count(len(found.rows), "row")] if found.rows else []
    members += [_count(len(found.col_bounds), "bound") + " of columns"] if found.col_bounds else []
    parts.append(f"{' and '.join(members)}. {sure}")
    lines = [row_text(model, row, 30) for row in found.rows[:200]]
    lines += [bound_text(model, col, side) for col, side in found.col_bounds[:200]]
    parts.append("```text\n" + "\n".join(lines) + "\n```")
    parts.append(
        "One of these is wrong, or two wishes cannot both come true. The set is one of possibly many: when one "
        "conflict is mended, another may show."
    )
    return "\n\n".join(parts) + "\n"


def no_conflict_text(found: IIS, status: str) -> str:
    """Return what a model is in which no conflict was found: one is only ruled out where a solve said so."""
    if not found.certified:
        return f"{STATUS_WORDS.get(status, status)}: whether anything conflicts is not known; {LONGER}"
    if status == "limit":
        return "feasible, though its optimum was not reached in time: nothing conflicts"
    return f"{STATUS_WORDS.get(status, status)}: nothing conflicts"


def write_repair(model: LinearModel, done: RepairReport, name: str, target: Path, folder: Path) -> None:
    """Write repair.json, edits.csv, choices.csv, report.md and its pictures; ``target`` is the model's file."""
    rows = [
        {"edit": str(edit), "before": before, "after": after, "why": why}
        for edit, before, after, why in zip(done.edits, done.before, done.after, done.why, strict=False)
    ]
    known = {"file": name, "status": done.status, "objective": done.objective, "edits": rows}
    if not rows:
        known["why"] = done.why[0]
    (folder / "repair.json").write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    with (folder / "edits.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["edit", "before", "after", "why"])
        table.writeheader()
        table.writerows(rows)
    parts = [f"# Repair of {name}"]
    objective = "" if done.objective is None else f", with the objective {done.objective:.10g}"
    if not rows:
        parts.append(f"Nothing was changed: {done.why[0]}{objective}.")
    else:
        now = STATUS_WORDS.get(done.status, done.status)
        more = {
            "limit": f" Whether the edits suffice is not known; {LONGER}.",
            "infeasible": " The edits did not suffice: take them as guesses, and read the first conflict.",
        }.get(done.status, "")
        parts.append(
            f"After {_count(len(rows), 'edit')} the model is **{now}**{objective}. It is in {target.name}.{more}"
        )
        for number, row in enumerate(rows, start=1):
            after = row["after"] or "(dropped)"
            parts.append(
                f"## {number}. `{row['edit']}`\n{row['why']}.\n\n```text\nbefore  {row['before']}\nafter   {after}\n```"
            )
        parts += _other_ways(model, done, folder)
    (folder / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _other_ways(model: LinearModel, done: RepairReport, folder: Path) -> list[str]:
    """What else could be done about the first conflict, as text, table and pictures."""
    conflict = done.conflicts[0]
    tried = choices(model, conflict)
    with (folder / "choices.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["edit", "status", "objective"])
        table.writerows([str(edit), found.status, found.objective] for edit, found in tried)
    feasible = [(edit, found) for edit, found in tried if found.status == "optimal"]
    parts = ["## What else would do"]
    if feasible:
        parts.append(
            f"Of {len(tried)} plausible edits of the rows in conflict, {len(feasible)} make the model feasible on "
            "their own, with these objectives. The optimum that was meant is there only if the right row is mended:"
        )
        rows = [f"| `{_short(str(edit))}` | {found.objective:.10g} |" for edit, found in feasible[:SHOWN]]
        parts.append("\n".join(["| edit | objective |", "|---|---|", *rows]))
        if _draw_objectives(feasible, done, folder / "choices.png"):
            parts.append("![The objective after each edit](choices.png)")
    else:
        open_ = sum(found.status == "limit" for _, found in tried)
        unknown = f" Of {open_} of them it is not known: time ran out." if open_ else ""
        tried_edits = _count(len(tried), "plausible edit")
        parts.append(
            f"{tried_edits} of the rows in conflict tried, and none makes the model feasible on its own.{unknown}"
        )
    least = [a for a in elastic(model) if a.values[0] > 1e-5 * max(1.0, abs(_side(model, a.target)))]
    if least:
        listed = "; ".join(f"RELAX {a.target} by {a.values[0]:.6g}" for a in least[:8])
        parts.append(f"The least total relaxation of all rows would be: {listed}.")
    if _draw_relaxations(model, conflict, folder / "relaxations.png"):
        parts.append("![How far each row in conflict would have to give way](relaxations.png)")
    parts.append(
        "Feasible does not mean right: many edits make a model feasible, and most of them change the optimum. Nobody "
        "but you knows which row was meant otherwise. Read each edit before you use the repaired model."
    )
    return parts


def _draw_relaxations(model: LinearModel, rows: Sequence[str], path: Path) -> bool:
    """Draw by how much each row of a conflict would have to give way alone; False where none can."""
    shown = list(rows[:SHOWN])
    amounts = least_relaxations(model, shown)
    if not any(amounts):
        return False
    figure, axes = _bars(len(shown))
    share = [
        0.0 if a is None else 100 * a / max(abs(_side(model, n)), 1.0) for a, n in zip(amounts, shown, strict=True)
    ]
    axes.barh(range(len(shown)), share, color="#31688e")
    for place, amount in enumerate(amounts):
        text = " not enough alone" if amount is None else f" {amount:.4g}"
        axes.text(share[place], place, text, va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [_short(name, 40) for name in shown])
    axes.set_xlim(0, 1.3 * max(share))
    axes.set_xlabel("how far this row alone would have to give way, % of its side\n(beside the bar: in its own unit)")
    figure.savefig(path, dpi=150)
    return True


def _draw_objectives(feasible: Sequence[tuple[Action, Solution]], done: RepairReport, path: Path) -> bool:
    """Draw the objective after each edit that makes the model feasible on its own; False where that is one alone."""
    shown = sorted(feasible[:SHOWN], key=lambda pair: (pair[1].objective, str(pair[0])))
    if len(shown) < 2:
        return False
    figure, axes = _bars(len(shown))
    kinds = [edit.kind for edit, _ in shown]
    colors = dict(
        zip(EDITS, ("#31688e", "#b0b0b0", "#fde725", "#5ec962", "#443983", "#21918c", "#90d743"), strict=True)
    )
    for kind in dict.fromkeys(kinds):
        at = [i for i, k in enumerate(kinds) if k == kind]
        axes.scatter(
            [shown[i][1].objective for i in at], at, color=colors[kind], edgecolor="#333333", lw=0.5, label=kind
        )
    first = [i for i, (edit, _) in enumerate(shown) if edit == done.edits[0]]
    axes.scatter(
        [shown[i][1].objective for i in first], first, s=140, facecolor="none", edgecolor="#d62728", lw=1.5,
        label="proposed" if len(done.edits) == 1 else "proposed first",
    )  # fmt: skip
    axes.set_yticks(range(len(shown)), [_short(str(edit), 40) for edit, _ in shown])
    axes.margins(x=0.08)
    axes.grid(axis="x", lw=0.3)
    axes.set_xlabel("objective after this edit alone")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=150)
    return True


def _bars(count: int) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 1.3 + 0.32 * count), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_ylim(count - 0.4, -0.6)
    return figure, axes


def bound_text(model: LinearModel, col: str, side: str) -> str:
    """Return a bound of a column as people write it: ``x3 <= 40``."""
    j = model.col(col)
    return f"{col} >= {model.col_lo[j]:g}" if side == "lower" else f"{col} <= {model.col_up[j]:g}"


def _side(model: LinearModel, name: str) -> float:
    i = model.row(name)
    return float(model.row_up[i] if np.isfinite(model.row_up[i]) else model.row_lo[i])


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(text: str, most: int = 70) -> str:
    return text if len(text) <= most else f"{text[: most - 12]}…{text[-11:]}"
