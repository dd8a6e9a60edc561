"""Placebos: claims about nothing must fail, and a bar that lets them pass must show."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.errors import InputError
from assay.evidence.claim import Claim, at_least, higher, lower
from assay.evidence.placebo import Again, placebo, placebo_line
from assay.evidence.record import Record
from assay.evidence.study import Arm, Budget, Study, Task
from assay.evidence.verdict import Outcome, Verdict, judge


def _load(seed: int, budget: Budget) -> tuple[Any, Any]:
    return seed, None


def _score(output: Any, hidden: Any) -> Mapping[str, Any]:
    return {"m": output}


def _noisy(given: Any, seed: int, budget: Budget) -> float:
    return 10 + float(np.random.default_rng(seed).normal())


def _steady(given: Any, seed: int, budget: Budget) -> float:
    return float(given)


def _study(*claims: Claim, method_tasks: tuple[str, ...] | None = None) -> Study:
    return Study(
        name="s",
        tasks=(Task("T1", _load, _score), Task("T2", _load, _score)),
        arms=(
            Arm("ours", _noisy, "method", tasks=method_tasks),
            Arm("noisy", _noisy, "baseline"),
            Arm("steady", _steady, "trivial", budgets=(Budget.QUICK, Budget.FULL)),
        ),
        claims=claims,
        primary="m",
        better="higher",
        own=lambda paths: _study(*claims),
    )


def _run(study: Study, seeds: range = range(1000, 1012)) -> list[Verdict]:
    """Run a study here and judge it."""
    records = []
    for task, arm in study.pairs(Budget.QUICK):
        for seed in seeds:
            given, hidden = task.load(seed, Budget.QUICK)
            metrics = task.score(arm.run(given, 7 * seed, Budget.QUICK), hidden)
            key = f"{task.name}/{arm.name}/{seed}"
            record = Record(
                key=key, study=study.name, task=task.name, arm=arm.name, role=arm.role, seed=seed,
                budget="quick", metrics=metrics,
            )  # fmt: skip
            records.append(record)
    return [judge(claim, study, records, Budget.QUICK, seeds) for claim in study.claims]


def test_each_opponent_meets_itself() -> None:
    study = placebo(
        _study(
            higher("m", "ours", than=["noisy", "steady"], by=3, tasks="T1", says="ours wins", needs="more"),
            lower("m", "ours", than="noisy", ratio=0.9),
            lower("m", "noisy", than="ours"),
            at_least("m", "ours", 1),
        )
    )
    assert study.claims == (
        higher("m", "noisy again", than="noisy", by=3, tasks="T1"),
        higher("m", "steady again", than="steady", by=3, tasks="T1"),
        lower("m", "noisy again", than="noisy", ratio=0.9),
        lower("m", "ours again", than="ours"),
    )
    assert [(arm.name, arm.role) for _, arm in study.pairs(Budget.QUICK)[:6]] == [
        ("ours", "method"), ("ours again", "baseline"),
        ("noisy", "baseline"), ("noisy again", "baseline"),
        ("steady", "trivial"), ("steady again", "trivial"),
    ]  # fmt: skip
    assert study.arm("steady again").budgets == (Budget.QUICK, Budget.FULL)
    # What a user brings makes the real study, not a placebo.
    assert study.own is None


def test_a_method_that_is_no_opponent_never_runs() -> None:
    study = placebo(_study(higher("m", "ours", than="noisy")))
    for budget in Budget:
        assert {arm.name for _, arm in study.pairs(budget)} == {"noisy", "noisy again"}


def test_alike_claims_are_one() -> None:
    study = placebo(_study(higher("m", "ours", than="noisy", says="x"), higher("m", "steady", than="noisy", says="y")))
    assert study.claims == (higher("m", "noisy again", than="noisy"),)


def test_only_tasks_on_which_the_claims_arm_runs() -> None:
    study = placebo(_study(higher("m", "ours", than="noisy"), method_tasks=("T2",)))
    assert study.claims == (higher("m", "noisy again", than="noisy", tasks="T2"),)


@pytest.mark.parametrize("claims", [(), (at_least("m", "ours", 1),), (higher("m", "ours", than="noisy", tasks="T1"),)])
def test_nothing_to_compare(claims: tuple[Claim, ...]) -> None:
    with pytest.raises(InputError, match="no placebo of it"):
        placebo(_study(*claims, method_tasks=("T2",)))


def test_the_twin_runs_the_same_arm_with_another_seed() -> None:
    study = placebo(_study(higher("m", "ours", than="noisy")))
    seen: list[tuple[Any, int, Budget]] = []
    twin = study.arm("noisy again").run
    other = int(np.random.SeedSequence((1000, 2)).generate_state(1)[0])
    assert twin("given", 1000, Budget.SMOKE) == _noisy("given", other, Budget.SMOKE)
    assert twin("given", 1000, Budget.SMOKE) != _noisy("given", 1000, Budget.SMOKE)
    Again(lambda given, seed, budget: seen.append((given, seed, budget)))("given", 1000, Budget.SMOKE)
    assert seen == [("given", other, Budget.SMOKE)]
    again = pickle.loads(pickle.dumps(twin))
    assert again == twin
    assert again("given", 5, Budget.FULL) == twin("given", 5, Budget.FULL)


def test_a_placebo_that_is_run() -> None:
    verdicts = _run(
        placebo(
            _study(
                higher("m", "ours", than=["noisy", "steady"]),
                # So generous that an arm beats itself.
                higher("m", "ours", than=["noisy", "steady"], ratio=0.5),
            )
        )
    )
    outcomes = [verdict.outcome for verdict in verdicts]
    assert outcomes[0] is not Outcome.SUPPORTED
    # An arm without randomness equals itself.
    assert (outcomes[1], verdicts[1].estimate) == (Outcome.NOT_SUPPORTED, 0)
    assert outcomes[2:] == [Outcome.SUPPORTED, Outcome.SUPPORTED]
    # 1 − .975^4 − 4 * .025 * .975^3 = 0.0036
    assert placebo_line(verdicts) == (
        "Placebo: 2 of 4 claims supported where an arm meets itself; chance alone gives 2 or more with probability "
        "0.0036: something is probably wrong, such as a bar so generous that an arm beats itself."
    )


def test_placebos_of_honest_claims_seldom_pass() -> None:
    study = placebo(_study(higher("m", "ours", than="noisy", tasks="T1")))
    runs = 200
    supported = sum(
        _run(study, range(first, first + 5))[0].outcome is Outcome.SUPPORTED for first in range(0, 5 * runs, 5)
    )
    assert supported <= stats.binom.ppf(0.99, runs, 0.025)


def _verdicts(*outcomes: Outcome) -> list[Verdict]:
    return [Verdict(claim=higher("m", "a", than="b"), outcome=outcome) for outcome in outcomes]


def test_lines() -> None:
    few = _verdicts(*[Outcome.INCONCLUSIVE] * 11, Outcome.SUPPORTED)
    # 1 − .975^12 = 0.262
    assert placebo_line(few) == (
        "Placebo: 1 of 12 claims supported where an arm meets itself; chance alone gives 1 or more with probability "
        "0.26: nothing looks wrong."
    )
    assert placebo_line(_verdicts(Outcome.NOT_SUPPORTED, Outcome.INCONCLUSIVE)) == (
        "Placebo: 0 of 2 claims supported where an arm meets itself, as it should be."
    )
    assert placebo_line(_verdicts(Outcome.UNTESTED)) == "Placebo: no claim could be judged, so it says nothing."


def test_claims_that_could_not_be_judged_do_not_count() -> None:
    verdicts = _run(placebo(_study(higher("m", "ours", than="noisy"))), range(1000, 1002))
    assert verdicts[0].outcome is Outcome.INCONCLUSIVE
    assert placebo_line(verdicts) == "Placebo: no claim could be judged, so it says nothing."
