"""The policy: it learns from repairs and in the loop, repeats, and is read back."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from playing import play

from assay.errors import InputError
from assay.parts import net_files
from assay.reasoning.orloop import RepairEnv, RepairPolicy, fit_policy, generate, train_policy
from assay.reasoning.orloop.candidates import FEATURES
from assay.reasoning.orloop.hand_rules import RULES
from assay.reasoning.orloop.policy import CLIP, PASSES, untried

SHORT = {"steps": 2, "batch": 3, "group": 3}


@pytest.fixture(scope="module")
def instances():
    return generate(9, errors="ABD", domains=["transport", "blending"], seed=31)


@pytest.fixture(scope="module")
def shown(instances):
    return fit_policy(instances, steps=120, seed=1)


def repaired(instances, policy):
    env = RepairEnv(instances)
    return np.mean([play(env, lambda e, _: policy.act(e), i, None).op5 for i in range(len(instances))])


def same_weights(one, other):
    return all(a.equal(b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_loop_teaches(instances):
    trained = train_policy(instances, steps=14, batch=5, group=5, lr=1e-2, seed=1)
    assert repaired(instances, trained) > max(0.55, repaired(instances, RepairPolicy(1)))


def test_shown_repairs_teach_and_carry_over(instances, shown):
    assert repaired(instances, shown) > 0.8
    others = generate(9, errors="ABD", domains=["transport", "blending"], seed=32)
    env = RepairEnv(others)
    rng = np.random.default_rng(0)
    dropped = np.mean([play(env, RULES["drop_first"], i, rng).op5 for i in range(len(others))])
    assert repaired(others, shown) > dropped + 0.3


def test_the_same_seed_gives_the_same_policy(instances):
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, again = (train_policy(instances, start=RepairPolicy(2), seed=4, **SHORT) for _ in range(2))
    assert same_weights(one, again)
    assert not same_weights(one, train_policy(instances, start=RepairPolicy(2), seed=5, **SHORT))
    assert same_weights(fit_policy(instances, steps=2, seed=1), fit_policy(instances, steps=2, seed=1))
    # Nobody's own random numbers have moved.
    assert torch.random.get_rng_state().equal(before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


def test_the_start_is_not_changed(instances):
    start = RepairPolicy(2)
    trained = train_policy(instances, start=start, seed=4, **SHORT)
    assert same_weights(start, RepairPolicy(2))
    assert not same_weights(trained, start)


def test_equal_rewards_teach_nothing(instances):
    # Any edit of a model that one edit makes feasible is worth the same by feasibility: no advantage, no update.
    easy = []
    for one in instances:
        env = RepairEnv(one)
        env.reset()
        ends = []
        for option in env.candidates():
            env.reset()
            env.step(option)
            ends.append(env.state.status)
        if set(ends) == {"optimal"}:
            easy.append(one)
    assert easy
    trained = train_policy(easy, reward="outcome", seed=4, steps=2, batch=2, group=3)
    assert same_weights(trained, RepairPolicy(4))


def test_no_edit_is_tried_twice(instances):
    env = RepairEnv(instances, auto_submit=False)
    env.reset(options={"instance": 0})
    flip = next(option for option in untried(env) if option.kind == "FLIP")
    env.step(flip)
    assert all((option.kind, option.target) != (flip.kind, flip.target) for option in untried(env))


def test_chance_is_the_callers(instances, shown):
    env = RepairEnv(instances)
    env.reset(options={"instance": 1})
    draws = [shown.act(env, greedy=False, generator=torch.Generator().manual_seed(7)) for _ in range(2)]
    assert draws[0] == draws[1]
    assert draws[0] in env.candidates()


def test_nothing_to_choose_is_a_submission(instances):
    env = RepairEnv(instances, auto_submit=False)
    env.reset(options={"instance": 0})
    for edit in env.instance.undo:
        env.step(edit)
    assert env.state.status == "optimal"
    assert RepairPolicy().act(env).kind == "SUBMIT"


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_it_is_written_and_read(tmp_path, instances, shown, device):
    folder = shown.save_pretrained(tmp_path / "p")
    back = RepairPolicy.from_pretrained(folder, device=device)
    env = RepairEnv(instances)
    env.reset(options={"instance": 0})
    assert back.act(env) == shown.act(env)
    assert same_weights(back.cpu(), shown)
    with pytest.raises(InputError, match="p"):
        shown.save_pretrained(folder)  # what is there is never overwritten


def test_what_is_no_policy_is_refused(tmp_path):
    with pytest.raises(InputError, match="no orloop-policy folder"):
        RepairPolicy.from_pretrained(tmp_path)
    net_files.save(tmp_path / "p", "orloop-policy", {}, {"x": torch.zeros(2)})
    with pytest.raises(InputError, match="no such repair policy"):
        RepairPolicy.from_pretrained(tmp_path / "p")
    with pytest.raises(InputError, match="device"):
        RepairPolicy.from_pretrained(RepairPolicy().save_pretrained(tmp_path / "q"), device="abacus")


def test_one_score_a_candidate():
    assert RepairPolicy()(torch.zeros(5, FEATURES)).shape == (5,)
    assert RepairPolicy()(torch.zeros(0, FEATURES)).shape == (0,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"batch": -1},
        {"group": 2.5},
        {"most_actions": True},
        {"reward": "gold"},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"device": "abacus"},
        {"start": "me"},
    ],
)
def test_bad_arguments_are_named(instances, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        train_policy(instances, **wrong)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"lr": -1.0}, {"device": "abacus"}])
def test_bad_arguments_of_the_fit_are_named(instances, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        fit_policy(instances, **wrong)


@pytest.mark.parametrize("call", [train_policy, fit_policy])
def test_no_instances_are_refused(call):
    with pytest.raises(InputError, match="instances"):
        call([])


def test_the_loop_s_clip_and_passes_are_those_of_the_source():
    assert (CLIP, PASSES) == ((0.2, 0.28), 2)
