"""What goes into each feed-forward layer of the dense model on the calibration text, kept on disk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from assay.parts.lm_scoring import token_batches

from .dense import Site

LENGTH = 256
"""Tokens in a row where texts are given; fewer where the model's context is shorter."""

LARGEST = 65504.0  # of float16


def token_rows(model: nn.Module, tokenizer: Any, data: Any) -> Int[Tensor, "n length"]:
    """The calibration text as rows of tokens.

    Parameters
    ----------
    model
        For the length of its context.
    tokenizer
        Needed where ``data`` holds texts.
    data
        Texts, a tensor (n, length) of tokens, or batches of such rows.

    Raises
    ------
    ValueError
        When there is no text, or no tokenizer for it, rows differ in length or exceed the model's context, or hold
        tokens that the model does not know.
    TypeError
        When the data is none of these.
    """
    if isinstance(data, Tensor):
        rows = data
    elif isinstance(data, str) or not isinstance(data, Iterable):
        raise TypeError(f"data must be texts, a tensor of tokens or batches of them, not {type(data).__name__}")
    else:
        items = list(data)
        if items and all(isinstance(item, str) for item in items):
            if tokenizer is None:
                raise ValueError("texts need a tokenizer, and it is None")
            context = getattr(getattr(model, "config", None), "max_position_embeddings", None) or LENGTH
            return _checked(model, token_batches(tokenizer, items, min(LENGTH, context)))
        if not items or not all(isinstance(item, Tensor) for item in items):
            kinds = sorted({type(item).__name__ for item in items})
            raise ValueError(f"data must hold texts or batches of tokens; it holds {', '.join(kinds) or 'nothing'}")
        if len({item.shape[-1] for item in items}) > 1:
            raise ValueError("all batches of tokens must have rows of one length")
        rows = torch.cat([item.reshape(-1, item.shape[-1]) for item in items])
    if rows.ndim != 2 or rows.dtype not in (torch.int64, torch.int32) or rows.numel() == 0:
        raise ValueError(
            f"tokens must be whole numbers of shape (n, length), got {rows.dtype} of shape {tuple(rows.shape)}"
        )
    return _checked(model, rows.long())


def _checked(model: nn.Module, rows: Tensor) -> Tensor:
    """The rows, where the model knows their tokens and its context holds their length."""
    embedding = model.get_input_embeddings() if hasattr(model, "get_input_embeddings") else None
    known = getattr(embedding, "num_embeddings", None)
    if known is not None and not 0 <= int(rows.min()) <= int(rows.max()) < known:
        raise ValueError(f"tokens must be 0 to {known - 1} for this model, got {int(rows.min())} to {int(rows.max())}")
    context = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if context is not None and rows.shape[1] > context:
        raise ValueError(f"rows have {rows.shape[1]} tokens, and the model's context is {context}")
    return rows


def run_body(model: nn.Module, ids: Tensor) -> None:
    """A pass through the model without its head, where it has one."""
    body = getattr(model, "base_model", model)
    takes_cache = "use_cache" in inspect.signature(body.forward).parameters
    body(input_ids=ids, **({"use_cache": False} if takes_cache else {}))


@torch.no_grad()
def record_inputs(
    model: nn.Module,
    sites: Sequence[Site],
    ids: Int[Tensor, "n length"],
    folder: Path,
    batch_tokens: int = 2048,
    on_batch: Callable[[int, int], None] | None = None,
) -> None:
    """Write each site's inputs as ``<layer>.npy``, (tokens, d) float16, into the folder; only the files grow.

    ``on_batch(done, total)`` is called with numbers of rows.
    """
    files: dict[int, np.memmap[Any, Any]] = {}
    position = 0

    def keep(layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            x = arguments[0].detach().reshape(-1, arguments[0].shape[-1])
            if layer not in files:
                shape = (ids.numel(), x.shape[1])
                files[layer] = np.lib.format.open_memmap(folder / f"{layer}.npy", "w+", np.float16, shape)
            kept = x.float().clamp(-LARGEST, LARGEST).half().cpu().numpy()
            files[layer][position : position + len(kept)] = kept

        return hook

    handles = [site.modules()[0].register_forward_pre_hook(keep(site.layer)) for site in sites]
    was_training = model.training
    model.eval()
    try:
        for batch in ids.split(max(1, batch_tokens // ids.shape[1])):
            run_body(model, batch.to(_device(model)))
            position += batch.numel()
            if on_batch is not None:
                on_batch(position // ids.shape[1], len(ids))
    finally:
        model.train(was_training)
        for handle in handles:
            handle.remove()
    for file in files.values():
        file.flush()


def recorded(folder: Path, layer: int) -> Tensor:
    """The inputs of a layer, (tokens, d) float16, read from disk as they are asked for."""
    return torch.from_numpy(np.load(folder / f"{layer}.npy", mmap_mode="c"))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def batches(ids: Tensor, batch_tokens: int) -> Iterator[Tensor]:
    """Rows, so many that they hold about ``batch_tokens`` tokens."""
    yield from ids.split(max(1, batch_tokens // ids.shape[1]))
