import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.numerics import laplacian
from assay.numerics.laplacian import Graph


def random_graph(seed, n, m):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n, (m, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    return Graph(n, pairs[:, 0], pairs[:, 1]), rng.uniform(0.5, 2, len(pairs))


def dense(graph, weights):
    L = np.zeros((graph.n, graph.n))
    np.add.at(L, (graph.i, graph.j), -weights)
    L += L.T
    np.fill_diagonal(L, -L.sum(axis=1))
    return L


def check(graph, weights, seed, tolerance):
    L = dense(graph, weights)
    pinv = np.linalg.pinv(L, hermitian=True)
    b = np.random.default_rng(seed).standard_normal((graph.n, 3))
    np.testing.assert_allclose(graph.solve(weights, b), pinv @ b, atol=tolerance)
    np.testing.assert_allclose(graph.solve(weights, b[:, 0]), pinv @ b[:, 0], atol=tolerance)
    np.testing.assert_allclose(
        graph.solve(weights, b, ridge=0.3), np.linalg.solve(L + 0.3 * np.eye(graph.n), b), atol=1e-8
    )
    second = graph.second(weights)
    for component, size in enumerate(graph.sizes):
        nodes = np.flatnonzero(graph.component == component)
        if size == 1:
            assert np.isnan(second.values[component])
        else:
            assert second.values[component] == pytest.approx(np.linalg.eigvalsh(L[np.ix_(nodes, nodes)])[1], rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 60))
def test_small_components_are_exact(seed, n, m):
    graph, weights = random_graph(seed, n, m)
    check(graph, weights, seed, 1e-8)
    inverse = graph.inverse(weights)
    np.testing.assert_allclose(
        inverse.diagonal, np.diag(np.linalg.pinv(dense(graph, weights), hermitian=True)), atol=1e-8
    )
    assert (inverse.trace_error == 0).all()
    np.testing.assert_allclose(graph.degrees(weights), np.diag(dense(graph, weights)))


@pytest.mark.parametrize(("n", "m"), [(90, 400), (300, 900)])
def test_middle_and_large_components(n, m, monkeypatch):
    graph, weights = random_graph(0, n, m)
    check(graph, weights, 0, 1e-8)
    monkeypatch.setattr(laplacian, "DENSE_LIMIT", 80)
    check(graph, weights, 0, 1e-6)


@pytest.mark.parametrize("kind", ["random", "path"])
def test_estimates_of_large_components_are_as_good_as_they_say(kind, monkeypatch):
    monkeypatch.setattr(laplacian, "DENSE_LIMIT", 50)
    if kind == "random":
        graph, weights = random_graph(1, 200, 2000)
    else:
        graph, weights = Graph(200, np.arange(199), np.arange(1, 200)), np.ones(199)
    true = np.diag(np.linalg.pinv(dense(graph, weights), hermitian=True))
    off = []
    for seed in range(20):
        found = graph.inverse(weights, seed=seed)
        assert found.trace_error[0] > 0
        off.append((found.trace[0] - true.sum()) / found.trace_error[0])
        assert np.median(np.abs(found.diagonal - true) / found.diagonal_error) < 2
    assert np.sqrt(np.mean(np.square(off))) < 2
    again = graph.inverse(weights, seed=3)
    np.testing.assert_array_equal(again.diagonal, graph.inverse(weights, seed=3).diagonal)


def test_an_iteration_that_takes_too_long_gives_way_to_a_factorisation(monkeypatch):
    monkeypatch.setattr(laplacian, "DENSE_LIMIT", 50)
    monkeypatch.setattr(laplacian, "_MAX_STEPS", 3)
    graph, weights = random_graph(2, 150, 400)
    check(graph, weights, 2, 1e-8)


def test_components_are_numbered_by_their_first_nodes():
    graph = Graph(6, [1, 2], [4, 5])
    assert graph.component.tolist() == [0, 1, 2, 3, 1, 2]
    assert graph.sizes.tolist() == [1, 2, 2, 1]
    x = np.arange(6.0)
    np.testing.assert_allclose(graph.centred(x), [0, -1.5, -1.5, 0, 1.5, 1.5])
    np.testing.assert_allclose(graph.centred(np.stack([x, x], axis=1))[:, 1], graph.centred(x))
    assert not graph.large
