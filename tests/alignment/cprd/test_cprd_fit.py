import warnings

import numpy as np
import pandas as pd
import pytest
from cprd_rows import of_wins, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from assay.alignment.cprd import (
    BTFit,
    Comparisons,
    DisconnectedComparisons,
    cprd,
    fit_bt,
    fit_generative,
    project,
    representable,
)

WINS = [[0, 3, 1], [1, 0, 4], [2, 1, 0]]


def test_reference_scores():
    # choix 0.4.1, opt_pairwise and ilsr_pairwise agree.
    np.testing.assert_allclose(fit_bt(of_wins(WINS)).scores, [0.21745011, 0.13049591, -0.34794602], atol=1e-8)


def test_the_same_optimum_as_choix():
    choix = pytest.importorskip("choix")
    rows = rows_of(0, n=15, rows=600)
    c = Comparisons.from_triplets(rows)
    codes = {item: k for k, item in enumerate(c.items)}
    data = [(codes[a], codes[b]) for a, b in zip(rows["chosen"], rows["rejected"], strict=True)]
    np.testing.assert_allclose(fit_bt(c).scores, choix.opt_pairwise(15, data, alpha=0, method="Newton-CG"), atol=1e-5)


def test_covariance_is_the_pseudo_inverse_of_the_information():
    c = of_wins(WINS)
    fit = fit_bt(c)
    p = expit(fit.scores.to_numpy()[:, None] - fit.scores.to_numpy())
    n = np.array(WINS) + np.array(WINS).T
    weights = n * p * (1 - p)
    H = np.diag(weights.sum(axis=1)) - weights
    np.testing.assert_allclose(fit.cov, np.linalg.pinv(H), atol=1e-10)
    np.testing.assert_allclose(fit.std_err**2, np.diag(np.linalg.pinv(H)), atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_stationarity(seed):
    c = Comparisons.from_triplets(rows_of(seed, n=8, rows=200))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = fit_bt(c)
    residual = np.zeros(len(c.nodes))
    np.add.at(
        residual,
        fit.graph.i,
        c.wins[0][fit.inside] - c.n[fit.inside] * expit(fit.values[fit.graph.i] - fit.values[fit.graph.j]),
    )
    np.add.at(
        residual,
        fit.graph.j,
        c.n[fit.inside] * expit(fit.values[fit.graph.i] - fit.values[fit.graph.j]) - c.wins[0][fit.inside],
    )
    assert np.abs(residual).max() < 1e-8 * c.n.sum()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_what_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    rows = rows_of(seed, rows=300)
    scores = quiet(rows)
    pd.testing.assert_series_equal(quiet(rows.sample(frac=1, random_state=seed)), scores, atol=1e-9)
    new = dict(zip(scores.index, rng.permutation([f"x{k}" for k in range(len(scores))]), strict=True))
    renamed = quiet(rows.replace(new))
    np.testing.assert_allclose(renamed[[new[item] for item in scores.index]], scores, atol=1e-9)
    halves = pd.concat([rows, rows]).assign(weight=0.5)
    np.testing.assert_allclose(quiet(halves, weight="weight"), scores, atol=1e-9)
    swapped = rows.rename(columns={"chosen": "rejected", "rejected": "chosen"})
    np.testing.assert_allclose(quiet(swapped), -scores, atol=1e-9)


def quiet(rows, **how):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_bt(Comparisons.from_triplets(rows, **how)).scores


def test_a_chain_has_no_scores():
    chain = pd.DataFrame({"chosen": range(14), "rejected": range(1, 15)})
    with pytest.warns(DisconnectedComparisons, match="15 components"):
        fit = fit_bt(Comparisons.from_triplets(chain))
    assert fit.scores.isna().all()
    assert fit.component.nunique() == 15
    assert np.isnan(fit.probability([0], [14])).all()


def test_components_are_fitted_alone():
    two = pd.concat([rows_of(1, n=5), rows_of(2, n=5).map(lambda name: f"other {name}")])
    with pytest.warns(DisconnectedComparisons, match="2 components"):
        fit = fit_bt(Comparisons.from_triplets(two))
    alone = fit_bt(Comparisons.from_triplets(rows_of(1, n=5)))
    np.testing.assert_allclose(fit.scores[alone.scores.index], alone.scores, atol=1e-9)
    assert np.isnan(fit.probability(["item 0"], ["other item 0"])[0])
    assert fit.scores.groupby(fit.component).mean().abs().max() < 1e-12


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 8), st.integers(0, 8))
def test_a_comparison_more_never_adds_a_component(seed, a, b):
    rows = rows_of(seed, n=9, rows=12)
    items = sorted(set(rows["chosen"]) | set(rows["rejected"]))
    a, b = items[a % len(items)], items[b % len(items)]
    if a == b:
        return
    more = pd.concat([rows, pd.DataFrame({"chosen": [a], "rejected": [b]})])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = (fit_bt(Comparisons.from_triplets(r)).component.nunique() for r in (rows, more))
    assert after <= before


def test_a_ridge_joins_components_and_shrinks():
    c = Comparisons.from_triplets(pd.DataFrame({"chosen": ["a", "b"], "rejected": ["b", "c"]}))
    weak, strong = fit_bt(c, ridge=0.01), fit_bt(c, ridge=10.0)
    assert weak.scores["a"] > strong.scores["a"] > 0 > strong.scores["c"] > weak.scores["c"]
    # At the optimum the pull of the rows is that of the penalty.
    p = expit(weak.scores["a"] - weak.scores["b"])
    assert 1 - p == pytest.approx(0.01 * weak.scores["a"], abs=1e-8)


