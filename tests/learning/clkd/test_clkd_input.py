import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from clkd_cohorts import cohort, sets, structured
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from assay.errors import MissingPart
from assay.learning.clkd import CLKDSurvival

X, EVENT, TIME, _ = cohort(0, 60, 3)
Y = (EVENT, TIME)


def changed(array, place, value):
    array = np.array(array, dtype=float)
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("table", "y", "extra", "message"),
    [
        (X, (EVENT, changed(TIME, 3, 0.0)), {}, "time must be positive and finite, and 1 of 60 are not.*row 3"),
        (X, (EVENT, changed(TIME, 3, -1.0)), {}, "time must be positive"),
        (X, (EVENT, changed(TIME, 3, np.nan)), {}, "time must be positive and finite"),
        (X, (EVENT, changed(TIME, 3, np.inf)), {}, "time must be positive and finite"),
        (X, (np.zeros(60), TIME), {}, "y has no event: all rows are censored"),
        (X, None, {}, "y is needed"),
        (X, TIME, {}, "y must hold event and time"),
        (X, np.ones((60, 3)), {}, "y must hold event and time"),
        (X, np.column_stack([TIME, EVENT]), {}, "event must be true or false"),
        (X, pd.DataFrame({"a": EVENT, "b": TIME, "c": 1}), {}, "columns event and time"),
        (X, np.zeros(60, dtype=[("a", float), ("b", float)]), {}, "two fields, of which one is bool"),
        (X[:50], Y, {}, "y has 60 rows and X has 50"),
        (changed(X, (4, 1), np.nan), Y, {}, "X: the column 1 has missing"),
        (changed(X, (4, 1), np.inf), Y, {}, "X: the column 1 has missing"),
        (changed(X, (4, 1), 1e200), Y, {}, "X: the column 1 has values beyond"),
        (pd.DataFrame(changed(X, (4, 1), np.nan), columns=list("abc")), Y, {}, "X: the column 'b' has missing"),
        (pd.DataFrame({"a": X[:, 0], "sex": ["m", "f"] * 30}), Y, {}, "X: the column 'sex' has no numbers"),
        (pd.DataFrame({"a": pd.array([1, None] * 30, dtype="Int64")}), Y, {}, "X: the column 'a' has missing"),
        (pd.DataFrame({"t": pd.to_datetime(["2020-01-01"] * 60)}), Y, {}, "X: the column 't' has no numbers"),
        (X[:, :0], Y, {}, "0 feature"),
        (pd.DataFrame(X, columns=["a", "b", "a"]), Y, {}, "two columns named 'a'"),
        (X[0], Y, {}, "Expected 2D array"),
        (X + 1j, Y, {}, "X must be real"),
        (np.full((60, 2), "x"), Y, {}, "X must be numbers"),
        (X, Y, {"teacher_risk": changed(X[:, 0], 5, np.nan)}, "teacher_risk is missing"),
        (X, Y, {"groups": np.arange(60)}, "groups is for matched"),
        (X, Y, {"strata": np.arange(3)}, "strata"),
        (X, Y, {"sample_weight": changed(np.ones(60), 0, -1)}, "sample_weight must be finite and not negative"),
        (X, Y, {"sample_weight": np.zeros(60)}, "sample_weight is zero in every row"),
        (X, Y, {"sample_weight": ~EVENT}, "sample_weight is zero for every event"),
        (X, Y, {"sample_weight": ["a"] * 60}, "sample_weight must be numbers"),
    ],
)
def test_bad_data_is_named(table, y, extra, message):
    with pytest.raises(ValueError, match=message):
        CLKDSurvival(random_state=0).fit(table, y, **extra)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"components": "cox"}, "components must be one of"),
        ({"eta": -1}, "eta must be a number of at least 0"),
        ({"eta": np.nan}, "eta must be"),
        ({"eta": "best"}, "eta must be a number of at least 0, 'cv' or 'aggregate'"),
        ({"eta": 2.0}, "eta=2.0 needs a teacher"),
        ({"etas": (-1, 0)}, "etas must be a number of at least 0"),
        ({"etas": ()}, "etas must hold at least one"),
        ({"etas": 3}, "etas must be a list"),
        ({"alphas": (-1,)}, "alphas must be a finite number of at least 0"),
        ({"alphas": (np.inf,)}, "alphas must be a finite number"),
        ({"alphas": ("a",)}, "alphas must be a finite number"),
        ({"cv": 1}, "cv must be a whole number of at least 2"),
        ({"cv": 2.5}, "cv must be a whole number"),
        ({"criterion": "auc"}, "criterion must be"),
        ({"criterion": "cindex"}, "criterion='cindex' is for eta='cv'"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"tol": 0}, "tol must be a finite number above 0"),
        ({"n_controls": 0}, "n_controls must be"),
        ({"max_pairs": -1}, "max_pairs must be"),
        ({"student": "deep"}, "student must be"),
        ({"standardize": "no"}, "standardize must be True or False"),
        ({"random_state": "a"}, "random_state must be"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        CLKDSurvival(**parameters).fit(X, Y)


def test_matched_sets_need_sets():
    features, case, groups = sets(0, 20)
    model = CLKDSurvival(components="matched", eta=0, alphas=(0.1,))
    with pytest.raises(ValueError, match="groups is needed"):
        model.fit(features, case)
    with pytest.raises(ValueError, match="strata has no meaning"):
        model.fit(features, case, groups=groups, strata=groups)
    with pytest.raises(ValueError, match="no set with a case and a control: of 60 sets 40 have no case and 20"):
        model.fit(features, case, groups=np.arange(60))
    with pytest.raises(ValueError, match="groups is missing"):
        model.fit(features, case, groups=[None, *groups[1:]])
    broken = case.copy()
    broken[groups == 3] = 0
    with pytest.warns(UserWarning, match="1 sets without a case"):
        model.fit(features, broken, groups=groups)
    assert model.n_components_ == 19
    left = groups != 3
    np.testing.assert_allclose(
        model.coef_,
        CLKDSurvival(components="matched", eta=0, alphas=(0.1,))
        .fit(features[left], case[left], groups=groups[left])
        .coef_,
        atol=1e-9,
    )


@pytest.mark.parametrize("components", ["matched", "pairwise", "ncc"])
def test_sets_know_no_hazard(components):
    groups = np.arange(60) // 4 if components == "matched" else None
    model = CLKDSurvival(components=components, eta=0, alphas=(0.1,), random_state=0).fit(X, Y, groups=groups)
    for method in (model.predict_survival_function, model.predict_cumulative_hazard_function):
        with pytest.raises(AttributeError, match="fits no baseline hazard"):
            method(X)


def test_forms_of_y_are_the_same():
    fits = [
        CLKDSurvival(eta=0, alphas=(0.1,)).fit(X, y).coef_
        for y in (
            Y,
            structured(*Y),
            pd.DataFrame({"time": TIME, "event": EVENT.astype(int)}),
            pd.DataFrame({"death": pd.array(EVENT, dtype="boolean"), "days": TIME}),
            np.column_stack([EVENT, TIME]),
            (list(EVENT), list(TIME)),
        )
    ]
    for coef in fits[1:]:
        np.testing.assert_array_equal(coef, fits[0])


def test_kinds_of_tables_are_the_same():
    table = pd.DataFrame(np.round(10 * X), columns=list("abc"))
    plain = CLKDSurvival(eta=0, alphas=(0.1,)).fit(table.to_numpy(), Y).coef_
    for kind in ("int64", "float32", "Int64", "Float64", object):
        np.testing.assert_allclose(CLKDSurvival(eta=0, alphas=(0.1,)).fit(table.astype(kind), Y).coef_, plain)
    truth = table > 0
    np.testing.assert_allclose(
        CLKDSurvival(eta=0, alphas=(0.1,)).fit(truth, Y).coef_,
        CLKDSurvival(eta=0, alphas=(0.1,)).fit(truth.astype(float), Y).coef_,
    )


def test_few_cases():
    event = np.zeros(60, dtype=bool)
    event[:3] = True
    with pytest.raises(ValueError, match="3 cases are too few"):
        CLKDSurvival({0: 1.0}).fit(X, (event, TIME))
    one = np.zeros(60, dtype=bool)
    one[0] = True
    model = CLKDSurvival({0: 1.0}, eta=1.0, alphas=(0.1,)).fit(X, (one, np.arange(60) + 1.0))
    assert np.isfinite(model.coef_).all()
    assert model.n_components_ == 1
    event[:6] = True
    with pytest.warns(UserWarning, match="cv=5 folds of 6 cases are too thin; 3 are used"):
        CLKDSurvival({0: 1.0}, random_state=0).fit(X, (event, TIME))


def test_columns_that_do_not_vary_are_dropped():
    with pytest.warns(UserWarning, match="do not vary were dropped: site"):
        model = CLKDSurvival(eta=0, alphas=(0.1,)).fit(pd.DataFrame(X, columns=list("abc")).assign(site=4.2), Y)
    assert model.coef_[3] == 0
    np.testing.assert_allclose(model.coef_[:3], CLKDSurvival(eta=0, alphas=(0.1,)).fit(X, Y).coef_, atol=1e-12)
    with pytest.warns(UserWarning, match="do not vary"):
        nothing = CLKDSurvival({0: 1.0}, random_state=0).fit(np.ones((60, 2)), Y)
    assert (nothing.predict(np.ones((60, 2))) == 0).all()


@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.1])
def test_columns_that_repeat_each_other_share_the_effect(alpha):
    """One-hot columns that add up to one, and a copy: no failure, and without a ridge the shortest coefficients."""
    level = np.random.default_rng(1).integers(0, 3, 60)
    table = np.column_stack([np.eye(3)[level], X[:, 0], X[:, 0]])
    model = CLKDSurvival(eta=0, alphas=(alpha,), standardize=False).fit(table, Y)
    assert model.converged_
    assert model.coef_[3] == pytest.approx(model.coef_[4], abs=1e-6)
    assert model.coef_[:3].sum() == pytest.approx(0, abs=1e-6)
    alone = CLKDSurvival(eta=0, alphas=(alpha,), standardize=False).fit(table[:, 1:4], Y)
    if alpha == 0:
        np.testing.assert_allclose(model.predict(table), alone.predict(table[:, 1:4]), atol=1e-6)


