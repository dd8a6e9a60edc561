import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.privacy.dp_smk import (
    Coverage,
    DPKnapsack,
    FacilityLocation,
    FeatureInformation,
    GraphCut,
    Modular,
    SensitivityError,
    minus_penalty,
)


def made(kind, rng, people, n):
    """An objective and the same with one record more."""
    if kind == "cut":
        edges = np.array([rng.choice(n, 2, replace=False) for _ in range(people + 1)])
        return GraphCut(edges[:-1], n), GraphCut(edges, n)
    if kind == "penalty":
        less, more = made("coverage", rng, people, n)
        weights = rng.random(n)
        return minus_penalty(less, weights), minus_penalty(more, weights)
    make, records = {
        "coverage": (Coverage, (rng.random((people + 1, n)) < 0.5).astype(float)),
        "facility": (FacilityLocation, rng.random((people + 1, n))),
        "modular": (Modular, rng.dirichlet(np.ones(n), people + 1)),
    }[kind]
    return make(records[:-1]), make(records)


KINDS = ("coverage", "facility", "modular", "cut", "penalty")


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(2, 6))
def test_what_an_objective_says_of_itself_is_true(kind, seed, people, n):
    rng = np.random.default_rng(seed)
    less, more = made(kind, rng, people, n)
    order = rng.permutation(n)[: int(rng.integers(0, n))]
    state, other, value = less.empty(), more.empty(), 0.0
    assert less.value(state) == 0
    small = less.gains(state)
    for item in order:
        gain = less.gains(state)[item]
        if hasattr(less, "gain"):
            assert less.gain(state, item) == pytest.approx(gain, abs=1e-9)
        before = less.value(state)
        state, other = less.add(state, int(item)), more.add(other, int(item))
        assert less.value(state) - before == pytest.approx(gain, abs=1e-9)
        value += gain
    assert less.value(state) == pytest.approx(value, abs=1e-9)
    free = np.setdiff1d(np.arange(n), order)
    gains = less.gains(state)[free]
    assert (gains <= small[free] + 1e-9).all()  # submodular
    if less.monotone:
        assert (gains >= -1e-9).all()
    # One record more: f rises by 0 to Δ, and all gains move one way by at most Δ.
    assert -1e-9 <= more.value(other) - less.value(state) <= less.record_sensitivity + 1e-9
    change = more.gains(other)[free] - gains
    assert change.max() - change.min() <= less.record_sensitivity + 1e-9
    assert (change >= -1e-9).all() or (change <= 1e-9).all()
    assert np.abs(change).max() <= less.record_sensitivity + 1e-9


def test_coverage_takes_sparse_tables_too():
    table = np.array([[1, 0, 1], [0, 0, 1.0]])
    for reach in (sp.csr_matrix(table), sp.coo_array(table), sp.csc_array(table)):
        f = Coverage(reach, ["a", "b", "c"])
        np.testing.assert_array_equal(f.gains(f.empty()), [1, 0, 2])
    double = sp.coo_array((np.ones(2), ([0, 0], [1, 1])), shape=(1, 2))
    with pytest.raises(InputError, match="only 0 and 1"):
        Coverage(double)


def test_states_are_never_changed():
    rng = np.random.default_rng(0)
    for kind in KINDS:
        f, _ = made(kind, rng, 5, 4)
        state = f.add(f.empty(), 0)
        before = f.value(state)
        f.add(state, 1)
        f.gains(state)
        assert f.value(state) == before


def test_feature_information_by_hand():
    # One feature that is the class, one that says nothing.
    y = np.repeat([0, 1], 50)
    X = np.column_stack([y, np.tile([0, 1], 50)])
    f = FeatureInformation(X, y, 2, 2, cap=math.log(2)).exact()
    # Empty cells count as 1: the class is told with probability 50/51.
    told = math.log((50 / 51) / 0.5) / math.log(2)
    assert f.gains(f.empty())[0] == pytest.approx(100 * told, rel=1e-6)
    assert f.gains(f.empty())[1] == pytest.approx(0, abs=1e-9)
    assert FeatureInformation(X, y, 2, 2).cap == pytest.approx(math.log(2) + 1)
    assert FeatureInformation(X[:0], y[:0], [2, 5], 2).exact().gains(np.zeros(0)).tolist() == [0, 0]
    # With next to no noise the private choice is the exact one.
    chosen = DPKnapsack(FeatureInformation(X, y, 2, 2), [1, 1], 1, epsilon=1e4, random_state=0).solve()
    assert chosen.items == [0]


