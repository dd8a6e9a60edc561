import dataclasses
import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest

from assay.errors import InputError
from assay.evidence.study import Budget
from assay.models.carve import baselines, hubs, study
from assay.models.carve.baselines import Answer
from assay.models.carve.study import STUDY, dealt, load, own, score
from assay.parts import minilm

SMOKE = Budget.SMOKE
TOPICS = ("rain", "music", "prices", "football", "cells", "ships", "paint", "stars", "soup", "trains", "laws", "bees")


@pytest.fixture(autouse=True)
def words(monkeypatch, tmp_path):
    """Instead of the language model: which topic a text names, and some of its letters."""

    def encode(texts, batch_size=64, device="cpu"):
        topic = [[4.0 * (word in t) for word in TOPICS] for t in texts]
        letters = [[t.count(chr(97 + i)) / len(t) for i in range(26)] for t in texts]
        return np.concatenate([topic, letters], axis=1).astype(np.float32)

    monkeypatch.setattr(minilm, "encode", encode)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))


def catalogue(budget=None, card=True):
    rows = [
        {
            "query": f"tell me {verb} {topic}, {'please ' * (i % 3)}number {i}",
            "id": f"about-{topic}",
            "family": f"family-{j // 2}",
            "domain": f"domain-{j % 3}",
            "card": f"knows {topic}",
            "experience": j // 3,
        }
        for j, topic in enumerate(TOPICS)
        for i, verb in enumerate(("of", "about", "why", "when", "the colour of", "more on"))
    ]
    return pd.DataFrame(rows) if card else pd.DataFrame(rows).drop(columns="card")


def own_file(tmp_path, table):
    table.to_csv(tmp_path / "hub.csv", index=False)
    return own({"data": tmp_path / "hub.csv"})


@pytest.mark.parametrize("arm", [a.name for a in STUDY.arms])
def test_every_arm_answers_and_beats_chance_on_the_last_experience(arm):
    if arm == "bm25":
        pytest.importorskip("bm25s")
    given, hidden = load(0, SMOKE, catalogue)
    metrics = score(STUDY.arm(arm).run(given, 0, SMOKE), hidden)
    assert metrics["ids"] == 12
    assert 0 <= metrics["model"] <= metrics["family"] + 1e-9 <= 100 + 1e-9
    assert metrics["model"] > 100 / 12


def test_look_ups_do_what_they_say():
    given, hidden = load(0, SMOKE, catalogue)
    for arm in (baselines.class_mean, baselines.card_retrieval, baselines.bm25):
        assert score(arm(given, 0), hidden)["model"] == 100  # each query and card names its topic
    shuffled = [
        dataclasses.replace(p, card_X=dict(zip(p.card_X, list(p.card_X.values())[::-1], strict=True))) for p in given
    ]
    assert score(baselines.card_retrieval(shuffled, 0), hidden)["model"] < 60


def test_arms_see_no_answers_and_nothing_later():
    given, hidden = load(3, SMOKE, catalogue)
    names = {f.name for f in dataclasses.fields(given[0])}
    assert names == {"texts", "X", "ids", "domains", "families", "cards", "card_X", "test_texts", "test_X"}
    assert len(given) == 4
    for t, pairs in enumerate(given):
        assert set(pairs.ids) == {f"about-{topic}" for topic in TOPICS[3 * t : 3 * t + 3]}
        assert not set(pairs.texts) & set(pairs.test_texts)
        assert len(pairs.test_texts) == len(hidden.right[t]) == 6
        assert hidden.known[t] == {f"about-{topic}" for topic in TOPICS[: 3 * t + 3]}
    # An arm may not learn from what comes later: the answer at time 0 is the same without it.
    for arm in STUDY.arms:
        if arm.name != "bm25":
            alone = arm.run(given[:1], 0, SMOKE).predicted[0]
            assert arm.run(given, 0, SMOKE).predicted[0] == alone, arm.name


def test_load_depends_on_the_seed_alone():
    a, b, c = (load(seed, SMOKE, catalogue)[0] for seed in (1, 1, 2))
    assert [p.texts for p in a] == [p.texts for p in b]
    assert [p.texts for p in a] != [p.texts for p in c]
    no_time = partial(_without, "experience")
    assert [p.ids for p in load(1, SMOKE, no_time)[0]] != [p.ids for p in load(2, SMOKE, no_time)[0]]
    spread = dealt(catalogue().drop(columns="experience"), 0)
    assert spread.groupby("experience")["id"].nunique().tolist() == [3, 3, 3, 3]


def _without(column, budget):
    return catalogue().drop(columns=column)


def test_score_is_the_accuracy_and_cannot_be_gamed():
    hidden = load(0, SMOKE, catalogue)[1]
    right = [[list(hidden.right[e]) for e in range(t + 1)] for t in range(4)]
    best = score(right, hidden)
    assert best["model"] == best["family"] == best["domain"] == 100
    assert best["model_forgetting"] == 0
    worse = [[list(names) for names in row] for row in right]
    worse[3][0] = ["about-bees"] * 6  # all of the first experience is lost at the end
    assert score(worse, hidden)["model"] == pytest.approx(75)
    assert score(worse, hidden)["model_forgetting"] == pytest.approx(100 / 3)
    # An id that nobody knows by then is wrong at every level, also for its domain.
    early = [[["about-bees"] * 6], *right[1:]]
    assert score(early, hidden)["domain_over_time"] == pytest.approx(75)
    assert score([[["nobody"] * 6], *right[1:]], hidden)["domain_over_time"] == pytest.approx(75)
    assert score(Answer(right, parameters=7, steps=3, kept=2), hidden)["parameters"] == 7
    for bad, message in (
        (None, "a list of 4"),
        (right[:3], "a list of 4"),
        ([right[0], *right[:3]], r"output\[1\] must hold 2 lists"),
        ([[["about-bees"]], *right[1:]], r"output\[0\]\[0\] must hold 6 ids"),
    ):
        with pytest.raises(ValueError, match=message):
            score(bad, hidden)


