import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from coupled_tables import classes, table
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from assay.errors import InputError
from assay.learning.joint_privileged import CoupledClassifier, CoupledRegressor, LabelledKFold

BOTH = [(CoupledRegressor, table), (CoupledClassifier, classes)]

# scikit-learn's checks that cannot hold, each with its reason.
WITHOUT_W = "a gap in the only privileged column means that the row has no W; privileged=[1] passes this check"
ONE_COLUMN = "one of the two columns of its table is privileged, and the other one alone cannot be that accurate"
MINUS_ONE = "its labels are -1 and 1, and -1 means unlabelled, as in scikit-learn's semi-supervised estimators"
EXCEPTIONS = {
    CoupledRegressor: {"check_estimators_nan_inf": WITHOUT_W},
    CoupledClassifier: {
        "check_estimators_nan_inf": WITHOUT_W,
        "check_classifiers_train": ONE_COLUMN,
        "check_classifiers_classes": MINUS_ONE,
    },
}


def few(cls, **parameters):
    """An estimator with few candidates, so that the many fits of a check stay quick."""
    return cls(lams=(0, 1.0, math.inf), alphas=(3.0,), random_state=0, **parameters)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", [CoupledRegressor, CoupledClassifier])
def test_scikit_learns_checks_pass_but_for_named_ones(cls):
    results = check_estimator(few(cls, privileged=[0]), on_fail=None, on_skip=None)
    failed = {r["check_name"] for r in results if r["status"] == "failed"}
    assert failed == set(EXCEPTIONS[cls])
    assert len(results) > 50
    # The check of NaN puts its NaN into column 0.
    from sklearn.utils import estimator_checks

    estimator_checks.check_estimators_nan_inf(cls.__name__, few(cls, privileged=[1]))


@pytest.mark.parametrize("alpha", [0.3, 30.0])
def test_the_ends_are_scikit_learns_ridge_on_standardised_columns(alpha):
    X, W, y, _ = table(1)
    X, W = X * [1, 100, 0.01] + 5, W * 7
    Z, seen = np.hstack([X, W]), ~np.isnan(y)
    ours = CoupledRegressor(lam=0, alphas=[alpha]).fit(X, y, W=W)
    sx, sz = StandardScaler().fit(X), StandardScaler().fit(Z)
    first = Ridge(alpha).fit(sx.transform(X[seen]), y[seen])
    np.testing.assert_allclose(ours.predict(X), first.predict(sx.transform(X)), atol=1e-8)
    np.testing.assert_allclose(ours.predict_privileged(X, W), ours.predict(X), atol=1e-8)
    ours = CoupledRegressor(lam=math.inf, alphas=[alpha]).fit(X, y, W=W)
    teacher = Ridge(alpha).fit(sz.transform(Z[seen]), y[seen])
    said = np.where(seen, np.nan_to_num(y), teacher.predict(sz.transform(Z)))
    student = Ridge(alpha).fit(sx.transform(X), said)
    np.testing.assert_allclose(ours.predict_privileged(X, W), teacher.predict(sz.transform(Z)), atol=1e-8)
    np.testing.assert_allclose(ours.predict(X), student.predict(sx.transform(X)), atol=1e-8)


