import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from assay.numerics.spectra import (
    marchenko_pastur_cdf,
    marchenko_pastur_median,
    marchenko_pastur_quantile,
    marchenko_pastur_support,
    noise_level,
    rankme,
    truncated_eigen,
)

GAMMAS = (0.01, 0.3, 0.9, 1.0, 1.7, 8.0)


def density(x, gamma):
    """The textbook density, for gamma ≤ 1."""
    low, high = (1 - np.sqrt(gamma)) ** 2, (1 + np.sqrt(gamma)) ** 2
    return np.sqrt(max((high - x) * (x - low), 0.0)) / (2 * np.pi * gamma * x)


def test_edge_of_the_reference():
    assert marchenko_pastur_support(0.9)[1] == pytest.approx(3.797367, abs=5e-7)
    assert marchenko_pastur_support(4.0, 2.0) == pytest.approx((2.0, 18.0))


@pytest.mark.parametrize("gamma", [g for g in GAMMAS if g <= 1])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.8, 0.99])
def test_cdf_integrates_the_density(gamma, share):
    low, high = marchenko_pastur_support(gamma)
    x = low + share * (high - low)
    area, _ = integrate.quad(density, low, x, args=(gamma,), limit=400)
    assert float(marchenko_pastur_cdf(x, gamma)) == pytest.approx(area, abs=1e-6)


def test_cdf_outside_the_support_and_of_arrays():
    x = np.array([[-1.0, 0.0], [10.0, 1e9]])
    np.testing.assert_array_equal(marchenko_pastur_cdf(x, 0.5), [[0, 0], [1, 1]])


@pytest.mark.parametrize("gamma", GAMMAS)
def test_quantile_inverts_the_cdf_and_scales(gamma):
    for q in (0.0, 0.01, 0.5, 0.77, 1.0):
        x = marchenko_pastur_quantile(q, gamma)
        assert float(marchenko_pastur_cdf(x, gamma)) == pytest.approx(q, abs=1e-8)
        assert marchenko_pastur_quantile(q, gamma, 3.0) == pytest.approx(3 * x)


@pytest.mark.parametrize(("n", "d"), [(800, 240), (500, 500), (200, 900)])
def test_law_against_simulated_noise(n, d):
    Y = np.random.default_rng(5).standard_normal((n, d)) * 2
    values = np.linalg.svd(Y, compute_uv=False) ** 2 / n
    # The bulk is rigid: its quantiles are off by O(1/n) only.
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(values, q) == pytest.approx(marchenko_pastur_quantile(q, d / n, 4.0), rel=0.03)
    assert noise_level(values, n, d)[0] == pytest.approx(4.0, rel=0.02)


def test_median_of_the_law():
    assert float(marchenko_pastur_cdf(marchenko_pastur_median(0.9), 0.9)) == pytest.approx(0.5, abs=1e-9)
    # For few columns all eigenvalues are the noise.
    assert marchenko_pastur_median(1e-6) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_law_refuses_what_is_no_ratio(bad):
    with pytest.raises(ValueError, match="gamma must be positive"):
        marchenko_pastur_support(bad)
    with pytest.raises(ValueError, match="noise must be positive"):
        marchenko_pastur_cdf(1.0, 0.5, bad)
    with pytest.raises(ValueError, match="q must lie"):
        marchenko_pastur_quantile(2.0, 0.5)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 40),
    d=st.integers(1, 40),
    share=st.floats(0.05, 1.0),
    exponent=st.integers(-8, 8),
    seed=st.integers(0, 2**31),
)
def test_eigenpairs_are_those_of_a_full_svd(n, d, share, exponent, seed):
    Y = np.random.default_rng(seed).standard_normal((n, d)) * 10.0**exponent
    before = Y.copy()
    k = max(1, round(share * min(n, d)))
    eigen = truncated_eigen(Y, k)
    _, singular, rows = np.linalg.svd(Y, full_matrices=False)
    np.testing.assert_allclose(eigen.values, singular[:k] ** 2 / n, rtol=1e-6, atol=1e-12 * singular[0] ** 2 / n)
    np.testing.assert_allclose(eigen.vectors @ eigen.vectors.T, np.eye(k), atol=1e-10)
    assert eigen.total == pytest.approx((singular**2).sum() / n)
    assert len(eigen.bulk) == min(n, d)
    np.testing.assert_allclose(eigen.bulk, singular**2 / n, rtol=1e-6, atol=1e-12 * singular[0] ** 2 / n)
    np.testing.assert_array_equal(Y, before)
    without = truncated_eigen(Y, k, bulk=False)
    assert len(without.bulk) == 0
    np.testing.assert_allclose(without.values, eigen.values, rtol=1e-9, atol=1e-13 * eigen.values[0])
    # The leading direction itself, where it is well separated from the second.
    if k > 1 and singular[0] > 1.2 * singular[1]:
        assert abs(eigen.vectors[0] @ rows[0]) == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("shape", [(30, 60), (60, 30)])
