"""Irreducible conflicts: known ones, that nothing can be left out of any, and what scipy says of them."""

from itertools import combinations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.orloop import LinearModel, iis, solve

INF = np.inf
FEW = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def crossed():
    return LinearModel.from_arrays([[1, 1], [-1, -1]], [-INF, -INF], [0.5, -2], [0, 0], [1, 1], [1, 1])


def random_infeasible(seed, milp, rows=(4, 16)):
    rng = np.random.default_rng(seed)
    while True:
        m, n = int(rng.integers(*rows)), int(rng.integers(2, 8))
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


@settings(FEW, max_examples=75)
@given(st.integers(0, 10_000))
def test_each_proper_subset_is_feasible_lp(seed):
    model = random_infeasible(seed, milp=False)
    found = iis(model)
    assert found.certified
    is_irreducible(model, found.rows)


@settings(FEW, max_examples=25)
@given(st.integers(0, 10_000))
def test_each_proper_subset_is_feasible_milp(seed):
    model = random_infeasible(seed, milp=True)
    found = iis(model)
    assert found.certified
    is_irreducible(model, found.rows)


def scipy_feasible(model, rows, bounds=True, without=()):
    """Whether scipy's own interface finds a point, of these rows and of all bounds but some."""
    lo, up = (
        (model.col_lo.copy(), model.col_up.copy())
        if bounds
        else (np.full(model.shape[1], -INF), np.full(model.shape[1], INF))
    )
    for name, side in without:
        (lo if side == "lower" else up)[model.col(name)] = -INF if side == "lower" else INF
    at = [model.row(name) for name in rows]
    held = [scipy.optimize.LinearConstraint(model.A[at], model.row_lo[at], model.row_up[at])] if at else []
    done = scipy.optimize.milp(
        np.zeros(model.shape[1]),
        integrality=model.integer.astype(int),
        bounds=scipy.optimize.Bounds(lo, up),
        constraints=held,
    )
    assert done.status in (0, 2)
    return done.status == 0


def all_conflicts(model):
    """Every irreducible set of rows, by trying all subsets from the smallest."""
    found = []
    for size in range(1, model.shape[0] + 1):
        for rows in combinations(model.row_names, size):
            if not any(set(small) <= set(rows) for small in found) and not scipy_feasible(model, rows):
                found.append(rows)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_it_is_one_of_those_that_trying_all_subsets_finds(seed):
    model = random_infeasible(seed, milp=seed % 2 == 1, rows=(4, 8))
    known = all_conflicts(model)
    found = iis(model)
    assert found.rows in known
    for wish in known[:3]:  # a conflict whose rows are tried last is what remains
        others = [name for name in model.row_names if name not in wish]
        assert iis(model, order=[*others, *wish]).rows == wish


@pytest.mark.parametrize("seed", range(12))
def test_scipy_agrees_on_bounds_too(seed):
    model = random_infeasible(seed + 50, milp=seed % 3 == 2)
    found = iis(model, bounds="soft")
    every = [(name, side) for name in model.col_names for side in ("lower", "upper")]
    spare = [pair for pair in every if pair not in found.col_bounds]
    assert found.certified
    assert not scipy_feasible(model, found.rows, without=spare)
    for row in found.rows:
        assert scipy_feasible(model, [name for name in found.rows if name != row], without=spare)
    for pair in found.col_bounds:
        assert scipy_feasible(model, found.rows, without=[*spare, pair])


@pytest.mark.parametrize("seed", range(20))
def test_scipy_finds_the_same_optimum(seed):
    rng = np.random.default_rng(seed)
    m, n = 5, 6
    A, whole = rng.normal(size=(m, n)).round(2), rng.random(n) < (0.5 if seed % 2 else 0)
    middle = A @ rng.integers(-2, 3, n)
    model = LinearModel.from_arrays(
        A,
        middle - 1,
        middle + 2,
        [-4] * n,
        [4] * n,
        rng.normal(size=n),
        whole,
        "max" if seed % 3 else "min",
        offset=2.5,
    )
    sign = -1 if model.sense == "max" else 1
    done = scipy.optimize.milp(
        sign * model.cost, integrality=whole.astype(int), bounds=scipy.optimize.Bounds(model.col_lo, model.col_up),
        constraints=scipy.optimize.LinearConstraint(A, model.row_lo, model.row_up),
    )  # fmt: skip
    assert solve(model).objective == pytest.approx(sign * done.fun + 2.5, abs=1e-6)


@settings(FEW, max_examples=10)
@given(st.integers(0, 10_000))
def test_the_order_of_rows_changes_no_certificate(seed):
    model = random_infeasible(seed, milp=False)
    turned = model.rows(np.random.default_rng(seed).permutation(model.shape[0]))
    wish = list(iis(model).rows)
    others = [name for name in model.row_names if name not in wish]
    # The rows of a conflict, tried last, are what remains: whatever the order in which the model holds them.
    found = iis(turned, order=others + wish)
    assert set(found.rows) == set(wish)
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


@pytest.mark.parametrize("whole", [False, True])
def test_an_unbounded_model_never_has_a_conflict(whole):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(4, 3)).round(2)
        A[:, 0] = np.abs(A[:, 0])
        model = LinearModel.from_arrays(A, [1] * 4, [INF] * 4, [0, -2, -2], [INF, 2, 2], [-1, 0, 0], [whole] * 3)
        assert solve(model).status == "unbounded"
        found = iis(model)
        assert (len(found), found.certified) == (0, True)


def test_permuted_rows_keep_the_only_conflict():
    A = [[1, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]]
    model = LinearModel.from_arrays(A, [-INF, 3, -INF, 1], [1, INF, 5, INF], [0] * 3, [10] * 3, [1, 1, 1])
    for seed in range(6):
        turned = model.rows(np.random.default_rng(seed).permutation(4))
        assert set(iis(turned).rows) == {"r1", "r2"}
        assert iis(turned).certified


def test_bounds_of_a_column_that_no_whole_number_meets():
    model = LinearModel.from_arrays([[1.0]], [-INF], [9], [0.2], [0.8], [1], [True])
    found = iis(model)
    assert found.rows == ()
    assert set(found.col_bounds) == {("x1", "lower"), ("x1", "upper")}
    assert found.certified


def test_hard_rows_that_conflict_among_themselves_leave_nothing_to_name():
    found = iis(crossed(), hard_rows=["r1", "r2"])
    assert found.rows == ()


def test_models_without_rows_or_columns():
    nothing = LinearModel.from_arrays(np.zeros((0, 2)), [], [], [0, 0], [1, 1], [1, 1])
    assert solve(nothing).objective == 0
    assert iis(nothing).rows == ()
    barren = LinearModel.from_arrays(np.zeros((1, 1)), [2], [INF], [0], [1], [1])
    assert solve(barren).status == "infeasible"
    assert iis(barren).rows == ("r1",)


def test_past_its_time_it_is_not_certified():
    for milp in (False, True):
        model = random_infeasible(1, milp=milp)
        found = iis(model, time_limit=1e-9)
        assert not found.certified
        assert set(found.rows) <= set(model.row_names)


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
