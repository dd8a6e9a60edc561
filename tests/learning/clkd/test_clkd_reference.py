"""Numbers that other programs and closed forms give, and equalities that the mathematics promises."""

import numpy as np
import pytest
from clkd_cohorts import brute_force, cohort, sets, structured
from scipy import optimize
from sksurv.linear_model import CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_censored
from statsmodels.discrete.conditional_models import ConditionalLogit

from assay.learning.clkd import CLKDSurvival, make_components
from assay.learning.clkd.components import risk_sets
from assay.learning.clkd.concordance import concordance
from assay.learning.clkd.partition import risk_set_partition, set_partition

Z = np.array([[1, 0], [0, 1], [2, 1], [1, 1], [0, 0], [1, 2]], dtype=float)
MEMBERS = [0, 1, 2, 3, 4, 5, 2, 4]
CASE = [1, 0, 0, 1, 0, 0, 1, 0]
GROUPS = [0, 0, 0, 1, 1, 1, 2, 2]
TEACHER = np.array([0.5, -0.2, 1, 0.3, -0.5, 0.4])
EXACT = {"tol": 1e-15, "alphas": (0.0,)}


def plain(event, time, X, **parameters):
    return CLKDSurvival(**({"eta": 0.0} | EXACT | parameters)).fit(X, (event, time))


@pytest.mark.parametrize(
    ("eta", "b", "loss"),
    [
        (0, (1.043768, -0.786463), 0.731995),
        (1, (0.751602, -0.301793), 0.825820),
        (10, (0.555402, 0.056039), 0.853770),
    ],
)
def test_three_sets_by_hand(eta, b, loss):
    """Minima found by BFGS, independently of this code."""
    model = CLKDSurvival(components="matched", eta=eta, alphas=(0.1,), standardize=False, tol=1e-15)
    model.fit(Z[MEMBERS], CASE, groups=GROUPS, teacher_risk=TEACHER[MEMBERS])
    np.testing.assert_allclose(model.coef_, b, atol=2e-6)
    components = make_components(CASE, kind="matched", groups=GROUPS)
    r, t = Z[MEMBERS] @ model.coef_, TEACHER[MEMBERS]
    total = 0.05 * model.coef_ @ model.coef_
    for row in components.index:
        members = row[row >= 0]
        q = np.exp(r[members]) / np.exp(r[members]).sum()
        p = np.exp(t[members]) / np.exp(t[members]).sum()
        target = (np.eye(len(members))[0] + eta * p) / (1 + eta)
        total -= target @ np.log(q) / len(components)
    assert total == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("ties", [False, True])
def test_without_teacher_and_penalty_it_is_cox_with_breslows_ties(ties):
    X, event, time, _ = cohort(1, 300, 5, ties)
    peer = CoxPHSurvivalAnalysis(alpha=0, ties="breslow", tol=1e-14).fit(X, structured(event, time))
    model = plain(event, time, X)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-10)
    new = X[:20]
    for ours, theirs in (
        (model.predict_survival_function(new), peer.predict_survival_function(new)),
        (model.predict_cumulative_hazard_function(new), peer.predict_cumulative_hazard_function(new)),
    ):
        at = np.unique(time)
        np.testing.assert_allclose([f(at) for f in ours], [f(at) for f in theirs], atol=1e-9)
    np.testing.assert_allclose(
        model.predict_survival_function(new, return_array=True),
        peer.predict_survival_function(new, return_array=True),
        atol=1e-9,
    )
    assert model.predict_survival_function(new)[0](0) == 1


def test_a_ridge_is_that_of_scikit_survival_times_the_number_of_events():
    X, event, time, _ = cohort(2, 200, 4)
    X *= [1, 10, 0.1, 3]
    peer = CoxPHSurvivalAnalysis(alpha=0.3 * event.sum(), ties="breslow", tol=1e-14).fit(X, structured(event, time))
    np.testing.assert_allclose(plain(event, time, X, alphas=(0.3,), standardize=False).coef_, peer.coef_, atol=1e-9)


def test_matched_sets_without_teacher_are_conditional_logistic_regression():
    X, case, groups = sets(3, 60, 4)
    peer = ConditionalLogit(case, X, groups=groups).fit(disp=False, method="newton")
    model = CLKDSurvival(components="matched", eta=0, **EXACT).fit(X, case, groups=groups)
    np.testing.assert_allclose(model.coef_, peer.params, atol=1e-7)


