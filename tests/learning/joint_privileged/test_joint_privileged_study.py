import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from assay.errors import InputError, MissingPart
from assay.evidence.study import Budget
from assay.learning.joint_privileged import baselines, samples
from assay.learning.joint_privileged.own import read
from assay.learning.joint_privileged.study import STUDY, AllLabels, own_study

QUICK, FULL = Budget.QUICK, Budget.FULL


@pytest.mark.parametrize("task", [t.name for t in STUDY.tasks])
def test_tasks_depend_on_the_seed_and_show_few_labels(task):
    if task.startswith("rhc"):
        pytest.importorskip("SurvSet")
    load = STUDY.task(task).load
    given, hidden = load(5, FULL)
    again, _ = load(5, FULL)
    other, _ = load(6, FULL)
    np.testing.assert_array_equal(given.X, again.X)
    np.testing.assert_array_equal(given.W, again.W)
    assert not np.array_equal(given.X, other.X)
    labelled = given.y >= 0 if given.classes else ~np.isnan(given.y)
    n = {"rhc": 40, "diabetes": 30, "synth": 60, "wdbc": 24, "greedy": 60}[task.split("-")[0]]
    assert labelled.sum() == n
    np.testing.assert_array_equal(given.y[labelled], hidden.y_train[labelled])
    assert len(given.X) == len(given.W) == len(hidden.y_train) > 200
    assert len(hidden.y_test) == len(given.X_test) >= 142
    for part in (given.X, given.W, given.X_test):
        assert np.isfinite(part).all()
    assert vars(given).keys() == {"X", "W", "y", "X_test", "classes"}


def test_the_same_patients_stand_behind_the_three_kinds_of_W():
    pytest.importorskip("SurvSet")
    tables = {kind: samples.rhc(np.random.default_rng(3), kind)[0] for kind in ("real", "mixed", "noise")}
    for table in tables.values():
        np.testing.assert_array_equal(table.X, tables["real"].X)
    assert [tables[kind].W.shape[1] for kind in ("real", "mixed", "noise")] == [12, 52, 40]
    np.testing.assert_array_equal(tables["mixed"].W[:, :12], tables["real"].W)
    np.testing.assert_array_equal(tables["mixed"].W[:, 12:], tables["noise"].W)


def test_synthetic_tables_have_the_strengths_they_say():
    for strength in (0, 1, 4):
        given, hidden = samples.synthetic(np.random.default_rng(0), strength)
        Z = np.hstack([given.X, given.W])
        left = hidden.y_train - LinearRegression().fit(Z, hidden.y_train).predict(Z)
        without = hidden.y_train - LinearRegression().fit(given.X, hidden.y_train).predict(given.X)
        assert left.var() == pytest.approx(1, rel=0.15)
        assert without.var() == pytest.approx(1 + strength**2, rel=0.15)


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms])
def test_every_arm_answers(arm):
    of = STUDY.arm(arm)
    for task in ("diabetes-noise", "wdbc", "synth-1", "greedy-500"):
        if (of.tasks is None or task in of.tasks) and not (arm == "coupled-greedy" or task == "greedy-500"):
            given, hidden = STUDY.task(task).load(0, FULL)
            error = STUDY.task(task).score(of.run(given, 1, FULL), hidden)["error"]
            assert 0 < error < 3
            again = STUDY.task(task).score(of.run(given, 1, FULL), hidden)["error"]
            assert error == again


def test_what_the_study_shows_at_a_glance():
    def errors(arm, task):
        out = []
        for seed in range(6):
            given, hidden = STUDY.task(task).load(seed, QUICK)
            out.append(STUDY.task(task).score(STUDY.arm(arm).run(given, seed, QUICK), hidden)["error"])
        return np.mean(out)

    assert errors("all-labels", "synth-0") < errors("coupled", "synth-0") < errors("two-stage", "synth-0")
    assert errors("coupled", "synth-4") < errors("labelled", "synth-4") < errors("prior", "synth-4") + 0.2
    assert errors("prior", "synth-0") == pytest.approx(1, abs=0.1)


