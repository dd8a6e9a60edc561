import numpy as np
import pandas as pd
import pytest
from clkd_cohorts import cohort, structured
from lifelines import CoxPHFitter
from sklearn.linear_model import LogisticRegression
from sksurv.linear_model import CoxPHSurvivalAnalysis

from assay.learning.clkd import CLKDSurvival
from assay.learning.clkd.teachers import teacher_scores

X, EVENT, TIME, _ = cohort(0, 80, 3)
FRAME = pd.DataFrame(X, columns=["age", "size", "grade"])
LINEAR = {"age": 0.7, "grade": -0.3}
SCORE = 0.7 * X[:, 0] - 0.3 * X[:, 2]


def scores(teacher, table=FRAME, columns=None, ready=None):
    return teacher_scores(teacher, table, columns, ready, len(X))


def test_every_form_gives_the_same_scores():
    expected = SCORE[:, None]
    for teacher in (LINEAR, pd.Series(LINEAR), lambda t: 0.7 * t["age"] - 0.3 * t["grade"], [LINEAR], (LINEAR,)):
        np.testing.assert_allclose(scores(teacher), expected)
    np.testing.assert_allclose(scores({0: 0.7, 2: -0.3}, X), expected)
    np.testing.assert_allclose(scores(lambda a: (0.7 * a[:, 0] - 0.3 * a[:, 2])[:, None], X), expected)
    np.testing.assert_allclose(scores(None, ready=SCORE), expected)
    np.testing.assert_allclose(scores(None, ready=pd.Series(SCORE)), expected)
    np.testing.assert_allclose(scores([LINEAR, {"size": 1}]), np.column_stack([SCORE, X[:, 1]]))
    assert scores(None).shape == (80, 0)


def test_fitted_models_of_other_libraries_are_teachers():
    peer = CoxPHSurvivalAnalysis(alpha=1.0).fit(X[:, :2], structured(EVENT, TIME))
    np.testing.assert_allclose(scores(peer, X, [0, 1])[:, 0], peer.predict(X[:, :2]))
    table = FRAME[["age", "size"]].assign(event=EVENT, time=TIME)
    lifelines = CoxPHFitter(penalizer=0.1).fit(table, "time", "event")
    seen = scores(lifelines, FRAME, ["age", "size"])[:, 0]
    np.testing.assert_allclose(seen, lifelines.predict_log_partial_hazard(FRAME[["age", "size"]]))
    model = CLKDSurvival(lifelines, eta=1.0, alphas=(0.1,), teacher_columns=["age", "size"])
    ready = CLKDSurvival(eta=1.0, alphas=(0.1,)).fit(FRAME, (EVENT, TIME), teacher_risk=seen)
    np.testing.assert_allclose(model.fit(FRAME, (EVENT, TIME)).coef_, ready.coef_, atol=1e-9)
    own = CLKDSurvival(eta=0, alphas=(0.1,)).fit(FRAME, (EVENT, TIME))
    np.testing.assert_allclose(scores(own)[:, 0], own.predict(FRAME))


class Survival:
    """Its predict gives no log risk."""

    def predict(self, table):
        return np.column_stack([np.linspace(0, 1, len(table))] * 2)


def survival_at_5(table):
    return np.linspace(0.1, 0.9, len(table))


def series(table):
    return pd.Series(np.linspace(0.1, 0.9, len(table)), name="survival")


CLASSIFIER = LogisticRegression().fit(X, EVENT)


