"""Arms that ask a language model: without one untested, with one judged, against a real server on this machine."""

import dataclasses

import pytest
from chat_server import completion, said, serving

from assay.errors import InputError
from assay.evidence.asking import Asking, with_endpoint
from assay.evidence.cell import run_cell
from assay.evidence.check import check_plan, prepare
from assay.evidence.claim import higher
from assay.evidence.storage import Storage
from assay.evidence.study import Arm, Budget, Study, Task
from assay.evidence.verdict import Outcome
from assay.parts.chat import Chat


def load(seed, budget):
    return seed, 2 * seed


def score(output, hidden):
    return {"right": output == hidden}


def double(given, seed, budget):
    return 2 * given


def ask(chat, given, seed, budget):
    return int(chat.ask(f"double {given}").text)


STUDY = Study(
    name="doubling",
    tasks=(Task("numbers", load, score),),
    arms=(Arm("double", double, "method"), Arm("llm", Asking(ask), "baseline")),
    claims=(higher("right", "double", than="llm"),),
    primary="right",
    better="higher",
)
WITHOUT = dataclasses.replace(STUDY, arms=STUDY.arms[:1], claims=())


def wrong(handler, body, count):
    handler.json(completion(str(int(said(body).split()[1]) + 1)))


def checked(folder, chat=None):
    plan = prepare(STUDY, card_module="trimmed_mean", budget="smoke", chat=chat)
    with Storage(f"sqlite:///{folder}/r.db") as storage:
        return plan, check_plan(plan, storage, quiet=True)


def test_without_a_model_the_claim_is_untested_and_says_what_to_add(tmp_path):
    _, found = checked(tmp_path)
    (verdict,) = found.verdicts
    assert verdict.outcome is Outcome.UNTESTED
    assert "needs a language model: --endpoint URL --llm NAME" in verdict.reason


def test_with_a_model_the_claim_is_judged_and_the_command_says_which(tmp_path):
    with serving(wrong) as server:
        chat = Chat(server.url, "small", cache=tmp_path / "replies.sqlite")
        checked(tmp_path)  # what was missing is run, what was there is not run again
        plan, found = checked(tmp_path, chat)
        (verdict,) = found.verdicts
        assert verdict.outcome is Outcome.SUPPORTED
        assert len(server.seen) == len(plan.seeds)
        assert plan.command.endswith(f"--endpoint {server.url} --llm small")
        assert plan.context == f"small at {server.url}"
        other = prepare(STUDY, card_module="trimmed_mean", budget="smoke", chat=dataclasses.replace(chat, model="b"))
        same = {cell.key for cell in plan.cells} & {cell.key for cell in other.cells}
        assert len(same) == len(plan.seeds)  # the cells of the arm that asks nobody


def test_a_model_that_is_down_makes_the_cell_miss_it(tmp_path):
    with serving(wrong) as server:
        chat = Chat(server.url, "small", cache=False, backoff=0.01)
    study = with_endpoint(STUDY, chat)
    fields = run_cell(study, "numbers", "llm", 1, Budget.SMOKE, "", 1)
    assert fields["status"] == "missing"
    assert server.url in fields["reason"]


def test_a_study_that_asks_nobody_takes_no_model():
    with pytest.raises(InputError, match="doubling does not accept --endpoint"):
        with_endpoint(WITHOUT, Chat("http://localhost:1/v1", "small"))


def test_the_command_wants_address_and_name_together(assay):
    for given, said_so in (
        (("--endpoint", "http://localhost:1/v1"), "--endpoint URL and --llm NAME belong together"),
        (("--llm", "small"), "--endpoint URL and --llm NAME belong together"),
        (("--key-env", "KEY"), "--key-env is for --endpoint"),
        (("--endpoint", "localhost:1", "--llm", "small"), "must start with http:// or https://"),
        (("--endpoint", "http://localhost:1/v1", "--llm", "small"), "trimmed-mean does not accept --endpoint"),
    ):
        assert said_so in assay("check", "trimmed-mean", "--budget", "smoke", *given, code=2).stderr
