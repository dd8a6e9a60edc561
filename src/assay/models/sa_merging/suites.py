"""Experts that are made here, of real text, from one base: what merging is studied on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

State = dict[str, Tensor]
Net = Callable[[nn.Module, Tensor], Float[Tensor, "rows width"]]
"""Embeds rows of input with a network; the rows have length 1."""


@dataclass(frozen=True)
class Questions:
    """What an expert can do: inputs, classes, and a frozen head.

    Attributes
    ----------
    head
        (classes, width) one direction a class.
    tune, test
        Inputs and classes for choosing a scale, and for the score.
    """

    head: Tensor
    tune: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Suite:
    """A base, its experts, and what each expert can do."""

    network: nn.Module
    embed: Net
    base: State
    experts: list[State]
    questions: list[Questions]


def embed_rows(network: nn.Module, x: Tensor) -> Tensor:
    """Embeddings of a network that takes rows of features."""
    return F.normalize(network(x), dim=-1)


def embed_tokens(network: nn.Module, x: Tensor) -> Tensor:
    """Embeddings of a BERT-like network: the mean of the last layer over the tokens that are no padding (0)."""
    mask = (x != 0).long()
    hidden = network(input_ids=x, attention_mask=mask).last_hidden_state
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return F.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1)


def mlp(hidden: int) -> nn.Sequential:
    """384 → hidden → hidden → hidden → 256 with ReLU between."""
    sizes = (384, hidden, hidden, hidden, 256)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def fit_matching(
    network: nn.Module, queries: Tensor, cards: Tensor, card_of: Tensor, steps: int, generator: torch.Generator
) -> None:
    """Train a network in place so that a query lies near the card it belongs to, and not near others."""
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(steps):
        rows = torch.randint(len(queries), (128,), generator=generator)
        ids = card_of[rows]
        logits = 15 * embed_rows(network, queries[rows]) @ embed_rows(network, cards[ids]).T
        same = (ids[:, None] == ids[None]) & ~torch.eye(len(ids), dtype=torch.bool)
        loss = F.cross_entropy(logits.masked_fill(same, -1e9), torch.arange(len(ids)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def class_means(features: Tensor, classes: Tensor, n: int) -> Tensor:
    """A head without training: the direction of each class's mean from the mean of all, 15 long."""
    means = torch.stack([features[classes == k].mean(0) for k in range(n)])
    return 15 * F.normalize(means - means.mean(0), dim=-1)


def fine_tune(
    network: nn.Module, embed: Net, x: Tensor, y: Tensor, head: Tensor, steps: int, rate: float, batch: int,
    generator: torch.Generator,
) -> State:  # fmt: skip
    """A copy of the network, trained to tell classes apart under a frozen head."""
    expert = copy.deepcopy(network)
    trained = [p for p in expert.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, rate, weight_decay=0.0)
    for _ in range(steps):
        rows = torch.randint(len(x), (batch,), generator=generator)
        loss = F.cross_entropy(embed(expert, x[rows]) @ head.T, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {name: tensor.detach().clone() for name, tensor in expert.state_dict().items()}


@torch.no_grad()
def in_batches(network: nn.Module, embed: Net, x: Tensor, size: int = 256) -> Tensor:
    """Embeddings of many rows."""
    return torch.cat([embed(network, x[i : i + size]) for i in range(0, len(x), size)])


@torch.no_grad()
def accuracies(suite: Suite, state: State, part: str, asked_of: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Share of right answers, and the loss, of one set of weights on questions (of these experts): (questions, 2)."""
    network = copy.deepcopy(suite.network)
    network.load_state_dict(state)
    found = []
    for n in range(len(suite.questions)) if asked_of is None else asked_of:
        asked = suite.questions[n]
        x, y = getattr(asked, part)
        logits = in_batches(network, suite.embed, x) @ asked.head.T
        found.append([float((logits.argmax(1) == y).double().mean()), float(F.cross_entropy(logits, y))])
    return np.array(found)


def split(rows: NDArray[np.int64], part: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
    """Rows for training (5 of 10), tuning (1) and testing (4), by a number from 0 to 9 for each row."""
    shares = (part < 5, part == 5, part > 5)
    return tuple(torch.from_numpy(rows[share]) for share in shares)  # type: ignore[return-value]


def write(folder: Path, base: State, experts: Sequence[State], questions: Sequence[Questions]) -> None:
    """Keep what was trained, as safetensors."""
    save_file(base, folder / "base.safetensors")
    for n, (expert, asked) in enumerate(zip(experts, questions, strict=True)):
        save_file(expert, folder / f"expert{n}.safetensors")
        tensors = {"head": asked.head, "tune_x": asked.tune[0], "tune_y": asked.tune[1], "test_x": asked.test[0],
                   "test_y": asked.test[1]}  # fmt: skip
        save_file({name: t.clone().contiguous() for name, t in tensors.items()}, folder / f"questions{n}.safetensors")


def read(folder: Path, network: nn.Module, embed: Net) -> Suite:
    """What :func:`write` kept."""
    n = len(list(folder.glob("expert*.safetensors")))
    questions = []
    for k in range(n):
        t = load_file(folder / f"questions{k}.safetensors")
        questions.append(Questions(t["head"], (t["tune_x"], t["tune_y"]), (t["test_x"], t["test_y"])))
    base = load_file(folder / "base.safetensors")
    return Suite(
        network.eval(), embed, base, [load_file(folder / f"expert{k}.safetensors") for k in range(n)], questions
    )
