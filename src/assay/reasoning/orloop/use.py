"""``assay use orloop iis|repair|make``: what conflicts in a model, a proposal that mends it, and test models."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_folder

from .conflicts import IIS, iis
from .environment import row_text
from .files import write_instances
from .fixing import RepairReport, repair
from .hand_rules import elastic
from .language import OpenAIAgent
from .model import LinearModel
from .saboteur import ERRORS, generate
from .solving import solve

app = typer.Typer(help="Find what conflicts in an infeasible model, and mend it.", add_completion=False)
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to; new or empty.")]


@app.command("iis")
def conflict(
    model: Annotated[Path, typer.Argument(help="An .mps or .lp file.")],
    out: Out,
    bounds: Annotated[str, typer.Option(help="hard: bounds of columns are given; soft: they may be named.")] = "hard",
    hard_rows: Annotated[str, typer.Option(help="Rows that are never named, separated by commas.")] = "",
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 30.0,
) -> None:
    """Write an irreducible set of conflicting rows, with a certificate, and how far the rows are apart."""
    read = LinearModel.read(model)
    status = solve(read, time_limit=time_limit).status
    hard = [name.strip() for name in hard_rows.split(",") if name.strip()]
    found = iis(read, bounds=bounds, hard_rows=hard, time_limit=time_limit)  # type: ignore[arg-type]
    with new_folder(out) as folder:
        _write_conflict(read, found, status, model.name, folder)
    if found.rows or found.col_bounds:
        sure = "certified" if found.certified else "not certified (time ran out)"
        typer.echo(f"{len(found)} members conflict ({sure}): {', '.join(found.rows)}. Written to {out}")
    else:
        typer.echo(f"{model.name} is {status}: nothing conflicts. Written to {out}")


@app.command("repair")
def mend(
    model: Annotated[Path, typer.Argument(help="An .mps or .lp file.")],
    out: Out,
    policy: Annotated[Path | None, typer.Option(help="Folder of a trained policy.")] = None,
    agent: Annotated[
        str | None, typer.Option(help="Address of a chat endpoint, which then proposes the edits.")
    ] = None,
    name: Annotated[str | None, typer.Option("--model", help="The endpoint's model.")] = None,
    key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the endpoint's key.")] = None,
    max_steps: Annotated[int, typer.Option(help="Most actions.")] = 10,
    time_limit: Annotated[float, typer.Option(help="Seconds a solve.")] = 30.0,
) -> None:
    """Propose edits that make a model feasible; write it as fixed.mps, with a report."""
    if (agent is None) != (name is None):
        raise InputError("--agent and --model belong together")
    read = LinearModel.read(model)
    chosen = None
    if policy is not None:
        from .policy import RepairPolicy

        chosen = RepairPolicy.from_pretrained(policy)
    talker = OpenAIAgent(agent, name, key_env) if agent is not None and name is not None else None
    done = repair(read, policy=chosen, agent=talker, max_steps=max_steps, time_limit=time_limit)
    with new_folder(out) as folder:
        _write_repair(read, done, model.name, folder)
    said = "; ".join(map(str, done.edits)) or done.why[0]
    typer.echo(f"{model.name}: {said}. Now {done.status}. Written to {out}")


@app.command("make")
def make(
    out: Out,
    n: Annotated[int, typer.Option(help="How many.")] = 100,
    errors: Annotated[str, typer.Option(help="Kinds of error, letters A to I.")] = ERRORS,
    milp: Annotated[bool, typer.Option("--milp", help="With integer columns.")] = False,
    seed: Annotated[int, typer.Option(help="Same seed, same models.")] = 0,
) -> None:
    """Write infeasible models with known errors: MPS files and instances.jsonl."""
    made = generate(n, errors=errors, milp=milp, seed=seed)
    with new_folder(out) as folder:
        write_instances(made, folder)
    typer.echo(f"{n} models written to {out}")


def _write_conflict(model: LinearModel, found: IIS, status: str, name: str, folder: Path) -> None:
    known = {
        "file": name,
        "status": status,
        "rows": list(found.rows),
        "col_bounds": [list(pair) for pair in found.col_bounds],
        "certified": found.certified,
        "solves": found.solves,
    }
    (folder / "iis.json").write_text(json.dumps(known, indent=2) + "\n")
    with (folder / "iis.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["kind", "name", "side", "text"])
        table.writerows(["row", row, "", row_text(model, row, 1000)] for row in found.rows)
        table.writerows(["bound", col, side, ""] for col, side in found.col_bounds)
    parts = [f"# What conflicts in {name}"]
    if not len(found):
        parts.append(f"The model is {status}: nothing conflicts.")
    else:
        sure = (
            "Together they are infeasible, and without any one of them the others are feasible; both were solved again."
            if found.certified
            else "Time ran out: it is not sure that none of them can be left out."
        )
        parts.append(f"{len(found.rows)} rows and {len(found.col_bounds)} bounds of columns. {sure}")
        parts.append("```text\n" + "\n".join(row_text(model, row, 30) for row in found.rows) + "\n```")
        if found.col_bounds:
            parts.append("Bounds: " + ", ".join(f"{side} bound of {col}" for col, side in found.col_bounds) + ".")
        parts.append(
            "One of these is wrong, or two wishes cannot both come true. The set is one of possibly many: when one "
            "conflict is mended, another may show."
        )
    if found.rows and _draw(model, found.rows, folder / "relaxations.png"):
        parts.append("![How far each row in conflict would have to give way](relaxations.png)")
    (folder / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _draw(model: LinearModel, rows: tuple[str, ...], path: Path) -> bool:
    """Each row of the conflict, and by how much it would have to give way alone, relative to its side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from .candidates import _least_relaxation

    shown = rows[:25]
    amounts = [_least_relaxation(model, model.row(name)) for name in shown]
    if not any(amounts):
        return False
    sides = [
        model.row_up[model.row(n)] if np.isfinite(model.row_up[model.row(n)]) else model.row_lo[model.row(n)]
        for n in shown
    ]
    share = [0.0 if a is None else 100 * a / max(abs(s), 1.0) for a, s in zip(amounts, sides, strict=True)]
    figure = Figure(figsize=(7, 1.2 + 0.32 * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.barh(range(len(shown)), share, color="#31688e")
    for place, amount in enumerate(amounts):
        axes.text(
            share[place], place, " not enough alone" if amount is None else f" {amount:.4g}", va="center", fontsize=8
        )
    axes.set_yticks(range(len(shown)), shown)
    axes.invert_yaxis()
    axes.margins(x=0.25)
    axes.set_xlim(left=0)
    axes.set_xlabel("how far this row alone would have to give way, % of its side")
    figure.savefig(path, dpi=150)
    return True


def _write_repair(model: LinearModel, done: RepairReport, name: str, folder: Path) -> None:
    done.model.write(folder / "fixed.mps")
    rows = [
        {"edit": str(edit), "before": before, "after": after, "why": why}
        for edit, before, after, why in zip(done.edits, done.before, done.after, done.why, strict=False)
    ]
    known = {"file": name, "status": done.status, "objective": done.objective, "edits": rows}
    (folder / "repair.json").write_text(json.dumps(known, indent=2) + "\n")
    with (folder / "edits.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["edit", "before", "after", "why"])
        table.writeheader()
        table.writerows(rows)
    parts = [f"# Repair of {name}"]
    objective = "" if done.objective is None else f", with the objective {done.objective:.10g}"
    if not rows:
        parts.append(f"Nothing was changed: {done.why[0]}{objective}.")
    else:
        parts.append(f"After {len(rows)} edit{'s' if len(rows) > 1 else ''} the model is **{done.status}**{objective}.")
        for number, row in enumerate(rows, start=1):
            after = row["after"] or "(dropped)"
            parts.append(
                f"## {number}. `{row['edit']}`\n{row['why']}.\n\n```text\nbefore  {row['before']}\nafter   {after}\n```"
            )
        others = elastic(model)
        if others:
            listed = "; ".join(map(str, others[:8]))
            parts.append(f"For comparison, the least total relaxation of all rows would be: {listed}.")
        parts.append(
            "Feasible does not mean right: many edits make a model feasible, and most of them change the optimum. "
            "Nobody but you knows which row was meant otherwise. Read each edit before you use fixed.mps."
        )
    (folder / "report.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    if rows and done.edits[0].target in model.row_names:
        conflict = iis(model).rows
        if conflict and _draw(model, conflict, folder / "relaxations.png"):
            with (folder / "report.md").open("a", encoding="utf-8") as report:
                report.write("\n![How far each row in conflict would have to give way](relaxations.png)\n")
