import math
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
from coupled_tables import classes, table
from scipy.optimize import approx_fprime, minimize
from scipy.special import softmax
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from assay.errors import InputError
from assay.learning.joint_privileged import CoupledClassifier, CoupledRegressor
from assay.learning.joint_privileged.logistic import divergence, log_loss

# ---- f and g by turns


@pytest.mark.parametrize("lam", [0.1, 1.0, 30.0])
def test_turns_of_the_linear_model_go_down_to_the_direct_solution(lam):
    X, W, y, _ = table(0)
    direct = CoupledRegressor(lam=lam, alphas=[2.0]).fit(X, y, W=W)
    turns = CoupledRegressor(lam=lam, alphas=[2.0], solver="alternating").fit(X, y, W=W)
    path = turns.objective_path_
    assert turns.n_iter_ == len(path) > 2
    assert (np.diff(path) <= 1e-10 * path[0]).all()
    assert path[-1] == pytest.approx(direct.objective_path_[0], rel=1e-6)
    assert np.linalg.norm(turns.predict(X) - direct.predict(X)) < 1e-4 * np.linalg.norm(direct.predict(X))
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        CoupledRegressor(lam=lam, alphas=[2.0], solver="alternating", max_iter=2).fit(X, y, W=W)


def test_turns_of_any_least_squares_estimator_are_the_same_descent():
    X, W, y, _ = table(1, n=60, m=60)
    direct = CoupledRegressor(lam=1.0, alphas=[0.0], standardize=False).fit(X, y, W=W)
    turns = CoupledRegressor(LinearRegression(), lam=1.0, max_iter=300, tol=1e-9).fit(X, y, W=W)
    assert (np.diff(turns.objective_path_) <= 1e-9).all()
    np.testing.assert_allclose(turns.predict(X), direct.predict(X), atol=1e-4)
    np.testing.assert_allclose(turns.predict_privileged(X, W), direct.predict_privileged(X, W), atol=1e-3)


def test_ends_with_any_estimator():
    X, W, y, _ = table(2)
    seen, tree = ~np.isnan(y), DecisionTreeRegressor(max_depth=3, random_state=0)
    first = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X[seen], y[seen])
    np.testing.assert_allclose(CoupledRegressor(tree, lam=0).fit(X, y, W=W).predict(X), first.predict(X))
    teacher = Ridge(2.0).fit(np.hstack([X, W])[seen], y[seen])
    said = np.where(seen, np.nan_to_num(y), teacher.predict(np.hstack([X, W])))
    model = CoupledRegressor(tree, Ridge(2.0), lam=math.inf).fit(X, y, W=W)
    student = DecisionTreeRegressor(max_depth=3, random_state=0)
    student.fit(np.vstack([X[seen], X[~seen]]), np.concatenate([y[seen], said[~seen]]))
    np.testing.assert_allclose(model.predict(X), student.predict(X))
    np.testing.assert_allclose(model.predict_privileged(X, W), teacher.predict(np.hstack([X, W])))


def test_an_average_of_estimators_averages_predictions():
    X, W, y, _ = table(3)
    model = CoupledRegressor(DecisionTreeRegressor(max_depth=2), lams=(0, 1.0, math.inf), random_state=0)
    model.fit(X, y, W=W)
    assert sum(weight for weight, _, _ in model.estimators_) == pytest.approx(1)
    assert [w for w, _, _ in model.estimators_] == list(model.lam_weights_.values())
    np.testing.assert_allclose(model.predict(X), sum(w * f.predict(X) for w, f, _ in model.estimators_))
    # An int is passed on to estimators without a random_state, and the user's own stays as it was.
    assert all(f.random_state == 0 for _, f, _ in model.estimators_)
    assert model.estimator.random_state is None
    np.testing.assert_array_equal(model.predict(X), clone(model).fit(X, y, W=W).predict(X))
    assert max(len(model.objective_path_), model.n_iter_) <= 10


def test_the_turns_end_when_nothing_changes():
    X, W, y, _ = table(3)
    stump = CoupledRegressor(DecisionTreeRegressor(max_depth=1, random_state=0), lam=5.0, max_iter=200)
    assert stump.fit(X, y, W=W).n_iter_ < 200


