"""``assay use sa-merging BASE EXPERT1 EXPERT2 … --out DIR``: a merged folder, or with ``--lora`` a merged adapter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from assay.errors import InputError

from .lora import merge_lora
from .merging import merge
from .report import MARKDOWN

app = typer.Typer(help="Merge fine-tuned models of one base without data.", add_completion=False)


@app.command()
def run(
    base: Annotated[Path, typer.Argument(help="Hugging Face folder of the base (safetensors).")],
    experts: Annotated[
        list[Path], typer.Argument(help="Folders of the fine-tuned models, or with --lora of adapters.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write; it must not exist, or be empty.")],
    keep: Annotated[
        float | None, typer.Option(help="Share of each expert's update that is kept [0.2; with --lora 0.5].")
    ] = None,
    rounds: Annotated[int, typer.Option(help="In how many rounds the rest is dropped.")] = 10,
    mode: Annotated[str, typer.Option(help="signed, agree or abs: what the summed update counts for.")] = "signed",
    combine: Annotated[str, typer.Option(help="capped (no longer than the experts' updates) or sum.")] = "capped",
    scale: Annotated[float, typer.Option(help="Factor of the kept updates.")] = 1.0,
    weight: Annotated[list[float] | None, typer.Option(help="Factor of an expert; give it once for each.")] = None,
    include: Annotated[list[str] | None, typer.Option(help="Merge only tensors named like this (* and ?).")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Keep the base's tensors named like this.")] = None,
    connectivity: Annotated[str, typer.Option(help="auto, chain, or none for no sensitivities.")] = "auto",
    lora: Annotated[bool, typer.Option("--lora", help="The experts are PEFT adapters; so is the result.")] = False,
    allow_missing: Annotated[bool, typer.Option(help="With --lora: adapters may lack modules of others.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
) -> None:
    """Merge experts into their base; write the merged model, or adapter, and a report."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if lora:
            unused = [
                name for name, value in (("--weight", weight), ("--include", include), ("--exclude", exclude)) if value
            ]
            if unused or mode != "signed" or scale != 1.0:
                raise InputError(f"{(unused or ['--mode and --scale'])[0]} has no meaning with --lora")
            merge_lora(
                base, experts, keep=0.5 if keep is None else keep, rounds=rounds, to=out,
                allow_missing=allow_missing, connectivity=connectivity, device=device, overwrite=overwrite,
            )  # fmt: skip
            done = f"The merged adapter is in {out}."
        else:
            with _bar() as progress:
                _, report = merge(
                    base, experts, keep=0.2 if keep is None else keep, rounds=rounds, mode=mode,
                    combine=combine, scale=scale,
                    weights=weight, include=include, exclude=exclude, connectivity=connectivity, device=device,
                    out=out, overwrite=overwrite, report=True, progress=_teller(progress),
                )  # fmt: skip
            done = (
                f"The merged model is in {out}; {MARKDOWN} there says what was kept of {len(report.experts)} experts."
            )
    for one in caught:
        if issubclass(one.category, UserWarning) and not issubclass(one.category, FutureWarning | DeprecationWarning):
            typer.echo(f"note: {one.message}", err=True)
    typer.echo(done)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    )


def _teller(progress: Progress) -> Callable[[str, int, int], None]:
    task = progress.add_task("reading", total=None)

    def tell(what: str, done: int, of: int) -> None:
        progress.update(task, description=what, completed=done, total=of)

    return tell
