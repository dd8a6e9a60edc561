import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.numerics.submodular import (
    FITS,
    filled,
    greedy_cardinality,
    greedy_cover,
    greedy_knapsack,
    greedy_plus_max,
    knapsack_upper_bound,
)


class Cover:
    """Weighted coverage by a 0/1 matrix (elements, items)."""

    def __init__(self, reach, weights=None):
        self.reach = np.asarray(reach, dtype=float)
        self.n = self.reach.shape[1]
        self.weights = np.ones(len(self.reach)) if weights is None else np.asarray(weights, dtype=float)
        self.calls = 0

    def empty(self):
        return np.ones(len(self.reach))

    def gains(self, state):
        return (self.weights * state) @ self.reach

    def gain(self, state, item):
        self.calls += 1
        return float((self.weights * state) @ self.reach[:, item])

    def add(self, state, item):
        return state * (1 - self.reach[:, item])

    def value(self, state):
        return float(self.weights @ (1 - state))

    def of(self, items):
        state = self.empty()
        for item in items:
            state = self.add(state, item)
        return self.value(state)


def best(f, costs, budget):
    sets = (s for k in range(f.n + 1) for s in itertools.combinations(range(f.n), k))
    return max(f.of(s) for s in sets if sum(costs[i] for i in s) <= budget * FITS)


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 7))
    f = Cover(rng.random((draw(st.integers(0, 15)), n)) < 0.4, None)
    f.weights = rng.integers(1, 9, len(f.reach)).astype(float)
    costs = rng.uniform(0.1, 2, n)
    return f, costs, float(costs.min() + rng.uniform(0, 3))


@settings(max_examples=60, deadline=None)
@given(problems())
def test_guarantees_and_certificates(problem):
    f, costs, budget = problem
    optimum = best(f, costs, budget)
    chosen = greedy_plus_max(f, costs, budget)
    assert chosen.value >= 0.5 * optimum - 1e-9
    assert chosen.cost <= budget * FITS
    assert chosen.cost == pytest.approx(costs[list(chosen.items)].sum())
    assert chosen.value == f.of(chosen.items)
    assert optimum <= knapsack_upper_bound(f, chosen.items, costs, budget) + 1e-9
    k = 1 + len(costs) // 2
    few = greedy_cardinality(f, k)
    of_k = best(f, np.ones(f.n), k)
    assert few.value >= (1 - 1 / math.e) * of_k - 1e-9
    assert of_k <= knapsack_upper_bound(f, few.items, np.ones(f.n), k) + 1e-9


@settings(max_examples=60, deadline=None)
@given(problems())
def test_lazy_takes_what_eager_greedy_takes(problem):
    f, costs, budget = problem
    lazy = greedy_knapsack(f, costs, budget)
    state, used, picks = f.empty(), 0.0, []
    while True:
        fits = [u for u in range(f.n) if u not in picks and used + costs[u] <= budget * FITS]
        if not fits:
            break
        density = f.gains(state)[fits] / costs[fits]
        best_density = density.max()
        pick = lazy.items[len(picks)]
        assert pick in fits
        assert density[fits.index(pick)] == pytest.approx(best_density)
        picks.append(pick)
        used += costs[pick]
        state = f.add(state, pick)
    assert tuple(picks) == lazy.items


def test_density_falls_into_the_trap_and_plus_max_does_not():
    reach = np.zeros((30, 3))
    reach[:20, 0] = 1
    reach[20:22, 1] = 1
    reach[22:24, 2] = 1
    f, costs = Cover(reach), np.array([10.0, 0.5, 0.5])
    assert set(greedy_knapsack(f, costs, 10).items) == {1, 2}
    assert greedy_plus_max(f, costs, 10).items == (0,)
    assert greedy_knapsack(f, costs, 10, by="gain").items == (0,)


def test_lazy_evaluates_fewer_gains_and_works_without_single_gains():
    rng = np.random.default_rng(0)
    f = Cover(rng.random((300, 60)) < 0.1)
    chosen = greedy_cardinality(f, 10)
    assert f.calls == chosen.evaluations - 60 < 250

    class Plain:
        n, empty, gains, add, value = f.n, f.empty, f.gains, f.add, f.value

    assert greedy_cardinality(Plain(), 10).items == chosen.items


def test_cover_by_the_textbook():
    # Greedy takes the large set, then needs two more; the optimum is the two rows.
    reach = np.zeros((6, 3))
    reach[[0, 1, 3, 4], 0] = 1
    reach[:3, 1] = 1
    reach[3:, 2] = 1
    f = Cover(reach)
    chosen = greedy_cover(f, 6)
    assert chosen.items[0] == 0
    assert chosen.value == 6
    assert len(chosen.items) == 3
    assert greedy_cover(f, 4).items == (0,)
    assert greedy_cover(f, 6, costs=[10.0, 1, 1]).items == (1, 2)
    assert greedy_cover(f, 99).value == 6
    assert greedy_cover(f, 0).items == ()


def test_filled_keeps_to_the_budget():
    costs = np.array([1.0, 2.0, 0.5])
    assert filled((0,), [0, 1, 2], costs, 1.5) == (0, 2)
    assert filled((), [1, 0, 2], costs, 3.0) == (1, 0)
    assert filled((), [1, 0, 2], costs, 9.0, most=2) == (1, 0)
    assert filled((), [0, 1, 2], np.array([0.1, 0.2, 0.7]), 1.0) == (0, 1, 2)


F = Cover(np.eye(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: greedy_cardinality(F, 0), "k must be a whole number from 1 to n = 3"),
        (lambda: greedy_cardinality(F, 4), "k must be"),
        (lambda: greedy_cardinality(F, 1.5), "k must be"),
        (lambda: greedy_knapsack(F, [1, 1], 2), r"one number for each of the 3 items, got the shape \(2,\)"),
        (lambda: greedy_knapsack(F, [1, 0, 1], 2), "that of item 1 is 0"),
        (lambda: greedy_knapsack(F, [1, 1, np.nan], 2), "that of item 2 is nan"),
        (lambda: greedy_plus_max(F, [1, 1, -1], 2), "greater than 0"),
        (lambda: greedy_plus_max(F, ["a", 1, 1], 2), "costs must be numbers"),
        (lambda: greedy_plus_max(F, [1, 1, 1], 0), "budget must be a number greater than 0"),
        (lambda: greedy_plus_max(F, [1, 1, 1], math.nan), "budget must be"),
        (lambda: greedy_plus_max(F, [3, 2, 3], 1), "no item is affordable: the least cost is 2"),
        (lambda: greedy_knapsack(F, [1, 1, 1], 2, by="size"), "by must be"),
        (lambda: greedy_cover(F, math.nan), "target must be"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
