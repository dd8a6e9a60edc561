import math
from collections import Counter

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.errors import InputError, MissingPart
from assay.numerics.dp import (
    BudgetError,
    Ledger,
    audit_outputs,
    clopper_pearson,
    epsilon_lower_bound,
    epsilon_of,
    exponential_mechanism,
    exponential_probabilities,
    gaussian_mechanism,
    gaussian_sigma,
    laplace_mechanism,
    one_run_epsilon,
    repeated_epsilon,
    repeated_rho,
    rho_of,
    secret_generator,
)


@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_rho_agrees_with_the_accountant(epsilon, delta):
    orders = (1 + np.geomspace(0.02, 1e4, 2000)).tolist()
    accountant = rdp.RdpAccountant(orders=orders)
    accountant.compose(dp_accounting.ZCDpEvent(rho_of(epsilon, delta)))
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=1e-3)
    assert epsilon_of(rho_of(epsilon, delta), delta) <= epsilon


def test_reference_values():
    assert rho_of(1.0, 1e-6) == pytest.approx(0.024356, abs=1e-6)
    for mean, rho in ((60, 0.00432), (600, 0.00316), (4000, 0.00259)):
        assert repeated_rho(1.0, 1e-6, mean) == pytest.approx(rho, abs=1e-5)
    assert epsilon_of(0.0, 1e-6) == 0
    # Better than the simple conversion, and not below what a Gaussian of that ρ really has.
    rho, delta = 0.1, 1e-5
    assert epsilon_of(rho, delta) < rho + 2 * math.sqrt(rho * math.log(1 / delta))
    mu = math.sqrt(2 * rho)

    def gaussian_delta(epsilon):
        return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)

    assert gaussian_delta(epsilon_of(rho, delta)) <= delta


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-6, 1e3), st.floats(1e-12, 0.1))
def test_more_rho_never_buys_less_epsilon(rho, delta):
    assert epsilon_of(rho, delta) <= epsilon_of(1.1 * rho, delta) + 1e-9
    if epsilon_of(rho, delta) > 0:
        assert rho_of(epsilon_of(rho, delta), delta) == pytest.approx(rho, rel=1e-4)


def test_repetition_costs_more_than_one_run_and_grows_slowly():
    rho = [repeated_rho(1.0, 1e-6, mean) for mean in (1, 10, 100, 1000)]
    assert rho_of(1.0, 1e-6) > rho[0] > rho[1] > rho[2] > rho[3] > rho[1] / 3
    assert repeated_rho(1.0, 1e-6, 10, rho_beside=0.01) < rho[1]
    assert repeated_epsilon(rho[2], 100, 1e-6) <= 1.0
    with pytest.raises(InputError, match="buys nothing for repeated runs"):
        repeated_rho(0.5, 1e-6, 10, rho_beside=0.1)


def test_repetition_without_the_accountant(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dp_accounting.rdp", None)
    with pytest.raises(MissingPart, match=r"assay\[dp\]"):
        repeated_epsilon(0.01, 10, 1e-6)


def test_the_ledger_refuses_to_overspend():
    ledger = Ledger(1.0)
    assert ledger.charge(0.5, "a", 1) == pytest.approx(2.0)  # √(8·0.5)
    assert ledger.left == 0.5
    with pytest.raises(BudgetError, match=r"b asked for 0.6 of rho, and 0.5 is left"):
        ledger.charge(0.6, "b", 2)
    assert [entry.mechanism for entry in ledger.entries] == ["a"]
    ledger.charge(0.5, "c", 2)
    assert ledger.left == 0
    assert Ledger(2.0, "epsilon").charge(0.7, "a", 1) == 0.7
    for amount in (-1.0, math.nan, math.inf, True):
        with pytest.raises(InputError, match="amount must be"):
            ledger.charge(amount, "d", 3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_the_ledger_never_exceeds_its_total(shares):
    ledger = Ledger(0.3)
    for share in shares:
        ledger.charge(share * ledger.left, "x", 0)
    assert ledger.spent <= 0.3 * (1 + 1e-12)


def test_exponential_probabilities_by_the_book():
    np.testing.assert_allclose(
        exponential_probabilities([0, 1, 2], 1.0, 1.0), [0.0900306, 0.2447285, 0.6652410], atol=5e-8
    )
    np.testing.assert_allclose(
        exponential_probabilities([1e6, 1e6 + 2], 1.0, 2.0), [1 / (1 + math.e), 1 / (1 + 1 / math.e)]
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-20, 20), st.floats(0, 1)), min_size=1, max_size=12), st.floats(0.01, 5))
def test_one_sided_changes_keep_the_log_ratio_within_its_range(scores, eps0):
    q, change = np.array(scores).T
    ratio = np.log(exponential_probabilities(q + change, eps0, 1.0)) - np.log(exponential_probabilities(q, eps0, 1.0))
    assert ratio.max() - ratio.min() <= eps0 + 1e-9
    # Bounded range costs ε0²/8 of zCDP at every order: Cesar and Rogers.
    p, r = exponential_probabilities(q + change, eps0, 1.0), exponential_probabilities(q, eps0, 1.0)
    for a in (1.5, 2.0, 8.0, 64.0):
        divergence = np.log(np.sum(p * np.exp((a - 1) * (np.log(p) - np.log(r))))) / (a - 1)
        assert divergence <= a * eps0**2 / 8 + 1e-9


def test_draws_have_these_probabilities():
    rng = np.random.default_rng(0)
    q = [0.0, 1.0, 2.5]
    n = 20_000
    counts = Counter(exponential_mechanism(q, 1.3, 2.0, rng) for _ in range(n))
    expected = n * exponential_probabilities(q, 1.3, 2.0)
    assert stats.chisquare([counts[k] for k in range(3)], expected).pvalue > 1e-3
    assert exponential_mechanism([0.0, 1e-3], 1e9, 1.0, rng) == 1


