import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from knockoff_mixtures import mixture
from sklearn.datasets import load_digits

from assay.errors import InputError, MissingPart
from assay.evidence.study import Budget, Proportion
from assay.statistics.knockoff_pca import baselines
from assay.statistics.knockoff_pca.samples import inject, spiked_mixture
from assay.statistics.knockoff_pca.study import FLAG_FITS, STUDY, TrueLabels, own

SMOKE = Budget.SMOKE
PEERS = {"robpca": "robpy", "pcp": "pyrpca"}


def alignment(task, arm, seed=0):
    given, hidden = STUDY.task(task).load(seed, SMOKE)
    return STUDY.task(task).score(STUDY.arm(arm).run(given, seed, SMOKE), hidden)["alignment"]


def test_samples_have_the_covariance_and_the_shift_they_say():
    rng = np.random.default_rng(0)
    X, shifted, directions = spiked_mixture(rng, 20_000, 5, 0.2)
    assert shifted.sum() == 4000
    clean = X[~shifted]
    np.testing.assert_allclose(np.var(clean @ directions.T, axis=0), [15, 9], rtol=0.05)
    assert np.trace(np.cov(clean.T)) == pytest.approx(5 + 14 + 8, rel=0.03)
    shift = X[shifted].mean(axis=0) - clean.mean(axis=0)
    assert 0.2 * 0.8 * shift @ shift == pytest.approx(25, rel=0.1)
    heavy, _, _ = spiked_mixture(rng, 20_000, 5, 0.0, degrees=6.0, spikes=())
    assert heavy.var() == pytest.approx(1, rel=0.03)
    assert np.mean(heavy**4) > 4  # 3 is Gaussian, 6 Student's t


def test_injection_leaves_the_table_alone():
    X = np.random.default_rng(1).standard_normal((100, 6))
    before = X.copy()
    shifted_table, rows = inject(np.random.default_rng(2), X, 0.12, 40.0)
    np.testing.assert_array_equal(X, before)
    assert rows.sum() == 12
    np.testing.assert_allclose(np.linalg.norm(shifted_table - X, axis=1), np.where(rows, 40, 0), atol=1e-12)


def test_tasks_depend_on_the_seed_alone_and_hide_the_labels():
    for task in STUDY.tasks:
        given, _ = task.load(5, SMOKE)
        again, _ = task.load(5, SMOKE)
        other, _ = task.load(6, SMOKE)
        np.testing.assert_array_equal(given.X, again.X)
        assert given.X.shape != other.X.shape or not np.array_equal(given.X, other.X)
        assert vars(given).keys() == {"X", "n_components"}


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms])
def test_every_arm_answers_on_simulated_and_real_tables(arm):
    if arm in PEERS:
        pytest.importorskip(PEERS[arm])
    for task in ("T1-20", "T6"):
        if STUDY.arm(arm).tasks is None or task in STUDY.arm(arm).tasks:
            assert 0 <= alignment(task, arm) <= 100 + 1e-9


def test_what_the_study_shows_at_a_glance():
    assert alignment("T1-20", "pca") < 50 < 90 < alignment("T1-20", "knockoff")
    assert alignment("T1-00", "knockoff") == pytest.approx(alignment("T1-00", "pca"), abs=0.5)
    assert alignment("T1-20", "oracle") == pytest.approx(alignment("T1-20", "knockoff"), abs=2)
    assert alignment("T5", "oracle") > 99


def test_flags_are_counted():
    task = STUDY.task("T0-flags")
    given, hidden = task.load(0, SMOKE)
    assert given.X.shape == (FLAG_FITS, 100, 90)
    flags = STUDY.arm("knockoff").run(given, 0, SMOKE)
    assert task.score(flags, hidden) == {"false_flag": Proportion(int(flags.sum()), FLAG_FITS)}
    assert task.score(np.arange(FLAG_FITS) < 3, hidden)["false_flag"] == Proportion(3, FLAG_FITS)
    for bad in (np.zeros(3, dtype=bool), np.zeros(FLAG_FITS), None):
        with pytest.raises(ValueError, match="truth values"):
            task.score(bad, hidden)