def test_boosting_takes_gaps_in_X_and_in_W():
    X, W, y, full = table(4, n=60)
    rng = np.random.default_rng(0)
    X, W = (np.where(rng.random(T.shape) < 0.1, np.nan, T) for T in (X, W))
    boost = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5)
    model = CoupledRegressor(boost, lams=(0, 3.0, math.inf), max_iter=3, cv=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a few rows lack all of W
        model.fit(X, y, W=W)
    assert np.mean((model.predict(X) - full) ** 2) < np.var(full)
    assert np.isfinite(model.predict_privileged(X, W)).all()
    with pytest.raises(ValueError, match="NaN"):
        CoupledRegressor(boost, Ridge(), lam=1.0).fit(X, y, W=W)


def test_frames_reach_the_estimators_as_they_are():
    X, W, y, _ = table(5, n=60, m=60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(word=np.where(X[:, 0] > 0, "up", "down"))
    words = ColumnTransformer([("word", OneHotEncoder(), ["word"])], remainder="passthrough")
    privileged = pd.DataFrame(W, columns=["p", "q", "r", "s"])
    model = CoupledRegressor(make_pipeline(words, Ridge()), lam=2.0).fit(frame, y, W=privileged)
    whole = pd.concat([frame, privileged], axis=1)
    within = CoupledRegressor(make_pipeline(words, Ridge()), lam=2.0, privileged=list("pqrs")).fit(whole, y)
    np.testing.assert_allclose(model.predict(frame), within.predict(frame))
    np.testing.assert_allclose(model.predict_privileged(frame, privileged), within.predict_privileged(whole))
    with pytest.raises(InputError, match="W and X both have the column 'a'"):
        CoupledRegressor(make_pipeline(words, Ridge()), lam=2.0).fit(frame, y, W=frame[["a"]])
    with pytest.raises(InputError, match="had others, or another order"):
        model.predict_privileged(frame, privileged[["q", "p", "r", "s"]])


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        DecisionTreeClassifier(max_depth=3),
        HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=3),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_any_classifier(estimator, n_classes):
    X, W, y, full = classes(6, n=60, m=80, n_classes=n_classes)
    model = CoupledClassifier(estimator, lams=(0, 1.0, math.inf), max_iter=3, cv=3, random_state=0).fit(X, y, W=W)
    chances = model.predict_proba(X)
    assert chances.shape == (140, n_classes)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert (model.predict(X) == full).mean() > 1.2 / n_classes
    decision = model.decision_function(X)
    assert decision.shape == ((140,) if n_classes == 2 else (140, n_classes))
    by_decision = (decision > 0).astype(int) if n_classes == 2 else decision.argmax(axis=1)
    assert (by_decision == model.predict(X)).mean() > 0.99
    assert set(model.predict_privileged(X, W)) <= set(range(n_classes))


def test_probabilities_of_other_classifiers_are_averaged():
    X, W, y, _ = classes(7, n=60, m=60, n_classes=3)
    forest = RandomForestClassifier(5, min_samples_leaf=3)
    model = CoupledClassifier(forest, lams=(0, math.inf), random_state=0, cv=3).fit(X, y, W=W)
    expected = sum(weight * f.predict_proba(X) for weight, f, _ in model.estimators_)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-5)


def test_a_fold_may_leave_one_class_to_an_estimator():
    X, W, y, _ = classes(8, n=40, m=20)
    y[y == 1] = 0
    y[0] = 1
    model = CoupledClassifier(LogisticRegression(), lams=(0, 1.0), max_iter=2, random_state=0).fit(X, y, W=W)
    assert np.isfinite(model.cv_results_["loss"]).all()


class Broken(RegressorMixin, BaseEstimator):
    def fit(self, X, y, sample_weight=None):
        raise ValueError("broken on purpose")

    def predict(self, X):
        return np.zeros(len(X))


def test_an_estimators_own_error_comes_through():
    X, W, y, _ = table()
    with pytest.raises(ValueError, match="broken on purpose"):
        CoupledRegressor(Broken(), lam=1.0).fit(X, y, W=W)


# ---- classes


