"""A router on disk: arrays as safetensors, the rest as JSON; a folder appears whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from assay.errors import InputError, one_line
from assay.parts.checkpoints import new_folder

from .registry import Registry

TENSORS, STATE = "router.safetensors", "router.json"
FORMAT = 1
_MOST_BYTES = 2**28  # of JSON: a catalogue of a million ids has less

_KEYS = {"format", "parameters", "encoder", "seed", "n_experiences", "n_steps", "warned", "registry"}
_LISTS: dict[str, Any] = {
    "ids": str | int,
    "domains": str | int | None,
    "families": str | int | None,
    "experience": int,
    "n_seen": int,
    "retired": bool,
}
_NAMES = ("vectors", "projection", "kept_X", "kept_targets", "kept_experience")


def write(
    folder: str | Path,
    state: Mapping[str, Any],
    registry: Registry,
    tensors: Mapping[str, NDArray[Any]],
    overwrite: bool,
) -> Path:
    """Write a router; ``state`` is what JSON can hold."""
    for what, column in (("id", registry.ids), ("domain", registry.domains), ("family", registry.families)):
        for value in column:
            if not isinstance(value, str | int | None):
                raise ValueError(
                    f"only strings and whole numbers can be saved; the {what} {value!r} is a {type(value).__name__}"
                )
    lists = {name: getattr(registry, name) for name in _LISTS}
    text = json.dumps({"format": FORMAT, **state, "registry": lists})
    if folder_is_other(Path(folder)):
        raise InputError(f"{folder} holds other things than a router: give another folder")
    with new_folder(folder, overwrite) as new:
        save_file({name: np.ascontiguousarray(table) for name, table in tensors.items()}, new / TENSORS)
        (new / STATE).write_text(text, encoding="utf-8")
    return Path(folder)


def folder_is_other(folder: Path) -> bool:
    """Whether something lies there that is no router: that is never overwritten."""
    return folder.is_dir() and any(path.name not in (TENSORS, STATE) for path in folder.iterdir())


def read(folder: str | Path) -> tuple[dict[str, Any], Registry, dict[str, NDArray[Any]]]:
    """Read what :func:`write` wrote; ``InputError`` where it is damaged or something else."""
    where = Path(folder)
    if not (where / STATE).is_file() or not (where / TENSORS).is_file():
        raise InputError(f"{folder} holds no router ({STATE} and {TENSORS})")
    if (where / STATE).stat().st_size > _MOST_BYTES:
        raise InputError(f"{where / STATE} is larger than {_MOST_BYTES >> 20} MiB: it is no router's")
    try:
        state = json.loads((where / STATE).read_text(encoding="utf-8"))
        tensors = load_file(where / TENSORS)
    except (ValueError, RecursionError, SafetensorError) as error:
        raise InputError(f"the router in {folder} is damaged: {one_line(error)}") from None
    if not isinstance(state, dict) or set(state) != _KEYS or state["format"] != FORMAT:
        raise InputError(f"{where / STATE} is not of format {FORMAT} of a router")
    lists = state.pop("registry")
    if not isinstance(lists, dict) or set(lists) != set(_LISTS) or not all(map(_is_column, lists, lists.values())):
        raise InputError(f"the router in {folder} is damaged: its registry is no table")
    if len({len(column) for column in lists.values()}) != 1:
        raise InputError(f"the router in {folder} is damaged: its registry's columns differ in length")
    counts = [state["seed"], state["n_experiences"], state["n_steps"]]
    if not all(map(_is_count, counts)) or state["encoder"] not in (None, "minilm", "own"):
        raise InputError(f"the router in {folder} is damaged: its seed, counts or encoder are wrong")
    registry = Registry(**lists)
    _check(folder, registry, tensors)
    return state, registry, tensors


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_column(name: str, column: Any) -> bool:
    if not isinstance(column, list) or not all(isinstance(value, _LISTS[name]) for value in column):
        return False
    return name not in ("experience", "n_seen") or all(map(_is_count, column))


def _check(folder: str | Path, registry: Registry, tensors: Mapping[str, NDArray[Any]]) -> None:
    def fail(why: str) -> InputError:
        return InputError(f"the router in {folder} is damaged: {why}")

    if set(tensors) != set(_NAMES):
        raise fail(f"it must hold {', '.join(_NAMES)}, and holds {', '.join(sorted(tensors))}")
    vectors, projection, kept_X = tensors["vectors"], tensors["projection"], tensors["kept_X"]
    targets, experience = tensors["kept_targets"], tensors["kept_experience"]
    if any(t.dtype != np.float32 or t.ndim != 2 or not np.isfinite(t).all() for t in (vectors, projection, kept_X)):
        raise fail("vectors, projection and kept queries must be finite float32 tables")
    if vectors.shape != (len(registry), projection.shape[1]) or kept_X.shape[1] != len(projection):
        raise fail("its tables do not fit together")
    if len(registry) == 0 or len(registry.index) != len(registry):
        raise fail("its ids are not all different")
    if (
        targets.shape != (len(kept_X),)
        or experience.shape != (len(kept_X),)
        or {
            targets.dtype,
            experience.dtype,
        }
        != {np.dtype(np.int64)}
    ):
        raise fail("its kept queries have no ids")
    if len(targets) and (targets.min() < 0 or targets.max() >= len(registry)):
        raise fail("a kept query has an id that is not there")
