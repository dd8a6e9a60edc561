"""k-means in which labelled rows keep together, and how many clusters there are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from assay.errors import InputError

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

CHUNK_NUMBERS = 2**24
"""Distances held at once: 64 MiB."""

SETTLED = 1e-4
"""k-means ends when the centroids' squared move is below this share of the rows' variance, or no row moves."""


@dataclass(frozen=True)
class Clusters:
    """A clustering.

    Attributes
    ----------
    labels
        (n,) cluster of every row; clusters of known classes have the class's number.
    centroids
        (K, d) means of the clusters.
    inertia
        Sum of squared distances of the rows to their centroids.
    """

    labels: IntArray
    centroids: FloatArray
    inertia: float


def seeded_kmeans(
    Z: FloatArray,
    n_clusters: int,
    y: ArrayLike,
    *,
    n_init: int = 5,
    max_iter: int = 100,
    random_state: int | np.random.Generator | None = None,
) -> Clusters:
    """k-means whose first clusters start at the known classes and always hold their labelled rows.

    Parameters
    ----------
    Z
        (n, d) float32, finite.
    n_clusters
        K, at least the number of known classes.
    y
        (n,) labels 0 to C − 1, −1 where unknown. The others of the K centroids start by k-means++ on unlabelled rows,
        far from the known ones.
    n_init, max_iter
        Starts, of which the best is kept, and most rounds of each.
    random_state
        Seed of the starts.

    Raises
    ------
    InputError
        If K is below the number of known classes, or there are too few rows.
    """
    labels = np.asarray(y, dtype=np.int64)
    n_known = int(labels.max(initial=-1)) + 1
    if n_clusters < max(1, n_known) or n_clusters - n_known > int((labels < 0).sum()):
        raise InputError(
            f"n_clusters must be at least {max(1, n_known)}, the known classes, and have a row for each other cluster, "
            f"got {n_clusters} for {int((labels < 0).sum())} unlabelled rows"
        )
    Z = np.ascontiguousarray(Z, dtype=np.float32)
    rng = np.random.default_rng(random_state)
    free = np.flatnonzero(labels < 0)
    fixed = np.flatnonzero(labels >= 0)
    known = _means(Z[fixed], labels[fixed], n_known, np.zeros((n_known, Z.shape[1]), np.float32))
    starts = 1 if n_clusters == n_known else n_init  # without new clusters nothing is random
    best: Clusters | None = None
    for _ in range(starts):
        centroids = np.concatenate([known, _spread(Z[free], n_clusters - n_known, known, rng)])
        found = _lloyd(Z, labels, free, centroids, max_iter)
        best = found if best is None or found.inertia < best.inertia else best
    assert best is not None
    return best


def matched_first(labels: IntArray, centroids: FloatArray, known: FloatArray) -> tuple[IntArray, FloatArray]:
    """Number clusters anew: those that fit the known prototypes (C, d) best come first, in the prototypes' order."""
    unit = centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-12)
    of_class = linear_sum_assignment(known @ unit.T, maximize=True)[1]
    order = np.concatenate([of_class, np.setdiff1d(np.arange(len(centroids)), of_class)])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[labels], centroids[order]


def _lloyd(Z: FloatArray, y: IntArray, free: IntArray, centroids: FloatArray, max_iter: int) -> Clusters:
    labels = y.copy()
    settled = SETTLED * float(Z.var(axis=0).sum()) * len(centroids)
    away = np.zeros(len(Z), dtype=np.float32)
    for _ in range(max_iter):
        before = labels[free]
        labels[free], away[free] = _nearest(Z[free], centroids)
        new = _means(Z, labels, len(centroids), centroids)
        new = _refill(Z, labels, new, away, free)
        moved = float(((new - centroids) ** 2).sum())
        centroids = new
        if moved <= settled or np.array_equal(before, labels[free]):
            break
    labels[free], away[free] = _nearest(Z[free], centroids)
    inertia = float(((Z - centroids[labels]) ** 2).sum())
    return Clusters(labels, centroids, inertia)


def _nearest(rows: FloatArray, centroids: FloatArray) -> tuple[IntArray, FloatArray]:
    """The nearest centroid of each row and the squared distance less the row's own squared length."""
    nearest = np.empty(len(rows), dtype=np.int64)
    away = np.empty(len(rows), dtype=np.float32)
    half = (centroids**2).sum(axis=1) / 2
    step = max(1, CHUNK_NUMBERS // len(centroids))
    for start in range(0, len(rows), step):
        gain = rows[start : start + step] @ centroids.T
        gain -= half
        best = gain.argmax(axis=1)
        nearest[start : start + step] = best
        away[start : start + step] = -2 * gain[np.arange(len(best)), best]
    return nearest, away


def _means(rows: FloatArray, labels: IntArray, k: int, otherwise: FloatArray) -> FloatArray:
    """Mean of each cluster's rows; of a cluster without rows what stands in ``otherwise``."""
    member = sparse.csr_array((np.ones(len(rows), np.float32), (labels, np.arange(len(rows)))), shape=(k, len(rows)))
    count = np.bincount(labels, minlength=k)[:, None]
    return np.where(count > 0, (member @ rows) / np.maximum(count, 1), otherwise).astype(np.float32)


def _refill(Z: FloatArray, labels: IntArray, centroids: FloatArray, away: FloatArray, free: IntArray) -> FloatArray:
    """Move the centroid of an empty cluster to the unlabelled row that lies farthest from its own."""
    empty = np.flatnonzero(np.bincount(labels, minlength=len(centroids)) == 0)
    if len(empty):
        distance = away[free] + (Z[free] ** 2).sum(axis=1)
        centroids[empty] = Z[free[np.argsort(-distance, kind="stable")[: len(empty)]]]
    return centroids


def _spread(rows: FloatArray, count: int, known: FloatArray, rng: np.random.Generator) -> FloatArray:
    """k-means++ with several candidates a step: rows far from the known centroids and from each other."""
    chosen = np.empty((count, rows.shape[1]), dtype=np.float32)
    if count == 0:
        return chosen
    squares = (rows**2).sum(axis=1)
    candidates = 2 + int(np.log(max(2, count + len(known))))
    if len(known):
        distance = np.maximum(squares + _nearest(rows, known)[1], 0).astype(np.float64)
    else:
        first = rows[rng.integers(len(rows))]
        chosen[0] = first
        distance = np.maximum(squares - 2 * rows @ first + first @ first, 0).astype(np.float64)
    for place in range(0 if len(known) else 1, count):
        total = distance.sum()
        if total > 0:
            some = np.searchsorted(np.cumsum(distance), rng.random(candidates) * total, side="right")
            some = np.minimum(some, len(rows) - 1)
        else:  # all rows lie on centroids
            some = rng.integers(len(rows), size=candidates)
        each = np.maximum(squares[:, None] - 2 * (rows @ rows[some].T) + squares[some], 0)
        each = np.minimum(each, distance[:, None])
        best = int(each.sum(axis=0).argmin())
        chosen[place], distance = rows[some[best]], each[:, best].astype(np.float64)
    return chosen
