import pickle

import numpy as np
import pandas as pd
import pytest
from clkd_cohorts import cohort

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.learning.clkd import baselines, samples
from assay.learning.clkd.concordance import concordance
from assay.learning.clkd.study import REAL, SPOILT, STUDY, Pooled, own

SMOKE = Budget.SMOKE


def loaded(task, seed=0):
    return STUDY.task(task).load(seed, SMOKE)


@pytest.fixture(scope="module")
def smarto():
    return loaded("smarto")


def test_the_three_parts_of_a_cohort_do_not_overlap(smarto):
    given, hidden = smarto
    parts = [hidden.draw.external, hidden.draw.study, hidden.draw.test]
    assert [len(p) for p in parts] == [1500, 300, 1500]
    rows = [set(map(tuple, np.column_stack([p.X, p.time]))) for p in parts]
    assert not rows[0] & rows[1]
    assert not rows[0] & rows[2]
    assert not rows[1] & rows[2]
    assert not hidden.draw.external.teacher.any()
    # Sampled from the study: a case and two controls at risk.
    assert len(given.rows) == 3 * given.rows.event.sum() == 3 * hidden.draw.study.event.sum()
    assert (np.bincount(given.groups) == 3).all()
    assert given.test_X is hidden.test.X


def test_the_teacher_sees_no_new_marker():
    for name in samples.SOURCES:
        source = samples.SOURCES[name]
        table = samples.table(source)
        hidden = [j for j, column in enumerate(table.columns) if column.startswith(source.hidden)]
        assert hidden
        draw = samples.draw(3, source)
        changed = np.array(draw.test.X)
        changed[:, hidden] += 5
        # A linear function of the other columns explains its score.
        seen = np.column_stack([np.delete(draw.test.X, hidden, axis=1), np.ones(len(changed))])
        beta = np.linalg.lstsq(seen, draw.test.teacher, rcond=None)[0]
        np.testing.assert_allclose(seen @ beta, draw.test.teacher, atol=1e-8)


def test_framingham_learns_from_men_and_is_tested_on_women():
    table = samples.table(samples.SOURCES["Framingham"])
    assert not (table.external & table.own).any()
    assert not any("sex" in column for column in table.columns)
    assert any("month" in column for column in table.columns)
    assert not any("month" in column for column in samples.table(samples.SOURCES["Framingham-lean"]).columns)


def test_made_teachers_are_turned_by_so_many_degrees():
    right, across, wrong = (samples.rotated(5, degrees) for degrees in (0, 90, 180))
    np.testing.assert_allclose(right.test.teacher, -wrong.test.teacher)
    c = [concordance(d.test.event, d.test.time, d.test.teacher) for d in (right, across, wrong)]
    assert c[0] > 0.68
    assert abs(c[1] - 0.5) < 0.08
    assert c[2] < 0.32
    assert 0.1 < right.study.event.mean() < 0.4


def test_spoilt_teachers():
    given, hidden = loaded("smarto")
    turned, hidden_turned = loaded("smarto-flipped")
    np.testing.assert_array_equal(turned.rows.teacher, -given.rows.teacher)
    np.testing.assert_array_equal(turned.test_teacher, -given.test_teacher)
    np.testing.assert_array_equal(turned.rows.X, given.rows.X)
    shuffled, _ = loaded("smarto-shuffled")
    assert sorted(shuffled.test_teacher) == sorted(given.test_teacher)
    assert np.corrcoef(shuffled.test_teacher, given.test_teacher)[0, 1] < 0.2
    score = STUDY.task("smarto").score
    assert score(given.test_teacher, hidden)["cindex"] == pytest.approx(
        1 - score(turned.test_teacher, hidden_turned)["cindex"]
    )
    assert {t.name for t in STUDY.tasks if t.control} == {*SPOILT, "rotated-90", "rotated-180"}


@pytest.mark.parametrize("arm", [arm.name for arm in STUDY.arms])
def test_every_arm_answers(arm):
    task = "nwtco" if STUDY.arm(arm).tasks is not None else "rotated-0"
    given, hidden = loaded(task)
    output = STUDY.arm(arm).run(given, 1, SMOKE)
    metrics = STUDY.task(task).score(output, hidden)
    assert 0.55 < metrics["cindex"] < 0.85
    assert 2 < metrics["loss"] < 5
    if arm != "pooled":
        np.testing.assert_array_equal(STUDY.arm(arm).run(given, 1, SMOKE), output)


