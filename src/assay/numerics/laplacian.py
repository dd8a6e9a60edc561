"""Laplacians of weighted graphs: solves, the second eigenvalue, the trace and diagonal of the pseudo-inverse.

The Laplacian of a graph with edges {i, j} of weight c is L = Σ c (e_i − e_j)(e_i − e_j)ᵀ. A graph of many components is
treated as a whole: components of equal size are solved in one batch, large ones one by one. Small and middle ones are
exact; of those above :data:`DENSE_LIMIT` nodes, systems are solved by conjugate gradients, and traces are estimated
with random signs and their standard error. No dense matrix of a large component is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu

__all__ = ["DENSE_LIMIT", "Graph", "Inverse", "Second"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

DENSE_LIMIT = 1000
"""Components of up to this many nodes are solved and decomposed exactly."""

BATCH_LIMIT = 64
"""Components of up to this many nodes are solved in batches of equal size."""

_BATCH_NUMBERS = 4_000_000  # of float64 in one batch of small matrices
_DIRECT_LIMIT = 100_000  # nodes up to which a slow iteration gives way to a factorisation
_MAX_STEPS = 5000


class Inverse(NamedTuple):
    """The trace and the diagonal of the pseudo-inverse.

    Attributes
    ----------
    diagonal
        (n,) of each node.
    diagonal_error
        (n,) standard error of each entry; 0 where it is exact.
    trace
        (components,) sum of the diagonal.
    trace_error
        (components,) its standard error.
    """

    diagonal: FloatArray
    diagonal_error: FloatArray
    trace: FloatArray
    trace_error: FloatArray


class Second(NamedTuple):
    """The second smallest eigenvalue of each component's Laplacian, its algebraic connectivity.

    Attributes
    ----------
    values
        (components,); NaN for a component of one node, which has none.
    errors
        (components,) bound on the distance to the nearest eigenvalue (the norm of the residual); 0 where it is exact.
    """

    values: FloatArray
    errors: FloatArray


@dataclass(frozen=True)
class _Batch:
    """Components of one size: their labels, nodes (c, s), edges, and where those stand in the matrices."""

    components: IntArray
    nodes: IntArray
    edges: IntArray
    matrix: IntArray
    row: IntArray
    column: IntArray


class Graph:
    """The pattern of a graph, whose weights may change: what is worked out once for many solves.

    Parameters
    ----------
    n
        How many nodes.
    i, j
        (m,) ends of each edge, from 0 to n − 1, i ≠ j, no edge twice.

    Attributes
    ----------
    component
        (n,) which component each node is of, numbered from 0 in the order of their first nodes.
    sizes
        (components,) their nodes.

    Examples
    --------
    >>> path = Graph(3, np.array([0, 1]), np.array([1, 2]))
    >>> path.solve(np.ones(2), np.array([1.0, 0.0, -1.0])).round(6).tolist()
    [1.0, 0.0, -1.0]
    >>> path.second(np.ones(2)).values.round(6).tolist(), path.inverse(np.ones(2)).trace.round(6).tolist()
    ([1.0], [1.333333])
    """

    def __init__(self, n: int, i: npt.ArrayLike, j: npt.ArrayLike) -> None:
        self.n = n
        self.i = np.asarray(i, dtype=np.int64)
        self.j = np.asarray(j, dtype=np.int64)
        pattern = sparse.coo_array((np.ones(len(self.i), dtype=np.int8), (self.i, self.j)), shape=(n, n)).tocsr()
        _, labels = csgraph.connected_components(pattern, directed=False)
        first = np.unique(labels, return_index=True)[1]
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first, kind="stable")] = np.arange(len(first))
        self.component: IntArray = rank[labels]
        self.sizes: IntArray = np.bincount(self.component, minlength=len(first)).astype(np.int64)
        self._order = np.argsort(self.component, kind="stable")
        self._start = np.concatenate([[0], np.cumsum(self.sizes)])
        self._place = np.empty(n, dtype=np.int64)  # of a node within its component
        self._place[self._order] = np.arange(n) - np.repeat(self._start[:-1], self.sizes)
        of_edge = self.component[self.i]
        self._edge_order = np.argsort(of_edge, kind="stable")
        self._edge_start = np.searchsorted(of_edge[self._edge_order], np.arange(len(self.sizes) + 1))
        self._batches = self._make_batches()
        self._patterns: dict[int, tuple[Any, IntArray]] = {}

    @property
    def large(self) -> bool:
        """Whether a component is above :data:`DENSE_LIMIT`, so that not everything is exact."""
        return bool(self.sizes.max(initial=0) > DENSE_LIMIT)

    def centred(self, x: FloatArray) -> FloatArray:
        """``x`` (n,) or (n, k) less its mean over each component."""
        if len(self.sizes) == 1:
            return np.asarray(x - x.mean(axis=0), dtype=np.float64)
        columns = x[:, None] if x.ndim == 1 else x
        sums = np.stack([np.bincount(self.component, weights=column) for column in columns.T], axis=1)
        means = (sums / self.sizes[:, None])[self.component]
        return np.asarray(x - (means[:, 0] if x.ndim == 1 else means), dtype=np.float64)

    def degrees(self, weights: FloatArray) -> FloatArray:
        """(n,) the diagonal of the Laplacian: the summed weights of each node's edges."""
        there = np.bincount(self.i, weights, self.n) + np.bincount(self.j, weights, self.n)
        return np.asarray(there, dtype=np.float64)

    def solve(self, weights: FloatArray, b: FloatArray, *, ridge: float = 0.0, rtol: float = 1e-10) -> FloatArray:
        """Solve (L + ridge I) x = b; without a ridge x = pinv(L) b, which has mean 0 over each component.

        Parameters
        ----------
        weights
            (m,) positive weights of the edges.
        b
            (n,) or (n, k) right sides.
        ridge
            Added to the diagonal.
        rtol
            How small the residual of each column becomes, relative to the column, in large components.
        """
        columns = b[:, None] if b.ndim == 1 else b
        x = np.zeros(columns.shape)
        centred = columns if ridge > 0 else self.centred(columns)
        single = self.sizes == 1
        if ridge > 0 and single.any():
            alone = single[self.component]
            x[alone] = columns[alone] / ridge
        for batch in self._batches:
            for part, matrices in self._matrices(batch, weights, ridge):
                x[part] = np.linalg.solve(matrices, centred[part])
        for component in self._above(BATCH_LIMIT):
            nodes = self._nodes(component)
            x[nodes] = self._solve_one(component, weights, centred[nodes], ridge, rtol)
        x = x if ridge > 0 else self.centred(x)
        return np.asarray(x[:, 0] if b.ndim == 1 else x, dtype=np.float64)

    def second(self, weights: FloatArray) -> Second:
        """The second smallest eigenvalue of each component's Laplacian."""
        values, errors = np.full(len(self.sizes), np.nan), np.zeros(len(self.sizes))
        for components, spectra in self._spectra(weights):
            values[components] = spectra[:, 1]
        for component in self._above(DENSE_LIMIT):
            values[component], errors[component] = self._second_of(component, weights)
        return Second(values, errors)

    def inverse(self, weights: FloatArray, *, probes: int = 32, seed: int = 0) -> Inverse:
        """The diagonal and trace of pinv(L); of large components estimated with ``probes`` vectors of random signs.

        The estimate of the diagonal is the mean of z ∘ pinv(L) z over vectors z of random signs (Hutchinson; Bekas,
        Kokiopoulou and Saad 2007). Where its noise is above a tenth, as on long paths, four times as many random
        combinations of edges take its place (Spielman and Srivastava 2011).
        """
        diagonal, error = np.zeros(self.n), np.zeros(self.n)
        for batch in self._batches:
            for part, matrices in self._matrices(batch, weights, 0.0):
                inverse = np.linalg.inv(matrices)
                shift = _shift(matrices)
                diagonal[part] = np.diagonal(inverse, axis1=1, axis2=2) - 1 / (shift * matrices.shape[1] ** 2)[:, None]
        trace, trace_error = np.zeros(len(self.sizes)), np.zeros(len(self.sizes))
        for component in self._above(BATCH_LIMIT):
            nodes = self._nodes(component)
            if len(nodes) <= DENSE_LIMIT:
                matrix = self._dense(component, weights, 0.0)
                constant = float(_shift(matrix[None])[0])
                diagonal[nodes] = np.diagonal(linalg.inv(matrix)) - 1 / (constant * len(nodes) ** 2)
                continue
            rng = np.random.default_rng([seed, component])
            products = self._node_probes(component, weights, probes, rng)
            error[nodes] = products.std(axis=1, ddof=1) / np.sqrt(probes)
            if np.median(error[nodes]) > 0.1 * products.mean():
                products = self._edge_probes(component, weights, 4 * probes, rng)
                error[nodes] = products.std(axis=1, ddof=1) / np.sqrt(4 * probes)
            diagonal[nodes] = np.maximum(products.mean(axis=1), 0)
            trace[component] = products.sum(axis=0).mean()
            trace_error[component] = products.sum(axis=0).std(ddof=1) / np.sqrt(products.shape[1])
        exact = self.sizes <= DENSE_LIMIT
        trace[exact] = np.bincount(self.component, weights=diagonal, minlength=len(self.sizes))[exact]
        return Inverse(diagonal, error, trace, trace_error)

    def _node_probes(self, component: int, weights: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
        """(s, count) terms whose means are the diagonal; their noise is what stands beside it in the pseudo-inverse."""
        signs = rng.choice([-1.0, 1.0], (int(self.sizes[component]), count))
        centred = signs - signs.mean(axis=0)
        return np.asarray(centred * self._solve_one(component, weights, centred, 0.0, 1e-4), dtype=np.float64)

    def _edge_probes(self, component: int, weights: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
        """The same as squares, which are never negative and whose relative noise is √2 on any graph."""
        edges = self._edges(component)
        row, column = self._place[self.i[edges]], self._place[self.j[edges]]
        size = int(self.sizes[component])
        sides = np.empty((size, count))
        for k in range(count):
            signed = rng.choice([-1.0, 1.0], len(edges)) * np.sqrt(weights[edges])
            sides[:, k] = np.bincount(row, signed, size) - np.bincount(column, signed, size)
        x = self._solve_one(component, weights, sides, 0.0, 1e-4)
        return np.asarray((x - x.mean(axis=0)) ** 2, dtype=np.float64)

    def pinv(self, weights: FloatArray, *, ridge: float = 0.0) -> FloatArray:
        """(n, n) the dense pseudo-inverse, or with a ridge the inverse; for graphs that are small enough for it."""
        return self.solve(weights, np.eye(self.n), ridge=ridge, rtol=1e-12)

    def _above(self, size: int) -> list[int]:
        """The components of more nodes than this."""
        return [int(component) for component in np.flatnonzero(self.sizes > size)]

    def _nodes(self, component: int) -> IntArray:
        return self._order[self._start[component] : self._start[component + 1]]

    def _edges(self, component: int) -> IntArray:
        return self._edge_order[self._edge_start[component] : self._edge_start[component + 1]]

    def _make_batches(self) -> list[_Batch]:
        batches = []
        size_of_edge = self.sizes[self.component[self.i]]
        for size in np.unique(self.sizes):
            if not 1 < size <= BATCH_LIMIT:
                continue
            components = np.flatnonzero(self.sizes == size)
            rank = np.full(len(self.sizes), -1)
            rank[components] = np.arange(len(components))
            nodes = self._order[(self._start[components][:, None] + np.arange(size))]
            edges = self._edge_order[size_of_edge[self._edge_order] == size]
            matrix = rank[self.component[self.i[edges]]]
            batches.append(
                _Batch(components, nodes, edges, matrix, self._place[self.i[edges]], self._place[self.j[edges]])
            )
        return batches

    def _matrices(self, batch: _Batch, weights: FloatArray, ridge: float) -> list[tuple[IntArray, FloatArray]]:
        """Nodes (c, s) and Laplacians (c, s, s) of a batch, in parts that fit into memory."""
        count, size = batch.nodes.shape
        step = max(1, _BATCH_NUMBERS // size**2)
        parts = []
        for start in range(0, count, step):
            stop = min(count, start + step)
            low, high = np.searchsorted(batch.matrix, [start, stop])  # edges are in the order of their components
            c, r, k = batch.matrix[low:high] - start, batch.row[low:high], batch.column[low:high]
            weight = weights[batch.edges[low:high]]
            matrices = np.zeros((stop - start, size, size))
            matrices[c, r, k] = -weight
            matrices[c, k, r] = -weight
            index = np.arange(size)
            matrices[:, index, index] = -matrices.sum(axis=2)
            parts.append((batch.nodes[start:stop], _grounded(matrices, ridge)))
        return parts

    def _dense(self, component: int, weights: FloatArray, ridge: float) -> FloatArray:
        edges, size = self._edges(component), int(self.sizes[component])
        row, column = self._place[self.i[edges]], self._place[self.j[edges]]
        matrix = np.zeros((size, size))
        matrix[row, column] = -weights[edges]
        matrix[column, row] = -weights[edges]
        np.fill_diagonal(matrix, -matrix.sum(axis=1))
        return np.asarray(_grounded(matrix[None], ridge)[0], dtype=np.float64)

    def _sparse(self, component: int, weights: FloatArray) -> tuple[Any, FloatArray]:
        """The adjacency matrix of a large component, and its row sums."""
        edges, size = self._edges(component), int(self.sizes[component])
        if component not in self._patterns:
            row = self._place[self.i[edges]].astype(np.int32)  # half the memory of the pattern, and faster
            column = self._place[self.j[edges]].astype(np.int32)
            number = np.arange(len(edges))
            both = (np.concatenate([number, number]), (np.concatenate([row, column]), np.concatenate([column, row])))
            pattern = sparse.coo_array(both, shape=(size, size)).tocsr()
            self._patterns[component] = (pattern, pattern.data.copy())
        pattern, which = self._patterns[component]
        adjacency = sparse.csr_array((weights[edges][which], pattern.indices, pattern.indptr), shape=(size, size))
        return adjacency, np.asarray(adjacency.sum(axis=1), dtype=np.float64).ravel()

    def _solve_one(self, component: int, weights: FloatArray, b: FloatArray, ridge: float, rtol: float) -> FloatArray:
        size = len(b)
        if size <= DENSE_LIMIT:
            return np.asarray(linalg.solve(self._dense(component, weights, ridge), b, assume_a="pos"), dtype=np.float64)
        adjacency, degree = self._sparse(component, weights)
        # A near-tree takes many steps of the iteration and hardly fills in.
        if len(self._edges(component)) > 1.05 * size:
            x, done = _conjugate_gradients(adjacency, degree + ridge, b, rtol, ridge == 0)
            if done or size > _DIRECT_LIMIT:
                return x
        return _factored(adjacency, degree + ridge, b, ridge == 0)

    def _spectra(self, weights: FloatArray) -> list[tuple[IntArray, FloatArray]]:
        """Labels and ascending eigenvalues of the Laplacians of components with 2 to DENSE_LIMIT nodes."""
        found: list[tuple[IntArray, FloatArray]] = []
        for batch in self._batches:
            done = 0
            for part, matrices in self._matrices(batch, weights, 0.0):
                plain = matrices - _shift(matrices)[:, None, None]
                values = np.asarray(np.linalg.eigvalsh(plain), dtype=np.float64)
                found.append((batch.components[done : done + len(part)], values))
                done += len(part)
        for component in self._above(BATCH_LIMIT):
            if self.sizes[component] > DENSE_LIMIT:
                continue
            matrix = self._dense(component, weights, 0.0)
            plain = matrix - float(_shift(matrix[None])[0])
            two = np.asarray(linalg.eigvalsh(plain, subset_by_index=[0, 1]), dtype=np.float64)
            found.append((np.array([component]), two[None]))
        return found

    def _second_of(self, component: int, weights: FloatArray) -> tuple[float, float]:
        adjacency, degree = self._sparse(component, weights)
        size = len(degree)
        start = np.random.default_rng(0).standard_normal(size)
        start -= start.mean()
        up = 2 * float(degree.max())  # puts the constant vector, whose eigenvalue is 0, above all others

        def product(x: FloatArray) -> FloatArray:
            return np.asarray(degree * x - adjacency @ x + up * x.mean(), dtype=np.float64)

        def solved(x: FloatArray) -> FloatArray:
            return self._solve_one(component, weights, (x - x.mean())[:, None], 0.0, 1e-8)[:, 0]

        try:
            operator = LinearOperator((size, size), matvec=lambda x: product(x.ravel()), dtype=np.float64)
            _, vectors = eigsh(operator, k=1, which="SA", tol=1e-4, v0=start, ncv=40, maxiter=8)
        except ArpackError:  # the eigenvalue is small against the largest: of the inverse it is the largest
            operator = LinearOperator((size, size), matvec=lambda x: solved(x.ravel()), dtype=np.float64)
            _, vectors = eigsh(operator, k=1, which="LA", tol=1e-4, v0=start, maxiter=20)
        vector = vectors[:, 0] - vectors[:, 0].mean()
        vector /= np.linalg.norm(vector)
        image = degree * vector - adjacency @ vector
        value = float(vector @ image)
        return value, float(np.linalg.norm(image - value * vector))


def _grounded(matrices: FloatArray, ridge: float) -> FloatArray:
    """Laplacians (c, s, s) made regular: with the ridge on the diagonal, or else with a constant in every entry.

    A constant acts on constant vectors alone, which a right side of mean 0 does not hold.
    """
    if ridge > 0:
        index = np.arange(matrices.shape[1])
        matrices[:, index, index] += ridge
        return matrices
    size = matrices.shape[1]
    mean = np.trace(matrices, axis1=1, axis2=2) / size
    shift = mean / size
    return np.asarray(matrices + shift[:, None, None], dtype=np.float64)


def _shift(matrices: FloatArray) -> FloatArray:
    """(c,) the constant that :func:`_grounded` added: every row of a Laplacian itself sums to 0."""
    return np.asarray(matrices[:, 0, :].sum(axis=1) / matrices.shape[1], dtype=np.float64)


def _conjugate_gradients(
    adjacency: Any, diagonal: FloatArray, b: FloatArray, rtol: float, singular: bool
) -> tuple[FloatArray, bool]:
    """Solve (D − A) x = b for all columns at once, with Jacobi preconditioning; and whether all columns are done."""
    scale = 1 / diagonal[:, None]
    x = np.zeros_like(b)
    residual = b.copy()
    goal = rtol * np.linalg.norm(b, axis=0)
    preconditioned = scale * residual
    direction = preconditioned.copy()
    energy = np.einsum("nk,nk->k", residual, preconditioned)
    for _ in range(_MAX_STEPS):
        open_ = np.linalg.norm(residual, axis=0) > goal
        if not open_.any():
            return x, True
        image = diagonal[:, None] * direction - adjacency @ direction
        curvature = np.einsum("nk,nk->k", direction, image)
        step = np.where(open_ & (curvature > 0), energy / np.where(curvature > 0, curvature, 1), 0)
        x += step * direction
        residual -= step * image
        if singular:  # rounding brings the constant back, and nothing takes it out again
            residual -= residual.mean(axis=0)
        preconditioned = scale * residual
        new = np.einsum("nk,nk->k", residual, preconditioned)
        direction = preconditioned + np.where(energy > 0, new / np.where(energy > 0, energy, 1), 0) * direction
        energy = new
    return x, False


def _factored(adjacency: Any, diagonal: FloatArray, b: FloatArray, singular: bool) -> FloatArray:
    """Solve (D − A) x = b by a sparse factorisation; where it is singular the last node is held at 0."""
    matrix = (sparse.diags_array(diagonal) - adjacency).tocsc()
    keep = len(b) - 1 if singular else len(b)
    factors = splu(
        sparse.csc_matrix(matrix[:keep, :keep]),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    x = np.zeros_like(b)
    x[:keep] = factors.solve(np.ascontiguousarray(b[:keep]))
    return x
