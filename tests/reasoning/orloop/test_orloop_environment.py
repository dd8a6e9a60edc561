"""The environment, its grammar, its rewards, and agents that try to game it."""

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.orloop import (
    Action,
    ParseError,
    RepairEnv,
    RewardSpec,
    diagnosis_f1,
    generate,
    parse_action,
    prompt,
    reward_func,
    sft_rows,
)
from assay.reasoning.orloop.hand_rules import RULES, play


@pytest.fixture(scope="module")
def instances():
    return generate(18, seed=21)


def test_gymnasium_takes_it(instances):
    check_env(RepairEnv(instances[:3], max_steps=4), skip_render_check=True)


def test_a_view_is_in_its_space_and_names_the_conflict(instances):
    env = RepairEnv(instances)
    for i in range(len(instances)):
        view, info = env.reset(options={"instance": i})
        assert env.observation_space.contains(view)
        assert all(name in view["text"] for name in info["iis"][:5])
        assert not any(word in view["text"].lower() for word in ("sabot", "culprit"))


@pytest.mark.parametrize(
    ("text", "kind", "target", "values"),
    [
        ("GET_IIS", "GET_IIS", "", ()),
        ("check_slack cap_1", "CHECK_SLACK", "cap_1", ()),
        ("RELAX cap_1 by 3.5", "RELAX", "cap_1", (3.5,)),
        ("DROP 'my row'", "DROP", "my row", ()),
        ("SET_RHS cap_1 40", "SET_RHS", "cap_1", (40.0,)),
        ("`FLIP cap_1`", "FLIP", "cap_1", ()),
        ("SET_COEF cap_1 x 2.5 y -1", "SET_COEF", "cap_1", (2.5, -1.0)),
        ("SET_BOUNDS x 0 inf", "SET_BOUNDS", "x", (0.0, np.inf)),
        ("First I thought\nDROP a\nbut no:\nFLIP b", "FLIP", "b", ()),
        ('ok {"action": "set_rhs", "target": "cap", "value": 4} done', "SET_RHS", "cap", (4.0,)),
        ('{"action": "SET_COEF", "target": "r", "value": {"x": 2}}', "SET_COEF", "r", (2.0,)),
        ("SUBMIT", "SUBMIT", "", ()),
    ],
)
def test_grammar(text, kind, target, values):
    action = parse_action(text)
    assert (action.kind, action.target, action.values) == (kind, target, values)
    assert parse_action(str(action)) == action


def test_diagnose_and_types():
    assert parse_action("DIAGNOSE a, b").names == ("a", "b")
    assert parse_action("SET_TYPE x Binary").names == ("binary",)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "RELAX a by much", "RELAX a by nan", "SET_RHS a inf", "SET_TYPE x float", "DROP", "DROP a b",
     "SET_COEF r x", "SUBMIT now", "DROP 'open", '{"action": 3}', '{"action": "EVAL", "target": "x"}', "[" * 5000],
)  # fmt: skip
def test_what_is_no_action(text):
    assert isinstance(parse_action(text), ParseError)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=200))
def test_the_parser_never_raises(text):
    assert isinstance(parse_action(text), Action | ParseError)


def test_what_cannot_be_done_costs_and_changes_nothing(instances):
    env = RepairEnv(instances[0])
    env.reset()
    for text in ("nothing", "DROP nobody", "DIAGNOSE nobody", "SET_BOUNDS nobody 0 1", "CHECK_SLACK nobody"):
        model = env.state.model
        _, reward, terminated, _, info = env.step(text)
        assert info["error"]
        assert reward == pytest.approx(-10.2)
        assert not terminated
        assert env.state.model is model
    with pytest.raises(InputError, match="reset"):
        RepairEnv(instances[0]).step("SUBMIT")


def test_looking_changes_nothing(instances):
    env = RepairEnv(instances[0])
    env.reset()
    model = env.state.model
    assert env.step("GET_IIS")[4]["answer"] == ", ".join(env.state.rows)
    assert env.state.rows[0] in env.step(f"CHECK_SLACK {env.state.rows[0]}")[4]["answer"]
    assert env.state.model is model
    assert env.n_edits == 0


def test_reset_takes_edits_back_but_not_the_count(instances):
    env = RepairEnv(next(one for one in instances if one.error == "E"), auto_submit=False)
    env.reset()
    before = env.state.model
    env.step(f"DROP {env.state.rows[0]}")
    env.step("RESET")
    assert env.state.model.same(before)
    assert env.n_edits == 1


def test_the_sum_of_rewards_is_the_total_and_bounded(instances):
    for reward in ("op", "composite", "outcome"):
        env = RepairEnv(instances, reward=reward, max_steps=8)
        low, high = env.spec_reward.bounds(8)
        for i in range(len(instances)):
            rng, total = np.random.default_rng(i), 0.0
            env.reset(options={"instance": i})
            while not env.done:
                options = [*env.candidates(), "nonsense", "GET_IIS"]
                total += env.step(options[int(rng.integers(len(options)))])[1]
            assert total == pytest.approx(env.spec_reward.total(env.score(), env.bad))
            assert low <= total <= high