def test_strata_add_their_likelihoods():
    X, event, time, strata = cohort(4, 150, 3, strata=True)

    def loss(b):
        total = 0.0
        for i in np.flatnonzero(event):
            there = (time >= time[i]) & (strata == strata[i])
            total += np.logaddexp.reduce(X[there] @ b) - X[i] @ b
        return total

    model = CLKDSurvival(eta=0, **EXACT).fit(X, (event, time), strata=strata)
    np.testing.assert_allclose(model.coef_, optimize.minimize(loss, np.zeros(3), tol=1e-10).x, atol=1e-5)
    one = np.flatnonzero(strata == "b")
    alone = CLKDSurvival(eta=0, **EXACT).fit(X[one], (event[one], time[one]))
    assert not np.allclose(alone.coef_, model.coef_)
    survival = model.predict_survival_function(X[:9], strata=strata[:9], return_array=True)
    assert survival.shape == (9, len(np.unique(time)))
    assert ((survival >= 0) & (survival <= 1)).all()
    with pytest.raises(ValueError, match="strata is needed"):
        model.predict_survival_function(X[:9])
    with pytest.raises(ValueError, match="has not seen 'z'"):
        model.predict_survival_function(X[:2], strata=["z", "z"])


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("strata", [False, True])
def test_cumulative_sums_are_the_risk_sets_one_by_one(ties, strata):
    X, event, time, labels = cohort(5, 60, 3, ties, strata)
    stratum = np.unique(labels, return_inverse=True)[1]
    part = risk_set_partition(event, time, stratum, np.ones(60))
    components = risk_sets(event, time, stratum)
    r = np.random.default_rng(6).normal(size=60) * 3
    value, gradient, hessian = brute_force(components, r, X)
    point = part.at(r[part.rows])
    assert point.value == pytest.approx(value, abs=1e-13)
    ours = np.zeros(60)
    ours[part.rows] = point.expected()
    np.testing.assert_allclose(ours, gradient, atol=1e-14)
    np.testing.assert_allclose(point.hessian(X[part.rows]), hessian, atol=1e-13)
    # Listed, the same components give the same.
    listed = set_partition(components, np.ones(60))
    at = listed.at(r[listed.rows])
    assert at.value == pytest.approx(value, abs=1e-13)
    np.testing.assert_allclose(at.expected(), gradient[listed.rows], atol=1e-14)
    np.testing.assert_allclose(at.hessian(X[listed.rows]), hessian, atol=1e-13)


def test_scores_of_any_size_stay_finite():
    X, event, time, _ = cohort(7, 80, 2)
    part = risk_set_partition(event, time, np.zeros(80, dtype=int), np.ones(80))
    r = 900 * X[part.rows, 0]  # exp underflows and overflows
    value, gradient, hessian = brute_force(risk_sets(event, time, np.zeros(80, dtype=int)), 900 * X[:, 0], X)
    assert part.at(r).value == pytest.approx(value)
    np.testing.assert_allclose(part.at(r).expected(), gradient[part.rows], atol=1e-9)
    np.testing.assert_allclose(part.at(r).hessian(X[part.rows]), hessian, atol=1e-9)


@pytest.mark.parametrize("components", ["risk_set", "matched", "pairwise", "ncc"])
def test_a_linear_teacher_alone_gives_its_coefficients_back(components):
    X, event, time, _ = cohort(8, 150, 3)
    ratios = {0: 0.7, 1: -0.4, 2: 0.2}
    y, extra = (event, time), {}
    if components == "matched":
        X, y, groups = sets(8, 50, 3)
        extra = {"groups": groups}
    model = CLKDSurvival(ratios, components=components, eta=np.inf, random_state=0, **EXACT).fit(X, y, **extra)
    np.testing.assert_allclose(model.coef_, list(ratios.values()), atol=1e-7)


@pytest.mark.parametrize("components", ["risk_set", "matched"])
def test_a_level_of_the_teacher_changes_nothing(components):
    X, event, time, _ = cohort(9, 100, 3)
    groups = np.arange(100) // 4 if components == "matched" else None
    teacher = X[:, 0] + np.sin(X[:, 1])
    fits = [
        CLKDSurvival(components=components, random_state=0).fit(
            X, (event, time), teacher_risk=teacher + level, groups=groups
        )
        for level in (0.0, 37.5)
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-10)


