"""The study: what arms see, what counts, agents that game it, and a user's own model."""

import math

import numpy as np
import pytest
from chat_server import completion, said, serving

from assay.errors import EndpointError, InputError
from assay.evidence.asking import with_endpoint
from assay.evidence.study import Budget
from assay.parts.chat import Chat
from assay.reasoning.orloop import LinearModel, RepairEnv, generate, prompt, solve
from assay.reasoning.orloop.naming import SECTIONS, renamed
from assay.reasoning.orloop.study import STUDY, own, run_diagnose_all, score, score_milp


@pytest.fixture(scope="module")
def hidden():
    return generate(6, errors="ABCDFI", seed=41)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))


def test_the_true_undo_is_the_ceiling(hidden):
    for names in ("kinds", "sections", "numbers"):
        known = [renamed(one, names) for one in hidden]
        metrics = score([list(one.undo) for one in known], known)
        assert metrics["op5"] == metrics["rr5"] == metrics["diag_f1"] == metrics["exact"] == 1


def test_doing_nothing_is_worth_nothing(hidden):
    metrics = score([["SUBMIT"]] * len(hidden), hidden)
    assert metrics["op5"] == metrics["rr5"] == metrics["diag_f1"] == 0
    with pytest.raises(ValueError, match="6 models"):
        score([], hidden)


def test_an_echo_of_the_prompt_repairs_nothing(hidden):
    outputs = []
    for one in hidden:
        env = RepairEnv(one)
        env.reset()
        outputs.append(["\n".join(message["content"] for message in prompt(env))])
    metrics = score(outputs, hidden)
    assert metrics["op5"] == metrics["diag_f1"] == 0


def test_dropping_everything_is_feasible_and_repairs_nothing(hidden):
    metrics = score([[f"DROP {name}" for name in one.iis_rows] for one in hidden], hidden)
    assert metrics["rr5"] > 0.8
    assert metrics["op5"] <= 0.5


def test_naming_everything_has_full_recall_and_is_no_diagnosis(hidden):
    everything = [[f"DIAGNOSE {', '.join([*one.model.row_names, *one.model.col_names])}", "SUBMIT"] for one in hidden]
    metrics = score(everything, hidden)
    assert metrics["diag_recall"] == metrics["da_iis"] == 1
    assert metrics["diag_f1"] < 0.2
    assert metrics["op5"] == 0


def test_names_tell_less_and_the_models_are_the_same(hidden):
    for one in hidden:
        bare, coarse = renamed(one, "numbers"), renamed(one, "sections")
        assert renamed(one, "kinds") is one
        assert not set(bare.model.row_names) & set(one.model.row_names)
        assert set(bare.model.family) == {"r"}
        assert set(coarse.model.family) <= set(SECTIONS)
        assert coarse.model.col_names == one.model.col_names
        for other in (bare, coarse):
            assert solve(other.original).objective == pytest.approx(one.optimum)
            assert solve(other.model).status == "infeasible"
            assert (other.model.A != one.model.A).nnz == 0


def test_sections_hold_upper_and_lower_limits_alike():
    one = generate(1, errors="A", domains=["transport"], seed=3)[0]
    model = renamed(one, "sections").original
    for section in ("origin", "place"):
        mine = [i for i, family in enumerate(model.family) if family == section]
        assert np.isfinite(model.row_up[mine]).any()
        assert np.isfinite(model.row_lo[mine]).any()


def test_arms_see_no_culprits(cache):
    given, hidden = STUDY.task("lp").load(5, Budget.SMOKE)
    assert len(given.models) == len(hidden) == 6
    assert all(isinstance(model, LinearModel) for model in given.models)
    metrics = {
        name: STUDY.task("lp").score(STUDY.arm(name).run(given, 5, Budget.SMOKE), hidden)
        for name in ("outlier", "by_kind", "drop_first")
    }
    assert min(one["rr5"] for one in metrics.values()) > 0.6
    named, also_hidden = STUDY.task("named").load(5, Budget.SMOKE)
    # Where names tell what a row says, the odd one shows: the same models.
    seen = STUDY.task("named").score(STUDY.arm("outlier").run(named, 5, Budget.SMOKE), also_hidden)
    assert seen["op5"] > max(0.8, metrics["outlier"]["op5"])
    gamed = STUDY.task("lp").score(run_diagnose_all(given, 5, Budget.SMOKE), hidden)
    assert gamed["da_iis"] == 1
    assert gamed["rr5"] == metrics["drop_first"]["rr5"]


def test_transfer_compares_with_linear_models_of_the_same_kinds():
    whole, linear = generate(2, errors="A", milp=True, domains=["transport"], seed=1), generate(2, errors="A", seed=1)
    known = [*whole, *linear]
    undo, nothing = [list(one.undo) for one in known], ["SUBMIT"]
    assert score_milp(undo, known)["transfer"] == pytest.approx(0.2)
    assert score_milp([nothing, nothing, *undo[2:]], known)["transfer"] == pytest.approx(-0.8)
    with pytest.raises(ValueError, match="4 models"):
        score_milp(undo[:2], known)


