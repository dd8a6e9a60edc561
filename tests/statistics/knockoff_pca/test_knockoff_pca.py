import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from knockoff_mixtures import mixture
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.statistics.knockoff_pca import KnockoffPCA

COLUMNS = ["eigenvalue", "knockoff_eigenvalue", "relative_move", "z", "p_value", "bic_gain", "moved"]


@parametrize_with_checks([KnockoffPCA(), KnockoffPCA(2, removal="drop", center="zero")])
@pytest.mark.filterwarnings("ignore:no component stands above")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("n", "d", "share"), [(300, 270, 0.1), (250, 400, 0.3), (600, 60, 0.05), (300, 270, 0.5)])
def test_finds_the_rows_and_the_covariance_behind_the_shift(n, d, share):
    X, shifted, directions = mixture(1, n, d, share)
    model = KnockoffPCA(2).fit(X)
    assert len(model.shifts_) == 1
    found = model.labels_ == 1
    agreement = np.mean(found == shifted)
    assert max(agreement, 1 - agreement if share == 0.5 else 0) > 0.99
    assert abs(model.components_[0] @ directions[0]) > 0.93
    assert abs(PCA(1).fit(X).components_[0] @ directions[0]) < 0.6
    # The centre and the shift are the group means, and the rows are PCA'd within the groups.
    np.testing.assert_allclose(model.mean_, X[~found].mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(model.shifts_[0], X[found].mean(axis=0) - X[~found].mean(axis=0), atol=1e-10)
    centred = X - np.where(found[:, None], X[found].mean(axis=0), X[~found].mean(axis=0))
    reference = PCA(2, svd_solver="full").fit(centred)
    np.testing.assert_allclose(model.explained_variance_, reference.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(model.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-9)
    np.testing.assert_allclose(model.noise_variance_, reference.noise_variance_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * reference.components_, axis=1)), 1, atol=1e-8)


@pytest.mark.parametrize(("m", "end", "rounds"), [(60, 100, 2), (40, 160, 3)])
def test_two_shifts_of_different_rows(m, end, rounds):
    X, _, directions = mixture(2, 400, 200, 0.0)
    X[:m, 0] += 20
    X[m:end, 1] += 15
    model = KnockoffPCA(2).fit(X)
    assert len(model.rounds_) == rounds
    first, second = sorted(model.memberships_.T, key=np.argmax)
    np.testing.assert_array_equal(np.flatnonzero(first), np.arange(m))
    np.testing.assert_array_equal(np.flatnonzero(second), np.arange(m, end))
    assert sorted(np.linalg.norm(model.shifts_, axis=1)) == pytest.approx([15, 20], abs=3)
    assert (model.labels_ == 0).sum() == 400 - end
    assert abs(model.components_[0] @ directions[0]) > 0.93


def test_crossing_groups_add_up():
    X, _, _ = mixture(3, 400, 100, 0.0)
    first, second = np.arange(400) < 120, np.arange(400) % 4 == 0
    X[first, 0] += 18
    X[second, 1] += 25
    model = KnockoffPCA(2).fit(X)
    found = list(model.memberships_.T)
    assert len(found) == 2
    assert {(rows == first).all() or (rows == second).all() for rows in found} == {True}
    for shift, rows in zip(model.shifts_, model.memberships_.T, strict=True):
        axis, size = (0, 18) if (rows == first).all() else (1, 25)
        assert shift[axis] == pytest.approx(size, abs=1)


def test_drop_deletes_the_component_and_leaves_the_rows():
    X, shifted, directions = mixture(4, 300, 270, 0.15)
    model = KnockoffPCA(3, removal="drop").fit(X)
    raw = PCA(4, svd_solver="full").fit(X)
    moved = np.flatnonzero(model.report_["moved"])
    np.testing.assert_array_equal(moved, [0])
    np.testing.assert_allclose(model.explained_variance_, raw.explained_variance_[1:4], rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * raw.components_[1:4], axis=1)), 1, atol=1e-8)
    assert (model.labels_ == shifted).mean() > 0.99
    assert abs(model.components_[0] @ directions[0]) > 0.9


def test_without_a_shift_it_is_pca():
    X, _, _ = mixture(5, 300, 100, 0.0)
    model, reference = KnockoffPCA(3).fit(X), PCA(3, svd_solver="full").fit(X)
    assert model.shifts_.shape == (0, 100)
    assert not model.labels_.any()
    np.testing.assert_allclose(model.mean_, reference.mean_, atol=1e-12)
    np.testing.assert_allclose(model.explained_variance_, reference.explained_variance_, rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(model.components_ * reference.components_, axis=1)), 1, atol=1e-8)


