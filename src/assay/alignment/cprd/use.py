"""``assay use cprd TRIPLETS -o DIR``: scores, a report and the pairs to label next, from rows of comparisons."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_folder

from . import plot
from .audit import audit_rewards
from .comparisons import Comparisons
from .fit import DisconnectedComparisons, fit_bt
from .ids import shown
from .next_pairs import suggest_pairs
from .report import Report, as_dict, as_markdown, examine, scores_table
from .table import FORMATS, read_table

app = typer.Typer(help="What preference data can teach a Bradley–Terry reward.", add_completion=False)


@app.command()
def learn(
    triplets: Annotated[Path, typer.Argument(help=f"One comparison a row: {FORMATS}.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the report.")],
    chosen: Annotated[str, typer.Option(help="Column with the item that was preferred.")] = "chosen",
    rejected: Annotated[str, typer.Option(help="Column with the other one.")] = "rejected",
    context: Annotated[
        str | None, typer.Option(help="Column with the context (prompt): nothing is shared between.")
    ] = None,
    weight: Annotated[str | None, typer.Option(help="Column that says how often a row counts.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Column with the person or session.")] = None,
    suggest: Annotated[int, typer.Option(help="How many pairs to label next; 0: none.")] = 0,
    pool: Annotated[
        Path | None, typer.Option(help="Table of pairs to choose from: columns i, j (and context).")
    ] = None,
    criterion: Annotated[str, typer.Option(help="A (variance of the scores) or D (determinant).")] = "A",
    ridge: Annotated[float, typer.Option(help="Penalty on the scores; 0: none.")] = 0.0,
    score_chosen: Annotated[str | None, typer.Option(help="Column with a reward model's score of the first.")] = None,
    score_rejected: Annotated[str | None, typer.Option(help="Column with its score of the second.")] = None,
    draws: Annotated[int, typer.Option(help="Draws of the test; fewer are made of large tables.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of draws and estimates.")] = 0,
) -> None:
    """Fit scores to comparisons; say what they can represent, how sure they are, and what to label next."""
    if (score_chosen is None) != (score_rejected is None):
        raise InputError("give both --score-chosen and --score-rejected, or neither")
    if suggest < 0:
        raise InputError(f"--suggest must be ≥ 0, not {suggest}")
    if seed < 0:
        raise InputError(f"--seed must be ≥ 0, not {seed}")
    if pool is not None and not suggest:
        raise InputError("--pool needs --suggest N: how many of its pairs to pick")
    if criterion not in ("A", "D"):
        raise InputError(f"--criterion must be A or D, not {criterion!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):  # say so before the work
        raise InputError(f"{out} exists and is not empty: give another folder")
    ids = [chosen, rejected, *(name for name in (context, cluster) if name is not None)]
    frame = read_table(triplets, ids)
    frame.index = pd.RangeIndex(1, len(frame) + 1)  # rows are counted from 1 in what is said of the file
    candidates = None
    if pool is not None:
        candidates = read_table(pool, ["i", "j", *(["context"] if context is not None else [])])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        c = Comparisons.from_triplets(
            frame, context=context, chosen=chosen, rejected=rejected, weight=weight, cluster=cluster
        )
        fit = fit_bt(c, ridge=ridge)
        report = examine(c, fit, n_boot=draws, seed=seed)
        if score_chosen is not None and score_rejected is not None:
            audit = audit_rewards(
                frame, score_chosen=score_chosen, score_rejected=score_rejected, context=context, chosen=chosen,
                rejected=rejected, weight=weight, fit=fit,
            )  # fmt: skip
            report = replace(report, audit=audit)
        if suggest:
            picked = suggest_pairs(c, suggest, pool=candidates, fit=fit, criterion=criterion, seed=seed)  # type: ignore[arg-type]
            report = replace(report, suggested=picked)
    told = [w for w in caught if issubclass(w.category, UserWarning) and w.category is not DisconnectedComparisons]
    notes = list(dict.fromkeys(str(w.message) for w in told))
    notes += _hints(frame, context, report)
    report = replace(report, notes=tuple(notes))
    with new_folder(out) as folder:
        write(report, triplets.name, folder)
    typer.echo(f"{_summary(report)} Written to {out}: {', '.join(sorted(p.name for p in out.iterdir()))}")


def write(report: Report, name: str, folder: Path) -> None:
    """Write all files of the report into a folder."""
    scores_table(report).to_csv(folder / "scores.csv", index=False)
    if report.suggested is not None:
        report.suggested.to_csv(folder / "next_pairs.csv", index=False)
    pictures = {"components": "components.png"}
    plot.save(folder / "components.png", lambda ax: plot.plot_components(report.fit, ax))
    if report.fit.inside.any():
        pictures |= {"scores": "scores.png", "shares": "shares.png"}
        tall = min(30, int(report.fit.graph.sizes.max()))
        plot.save(folder / "scores.png", lambda ax: plot.plot_scores(report.fit, ax), (7, 1.6 + 0.2 * tall))
        plot.save(folder / "shares.png", lambda ax: plot.plot_shares(report.fit, ax))
    audit = report.audit
    if audit is not None:
        pictures["audit"] = "audit.png"
        plot.save(folder / "audit.png", lambda ax: plot.plot_audit(audit, ax))
    (folder / "report.md").write_text(as_markdown(report, name, pictures), encoding="utf-8", errors="replace")
    text = json.dumps(as_dict(report), indent=1, ensure_ascii=False)
    (folder / "report.json").write_text(text + "\n", encoding="utf-8", errors="replace")


def _hints(frame: pd.DataFrame, context: str | None, report: Report) -> list[str]:
    """What a column that was not used could be for."""
    hints = []
    if context is None and "prompt" in frame:
        hints.append(
            "the column 'prompt' was not used: where items are answers to different prompts, give --context "
            "prompt, so that "
            "answers are compared, and suggested, within a prompt only"
        )
    if report.shape.matching and report.audit is None:
        hints.append(
            "to audit a reward model on these rows, add its scores as two columns and name them with "
            "--score-chosen and "
            "--score-rejected"
        )
    return hints


def _summary(report: Report) -> str:
    shape, test = report.shape, report.test
    if shape.matching:
        return f"Almost a matching: {shape.single:.0%} of {shape.items} items were compared with one other only."
    said = (
        "not tested"
        if test.p != test.p
        else ("not representable" if test.p < 0.05 else "nothing speaks against a score")
    )
    largest = _best(report)
    return f"{shape.items} items, {shape.components} component{'s' * (shape.components != 1)}; {said}{largest}."


def _best(report: Report) -> Any:
    table = scores_table(report)
    first = table[table["score"].notna()].head(1)
    return (
        f"; best of the largest: {shown(first['item'].iloc[0])} ({first['score'].iloc[0]:+.2f})" if len(first) else ""
    )
