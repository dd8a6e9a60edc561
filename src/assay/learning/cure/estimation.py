"""How many classes there are, known and new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import silhouette_score

from assay.errors import InputError

from .accuracy import matched
from .clustering import directions, seeded_kmeans
from .labels import read_numbers

MOST_ROWS, SILHOUETTE_ROWS = 10_000, 2000
"""More rows than the first are sampled for the clusterings, more than the second for their silhouettes."""

STARTS, FOLDS = 2, 3
TOLERANCE = 0.05
"""How far below the best still is good: of the accuracy, and as a share of the silhouette. About their noise."""

GRID, AROUND = 12, 2
"""So many K between the least and the largest are tried first, then all that lie so near to the one found."""


def estimate_n_classes(
    Z: ArrayLike, y: ArrayLike, k_max: int | None = None, random_state: int | np.random.Generator | None = None
) -> tuple[int, pd.DataFrame]:
    """Number of classes, known and new together.

    Each third of the known classes in turn is treated as unlabelled, for each K the rows are clustered, and the
    accuracy says how well clusters recover the held-out classes. It hardly changes while other classes are merged and
    falls when these are split. Of the K whose accuracy is within 0.05 of the best, and of those the ones whose clusters
    have a silhouette within 5 % of the best, it is the largest: first on a grid, then around the one found.

    Parameters
    ----------
    Z
        (n, d) features, finite; scaled to length 1 here. Of more than 10 000 rows a sample is taken.
    y
        (n,) labels 0 to C − 1, −1 where unknown; at least two classes.
    k_max
        Largest K tried; default the smaller of 4·C + 10 and n / 20, but at least C + 1.
    random_state
        Seed of the held-out classes, the sample and the clusterings.

    Returns
    -------
    K, and a frame of the K tried, in order: ``k``, ``accuracy`` on the held-out classes and ``silhouette`` of the
    clusters.

    Raises
    ------
    InputError
        If there are fewer than two known classes, Z is no finite matrix of as many rows as y, or k_max is below C.
    """
    table = directions(Z)
    labels = read_numbers(y, len(table))
    n_known = int(labels.max(initial=-1)) + 1
    if n_known < 2:
        raise InputError(f"y must have at least two known classes, numbered 0 to C - 1, got {n_known}")
    if k_max is not None and (isinstance(k_max, bool) or not isinstance(k_max, int | np.integer)):
        raise InputError(f"k_max must be a whole number, got {k_max!r}")
    rng = np.random.default_rng(random_state)
    rows = np.arange(len(table))
    if len(rows) > MOST_ROWS:
        rows = rng.choice(rows, MOST_ROWS, replace=False)
        lost = np.setdiff1d(np.arange(n_known), labels[rows])  # rare classes keep a row
        rows = np.union1d(rows, [np.flatnonzero(labels == k)[0] for k in lost]).astype(np.int64)
    features, labels = table[rows], labels[rows]
    most = min(4 * n_known + 10, len(rows) // 20) if k_max is None else k_max
    if k_max is not None and k_max < n_known:
        raise InputError(f"k_max must be at least the number of known classes, {n_known}, got {k_max}")
    free = len(rows) - int((labels >= 0).sum())
    most = min(max(most, n_known + 1) if k_max is None else most, n_known + free)
    score = _scorer(features, labels, n_known, rng)
    tried: dict[int, tuple[float, float]] = {}

    def best(ks: Iterable[int]) -> int:
        for k in ks:
            if k not in tried:
                tried[k] = score(k)
        return chosen(tried)

    found = best(np.unique(np.geomspace(n_known, most, GRID).round().astype(int)).tolist())
    found = best(range(max(n_known, found - AROUND), min(most, found + AROUND) + 1))
    frame = pd.DataFrame([(k, *tried[k]) for k in sorted(tried)], columns=COLUMNS)
    return found, frame


COLUMNS = ["k", "accuracy", "silhouette"]


def chosen(tried: Mapping[int, tuple[float, float]]) -> int:
    """Of K with (accuracy, silhouette), the largest that is good in both."""
    top = max(accuracy for accuracy, _ in tried.values())
    good = {k: silhouette for k, (accuracy, silhouette) in tried.items() if accuracy >= top - TOLERANCE}
    apart = max(good.values())
    return max(k for k, silhouette in good.items() if silhouette >= apart - TOLERANCE * abs(apart))


def _scorer(
    Z: NDArray[np.float32], y: NDArray[np.int64], n_known: int, rng: np.random.Generator
) -> Callable[[int], tuple[float, float]]:
    """Accuracy on known classes when each third of them is held out, and silhouette, of clusterings into k."""
    folds = np.array_split(rng.permutation(n_known), min(FOLDS, n_known))
    some = rng.permutation(len(Z))[:SILHOUETTE_ROWS]
    seed = int(rng.integers(2**31))

    def fold_score(k: int, out: NDArray[np.int64]) -> tuple[float, float]:
        anchors = np.setdiff1d(np.arange(n_known), out)
        place = np.full(n_known + 1, -1)  # the last is for rows without a label
        place[anchors] = np.arange(len(anchors))
        clusters = seeded_kmeans(Z, k, place[y], n_init=STARTS, random_state=seed).labels
        held = np.isin(y, out)
        there, at = np.unique(y[held], return_inverse=True)
        right = float(matched(at, clusters[held], len(there), k).mean()) if held.any() else 0.0
        n_there = len(np.unique(clusters[some]))
        apart = float(silhouette_score(Z[some], clusters[some])) if 1 < n_there < len(some) else -1.0
        return right, apart

    def score(k: int) -> tuple[float, float]:
        each = np.array([fold_score(k, out) for out in folds])
        return float(each[:, 0].mean()), float(each[:, 1].mean())

    return score