@pytest.mark.parametrize(
    ("teacher", "table", "message"),
    [
        ({"nodes": 1.0}, FRAME, "teacher names the column 'nodes', which X lacks"),
        ({7: 1.0}, X, "teacher names the column 7, which X lacks"),
        ({"age": 1.0}, X, "teacher names the column 'age', which X lacks: X is an array without names"),
        ({"age": np.nan}, FRAME, "log hazard ratio of 'age' must be a finite number"),
        ({"age": "high"}, FRAME, "log hazard ratio of 'age' must be a finite number"),
        ({}, FRAME, "empty mapping"),
        ([], FRAME, "empty list"),
        (Survival(), FRAME, r"shape \(80, 2\).*log\(-log S"),
        (survival_at_5, FRAME, r"survival probabilities.*log\(-log S"),
        (series, FRAME, "survival probabilities"),
        (lambda t: np.full(len(t), np.nan), FRAME, r"is missing \(NaN\)"),
        (lambda t: np.full(len(t), np.inf), FRAME, "infinite"),
        (lambda t: np.zeros(3), FRAME, r"shape \(3,\) for 80 rows"),
        (lambda t: np.array([object()] * len(t)), FRAME, "gives no numbers"),
        (lambda t: t["nodes"], FRAME, "cannot tell the risk of these rows: KeyError"),
        (CoxPHSurvivalAnalysis(), FRAME, "cannot tell the risk of these rows: NotFittedError"),
        (CoxPHSurvivalAnalysis, FRAME, "teacher must be a fitted model"),
        (CLASSIFIER, FRAME, "is a classifier"),
        ("score", FRAME, "teacher must be a fitted model"),
        (3.0, FRAME, "teacher must be a fitted model"),
        (np.zeros((9, 9)), FRAME, "teacher must be a fitted model[^\n]*$"),
        (lambda t: SCORE + 1j, FRAME, "gives no numbers"),
    ],
)
def test_what_cannot_teach_is_refused(teacher, table, message):
    with pytest.raises(ValueError, match=message):
        scores(teacher, table)


def test_words_where_a_number_is_needed():
    with pytest.raises(ValueError, match="column 'age' of X must be numbers"):
        scores({"age": 1.0}, FRAME.assign(age="old"))


@pytest.mark.parametrize(
    ("ready", "message"),
    [
        (np.zeros(3), r"shape \(n,\) or \(n, T\) with n = 80"),
        (np.zeros((80, 0)), "shape"),
        (np.zeros((80, 2, 2)), "shape"),
        (["a"] * 80, "teacher_risk must be numbers"),
        (np.full(80, np.datetime64("2020-01-01")), "teacher_risk must be numbers"),
        (SCORE + 1j, "teacher_risk must be numbers"),
        (np.full(80, np.nan), "teacher_risk is missing"),
    ],
)
def test_ready_scores_that_cannot_be_used(ready, message):
    with pytest.raises(ValueError, match=message):
        scores(None, ready=ready)


def test_teacher_and_ready_scores_are_one_too_many():
    with pytest.raises(ValueError, match="not both"):
        scores(LINEAR, ready=SCORE)


@pytest.mark.parametrize(
    ("columns", "table", "message"),
    [
        (["nodes"], FRAME, "teacher_columns: X has no column 'nodes'"),
        ("age", FRAME, "teacher_columns must be a list"),
        ([5], X, "teacher_columns names the column 5"),
        (5, X, "teacher_columns must be a list"),
    ],
)
def test_columns_that_are_not_there(columns, table, message):
    with pytest.raises(ValueError, match=message):
        scores(LINEAR, table, columns)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "1 numbers, and there are 2 teachers"),
        ([1, -1], "not negative"),
        ([0, 0], "not all zero"),
        ([np.nan, 1], "finite"),
        (["a", "b"], "must be numbers"),
    ],
)
def test_weights_that_cannot_be(weights, message):
    with pytest.raises(ValueError, match=f"teacher_weights.*{message}"):
        CLKDSurvival([LINEAR, LINEAR], teacher_weights=weights).fit(FRAME, (EVENT, TIME))


def test_a_score_that_is_no_log_risk():
    with pytest.raises(ValueError, match="differ by more than 10000"):
        CLKDSurvival({"age": 1e5}).fit(FRAME, (EVENT, TIME))


def test_a_frame_of_side_data_in_another_order_is_refused():
    ready = pd.Series(SCORE, index=np.arange(80)[::-1])
    with pytest.raises(ValueError, match="teacher_risk"):
        CLKDSurvival().fit(FRAME, (EVENT, TIME), teacher_risk=ready)
