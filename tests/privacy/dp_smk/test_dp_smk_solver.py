import math

import numpy as np
import pandas as pd
import pytest
from exact_draws import distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.numerics.submodular import FITS, greedy_plus_max
from assay.privacy.dp_smk import Coverage, DPKnapsack, FacilityLocation, GraphCut, minus_penalty
from assay.privacy.dp_smk.baselines import STEPS, continuous, nonprivate, private
from assay.privacy.dp_smk.instances import Instance, best_value, contacts, kilometres, questions, trap, value_of

ALGORITHMS = ("greedy_max", "enumerate", "sample_greedy_max", "auto")


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 7))
    costs = rng.uniform(0.1, 2, n)
    budget = float(costs.min() + rng.uniform(0, 3))
    return FacilityLocation(rng.random((draw(st.integers(0, 20)), n)), list("abcdefg"[:n])), costs, budget


@settings(max_examples=80, deadline=None)
@given(
    problems(),
    st.sampled_from(ALGORITHMS),
    st.sampled_from([0.0, 1e-6]),
    st.sampled_from(["add_remove", "replace"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_result_keeps_the_budget_and_the_bill(problem, algorithm, delta, neighbours, value, seed):
    objective, costs, budget = problem
    result = DPKnapsack(
        objective,
        costs,
        budget,
        epsilon=0.7,
        delta=delta,
        algorithm=algorithm,
        neighbours=neighbours,
        release_value=value,
        mean_runs=3,
        random_state=seed,
    ).solve()
    positions = [objective.labels.index(item) for item in result.items]
    assert len(set(positions)) == len(positions)
    assert result.cost == pytest.approx(costs[positions].sum())
    assert result.cost <= budget * FITS
    assert result.ledger["rho"].sum() <= result.rho * (1 + 1e-12)
    assert (result.ledger["rho"] > 0).all()
    if delta == 0:
        draws = result.ledger["eps0"].dropna().sum()
        assert draws <= 0.7 * (1 + 1e-12)
    assert (result.value_private is None) != value
    if algorithm in ("greedy_max", "enumerate"):  # nothing that still fits is left out
        left = np.setdiff1d(np.arange(objective.n), positions)
        assert not (result.cost + costs[left] <= budget).any()


def test_the_same_seed_gives_the_same_and_none_differs():
    f = FacilityLocation(np.random.default_rng(0).random((30, 12)))

    def items(random_state):
        return (
            DPKnapsack(f, np.ones(12), 4, epsilon=0.1, algorithm="greedy_max", random_state=random_state).solve().items
        )

    assert items(3) == items(3)
    assert len({tuple(items(None)) for _ in range(5)}) > 1
    assert len({tuple(items(k)) for k in range(5)}) > 1


def answers(objective, costs, budget):
    def solve():
        result = DPKnapsack(objective, costs, budget, epsilon=1, algorithm="greedy_max", random_state=0).solve()
        return frozenset(result.items)

    return distribution(solve)


def test_new_labels_permute_the_distribution():
    rng = np.random.default_rng(4)
    similarity, costs, order = rng.random((30, 4)), rng.uniform(0.5, 1.5, 4), rng.permutation(4)
    labels = np.array(list("abcd"))
    p = answers(FacilityLocation(similarity, labels.tolist()), costs, 2.0)
    q = answers(FacilityLocation(similarity[:, order], labels[order].tolist()), costs[order], 2.0)
    assert p.keys() == q.keys()
    for chosen in p:
        assert p[chosen] == pytest.approx(q[chosen], rel=1e-9)


@pytest.mark.parametrize("factor", [1e-6, 3.7, 1e9])
def test_the_unit_of_costs_does_not_matter(factor):
    rng = np.random.default_rng(5)
    f, costs = FacilityLocation(rng.random((30, 4))), np.array([0.1, 0.2, 0.7, 0.4])
    p, q = answers(f, costs, 1.0), answers(f, factor * costs, factor * 1.0)
    assert p.keys() == q.keys()
    for chosen in p:
        assert p[chosen] == pytest.approx(q[chosen], rel=1e-9)
    assert frozenset([0, 1, 2]) in p  # 0.1 + 0.2 + 0.7 fits into 1


def sites(seed, people=500, n=30):
    rng = np.random.default_rng(seed)
    home, where = rng.random((people, 2)), rng.random((n, 2))
    distance = np.linalg.norm(home[:, None] - where[None], axis=2)
    return Instance(FacilityLocation(np.maximum(0, 1 - 3 * distance)), rng.uniform(0.3, 2, n), 5.0)


@pytest.mark.parametrize("seed", range(3))
def test_with_endless_epsilon_it_is_greedy_plus_max(seed):
    problem = sites(seed)
    exact = greedy_plus_max(problem.objective, problem.costs, problem.budget)
    items, queries = private(problem, 1e6, 1e-6, np.random.default_rng(seed), fallback=False)
    assert value_of(problem.objective, items) == pytest.approx(exact.value, rel=1e-12)
    assert set(exact.items) <= set(items)
    assert queries <= exact.evaluations
    items, _ = private(problem, 1e6, 1e-6, np.random.default_rng(seed))
    assert value_of(problem.objective, items) >= exact.value - 1e-9


def test_the_fallback_is_what_costs_alone_would_choose_where_noise_leaves_nothing_else():
    # Ten cheap items of 30 people each, and thirty dear ones of nobody, which greedy can hardly tell apart.
    reach = np.zeros((300, 40))
    reach[np.arange(300), np.arange(300) // 30] = 1
    problem = Instance(Coverage(reach), np.r_[np.full(10, 0.2), np.ones(30)], 2.0)

    def mean(fallback):
        runs = [private(problem, 0.2, 1e-6, np.random.default_rng(k), fallback=fallback)[0] for k in range(20)]
        return np.mean([value_of(problem.objective, items) for items in runs])

    assert mean(True) > 290
    assert mean(False) < 250


def test_more_epsilon_buys_more():
    problem = sites(0)
    best = value_of(problem.objective, nonprivate(problem, 1, 0, None)[0])
    shares = []
    for epsilon in (0.05, 0.5, 5.0):
        runs = [private(problem, epsilon, 1e-6, np.random.default_rng(k))[0] for k in range(20)]
        shares.append(np.mean([value_of(problem.objective, items) / best for items in runs]))
    assert shares[0] < shares[1] - 0.02 < shares[2] - 0.04
    assert shares[2] > 0.95


def test_the_trap_catches_density_and_not_greedy_max():
    problem = trap(np.random.default_rng(0))
    for k in range(10):
        chosen, _ = private(problem, 1.0, 1e-6, np.random.default_rng(k))
        assert value_of(problem.objective, chosen) >= 2000
    density = [private(problem, 1.0, 1e-6, np.random.default_rng(k), final_share=0.0)[0] for k in range(10)]
    assert np.mean([value_of(problem.objective, chosen) for chosen in density]) < 0.5 * 2000


def test_cuts():
    problem = contacts(np.random.default_rng(0))
    best = best_value(problem)
    ratios = [
        value_of(problem.objective, private(problem, 2.0, 1e-6, np.random.default_rng(k))[0]) / best for k in range(10)
    ]
    assert 0.6 < np.mean(ratios) <= 1
    # The optimum of a path of three: its middle.
    path = Instance(GraphCut([[0, 1], [1, 2]], 3), np.ones(3), 1.0)
    assert best_value(path) == 2
    # A place that all avoid is not forced in: the empty set is a candidate.
    alone = GraphCut(np.zeros((0, 2), dtype=int), 2)
    assert any(not DPKnapsack(alone, [1, 1], 1, epsilon=1, random_state=k).solve().items for k in range(20))


def test_discarding_keeps_each_pick_with_probability_one_half():
    f = minus_penalty(Coverage(np.zeros((0, 40))), np.zeros(40))
    kept = [
        len(DPKnapsack(f, np.ones(40), 40, epsilon=1, final_share=0.0, random_state=k).solve().items) for k in range(40)
    ]
    assert 17 < np.mean(kept) < 23
    all_kept = DPKnapsack(f, np.ones(40), 40, epsilon=1, final_share=0.0, discard=0.0, random_state=0).solve()
    assert len(all_kept.items) > 35


def test_max_steps_bounds_the_set():
    f = FacilityLocation(np.random.default_rng(0).random((30, 9)))
    for algorithm in ("greedy_max", "enumerate", "sample_greedy_max"):
        for k in range(5):
            result = DPKnapsack(
                f, np.ones(9), 9, epsilon=1, algorithm=algorithm, max_steps=2, mean_runs=2, random_state=k
            ).solve()
            assert len(result.items) <= 2


def test_what_auto_means():
    small = FacilityLocation(np.zeros((0, 5)))
    assert DPKnapsack(small, np.ones(5), 2, epsilon=1).algorithm == "enumerate"
    wide = FacilityLocation(np.zeros((0, 3000)))
    assert DPKnapsack(wide, np.ones(3000), 100, epsilon=1).algorithm == "greedy_max"
    assert DPKnapsack(GraphCut([[0, 1]], 3), np.ones(3), 1, epsilon=1).algorithm == "sample_greedy_max"


def test_costs_by_label():
    f = FacilityLocation(np.eye(3), ["a", "b", "c"])
    for costs in ({"c": 3.0, "a": 1.0, "b": 2.0}, pd.Series([3.0, 1.0, 2.0], index=["c", "a", "b"])):
        np.testing.assert_array_equal(DPKnapsack(f, costs, 3, epsilon=1).costs, [1, 2, 3])
    with pytest.raises(InputError, match="no cost for 'b' and 1 more"):
        DPKnapsack(f, {"a": 1.0}, 3, epsilon=1)


def test_the_continuous_baseline_is_charged_and_feasible():
    problem = sites(1)
    items, queries = continuous(problem, 1.0, 1e-6, np.random.default_rng(0))
    assert problem.costs[list(items)].sum() <= problem.budget
    assert queries == STEPS * 20 * 30


def test_problems_are_what_they_say():
    problem = questions(np.random.default_rng(0), 500)
    assert problem.objective.n == 9
    assert len(problem.objective.y) == 500
    # New York to Los Angeles.
    assert kilometres(np.array([[40.7128, -74.0060]]), np.array([[34.0522, -118.2437]]))[0, 0] == pytest.approx(
        3936, abs=5
    )


F = FacilityLocation(np.random.default_rng(0).random((5, 3)))
CUT = GraphCut([[0, 1]], 3)


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_delta_may_be_either_end_of_its_range(delta):
    assert DPKnapsack(F, np.ones(3), 2, epsilon=1.0, delta=delta, random_state=0).solve().delta == delta


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"epsilon": 0}, "epsilon must be a number greater than 0"),
        ({"epsilon": -1}, "epsilon must be"),
        ({"epsilon": math.nan}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"epsilon": 1e300}, "epsilon must be"),
        ({"epsilon": "1"}, "epsilon must be"),
        ({"epsilon": True}, "epsilon must be"),
        ({"delta": -1e-9}, "delta must be"),
        ({"delta": 1.1e-3}, "delta must be a number at least 0 and at most 0.001"),
        ({"costs": [1, -1, 1]}, "costs must be finite and greater than 0, and that of item 1 is -1"),
        ({"costs": [1, 0, 1]}, "costs must be"),
        ({"costs": [1, math.nan, 1]}, "costs must be"),
        ({"costs": [1, math.inf, 1]}, "costs must be"),
        ({"costs": [1, 1]}, "one number for each of the 3 items"),
        ({"costs": [[1, 1, 1]]}, "one number for each"),
        ({"costs": "abc"}, "costs must be numbers"),
        ({"budget": 0}, "budget must be"),
        ({"budget": -1}, "budget must be"),
        ({"budget": math.nan}, "budget must be"),
        ({"budget": math.inf}, "budget must be finite"),
        ({"budget": 0.5}, "no item is affordable"),
        ({"algorithm": "best"}, "algorithm must be one of"),
        ({"objective": CUT, "algorithm": "greedy_max"}, "needs a monotone objective"),
        ({"objective": CUT, "algorithm": "enumerate"}, "needs a monotone objective"),
        ({"neighbours": "swap"}, "neighbours must be"),
        ({"final_share": 1.0}, "final_share must be"),
        ({"final_share": -0.1}, "final_share must be"),
        ({"discard": 1.0}, "discard must be"),
        ({"seed_size": 3}, "seed_size must be a whole number from 1 to 2"),
        ({"mean_runs": 0.5}, "mean_runs must be"),
        ({"max_steps": 0}, "max_steps must be a whole number from 1 to 3"),
        ({"max_steps": 1.5}, "max_steps must be"),
        ({"value_share": 0}, "value_share must be"),
        ({"random_state": -1}, "random_state must be at least 0"),
    ],
)
def test_bad_parameters_are_refused_by_name(given_, message):
    given_ = {"objective": F, "costs": np.ones(3), "budget": 2, "epsilon": 1.0} | given_
    with pytest.raises(InputError, match=message):
        DPKnapsack(given_.pop("objective"), given_.pop("costs"), given_.pop("budget"), **given_)


def test_other_kinds_of_seed_are_refused():
    with pytest.raises(TypeError, match="random_state must be"):
        DPKnapsack(F, np.ones(3), 2, epsilon=1, random_state="secret")
