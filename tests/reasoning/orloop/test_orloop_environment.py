"""The environment, its grammar and its rewards."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import play

from assay.errors import InputError
from assay.reasoning.orloop import (
    Action,
    LinearModel,
    ParseError,
    RepairEnv,
    RewardSpec,
    Score,
    diagnosis_f1,
    generate,
    parse_action,
)
from assay.reasoning.orloop.actions import EDITS
from assay.reasoning.orloop.environment import RecentStates
from assay.reasoning.orloop.fixing import unknown
from assay.reasoning.orloop.hand_rules import RULES
from assay.reasoning.orloop.scoring import REWARDS
from assay.reasoning.orloop.solving import STATUSES


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


def test_numbers_that_no_solver_takes_are_refused(instances):
    env = RepairEnv(instances[0])
    env.reset()
    row, col = env.state.rows[0], env.state.model.col_names[0]
    for text in (
        f"SET_RHS {row} 1e16",
        f"RELAX {row} by 1e300",
        f"SET_COEF {row} {col} -1e15",
        f"SET_BOUNDS {col} 1e308 inf",
    ):
        before = env.state
        info = env.step(text)[4]
        assert "1e+15" in info["error"]
        assert (env.state, env.n_edits, env.touched, env.edits) == (before, 0, [], ())


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


def test_what_an_episode_earns_reckoned_by_hand():
    fine = Score(
        rr=True, rr5=True, op=True, op5=True, diag_f1=0.5, diag_precision=1, diag_recall=0.25, da_iis=0.4, steps=3,
        edits=1, loyal=True, exact=False,
    )  # fmt: skip
    drifted = replace(fine, op=False, op5=False)
    lost = replace(drifted, rr=False, rr5=False, loyal=False)
    by_name = {
        "op": (0.5 * 100 + 0.3 * 50 - 0.6, 0.5 * 20 + 0.3 * 50 - 0.6, -0.5 * 50 + 0.3 * 50 - 0.6 - 20),
        "composite": (0.5 * 100 + 0.3 * 50 - 0.6, 0.5 * 100 + 0.3 * 50 - 0.6, -0.5 * 50 + 0.3 * 50 - 0.6 - 20),
        "outcome": (100, 100, -50),
    }
    for name, earned in by_name.items():
        assert [REWARDS[name].total(one) for one in (fine, drifted, lost)] == pytest.approx(earned)
        assert REWARDS[name].total(fine, bad_actions=2) == pytest.approx(earned[0] - 20)
    assert RewardSpec(diagnosis="iis_recall").total(fine) == pytest.approx(0.5 * 100 + 0.3 * 40 - 0.6)


def test_the_view_tells_bounds_and_types_of_columns():
    one = next(one for one in generate(18, errors="F", seed=3) if one.error == "F")
    text = RepairEnv(one).reset()[0]["text"]
    model, rows = one.model, one.iis_rows
    used = {model.col_names[j] for name in rows for j in model.A[model.row(name)].indices}
    assert one.culprits & used
    for name in one.culprits & used:
        j = model.col_names.index(name)
        if model.col_lo[j] != 0 or np.isfinite(model.col_up[j]):
            assert f"{model.col_lo[j]:g} <= {name} <= {model.col_up[j]:g}" in text


def test_diagnosis_is_scored_against_the_culprits():
    assert diagnosis_f1({"a", "c"}, {"a", "b"}) == (0.5, 0.5, 0.5)
    assert diagnosis_f1((), {"a"}) == (0, 0, 0)


def test_feasibility_is_not_repair(instances):
    env = RepairEnv(instances)
    scores = [play(env, RULES["drop_first"], i, np.random.default_rng(i)) for i in range(len(instances))]
    assert np.mean([s.rr for s in scores]) > 0.9
    assert np.mean([s.op for s in scores]) < 0.6


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
    with pytest.raises(InputError, match="two models with the id"):
        RepairEnv([instances[0], replace(instances[1], id=instances[0].id)])
    RepairEnv([instances[0], instances[0]])  # the same twice is no harm
    with pytest.raises(InputError, match="diagnosis"):
        RewardSpec(diagnosis="vibes")


def test_memory_does_not_grow_with_steps(instances):
    kept = RecentStates(5)
    env = RepairEnv(instances[0], cache=kept, max_steps=200, auto_submit=False)
    env.reset()
    first = env.state
    for name in list(env.state.model.row_names)[:8]:
        if not env.done:
            env.step(f"SET_RHS {name} 1e6")
            env.step("RESET")
    assert len(kept) <= 5
    assert env.state is first  # asked for at each turn, so that it stays
    assert RepairEnv(instances).cache.most == 64 * len(instances)


def test_states_of_different_instances_are_not_mixed_up(instances):
    shared = {}
    for turn in (0, 1):
        for i, one in enumerate(instances):
            env = RepairEnv(instances, cache=shared)
            env.reset(options={"instance": i})
            assert env.state.model.same(one.model), turn
            assert env.state.status == "infeasible"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_whatever_is_said_the_views_fit_and_the_rewards_are_bounded(instances, seed):
    rng = np.random.default_rng(seed)
    env = RepairEnv(instances, max_steps=6, reward=str(rng.choice(["op", "composite", "outcome"])), seed=seed)
    env.reset()
    low, high = env.spec_reward.bounds(6)
    model, total = env.instance.model, 0.0
    words = [*model.row_names, *model.col_names, "1e308", "-inf", "0", "-3.5", "integer", "binary", "by", ",", "nobody"]
    while not env.done:
        kind = str(rng.choice(["GET_IIS", "CHECK_SLACK", "DIAGNOSE", *EDITS, "RESET"]))
        text = " ".join([kind, *map(str, rng.choice(words, int(rng.integers(0, 4))))])
        view, reward, _, _, info = env.step(text)
        assert env.observation_space.contains(view)
        assert np.isfinite(reward)
        assert info["status"] in STATUSES
        total += reward
    assert low <= total <= high
    score = env.score()
    assert score.rr or not score.op
    assert 0 <= score.diag_f1 <= 1
    if score.exact:
        assert score.op


def test_a_long_conflict_leaves_room_for_what_was_done():
    m = 400
    A = np.eye(m, m + 1, 1) - np.eye(m, m + 1)
    last = np.zeros((1, m + 1))
    last[0, [0, m]] = -1, 1
    chain = LinearModel.from_arrays(
        np.vstack([A, last]),
        [1] * m + [-np.inf],
        [np.inf] * m + [m - 1],
        [0] * (m + 1),
        [9 * m] * (m + 1),
        [1] * (m + 1),
    )
    env = RepairEnv(unknown(chain))
    env.reset()
    assert len(env.state.rows) == m + 1
    view, *_, info = env.step("GET_IIS")
    assert info["answer"].count(",") == m
    assert env.observation_space.contains(view)
    assert len(view["text"]) < 12_000
    assert "more, which GET_IIS names" in view["text"]
    assert "So far:\nGET_IIS -> " in view["text"]
