"""``assay use carve``: fit a router to a table of queries, route, add what is new, retire what is gone."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated

import typer

from assay.errors import InputError

from .router import CarveRouter
from .stream import checked_table
from .table import FORMATS, read_table

app = typer.Typer(
    help="A router that keeps learning as the catalogue grows.", add_completion=False, no_args_is_help=True
)

TableFile = Annotated[Path, typer.Option("--table", help=f"One query a row: {FORMATS}.")]
QueryColumn = Annotated[str, typer.Option("--query", help="Column with the query's text.")]
IdColumn = Annotated[str, typer.Option("--id", help="Column with the right model, tool or index.")]
DomainColumn = Annotated[str | None, typer.Option("--domain", help="Column with the domain of the id.")]
FamilyColumn = Annotated[str | None, typer.Option("--family", help="Column with the family of the id.")]
TimeColumn = Annotated[str | None, typer.Option("--experience", help="Column that says when; learned in that order.")]
RouterFolder = Annotated[Path, typer.Argument(help="Folder of a router.")]
OutOption = typer.Option("--out", "-o", help="Folder to write the router to; default: in place.")


@app.command()
def fit(
    table: TableFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder for the router.")],
    query: QueryColumn = "query",
    id_: IdColumn = "id",
    domain: DomainColumn = None,
    family: FamilyColumn = None,
    experience: TimeColumn = None,
    init: Annotated[str, typer.Option(help="Where vectors start: prototype or random.")] = "prototype",
    replay: Annotated[float, typer.Option(help="Share of old queries kept (their embeddings).")] = 0.1,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of starts and order.")] = 0,
) -> None:
    """Fit a new router to a table of queries and the ids that should answer them."""
    if init not in ("prototype", "random"):
        raise InputError(f"--init must be prototype or random, got {init!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):  # say so before the work
        raise InputError(f"{out} exists and is not empty: give another folder")
    router = CarveRouter(init=init, replay=replay, encoder="minilm", device=device, random_state=seed)
    _learn(router, table, query, id_, domain, family, experience)
    router.save(out)
    typer.echo(f"{_size(router)}. Written to {out}")


@app.command()
def update(
    router: RouterFolder,
    table: TableFile,
    query: QueryColumn = "query",
    id_: IdColumn = "id",
    domain: DomainColumn = None,
    family: FamilyColumn = None,
    experience: TimeColumn = None,
    out: Annotated[Path | None, OutOption] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda …")] = "auto",
) -> None:
    """Learn new queries, of new ids or old ones; earlier tables are not needed."""
    known = CarveRouter.load(router, device=device)
    _learn(known, table, query, id_, domain, family, experience)
    _write(known, router, out)


@app.command()
def route(
    router: RouterFolder,
    text: Annotated[list[str] | None, typer.Option("--text", help="A query; may be given several times.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file with a query on each line.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many ids for each query.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a query.")] = False,
) -> None:
    """Print the best ids for queries, with their scores (cosine / temperature)."""
    queries = list(text or [])
    if file is not None:
        try:
            queries += [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is no text in UTF-8: {error}") from None
    if not queries or not all(query.strip() for query in queries):
        raise InputError("give queries that are not empty, with --text or --file")
    ids, scores = CarveRouter.load(router).topk(queries, k)
    for query, names, values in zip(queries, ids.tolist(), scores.tolist(), strict=True):
        if as_json:
            typer.echo(json.dumps({"query": query, "ids": names, "scores": values}, ensure_ascii=False))
        else:
            best = "  ".join(f"{name} {value:.2f}" for name, value in zip(names, values, strict=True))
            typer.echo(f"{query}\n  {best}")


@app.command()
def retire(
    router: RouterFolder,
    ids: Annotated[list[str], typer.Argument(help="Ids to take out of service.")],
    out: Annotated[Path | None, OutOption] = None,
) -> None:
    """Take ids out of service; `revive` brings them back with the vectors that they had."""
    _write(_known(router, ids).retire(ids), router, out)


@app.command()
def revive(
    router: RouterFolder,
    ids: Annotated[list[str], typer.Argument(help="Ids to put back into service.")],
    out: Annotated[Path | None, OutOption] = None,
) -> None:
    """Put retired ids back into service."""
    _write(_known(router, ids).revive(ids), router, out)


def _known(folder: Path, ids: list[str]) -> CarveRouter:
    router = CarveRouter.load(folder)
    unknown = [name for name in ids if name not in router.ids_.tolist()]
    if unknown:
        raise InputError(f"the router in {folder} has no id {unknown[0]!r}")
    return router


def _learn(
    router: CarveRouter,
    path: Path,
    query: str,
    id_: str,
    domain: str | None,
    family: str | None,
    experience: str | None,
) -> None:
    names = {"query": query, "id": id_, "domain": domain, "family": family, "experience": experience}
    columns = read_table(path, names)
    times = ["experience"] if experience is not None else []
    table = checked_table(columns, times, called=names)
    for time, rows in table.groupby("experience", sort=True) if times else [("", table)]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no domains were given")
            router.partial_fit(
                rows["query"].tolist(),
                rows["id"].tolist(),
                rows["domain"].tolist() if domain is not None else None,
                rows["family"].tolist() if family is not None else None,
            )
        if times:
            typer.echo(f"{time}: {len(rows)} queries, {rows['id'].nunique()} ids")
    if domain is None and router.registry_["domain"].nunique() == 1:
        typer.echo("No --domain column: all ids count as one domain.")


def _size(router: CarveRouter) -> str:
    registry = router.registry_
    retired = int(registry["retired"].sum())
    more = f", {retired} of them retired" if retired else ""
    return f"{len(registry)} ids{more}, {registry['n_seen'].sum()} queries learned, {len(router.buffer_.X)} kept"


def _write(router: CarveRouter, folder: Path, out: Path | None) -> None:
    router.save(out or folder, overwrite=out is None)
    typer.echo(f"{_size(router)}. Written to {out or folder}")
