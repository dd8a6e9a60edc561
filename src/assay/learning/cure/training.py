"""The loops: contrastive pre-training of an encoder, and the two stages."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from assay.errors import InputError
from assay.numerics.contrastive import info_nce
from assay.parts.training import minibatches, progress

from .encoders import made_with, outputs
from .network import CURE, TEACHER_RAMP
from .views import Augment, checked_view

LEAST_BATCH = 64
"""A last batch with fewer rows is left out in stage 2: its mean prediction says little of all classes."""

PRETRAIN_TEMPERATURE, PRETRAIN_LR = 0.2, 1e-3
COLLAPSED, COLLAPSED_PASSES = 0.9, 3
"""A class with more of the unlabelled rows than this, for so many passes in a row, is worth a warning."""

Terms = Mapping[str, Tensor]


@dataclass(frozen=True)
class Loop:
    """How to train: size of a batch, step, the draws, the device, the views, and whether to show a bar.

    ``order`` draws the batches on the CPU and ``draws`` the views on the device.
    """

    batch_size: int
    lr: float
    order: torch.Generator
    draws: torch.Generator
    device: torch.device
    augment: Augment
    show: bool = False

    def views(self, X: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Two views of some rows, on the device."""
        batch = X[rows].to(self.device)
        return checked_view(self.augment, batch, self.draws), checked_view(self.augment, batch, self.draws)


def pretrain(encoder: nn.Module, dim: int, X: Tensor, loop: Loop, epochs: int, seed: int) -> list[dict[str, Any]]:
    """Pre-train an encoder on all rows by InfoNCE through a projection that is thrown away."""
    projection = made_with(seed, lambda: nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 32)))
    both = nn.Sequential(encoder, projection.to(loop.device))

    def loss(rows: Tensor) -> Terms:
        a, b = both(torch.cat(loop.views(X, rows))).chunk(2)
        return {"loss": info_nce(a, b, temperature=PRETRAIN_TEMPERATURE)}

    optimiser = torch.optim.Adam(both.parameters(), PRETRAIN_LR)
    history = []
    for epoch in progress(range(epochs), epochs, "pre-training", loop.show):
        both.train()
        history.append({"stage": "pretrain", "epoch": epoch, **_pass(loss, optimiser, len(X), loop, 2)})
    return history


def train_stage1(net: CURE, X: Tensor, y: NDArray[np.int64], loop: Loop, epochs: int) -> list[dict[str, Any]]:
    """Stage 1, on the labelled rows."""
    labelled = torch.from_numpy(np.flatnonzero(y >= 0))
    labels = torch.from_numpy(y)

    def loss(batch: Tensor) -> Terms:
        rows = labelled[batch]
        return net.stage1_loss(*loop.views(X, rows), labels[rows].to(loop.device))

    optimiser = torch.optim.Adam(net.parameters(), loop.lr)
    history = []
    for epoch in progress(range(epochs), epochs, "stage 1", loop.show):
        net.train()
        history.append({"stage": "known", "epoch": epoch, **_pass(loss, optimiser, len(labelled), loop, 2)})
    return history


@dataclass
class Watch:
    """What stage 2 looks at after each pass, without labels: who changed class, and whether one class takes all.

    Attributes
    ----------
    unlabelled
        (n,) bool.
    tol, patience
        Training ends when at most the share ``tol`` of all rows changed in each of ``patience`` passes; ``None`` never.
    """

    unlabelled: NDArray[np.bool_]
    tol: float
    patience: int | None
    classes: NDArray[np.int64] | None = None
    quiet: int = 0
    full: int = 0
    warned: bool = field(default=False)

    def look(self, classes: NDArray[np.int64], ramping: bool) -> tuple[dict[str, float], bool]:
        """What was seen, and whether to stop. While the teacher still changes, nothing stops."""
        changed = 1.0 if self.classes is None else float((classes != self.classes).mean())
        self.classes = classes
        self.quiet = self.quiet + 1 if changed <= self.tol and not ramping else 0
        some = classes[self.unlabelled]
        largest = float(np.bincount(some).max() / len(some)) if len(some) else 0.0
        self.full = self.full + 1 if largest > COLLAPSED else 0
        if self.full >= COLLAPSED_PASSES and not self.warned:
            self.warned = True
            warnings.warn(
                f"one class has more than {COLLAPSED:.0%} of the unlabelled rows for {COLLAPSED_PASSES} passes: the "
                "classes collapse into one; raise entropy",
                ConvergenceWarning,
                stacklevel=4,
            )
        stop = self.patience is not None and self.quiet >= self.patience
        return {"changed": changed, "largest": largest}, stop


def train_stage2(
    net: CURE,
    X: Tensor,
    y: NDArray[np.int64],
    loop: Loop,
    epochs: int,
    watch: Watch | None = None,
    loss_of: Callable[[Tensor, Tensor, Tensor, float], Terms] | None = None,
) -> list[dict[str, Any]]:
    """Stage 2, on all rows; ``loss_of(view_a, view_b, y, epoch_fraction)`` in place of the network's own."""
    labels = torch.from_numpy(y)
    ours = loss_of or net.stage2_loss
    optimiser = torch.optim.Adam(net.parameters(), loop.lr)
    history = []
    for epoch in progress(range(epochs), epochs, "stage 2", loop.show):

        def loss(rows: Tensor, fraction: float = epoch / epochs) -> Terms:
            return ours(*loop.views(X, rows), labels[rows].to(loop.device), fraction)

        net.train()
        line = {"stage": "all", "epoch": epoch, **_pass(loss, optimiser, len(X), loop, LEAST_BATCH)}
        stop = False
        if watch is not None:
            classes = outputs(net, net, X, loop.device).argmax(dim=1).numpy()
            seen, stop = watch.look(classes, epoch / epochs < TEACHER_RAMP)
            line |= seen
        history.append(line)
        if stop:
            break
    return history


def _pass(
    loss: Callable[[Tensor], Terms], optimiser: torch.optim.Optimizer, n: int, loop: Loop, least: int
) -> dict[str, float]:
    """One pass over n rows; the means of the loss's terms."""
    sums: dict[str, float] = {}
    steps = 0
    for rows in minibatches(n, loop.batch_size, loop.order):
        if len(rows) < min(least, n, loop.batch_size):
            continue
        terms = loss(rows)
        optimiser.zero_grad()
        terms["loss"].backward()
        optimiser.step()
        steps += 1
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + float(value.detach())
    return {name: value / max(1, steps) for name, value in sums.items()}


def features_of(net: CURE, X: Tensor, device: torch.device) -> NDArray[np.float32]:
    """Unit features (n, dim) of all rows in evaluation mode.

    Raises
    ------
    InputError
        If the encoder gives NaN or infinity.
    """
    Z = outputs(net, net.features, X, device).numpy()
    if not np.isfinite(Z).all():
        raise InputError("encoder gave NaN or infinity: check it on these rows, or lower lr if training diverged")
    return Z
