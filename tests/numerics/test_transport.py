import importlib
import math
import sys
import warnings

import numpy as np
import ot
import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped
from scipy.optimize import linear_sum_assignment, linprog

from assay.errors import MissingPart
from assay.numerics import transport
from assay.numerics.transport import exact_plan

sinkhorn = jaxtyped(typechecker=beartype)(transport.sinkhorn)
round_balanced = jaxtyped(typechecker=beartype)(transport.round_balanced)

REFERENCE = torch.tensor([[2.0, 0], [1, 0], [0, 0], [0, 1]])


def random_logits(*shape, seed=0, scale=1.0, dtype=torch.float64):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def one_by_one(plan, capacity):
    """Greedy rounding as it is defined, an entry at a time."""
    n, m = plan.shape
    left, column = list(capacity), [-1] * n
    for flat in sorted(range(n * m), key=lambda k: (-float(plan.flatten()[k]), k)):
        i, e = divmod(flat, m)
        if column[i] < 0 and left[e] > 0:
            column[i] = e
            left[e] -= 1
    return column


def test_reference_plan_and_its_rounding():
    plan = sinkhorn(REFERENCE, 1.0, 2.0, 200)
    expected = torch.tensor([0.8176, 0.6225, 0.3775, 0.1824])
    torch.testing.assert_close(plan[:, 0], expected, atol=5e-5, rtol=0)
    torch.testing.assert_close(plan[:, 1], 1 - expected, atol=5e-5, rtol=0)
    assert round_balanced(plan, 2).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_pot_on_general_marginals(dtype):
    logits = random_logits(6, 4, scale=2.0, dtype=dtype)
    row = torch.tensor([0.1, 0.3, 0.05, 0.25, 0.2, 0.1], dtype=dtype)
    col = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=dtype)
    plan = sinkhorn(logits, row, col, 500)
    peer = ot.sinkhorn(row.double().numpy(), col.double().numpy(), -logits.double().numpy(), reg=1.0, stopThr=1e-14)
    assert plan.dtype == dtype
    np.testing.assert_allclose(plan.numpy(), peer, atol=1e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("penalties", [(2.0, 2.0), (0.5, math.inf), (math.inf, 0.3)])
def test_agrees_with_pot_on_soft_marginals(penalties):
    logits = random_logits(5, 3, seed=3).numpy()
    row, col = np.array([0.5, 0.1, 0.9, 0.4, 0.6]), np.array([0.7, 0.2, 1.6])
    if math.inf in penalties:
        row *= col.sum() / row.sum()
    plan = sinkhorn(torch.tensor(logits), row.tolist(), col.tolist(), 500, row_penalty=penalties[0],
                    col_penalty=penalties[1])  # fmt: skip
    peer = ot.sinkhorn_unbalanced(row, col, -logits, reg=1.0, reg_m=penalties, reg_type="entropy", stopThr=1e-14)
    np.testing.assert_allclose(plan.numpy(), peer, atol=1e-9)


def test_gradients_are_those_of_another_implementation_and_of_finite_differences():
    logits = random_logits(5, 3, seed=1)
    row, col = torch.tensor([1.0, 0.5, 1.5, 1, 1]).double(), torch.tensor([2.0, 1, 2]).double()
    weight = random_logits(5, 3, seed=2)
    ours = logits.clone().requires_grad_()
    (sinkhorn(ours, row, col, 300) * weight).sum().backward()
    theirs = logits.clone().requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = ot.sinkhorn(row, col, -theirs, reg=1.0, numItermax=300, stopThr=0.0)
    (peer * weight).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-10, rtol=0)
    # After few rounds, where the plan is not yet settled, too; and to the marginals.
    torch.autograd.gradcheck(
        lambda a, r, c: transport.sinkhorn(a, r, c * r.sum() / c.sum(), 2),
        (logits.requires_grad_(), row.requires_grad_(), col.requires_grad_()),
    )


