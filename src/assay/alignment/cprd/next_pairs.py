"""Which pairs to label next: those that make the scores most certain."""

from __future__ import annotations

import numbers
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from assay.errors import InputError
from assay.numerics.laplacian import Graph

from .comparisons import Comparisons
from .fit import BTFit, _check
from .ids import id_column
from .representation import quiet_fit

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DENSE_ITEMS = 2000
"""Up to this many items all pairs are looked at, and gains are exact; above, those of a short list alone."""

MOST_LABELS = 10_000
"""How many labels are picked from one fit."""

_PARTNERS = 50
_MOST_PAIRS = 1_000_000
_SKETCH = 64
_AT_ONCE = 16  # columns that are solved for together: of many items more would not fit into memory
_CHUNK = 200_000


def suggest_pairs(
    c: Comparisons,
    k: int,
    *,
    pool: pd.DataFrame | None = None,
    fit: BTFit | None = None,
    criterion: Literal["A", "D"] = "A",
    prior: float = 0.1,
    seed: int = 0,
) -> pd.DataFrame:
    """The k pairs whose comparison tells most about the scores, chosen one after the other.

    With C = (information + prior·I)⁻¹, R = (e_i − e_j)ᵀ C (e_i − e_j) and q = σ(1 − σ) at the fit, one more comparison
    of i and j lowers the summed variance of all scores by q |C(e_i − e_j)|² / (1 + q R) (criterion ``"A"``), and raises
    the log-determinant of the information by log(1 + q R) (``"D"``). After each choice C is updated. Pairs that join
    two components come first, since R is about 2/prior there.

    Parameters
    ----------
    c
        The comparisons.
    k
        How many pairs, ≥ 1; a pair can come again.
    pool
        The pairs to choose from: columns ``i``, ``j`` (and ``context``); items without comparisons so far are welcome.
        None: all pairs of a context's items; above 2000 items random partners of each.
    fit
        The fit, where it is there already. Where it defines no difference of scores, q is 1/4.
    criterion
        ``"A"`` or ``"D"``.
    prior
        > 0; what is known of each score beforehand (inverse variance).
    seed
        Of the random partners, and of the estimates above 2000 items: there the gains are estimated with 64 random
        vectors (to about 18 %), and the best of them worked out exactly.

    Returns
    -------
    DataFrame
        ``i``, ``j``, ``gain`` (with contexts also ``context``), in the order of the choice.

    Raises
    ------
    KeyError
        When the pool lacks a column.
    TypeError, InputError
        For other bad arguments.

    Examples
    --------
    >>> rows = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")]
    >>> c = Comparisons.from_triplets(pd.DataFrame(rows, columns=["chosen", "rejected"]))
    >>> suggest_pairs(c, 1)[["i", "j"]].to_dict("records")
    [{'i': 'a', 'j': 'c'}]
    """
    _check(c)
    if not isinstance(k, numbers.Integral) or k < 1:
        raise InputError(f"k must be a whole number ≥ 1, not {k!r}")
    if k > MOST_LABELS:
        raise InputError(f"k must be at most {MOST_LABELS}, not {k}: fit again before more are picked")
    if criterion not in ("A", "D"):
        raise InputError(f"criterion must be 'A' or 'D', not {criterion!r}")
    if not isinstance(prior, numbers.Real) or not 0 < prior < np.inf:
        raise InputError(f"prior must be a positive number, not {prior!r}")
    fit = quiet_fit(c) if fit is None else fit
    nodes = _Nodes(c)
    if pool is not None:
        a, b = nodes.of_pool(pool)
    else:
        a, b = _all_pairs(c, np.random.default_rng(seed))
    if not len(a):
        raise InputError("no pair to choose from: no context has two items")
    q = _information(fit, a, b)
    graph = Graph(nodes.count, fit.graph.i, fit.graph.j)
    rng = np.random.default_rng([seed, 1])
    if nodes.count > DENSE_ITEMS:
        short = _short_list(graph, fit.fisher, a, b, q, int(k), criterion, float(prior), rng)
        a, b, q = a[short], b[short], q[short]
        picked, gains = _greedy_columns(graph, fit.fisher, a, b, q, int(k), criterion, float(prior))
    else:
        picked, gains = _greedy_dense(graph, fit.fisher, a, b, q, int(k), criterion, float(prior))
    frame = pd.DataFrame({"i": nodes.items(a[picked]), "j": nodes.items(b[picked]), "gain": gains})
    if c.has_contexts:
        frame.insert(0, "context", nodes.contexts(a[picked]))
    return frame


