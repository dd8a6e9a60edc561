"""``assay use sqlparts PRED GOLD --db DIR --out DIR``: score a model's queries against the right ones."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_folder
from assay.parts.frames import columns_named, read_frame

from .database import SafeDatabase
from .levels import LEVELS, complexity
from .rewards import reward_breakdown

app = typer.Typer(
    help="Score SQL by the parts of the right syntax tree, and by running it safely.", add_completion=False
)

COUNTS = ("format", "complexity", "parts", "ast", "execution", "total")


@app.command()
def score(
    predictions: Annotated[Path, typer.Argument(help="Columns question_id, and sql or completion.")],
    gold: Annotated[Path, typer.Argument(help="Columns question_id, sql, and db_id where --db is a folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder to write to.")],
    db: Annotated[
        Path | None, typer.Option(help="A SQLite file, or a folder with ID/ID.sqlite; else nothing runs.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds a query may take.")] = 5.0,
) -> None:
    """Write scores.csv (a row a question), summary.csv (by complexity) and report.md."""
    mine = read_frame(predictions, text=("question_id", "sql", "completion"))
    right = read_frame(gold, text=("question_id", "sql", "db_id"))
    columns_named(mine, predictions, "question_id")
    columns_named(right, gold, "question_id", "sql")
    if "sql" not in mine and "completion" not in mine:
        raise InputError(f"{predictions.name} needs a column sql or completion")
    for frame, path in ((mine, predictions), (right, gold)):
        if frame["question_id"].duplicated().any():
            raise InputError(f"{path.name}: a question_id stands there twice")
    said = mine.set_index("question_id")["completion" if "completion" in mine else "sql"].fillna("")
    if "completion" not in mine:
        said = said.map(lambda sql: f"<sql>{sql}</sql>")
    if not set(said.index) & set(right["question_id"]):
        raise InputError(f"{predictions.name} and {gold.name} have no question_id in common")
    rows = []
    with ExitStack() as open_:
        databases: dict[str, SafeDatabase | None] = {}
        for row in right.to_dict("records"):
            path = _database_file(db, row)
            if str(path) not in databases:
                databases[str(path)] = open_.enter_context(SafeDatabase(path, timeout=timeout)) if path else None
            found = reward_breakdown(said.get(row["question_id"], ""), row["sql"], databases[str(path)])
            level = complexity(row["sql"])
            rows.append(
                {"question_id": row["question_id"], "level": level}
                | {name: found[name] for name in COUNTS}
                | {"errors": "; ".join(found["errors"])}
            )
    scores = pd.DataFrame(rows)
    summary = _summary(scores)
    with new_folder(out) as folder:
        scores.to_csv(folder / "scores.csv", index=False)
        summary.to_csv(folder / "summary.csv", index_label="level")
        (folder / "report.md").write_text(_report(summary, len(scores), db is not None), encoding="utf-8")
    typer.echo(f"{len(scores)} questions, mean total {scores['total'].mean():.3f}. Written to {out}")


def _database_file(db: Path | None, row: dict[str, Any]) -> Path | None:
    if db is None or not db.is_dir():
        return db
    name = str(row.get("db_id", ""))
    if not name or Path(name).name != name:
        raise InputError(f"where --db is a folder, gold needs a plain db_id in each row, got {name!r}")
    return db / name / f"{name}.sqlite"


def _summary(scores: pd.DataFrame) -> pd.DataFrame:
    kinds = [(level, scores[scores["level"] == level]) for level in LEVELS] + [("all", scores)]
    table = {
        level: {"questions": len(part)} | {name: pd.to_numeric(part[name]).mean() for name in COUNTS}
        for level, part in kinds
        if len(part)
    }
    return pd.DataFrame(table).T


def _report(summary: pd.DataFrame, n: int, ran: bool) -> str:
    lines = [
        f"# Scores of {n} queries",
        "Execution compares bags of rows, ordered where the right query orders them."
        if ran
        else "Nothing was run: give --db for execution.",
        "| level | questions | " + " | ".join(COUNTS) + " |\n|---|---:|" + "---:|" * len(COUNTS),
    ]
    for level, row in summary.iterrows():
        values = ["–" if pd.isna(row[name]) else f"{row[name]:.3f}" for name in COUNTS]
        lines[-1] += f"\n| {level} | {int(row['questions'])} | " + " | ".join(values) + " |"
    return "\n\n".join(lines) + "\n"
