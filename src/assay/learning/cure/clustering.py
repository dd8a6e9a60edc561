"""k-means on the sphere in which labelled rows keep together.

Rows and centroids have length 1 and the nearest centroid is the one of the largest cosine, as the head of the network
sees it. Plain distances look at the length of a mean too, which is short where a class is wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.optimize import linear_sum_assignment

from assay.errors import InputError, one_line

from .labels import read_numbers

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

CHUNK_NUMBERS = 2**24
"""Cosines held at once: 64 MiB."""

LARGE = 1e6
"""Rows with a largest number beyond this, or below its inverse, are brought to size 1 first."""

SETTLED = 1e-6
"""A start ends when the mean squared move of the centroids is below this, or no row moves."""


@dataclass(frozen=True)
class Clusters:
    """A clustering.

    Attributes
    ----------
    labels
        (n,) cluster of every row; clusters of known classes have the class's number.
    centroids
        (K, d) directions of the clusters' means, of length 1.
    inertia
        Sum of the rows' squared distances to their centroids, 2 − 2·cosine.
    """

    labels: IntArray
    centroids: FloatArray
    inertia: float


def seeded_kmeans(
    Z: ArrayLike,
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
        (n, d) finite; scaled to length 1 here.
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
        If Z is no finite matrix, y no classes of its rows, a number is none, K is below the number of known classes,
        or there are too few rows.
    """
    Z = directions(Z)
    labels = read_numbers(y, len(Z))
    for name, value in (("n_clusters", n_clusters), ("n_init", n_init), ("max_iter", max_iter)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    n_known = int(labels.max(initial=-1)) + 1
    if n_clusters < max(1, n_known) or n_clusters - n_known > int((labels < 0).sum()):
        raise InputError(
            f"n_clusters must be at least {max(1, n_known)}, the known classes, and have a row for each other cluster, "
            f"got {n_clusters} for {int((labels < 0).sum())} unlabelled rows"
        )
    rng = np.random.default_rng(random_state)
    free = np.flatnonzero(labels < 0)
    fixed = np.flatnonzero(labels >= 0)
    known = _directions(Z[fixed], labels[fixed], np.zeros((n_known, Z.shape[1]), np.float32))
    starts = 1 if n_clusters == n_known else n_init  # without new clusters nothing is random
    best: Clusters | None = None
    for _ in range(starts):
        centroids = np.concatenate([known, _spread(Z[free], n_clusters - n_known, known, rng)])
        found = _lloyd(Z, labels, free, centroids, max_iter)
        best = found if best is None or found.inertia < best.inertia else best
    assert best is not None
    return best


def directions(Z: ArrayLike, width: int | None = None) -> FloatArray:
    """Features as a matrix of rows of length 1, float32.

    Raises
    ------
    InputError
        If Z is no finite matrix of real numbers (of that ``width``).
    """
    try:
        table = np.asarray(Z)
    except ValueError as error:
        raise InputError(f"Z must have rows of the same length: {one_line(error, 120)}") from None
    if (
        table.ndim != 2
        or table.dtype.kind not in "fiu"
        or not table.shape[1]
        or table.shape[1] != (width or table.shape[1])
    ):
        wide = "" if width is None else f" of width dim={width}"
        raise InputError(f"Z must be a numeric matrix{wide}, got {table.dtype} {table.shape}")
    if not np.isfinite(table).all():
        raise InputError("Z must be finite, and has NaN or infinity in it")
    most = np.abs(table).max(axis=1, keepdims=True)
    odd = (most > 0) & ((most > LARGE) | (most < 1 / LARGE))
    if odd.any():  # squares in float32 would overflow, or vanish
        table = np.where(odd, table / np.where(odd, most, 1), table)
    return unit(np.ascontiguousarray(table, dtype=np.float32))


def unit(rows: FloatArray) -> FloatArray:
    """Rows of length 1; zeros stay."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def matched_first(labels: IntArray, centroids: FloatArray, known: FloatArray) -> tuple[IntArray, FloatArray]:
    """Number clusters anew: those that fit the known prototypes (C, d) best come first, in the prototypes' order."""
    of_class = linear_sum_assignment(known @ centroids.T, maximize=True)[1]
    order = np.concatenate([of_class, np.setdiff1d(np.arange(len(centroids)), of_class)])
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[labels], centroids[order]


def _lloyd(Z: FloatArray, y: IntArray, free: IntArray, centroids: FloatArray, max_iter: int) -> Clusters:
    labels = y.copy()
    loose = Z[free]
    for _ in range(max_iter):
        before = labels[free]
        labels[free], cosine = _nearest(loose, centroids)
        new = _directions(Z, labels, centroids)
        empty = np.flatnonzero(np.bincount(labels, minlength=len(centroids)) == 0)
        if len(empty):  # to the unlabelled rows that lie farthest from their own
            farthest = np.argsort(cosine, kind="stable")[: len(empty)]
            new[empty[: len(farthest)]] = loose[farthest]
        moved = float(((new - centroids) ** 2).sum(axis=1).mean())
        centroids = new
        if moved <= SETTLED or np.array_equal(before, labels[free]):
            break
    labels[free], _ = _nearest(loose, centroids)
    return Clusters(labels, centroids, float(((Z - centroids[labels]) ** 2).sum()))


def _nearest(rows: FloatArray, centroids: FloatArray) -> tuple[IntArray, FloatArray]:
    """The centroid of largest cosine for each row, and that cosine."""
    nearest = np.empty(len(rows), dtype=np.int64)
    cosine = np.empty(len(rows), dtype=np.float32)
    step = max(1, CHUNK_NUMBERS // len(centroids))
    for start in range(0, len(rows), step):
        table = rows[start : start + step] @ centroids.T
        best = table.argmax(axis=1)
        nearest[start : start + step] = best
        cosine[start : start + step] = table[np.arange(len(best)), best]
    return nearest, cosine


def _directions(rows: FloatArray, labels: IntArray, otherwise: FloatArray) -> FloatArray:
    """Direction of each cluster's mean; of a cluster without rows what stands in ``otherwise``."""
    k = len(otherwise)
    member = sparse.csr_array((np.ones(len(rows), np.float32), (labels, np.arange(len(rows)))), shape=(k, len(rows)))
    count = np.bincount(labels, minlength=k)[:, None]
    return np.where(count > 0, unit(member @ rows), otherwise).astype(np.float32)


def _spread(rows: FloatArray, count: int, known: FloatArray, rng: np.random.Generator) -> FloatArray:
    """k-means++ with several candidates a step: rows far from the known centroids and from each other."""
    chosen = np.empty((count, rows.shape[1]), dtype=np.float32)
    if count == 0:
        return chosen
    candidates = 2 + int(np.log(max(2, count + len(known))))
    first = 0
    if not len(known):
        chosen[0], first = rows[rng.integers(len(rows))], 1
    distance = np.maximum(1 - _nearest(rows, known if len(known) else chosen[:1])[1].astype(np.float64), 0)
    for place in range(first, count):
        total = distance.sum()
        if total > 0:
            some = np.searchsorted(np.cumsum(distance), rng.random(candidates) * total, side="right")
            some = np.minimum(some, len(rows) - 1)
        else:  # all rows lie on centroids
            some = rng.integers(len(rows), size=candidates)
        each = np.minimum(np.maximum(1 - rows @ rows[some].T, 0), distance[:, None])
        best = int(each.sum(axis=0).argmin())
        chosen[place], distance = rows[some[best]], each[:, best].astype(np.float64)
    return chosen
