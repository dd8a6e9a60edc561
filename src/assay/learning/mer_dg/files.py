"""A fitted classifier as a folder: safetensors, and JSON beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.parts import net_files

from .views import Scaler

KIND = "mer-dg"


def write(
    folder: str | Path,
    parameters: Mapping[str, Any],
    classes: NDArray[Any],
    lam: float,
    shapes: Mapping[str, tuple[int, ...]],
    scaler: Scaler,
    network: Mapping[str, Tensor],
    overwrite: bool,
) -> None:
    """Write a classifier; of ``parameters`` what JSON cannot hold is left out."""
    labels = classes.tolist()
    if not all(isinstance(label, str | int | float | bool) for label in labels):
        raise InputError("only classes that are text, numbers or truth values can be saved")
    state = {
        "parameters": {name: value for name, value in parameters.items() if _is_plain(value)},
        "own_encoders": not _is_plain(parameters["encoders"]),
        "classes": labels,
        "classes_dtype": "text" if classes.dtype.kind in "UO" else classes.dtype.str,
        "lam": lam,
        "modalities": [{"name": name, "shape": list(shape)} for name, shape in shapes.items()],
    }
    tensors: dict[str, Any] = {f"network.{name}": value for name, value in network.items()}
    for place, name in enumerate(shapes):
        tensors[f"mean.{place}"], tensors[f"sd.{place}"] = scaler.mean[name], scaler.sd[name]
    net_files.save(folder, KIND, state, tensors, overwrite)


def read(
    folder: str | Path,
) -> tuple[dict[str, Any], NDArray[Any], dict[str, tuple[int, ...]], Scaler, dict[str, Tensor]]:
    """State, classes, shapes, scaler and network of :func:`write`; ``InputError`` where they are damaged."""
    state, tensors = net_files.load(folder, KIND)
    try:
        shapes = {str(one["name"]): tuple(map(int, one["shape"])) for one in state["modalities"]}
        dtype = state["classes_dtype"]
        classes = np.array(state["classes"], dtype=np.str_ if dtype == "text" else np.dtype(dtype))
        names = list(shapes)
        scaler = Scaler(
            {name: tensors.pop(f"mean.{place}").numpy() for place, name in enumerate(names)},
            {name: tensors.pop(f"sd.{place}").numpy() for place, name in enumerate(names)},
        )
        assert isinstance(state["parameters"], dict)
        assert isinstance(state["own_encoders"], bool)
        assert isinstance(state["lam"], int | float)
        assert classes.ndim == 1
        assert len(classes) > 1
        assert names
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise InputError(f"{folder} holds no complete mer-dg classifier: {type(error).__name__} {error}") from None
    return state, classes, shapes, scaler, {name.removeprefix("network."): value for name, value in tensors.items()}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_plain(held) for name, held in value.items())
    return value is None or isinstance(value, str | int | float | bool | np.number | np.bool_ | np.ndarray)