class _Nodes:
    """The items of the comparisons, and behind them those that only the pool has."""

    def __init__(self, c: Comparisons) -> None:
        self.c = c
        self.count = len(c.nodes)
        self._new: list[tuple[Any, Any]] = []  # contexts and items that only the pool has

    def of_pool(self, pool: Any) -> tuple[IntArray, IntArray]:
        if not isinstance(pool, pd.DataFrame):
            raise TypeError(f"pool must be a pandas DataFrame, not a {type(pool).__name__}")
        if pool.empty:
            raise InputError("pool has no rows")
        left, right = id_column(pool, "i"), id_column(pool, "j")
        context = id_column(pool, "context") if self.c.has_contexts else None
        ends = []
        new: dict[Any, int] = {}
        for side in (left, right):
            node = self.c.node(side, context)
            for row in np.flatnonzero(node < 0):
                key = (context[row] if context is not None else "", side[row])
                if key not in new:
                    new[key] = self.count + len(new)
                node[row] = new[key]
            ends.append(node.astype(np.int64))
        self.count += len(new)
        self._new += list(new)
        keep = ends[0] != ends[1]
        return ends[0][keep], ends[1][keep]

    def items(self, node: IntArray) -> list[Any]:
        return self._named(node, "item", self.c.items, 1)

    def contexts(self, node: IntArray) -> list[Any]:
        return self._named(node, "x", self.c.contexts, 0)

    def _named(self, node: IntArray, column: str, names: pd.Index, part: int) -> list[Any]:
        known, of = len(self.c.nodes), self.c.nodes[column].to_numpy()
        return [names[of[k]] if k < known else self._new[k - known][part] for k in node]