def test_more_pairs_than_the_rank_stay_orthonormal(shape):
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1]))
    eigen = truncated_eigen(Y, 30)
    np.testing.assert_allclose(eigen.vectors @ eigen.vectors.T, np.eye(30), atol=1e-10)
    assert (eigen.values[3:] < 1e-10 * eigen.values[0]).all()


def test_randomized_path_against_the_exact_one():
    rng = np.random.default_rng(1)
    n, d = 1700, 1600
    Y = rng.standard_normal((n, d))
    Y[:, 0] *= 6
    Y[:, 1] *= 4
    eigen = truncated_eigen(Y, 2, random_state=0)
    values, vectors = np.linalg.eigh(Y.T @ Y / n)
    assert eigen.n_bulk == 1500
    np.testing.assert_allclose(eigen.values, values[::-1][:2], rtol=1e-6)
    assert abs(eigen.vectors[0] @ vectors[:, -1]) == pytest.approx(1, abs=1e-6)
    assert noise_level(eigen.bulk, eigen.n_bulk, d)[0] == pytest.approx(1.0, rel=0.02)
    again = truncated_eigen(Y, 2, random_state=0)
    np.testing.assert_array_equal(again.vectors, eigen.vectors)
    np.testing.assert_array_equal(again.bulk, eigen.bulk)


@pytest.mark.parametrize("k", [0, 4])
def test_number_of_pairs_out_of_range(k):
    with pytest.raises(ValueError, match="k must lie between 1 and"):
        truncated_eigen(np.ones((5, 3)), k)


def test_one_dimension_is_refused():
    with pytest.raises(ValueError, match="two dimensions"):
        truncated_eigen(np.ones(5), 1)


def test_noise_level_ignores_spikes_and_lost_rank():
    rng = np.random.default_rng(2)
    n, d = 500, 250
    Y = rng.standard_normal((n, d))
    Y[:, :5] *= 10
    values = np.linalg.eigvalsh(Y.T @ Y / n)
    noise, gamma = noise_level(values, n, d)
    assert noise == pytest.approx(1.0, rel=0.05)
    assert gamma == 0.5
    # 200 more columns that are constant: their zeros are no noise.
    padded = np.append(values, np.zeros(200))
    assert noise_level(padded, n, d + 200) == pytest.approx((noise, gamma))
    with pytest.raises(ValueError, match="no variance"):
        noise_level(np.zeros(3), 10, 3)


def test_the_effective_rank_of_known_spectra():
    assert rankme(np.eye(7)) == pytest.approx(7, abs=1e-6)
    assert rankme(np.ones((50, 4))) == pytest.approx(1, abs=1e-6)
    # Singular values 3 and 1: entropy of (3/4, 1/4).
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    assert rankme(np.diag([3.0, 1.0])) == pytest.approx(np.exp(entropy), abs=1e-6)
    assert rankme(np.zeros((3, 3))) == 0.0
    assert rankme(np.diag([1.0, 0.0]), eps=0.0) == pytest.approx(1)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000), st.sampled_from([1e-200, 1e-3, 1.0, 1e200]))
def test_the_effective_rank_knows_neither_scale_nor_order_nor_rotation(n, d, seed, scale):
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, d))
    rank = rankme(Z)
    assert 1 - 1e-6 <= rank <= min(n, d) + 1e-6
    assert rankme(scale * Z) == pytest.approx(rank)
    assert rankme(Z[rng.permutation(n)]) == pytest.approx(rank)
    assert rankme(Z.T) == pytest.approx(rank)
    rotation = np.linalg.qr(rng.normal(size=(d, d)))[0]
    assert rankme(Z @ rotation) == pytest.approx(rank)


@pytest.mark.parametrize(
    ("Z", "eps", "message"),
    [
        (np.ones(3), 1e-12, r"Z must have rows and columns, got shape \(3,\)"),
        (np.ones((0, 3)), 1e-12, "Z must have rows and columns"),
        ([[1.0, np.nan]], 1e-12, "Z must be finite"),
        ([[1.0]], -1.0, "eps must lie between 0 and 1"),
    ],
)
def test_bad_input_to_the_effective_rank(Z, eps, message):
    with pytest.raises(ValueError, match=message):
        rankme(Z, eps)