def test_seldom_finds_a_shift_where_there_is_none():
    flags = 0
    for seed in range(100):
        rng = np.random.default_rng(700 + seed)
        X = rng.standard_t(6, (80, 60)) if seed % 2 else rng.standard_normal((80, 60))
        X[:, :2] *= [4, 3]
        flags += len(KnockoffPCA(1).fit(X).shifts_)
    assert flags <= 2  # 1 % is the level


def test_a_skewed_loading_is_no_shift():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((500, 50))
    X[:, 0] += 5 * rng.gamma(2.0, size=500)
    model = KnockoffPCA(1).fit(X)
    first = model.report_.iloc[0]
    assert first["p_value"] < 0.001  # It moves: its median is not its mean …
    assert first["bic_gain"] < 0  # … but one skewed group is the better explanation.
    assert len(model.shifts_) == 0


def test_a_known_centre():
    X, shifted, _ = mixture(9, 300, 200, 0.2)
    centre = np.linspace(-3, 3, 200)
    for model in (KnockoffPCA(1, center="zero").fit(X), KnockoffPCA(1, center=centre).fit(X + centre)):
        np.testing.assert_array_equal(model.labels_ == 1, shifted)
        # With the clean mean known, the share of the move is the share of the rows.
        assert model.report_["relative_move"].iloc[0] == pytest.approx(0.2, abs=0.02)


def test_report_and_rounds():
    X, _, _ = mixture(10, 300, 270, 0.2)
    model = KnockoffPCA().fit(X)
    assert list(model.report_.columns) == COLUMNS
    assert model.report_["moved"].tolist() == [True, False, False]
    assert model.report_["p_value"].between(0, 1).all()
    assert len(model.rounds_) == 2
    assert not model.rounds_[1]["moved"].any()
    assert model.n_components_ == 2  # None: the stable spikes


def test_noise_alone_warns_and_is_pca():
    X = np.random.default_rng(11).standard_normal((200, 100))
    with pytest.warns(UserWarning, match="no component stands above the noise"):
        model = KnockoffPCA().fit(X)
    assert model.components_.shape == (1, 100)
    assert list(model.report_.columns) == COLUMNS
    assert len(model.report_) == 0


def test_warns_when_shifts_are_left():
    X, _, _ = mixture(2, 400, 200, 0.0)
    X[:40, 0] += 20
    X[40:160, 1] += 15
    with pytest.warns(ConvergenceWarning, match="max_rounds=1"):
        model = KnockoffPCA(2, max_rounds=1).fit(X)
    assert len(model.shifts_) == 1


def test_groups_below_the_smallest_are_left_alone():
    X, _, _ = mixture(12, 300, 100, 0.0)
    X[:4, 0] += 60
    assert len(KnockoffPCA(2).fit(X).shifts_) == 0
    X[4:12, 0] += 60
    assert len(KnockoffPCA(2).fit(X).shifts_) == 1
    assert len(KnockoffPCA(2, min_fraction=0.1).fit(X).shifts_) == 0


BASE, BASE_SHIFTED, _ = mixture(20, 120, 40, 0.2, strength=40)
FITTED = KnockoffPCA(2).fit(BASE)


def same(model, components, scale=1.0):
    """The report, the rows and the components are those of the table as it was."""
    report = FITTED.report_.copy()
    report[["eigenvalue", "knockoff_eigenvalue"]] *= scale**2
    pd.testing.assert_frame_equal(model.report_, report, rtol=1e-4, atol=1e-6)
    assert np.array_equal(model.labels_, FITTED.labels_)
    np.testing.assert_allclose(np.abs(model.components_), np.abs(components), atol=1e-7)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), size=st.floats(-1e4, 1e4))
def test_adding_a_constant_row_changes_nothing(seed, size):
    offset = size * np.random.default_rng(seed).standard_normal(40)
    model = KnockoffPCA(2).fit(BASE + offset)
    same(model, FITTED.components_)
    np.testing.assert_allclose(model.mean_, FITTED.mean_ + offset, atol=1e-7)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_order_of_the_rows_does_not_count(seed):
    order = np.random.default_rng(seed).permutation(len(BASE))
    model = KnockoffPCA(2).fit(BASE[order])
    np.testing.assert_array_equal(model.labels_, FITTED.labels_[order])
    model.labels_ = FITTED.labels_
    same(model, FITTED.components_)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_a_rotation_of_the_columns_rotates_the_components(seed):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((40, 40)))[0]
    same(KnockoffPCA(2).fit(BASE @ Q), FITTED.components_ @ Q)


@settings(max_examples=15, deadline=None)
@given(power=st.floats(-8, 8))
def test_scale_does_not_count(power):
    same(KnockoffPCA(2).fit(BASE * 10**power), FITTED.components_, scale=10**power)