def test_separated_cases():
    time = np.arange(60) + 1.0
    features = -time[:, None] + 0.0
    for alpha in (1e-3, 0.1):
        model = CLKDSurvival(eta=0, alphas=(alpha,)).fit(features, (EVENT, time))
        assert model.converged_
        assert np.isfinite(model.coef_).all()
    with pytest.warns(ConvergenceWarning, match="separate"):
        model = CLKDSurvival(eta=0, alphas=(0.0,)).fit(features, (EVENT, time))
    assert np.isfinite(model.predict(features)).all()
    assert np.isfinite(model.predict_survival_function(features, return_array=True)).all()


def test_too_few_steps():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = CLKDSurvival(eta=0, alphas=(1e-3,), max_iter=1).fit(X, Y)
    assert not model.converged_


def test_new_rows():
    model = CLKDSurvival(eta=0, alphas=(0.1,))
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.teacher_report()
    table = pd.DataFrame(X, columns=list("abc"))
    model.fit(table, Y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="column 'b' has missing"):
        model.predict(table.assign(b=np.nan))
    with pytest.raises(ValueError, match="y has 2 rows and X has 60"):
        model.score(table, ([1, 0], [1.0, 2.0]))
    with pytest.raises(ValueError, match="no event"):
        model.score(table, (np.zeros(60), TIME))
    report = model.teacher_report()
    assert report["teacher_loss"] is None
    assert not report["held_out"]
    assert report["student_loss"] == report["internal_loss"]


