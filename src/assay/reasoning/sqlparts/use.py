"""``assay use sqlparts score|ask|sft``: score a model's queries, ask a database through a model, write rows to learn
from.
"""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_file, new_folder

from .asking import Answer, Asker
from .completion import parse_completion
from .database import Rows, SafeDatabase
from .execution import MODES
from .levels import LEVELS, complexity
from .prompts import sft_rows
from .report import answer_report, draw_levels, draw_samples, draw_trees, scores_report
from .rewards import RewardWeights, reward_breakdown
from .tables import database_file, read_rows
from .tree import SqlParseError

app = typer.Typer(
    help="Score SQL by the parts of the right syntax tree, run it safely, ask a database.", add_completion=False
)
Db = Annotated[Path | None, typer.Option(help="A SQLite file, or a folder with ID/ID.sqlite for each db_id.")]
Way = Annotated[str, typer.Option(help="parts: complexity and components first; direct: the query at once.")]

COUNTS = ("format", "complexity", "parts", "ast", "execution", "total")
OF_COMPLETIONS = ("format", "complexity", "parts")
"""What a query alone is not judged by."""


@app.command()
def score(
    predictions: Annotated[Path, typer.Argument(help="Columns question_id, and sql or completion.")],
    gold: Annotated[Path, typer.Argument(help="Columns question_id, sql, and db_id where --db is a folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder to write to.")],
    db: Db = None,
    mode: Annotated[str, typer.Option(help="How results are compared: bag, ordered, bird or suite.")] = "bag",
    timeout: Annotated[float, typer.Option(help="Seconds a query may take.")] = 5.0,
    max_rows: Annotated[int, typer.Option(help="Rows that a right query may give.")] = 10_000,
) -> None:
    """Write scores.csv (a row a question), summary.csv and .json (by complexity), report.md and pictures.

    Tables are CSV, Parquet, one JSON object a line, or a JSON list as BIRD's and Spider's dev.json.
    """
    if mode not in MODES:
        raise InputError(f"--mode must be one of {', '.join(MODES)}, got {mode!r}")
    _check_free(out)
    mine, right = read_rows(predictions), read_rows(gold, "sql")
    if "sql" not in mine and "completion" not in mine:
        raise InputError(f"{predictions.name} needs a column sql or completion")
    said = _said(mine)
    # What a model left out is judged as what it wrote: where completions are given, as an empty one.
    alone = set(mine["question_id"] if "completion" not in mine else mine.loc[mine["completion"].isna(), "question_id"])
    whole = set(right["question_id"]) - alone if "completion" in mine else set()
    if not set(said.index) & set(right["question_id"]):
        raise InputError(f"{predictions.name} and {gold.name} have no question_id in common")
    rows = []
    with ExitStack() as open_:
        databases: dict[str, SafeDatabase | None] = {"None": None}
        for row in right.to_dict("records"):
            path = database_file(db, row)
            if str(path) not in databases:
                opened = SafeDatabase(path, timeout=timeout, max_rows=max_rows) if path else None
                databases[str(path)] = open_.enter_context(opened) if opened else None
            name = row["question_id"]
            found = _scored(str(said.get(name, "")), name in whole, row, databases[str(path)], mode)
            rows.append({"question_id": name} | found)
    scores = pd.DataFrame(rows)
    if scores["total"].isna().all():
        raise InputError(f"no query of {gold.name} can be judged: {scores['errors'].iloc[0]}")
    summary = _summary(scores)
    known = {"questions": len(scores), "mode": mode if db is not None else None, "levels": _plain(summary)}
    with new_folder(out) as folder:
        scores.to_csv(folder / "scores.csv", index=False)
        summary.to_csv(folder / "summary.csv", index_label="level")
        (folder / "summary.json").write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        draw_levels(summary, COUNTS, folder / "levels.png")
        if scores["execution"].notna().any():
            draw_trees(scores, folder / "trees.png")
        report = scores_report(scores, summary, COUNTS, mode if db is not None else None)
        (folder / "report.md").write_text(report, encoding="utf-8")
    ran = f", execution ({mode}) {scores['execution'].mean():.3f}" if db is not None else ""
    typer.echo(f"{len(scores)} questions, mean total {scores['total'].mean():.3f}{ran}. Written to {out}")


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="In words; left out where --questions is given.")] = "",
    db: Annotated[Path | None, typer.Option(help="A SQLite file.")] = None,
    endpoint: Annotated[str, typer.Option(help="Address of an OpenAI-compatible endpoint.")] = "",
    model: Annotated[str, typer.Option(help="The model's name there.")] = "",
    key_env: Annotated[str | None, typer.Option(help="The environment variable that holds the endpoint's key.")] = None,
    mode: Way = "parts",
    n: Annotated[int, typer.Option(help="Samples; the one that most agree with is taken.")] = 1,
    consensus: Annotated[str, typer.Option(help="Agree by trees (mcs) or by rows (execution).")] = "mcs",
    evidence: Annotated[str, typer.Option(help="What else helps: meanings of columns, formulas.")] = "",
    questions: Annotated[Path | None, typer.Option(help="A table with question, to ask many.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds a query may take.")] = 5.0,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="New folder to write to.")] = None,
) -> None:
    """Ask a database in words. With --out: answer.json, rows.csv and report.md, or predictions.jsonl for many.

    The model's queries run read-only, in a process of their own, with limits on time, memory and rows.
    """
    from assay.parts.chat import Chat

    if bool(question.strip()) == (questions is not None):
        raise InputError("give a question, or --questions FILE")
    if db is None or not endpoint or not model:
        raise InputError("--db FILE, --endpoint URL and --model NAME are needed")
    if questions is not None and out is None:
        raise InputError("--questions needs --out")
    if out is not None:
        _check_free(out)
    with SafeDatabase(db, timeout=timeout) as safe:
        chat = Chat(endpoint, model, key_env=key_env)
        asker = Asker(chat, safe, mode=mode, n=n, consensus=consensus)  # type: ignore[arg-type]
        if questions is not None and out is not None:
            _ask_many(asker, questions, out)
            return
        answer = asker.ask(question, evidence=evidence)
    typer.echo(answer.sql or "The model wrote no query.")
    if isinstance(answer.rows, Rows):
        typer.echo(answer.rows.frame().head(20).to_string(index=False))
        if len(answer.rows.rows) > 20 or answer.rows.truncated:
            typer.echo(f"… {len(answer.rows.rows)} rows{' and more' if answer.rows.truncated else ''}")
    elif answer.rows is not None:
        typer.echo(f"It does not run: {answer.rows.message}")
    if out is not None:
        with new_folder(out) as folder:
            _write_answer(question, answer, f"{model} at {chat.base_url}", folder)
        typer.echo(f"Written to {out}")