@settings(deadline=None, max_examples=40)
@given(n=st.integers(1, 12), m=st.integers(1, 6), scale=st.sampled_from([0.0, 1.0, 30.0]), seed=st.integers(0, 99))
def test_rows_are_exact_and_columns_nearly(n, m, scale, seed):
    plan = sinkhorn(random_logits(n, m, seed=seed, scale=scale), 1.0, n / m, 3000)
    torch.testing.assert_close(plan.sum(dim=1), torch.ones(n).double(), atol=1e-12, rtol=0)
    assert (plan >= 0).all()
    torch.testing.assert_close(plan.sum(dim=0), torch.full((m,), n / m).double(), atol=1e-2 * n / m, rtol=0)


def test_adding_to_a_row_or_a_column_changes_nothing():
    logits = random_logits(6, 4)
    moved = logits + random_logits(6, 1, seed=5) + random_logits(1, 4, seed=6)
    torch.testing.assert_close(sinkhorn(moved, 1.0, 1.5, 300), sinkhorn(logits, 1.0, 1.5, 300))


def test_twenty_rounds_are_enough_at_the_sizes_of_a_layer():
    plan = sinkhorn(random_logits(1536, 8, dtype=torch.float32), 1.0, 192.0, 20)
    assert (plan.sum(dim=0) - 192).abs().max() < 1e-3 * 192


def test_batches_are_their_parts():
    logits = random_logits(2, 3, 6, 4, dtype=torch.float32)
    plans, columns = sinkhorn(logits, 1.0, 1.5, 20), round_balanced(logits, [1, 2, 2, 1])
    assert columns.shape == (2, 3, 6)
    for i in range(2):
        for j in range(3):
            torch.testing.assert_close(plans[i, j], sinkhorn(logits[i, j], 1.0, 1.5, 20))
            assert torch.equal(columns[i, j], round_balanced(logits[i, j], [1, 2, 2, 1]))
    assert round_balanced(torch.zeros(0, 4, 2), 2).shape == (0, 4)
    # A marginal of its own for each.
    row = torch.rand(2, 3, 6, generator=torch.Generator().manual_seed(0))
    col = row.sum(dim=-1, keepdim=True).expand(2, 3, 4) / 4
    torch.testing.assert_close(sinkhorn(logits, row, col, 20)[1, 2], sinkhorn(logits[1, 2], row[1, 2], col[1, 2], 20))


def test_extreme_logits_forbidden_pairs_and_empty_columns():
    huge = sinkhorn(1e6 * REFERENCE, 1.0, 2.0, 50)
    assert torch.isfinite(huge).all()
    torch.testing.assert_close(huge.sum(dim=1), torch.ones(4))
    logits = torch.zeros(3, 3)
    logits[0, 1] = -math.inf
    logits.requires_grad_()
    plan = sinkhorn(logits, 1.0, [2.0, 1.0, 0.0], 100)
    plan.square().sum().backward()
    assert plan[0, 1] == 0
    assert (plan[:, 2] == 0).all()
    assert torch.isfinite(logits.grad).all()
    torch.testing.assert_close(plan.sum(dim=0), torch.tensor([2.0, 1, 0]), atol=2e-2, rtol=0)


@pytest.mark.parametrize("scale", [30.0, 1e3, 1e5])
def test_agrees_with_pot_where_the_entropy_weighs_little(scale):
    logits = random_logits(20, 6, scale=scale)
    row, col = torch.full((20,), 0.05).double(), torch.tensor([0.3, 0.05, 0.15, 0.2, 0.1, 0.2]).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that the columns are not yet met, as ours are not
        peer = ot.bregman.sinkhorn_log(row.numpy(), col.numpy(), -logits.numpy(), reg=1.0, numItermax=200, stopThr=0)
    np.testing.assert_allclose(sinkhorn(logits, row, col, 200).numpy(), peer, atol=1e-10)
    single = logits.float().requires_grad_()
    plan = sinkhorn(single, row.float(), col.float(), 50)
    plan.square().sum().backward()
    torch.testing.assert_close(plan.sum(dim=1), row.float())
    assert torch.isfinite(single.grad).all()


def test_half_precision_is_computed_as_float32():
    logits = REFERENCE.bfloat16()
    assert torch.equal(sinkhorn(logits, 1.0, 2.0, 20), sinkhorn(REFERENCE, 1.0, 2.0, 20))