def test_without_standardising_the_ends_are_ridge_on_the_columns_as_they_are():
    X, W, y, _ = table(2)
    seen = ~np.isnan(y)
    ours = CoupledRegressor(lam=0, alphas=[5.0], standardize=False).fit(X, y, W=W)
    plain = Ridge(5.0).fit(X[seen], y[seen])
    np.testing.assert_allclose(ours.coef_, plain.coef_, atol=1e-8)
    assert ours.intercept_ == pytest.approx(plain.intercept_, abs=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_classifiers_ends_are_logistic_regressions(n_classes):
    X, W, y, _ = classes(3, n_classes=n_classes)
    Z, seen = np.hstack([X, W]), y >= 0
    sx, sz = StandardScaler().fit(X), StandardScaler().fit(Z)
    options = {"C": 1 / 3, "tol": 1e-10, "max_iter": 2000}
    ours = CoupledClassifier(lam=0, alphas=[3.0]).fit(X, y, W=W)
    first = LogisticRegression(**options).fit(sx.transform(X[seen]), y[seen])
    np.testing.assert_allclose(ours.predict_proba(X), first.predict_proba(sx.transform(X)), atol=1e-5)
    ours = CoupledClassifier(lam=math.inf, alphas=[3.0]).fit(X, y, W=W)
    teacher = LogisticRegression(**options).fit(sz.transform(Z[seen]), y[seen])
    chances = teacher.predict_proba(sz.transform(Z[~seen]))
    # Soft labels: each row once a class, with its probability as its weight.
    rows = np.vstack([X[seen], *[X[~seen]] * n_classes])
    target = np.concatenate([y[seen], np.repeat(np.arange(n_classes), (~seen).sum())])
    weight = np.concatenate([np.ones(seen.sum()), chances.T.ravel()])
    student = LogisticRegression(**options).fit(sx.transform(rows), target, sample_weight=weight)
    np.testing.assert_allclose(ours.predict_proba(X), student.predict_proba(sx.transform(X)), atol=1e-5)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_privileged_columns_of_X_are_the_same_as_W(cls, make):
    X, W, y, _ = make()
    expected = few(cls).fit(X, y, W=W)
    whole = np.hstack([W[:, :2], X, W[:, 2:]])
    order = [0, 1, 5, 6]
    named = [f"c{j}" for j in range(whole.shape[1])]
    frame = pd.DataFrame(whole, columns=named)
    ways = {
        "positions": (whole, order),
        "from the end": (whole, [0, 1, -2, -1]),
        "truth values": (whole, [True, True, False, False, False, True, True]),
        "names": (frame, [named[j] for j in order]),
        "positions in a frame": (frame, order),
        "an index": (frame, pd.Index([named[j] for j in order])),
        "a function": (frame, lambda X: [c for c in X.columns if c not in ("c2", "c3", "c4")]),
    }
    for way, (given, privileged) in ways.items():
        model = few(cls, privileged=privileged).fit(given, y)
        np.testing.assert_array_equal(model.privileged_indices_, order, err_msg=way)
        np.testing.assert_allclose(model.predict(given), expected.predict(X), err_msg=way)
        np.testing.assert_allclose(model.predict_privileged(given), expected.predict_privileged(X, W), err_msg=way)
        # New rows do not have them.
        bare = given.drop(columns=[named[j] for j in order]) if isinstance(given, pd.DataFrame) else X
        np.testing.assert_allclose(model.predict(bare), expected.predict(X), err_msg=way)
    some = frame.drop(columns=["c1", "c6"])
    np.testing.assert_allclose(
        few(cls, privileged=named[:2] + named[5:]).fit(frame, y).predict(some), expected.predict(X)
    )
    # What stands in the privileged columns of new rows is never looked at.
    spoilt = frame.assign(c0=np.nan, c5=np.inf, c6="unknown")
    np.testing.assert_allclose(
        few(cls, privileged=named[:2] + named[5:]).fit(frame, y).predict(spoilt), expected.predict(X)
    )


def test_a_single_slice_is_understood():
    X, W, y, _ = table()
    model = few(CoupledRegressor, privileged=slice(3, None)).fit(np.hstack([X, W]), y)
    assert model.privileged_indices_.tolist() == [3, 4, 5, 6]


def test_names_are_kept_and_checked():
    X, W, y, _ = table()
    frame = pd.DataFrame(np.hstack([X, W]), columns=list("abcdefg"))
    model = few(CoupledRegressor, privileged=list("defg")).fit(frame, y)
    assert model.feature_names_in_.tolist() == list("abcdefg")
    assert model.n_features_in_ == 7
    with pytest.raises(ValueError, match=r"(?s)feature names.*order"):
        model.predict(frame[["b", "a", "c"]])
    with pytest.raises(ValueError, match="missing"):
        model.predict(frame[["a", "b"]])
    bare = few(CoupledRegressor, privileged=[3, 4, 5, 6]).fit(frame.to_numpy(), y)
    with pytest.raises(ValueError, match="2 features"):
        bare.predict(X[:, :2])


def test_coefficients_are_in_the_callers_units():
    X, W, y, _ = table()
    X, W = X * 1000 - 3, W / 50
    model = few(CoupledRegressor).fit(X, y, W=W)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X))
    Z = np.hstack([X, W])
    np.testing.assert_allclose(Z @ model.privileged_coef_ + model.privileged_intercept_, model.predict_privileged(X, W))