@pytest.mark.parametrize("eta", [0.3, 5.0, np.inf])
def test_a_teacher_that_is_the_studys_own_optimum_moves_nothing(eta):
    X, event, time, _ = cohort(10, 100, 3)
    own = plain(event, time, X)
    model = CLKDSurvival(own, eta=eta, **EXACT).fit(X, (event, time))
    np.testing.assert_allclose(model.coef_, own.coef_, atol=1e-7)


def test_a_constant_teacher_pulls_towards_no_effect():
    X, event, time, _ = cohort(11, 100, 3)
    sizes = []
    for eta in (0.0, 1.0, 10.0, np.inf):
        with pytest.warns(UserWarning, match="same in every row"):
            model = CLKDSurvival(eta=eta, **EXACT).fit(X, (event, time), teacher_risk=np.full(100, 3.0))
        sizes.append(np.linalg.norm(model.coef_))
    assert sizes[0] > sizes[1] > sizes[2] > sizes[3]
    assert sizes[3] < 1e-8


def test_weights_are_copies_of_rows():
    X, event, time, strata = cohort(12, 60, 3, ties=True, strata=True)
    times = np.random.default_rng(0).integers(0, 4, 60)
    teacher = X[:, 0]
    settings = {"eta": 2.0, "alphas": (0.05,), "tol": 1e-15}
    weighted = CLKDSurvival(**settings).fit(X, (event, time), teacher_risk=teacher, strata=strata, sample_weight=times)
    again = np.repeat(np.arange(60), times)
    copied = CLKDSurvival(**settings).fit(
        X[again], (event[again], time[again]), teacher_risk=teacher[again], strata=strata[again]
    )
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-9)
    np.testing.assert_allclose(
        weighted.predict_survival_function(X, strata=strata, return_array=True)[:, -1],
        copied.predict_survival_function(X, strata=strata, return_array=True)[:, -1],
        atol=1e-9,
    )
    scaled = CLKDSurvival(**settings).fit(
        X, (event, time), teacher_risk=teacher, strata=strata, sample_weight=0.3 * times
    )
    np.testing.assert_allclose(weighted.coef_, scaled.coef_, atol=1e-9)


@pytest.mark.parametrize("components", ["risk_set", "matched", "pairwise", "ncc"])
def test_the_order_of_rows_does_not_matter(components):
    X, event, time, _ = cohort(13, 90, 3)
    extra = {"teacher_risk": X[:, 0] ** 3}
    if components == "matched":
        extra["groups"] = np.arange(90) // 3
    else:
        extra["strata"] = np.array(["north", "south"])[(X[:, 1] > 0.5).astype(int)]
    order = np.random.default_rng(1).permutation(90)
    model = CLKDSurvival(components=components, random_state=4)
    one = model.fit(X, (event, time), **extra).coef_.copy()
    other = model.fit(X[order], (event[order], time[order]), **{k: v[order] for k, v in extra.items()}).coef_
    np.testing.assert_array_equal(one, other)


def test_units_of_features_do_not_matter():
    X, event, time, _ = cohort(14, 90, 3)
    scale = np.array([1e-5, 1.0, 1e6])
    one = CLKDSurvival(random_state=0).fit(X, (event, time), teacher_risk=X[:, 0])
    other = CLKDSurvival(random_state=0).fit(X * scale + 7 * scale, (event, time), teacher_risk=X[:, 0])
    np.testing.assert_allclose(other.coef_ * scale, one.coef_, rtol=1e-6)


def test_concordance_is_that_of_scikit_survival():
    for seed, ties in ((15, False), (16, True)):
        X, event, time, _ = cohort(seed, 200, 3, ties)
        model = CLKDSurvival(eta=0, alphas=(0.1,)).fit(X, (event, time))
        risk = np.round(model.predict(X), 1)
        expected = concordance_index_censored(event, time, risk)[0]
        assert concordance(event, time, risk) == pytest.approx(expected, abs=1e-12)
        assert model.score(X, structured(event, time)) == pytest.approx(
            concordance_index_censored(event, time, model.predict(X))[0]
        )


