import base64
import dataclasses
import io
import random
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from chat_server import completion, serving
from PIL import Image

from assay.catalog import card
from assay.errors import EndpointError, InputError
from assay.evidence.asking import with_endpoint
from assay.evidence.study import Budget
from assay.parts.chat import Chat
from assay.reasoning.geocode import (
    Construction,
    Given,
    Target,
    generate,
    pose,
    reward_func,
    score_code,
    seed_of,
    verify,
    write_dataset,
)
from assay.reasoning.geocode import study as room
from assay.reasoning.geocode.align_net import Read
from assay.reasoning.geocode.checks import GATES
from assay.reasoning.geocode.faults import FAULTS, slid_point
from assay.reasoning.geocode.grading import code_in
from assay.reasoning.geocode.measure import measured
from assay.reasoning.geocode.questions import ask, question_of
from assay.reasoning.geocode.study import STUDY, Wanted, own, run_checks, score_faults, score_problems
from assay.reasoning.geocode.tricks import HONEST, attempts, generous_reward

SMOKE = Budget.SMOKE


@pytest.fixture(scope="module")
def problems():
    return generate(8, seed=52, visual_only=0.7)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def small(monkeypatch, cache):
    monkeypatch.setenv("ASSAY_CACHE", str(cache))
    for name, value in (("PROBLEMS", 2), ("DEPTHS", 2), ("FAULTY", 2), ("TRICKED", 2), ("ASKED", 2), ("LESSONS", 30)):
        monkeypatch.setitem(getattr(room, name), SMOKE, value)
    monkeypatch.setitem(room.STEPS, SMOKE, 2)
    monkeypatch.setattr(room, "READ", 10)


def pairs():
    for task in STUDY.tasks:
        for arm in STUDY.arms:
            if (arm.tasks is None or task.name in arm.tasks) and not arm.name.startswith("model"):
                yield task.name, arm.name


@pytest.mark.parametrize(("task", "arm"), list(pairs()))
def test_every_arm_answers_and_every_metric_is_explained(task, arm):
    given, hidden = STUDY.task(task).load(3, SMOKE)
    metrics = STUDY.task(task).score(STUDY.arm(arm).run(given, 5, SMOKE), hidden)
    assert set(metrics) <= set(STUDY.metrics)
    assert 0 <= metrics["good"] <= 1
    for claim in STUDY.claims:
        if arm in (claim.arm, *claim.others) and task in (claim.tasks or ()):
            assert claim.metric in metrics or claim.metric == "annotation_gain"


def test_the_card_names_the_claims_in_their_order():
    text = card("geocode").path.read_text(encoding="utf-8")
    part = text.split("## Claims")[1].split("##")[0]
    said = [line[2:].split(":")[0] for line in part.splitlines() if line.startswith("- ")]
    assert said == [claim.name for claim in STUDY.claims]


# --- faults -----------------------------------------------------------------------------------------------------------


def test_a_slid_point_is_wrong_in_lengths_alone_and_told_alike_everywhere(problems):
    alone = 0
    for i, problem in enumerate(problems):
        broken = slid_point(problem, random.Random(i))
        failed = verify(broken).detail
        assert "midpoint" in failed["coordinate"]
        assert not {"semantic", "execution"} & set(failed)
        if problem.target.kind == "angle":
            assert abs(measured(broken.target, broken.coords) - broken.answer.value) < 1e-6
        alone += set(failed) == {"coordinate"}
    assert alone


def test_a_fault_never_changes_the_sound_problem(problems):
    before = [problem.to_dict() for problem in problems]
    for fault in FAULTS.values():
        for problem in problems:
            fault(problem, random.Random(2))
    assert [problem.to_dict() for problem in problems] == before


