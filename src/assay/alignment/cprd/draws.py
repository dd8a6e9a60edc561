"""The statistic of the test for representability, and what it would be if the fitted scores were true."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit, gammaln, xlogy
from scipy.stats import chi2

from assay.numerics.laplacian import Graph

from .fit import BTFit
from .newton import log_sigmoid, maximise, strong_components

FloatArray = npt.NDArray[np.float64]

_MOST_EDGES = 1_000_000  # of all replicates that are fitted at once
_SMALL = 100  # up to so many rows of a pair the expected deviance is summed up, not expanded


def deviances(w_ij: FloatArray, w_ji: FloatArray, d: FloatArray) -> FloatArray:
    """(pairs,) 2 Σ w log(r/σ) of each pair at the difference of scores d."""
    n = w_ij + w_ji
    best = xlogy(w_ij, w_ij) + xlogy(w_ji, w_ji) - xlogy(n, n)
    return np.maximum(2 * (best - w_ij * log_sigmoid(d) - w_ji * log_sigmoid(-d)), 0)


def expected_deviances(n: FloatArray, p: FloatArray) -> FloatArray:
    """(pairs,) the mean of a pair's deviance when n rows are drawn with probability p.

    For one row a pair, deviances less these sum to zero at any maximum of the likelihood: single rows say nothing of
    whether scores represent them, and so they add nothing to the test.
    """
    pq = np.maximum(p * (1 - p), 1e-12)
    value = 1 + (1 / pq - 1) / (6 * n)  # Smith, Rae, Manderscheid and Silbergeld 1981
    whole = np.round(n)
    small = (n * pq < 20) | (n <= _SMALL)
    small &= whole <= 20 * _SMALL
    for count in np.unique(whole[small]):
        at = np.flatnonzero(small & (whole == count))
        wins = np.arange(count + 1)
        choose = gammaln(count + 1) - gammaln(wins + 1) - gammaln(count - wins + 1)
        step = max(1, 2_000_000 // len(wins))
        for start in range(0, len(at), step):
            part = at[start : start + step]
            x, y = p[part, None], 1 - p[part, None]
            chance = np.exp(choose + xlogy(wins, x) + xlogy(count - wins, y))
            each = 2 * (
                xlogy(wins, wins) + xlogy(count - wins, count - wins) - xlogy(count, count)
                - xlogy(wins, x) - xlogy(count - wins, y)
            )  # fmt: skip
            value[part] = (chance * np.maximum(each, 0)).sum(axis=1)
    return value


def statistic_of(w_ij: FloatArray, w_ji: FloatArray, d: FloatArray) -> float:
    """The summed deviance of the pairs, less what is expected of it where the scores are true.

    Of a pair with one row the two differ by −2 (w − p) d alone, so that the costly terms are needed of the others only.
    """
    n = w_ij + w_ji
    p = expit(d)
    one = n == 1
    more = ~one
    rest = deviances(w_ij[more], w_ji[more], d[more]) - expected_deviances(n[more], p[more])
    return float(rest.sum() - 2 * ((w_ij - p) * d)[one].sum())


def tail(statistic: float, drawn: FloatArray, approximate: bool) -> float:
    """P(draw ≥ statistic): (1 + how many) / (1 + all); or by a nearly normal law with the draws' mean and spread.

    The law is for few draws of many pairs.
    """
    spread = float(drawn.std(ddof=1)) if len(drawn) > 2 else 0.0
    if approximate and spread > 0:
        df = 200.0  # nearly normal, with a slightly longer upper tail
        return float(chi2.sf(df + (statistic - drawn.mean()) / spread * np.sqrt(2 * df), df))
    return float((1 + (drawn >= statistic - 1e-9 * max(1.0, abs(statistic))).sum()) / (1 + len(drawn)))


def parametric_draws(fit: BTFit, n: FloatArray, n_boot: int, rng: np.random.Generator) -> FloatArray:
    """Statistics of counts drawn from the fitted scores, each fitted anew.

    Small graphs are fitted many at a time, as one graph of many components; of a large one the Laplacian stays that of
    the fit, and all draws take their steps with it together.
    """
    graph = fit.graph
    p = expit(fit.values[graph.i] - fit.values[graph.j])
    whole = np.round(n).astype(np.int64)
    at_once = 8 if graph.large else max(1, min(n_boot, _MOST_EDGES // max(len(n), 1)))
    drawn: list[FloatArray] = []
    for start in range(0, n_boot, at_once):
        count = min(at_once, n_boot - start)
        wins = rng.binomial(whole, p, (count, len(n))).astype(np.float64)
        drawn.append(_large(fit, wins, n) if graph.large else _batch(fit, wins, n))
    return np.concatenate(drawn)


def _batch(fit: BTFit, wins: FloatArray, n: FloatArray) -> FloatArray:
    graph, count = fit.graph, len(wins)
    shift = np.repeat(np.arange(count) * graph.n, len(n))
    i, j = np.tile(graph.i, count) + shift, np.tile(graph.j, count) + shift
    w_ij, w_ji = wins.ravel(), (n - wins).ravel()
    # Where no finite scores exist the supremum is reached component by component; pairs between them fit perfectly.
    strong = strong_components(graph.n * count, i, j, w_ij, w_ji)
    inside = strong[i] == strong[j]
    part = Graph(graph.n * count, i[inside], j[inside])
    w_ij, w_ji = w_ij[inside], w_ji[inside]
    found = maximise(part, w_ij, w_ji, start=np.tile(fit.values, count), tol=1e-5, max_iter=30)
    d = found.scores[part.i] - found.scores[part.j]
    terms = deviances(w_ij, w_ji, d) - expected_deviances(w_ij + w_ji, expit(d))
    return np.bincount(part.i // graph.n, terms, count)


def _large(fit: BTFit, wins: FloatArray, n: FloatArray, steps: int = 12) -> FloatArray:
    graph = fit.graph
    s = np.repeat(fit.values[:, None], len(wins), axis=1)
    # Sums over the pairs of each item, signed: a sparse product is faster than counting, and less memory than columns.
    edges = np.arange(len(n), dtype=np.int32)
    ends = np.concatenate([graph.i, graph.j]).astype(np.int32)
    signs = np.repeat([1.0, -1.0], len(n))
    incidence = sparse.coo_array((signs, (ends, np.concatenate([edges, edges]))), shape=(graph.n, len(n))).tocsr()
    pull = np.empty((graph.n, len(wins)))
    for _ in range(steps):
        for k, drawn in enumerate(wins):
            pull[:, k] = incidence @ (drawn - n * expit(_differences(graph, s, k)))
        step = graph.solve(fit.fisher, pull, rtol=1e-2)
        s += step
        # An item that lost all its drawn rows goes on for ever; what it still gains is next to nothing.
        if np.quantile(np.abs(step), 0.999) < 1e-3:
            break
    return np.array([statistic_of(w, n - w, _differences(graph, s, k)) for k, w in enumerate(wins)])


def _differences(graph: Graph, s: FloatArray, k: int) -> FloatArray:
    column = np.ascontiguousarray(s[:, k])
    return np.asarray(column[graph.i] - column[graph.j], dtype=np.float64)


def cluster_draws(fit: BTFit, n_boot: int, rng: np.random.Generator) -> tuple[float, FloatArray, float]:
    """How much residuals of different clusters agree about pairs: observed, and with signs turned at random.

    The statistic is Pearson's less what a cluster adds by itself, Σ_pairs [(Σ_c r_c)² − Σ_c r_c²] / (n p (1 − p)): a
    pair about which one cluster alone speaks adds nothing. A drawn sign turns all residuals of a cluster, so that
    whatever dependence is within it stays (a wild bootstrap), and what a new fit takes away is taken, to first order.
    Residuals are enlarged first for what the fit has taken of them already.

    Returns
    -------
    tuple
        The statistic; (n_boot,) its draws; and the draws' mean of Pearson's statistic itself.
    """
    c, graph = fit.comparisons, fit.graph
    assert c.clusters is not None
    assert c.rows is not None
    edge = np.full(len(fit.inside), -1)
    edge[fit.inside] = np.arange(len(graph.i))
    pair = edge[c.rows.pair]
    used = pair >= 0
    pair, forward, weight = pair[used], c.rows.forward[used], c.rows.weight[used]
    p = expit(fit.values[graph.i] - fit.values[graph.j])
    pq, variance = p * (1 - p), fit.fisher
    clusters = np.unique(c.clusters[used], return_inverse=True)[1]
    shape = (len(graph.i), int(clusters.max()) + 1)
    residual = sparse.coo_array((weight * (forward - p[pair]), (pair, clusters)), shape=shape).tocsr()
    size = sparse.coo_array((weight, (pair, clusters)), shape=shape).tocsr()
    squares = size.power(2).sum(axis=1)
    observed = float(((residual.sum(axis=1) ** 2 - residual.power(2).sum(axis=1)) / variance).sum())
    # Rows of one cluster about one pair count as one: a person who says the same three times has been asked once.
    asked = float(size.sum()) ** 2 / float(squares.sum())
    parameters = int(graph.sizes[graph.sizes > 1].sum() - (graph.sizes > 1).sum())
    residual.data *= np.sqrt(asked / max(asked - parameters, 1))
    own = residual.power(2).sum(axis=1)[:, None]
    weighted = residual.multiply(size).tocsr()
    pearson = []
    drawn: list[FloatArray] = []
    step = max(1, min(n_boot, 4_000_000 // max(len(graph.i), 1)))
    for start in range(0, n_boot, step):
        signs = rng.choice([-1.0, 1.0], (shape[1], min(step, n_boot - start)))
        e = residual @ signs
        pull = np.stack(
            [np.bincount(graph.i, column, graph.n) - np.bincount(graph.j, column, graph.n) for column in e.T], axis=1
        )
        moved = graph.solve(variance, pull, rtol=1e-4)
        shift = (moved[graph.i] - moved[graph.j]) * pq[:, None]  # of each row's residual, by the new fit
        together = (e - (variance / pq)[:, None] * shift) ** 2 / variance[:, None]
        alone = (own - 2 * shift * (weighted @ signs) + shift**2 * squares[:, None]) / variance[:, None]
        pearson.append(together.sum(axis=0))
        drawn.append((together - alone).sum(axis=0))
    return observed, np.concatenate(drawn), float(np.concatenate(pearson).mean())
