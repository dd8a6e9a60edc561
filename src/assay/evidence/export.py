"""Records as tables for other programs: CSV, JSON, Parquet."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from assay.errors import InputError, MissingPart
from assay.evidence.record import Proportion, Record

FORMATS = ("csv", "json", "parquet")


def table(records: Sequence[Record]) -> pd.DataFrame:
    """One row a record. Metrics become columns ``metric.NAME``; a proportion gives its count, trials and share."""
    return pd.DataFrame([_row(record) for record in records], columns=None if records else _FIRST)


def write(records: Sequence[Record], format: str, out: Path | None) -> int:
    """Write records to a file, whole or not at all, or to standard output; returns their number.

    Raises
    ------
    InputError
        For an unknown format, or Parquet on standard output.
    MissingPart
        For Parquet without pyarrow.
    """
    if format not in FORMATS:
        raise InputError(f"format {format!r} is none of {', '.join(FORMATS)}")
    frame = table(records)
    if format == "parquet":
        if out is None:
            raise InputError("parquet is no text: give a file with --out")
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise MissingPart("export to Parquet needs pyarrow", "python -m pip install pyarrow") from None
    if out is None:
        sys.stdout.write(_text(frame, format))
        return len(frame)
    part = out.with_name(out.name + ".part")
    try:
        if format == "parquet":
            frame.to_parquet(part)
        else:
            part.write_text(_text(frame, format), encoding="utf-8")
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)
    return len(frame)


def _text(frame: pd.DataFrame, format: str) -> str:
    return frame.to_csv(index=False) if format == "csv" else frame.to_json(orient="records", indent=2) + "\n"


_FIRST = [field.name for field in dataclasses.fields(Record) if field.name not in ("metrics", "shared", "versions")]


def _row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(record, name) for name in _FIRST}
    row["shared_cpu_seconds"] = sum(record.shared.values())
    for name, value in record.metrics.items():
        if isinstance(value, Proportion):
            row[f"metric.{name}.events"], row[f"metric.{name}.trials"] = value
            value = value.events / value.trials
        row[f"metric.{name}"] = float(value)
    row |= {f"version.{name}": version for name, version in record.versions.items()}
    return row
