"""The policy: it learns, repeats, and is read back."""

import numpy as np
import pytest

pytest.importorskip("torch")

from assay.errors import InputError
from assay.reasoning.orloop import RepairEnv, RepairPolicy, generate, train_policy
from assay.reasoning.orloop.hand_rules import play


@pytest.fixture(scope="module")
def instances():
    return generate(10, errors="ABD", domains=["transport", "blending"], seed=31)


def repaired(instances, policy):
    env = RepairEnv(instances)
    return np.mean([play(env, lambda e, _: policy.act(e), i, None).op5 for i in range(len(instances))])


def test_it_learns_and_repeats(instances):
    trained = train_policy(instances, steps=12, batch=5, group=5, seed=1)
    again = train_policy(instances, steps=12, batch=5, group=5, seed=1)
    for a, b in zip(trained.parameters(), again.parameters(), strict=True):
        assert a.equal(b)
    assert repaired(instances, trained) > max(0.55, repaired(instances, RepairPolicy(1)))


def test_it_is_written_and_read(tmp_path, instances):
    policy = RepairPolicy(3)
    folder = policy.save_pretrained(tmp_path / "p")
    back = RepairPolicy.from_pretrained(folder, device="cpu")
    env = RepairEnv(instances)
    env.reset(options={"instance": 0})
    assert back.act(env) == policy.act(env)
    with pytest.raises(InputError, match="no repair policy"):
        RepairPolicy.from_pretrained(tmp_path)


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"batch": -1}, {"group": 2.5}, {"reward": "gold"}])
def test_bad_arguments_are_named(instances, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        train_policy(instances, **wrong)