def test_baselines_are_what_they_say():
    given, _ = STUDY.task("diabetes-real").load(0, QUICK)
    path = baselines.labels_only(given, 0)
    seen = ~np.isnan(given.y)
    mean, sd = given.X.mean(axis=0), given.X.std(axis=0)
    by_hand = Ridge(3.0).fit((given.X[seen] - mean) / sd, given.y[seen]).predict((given.X_test - mean) / sd)
    np.testing.assert_allclose(path.outputs[1], by_hand)
    two = baselines.two_stages(given, 0)
    lower = path if path.losses.min() <= two.losses.min() else two
    np.testing.assert_array_equal(baselines.selected(path, two), baselines.best(lower))
    averaged = baselines.averaged(path, two, 0)
    both = np.vstack([path.outputs, two.outputs])
    assert (averaged >= both.min(axis=0) - 1e-9).all()
    assert (averaged <= both.max(axis=0) + 1e-9).all()


@pytest.mark.parametrize(
    ("task", "output", "message"),
    [
        ("diabetes-real", None, "shape"),
        ("diabetes-real", "north", "array of numbers"),
        ("diabetes-real", np.zeros(141), "shape"),
        ("diabetes-real", np.full(142, np.nan), "finite"),
        ("wdbc", np.zeros((169, 2)), "sum to 1"),
        ("wdbc", np.zeros(169), "shape"),
        ("wdbc", np.full((169, 2), np.nan), "finite"),
    ],
)
def test_score_says_what_is_wrong(task, output, message):
    _, hidden = STUDY.task(task).load(0, FULL)
    with pytest.raises(ValueError, match=message):
        STUDY.task(task).score(output, hidden)


def test_score_is_the_share_of_variance_or_the_log_loss():
    _, hidden = STUDY.task("diabetes-real").load(0, QUICK)
    y = hidden.y_test
    assert STUDY.task("diabetes-real").score(y, hidden)["error"] == 0
    assert STUDY.task("diabetes-real").score(np.full(len(y), y.mean()), hidden)["error"] == pytest.approx(1)
    _, hidden = STUDY.task("wdbc").load(0, FULL)
    even = np.full((169, 2), np.log(0.5))
    assert STUDY.task("wdbc").score(even, hidden)["error"] == pytest.approx(np.log(2))
    # Certainty of the wrong class costs much, and not infinitely much.
    wrong = np.where(np.eye(2)[1 - hidden.y_test.astype(int)] == 1, 0.0, -np.inf)
    assert STUDY.task("wdbc").score(wrong, hidden)["error"] == pytest.approx(-np.log(1e-6))


def test_the_study_can_be_sent_to_a_worker():
    copy = pickle.loads(pickle.dumps(STUDY))
    given, hidden = copy.task("diabetes-real").load(0, QUICK)
    assert copy.task("diabetes-real").score(copy.arm("coupled").run(given, 0, QUICK), hidden)["error"] < 1.5
    assert isinstance(pickle.loads(pickle.dumps(copy.arm("all-labels").run(given, 0, QUICK))), AllLabels)


def test_budgets_keep_to_their_tasks_and_seeds():
    names = {b: {t.name for t, _ in STUDY.pairs(b)} for b in Budget}
    assert names[Budget.SMOKE] == {"diabetes-real", "diabetes-noise"}
    assert names[FULL] - names[QUICK] == {"wdbc", "greedy-500"}
    assert STUDY.base_seed == 100
    assert {b: STUDY.seeds[b] for b in (Budget.SMOKE, QUICK, FULL)} == {Budget.SMOKE: 3, QUICK: 20, FULL: 60}
    assert {t.name for t in STUDY.tasks if t.control} == {"rhc-noise", "diabetes-noise", "synth-0"}


