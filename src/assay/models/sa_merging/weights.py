"""Where tensors come from and go to: modules, state dicts and folders of safetensors, read one tensor at a time."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from assay.errors import InputError
from assay.parts.checkpoints import new_folder

Source = nn.Module | Mapping[str, Tensor] | str | Path
"""A model: a module, its state dict, or a Hugging Face folder with safetensors."""

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_AT_ONCE = 1 << 24
_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class ShapeMismatchError(InputError):
    """A tensor of an expert has another shape than the base's."""


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def numel(self) -> int:
        """How many entries."""
        return int(torch.Size(self.shape).numel())


class Weights:
    """Tensors by name, each read when it is asked for.

    Attributes
    ----------
    label
        What to call it in messages.
    specs
        Name to shape and dtype, in the checkpoint's order.
    read
        ``read(name) -> Tensor``; treat it as read-only.
    folder
        Where it lies on disk, or None.
    module
        The module it came from, or None.
    """

    def __init__(
        self,
        label: str,
        specs: Mapping[str, Spec],
        read: Callable[[str], Tensor],
        folder: Path | None = None,
        module: nn.Module | None = None,
    ) -> None:
        self.label, self.specs, self.read, self.folder, self.module = label, dict(specs), read, folder, module


def open_weights(source: Source, label: str) -> Weights:
    """Look at a model without reading its tensors; ``InputError`` says what is wrong with a folder."""
    if isinstance(source, nn.Module):
        state = _without_ties(source)
        return Weights(label, _specs(state), state.__getitem__, module=source)
    if isinstance(source, Mapping):
        for name, tensor in source.items():
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{label}: {name!r} is a {type(tensor).__name__}, not a tensor")
        return Weights(label, _specs(source), source.__getitem__)
    if not isinstance(source, str | Path):
        raise TypeError(f"{label} must be a module, a state dict or a folder, not {type(source).__name__}")
    return _open_folder(Path(source))


