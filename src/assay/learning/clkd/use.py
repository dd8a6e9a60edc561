"""``assay use clkd cohort.csv --teacher coefficients.json --out model.skops``: fit to a cohort, and rank new rows."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

from assay.errors import InputError
from assay.parts import estimator_files
from assay.parts.checkpoints import new_file
from assay.parts.frames import columns_named, read_frame, some

from .cohort import Cohort, feature_words, read_coefficients, read_cohort
from .estimator import CLKDSurvival

app = typer.Typer(help="Borrow a published risk score for a small survival study.", add_completion=False)


@app.command()
def fit(
    table: Annotated[
        Path, typer.Argument(help="Rows to fit, or with --model to rank: .csv, .tsv, .parquet or .jsonl.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The model's file, .skops.")] = None,
    event: Annotated[str, typer.Option(help="Column: 1 for an event (or a case), 0 for a censored row.")] = "event",
    time: Annotated[str, typer.Option(help="Column: time of event or censoring, above 0.")] = "time",
    teacher: Annotated[
        str | None,
        typer.Option(help="Column with log risks, or a .json of log hazard ratios; default: the study alone."),
    ] = None,
    matched_set: Annotated[
        str | None, typer.Option(help="Column with the set of each row of a matched study; a time is then left out.")
    ] = None,
    strata: Annotated[str | None, typer.Option(help="Column; rows of different strata are not compared.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column that is no feature; repeat.")] = None,
    eta: Annotated[str, typer.Option(help="How much the teacher counts: aggregate, cv, or a number.")] = "aggregate",
    report: Annotated[Path | None, typer.Option(help="Also write a report, .json.")] = None,
    new: Annotated[Path | None, typer.Option(help="Rows to rank with the model that was fitted.")] = None,
    model: Annotated[Path | None, typer.Option(help="A model written before; nothing is fitted.")] = None,
    predictions: Annotated[Path | None, typer.Option(help="Where the ranked rows' risks go, .csv.")] = None,
    at: Annotated[
        list[float] | None, typer.Option(help="Also the chance to be free of the event then; repeat.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the folds.")] = 0,
) -> None:
    """Fit to a cohort or to matched sets, with what a published model says of the rows; rank new rows."""
    _check_options(out, report, new, model, predictions, at)
    if model is not None:
        fitted = _load(model)
        _predict(fitted, table, predictions, strata, at)  # type: ignore[arg-type]
        typer.echo(f"Written to {predictions}")
        return
    source: Any = None
    if teacher is not None:
        source = read_coefficients(Path(teacher)) if teacher.lower().endswith(".json") else teacher
    cohort = read_cohort(
        table, event=event, time=time, teacher=source or {}, groups=matched_set, strata=strata, drop=tuple(drop or ()),
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = fit_cohort(cohort, _eta(eta), with_teacher=teacher is not None, seed=seed)
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            typer.echo(f"Note: {warning.message}", err=True)
    assert out is not None
    estimator_files.save(fitted, out)
    written = [out]
    if report is not None:
        with new_file(report) as path:
            path.write_text(json.dumps(report_of(fitted, cohort, table), indent=2) + "\n", encoding="utf-8")
        written.append(report)
    if new is not None and predictions is not None:
        _predict(fitted, new, predictions, strata, at)
        written.append(predictions)
    typer.echo(summary(fitted))
    typer.echo(f"Written to {', '.join(map(str, written))}")


def fit_cohort(cohort: Cohort, eta: float | str, *, with_teacher: bool, seed: int) -> Pipeline:
    """A pipeline that takes a frame: words one-hot, then the model."""
    words = list(cohort.words)
    columns = ColumnTransformer(
        [("words", OneHotEncoder(drop="first", sparse_output=False), words)],
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")  # so that the model knows the columns' names, for its messages too
    kind = "risk_set" if cohort.groups is None else "matched"
    model = CLKDSurvival(components=kind, eta=eta, random_state=seed)  # type: ignore[arg-type]
    pipeline = Pipeline([("columns", columns), ("clkd", model)])
    y = pd.DataFrame({"event": cohort.event, "time": cohort.time})
    return pipeline.fit(
        cohort.X.astype(dict.fromkeys(words, str)),
        y,
        clkd__teacher_risk=cohort.teacher if with_teacher else None,
        clkd__groups=cohort.groups,
        clkd__strata=cohort.strata,
    )


def report_of(fitted: Pipeline, cohort: Cohort, table: Path) -> dict[str, Any]:
    """What was fitted, and how well, as plain JSON."""
    model = fitted["clkd"]
    told = model.teacher_report()
    weights = told.pop("weights")
    names = fitted["columns"].get_feature_names_out()
    return _plain(
        {
            "table": table.name,
            "rows": len(cohort.X),
            "cases": int(cohort.event.sum()),
            "components": model.components,
            "n_components": model.n_components_,
            **told,
            "alpha": model.alpha_,
            "eta_weights": [{"eta": eta, "weight": weight} for eta, weight in weights.items()],
            "log_hazard_ratios": dict(zip(map(str, names), model.coef_.tolist(), strict=True)),
            "converged": model.converged_,
        }
    )


def summary(fitted: Pipeline) -> str:
    """The result in words."""
    model = fitted["clkd"]
    told = model.teacher_report()
    what = f"{model.n_components_} {'events' if model.components == 'risk_set' else 'matched sets'}"
    if told["teacher_loss"] is None:
        return f"{what}, no teacher; alpha {model.alpha_:.3g}."
    share = 1.0 if math.isinf(model.eta_) else model.eta_ / (1 + model.eta_)
    names = (("study alone", "internal_loss"), ("teacher", "teacher_loss"), ("together", "student_loss"))
    losses = ", ".join(f"{name} {told[key]:.3f}" for name, key in names if told[key] is not None)
    held = "held-out" if told["held_out"] else "fitted"
    return (
        f"{what}; the teacher counts {100 * share:.0f} % (eta {model.eta_:.3g}). Mean {held} loss of a case: {losses}."
    )


def _check_options(
    out: Path | None, report: Path | None, new: Path | None, model: Path | None, predictions: Path | None,
    at: list[float] | None,
) -> None:  # fmt: skip
    if model is not None:
        if out is not None or report is not None or new is not None:
            raise InputError(
                "--model ranks the table's rows and fits nothing; give --predictions and leave out the rest"
            )
        if predictions is None:
            raise InputError("--model needs --predictions: where the risks go")
    elif out is None:
        raise InputError("--out is needed: the model's file, .skops")
    elif out.suffix != estimator_files.SUFFIX:
        raise InputError(f"--out must end in {estimator_files.SUFFIX}, got {out.name}")
    elif (new is None) != (predictions is None):
        raise InputError("--new and --predictions go together: rows to rank, and where the risks go")
    if at and predictions is None:
        raise InputError("--at is for --predictions")
    if at and not all(math.isfinite(t) and t >= 0 for t in at):
        raise InputError(f"--at must be times of at least 0, got {at}")
    for name, path in (("--out", out), ("--report", report), ("--predictions", predictions)):
        if path is not None and path.is_dir():
            raise InputError(f"{name} {path} is a folder; give a file")


def _eta(text: str) -> float | str:
    if text in ("aggregate", "cv"):
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--eta must be aggregate, cv or a number of at least 0, got {text!r}") from None


def _load(path: Path) -> Pipeline:
    fitted = estimator_files.load(path)
    if not isinstance(fitted, Pipeline) or not isinstance(fitted.steps[-1][1], CLKDSurvival):
        raise InputError(f"{path.name} holds no model of this command, but {type(fitted).__name__}")
    return fitted


def _predict(fitted: Pipeline, table: Path, predictions: Path, strata: str | None, at: list[float] | None) -> None:
    frame = read_frame(table, text=[strata] if strata else [])
    names = list(map(str, fitted.feature_names_in_))
    columns_named(frame, table, *names, *([strata] if strata else []))
    X = frame[names]
    feature_words(X, table)
    words = fitted["columns"].transformers_[0][2]
    X = X.astype(dict.fromkeys(words, str))
    _refuse_new_words(fitted, X, words, table)
    out = pd.DataFrame({"risk": fitted.predict(X)}, index=frame.index)
    if at:
        model = fitted["clkd"]
        labels = frame[strata].to_numpy() if strata else None
        survival = model.predict_survival_function(fitted["columns"].transform(X), strata=labels, return_array=True)
        with_start = np.column_stack([np.ones(len(survival)), survival])
        last = float(model.unique_times_[-1])
        for t in at:
            if t > last:
                raise InputError(f"--at {t:g} is after the last time of the fit, {last:g}")
            out[f"free_at_{t:g}"] = with_start[:, np.searchsorted(model.unique_times_, t, side="right")]
    with new_file(predictions) as path:
        out.to_csv(path, index_label=frame.index.name or "row")


def _refuse_new_words(fitted: Pipeline, X: pd.DataFrame, words: list[str], table: Path) -> None:
    encoder = fitted["columns"].named_transformers_["words"]
    for name, known in zip(words, getattr(encoder, "categories_", ()), strict=True):
        strange = X.loc[~X[name].isin(list(known)), name]
        if len(strange):
            raise InputError(
                f"{table.name}: the column {name!r} holds {strange.iloc[0]!r}, which the fit has not seen (it saw "
                f"{some(list(known))}); leave those {len(strange)} rows out, or fit with such rows"
            )
    numbers = X.drop(columns=words)
    bad = [name for name in numbers if not pd.api.types.is_numeric_dtype(numbers[name])]
    if bad:
        raise InputError(f"{table.name}: {some(bad)} must be numbers, as in the fit")


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
