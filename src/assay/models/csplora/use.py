"""``assay use csplora --model DIR --data train.jsonl --text-field … --out plan.json``: a plan for a fine-tuning."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from assay.errors import InputError

from .plan import RankPlan
from .scores import ModuleScores

app = typer.Typer(help="Plan where LoRA rank should go before you train.", add_completion=False)

KINDS = ("auto", "classification", "causal-lm")
HEAD_STEPS = 50


@app.command()
def plan(
    out: Annotated[Path, typer.Option("--out", "-o", help="The plan's JSON file.")],
    model: Annotated[str | None, typer.Option(help="Hugging Face folder or id.")] = None,
    data: Annotated[Path | None, typer.Option(help="Training rows: .jsonl, .csv, .tsv or .parquet.")] = None,
    text_field: Annotated[str, typer.Option(help="The column of the texts.")] = "text",
    label_field: Annotated[
        str | None,
        typer.Option(help="The column of the labels: classes or numbers; for a language model the text's answer."),
    ] = None,
    kind: Annotated[str, typer.Option(help="classification, causal-lm, or auto: by the checkpoint.")] = "auto",
    rank: Annotated[int, typer.Option(help="As large as LoRA with this rank everywhere.")] = 8,
    budget: Annotated[str, typer.Option(help="Equal total rank, or equal number of params.")] = "params",
    r_min: Annotated[int | None, typer.Option(help="The least rank; default 2, or 1 for --rank below 4.")] = None,
    r_max_factor: Annotated[float, typer.Option(help="The largest rank, as a multiple of --rank.")] = 4.0,
    target: Annotated[
        list[str] | None, typer.Option(help="Names or ends of names, e.g. q_proj; repeat. Default: all linear layers.")
    ] = None,
    gamma: Annotated[float, typer.Option(help="How much more hard samples count; 0: all the same.")] = 2.0,
    weighting: Annotated[str, typer.Option(help="fixed, adaptive or uniform.")] = "fixed",
    steps: Annotated[int, typer.Option(help="At most so many batches.")] = 200,
    min_steps: Annotated[int, typer.Option(help="At least so many batches.")] = 50,
    batch_size: Annotated[int, typer.Option(help="Rows a batch.")] = 16,
    length: Annotated[int, typer.Option(help="Tokens a row at most.")] = 256,
    group_size: Annotated[int | None, typer.Option(help="Matrices at a time, to save memory.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    save_scores: Annotated[Path | None, typer.Option(help="Also write the scores, for other budgets.")] = None,
    scores: Annotated[Path | None, typer.Option(help="Scores written before; nothing is run.")] = None,
    lora_config: Annotated[
        Path | None, typer.Option(help="Also write PEFT's adapter_config.json into this new folder.")
    ] = None,
    scaling: Annotated[str, typer.Option(help="In that config: constant alpha/rank, or the source's one alpha.")] = (
        "constant"
    ),
    seed: Annotated[int, typer.Option(help="Seed of the rows' order, and of a new head.")] = 0,
) -> None:
    """Probe a model on training rows, deal out the ranks, and write the plan."""
    if kind not in KINDS:
        raise InputError(f"--kind must be one of {', '.join(KINDS)}, got {kind!r}")
    for what, number in (("--steps", steps), ("--min-steps", min_steps), ("--batch-size", batch_size)):
        if number < 1:
            raise InputError(f"{what} must be at least 1, got {number}")
    if length < 2:
        raise InputError(f"--length must be at least 2, got {length}")
    # Before the probe, which may take minutes.
    for what, path in (("--out", out), ("--save-scores", save_scores)):
        if path is not None and path.is_dir():
            raise InputError(f"{what}: {path} is a folder, and a file is to be written")
    if lora_config is not None and (lora_config.is_file() or (lora_config.is_dir() and any(lora_config.iterdir()))):
        raise InputError(f"--lora-config: {lora_config} exists and is not empty: give another folder")
    task_type = None
    if scores is not None:
        if model is not None or data is not None:
            raise InputError("--scores needs no --model and --data: nothing is run")
        found = ModuleScores.load(scores)
    else:
        if model is None or data is None:
            raise InputError("give --model and --data (or --scores, written before by --save-scores)")
        found, task_type = _scores(
            model, data, text_field, label_field, kind, batch_size, length, steps, min(min_steps, steps), target,
            gamma, weighting, group_size, device, dtype, seed,
        )  # fmt: skip
    made = found.plan(rank, budget=budget, r_min=r_min, r_max_factor=r_max_factor)  # type: ignore[arg-type]
    if save_scores is not None:
        found.save(save_scores)
    if lora_config is not None:
        _write_config(made, lora_config, scaling, task_type)
    made.save(out)
    typer.echo(str(made))
    if not found.converged:
        typer.echo(
            f"The scores had not settled after {found.steps} batches: more (--steps) may change the plan.", err=True
        )
    typer.echo(f"Written to {', '.join(str(path) for path in (out, save_scores, lora_config) if path)}")


def _scores(
    model: str,
    data: Path,
    text_field: str,
    label_field: str | None,
    kind: str,
    batch_size: int,
    length: int,
    steps: int,
    min_steps: int,
    target: list[str] | None,
    gamma: float,
    weighting: str,
    group_size: int | None,
    device: str,
    dtype: str,
    seed: int,
) -> tuple[ModuleScores, str]:
    from assay.parts.checkpoints import load_config, load_model, load_tokenizer
    from assay.parts.training import progress

    from .examples import (
        batches,
        classes,
        encode_labelled,
        encode_language,
        is_regression,
        padding,
        read_rows,
        usable_length,
    )
    from .heads import fit_head, load_classifier
    from .probing import probe

    rows = read_rows(data, text_field, label_field)
    config = load_config(model)
    if kind == "auto":
        language = any("CausalLM" in name or "LMHeadModel" in name for name in config.architectures or ())
        kind = "causal-lm" if language else "classification"
    tokenizer = load_tokenizer(model)
    rows = rows.sample((steps + HEAD_STEPS) * batch_size, seed)
    if kind == "causal-lm":
        network = load_model(model, dtype, device, "causal-lm")
        encoded = encode_language(tokenizer, rows, usable_length(tokenizer, network, length))
    else:
        if label_field is None:
            raise InputError("--label-field: classification needs the column of the labels")
        regression = is_regression(rows)
        trained = any("SequenceClassification" in name for name in config.architectures or ())
        numbers = None if regression else classes(rows, config.label2id if trained else None)
        count = 1 if numbers is None else max(numbers.values()) + 1
        network, new = load_classifier(model, count, regression=regression, dtype=dtype, device=device, seed=seed)
        encoded = encode_labelled(tokenizer, rows, usable_length(tokenizer, network, length), numbers)
        if new:
            typer.echo(f"The checkpoint has no head for {count} labels: a new one is trained first.", err=True)
            head_batches = batches(encoded, batch_size, HEAD_STEPS, seed + 1, padding(tokenizer, network))
            fit_head(network, progress(head_batches, HEAD_STEPS, "head", show=True))
    # No row is seen twice in a pass; where there are fewer rows than that, the probe goes over them once.
    most = min(steps, -(-len(encoded) // batch_size))
    probed = batches(encoded, batch_size, most, seed, padding(tokenizer, network))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = probe(
            network,
            progress(probed, most, "probe", show=True),
            target_modules=target or None,
            gamma=gamma,
            weighting=weighting,  # type: ignore[arg-type]
            min_steps=min_steps,
            max_steps=steps,
            group_size=group_size,
        )
    for warning in caught:
        if issubclass(warning.category, UserWarning):
            typer.echo(f"Note: {warning.message}", err=True)
    return found, "CAUSAL_LM" if kind == "causal-lm" else "SEQ_CLS"


def _write_config(made: RankPlan, folder: Path, scaling: str, task_type: str | None) -> None:
    from assay.parts.checkpoints import new_folder

    config = made.to_lora_config(scaling=scaling, task_type=task_type)  # type: ignore[arg-type]
    with new_folder(folder) as temporary:
        config.save_pretrained(temporary)
