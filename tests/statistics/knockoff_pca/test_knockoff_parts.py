import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from knockoff_mixtures import mixture
from scipy.stats import gaussian_kde, kurtosis, skewnorm
from sklearn.mixture import GaussianMixture

from assay.statistics.knockoff_pca import knockoff_spectrum, predicted_alignment, spiked_count
from assay.statistics.knockoff_pca.shift_test import fit_two_gaussians, p_value, refined_rows, shifted_rows, z_value
from assay.statistics.knockoff_pca.theory import noise_edge


def test_reference_numbers():
    assert predicted_alignment(14, 0.9) == pytest.approx(0.967100, abs=5e-7)
    assert predicted_alignment(8, 0.9) == pytest.approx(0.941401, abs=5e-7)
    assert predicted_alignment(0.9, 0.9) == 0.0  # below the phase transition √γ
    for bad in ((0, 1), (1, 0), (np.nan, 1)):
        with pytest.raises(ValueError, match="must be positive"):
            predicted_alignment(*bad)


def test_a_spike_and_its_direction_are_where_theory_says():
    values, overlaps = [], []
    for seed in range(4):
        X, _, directions = mixture(100 + seed, 1000, 900, 0.0)
        spectrum = knockoff_spectrum(X, k=2)
        values.append(spectrum.knockoff_eigenvalues[0])
        overlaps.append(abs(spectrum.components[0] @ directions[0]))
    # The limit (1 + ℓ)(1 + γ/ℓ) at ℓ = 14, γ = 0.9.
    assert np.mean(values) == pytest.approx(15.964286, rel=0.05)
    assert np.mean(overlaps) == pytest.approx(predicted_alignment(14, 0.9), abs=0.01)


@pytest.mark.parametrize(("n", "d"), [(400, 360), (300, 900), (2000, 20)])
def test_spiked_count(n, d):
    right, spurious = 0, 0
    for seed in range(20):
        X, _, _ = mixture(200 + seed, n, d, 0.0, spikes=(14.0, 8.0))
        values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2 / n
        right += spiked_count(values, n, d) == 2
        noise = np.random.default_rng(seed).standard_normal((n, d))
        spurious += spiked_count(np.linalg.svd(noise, compute_uv=False) ** 2 / n, n, d)
    assert right >= 18
    assert spurious <= 2


def test_edge_scales_with_the_unit_and_ignores_order():
    values = np.random.default_rng(0).gamma(2.0, size=50)
    assert noise_edge(100 * values[::-1], 200, 50) == pytest.approx(100 * noise_edge(values, 200, 50))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(12, 60),
    d=st.integers(3, 80),
    k=st.integers(1, 8),
    center=st.sampled_from(["robust", "zero", "array"]),
    kappa=st.one_of(st.none(), st.floats(0.1, 1e3)),
    seed=st.integers(0, 2**31),
)
def test_small_problem_equals_full_pca_of_the_extended_table(n, d, k, center, kappa, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(1, 5, d) + rng.uniform(-2, 2, d)
    k = min(k, n - 1, d)
    known = rng.uniform(-1, 1, d) if center == "array" else center
    spectrum = knockoff_spectrum(X, k=k, center=known, kappa=kappa)
    Y, U, c = X - X.mean(axis=0), spectrum.components, spectrum.centre
    if center == "robust":
        np.testing.assert_allclose(c, np.median(Y @ U.T, axis=0), atol=1e-10)
    else:
        clean = np.zeros(d) if center == "zero" else known
        np.testing.assert_allclose(c, U @ (clean - X.mean(axis=0)), atol=1e-10)
    # X' of the source: rows about the assumed centre, the knockoff mean along a direction that no row has.
    extended = np.column_stack([Y - U.T @ c, np.full(n, spectrum.kappa)])
    values = np.linalg.svd(extended, compute_uv=False) ** 2 / n
    both = np.append(spectrum.knockoff_spike, spectrum.knockoff_eigenvalues)
    # The k + 1 pairs are among those of the full problem; the other d − k are the untouched rest.
    rest = np.linalg.svd(Y - Y @ U.T @ U, compute_uv=False) ** 2 / n
    rest = np.sort(rest)[::-1][: len(values) - k - 1]
    np.testing.assert_allclose(np.sort(np.append(both, rest)), np.sort(values), rtol=1e-8, atol=1e-10 * values[0])


def test_a_knockoff_within_the_columns_says_the_same():
    # The source adds the knockoff mean in the space of the columns, along a random direction.
    X, _, _ = mixture(7, 400, 360, 0.2)
    spectrum = knockoff_spectrum(X, k=3)
    rng = np.random.default_rng(0)
    v = rng.standard_normal(360)
    v -= spectrum.components.T @ (spectrum.components @ v)
    v /= np.linalg.norm(v)
    moved = X - X.mean(axis=0) - spectrum.components.T @ spectrum.centre + spectrum.kappa * v
    values = np.linalg.svd(moved, compute_uv=False) ** 2 / 400
    np.testing.assert_allclose(spectrum.knockoff_eigenvalues, values[1:4], rtol=0.01)
    assert spectrum.relative_move[0] > 0.1
    assert spectrum.relative_move[1:].max() < 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must lie"),
        ({"k": 6}, "k must lie"),
        ({"k": 2, "center": "nowhere"}, "center must be"),
        ({"k": 2, "center": [1.0, 2.0]}, "center must be"),
        ({"k": 2, "kappa": 0.0}, "kappa must be positive"),
    ],
)
def test_spectrum_refuses(arguments, message):
    X = np.random.default_rng(0).standard_normal((30, 5))
    with pytest.raises(ValueError, match=message):
        knockoff_spectrum(X, **arguments)
    with pytest.raises(ValueError, match="no variance"):
        knockoff_spectrum(np.ones((30, 5)), k=1)


