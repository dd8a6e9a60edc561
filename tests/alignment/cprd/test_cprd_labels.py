import warnings

import numpy as np
import pandas as pd
import pytest
from cprd_rows import of_wins, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from assay.alignment.cprd import Comparisons, audit_rewards, efficiency, fit_bt, next_pairs, suggest_pairs


def information(fit):
    n = len(fit.scores)
    H = np.zeros((n, n))
    for i, j, weight in zip(fit.graph.i, fit.graph.j, fit.fisher, strict=True):
        u = np.eye(n)[i] - np.eye(n)[j]
        H += weight * np.outer(u, u)
    return H


def test_efficiency_of_a_path():
    # L of a path of 3 with weight 10 has eigenvalues 0, 10, 30; shares of one half have information 10/4 a pair.
    c = of_wins([[0, 5, 0], [5, 0, 5], [0, 5, 0]])
    worth = efficiency(c)
    assert worth.lambda2 == pytest.approx(10)
    assert worth.fisher_lambda2 == pytest.approx(2.5)
    assert worth.trace_pinv == pytest.approx(1 / 10 + 1 / 30)
    assert worth.fisher_trace_pinv == pytest.approx(4 * (1 / 10 + 1 / 30))
    assert worth.predicted_rmse == pytest.approx(np.sqrt(4 * (1 / 10 + 1 / 30) / 3))
    assert worth.rows_for(worth.predicted_rmse / 2) == pytest.approx(4 * 20)
    assert worth.mean_margin == pytest.approx(0)
    assert worth.exact
    for target in (0, -1, np.nan, "small"):
        with pytest.raises(ValueError, match="target_rmse must be positive"):
            worth.rows_for(target)


def test_efficiency_weighs_components_by_their_rows():
    c = of_wins(np.kron(np.diag([1, 3]), [[0, 5], [5, 0]]))
    worth = efficiency(c)
    assert worth.components["lambda2"].tolist() == pytest.approx([20, 60])
    assert worth.lambda2 == pytest.approx(20 * 0.25 + 60 * 0.75)
    assert worth.n_connected == 2
    assert worth.components["rows"].tolist() == [10, 30]


def test_the_predicted_error_is_the_true_one():
    s = np.linspace(-1, 1, 8)
    errors, predicted = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        wins = np.zeros((8, 8))
        for a in range(8):
            for b in range(a):
                wins[a, b] = rng.binomial(60, expit(s[a] - s[b]))
                wins[b, a] = 60 - wins[a, b]
        fit = fit_bt(of_wins(wins))
        errors.append(np.mean((fit.scores - s) ** 2))
        predicted.append(efficiency(fit.comparisons, fit).predicted_rmse ** 2)
    assert np.mean(errors) == pytest.approx(np.mean(predicted), rel=0.2)


