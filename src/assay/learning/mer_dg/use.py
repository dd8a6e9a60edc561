"""``assay use mer-dg RECORDINGS --out MODEL``: fit a classifier to recordings, or classify others with it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_file

from .arrays import DOMAIN, LABEL, arrays_of, read_recordings
from .estimator import MultimodalDGClassifier

app = typer.Typer(help="A classifier over several signals, for people not seen before.", add_completion=False)


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help="An .npz file: an array (n, …) a modality, labels and domains (n,).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the model; with --model a CSV file.")],
    modalities: Annotated[str, typer.Option(help="Names of the modalities' arrays, comma between; default: all.")] = "",
    label: Annotated[str, typer.Option(help="Name of the array of labels.")] = LABEL,
    domain: Annotated[str, typer.Option(help="Name of the array of domains: who or what a row comes from.")] = DOMAIN,
    model: Annotated[Path | None, typer.Option(help="Folder of a model: classify with it instead of fitting.")] = None,
    lam: Annotated[str, typer.Option(help="Weight of the loss, or auto: chosen on domains left out.")] = "auto",
    encoder: Annotated[
        str, typer.Option(help="mlp, cnn1d (rows are channels × time), or auto: cnn1d where rows are matrices.")
    ] = "auto",
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 30,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of starts, order and dropout.")] = 0,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show a bar.")] = False,
) -> None:
    """Fit a classifier with the modality-entropy loss; or, with --model, write each row's class and probabilities."""
    names = [name.strip() for name in modalities.split(",") if name.strip()] or None
    if model is not None:
        _classify(data, model, out, names, device)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):  # say so before the work
        raise InputError(f"{out} exists and is not empty: give another folder")
    held = read_recordings(data, names, label, domain)
    assert held.label is not None
    weight = "auto" if lam == "auto" else _number(lam)
    if encoder not in ("auto", "mlp", "cnn1d"):
        raise InputError(f"--encoder must be auto, mlp or cnn1d, got {encoder!r}")
    shapes = held.views.shapes
    encoders: Any = encoder
    if encoder == "auto":
        kinds = {name: "cnn1d" if len(shape) == 2 else "mlp" for name, shape in shapes.items()}
        same = len(set(kinds.values())) == 1
        encoders = next(iter(kinds.values())) if same else kinds
    classifier = MultimodalDGClassifier(
        encoders, lam=weight, epochs=epochs, device=device, random_state=seed, verbose=int(verbose)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        classifier.fit(held.inputs, held.label, held.domain)
        notes = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    classifier.save(out)
    for note in notes:
        typer.echo(f"Note: {note}")
    n, k = len(held.views), len(classifier.classes_)
    domains = len(np.unique(held.domain)) if held.domain is not None else 1
    typer.echo(f"{n} rows of {k} classes and {domains} domains; λ = {classifier.lam_:g}. Written to {out}")
    if hasattr(classifier, "selection_"):
        table = classifier.selection_.groupby("lam")["accuracy"].mean()
        told = ", ".join(f"{value:g}: {100 * score:.1f} %" for value, score in table.items())
        typer.echo(f"Accuracy on source data left out, by λ: {told}")


def _classify(data: Path, model: Path, out: Path, names: list[str] | None, device: str) -> None:
    classifier = MultimodalDGClassifier.load(model, device=device)
    held = read_recordings(data, names or _those_there(data, classifier.modalities_), None, None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        probabilities = classifier.predict_proba(held.inputs)
    best = probabilities.argmax(axis=1)
    frame = pd.DataFrame(probabilities, columns=[f"p({name})" for name in classifier.classes_])
    frame.insert(0, "class", classifier.classes_[best])
    frame.index.name = "row"
    with new_file(out) as path:
        frame.to_csv(path)
    for one in caught:
        typer.echo(f"Note: {one.message}")
    typer.echo(f"{len(frame)} rows classified. Written to {out}")


def _those_there(data: Path, known: tuple[str, ...]) -> list[str]:
    held = arrays_of(data)
    there = [name for name in known if name in held]
    if not there:
        raise InputError(f"{data.name} has none of the model's modalities, {', '.join(known)}")
    return there


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--lam must be auto or a number, got {text!r}") from None