def _all_pairs(c: Comparisons, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """All pairs within contexts; where there are many nodes, some random partners of each."""
    x = c.nodes["x"].to_numpy()
    start = np.searchsorted(x, np.arange(len(c.contexts)))
    size = np.diff(np.append(start, len(x)))
    if len(x) <= DENSE_ITEMS or (size * (size - 1) // 2).sum() <= _MOST_PAIRS:
        parts = [np.zeros((2, 0), dtype=np.int64)]
        for s in np.unique(size[size > 1]):  # contexts of one size at once: there can be many of two items
            pairs = np.stack(np.triu_indices(s, 1))[:, None, :] + start[size == s][:, None]
            parts.append(pairs.reshape(2, -1))
        a, b = np.concatenate(parts, axis=1)
        order = np.lexsort((b, a))
        return a[order], b[order]
    partners = max(1, min(_PARTNERS, _MOST_PAIRS // len(x)))
    a = np.repeat(np.arange(len(x)), partners)
    b = start[x[a]] + rng.integers(0, size[x[a]])
    low, high = np.minimum(a, b), np.maximum(a, b)
    keys = np.unique((low * len(x) + high)[low != high])
    return keys // len(x), keys % len(x)


def _information(fit: BTFit, a: IntArray, b: IntArray) -> FloatArray:
    """q = σ(1 − σ) of each pair; 1/4 where no difference of scores is defined."""
    known = len(fit.scores)
    inside = (a < known) & (b < known)
    a, b = np.where(inside, a, 0), np.where(inside, b, 0)
    component = fit.component.to_numpy()
    p = expit(fit.values[a] - fit.values[b])
    return np.where(inside & (component[a] == component[b]), np.maximum(p * (1 - p), 1e-12), 0.25)


def _gain(criterion: str, q: FloatArray, distance: FloatArray, square: FloatArray) -> FloatArray:
    return np.asarray(q * square / (1 + q * distance) if criterion == "A" else np.log1p(q * distance), dtype=np.float64)


def _greedy_dense(
    graph: Graph, fisher: FloatArray, a: IntArray, b: IntArray, q: FloatArray, k: int, criterion: str, prior: float
) -> tuple[IntArray, FloatArray]:
    """With the whole matrix C. Its square is kept up to date as well: both change by rank one."""
    C = graph.pinv(fisher, ridge=prior)
    S = C @ C if criterion == "A" else C
    picked, gains = np.empty(k, dtype=np.int64), np.empty(k)
    for step in range(k):
        distance = C[a, a] + C[b, b] - 2 * C[a, b]
        square = S[a, a] + S[b, b] - 2 * S[a, b]
        gain = _gain(criterion, q, distance, square)
        best = _first_best(gain)
        picked[step], gains[step] = best, gain[best]
        column = C[:, a[best]] - C[:, b[best]]
        shrink = q[best] / (1 + q[best] * distance[best])
        if criterion == "A":
            image = S[:, a[best]] - S[:, b[best]]
            # (C − t ccᵀ)² = C² − t (c (Cc)ᵀ + (Cc) cᵀ) + t² |c|² ccᵀ with c = Cu, and Cc = S u.
            cross = np.outer(column, image)
            S = S - shrink * (cross + cross.T) + shrink**2 * (column @ column) * np.outer(column, column)
        C = C - shrink * np.outer(column, column)
        if criterion == "D":
            S = C
    return picked, gains


def _first_best(gain: FloatArray) -> int:
    """The first of those that share the largest gain but for rounding."""
    return int(np.argmax(gain >= gain.max() * (1 - 1e-9)))


def _short_list(
    graph: Graph,
    fisher: FloatArray,
    a: IntArray,
    b: IntArray,
    q: FloatArray,
    k: int,
    criterion: str,
    prior: float,
    rng: np.random.Generator,
) -> IntArray:
    """The pairs with the largest estimated gains, about twice as many as wanted.

    C = C (BᵀFB + prior) C, so that |Z_i − Z_j|² with Z = C (Bᵀ√F G₁ + √prior G₂), G random signs, estimates R; and
    |Y_i − Y_j|² with Y = C G₂ estimates |C(e_i − e_j)|².
    """
    n, root = graph.n, np.sqrt(fisher)
    Z = np.empty((n, _SKETCH), dtype=np.float32)
    Y = np.empty((n, _SKETCH), dtype=np.float32) if criterion == "A" else Z
    for first in range(0, _SKETCH, _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        sides = _signs(rng, n) * np.sqrt(prior)
        for column in range(_AT_ONCE):
            signed = rng.choice([-1.0, 1.0], len(root)) * root
            sides[:, column] += np.bincount(graph.i, signed, n) - np.bincount(graph.j, signed, n)
        Z[:, part] = graph.solve(fisher, sides, ridge=prior, rtol=1e-2)
        if criterion == "A":
            Y[:, part] = graph.solve(fisher, _signs(rng, n), ridge=prior, rtol=1e-2)
    distance, square = np.empty(len(a)), np.empty(len(a))
    for start in range(0, len(a), _CHUNK):
        part = slice(start, start + _CHUNK)
        for target, sketch in ((distance, Z), (square, Y)):
            difference = sketch[a[part]] - sketch[b[part]]
            target[part] = np.einsum("ps,ps->p", difference, difference) / _SKETCH
    gain = _gain(criterion, q, distance, square)
    count = min(len(a), 2 * k + 20)
    best = np.argpartition(-gain, count - 1)[:count]
    return np.sort(best)


def _greedy_columns(
    graph: Graph, fisher: FloatArray, a: IntArray, b: IntArray, q: FloatArray, k: int, criterion: str, prior: float
) -> tuple[IntArray, FloatArray]:
    """With the columns C(e_i − e_j) of the short list alone."""
    count = len(a)
    X = np.empty((graph.n, count))
    for start in range(0, count, 32):
        part = slice(start, min(start + 32, count))
        sides = np.zeros((graph.n, part.stop - start))
        sides[a[part], np.arange(part.stop - start)] = 1
        sides[b[part], np.arange(part.stop - start)] -= 1
        X[:, part] = graph.solve(fisher, sides, ridge=prior, rtol=1e-4)
    picked, gains = np.empty(k, dtype=np.int64), np.empty(k)
    # Of the columns x_k = C u_k only u_lᵀ x_k and x_lᵀ x_k are needed; both change by rank one or two.
    R, S = X[a] - X[b], X.T @ X
    del X
    for step in range(k):
        distance = np.maximum(np.diagonal(R), 0)
        gain = _gain(criterion, q, distance, np.diagonal(S))
        best = _first_best(gain)
        picked[step], gains[step] = best, gain[best]
        r, image, length = R[:, best].copy(), S[:, best].copy(), float(S[best, best])
        t = q[best] / (1 + q[best] * distance[best]) * r
        R -= np.outer(r, t)
        cross = np.outer(image, t)
        S += length * np.outer(t, t) - cross - cross.T
    return picked, gains


def _signs(rng: np.random.Generator, n: int) -> FloatArray:
    return 2.0 * rng.integers(0, 2, (n, _AT_ONCE), dtype=np.int8) - 1.0