def test_p_value_is_a_union_bound():
    assert p_value(np.array([2.0]), 1)[0] == pytest.approx(3 * 0.0227501, rel=1e-5)
    assert p_value(np.array([2.0]), 4)[0] == pytest.approx(12 * 0.0227501, rel=1e-5)
    assert p_value(np.array([-1.0]), 4)[0] == 1.0


@pytest.mark.parametrize("known", [True, False])
def test_z_holds_its_level_on_one_gaussian_group(known):
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(1000):
        s = 3 * rng.standard_normal(200)
        mean = s.mean()
        s = s - mean
        z = z_value(s, -mean if known else float(np.median(s)), known)
        rejected += p_value(np.array([z]), 1)[0] < 0.05
    assert 5 <= rejected <= 70  # 50 at the nominal level; the union bound makes it fewer


def test_z_is_written_out_with_scipy():
    s = skewnorm.rvs(3, size=300, random_state=1)
    s = (s - s.mean()) / s.std()
    m = np.median(s)
    f = gaussian_kde(s)(m)[0]
    variance = max(1 + 1 / (4 * f**2) - np.abs(s - m).mean() / f, 0.2)
    expected = max(np.sqrt(300) * abs(m) / np.sqrt(variance), -kurtosis(s) / np.sqrt(24 / 300))
    assert z_value(1e6 * s, 1e6 * m, False) == pytest.approx(expected)
    assert z_value(s, 0.3, True) == pytest.approx(0.3 * np.sqrt(300))


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_z_sees_lone_and_balanced_groups(share):
    rng = np.random.default_rng(1)
    s = rng.standard_normal(400)
    s[: round(400 * share)] += 6
    s -= s.mean()
    assert z_value(s, float(np.median(s)), False) > 3


@pytest.mark.parametrize("seed", range(6))
def test_mixture_reaches_the_likelihood_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(300)
    s[: 20 + 25 * seed] += 3.5
    own = fit_two_gaussians(s)
    peer = GaussianMixture(2, covariance_type="tied", n_init=10, tol=1e-9, max_iter=2000, reg_covar=0, random_state=0)
    best = peer.fit(s[:, None]).score(s[:, None]) * 300
    assert own.log_likelihood > best - 0.1
    assert own.log_likelihood < best + 0.1
    assert own.weight == pytest.approx(peer.weights_[peer.means_[:, 0].argmax()], abs=0.02)


def test_bic_gain_tells_two_groups_from_one_skewed_group():
    rng = np.random.default_rng(2)
    groups = rng.standard_normal(500)
    groups[:50] += 5
    gain, rows, weight = shifted_rows(groups)
    assert gain > 20
    assert rows[:50].mean() > 0.95
    assert rows[50:].mean() < 0.02
    assert weight == pytest.approx(0.1, abs=0.03)
    one = skewnorm.rvs(5, size=500, random_state=3)
    assert shifted_rows(one)[0] < 2
    # BIC, written out for the skew-normal's three and the mixture's four parameters.
    s = np.sort((groups - groups.mean()) / groups.std())
    skewed = 3 * np.log(500) - 2 * skewnorm.logpdf(s, *skewnorm.fit(s)).sum()
    mixed = 4 * np.log(500) - 2 * fit_two_gaussians(s).log_likelihood
    assert gain == pytest.approx(skewed - mixed, abs=0.05)


def test_groups_do_not_depend_on_sign_or_order():
    rng = np.random.default_rng(4)
    s = rng.standard_normal(6000)  # more than are fitted
    s[:900] += 4
    gain, rows, _ = shifted_rows(s)
    order = rng.permutation(6000)
    other_gain, other_rows, _ = shifted_rows(-s[order] * 1e-5)
    np.testing.assert_array_equal(other_rows, rows[order])
    assert other_gain == pytest.approx(gain, rel=1e-6)
    assert np.mean(rows == (np.arange(6000) < 900)) > 0.96


def test_rows_are_refined_along_all_components():
    rng = np.random.default_rng(5)
    scores = rng.standard_normal((400, 3)) * [4, 4, 2]
    scores[:60] += [9, 9, 6]
    scores -= scores.mean(axis=0)
    scores = scores @ np.linalg.eigh(scores.T @ scores)[1]  # uncorrelated, as scores are
    truth = np.arange(400) < 60
    start = truth.copy()
    start[rng.choice(400, 60, replace=False)] ^= True
    refined = refined_rows(scores, start, 5)
    assert np.mean(refined == truth) > np.mean(start == truth)
    assert np.mean(refined == truth) > 0.97
