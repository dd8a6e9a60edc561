"""Is everything that comes out paid for, before it is drawn, and at the price that the books say?"""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from exact_draws import distribution, largest_log_ratio

from assay.numerics.dp import BudgetError, Ledger, exponential_mechanism, gaussian_mechanism, laplace_mechanism, rho_of
from assay.privacy.dp_smk import (
    Coverage,
    DPKnapsack,
    FacilityLocation,
    FeatureInformation,
    GraphCut,
    Modular,
    choice,
    minus_penalty,
    solver,
)

RNG = np.random.default_rng(0)
COSTS = np.array([0.5, 1.0, 0.7, 1.2])


class General:
    """Values that a record may move either way by 2."""

    n, labels, monotone, one_sided, record_sensitivity = 4, (0, 1, 2, 3), True, False, 2.0

    def empty(self):
        return 0

    def add(self, state, item):
        return state + 1

    def value(self, state):
        return float(state)

    def gains(self, state):
        return np.ones(4)


# Of one record more: the spread of gains, the spread of f over sets, the largest change of f; then of one replaced.
OBJECTIVES = {
    "coverage": (Coverage(RNG.integers(0, 2, (9, 4))), (1, 1, 1), (2, 2, 1)),
    "facility": (FacilityLocation(RNG.random((9, 4))), (1, 1, 1), (2, 2, 1)),
    "votes": (Modular(RNG.random((9, 4)), per_person=4.0), (4, 4, 4), (8, 8, 4)),
    "penalty": (minus_penalty(Coverage(RNG.integers(0, 2, (9, 4))), np.ones(4)), (1, 1, 1), (2, 2, 1)),
    "cut": (GraphCut([[0, 1], [1, 2], [2, 3]], 4), (1, 1, 1), (2, 2, 1)),
    "features": (FeatureInformation(RNG.integers(0, 3, (9, 4)), RNG.integers(0, 2, 9), 3, 2), (1, 1, 1), (2, 2, 1)),
    "general": (General(), (8, 4, 2), (16, 8, 4)),
}