def test_orders_are_asked_without_their_answers(cache):
    task = STUDY.task("bias")
    given, hidden = task.load(5, Budget.SMOKE)
    assert all(math.isnan(decision.optimal) for decision in given.asked)
    best = task.score([decision.optimal for decision in hidden], hidden)
    assert best["mean_abs_bias"] == best["bias_outside"] == 0
    mean = task.score(STUDY.arm("order_mean").run(given, 5, Budget.SMOKE), hidden)
    assert mean["pull_to_center"] == pytest.approx(1)
    imitated = task.score(STUDY.arm("imitation").run(given, 5, Budget.SMOKE), hidden)
    assert imitated["pull_to_center"] == pytest.approx(0.5, abs=0.2)
    for wrong in ([], [math.nan] * len(hidden), [-1.0] * len(hidden)):
        with pytest.raises(ValueError, match="order"):
            task.score(wrong, hidden)


def test_a_users_model(tmp_path, hidden, cache):
    path = hidden[0].original.write(tmp_path / "m.mps")
    study = own({"data": path})
    given, known = study.tasks[0].load(3, Budget.SMOKE)
    assert len(given.models) == len(known) > 0
    assert {arm.name for arm in study.arms} >= {"grpo", "shown", "drop_first", "whole_model", "outlier"}
    with pytest.raises(InputError, match="infeasible"):
        own({"data": hidden[0].model.write(tmp_path / "bad.mps")})
    with pytest.raises(InputError, match="as data"):
        own({"model": path})


# A language model that the user brings.


def asked(server):
    return with_endpoint(STUDY, Chat(server.url, "small", retries=0, cache=False))


def conflict(body):
    """The rows in conflict and the others that a prompt shows, by name."""
    shown = said(body)
    rows = shown.split("Rows in conflict:\n")[1].split("\n\n")[0].splitlines()
    others = shown.partition("Other rows of these families:\n")[2].splitlines()
    return [line.split(":")[0] for line in rows], [line.split(":")[0] for line in others]


def test_a_users_language_model_plays_the_models(cache):
    def answer(handler, body, count):
        handler.json(completion(f"Away with it.\nDROP {conflict(body)[0][0]}"))

    with serving(answer) as server:
        study = asked(server)
        given, hidden = study.task("lp").load(5, Budget.SMOKE)
        actions = study.arm("model").run(given, 5, Budget.SMOKE)
        bodies = server.bodies
    metrics = study.task("lp").score(actions, hidden)
    dropped = study.task("lp").score(study.arm("drop_first").run(given, 5, Budget.SMOKE), hidden)
    assert metrics == dropped  # it did what dropping does, and is scored alike
    assert metrics["drift"] == pytest.approx(metrics["rr5"] - metrics["op5"])
    assert metrics["drift"] > 0.2
    assert len(bodies) == sum(map(len, actions))  # one reply an action, and none once a model is feasible
    for body in bodies:
        rows, others = conflict(body)
        assert body["temperature"] == 0
        assert not set(rows) & set(others)
        assert {name.rsplit("_", 1)[0] for name in others} <= {name.rsplit("_", 1)[0] for name in rows}
        assert not any(f"{one.optimum:g}" in said(body) for one in hidden)
    assert any(conflict(body)[1] for body in bodies)


def test_some_failed_requests_are_bad_actions_and_only_failures_an_error(cache):
    def answer(handler, body, count):
        if count == 3:
            handler.json({"error": {"message": "broken"}}, 400)
        else:
            handler.json(completion("SUBMIT"))

    with serving(answer) as server:
        study = asked(server)
        given, _ = study.task("lp").load(5, Budget.SMOKE)
        actions = study.arm("model").run(given, 5, Budget.SMOKE)
    assert sorted(actions) == sorted([["SUBMIT"]] * (len(actions) - 1) + [["", "SUBMIT"]])

    def refuse(handler, body, count):
        handler.json({"error": {"message": "broken"}}, 500)

    with serving(refuse) as server, pytest.raises(EndpointError):
        asked(server).arm("model").run(given, 5, Budget.SMOKE)
    with pytest.raises(EndpointError, match="--endpoint"):
        STUDY.arm("model").run(given, 5, Budget.SMOKE)


def test_claims_about_a_language_model_need_one():
    about = [claim for claim in STUDY.claims if "model" in (claim.arm, *claim.others)]
    assert [claim.says for claim in about] == [
        "your model: feasibility is not repair",
        "the trained policy repairs more than your model",
    ]
    assert all(claim.needs == "a language model" for claim in about)