@pytest.mark.parametrize("criterion", ["A", "D"])
def test_suggestions_are_the_best_of_all_step_by_step(criterion):
    fit = fit_bt(Comparisons.from_triplets(rows_of(0, n=6, rows=80)))
    found = suggest_pairs(fit.comparisons, 5, fit=fit, criterion=criterion, prior=0.3)
    items = list(fit.comparisons.items)
    H = information(fit) + 0.3 * np.eye(6)
    for row in found.itertuples():
        gains = {}
        for a in range(6):
            for b in range(a + 1, 6):
                u = np.eye(6)[a] - np.eye(6)[b]
                p = expit(fit.values[a] - fit.values[b])
                more = H + p * (1 - p) * np.outer(u, u)
                if criterion == "A":
                    gains[items[a], items[b]] = np.trace(np.linalg.inv(H)) - np.trace(np.linalg.inv(more))
                else:
                    gains[items[a], items[b]] = np.linalg.slogdet(more)[1] - np.linalg.slogdet(H)[1]
        best = max(gains.values())
        assert row.gain == pytest.approx(best)
        assert gains[row.i, row.j] == pytest.approx(best)
        a, b = items.index(row.i), items.index(row.j)
        u, p = np.eye(6)[a] - np.eye(6)[b], expit(fit.values[a] - fit.values[b])
        H = H + p * (1 - p) * np.outer(u, u)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_gains_of_d_never_rise(seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gains = suggest_pairs(Comparisons.from_triplets(rows_of(seed, n=7, rows=40)), 12, criterion="D")["gain"]
    assert (np.diff(gains) <= 1e-9).all()


def test_bridges_come_first():
    two = pd.concat([rows_of(1, n=5), rows_of(2, n=5).map(lambda name: f"other {name}")])
    c = Comparisons.from_triplets(two)
    for criterion in ("A", "D"):
        first = suggest_pairs(c, 1, criterion=criterion, fit=fit_quiet(c)).iloc[0]
        assert first["i"].startswith("other") != first["j"].startswith("other")


def fit_quiet(c):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_bt(c)


def test_a_pool_may_have_items_without_comparisons():
    c = Comparisons.from_triplets(rows_of(0, n=4))
    pool = pd.DataFrame({"i": ["item 0", "item 0", "item 2"], "j": ["item 1", "new", "item 2"]})
    found = suggest_pairs(c, 2, pool=pool)
    assert found.iloc[0][["i", "j"]].tolist() == ["item 0", "new"]
    assert found["gain"].iloc[0] > 5


def test_suggestions_stay_within_contexts():
    rows = pd.concat([rows_of(3, n=4).assign(prompt="p"), rows_of(4, n=4).assign(prompt="q")])
    c = Comparisons.from_triplets(rows, context="prompt")
    found = suggest_pairs(c, 4)
    assert set(found["context"]) <= {"p", "q"}
    with pytest.raises(KeyError, match="no column 'context'"):
        suggest_pairs(c, 1, pool=pd.DataFrame({"i": ["item 0"], "j": ["item 1"]}))


@pytest.mark.parametrize("criterion", ["A", "D"])
def test_columns_of_the_short_list_give_the_same_as_the_whole_matrix(criterion):
    c = Comparisons.from_triplets(rows_of(0, n=12, rows=150))
    fit = fit_bt(c)
    a, b = np.triu_indices(12, 1)
    how = (fit.graph, fit.fisher, a, b, np.full(len(a), 0.2), 15, criterion, 0.1)
    dense, columns = next_pairs._greedy_dense(*how), next_pairs._greedy_columns(*how)
    assert dense[0].tolist() == columns[0].tolist()
    np.testing.assert_allclose(columns[1], dense[1], rtol=1e-8)


@pytest.mark.parametrize("criterion", ["A", "D"])
def test_many_items_get_the_same_suggestions(criterion, monkeypatch):
    c = Comparisons.from_triplets(rows_of(0, n=40, rows=500))
    pairs = [(a, b) for a in c.items for b in c.items if a < b]
    pool = pd.DataFrame(pairs, columns=["i", "j"])
    exact = suggest_pairs(c, 10, pool=pool, criterion=criterion)
    monkeypatch.setattr(next_pairs, "DENSE_ITEMS", 10)
    sketched = suggest_pairs(c, 10, pool=pool, criterion=criterion)
    # The short list is estimated, what is in it is exact: the gains can be a little below the best.
    assert sketched["gain"].sum() > 0.9 * exact["gain"].sum()
    assert suggest_pairs(c, 3, criterion=criterion, seed=1).equals(suggest_pairs(c, 3, criterion=criterion, seed=1))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"k": 0}, "k must be a whole number ≥ 1"),
        ({"k": 10_001}, "k must be at most 10000"),
        ({"k": 1.5}, "k must be a whole number ≥ 1"),
        ({"k": 1, "criterion": "E"}, "criterion must be 'A' or 'D'"),
        ({"k": 1, "prior": 0}, "prior must be a positive number"),
        ({"k": 1, "prior": np.nan}, "prior must be a positive number"),
        ({"k": 1, "pool": pd.DataFrame({"i": [], "j": []})}, "pool has no rows"),
        ({"k": 1, "pool": pd.DataFrame({"i": ["a"], "j": ["a"]})}, "no pair to choose from"),
        ({"k": 1, "pool": pd.DataFrame({"i": ["a"], "j": [None]})}, "column 'j': the id in row 0 is missing"),
    ],
)
def test_bad_arguments_of_suggestions(how, message):
    with pytest.raises(ValueError, match=message):
        suggest_pairs(of_wins([[0, 1], [1, 0]]), **how)


