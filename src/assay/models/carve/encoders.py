"""From texts to unit features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


class Encoder(Protocol):
    """Anything with ``encode(list of n texts)`` that returns an array [n, d]."""

    def encode(self, texts: list[str], /) -> Any:
        """Embed texts."""


def is_text(X: Any) -> bool:
    """Whether X is a list of texts, and not an array of numbers."""
    if hasattr(X, "detach"):
        return False
    if isinstance(X, Sequence) and not isinstance(X, str):
        return len(X) > 0 and isinstance(X[0], str)
    dtype = getattr(X, "dtype", None)
    return dtype is not None and getattr(X, "ndim", 0) == 1 and getattr(dtype, "kind", "O") in "OUTS"


def encode(encoder: Encoder | str | None, texts: Sequence[str], device: str) -> Any:
    """Embed texts with the built-in encoder ``"minilm"`` or one of the user's own."""
    if encoder is None:
        raise ValueError(
            "X holds texts, and this router has no encoder: give encoder='minilm' or an object with .encode(list of "
            "texts), or give X as an array of ready embeddings"
        )
    wrong = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"X holds texts, but X[{wrong}] is a {type(texts[wrong]).__name__}")
    if encoder == "minilm":
        from assay.parts import minilm

        return minilm.encode(list(texts), device=device)
    if isinstance(encoder, str) or not hasattr(encoder, "encode"):
        raise ValueError(f"encoder must be 'minilm', an object with .encode(list of texts), or None, not {encoder!r}")
    return encoder.encode(list(texts))


def unit_rows(X: Any, what: str, width: int | None = None, rows: int | None = None) -> FloatArray:
    """X as float32 [n, d] with rows of length 1 (rows of zeros stay); ``ValueError`` says what is wrong."""
    if hasattr(X, "detach"):
        X = X.detach().float().cpu().numpy()  # numpy has no bfloat16
    try:
        table = np.asarray(X)
        if table.dtype.kind == "c":
            raise ValueError("complex numbers are none of a router's")
        table = table if table.dtype == np.float32 else table.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be texts or an array of numbers [n, d]: {error}") from None
    if table.ndim != 2 or table.shape[1] == 0:
        raise ValueError(f"{what} must be texts or an array of numbers [n, d], got the shape {table.shape}")
    if rows is not None and len(table) != rows:
        raise ValueError(f"the encoder gave {len(table)} rows for {rows} texts")
    if not np.isfinite(table).all():
        row = int(np.flatnonzero(~np.isfinite(table).all(axis=1))[0])
        raise ValueError(f"{what} holds NaN or infinity, first in row {row}")
    if width is not None and table.shape[1] != width:
        raise ValueError(f"{what} has {table.shape[1]} columns; this router was trained on {width}")
    largest = np.abs(table).max(axis=1, keepdims=True, initial=0)
    table = table / np.where(largest > 0, largest, 1)  # first to about one: squares of 1e200 would be infinite
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return (table / np.where(norms > 0, norms, 1)).astype(np.float32, copy=False)