def test_the_study_shows_forgetting():
    given, hidden = load(0, SMOKE, catalogue)

    def model(arm):
        return score(STUDY.arm(arm).run(given, 0, SMOKE), hidden)

    assert model("sequential")["model"] < model("carve-prototype")["model"]
    assert model("random-replay")["kept"] == model("carve")["kept"] == round(0.1 * 48)
    assert model("random-replay-20")["kept"] == round(0.2 * 48)
    assert model("sequential")["kept"] == 0
    assert model("joint")["kept"] == 48


def test_budgets():
    arms = {b: {a.name for _, a in STUDY.pairs(b)} for b in Budget}
    assert {"carve", "class-mean", "card-retrieval", "bm25", "random-replay"} <= arms[SMOKE] < arms[Budget.QUICK]
    assert arms[Budget.FULL] == {a.name for a in STUDY.arms}
    assert {t.name for t, _ in STUDY.pairs(SMOKE)} == {"functions"}
    assert {t.name for t, _ in STUDY.pairs(Budget.QUICK)} == {"functions", "experts"}
    assert STUDY.seeds[Budget.QUICK] >= 3
    assert STUDY.base_seed == 1000
    assert {a.name for a in STUDY.arms if a.role == "trivial"} == {"class-mean"}
    at_quick = arms[Budget.QUICK]
    assert all(name in at_quick for claim in STUDY.claims for name in (claim.arm, *claim.others))


def test_a_study_can_be_sent_to_a_worker(tmp_path):
    assert pickle.loads(pickle.dumps(STUDY)).name == "carve"
    copy = pickle.loads(pickle.dumps(own_file(tmp_path, catalogue())))
    given, hidden = copy.tasks[0].load(0, Budget.QUICK)
    assert copy.tasks[0].score(copy.arm("class-mean").run(given, 0, Budget.QUICK), hidden)["model"] == 100


def test_own_table(tmp_path):
    mine = own_file(tmp_path, catalogue())
    assert mine.method.name == "carve-prototype"
    assert "72 queries of 12 ids; experiences: its column 'experience'" in mine.tasks[0].what
    assert {a.name for a in mine.arms} >= {"class-mean", "card-retrieval", "bm25", "random-replay", "ewc"}
    assert any("class-mean" in claim.others for claim in mine.claims)
    given, _ = mine.tasks[0].load(0, Budget.QUICK)
    assert [len(set(p.ids)) for p in given] == [3, 3, 3, 3]
    assert {p.domains[0][:7] for p in given} == {"domain-"}
    bare = own_file(tmp_path, catalogue(card=False)[["query", "id"]])
    assert not {"card-retrieval", "bm25"} & {a.name for a in bare.arms}
    assert all(name in {a.name for a in bare.arms} for claim in bare.claims for name in claim.others)
    assert "dealt at random into 4 experiences" in bare.tasks[0].what
    given, _ = bare.tasks[0].load(0, Budget.QUICK)
    assert [len(set(p.ids)) for p in given] == [3, 3, 3, 3]
    assert given[0].cards == {}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="query"), "no column 'query'"),
        (lambda t: t[t["experience"] == 0], "has 3 ids; this study needs at least 8"),
        (lambda t: t.assign(experience=1), "holds one value"),
        (lambda t: t.drop_duplicates("id"), "no id of the experience 0 has two queries"),
        (lambda t: t.assign(card=[None, *t["card"][1:]]), "'card' of hub.csv is empty"),
        (lambda t: t.assign(domain=["x", *t["domain"][1:]]), "has two domains"),
    ],
)
def test_a_bad_own_table_is_refused(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        own_file(tmp_path, change(catalogue()))
    with pytest.raises(InputError, match="takes a table"):
        own({"model": tmp_path})


def test_the_catalogues_of_packages():
    functions = hubs.functions(2, 4)
    assert {"query", "id", "family", "domain", "card", "experience"} <= set(functions)
    assert sorted(functions["experience"].unique()) == [0, 1, 2, 3]
    assert functions.groupby("id").size().between(3, 4).all()
    assert not functions["query"].duplicated().any()


def test_the_catalogue_of_experts():
    experts = hubs.experts(9)
    assert set(experts["domain"]) == {"reuters", "newsgroups", "questions"}
    assert experts["id"].nunique() > 100
    size = experts.groupby("id").size()
    assert size.max() == 9
    assert size.min() >= 3
    assert experts["query"].str.len().max() <= hubs.MOST_CHARACTERS
    assert not experts["query"].duplicated().any()
    assert (experts.groupby("id")["family"].nunique() == 1).all()


def test_smoke(monkeypatch):
    monkeypatch.setattr(study, "functions", catalogue)
    given, hidden = load(STUDY.base_seed, SMOKE, study.functions)
    for task, arm in STUDY.pairs(SMOKE):
        assert task.score(arm.run(given, 1, SMOKE), hidden)["queries"] == 72
