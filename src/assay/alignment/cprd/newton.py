"""The likelihood of the Bradley–Terry model, and its maximum by Newton's method on the graph of comparisons."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph
from scipy.special import expit

from assay.numerics.laplacian import Graph

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_ITER = 100


@dataclass(frozen=True)
class Maximum:
    """Where the likelihood is largest.

    Attributes
    ----------
    scores
        (n,) mean 0 over each component of the graph.
    converged
        (components,) whether the last step was below the tolerance.
    iterations
        How many Newton steps were taken.
    """

    scores: FloatArray
    converged: BoolArray
    iterations: int


def log_sigmoid(x: FloatArray) -> FloatArray:
    """log σ(x), without overflow."""
    return -np.logaddexp(0.0, -x)


def strong_components(n: int, i: IntArray, j: IntArray, w_ij: FloatArray, w_ji: FloatArray) -> IntArray:
    """(n,) the strongly connected components of the graph with an edge from i to j where i was ever chosen over j.

    Within one, and only there, finite scores maximise the likelihood (Ford 1957). Numbered in the order of their first
    nodes.
    """
    won, lost = w_ij > 0, w_ji > 0
    start, end = np.concatenate([i[won], j[lost]]), np.concatenate([j[won], i[lost]])
    graph = sparse.coo_array((np.ones(len(start), dtype=np.int8), (start, end)), shape=(n, n)).tocsr()
    _, labels = csgraph.connected_components(graph, directed=True, connection="strong")
    return in_order(labels)


def in_order(labels: npt.NDArray[np.int32] | IntArray) -> IntArray:
    """The same labels, numbered in the order of their first nodes."""
    first = np.unique(labels, return_index=True)[1]
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[labels]


def maximise(
    graph: Graph,
    w_ij: FloatArray,
    w_ji: FloatArray,
    *,
    ridge: float = 0.0,
    start: FloatArray | None = None,
    tol: float = 1e-10,
    rtol: float = 1e-4,
    max_iter: int = MAX_ITER,
) -> Maximum:
    """Maximise Σ w_ij log σ(s_i − s_j) + w_ji log σ(s_j − s_i) − ridge/2 |s|² over the scores of each component.

    Without a ridge each component must be strongly connected. Components step on their own, with steps halved until
    their likelihood does not fall, and leave the work when they are done.

    Parameters
    ----------
    graph
        Its edges are the pairs.
    w_ij, w_ji
        (m,) counts.
    ridge
        Strength of the quadratic penalty.
    start
        (n,) scores to begin with; default: 0.
    tol
        A component is done when its largest step is below this.
    rtol
        How exactly each step is solved for in large components; the steps correct each other.
    """
    n_components = len(graph.sizes)
    scores = np.zeros(graph.n) if start is None else graph.centred(start)
    converged = graph.sizes == 1
    part, nodes = graph, np.arange(graph.n)
    which, left, right = np.arange(n_components), w_ij, w_ji
    iterations = 0
    if converged.any() and not converged.all():
        part, nodes, which, left, right = _remaining(part, ~converged, nodes, which, left, right)
    while not converged.all() and iterations < max_iter:
        iterations += 1
        s = scores[nodes]
        total = left + right
        d = s[part.i] - s[part.j]
        p = expit(d)
        pull = left - total * p
        gradient = np.bincount(part.i, pull, part.n) - np.bincount(part.j, pull, part.n) - ridge * s
        step = part.solve(np.maximum(total * p * (1 - p), 1e-300), gradient, ridge=ridge, rtol=rtol)
        s, size = _halved(part, left, right, s, step, ridge)
        scores[nodes] = s
        done = size < tol
        converged[which[done]] = True
        if done.all():
            break
        # Rebuilding costs as much as a step or two, so it waits until half of the nodes are done.
        if done[part.component].mean() > 0.5:
            part, nodes, which, left, right = _remaining(part, ~converged[which], nodes, which, left, right)
    return Maximum(scores if ridge > 0 else graph.centred(scores), converged, iterations)


def _halved(
    graph: Graph, left: FloatArray, right: FloatArray, s: FloatArray, step: FloatArray, ridge: float
) -> tuple[FloatArray, FloatArray]:
    """The scores after the step, halved for each component until its likelihood does not fall; the largest moves."""
    count = len(graph.sizes)

    def height(x: FloatArray) -> FloatArray:
        d = x[graph.i] - x[graph.j]
        value = np.bincount(graph.component[graph.i], left * log_sigmoid(d) + right * log_sigmoid(-d), count)
        if ridge > 0:
            value -= ridge / 2 * np.bincount(graph.component, x * x, count)
        return value

    factor = np.ones(count)
    before = height(s)
    least = before - 1e-12 * np.abs(before)
    for _ in range(40):
        new = s + factor[graph.component] * step
        worse = height(new) < least
        if not worse.any():
            break
        factor[worse] /= 2
    moved = np.zeros(count)
    np.maximum.at(moved, graph.component, np.abs(new - s))
    return new, moved


def _remaining(
    graph: Graph, keep: BoolArray, nodes: IntArray, which: IntArray, left: FloatArray, right: FloatArray
) -> tuple[Graph, IntArray, IntArray, FloatArray, FloatArray]:
    """The graph of the components that are not done, with what belongs to it."""
    node, edge = keep[graph.component], keep[graph.component[graph.i]]
    number = np.cumsum(node) - 1
    smaller = Graph(int(node.sum()), number[graph.i[edge]], number[graph.j[edge]])
    return smaller, nodes[node], which[keep], left[edge], right[edge]
