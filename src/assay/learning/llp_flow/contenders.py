"""The contenders: what one would use instead, on the same network and with the same number of passes."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import special, stats
from torch import Tensor

from assay.numerics.transport import exact_plan

from .network import Network, Standardise, perceptron
from .training import BagData, Trainer, in_pieces

FloatArray = NDArray[np.float64]

CONFIDENCE = 0.99
"""Of the interval within which MixBag asks nothing of a mixed bag."""


def start(
    X: FloatArray,
    bags: NDArray[np.int64],
    proportions: FloatArray,
    seed: int,
    hidden: tuple[int, ...] = (128, 32),
    head_hidden: int = 64,
    lr: float = 1e-3,
) -> tuple[Trainer, Standardise, np.random.Generator]:
    """A network of the method's kind before any training, its trainer, and a generator for whatever else is drawn."""
    weights, order, other = (np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(3))
    rows = torch.as_tensor(X)
    standardise = Standardise(X.shape[1])
    standardise.learn(rows)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(weights.integers(2**63)))
        network = Network(perceptron(X.shape[1], hidden), hidden[-1], head_hidden, proportions.shape[1])
    data = BagData.sort(standardise(rows), bags, proportions)
    return Trainer(network, data, lr, order), standardise, other


def predict(network: Network, standardise: Standardise, X: FloatArray) -> FloatArray:
    """Probabilities of rows."""
    return in_pieces(network, standardise(torch.as_tensor(X))).softmax(dim=1).double().numpy()


def mixbag(
    X: FloatArray, bags: NDArray[np.int64], proportions: FloatArray, X_test: FloatArray, seed: int, passes: int
) -> FloatArray:
    """MixBag (Asanomi et al., ICCV 2023): half of the steps see parts of two bags, and an interval of proportions.

    From the one bag a random number of rows is drawn, from the other what fills the bag up. Their mixed proportions are
    known up to the chance of the draw, so classes whose mean prediction lies within the 99 % interval count nothing.
    """
    trainer, standardise, random = start(X, bags, proportions, seed)
    data = trainer.data
    z = float(stats.norm.isf((1 - CONFIDENCE) / 2))

    def change(rows: Tensor, index: Tensor, pi: Tensor) -> Tensor:
        if len(pi) > 1 or random.random() < 0.5 or len(rows) < 2:
            return trainer.bag_loss(rows, index, pi)
        other = int(random.integers(len(data.proportions)))
        there = data.X[data.starts[other] : data.starts[other + 1]]
        n = int(random.integers(1, len(rows)))
        m = min(len(rows) - n, len(there))
        pick, pick_there = random.permutation(len(rows))[:n], random.permutation(len(there))[:m]
        mixed = torch.cat([rows[torch.as_tensor(pick)], there[torch.as_tensor(pick_there)]])
        a, b = n / (n + m), m / (n + m)
        mine, theirs = pi[0], data.proportions[other]
        target = a * mine + b * theirs
        # Drawn without replacement, so the chance is smaller by (N − n) / (N − 1).
        var = a**2 * _variance(mine, n, len(rows)) + b**2 * _variance(theirs, m, len(there))
        mean = trainer.network(mixed).softmax(dim=1).mean(dim=0)
        outside = ((mean - target).abs() > z * var.sqrt()).detach()
        return -(target * (mean + 1e-7).log() * outside).sum()

    for _ in range(passes):
        trainer.one_pass(change=change)
    return predict(trainer.network, standardise, X_test)


def _variance(pi: Tensor, drawn: int, of: int) -> Tensor:
    return pi * (1 - pi) / drawn * ((of - drawn) / max(of - 1, 1))


def transport_labels(
    probs: Float[Tensor, "rows classes"], proportions: FloatArray, starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(n,) the class of each row in the transport of least cross-entropy from each bag's rows to its proportions."""
    p = probs.double().numpy()
    labels = np.empty(len(p), dtype=np.int64)
    for bag, pi in enumerate(proportions):
        rows = slice(starts[bag], starts[bag + 1])
        cost = -np.log(np.maximum(p[rows], 1e-12))
        n = len(cost)
        labels[rows] = exact_plan(cost, np.full(n, 1 / n), pi / pi.sum()).argmax(axis=1)
    return labels


def ot_pseudo(
    X: FloatArray,
    bags: NDArray[np.int64],
    proportions: FloatArray,
    X_test: FloatArray,
    seed: int,
    epochs: tuple[int, int],
    outer: int,
    weight: float,
) -> FloatArray:
    """Hard labels by transport between predictions and proportions, then training on both; anew each round."""
    trainer, standardise, random = start(X, bags, proportions, seed)
    data = trainer.data
    for _ in range(epochs[0]):
        trainer.one_pass()
    for _ in range(outer):
        probs = in_pieces(trainer.network, data.X).softmax(dim=1)
        labels = torch.as_tensor(transport_labels(probs, data.proportions.double().numpy(), data.starts))

        def extra(labels: Tensor = labels) -> Tensor:
            some = torch.as_tensor(random.integers(len(labels), size=64))
            return weight * torch.nn.functional.cross_entropy(trainer.network(data.X[some]), labels[some])

        for _ in range(epochs[1]):
            trainer.one_pass(extra)
    return predict(trainer.network, standardise, X_test)


def mean_map(X: FloatArray, bags: NDArray[np.int64], proportions: FloatArray, X_test: FloatArray) -> FloatArray:
    """The mean map (Quadrianto et al., JMLR 2009) without learning: class means by least squares, nearest in a metric.

    The bags' means are mixtures of the classes' means, which least squares gives back; the metric is the shrunk
    covariance of what is left. A ridge keeps the means finite where bags are alike.
    """
    from sklearn.covariance import ledoit_wolf

    mean, sd = X.mean(axis=0), X.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    rows, test = np.clip((X - mean) / sd, -4, 4), np.clip((X_test - mean) / sd, -4, 4)
    B, K = proportions.shape
    sizes = np.bincount(bags, minlength=B)
    sums = np.zeros((B, rows.shape[1]))
    np.add.at(sums, bags, rows)
    w = np.sqrt(sizes / sizes.sum())[:, None]
    A, T = w * proportions, w * (sums / sizes[:, None])
    means = np.linalg.solve(A.T @ A + 1e-3 * np.eye(K), A.T @ T)
    within = rows - proportions[bags] @ means
    precision = np.linalg.pinv(ledoit_wolf(within)[0])
    score = test @ precision @ means.T - 0.5 * np.einsum("kd,de,ke->k", means, precision, means)
    prior = np.log(np.maximum((sizes / sizes.sum()) @ proportions, 1e-12))
    return special.softmax(score + prior, axis=1)
