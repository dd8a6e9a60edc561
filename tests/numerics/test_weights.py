"""Weights by energy: the temperature gives the size that is asked for, and nothing else about the energies matters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.numerics.weights import effective_size, ess_temperature, gibbs_weights

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.integers(3, 60), st.floats(0.05, 0.95), st.sampled_from([1e-200, 1e-6, 1.0, 1e6, 1e200]))
def test_the_temperature_gives_the_size(seed, n, share, scale):
    e = scale * np.random.default_rng(seed).standard_normal(n)
    target = 1 + share * (n - 1)
    assert effective_size(gibbs_weights(e, ess_temperature(e, target))) == pytest.approx(target, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.floats(-10, 10))
def test_weights_do_not_depend_on_scale_and_shift(seed, a, b):
    e = np.random.default_rng(seed).standard_normal(20)
    weights = gibbs_weights(e, ess_temperature(e, 3.0))
    moved = a * e + b
    np.testing.assert_allclose(gibbs_weights(moved, ess_temperature(moved, 3.0)), weights, atol=1e-8)


def test_powers_of_two_change_nothing_at_all():
    e = np.random.default_rng(0).standard_normal(20)
    np.testing.assert_array_equal(
        gibbs_weights(e, ess_temperature(e, 3.0)), gibbs_weights(8 * e, ess_temperature(8 * e, 3.0))
    )


def test_two_energies_by_hand():
    # Weights 1 and e^-α: (1 + x)² / (1 + x²) = 1.8 at x = ½, that is α = log 2.
    assert ess_temperature([0.0, 1.0], 1.8) == pytest.approx(np.log(2), rel=1e-9)


def test_huge_energies_of_the_bad_do_no_harm():
    e = np.array([0.0, 1.0, 2.0, 3.0, 1e307])
    assert effective_size(gibbs_weights(e, ess_temperature(e, 2.5))) == pytest.approx(2.5)


def test_ties_at_the_bottom_share_the_weight():
    weights = gibbs_weights([1.0, 1.0, 1.0, 5.0], ess_temperature([1.0, 1.0, 1.0, 5.0], 2.0))
    np.testing.assert_allclose(weights, [1 / 3, 1 / 3, 1 / 3, 0])
    assert ess_temperature([4.0, 4.0, 4.0], 2.0) == 0.0
    np.testing.assert_allclose(gibbs_weights([4.0, 4.0, 4.0], 0.0), 1 / 3)


def test_limits_of_the_weights():
    np.testing.assert_array_equal(gibbs_weights([2.0, 1.0, 1.0], np.inf), [0, 0.5, 0.5])
    assert effective_size([1.0, 0.0]) == 1
    assert effective_size([1e-300, 1e-300, 1e-300]) == pytest.approx(3)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: ess_temperature([], 2.0), "energies must be a row"),
        (lambda: ess_temperature([[1.0]], 2.0), "energies must be a row"),
        (lambda: ess_temperature([1.0, np.nan], 1.5), "must be finite"),
        (lambda: ess_temperature([1.0, 2.0], 1.0), "target must lie above 1"),
        (lambda: ess_temperature([1.0, 2.0], 2.5), "not above the 2 energies"),
        (lambda: ess_temperature([1.0, 2.0], np.nan), "target must lie"),
        (lambda: gibbs_weights([1.0, 2.0], -1.0), "alpha must not be negative"),
        (lambda: gibbs_weights([1.0, 2.0], np.nan), "alpha must not be negative"),
        (lambda: gibbs_weights([1.0, np.inf], 1.0), "must be finite"),
        (lambda: effective_size([0.0, 0.0]), "weights must be"),
        (lambda: effective_size([1.0, -1.0]), "weights must be"),
    ],
)
def test_bad_input_is_refused(call, what):
    with pytest.raises(ValueError, match=what):
        call()