def test_constant_columns_have_coefficient_0_and_a_constant_W_makes_g_a_function_of_X():
    X, W, y, _ = table()
    X[:, 1] = 1e9 / 3
    model = few(CoupledRegressor).fit(X, y, W=np.full_like(W, 0.1))
    assert model.coef_[1] == 0
    np.testing.assert_array_equal(model.privileged_coef_[3:], 0)
    other = few(CoupledRegressor).fit(np.delete(X, 1, axis=1), y, W=np.ones((len(X), 1)))
    np.testing.assert_allclose(model.predict(X), other.predict(np.delete(X, 1, axis=1)), atol=1e-9)
    everywhere = few(CoupledRegressor).fit(np.ones((len(X), 2)), y, W=W)
    np.testing.assert_allclose(everywhere.predict(np.ones((1, 2))), everywhere.intercept_)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_weights(cls, make):
    X, W, y, _ = make(n=40, m=60)
    rng = np.random.default_rng(0)
    fixed = cls(lam=2.0, alphas=[1.0])
    plain = fixed.fit(X, y, W=W)
    expected = _soft(plain, X)
    # All rows twice with half the weight.
    twice = clone(fixed).fit(
        np.vstack([X, X]), np.concatenate([y, y]), W=np.vstack([W, W]), sample_weight=np.full(2 * len(X), 0.5)
    )
    np.testing.assert_allclose(_soft(twice, X), expected, atol=1e-4 if cls is CoupledClassifier else 1e-9)
    # A weight of 3 is a row thrice.
    weight = rng.integers(1, 4, len(X))
    rows = np.repeat(np.arange(len(X)), weight)
    np.testing.assert_allclose(
        _soft(clone(fixed).fit(X, y, W=W, sample_weight=weight), X),
        _soft(clone(fixed).fit(X[rows], y[rows], W=W[rows]), X),
        atol=1e-4 if cls is CoupledClassifier else 1e-9,
    )
    # A row of weight 0 is not there, with a label or without, whatever is chosen.
    more = np.vstack([X, 100 * np.ones((2, 3))])
    targets = np.concatenate([y, [1, y[-1]]])
    weight = np.concatenate([np.ones(len(X)), [0, 0]])
    model = few(cls).fit(more, targets, W=np.vstack([W, -50 * np.ones((2, 4))]), sample_weight=weight)
    np.testing.assert_allclose(_soft(model, X), _soft(few(cls).fit(X, y, W=W), X), atol=1e-12)
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        few(cls).fit(X, y, W=W, sample_weight=-np.ones(len(X)))


def _soft(model, X):
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_order_of_rows_and_columns_and_scale_of_W_do_not_matter(cls, make):
    X, W, y, _ = make(n=40, m=60)
    model = cls(lam=3.0, alphas=[1.0])
    expected = _soft(model.fit(X, y, W=W), X)
    tolerance = 1e-4 if cls is CoupledClassifier else 1e-8
    rows = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(_soft(clone(model).fit(X[rows], y[rows], W=W[rows]), X), expected, atol=tolerance)
    scaled = clone(model).fit(X[:, ::-1], y, W=W[:, ::-1] * 1e5 - 7)
    np.testing.assert_allclose(_soft(scaled, X[:, ::-1]), expected, atol=tolerance)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_rows_without_W(cls, make):
    X, W, y, _ = make(n=40, m=60)
    gone = W.copy()
    gone[-10:] = np.nan
    with pytest.warns(UserWarning, match="10 unlabelled rows have no W"):
        model = few(cls).fit(X, y, W=gone)
    assert (model.n_labelled_, model.n_unlabelled_, model.n_unlabelled_without_W_) == (40, 50, 10)
    np.testing.assert_allclose(_soft(model, X), _soft(few(cls).fit(X[:-10], y[:-10], W=W[:-10]), X), atol=1e-12)
    # A labelled row counts for f: with lam = 0 it makes no difference whether it has W.
    gone = W.copy()
    gone[:15] = np.nan
    np.testing.assert_allclose(
        _soft(cls(lam=0, alphas=[1.0]).fit(X, y, W=gone), X), _soft(cls(lam=0, alphas=[1.0]).fit(X, y, W=W), X)
    )
    # For g it does not: that is fitted to the labels of the others.
    options = {"lam": math.inf, "alphas": [0.5], "standardize": False}
    model, rest = cls(**options).fit(X, y, W=gone), cls(**options).fit(X[15:], y[15:], W=W[15:])
    np.testing.assert_allclose(model.privileged_coef_, rest.privileged_coef_, atol=1e-6)
    gone[3, 0] = 1.0
    gone[20, 2] = np.nan
    with pytest.raises(InputError, match=r"missing in part in 2 rows, in the columns 1, 2, 3: impute"):
        few(cls).fit(X, y, W=gone)
    names = pd.DataFrame(gone, columns=list("stuv"))
    with pytest.raises(InputError, match="in the columns t, u, v"):
        few(cls).fit(X, y, W=names)
    with pytest.raises(InputError, match="W is missing in every labelled row"):
        few(cls).fit(X, y, W=np.where(np.arange(len(X))[:, None] < 40, np.nan, W))


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_all_rows_labelled(cls, make):
    X, W, y, _ = make(n=40, m=0)
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        model = cls(lam=2.0, alphas=[1.0]).fit(X, y, W=W)
    with pytest.warns(UserWarning, match="no unlabelled rows"):
        other = cls(lam=0, alphas=[1.0]).fit(X, y, W=W)
    np.testing.assert_allclose(_soft(model, X), _soft(other, X), atol=1e-5 if cls is CoupledClassifier else 1e-8)


