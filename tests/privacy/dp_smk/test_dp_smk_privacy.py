"""Is it private? Exact distributions on small problems, and audits that must tell honest solvers from cheats."""

import pickle

import numpy as np
import pytest
from exact_draws import distribution, largest_log_ratio, renyi
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.numerics.dp import rho_of
from assay.privacy.dp_smk import (
    Coverage,
    DPKnapsack,
    FacilityLocation,
    FeatureInformation,
    GraphCut,
    Modular,
    audit,
    choice,
    minus_penalty,
    solver,
)
from assay.privacy.dp_smk.neighbours import EPSILON, half_the_noise, heavy_record, honest, not_private, pairs
from assay.privacy.dp_smk.objectives import spreads


def answers(objective, costs, budget, tamper=1.0, **parameters):
    def solve():
        return tuple(DPKnapsack(objective, costs, budget, random_state=0, **parameters).solve().items)

    return distribution(solve, tamper)


@st.composite
def small(draw):
    """Records, one more, costs and a budget: three or four items, a few picks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(2, 4))
    kind = draw(st.sampled_from(["coverage", "facility", "modular"]))
    people = draw(st.integers(0, 5))
    make, records = {
        "coverage": (Coverage, (rng.random((people + 1, n)) < 0.5).astype(float)),
        "facility": (FacilityLocation, rng.random((people + 1, n))),
        "modular": (Modular, rng.dirichlet(np.ones(n), people + 1)),
    }[kind]
    costs = rng.uniform(0.5, 2, n)
    return make, records, costs, float(max(costs.min(), rng.uniform(0.5, 3)))


@settings(max_examples=25, deadline=None)
@given(small(), st.floats(0.2, 3), st.sampled_from([0.0, 0.2]))
def test_pure_privacy_holds_exactly_for_one_record_more(problem, epsilon, final_share):
    make, records, costs, budget = problem
    given_ = {"epsilon": epsilon, "delta": 0.0, "algorithm": "greedy_max", "final_share": final_share}
    p = answers(make(records[:-1]), costs, budget, **given_)
    q = answers(make(records), costs, budget, **given_)
    assert sum(p.values()) == pytest.approx(1)
    assert largest_log_ratio(p, q) <= epsilon + 1e-9


@settings(max_examples=15, deadline=None)
@given(small(), st.floats(0.2, 3))
def test_pure_privacy_holds_exactly_for_a_replaced_record(problem, epsilon):
    make, records, costs, budget = problem
    if len(records) < 2:
        return
    given_ = {"epsilon": epsilon, "delta": 0.0, "algorithm": "greedy_max", "neighbours": "replace"}
    p = answers(make(records[:-1]), costs, budget, **given_)
    q = answers(make(records[1:]), costs, budget, **given_)
    assert largest_log_ratio(p, q) <= epsilon + 1e-9


@settings(max_examples=15, deadline=None)
@given(small(), st.floats(0.2, 3))
def test_concentrated_privacy_holds_exactly(problem, epsilon):
    make, records, costs, budget = problem
    given_ = {"epsilon": epsilon, "delta": 1e-6, "algorithm": "greedy_max"}
    p = answers(make(records[:-1]), costs, budget, **given_)
    q = answers(make(records), costs, budget, **given_)
    rho = rho_of(epsilon, 1e-6)
    for a in (1.01, 2.0, 8.0, 32.0):
        assert renyi(p, q, a) <= a * rho + 1e-9
        assert renyi(q, p, a) <= a * rho + 1e-9


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 3), st.sampled_from(["add_remove", "replace"]))
def test_cuts_keep_their_promise_exactly(seed, epsilon, neighbours):
    rng = np.random.default_rng(seed)
    edges = np.array([rng.choice(4, 2, replace=False) for _ in range(int(rng.integers(2, 8)))])
    costs = rng.uniform(0.5, 1.5, 4)
    given_ = {"epsilon": epsilon, "delta": 0.0, "neighbours": neighbours, "discard": 0.0}
    other = edges[1:] if neighbours == "replace" else edges
    p = answers(GraphCut(edges[:-1], 4), costs, 2.0, **given_)
    q = answers(GraphCut(other, 4), costs, 2.0, **given_)
    assert largest_log_ratio(p, q) <= epsilon + 1e-9


class NotOneSided:
    """A record moves gains both ways, each value of f by at most 1."""

    n, labels, monotone, one_sided, record_sensitivity = 3, (0, 1, 2), False, False, 1.0

    def __init__(self, present):
        self.values = np.random.default_rng(7).uniform(-1, 1, 8)
        self.values[0] = 0
        if present:
            self.values[1:] += np.array([1, -1, 1, -1, 1, -1, 1])

    def empty(self):
        return 0

    def add(self, state, item):
        return state | 1 << item

    def value(self, state):
        return float(self.values[state])

    def gains(self, state):
        return np.array([self.values[state | 1 << u] - self.values[state] for u in range(3)])


@pytest.mark.parametrize("costs", [[1.0, 1.0, 1.0], [1.0, 2.0, 0.5]])
def test_general_objectives_get_four_times_the_noise_and_keep_their_promise(costs):
    given_ = {"epsilon": 1.0, "delta": 0.0, "discard": 0.0}
    p, q = (answers(NotOneSided(present), costs, 2.0, **given_) for present in (False, True))
    assert largest_log_ratio(p, q) <= 1.0 + 1e-9
    assert spreads(NotOneSided(True), False) == (4.0, 2.0, 1.0)
    assert spreads(NotOneSided(True), True) == (8.0, 4.0, 2.0)
    assert spreads(Coverage(np.eye(2)), False) == (1.0, 1.0, 1.0)
    assert spreads(Coverage(np.eye(2)), True) == (2.0, 2.0, 1.0)


def test_the_exact_check_sees_a_cheat():
    # Twelve items, nobody yet; the first person comes. One pick: all of ε is in it.
    pair = pairs()[0]
    given_ = {"epsilon": 1.0, "delta": 0.0, "algorithm": "greedy_max", "final_share": 0.0}

    def ratio(tamper=1.0, weight=1.0):
        objective = heavy(pair.more, weight)
        p = answers(pair.data, pair.costs, pair.budget, tamper, **given_)
        return largest_log_ratio(p, answers(objective, pair.costs, pair.budget, tamper, **given_))

    def heavy(objective, weight):
        from assay.privacy.dp_smk.neighbours import Scaled

        return objective if weight == 1 else Scaled(objective, weight)

    assert 0.8 < ratio() <= 1.0
    assert ratio(tamper=2.0) > 1.4
    assert ratio(weight=2.0) > 1.4


RUNS = 1500


@pytest.mark.parametrize("number", range(6))
def test_audits_find_nothing_on_the_honest_solver(number):
    pair = pairs()[number]
    assert audit(honest(pair), pair.data, pair.more, 150, random_state=number).eps_lower <= EPSILON


@pytest.mark.parametrize("number", [0, 1])
def test_audits_find_nothing_where_all_of_epsilon_is_in_one_pick(number):
    pair = pairs()[number]
    report = audit(honest(pair, final_share=0.0), pair.data, pair.more, RUNS, random_state=number)
    assert 0.2 < report.eps_lower <= EPSILON
    assert (0,) in report.event or report.hits < report.runs / 2


@pytest.mark.parametrize("number", range(5))
def test_audits_find_nothing_on_the_best_of_many_runs(number):
    pair = pairs()[number]
    factory = honest(pair, algorithm="enumerate", mean_runs=3.0)
    assert audit(factory, pair.data, pair.more, 150, random_state=number).eps_lower <= EPSILON


@pytest.mark.parametrize("cheat", [half_the_noise, heavy_record])
@pytest.mark.parametrize("number", [0, 1])
def test_audits_fail_on_half_the_noise_and_on_a_record_over_its_bound(cheat, number):
    pair = pairs()[number]
    report = audit(cheat(pair, final_share=0.0), pair.data, pair.more, RUNS, random_state=number)
    assert report.eps_lower > EPSILON
    assert (0,) in report.event


def test_audits_fail_where_the_mechanism_itself_draws_with_half_the_noise(monkeypatch):
    honest_draw = choice.exponential_mechanism
    pair = pairs()[0]
    monkeypatch.setattr(choice, "exponential_mechanism", lambda q, eps0, *rest: honest_draw(q, 2 * eps0, *rest))
    assert audit(honest(pair, final_share=0.0), pair.data, pair.more, RUNS, random_state=0).eps_lower > EPSILON


@pytest.mark.parametrize("number", range(6))
def test_audits_catch_greedy_without_noise(number):
    pair = pairs()[number]
    assert audit(not_private(pair), pair.data, pair.more, 60, random_state=0).eps_lower > EPSILON


def test_how_many_runs_there_are_hangs_on_no_data_and_shows_nowhere(monkeypatch):
    counted = []
    real = solver.density_steps
    monkeypatch.setattr(solver, "density_steps", lambda *a, **k: counted.append(1) or real(*a, **k))
    rng = np.random.default_rng(0)
    costs = rng.uniform(0.5, 1, 6)
    number, queries = [], []
    for records in (rng.random((50, 6)), np.zeros((0, 6)), np.ones((500, 6))):
        counted.clear()
        result = DPKnapsack(
            FacilityLocation(records), costs, 2.0, epsilon=1, algorithm="enumerate", mean_runs=20, random_state=5
        ).solve()
        number.append(len(counted))
        queries.append(result.queries)
    assert number[0] == number[1] == number[2] > 3
    assert max(queries) <= 6 * 4  # those of one run
    assert len(result.lines) < 8


def numbers_in(thing):
    if isinstance(thing, bool | str | bytes) or thing is None:
        return []
    if isinstance(thing, int | float | np.number):
        return [float(thing)]
    if isinstance(thing, dict):
        return [x for pair in thing.items() for part in pair for x in numbers_in(part)]
    if isinstance(thing, list | tuple | set | frozenset | np.ndarray):
        return [x for part in thing for x in numbers_in(part)]
    return numbers_in(vars(thing))


@pytest.mark.parametrize("algorithm", ["greedy_max", "enumerate", "sample_greedy_max"])
def test_the_result_holds_no_private_number(algorithm):
    rng = np.random.default_rng(3)
    similarity = rng.random((200, 8))
    costs = np.ones(8)
    chosen = DPKnapsack(
        FacilityLocation(similarity), costs, 3.0, epsilon=1, algorithm=algorithm, mean_runs=3, random_state=0
    )
    result = chosen.solve()
    assert result.value_private is None
    # All numbers are public: positions, costs, and what the budget was spent on.
    public = {1.0, 1e-6, result.cost, result.rho, float(result.queries), 0.0}
    public |= {x for line in result.lines for x in numbers_in(line)} | {float(k) for k in range(9)}
    assert set(numbers_in(result)) <= public | {np.nan} or all(x in public or x != x for x in numbers_in(result))
    # The bill is the same whatever the data, as long as the picks are.
    assert len(pickle.dumps(result)) < 3000
    amounts = [line[3] for line in result.lines]
    other = DPKnapsack(
        FacilityLocation(similarity[:0]), costs, 3.0, epsilon=1, algorithm=algorithm, mean_runs=3, random_state=0
    ).solve()
    if algorithm == "greedy_max":
        np.testing.assert_allclose(amounts, [line[3] for line in other.lines])
        assert other.queries == result.queries
    assert set(vars(result)) == {
        "items", "cost", "epsilon", "delta", "rho", "lines", "queries", "algorithm", "value_private",
    }  # fmt: skip


def test_a_released_value_has_the_noise_that_it_pays_for():
    records = np.ones((500, 3))
    released = [
        DPKnapsack(
            Coverage(records), np.ones(3), 1.0, epsilon=1, algorithm="greedy_max", release_value=True, random_state=k
        ).solve()
        for k in range(300)
    ]
    values = np.array([r.value_private for r in released])
    rho = 0.1 * rho_of(1.0, 1e-6)
    assert values.std() == pytest.approx(1 / np.sqrt(2 * rho), rel=0.15)
    assert values.mean() == pytest.approx(500, abs=5)
    assert released[0].lines[-1][1] == "noise: the value of the set"
    assert released[0].lines[-1][3] == pytest.approx(rho)


def test_the_tables_of_features_are_paid_for():
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 3, (400, 5)), rng.integers(0, 2, 400)
    seen = []

    class Spy(FeatureInformation):
        def prepared(self, release, replace):
            def watched(values, l1, l2):
                seen.append((values, l1, l2))
                return release(values, l1, l2)

            return super().prepared(watched, replace)

    for neighbours, cells in (("add_remove", 5), ("replace", 10)):
        objective = Spy(X, y, 3, 2)
        result = DPKnapsack(
            objective, np.ones(5), 2.0, epsilon=1, algorithm="greedy_max", neighbours=neighbours, random_state=0
        ).solve()
        counts, l1, l2 = seen[-1]
        assert (l1, l2) == (cells, pytest.approx(np.sqrt(cells)))
        assert result.lines[0][1:2] == ("noise: the objective's tables",)
        assert result.lines[0][3] == pytest.approx(0.1 * rho_of(1.0, 1e-6))
        # What one record changes in the counts is no more than is paid for.
        less = FeatureInformation(X[1:], y[1:], 3, 2)._counts()
        assert np.abs(counts - less).sum() == 5
        assert np.linalg.norm(counts - less) == pytest.approx(np.sqrt(5))


def test_penalties_change_no_sensitivity():
    f = minus_penalty(Coverage(np.eye(3)), [1.0, 2.0, 0.0])
    assert (f.monotone, f.one_sided, f.record_sensitivity) == (False, True, pytest.approx(1.0))