def test_checks_on_a_users_data_set(problems, tmp_path):
    write_dataset(problems, tmp_path / "d.jsonl", fmt="jsonl")
    write_dataset(problems, tmp_path / "folder")
    brought = own({"data": tmp_path / "d.jsonl"})
    given, hidden = brought.tasks[0].load(0, SMOKE)
    assert hidden.count("") == 2
    assert len(own({"data": tmp_path / "folder"}).tasks[0].load(0, SMOKE)[0]) == len(given)
    whole = score_faults(run_checks(given, 0, SMOKE), hidden)
    assert whole["false_alarm"].events == 0
    assert whole["caught_share"] == 1
    less = score_faults(STUDY.arm("no-deduction").run(given, 0, SMOKE), hidden)
    assert less["wrong_answer"] == 0
    assert score_faults(STUDY.arm("no-checks").run(given, 0, SMOKE), hidden)["caught_share"] == 0
    with pytest.raises(InputError, match="data"):
        own({"model": tmp_path})
    with pytest.raises(ValueError, match="truth values"):
        score_faults([True], hidden)


def test_each_check_alone_refuses_some_fault(problems):
    rng = random.Random(4)
    alone = set()
    for fault in FAULTS.values():
        for problem in problems:
            broken = fault(problem, rng)
            failed = set() if broken is None else set(verify(broken).detail)
            alone |= failed if len(failed) == 1 else set()
    assert alone == set(GATES)


# --- problems ---------------------------------------------------------------------------------------------------------


def test_templates_are_shallow_and_a_wrong_answer_is_counted(problems):
    made = STUDY.arm("template").run(Wanted(2), 0, SMOKE)
    assert score_problems(made, 2)["depth"] <= 3
    assert score_problems(problems, len(problems))["contradicted"].events == 0
    rng = random.Random(1)
    wrong = [FAULTS["wrong answer"](problem, rng) for problem in problems]
    found = score_problems(wrong, len(wrong))
    assert (found["contradicted"].events, found["good"]) == (len(wrong), 0)
    with pytest.raises(ValueError, match="list of 3"):
        score_problems(made, 3)


# --- alignment --------------------------------------------------------------------------------------------------------


def test_learners_never_see_what_is_hidden():
    given, hidden = STUDY.task("alignment").load(3, SMOKE)
    assert [field.name for field in dataclasses.fields(given)] == ["items", "images", "questions"]
    assert (len(given.items), len(given.images)) == (30, 10)
    assert not any((image == given.items.images).all(axis=(1, 2)).any() for image in given.images)
    assert (hidden.images == given.images).all()


def test_alignment_is_scored_for_networks_and_for_plain_answers():
    _, hidden = STUDY.task("alignment").load(3, SMOKE)
    score = STUDY.task("alignment").score
    assert score(list(hidden.answers), hidden)["exact"] == 1
    marks = hidden.marks.copy()
    marks[:5] = 0
    answers = np.where(np.arange(10) < 4, 5, hidden.answers)
    found = score(Read(answers, marks=marks, corners=hidden.corners), hidden)
    assert (found["solved_read"], found["solved_misread"], found["annotation_gain"]) == (1, 0.2, 0.8)
    with pytest.raises(InputError, match="10 answers"):
        score([5], hidden)


# --- tricks -----------------------------------------------------------------------------------------------------------


def test_no_trick_earns_more_than_honest_work(problems):
    for i, problem in enumerate(problems):
        tried = attempts(problem, random.Random(i))
        answer, n = problem.answer.text(), len(tried)
        rewards = reward_func(None, list(tried.values()), [answer] * n, [problem.scene] * n)
        honest = dict(zip(tried, rewards, strict=True))[HONEST]
        assert honest == max(rewards)
        codes = {name: score_code(code_in(text), problem.scene).total for name, text in tried.items()}
        assert codes[HONEST] == max(codes.values())
        assert codes["nothing"] == codes["the text again"] == 0


def test_a_generous_reward_is_gamed(problems):
    won = 0
    for i, problem in enumerate(problems):
        tried = attempts(problem, random.Random(i))
        rewards = dict(
            zip(tried, generous_reward(list(tried.values()), problem.answer.text(), problem.scene), strict=True)
        )
        won += max(rewards.values()) > rewards[HONEST]
    assert won > 0


