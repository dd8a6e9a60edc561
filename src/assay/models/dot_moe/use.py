"""``assay use dot-moe MODEL --text FILE --out DIR``: a checkpoint of experts from a dense checkpoint."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor

from assay.errors import InputError
from assay.parts.checkpoints import load_model, load_tokenizer, new_folder

from . import ConversionError, DotMoEConfig, convert, save
from .checkpoint import FILE
from .recording import token_rows

app = typer.Typer(help="Cut a language model's feed-forward layers into experts.", add_completion=False)

HELD_OUT = 0.1
"""Share of the text, its end, on which the models are compared where no other text is given."""

EVAL_TOKENS = 16_384

MOST_CHARACTERS = 20
"""Of a file read for each token that is asked for: prose has 4 or 5."""


@app.command()
def run(
    model: Annotated[str, typer.Argument(help="Folder or hub id of a dense causal language model (safetensors).")],
    text: Annotated[Path, typer.Option(help="Calibration text, UTF-8; some 50 000 tokens (200 kB) or more.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write the converted model to.")],
    experts: Annotated[int, typer.Option(help="Experts that each layer's neurons are cut into.")] = 8,
    top_k: Annotated[int, typer.Option("--top-k", help="Experts that each token uses.")] = 2,
    n_shared: Annotated[
        int | None, typer.Option(help="Of those, how many are the same for all tokens; default 1, or 0 at --top-k 1.")
    ] = None,
    eval_text: Annotated[
        Path | None, typer.Option(help="Text to compare the models on; default the last tenth of --text.")
    ] = None,
    freeze_weights: Annotated[
        bool, typer.Option("--freeze-weights", help="Only sort the weights; all experts together are the dense model.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Training steps for each layer.")] = 300,
    batch_tokens: Annotated[int, typer.Option(help="Tokens in each step.")] = 512,
    global_steps: Annotated[int, typer.Option(help="Steps of all layers together on the model's predictions.")] = 0,
    layers: Annotated[str, typer.Option(help="Layers to convert, e.g. 4-20,25; default all.")] = "",
    max_tokens: Annotated[int, typer.Option(help="Most tokens of the text to use.")] = 100_000,
    init: Annotated[str, typer.Option(help="Where the cut starts: activation, weight or random.")] = "activation",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or auto (the checkpoint's).")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    seed: Annotated[int, typer.Option(help="Seed of starts and order of tokens.")] = 0,
) -> None:
    """Convert a model, compare it with the dense one, and write it. Run again with the same options, it goes on."""
    with new_folder(out):
        pass  # a folder that cannot be written is told before the work, not after it
    out.rmdir()
    if n_shared is None:
        n_shared = 1 if top_k > 1 else 0
    config = DotMoEConfig(
        n_experts=experts, top_k=top_k, n_shared=n_shared, init=init,  # type: ignore[arg-type]
        lr_weights=0.0 if freeze_weights else DotMoEConfig.lr_weights, steps=steps, batch_tokens=batch_tokens,
        global_steps=global_steps, layers=_numbers(layers), seed=seed,
    )  # fmt: skip
    if max_tokens < 1:
        raise InputError(f"--max-tokens must be at least 1, got {max_tokens}")
    if (Path(model) / FILE).is_file():
        raise InputError(f"{model} is converted already ({FILE}); give the dense model")
    console = Console()
    # Texts first: a wrong file is told before a large model is loaded.
    paragraphs = _paragraphs(text, max_tokens)
    others = None if eval_text is None else _paragraphs(eval_text, EVAL_TOKENS)
    dense, tokenizer = load_model(model, dtype, device), load_tokenizer(model)
    train, held_out = _rows(dense, tokenizer, paragraphs, others, max_tokens)
    work = out.with_name(f"{out.name}.unfinished")
    console.print(f"{train.numel()} tokens to train on, {held_out.numel()} to compare on; on {dense.device}")
    start = time.perf_counter()
    stages = ("layer", "global") if global_steps else ("layer",)
    try:
        with _bars(console) as progress:
            converted = convert(dense, tokenizer, train, config, stages, held_out, progress, work)
    except ConversionError as error:
        raise InputError(str(error)) from error
    seconds = time.perf_counter() - start
    save(converted, out, tokenizer)
    shutil.rmtree(work)
    console.print(_summary(converted.dot_moe.report, config, seconds))  # type: ignore[union-attr]
    console.print(f'Written to {out}. Load it with assay.models.dot_moe.load("{out}").')


def _rows(
    model: Any, tokenizer: Any, text: list[str], eval_text: list[str] | None, max_tokens: int
) -> tuple[Tensor, Tensor]:
    """Rows of tokens to train on and to compare on."""
    rows = token_rows(model, tokenizer, text)
    rows = rows[: max(2, max_tokens // rows.shape[1])]
    if eval_text is not None:
        held_out = token_rows(model, tokenizer, eval_text)
    elif len(rows) < 2:
        raise InputError(f"the text has {rows.numel()} tokens: too few to train on and to compare on")
    else:
        cut = len(rows) - max(1, round(HELD_OUT * len(rows)))
        rows, held_out = rows[:cut], rows[cut:]
    return rows, held_out[: max(1, EVAL_TOKENS // held_out.shape[1])]


def _paragraphs(path: Path, tokens: int) -> list[str]:
    """The paragraphs of a text, or its lines where it has none; of a long one only as much as may be needed."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(max(2**20, MOST_CHARACTERS * tokens))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no UTF-8 text: {error}") from error
    paragraphs = [part.strip() for part in text.split("\n\n" if "\n\n" in text else "\n") if part.strip()]
    if not paragraphs:
        raise InputError(f"{path} holds no text")
    return paragraphs


def _numbers(text: str) -> tuple[int, ...] | None:
    """``"4-6,9"`` → (4, 5, 6, 9)."""
    if not text.strip():
        return None
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"--layers {text!r} must be numbers and ranges, e.g. 4-20,25")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    columns = (TextColumn("{task.description:<13}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bars:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            if what == "steps" and done == 1:
                bars.reset(tasks[what], total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield progress


def _summary(report: dict[str, Any], config: DotMoEConfig, seconds: float) -> Table:
    table = Table(title=f"{config.n_experts} experts, {config.top_k} a token ({config.n_shared} shared)")
    for name, justify in (("", "left"), ("dense", "right"), ("converted", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    before, total, active = (report[f"{what}_parameters"] for what in ("dense", "total", "active"))
    table.add_row("perplexity", f"{report['ppl_dense']:.2f}", f"{report['ppl_moe']:.2f}")
    table.add_row("perplexity, all experts on", "", f"{report['ppl_all_experts']:.2f}")
    table.add_row("KL from dense, nats a token", "", f"{report['kl']:.3f}")
    table.add_row("active parameters", f"{before:,}", f"{active:,} ({active / before:.1%})")
    table.add_row("total parameters", f"{before:,}", f"{total:,}")
    table.add_row("seconds for the text", f"{report['seconds_dense']:.1f}", f"{report['seconds_moe']:.1f}")
    errors, loads = report["relative_error"], report["max_load"]
    table.add_row("layers' relative error", "", f"{min(errors.values()):.3f} to {max(errors.values()):.3f}")
    table.add_row("busiest expert / even share", "", f"{min(loads.values()):.2f} to {max(loads.values()):.2f}")
    table.add_row("seconds to convert", "", f"{seconds:.0f}")
    return table