def test_without_scikit_survival_only_step_functions_are_missing(monkeypatch):
    for name in [n for n in sys.modules if n.split(".")[0] == "sksurv"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sksurv", None)
    model = CLKDSurvival({0: 1.0}, random_state=0).fit(X, structured(*Y))
    assert 0 < model.score(X, structured(*Y)) < 1
    assert model.predict_survival_function(X, return_array=True).shape == (60, len(np.unique(TIME)))
    with pytest.raises(MissingPart, match="survival"):
        model.predict_survival_function(X)


@st.composite
def frames(draw):
    """Small tables and outcomes of every odd kind."""
    n = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    columns = {}
    for j in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["normal", "constant", "truth", "whole", "huge", "tiny", "hole", "word", "copy"]))
        values = {
            "normal": rng.normal(size=n),
            "constant": np.full(n, 3.0),
            "truth": rng.random(n) < 0.5,
            "whole": rng.integers(-3, 3, n),
            "huge": rng.normal(size=n) * 1e90,
            "tiny": rng.normal(size=n) * 1e-90,
            "hole": np.where(rng.random(n) < 0.2, np.nan, 1.0),
            "word": np.array(["a", "b"])[rng.integers(0, 2, n)],
            "copy": next(iter(columns.values()), np.zeros(n)),
        }[kind]
        columns[f"c{j}"] = values
    event = {"none": np.zeros(n), "all": np.ones(n), "one": np.arange(n) == 0, "some": rng.random(n) < 0.5}[
        draw(st.sampled_from(["none", "all", "one", "some"]))
    ]
    time = {
        "ties": rng.integers(1, 3, n) * 1.0,
        "same": np.ones(n),
        "apart": rng.exponential(size=n),
        "zero": np.zeros(n),
    }[draw(st.sampled_from(["ties", "same", "apart", "apart", "zero"]))]
    teacher = {"none": None, "constant": np.zeros(n), "some": rng.normal(size=n), "wide": rng.normal(size=n) * 900}[
        draw(st.sampled_from(["none", "constant", "some", "wide"]))
    ]
    groups = rng.integers(0, max(1, n // 3), n)
    weight = draw(st.sampled_from([None, rng.integers(0, 3, n), rng.exponential(size=n)]))
    return pd.DataFrame(columns), event, time, teacher, groups, weight


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=frames(),
    components=st.sampled_from(["risk_set", "matched", "pairwise", "ncc"]),
    eta=st.sampled_from([0.0, 1.0, np.inf, "cv", "aggregate"]),
    alphas=st.sampled_from([(0.0,), (0.1,), (1e-3, 1.0)]),
)
def test_any_table_works_or_is_refused_by_name(data, components, eta, alphas):
    table, event, time, teacher, groups, weight = data
    model = CLKDSurvival(components=components, eta=eta, etas=(0, 1, 10), alphas=alphas, cv=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            model.fit(
                table, (event, time), teacher_risk=teacher, sample_weight=weight,
                groups=groups if components == "matched" else None,
            )  # fmt: skip
        except (ValueError, TypeError) as error:
            names = ("X", "y", "time", "event", "teacher", "groups", "eta", "sample_weight", "sample", "no event")
            assert any(name in str(error) for name in names), error  # noqa: PT017
            return
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(table)).all()
    assert model.eta_ >= 0
    report = model.teacher_report()
    assert all(value is None or np.isfinite(value) for key, value in report.items() if key.endswith("loss"))
    if components == "risk_set":
        survival = model.predict_survival_function(table, return_array=True)
        assert ((survival >= 0) & (survival <= 1)).all()