def test_noise_has_its_scale_and_its_low_bits_are_gone():
    rng = np.random.default_rng(0)
    noisy = gaussian_mechanism(np.zeros(20_000), 3.0, 0.5, rng)
    assert gaussian_sigma(3.0, 0.5) == 3.0
    assert noisy.std() == pytest.approx(3.0, rel=0.03)
    assert stats.kstest(noisy / 3.0, "norm").pvalue > 1e-3
    np.testing.assert_array_equal(noisy * 2.0**9, np.round(noisy * 2.0**9))
    laplace = laplace_mechanism(np.zeros(20_000), 2.0, 0.5, rng)
    assert np.abs(laplace).mean() == pytest.approx(4.0, rel=0.03)


def test_generators_repeat_only_when_asked():
    assert secret_generator(3).random() == secret_generator(3).random()
    assert secret_generator().random() != secret_generator().random()
    rng = np.random.default_rng(0)
    assert secret_generator(rng) is rng
    for bad in ("seed", 1.5, True):
        with pytest.raises(TypeError, match="random_state must be"):
            secret_generator(bad)
    with pytest.raises(InputError, match="at least 0"):
        secret_generator(-1)


def test_clopper_pearson_is_scipys():
    for successes, trials in ((0, 10), (3, 17), (500, 1000), (20, 20)):
        interval = stats.binomtest(successes, trials).proportion_ci(0.9, "exact")
        np.testing.assert_allclose(clopper_pearson(successes, trials, 0.9), interval, atol=1e-12)


def test_bounds_on_epsilon():
    assert epsilon_lower_bound(100, 100, 0, 100) == pytest.approx(
        math.log(0.025 ** (1 / 100) / (1 - 0.025 ** (1 / 100)))
    )
    assert epsilon_lower_bound(50, 100, 50, 100) == 0
    assert epsilon_lower_bound(1, 100, 0, 100, delta=0.5) == 0
    assert epsilon_lower_bound(80, 100, 5, 100, delta=0.1) < epsilon_lower_bound(80, 100, 5, 100)


def test_an_audit_finds_randomised_response_out_and_does_not_slander_it():
    rng = np.random.default_rng(1)
    epsilon, n = 1.0, 20_000
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    yes, no = (rng.random(n) < truth).tolist(), (rng.random(n) >= truth).tolist()
    found = audit_outputs(yes, no)
    assert 0.85 < found.eps_lower <= 1.0
    assert len(found.event) == 1
    assert audit_outputs(yes, yes[::-1]).eps_lower < 0.1
    # On a thousand audits of it no more than one in twenty may say more than ε.
    slander = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        sides = [(rng.random(200) < p).tolist() for p in (truth, 1 - truth)]
        slander += audit_outputs(*sides).eps_lower > epsilon
    assert slander <= 15


def test_one_run_audits():
    # All of r guesses right has the probability (e^ε/(1+e^ε))^r.
    q = 0.05 ** (1 / 50)
    assert one_run_epsilon(50, 50, 200) == pytest.approx(math.log(q / (1 - q)), abs=1e-5)
    assert one_run_epsilon(25, 50, 50) == 0
    assert one_run_epsilon(900, 1000, 1000) == pytest.approx(math.log(0.8829 / 0.1171), abs=0.01)
    assert one_run_epsilon(90, 100, 100, delta=1e-5) < one_run_epsilon(90, 100, 100)
    rng = np.random.default_rng(0)
    truth = math.e / (1 + math.e)
    assert sum(one_run_epsilon(int(rng.binomial(500, truth)), 500, 500) > 1 for _ in range(200)) <= 14


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rho_of(0, 1e-6), "epsilon must be a finite number greater than 0"),
        (lambda: rho_of(math.nan, 1e-6), "epsilon must be"),
        (lambda: rho_of(1.0, 0.0), "delta must be"),
        (lambda: epsilon_of(0.1, 1.0), "delta must be less than 1"),
        (lambda: epsilon_of(-0.1, 0.1), "rho must be"),
        (lambda: repeated_epsilon(0.1, 0.5, 1e-6), "mean_runs must be"),
        (lambda: Ledger(-1.0), "total must be"),
        (lambda: Ledger(1.0, "days"), "unit must be"),
        (lambda: exponential_probabilities([], 1, 1), "at least one candidate"),
        (lambda: exponential_probabilities([math.nan], 1, 1), "scores must be finite"),
        (lambda: exponential_probabilities([1.0], 0, 1), "eps0 must be"),
        (lambda: exponential_probabilities([1.0], 1, -1), "spread must be"),
        (lambda: gaussian_mechanism(math.inf, 1, 1, np.random.default_rng()), "value must be finite"),
        (lambda: gaussian_sigma(0, 1), "sensitivity must be"),
        (lambda: laplace_mechanism(0.0, 1, math.inf, np.random.default_rng()), "epsilon must be finite"),
        (lambda: clopper_pearson(3, 2), "0 ≤ successes ≤ trials"),
        (lambda: clopper_pearson(1.5, 2), "whole number"),
        (lambda: clopper_pearson(1, 2, 1.0), "confidence must be"),
        (lambda: audit_outputs([1] * 5, [1] * 50), "at least 20 outputs, got 5"),
        (lambda: epsilon_lower_bound(1, 2, 1, 2, delta=1), "delta must be"),
        (lambda: one_run_epsilon(5, 10, 9), "guesses must be at most canaries"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