def test_rivals_are_tuned_on_the_same_folds_and_reach_their_limits(monkeypatch):
    given, _ = loaded("rotated-0")
    # An offset that says nothing, and a blend with no share of the teacher, are the study alone, averaged.
    silent = baselines.Given(
        baselines.Rows(given.rows.X, given.rows.event, given.rows.time, 0 * given.rows.teacher),
        given.groups, given.cohort, given.test_X, 0 * given.test_teacher,
    )  # fmt: skip
    alone = baselines.internal(silent, 1, eta="aggregate")
    alone = alone - alone.mean()
    offset = baselines.offset(silent, 1)
    np.testing.assert_allclose(offset - offset.mean(), alone, atol=1e-6)
    monkeypatch.setattr(baselines, "SHARES", (0.0,))
    blend = baselines.blend(given, 1)
    np.testing.assert_allclose(blend - blend.mean(), alone, atol=1e-6)
    monkeypatch.setattr(baselines, "SHARES", (1.0,))
    blend = baselines.blend(given, 1)
    np.testing.assert_allclose(blend - blend.mean(), given.test_teacher - given.test_teacher.mean(), atol=1e-9)


def test_the_score_cannot_be_gamed(smarto):
    _, hidden = smarto
    score = STUDY.task("smarto").score
    n = len(hidden.test)
    level = score(np.zeros(n), hidden)
    assert level["cindex"] == 0.5
    assert level["loss"] == pytest.approx(np.mean(np.log((hidden.components.index >= 0).sum(axis=1))))
    truth = -hidden.test.time
    assert score(truth, hidden)["cindex"] > 0.99
    assert score(1e6 * np.random.default_rng(0).normal(size=n), hidden)["loss"] > 1000
    for bad, message in (
        (np.zeros(3), "shape"),
        (np.full(n, np.nan), "finite"),
        ("high", "log risks"),
        (np.zeros((n, 2)), "shape"),
        (None, "shape|log risks"),
    ):
        with pytest.raises(ValueError, match=message):
            score(bad, hidden)


def test_budgets():
    at = {b: {t.name for t, _ in STUDY.pairs(b)} for b in Budget}
    assert at[SMOKE] == {"nwtco", "rotated-0"}
    assert set(REAL) | set(SPOILT) < at[Budget.QUICK]
    assert at[Budget.FULL] == {t.name for t in STUDY.tasks}
    assert {a.name for _, a in STUDY.pairs(Budget.QUICK)} & {"pooled", "risk_set", "pairwise"} == set()
    assert STUDY.base_seed == 1000
    assert STUDY.seeds[Budget.QUICK] == 15
    assert min(STUDY.seeds.values()) >= 3


def test_a_study_can_be_sent_to_a_worker():
    copy = pickle.loads(pickle.dumps(STUDY))
    given, hidden = copy.task("rotated-0").load(0, SMOKE)
    assert copy.task("rotated-0").score(copy.arm("teacher").run(given, 0, SMOKE), hidden)["cindex"] > 0.6
    assert isinstance(pickle.loads(pickle.dumps(STUDY.arm("pooled").run(given, 0, SMOKE))), Pooled)


def test_own_cohort(tmp_path):
    X, event, time, _ = cohort(0, 150, 3)
    frame = pd.DataFrame(X, columns=list("abc")).assign(
        time=time, event=event.astype(int), teacher=X[:, 0], site=np.array(["n", "s"])[(X[:, 1] > 0).astype(int)]
    )
    path = tmp_path / "mine.csv"
    frame.to_csv(path, index=False)
    study = own({"data": path})
    task = study.tasks[0]
    given, hidden = task.load(0, SMOKE)
    other, _ = task.load(1, SMOKE)
    assert given.rows.X.shape == (100, 4)
    assert len(hidden.test) == 50
    assert given.groups is None
    assert not np.array_equal(other.rows.X, given.rows.X)
    assert abs(given.rows.event.mean() - event.mean()) < 0.02
    for arm in study.arms:
        assert task.score(arm.run(given, 0, SMOKE), hidden)["cindex"] > 0.5
    assert [tuple(c.others) for c in study.claims] == [
        ("internal", "internal-averaged"), ("teacher",), ("stack",), ("offset",), ("blend",)
    ]  # fmt: skip
    assert "smarto" not in study.contract + str(study.metrics)
    assert pickle.loads(pickle.dumps(study)).name == "clkd"
    for bad, message in (
        (frame.drop(columns="teacher"), "teacher"),
        (frame.head(40), "at least 45 and 15"),
        (frame.assign(event=np.arange(150) < 14), "150 rows and 14 events"),
        (frame.assign(a=np.where(frame.index == 4, np.nan, 1)), "missing values in 'a'"),
        (frame.assign(time=0.0), "time must be positive"),
    ):
        bad.to_csv(path, index=False)
        with pytest.raises(InputError, match=message):
            own({"data": path.rename(tmp_path / f"{message[:3]}.csv")})
    with pytest.raises(InputError, match="takes a cohort"):
        own({"model": path})