def test_contexts_share_nothing():
    rows = pd.concat([rows_of(3, n=4).assign(prompt="p"), rows_of(4, n=4).assign(prompt="q")])
    fit = fit_bt(Comparisons.from_triplets(rows, context="prompt"))
    for prompt, seed in (("p", 3), ("q", 4)):
        alone = fit_bt(Comparisons.from_triplets(rows_of(seed, n=4)))
        np.testing.assert_allclose(fit.scores[prompt], alone.scores, atol=1e-9)
    assert fit.probability(["item 0"], ["item 1"], ["p"]) != fit.probability(["item 0"], ["item 1"], ["q"])
    with pytest.raises(KeyError, match="no comparisons of 'item 9'"):
        fit.probability(["item 9"], ["item 1"], ["p"])


def test_projection_of_known_probabilities():
    s = np.array([1.0, 0.2, -1.2])
    fit = project(expit(s[:, None] - s), np.array([[0, 2, 9], [2, 0, 1], [9, 1, 0]]))
    np.testing.assert_allclose(fit.scores, s, atol=1e-9)
    # Rock, paper, scissors: nothing is left of it.
    cycle = np.array([[0.5, 0.8, 0.2], [0.2, 0.5, 0.8], [0.8, 0.2, 0.5]])
    named = project(pd.DataFrame(cycle, index=["rock", "scissors", "paper"]))
    np.testing.assert_allclose(named.scores, 0, atol=1e-12)
    assert list(named.scores.index) == ["rock", "scissors", "paper"]


def test_a_projection_minimises_the_divergence():
    rng = np.random.default_rng(0)
    r = rng.uniform(0.1, 0.9, (5, 5))
    r = np.triu(r, 1) + np.tril(1 - r.T, -1)
    best = project(r).scores.to_numpy()

    def divergence(s):
        a, b = np.triu_indices(5, 1)
        q = expit(s[a] - s[b])
        return -(r[a, b] * np.log(q) + (1 - r[a, b]) * np.log(1 - q)).sum()

    assert all(divergence(best) < divergence(best + 0.05 * rng.standard_normal(5)) for _ in range(20))


def test_shares_and_their_intervals():
    table = cprd(of_wins([[0, 8], [2, 0]]))
    assert table[["n", "r"]].to_numpy().tolist() == [[10.0, 0.8]]
    assert table["margin"][0] == pytest.approx(0.6)
    # statsmodels 0.15, proportion_confint(8, 10, method="wilson")
    assert table[["lo", "hi"]].to_numpy()[0] == pytest.approx([0.49016, 0.94331], abs=1e-4)


def test_the_generative_fit_recovers_a_product():
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.standard_normal((2, 6)))
    table = 1e6 * a[:, None] * b
    np.fill_diagonal(table, 0)
    c = of_wins(table)
    s = np.log(a) - np.log(b)
    fit = fit_generative(c)
    np.testing.assert_allclose(fit.scores, s - s.mean(), atol=1e-7)
    np.testing.assert_allclose(fit_bt(c).scores, s - s.mean(), atol=1e-7)
    np.testing.assert_allclose(fit_generative(c, support="observed").scores, s - s.mean(), atol=1e-7)
    assert fit.kind == "generative"
    # With pairs of unequal weight the two part.
    h = np.exp(np.triu(rng.standard_normal((6, 6)), 1))
    other = of_wins(table * h * h.T)
    np.testing.assert_allclose(fit_bt(other).scores, s - s.mean(), atol=1e-7)
    assert np.abs(fit_generative(other).scores - (s - s.mean())).max() > 0.1


def test_an_item_never_chosen_has_a_finite_generative_score():
    fit = fit_generative(Comparisons.from_triplets(pd.DataFrame({"chosen": ["a", "b"], "rejected": ["c", "c"]})))
    assert np.isfinite(fit.scores).all()
    assert fit.scores.idxmin() == "c"


@pytest.mark.parametrize("ridge", [-1.0, np.nan, np.inf, "much"])
def test_bad_ridge(ridge):
    with pytest.raises(ValueError, match="ridge must be a number ≥ 0"):
        fit_bt(of_wins(WINS), ridge=ridge)


def test_bad_arguments_of_fits():
    with pytest.raises(ValueError, match="method must be 'newton'"):
        fit_bt(of_wins(WINS), method="mm")
    for call in (fit_bt, fit_generative, cprd, representable):
        with pytest.raises(TypeError, match="c must be Comparisons"):
            call(rows_of(0))
    with pytest.raises(ValueError, match="support must be"):
        fit_generative(of_wins(WINS), support="none")
    with pytest.raises(ValueError, match=r"shape \(n, n\)"):
        project(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"at \(0, 1\) they are 0.9 and 0.9"):
        project(np.array([[0.5, 0.9], [0.9, 0.5]]))
    with pytest.raises(ValueError, match="weights must be symmetric"):
        project(np.full((2, 2), 0.5), np.array([[0, 1], [2, 0]]))
    with pytest.raises(ValueError, match="all weights are 0"):
        project(np.full((2, 2), 0.5), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="weights belongs to probabilities"):
        project(of_wins(WINS), np.ones((3, 3)))
    assert isinstance(project(of_wins(WINS)), BTFit)
