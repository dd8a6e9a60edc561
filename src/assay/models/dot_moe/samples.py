"""What the study works on: layers of a real model with their inputs on real text, and a small made-up layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .dense import DenseFFN, check_formula, sites
from .recording import record_inputs, recorded

PARTS = ("up", "down", "gate", "up_bias", "gate_bias", "down_bias")


def keep_layers(
    model: nn.Module, layers: Sequence[int], train: Int[Tensor, "n length"], test: Int[Tensor, "m length"], out: Path
) -> None:
    """Write weights and inputs of a model's layers: ``<layer>.safetensors``, and ``train`` and ``test`` with inputs."""
    found = sites(model)
    chosen = [found[layer] for layer in layers]
    for site in chosen:
        dense = site.dense()
        check_formula(site, dense.up.shape[1])
        tensors = {name: getattr(dense, name) for name in PARTS if getattr(dense, name) is not None}
        save_file({k: v.detach().float().contiguous() for k, v in tensors.items()}, out / f"{site.layer}.safetensors")
    for name, ids in (("train", train), ("test", test)):
        (out / name).mkdir()
        record_inputs(model, chosen, ids, out / name)


def kept_layer(folder: Path, layer: int, act: Any) -> DenseFFN:
    """A layer's weights, float32."""
    return DenseFFN(act=act, **load_file(folder / f"{layer}.safetensors"))


def kept_inputs(folder: Path, layer: int, rows: Tensor | None = None, length: int = 1) -> Tensor:
    """A layer's inputs (tokens, d) float32: all, or those of some rows of ``length`` tokens."""
    x = recorded(folder, layer)
    if rows is None:
        return x.float()
    return x.view(-1, length, x.shape[1])[rows].reshape(-1, x.shape[1]).float()


def made_up_layer(seed: int, tokens: int, d: int = 32, d_ffn: int = 64, topics: int = 4) -> tuple[DenseFFN, Tensor]:
    """A gated layer and inputs (tokens, d) of several topics, each of which drives neurons of its own."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.standard_normal((topics, d))
    x = centres[rng.integers(topics, size=tokens)] + rng.standard_normal((tokens, d))
    gate = 0.3 * centres[rng.integers(topics, size=d_ffn)] + 0.1 * rng.standard_normal((d_ffn, d))
    up, down = rng.standard_normal((2, d_ffn, d)) / np.sqrt(d)
    tensors = [torch.from_numpy(a.astype(np.float32)) for a in (up, down, gate, x)]
    return DenseFFN(tensors[0], tensors[1], nn.functional.silu, tensors[2]), tensors[3]
