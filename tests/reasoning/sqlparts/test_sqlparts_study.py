"""The study: labels come from running, arms see no answers, scores cannot be gamed, a user's queries are read."""

import dataclasses
import json
import pickle
import sqlite3

import numpy as np
import pytest

from assay.errors import EndpointError, InputError
from assay.evidence.study import Budget
from assay.reasoning.sqlparts import SafeDatabase, canonical, labelling, mcs_score, own_pairs, retail, samples, study
from assay.reasoning.sqlparts import baselines as other_scores
from assay.reasoning.sqlparts.levels import LEVELS
from assay.reasoning.sqlparts.prompts import completion_of
from assay.reasoning.sqlparts.study import STUDY, Lesson, Pairs, Scores

SMOKE = Budget.SMOKE


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(study.QUERIES, SMOKE, 8)
    monkeypatch.setitem(study.ROWS, SMOKE, 300)
    # The shop in place of the flights, whose file takes seconds to read.
    monkeypatch.setattr(samples, "tables", retail.tables)
    monkeypatch.setattr(samples, "FLIGHTS", retail.POOL)
    monkeypatch.setattr(samples, "_TEMPLATES", retail.TEMPLATES)


def test_labels_come_from_running():
    rng = np.random.default_rng(0)
    golds = samples.gold_queries(rng, 8, retail.TEMPLATES)
    rows = labelling.ranking(golds, retail.tables(rng, 300), rng, retail.POOL)
    assert len(rows) == 8 * 6
    assert all(r["right"] for r in rows if r["edits"] == 0)
    assert 0 < sum(r["right"] for r in rows if r["edits"]) < sum(not r["right"] for r in rows)
    assert all(r["pred"] != r["gold"] for r in rows if r["edits"])


def test_no_condition_is_dropped_from_a_fragment():
    sql = "SELECT id FROM orders WHERE month > 3 AND store = 2 AND customer < 9"
    for seed in range(30):
        edited = samples.edited(sql, np.random.default_rng(seed), 3, retail.POOL, drop=False)
        assert edited.count("AND") == 2
    dropped = [samples.edited(sql, np.random.default_rng(seed), 3, retail.POOL).count("AND") for seed in range(30)]
    assert min(dropped) < 2


def test_fragments_are_labelled_without_the_score():
    rng = np.random.default_rng(1)
    golds = samples.gold_queries(rng, 16, retail.TEMPLATES)
    rows = labelling.fragments(golds, retail.tables(rng, 300), rng, retail.POOL)
    # Both kinds of disagreement may occur, else the label would be the score.
    assert {r["right"] for r in rows} == {True, False}
    assert np.mean([(mcs_score(r["pred"], r["gold"], norm="pred") == 1) == r["right"] for r in rows]) > 0.8


def test_a_distinct_that_changes_nothing_is_none():
    same = "SELECT kind, COUNT(*) FROM products GROUP BY kind"
    assert canonical(same.replace("SELECT", "SELECT DISTINCT")) == canonical(same)
    assert canonical("SELECT DISTINCT k AS x, MAX(a) FROM t GROUP BY 1") == canonical(
        "SELECT k, MAX(a) FROM t GROUP BY k"
    )
    for query in ("SELECT COUNT(*) FROM t GROUP BY k", "SELECT k FROM t GROUP BY k, a", "SELECT k FROM t"):
        assert canonical(query.replace("SELECT", "SELECT DISTINCT")) != canonical(query)


def test_junk_gives_other_rows_than_anything_of_gold():
    rng = np.random.default_rng(2)
    golds, tables = samples.gold_queries(rng, 16, retail.TEMPLATES), retail.tables(rng, 300)
    rows = labelling.junk(golds, tables, rng)
    assert rows
    with SafeDatabase(tables) as db:
        for row in rows:
            own = {db.run(sql).rows for sql in (row["gold"], *row["parts"])}
            assert row["foreign"][: len(row["parts"])] == row["parts"]
            foreign = row["foreign"][len(row["parts"]) :]
            assert len(set(foreign)) == 3
            assert not {db.run(sql).rows for sql in foreign} & own
            assert set(row["double"]) == set(row["parts"])


@pytest.mark.parametrize("task", ["flights", "shop", "fragments", "junk"])
def test_arms_see_no_labels_and_depend_on_the_seed_alone(task):
    load = STUDY.task(task).load
    given, hidden = load(5, SMOKE)
    assert {f.name for f in dataclasses.fields(given)} == {"kind", "preds", "golds"}
    assert load(5, SMOKE) == (given, hidden)
    assert load(6, SMOKE)[0] != given
    pickle.dumps(given)
    for arm in STUDY.arms:
        if arm.tasks and task in arm.tasks:
            metrics = STUDY.task(task).score(arm.run(given, 0, SMOKE), hidden)
            assert metrics["ms"] > 0
            assert all(np.isfinite(value) for value in metrics.values())


