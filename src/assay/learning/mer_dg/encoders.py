"""Encoders of one modality: two that are built in, and the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch
from torch import nn

from assay.errors import InputError, one_line

Factory = Callable[[tuple[int, ...]], nn.Module]
Shape = tuple[int, ...]

HIDDEN = 128
"""Width of the hidden layer of ``"mlp"``."""


def build_encoders(encoders: Any, shapes: Mapping[str, Shape], feature_dim: int) -> dict[str, nn.Module]:
    """One encoder for each modality, on the CPU.

    Parameters
    ----------
    encoders
        ``"mlp"``, ``"cnn1d"``, or a mapping from modality to one of them or to a factory ``shape -> nn.Module``.
    shapes
        Of one row of each modality.
    feature_dim
        Features of the encoders that are built in.

    Raises
    ------
    ValueError
        If an encoder is missing, unknown, or does not fit its modality.
    """
    if isinstance(encoders, Mapping):
        if set(encoders) != set(shapes):
            raise InputError(
                f"encoders must name the modalities {', '.join(sorted(shapes))}, got {', '.join(map(str, encoders))}"
            )
        chosen = dict(encoders)
    else:
        chosen = dict.fromkeys(shapes, encoders)
    return {name: _build(chosen[name], name, shape, feature_dim) for name, shape in shapes.items()}


def _build(encoder: Any, name: str, shape: Shape, feature_dim: int) -> nn.Module:
    if isinstance(encoder, str) and encoder == "mlp":
        return mlp(shape, feature_dim)
    if isinstance(encoder, str) and encoder == "cnn1d":
        if len(shape) != 2:
            raise InputError(
                f"the encoder 'cnn1d' needs rows of shape (channels, time); those of {name!r} have shape {shape}"
            )
        return cnn1d(shape, feature_dim)
    if not callable(encoder):
        raise InputError(f"an encoder must be 'mlp', 'cnn1d' or a factory shape -> nn.Module, got {encoder!r}")
    module = encoder(shape)
    if not isinstance(module, nn.Module):
        raise TypeError(f"the factory of {name!r} must return a torch module, got {type(module).__name__}")
    return module


def mlp(shape: Shape, feature_dim: int) -> nn.Module:
    """Linear, ReLU, linear, over the flattened row."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, feature_dim))


def cnn1d(shape: Shape, feature_dim: int) -> nn.Module:
    """Two normalised convolutions over time, the mean over time, and a linear layer; rows are (channels, time).

    The normalisation keeps features from starting out small, where the modality-entropy loss has a gradient that grows
    with 1/sd.
    """
    channels = shape[0]
    return nn.Sequential(
        nn.Conv1d(channels, 32, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 64, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, feature_dim),
    )


def feature_dims(encoders: Mapping[str, nn.Module], shapes: Mapping[str, Shape]) -> dict[str, int]:
    """How many features each encoder gives, found by running it on two rows of zeros."""
    dims = {}
    for name, encoder in encoders.items():
        training = encoder.training
        encoder.eval()
        try:
            with torch.no_grad():
                output = encoder(torch.zeros((2, *shapes[name])))
        except Exception as error:
            raise InputError(
                f"the encoder of {name!r} does not take rows of shape {shapes[name]}: {one_line(error, 160)}"
            ) from error
        finally:
            encoder.train(training)
        if not isinstance(output, torch.Tensor) or output.ndim != 2 or len(output) != 2 or output.shape[1] < 1:
            what = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
            raise InputError(f"the encoder of {name!r} must give (rows, features), of 2 rows it gave {what}")
        dims[name] = output.shape[1]
    return dims