@app.command()
def sft(
    gold: Annotated[Path, typer.Argument(help="Columns question and sql; schema, evidence, db_id where there are.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New file to write, one JSON object a line.")],
    db: Db = None,
    mode: Way = "parts",
) -> None:
    """Write conversations to fine-tune a model on; with --db the prompts describe the tables."""
    if out.exists():  # say so before the work
        raise InputError(f"{out} exists: give another file")
    right = read_rows(gold, "question", "sql")
    rows = right.to_dict("records")
    texts: dict[str, str] = {}
    for row in rows:
        path = database_file(db, row)
        if path is not None:
            if str(path) not in texts:
                with SafeDatabase(path) as opened:
                    texts[str(path)] = opened.schema_text()
            row["schema"] = texts[str(path)]
    made = sft_rows(rows, mode=mode)  # type: ignore[arg-type]
    with new_file(out) as file:
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made), encoding="utf-8")
    typer.echo(f"{len(made)} conversations written to {out}")


def _check_free(out: Path) -> None:
    """Refuse a folder that holds something, before the work and not after it."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not an empty folder: give another")


def _said(mine: pd.DataFrame) -> pd.Series[str]:
    """What was written for each question: the completion, or the query alone where there is none."""
    table = mine.set_index("question_id")
    none = pd.Series(None, index=table.index, dtype=object)
    alone = table["sql"].map(lambda sql: f"<sql>{sql}</sql>", na_action="ignore") if "sql" in table else none
    whole = table.get("completion", none)
    return whole.where(whole.notna(), alone).fillna("")


def _scored(completion: str, whole: bool, row: dict[str, Any], db: SafeDatabase | None, mode: str) -> dict[str, Any]:
    """The scores of one completion, or of a query alone; where the right query itself cannot be judged, only why."""
    weights = None if whole else RewardWeights(**dict.fromkeys(OF_COMPLETIONS, 0.0))
    try:
        level = complexity(row["sql"])
        found = reward_breakdown(completion, row["sql"], db, weights=weights, mode=mode)  # type: ignore[arg-type]
    except SqlParseError as error:
        return {"level": None, **dict.fromkeys(COUNTS), "sql": None, "errors": f"the right query: {error}"}
    except InputError as error:
        return {"level": level, **dict.fromkeys(COUNTS), "sql": None, "errors": str(error)}
    scores = {name: found[name] for name in COUNTS}
    errors, parsed = found["errors"], parse_completion(completion)
    if not whole:
        scores |= dict.fromkeys(OF_COMPLETIONS)
        errors = [error for error in errors if error not in parsed.errors] or ["there is no query"] * (not parsed.sql)
    return {"level": level, **scores, "sql": parsed.sql, "errors": "; ".join(errors)}


def _summary(scores: pd.DataFrame) -> pd.DataFrame:
    judged = scores[scores["total"].notna()]
    kinds = [(level, judged[judged["level"] == level]) for level in LEVELS] + [("all", judged)]
    table = {
        level: {"questions": len(part)} | {name: pd.to_numeric(part[name]).mean() for name in COUNTS}
        for level, part in kinds
        if len(part)
    }
    return pd.DataFrame(table).T


def _plain(summary: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    return {
        str(level): {"questions": int(row["questions"])} | {name: _rounded(row[name]) for name in COUNTS}
        for level, row in summary.iterrows()
    }


def _rounded(value: float) -> float | None:
    return None if pd.isna(value) else round(float(value), 6)


def _answered(question: str, answer: Answer) -> dict[str, Any]:
    return {
        "question": question,
        "sql": answer.sql,
        "error": getattr(answer.rows, "message", None),
        "parts": list(answer.parts),
        "completion": answer.completion,
        "votes": [
            {
                "sql": v.sql,
                "agreement": v.agreement,
                "same": v.same,
                "error": getattr(v.rows, "message", None),
                "completion": v.completion,
            }
            for v in answer.votes
        ],
    }


def _write_answer(question: str, answer: Answer, model: str, folder: Path) -> None:
    (folder / "answer.json").write_text(json.dumps(_answered(question, answer), indent=2) + "\n", encoding="utf-8")
    if isinstance(answer.rows, Rows):
        with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(answer.rows.columns)
            table.writerows([v.hex() if isinstance(v, bytes) else v for v in row] for row in answer.rows.rows)
    if len(answer.votes) > 1:
        draw_samples(answer, folder / "samples.png")
    (folder / "report.md").write_text(answer_report(question, answer, model), encoding="utf-8")


def _ask_many(asker: Asker, path: Path, out: Path) -> None:
    asked = read_rows(path, "question")
    evidence = asked["evidence"].fillna("").tolist() if "evidence" in asked else None
    found = asker.ask_many(asked["question"].tolist(), evidence=evidence)
    lines = []
    for name, question, answer in zip(asked["question_id"], asked["question"], found, strict=True):
        about = _answered(question, answer) if isinstance(answer, Answer) else {"sql": None, "error": answer.reason}
        lines.append({"question_id": name, "question": question} | about)
    with new_folder(out) as folder:
        (folder / "predictions.jsonl").write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
        )
    ran = sum(line["sql"] is not None and line["error"] is None for line in lines)
    typer.echo(f"{len(lines)} questions, {ran} with a query that runs. Written to {out}")
