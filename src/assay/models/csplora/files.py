"""Small JSON files, written whole or not at all, and checked when read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.parts.checkpoints import new_file

LARGEST = 64 * 2**20
"""Bytes; the scores of a model of 10 000 matrices are some 2 MB."""


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write the file; it appears whole or not at all."""
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, allow_nan=False)
        file.write("\n")


def read_json(path: str | Path, kind: str, keys: set[str]) -> dict[str, Any]:
    """Read a file of that kind; ``InputError`` where it is another or lacks a key."""
    path = Path(path)
    if path.stat().st_size > LARGEST:
        raise InputError(f"{path} has {path.stat().st_size} bytes; no {kind} is larger than {LARGEST}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("kind") != kind:
        found = content.get("kind") if isinstance(content, dict) else type(content).__name__
        raise InputError(f"{path} must be a file of kind {kind!r}, got {found!r}")
    missing = sorted(keys - content.keys())
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}")
    return content
