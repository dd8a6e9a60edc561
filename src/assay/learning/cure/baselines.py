"""What CURE is compared with: clusterings of the features, SimGCD, and CURE with one ingredient changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn import functional as F

from assay.numerics.contrastive import info_nce, supervised_contrastive
from assay.parts.training import generator, minibatches

from .clustering import seeded_kmeans
from .encoders import made_with, outputs
from .head import CosineHead
from .losses import mean_entropy
from .network import CURE
from .training import LEAST_BATCH, Loop, features_of, train_stage1, train_stage2
from .views import Augment

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Answer:
    """What an arm gives.

    Attributes
    ----------
    classes
        (n,) a class for every row, numbers from 0.
    parameters, steps
        Trained numbers and steps of the optimiser.
    """

    classes: IntArray
    parameters: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Problem:
    """What every contender starts from.

    Attributes
    ----------
    encoder
        Pre-trained; the contender's own copy.
    dim
        Its width.
    X
        (n, …) float32 rows as the encoder takes them.
    y
        (n,) known classes from 0, −1 where unknown.
    n_known, n_classes
        Of classes.
    augment
        Makes views.
    """

    encoder: nn.Module
    dim: int
    X: Tensor
    y: IntArray
    n_known: int
    n_classes: int
    augment: Augment

    def loop(self, seed: int, batch_size: int, lr: float) -> Loop:
        """How every trained contender is trained."""
        draws = generator(seed)
        return Loop(batch_size, lr, draws, draws, torch.device("cpu"), self.augment)

    def features(self) -> NDArray[np.float32]:
        """Unit features of the pre-trained encoder."""

        def unit(rows: Tensor) -> Tensor:
            return F.normalize(self.encoder(rows), dim=1)

        return outputs(self.encoder, unit, self.X, torch.device("cpu")).numpy()


def kmeans(problem: Problem, seed: int) -> Answer:
    """k-means on the features; labels are not looked at, nothing is trained."""
    found = KMeans(problem.n_classes, n_init=5, random_state=seed).fit(problem.features())
    return Answer(found.labels_.astype(np.int64))


def seeded(problem: Problem, seed: int) -> Answer:
    """k-means in which labelled rows keep together; nothing is trained."""
    return Answer(seeded_kmeans(problem.features(), problem.n_classes, problem.y, random_state=seed).labels)


SUP_WEIGHT, MEAN_ENTROPY = 0.35, 2.0
UNSUPERVISED_TEMPERATURE, SUPERVISED_TEMPERATURE = 1.0, 0.07
TEACHER, TEACHER_RAMP = (0.7, 0.4), 0.15


def simgcd(
    problem: Problem,
    seed: int,
    *,
    epochs: int,
    batch_size: int = 256,
    lr: float = 3e-3,
    contrast: float = 1.0,
    start: str = "random",
) -> Answer:
    """SimGCD: self-distillation between views, contrastive terms on a projection, entropy of the mean.

    Settings of its authors: weight 0.35 for what needs labels, 0.65 for the rest, mean entropy 2, a teacher from 0.07
    to 0.04 within 15 % of the passes beside a student at 0.1, contrastive temperatures 1.0 and 0.07 on a projection of
    three layers. Adam in place of SGD, as for every arm here.

    Parameters
    ----------
    contrast
        Weight of both contrastive terms; 0 leaves them out.
    start
        Prototypes: ``"random"``, the source's, or ``"kmeans"``.
    """
    dim = problem.dim
    head, projection = made_with(seed, lambda: (CosineHead(dim, problem.n_classes), _projection(dim)))
    if start == "kmeans":
        centroids = seeded_kmeans(problem.features(), problem.n_classes, problem.y, random_state=seed).centroids
        head.prototypes.data = torch.from_numpy(centroids)
    encoder, y, loop = problem.encoder, torch.from_numpy(problem.y), problem.loop(seed, batch_size, lr)
    trained = [*encoder.parameters(), *head.parameters(), *(projection.parameters() if contrast else ())]
    optimiser = torch.optim.Adam(trained, lr)
    n_steps = 0
    for epoch in range(epochs):
        ramp = min(1.0, epoch / epochs / TEACHER_RAMP)
        teacher = TEACHER[0] + (TEACHER[1] - TEACHER[0]) * ramp
        encoder.train()
        for rows in minibatches(len(problem.X), batch_size, loop.order):
            if len(rows) < min(LEAST_BATCH, len(problem.X)):
                continue
            z = encoder(torch.cat(loop.views(problem.X, rows)))
            loss = _simgcd_loss(head(z), y[rows], teacher)
            if contrast:
                loss = loss + contrast * _contrast(projection(z), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            n_steps += 1
    logits = outputs(nn.ModuleList([encoder, head]), lambda x: head(encoder(x)), problem.X, torch.device("cpu"))
    return Answer(logits.argmax(dim=1).numpy(), size(trained), n_steps)


def _projection(dim: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 64)
    )  # fmt: skip


def _simgcd_loss(logits: Tensor, y: Tensor, teacher: float) -> Tensor:
    a, b = logits.chunk(2)
    distil = sum(
        -(F.softmax(other.detach() / teacher, dim=1) * F.log_softmax(student, dim=1)).sum(dim=1).mean() / 2
        for student, other in ((a, b), (b, a))
    )
    both, twice = _twice(y)
    ce = F.cross_entropy(logits[both], twice, reduction="sum") / both.sum().clamp_min(1)
    without = distil - MEAN_ENTROPY * mean_entropy(F.softmax(logits, dim=1))
    return SUP_WEIGHT * ce + (1 - SUP_WEIGHT) * without


def _contrast(h: Tensor, y: Tensor) -> Tensor:
    both, twice = _twice(y)
    a, b = h.chunk(2)
    without = info_nce(a, b, temperature=UNSUPERVISED_TEMPERATURE)
    labelled = supervised_contrastive(h[both], twice, temperature=SUPERVISED_TEMPERATURE) if both.any() else 0.0
    return SUP_WEIGHT * labelled + (1 - SUP_WEIGHT) * without


def _twice(y: Tensor) -> tuple[Tensor, Tensor]:
    """For the two views one after the other: which rows have a label, and the labels of those."""
    both = torch.cat([y, y])
    return both >= 0, both[both >= 0]


def discover(
    problem: Problem,
    seed: int,
    *,
    epochs: tuple[int, int],
    batch_size: int = 256,
    lr: float = 3e-3,
    infonce: float = 0.0,
    start: str = "kmeans",
    **weights: float,
) -> Answer:
    """CURE, step by step, with one ingredient changed.

    Parameters
    ----------
    infonce
        Weight of an InfoNCE term (temperature 0.2, on the features themselves) that stage 2 does not have.
    start
        New prototypes: ``"kmeans"``, or ``"random"`` directions.
    weights
        Of :class:`CURE`.
    """
    net = made_with(seed, lambda: CURE(problem.encoder, problem.dim, problem.n_known, **weights))
    loop, cpu = problem.loop(seed, batch_size, lr), torch.device("cpu")
    net.place_known(features_of(net, problem.X, cpu), problem.y)
    first = train_stage1(net, problem.X, problem.y, loop, epochs[0])
    net.begin_stage2(features_of(net, problem.X, cpu), problem.n_classes, seed, problem.y)
    if start == "random":
        new = net.head.prototypes[problem.n_known :]
        drawn = torch.randn(new.shape, generator=generator(seed))
        net.head.prototypes.data[problem.n_known :] = F.normalize(drawn, dim=1)

    def with_uniformity(view_a: Tensor, view_b: Tensor, y: Tensor, fraction: float) -> Mapping[str, Tensor]:
        z = net.features(torch.cat([view_a, view_b]))
        terms = net.stage2_terms(*net.head(z).chunk(2), y, fraction)
        return {"loss": terms["loss"] + infonce * info_nce(*z.chunk(2), temperature=0.2)}

    second = train_stage2(
        net, problem.X, problem.y, loop, epochs[1], loss_of=with_uniformity if infonce else None
    )  # fmt: skip
    classes = outputs(net, net, problem.X, cpu).argmax(dim=1).numpy()
    return Answer(classes, size(net.parameters()), steps(problem, len(first), len(second), batch_size))


def steps(problem: Problem, first: int, second: int, batch_size: int) -> int:
    """Steps of the optimiser in so many passes of stage 1 and 2."""

    def in_pass(n: int, least: int) -> int:
        whole, rest = divmod(n, batch_size)
        return whole + (rest >= min(least, n, batch_size))

    labelled = int((problem.y >= 0).sum())
    return first * in_pass(labelled, 2) + second * in_pass(len(problem.X), LEAST_BATCH)


def size(parameters: Iterable[nn.Parameter]) -> int:
    """Numbers that are trained."""
    return sum(p.numel() for p in parameters if p.requires_grad)