def test_bad_pools():
    c = of_wins([[0, 1], [1, 0]])
    with pytest.raises(TypeError, match="pool must be a pandas DataFrame"):
        suggest_pairs(c, 1, pool=[(0, 1)])
    with pytest.raises(KeyError, match="no column 'j'"):
        suggest_pairs(c, 1, pool=pd.DataFrame({"i": [0]}))
    with pytest.raises(ValueError, match="fit of these comparisons"):
        efficiency(c, fit_bt(of_wins([[0, 1, 1], [1, 0, 1], [1, 1, 0]])))


def scored(seed, factor=1.0, rows=1500, n=12):
    rng = np.random.default_rng(seed)
    s = dict(zip([f"item {k}" for k in range(n)], np.random.default_rng(seed).standard_normal(n), strict=True))
    frame = rows_of(seed, n=n, rows=rows)
    del rng
    return frame.assign(score_chosen=factor * frame["chosen"].map(s), score_rejected=factor * frame["rejected"].map(s))


def test_the_true_reward_is_calibrated():
    audit = audit_rewards(scored(0, rows=4000))
    assert audit.scale_lo < 1 < audit.scale_hi
    assert abs(audit.excess - audit.optimism / 2) < audit.optimism
    assert ((audit.calibration["predicted"] >= audit.calibration["lo"]).mean()) >= 0.8
    assert audit.log_loss < np.log(2)


def test_a_reward_that_is_too_sure_is_found():
    true, sure = audit_rewards(scored(0)), audit_rewards(scored(0, factor=3.0))
    assert sure.accuracy == true.accuracy
    assert sure.scale == pytest.approx(true.scale / 3)
    assert sure.log_loss_scaled == pytest.approx(true.log_loss_scaled)
    assert sure.excess > true.excess + 0.05
    assert sure.scale_hi < 1


def test_the_fitted_scores_have_no_excess():
    rows = scored(1)
    fit = fit_bt(Comparisons.from_triplets(rows))
    rows = rows.assign(score_chosen=rows["chosen"].map(fit.scores), score_rejected=rows["rejected"].map(fit.scores))
    audit = audit_rewards(rows)
    assert audit.excess == pytest.approx(0, abs=1e-9)
    assert audit.scale == pytest.approx(1, abs=1e-6)
    assert audit.kl_floor > 0


def test_a_matching_can_be_audited_without_scores():
    rows = pd.DataFrame({"chosen": [f"a{k}" for k in range(60)], "rejected": [f"b{k}" for k in range(60)]})
    audit = audit_rewards(rows.assign(score_chosen=np.arange(60) % 3, score_rejected=0.5))
    assert audit.accuracy == pytest.approx(2 / 3)
    assert audit.rows_inside == 0
    assert np.isnan(audit.excess)
    always = audit_rewards(rows.assign(score_chosen=1.0, score_rejected=0.0))
    assert always.accuracy == 1
    assert np.isnan(always.scale)
    tied = audit_rewards(rows.assign(score_chosen=1.0, score_rejected=1.0))
    assert tied.accuracy == 0.5
    assert tied.log_loss == pytest.approx(np.log(2))


def test_bad_rewards():
    with pytest.raises(KeyError, match="no column 'score_rejected'"):
        audit_rewards(scored(0).drop(columns="score_rejected"))
    for bad in (np.nan, np.inf, "high"):
        rows = scored(0, rows=10)
        column = rows["score_chosen"].astype(object)
        column.iloc[4] = bad
        with pytest.raises(ValueError, match=r"scores must be finite numbers, not .* in row 4"):
            audit_rewards(rows.assign(score_chosen=column))