@pytest.mark.parametrize("scale", [1e-150, 1e-80, 1e75, 1e150])
@pytest.mark.parametrize(("center", "removal"), [("robust", "recentre"), ("array", "drop")])
def test_very_large_and_small_units(scale, center, removal):
    known = BASE[~BASE_SHIFTED].mean(axis=0)
    plain, scaled = (
        KnockoffPCA(2, center=known * a if center == "array" else center, removal=removal).fit(BASE * a)
        for a in (1.0, scale)
    )
    assert plain.report_["moved"].any()
    for report, expected in zip(scaled.rounds_, plain.rounds_, strict=True):
        report = report.copy()
        for _ in range(2):  # the square of the unit may not be a number of its own
            report[["eigenvalue", "knockoff_eigenvalue"]] /= scale
        pd.testing.assert_frame_equal(report, expected, rtol=1e-6)
    np.testing.assert_array_equal(scaled.labels_, plain.labels_)
    np.testing.assert_allclose(scaled.components_, plain.components_, atol=1e-9)
    np.testing.assert_allclose(scaled.shifts_ / scale, plain.shifts_, atol=1e-9)
    np.testing.assert_allclose(scaled.explained_variance_ratio_, plain.explained_variance_ratio_)
    for name in ("explained_variance_", "noise_variance_", "edge_"):
        np.testing.assert_allclose(getattr(scaled, name) / scale / scale, getattr(plain, name), err_msg=name)
    for name in ("eigenvalues", "knockoff_eigenvalues", "knockoff_spike"):
        value = getattr(scaled.spectrum_, name) / scale / scale
        np.testing.assert_allclose(value, getattr(plain.spectrum_, name), err_msg=name)
    for name in ("kappa", "scores", "centre"):
        value = getattr(scaled.spectrum_, name) / scale
        np.testing.assert_allclose(value, getattr(plain.spectrum_, name), atol=1e-8, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(10, 60),
    d=st.integers(2, 80),
    share=st.sampled_from([0.0, 0.2, 0.5]),
    removal=st.sampled_from(["recentre", "drop"]),
    order=st.sampled_from("CF"),
    dtype=st.sampled_from(["f8", "f4", "i8"]),
    r=st.integers(1, 80),
    seed=st.integers(0, 2**31),
)
@example(n=33, d=79, share=0.2, removal="drop", order="C", dtype="f8", r=33, seed=523920)
def test_what_always_holds(n, d, share, removal, order, dtype, r, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.choice([1.0, 5.0, 20.0], d)
    X[: round(share * n)] += 10 * rng.standard_normal(d)
    X[:, rng.integers(d)] = 3  # a constant column
    X[1] = X[0]  # a repeated row
    X = np.asarray(X, dtype=dtype, order=order)
    if (X[0] == X).all():
        return
    before = X.copy()
    r = min(r, n, d)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = KnockoffPCA(r, removal=removal, random_state=0).fit(X)
        again = KnockoffPCA(r, removal=removal, random_state=0).fit(X)
    np.testing.assert_array_equal(X, before)
    C = model.components_
    if removal == "drop":  # what moved is gone, and no more than min(n, d) were there
        r = min(r, min(n, d) - int(model.report_["moved"].sum()))
    assert C.shape == (r, d)
    np.testing.assert_allclose(C @ C.T, np.eye(r), atol=1e-10)
    assert (C[np.arange(r), np.abs(C).argmax(axis=1)] > 0).all()
    assert (np.diff(model.explained_variance_) <= 1e-9 * model.explained_variance_[0]).all()
    assert 0 <= model.explained_variance_ratio_.sum() <= 1 + 1e-9
    assert model.noise_variance_ >= 0
    scores = model.transform(X)
    back = model.inverse_transform(scores)
    projection = model.mean_ + (X - model.mean_) @ C.T @ C
    np.testing.assert_allclose(back, projection, atol=1e-8 * (1 + np.abs(X).max()))
    q = len(model.shifts_)
    assert set(model.labels_) <= set(range(q + 1))
    assert model.memberships_.shape == (n, q)
    if removal == "recentre":
        assert (model.memberships_.sum(axis=0) >= 5).all()
    for name in ("components_", "mean_", "labels_", "shifts_", "explained_variance_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    pd.testing.assert_frame_equal(again.report_, model.report_)


@pytest.mark.parametrize(("n", "d"), [(200, 20_000), (50_000, 20)])
def test_wide_and_tall_tables(n, d):
    rng = np.random.default_rng(30)
    X = rng.standard_normal((n, d))
    X[:, 0] *= 20 if d > n else 4
    m = n // 10
    X[:m, 1] += 60 if d > n else 6
    model = KnockoffPCA(1).fit(X)
    assert abs(model.components_[0, 0]) > 0.8
    assert len(model.shifts_) == 1
    assert (model.labels_[:m] == 1).mean() > 0.97
    assert (model.labels_[m:] == 0).mean() > 0.99


def test_the_randomized_path_finds_the_shift_too():
    X, shifted, directions = mixture(31, 1700, 1520, 0.2, strength=40)
    model = KnockoffPCA(2, random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_ == 1, shifted)
    assert abs(model.components_[0] @ directions[0]) > 0.95


def test_set_output_pipeline_and_names():
    X, _, _ = mixture(13, 150, 40, 0.2)
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(40)])
    model = KnockoffPCA(2).set_output(transform="pandas").fit(frame)
    scores = model.transform(frame)
    assert list(scores.columns) == ["knockoffpca0", "knockoffpca1"]
    assert list(model.feature_names_in_) == list(frame.columns)
    labels = make_pipeline(StandardScaler(), KnockoffPCA(2), KMeans(2, random_state=0)).fit_predict(frame)
    assert len(labels) == 150


