"""``assay use lbw-cbo --target module:function --dim D --out gaussian.npz``: a Gaussian, a report and pictures."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.cache import full_disk_named
from assay.parts.frames import read_frame

from .estimator import LBWCBO
from .plot import draw_marginals, draw_trace
from .report import report_text, summary, verdict
from .user_target import guarded, named_function

app = typer.Typer(help="The best Gaussian for a many-peaked density, without gradients.", add_completion=False)


@app.command()
def fit(
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file; report and pictures go beside it.")],
    target: Annotated[
        str | None, typer.Option(help="Log density as module:function or FILE.py:function, (n, d) -> (n,).")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Number of parameters d of the target.")] = None,
    samples: Annotated[
        Path | None, typer.Option(help="In place of --target: a table of samples (CSV, TSV, Parquet); objective mmd.")
    ] = None,
    objective: Annotated[str, typer.Option(help="kl, or renyi:A with 0 < A < 1; mmd with --samples.")] = "kl",
    particles: Annotated[int, typer.Option(help="Gaussians in the swarm.")] = 50,
    iterations: Annotated[int, typer.Option(help="Iterations at most.")] = 200,
    points: Annotated[int, typer.Option(help="Base points of a Gaussian, even.")] = 128,
    spread: Annotated[float, typer.Option(help="Standard deviation of the means at the start.")] = 3.0,
    root: Annotated[float, typer.Option(help="Standard deviation of a Gaussian at the start.")] = 1.0,
    bandwidth: Annotated[
        float | None, typer.Option(help="Of mmd's kernel; the samples' median distance where it is not given.")
    ] = None,
    names: Annotated[str | None, typer.Option(help="Names of the parameters, with commas between.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of start, base points and noise.")] = 0,
) -> None:
    """Find the Gaussian nearest to a log density, or to samples; write it with a report and pictures."""
    if out.suffix != ".npz":
        raise InputError(f"--out must be a file that ends in .npz, got {out}")
    if out.is_dir():
        raise InputError(f"--out {out} is a folder; give a file that ends in .npz")
    if (target is None) == (samples is None):
        raise InputError("give --target or --samples, and not both")
    model = LBWCBO(
        objective="mmd" if samples is not None else objective,
        n_particles=particles,
        n_iter=iterations,
        n_samples=points,
        init_spread=spread,
        init_root=root,
        bandwidth="median" if bandwidth is None else bandwidth,
        random_state=seed,
    )
    function, table = None, None
    if target is not None:
        if dim is None:
            raise InputError("--dim must be given with --target: the number of parameters")
        function, what, labels = guarded(named_function(target, Path.cwd()), target), target, _names(names, dim)
    else:
        assert samples is not None
        if objective not in ("kl", "mmd"):
            raise InputError(f"--samples are approximated by mmd, not by {objective!r}")
        frame = _numbers(samples)
        if dim is not None and dim != frame.shape[1]:
            raise InputError(f"{samples.name} has {frame.shape[1]} columns, and --dim is {dim}")
        table, what = frame.to_numpy(dtype=np.float64), samples.name
        labels = _names(names, frame.shape[1]) if names else [str(column) for column in frame.columns]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(table if table is not None else function, dim=dim)
    notes = list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning | RuntimeWarning)))
    files = write(model, out, what, labels, notes, function, table)
    typer.echo(f"{verdict(model)} Written to {out.parent}: {', '.join(files)}")


def write(
    model: LBWCBO,
    out: Path,
    what: str,
    names: list[str],
    notes: list[str],
    log_density: Any = None,
    samples: Any = None,
) -> list[str]:
    """Write all files, each whole or not at all, and return their names."""
    out = out.expanduser().resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    stem = out.name.removesuffix(".npz")
    with full_disk_named(out), tempfile.TemporaryDirectory(prefix=".unfinished-", dir=out.parent) as temporary:
        folder = Path(temporary)
        np.savez(folder / out.name, mean=model.measure_.mean, root=model.measure_.root, cov=model.measure_.cov)
        summary(model, names).to_csv(folder / f"{stem}.csv")
        model.history_.to_csv(folder / f"{stem}-trace.csv", index=False)
        draw_trace(model, folder / f"{stem}-trace.png")
        drawn = draw_marginals(model.measure_, folder / f"{stem}-marginals.png", names, log_density, samples)
        (folder / f"{stem}.json").write_text(json.dumps(_numbers_of(model, what, names, notes), indent=2) + "\n")
        text = report_text(model, what, names, f"{stem}-trace.png", f"{stem}-marginals.png" if drawn else None, notes)
        (folder / f"{stem}.md").write_text(text, encoding="utf-8")
        files = [f"{stem}{end}" for end in (".npz", ".md", ".csv", ".json", "-trace.csv", "-trace.png")]
        files += [f"{stem}-marginals.png"] if drawn else []
        for file in files:
            os.replace(folder / file, out.parent / file)
    return files


def _numbers_of(model: LBWCBO, what: str, names: list[str], notes: list[str]) -> dict[str, Any]:
    return {
        "target": what,
        "objective": str(model.objective),
        "parameters": names,
        "mean": model.measure_.mean.tolist(),
        "cov": model.measure_.cov.tolist(),
        "objective_value": model.objective_,
        "elbo": model.elbo_,
        "converged": bool(model.converged_),
        "iterations": model.n_iter_,
        "density_rows": model.n_evals_,
        "other_basins": model.n_other_basins_,
        "seed": model.random_state,
        "notes": notes,
    }


def _names(text: str | None, dim: int) -> list[str]:
    if text is None:
        return [f"x{j}" for j in range(dim)]
    names = [name.strip() for name in text.split(",")]
    if len(names) != dim or len(set(names)) != dim or not all(names):
        raise InputError(f"--names must be {dim} different names with commas between, got {text!r}")
    return names


def _numbers(path: Path) -> pd.DataFrame:
    frame = read_frame(path)
    words = [str(name) for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])]
    if words:
        raise InputError(f"{path.name} must hold numbers only; the column {words[0]!r} does not")
    gaps = [str(name) for name in frame.columns if not np.isfinite(frame[name].to_numpy(dtype=np.float64)).all()]
    if gaps:
        raise InputError(f"{path.name}: the column {gaps[0]!r} has missing or infinite values")
    return frame
