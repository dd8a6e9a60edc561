"""scikit-learn's and scikit-survival's tools around the estimator."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from clkd_cohorts import cohort, sets, structured
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sksurv.metrics import as_concordance_index_ipcw_scorer, as_integrated_brier_score_scorer

from assay.learning.clkd import CLKDSurvival
from assay.parts import estimator_files

X, EVENT, TIME, _ = cohort(0, 120, 3)
Y = structured(EVENT, TIME)


class AnyTarget(CLKDSurvival):
    """scikit-learn's checks bring targets for regression and classification: here their ranks are times of events."""

    def fit(self, X, y, sample_weight=None):
        """Fit to ranks."""
        if y is not None:
            y = _ranks(y)
        return super().fit(X, y, sample_weight=sample_weight)

    def score(self, X, y):
        """Concordance with ranks."""
        return super().score(X, _ranks(y))


def _ranks(y):
    ranks = np.unique(np.asarray(y).ravel(), return_inverse=True)[1] + 1.0
    return np.ones(len(ranks)), ranks


def expected(estimator):
    """What of scikit-learn's rules does not apply."""
    failing = {
        "check_sample_weight_equivalence_on_dense_data": "it makes cv a list of splits; here cv is a number of folds",
    }
    if estimator.eta != 0:
        failing["check_fit2d_1sample"] = "refused is one case to choose eta and alpha by, and it says so"
    return failing


ESTIMATORS = [AnyTarget(eta=0, alphas=(0.1,)), AnyTarget(alphas=(0.01, 1.0), cv=2, random_state=0)]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_a_clone_keeps_its_teacher():
    teacher = CLKDSurvival(eta=0, alphas=(0.1,)).fit(X[:, :2], Y)
    model = CLKDSurvival(teacher, eta=2.0, alphas=(0.1,), teacher_columns=[0, 1])
    copy = clone(model)
    assert copy.teacher is teacher
    assert copy.teacher.coef_.shape == (2,)
    assert clone(make_pipeline(StandardScaler(), model))[-1].teacher is teacher
    assert copy.get_params(deep=False) == model.get_params(deep=False)
    np.testing.assert_array_equal(copy.fit(X, Y).coef_, model.fit(X, Y).coef_)


def test_grid_search_with_the_scorers_of_scikit_survival():
    grid = {"estimator__eta": [0.0, 1.0, 10.0], "estimator__alphas": [(0.01,), (1.0,)]}
    model = CLKDSurvival({0: 0.8}, random_state=0)
    tau = float(np.quantile(TIME, 0.8))
    for wrapped in (
        as_concordance_index_ipcw_scorer(model, tau=tau),
        as_integrated_brier_score_scorer(model, times=np.quantile(TIME, [0.2, 0.4, 0.6])),
    ):
        search = GridSearchCV(wrapped, grid, cv=3, error_score="raise").fit(X, Y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert np.ptp(search.cv_results_["mean_test_score"]) > 0
    plain = GridSearchCV(model, {"eta": [0.0, 5.0], "alphas": [(0.1,)]}, cv=3, error_score="raise").fit(X, Y)
    assert 0.5 < plain.best_score_ <= 1


def test_in_a_pipeline_and_cross_validation():
    pipeline = make_pipeline(StandardScaler(), CLKDSurvival({0: 0.5}, eta=1.0, alphas=(0.1,)))
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.5
    risk = pipeline.fit(X, Y, clkdsurvival__sample_weight=np.arange(120)).predict(X)
    assert risk.shape == (120,)


def test_sets_go_through_cross_validation_as_metadata():
    features, case, groups = sets(1, 30)
    with sklearn.config_context(enable_metadata_routing=True):
        model = CLKDSurvival(components="matched", eta=0, alphas=(0.1,))
        model.set_fit_request(groups=True).set_score_request(groups=True)
        search = GridSearchCV(model, {"alphas": [(0.1,), (1.0,)]}, cv=GroupKFold(3), error_score="raise")
        search.fit(features, case, groups=groups)
        # Within a pipeline too: what was asked for outlives the clone.
        inner = clone(make_pipeline(StandardScaler(), model)).fit(features, case, groups=groups)
    assert search.best_score_ > 0.5
    assert inner[-1].n_components_ == 30


@pytest.mark.parametrize("components", ["risk_set", "matched"])
def test_a_file_gives_the_model_back(tmp_path, components):
    extra = {"groups": np.arange(120) // 4} if components == "matched" else {"strata": np.arange(120) % 2}
    table = pd.DataFrame(X, columns=list("abc"))
    model = CLKDSurvival({"a": 0.5}, components=components, random_state=0).fit(table, Y, **extra)
    estimator_files.save(model, tmp_path / "model.skops")
    again = estimator_files.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.teacher_report() == model.teacher_report()
    if components == "risk_set":
        strata = [0, 1] * 60
        np.testing.assert_array_equal(
            again.predict_survival_function(table, strata=strata, return_array=True),
            model.predict_survival_function(table, strata=strata, return_array=True),
        )
    assert (pickle.loads(pickle.dumps(model)).predict(table) == model.predict(table)).all()


def test_the_same_seed_gives_the_same_and_no_global_state_is_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for components in ("risk_set", "pairwise", "ncc"):
        model = CLKDSurvival({0: 0.5}, components=components, max_pairs=300, random_state=3)
        one = model.fit(X, Y).coef_
        np.testing.assert_array_equal(clone(model).fit(X, Y).coef_, one)
        assert not np.array_equal(clone(model).set_params(random_state=4).fit(X, Y).coef_, one)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
