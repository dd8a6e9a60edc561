"""Fits of the Bradley–Terry model: scores, their uncertainty, and where the data define none."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from assay.errors import InputError
from assay.numerics.laplacian import Graph

from .comparisons import Comparisons
from .newton import MAX_ITER, log_sigmoid, maximise, strong_components

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DENSE_COVARIANCE = 2000
"""Up to this many items the covariance is there as a matrix."""


class DisconnectedComparisons(UserWarning):
    """The data do not compare all items with each other: some differences of scores are not defined."""


class NotConverged(UserWarning):
    """The iteration ended before its steps were small enough."""


@dataclass(frozen=True, eq=False)
class BTFit:
    """Scores s with P(i preferred to j) = σ(s_i − s_j).

    Attributes
    ----------
    scores
        For each item (each context and item, where there are contexts): mean 0 over each component, NaN where an item
        is a component of its own, for then no finite score is defined.
    component
        Which component each is of. Differences of scores are defined within a component.
    loglik
        Log-likelihood of the rows within components, in nats.
    converged
        Whether the last Newton step was below 1e-10.
    iterations
        How many steps it took.
    ridge
        Strength of the quadratic penalty; 0 means none.
    kind
        ``"discriminative"`` (maximum likelihood) or ``"generative"`` (ratio of densities).
    comparisons
        What was fitted.
    """

    scores: pd.Series
    component: pd.Series
    loglik: float
    converged: bool
    iterations: int
    ridge: float
    kind: Literal["discriminative", "generative"]
    comparisons: Comparisons

    @cached_property
    def values(self) -> FloatArray:
        """(nodes,) the scores, 0 where none is defined."""
        return np.nan_to_num(self.scores.to_numpy(dtype=np.float64))

    @cached_property
    def inside(self) -> npt.NDArray[np.bool_]:
        """(pairs,) which pairs lie within a component, so that the model gives them a probability."""
        i, j = self.comparisons.ends
        component = self.component.to_numpy()
        return np.asarray(component[i] == component[j])

    @cached_property
    def graph(self) -> Graph:
        """The graph of the pairs within components."""
        i, j = self.comparisons.ends
        return Graph(len(self.scores), i[self.inside], j[self.inside])

    @cached_property
    def fisher(self) -> FloatArray:
        """(edges of :attr:`graph`,) Fisher information of each: n σ(1 − σ) at the fit."""
        p = expit(self.values[self.graph.i] - self.values[self.graph.j])
        return np.asarray(np.maximum(self.comparisons.n[self.inside] * p * (1 - p), 1e-300), dtype=np.float64)

    @cached_property
    def cov(self) -> FloatArray | None:
        """(nodes, nodes) the pseudo-inverse of the information (with a ridge the inverse); None above 2000 nodes."""
        if len(self.scores) > DENSE_COVARIANCE:
            return None
        return self.graph.pinv(self.fisher, ridge=self.ridge)

    @cached_property
    def std_err(self) -> pd.Series:
        """Standard error of each score about the mean of its component.

        Above 1000 nodes in a component it is estimated with random signs, to a few percent.
        """
        if self.ridge > 0 and self.cov is None:
            diagonal = self.graph.inverse(self.fisher).diagonal  # without the ridge, which could only make it smaller
        else:
            diagonal = np.diagonal(self.cov) if self.cov is not None else self.graph.inverse(self.fisher).diagonal
        values = np.where(self.scores.isna(), np.nan, np.sqrt(np.maximum(diagonal, 0)))
        return pd.Series(values, self.scores.index, name="std_err")

    def probability(self, first: npt.ArrayLike, second: npt.ArrayLike, context: npt.ArrayLike | None = None) -> Any:
        """P(first preferred to second) for arrays of items; NaN where the data do not compare the two.

        Raises
        ------
        KeyError
            When there are no comparisons of an item (in its context).
        """
        a, b = (self._known(items, context) for items in (first, second))
        component = self.component.to_numpy()
        defined = component[a] == component[b]
        return np.where(defined, expit(self.values[a] - self.values[b]), np.nan)

    def _known(self, items: npt.ArrayLike, context: npt.ArrayLike | None) -> IntArray:
        names = np.asarray(items, dtype=object)
        node = self.comparisons.node(names, context)
        if (node < 0).any():
            raise KeyError(f"no comparisons of {names[np.argmax(node < 0)]!r} (in that context)")
        return node


def fit_bt(c: Comparisons, *, ridge: float = 0.0, method: str = "newton") -> BTFit:
    """Fit the Bradley–Terry model by maximum likelihood.

    Without a ridge, finite scores exist within the strongly connected components of the graph "was ever chosen over",
    and only there; each is fitted alone, and nothing is said about differences between them.

    Parameters
    ----------
    c
        The comparisons.
    ridge
        Strength λ of the penalty λ/2 |s|²; with one, every connected component has finite scores, which depend on it.
    method
        ``"newton"``.

    Returns
    -------
    BTFit
        At the optimum Σ_j n_ij (r_ij − σ_ij) = ridge · s_i for every item: this, and no more, is what a Bradley–Terry
        reward keeps of the preferences.

    Raises
    ------
    TypeError, InputError
        When ``c`` is no :class:`Comparisons`, ``ridge`` is negative, or ``method`` another.

    Warns
    -----
    DisconnectedComparisons
        When there is more than one component.
    NotConverged
        After 100 steps.

    Notes
    -----
    Source: "What Does Preference Learning Recover from Pairwise Comparison Data?", arXiv 2602.10286.

    Examples
    --------
    >>> frame = pd.DataFrame({"chosen": ["a", "b", "c"], "rejected": ["b", "c", "a"], "n": [3, 4, 2]})
    >>> frame = pd.concat([frame, frame.set_axis(["rejected", "chosen", "n"], axis=1).assign(n=1)])
    >>> fit_bt(Comparisons.from_triplets(frame, weight="n")).scores.round(4).to_dict()
    {'a': 0.2175, 'b': 0.1305, 'c': -0.3479}
    """
    _check(c)
    if method != "newton":
        raise InputError(f"method must be 'newton', not {method!r}")
    if not isinstance(ridge, numbers.Real) or not 0 <= ridge < np.inf:
        raise InputError(f"ridge must be a number ≥ 0, not {ridge!r}")
    i, j = c.ends
    w_ij, w_ji = c.wins
    n = len(c.nodes)
    if ridge > 0:
        graph, inside = Graph(n, i, j), np.ones(len(i), dtype=bool)
    else:
        strong = strong_components(n, i, j, w_ij, w_ji)
        inside = strong[i] == strong[j]
        graph = Graph(n, i[inside], j[inside])
    found = maximise(graph, w_ij[inside], w_ji[inside], ridge=float(ridge))
    if not found.converged.all():
        warnings.warn(
            f"Newton's method ended after {MAX_ITER} steps in {int((~found.converged).sum())} components",
            NotConverged,
            stacklevel=2,
        )
    fit = _made(c, graph, found.scores, bool(found.converged.all()), found.iterations, float(ridge), "discriminative")
    if len(graph.sizes) > len(c.contexts):
        warnings.warn(_disconnected_text(graph, len(c.contexts)), DisconnectedComparisons, stacklevel=2)
    return fit


def project(c: Comparisons | npt.ArrayLike, weights: npt.ArrayLike | None = None) -> BTFit:
    """The Bradley–Terry model nearest to known preferences, in Kullback–Leibler divergence: what it converges to.

    Parameters
    ----------
    c
        (n, n) the probabilities r that the row's item is preferred to the column's, r + rᵀ = 1 off the diagonal; a
        DataFrame gives names. Or comparisons, whose shares are taken as they are.
    weights
        (n, n) symmetric, ≥ 0: how often each pair comes; default: all pairs alike. With comparisons: leave it away.

    Raises
    ------
    InputError
        When r or the weights are not as said.
    """
    if isinstance(c, Comparisons):
        if weights is not None:
            raise InputError("weights belongs to probabilities; comparisons bring their own")
        return fit_bt(c)
    names = list(c.index) if isinstance(c, pd.DataFrame) else None
    r = np.asarray(c, dtype=np.float64)
    if r.ndim != 2 or r.shape[0] != r.shape[1] or len(r) < 2:
        raise InputError(f"probabilities must have the shape (n, n), n ≥ 2, not {r.shape}")
    weight = np.ones(r.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    regular = weight.shape == r.shape and np.isfinite(weight).all() and (weight >= 0).all()
    if not regular or not np.allclose(weight, weight.T):
        raise InputError(f"weights must be symmetric, finite and ≥ 0, of shape {r.shape}")
    a, b = np.triu_indices(len(r), 1)
    used = weight[a, b] > 0
    a, b = a[used], b[used]
    bad = ~((r[a, b] >= 0) & (r[a, b] <= 1)) | ~np.isclose(r[a, b] + r[b, a], 1)
    if not used.any():
        raise InputError("no comparisons: all weights are 0")
    if bad.any():
        k = int(np.argmax(bad))
        raise InputError(
            f"probabilities must lie in [0, 1] with r[i, j] + r[j, i] = 1; at ({a[k]}, {b[k]}) they are "
            f"{r[a[k], b[k]]} and {r[b[k], a[k]]}"
        )
    items = pd.Index(names if names is not None else np.arange(len(r)))
    table = pd.DataFrame({"x": 0, "i": a, "j": b, "w_ij": weight[a, b] * r[a, b], "w_ji": weight[a, b] * (1 - r[a, b])})
    return fit_bt(Comparisons(items, pd.Index([""]), table))


def _made(
    c: Comparisons,
    graph: Graph,
    scores: FloatArray,
    converged: bool,
    iterations: int,
    ridge: float,
    kind: Literal["discriminative", "generative"],
) -> BTFit:
    i, j = c.ends
    w_ij, w_ji = c.wins
    inside = graph.component[i] == graph.component[j]
    d = (scores[i] - scores[j])[inside]
    loglik = float(w_ij[inside] @ log_sigmoid(d) + w_ji[inside] @ log_sigmoid(-d))
    alone = graph.sizes[graph.component] == 1
    return BTFit(
        pd.Series(np.where(alone, np.nan, scores), c.labels, name="score"),
        pd.Series(graph.component, c.labels, name="component"),
        loglik,
        converged,
        iterations,
        ridge,
        kind,
        c,
    )


def _disconnected_text(graph: Graph, n_contexts: int) -> str:
    alone, of = int((graph.sizes == 1).sum()), len(graph.sizes)
    per = " (one a context would be connected)" if n_contexts > 1 else ""
    return (
        f"the comparisons fall into {of} components{per}, the largest with {int(graph.sizes.max())} of {graph.n} "
        f"items; those that are alone ({alone}) have no finite score, and differences between components are "
        "not defined"
    )


def _check(c: Any) -> None:
    if not isinstance(c, Comparisons):
        raise TypeError(f"c must be Comparisons (see Comparisons.from_triplets), not a {type(c).__name__}")
