"""``assay use dp-smk POINTS --sites SITES --cost COLUMN --budget B --epsilon E --out FILE``: where to put sites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_file, new_folder
from assay.parts.frames import columns_named, read_frame, some

from .instances import EARTH_KM, nearness
from .objectives import FacilityLocation
from .report import Asked, draw_bill, draw_map, report_json, report_text
from .solver import DPKnapsack

FloatArray = npt.NDArray[np.float64]

app = typer.Typer(help="Pick the best affordable sites for people whose places are private.", add_completion=False)


@app.command()
def pick(
    points: Annotated[Path, typer.Argument(help="Private: one row a person, and no person twice; where each is.")],
    sites: Annotated[Path, typer.Option("--sites", help="Public: a table with one site a row, its place and cost.")],
    cost: Annotated[str, typer.Option("--cost", help="The sites' column with what each costs.")],
    budget: Annotated[float, typer.Option("--budget", help="What the chosen sites may cost together.")],
    epsilon: Annotated[float, typer.Option("--epsilon", help="What the choice may cost in privacy.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV to write; the report goes into a folder beside it.")],
    delta: Annotated[float, typer.Option(help="δ; far below one in the number of people; 0 for pure privacy.")] = 1e-6,
    name: Annotated[str | None, typer.Option("--name", help="The sites' column with their names.")] = None,
    lat: Annotated[str, typer.Option(help="Column with the latitude in degrees, in both tables.")] = "latitude",
    lon: Annotated[str, typer.Option(help="Column with the longitude in degrees, in both tables.")] = "longitude",
    plane: Annotated[
        bool, typer.Option("--plane", help="The two columns are places in a plane; --reach is in their unit.")
    ] = False,
    reach: Annotated[float, typer.Option(help="From how far on a site is of no use: kilometres.")] = 50.0,
    algorithm: Annotated[str, typer.Option(help="auto, greedy_max, enumerate or sample_greedy_max.")] = "auto",
    neighbours: Annotated[str, typer.Option(help="What one person is worth: add_remove or replace.")] = "add_remove",
    value: Annotated[bool, typer.Option("--value", help="Spend a tenth on telling what the choice is worth.")] = False,
    seed: Annotated[int | None, typer.Option(help="For tests: who knows the seed can undo the noise.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what an earlier run wrote.")] = False,
) -> None:
    """Pick sites near as many people as can be, within a budget, so that no one person shows in the choice."""
    folder = out.with_name(f"{out.stem}_report")
    if out.suffix.lower() != ".csv":
        raise InputError(f"--out must end in .csv, got {out.name}")
    for there in (out, folder):  # before anything is spent
        if there.exists() and not overwrite:
            raise InputError(f"{there} exists; give another --out, or --overwrite (every run spends ε anew)")
    if not reach > 0 or not np.isfinite(reach):
        raise InputError(f"--reach must be a finite number greater than 0, got {reach}")
    catalogue = read_sites(sites, name, cost, lat, lon, plane)
    people = read_frame(points)
    columns_named(people, points, lat, lon)
    near = similarity(places(people, points, lat, lon), catalogue[[lat, lon]].to_numpy(dtype=float), reach, plane)
    solver = DPKnapsack(
        FacilityLocation(near, catalogue.index.tolist()),
        catalogue[cost].to_numpy(dtype=float),
        budget,
        epsilon=epsilon,
        delta=delta,
        algorithm=algorithm,  # type: ignore[arg-type]
        neighbours=neighbours,  # type: ignore[arg-type]
        release_value=value,
        random_state=seed,
    )
    result = solver.solve()
    unit = "" if plane else " km"
    asked = Asked(points.name, sites.name, cost, lat, lon, budget, reach, unit, neighbours, seed is not None)
    chosen = catalogue.loc[result.items]
    with new_folder(folder, overwrite=overwrite) as unfinished:
        draw_map(catalogue, result, asked, unfinished / "map.png")
        draw_bill(result, unfinished / "bill.png")
        result.ledger.to_csv(unfinished / "ledger.csv", index=False)
        text = json.dumps(report_json(catalogue, result, asked), indent=2, ensure_ascii=False, allow_nan=False)
        (unfinished / "report.json").write_text(text + "\n", encoding="utf-8")
        (unfinished / "report.md").write_text(report_text(catalogue, result, asked), encoding="utf-8")
    with new_file(out) as unfinished:
        chosen.to_csv(unfinished, index_label=catalogue.index.name)
    typer.echo(
        f"{len(chosen)} of {len(catalogue)} sites for {result.cost:g} of {budget:g}, at ε = {epsilon:g}, "
        f"δ = {delta:g}. Written to {out} and {folder}"
    )


def read_sites(path: Path, name: str | None, cost: str, lat: str, lon: str, plane: bool) -> pd.DataFrame:
    """The public table, indexed by the sites' names; what is wrong with it is said by column."""
    frame = read_frame(path, text=[name] if name else [])
    columns_named(frame, path, *([name] if name else []), cost, lat, lon)
    if name is None:
        words = [c for c in frame if c not in (cost, lat, lon) and frame[c].notna().all() and frame[c].is_unique]
        name = next((c for c in words if not pd.api.types.is_numeric_dtype(frame[c])), None)
    for column in (cost, lat, lon):
        if not pd.api.types.is_numeric_dtype(frame[column]) or not np.isfinite(frame[column]).all():
            raise InputError(f"{path.name}: the column {column!r} must hold a number in every row")
    if not (frame[cost] > 0).all():
        row = int(np.argmin(frame[cost] > 0))
        raise InputError(
            f"{path.name}: costs must be finite and greater than 0, and {cost!r} is {frame[cost].iloc[row]:g} in row "
            f"{row + 1} of {len(frame)}"
        )
    if not plane and not (frame[lat].abs() <= 90).all():
        raise InputError(
            f"{path.name}: a latitude is not between -90 and 90 degrees; for places in a plane give --plane"
        )
    if name is None:
        if any(not pd.api.types.is_numeric_dtype(frame[c]) for c in frame):
            typer.echo(
                f"{path.name}: no column of text names every site once, so sites are numbered by row; "
                "--name COLUMN says which one has their names",
                err=True,
            )
        frame.index = pd.RangeIndex(1, len(frame) + 1, name="site")
        return frame
    if frame[name].isna().any():
        raise InputError(f"{path.name}: a site has no name in {name!r}")
    if not frame[name].is_unique:
        twice = frame[name][frame[name].duplicated()].astype(str).unique()
        raise InputError(
            f"{path.name}: names in {name!r} must differ, and these stand there twice: {some(list(twice))}"
        )
    return frame.set_index(name)


def places(people: pd.DataFrame, path: Path, lat: str, lon: str) -> FloatArray:
    """(people, 2) where each person is; NaN where it does not say."""
    for column in (lat, lon):
        if not pd.api.types.is_numeric_dtype(people[column]):
            raise InputError(f"{path.name}: the column {column!r} must hold numbers")
    return people[[lat, lon]].to_numpy(dtype=float, na_value=np.nan)


def similarity(people: FloatArray, sites: FloatArray, reach: float, plane: bool) -> FloatArray:
    """(people, sites) 1 at a site, falling to 0 at ``reach``.

    Who has no usable place is near no site: refusing such a row, or counting them, would tell of a record.
    """
    usable = np.isfinite(people).all(axis=1) & (plane | (np.abs(people[:, 0]) <= 90))
    near = np.zeros((len(people), len(sites)))
    if plane:
        distance = np.hypot(*(people[usable, None, :] - sites[None, :, :]).transpose(2, 0, 1))
        near[usable] = np.maximum(0.0, 1.0 - distance / reach)
    else:
        near[usable] = nearness(people[usable], sites, min(reach, 4 * np.pi * EARTH_KM))
    return near