def test_rewards_must_be_one_each():
    given, hidden = STUDY.task("tricks").load(1, SMOKE)
    with pytest.raises(ValueError, match="2 lists"):
        STUDY.task("tricks").score([[1.0]], hidden)
    flat = [[1.0] * len(texts) for texts in given.texts]
    assert STUDY.task("tricks").score(flat, hidden)["trick_share"] == 0  # all alike: nobody earns more


# --- a model behind an endpoint ---------------------------------------------------------------------------------------


def test_questions_hold_the_image_and_not_the_answer(problems):
    question = question_of(problems[0])
    (message,) = question.messages(code=True)
    image, text = message["content"]
    url = image["image_url"]["url"]
    assert Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size == (336, 336)
    assert problems[0].question in text["text"]
    assert problems[0].answer.text() not in question.text
    assert "JSON" in text["text"]
    assert "JSON" not in question.messages()[0]["content"][1]["text"]


def test_a_model_is_asked_with_and_without_code(tmp_path):
    made = generate(2, visual_only=1.0, seed=3)

    def answers(handler, body, count):
        words = body["messages"][-1]["content"][1]["text"]
        problem = next(p for p in made if p.question in words and p.text in words)
        code = f"```json\n{problem.scene.to_json()}\n```" if "JSON" in words else ""
        answer = problem.answer.text() if code else "1"
        handler.json(completion(f"{code} \\boxed{{{answer}}}"))

    with serving(answers) as server:
        study = with_endpoint(STUDY, Chat(server.url, "small", cache=False))
        given, hidden = study.task("questions").load(3, SMOKE)
        found = {
            name: study.task("questions").score(study.arm(name).run(given, 1, SMOKE), hidden)
            for name in ("model", "model-code")
        }
    assert (found["model"]["right"], found["model-code"]["right"]) == (0, 1)
    assert (found["model"]["code"], found["model-code"]["code"]) == (0, 1)


def test_a_failed_request_is_an_empty_answer_and_only_failures_are_an_error(problems):
    questions = [question_of(problem) for problem in problems[:2]]
    refuse = partial(refused, first=1)
    with serving(refuse) as server:
        chat = Chat(server.url, "small", cache=False, retries=0, concurrency=1)
        assert ask(chat, questions) == ["\\boxed{1}", ""]
    with serving(partial(refused, first=0)) as server:
        chat = Chat(server.url, "small", cache=False, retries=0, concurrency=1)
        with pytest.raises(EndpointError):
            ask(chat, questions)


def refused(handler, body, count, first):
    if count <= first:
        handler.json(completion("\\boxed{1}"))
    else:
        handler.json({"error": {"message": "too long"}}, 400)


def test_without_a_model_nothing_is_made_and_the_arm_says_what_is_missing(monkeypatch):
    def never(*a, **k):
        raise AssertionError("made in vain")

    monkeypatch.setattr(room, "generate", never)
    given, _ = STUDY.task("questions").load(3, SMOKE)
    assert len(given) == 2
    with pytest.raises(EndpointError, match="--endpoint"):
        STUDY.arm("model").run(given, 1, SMOKE)


def test_faults_that_cannot_be_put_in_are_left_out():
    alone = pose(seed_of([Construction("equilateral", ("A", "B", "C"), (), (7,))]), Target("length", ("B", "C")))
    assert FAULTS["false fact"](alone, random.Random(0)) is None
    assert FAULTS["changed code"](dataclasses.replace(alone, code=alone.scene.to_json()), random.Random(0)) is None
    flat = Given("angle", ("A", "B", "C"), Fraction(179))
    wide = dataclasses.replace(alone, seed=dataclasses.replace(alone.seed, givens=(flat,)))
    assert FAULTS["wrong given"](wide, random.Random(0)) is None


def test_a_folder_of_problems_without_train(tmp_path):
    write_dataset(generate(1, seed=3), tmp_path / "made", fmt="jsonl")
    (tmp_path / "flat").mkdir()
    (tmp_path / "made").rename(tmp_path / "flat" / "metadata.jsonl")
    assert "(1;" in own({"data": tmp_path / "flat"}).tasks[0].what
    with pytest.raises(InputError, match="there is no"):
        own({"data": tmp_path / "nowhere"})
