"""A trained network as a folder: its numbers as safetensors, what else it needs to know as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import InputError, one_line
from assay.parts.checkpoints import new_folder
from assay.parts.packages import need

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
MOST_JSON = 64 * 2**20
_WHY = "a network's file"


def save(
    folder: str | Path,
    kind: str,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor | np.ndarray[Any, Any]],
    overwrite: bool = False,
) -> None:
    """Write ``<kind>.json`` and ``<kind>.safetensors`` into a new folder, whole or not at all.

    Parameters
    ----------
    folder
        A new or an empty one.
    kind
        What it is, in lower-case letters, digits, ``-`` and ``_``; :func:`load` must ask for the same.
    state
        Settings and what was learnt besides tensors: what JSON holds (NumPy's numbers and arrays become plain ones,
        tuples lists). NaN and infinity are allowed.
    tensors
        Tensors or arrays of numbers by name, on any device; they are written as they are, without gradients.
    overwrite
        Replace a folder that is not empty, when the new one is whole.

    Raises
    ------
    InputError
        When the folder is a file, or not empty and not to be overwritten.
    TypeError
        When ``state`` holds what JSON does not, or an array is not of numbers.
    MissingPart
        When torch or safetensors is not installed.
    """
    _check_kind(kind)
    torch, safe = need("torch", _WHY), need("safetensors.torch", _WHY)
    plain = {str(name): _tensor(str(name), value, torch) for name, value in tensors.items()}
    text = json.dumps({"kind": kind, "format": FORMAT, "state": _plain(state, "state")}, ensure_ascii=False)
    if len(text.encode("utf-8", "surrogatepass")) > MOST_JSON // 2:
        raise ValueError("state is larger than 32 MiB: give its arrays as tensors")
    weights = safe.save(plain)
    head = json.loads(text) | {"sha256": hashlib.sha256(weights).hexdigest()}
    with new_folder(folder, overwrite) as new:
        (new / f"{kind}.safetensors").write_bytes(weights)
        (new / f"{kind}.json").write_text(json.dumps(head, indent=1), encoding="utf-8")


def load(folder: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read what :func:`save` wrote: the state, and the tensors on the CPU.

    Raises
    ------
    InputError
        When there is no such folder, it holds another kind, comes from a newer version, or is damaged.
    MissingPart
        When torch or safetensors is not installed.
    """
    _check_kind(kind)
    safe = need("safetensors.torch", _WHY)
    where = Path(folder).expanduser()
    if not where.is_dir():
        raise InputError(f"there is no folder {where}")
    described, weights = where / f"{kind}.json", where / f"{kind}.safetensors"
    absent = [file.name for file in (described, weights) if not file.is_file()]
    if absent:
        raise InputError(f"{where} is no {kind} folder: it has no {' and no '.join(absent)}")
    if described.stat().st_size > MOST_JSON:
        raise InputError(f"{described} is larger than {MOST_JSON // 2**20} MiB: that is none of ours")
    try:
        head = json.loads(described.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{described} is damaged: {one_line(error, 120)}") from None
    if not isinstance(head, dict) or not isinstance(head.get("state"), dict) or head.get("kind") != kind:
        raise InputError(f"{described} is damaged, or does not describe a {kind}")
    if head.get("format") != FORMAT:
        raise InputError(f"{described} has the format {head.get('format')!r}; this version reads {FORMAT}")
    content = weights.read_bytes()
    if hashlib.sha256(content).hexdigest() != head.get("sha256"):
        raise InputError(f"{weights} is damaged, or is not the one that {described.name} was written with")
    try:
        return head["state"], safe.load(content)
    except Exception as error:  # SafetensorError, which is no ValueError
        raise InputError(f"{weights} is damaged: {one_line(error, 120)}") from None


def _check_kind(kind: str) -> None:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", kind):
        raise ValueError(f"kind must consist of lower-case letters, digits, '-' and '_', not {kind!r}")


def _tensor(name: str, value: Any, torch: Any) -> Any:
    if isinstance(value, np.ndarray | np.number):
        if np.asarray(value).dtype.kind not in "fiub":
            raise TypeError(f"the array {name!r} must be of numbers, and is of {np.asarray(value).dtype}")
        value = torch.from_numpy(np.array(value))  # a copy: torch takes neither read-only nor reversed ones
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name!r} must be a tensor or an array, not {type(value).__name__}")
    return value.detach().to("cpu").clone(memory_format=torch.contiguous_format)  # safetensors takes no shared memory


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist(), where)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}, and JSON has only text for keys")
        return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    raise TypeError(f"{where} is a {type(value).__name__}, which JSON does not hold")
