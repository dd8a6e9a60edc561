"""``assay use orloop iis|repair|make|grade``: what conflicts, a proposal that mends it, models to test on, grades."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.errors import InputError
from assay.parts.checkpoints import new_folder

from .conflicts import iis
from .files import read_instances, write_instances
from .fixing import repair
from .grading import grade_agent
from .language import OpenAIAgent
from .model import LinearModel
from .model_files import SUFFIXES
from .reports import LONGER, STATUS_WORDS, conflict_text, no_conflict_text, write_conflict, write_repair
from .saboteur import ERRORS, generate
from .solving import solve

app = typer.Typer(help="Find what conflicts in an infeasible model, and mend it.", add_completion=False)
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to; new or empty.")]
ModelFile = Annotated[Path, typer.Argument(help="An .mps or .lp file, also .gz.")]
Key = Annotated[str | None, typer.Option(help="Environment variable that holds the endpoint's key.")]


@app.command("iis")
def conflict(
    model: ModelFile,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write to; without, it is printed.")] = None,
    bounds: Annotated[str, typer.Option(help="hard: bounds of columns are given; soft: they may be named.")] = "hard",
    hard_rows: Annotated[str, typer.Option(help="Rows that are never named, separated by commas.")] = "",
    time_limit: Annotated[float, typer.Option(help="Seconds.")] = 30.0,
) -> None:
    """Find an irreducible set of conflicting rows, with a certificate, and how far the rows are apart."""
    read = LinearModel.read(model)
    hard = _names(hard_rows, read)
    status = solve(read, time_limit=time_limit).status
    found = iis(read, bounds=bounds, hard_rows=hard, time_limit=time_limit)  # type: ignore[arg-type]
    if out is None:
        typer.echo(conflict_text(read, found, status, model.name), nl=False)
        return
    with new_folder(out) as folder:
        write_conflict(read, found, status, model.name, folder)
    if len(found):
        sure = "certified" if found.certified else f"not certified: time ran out, {LONGER}"
        members = [*found.rows, *(f"{side} bound of {col}" for col, side in found.col_bounds)]
        listed = ", ".join(members[:20]) + (f" and {len(members) - 20} more" if len(members) > 20 else "")
        typer.echo(f"{len(found)} members conflict ({sure}): {listed}. Written to {out}")
    else:
        typer.echo(f"{model.name} is {no_conflict_text(found, status)}. Written to {out}")


@app.command("repair")
def mend(
    model: ModelFile,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="The repaired model (.mps, .lp), with a folder beside it; or a new folder."),
    ],
    policy: Annotated[Path | None, typer.Option(help="Folder of a trained policy.")] = None,
    agent: Annotated[
        str | None, typer.Option(help="Address of a chat endpoint, which then proposes the edits.")
    ] = None,
    name: Annotated[str | None, typer.Option("--model", help="The endpoint's model.")] = None,
    key_env: Key = None,
    max_steps: Annotated[int, typer.Option(help="Most actions.")] = 10,
    time_limit: Annotated[float, typer.Option(help="Seconds a solve.")] = 30.0,
) -> None:
    """Propose edits that make a model feasible; write the repaired model, with a report."""
    if (agent is None) != (name is None):
        raise InputError("--agent and --model belong together")
    to_file = out.name.lower().endswith(SUFFIXES)
    if to_file and out.exists():
        raise InputError(f"{out} exists: give another file")
    home = report_folder(out) if to_file else out
    read = LinearModel.read(model)
    chosen = None
    if policy is not None:
        from .policy import RepairPolicy

        chosen = RepairPolicy.from_pretrained(policy)
    talker = OpenAIAgent(agent, name, key_env) if agent is not None and name is not None else None
    with new_folder(home) as folder:
        done = repair(read, policy=chosen, agent=talker, max_steps=max_steps, time_limit=time_limit)
        target = out if to_file else folder / "fixed.mps"
        done.model.write(target)
        write_repair(read, done, model.name, target, folder)
    said = "; ".join(map(str, done.edits)) or done.why[0]
    now = STATUS_WORDS.get(done.status, done.status)
    now = f"still {now}" if done.status == "infeasible" else f"{now}; {LONGER}" if done.status == "limit" else now
    typer.echo(f"{model.name}: {said}. Now {now}. Written to {out}{f' and {home}' if to_file else ''}")


@app.command("make")
def make(
    out: Out,
    n: Annotated[int, typer.Option(help="How many.")] = 100,
    errors: Annotated[str, typer.Option(help="Kinds of error, letters A to I.")] = ERRORS,
    milp: Annotated[bool, typer.Option("--milp", help="With integer columns.")] = False,
    seed: Annotated[int, typer.Option(help="Same seed, same models.")] = 0,
) -> None:
    """Write infeasible models with known errors: MPS files and instances.jsonl."""
    made = generate(n, errors=errors, milp=milp, seed=seed)
    with new_folder(out) as folder:
        write_instances(made, folder)
    typer.echo(f"{n} models written to {out}")


@app.command("grade")
def grade(
    models: Annotated[Path, typer.Argument(help="A folder that `make` wrote.")],
    out: Out,
    agent: Annotated[str, typer.Option(help="Address of a chat endpoint.")],
    name: Annotated[str, typer.Option("--model", help="The endpoint's model.")],
    key_env: Key = None,
    max_steps: Annotated[int, typer.Option(help="Most actions a model.")] = 10,
) -> None:
    """Let a language model repair models with known errors, and score it; scores so far stay if it breaks off."""
    instances = read_instances(models)
    talker = OpenAIAgent(agent, name, key_env)
    with new_folder(out) as folder:
        error = grade_agent(talker, instances, folder, max_steps=max_steps)
    if error is not None:
        typer.echo(f"Broke off; what was scored until then is in {out}")
        raise error
    typer.echo((out / "grade.md").read_text(encoding="utf-8"), nl=False)


def report_folder(out: Path) -> Path:
    """Return the folder beside a repaired model: fixed.mps has fixed.report."""
    stem = out.name
    for suffix in SUFFIXES[::-1]:
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    return out.with_name(f"{stem}.report")


def _names(text: str, model: LinearModel) -> list[str]:
    """Names separated by commas; a name that holds a comma is known from the model."""
    if text.strip() in model.row_names:
        return [text.strip()]
    return [name.strip() for name in text.split(",") if name.strip()]
