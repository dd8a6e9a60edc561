"""Which old queries are kept for replay: every domain gets its share, and inside it the most different queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.numerics.clustering import capped_quotas, farthest_points

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]


def choose(
    X: FloatArray, ids: IntArray, domains: IntArray, seen: dict[int, int], size: int, max_per_id: int | None = None
) -> IntArray:
    """Choose ``size`` queries to keep.

    A domain's quota is proportional to the square root of how many queries it has been ``seen`` with, at least
    size / (2 · domains), and at most what it has here. Inside a domain each id first gives up to c of its queries,
    the c that are farthest from one another (1 − cos), with the smallest c that fills the quota; farthest-point
    sampling over these leaves exactly the quota.

    Parameters
    ----------
    X
        (n, d) features of the queries at hand.
    ids, domains
        (n,) numbers of their ids and domains.
    seen
        For each domain number how many queries it was ever seen with.
    size
        How many to keep; all of them where there are no more.
    max_per_id
        At most so many of one id, even if fewer than ``size`` are kept then.

    Returns
    -------
    Row numbers, ascending.
    """
    names, inverse = np.unique(domains, return_inverse=True)
    most = len(X) if max_per_id is None else max_per_id
    per_domain = [np.flatnonzero(inverse == j) for j in range(len(names))]
    available = np.array(
        [sum(min(n, most) for n in np.unique(ids[rows], return_counts=True)[1]) for rows in per_domain]
    )
    quotas = capped_quotas(np.array([seen[int(g)] for g in names]), size, caps=available)
    kept = [_inside(X, ids, rows, int(quota), most) for rows, quota in zip(per_domain, quotas, strict=True) if quota]
    return np.sort(np.concatenate(kept)) if kept else np.empty(0, dtype=np.int64)


def _inside(X: FloatArray, ids: IntArray, rows: IntArray, quota: int, most: int) -> IntArray:
    order = rows[np.argsort(ids[rows], kind="stable")]
    groups = np.split(order, np.flatnonzero(np.diff(ids[order])) + 1)
    counts = np.array([len(group) for group in groups])
    each = 1
    while np.minimum(counts, each).sum() < quota and each < most:
        each += 1
    spread = [g[farthest_points(X[g], min(each, len(g)))] if len(g) > each else g for g in groups]
    survivors = np.sort(np.concatenate(spread))
    return survivors if len(survivors) <= quota else survivors[farthest_points(X[survivors], quota)]