def logits_loss(theta, X, Z, y, seen, lam, alpha, K):
    """The loss as it is written, without any of the solver's coordinates."""
    p, q = X.shape[1] + 1, Z.shape[1] + 1
    theta = theta.reshape(p + q, -1)
    f = np.hstack([np.ones((len(X), 1)), X]) @ theta[:p]
    g = np.hstack([np.ones((len(Z), 1)), Z]) @ theta[p:]
    P, Q = ((softmax(np.hstack([np.zeros_like(v), v]) if K == 2 else v, axis=1)) for v in (f, g))
    ll = -np.log(P[seen, y[seen]]).sum() - lam * np.log(Q[seen, y[seen]]).sum()
    kl = np.sum(Q[~seen] * np.log(Q[~seen] / P[~seen]))
    return ll + kl + alpha / 2 * np.sum(theta[1:p] ** 2) + lam * alpha / 2 * np.sum(theta[p + 1 :] ** 2)


@pytest.mark.parametrize(("K", "lam"), [(2, 0.3), (2, 10.0), (3, 1.0)])
def test_no_search_finds_a_lower_loss_of_the_classifier(K, lam):
    X, W, y, _ = classes(9, n=40, m=40, p=2, k=2, n_classes=K)
    model = CoupledClassifier(lam=lam, alphas=[1.0], standardize=False).fit(X, y, W=W)
    Z, seen = np.hstack([X, W]), y >= 0
    ours = np.vstack(
        [model.intercept_[None], model.coef_.T, model.privileged_intercept_[None], model.privileged_coef_.T]
    ).ravel()
    arguments = (X, Z, y, seen, lam, 1.0, K)
    assert model.objective_path_[-1] == pytest.approx(logits_loss(ours, *arguments), rel=1e-8)
    assert np.abs(approx_fprime(ours, logits_loss, 1e-6, *arguments)).max() < 1e-3
    found = minimize(logits_loss, ours, args=arguments, method="L-BFGS-B", options={"maxiter": 2000})
    assert logits_loss(ours, *arguments) <= found.fun + 1e-6


def test_the_divergence_and_its_derivatives():
    rng = np.random.default_rng(0)
    for k in (1, 3):
        f, g = rng.normal(0, 3, (6, k)), rng.normal(0, 3, (6, k))
        value, by_f, by_g = divergence(f, g)
        assert (value >= 0).all()
        np.testing.assert_allclose(divergence(f, f)[0], 0, atol=1e-12)
        P, Q = ((softmax(np.hstack([0 * v, v]) if k == 1 else v, axis=1)) for v in (f, g))
        np.testing.assert_allclose(value, np.sum(Q * np.log(Q / P), axis=1))
        for at, given in ((f, by_f), (g, by_g)):
            step = np.zeros((6, k))
            step[:, 0] = 1e-6
            up = divergence(f + step, g)[0] if at is f else divergence(f, g + step)[0]
            np.testing.assert_allclose((up - value) / 1e-6, given[:, 0], atol=1e-4)
        # A label is a soft label of probability 1.
        ll, slope = log_loss(f, np.eye(k)[np.zeros(6, dtype=int)])
        assert (ll > 0).all()
        assert slope.shape == (6, k)


def test_logits_of_any_size_stay_finite():
    value, by_f, by_g = divergence(np.array([[1e4], [-1e4]]), np.array([[-1e4], [1e4]]))
    assert np.isfinite(value).all()
    assert np.isfinite(by_f).all()
    assert np.isfinite(by_g).all()


def test_wide_tables_of_classes():
    """More columns than rows: the rows are turned, and the result is the same as with the columns as they are."""
    X, W, y, _ = classes(10, n=30, m=30, p=5, k=200)
    model = CoupledClassifier(lam=2.0, alphas=[1.0], standardize=False).fit(X, y, W=W)
    assert model.privileged_coef_.shape == (1, 205)
    Z, seen = np.hstack([X, W]), y >= 0
    ours = np.concatenate([model.intercept_, model.coef_[0], model.privileged_intercept_, model.privileged_coef_[0]])
    assert np.abs(approx_fprime(ours, logits_loss, 1e-6, X, Z, y, seen, 2.0, 1.0, 2)).max() < 1e-3


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (np.array([0, 1, -1]), [0, 1]),
        (np.array(["no", "yes", None], dtype=object), ["no", "yes"]),
        (np.array([0.0, 1.0, np.nan]), [0.0, 1.0]),
        (np.array([0, 1, None], dtype=object), [0, 1]),
        (pd.Series(["no", "yes", None], dtype="string"), ["no", "yes"]),
        (pd.Series(["no", "yes", None], dtype="category"), ["no", "yes"]),
        (pd.Series([3, 7, None], dtype="Int64"), [3, 7]),
    ],
)
def test_labels_of_every_kind(labels, expected):
    X, W, y, _ = classes(11)
    given = labels[y] if isinstance(labels, np.ndarray) else labels.iloc[y].reset_index(drop=True)
    model = CoupledClassifier(lams=(0, 1.0), alphas=(1.0,), random_state=0).fit(X, given, W=W)
    assert model.classes_.tolist() == expected
    assert model.n_unlabelled_ == 200
    assert set(model.predict(X)) <= set(expected)
    plain = CoupledClassifier(lams=(0, 1.0), alphas=(1.0,), random_state=0).fit(X, y, W=W)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("n_classes", [2, 3, 4])
