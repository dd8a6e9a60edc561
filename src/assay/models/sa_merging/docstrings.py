"""Four or eight experts on the docstrings of installed packages: which module does a sentence come from?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.parts import docstring_hub, minilm

from .suites import Questions, State, Suite, class_means, embed_rows, fine_tune, fit_matching, mlp, read, split, write

PACKAGES = ("numpy", "pandas", "scipy", "sklearn")
LEAST, MOST_FAMILIES = 24, 20
"""Sentences a module must have to be a class, and classes of a package."""


@dataclass(frozen=True)
class Size:
    """How large the suite is.

    Attributes
    ----------
    sentences
        At most so many of a module.
    families
        At most so many modules of a package.
    hidden
        Width of the network.
    base_steps
        Steps in which the base learns to match sentences to the functions they describe.
    """

    sentences: int
    families: int
    hidden: int
    base_steps: int


def table(size: Size) -> pd.DataFrame:
    """The sentences, with ``family`` and ``domain``, the same for every seed."""
    hub = docstring_hub.hub(PACKAGES)
    counts = hub["family"].value_counts()
    parts = []
    for package in PACKAGES:
        of = hub[hub["domain"] == package]
        names = [f for f in of["family"].value_counts().index if counts[f] >= LEAST][
            : min(size.families, MOST_FAMILIES)
        ]
        for name in names:
            rows = of[of["family"] == name]
            step = max(1, len(rows) // size.sentences)  # spread over the module, not its first functions
            parts.append(rows.iloc[::step].head(size.sentences))
    return pd.concat(parts, ignore_index=True)


def features(size: Size, folder: Path) -> None:
    """Embed the sentences and their functions' cards into a folder: the study's shared work."""
    rows = table(size)
    cards = rows.drop_duplicates("id")
    np.save(folder / "sentences.npy", minilm.encode(list(rows["query"])))
    np.save(folder / "cards.npy", minilm.encode(list(cards["card"])))
    rows[["id", "family", "domain"]].to_json(folder / "rows.json", orient="records")


def classes(rows: pd.DataFrame, experts: int) -> dict[str, list[str]]:
    """Which modules each expert tells apart: one package each, or with eight experts thirds of the two large ones."""
    by_package = {p: list(dict.fromkeys(rows["family"][rows["domain"] == p])) for p in PACKAGES}
    if experts == len(PACKAGES):
        return by_package
    thirds = {f"{p}-{k + 1}": by_package[p][k::3] for p in ("scipy", "sklearn") for k in range(3)}
    return {p: by_package[p] for p in ("numpy", "pandas")} | thirds


def make_base(kept: Path, seed: int, size: Size, folder: Path) -> None:
    """Train the base of a seed into a folder."""
    x, cards, rows, part = _data(kept, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = mlp(size.hidden)
    ids = {name: n for n, name in enumerate(dict.fromkeys(rows["id"]))}
    card_of = torch.tensor([ids[name] for name in rows["id"]])
    train = torch.from_numpy(np.flatnonzero(part < 5))
    fit_matching(network, x[train], cards, card_of[train], size.base_steps, generator)
    torch_state: State = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    write(folder, torch_state, [], [])


def make_experts(
    kept: Path, base: Path, seed: int, size: Size, experts: int, steps: int, rate: float, folder: Path
) -> None:
    """Fine-tune the experts of a seed into a folder."""
    x, _, rows, part = _data(kept, seed)
    suite = read(base, mlp(size.hidden), embed_rows)
    network = suite.network
    network.load_state_dict(suite.base)
    generator = torch.Generator().manual_seed(seed + 1)
    states, questions = [], []
    for families in classes(rows, experts).values():
        number: Mapping[str, int] = {name: k for k, name in enumerate(families)}
        mine = np.flatnonzero(rows["family"].isin(families))
        y = torch.tensor([number[rows["family"][i]] for i in mine])
        train, tune, test = split(np.arange(len(mine)), part[mine])
        inputs = x[torch.from_numpy(mine)]
        with torch.no_grad():
            head = class_means(embed_rows(network, inputs[train]), y[train], len(families))
        states.append(fine_tune(network, embed_rows, inputs[train], y[train], head, steps, rate, 96, generator))
        questions.append(Questions(head, (inputs[tune], y[tune]), (inputs[test], y[test])))
    write(folder, suite.base, states, questions)


def load(folder: Path, size: Size) -> Suite:
    """A suite that was made."""
    return read(folder, mlp(size.hidden), embed_rows)


def _data(kept: Path, seed: int) -> tuple[Tensor, Tensor, pd.DataFrame, np.ndarray]:
    """Features, cards, rows, and a number from 0 to 9 for each row, spread evenly over each module."""
    rows = pd.read_json(kept / "rows.json", orient="records")
    rng = np.random.default_rng(seed)
    part = np.empty(len(rows), dtype=np.int64)
    for _, where in rows.groupby("family", sort=False).indices.items():
        part[rng.permutation(where)] = (np.arange(len(where)) + rng.integers(10)) % 10
    return (
        torch.from_numpy(np.load(kept / "sentences.npy")), torch.from_numpy(np.load(kept / "cards.npy")), rows, part
    )  # fmt: skip