def _without_ties(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module with each tied tensor once, under its first name."""
    seen: set[tuple[int, int]] = set()
    state: dict[str, Tensor] = {}
    for name, tensor in module.state_dict().items():
        key = (tensor.data_ptr(), tensor.numel())
        if tensor.numel() and key in seen and tensor.is_floating_point():
            continue
        seen.add(key)
        state[name] = tensor.detach()
    return state


def _specs(state: Mapping[str, Tensor]) -> dict[str, Spec]:
    return {name: Spec(tuple(tensor.shape), tensor.dtype) for name, tensor in state.items()}


def _open_folder(folder: Path) -> Weights:
    where: dict[str, tuple[Path, int]] = {}
    specs: dict[str, Spec] = {}
    for file in weight_files(folder):
        for name, (spec, start) in _header(file).items():
            specs[name], where[name] = spec, (file, start)

    def read(name: str) -> Tensor:
        # Read, not mapped: pages of a mapped file would count as memory of this process, more with each expert.
        spec, (file, start) = specs[name], where[name]
        if not spec.numel:
            return torch.empty(spec.shape, dtype=spec.dtype)
        buffer = bytearray(spec.numel * spec.dtype.itemsize)
        with file.open("rb", buffering=0) as opened:
            opened.seek(start)
            view = memoryview(buffer)
            while view and (got := opened.readinto(view)):
                view = view[got:]
        if len(view):
            raise InputError(f"{file} ends within {name}")
        return torch.frombuffer(buffer, dtype=spec.dtype).reshape(spec.shape)

    return Weights(str(folder), specs, read, folder=folder)


def _header(file: Path) -> dict[str, tuple[Spec, int]]:
    """What a file of safetensors holds: name to shape and dtype, and where its bytes begin."""
    try:
        with safe_open(file, "pt"):  # checks the header against the file's size
            pass
    except SafetensorError as error:
        raise InputError(f"{file} is no whole file of safetensors: {error}") from error
    found: dict[str, tuple[Spec, int]] = {}
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["dtype"] not in _DTYPES:
            raise InputError(
                f"{file.parent}: {name} has the dtype {entry['dtype']}; this merges {', '.join(_DTYPES)} (quantised "
                "weights must be dequantised first)"
            )
        spec = Spec(tuple(entry["shape"]), _DTYPES[entry["dtype"]])
        found[name] = (spec, 8 + length + entry["data_offsets"][0])
    return found


def weight_files(folder: Path) -> list[Path]:
    """The files of safetensors of a Hugging Face folder, in order."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; give a Hugging Face folder with safetensors")
    if (folder / INDEX).is_file():
        try:
            names = sorted(set(json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InputError(f"{folder / INDEX} is no index of safetensors: {error!r}") from error
        if outside := [name for name in names if Path(name).name != name]:
            raise InputError(f"{folder / INDEX} names a file outside its folder: {outside[0]!r}")
        absent = [name for name in names if not (folder / name).is_file()]
        if absent:
            raise InputError(f"{folder}: {INDEX} names {absent[0]}, which is not there")
        return [folder / name for name in names]
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    raise InputError(f"{folder} holds neither {SINGLE} nor {INDEX}; pickled weights are not read")


def check_alike(base: Weights, experts: Sequence[Weights]) -> None:
    """Check that experts have the base's tensors, and only numbers; nothing is written before.

    Raises
    ------
    KeyError
        When tensors are missing or too many, naming the expert and them.
    ShapeMismatchError
        Naming every tensor of another shape, with both shapes and the expert.
    InputError
        When an architecture or a tokenizer differs, or a tensor holds NaN or infinity, naming tensor and model.
    """
    shapes: list[str] = []
    for expert in experts:
        missing = [name for name in base.specs if name not in expert.specs]
        extra = [name for name in expert.specs if name not in base.specs]
        if missing or extra:
            parts = ["lacks " + _some(missing)] if missing else []
            parts += ["has, and the base has not, " + _some(extra)] if extra else []
            raise KeyError(f"{expert.label} {'; it '.join(parts)}")
        shapes += [
            f"{name}: {list(expert.specs[name].shape)} in {expert.label}, {list(spec.shape)} in {base.label}"
            for name, spec in base.specs.items()
            if spec.shape != expert.specs[name].shape
        ]
    if shapes:
        raise ShapeMismatchError(f"{len(shapes)} tensors have other shapes; " + "; ".join(shapes))
    for expert in experts:
        _check_folders(base, expert)
    for name, spec in base.specs.items():
        tensor = base.read(name)
        if spec.dtype.is_floating_point:
            _check_finite(name, tensor, base)
        for expert in experts:
            theirs = expert.read(name)
            if spec.dtype.is_floating_point:
                _check_finite(name, theirs, expert)
            elif not torch.equal(tensor, theirs):
                warnings.warn(f"{name} ({spec.dtype}) differs in {expert.label}; the base's is kept", stacklevel=4)


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _check_finite(name: str, tensor: Tensor, model: Weights) -> None:
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _AT_ONCE):
        if not bool(torch.isfinite(flat[start : start + _AT_ONCE]).all()):
            raise InputError(f"{name} of {model.label} holds NaN or infinity")


def _check_folders(base: Weights, expert: Weights) -> None:
    """Architecture, vocabulary and tokenizer of two folders."""
    if base.folder is None or expert.folder is None:
        return
    ours, theirs = read_json(base.folder / "config.json"), read_json(expert.folder / "config.json")
    for key in ("architectures", "model_type", "vocab_size", "tie_word_embeddings"):
        if key in ours and key in theirs and ours[key] != theirs[key]:
            raise InputError(f"{expert.label}: {key} is {theirs[key]!r}, and {ours[key]!r} in {base.label}")
    a, b = _vocabulary(base.folder), _vocabulary(expert.folder)
    if a is not None and b is not None and a != b:
        moved = sorted(word for word in a.keys() | b.keys() if a.get(word) != b.get(word))
        raise InputError(
            f"{expert.label}: its tokenizer differs from that of {base.label} in {len(moved)} words "
            f"({', '.join(map(repr, moved[:3]))}): the same number would mean different words"
        )


def _vocabulary(folder: Path) -> dict[str, int] | None:
    """Word to number of a fast tokenizer, or None where there is none to read."""
    if not (folder / "tokenizer.json").is_file():
        return None
    read = read_json(folder / "tokenizer.json")
    words = read.get("model", {}).get("vocab", {})
    pairs = words.items() if isinstance(words, dict) else ((entry[0], i) for i, entry in enumerate(words))
    return dict(pairs) | {token["content"]: token["id"] for token in read.get("added_tokens") or []}


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {error}") from error
    if not isinstance(read, dict):
        raise InputError(f"{path} must hold a JSON object, not a {type(read).__name__}")
    return read


def assemble(
    base: Weights,
    tensor: Callable[[str], Tensor],
    out: str | Path | None = None,
    overwrite: bool = False,
    also: Callable[[Path], None] | None = None,
) -> Any:
    """A model with ``tensor(name)`` for all names of ``base``: a folder (whole or not at all), a module or a state.

    ``also`` writes more into the folder.
    """
    if out is not None:
        with new_folder(out, overwrite) as folder:
            write_like(base, folder, tensor)
            if also is not None:
                also(folder)
        return Path(out)
    state = {name: tensor(name) for name in base.specs}
    if base.module is None:
        return state
    model = copy.deepcopy(base.module)
    with torch.no_grad():
        own = model.state_dict()
        for name, value in state.items():
            own[name].copy_(value)  # a tied tensor is written once, and every place that shares it follows
    return model


def write_like(base: Weights, folder: Path, tensor: Callable[[str], Tensor]) -> None:
    """Write ``tensor(name)`` for all names of the base's folder into files laid out as the base's, one at a time.

    Everything else of the base's folder (configuration, tokenizer) is copied, but not its other weights.
    """
    assert base.folder is not None
    for file in weight_files(base.folder):
        names = list(_header(file))
        with write_tensors(folder / file.name, {name: base.specs[name] for name in names}) as put:
            for name in names:
                put(tensor(name))
    weights = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".onnx", ".gguf"}
    for path in sorted(base.folder.iterdir()):
        if path.is_file() and path.suffix not in weights and not path.name.startswith("."):
            shutil.copyfile(path, folder / path.name)


@contextlib.contextmanager
def write_tensors(path: Path, specs: Mapping[str, Spec]) -> Iterator[Callable[[Tensor], None]]:
    """A file of safetensors written tensor by tensor, in the order of ``specs``: no more than one is in memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, spec in specs.items():
        size = spec.numel * spec.dtype.itemsize
        header[name] = {
            "dtype": _CODES[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    waiting = list(specs.values())
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)

        def put(tensor: Tensor) -> None:
            spec = waiting.pop(0)
            tensor = tensor.detach().to("cpu", spec.dtype).contiguous()
            if tuple(tensor.shape) != spec.shape:
                raise ValueError(f"a tensor of shape {tuple(tensor.shape)} was given where {spec.shape} was announced")
            file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)

        yield put
        if waiting:
            raise ValueError(f"{len(waiting)} tensors were announced and not written")