def test_each_fold_has_its_share_of_every_class(monkeypatch, n_classes):
    from assay.learning.joint_privileged import base

    X, W, y, _ = classes(11, n_classes=n_classes)
    folds = []

    def spy(n, k, random_state, strata):
        np.testing.assert_array_equal(strata, y[y >= 0])
        folds.extend(dealt(n, k, random_state, strata))
        return folds

    dealt = base.dealt
    monkeypatch.setattr(base, "dealt", spy)
    CoupledClassifier(lams=(0, 1.0), alphas=(1.0,), random_state=0).fit(X, y, W=W)
    counts = np.array([np.bincount(y[y >= 0][part], minlength=n_classes) for part in folds])
    assert np.ptp(counts, axis=0).max() <= 1


def test_class_weights_are_weights_of_the_labels():
    X, W, y, _ = classes(12)
    X, W, y = (
        np.vstack([X[y == 1][:10], X[y != 1]]),
        np.vstack([W[y == 1][:10], W[y != 1]]),
        np.r_[np.ones(10, int), y[y != 1]],
    )
    options = {"lam": 0, "alphas": [1.0]}
    seen = y >= 0
    model = CoupledClassifier(**options, class_weight="balanced").fit(X, y, W=W)
    scaler = StandardScaler().fit(X)
    peer = LogisticRegression(class_weight="balanced", tol=1e-10).fit(scaler.transform(X[seen]), y[seen])
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(scaler.transform(X)), atol=1e-5)
    given = CoupledClassifier(**options, class_weight={0: 1.0, 1: 5.0}).fit(X, y, W=W)
    weight = np.where(y == 1, 5.0, 1.0)
    peer = LogisticRegression(tol=1e-10).fit(scaler.transform(X[seen]), y[seen], sample_weight=weight[seen])
    np.testing.assert_allclose(given.predict_proba(X), peer.predict_proba(scaler.transform(X)), atol=1e-5)
    for bad in ("even", {0: -1.0}, {1: math.nan}):
        with pytest.raises(InputError, match="class_weight"):
            CoupledClassifier(**options, class_weight=bad).fit(X, y, W=W)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.where(np.arange(260) < 60, 1, -1)}, "one class only, .*at least 2 classes"),
        ({"y": np.full(260, -1)}, "at least one label"),
        ({"y": np.linspace(0, 1, 260)}, "Unknown label type"),
        ({"y": None}, "requires y"),
    ],
)
def test_bad_labels_are_refused(change, message):
    X, W, y, _ = classes(13)
    with pytest.raises(ValueError, match=message):
        CoupledClassifier().fit(**{"X": X, "y": y, "W": W, **change})


def test_parameters_of_the_classifier():
    X, W, y, _ = classes(13)
    for parameters, message in (
        ({"solver": "greedy"}, "solver must be one of 'auto', 'direct', 'alternating'"),
        ({"solver": "alternating"}, "needs an estimator"),
    ):
        with pytest.raises(InputError, match=message):
            CoupledClassifier(**parameters).fit(X, y, W=W)
    with pytest.raises(TypeError, match="has no predict_proba"):
        CoupledClassifier(Ridge()).fit(X, y, W=W)


# ---- few of many columns


def sparse(n=60, m=300, p=200, k=60, seed=0, noise=0.0):
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((n + m, p)), rng.standard_normal((n + m, k))
    full = 3 * X[:, 4] - 2 * X[:, 17] + 2 * W[:, 3] + noise * rng.standard_normal(n + m)
    return X, W, np.where(np.arange(n + m) < n, full, np.nan), full