def test_score_is_the_cosine_and_cannot_be_gamed():
    task = STUDY.task("T5")
    _, hidden = task.load(0, SMOKE)
    reference = hidden.reference
    assert task.score(reference, hidden)["alignment"] == pytest.approx(100)
    assert task.score(-1e6 * reference[::-1], hidden)["alignment"] == pytest.approx(100)  # scale, sign, order
    rng = np.random.default_rng(0)
    wrong = rng.standard_normal(64)
    wrong -= reference.T @ (reference @ wrong)
    half = np.stack([reference[0], wrong])
    assert task.score(half, hidden)["alignment"] == pytest.approx(50)
    # Saying one good direction twice does not make two.
    with pytest.raises(ValueError, match="linearly dependent"):
        task.score(np.stack([reference[0], reference[0]]), hidden)
    single = STUDY.task("T1-20")
    _, truth = single.load(0, SMOKE)
    tilted = np.cos(1.0) * truth.reference + np.sin(1.0) * _orthogonal(truth.reference)
    assert single.score(5 * tilted, truth)["alignment"] == pytest.approx(100 * np.cos(1.0))
    # All directions at once are no answer.
    with pytest.raises(ValueError, match="must have shape"):
        single.score(np.eye(270), truth)


def _orthogonal(row):
    other = np.zeros_like(row)
    other[0, 0] = 1
    other -= (other @ row.T) * row
    return other / np.linalg.norm(other)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "shape"),
        ("north", "array of numbers"),
        (np.ones((1, 64)), "shape"),
        (np.full((2, 64), np.nan), "finite"),
        (np.stack([np.ones(64), np.zeros(64)]), "zero"),
    ],
)
def test_score_says_what_is_wrong(output, message):
    task = STUDY.task("T5")
    _, hidden = task.load(0, SMOKE)
    with pytest.raises(ValueError, match=message):
        task.score(output, hidden)


def test_oracle_is_pca_within_the_true_groups():
    given, hidden = STUDY.task("T1-20").load(3, SMOKE)
    labels = hidden.shifted.astype(int)
    components = baselines.within_groups(given.X, labels, 1)
    expected = 100 * abs(float(components[0] @ hidden.reference[0]))
    assert STUDY.task("T1-20").score(TrueLabels(), hidden)["alignment"] == pytest.approx(expected)


def test_spatial_median_and_spherical():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    centre = baselines.spatial_median(X)
    # At the minimum the unit vectors to the rows cancel.
    away = X - centre
    assert np.linalg.norm((away / np.linalg.norm(away, axis=1, keepdims=True)).mean(axis=0)) < 1e-6
    X[:, 1] *= 5
    assert abs(baselines.spherical(X, 1, 0)[0, 1]) > 0.98


@pytest.mark.parametrize(("arm", "line"), [("robpca", "--no-deps robpy==0.0.6"), ("pcp", "pyrpca")])
def test_a_missing_peer_says_how_to_install_it(monkeypatch, arm, line):
    for name in [n for n in sys.modules if n.split(".")[0] == PEERS[arm]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, PEERS[arm], None)
    given, _ = STUDY.task("T5").load(0, SMOKE)
    with pytest.raises(MissingPart, match=line):
        STUDY.arm(arm).run(given, 0, SMOKE)


def test_robpca_is_the_same_with_the_same_seed():
    pytest.importorskip("robpy")
    X, _, _ = mixture(50, 100, 30, 0.2)
    np.testing.assert_array_equal(baselines.robpca(X, 2, 7), baselines.robpca(X, 2, 7))


