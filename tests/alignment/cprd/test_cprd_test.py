import numpy as np
import pandas as pd
import pytest
from cprd_rows import of_wins, rows_of
from scipy.special import expit, xlogy
from scipy.stats import binom, kstest

from assay.alignment.cprd import Comparisons, fit_bt, representable
from assay.alignment.cprd import cycles as triangles
from assay.alignment.cprd.draws import deviances, expected_deviances, parametric_draws, statistic_of
from assay.numerics import laplacian

CYCLE = np.array([[0, 80, 20], [20, 0, 80], [80, 20, 0]])


def test_reference_deviance():
    test = representable(of_wins([[0, 3, 1], [1, 0, 4], [2, 1, 0]]))
    assert test.deviance == pytest.approx(2.79754, abs=1e-5)
    assert test.df == 1


def test_rock_paper_scissors():
    test = representable(of_wins(CYCLE))
    assert test.floor_abs == pytest.approx(0.3)
    assert test.floor_kl_raw == pytest.approx(0.19274, abs=1e-5)
    assert 0.185 < test.floor_kl < test.floor_kl_raw
    assert test.worst_cycles["sum"].abs()[0] == pytest.approx(3 * np.log(4))
    assert test.p < 0.01
    assert test.p_chi2 < 1e-10


@pytest.mark.parametrize(("rows", "n"), [(150, 8), (1500, 8)])
def test_p_is_uniform_where_scores_represent(rows, n):
    # With two rows or fewer a pair the chi-square law fails, and the draws must not.
    tests = [representable(Comparisons.from_triplets(rows_of(seed, n=n, rows=rows)), n_boot=60) for seed in range(200)]
    p = np.array([test.p_boot for test in tests])
    p = p[np.isfinite(p)] - np.random.default_rng(0).random(np.isfinite(p).sum()) / 61  # p takes the values k/61
    assert kstest(p, "uniform").pvalue > 0.01


def test_p_chi2_is_uniform_with_many_rows_a_pair():
    tables = (Comparisons.from_triplets(rows_of(seed, n=5, rows=3000, spread=0.5)) for seed in range(300))
    p = [representable(c, n_boot=0).p_chi2 for c in tables]
    assert kstest(p, "uniform").pvalue > 0.01


def test_few_rows_a_pair_mislead_the_chi_square_law_and_not_the_draws():
    tests = [representable(Comparisons.from_triplets(rows_of(seed, n=30, rows=900)), n_boot=60) for seed in range(40)]
    assert np.mean([test.p_chi2 < 0.05 for test in tests]) > 0.25
    assert np.mean([test.p < 0.05 for test in tests]) < 0.2


def test_people_who_repeat_themselves_are_one_voice():
    rejected = {"rows": 0, "people": 0}
    for seed in range(40):
        once = rows_of(seed, n=8, rows=300)
        rows = once.loc[np.repeat(once.index, 3)].assign(person=np.repeat(once.index, 3))
        rejected["rows"] += representable(Comparisons.from_triplets(rows), n_boot=60).p < 0.05
        rejected["people"] += representable(Comparisons.from_triplets(rows, cluster="person"), n_boot=60).p < 0.05
    assert rejected["rows"] > 30
    assert rejected["people"] < 8


@pytest.mark.parametrize("repeats", [1, 3])
def test_p_is_uniform_with_clusters(repeats):
    # Twenty people with many independent rows, or 300 who say the same three times.
    p = []
    for seed in range(200):
        once = rows_of(seed, n=8, rows=300)
        person = once.index if repeats > 1 else np.random.default_rng(seed).integers(0, 20, len(once))
        rows = once.assign(person=person).loc[np.repeat(once.index, repeats)]
        p.append(representable(Comparisons.from_triplets(rows, cluster="person"), n_boot=60).p)
    p = np.array(p) - np.random.default_rng(0).random(200) / 61
    assert kstest(p, "uniform").pvalue > 0.01
    assert 0.01 <= np.mean(p < 0.05) <= 0.11


