"""``assay use cure FILE --labels y --out result.csv``: a class for every row, known or new."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_file

from .discovery import CUREDiscovery
from .settings import ENCODERS
from .sources import read_labelled

app = typer.Typer(help="Sort rows into classes you know and ones you don't.", add_completion=False)


@app.command()
def fit(
    rows: Annotated[Path, typer.Argument(help=".npz with arrays, or CSV, TSV, Parquet or JSON lines of numbers.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write: class and probability of each row.")],
    labels: Annotated[str, typer.Option(help="Array or column of classes; -1 or empty where unknown.")] = "y",
    features: Annotated[str, typer.Option(help="Array of rows in an .npz file.")] = "X",
    index: Annotated[str | None, typer.Option(help="Column that names the rows of a table.")] = None,
    classes: Annotated[str, typer.Option(help="All classes, known and new: a number, or auto.")] = "auto",
    encoder: Annotated[str, typer.Option(help="mlp, or residual for embeddings.")] = "mlp",
    model: Annotated[Path | None, typer.Option(help="New folder for the fitted estimator.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of starts, batches and views.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show bars.")] = False,
) -> None:
    """Discover classes; write for each row its class, whether it is new, whether it was given, and its probability."""
    if classes != "auto" and not classes.isdecimal():
        raise InputError(f"--classes must be auto or a whole number, got {classes!r}")
    if encoder not in ENCODERS:
        raise InputError(f"--encoder must be {' or '.join(ENCODERS)}, got {encoder!r}")
    if out.is_dir():  # say so before the work
        raise InputError(f"--out {out} is a folder; give a file")
    if model is not None and model.exists() and (not model.is_dir() or any(model.iterdir())):
        raise InputError(f"--model {model} exists and is not empty: give another folder")
    X, y, names = read_labelled(rows, labels, features, index)
    found = CUREDiscovery(
        "auto" if classes == "auto" else int(classes),
        encoder=encoder,
        device=device,
        random_state=seed,
        verbose=verbose,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found.fit(X, y)
    table = result(found, X, names)
    with new_file(out) as path:
        table.to_csv(path, index=False)
    if model is not None:
        found.save(model)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            typer.echo(f"note: {warning.message}")
    new = found.n_classes_ - len(found.known_classes_)
    at = "estimated: " if classes == "auto" else ""
    typer.echo(
        f"{found.n_classes_} classes ({at}{len(found.known_classes_)} known, {new} new); of "
        f"{int((~table['given']).sum())} rows without a label {int(table['new'].sum())} are in new classes. "
        f"Written to {out}" + (f" and {model}" if model is not None else "")
    )


def result(found: CUREDiscovery, X: object, names: pd.Series | None) -> pd.DataFrame:
    """A line a row: its name or number, class, whether the class is new, whether it was given, its probability."""
    codes = found.codes_
    return pd.DataFrame(
        {
            "row": np.arange(len(codes)) if names is None else names.to_numpy(),
            "class": found.labels_,
            "new": codes >= len(found.known_classes_),
            "given": found.given_,
            "probability": found.predict_proba(X)[np.arange(len(codes)), codes].round(4),
        }
    )