def test_greedy_finds_the_columns_that_matter():
    X, W, y, _ = sparse()
    model = CoupledRegressor(solver="greedy", n_atoms=3, lam=10.0, alphas=[1e-8]).fit(X, y, W=W)
    assert set(np.flatnonzero(np.abs(model.coef_) > 0.5)) == {4, 17}
    assert set(np.flatnonzero(model.privileged_coef_)) == {4, 17, 203}
    np.testing.assert_allclose(model.coef_[[4, 17]], [3, -2], atol=0.5)
    assert model.privileged_coef_[203] > 1  # between f, which has no W, and the labels
    assert np.count_nonzero(model.coef_) == 3
    assert (np.diff(model.objective_path_) <= 1e-9).all()
    assert model.n_iter_ == 3


def test_greedy_without_W_is_matching_pursuit_on_the_labels():
    from sklearn.linear_model import OrthogonalMatchingPursuit

    X, W, y, _ = sparse(noise=1.0, m=0, n=80)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        model = CoupledRegressor(solver="greedy", n_atoms=5, lam=0, alphas=[0.0]).fit(X, y, W=W)
    peer = OrthogonalMatchingPursuit(n_nonzero_coefs=5).fit(X, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-8)
    np.testing.assert_allclose(model.predict(X), peer.predict(X), atol=1e-8)


def test_greedy_with_all_columns_is_the_direct_solution():
    X, W, y, _ = table(14)
    greedy = CoupledRegressor(solver="greedy", n_atoms=7, lam=2.0, alphas=[1.0]).fit(X, y, W=W)
    direct = CoupledRegressor(lam=2.0, alphas=[1.0]).fit(X, y, W=W)
    np.testing.assert_allclose(greedy.predict(X), direct.predict(X), atol=1e-8)
    np.testing.assert_allclose(greedy.predict_privileged(X, W), direct.predict_privileged(X, W), atol=1e-8)


@pytest.mark.parametrize("lam", ["cv", "aggregate"])
def test_greedy_chooses_how_many_columns(lam):
    X, W, y, full = sparse(noise=0.5)
    model = CoupledRegressor(solver="greedy", lam=lam, lams=(0, 3.0, math.inf), random_state=0).fit(X, y, W=W)
    assert set(model.cv_results_["n_atoms"]) == {1, 2, 3, 5, 8, 12, 20, 30}
    assert (model.cv_results_["alpha"] == 0).all()
    assert np.mean((model.predict(X) - full) ** 2) < 0.6 * np.var(full)
    few = CoupledRegressor(solver="greedy", lam=lam, n_atoms=[2, 4], lams=(1.0,), random_state=0).fit(X, y, W=W)
    assert set(few.cv_results_["n_atoms"]) == {2, 4}


def test_very_many_columns_take_memory_like_the_table():
    rng = np.random.default_rng(0)
    n, m, p = 30, 50, 20_000
    X, W = rng.standard_normal((n + m, p)), rng.standard_normal((n + m, 5))
    y = np.where(np.arange(n + m) < n, X[:, 7] + W[:, 0], np.nan)
    tracemalloc.start()
    model = CoupledRegressor(solver="greedy", lams=(0, 1.0), n_atoms=[1, 3], cv=3, random_state=0).fit(X, y, W=W)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.isfinite(model.predict(X)).all()
    assert peak < 8 * X.nbytes  # and p * p numbers would be 250 times as much


def test_auto_is_direct_unless_both_rows_and_columns_are_many(monkeypatch):
    from assay.learning.joint_privileged import base

    X, W, y, _ = table()  # 3 columns for f and 7 for g
    model = CoupledRegressor(lams=(0, 1.0), random_state=0)
    monkeypatch.setattr(base, "WIDEST", 9)
    assert set(model.fit(X, y, W=W).cv_results_["n_atoms"]) == {1, 2, 3, 5, 8, 12, 20, 30}
    monkeypatch.setattr(base, "WIDEST", 10)
    assert set(model.fit(X, y, W=W).cv_results_["n_atoms"]) == {0}


def test_wide_tables_are_solved_in_the_space_of_their_rows():
    X, W, y, _ = table(15, n=20, m=30, p=4, k=300)
    Z, seen = np.hstack([X, W]), ~np.isnan(y)
    model = CoupledRegressor(lam=math.inf, alphas=[2.0], standardize=False).fit(X, y, W=W)
    teacher = Ridge(2.0).fit(Z[seen], y[seen])
    np.testing.assert_allclose(model.privileged_coef_, teacher.coef_, atol=1e-8)
