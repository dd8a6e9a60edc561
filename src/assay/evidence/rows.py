"""A record as a row of a database: columns of text and numbers, and JSON for what has no fixed columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, get_args

from assay.errors import InputError
from assay.evidence.record import Proportion, Record, Status

JSON_COLUMNS = ("metrics", "shared", "versions")
NUMBER_COLUMNS = ("cpu_seconds", "wall_seconds", "peak_mib")


def text(value: str) -> str:
    """Return ``value`` as every database takes it."""
    # Names of files may hold bytes that are no text, and PostgreSQL takes no NUL.
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def to_row(record: Record) -> dict[str, Any]:
    """Return the record's columns; numbers of numpy become Python's.

    Raises
    ------
    TypeError
        If a metric is nothing that a record can hold.
    """
    return {
        "key": record.key,
        "study": text(record.study),
        "task": text(record.task),
        "arm": text(record.arm),
        "role": record.role,
        "seed": int(record.seed),
        "budget": text(record.budget),
        "status": record.status,
        "reason": text(record.reason),
        "metrics": json.dumps({str(name): _encoded(name, value) for name, value in record.metrics.items()}),
        "shared": json.dumps({str(name): float(value) for name, value in record.shared.items()}),
        "context": text(record.context),
        "versions": json.dumps({str(name): str(value) for name, value in record.versions.items()}),
        "machine": text(record.machine),
        "finished": text(record.finished),
    } | {name: float(getattr(record, name)) for name in NUMBER_COLUMNS}


def from_row(row: Any, shown: str) -> Record:
    """Return the record that :func:`to_row` took apart.

    Raises
    ------
    InputError
        If a column does not hold what it must; ``shown`` is the storage's name in the message.
    """
    values: dict[str, Any] = dict(row._mapping)
    name = ""
    try:
        for name in JSON_COLUMNS:
            values[name] = json.loads(values[name])
            if not isinstance(values[name], dict):
                raise ValueError("not an object")
        name = "metrics"
        values["metrics"] = {metric: _decoded(value) for metric, value in values["metrics"].items()}
        for name in NUMBER_COLUMNS:
            values[name] = math.nan if values[name] is None else float(values[name])
        name = "seed"
        values["seed"] = int(values["seed"])
        name = "status"
        if values["status"] not in get_args(Status):
            raise ValueError(f"got {values['status']!r}")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"storage {shown}: the record {row.key!r} is damaged in its column {name} ({error}); "
            "restore a copy, or run its cell again with --fresh"
        ) from None
    return Record(**values)


def _encoded(name: str, value: Any) -> Any:
    """Return a metric as JSON has it; numbers of numpy and torch become Python's."""
    if isinstance(value, Proportion):
        return {"events": int(value.events), "trials": int(value.trials)}
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        value = value.item()
    match value:
        case None | bool() | str():
            return value
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case list() | tuple():
            return [_encoded(name, each) for each in value]
    raise TypeError(f"metric {name!r} must be a number, a truth value or a Proportion, got {type(value).__name__}")


def _decoded(value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.keys() != {"events", "trials"}:
            raise ValueError(f"a metric with {', '.join(map(str, value)) or 'nothing'} in it")
        return Proportion(int(value["events"]), int(value["trials"]))
    return value