def test_few_labels():
    X, W, y, _ = table(n=7)
    with pytest.warns(
        UserWarning, match="7 labels are fewer than two for each of cv=5 folds; each label is now a fold"
    ):
        model = CoupledRegressor().fit(X, y, W=W)
    assert model.cv_results_["n"][0] == 7
    X, W, y, _ = table(n=2)
    with pytest.raises(InputError, match="y has 2 labels, and at least 3 are needed"):
        CoupledRegressor().fit(X, y, W=W)
    for n in (1, 2):
        X, W, y, _ = table(n=n)
        assert np.isfinite(CoupledRegressor(lam=1.0, alphas=[1.0]).fit(X, y, W=W).predict(X)).all()


def test_what_is_averaged_and_what_is_chosen():
    X, W, y, _ = table(5)
    averaged = CoupledRegressor(random_state=0).fit(X, y, W=W)
    results = averaged.cv_results_
    assert {key: len(value) for key, value in results.items()} == dict.fromkeys(
        ("lam", "alpha", "n_atoms", "loss", "n"), 30
    )
    # The weights fall with the losses as said, and the model is the average of the candidates.
    expected = np.exp(-40 * (results["loss"] / results["loss"].min() - 1) / 2)
    weights = averaged.lam_weights_
    assert sum(weights.values()) == pytest.approx(1)
    for alpha, lam, weight in zip(results["alpha"], results["lam"], expected / expected.sum(), strict=True):
        assert weights.get((alpha, lam), 0) == pytest.approx(weight, abs=1e-12)
    by_hand = sum(
        weight * CoupledRegressor(lam=lam, alphas=[alpha]).fit(X, y, W=W).predict(X)
        for (alpha, lam), weight in weights.items()
    )
    np.testing.assert_allclose(averaged.predict(X), by_hand, atol=1e-9)
    chosen = CoupledRegressor(lam="cv", random_state=0).fit(X, y, W=W)
    best = int(results["loss"].argmin())
    assert chosen.lam_weights_ == {(results["alpha"][best], results["lam"][best]): 1.0}
    assert chosen.lam_ == averaged.lam_ == results["lam"][best]
    alone = CoupledRegressor(lam=results["lam"][best], alphas=[results["alpha"][best]]).fit(X, y, W=W)
    np.testing.assert_allclose(chosen.predict(X), alone.predict(X), atol=1e-10)


def test_held_out_losses_are_those_of_fits_without_the_labels():
    """Held-out rows lose their label, and keep their W as unlabelled rows."""
    X, W, y, full = table(6, n=20, m=50)
    splits = list(LabelledKFold(4, random_state=1).split(X, y))
    model = CoupledRegressor(lams=(0.5, math.inf), alphas=(2.0,), cv=splits).fit(X, y, W=W)
    for j, lam in enumerate((0.5, math.inf)):
        wrong = []
        for _, test in splits:
            hidden = y.copy()
            hidden[test] = np.nan
            said = CoupledRegressor(lam=lam, alphas=[2.0]).fit(X, hidden, W=W).predict(X[test])
            wrong.append((said - full[test]) ** 2)
        assert model.cv_results_["loss"][j] == pytest.approx(np.mean(np.concatenate(wrong)))


