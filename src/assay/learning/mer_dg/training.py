"""Training a fusion classifier: Adam, batches balanced over source domains, and one more term in the loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.errors import InputError
from assay.parts.training import EarlyStopping, progress

from .fusion import FusionClassifier

IntArray = NDArray[np.int64]
Penalty = Callable[[dict[str, Tensor], dict[str, Tensor]], Tensor]
"""``penalty(features, present) -> scalar``, added to the base loss."""


@dataclass(frozen=True)
class Rows:
    """Rows to train on or to classify, on one device.

    Attributes
    ----------
    inputs
        Modality to (n, …) float32.
    present
        Modality to (n,) bool.
    """

    inputs: dict[str, Float[Tensor, "n ..."]]
    present: dict[str, Bool[Tensor, " n"]]

    @classmethod
    def of(cls, inputs: Mapping[str, Any], present: Mapping[str, Any], device: torch.device) -> Rows:
        """From arrays."""
        return cls(
            {name: torch.as_tensor(rows, device=device) for name, rows in inputs.items()},
            {name: torch.as_tensor(mask, device=device) for name, mask in present.items()},
        )

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def take(self, rows: Tensor | slice) -> Rows:
        """Some of the rows."""
        return Rows({k: v[rows] for k, v in self.inputs.items()}, {k: v[rows] for k, v in self.present.items()})


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes
    ----------
    epochs, batch_size, lr, weight_decay
        Of Adam; the weight decay is the one inside Adam's gradient.
    modality_dropout
        Probability with which each modality of each row is left out of a step; one always stays.
    patience
        With validation rows: epochs without a better loss before training ends.
    """

    epochs: int = 30
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.0
    modality_dropout: float = 0.0
    patience: int = 5


@dataclass(frozen=True)
class Trained:
    """What a training run leaves beside the network: losses by epoch, and how many steps it took."""

    losses: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    steps: int = 0


def train(
    network: FusionClassifier,
    rows: Rows,
    targets: Int[Tensor, " n"],
    domains: IntArray,
    recipe: Recipe,
    *,
    generator: torch.Generator,
    base_loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    penalty: Penalty | None = None,
    penalty_parameters: list[nn.Parameter] | None = None,
    validation: tuple[Rows, Tensor] | None = None,
    show: bool = False,
) -> Trained:
    """Train ``network`` in place.

    Parameters
    ----------
    network
        On the device of the rows.
    rows, targets
        What to learn; class numbers.
    domains
        (n,) the domain of each row, whole numbers from 0: an epoch takes as many rows of each.
    recipe
        How.
    generator
        On the CPU; order of the rows, and which modalities are left out.
    base_loss
        ``base_loss(logits, targets)``; default cross-entropy.
    penalty
        Another term of the loss, on the features and which rows have them.
    penalty_parameters
        What of the penalty is learnt along.
    validation
        Rows and targets: their base loss decides when to stop, and the network at its best is kept. Without them it is
        the one after the last epoch.
    show
        Whether a bar is shown.

    Raises
    ------
    ValueError
        If the loss is no longer a finite number.
    """
    loss_of = base_loss or nn.functional.cross_entropy
    optimiser = torch.optim.Adam(
        [*network.parameters(), *(penalty_parameters or [])], lr=recipe.lr, weight_decay=recipe.weight_decay
    )
    stopping = EarlyStopping(recipe.patience) if validation is not None else None
    losses, checked, steps = [], [], 0
    device = targets.device
    for _ in progress(range(recipe.epochs), recipe.epochs, "training", show):
        network.train()
        total = torch.zeros((), device=device)
        batches = list(_batches(domains, recipe.batch_size, generator))
        for batch in batches:
            part = rows.take(batch.to(device))
            present = part.present
            if recipe.modality_dropout:
                present = _some_left_out(present, recipe.modality_dropout, generator)
            logits, features = network(part.inputs, return_features=True, present=present)
            loss = loss_of(logits, targets[batch.to(device)])
            if not isinstance(loss, Tensor) or loss.ndim:
                what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
                raise InputError(f"base_loss must return a tensor with one number, got {what}")
            if penalty is not None:
                loss = loss + penalty(features, present)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach()
            steps += 1
        losses.append(float(total) / len(batches))
        if not np.isfinite(losses[-1]):
            raise InputError(
                f"training diverged: the loss is {losses[-1]} in epoch {len(losses)}; lower lr ({recipe.lr:g}) or lam"
            )
        if validation is not None and stopping is not None:
            checked.append(_loss(network, *validation, loss_of))
            if stopping.step(checked[-1], network):
                break
    if stopping is not None and checked:
        stopping.restore(network)
    network.eval()
    return Trained(losses, checked, steps)


def _batches(domains: IntArray, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Batches of one epoch, about n rows in all: as many of each domain, those of a small domain again and again."""
    there = [torch.from_numpy(np.flatnonzero(domains == domain)) for domain in np.unique(domains)]
    each = -(-len(domains) // len(there))
    drawn = []
    for rows in there:
        rounds = -(-each // len(rows))
        drawn.append(torch.cat([rows[torch.randperm(len(rows), generator=generator)] for _ in range(rounds)])[:each])
    order = torch.cat(drawn)
    order = order[torch.randperm(len(order), generator=generator)]
    # A last batch of one row would have no variance: it joins the one before.
    parts = list(order.split(size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    yield from parts


def _some_left_out(present: dict[str, Tensor], p: float, generator: torch.Generator) -> dict[str, Tensor]:
    """Leave modalities out at random; a row that would lose all keeps the one with the largest draw."""
    there = torch.stack(list(present.values()))
    draws = torch.rand(there.shape, generator=generator).to(there.device).masked_fill(~there, -1)
    kept = (draws >= p) | (draws == draws.amax(dim=0))
    return dict(zip(present, there & kept, strict=True))


@torch.no_grad()
def _loss(network: FusionClassifier, rows: Rows, targets: Tensor, loss_of: Callable[[Tensor, Tensor], Tensor]) -> float:
    network.eval()
    return float(loss_of(network(rows.inputs, present=rows.present), targets))


@torch.no_grad()
def outputs(
    network: FusionClassifier, rows: Rows, size: int = 4096
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float32]]]:
    """Probabilities (n, classes) and the features of each modality, batch by batch."""
    network.eval()
    found: list[tuple[Tensor, dict[str, Tensor]]] = []
    for start in range(0, len(rows), size):
        part = rows.take(slice(start, start + size))
        logits, features = network(part.inputs, return_features=True, present=part.present)
        found.append((logits.cpu().double().softmax(dim=1), {k: v.cpu() for k, v in features.items()}))
    names = found[0][1]
    all_probabilities = torch.cat([probabilities for probabilities, _ in found]).numpy()
    if not np.isfinite(all_probabilities).all():
        raise InputError(
            "the network gives no finite numbers: its training diverged in its last steps; lower lr or lam"
        )
    return (
        all_probabilities,
        {name: torch.cat([features[name] for _, features in found]).numpy() for name in names},
    )


@contextlib.contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators seeded inside, for starts and dropout, and as they were afterwards."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every other device too
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