def test_score_within_sets():
    X, case, groups = sets(17, 30, 3)
    model = CLKDSurvival(components="matched", eta=0, alphas=(0.1,)).fit(X, case, groups=groups)
    risk, won = model.predict(X), []
    for g in range(30):
        mine = groups == g
        won += list(risk[mine & (case == 1)] > risk[mine & (case == 0)])
    assert model.score(X, case, groups=groups) == pytest.approx(np.mean(won))
    auc = np.mean([risk[case == 1][:, None] > risk[case == 0]])
    assert model.score(X, case) == pytest.approx(auc)


def test_averaging_is_the_weighted_mean_of_the_grid():
    X, event, time, _ = cohort(18, 80, 3)
    teacher = X[:, 0]
    model = CLKDSurvival(etas=(0, 1), alphas=(0.01, 0.5), random_state=0).fit(X, (event, time), teacher_risk=teacher)
    results = model.cv_results_
    loss = np.array(results["loss"]) * event.sum()
    expected = np.exp(loss.min() - loss)
    expected /= expected.sum()
    np.testing.assert_allclose(results["weight"], expected)
    coef = [
        CLKDSurvival(eta=eta, alphas=(alpha,), tol=1e-14).fit(X, (event, time), teacher_risk=teacher).coef_
        for eta, alpha in zip(results["eta"], results["alpha"], strict=True)
    ]
    np.testing.assert_allclose(model.coef_, expected @ coef, atol=1e-6)
    np.testing.assert_allclose(model.eta_weights_, [sum(expected[:2]), sum(expected[2:])])
    assert model.eta_ / (1 + model.eta_) == pytest.approx(expected[2:].sum() / 2)
    for criterion in ("loss", "cindex"):
        best = CLKDSurvival(eta="cv", etas=(0, 1), alphas=(0.01, 0.5), criterion=criterion, random_state=0)
        best.fit(X, (event, time), teacher_risk=teacher)
        values = np.array(best.cv_results_[criterion])
        place = values.argmin() if criterion == "loss" else values.argmax()
        assert (best.eta_, best.alpha_) == (results["eta"][place], results["alpha"][place])
        np.testing.assert_allclose(best.coef_, coef[place], atol=1e-6)
    report = best.teacher_report()
    assert report["held_out"]
    assert report["weights"] == {0.0: float(best.eta_ == 0), 1.0: float(best.eta_ == 1)}
    assert 0 < report["student_loss"] < 10


def test_two_teachers_are_mixed_by_their_weights():
    X, event, time, _ = cohort(19, 100, 3)
    a, b = {0: 1.0}, {2: -1.0}
    fit = {"eta": np.inf, **EXACT}
    both = CLKDSurvival([a, b], **fit).fit(X, (event, time)).coef_
    only_a = CLKDSurvival([a, b], teacher_weights=(1, 0), **fit).fit(X, (event, time)).coef_
    mostly_a = CLKDSurvival([a, b], teacher_weights=(3, 1), **fit).fit(X, (event, time)).coef_
    np.testing.assert_allclose(only_a, [1, 0, 0], atol=1e-7)
    assert only_a[0] > mostly_a[0] > both[0] > 0 > mostly_a[2] > both[2]
    ready = np.column_stack([X[:, 0], -X[:, 2]])
    np.testing.assert_allclose(CLKDSurvival(**fit).fit(X, (event, time), teacher_risk=ready).coef_, both, atol=1e-9)


def test_a_helpful_teacher_helps_and_a_wrong_one_is_not_believed():
    truth = np.array([1.0, -1.0, 0.4, 0.0])
    found = {"helped": [], "alone": [], "misled": []}
    etas = {name: [] for name in found}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1060, 4))
        time = rng.exponential(np.exp(-X @ truth))
        event = time < np.quantile(time, 0.3)
        few, new = slice(0, 60), slice(60, None)
        later = structured(event[new], time[new])
        for name, teacher in (("helped", {0: 1.0, 1: -1.0}), ("alone", None), ("misled", {0: -1.0, 1: 1.0})):
            model = CLKDSurvival(teacher, random_state=0).fit(X[few], (event[few], time[few]))
            found[name].append(model.score(X[new], later))
            etas[name].append(model.eta_)
    helped, alone, misled = (np.mean(found[name]) for name in ("helped", "alone", "misled"))
    assert helped > alone + 0.005
    assert misled > alone - 0.05
    assert min(etas["helped"]) > 0.5 > np.mean(etas["misled"])