def test_diagnosis_is_scored_against_the_culprits():
    assert diagnosis_f1({"a", "c"}, {"a", "b"}) == (0.5, 0.5, 0.5)
    assert diagnosis_f1((), {"a"}) == (0, 0, 0)


def honest(env, i):
    env.reset(options={"instance": i})
    total, left = 0.0, list(env.instances[i].undo)
    while left and not env.done:  # what is in conflict first
        edit = next((e for e in left if e.target in env.state.rows), left[0])
        left.remove(edit)
        total += env.step(edit)[1]
    return total, env.score()


def drop_all(env, i):
    env.reset(options={"instance": i})
    total = 0.0
    for name in env.state.model.row_names:
        if not env.done:
            total += env.step(Action("DROP", name))[1]
    return total, env.score()


def drop_conflict(env, i):
    env.reset(options={"instance": i})
    total = 0.0
    while not env.done:
        total += env.step(Action("DROP", env.state.rows[0]) if env.state.rows else Action("SUBMIT"))[1]
    return total, env.score()


def diagnose_all(env, i):
    env.reset(options={"instance": i})
    total = env.step(Action("DIAGNOSE", names=(*env.instance.model.row_names, *env.instance.model.col_names)))[1]
    return total + env.step("SUBMIT")[1], env.score()


def diagnose_conflict(env, i):
    env.reset(options={"instance": i})
    total = env.step(Action("DIAGNOSE", names=env.state.rows))[1]
    while not env.done:
        total += env.step(Action("DROP", env.state.rows[0]) if env.state.rows else Action("SUBMIT"))[1]
    return total, env.score()


def copy_the_question(env, i):
    env.reset(options={"instance": i})
    total = 0.0
    while not env.done:
        total += env.step("\n".join(message["content"] for message in prompt(env)))[1]
    return total, env.score()


def submit_at_once(env, i):
    env.reset(options={"instance": i})
    return env.step("SUBMIT")[1], env.score()


@pytest.mark.parametrize(
    "agent", [drop_all, drop_conflict, diagnose_all, diagnose_conflict, copy_the_question, submit_at_once]
)
def test_no_trick_beats_honest_work(instances, agent):
    env = RepairEnv(instances)
    fair = [honest(env, i) for i in range(len(instances))]
    tricks = [agent(env, i) for i in range(len(instances))]
    for (earned, _), (taken, _) in zip(fair, tricks, strict=True):
        assert taken <= earned + 1e-9
    assert np.mean([score.op5 for _, score in fair]) == 1
    assert np.mean([score.op5 for _, score in tricks]) < 0.6
    assert np.mean([t for t, _ in tricks]) < np.mean([f for f, _ in fair]) - 20


def test_naming_the_whole_conflict_is_full_marks_only_by_the_loose_measure(instances):
    env = RepairEnv(instances)
    scores = [diagnose_conflict(env, i)[1] for i in range(len(instances))]
    assert np.mean([s.da_iis for s in scores]) == 1
    assert np.mean([s.diag_f1 for s in scores]) < 0.8
    assert np.mean([s.diag_precision for s in scores]) < 0.6


def test_feasibility_is_not_repair(instances):
    env = RepairEnv(instances)
    scores = [play(env, RULES["drop_first"], i, np.random.default_rng(i)) for i in range(len(instances))]
    assert np.mean([s.rr for s in scores]) > 0.9
    assert np.mean([s.op for s in scores]) < 0.6


def test_the_reward_of_a_completion(instances):
    one = instances[0]
    good = str(one.undo[0])
    texts = reward_func(None, [good, "no idea"], [one, one])
    chats = reward_func(
        None, [[{"role": "assistant", "content": good}], [{"role": "assistant", "content": "no idea"}]], [one, one]
    )
    assert texts == chats
    assert texts[0] > texts[1]
    assert reward_func(None, ["SUBMIT"], [one], history=[[good]]) == pytest.approx([texts[0]])


def test_rows_to_learn_from_end_well(instances):
    rows = sft_rows(instances[:2])
    assert all(parse_action(row["messages"][-1]["content"]).kind for row in rows)
    assert [m["role"] for m in rows[0]["messages"]] == ["system", "user", "assistant"]


def test_candidates_and_their_features(instances):
    env = RepairEnv(instances)
    for i in range(len(instances)):
        env.reset(options={"instance": i})
        options = env.candidates()
        f = env.features(options)
        assert 0 < len(options) <= 200
        assert f.shape == (len(options), 24)
        assert f.dtype == np.float32
        assert np.isfinite(f).all()
    with pytest.raises(InputError, match="candidates"):
        env.features([Action("DROP", "nobody")])


@pytest.mark.parametrize(
    ("arguments", "word"),
    [({"max_steps": 0}, "max_steps"), ({"reward": "gold"}, "reward"), ({"instances": []}, "instances")],
)
def test_bad_arguments_are_named(instances, arguments, word):
    given = {"instances": instances} | arguments
    with pytest.raises(InputError, match=word):
        RepairEnv(given.pop("instances"), **given)
    with pytest.raises(InputError, match="instance"):
        RepairEnv(instances).reset(options={"instance": 99})
    with pytest.raises(InputError, match="diagnosis"):
        RewardSpec(diagnosis="vibes")
