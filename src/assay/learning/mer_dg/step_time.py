"""What the loss costs: the time of a training step with it and without it, measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .criterion import MERLoss
from .encoders import mlp
from .fusion import FusionClassifier
from .training import own_randomness

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Step:
    """A training step to be timed.

    Attributes
    ----------
    inputs
        Modality to (n, …) rows of one batch.
    y
        (n,) classes.
    encoder
        ``encoder(shape) -> nn.Module`` of each modality.
    dim
        Features that it gives.
    turns
        How many steps of each kind are timed.
    """

    inputs: dict[str, Tensor]
    y: Tensor
    encoder: Callable[[tuple[int, ...]], nn.Module]
    dim: int
    turns: int


def small_step(seed: int, turns: int = 120) -> Step:
    """The study's own network: 84 numbers a modality, 32 features, 64 rows."""
    return Step(*_random_batch(seed, 64, (84,)), _small_encoder, 32, turns)


def large_step(seed: int) -> Step:
    """Convolutional encoders of 7.1 million weights each, 512 features, 48 images of 3 × 32 × 32."""
    return Step(*_random_batch(seed, 48, (3, 32, 32)), _large_encoder, 512, turns=4)


def _random_batch(seed: int, n: int, shape: tuple[int, ...]) -> tuple[dict[str, Tensor], Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = {name: torch.randn((n, *shape), generator=generator) for name in ("a", "b")}
    return inputs, torch.randint(0, 7, (n,), generator=generator)


def _small_encoder(shape: tuple[int, ...]) -> nn.Module:
    return mlp(shape, 32)


def _large_encoder(shape: tuple[int, ...]) -> nn.Module:
    """The four stages of a ResNet, two or three convolutions each, without the shortcuts."""
    layers: list[nn.Module] = []
    before = shape[0]
    for width in (64, 64, 64, 128, 128, 256, 256, 512, 512, 512):
        stride = 2 if width != before else 1
        layers += [nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def step_ratio(step: Step, seed: int, loss: Callable[[dict[str, Tensor]], Tensor] | None = None) -> float:
    """CPU time of a step (forward, backward, Adam) with ``loss`` on the features, over that of one without.

    The steps take turns, and the median is over the turns' ratios, so that a slow spell of the machine hits both.
    """
    loss = loss or MERLoss(lam=0.1)
    with own_randomness(seed, CPU):
        plain, rich = _contender(step, None), _contender(step, loss)
        ratios = []
        for turn in range(step.turns + 1):
            before = _seconds(plain)
            ratio = _seconds(rich) / before
            if turn:  # the first turn warms up
                ratios.append(ratio)
    return statistics.median(ratios)


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _contender(step: Step, loss: Callable[[dict[str, Tensor]], Tensor] | None) -> Callable[[], Any]:
    encoders = {name: step.encoder(tuple(rows.shape[1:])) for name, rows in step.inputs.items()}
    network = FusionClassifier(encoders, dict.fromkeys(encoders, step.dim), 7)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)

    def work() -> None:
        logits, features = network(step.inputs, return_features=True)
        total = nn.functional.cross_entropy(logits, step.y)
        if loss is not None:
            total = total + loss(features)
        optimiser.zero_grad()
        total.backward()
        optimiser.step()

    return work