def test_a_missing_package_is_named(monkeypatch):
    samples.intensive_care.cache_clear()
    monkeypatch.setattr("assay.parts.survset.PACKAGE", "no_such_package")
    with pytest.raises(MissingPart):
        STUDY.task("rhc-real").load(0, QUICK)
    samples.intensive_care.cache_clear()


# ---- a user's table


def table(n=150, gaps=True, classes=0, seed=0):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, 2))
    frame = pd.DataFrame({"a": w[:, 0] + rng.standard_normal(n), "word": rng.choice(["u", "v"], n)})
    frame["w_one"], frame["priv_two"] = w[:, 0], w[:, 1]
    y = w.sum(axis=1)
    frame["target"] = np.where(y > 0, "yes", "no") if classes else y
    if gaps:
        frame["target"] = frame["target"].where(np.arange(n) % 3 == 0)
    frame.loc[::7, "a"] = np.nan
    frame.loc[::11, ["w_one", "priv_two"]] = np.nan
    return frame


@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize("gaps", [True, False])
def test_own_table(tmp_path, gaps, classes):
    path = tmp_path / "own.csv"
    table(gaps=gaps, classes=classes).to_csv(path, index=False)
    study = own_study({"data": path})
    assert [t.name for t in study.tasks] == (["own"] if gaps else ["own-10", "own-30"])
    for task in study.tasks:
        given, hidden = task.load(0, QUICK)
        labelled = given.y >= 0 if classes else ~np.isnan(given.y)
        known = 50 if gaps else 150
        assert len(hidden.y_test) == round(known / 3)
        assert labelled.sum() == {"own": 33, "own-10": 20, "own-30": 30}[task.name]
        if gaps:
            assert (~labelled).sum() == 100 - int((np.arange(150)[::11] % 3 != 0).sum())
        for _, arm in [pair for pair in study.pairs(QUICK) if pair[0] is task]:
            assert np.isfinite(task.score(arm.run(given, 0, QUICK), hidden)["error"])
    assert any(arm.role == "ceiling" for arm in study.arms) is not gaps
    assert {o for c in study.claims for o in c.others} == {"labelled", "two-stage", "select"}
    assert pickle.loads(pickle.dumps(study)).base_seed == 100
    assert read(path).classes == classes
    assert read(path).privileged == ("w_one", "priv_two")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="target"), "no column 'y' and 'target'"),
        (lambda f: f.assign(y=1.0), "both columns 'y' and 'target'"),
        (
            lambda f: f.drop(columns=["w_one", "priv_two"]),
            "0 privileged columns, whose names must begin with 'w_' or 'priv_'",
        ),
        (lambda f: f[["w_one", "priv_two", "target"]], "0 other inputs"),
        (lambda f: f.iloc[:90], "30 values in 'target'; this study needs at least 40"),
        (lambda f: f.assign(id=[f"p{i}" for i in range(len(f))]), "'id' of own.csv has 150 different texts"),
        (lambda f: f.assign(a=np.inf), "'a' of own.csv has infinity"),
        (lambda f: f.assign(target=1), "has 1 classes"),
        (lambda f: f.assign(target=1.5), "has one value only"),
        (lambda f: f.assign(w_one=np.nan, priv_two=np.nan), "privileged columns of own.csv are empty in every row"),
    ],
)
def test_own_tables_that_do_not_serve_are_refused_by_name(tmp_path, change, message):
    path = tmp_path / "own.csv"
    change(table()).to_csv(path, index=False)
    with pytest.raises(InputError, match=message):
        own_study({"data": path})
    with pytest.raises(InputError, match="takes a table as data"):
        own_study({"model": path})


def test_what_a_user_may_bring_is_said():
    assert "w_ or priv_" in STUDY.accepts["data"]
    assert "y or target" in STUDY.accepts["data"]