@settings(deadline=None, max_examples=150)
@given(
    n=st.integers(1, 14), m=st.integers(1, 6), levels=st.sampled_from([1, 2, 3, 1000]), spare=st.integers(0, 3),
    seed=st.integers(0, 10_000),
)  # fmt: skip
def test_rounding_is_greedy_an_entry_at_a_time(n, m, levels, spare, seed):
    rng = np.random.default_rng(seed)
    plan = torch.tensor(rng.integers(0, levels, (n, m)).astype(np.float64))
    capacity = rng.multinomial(n + spare, np.full(m, 1 / m))
    assert round_balanced(plan, capacity.tolist()).tolist() == one_by_one(plan, capacity)


def test_rounding_ties_keep_the_flat_order_and_capacities_may_differ():
    assert round_balanced(torch.zeros(4, 2), 2).tolist() == [0, 0, 1, 1]
    assert round_balanced(torch.zeros(5, 2), [3, 2]).tolist() == [0, 0, 0, 1, 1]
    assert round_balanced(torch.zeros(5, 2), torch.tensor([2, 3])).tolist() == [0, 0, 1, 1, 1]
    columns = round_balanced(random_logits(1001, 8), [126] + 7 * [125])
    assert torch.bincount(columns).tolist() == [126] + 7 * [125]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"iters": 0}, "iters must be at least 1, got 0"),
        ({"row": [1.0, 1.0]}, "row must have 4 masses"),
        ({"col": [1.0, -1.0]}, "col must be finite and not negative, its least is -1"),
        ({"row": math.nan}, "row must be finite"),
        ({"col": 3.0}, "same total, got 4 and 6"),
        ({"row_penalty": 0.0}, "row_penalty must be positive, got 0"),
        ({"col_penalty": math.nan}, "col_penalty must be positive"),
        ({"logits": torch.zeros(4)}, "rows and columns"),
        ({"row": 0.0, "col": 0.0}, "row has no mass at all"),
        ({"logits": torch.zeros(2, 4, 2), "row": torch.tensor([[1.0] * 4, [0.0] * 4])}, "row has no mass at all"),
        ({"logits": torch.zeros(2, 4, 2), "row": torch.ones(3, 4)}, r"row must have 4 masses.*got shape \(3, 4\)"),
        ({"col": torch.full((5, 2), 2.0)}, r"col must have 2 masses.*got shape \(5, 2\)"),
    ],
)
def test_bad_input_to_sinkhorn(arguments, message):
    good = {"logits": REFERENCE, "row": 1.0, "col": 2.0, "iters": 5}
    with pytest.raises(ValueError, match=message):
        transport.sinkhorn(**(good | arguments))


@pytest.mark.parametrize("module", ["torch", "jaxtyping"])
def test_what_is_missing_comes_with_its_line(module, monkeypatch):
    monkeypatch.delitem(sys.modules, "assay.numerics.transport")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPart, match=rf"transport needs {module}; install it with: .*assay\[torch\]"):
        importlib.import_module("assay.numerics.transport")


def test_logits_must_be_floating_point():
    with pytest.raises(TypeError, match=r"got torch\.int64"):
        transport.sinkhorn(torch.zeros(2, 2, dtype=torch.int64), 1.0, 1.0, 5)


@pytest.mark.parametrize(
    ("plan", "capacity", "message"),
    [
        (REFERENCE, 1, r"room for 4 rows in all, got \[1, 1\]"),
        (REFERENCE, [5, -1], "room for 4 rows"),
        (REFERENCE, [4], "room for 4 rows"),
        (REFERENCE, 2.5, r"whole numbers .*got \[2\.5, 2\.5\]"),
        (REFERENCE, torch.tensor([2.0, math.inf]), "whole numbers"),
        (torch.full((2, 2), math.nan), 1, "NaN or infinity"),
        (torch.zeros(3), 1, "rows and columns"),
    ],
)
def test_bad_input_to_rounding(plan, capacity, message):
    with pytest.raises(ValueError, match=message):
        transport.round_balanced(plan, capacity)


