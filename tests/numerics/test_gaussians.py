"""Normal laws: against torch, scipy and closed forms, and what must hold of every pair."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.stats import multivariate_normal

from assay.numerics.gaussians import bures_wasserstein, gaussian_kl, gaussian_logpdf, sym_sqrt

SEEDS = st.integers(0, 2**32 - 1)


def law(rng, d, scale=1.0):
    A = rng.standard_normal((d, d))
    return scale * rng.standard_normal(d), scale**2 * (A @ A.T + 0.05 * np.eye(d))


def test_the_root_of_a_small_matrix():
    np.testing.assert_allclose(sym_sqrt([[2, 1], [1, 2]]), [[1.366025, 0.366025], [0.366025, 1.366025]], atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e3]))
def test_roots_square_to_their_covariance_and_are_exactly_symmetric(seed, d, scale):
    rng = np.random.default_rng(seed)
    covs = np.stack([law(rng, d, scale)[1] for _ in range(3)])
    roots = sym_sqrt(covs)
    assert np.array_equal(roots, np.swapaxes(roots, 1, 2))
    np.testing.assert_allclose(roots @ roots, covs, rtol=1e-9, atol=1e-12 * scale**2)
    assert np.linalg.eigvalsh(roots).min() >= 0
    np.testing.assert_allclose(roots[0], np.real(sqrtm(covs[0])), rtol=1e-7, atol=1e-9 * scale)


def test_a_singular_covariance_has_a_root():
    root = sym_sqrt([[1.0, 1.0], [1.0, 1.0]])
    np.testing.assert_allclose(root @ root, 1.0, atol=1e-12)


def test_the_distance_of_two_known_laws():
    value = bures_wasserstein([0, 0], np.diag([1, 4]), [3, 4], np.diag([9, 1]))
    assert value == pytest.approx(np.sqrt(30), abs=1e-12)
    assert value == pytest.approx(5.477226, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 5))
def test_the_distance_is_the_textbooks_and_a_metric(seed, d):
    rng = np.random.default_rng(seed)
    (a, A), (b, B), (c, C) = law(rng, d), law(rng, d), law(rng, d)
    root = np.real(sqrtm(A))
    direct = np.sqrt(max(np.sum((a - b) ** 2) + np.trace(A + B - 2 * np.real(sqrtm(root @ B @ root))), 0))
    distance = bures_wasserstein(a, A, b, B)
    assert distance == pytest.approx(direct, rel=1e-6)
    assert distance == pytest.approx(bures_wasserstein(b, B, a, A), rel=1e-9)
    assert distance <= bures_wasserstein(a, A, c, C) + bures_wasserstein(c, C, b, B) + 1e-9
    assert bures_wasserstein(a, A, a, A) < 1e-6


def test_the_distance_of_close_laws_is_not_lost_in_rounding():
    cov = np.diag([1.0, 2.0])
    assert bures_wasserstein([0, 0], cov, [1e-9, 0], cov) == pytest.approx(1e-9, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 6))
def test_the_divergence_is_torchs(seed, d):
    rng = np.random.default_rng(seed)
    (a, A), (b, B) = law(rng, d), law(rng, d)
    p, q = (
        torch.distributions.MultivariateNormal(torch.from_numpy(m), torch.from_numpy(S)) for m, S in ((a, A), (b, B))
    )
    assert gaussian_kl(a, A, b, B) == pytest.approx(float(torch.distributions.kl_divergence(p, q)), rel=1e-9, abs=1e-10)
    assert gaussian_kl(a, A, a, A) == pytest.approx(0, abs=1e-10)


def test_stacks_of_laws_are_taken_one_by_one():
    rng = np.random.default_rng(0)
    laws = [law(rng, 3) for _ in range(4)]
    means, covs = np.stack([m for m, _ in laws]), np.stack([S for _, S in laws])
    for measure in (gaussian_kl, bures_wasserstein):
        together = measure(means, covs, means[::-1], covs[::-1])
        assert together.shape == (4,)
        np.testing.assert_allclose(together[1], measure(means[1], covs[1], means[2], covs[2]))


def test_the_log_density_is_scipys():
    rng = np.random.default_rng(1)
    m, S = law(rng, 3)
    X = rng.standard_normal((7, 3))
    np.testing.assert_allclose(gaussian_logpdf(X, m, S), multivariate_normal(m, S).logpdf(X), rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: sym_sqrt([1.0, 2.0]), "cov must be square"),
        (lambda: sym_sqrt([[1.0, 2.0]]), "cov must be square"),
        (lambda: sym_sqrt([[1.0, np.nan], [np.nan, 1.0]]), "must be finite"),
        (lambda: sym_sqrt([[1.0, 0.5], [0.0, 1.0]]), "must be symmetric"),
        (lambda: sym_sqrt([[1.0, 2.0], [2.0, 1.0]]), "positive semidefinite, and has the eigenvalue -1"),
        (lambda: bures_wasserstein([0], [[1]], [0, 0], np.eye(2)), "p has 1 dimensions and q has 2"),
        (lambda: bures_wasserstein([0, 0], [[1]], [0], [[1]]), "the mean of p has shape"),
        (lambda: gaussian_kl([0], [[0]], [0], [[1]]), "cov_p must be positive definite"),
        (lambda: gaussian_kl([0], [[1]], [0], [[-1]]), "cov_q must be positive definite"),
        (lambda: gaussian_kl([np.inf], [[1]], [0], [[1]]), "the mean of p must be finite"),
        (lambda: gaussian_logpdf([[0, 0]], [0], [[1]]), "X must be"),
        (lambda: gaussian_logpdf([[np.nan]], [0], [[1]]), "X has NaN"),
    ],
)
def test_what_is_no_law_is_refused(call, what):
    with pytest.raises(ValueError, match=what):
        call()
