import pickle

import numpy as np
import pandas as pd
import pytest

from assay.errors import InputError
from assay.evidence.study import Budget, Proportion
from assay.numerics.submodular import greedy_plus_max
from assay.privacy.dp_smk.baselines import private
from assay.privacy.dp_smk.instances import value_of
from assay.privacy.dp_smk.study import STUDY, Picks, own

SMOKE = Budget.SMOKE


def test_tasks_depend_on_the_seed_alone():
    for name in ("T1-0.5", "T2", "T4-0.5"):
        task = STUDY.task(name)
        (first, _), (again, _), (other, _) = (task.load(seed, SMOKE) for seed in (5, 5, 6))
        np.testing.assert_array_equal(first.instance.costs, again.instance.costs)
        state = first.instance.objective.empty()
        np.testing.assert_array_equal(
            first.instance.objective.gains(state), again.instance.objective.gains(again.instance.objective.empty())
        )
        if name != "T2":
            assert not np.array_equal(first.instance.costs, other.instance.costs)


@pytest.mark.parametrize(
    "arm", [a.name for a in STUDY.arms if a.role != "ablation" or a.name in ("density", "no-coin")]
)
@pytest.mark.parametrize("task", ["T1-1", "T2", "T4-0.5"])
def test_every_arm_answers_within_the_budget(task, arm):
    if STUDY.arm(arm).tasks is not None and task not in STUDY.arm(arm).tasks:
        return
    given, hidden = STUDY.task(task).load(3, SMOKE)
    output = STUDY.arm(arm).run(given, 1, SMOKE)
    metrics = STUDY.task(task).score(output, hidden)
    assert 0 <= metrics["ratio"] <= 1.2
    assert isinstance(metrics["half"], Proportion)
    # Only data-free arms evaluate nothing.
    assert ("queries" in metrics) == (arm not in ("random", "cheapest"))


def test_what_the_study_shows_at_a_glance():
    given, hidden = STUDY.task("T2").load(0, SMOKE)
    ratio = {
        a: STUDY.task("T2").score(STUDY.arm(a).run(given, 0, SMOKE), hidden)["ratio"] for a in ("dp-smk", "density")
    }
    assert ratio["density"] < 0.4 < 0.99 < ratio["dp-smk"]
    given, hidden = STUDY.task("T1-1").load(0, SMOKE)
    calls = {a: STUDY.arm(a).run(given, 0, SMOKE).queries for a in ("dp-smk", "continuous")}
    assert calls["dp-smk"] < 0.1 * calls["continuous"]


def test_with_endless_epsilon_it_is_greedy_plus_max_on_the_sites_of_the_study():
    given, hidden = STUDY.task("T1-1").load(7, SMOKE)
    problem = given.instance
    exact = greedy_plus_max(problem.objective, problem.costs, problem.budget)
    assert hidden.reference == pytest.approx(exact.value, rel=1e-12)
    items, _ = private(problem, 1e6, 1e-6, np.random.default_rng(0), fallback=False)
    assert value_of(problem.objective, items) == pytest.approx(exact.value, rel=1e-12)


def test_cheats_and_honest_solvers_on_the_audit():
    given, hidden = STUDY.task("audit").load(0, Budget.QUICK)
    assert len(given.pairs) >= 5
    small = type(given)(given.pairs, 40)
    honest = STUDY.task("audit").score(STUDY.arm("dp-smk").run(small, 0, SMOKE), hidden)
    caught = STUDY.task("audit").score(STUDY.arm("nonprivate").run(small, 0, SMOKE), hidden)
    assert honest["eps_lower"] <= 1 < caught["eps_least"]


def test_bad_outputs_are_refused():
    given, hidden = STUDY.task("T1-1").load(0, SMOKE)
    score = STUDY.task("T1-1").score
    good = [(0,)] * given.runs
    assert score(good, hidden)["ratio"] >= 0
    assert score(Picks(good, 10.0), hidden)["queries"] == 10
    n = len(given.instance.costs)
    for output, message in (
        (good[:1], "one a run; got 1"),
        ([(0, 0)] * given.runs, "different positions"),
        ([(n,)] * given.runs, f"from 0 to {n - 1}"),
        ([(-1,)] * given.runs, "positions"),
        ([tuple(range(n))] * given.runs, "and the budget is 5"),
        (7, "lists of item positions"),
    ):
        with pytest.raises(ValueError, match=message):
            score(output, hidden)
    with pytest.raises(ValueError, match="list of lower bounds"):
        STUDY.task("audit").score([np.nan], None)


def test_the_study_and_its_data_travel_to_workers():
    pickle.loads(pickle.dumps(STUDY.method))
    given, _ = STUDY.task("T1-1").load(0, SMOKE)
    assert pickle.loads(pickle.dumps(given)).instance.budget == 5
    pickle.loads(pickle.dumps(STUDY.task("audit").load(0, SMOKE)[0]))


def test_the_study_on_a_file(tmp_path):
    rng = np.random.default_rng(0)
    similarity = rng.random((200, 8)).round(3)
    np.savez(tmp_path / "own.npz", similarity=similarity, costs=rng.uniform(0.5, 1, 8), budget=2.0)
    pd.DataFrame(similarity, columns=[f"c{k}" for k in range(8)]).to_csv(tmp_path / "own.csv", index=False)
    for name in ("own.npz", "own.csv"):
        study = own({"data": tmp_path / name})
        given, hidden = study.tasks[0].load(0, SMOKE)
        for arm in study.arms:
            output = arm.run(given, 0, SMOKE)
            assert study.tasks[0].score(output, hidden)["ratio"] > 0
        assert {claim.arm for claim in study.claims} == {"dp-smk"}
        # The seeds from 1000 on were looked at while the method was made.
        assert study.base_seed == STUDY.base_seed >= 3000


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"similarity": np.eye(3), "costs": np.ones(3)}, "has no budget"),
        ({"similarity": 2 * np.eye(3), "costs": np.ones(3), "budget": 1.0}, r"must lie in \[0, 1\]"),
        ({"similarity": np.eye(3), "costs": np.ones(2), "budget": 1.0}, "one number for each of the 3 items"),
        ({"similarity": np.eye(3), "costs": np.zeros(3), "budget": 1.0}, "greater than 0"),
        ({"similarity": np.eye(3), "costs": np.ones(3), "budget": np.ones(2)}, "budget must be one number"),
        ({"similarity": np.zeros((4, 3)), "costs": np.ones(3), "budget": 1.0}, "of any benefit"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path, arrays, message):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(InputError, match=message):
        own({"data": tmp_path / "own.npz"})


def test_other_things_are_refused(tmp_path):
    with pytest.raises(InputError, match="takes people × items as data"):
        own({"model": tmp_path})
    pd.DataFrame({"a": ["x", "y"], "b": [0.1, 0.2]}).to_csv(tmp_path / "own.csv", index=False)
    with pytest.raises(InputError, match="'a' holds no numbers"):
        own({"data": tmp_path / "own.csv"})