def test_clusters_do_not_hide_cycles():
    rows = [(i, j, k) for k in range(80) for (i, j), w in np.ndenumerate(CYCLE // 20) if k < 20 for _ in range(w)]
    frame = pd.DataFrame(rows, columns=["chosen", "rejected", "person"])
    test = representable(Comparisons.from_triplets(frame, cluster="person"))
    assert test.p < 0.02
    assert test.drawn == "signs of clusters"
    assert test.floor_kl == pytest.approx(0.19, abs=0.02)


def test_expected_deviance():
    for n, p in [(1.0, 0.3), (5.0, 0.7), (40.0, 0.05), (150.0, 0.02), (1000.0, 0.4)]:
        wins = np.arange(n + 1)
        d = np.full(len(wins), np.log(p / (1 - p)))
        exact = binom.pmf(wins, n, p) @ deviances(wins, n - wins, d)
        assert expected_deviances(np.array([n]), np.array([p]))[0] == pytest.approx(exact, rel=2e-3)


def test_single_rows_add_nothing_to_the_test():
    rng = np.random.default_rng(0)
    order = rng.permutation(45)
    i, j = np.triu_indices(10, 1)
    first = rng.random(45) < 0.5
    rows = pd.DataFrame({"chosen": np.where(first, i, j), "rejected": np.where(first, j, i)}).iloc[order]
    test = representable(Comparisons.from_triplets(rows))
    assert np.isnan(test.p)
    assert "no pair was compared twice" in test.reason
    assert test.floor_kl == 0


def test_what_cannot_be_tested_says_why():
    tree = of_wins([[0, 3, 2], [1, 0, 0], [4, 0, 0]])
    assert "no cycle" in representable(tree).reason
    weights = Comparisons.from_triplets(rows_of(0).assign(n=0.7), weight="n")
    test = representable(weights)
    assert "no whole numbers" in test.reason
    assert test.p == test.p_chi2
    c = of_wins(CYCLE)
    assert "penalised" in representable(c, fit=fit_bt(c, ridge=1.0)).reason
    assert representable(c, n_boot=0).n_boot == 0
    for bad in (-1, 2.5, "many"):
        with pytest.raises(ValueError, match="n_boot must be a whole number"):
            representable(c, n_boot=bad)


def test_same_seed_same_p():
    c = Comparisons.from_triplets(rows_of(0))
    assert representable(c, seed=3).p_boot == representable(c, seed=3).p_boot


def test_drawn_counts_without_finite_scores_take_the_supremum():
    # One row a pair and three items: in every draw the fit is perfect or a cycle of log-odds zero.
    c = of_wins([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    drawn = parametric_draws(fit_bt(c), c.n, 50, np.random.default_rng(0))
    assert np.isfinite(drawn).all()


def test_large_graphs_draw_the_same_law(monkeypatch):
    c = Comparisons.from_triplets(rows_of(0, n=60, rows=2500))
    small = parametric_draws(fit_bt(c), c.n, 60, np.random.default_rng(0))
    monkeypatch.setattr(laplacian, "DENSE_LIMIT", 20)
    monkeypatch.setattr(laplacian, "BATCH_LIMIT", 10)
    large = parametric_draws(fit_bt(c), c.n, 60, np.random.default_rng(0))
    # Equal draws, since the order of random numbers is the same; the scores are a little less exact.
    np.testing.assert_allclose(np.sort(large), np.sort(small), atol=0.05 * small.std())


def test_all_triangles_are_found():
    c = Comparisons.from_triplets(rows_of(0, n=20, rows=120))
    pairs = {(i, j) for i, j in zip(*c.ends, strict=True)}
    expected = {
        (a, b, d)
        for a in range(20)
        for b in range(a + 1, 20)
        for d in range(b + 1, 20)
        if {(a, b), (b, d), (a, d)} <= pairs
    }
    found = triangles.worst_triangles(c, top=10_000)
    assert found.count == len(expected) == len(found.worst)
    labels = {tuple(sorted((row.i, row.j, row.k))) for row in found.worst.itertuples()}
    assert labels == {tuple(sorted(c.items[k] for k in three)) for three in expected}


def test_a_sample_of_triangles_estimates_their_number(monkeypatch):
    c = Comparisons.from_triplets(rows_of(0, n=60, rows=3000))
    whole = triangles.worst_triangles(c)
    monkeypatch.setattr(triangles, "_MOST_PATHS", 5000)
    part = triangles.worst_triangles(c)
    assert part.sampled
    assert not whole.sampled
    assert part.examined < whole.examined
    assert part.count == pytest.approx(whole.count, rel=0.1)
    assert part.worst["z"].max() <= whole.worst["z"].max()


def test_a_cycle_says_how_it_was_judged():
    wins = of_wins([[0, 9, 0], [0, 0, 7], [5, 0, 0]])
    row = triangles.worst_triangles(wins).worst.iloc[0]
    half = [np.log((w + 0.5) / 0.5) for w in (9, 7, 5)]
    assert abs(row["sum"]) == pytest.approx(sum(half))
    assert row["se"] == pytest.approx(np.sqrt(sum(1 / (w + 0.5) + 2 for w in (9, 7, 5))))
    assert deviances(np.array([3.0]), np.array([1.0]), np.array([0.0]))[0] == pytest.approx(
        2 * (xlogy(3, 3) + xlogy(1, 1) - xlogy(4, 4) + 4 * np.log(2))
    )


def test_the_statistic_of_single_rows_is_worked_out_without_their_deviances():
    rng = np.random.default_rng(0)
    n = rng.integers(1, 4, 200).astype(float)
    wins, d = rng.binomial(n.astype(int), 0.4).astype(float), rng.normal(size=200)
    direct = (deviances(wins, n - wins, d) - expected_deviances(n, expit(d))).sum()
    assert statistic_of(wins, n - wins, d) == pytest.approx(direct)