def test_scores_are_what_they_say():
    hidden = {"right": [True, True, False, False], "edits": [0, 0, 1, 5]}
    best = study.score_queries([1, 1, 0.5, 0.1], hidden)
    assert best["auc"] == best["floor"] == 1
    assert best["tau"] == pytest.approx(1)
    worst = study.score_queries([0.1, 0.2, 0.9, 1.0], hidden)
    assert worst["auc"] == 0
    assert worst["floor"] == 0.1
    assert study.score_queries([0, 0, 0, 0], hidden) == {"auc": 0.5, "tau": 0.0, "floor": 0.0}
    assert study.score_queries(Scores([1, 1, 0, 0], 0.02), hidden)["ms"] == pytest.approx(5)
    assert not study.score_junk([1, 1, 0.5], {"n": 3})["lowered"]
    assert study.score_junk([1, 0.6, 0.5], {"n": 3}) == {"lowered": True, "loss": 0.4, "loss_double": 0.5}
    for wrong in ([1, 2], [1, 2, 3, np.nan], [[1, 2, 3, 4]]):
        with pytest.raises(ValueError, match="4 finite numbers"):
            study.score_queries(wrong, hidden)


def test_edit_distance_is_a_distance_of_the_same_trees():
    pytest.importorskip("apted")
    near = other_scores.edit_distance
    gold = "SELECT a FROM t WHERE x > 1 AND y = 2"
    assert near("SELECT u.a FROM t AS u WHERE 2 = u.y AND 1 < u.x", gold) == 1
    # One label of two trees of 13 nodes is another.
    assert near("SELECT b FROM t WHERE x > 1 AND y = 2", gold) == pytest.approx(1 - 1 / 26)
    assert near("no query", gold) == other_scores.contained_distance("no query", gold) == 0
    assert other_scores.contained_distance("SELECT a FROM t WHERE x > 1", gold) == 1


@pytest.mark.parametrize("pred", ["", "SELECT 'open", "no query", "SELECT", "DROP TABLE t"])
def test_no_score_fails_on_what_is_no_query(pred):
    for name, query, fragment, *_ in study.CONTENDERS:
        if name != "ted" or pytest.importorskip("apted"):
            for score in (query, fragment):
                assert 0 <= score(pred, "SELECT a FROM t") <= 1, name


def shop(path, rows=200):
    """The shop as a SQLite file."""
    with sqlite3.connect(path) as connection:
        for name, frame in retail.tables(np.random.default_rng(0), rows).items():
            frame.to_sql(name, connection, index=False)
    connection.close()


def own_table(tmp_path, pred=True, n=40):
    rng = np.random.default_rng(0)
    golds = samples.gold_queries(rng, n, retail.TEMPLATES)
    rows = []
    for place, gold in enumerate(golds):
        guess = samples.rewritten(gold, rng) if place % 3 else samples.edited(gold, rng, 2, retail.POOL)
        rows.append({"sql": gold, "pred": guess} if pred else {"sql": gold})
    shop(tmp_path / "shop.sqlite")
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    return file


@pytest.mark.parametrize("pred", [True, False])
def test_a_users_queries(tmp_path, pred):
    mine = STUDY.own({"data": own_table(tmp_path, pred)})
    task = mine.tasks[0]
    folds = [task.load(mine.base_seed + fold, SMOKE) for fold in range(own_pairs.FOLDS)]
    golds = [set(given.golds) for given, _ in folds]
    assert sum(map(len, golds)) == len(set().union(*golds)) == 40
    given, hidden = folds[0]
    assert len(given.preds) == (8 if pred else 48)
    assert task.score(mine.arm("mcs").run(given, 0, SMOKE), hidden)["auc"] > 0.6
    with pytest.raises(InputError, match="folds"):
        task.load(mine.base_seed + own_pairs.FOLDS, SMOKE)
    assert {claim.arm for claim in mine.claims} == {"mcs"}