def test_value_report_says_whether_W_helped():
    rng = np.random.default_rng(0)
    W = rng.standard_normal((600, 3))
    X = W + 0.5 * rng.standard_normal((600, 3))
    full = 3 * W.sum(axis=1) + 0.1 * rng.standard_normal(600)
    y = np.where(np.arange(600) < 40, full, np.nan)
    report = CoupledRegressor(random_state=0).fit(X, y, W=W).value_report()
    assert set(report) == {"labelled_loss", "two_stage_loss", "coupled_loss", "gain", "gain_se"}
    assert report["gain"] == pytest.approx(report["labelled_loss"] - report["coupled_loss"])
    assert report["gain"] > 2 * report["gain_se"] > 0
    noise = CoupledRegressor(random_state=0).fit(X, y, W=rng.standard_normal((600, 30))).value_report()
    assert noise["gain"] < report["gain"] / 4
    with pytest.raises(InputError, match="one candidate"):
        CoupledRegressor(lam=1.0, alphas=[1.0]).fit(X, y, W=W).value_report()
    with pytest.raises(NotFittedError):
        CoupledRegressor().value_report()
    assert CoupledRegressor(lams=(1.0, 2.0)).fit(X, y, W=W).value_report()["labelled_loss"] is None


def test_same_seed_same_result_and_no_global_seeding():
    X, W, y, _ = table()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, other = (CoupledRegressor(random_state=3).fit(X, y, W=W) for _ in range(2))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert not np.array_equal(one.coef_, CoupledRegressor(random_state=4).fit(X, y, W=W).coef_)


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_clone_parameters_and_pickle(cls, make):
    X, W, y, _ = make()
    model = few(cls).fit(X, y, W=W)
    assert clone(model).get_params() == model.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_pipelines_and_searches_with_gaps_in_the_target():
    X, W, y, full = table(7, n=50)
    frame = pd.DataFrame(np.hstack([X, W]), columns=["a", "b", "c", "w1", "w2", "w3", "w4"])
    privileged = ["w1", "w2", "w3", "w4"]
    scaled = make_pipeline(
        StandardScaler().set_output(transform="pandas"), CoupledRegressor(privileged=privileged, random_state=0)
    )
    folds = LabelledKFold(5, random_state=0)
    scores = cross_val_score(scaled, frame, y, cv=folds)
    assert scores.shape == (5,)
    assert np.isfinite(scores).all()
    search = GridSearchCV(
        CoupledRegressor(privileged=privileged, alphas=[1.0]),
        {"lam": [0.0, 1.0, math.inf]},
        cv=folds,
        scoring="neg_mean_squared_error",
    ).fit(frame, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(frame[["a", "b", "c"]]).shape == (250,)
    labels = np.where(np.isnan(y), None, np.where(full > 0, "high", "low"))
    scores = cross_val_score(few(CoupledClassifier, privileged=privileged), frame, labels.astype(object), cv=folds)
    assert scores.mean() > 0.6


def test_W_is_routed():
    X, W, y, _ = table(8, n=50)
    with sklearn.config_context(enable_metadata_routing=True):
        model = few(CoupledRegressor).set_fit_request(W=True, sample_weight=False)
        pipeline = make_pipeline(StandardScaler(), model).fit(X, y, W=W)
        expected = few(CoupledRegressor).fit(StandardScaler().fit_transform(X), y, W=W)
        np.testing.assert_allclose(pipeline.predict(X), expected.predict(StandardScaler().fit_transform(X)))
        search = GridSearchCV(
            few(CoupledRegressor).set_fit_request(W=True, sample_weight=False),
            {"standardize": [True, False]},
            cv=LabelledKFold(3, random_state=0),
        ).fit(X, y, W=W)
        assert np.isfinite(search.best_score_)
    assert "W" in CoupledClassifier().get_metadata_routing()._serialize()["fit"]


def test_labelled_kfold():
    y = np.array([0.0, np.nan, 1, 2, np.nan, 3, 4, 5])
    parts = list(LabelledKFold(3, random_state=0).split(None, y))
    assert sorted(np.concatenate([test for _, test in parts])) == [0, 2, 3, 5, 6, 7]
    for train, test in parts:
        assert {1, 4} <= set(train)
        assert sorted([*train, *test]) == list(range(8))
    # Classes are spread; -1 is no class among integers, and one among floats.
    labels = np.array([0, 1, -1, 0, 1, 0, 1, -1])
    for _, test in LabelledKFold(3, random_state=0).split(None, labels):
        assert sorted(labels[test]) == [0, 1]
    assert sum(len(t) for _, t in LabelledKFold(2, task="regression").split(None, labels)) == 8
    assert sum(len(t) for _, t in LabelledKFold(2).split(None, np.array(["a", None, "b", "a", "b"], dtype=object))) == 4
    assert LabelledKFold(4).get_n_splits() == 4
    assert "n_splits=4" in repr(LabelledKFold(4))
    same = [[t.tolist() for _, t in LabelledKFold(3, random_state=5).split(None, y)] for _ in range(2)]
    assert same[0] == same[1]
    for bad, message in (
        (lambda: LabelledKFold(1), "n_splits"),
        (lambda: LabelledKFold(True), "n_splits"),
        (lambda: LabelledKFold(task="other"), "task"),
        (lambda: list(LabelledKFold(7).split(None, y)), "more than the number of labelled rows, 6"),
        (lambda: list(LabelledKFold(2).split(None)), "needs y"),
    ):
        with pytest.raises(InputError, match=message):
            bad()


def test_splitters_of_scikit_learn_hold_out_the_labels_among_their_test_rows():
    X, W, y, _ = table(9, n=30, m=30)
    model = few(CoupledRegressor).set_params(cv=KFold(3, shuffle=True, random_state=0)).fit(X, y, W=W)
    assert np.isfinite(model.cv_results_["loss"]).all()
    nothing = [(np.arange(30), np.arange(30, 60))]
    with pytest.raises(InputError, match="hold out some of the 30 labelled rows at a time"):
        few(CoupledRegressor).set_params(cv=nothing).fit(X, y, W=W)
    with pytest.raises(InputError, match="cannot split"):
        few(CoupledRegressor).set_params(cv="many").fit(X, y, W=W)


X0, W0, Y0, _ = table(n=20, m=20)
BAD_FITS = [
    ({}, {"W": None}, InputError, "where is W"),
    ({"privileged": [0]}, {}, InputError, "give one of the two"),
    ({"privileged": ["a"]}, {"W": None}, InputError, "X has no column names"),
    ({"privileged": [7]}, {"W": None}, InputError, "privileged names the column 7, and X has 3 columns"),
    ({"privileged": [True]}, {"W": None}, InputError, "1 truth values, and X has 3"),
    ({"privileged": []}, {"W": None}, InputError, "names no column"),
    ({"privileged": 1.5}, {"W": None}, InputError, "privileged must be names or positions"),
    ({"privileged": [1.5]}, {"W": None}, InputError, "must hold names or positions"),
    ({"privileged": slice("a", "b")}, {"W": None}, InputError, "slice of names"),
    ({"privileged": [0, 1, 2]}, {"W": None}, InputError, r"3 feature\(s\), all of them privileged"),
    ({}, {"W": W0[:-1]}, InputError, "W must have as many rows as X, 40; it has 39"),
    ({}, {"W": np.zeros((40, 0))}, InputError, "W has no columns"),
    ({}, {"W": np.where(W0 > 2, np.inf, W0)}, InputError, "W must be finite"),
    ({}, {"W": pd.DataFrame({"w": ["x"] * 40})}, InputError, "W has columns that are not numbers: 'w'"),
    ({}, {"y": np.full(40, np.nan)}, InputError, "at least one label"),
    ({}, {"y": None}, InputError, "requires y"),
    ({}, {"y": Y0[:-1]}, ValueError, "y has 39"),
    ({}, {"y": np.where(np.isnan(Y0), np.inf, Y0)}, InputError, "Input y contains infinity"),
    ({}, {"y": ["a"] * 40}, ValueError, "y must be numbers"),
    ({}, {"y": np.column_stack([Y0, Y0])}, ValueError, "1d array"),
    ({}, {"X": np.where(X0 > 2, np.nan, X0)}, ValueError, "Input X contains NaN"),
    ({}, {"X": np.where(X0 > 2, np.inf, X0)}, ValueError, "Input X contains infinity"),
    ({}, {"X": X0[:, 0]}, ValueError, "Expected 2D array"),
    ({}, {"X": pd.DataFrame({"a": ["x"] * 40, "b": range(40)})}, InputError, "'a'; encode them first, e.g. with a Col"),
    ({}, {"sample_weight": np.zeros(40)}, ValueError, "at least one non-zero"),
    ({"lam": -1}, {}, InputError, "lam must be"),
    ({"lam": math.nan}, {}, InputError, "lam must be"),
    ({"lam": "mean"}, {}, InputError, "lam must be"),
    ({"lams": ()}, {}, InputError, "lams must be a list"),
    ({"lams": (1, -1)}, {}, InputError, "lams must be numbers"),
    ({"lams": "aggregate"}, {}, InputError, "lams must be a list"),
    ({"alphas": (math.inf,)}, {}, InputError, "alphas must be numbers"),
    ({"alphas": 3.0}, {}, InputError, "alphas must be a list"),
    ({"solver": "newton"}, {}, InputError, "solver must be one of"),
    ({"solver": "greedy", "estimator": Ridge()}, {}, InputError, "is for the linear model"),
    ({"privileged_estimator": Ridge()}, {}, InputError, "estimator is not"),
    ({"max_iter": 0}, {}, InputError, "max_iter"),
    ({"tol": -1}, {}, InputError, "tol"),
    ({"n_atoms": 0}, {}, InputError, "n_atoms"),
    ({"n_atoms": [1.5]}, {}, InputError, "n_atoms"),
    ({"cv": 1}, {}, InputError, "cv"),
    (
        {"estimator": KNeighborsRegressor()},
        {},
        TypeError,
        r"estimator=KNeighborsRegressor\(\) does not take sample_weight",
    ),
    ({"estimator": Ridge}, {}, TypeError, "estimator must be an estimator"),
    ({"estimator": StandardScaler()}, {}, TypeError, "has no predict"),
    (
        {"estimator": Ridge(), "privileged_estimator": KNeighborsRegressor()},
        {},
        TypeError,
        "privileged_estimator=KNeighborsRegressor",
    ),
]


@pytest.mark.parametrize(("parameters", "given", "error", "message"), BAD_FITS)
def test_bad_fits_are_refused_by_name(parameters, given, error, message):
    given = {"X": X0, "y": Y0, "W": W0, **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=message):
            CoupledRegressor(**parameters).fit(**given)


def test_unknown_names_are_told_with_those_that_are_near():
    frame = pd.DataFrame(np.hstack([X0, W0]), columns=["age", "sex", "bmi", "crea1", "bili1", "sod1", "pot1"])
    with pytest.raises(InputError, match="'crea', which X does not have; near it are 'crea1'"):
        CoupledRegressor(privileged=["crea"]).fit(frame, Y0)
    doubled = frame.rename(columns={"bili1": "crea1"})
    with pytest.raises(InputError, match="X has two columns of the name 'crea1'"):
        CoupledRegressor(privileged=["crea1"]).fit(doubled, Y0)


def test_bad_predictions_are_refused():
    model = few(CoupledRegressor).fit(X0, Y0, W=W0)
    for call in (lambda m: m.predict(X0), lambda m: m.predict_privileged(X0, W0)):
        with pytest.raises(NotFittedError):
            call(CoupledRegressor())
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.predict(np.full((2, 3), np.nan))
    with pytest.raises(InputError, match="W is needed"):
        model.predict_privileged(X0)
    with pytest.raises(InputError, match="W has 3 columns, and had 4"):
        model.predict_privileged(X0, W0[:, :3])
    with pytest.raises(InputError, match="W must have as many rows"):
        model.predict_privileged(X0, W0[:5])
    with pytest.raises(InputError, match="missing values in 40 rows"):
        model.predict_privileged(X0, np.full_like(W0, np.nan))
    inside = few(CoupledRegressor, privileged=[0]).fit(X0, Y0)
    with pytest.raises(InputError, match="takes it from X"):
        inside.predict_privileged(X0, W0)


def test_W_by_another_index_is_refused():
    frame, W = pd.DataFrame(X0), pd.DataFrame(W0, index=np.arange(40)[::-1])
    with pytest.raises(InputError, match="different indexes"):
        CoupledRegressor().fit(frame, Y0, W=W)


def test_numbers_near_the_ends_of_float64():
    X, W, y, _ = table(n=20, m=20)
    plain = few(CoupledRegressor).fit(X, y, W=W).predict(X)
    for factor in (1e-140, 1e140):
        model = few(CoupledRegressor).fit(X * factor, y * factor, W=W * factor)
        np.testing.assert_allclose(model.predict(X * factor) / factor, plain, rtol=1e-6, atol=1e-8)
    with pytest.raises(InputError, match="y has values so large"):
        few(CoupledRegressor).fit(X, y * 1e200, W=W)


def test_it_works_within_a_transformed_target():
    X, W, y, _ = table(n=30, m=0)
    whole = np.hstack([X, W])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TransformedTargetRegressor(
            few(CoupledRegressor, privileged=[3, 4, 5, 6]), func=np.sinh, inverse_func=np.arcsinh
        )
        assert np.isfinite(model.fit(whole, y).predict(whole)).all()


@pytest.mark.parametrize(
    ("parameters", "given", "error", "message"),
    [
        ({}, {"X": np.where(X0 > 0, "a", "b").astype(object)}, InputError, "X must be numbers, and holds '[ab]'"),
        ({}, {"W": [["a", 1.0]] * 40}, InputError, "W must be numbers, and holds 'a'|W has|W.*'a'"),
        ({}, {"X": X0.astype(complex)}, InputError, "X has complex numbers"),
        ({}, {"W": W0.astype(complex)}, InputError, "W has complex numbers"),
        ({}, {"X": pd.DataFrame(X0.astype(complex))}, InputError, "X has columns that are not numbers: 0, 1, 2"),
        ({}, {"y": Y0.astype(complex)}, InputError, "y has complex numbers"),
        ({}, {"sample_weight": ["a"] * 40}, InputError, "sample_weight must be numbers"),
        ({}, {"X": X0 * 1e-310}, InputError, "values so small that coefficients leave the range"),
        ({"standardize": "no"}, {}, InputError, "standardize must be True or False"),
        ({"random_state": -1}, {}, InputError, "random_state must be"),
        ({"random_state": np.random.default_rng(0)}, {}, InputError, "random_state must be"),
        ({"privileged": lambda X: X.columns}, {"W": None}, InputError, r"privileged, called on X \(ndarray\), raised"),
        (
            {"estimator": Ridge()},
            {"X": pd.DataFrame(X0, columns=["a", "a", "b"])},
            InputError,
            "X has two columns of the name 'a'",
        ),
        (
            {"estimator": Ridge()},
            {"X": pd.DataFrame(X0, columns=list("abc")), "W": pd.DataFrame(W0, columns=list("uuvw"))},
            InputError,
            "W has two columns of the name 'u'",
        ),
    ],
)
def test_odd_input_is_refused_in_one_line_that_names_it(parameters, given, error, message):
    given = {"X": X0, "y": Y0, "W": W0, **given}
    with pytest.raises(error, match=message) as caught:
        few(CoupledRegressor).set_params(**parameters).fit(**given)
    assert "\n" not in str(caught.value)


def test_labels_of_two_kinds_are_refused():
    X, W, _, _ = classes(n=60, m=0)
    with pytest.raises(InputError, match="y has labels that are words beside others"):
        few(CoupledClassifier).fit(X, np.array([1, "a"] * 30, dtype=object), W=W)


def test_frames_whose_names_are_numbers_go_with_an_array_as_W():
    model = CoupledRegressor(Ridge(), lam=1.0)
    expected = clone(model).fit(X0, Y0, W=W0)
    for X, W in ((pd.DataFrame(X0), W0), (X0, pd.DataFrame(W0)), (pd.DataFrame(X0), pd.DataFrame(W0).add_prefix("w"))):
        fitted = clone(model).fit(X, Y0, W=W)
        np.testing.assert_allclose(fitted.predict(X), expected.predict(X0))
        np.testing.assert_allclose(fitted.predict_privileged(X, W), expected.predict_privileged(X0, W0))


@pytest.mark.parametrize(("cls", "make"), BOTH)
def test_what_is_given_stays_as_it_is(cls, make):
    X, W, y, _ = make(n=30, m=30)
    whole = pd.DataFrame(np.hstack([X, W]), columns=list("abcdefg"))
    before = [X.copy(), W.copy(), y.copy(), whole.copy()]
    given = [np.asfortranarray(X), W.copy(), y.copy()]
    for array in given:
        array.setflags(write=False)
    model = few(cls).fit(given[0], given[2], W=given[1])
    np.testing.assert_allclose(_soft(model, X), _soft(few(cls).fit(X, y, W=W), X), atol=1e-12)
    inside = few(cls, privileged=list("defg")).fit(whole, y)
    inside.predict(whole)
    inside.predict(whole[list("abc")])
    for old, new in zip(before[:3], (X, W, y), strict=True):
        np.testing.assert_array_equal(old, new)
    pd.testing.assert_frame_equal(before[3], whole)


def test_the_parameters_stand_in_the_signature():
    shared = set(CoupledRegressor().get_params())
    assert set(CoupledClassifier().get_params()) - shared == {"class_weight"}
    assert repr(CoupledClassifier(lam=1.0, class_weight="balanced")) == (
        "CoupledClassifier(class_weight='balanced', lam=1.0)"
    )
    with pytest.raises(TypeError, match="positional"):
        CoupledRegressor(None, None, [0])
    with pytest.raises(TypeError, match="positional"):
        CoupledClassifier(None, None, "balanced")
    with pytest.raises(TypeError, match="class_weight"):
        CoupledRegressor(class_weight="balanced")
