"""``assay use knockoff-pca TABLE --out DIR``: components, scores and a report from a table of numbers."""

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

from .estimator import SMALLEST_GROUP, KnockoffPCA
from .shift_test import p_text
from .table import Table, read_table

app = typer.Typer(help="PCA that finds and removes a hidden mean shift.", add_completion=False)


@app.command()
def fit(
    table: Annotated[Path, typer.Argument(help="CSV, TSV, Parquet or .npy; rows are samples, columns are numbers.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")],
    components: Annotated[int | None, typer.Option(help="Components to keep; default: those above noise.")] = None,
    center: Annotated[str, typer.Option(help="The clean mean: robust (unknown) or zero.")] = "robust",
    removal: Annotated[str, typer.Option(help="recentre the groups, or drop the components that moved.")] = "recentre",
    alpha: Annotated[float, typer.Option(help="Level of the test for a shift.")] = 0.01,
    standardise: Annotated[
        bool, typer.Option("--standardise", help="Divide columns by their standard deviation (after centring).")
    ] = False,
    index: Annotated[str | None, typer.Option(help="Column that names the rows.")] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether a CSV's first line names the columns.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the randomized decomposition of very large tables.")] = 0,
) -> None:
    """Fit knockoff PCA to a table; write its components, means, scores and a report."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a folder")
    read = read_table(table, index=index, header=header)
    numbers = read.numbers
    if standardise:
        numbers = standardised(numbers, table)
    model = KnockoffPCA(components, center=center, removal=removal, alpha=alpha, random_state=seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(numbers)
    notes = [*read.notes, *(["columns were divided by their standard deviation"] if standardise else [])]
    notes += dominant(numbers)
    notes += [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    write(model, Table(numbers, tuple(notes)), table.name, out)
    typer.echo(f"{verdict(model)} Written to {out}: {', '.join(FILES)}")


FILES = ("components.csv", "means.csv", "scores.csv", "report.csv", "report.md", "spectrum.png")


def standardised(numbers: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Divide each column by its standard deviation; constant columns cannot be."""
    sd = numbers.std(ddof=1)
    constant = list(sd.index[sd == 0])
    if constant:
        raise InputError(
            f"{path.name}: {len(constant)} columns are constant and cannot be standardised, the first is "
            f"{constant[0]!r}; take them out, or leave --standardise away"
        )
    return numbers / sd


def dominant(numbers: pd.DataFrame) -> list[str]:
    """A note where one column holds more than 90 % of the total variance: then it is the first component."""
    largest = float(numbers.abs().max().max())
    variances = (numbers / largest if largest > 0 else numbers).var()
    share = float(variances.max() / variances.sum()) if variances.sum() > 0 else 0.0
    if share <= 0.9:
        return []
    return [
        f"the column {variances.idxmax()!r} holds {100 * share:.1f} % of the total variance, so the first component is "
        "little else; where columns have different units, --standardise gives each the same weight"
    ]


def write(model: KnockoffPCA, table: Table, name: str, out: Path) -> None:
    """Write all files, each whole or not at all: in a temporary folder within ``out`` first, then renamed."""
    out.mkdir(parents=True, exist_ok=True)
    numbers = table.numbers
    pcs = list(model.get_feature_names_out())
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=out) as temporary:
        folder = Path(temporary)
        pd.DataFrame(model.components_, index=pd.Index(pcs, name="component"), columns=numbers.columns).to_csv(
            folder / "components.csv"
        )
        means = np.vstack([model.mean_, model.shifts_])
        names = ["clean mean", *(f"shift {j + 1}" for j in range(len(model.shifts_)))]
        pd.DataFrame(means, index=pd.Index(names, name="what"), columns=numbers.columns).to_csv(folder / "means.csv")
        scores = pd.DataFrame(model.transform(numbers), index=numbers.index, columns=pcs)
        scores.insert(0, "group", model.labels_)
        scores.to_csv(folder / "scores.csv", index_label=numbers.index.name or "row")
        rounds = dict(enumerate(model.rounds_, start=1))
        pd.concat(rounds, names=["round"]).to_csv(folder / "report.csv")
        (folder / "report.md").write_text(report_text(model, table, name), encoding="utf-8")
        _draw(model, folder / "spectrum.png")
        for file in FILES:
            os.replace(folder / file, out / file)


