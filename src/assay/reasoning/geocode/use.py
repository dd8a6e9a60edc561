"""``assay use geocode``: make problems, verify a data set, score predictions, print worksheets."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated

import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_folder

from .checks import GATES, verify
from .dataset import json_lines, read_dataset, refuse_taken, write_dataset
from .grading import code_in, grade
from .making import KINDS, generate
from .score import score_code

app = typer.Typer(
    help="Geometry problems whose text, drawing, answer and solution agree.", add_completion=False, no_args_is_help=True
)

SeedOption = Annotated[int, typer.Option(help="The same seed gives the same problems.")]
DepthOption = Annotated[int, typer.Option("--min-depth", help="Facts and givens that an answer rests on, at least.")]
TargetOption = Annotated[list[str] | None, typer.Option("--target", help="angle, length or ratio; may be repeated.")]


@app.command()
def make(
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder; with --fmt jsonl or pdf a file.")],
    n: Annotated[int, typer.Option("--n", help="How many.")] = 200,
    steps: Annotated[tuple[int, int], typer.Option(help="Fewest and most constructions upon the base figure.")] = (
        2,
        6,
    ),
    min_depth: DepthOption = 4,
    target: TargetOption = None,
    visual_only: Annotated[float, typer.Option(help="Share with givens in the drawing alone.")] = 0.5,
    distractors: Annotated[bool, typer.Option(help="State further numbers that are not needed.")] = False,
    styles: Annotated[bool, typer.Option(help="Draw each in a style of its own.")] = False,
    seed: SeedOption = 0,
    workers: Annotated[int, typer.Option(help="Processes.")] = 1,
    fmt: Annotated[str, typer.Option(help="hf, jsonl or pdf.")] = "hf",
    size: Annotated[int, typer.Option(help="Pixels of the images.")] = 336,
) -> None:
    """Make problems; each passed all five checks."""
    refuse_taken(out, fmt)  # before the work
    problems = generate(
        n, steps=steps, min_depth=min_depth, targets=tuple(target or KINDS), visual_only=visual_only,
        distractors=distractors, seed=seed, workers=workers,
    )  # fmt: skip
    write_dataset(problems, out, fmt=fmt, size=size, styles=seed if styles else None)
    depths = sorted(problem.depth for problem in problems)
    typer.echo(f"{n} problems, median depth {depths[n // 2]}, greatest {depths[-1]}. Written to {out}")


@app.command("verify")
def verify_command(data: Annotated[Path, typer.Argument(help="A folder or file of `make`.")]) -> None:
    """Check every problem of a data set again; exit code 1 where one fails."""
    problems, bad = read_dataset(data), 0
    for problem in problems:
        checks = verify(problem)
        for gate in GATES:
            if gate in checks.detail:
                typer.echo(f"{problem.id}  {gate}: {checks.detail[gate]}")
        bad += not checks.ok
    typer.echo(f"{len(problems) - bad} of {len(problems)} problems pass all five checks")
    if bad:
        raise typer.Exit(1)


@app.command()
def score(
    predictions: Annotated[Path, typer.Argument(help="JSON lines with id, and answer or code or completion.")],
    data: Annotated[Path, typer.Argument(help="The data set that they answer.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the scores.")] = Path("geocode-scores"),
) -> None:
    """Score answers and drawing code; a problem without a prediction counts as wrong."""
    problems = {problem.id: problem for problem in read_dataset(data)}
    given: dict[str, dict[str, object]] = {}
    for i, row in enumerate(json_lines(predictions), 1):
        name = row.get("id")
        if not isinstance(name, str) or name not in problems:
            raise InputError(f"{predictions}, line {i}: there is no problem {name!r} in {data}")
        if name in given:
            raise InputError(f"{predictions}, line {i}: the problem {name!r} is answered twice")
        for key in ("answer", "code", "completion"):
            if key in row and not isinstance(row[key], str):
                raise InputError(f"{predictions}, line {i}: {key} must be a text, got {row[key]!r:.40}")
        if not {"answer", "code", "completion"} & set(row):
            raise InputError(f"{predictions}, line {i}: one of answer, code and completion is needed")
        given[name] = row
    if not given:
        raise InputError(f"{predictions} holds no prediction")
    rows = []
    for name, problem in problems.items():
        row = given.get(name, {})
        whole = str(row.get("completion", ""))
        code = score_code(str(row.get("code", code_in(whole))), problem.scene)
        right = grade(str(row.get("answer", whole)), problem.answer)
        rows.append(
            {
                "id": name, "answered": name in given, "right": right, "parsed": code.parse, "point_f1": code.point_f1,
                "segment_f1": code.segment_f1, "circle_f1": code.circle_f1, "annotation": code.annotation,
                "fidelity": code.fidelity, "code": code.total,
            }
        )  # fmt: skip
    mean = {key: _mean([row[key] for row in rows]) for key in rows[0] if key != "id"}
    with new_folder(out) as folder:
        with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        (folder / "scores.json").write_text(json.dumps({"n": len(rows), "mean": mean}, indent=2), encoding="utf-8")
        lines = [f"# Scores of {predictions.name}", "", "| what | mean |", "|---|---:|"]
        lines += [f"| {key} | {'–' if value is None else f'{value:.3f}'} |" for key, value in mean.items()]
        _plot(rows, folder / "scores.png")
        lines += ["", f"{len(rows)} problems, {len(given)} answered.", "", "![Code scores](scores.png)", ""]
        (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    typer.echo(f"{mean['right']:.3f} right, code {mean['code']:.3f}. Written to {out}")


def _mean(values: list[float | bool | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _plot(rows: list[dict[str, object]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for right, label in ((True, "answer right"), (False, "answer wrong")):
        axes.hist(
            [float(row["code"]) for row in rows if row["right"] is right], bins=20, range=(0, 1), alpha=0.6, label=label
        )
    axes.set_xlabel("score of the drawing code")
    axes.set_ylabel("problems")
    axes.legend()
    figure.savefig(path, dpi=120)


@app.command()
def sheet(
    out: Annotated[Path, typer.Option("--out", "-o", help="The PDF.")] = Path("sheet.pdf"),
    n: Annotated[int, typer.Option("--n", help="How many problems.")] = 12,
    min_depth: DepthOption = 4,
    target: TargetOption = None,
    seed: SeedOption = 0,
) -> None:
    """Print a worksheet with worked solutions."""
    refuse_taken(out, "pdf")
    write_dataset(generate(n, min_depth=min_depth, targets=tuple(target or KINDS), seed=seed), out, fmt="pdf")
    typer.echo(f"{n} problems and their solutions. Written to {out}")
