"""The Gaussian measure: against torch and closed forms, and the two distances beside each other."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from assay.errors import InputError
from assay.statistics.lbw_cbo import GaussianMeasure, lbw_distance

SEEDS = st.integers(0, 2**32 - 1)


def measure(rng, d):
    A = rng.standard_normal((d, d))
    return GaussianMeasure.from_cov(rng.standard_normal(d), A @ A.T + 0.05 * np.eye(d))


def test_the_root_of_a_small_covariance():
    p = GaussianMeasure.from_cov([0, 0], [[2, 1], [1, 2]])
    np.testing.assert_allclose(p.root, [[1.366025, 0.366025], [0.366025, 1.366025]], atol=1e-6)
    np.testing.assert_allclose(p.cov, [[2, 1], [1, 2]], atol=1e-12)
    assert p.dim == 2


def test_two_distances_of_laws_whose_roots_commute():
    p = GaussianMeasure.from_cov([0, 0], np.diag([1, 4]))
    q = GaussianMeasure.from_cov([3, 4], np.diag([9, 1]))
    assert p.w2(q) == pytest.approx(5.477226, abs=1e-6)
    assert lbw_distance(p, q) == pytest.approx(p.w2(q), abs=1e-10)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 5))
def test_the_linearised_distance_is_never_below_the_wasserstein_distance(seed, d):
    rng = np.random.default_rng(seed)
    p, q = measure(rng, d), measure(rng, d)
    assert p.w2(q) <= lbw_distance(p, q) + 1e-9
    assert lbw_distance(p, q) == lbw_distance(q, p) > 0
    assert lbw_distance(p, p) == 0
    turned = np.linalg.qr(rng.standard_normal((d, d)))[0]
    a, b = (GaussianMeasure.from_cov(m, turned @ np.diag(v) @ turned.T) for m, v in rng.uniform(0.1, 2, (2, 2, d)))
    assert lbw_distance(a, b) == pytest.approx(a.w2(b), abs=1e-7)  # the roots commute


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.integers(1, 5))
def test_the_divergence_is_torchs(seed, d):
    rng = np.random.default_rng(seed)
    p, q = measure(rng, d), measure(rng, d)
    laws = [torch.distributions.MultivariateNormal(torch.tensor(m.mean), torch.tensor(m.cov)) for m in (p, q)]
    assert p.kl(q) == pytest.approx(float(torch.distributions.kl_divergence(*laws)), rel=1e-9, abs=1e-10)


def test_density_and_samples_are_those_of_the_law():
    p = measure(np.random.default_rng(0), 3)
    X = p.sample(20_000, 1)
    assert X.shape == (20_000, 3)
    np.testing.assert_allclose(X.mean(axis=0), p.mean, atol=0.1)
    np.testing.assert_allclose(np.cov(X.T), p.cov, atol=0.25)
    np.testing.assert_array_equal(X[:5], p.sample(20_000, np.random.default_rng(1))[:5])
    np.testing.assert_allclose(p.logpdf(X[:9]), multivariate_normal(p.mean, p.cov).logpdf(X[:9]))


def test_a_measure_cannot_be_changed():
    p = GaussianMeasure([0.0], [[1.0]])
    with pytest.raises(ValueError, match="read-only"):
        p.mean[0] = 1


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: GaussianMeasure([[0.0]], [[1.0]]), "mean must be a row"),
        (lambda: GaussianMeasure([], np.empty((0, 0))), "mean must be a row"),
        (lambda: GaussianMeasure([0.0, 0.0], [[1.0]]), r"root must be \(2, 2\)"),
        (lambda: GaussianMeasure([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]), "root must be symmetric"),
        (lambda: GaussianMeasure([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "eigenvalue -1"),
        (lambda: GaussianMeasure([np.nan], [[1.0]]), "mean must be finite"),
        (lambda: GaussianMeasure([0.0], [["a"]]), "root must be an array of numbers"),
        (lambda: GaussianMeasure.from_cov([0.0], [[-1.0]]), "positive semidefinite"),
        (lambda: GaussianMeasure([0.0], [[1.0]]).logpdf([0.0]), r"X must be \(n, 1\)"),
        (lambda: GaussianMeasure([0.0], [[0.0]]).logpdf([[0.0]]), "positive definite"),
        (lambda: GaussianMeasure([0.0], [[1.0]]).sample(0), "n must be a whole number"),
        (lambda: GaussianMeasure([0.0], [[1.0]]).kl(GaussianMeasure([0.0], [[0.0]])), "positive definite"),
        (lambda: GaussianMeasure([0.0], [[1e200]]), "root must be at most"),
        (lambda: GaussianMeasure([1j], [[1.0]]), "mean must be an array of numbers, and holds complex128"),
        (lambda: GaussianMeasure([0.0], [[1.0]]).sample(True), "n must be a whole number"),
        (lambda: GaussianMeasure([0.0], [[1.0]]).sample(1, -1), "rng must not be negative"),
        (lambda: lbw_distance(GaussianMeasure([0.0], [[1.0]]), GaussianMeasure([0, 0], np.eye(2))), "1 and of 2"),
    ],
)
def test_what_is_no_measure_is_refused(call, what):
    with pytest.raises(InputError, match=what):
        call()


def test_only_measures_are_compared():
    with pytest.raises(TypeError, match="not with a float"):
        lbw_distance(GaussianMeasure([0.0], [[1.0]]), 1.0)
