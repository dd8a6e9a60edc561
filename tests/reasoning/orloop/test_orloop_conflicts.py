"""Irreducible conflicts: known ones, and that nothing can be left out of any."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.orloop import LinearModel, iis, solve

INF = np.inf
FEW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def crossed():
    return LinearModel.from_arrays([[1, 1], [-1, -1]], [-INF, -INF], [0.5, -2], [0, 0], [1, 1], [1, 1])


def random_infeasible(seed, milp):
    rng = np.random.default_rng(seed)
    while True:
        m, n = int(rng.integers(4, 16)), int(rng.integers(2, 8))
        A = np.round(rng.normal(size=(m, n)) * (rng.random((m, n)) < 0.6), 2)
        b = np.round(rng.normal(size=m), 2)
        lo, up = np.where(rng.random(m) < 0.5, b, -INF), np.where(rng.random(m) < 0.5, b, INF)
        whole = rng.random(n) < (0.4 if milp else 0)
        model = LinearModel.from_arrays(A, lo, up, [-4] * n, [4] * n, rng.normal(size=n), whole)
        if solve(model).status == "infeasible":
            return model


def test_two_rows_that_contradict():
    assert iis(crossed()).rows == ("r1", "r2")
    soft = iis(crossed(), bounds="soft")
    assert soft.rows == ("r1", "r2")
    assert soft.col_bounds == ()
    assert soft.certified


def test_rows_that_are_not_in_it_are_left_out():
    A = [[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]
    model = LinearModel.from_arrays(A, [-INF, 3, -INF, 1], [1, INF, 5, INF], [0] * 3, [10] * 3, [1, 1, 1])
    found = iis(model)
    assert found.rows == ("r1", "r2")
    assert found.certified


def test_no_whole_numbers_add_up():
    model = LinearModel.from_arrays([[2, 2], [1, 0]], [7, -INF], [7, 9], [0, 0], [50, 50], [1, 1], [True, True])
    found = iis(model)
    assert found.rows == ("r1",)
    assert found.certified


def is_irreducible(model, rows):
    at = [model.row(name) for name in rows]
    assert solve(model.rows(at)).status == "infeasible"
    for one in at:
        assert solve(model.rows([i for i in at if i != one])).status in ("optimal", "unbounded")


@FEW
@given(st.integers(0, 10_000))
def test_each_proper_subset_is_feasible_lp(seed):
    model = random_infeasible(seed, milp=False)
    found = iis(model)
    assert found.certified
    is_irreducible(model, found.rows)


@settings(FEW, max_examples=8)
@given(st.integers(0, 10_000))
def test_each_proper_subset_is_feasible_milp(seed):
    model = random_infeasible(seed, milp=True)
    found = iis(model)
    assert found.certified
    is_irreducible(model, found.rows)


@settings(FEW, max_examples=10)
@given(st.integers(0, 10_000))
def test_the_order_of_rows_changes_no_certificate(seed):
    model = random_infeasible(seed, milp=False)
    turned = model.rows(np.random.default_rng(seed).permutation(model.shape[0]))
    wish = list(iis(model).rows)
    others = [name for name in model.row_names if name not in wish]
    # The rows of a conflict, tried last, are what remains: whatever the order in which the model holds them.
    assert set(iis(turned, order=others + wish).rows) <= set(model.row_names)
    found = iis(turned, order=others + wish)
    assert found.certified
    is_irreducible(model, found.rows)


def test_bounds_are_members_when_soft():
    model = LinearModel.from_arrays([[1, 1]], [5], [INF], [0, 0], [2, 2], [1, 1])
    assert iis(model).rows == ("r1",)
    soft = iis(model, bounds="soft")
    assert soft.rows == ("r1",)
    assert set(soft.col_bounds) == {("x1", "upper"), ("x2", "upper")}
    assert soft.certified


def test_crossing_bounds_of_a_column_are_a_conflict():
    model = LinearModel.from_arrays([[1.0]], [0], [9], [3], [2], [1])
    assert solve(model).status == "infeasible"
    assert iis(model).col_bounds == (("x1", "lower"), ("x1", "upper"))


def test_hard_rows_are_never_named():
    found = iis(crossed(), hard_rows=["r1"])
    assert found.rows == ("r2",)
    assert found.certified


def test_a_wished_order_decides_what_remains():
    model = LinearModel.from_arrays([[1.0], [1.0], [1.0]], [-INF, 3, 4], [1, INF, INF], [0], [9], [1])
    assert iis(model, order=["r2", "r3", "r1"]).rows == ("r1", "r3")
    assert iis(model, order=["r3", "r2", "r1"]).rows == ("r1", "r2")


def test_feasible_and_unbounded_models_have_no_conflict():
    feasible = LinearModel.from_arrays([[1.0]], [0], [9], [0], [5], [1])
    assert iis(feasible).rows == ()
    assert iis(feasible).certified
    endless = LinearModel.from_arrays([[1.0]], [0], [INF], [0], [INF], [-1])
    assert solve(endless).status == "unbounded"
    assert iis(endless).rows == ()


def test_past_its_time_it_is_not_certified():
    assert not iis(random_infeasible(1, milp=False), time_limit=1e-9).certified


def test_a_large_mixed_integer_conflict_is_halved():
    n = 80
    A = np.vstack([np.eye(n), np.ones((1, n)) * 2])
    lo = np.append(np.full(n, -INF), 2 * n - 1)
    up = np.append(np.ones(n), 2 * n - 1)
    model = LinearModel.from_arrays(A, lo, up, [0] * n, [5] * n, [1] * n, [True] * n)
    found = iis(model)
    assert found.rows == (f"r{n + 1}",)
    assert found.certified


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"bounds": "medium"}, "bounds"),
        ({"hard_rows": ["nobody"]}, "hard_rows"),
        ({"order": ["nobody"]}, "order"),
        ({"time_limit": 0}, "time_limit"),
        ({"time_limit": -1.0}, "time_limit"),
    ],
)
def test_bad_arguments_are_named(arguments, word):
    with pytest.raises(InputError, match=word):
        iis(crossed(), **arguments)
