"""Passes over bags on the bag loss and the anchors' loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError

from .losses import unchecked_bag_loss
from .network import Network

ROWS_A_STEP = 32
"""Smaller bags take a step together, until they have so many rows."""

ROWS_AT_ONCE = 8192
"""In a pass without gradients."""


@dataclass(frozen=True)
class BagData:
    """Rows of bags, bag after bag.

    Attributes
    ----------
    X
        (n, …) rows in the order of their bags.
    starts
        (B + 1,) where each bag starts.
    proportions
        (B, K) float32.
    """

    X: Tensor
    starts: NDArray[np.int64]
    proportions: Float[Tensor, "bags classes"]

    @staticmethod
    def sort(X: Tensor, index: NDArray[np.int64], proportions: NDArray[np.float64]) -> BagData:
        """From rows in any order."""
        order = np.argsort(index, kind="stable")
        starts = np.concatenate([[0], np.bincount(index, minlength=len(proportions)).cumsum()])
        return BagData(
            X[torch.as_tensor(order, device=X.device)],
            starts,
            torch.as_tensor(proportions, dtype=torch.float32, device=X.device),
        )

    def only(self, bags: NDArray[np.int64]) -> BagData:
        """These bags."""
        pieces = [self.X[self.starts[b] : self.starts[b + 1]] for b in bags]
        sizes = [len(piece) for piece in pieces]
        return BagData(
            torch.cat(pieces), np.concatenate([[0], np.cumsum(sizes)]), self.proportions[torch.as_tensor(bags)]
        )

    def index(self) -> Tensor:
        """(n,) each row's bag."""
        sizes = torch.as_tensor(np.diff(self.starts), device=self.X.device)
        return torch.repeat_interleave(torch.arange(len(sizes), device=self.X.device), sizes)

    def batches(self, order: NDArray[np.int64]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows, their bag in the batch, and proportions: a bag at a time, or several small ones."""
        waiting: list[int] = []
        rows = 0
        for bag in order:
            waiting.append(int(bag))
            rows += int(self.starts[bag + 1] - self.starts[bag])
            if rows >= ROWS_A_STEP or bag == order[-1]:
                yield self._batch(waiting)
                waiting, rows = [], 0

    def _batch(self, bags: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        if len(bags) == 1:
            X = self.X[self.starts[bags[0]] : self.starts[bags[0] + 1]]
            return X, torch.zeros(len(X), dtype=torch.int64, device=X.device), self.proportions[bags]
        sizes = torch.as_tensor(self.starts[np.array(bags) + 1] - self.starts[bags], device=self.X.device)
        X = torch.cat([self.X[self.starts[b] : self.starts[b + 1]] for b in bags])
        index = torch.repeat_interleave(torch.arange(len(bags), device=X.device), sizes)
        return X, index, self.proportions[bags]


@dataclass
class Trainer:
    """A network under training: its optimiser, the order of bags, and what was lost at each step.

    Attributes
    ----------
    network, data
        What is trained, on which bags.
    lr
        Of Adam.
    order
        Generator of the order of bags.
    lam_bag
        Factor of the bag loss.
    class_weight
        (K,) factors of the classes.
    losses, extras
        Of each step so far: the bag loss, and the further loss where there was one.
    """

    network: Network
    data: BagData
    lr: float
    order: np.random.Generator
    lam_bag: float = 1.0
    class_weight: Tensor | None = None
    losses: list[Tensor] = field(default_factory=list)
    extras: list[Tensor] = field(default_factory=list)
    optimiser: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        weights = [p for p in self.network.parameters() if p.requires_grad]
        self.optimiser = torch.optim.Adam(weights, lr=self.lr)

    def one_pass(self, extra: Callable[[], Tensor] | None = None, change: Callable[..., Tensor] | None = None) -> None:
        """One pass over all bags in random order.

        ``extra`` gives a further loss, already weighted, at each step; ``change`` takes the place of the bag loss.
        """
        self.network.train()
        order = self.order.permutation(len(self.data.proportions))
        for X, index, proportions in self.data.batches(order):
            loss = (change or self.bag_loss)(X, index, proportions)
            self.losses.append(loss.detach())
            total = self.lam_bag * loss
            if extra is not None:
                more = extra()
                self.extras.append(more.detach())
                total = total + more
            self.optimiser.zero_grad(set_to_none=True)
            total.backward()
            self.optimiser.step()
        if not self.losses[-1].isfinite() or not all(bool(p.isfinite().all()) for p in self.network.parameters()):
            raise InputError(
                f"lr={self.lr:g} is too large for this encoder and these rows, or the weight of a loss is: "
                f"after {len(self.losses)} steps the network is no longer finite"
            )

    def bag_loss(self, X: Tensor, index: Tensor, proportions: Tensor) -> Tensor:
        """Of one step."""
        return unchecked_bag_loss(self.network(X), index, proportions, class_weight=self.class_weight)

    def loss_of(self, bags: BagData) -> float:
        """Bag loss of some bags, in evaluation mode."""
        logits = in_pieces(self.network, bags.X)
        return float(unchecked_bag_loss(logits, bags.index(), bags.proportions, class_weight=self.class_weight))


def in_pieces(module: torch.nn.Module, X: Tensor) -> Tensor:
    """The module's output for all rows, in evaluation mode, without gradients."""
    module.eval()
    with torch.no_grad():
        return torch.cat([module(piece) for piece in X.split(ROWS_AT_ONCE)])
