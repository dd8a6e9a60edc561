"""Triangles of the graph of comparisons: how far the log-odds around each are from summing to zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import norm

from .comparisons import Comparisons

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

MOST_TRIANGLES = 200_000
"""How many triangles are looked at; of more, a uniform sample."""

_MOST_PATHS = 4_000_000  # paths of two edges that are followed in all
_CHUNK = 500_000


@dataclass(frozen=True)
class Cycles:
    """The triangles with the largest contradictions.

    Attributes
    ----------
    worst
        A row each: ``context``, ``i``, ``j``, ``k``, ``sum`` of logit r around i → j → k → i, its standard error
        ``se``, ``z`` = |sum|/se, and ``p``, corrected for all triangles (Bonferroni).
    count
        How many triangles there are; an estimate where they were sampled.
    examined
        How many were looked at.
    sampled
        Whether they are a sample.
    """

    worst: pd.DataFrame
    count: int
    examined: int
    sampled: bool


def worst_triangles(c: Comparisons, *, top: int = 20, seed: int = 0) -> Cycles:
    """The ``top`` triangles by |sum of the log-odds| over its standard error (delta method).

    Half a row is added to both counts of a pair where one of them is 0.
    """
    i, j = c.ends
    w_ij, w_ji = c.wins
    half = np.where((w_ij > 0) & (w_ji > 0), 0.0, 0.5)
    logit = np.log(w_ij + half) - np.log(w_ji + half)
    variance = 1 / (w_ij + half) + 1 / (w_ji + half)
    (ij, jk, ik), count, sampled = _triangles(len(c.nodes), i, j, seed)
    total = logit[ij] + logit[jk] - logit[ik]
    se = np.sqrt(variance[ij] + variance[jk] + variance[ik])
    z = np.abs(total) / se
    order = np.argsort(-z, kind="stable")[:top]
    first, second, third = i[ij[order]], j[ij[order]], j[jk[order]]
    nodes = c.nodes
    label = [c.items.take(nodes["item"].to_numpy()[node]) for node in (first, second, third)]
    worst = pd.DataFrame(
        {
            "context": c.contexts.take(nodes["x"].to_numpy()[first]),
            "i": label[0],
            "j": label[1],
            "k": label[2],
            "sum": total[order],
            "se": se[order],
            "z": z[order],
            "p": np.minimum(1.0, 2 * norm.sf(z[order]) * max(count, 1)),
        }
    )
    return Cycles(worst, count, len(z), sampled)


def _triangles(n: int, i: IntArray, j: IntArray, seed: int) -> tuple[tuple[IntArray, IntArray, IntArray], int, bool]:
    """Edges (ij, jk, ik) of triangles i < j < k; how many there are; and whether these are a sample."""
    keys = i * n + j  # ascending, as a table of comparisons is
    degree = np.bincount(i, minlength=n) + np.bincount(j, minlength=n)
    # Each edge points to the end of larger degree: then few edges leave any node.
    up = (degree[i] < degree[j]) | ((degree[i] == degree[j]) & (i < j))
    tail, head = np.where(up, i, j), np.where(up, j, i)
    order = np.argsort(tail, kind="stable")
    head = head[order]
    out = np.bincount(tail, minlength=n)
    start = np.concatenate([[0], np.cumsum(out)])
    paths = out * (out - 1) // 2
    n_paths = int(paths.sum())
    sampled = n_paths > _MOST_PATHS
    found: list[IntArray] = []
    rng = np.random.default_rng(seed)
    followed = 0
    bounds = np.concatenate([[0], np.cumsum(paths)])
    while followed < min(n_paths, _MOST_PATHS):
        size = min(_CHUNK, min(n_paths, _MOST_PATHS) - followed)
        path = rng.integers(0, n_paths, size) if sampled else np.arange(followed, followed + size)
        followed += size
        node = np.searchsorted(bounds, path, side="right") - 1
        a, b = _pair(path - bounds[node])
        x, y = head[start[node] + a], head[start[node] + b]
        low, high = np.minimum(x, y), np.maximum(x, y)
        at = np.minimum(np.searchsorted(keys, low * n + high), len(keys) - 1)
        closed = keys[at] == low * n + high
        three = np.sort(np.stack([node[closed], low[closed], high[closed]], axis=1), axis=1)
        found.append(three)
    three = np.concatenate(found) if found else np.zeros((0, 3), dtype=np.int64)
    count = len(three) if not sampled else round(len(three) / max(followed, 1) * n_paths)
    if sampled:
        three = np.unique(three, axis=0)
    if len(three) > MOST_TRIANGLES:
        three = three[np.sort(rng.choice(len(three), MOST_TRIANGLES, replace=False))]
        sampled = True
    a, b, c = three.T
    edges = tuple(np.searchsorted(keys, left * n + right) for left, right in ((a, b), (b, c), (a, c)))
    return (edges[0], edges[1], edges[2]), count, sampled


def _pair(number: IntArray) -> tuple[IntArray, IntArray]:
    """The pair a < b that has this number when pairs are counted (0,1), (0,2), (1,2), (0,3) …"""
    b = np.floor((1 + np.sqrt(1 + 8.0 * number)) / 2).astype(np.int64)
    b -= b * (b - 1) // 2 > number  # rounding
    b += b * (b + 1) // 2 <= number
    return number - b * (b - 1) // 2, b
