"""Teaching an AlignNet, and how well it reads and answers afterwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import nn
from torch.nn import functional as F

from assay.errors import InputError
from assay.parts.checkpoints import pick_device

from .align_data import AlignItems, scene_of_code
from .align_net import AlignNet, AlignShape, Read, check_images, words_of
from .score import score_code

NEAR = 5
"""Degrees that count as near."""


def train_align(
    problems: AlignItems,
    mode: str = "code",
    *,
    steps: int = 1500,
    batch: int = 32,
    rate: float = 3e-3,
    shape: AlignShape | None = None,
    seed: int = 0,
    device: str | torch.device = "auto",
) -> AlignNet:
    """Teach a network to answer from the image alone, or to write code or a caption first.

    Parameters
    ----------
    problems
        What to learn from, e.g. of :func:`align_items`.
    mode
        ``answer``, ``caption`` or ``code``.
    steps, batch
        Steps of AdamW, and items in each.
    rate
        Of learning at its highest: it rises over the first tenth of the steps, then falls as a cosine does.
    shape
        How large the network is; by default small, for images of the size of those in ``problems``.
    seed
        For first weights and batches; the same seed gives the same network on one machine.
    device
        ``auto`` takes a GPU where torch sees one.

    Returns
    -------
    AlignNet
        Ready to read.

    Raises
    ------
    InputError
        For an unknown mode, counts and rates that are not positive, and images that do not fit the shape.
    TypeError
        For problems that are no :class:`AlignItems`.
    """
    for name, value in (("steps", steps), ("batch", batch)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number of at least 0, got {seed!r}")
    if not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise InputError(f"rate must be a positive number, got {rate!r}")
    if not isinstance(problems, AlignItems):
        raise TypeError(f"problems must be AlignItems, got {type(problems).__name__}")
    shape = shape or AlignShape(size=problems.images.shape[1])
    check_images(problems.images, shape)
    place = pick_device(device)
    net = AlignNet(mode, shape, seed=seed).to(place).train()
    images, words = (torch.from_numpy(x).to(place) for x in (problems.images, words_of(problems, mode)))
    # Gains, shifts and places are left out of the decay.
    strong = [p for p in net.parameters() if p.ndim > 1]
    weak = [p for p in net.parameters() if p.ndim == 1]
    groups = [{"params": strong, "weight_decay": 0.01}, {"params": weak, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98))
    rng, waiting = np.random.default_rng(seed), np.empty(0, dtype=np.int64)
    warm = max(1, steps // 10)
    for step in range(steps):
        while len(waiting) < batch:
            waiting = np.concatenate([waiting, rng.permutation(len(problems))])
        rows, waiting = torch.from_numpy(waiting[:batch]).to(place), waiting[batch:]
        fall = 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm)))
        for group in optimiser.param_groups:
            group["lr"] = rate * min((step + 1) / warm, 0.01 + 0.99 * fall)
        scores = net(images[rows], words[rows, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), words[rows, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
    return net.eval()


@dataclass(frozen=True)
class AlignScore:
    """How well items were read and answered.

    Attributes
    ----------
    exact, within
        Shares of answers that are right, and right to 5°.
    mean_error
        Mean distance of the answers from the right ones, in degrees; no number counts as 180.
    annotation
        Share of items whose marks were all read right; ``None`` where none were written.
    solved_read, solved_misread
        Shares of right answers where the marks were read right and where not; ``None`` where there is no such item.
    code
        Mean score of the code as drawings; ``None`` without code.
    """

    exact: float
    within: float
    mean_error: float
    annotation: float | None = None
    solved_read: float | None = None
    solved_misread: float | None = None
    code: float | None = None

    def metrics(self) -> Mapping[str, float]:
        """Those that there are, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def score_read(read: Read, items: AlignItems) -> AlignScore:
    """Compare what a learner wrote with what is there.

    Raises
    ------
    InputError
        When there is not one answer an item.
    TypeError
        For what was not read and what are no items.
    """
    if not isinstance(read, Read) or not isinstance(items, AlignItems):
        raise TypeError(
            f"read and items must be Read and AlignItems, got {type(read).__name__}, {type(items).__name__}"
        )
    if read.answers.shape != items.answers.shape:
        raise InputError(f"there must be {len(items)} answers, got shape {read.answers.shape}")
    off = np.where(read.answers > 0, np.abs(read.answers - items.answers), 180)
    right = off == 0
    general = (float(right.mean()), float((off <= NEAR).mean()), float(off.mean()))
    if read.marks is not None:
        good = (read.marks == items.marks).all(axis=1)
    elif read.numbers is not None:
        good = (np.sort(read.numbers, axis=1) == np.sort(items.marks, axis=1)[:, 1:]).all(axis=1)
    else:
        return AlignScore(*general)
    of_read, of_misread = (float(right[part].mean()) if part.any() else None for part in (good, ~good))
    return AlignScore(*general, float(good.mean()), of_read, of_misread, _code(read, items))


def _code(read: Read, items: AlignItems) -> float | None:
    if read.corners is None or read.marks is None:
        return None
    totals = []
    for corners, marks, gold_corners, gold_marks in zip(
        read.corners, read.marks, items.corners, items.marks, strict=True
    ):
        gold, mine = scene_of_code(gold_corners, gold_marks), scene_of_code(corners, marks)
        if gold is not None:
            totals.append(score_code(mine, gold).total if mine is not None and (corners >= 0).all() else 0.0)
    return float(np.mean(totals)) if totals else None


def typical_answers(problems: AlignItems, questions: Int[np.ndarray, " items"]) -> Read:
    """Without looking: to each question the median of its answers in ``problems``, to the next 5°."""
    medians = [float(np.median(problems.answers[problems.questions == q])) for q in (0, 1)]
    return Read(np.array([5 * round(median / 5) for median in medians])[questions])
