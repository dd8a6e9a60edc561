"""What people read of scores and answers: Markdown with pictures beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .asking import Answer
from .database import Rows, SqlError

MODE_SAYS = {
    "bag": "the same rows as often, in the same order where the right query orders them",
    "ordered": "the same rows in the same order",
    "bird": "the same set of rows; doubles and order do not count",
    "suite": "as bag, on the database and on five changed copies of it",
}
_COLOURS = {"simple": "#35b779", "moderate": "#31688e", "challenging": "#440154"}
_SHOWN = 20


def scores_report(scores: pd.DataFrame, summary: pd.DataFrame, counts: tuple[str, ...], mode: str | None) -> str:
    """The scores of many queries."""
    lines = [f"# Scores of {len(scores)} queries"]
    if mode is None:
        lines.append("Nothing was run: give `--db` for execution.")
    else:
        lines.append(f"Results are compared in the mode `{mode}`: {MODE_SAYS[mode]}.")
    shown = [name for name in counts if summary[name].notna().any()]
    lines.append(_table(["level", "questions", *shown], [
        [str(level), f"{row['questions']:.0f}", *(_number(row[name]) for name in shown)]
        for level, row in summary.iterrows()
    ]))  # fmt: skip
    parts = ", `parts` the F1 of the components" if "parts" in shown else ""
    lines.append(
        f"`ast` is the share of the right syntax tree that was built{parts}, `total` the weighted mean of all, the "
        "reward. Each is from 0 to 1; a query that fails costs `total` a tenth of execution's weight."
    )
    lines.append("![Mean scores by level](levels.png)")
    if mode is not None and scores["execution"].notna().any():
        wrong = scores[scores["execution"] == 0]
        near, far = int((wrong["ast"] >= 0.8).sum()), int((wrong["ast"] < 0.8).sum())
        odd = int(((scores["execution"] == 1) & (scores["ast"] < 0.6)).sum())
        lines.append("![Tree scores of right and wrong queries](trees.png)")
        lines.append(
            f"Queries with a wrong result: {len(wrong)}, of which {near} have at least 0.8 of the right tree and {far} "
            f"less. Queries with the right result and less than 0.6 of the right tree: {odd}; these are written in "
            "another way, or right by luck."
        )
    unjudged = scores[scores["total"].isna()]
    if len(unjudged):
        lines.append(f"## Questions that could not be judged ({len(unjudged)})")
        lines.append(_table(["question", "why"], _said(unjudged)))
    failed = scores[scores["total"].notna() & (scores["errors"] != "")]
    if len(failed):
        lines.append(f"## What was wrong with predictions ({len(failed)})")
        lines.append(_table(["question", "errors"], _said(failed)))
        if len(failed) > _SHOWN:
            lines.append(f"The first {_SHOWN}; all stand in scores.csv.")
    return "\n\n".join(lines) + "\n"


def _said(rows: pd.DataFrame) -> list[list[str]]:
    return [[_cell(q), _cell(e, 160)] for q, e in zip(rows["question_id"], rows["errors"], strict=True)][:_SHOWN]


def draw_levels(summary: pd.DataFrame, counts: tuple[str, ...], path: Path) -> None:
    """Mean scores as bars, a group for each level."""
    figure, axes = _axes(7.2, 3.4)
    levels = [level for level in summary.index if level != "all"]
    shown = [name for name in counts if summary[name].notna().any()]
    wide = 0.8 / len(levels)
    for k, level in enumerate(levels):
        places = np.arange(len(shown)) - 0.4 + wide * (k + 0.5)
        values = summary.loc[level, shown].astype(float)
        n = int(summary.loc[level, "questions"])
        bars = axes.bar(places, values, 0.92 * wide, color=_COLOURS[str(level)], label=f"{level} ({n})")
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.set_xticks(range(len(shown)), shown)
    axes.set_ylim(min(0.0, float(np.nanmin(summary[shown].astype(float)))), 1.12)
    axes.set_ylabel("mean score")
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(path, dpi=150)


def draw_trees(scores: pd.DataFrame, path: Path) -> None:
    """How tree scores lie for right and for wrong results."""
    figure, axes = _axes(7.2, 2.8)
    edges = np.linspace(0, 1, 21)
    groups = [scores.loc[scores["execution"] == right, "ast"].to_numpy(float) for right in (0, 1)]
    labels = [f"wrong result ({len(groups[0])})", f"right result ({len(groups[1])})"]
    axes.hist(groups, bins=edges, stacked=True, color=["#b5423c", "#35b779"], label=labels)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the right syntax tree (ast)")
    axes.set_ylabel("queries")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(path, dpi=150)


def answer_report(question: str, answer: Answer, model: str) -> str:
    """An answer with what was chosen from."""
    lines = [f"# {_cell(question, 200)}", f"Asked of {model}; {len(answer.votes)} sample(s)."]
    if answer.sql is None:
        return "\n\n".join([*lines, "The model wrote no query."]) + "\n"
    lines.append(f"{_fence(answer.sql)}sql\n{answer.sql}\n{_fence(answer.sql)}")
    if isinstance(answer.rows, Rows):
        found = answer.rows
        more = " (the first of more)" if found.truncated else ""
        lines.append(f"{len(found.rows)} row(s){more}:")
        if found.columns:
            lines.append(_table(list(found.columns), [[_cell(v) for v in row] for row in found.rows[:_SHOWN]]))
        if len(found.rows) > _SHOWN:
            lines.append(f"The first {_SHOWN}; all stand in rows.csv.")
    elif isinstance(answer.rows, SqlError):
        lines.append(f"It does not run: {_cell(answer.rows.message, 300)}.")
    if answer.parts:
        lines.append("Its components:")
        lines += [f"{_fence(part)}sql\n{part}\n{_fence(part)}" for part in answer.parts]
    if len(answer.votes) > 1:
        lines.append("## Samples")
        lines.append(
            "Agreement is the mean tree score with the other samples that run; same counts samples with the same rows. "
            "Samples of one model can agree on the same mistake."
        )
        lines.append(_table(["sample", "agreement", "same", "query"], [
            [str(i), _number(v.agreement), str(v.same), _cell(v.sql or "none", 120)]
            for i, v in enumerate(answer.votes, start=1)
        ]))  # fmt: skip
        lines.append("![How far each sample agrees with the others](samples.png)")
    return "\n\n".join(lines) + "\n"


def draw_samples(answer: Answer, path: Path) -> None:
    """How far each sample agrees with the others; the chosen one stands out."""
    n = len(answer.votes)
    figure, axes = _axes(6.4, 1.0 + 0.3 * n)
    colours = ["#31688e" if vote.sql == answer.sql else "#9fb8c8" for vote in answer.votes]
    axes.barh(range(n), [vote.agreement for vote in answer.votes], color=colours)
    for place, vote in enumerate(answer.votes):
        said = f"{vote.agreement:.2f}, rows shared by {vote.same}" if vote.same else "does not run"
        axes.text(vote.agreement + 0.01, place, said, va="center", fontsize=8)
    axes.set_yticks(range(n), [f"sample {i}" for i in range(1, n + 1)], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.35)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_xlabel("mean tree score with the other samples (dark: the chosen query)")
    figure.savefig(path, dpi=150)


def _axes(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _table(head: list[str], rows: list[list[str]]) -> str:
    wide = [_cell(name) for name in head]
    lines = ["| " + " | ".join(wide) + " |", "|" + "---|" * len(wide)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _cell(value: Any, most: int = 80) -> str:
    """A value in a cell of a table; it can neither leave the cell nor be taken for Markdown or HTML."""
    if value is None:
        return "NULL"
    text = f"{len(value)} bytes" if isinstance(value, bytes) else " ".join(str(value).split())
    text = text if len(text) <= most else text[: most - 1] + "…"
    for sign in "\\`*_[]<>|#!":
        text = text.replace(sign, "\\" + sign)
    return text


def _fence(text: str) -> str:
    """A fence that the text cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return fence


def _number(value: Any) -> str:
    return "–" if pd.isna(value) else f"{value:.3f}"