def test_an_objective_of_the_users_own():
    class Own:
        n, labels, monotone, one_sided, record_sensitivity = 3, ["x", "y", "z"], True, False, 0.5
        weights = np.array([1.0, 2000.0, 3.0])

        def empty(self):
            return frozenset()

        def gains(self, state):
            return self.weights

        def add(self, state, item):
            return state | {item}

        def value(self, state):
            return float(sum(self.weights[u] for u in state))

    result = DPKnapsack(Own(), {"x": 1, "y": 1, "z": 1}, 1, epsilon=2, random_state=0).solve()
    assert result.items == ["y"]
    for bad in (0, -1.0, math.nan, math.inf, None, "1"):
        own = Own()
        own.record_sensitivity = bad
        with pytest.raises(SensitivityError, match="record_sensitivity must be"):
            DPKnapsack(own, [1, 1, 1], 1, epsilon=1)
    del Own.record_sensitivity
    with pytest.raises(SensitivityError, match="record_sensitivity must be a finite number greater than 0"):
        DPKnapsack(Own(), [1, 1, 1], 1, epsilon=1)
    Own.record_sensitivity = 0.5
    Own.labels = ["x", "y", "y"]
    with pytest.raises(InputError, match="labels must differ, and 'y' stands there twice"):
        DPKnapsack(Own(), [1, 1, 1], 1, epsilon=1)
    Own.labels = ["x", "y", "z"]
    own = Own()
    own.weights = np.array([1.0, math.nan, 0.0])
    with pytest.raises(SensitivityError, match="NaN or infinity"):
        DPKnapsack(own, [1, 1, 1], 1, epsilon=1, algorithm="greedy_max").solve()
    own.weights = np.ones(2)
    with pytest.raises(SensitivityError, match="3 finite numbers, got shape"):
        DPKnapsack(own, [1, 1, 1], 1, epsilon=1, algorithm="greedy_max").solve()
    with pytest.raises(TypeError, match="objective has no n, labels"):
        DPKnapsack(object(), [1], 1, epsilon=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Coverage([[0.5]]), "only 0 and 1"),
        (lambda: Coverage([[math.nan]]), "finite"),
        (lambda: Coverage(np.zeros((3, 0))), "at least one item"),
        (lambda: Coverage([1, 0]), "shape"),
        (lambda: Coverage([["a"]]), "table of numbers"),
        (lambda: Coverage(np.eye(2), ["a"]), "one name for each of the 2 items, got 1"),
        (lambda: Coverage(np.eye(2), [["a"], ["b"]]), "labels must be names that can be hashed"),
        (lambda: FacilityLocation([[math.nan, 0]]), "finite"),
        (lambda: Coverage(np.eye(2), ["a", "a"]), "'a' stands there twice"),
        (lambda: FacilityLocation([[1.2, 0]]), r"similarity must lie in \[0, 1\].*there is 1.2"),
        (lambda: FacilityLocation([[-0.1, 0]]), "similarity must lie"),
        (lambda: FacilityLocation([[math.inf, 0]]), "finite"),
        (lambda: Coverage(sp.coo_array(np.ones(3))), "reach must hold numbers"),
        (lambda: Coverage(sp.csr_array((3, 0))), "at least one item"),
        (lambda: Coverage(sp.csr_array(np.ones((2, 2)) * 1j)), "reach must hold numbers"),
        (lambda: minus_penalty(Coverage(np.eye(2)), [1e308, 1e308]), "weights must be"),
        (lambda: GraphCut([[0, 3]], 3), "from 0 to 2, and one goes to 3"),
        (lambda: GraphCut([[0, -1]], 3), "one goes to -1"),
        (lambda: GraphCut([[1, 1]], 3), "two different ends"),
        (lambda: GraphCut([[0.0, 1.0]], 3), "pairs of whole numbers"),
        (lambda: GraphCut([[0, 1]], 0), "n must be a whole number"),
        (lambda: Modular([[0.6, 0.6]]), "at most per_person = 1"),
        (lambda: Modular([[-0.6, 0.6]]), "at least 0"),
        (lambda: Modular([[0.6]], per_person=0), "per_person must be"),
        (lambda: minus_penalty(Coverage(np.eye(2)), [1]), "weights must be 2 finite numbers"),
        (lambda: minus_penalty(Coverage(np.eye(2)), [1, -1]), "weights must be"),
        (lambda: FeatureInformation([[0, 2]], [0], 2, 2), "X must hold whole numbers from 0 to n_values"),
        (lambda: FeatureInformation([[0, 1]], [2], 2, 2), "y must hold whole numbers from 0 to n_classes"),
        (lambda: FeatureInformation([[0, 1]], [0, 1], 2, 2), "one class for each of the 1 people, got 2"),
        (lambda: FeatureInformation([[0.5, 1]], [0], 2, 2), "X must hold whole numbers, got float64"),
        (lambda: FeatureInformation([[0, 1]], [0], 2, 1), "n_classes must be"),
        (lambda: FeatureInformation([[0, 1]], [0], 0, 2), "n_values must be"),
        (lambda: FeatureInformation([[0, 1]], [0], 2, 2, cap=0), "cap must be"),
    ],
)
def test_bad_records_are_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call()
