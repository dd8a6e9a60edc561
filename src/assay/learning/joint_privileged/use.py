"""``assay use joint-privileged TABLE --target … --privileged … --out MODEL``: fit a model, predict new rows."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_file
from assay.parts.estimator_files import load, save
from assay.parts.frames import columns_named, read_frame

from .table import CoupledTable

app = typer.Typer(help="Learn from measurements that exist at training time only.", add_completion=False)


@app.command()
def fit(
    table: Annotated[Path | None, typer.Argument(help="CSV, TSV, Parquet or JSON lines: training rows.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict; empty where it is not known.")] = None,
    privileged: Annotated[str | None, typer.Option(help="Columns known in training only, with commas between.")] = None,
    task: Annotated[str | None, typer.Option(help="regression or classification; default: what the target is.")] = None,
    lam: Annotated[str, typer.Option(help="aggregate, cv, or a number from 0 to inf.")] = "aggregate",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the model, .skops.")] = None,
    model: Annotated[Path | None, typer.Option("--model", help="A model of before, in place of a table.")] = None,
    predict: Annotated[Path | None, typer.Option(help="Table of new rows; privileged columns are not needed.")] = None,
    pred_out: Annotated[Path | None, typer.Option(help="CSV for the predictions.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the folds.")] = 0,
) -> None:
    """Fit a model to a table whose privileged columns later rows will lack; predict new rows from the others."""
    if (table is None) == (model is None):
        raise InputError("give a table to fit a model to, or --model with one that was fitted before")
    if (predict is None) != (pred_out is None):
        raise InputError("--predict and --pred-out belong together: new rows, and where their predictions go")
    if table is None:
        if predict is None:
            raise InputError("--model needs --predict and --pred-out")
        fitted = load(model)
        if not isinstance(fitted, CoupledTable):
            raise InputError(f"{model} holds a {type(fitted).__name__}, and no model of this command")
    rows = None if predict is None else read_frame(predict)  # before a model is fitted: the file may not be there
    if table is not None:
        fitted = _fitted(table, target, privileged, task, lam, out, seed)
    if rows is not None and pred_out is not None:
        _write(_predictions(fitted, rows), pred_out)
        typer.echo(f"{len(rows)} predictions written to {pred_out}")


def _fitted(
    path: Path, target: str | None, privileged: str | None, task: str | None, lam: str, out: Path | None, seed: int
) -> CoupledTable:
    if target is None or privileged is None or out is None:
        raise InputError("to fit a model give --target, --privileged and --out")
    if out.suffix != ".skops":
        raise InputError(f"--out {out} must end in .skops")
    names = [name.strip() for name in privileged.split(",") if name.strip()]
    frame = read_frame(path)
    columns_named(frame, path, target, *names)
    how: float | str = lam
    if lam not in ("aggregate", "cv"):
        try:
            how = float(lam)
        except ValueError:
            raise InputError(f"--lam must be aggregate, cv or a number from 0 to inf, got {lam!r}") from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = CoupledTable(target, names, task, how, seed).fit(frame)  # type: ignore[arg-type]
    for line in _told(fitted, [str(w.message) for w in caught if issubclass(w.category, UserWarning)]):
        typer.echo(line)
    save(fitted, out)
    typer.echo(f"Model written to {out}")
    return fitted


def _told(fitted: CoupledTable, notes: list[str]) -> list[str]:
    """What was fitted and whether W helped, in lines."""
    model = fitted.model_
    lines = [
        f"{fitted.task_} of {fitted.target!r} from {len(fitted.inputs_)} inputs; {len(fitted.privileged)} privileged "
        f"columns; {model.n_labelled_} labelled and {model.n_unlabelled_} unlabelled rows"
    ]
    if fitted.left_out_:
        lines.append(f"left out, because they name rows: {', '.join(map(str, fitted.left_out_))}")
    lines += [f"note: {note}" for note in dict.fromkeys(notes)]
    if not hasattr(model, "cv_results_"):
        return lines
    report = model.value_report()
    loss = "squared error" if fitted.task_ == "regression" else "log-loss"
    parts = [
        f"{name} {report[key]:.4g}"
        for name, key in (
            ("ignoring them", "labelled_loss"),
            ("two stages", "two_stage_loss"),
            ("this model", "coupled_loss"),
        )
        if report[key] is not None
    ]
    lines.append(f"{loss} on held-out labels: {', '.join(parts)}")
    if report["gain"] is not None and report["gain_se"] is not None:
        sure = "more" if abs(report["gain"]) > 2 * report["gain_se"] else "not more"
        lines.append(
            f"gain over ignoring the privileged columns: {report['gain']:.3g} ± {report['gain_se']:.2g} "
            f"(standard error), {sure} than chance would explain"
        )
    return lines


def _predictions(fitted: CoupledTable, rows: pd.DataFrame) -> pd.DataFrame:
    out = pd.DataFrame({str(fitted.target): fitted.predict(rows)}, index=rows.index)
    if fitted.task_ == "classification":
        chances = fitted.predict_proba(rows)
        for j, name in enumerate(fitted.model_.classes_):
            out[f"probability of {name}"] = chances[:, j]
    return out


def _write(predictions: pd.DataFrame, path: Path) -> None:
    with new_file(path) as new:
        predictions.to_csv(new, index_label=predictions.index.name or "row")