def _draw(model: KnockoffPCA, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    model.plot_spectrum(figure.subplots())
    figure.savefig(path, dpi=150)


def verdict(model: KnockoffPCA) -> str:
    """The result in one sentence."""
    counts = [int(rows.sum()) for rows in model.memberships_.T]
    if not counts:
        return "No hidden mean shift was found: this is plain PCA."
    if len(counts) == 1:
        return f"One hidden mean shift was found, in {counts[0]} of {model.n_samples_} rows."
    return f"{len(counts)} hidden mean shifts were found, in {', '.join(map(str, counts))} of {model.n_samples_} rows."


def report_text(model: KnockoffPCA, table: Table, name: str) -> str:
    """The report for people, in Markdown."""
    numbers = table.numbers
    n, d = numbers.shape
    report = model.report_
    parts = [
        f"# Knockoff PCA of {name}",
        verdict(model),
        f"{n} rows, {d} columns; {len(report)} of the {len(model.spectrum_.eigenvalues)} leading components stand "
        f"above the edge of the noise ({model.edge_:.4g}). Test level {model.alpha:g} over all of them together, "
        f"clean mean: {model.center}.",
    ]
    if table.notes:
        parts.append("Notes:\n" + "\n".join(f"- {note}" for note in table.notes))
    parts.append("![The spectrum without and with the knockoff mean](spectrum.png)")
    if len(report):
        parts.append("## The raw components\n" + _components_table(model))
        parts.append(
            "An eigenvalue is the second moment about the assumed clean centre; adding a known (knockoff) mean takes "
            "away the part that comes from a shifted group of rows. A component is called a shift where the move is "
            "significant (p, Bonferroni-corrected) **and** two groups explain the scores better than one skewed "
            f"group (BIC gain above {model.bic_margin:g})."
        )
    parts += _shifts_text(model, numbers)
    parts.append(_limits_text(model))
    share = 100 * model.explained_variance_ratio_
    kept = "\n".join(
        f"| {pc} | {variance:.4g} | {percent:.1f} % |"
        for pc, variance, percent in zip(model.get_feature_names_out(), model.explained_variance_, share, strict=True)
    )
    parts.append(f"## The clean components\n| component | variance | share |\n|---|---|---|\n{kept}")
    parts.append(
        "## How to use this\n"
        "- `components.csv`: unit loadings, a row a component; score = (row − clean mean) · loadings.\n"
        "- `means.csv`: the clean mean, and by how much each shifted group is away from it.\n"
        "- `scores.csv`: every row's group (0 = clean) and its scores about the clean mean. The scores of shifted rows "
        "still hold what the shift puts along the components; the components themselves are free of it.\n"
        "- `report.csv`: the tests of every round.\n"
        "- Look at the shifted rows first: what do they share (a date, a site, a device, a label)? The method finds "
        "*that* there are two groups, not *why*; groups that belong to your question should stay in the analysis.\n"
        "- The groups were found in the same data as the components, so tests between the groups on these data are "
        "too optimistic."
    )
    return "\n\n".join(parts) + "\n"


def _components_table(model: KnockoffPCA) -> str:
    lines = [
        "| component | eigenvalue | with knockoff | moved by | z | p | BIC gain | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for j, row in enumerate(model.report_.itertuples()):
        what = "**shift**" if row.moved else "stable"
        gain = "–" if np.isnan(row.bic_gain) else f"{row.bic_gain:.1f}"
        lines.append(
            f"| {j} | {row.eigenvalue:.4g} | {row.knockoff_eigenvalue:.4g} | {100 * row.relative_move:.1f} % | "
            f"{row.z:.1f} | {p_text(row.p_value).removeprefix('= ')} | {gain} | {what} |"
        )
    return "\n".join(lines)


def _shifts_text(model: KnockoffPCA, numbers: pd.DataFrame, most: int = 20) -> list[str]:
    if not len(model.shifts_):
        return ["## Shifts\nNone; nothing was removed."]
    done = (
        "each group was centred by its own mean before the final PCA"
        if model.removal == "recentre"
        else "the components that moved were deleted"
    )
    lines = [f"## Shifts\nWhat was removed: {done}."]
    for j, (shift, rows) in enumerate(zip(model.shifts_, model.memberships_.T, strict=True), start=1):
        names = [str(name) for name in numbers.index[rows]]
        shown = ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
        order = np.argsort(-np.abs(shift), kind="stable")[:5]
        columns = ", ".join(f"{numbers.columns[i]} ({shift[i]:+.4g})" for i in order)
        lines.append(
            f"**Shift {j}**: {len(names)} rows ({100 * len(names) / len(numbers):.1f} %), length "
            f"{np.linalg.norm(shift):.4g}. Largest in: {columns}.\n\nRows: {shown}."
        )
    return lines


def _limits_text(model: KnockoffPCA) -> str:
    n = model.n_samples_
    smallest = int(np.ceil(max(SMALLEST_GROUP, model.min_fraction * n)))
    lines = [
        f"A group of fewer than {smallest} rows ({100 * smallest / n:.1f} % of this table) is never called a shift.",
        "A shift in few rows adds little variance: π(1 − π)·length² for a share π of the rows. What doesn't stand "
        f"above the edge of the noise, or isn't among the first {model.k_max} components, is not examined.",
        "A shift about as strong as a covariance component mixes with it, moves it little, and may be missed.",
        "Several shifts of nearly the same strength can be taken for one.",
    ]
    if n < 38:
        lines.insert(1, f"With {n} rows, fewer than 38, even a group of 12 % is too small to be found.")
    return (
        "## What could be missed\n"
        + "\n".join(f"- {line}" for line in lines)
        + "\n\nHow well known shifts are found in this table: `assay check knockoff-pca --data TABLE`"
        + (" (needs 38 rows)." if n < 38 else ".")
    )
