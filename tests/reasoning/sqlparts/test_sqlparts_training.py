"""The questions, the rewards that are compared, and that practice moves a small model towards what is rewarded."""

import numpy as np
import pandas as pd
import pytest
import torch

from assay.parts.tinylm import Shape, TinyLM, Words, fit
from assay.reasoning.sqlparts import SafeDatabase, complexity, decompose, parse_completion
from assay.reasoning.sqlparts.prompts import completion_of
from assay.reasoning.sqlparts.questions import Question, questions
from assay.reasoning.sqlparts.training import (
    CLIP,
    GROUP,
    MOST_WORDS,
    Rewarder,
    Size,
    answered,
    keep_taught,
    practised,
    read_taught,
    taught,
)

ASKED = questions(np.random.default_rng(3), 180)
TINY = Size(taught=6, practice=1, shape=Shape(16, 1, 2, 160))


def flights():
    rng = np.random.default_rng(0)
    n = 400
    return pd.DataFrame(
        {
            "flight": np.arange(n),
            "origin": rng.choice(["EWR", "JFK", "LGA"], n),
            "dest": rng.choice(["ATL", "BOS", "ORD"], n),
            "carrier": rng.choice(["AA", "B6", "DL", "EV", "UA", "US", "WN"], n),
            "month": rng.integers(1, 13, n),
            **{name: rng.integers(0, 2000, n) for name in ("distance", "air_time", "dep_delay", "arr_delay")},
        }
    )


@pytest.fixture(scope="module")
def db():
    with SafeDatabase({"flights": flights()}) as found:
        yield found


def test_questions_are_different_of_the_level_they_say_and_can_be_run(db):
    assert len({q.text for q in ASKED}) == len(ASKED)
    for q in ASKED:
        assert complexity(q.sql) == q.level
        assert db.run(q.sql).columns
    for level in ("simple", "moderate", "challenging"):
        assert sum(q.level == level for q in ASKED) == len(ASKED) // 3
    assert all(decompose(q.sql) for q in ASKED if q.level == "challenging")
    assert [q.text for q in questions(np.random.default_rng(3), 180)] == [q.text for q in ASKED]


def test_what_is_taught_fits_and_is_read_back_as_right(db):
    words = Words.of([t for q in ASKED for t in (q.text, completion_of(q.sql))])
    for q in ASKED[:60]:
        numbers = words.numbers(completion_of(q.sql))
        assert len(numbers) < MOST_WORDS
        # Spaces between the words change nothing.
        for kind in ("mcs", "exec", "token", "count"):
            assert Rewarder(kind, db)(words.text(numbers), q.sql) == pytest.approx(1), kind


def test_rewards_differ_in_what_they_see(db):
    gold = "SELECT flight FROM flights WHERE month = 1 AND distance > (SELECT AVG(distance) FROM flights)"
    right = completion_of(gold)
    near = right.replace("month = 1", "month = 2")
    nothing = "<think><complexity>moderate</complexity></think><sql>SELECT 1</sql>"
    of = {kind: Rewarder(kind, db) for kind in ("mcs", "exec", "token", "count")}
    for kind, reward in of.items():
        assert reward(nothing, gold) < reward(right, gold)
        assert (reward(near, gold) > reward(nothing, gold)) or kind == "exec"
    # Execution sees no difference between two wrong answers in good form.
    other = right.replace("SELECT flight FROM flights", "SELECT dest FROM flights")
    assert of["exec"](near, gold) == of["exec"](other, gold)
    # The count pays for junk that the parts' own score sees.
    junk = right.replace("SELECT AVG(distance) FROM flights</component>", "SELECT 7</component>")
    assert of["count"](junk, gold) > of["mcs"](junk, gold)
    with pytest.raises(ValueError, match="no reward"):
        Rewarder("luck", db)(right, gold)


def test_practice_moves_a_model_to_what_is_rewarded():
    model = TinyLM(Words.of(["ask say x y"]), Shape(16, 1, 2, MOST_WORDS + 8), seed=0)
    fit(model, [("ask", "x"), ("ask", "y")], steps=60, batch=8, rate=1e-2)
    asked = [Question("ask", "", "simple") for _ in range(8)]
    torch.manual_seed(5)
    state = torch.get_rng_state()
    means = practised(model, asked, lambda text, _: float(text == "y"), 60, seed=0)
    assert torch.equal(state, torch.get_rng_state())
    assert 0.2 < means[0] < 0.8
    assert np.mean(means[-5:]) > np.mean(means[:5]) + 0.2
    assert answered(model, ["ask"]) == ["y"]


def test_equal_rewards_change_nothing():
    model = TinyLM(Words.of(["ask x y"]), Shape(16, 1, 2, MOST_WORDS + 8), seed=0)
    fit(model, [("ask", "x"), ("ask", "y")], steps=20, batch=8)
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    practised(model, [Question("ask", "", "simple")] * 8, lambda *_: 0.5, 3, seed=0)
    assert all(torch.equal(before[name], weights) for name, weights in model.state_dict().items())


def test_the_same_seed_teaches_the_same_and_it_is_kept(tmp_path):
    few = ASKED[:12]
    one, other = taught(few, "parts", TINY, 1), taught(few, "parts", TINY, 1)
    assert answered(one, [q.text for q in few]) == answered(other, [q.text for q in few])
    assert taught(few, "direct", TINY, 1).words.names == one.words.names
    keep_taught(tmp_path, few, "parts", TINY, 1)
    back = read_taught(tmp_path).state_dict()
    assert all(torch.equal(weights.cpu(), one.state_dict()[name]) for name, weights in back.items())
    assert (GROUP, CLIP) == (8, (0.2, 0.28))  # as in the source


def test_a_small_model_learns_to_answer(db):
    size = Size(taught=100, practice=0, shape=Shape(64, 2, 4, 160))
    simple = [q for q in ASKED if q.level == "simple"][:30]
    model = taught(simple, "parts", size, 0)
    found = [parse_completion(text) for text in answered(model, [q.text for q in simple])]
    assert np.mean([c.format_ok for c in found]) > 0.9
    assert (
        np.mean([c.sql is not None and db.run(c.sql) == db.run(q.sql) for c, q in zip(found, simple, strict=True)])
        > 0.2
    )
