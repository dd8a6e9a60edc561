"""``assay use llp-flow ROWS --bag COLUMN --proportions TABLE --out DIR``: a classifier of single rows."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.frames import columns_named, read_frame

from .estimator import LLPFlowClassifier
from .proportions import proportions_from_counts

app = typer.Typer(help="Learn a classifier of single rows from the class proportions of groups.", add_completion=False)


@app.command()
def run(
    rows: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or JSON lines: single rows, columns are numbers.")],
    bag: Annotated[str, typer.Option(help="The column that says which bag a row is in; also of the proportions.")],
    proportions: Annotated[Path, typer.Option(help="A row a bag: the bag's id, and a column for each class.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the model to.")],
    counts: Annotated[bool, typer.Option("--counts", help="The proportions are counts.")] = False,
    ignore: Annotated[list[str] | None, typer.Option(help="A column that is not learnt from; may be repeated.")] = None,
    predict: Annotated[Path | None, typer.Option(help="Rows to classify.")] = None,
    pred_out: Annotated[Path | None, typer.Option(help="CSV to write their classes and probabilities to.")] = None,
    anchors: Annotated[int, typer.Option(help="Anchors a class.")] = 30,
    lam_anchor: Annotated[float, typer.Option(help="Weight of the anchors; 0 is the bag loss alone.")] = 1.0,
    validation_bags: Annotated[float, typer.Option(help="Share of the bags that chooses the best pass.")] = 0.0,
    balanced: Annotated[bool, typer.Option("--balanced", help="Give rare classes the weight of common ones.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
) -> None:
    """Learn from rows in bags and the bags' proportions; write the model, and classify other rows."""
    if (predict is None) != (pred_out is None):
        raise InputError("--predict and --pred-out must be given together")
    if out.exists() and not overwrite and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"--out {out} is there and not an empty folder; give another, or --overwrite")
    if pred_out is not None and (pred_out.is_dir() or (pred_out.exists() and not overwrite)):
        raise InputError(f"--pred-out {pred_out} is there; give another file, or --overwrite")
    frame = read_frame(rows, text=(bag,))
    columns_named(frame, rows, bag, *(ignore or []))
    X = numbers(frame.drop(columns=[bag, *(ignore or [])]), rows)
    table = read_proportions(proportions, bag, counts)
    clf = LLPFlowClassifier(
        anchors_per_class=anchors,
        lam_anchor=lam_anchor,
        validation_bags=validation_bags,
        class_weight="balanced" if balanced else None,
        device=device,
        verbose=True,
        random_state=seed,
    )
    new = None if predict is None else numbers(_same_columns(read_frame(predict), X, predict), predict)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clf.fit(X, frame[bag].to_numpy(dtype=object), table)
    clf.save(out, overwrite)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            typer.echo(f"Warning: {warning.message}")
    typer.echo(summary(clf, len(X)))
    typer.echo(f"The model is in {out}; LLPFlowClassifier.load reads it.")
    if new is not None and pred_out is not None:
        write_predictions(clf, new, pred_out)
        typer.echo(f"The classes of {len(new)} rows are in {pred_out}.")


def numbers(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Refuse columns that are no numbers, or have gaps."""
    words = [str(c) for c in frame if not pd.api.types.is_numeric_dtype(frame[c])]
    if words:
        raise InputError(
            f"{path.name}: {len(words)} column(s) hold words or dates, the first is {words[0]!r}; encode them as "
            "numbers, or leave them out with --ignore"
        )
    if not frame.shape[1]:
        raise InputError(f"{path.name} has no columns to learn from")
    gaps = [str(c) for c in frame if not np.isfinite(frame[c].to_numpy(dtype=np.float64, na_value=np.nan)).all()]
    if gaps:
        raise InputError(
            f"{path.name}: {len(gaps)} column(s) have missing or infinite values, the first is {gaps[0]!r}; fill them "
            "in, or leave them out with --ignore"
        )
    return frame


def read_proportions(path: Path, bag: str, counts: bool) -> pd.DataFrame:
    """The table of proportions, its index the bags' ids as text."""
    frame = read_frame(path, text=(bag,))
    columns_named(frame, path, bag)
    table = frame.set_index(bag)
    if table.index.hasnans:
        raise InputError(f"{path.name}: the column {bag!r} is empty in {int(table.index.isna().sum())} rows")
    if counts:
        return proportions_from_counts(table)
    if (table.select_dtypes("number") > 1.5).to_numpy().any():
        raise InputError(f"{path.name} holds numbers above 1; give --counts where they are counts, else shares of 1")
    return table


def summary(clf: LLPFlowClassifier, rows: int) -> str:
    """What was learnt from, in one sentence."""
    report = clf.report()
    told = (
        f"Learnt from {rows} rows in {report['bags']} bags, {len(clf.classes_)} classes: diversity "
        f"{report['diversity']:.3f}, gap {report['gap']:.3f}; predicted proportions are off by "
        f"{report['bag_error']:.3f} on average."
    )
    return told if report["identifiable"] else f"{told} These bags can hardly tell the classes apart."


def write_predictions(clf: LLPFlowClassifier, X: pd.DataFrame, path: Path) -> None:
    """Class and probabilities of each row, whole or not at all."""
    probs = clf.predict_proba(X)
    table = pd.DataFrame(probs, index=X.index, columns=[f"p_{c}" for c in clf.classes_])
    table.insert(0, "class", clf.classes_[probs.argmax(axis=1)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=path.parent) as folder:
        table.to_csv(Path(folder) / "predictions.csv", index_label="row")
        os.replace(Path(folder) / "predictions.csv", path)


def _same_columns(frame: pd.DataFrame, X: pd.DataFrame, path: Path) -> pd.DataFrame:
    columns_named(frame, path, *map(str, X.columns))
    return frame[list(X.columns)]
