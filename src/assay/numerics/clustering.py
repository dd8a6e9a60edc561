"""Clusters of exact sizes, well-spread samples, and whole numbers that add up.

Balanced k-means alternates two steps, as k-means does: centres from members, members from centres. The second is a
transport problem (every cluster takes exactly its number of rows). It is solved by a greedy pass, rows with the most to
lose first, and then by exchanges of rows between two clusters until none helps; with two clusters that is the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.int64]

__all__ = ["balanced_assignment", "balanced_kmeans", "capped_quotas", "farthest_points", "largest_remainder"]

PLAIN_ROUNDS = 4
"""Rounds of k-means without limits on the sizes, before the sizes bind."""


def balanced_kmeans(
    X: ArrayLike,
    n_clusters: int,
    capacities: Sequence[int] | IntArray | None = None,
    spherical: bool = True,
    seed: int | np.random.Generator = 0,
    n_init: int = 3,
    max_iter: int = 50,
) -> IntArray:
    """k-means whose clusters have exactly the sizes asked for.

    Parameters
    ----------
    X
        (n, d) finite numbers, rows are points. float32 is computed in float32, all else in float64.
    n_clusters
        Number of clusters, 1 to n.
    capacities
        How many rows each cluster takes, at least one, summing to n; cluster j has exactly ``capacities[j]``. Default:
        equal, the first ``n % n_clusters`` clusters one larger.
    spherical
        Maximise the cosine to the cluster's direction (rows of zeros are indifferent); otherwise minimise the
        squared Euclidean distance to its mean.
    seed
        Seed or generator of the starts.
    n_init, max_iter
        Number of starts (k-means++), of which the best is taken, and most rounds of each.

    Returns
    -------
    (n,) labels, 0 to n_clusters − 1. The same seed gives the same labels.

    Raises
    ------
    ValueError
        If X is not a finite matrix, or the sizes cannot be had.

    Examples
    --------
    >>> balanced_kmeans([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], 2).tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    True
    """
    points = _points(X)
    sizes = _sizes(len(points), n_clusters, capacities)
    if n_init < 1 or max_iter < 1:
        raise ValueError(f"n_init and max_iter must be at least 1, got {n_init} and {max_iter}")
    if spherical:
        points = _unit(points)
    else:
        points = _to_one(points)
        points = points - points.mean(axis=0)  # squares of distances lose fewer digits near the origin
    generator = np.random.default_rng(seed)
    best: tuple[float, IntArray] | None = None
    for _ in range(n_init):
        new = _one_start(points, sizes, spherical, generator, max_iter)
        best = new if best is None or new[0] > best[0] else best
    assert best is not None
    return best[1]


def balanced_assignment(scores: ArrayLike, capacities: Sequence[int] | IntArray) -> IntArray:
    """Assign rows to columns of fixed sizes, so that the sum of the chosen scores is high.

    Parameters
    ----------
    scores
        (n, k) finite; what row i gains in column j.
    capacities
        (k,) how many rows each column takes, summing to n.

    Returns
    -------
    (n,) columns. No exchange of two rows improves the sum; with two columns it is the highest possible.

    Raises
    ------
    ValueError
        If the shapes or the sum of the capacities do not fit.

    Examples
    --------
    >>> balanced_assignment([[3.0, 0.0], [2.0, 1.0], [2.0, 0.0]], [2, 1]).tolist()
    [0, 1, 0]
    """
    table = _points(scores)
    return _exchange(table, _greedy(table, _sizes(len(table), table.shape[1], capacities)))


def farthest_points(
    X: ArrayLike, n: int, start: int | None = None, metric: Literal["cosine", "euclidean"] = "cosine"
) -> IntArray:
    """Choose n rows that are well spread: each next one is the farthest from those chosen before.

    Parameters
    ----------
    X
        (rows, d) finite numbers.
    n
        How many to choose, 0 to the number of rows.
    start
        The first row; default the one nearest the mean (of the unit rows for ``"cosine"``).
    metric
        ``"cosine"`` (1 − cos; a row of zeros is at 1 from everything) or ``"euclidean"``.

    Returns
    -------
    (n,) different row numbers in the order they were chosen, so that a beginning of the list is itself well spread.
    Ties go to the lower row.

    Raises
    ------
    ValueError
        If n, start or metric is out of range.

    Examples
    --------
    >>> farthest_points([[0.0], [1.0], [10.0], [5.2]], 3, start=0, metric="euclidean").tolist()
    [0, 2, 3]
    """
    points = _points(X)
    if not 0 <= n <= len(points):
        raise ValueError(f"n must be 0 to the number of rows, {len(points)}, got {n}")
    if metric not in ("cosine", "euclidean"):
        raise ValueError(f"metric must be 'cosine' or 'euclidean', got {metric!r}")
    if start is not None and not 0 <= start < len(points):
        raise ValueError(f"start must be a row number below {len(points)}, got {start}")
    chosen = np.empty(n, dtype=np.int64)
    if n == 0:
        return chosen
    points = _unit(points) if metric == "cosine" else _to_one(points)
    mean = points.mean(axis=0)
    if start is not None:
        chosen[0] = start
    elif metric == "cosine":
        chosen[0] = np.argmax(points @ mean)
    else:
        chosen[0] = np.argmin(((points - mean) ** 2).sum(axis=1))
    nearest = np.full(len(points), np.inf, dtype=points.dtype)
    for i in range(1, n):
        last = points[chosen[i - 1]]
        distance = 1 - points @ last if metric == "cosine" else ((points - last) ** 2).sum(axis=1)
        np.minimum(nearest, distance, out=nearest)
        nearest[chosen[i - 1]] = -np.inf  # never again, also among equal rows
        chosen[i] = np.argmax(nearest)
    return chosen


def largest_remainder(shares: ArrayLike, total: int) -> IntArray:
    """Whole numbers proportional to ``shares`` that sum to exactly ``total`` (Hamilton's method).

    Parameters
    ----------
    shares
        (m,) finite, not negative, not all zero.
    total
        What the result sums to, not negative.

    Returns
    -------
    (m,) each the exact share rounded down or up; the largest remainders are rounded up, ties go to the lower index.

    Raises
    ------
    ValueError
        If shares or total is out of range.

    Examples
    --------
    >>> largest_remainder([4.4, 3.3, 2.3], 10).tolist()
    [5, 3, 2]
    """
    weights = np.asarray(shares, dtype=np.float64)
    if weights.ndim != 1 or not len(weights) or not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("shares must be a non-empty list of finite numbers that are not negative")
    largest = weights.max()
    if largest == 0:
        raise ValueError("shares must not all be zero")
    if total < 0 or total != int(total):
        raise ValueError(f"total must be a whole number that is not negative, got {total}")
    weights = weights / largest  # so that the sum of very large shares stays finite
    return _round_to(weights * (total / weights.sum()), total)


def capped_quotas(
    counts: ArrayLike, total: int, power: float = 0.5, floor: float | None = None, caps: ArrayLike | None = None
) -> IntArray:
    """Share ``total`` places among groups by a power of their sizes, with a floor, and no group more than its cap.

    The exact quota of a group is clip(λ·count^power, min(floor, cap), cap), with λ such that they sum to ``total``.

    Parameters
    ----------
    counts
        (m,) whole numbers, not negative: the sizes of the groups.
    total
        The places; where it exceeds the sum of the caps, everyone gets a place.
    power
        1 is proportional, 0 equal; 0.5 lies between.
    floor
        The least that a group gets, if it has as many; default ``total / (2·m)``, at most ``total / m``.
    caps
        (m,) whole numbers, not negative: the most that each group can take; default its count.

    Returns
    -------
    (m,) quotas that sum to min(total, Σ caps); rounded by largest remainder, so a floor that is no whole number may
    be rounded down.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> capped_quotas([900, 90, 10], 100).tolist()
    [68, 22, 10]
    """
    sizes = _whole(counts, "counts")
    most = sizes if caps is None else _whole(caps, "caps")
    if most.shape != sizes.shape or (most[sizes == 0] > 0).any():
        raise ValueError("caps must have one number for each count, 0 where the count is 0")
    if total < 0 or not np.isfinite(power) or power < 0:
        raise ValueError(f"total and power must not be negative, got {total} and {power}")
    floor = total / (2 * len(sizes)) if floor is None else floor
    if not 0 <= floor <= total / len(sizes):
        raise ValueError(f"floor must be 0 to total / groups = {total / len(sizes):g}, got {floor}")
    if total >= most.sum():
        return most
    high = most.astype(np.float64)
    low = np.minimum(floor, high)
    # Relative to the largest group, and not below what is still a number: a high power of a size may be neither.
    weights = (np.maximum(sizes, 1) / max(1, sizes.max())) ** power
    weights = np.where(most > 0, np.maximum(weights, 1e-200), 0.0)
    # The sum of the quotas grows with λ, and is linear between the values at which a group leaves its floor or meets
    # its cap.
    live = weights > 0
    corners = np.unique(np.concatenate([low[live] / weights[live], high[live] / weights[live]]))

    def sum_at(level: float) -> float:
        return float(np.clip(level * weights, low, high).sum())

    left, right = 0, len(corners) - 1
    while right - left > 1:
        middle = (left + right) // 2
        left, right = (middle, right) if sum_at(corners[middle]) <= total else (left, middle)
    below, above = (sum_at(corners[left]), sum_at(corners[right]))
    share = (total - below) / (above - below) if above > below else 0.0
    level = corners[left] + min(max(share, 0.0), 1.0) * (corners[right] - corners[left])
    return _round_to(np.clip(level * weights, low, high), total)


def _whole(numbers: ArrayLike, name: str) -> IntArray:
    whole = np.asarray(numbers)
    if whole.ndim != 1 or not len(whole) or not np.issubdtype(whole.dtype, np.integer) or (whole < 0).any():
        raise ValueError(f"{name} must be a non-empty list of whole numbers that are not negative")
    return whole.astype(np.int64)


def _points(X: ArrayLike) -> FloatArray:
    points = np.asarray(X)
    points = points if points.dtype == np.float32 else points.astype(np.float64)
    if points.ndim != 2 or 0 in points.shape:
        raise ValueError(f"a non-empty matrix with a point in each row is needed, got the shape {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError("the matrix holds NaN or infinite values")
    return points


def _sizes(n: int, n_clusters: int, capacities: Sequence[int] | IntArray | None) -> IntArray:
    if not 1 <= n_clusters <= n:
        raise ValueError(f"n_clusters must be 1 to the number of rows, {n}, got {n_clusters}")
    if capacities is None:
        return np.full(n_clusters, n // n_clusters, dtype=np.int64) + (np.arange(n_clusters) < n % n_clusters)
    sizes = np.asarray(capacities)
    if sizes.shape != (n_clusters,) or not np.issubdtype(sizes.dtype, np.integer) or (sizes < 1).any():
        raise ValueError(f"capacities must be {n_clusters} whole numbers of at least 1, got {capacities!r}")
    if sizes.sum() != n:
        raise ValueError(f"capacities must sum to the number of rows, {n}, got {sizes.sum()}")
    return sizes.astype(np.int64)


def _unit(points: FloatArray) -> FloatArray:
    largest = np.abs(points).max(axis=1, keepdims=True)
    points = points / np.where(largest > 0, largest, 1)  # first to about one: squares of 1e200 would not be finite
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points / np.where(norms > 0, norms, 1)


def _to_one(points: FloatArray) -> FloatArray:
    """Scaled by a power of two, which changes no digit, so that squares neither overflow nor vanish."""
    scaled: FloatArray = np.ldexp(points, -np.frexp(np.abs(points).max())[1])
    return scaled


def _one_start(
    points: FloatArray, sizes: IntArray, spherical: bool, generator: np.random.Generator, max_iter: int
) -> tuple[float, IntArray]:
    """One run of balanced k-means: the sum of scores with the last centres, and the labels."""
    centres = points[_plus_plus(points, len(sizes), spherical, generator)]
    for _ in range(PLAIN_ROUNDS):
        nearest = np.argmax(_scores(points, centres, spherical), axis=1)
        moved = _centres(points, nearest, len(sizes), spherical)
        counts = np.bincount(nearest, minlength=len(sizes))
        centres = np.where(counts[:, None] > 0, moved, centres)
    # The largest of the clusters without limits gets the largest capacity, and so on.
    matched = np.empty_like(centres)
    matched[np.argsort(-sizes, kind="stable")] = centres[np.argsort(-counts, kind="stable")]
    centres = matched
    labels: IntArray | None = None
    value = -np.inf
    for _ in range(max_iter):
        scores = _scores(points, centres, spherical)
        # From the labels before: exchanges only ever improve, so each round does.
        new = _exchange(scores, _greedy(scores, sizes) if labels is None else labels)
        before, value = value, float(scores[np.arange(len(points)), new].sum(dtype=np.float64))
        if labels is not None and (np.array_equal(new, labels) or value - before < 1e-5 * abs(value)):
            return value, new
        labels = new
        centres = _centres(points, labels, len(sizes), spherical)
    assert labels is not None
    return value, labels


def _plus_plus(points: FloatArray, k: int, spherical: bool, generator: np.random.Generator) -> IntArray:
    """The starts of k-means++: each next centre drawn with probability ∝ its squared distance from those before."""
    chosen = [int(generator.integers(len(points)))]
    distance = np.full(len(points), np.inf)
    for _ in range(1, k):
        last = points[chosen[-1]]
        now = 2 - 2 * (points @ last) if spherical else ((points - last) ** 2).sum(axis=1)
        distance = np.minimum(distance, np.maximum(now, 0))
        distance[chosen] = 0
        sum_ = distance.sum()
        if sum_ > 0 and np.isfinite(sum_):
            chosen.append(int(generator.choice(len(points), p=distance / sum_)))
        else:  # only copies of the chosen ones are left
            chosen.append(int(generator.choice(np.setdiff1d(np.arange(len(points)), chosen))))
    return np.array(chosen, dtype=np.int64)


def _scores(points: FloatArray, centres: FloatArray, spherical: bool) -> FloatArray:
    """Cosine, or minus half the squared distance without the row's own square, which no assignment changes."""
    products = points @ centres.T
    return products if spherical else products - 0.5 * (centres**2).sum(axis=1)


def _centres(points: FloatArray, labels: IntArray, k: int, spherical: bool) -> FloatArray:
    n = len(points)
    members = sparse.csr_array((np.ones(n, dtype=points.dtype), (labels, np.arange(n))), shape=(k, n))
    sums: FloatArray = members @ points
    counts = np.maximum(np.bincount(labels, minlength=k), 1)[:, None].astype(points.dtype)
    return _unit(sums) if spherical else sums / counts


def _greedy(scores: FloatArray, sizes: IntArray) -> IntArray:
    """Rows with the largest loss between their best and second best column first; each takes its best free column."""
    n, k = scores.shape
    if k == 1:
        return np.zeros(n, dtype=np.int64)
    best_two = np.partition(scores, k - 2, axis=1)[:, k - 2 :]
    order = np.argsort(-(best_two[:, 1] - best_two[:, 0]), kind="stable")
    labels = np.full(n, -1, dtype=np.int64)
    free = sizes.copy()
    while len(order):
        columns = np.flatnonzero(free)
        wish = columns[np.argmax(scores[order][:, columns], axis=1)]
        # How many wished for the same column before each row.
        by_column = np.argsort(wish, kind="stable")
        firsts = np.searchsorted(wish[by_column], wish)
        rank = np.empty(len(order), dtype=np.int64)
        rank[by_column] = np.arange(len(order))
        granted = rank - firsts < free[wish]
        labels[order[granted]] = wish[granted]
        free -= np.bincount(wish[granted], minlength=k)
        order = order[~granted]
    return labels


def _exchange(scores: FloatArray, labels: IntArray, most_rounds: int = 100) -> IntArray:
    """Exchange rows between pairs of columns while the sum of scores grows."""
    k = scores.shape[1]
    labels = labels.copy()
    own = scores[np.arange(len(labels)), labels]
    tolerance = 8 * np.finfo(scores.dtype).eps * float(np.abs(scores).max())
    changed = np.ones(k, dtype=bool)
    for _ in range(most_rounds):
        now = np.zeros(k, dtype=bool)
        # What the best row of column a would gain in column b: pairs whose best exchange doesn't help are left out.
        gain = np.full((k, k), -np.inf)
        for a in range(k):
            rows = labels == a
            gain[a] = (scores[rows] - own[rows, None]).max(axis=0)
        both = gain + gain.T
        for a, b in np.argwhere(np.triu(both > tolerance, 1)):
            if not (changed[a] or changed[b] or now[a] or now[b]):
                continue
            in_a, in_b = np.flatnonzero(labels == a), np.flatnonzero(labels == b)
            to_b, to_a = scores[in_a, b] - own[in_a], scores[in_b, a] - own[in_b]
            best_a, best_b = np.argsort(-to_b, kind="stable"), np.argsort(-to_a, kind="stable")
            m = min(len(in_a), len(in_b))
            count = int((to_b[best_a[:m]] + to_a[best_b[:m]] > tolerance).sum())  # sorted: the first ones
            if not count:
                continue
            out, into = in_a[best_a[:count]], in_b[best_b[:count]]
            labels[out], labels[into] = b, a
            own[out], own[into] = scores[out, b], scores[into, a]
            now[a] = now[b] = True
        changed = now
        if not now.any():
            break
    return labels


def _round_to(quotas: FloatArray, total: int) -> IntArray:
    """Round so that the sum is ``total``; the largest remainders are rounded up."""
    whole: IntArray = np.floor(quotas + 1e-9).astype(np.int64)  # 2.9999999999 is 3
    missing = int(total - whole.sum())
    order = np.argsort(-np.round(quotas - whole, 9), kind="stable")
    whole[order[:missing]] += 1
    return whole