@pytest.fixture
def events(monkeypatch):
    """What was charged and what was drawn, in order."""
    seen = []

    def watch(module, name, real, kind):
        def watched(scores, price, spread, rng):
            seen.append((kind, price, spread))
            return real(scores, price, spread, rng)

        monkeypatch.setattr(module, name, watched)

    watch(choice, "exponential_mechanism", exponential_mechanism, "draw")
    watch(solver, "gaussian_mechanism", gaussian_mechanism, "noise")
    watch(solver, "laplace_mechanism", laplace_mechanism, "noise")
    charge = Ledger.charge

    def charged(self, amount, mechanism, step):
        seen.append(("charge", amount, mechanism))
        return charge(self, amount, mechanism, step)

    monkeypatch.setattr(Ledger, "charge", charged)
    return seen


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_each_draw_follows_its_own_charge_and_has_the_noise_that_it_pays_for(events, name, neighbours, delta):
    objective, added, replaced = OBJECTIVES[name]
    gain_spread, value_spread, value_change = added if neighbours == "add_remove" else replaced
    total = 1.0 if delta == 0 else rho_of(1.0, delta)
    for algorithm in ("greedy_max", "enumerate", "sample_greedy_max"):
        if algorithm != "sample_greedy_max" and not objective.monotone:
            continue
        events.clear()
        DPKnapsack(
            objective, COSTS, 2.5, epsilon=1, delta=delta, algorithm=algorithm, neighbours=neighbours,
            release_value=True, mean_runs=3, random_state=1,
        ).solve()  # fmt: skip
        assert [event[0] == "charge" for event in events] == [True, False] * (len(events) // 2)
        for (_, amount, what), (kind, price, size) in zip(events[::2], events[1::2], strict=True):
            assert kind == ("draw" if what.startswith("exponential") else "noise")
            if kind == "draw":
                assert price == pytest.approx(math.sqrt(8 * amount) if delta else amount, rel=1e-12)
                assert size == pytest.approx(gain_spread if what == "exponential: next item" else value_spread)
                continue
            sensitivity, paid = price, size
            assert paid == amount
            cells = 4 if neighbours == "add_remove" else 8
            tables = math.sqrt(cells) if delta else cells
            assert sensitivity == pytest.approx(tables if "tables" in what else value_change)
        if algorithm != "enumerate":
            assert math.fsum(amount for _, amount, _ in events[::2]) == pytest.approx(total, rel=1e-9)
        whats = [what for _, _, what in events[::2]]
        assert whats[-1] == "noise: the value of the set"
        assert ("noise: the objective's tables" in whats) == (name == "features")
        assert "exponential: next item" in whats


@pytest.mark.parametrize("name", ["coverage", "features", "cut"])
def test_what_is_refused_is_not_drawn(events, monkeypatch, name):
    def refused(self, amount, mechanism, step):
        raise BudgetError(mechanism)

    monkeypatch.setattr(Ledger, "charge", refused)
    algorithm = "sample_greedy_max" if name == "cut" else "greedy_max"
    with pytest.raises(BudgetError):
        DPKnapsack(OBJECTIVES[name][0], COSTS, 2.5, epsilon=1, algorithm=algorithm, random_state=1).solve()
    assert events == []


@pytest.mark.parametrize("name", ["coverage", "features"])
@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_the_best_of_many_runs_is_priced_as_such(name, value, seed):
    given = {"algorithm": "enumerate", "release_value": value, "mean_runs": 7.0, "random_state": seed}
    pure = DPKnapsack(OBJECTIVES[name][0], COSTS, 2.5, epsilon=1, delta=0.0, **given).solve()
    beside = [0.1] * (name == "features") + [0.1] * value
    noise = [math.sqrt(2 * rho) for _, what, _, rho in pure.lines if what.startswith("noise")]
    run = math.fsum(noise) + math.fsum(eps0 for _, what, eps0, _ in pure.lines if what.startswith("exp")) - sum(beside)
    # Papernot and Steinke: a geometric number of ε-private runs is 3ε-private.
    assert 3 * run + sum(beside) <= 1 + 1e-9
    assert 3 * run + sum(beside) > 0.99

    result = DPKnapsack(OBJECTIVES[name][0], COSTS, 2.5, epsilon=1, delta=1e-6, **given).solve()
    paid = len(beside) * 0.1 * rho_of(1.0, 1e-6)
    run = math.fsum(rho for *_, rho in result.lines) - paid
    accountant = rdp.RdpAccountant(orders=(1 + np.geomspace(0.02, 1e4, 2000)).tolist())
    accountant.compose(dp_accounting.dp_event.RepeatAndSelectDpEvent(dp_accounting.dp_event.ZCDpEvent(run), 7.0, 1.0))
    accountant.compose(dp_accounting.dp_event.ZCDpEvent(paid))
    assert accountant.get_epsilon(1e-6) == pytest.approx(1.0, abs=5e-3)


def test_the_number_of_runs_is_geometric_with_the_mean_that_is_priced(monkeypatch):
    runs = []
    real = solver.density_steps
    monkeypatch.setattr(solver, "density_steps", lambda *a, **k: runs.append(1) or real(*a, **k))
    rng, counts = np.random.default_rng(0), []
    for _ in range(400):
        runs.clear()
        DPKnapsack(
            Coverage(np.eye(2)), [1, 1], 1, epsilon=1, delta=0.0, algorithm="enumerate", mean_runs=4, random_state=rng
        ).solve()
        counts.append(len(runs))
    assert np.mean(counts) == pytest.approx(4, abs=0.7)
    assert np.mean(np.array(counts) == 1) == pytest.approx(0.25, abs=0.09)
    assert np.mean(np.array(counts) > 8) == pytest.approx(0.75**8, abs=0.06)


def answers(objective, **parameters):
    def solve():
        return tuple(DPKnapsack(objective, [1, 1], 1, random_state=0, **parameters).solve().items)

    return distribution(solve)


def test_huge_penalties_do_not_round_one_record_up_to_a_hundred():
    # Floats near 10¹⁸ lie 128 apart: the 65th person would have moved the gain by 128.
    for people in range(60, 70):
        reach = np.zeros((people, 2))
        reach[:, 0] = 1
        p, q = (
            answers(minus_penalty(Coverage(r), [1e18, 1e18]), epsilon=1.0, delta=0.0, discard=0.0, final_share=0.0)
            for r in (reach[:-1], reach)
        )
        assert largest_log_ratio(p, q) <= 1 + 1e-9


def test_the_worth_of_nothing_may_be_private_too():
    class Kept(General):
        n, labels, monotone, one_sided, record_sensitivity = 2, (0, 1), False, True, 1.0

        def __init__(self, values):
            self.values = values

        def empty(self):
            return 0

        def add(self, state, item):
            return state | 1 << item

        def value(self, state):
            return self.values[state]

        def gains(self, state):
            return np.array([self.values[state | 1 << u] - self.values[state] for u in range(2)])

    given = {"epsilon": 1.0, "delta": 0.0, "discard": 0.0, "final_share": 0.999}
    p, q = answers(Kept([0.0, 0.0, 0.0, 0.0]), **given), answers(Kept([1.0, 0.0, 0.0, 0.0]), **given)
    assert 0.5 < np.log(q[()] / p[()]) <= 1.0
    assert largest_log_ratio(p, q) <= 1 + 1e-9


def test_what_an_objective_prepares_declares_its_own_sensitivity(events):
    class Prepared:
        n, labels, monotone, one_sided, record_sensitivity = 4, (0, 1, 2, 3), True, True, 1.0

        def prepared(self, release, replace):
            return Modular(np.ones((5, 4)), per_person=4.0)

    DPKnapsack(Prepared(), COSTS, 2.5, epsilon=1, algorithm="greedy_max", random_state=0).solve()
    assert {size for kind, _, size in events if kind == "draw"} == {4.0}
    Prepared.monotone = False
    with pytest.raises(TypeError, match="the same n and monotone"):
        DPKnapsack(Prepared(), COSTS, 2.5, epsilon=1, random_state=0).solve()


@pytest.mark.parametrize("share", [0.0, 1e-300, 1e-17, 1e-9, 1 - 1e-15])
def test_a_share_too_small_to_draw_with_is_left_out(share):
    result = DPKnapsack(
        OBJECTIVES["coverage"][0], COSTS, 2.5, epsilon=1, algorithm="greedy_max", final_share=share, random_state=0
    ).solve()
    assert result.items
    assert result.ledger["rho"].sum() <= result.rho * (1 + 1e-12)


def test_records_changed_later_do_not_get_past_the_check():
    for make in (FacilityLocation, Coverage, Modular):
        records = np.asfortranarray(np.eye(3))
        f = make(records)
        records[:] = 100.0
        assert f.gains(f.empty()).max() == 1
        assert "100" not in repr(f)
    assert "0.123" not in repr(FacilityLocation(np.full((2, 2), 0.123)))


def test_costs_scale_gains_down_and_never_up():
    # The first person comes, to the cheap item: its density moves by 1, not by 10.
    for records in ([[0, 1]], [[1, 0]]):
        p, q = (
            distribution(
                lambda reach=reach: tuple(
                    DPKnapsack(
                        Coverage(reach), [1.0, 0.1], 1.0, epsilon=1.0, delta=0.0, algorithm="greedy_max",
                        final_share=0.0, random_state=0,
                    ).solve().items
                )
            )
            for reach in (np.zeros((0, 2)), np.array(records))
        )  # fmt: skip
        assert 0.02 < largest_log_ratio(p, q) <= 1 + 1e-9


def test_after_the_release_each_person_counts_by_their_own_record_alone():
    rng = np.random.default_rng(2)
    X, y = rng.integers(0, 3, (50, 4)), rng.integers(0, 2, 50)
    tables = rng.uniform(-3, 40, (4, 2, 3))
    more, less = (
        FeatureInformation(X[k:], y[k:], 3, 2).prepared(lambda counts, l1, l2: tables, False).similarity for k in (0, 1)
    )
    np.testing.assert_array_equal(more[:, 1:], less)
    assert less.max() > 0