def test_budgets_keep_to_their_tasks():
    names = {b: {t.name for t, _ in STUDY.pairs(b)} for b in Budget}
    assert names[Budget.SMOKE] == {"T1-00", "T1-20", "T5", "T0-flags"}
    assert names[Budget.QUICK] == {"T1-00", "T1-10", "T1-20", "T3-50", "T4", "T5", "T0-flags", "T0-flags-t6"}
    assert names[Budget.FULL] == {t.name for t in STUDY.tasks}
    assert {a.name for t, a in STUDY.pairs(Budget.FULL) if "flags" in t.name} == {"knockoff"}
    assert "pcp" not in {a.name for _, a in STUDY.pairs(Budget.QUICK)}
    assert STUDY.base_seed == 1000
    controls = {t.name for t in STUDY.tasks if t.control}
    assert controls == {"T1-00", "T2-00", "T0-flags", "T0-flags-t6"}


def test_a_study_can_be_sent_to_a_worker():
    copy = pickle.loads(pickle.dumps(STUDY))
    given, hidden = copy.task("T5").load(0, SMOKE)
    output = copy.arm("pca").run(given, 0, SMOKE)
    assert copy.task("T5").score(output, hidden)["alignment"] > 0
    answer = pickle.loads(pickle.dumps(STUDY.arm("oracle").run(given, 0, SMOKE)))
    assert copy.task("T5").score(answer, hidden)["alignment"] > 99


def test_own_table(tmp_path):
    X, digit = load_digits(return_X_y=True)
    path = tmp_path / "threes.csv"
    X = X[digit == 3]
    pd.DataFrame(X).to_csv(path)
    study = own({"data": path})
    assert [t.name for t in study.tasks] == ["injected-0.5", "injected-1", "injected-1.5"]
    first = np.linalg.eigvalsh(np.cov(X.T, bias=True))[-1]
    for task, strength in zip(study.tasks, (0.5, 1.0, 1.5), strict=True):
        given, hidden = task.load(0, Budget.QUICK)
        assert given.X.shape == (183, 64)
        assert f"{strength:g} times the variance of its first component" in task.what
        length = np.linalg.norm(given.X - X, axis=1).max()
        assert 0.12 * 0.88 * length**2 == pytest.approx(strength * first)
        assert hidden.shifted.sum() == 22
    scores = {
        a.name: task.score(a.run(given, 0, Budget.QUICK), hidden)["alignment"]
        for t, a in study.pairs(Budget.QUICK)
        if t is task and a.name in ("pca", "oracle", "knockoff")
    }
    assert scores["oracle"] > 95
    assert scores["oracle"] >= scores["knockoff"] - 1e-6
    assert scores["pca"] < 80
    assert pickle.loads(pickle.dumps(study)).name == "knockoff-pca"
    with pytest.raises(InputError, match="takes a table"):
        own({"model": path})


def test_an_own_table_is_judged_on_every_strength_against_the_strong_baselines(tmp_path):
    np.save(tmp_path / "own.npy", np.random.default_rng(0).standard_normal((38, 3)))
    study = own({"data": tmp_path / "own.npy"})
    assert all(claim.tasks is None for claim in study.claims)
    assert {other for claim in study.claims for other in claim.others} == {
        "pca",
        "pca-drop-first",
        "trimmed",
        "gmm",
        "oracle",
    }
    assert "T5" not in study.contract + str(study.metrics)
    assert "T0" not in study.contract + str(study.metrics)
    # The smallest table has the smallest group that can be found.
    assert study.tasks[0].load(0, SMOKE)[1].shifted.sum() == 5


@pytest.mark.parametrize("shape", [(37, 5), (38, 2)])
def test_an_own_table_needs_38_rows_and_3_columns(tmp_path, shape):
    np.save(tmp_path / "small.npy", np.random.default_rng(0).standard_normal(shape))
    with pytest.raises(InputError, match="at least 38 and 3: it shifts 12 % of the rows, and fewer than 5"):
        own({"data": tmp_path / "small.npy"})
    assert "38 × 3" in STUDY.accepts["data"]
