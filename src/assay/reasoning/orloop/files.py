"""Sets of instances as files: a table of what is known, and a model each as MPS with and without its error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from assay.errors import InputError

from .actions import ParseError, parse_action
from .model import LinearModel
from .saboteur import Instance


def write_instances(instances: Sequence[Instance], folder: Path) -> None:
    """Write ``instances.jsonl`` and, in ``models/``, two MPS files an instance."""
    models = folder / "models"
    models.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, one in enumerate(instances):
        name = f"{number:05d}"
        one.model.write(models / f"{name}.mps")
        one.original.write(models / f"{name}.original.mps")
        known = {
            "id": one.id,
            "model": f"models/{name}.mps",
            "original": f"models/{name}.original.mps",
            "error": one.error,
            "domain": one.domain,
            "culprits": sorted(one.culprits),
            "undo": [str(action) for action in one.undo],
            "iis_rows": list(one.iis_rows),
            "optimum": one.optimum,
            "narrative": one.narrative,
        }
        lines.append(json.dumps(known))
    (folder / "instances.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_instances(folder: str | Path) -> list[Instance]:
    """Read what :func:`write_instances` wrote; InputError for what is none."""
    home = Path(folder)
    table = home / "instances.jsonl"
    if not table.is_file():
        raise InputError(f"{folder} holds no instances.jsonl")
    out = []
    for number, line in enumerate(table.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            known = json.loads(line)
            undo = tuple(parse_action(text) for text in known["undo"])
            paths = [(home / known[key]).resolve() for key in ("model", "original")]
            fields = {key: known[key] for key in ("id", "error", "domain", "narrative")}
            culprits, rows, optimum = frozenset(known["culprits"]), tuple(known["iis_rows"]), float(known["optimum"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{table.name}, line {number}, is no instance: {error!r}") from error
        if any(isinstance(action, ParseError) for action in undo):
            raise InputError(f"{table.name}, line {number}: an action of undo cannot be read")
        if not all(path.is_relative_to(home.resolve()) for path in paths):
            raise InputError(f"{table.name}, line {number}: its models must lie in {folder}")
        model, original = (LinearModel.read(path) for path in paths)
        out.append(
            Instance(
                model=model, original=original, culprits=culprits, undo=undo, iis_rows=rows, optimum=optimum, **fields
            )  # type: ignore[arg-type]
        )
    return out