def test_the_layout_of_bird_and_spider(tmp_path):
    golds = samples.gold_queries(np.random.default_rng(0), 24, retail.TEMPLATES)
    (tmp_path / "database" / "shop").mkdir(parents=True)
    shop(tmp_path / "database" / "shop" / "shop.sqlite")
    spider = [{"db_id": "shop", "question": "?", "query": gold, "sql": {"from": []}} for gold in golds]
    (tmp_path / "dev.json").write_text(json.dumps(spider))
    assert [pair.gold for pair in own_pairs.read(tmp_path)] == golds
    bird = [{"db_id": "shop", "question": "?", "SQL": gold} for gold in golds]
    (tmp_path / "dev.json").write_text(json.dumps(bird))
    found = own_pairs.read(tmp_path)
    assert [pair.gold for pair in found] == golds
    assert {pair.database.name for pair in found} == {"shop.sqlite"}
    assert len(own_pairs.labelled(tmp_path, 0)) == 5 * 6


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([{"text": "a"}] * 30, "column sql"),
        ([{"sql": ""}] * 30, "row 0"),
        ([{"sql": "SELECT FROM WHERE"}] * 30, "row 0"),
        ([{"sql": "DROP TABLE orders"}] * 30, "row 0"),
        ([{"sql": "SELECT id FROM orders"}] * 3, "at least"),
        ([{"sql": "SELECT id FROM orders", "db": "none.sqlite"}] * 30, "no database"),
        ([{"sql": "SELECT id FROM orders", "db_id": "../shop"}] * 30, "plain name"),
    ],
)
def test_a_users_bad_file_is_refused(tmp_path, rows, match):
    shop(tmp_path / "shop.sqlite", 20)
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(InputError, match=match):
        STUDY.own({"data": file})


def test_a_users_folder_without_a_layout_and_a_gold_query_that_fails(tmp_path):
    with pytest.raises(InputError, match=r"dev\.json"):
        STUDY.own({"data": tmp_path})
    (tmp_path / "dev.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        STUDY.own({"data": tmp_path})
    (tmp_path / "dev.json").unlink()
    shop(tmp_path / "shop.sqlite", 20)
    file = tmp_path / "mine.jsonl"
    file.write_text("\n".join(json.dumps({"sql": "SELECT nothing FROM orders"}) for _ in range(30)))
    with pytest.raises(InputError, match="gold query"):
        STUDY.own({"data": file}).tasks[0].load(1000, SMOKE)


@pytest.fixture
def lesson(monkeypatch):
    rng = np.random.default_rng(0)
    n = 300
    frame = {
        "flight": np.arange(n), "origin": rng.choice(["EWR", "JFK", "LGA"], n), "dest": rng.choice(["ATL", "BOS"], n),
        "carrier": rng.choice(["AA", "B6", "DL", "EV", "UA", "US", "WN"], n), "month": rng.integers(1, 13, n),
        **{name: rng.integers(0, 2000, n) for name in ("distance", "air_time", "dep_delay", "arr_delay")},
    }  # fmt: skip
    import pandas as pd

    monkeypatch.setattr(study.flights, "drawn", lambda rows, seed: pd.DataFrame(frame))
    return study.load_lesson(3, SMOKE)


def test_a_lesson_holds_no_answer_of_its_test(lesson):
    given, hidden = lesson
    assert isinstance(given, Lesson)
    taught, practised = ({q.text for q in part} for part in (given.taught, given.practice))
    assert not taught & practised
    assert not (taught | practised) & set(given.asked)
    assert [q.text for q in hidden["test"]] == list(given.asked)
    hard = sum(q.level == "challenging" for q in given.taught)
    assert hard == round(study.RARE * 60)
    assert len(given.taught) == 60


def test_answers_are_scored_by_level(lesson):
    test = lesson[1]["test"]
    right = [completion_of(q.sql) if q.level != "challenging" else "nothing" for q in test]
    found = study.score_answers(right, lesson[1])
    assert [found[f"ex_{level}"] for level in LEVELS] == [1, 1, 0]
    assert found["ex"] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="list of 30"):
        study.score_answers(right[1:], lesson[1])


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return str(tmp_path_factory.mktemp("kept"))


@pytest.mark.parametrize("arm", ["direct", "parts", "rl-mcs", "rl-exec", "rl-token", "rl-count"])
def test_every_learner_answers_every_question(lesson, arm, kept, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", kept)  # those that practise begin with one model, taught once
    given, hidden = lesson
    answers = STUDY.arm(arm).run(given, 0, SMOKE)
    assert len(answers) == len(given.asked)
    assert 0 <= study.score_answers(answers, hidden)["ex"] <= 1


def test_a_model_is_asked_only_where_there_is_one(lesson, monkeypatch):
    given, hidden = lesson
    arm = STUDY.arm("ask-parts")
    with pytest.raises(EndpointError, match="--endpoint"):
        arm.run(given, 0, SMOKE)
    sql = {q.text: q.sql for q in hidden["test"]}

    class Knowing:
        def __init__(self, chat, db, *, mode, seed):
            assert mode == "parts"

        def ask_many(self, texts):
            return [study.Answer(sql[text], None, (), ()) for text in texts[:-1]] + [OSError("away")]

    monkeypatch.setattr(study, "Asker", Knowing)
    answers = study.ask_model(None, given, 0, SMOKE, "parts")
    assert study.score_answers(answers, hidden)["ex"] == pytest.approx(29 / 30)


def test_the_method_is_one_of_pairs_alone():
    given = Pairs("query", ("SELECT a FROM t",), ("SELECT b FROM t",))
    assert study.run_mcs(given, 0, SMOKE).values == [0.8]