def test_new_rows_are_projected():
    X, _, _ = mixture(14, 200, 50, 0.2)
    model = KnockoffPCA(2).fit(X[:150])
    np.testing.assert_allclose(model.transform(X[150:]), (X[150:] - model.mean_) @ model.components_.T, atol=1e-10)


GOOD = np.random.default_rng(0).standard_normal((20, 5)) * [9, 1, 1, 1, 1]


def broken(value):
    X = GOOD.copy()
    X[3, 2] = value
    return X


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (broken(np.nan), "NaN"),
        (broken(np.inf), "infinity"),
        (GOOD[:9], "minimum of 10"),
        (GOOD[:, :1], "minimum of 2"),
        (GOOD[:, 0], "1D array"),
        (np.ones((20, 5)), "no variance"),
        (np.full((20, 5), 0.1), "no variance"),
        (np.full((20, 5), "a"), "could not convert"),
    ],
)
def test_bad_tables(X, message):
    with pytest.raises(ValueError, match=message):
        KnockoffPCA().fit(X)


def test_sparse_tables_are_refused():
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        KnockoffPCA().fit(sparse.csr_array(GOOD))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 0}, "alpha"),
        ({"alpha": 1}, "alpha"),
        ({"alpha": np.nan}, "alpha"),
        ({"alpha": "0.01"}, "alpha must be a number"),
        ({"alpha": None}, "alpha must be a number"),
        ({"bic_margin": "2"}, "bic_margin must be a finite number"),
        ({"bic_margin": None}, "bic_margin"),
        ({"bic_margin": np.nan}, "bic_margin"),
        ({"min_fraction": "1 %"}, "min_fraction must be a number"),
        ({"min_fraction": np.nan}, "min_fraction"),
        ({"removal": "delete"}, "removal"),
        ({"center": "mean"}, "center"),
        ({"center": np.zeros(4)}, r"center.*shape \(5,\)"),
        ({"center": [np.nan] * 5}, "center"),
        ({"k_max": 0}, "k_max"),
        ({"k_max": 2.5}, "k_max"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"min_fraction": 0.5}, "min_fraction"),
        ({"n_components": 6}, "n_components"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": 1.5}, "n_components"),
        ({"n_components": True}, "n_components"),
        ({"k_max": True}, "k_max"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        KnockoffPCA(**parameters).fit(GOOD)


def test_before_fit_and_wrong_shapes():
    with pytest.raises(NotFittedError):
        KnockoffPCA().transform(GOOD)
    with pytest.raises(NotFittedError):
        KnockoffPCA().plot_spectrum()
    model = KnockoffPCA(2).fit(GOOD)
    with pytest.raises(ValueError, match="expecting 5 features"):
        model.transform(GOOD[:, :4])
    with pytest.raises(ValueError, match=r"shape \(m, 2\)"):
        model.inverse_transform(GOOD)


def test_plot_marks_shifts_by_shape_and_words():
    import matplotlib.pyplot as plt

    X, _, _ = mixture(15, 200, 100, 0.2)
    model = KnockoffPCA(2).fit(X)
    figure, ax = plt.subplots()
    assert model.plot_spectrum(ax) is ax
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["without the knockoff", "with the knockoff", "with the knockoff: a shift", "edge of the noise"]
    assert any("shift: moved by" in text.get_text() for text in ax.texts)
    assert "1 shift found" in ax.get_title()
    plt.close(figure)


def test_dropping_leaves_fewer_components_and_says_so():
    rng = np.random.default_rng(523920)
    X = rng.standard_normal((40, 30))
    X[:10] += 6 * rng.standard_normal(30)
    with pytest.warns(UserWarning, match="1 of the 30 components moved and were dropped: 29 are left"):
        model = KnockoffPCA(30, removal="drop", random_state=0).fit(X)
    assert model.components_.shape == (29, 30)
    assert model.get_feature_names_out()[-1] == "knockoffpca28"
