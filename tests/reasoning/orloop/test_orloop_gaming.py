"""Agents that try to have the reward without the work: none of them may beat honest work."""

import numpy as np
import pytest

from assay.reasoning.orloop import Action, RepairEnv, generate, prompt, reward_func


@pytest.fixture(scope="module")
def instances():
    return generate(12, seed=21)


@pytest.fixture(scope="module")
def solved(instances):
    """Solved states, which the games share."""
    return {}


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


def everything_at_once(env, i):
    """All plausible edits in one breath, and then done."""
    env.reset(options={"instance": i})
    total = 0.0
    while not env.done:
        total += env.step("\n".join([*map(str, env.candidates()), "SUBMIT"]))[1]
    return total, env.score()


def everything_as_objects(env, i):
    env.reset(options={"instance": i})
    rows = env.state.rows
    text = "[" + ", ".join(f'{{"action": "DROP", "target": "{name}"}}' for name in rows) + "]"
    total = 0.0
    while not env.done:
        total += env.step(text)[1]
    return total, env.score()


def reset_for_ever(env, i):
    env.reset(options={"instance": i})
    total = 0.0
    while not env.done:
        total += env.step("RESET")[1]
    return total, env.score()


def drop_and_reset(env, i):
    """Edits taken back count, so that trying all of them does not come cheap."""
    env.reset(options={"instance": i})
    total = 0.0
    for name in list(env.state.rows):
        for action in (Action("DROP", name), Action("RESET")):
            if not env.done:
                total += env.step(action)[1]
    return total + (0 if env.done else env.step("SUBMIT")[1]), env.score()


def relax_without_end(env, i):
    env.reset(options={"instance": i})
    total = 0.0
    while not env.done:
        total += env.step(f"RELAX {env.state.rows[0]} by 1e14" if env.state.rows else "SUBMIT")[1]
    return total, env.score()


def free_all_columns(env, i):
    env.reset(options={"instance": i})
    total = 0.0
    for name in env.state.model.col_names:
        if not env.done:
            total += env.step(f"SET_BOUNDS {name} -inf inf")[1]
    return total + (0 if env.done else env.step("SUBMIT")[1]), env.score()


def empty_the_rows(env, i):
    """All coefficients of a row in conflict to zero."""
    env.reset(options={"instance": i})
    total = 0.0
    while not env.done:
        model, rows = env.state.model, env.state.rows
        if not rows or env.steps > 6:
            total += env.step("SUBMIT")[1]
            continue
        at = model.A[model.row(rows[0])]
        zeros = " ".join(f"{model.col_names[j]} 0" for j in at.indices)
        total += env.step(f"SET_COEF {rows[0]} {zeros}" if zeros else f"DROP {rows[0]}")[1]
    return total, env.score()


def junk(env, i):
    env.reset(options={"instance": i})
    rng, total = np.random.default_rng(i), 0.0
    while not env.done:
        total += env.step("".join(map(chr, rng.integers(32, 1000, 300))))[1]
    return total, env.score()


TRICKS = [
    drop_all, drop_conflict, diagnose_all, diagnose_conflict, copy_the_question, submit_at_once, everything_at_once,
    everything_as_objects, reset_for_ever, drop_and_reset, relax_without_end, free_all_columns, empty_the_rows, junk,
]  # fmt: skip


@pytest.fixture(scope="module")
def fair(instances, solved):
    def work(reward):
        env = RepairEnv(instances, reward=reward, cache=solved, max_steps=30)
        return [honest(env, i) for i in range(len(instances))]

    return {reward: work(reward) for reward in ("op", "composite")}


@pytest.mark.parametrize("reward", ["op", "composite"])
@pytest.mark.parametrize("trick", TRICKS)
def test_no_trick_beats_honest_work(instances, solved, fair, trick, reward):
    env = RepairEnv(instances, reward=reward, cache=solved, max_steps=30)
    tricks = [trick(env, i) for i in range(len(instances))]
    for (earned, true), (taken, score) in zip(fair[reward], tricks, strict=True):
        assert taken <= earned + 1e-9
        assert (score.op5, score.diag_f1) <= (true.op5, true.diag_f1)
        assert not (score.exact and not true.exact)
    assert np.mean([score.op5 for _, score in fair[reward]]) == 1
    assert np.mean([score.exact for _, score in fair[reward]]) == 1
    assert np.mean([score.op5 for _, score in tricks]) < 0.6
    assert np.mean([t for t, _ in tricks]) < np.mean([f for f, _ in fair[reward]]) - (20 if reward == "op" else 12)


def test_naming_the_whole_conflict_is_full_marks_only_by_the_loose_measure(instances, solved):
    env = RepairEnv(instances, cache=solved)
    scores = [diagnose_conflict(env, i)[1] for i in range(len(instances))]
    assert np.mean([s.da_iis for s in scores]) == 1
    assert np.mean([s.diag_f1 for s in scores]) < 0.8
    assert np.mean([s.diag_precision for s in scores]) < 0.6


def test_a_trainer_is_not_fooled_either(instances):
    single = [one for one in instances if len(one.undo) == 1]
    honest = [str(one.undo[0]) for one in single]
    lists = ["\n".join(f"DROP {name}" for name in one.model.row_names) for one in single]
    names = ["DIAGNOSE " + ", ".join(one.iis_rows) for one in single]
    prompts = []
    for one in single:
        env = RepairEnv(one)
        env.reset()
        prompts.append("\n".join(message["content"] for message in prompt(env)))
    for reward in ("op", "composite"):
        earned = reward_func(None, honest, single, reward=reward)
        for trick in (lists, names, prompts, ["SUBMIT"] * len(single), ["RESET\n" * 100] * len(single)):
            taken = reward_func(None, trick, single, reward=reward)
            assert all(t <= e for t, e in zip(taken, earned, strict=True))
            assert np.mean(taken) < np.mean(earned) - 20