def by_linear_programming(cost, row, col):
    """The least cost of a plan, from scipy's HiGHS."""
    n, m = cost.shape
    sums = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    return linprog(cost.ravel(), A_eq=sums[:-1], b_eq=np.concatenate([row, col])[:-1], method="highs").fun


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000), st.sampled_from([1e-12, 1.0, 1e9]))
def test_exact_plans_cost_as_little_as_linear_programming_finds(n, m, seed, unit):
    rng = np.random.default_rng(seed)
    cost = rng.normal(size=(n, m))
    row, col = rng.integers(0, 3, n).astype(float), rng.integers(0, 3, m).astype(float)  # zeros among them
    row[rng.integers(n)] += 1
    col[rng.integers(m)] += 1
    col *= row.sum() / col.sum()
    plan = exact_plan(unit * cost, 5 * row, 5 * col)
    assert plan.dtype == np.float64
    assert (plan >= 0).all()
    np.testing.assert_allclose(plan.sum(axis=1), 5 * row, atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=0), 5 * col, atol=1e-12)
    assert (plan > 0).sum() <= n + m - 1
    assert (cost * plan).sum() == pytest.approx(5 * by_linear_programming(cost, row, col), abs=1e-9)
    assert not plan[row == 0].any()
    assert not plan[:, col == 0].any()


def test_exact_plans_of_equal_masses_are_assignments():
    cost = np.random.default_rng(0).random((30, 30))
    plan = exact_plan(cost, np.ones(30), np.ones(30))
    rows, cols = linear_sum_assignment(cost)
    expected = np.zeros((30, 30))
    expected[rows, cols] = 1
    np.testing.assert_allclose(plan, expected, atol=1e-12)


def test_exact_plans_are_what_sinkhorn_tends_to():
    cost = random_logits(5, 4, seed=3).numpy()
    row, col = np.full(5, 0.2), np.full(4, 0.25)
    soft = transport.sinkhorn(torch.tensor(-cost / 0.005), torch.tensor(row), torch.tensor(col), 20_000)
    np.testing.assert_allclose(exact_plan(cost, row, col), soft.numpy(), atol=1e-3)


def test_shifts_of_cost_and_order_of_rows_do_not_count():
    rng = np.random.default_rng(1)
    cost, row, col = rng.random((6, 4)), rng.random(6), rng.random(4)
    col *= row.sum() / col.sum()
    plan = exact_plan(cost, row, col)
    shifted = cost + 7 * rng.random((6, 1)) - 3 * rng.random(4)
    np.testing.assert_allclose(exact_plan(shifted, row, col), plan, atol=1e-9)
    order = rng.permutation(6)
    np.testing.assert_allclose(exact_plan(cost[order], row[order], col), plan[order], atol=1e-9)
    np.testing.assert_allclose(exact_plan(cost.T, col, row), plan.T, atol=1e-9)
    assert np.array_equal(exact_plan(np.zeros((2, 1)), [1.0, 2.0], [3.0]), [[1.0], [2.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cost": np.zeros(3)}, r"cost must be finite numbers with rows and columns, got shape \(3,\)"),
        ({"cost": [[0.0, math.nan]]}, "cost must be finite"),
        ({"row": [1.0, 1.0]}, r"row must have 1 masses, got shape \(2,\)"),
        ({"col": [1.0]}, "col must have 2 masses"),
        ({"col": [2.0, -1.0]}, "col must be finite and not negative"),
        ({"row": [math.inf]}, "row must be finite"),
        ({"row": [0.0]}, "row has no mass at all"),
        ({"col": [0.5, 0.6]}, "row and col must have the same total, got 1 and 1.1"),
    ],
)
def test_bad_input_to_exact_plans(arguments, message):
    good = {"cost": np.zeros((1, 2)), "row": [1.0], "col": [0.5, 0.5]}
    with pytest.raises(ValueError, match=message):
        exact_plan(**(good | arguments))


def test_without_pot_an_exact_plan_names_its_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(MissingPart, match=r"an exact transport plan needs ot; install it with: .*assay\[ot\]"):
        exact_plan([[1.0]], [1.0], [1.0])


def test_a_plan_that_is_not_found_is_no_plan(monkeypatch):
    monkeypatch.setattr(transport, "MOST_PIVOTS", 1)
    rng = np.random.default_rng(0)
    with pytest.raises(RuntimeError, match="no optimal plan was found"):
        exact_plan(rng.random((40, 40)), np.ones(40), np.ones(40))
