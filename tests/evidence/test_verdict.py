"""Verdicts against cases worked out by hand, the rules that any verdict keeps, and how often chance is believed."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from assay.evidence.claim import (
    Claim,
    at_least,
    at_most,
    higher,
    holds,
    lower,
    not_higher,
    not_lower,
    rate,
    slope,
    spread,
    within,
)
from assay.evidence.record import Proportion, Record, Status
from assay.evidence.study import Arm, Budget, Role, Study, Task
from assay.evidence.verdict import Outcome, Verdict, judge

SUPPORTED, NOT_SUPPORTED, INCONCLUSIVE, UNTESTED = (
    Outcome.SUPPORTED,
    Outcome.NOT_SUPPORTED,
    Outcome.INCONCLUSIVE,
    Outcome.UNTESTED,
)
LARGE = (Budget.FULL, Budget.PAPER)

Values = Mapping[tuple[str, str], Sequence[Any]]


def _task(name: str, budgets: tuple[Budget, ...] = tuple(Budget)) -> Task:
    return Task(name, load=lambda seed, budget: (seed, seed), score=lambda out, hidden: {}, budgets=budgets)


def _arm(name: str, role: Role = "baseline", **more: Any) -> Arm:
    return Arm(name, run=lambda given, seed, budget: given, role=role, **more)


def _study(
    tasks: Sequence[Task | str] = ("T",), arms: Sequence[Arm | str] = ("b",), claim: Claim | None = None
) -> Study:
    return Study(
        name="s",
        tasks=tuple(_task(t) if isinstance(t, str) else t for t in tasks),
        arms=(_arm("a", "method"), *(_arm(x) if isinstance(x, str) else x for x in arms)),
        claims=(claim,) if claim else (),
        primary="m",
        better="higher",
    )


def _record(
    task: str, arm: str, seed: int, metrics: Mapping[str, Any], status: Status = "ok", reason: str = ""
) -> Record:
    return Record(
        key=f"{task}/{arm}/{seed}", study="s", task=task, arm=arm, role="baseline", seed=seed, budget="quick",
        status=status, reason=reason, metrics=metrics,
    )  # fmt: skip


def _records(values: Values, metric: str = "m") -> list[Record]:
    return [
        _record(task, arm, 1000 + i, value if isinstance(value, dict) else {metric: value})
        for (task, arm), row in values.items()
        for i, value in enumerate(row)
    ]


def _judge(claim: Claim, values: Values, study: Study | None = None) -> Verdict:
    """Judge with one record for each value, seeds 1000, 1001, …"""
    if study is None:
        tasks = list(dict.fromkeys(task for task, _ in values))
        study = _study(tasks, [arm for arm in dict.fromkeys(arm for _, arm in values) if arm != "a"])
    return judge(claim, study, _records(values), Budget.QUICK, range(1000, 1000 + max(map(len, values.values()))))


def _numbers(verdict: Verdict) -> tuple[float, float, float]:
    assert verdict.estimate is not None
    assert verdict.low is not None
    assert verdict.high is not None
    return verdict.estimate, verdict.low, verdict.high


# Differences 1, 2, 3, 4, 5: mean 3, interval 3 ± 2.7764 * 1.5811 / sqrt(5) = 3 ± 1.9633
FIVE: Values = {("T", "a"): [11, 13, 15, 17, 19], ("T", "b"): [10, 11, 12, 13, 14]}


@pytest.mark.parametrize(
    ("claim", "outcome", "bar"),
    [
        (higher("m", "a", than="b"), SUPPORTED, 0),
        (higher("m", "a", than="b", by=1.03), SUPPORTED, 1.03),
        (higher("m", "a", than="b", by=1.04), INCONCLUSIVE, 1.04),
        (higher("m", "a", than="b", by=4.96), INCONCLUSIVE, 4.96),
        (higher("m", "a", than="b", by=4.97), NOT_SUPPORTED, 4.97),
        (lower("m", "a", than="b"), NOT_SUPPORTED, 0),
        (lower("m", "a", than="b", by=1), NOT_SUPPORTED, -1),
        (within("m", "a", of="b", by=4.97), SUPPORTED, (-4.97, 4.97)),
        (within("m", "a", of="b", by=4.96), INCONCLUSIVE, (-4.96, 4.96)),
        (within("m", "a", of="b", by=1.04), INCONCLUSIVE, (-1.04, 1.04)),
        (within("m", "a", of="b", by=1.03), NOT_SUPPORTED, (-1.03, 1.03)),
    ],
)
def test_differences_by_hand(claim: Claim, outcome: Outcome, bar: float | tuple[float, float]) -> None:
    verdict = _judge(claim, FIVE)
    assert verdict.outcome is outcome
    assert _numbers(verdict) == pytest.approx((3, 1.0367, 4.9633), abs=1e-4)
    assert verdict.bar == bar
    assert verdict.pairs == "1 task × 5 seeds"
    assert verdict.reason == ""


def test_lower_by_has_its_margin_in_its_own_direction() -> None:
    swapped: Values = {("T", "a"): FIVE["T", "b"], ("T", "b"): FIVE["T", "a"]}
    verdict = _judge(lower("m", "a", than="b", by=1), swapped)
    assert verdict.outcome is SUPPORTED
    assert _numbers(verdict) == pytest.approx((-3, -4.9633, -1.0367), abs=1e-4)
    assert verdict.bar == -1
    assert math.copysign(1, _judge(lower("m", "a", than="b"), swapped).bar) == 1  # type: ignore[arg-type]


def test_no_worse_by_more_than_a_margin() -> None:
    # a − b is 3 ± 1.9633 in FIVE, and −3 ± 1.9633 with the arms exchanged
    swapped: Values = {("T", "a"): FIVE["T", "b"], ("T", "b"): FIVE["T", "a"]}
    for margin, outcome in ((4.97, SUPPORTED), (4.96, INCONCLUSIVE), (1.03, NOT_SUPPORTED)):
        down = _judge(not_lower("m", "a", than="b", by=margin), swapped)
        up = _judge(not_higher("m", "a", than="b", by=margin), FIVE)
        assert (down.outcome, up.outcome) == (outcome, outcome)
        assert (down.bar, up.bar) == (-margin, margin)
    assert _judge(not_lower("m", "a", than="b", by=0.1), FIVE).outcome is SUPPORTED
    assert _judge(not_higher("m", "a", than="b", by=0.1), swapped).outcome is SUPPORTED
    with pytest.raises(ValueError, match="by must be positive"):
        not_lower("m", "a", than="b", by=0)


# a / b = 2, 4, 8: logs (1, 2, 3) * 0.693147; half = 4.3027 * 0.693147 / sqrt(3) = 1.72189
# estimate exp(1.386294) = 4, ends exp(1.386294 ∓ 1.72189) = 0.71498 and 22.3786
RATIOS: Values = {("T", "a"): [2.0, 12.0, 40.0], ("T", "b"): [1.0, 3.0, 5.0]}


@pytest.mark.parametrize(
    ("claim", "outcome"),
    [
        (higher("m", "a", than="b", ratio=0.714), SUPPORTED),
        (higher("m", "a", than="b", ratio=0.716), INCONCLUSIVE),
        (higher("m", "a", than="b", ratio=22.38), NOT_SUPPORTED),
        (lower("m", "a", than="b", ratio=22.38), SUPPORTED),
        (lower("m", "a", than="b", ratio=22.37), INCONCLUSIVE),
        (lower("m", "a", than="b", ratio=0.714), NOT_SUPPORTED),
        (at_least("m", "a", 0.714, of="b"), SUPPORTED),
        (at_least("m", "a", 22.38, of="b"), NOT_SUPPORTED),
        (at_most("m", "a", 22.38, of="b"), SUPPORTED),
        (at_most("m", "a", 4, of="b"), INCONCLUSIVE),
    ],
)
def test_ratios_by_hand(claim: Claim, outcome: Outcome) -> None:
    verdict = _judge(claim, RATIOS)
    assert verdict.outcome is outcome
    assert _numbers(verdict) == pytest.approx((4, 0.71498, 22.3786), rel=1e-4)
    assert verdict.bar == claim.bar


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_ratios_need_positive_numbers(bad: float) -> None:
    verdict = _judge(lower("m", "a", than="b", ratio=0.9), {("T", "a"): [1, 1, 1, 1], ("T", "b"): [2, 2, bad, 2]})
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == (
        "1 of 8 cells cannot be used: "
        f"b on T gave m = {bad:g}, not a positive number, which a ratio needs, at seed 1002"
    )
    assert verdict.more == ""


def test_a_value_against_a_bar() -> None:
    # 1..5: 3 ± 1.9633
    values: Values = {("T", "a"): [1, 2, 3, 4, 5]}
    assert _judge(at_least("m", "a", 1.03), values).outcome is SUPPORTED
    assert _judge(at_least("m", "a", 1.04), values).outcome is INCONCLUSIVE
    assert _judge(at_least("m", "a", 4.97), values).outcome is NOT_SUPPORTED
    assert _judge(at_most("m", "a", 4.97), values).outcome is SUPPORTED
    assert _judge(at_most("m", "a", 1.03), values).outcome is NOT_SUPPORTED


def _at_bar(claim: Claim, a: float, b: float, n: int = 3) -> Outcome:
    return _judge(claim, {("T", "a"): [a] * n, ("T", "b"): [b] * n}).outcome


@pytest.mark.parametrize("n", [3, 12])
def test_exactly_at_the_bar(n: int) -> None:
    # Strict claims do not own their bar, the others do; 0.8 − 0.7 is a little more than 0.1 in floating point,
    # 0.9 − 0.8 a little less.
    for a, b in ((0.8, 0.7), (0.9, 0.8)):
        assert _at_bar(higher("m", "a", than="b", by=0.1), a, b, n) is NOT_SUPPORTED
        assert _at_bar(lower("m", "a", than="b", by=0.1), b, a, n) is NOT_SUPPORTED
        assert _at_bar(within("m", "a", of="b", by=0.1), a, b, n) is SUPPORTED
        assert _at_bar(not_higher("m", "a", than="b", by=0.1), a, b, n) is SUPPORTED
        assert _at_bar(not_lower("m", "a", than="b", by=0.1), b, a, n) is SUPPORTED
    assert _at_bar(higher("m", "a", than="b"), 0.1 + 0.2, 0.3, n) is NOT_SUPPORTED
    assert _at_bar(lower("m", "a", than="b", ratio=0.9), 0.27, 0.3, n) is NOT_SUPPORTED
    assert _at_bar(at_least("m", "a", 0.9, of="b"), 0.27, 0.3, n) is SUPPORTED
    assert _at_bar(at_most("m", "a", 0.9, of="b"), 0.27, 0.3, n) is SUPPORTED
    assert _at_bar(at_least("m", "a", 0.3), 0.1 + 0.2, 0, n) is SUPPORTED
    assert _at_bar(at_most("m", "a", 0.3), 0.1 + 0.2, 0, n) is SUPPORTED
    assert _at_bar(higher("m", "a", than="b"), 0.3 + 1e-9, 0.3, n) is SUPPORTED


def test_spread_by_hand() -> None:
    # Ranges over the tasks 1, 2, 3: mean 2, half = 4.3027 / sqrt(3) = 2.4842
    values: Values = {("T1", "a"): [5, 5, 5], ("T2", "a"): [6, 4, 5], ("T3", "a"): [5.5, 3, 8]}
    verdict = _judge(spread("m", "a", over=["T1", "T2", "T3"], at_most=4.49), values)
    assert verdict.outcome is SUPPORTED
    assert _numbers(verdict) == pytest.approx((2, -0.4842, 4.4842), abs=1e-4)
    assert verdict.pairs == "3 tasks × 3 seeds"
    assert [(part.task, part.pairs) for part in verdict.parts] == [("T1 + T2 + T3", 3)]
    assert _judge(spread("m", "a", over=["T1", "T2", "T3"], at_most=4.48), values).outcome is INCONCLUSIVE


def _errors(n: int, factors: Sequence[float], power: float = -0.5) -> list[dict[str, float]]:
    return [{"m": factor * n**power, "n": n} for factor in factors]


def test_slopes_are_exact() -> None:
    values: Values = {(f"n{n}", "a"): _errors(n, [1, 2, 3]) for n in (10, 100, 1000)}
    verdict = _judge(slope("m", "a", on="n", between=(-0.6, -0.4)), values)
    assert verdict.outcome is SUPPORTED
    assert _numbers(verdict) == pytest.approx((-0.5, -0.5, -0.5), abs=1e-12)
    assert verdict.bar == (-0.6, -0.4)
    assert verdict.parts[0].pairs == 3
    # The bar belongs to the claim.
    assert _judge(slope("m", "a", on="n", between=(-0.5, -0.4)), values).outcome is SUPPORTED
    assert _judge(slope("m", "a", on="n", between=(-0.4, -0.3)), values).outcome is NOT_SUPPORTED


def test_slope_of_least_squares_by_hand() -> None:
    # x = 0, 1, 2 and y = 0, 0, 3 + s: slope = ((-1)(0) + (1)(3 + s)) / 2 = 1.5, 2, 2.5; half = 4.3027 * .5 / sqrt(3)
    values: Values = {
        ("x0", "a"): [{"m": 0, "n": 0}] * 3,
        ("x1", "a"): [{"m": 0, "n": 1}] * 3,
        ("x2", "a"): [{"m": 3 + s, "n": 2} for s in range(3)],
    }
    verdict = _judge(slope("m", "a", on="n", between=(0.75, 3.25), log=False), values)
    assert verdict.outcome is SUPPORTED
    assert _numbers(verdict) == pytest.approx((2, 0.7579, 3.2421), abs=1e-4)
    assert "which a logarithm needs" in _judge(slope("m", "a", on="n", between=(0, 1)), values).reason


def test_slope_needs_different_values() -> None:
    values: Values = {("T1", "a"): _errors(10, [1, 2, 3]), ("T2", "a"): _errors(10, [1, 2, 3])}
    verdict = _judge(slope("m", "a", on="n", between=(-0.6, -0.4)), values)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == "needs at least 2 different values of n at every seed"


@pytest.mark.parametrize(
    "make", [lambda: spread("m", "a", over="T", at_most=1), lambda: slope("m", "a", on="n", between=(0, 1))]
)
def test_across_tasks_needs_two(make: Callable[[], Claim]) -> None:
    verdict = _judge(make(), {("T", "a"): [1, 2, 3]})
    assert verdict.outcome is UNTESTED
    assert verdict.reason == "needs at least 2 tasks on which a runs"


def test_rates_by_hand() -> None:
    # 5 of 10: (0.1871, 0.8129); as counts, as they come back from JSON, and as truth values
    counts: list[Any] = [Proportion(1, 4), Proportion(4, 4), Proportion(0, 2)]
    for row in (counts, json.loads(json.dumps(counts)), [0, 1] * 5, [True, False] * 5, [np.bool_(True), 0.0] * 5):
        verdict = _judge(rate("m", "a", at_most=0.82), {("T", "a"): row})
        assert verdict.outcome is SUPPORTED
        assert _numbers(verdict) == pytest.approx((0.5, 0.1871, 0.8129), abs=1e-4)
        assert _judge(rate("m", "a", at_most=0.81), {("T", "a"): row}).outcome is INCONCLUSIVE
        assert _judge(rate("m", "a", at_most=0.18), {("T", "a"): row}).outcome is NOT_SUPPORTED
        assert _judge(rate("m", "a", at_least=0.18), {("T", "a"): row}).outcome is SUPPORTED
        assert _judge(rate("m", "a", at_least=0.82), {("T", "a"): row}).outcome is NOT_SUPPORTED


def test_no_event_does_not_prove_a_rate() -> None:
    # 0 of 10 goes up to 0.3085; to be below 0.1 takes n > ln .025 / ln .9 = 35.01 cells
    verdict = _judge(rate("m", "a", at_most=0.1), {("T", "a"): [0] * 10})
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.high == pytest.approx(0.3085, abs=1e-4)
    assert verdict.more_seeds == 26
    assert verdict.more == "about 26 more seeds would probably decide it"


@pytest.mark.parametrize("bad", [0.5, 3, [5, 4], [1.5, 3], "yes", None, [1, 2, 3]])
def test_rates_of_something_else(bad: Any) -> None:
    verdict = _judge(rate("m", "a", at_most=0.5), {("T", "a"): [0, 0, bad]})
    assert verdict.outcome is INCONCLUSIVE
    assert "not 0, 1 or (count, trials), at seed 1002" in verdict.reason


def test_rate_without_trials() -> None:
    verdict = _judge(rate("m", "a", at_most=0.5), {("T", "a"): [Proportion(0, 0)] * 3})
    assert (verdict.outcome, verdict.reason) == (INCONCLUSIVE, "there were no trials")


def test_holds() -> None:
    claim = holds("m", "a")
    verdict = _judge(claim, {("T", "a"): [True, 1, np.bool_(True)]})
    assert (verdict.outcome, verdict.estimate, verdict.low, verdict.reason) == (SUPPORTED, 1, None, "")
    verdict = _judge(claim, {("T", "a"): [True, False, 1, 0]})
    assert (verdict.outcome, verdict.estimate) == (NOT_SUPPORTED, 0.5)
    assert verdict.reason == "false for a on T at seeds 1001, 1003"
    verdict = _judge(claim, {("T", "a"): [True, 0.5, True]})
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == "1 of 3 cells cannot be used: a on T gave m = 0.5, not true or false, at seed 1001"
    verdict = _judge(claim, {("T", "a"): [True, False]})
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == "needs at least 3 cells, has 2; false for a on T at seed 1001"


def test_a_share_is_a_number_too() -> None:
    values: Values = {("T", "a"): [Proportion(3, 4)] * 3, ("T", "b"): [[1, 4]] * 3}
    verdict = _judge(higher("m", "a", than="b", by=0.4), values)
    assert (verdict.outcome, verdict.estimate) == (SUPPORTED, 0.5)


# What is not there


@pytest.mark.parametrize(
    ("claim", "unit"),
    [(higher("m", "a", than="b"), "pairs"), (at_least("m", "a", 0), "pairs"), (rate("m", "a", at_most=1), "cells")],
)
def test_too_few_pairs(claim: Claim, unit: str) -> None:
    verdict = _judge(claim, {("T", "a"): [1, 1], ("T", "b"): [0, 0]})
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == f"needs at least 3 {unit}, has 2"
    assert (verdict.low, verdict.high, verdict.more) == (None, None, "")


def test_few_seeds_are_enough_pairs_where_pooled() -> None:
    values: Values = {(t, arm): [at, at + 1] for t in ("T1", "T2") for arm, at in (("a", 5), ("b", 1))}
    assert _judge(higher("m", "a", than="b"), values).outcome is INCONCLUSIVE
    verdict = _judge(higher("m", "a", than="b", pool=True), values)
    assert (verdict.outcome, verdict.pairs, verdict.parts[0].pairs) == (SUPPORTED, "2 tasks × 2 seeds", 4)


def _with(records: list[Record], arm: str, seeds: Sequence[int], **change: Any) -> list[Record]:
    return [dataclasses.replace(r, **change) if r.arm == arm and r.seed in seeds else r for r in records]


TEN: Values = {("T", "a"): [5.0 + i % 3 for i in range(10)], ("T", "b"): [1.0] * 10}


def test_failed_cells_are_named() -> None:
    records = _with(_records(TEN), "b", [1007, 1001, 1004], status="failed", reason="out of memory", metrics={})
    verdict = judge(higher("m", "a", than="b"), _study(), records, Budget.QUICK, range(1000, 1010))
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == ("3 of 20 cells are missing: b on T failed at seeds 1001, 1004, 1007 (out of memory)")
    assert verdict.parts[0].pairs == 7
    assert verdict.more == ""


def test_cells_without_a_record_are_noticed() -> None:
    records = [r for r in _records(TEN) if r.arm == "a" or r.seed != 1009]
    verdict = judge(higher("m", "a", than="b"), _study(), records, Budget.QUICK, range(1000, 1010))
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == "1 of 20 cells is missing: b on T was not run at seed 1009"
    # Those of other seeds do not take their place.
    verdict = judge(higher("m", "a", than="b"), _study(), _records(TEN), Budget.QUICK, range(1001, 1011))
    assert verdict.reason == (
        "2 of 20 cells are missing: a on T was not run at seed 1010; b on T was not run at seed 1010"
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none(bad: float) -> None:
    records = _with(_records(TEN), "a", [1003], metrics={"m": bad})
    verdict = judge(higher("m", "a", than="b"), _study(), records, Budget.QUICK, range(1000, 1010))
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.reason == f"1 of 20 cells cannot be used: a on T gave m = {bad:g}, not a finite number, at seed 1003"


def test_a_metric_that_is_not_there() -> None:
    verdict = _judge(higher("q", "a", than="b"), TEN)
    assert verdict.outcome is INCONCLUSIVE
    assert (
        verdict.reason
        == "20 of 20 cells cannot be used: a on T gave no q at all 10 seeds; b on T gave no q at all 10 seeds"
    )
    assert (verdict.estimate, verdict.low, verdict.high) == (None, None, None)


def test_one_gap_in_several_parts_is_told_once() -> None:
    values: Values = {("T", arm): [at + i for i in range(3)] for arm, at in (("a", 9), ("b", 1), ("c", 2))}
    records = _with(_records(values), "a", [1001], status="failed", reason="")
    verdict = judge(higher("m", "a", than=["b", "c"]), _study(arms="bc"), records, Budget.QUICK, range(1000, 1003))
    assert verdict.reason == "1 of 9 cells is missing: a on T failed at seed 1001"
    assert [p.reason for p in verdict.parts] == ["1 of 6 cells is missing: a on T failed at seed 1001"] * 2


def test_many_kinds_of_gaps_are_counted() -> None:
    values: Values = {(f"T{i}", "a"): [math.nan] * 3 for i in range(7)}
    reason = _judge(at_least("m", "a", 0, pool=True), values).reason
    assert reason.startswith(
        "21 of 21 cells cannot be used: a on T0 gave m = nan, not a finite number, at all 3 seeds; "
    )
    assert reason.endswith("; and 3 more of this kind")


def test_a_missing_part_leaves_the_claim_untested() -> None:
    what = "robpca needs robpy; install it with: pip install --no-deps robpy==0.0.6"
    records = _with(_records(TEN), "b", range(1000, 1010), status="missing", reason=what, metrics={})
    verdict = judge(higher("m", "a", than="b"), _study(), records, Budget.QUICK, range(1000, 1010))
    assert (verdict.outcome, verdict.reason, verdict.estimate) == (UNTESTED, what, None)


def test_one_false_part_refutes_a_claim_whatever_is_missing() -> None:
    values: Values = {("T", "a"): [1, 2, 3, 4], ("T", "b"): [11, 12, 13, 14], ("T", "c"): [0, 0, 0, 0]}
    records = _with(_records(values), "c", range(1000, 1004), status="missing", reason="no tea", metrics={})
    verdict = judge(
        higher("m", "a", than=["b", "c"]), _study(arms=("b", "c")), records, Budget.QUICK, range(1000, 1004)
    )
    assert [part.outcome for part in verdict.parts] == [NOT_SUPPORTED, UNTESTED]
    assert verdict.outcome is NOT_SUPPORTED
    assert "no tea" in verdict.reason


def test_of_two_records_of_a_cell_the_later_counts() -> None:
    old = [dataclasses.replace(r, finished="2026-01-01T00:00:00", metrics={"m": 0.0}) for r in _records(TEN)]
    new = [dataclasses.replace(r, finished="2026-01-02T00:00:00") for r in _records(TEN)]
    for records in (old + new, new + old):
        verdict = judge(higher("m", "a", than="b"), _study(), records, Budget.QUICK, range(1000, 1010))
        assert verdict.estimate == pytest.approx(4.9)


# Several tasks, several arms


def _rows(**ats: float) -> Values:
    """Cells "task_arm" around a value: at − 1, at, at + 1."""
    return {
        (name.split("_")[0], name.split("_")[1]): [
            at - (0.1 if name.endswith("a") else 0),
            at,
            at + (0.1 if name.endswith("a") else 0),
        ]
        for name, at in ats.items()
    }


def test_task_by_task_and_pooled() -> None:
    # T1: +5 ± 0.2484 (s = 0.1); T2: −1 ± 0.2484. All six: mean 2, s = sqrt((2 * .02 + 6 * 9) / 5) = 3.2875;
    # half = 2.5706 * 3.2875 / sqrt(6) = 3.4500
    values = _rows(T1_a=6, T1_b=1, T2_a=0, T2_b=1)
    verdict = _judge(higher("m", "a", than="b"), values)
    assert verdict.outcome is NOT_SUPPORTED
    assert [part.outcome for part in verdict.parts] == [SUPPORTED, NOT_SUPPORTED]
    assert verdict.deciding is verdict.parts[1]
    assert _numbers(verdict) == pytest.approx((-1, -1.2484, -0.7516), abs=1e-4)
    pooled = _judge(higher("m", "a", than="b", pool=True), values)
    assert pooled.outcome is INCONCLUSIVE
    assert _numbers(pooled) == pytest.approx((2, -1.4500, 5.4500), abs=1e-4)
    assert pooled.parts[0].task == "T1 + T2"


def test_every_other_arm_must_be_beaten() -> None:
    values = _rows(T_a=5, T_b=1, T_c=4.9, T_d=3)
    verdict = _judge(higher("m", "a", than=["b", "c", "d"]), values)
    assert [(p.other, p.outcome) for p in verdict.parts] == [
        ("b", SUPPORTED), ("c", INCONCLUSIVE), ("d", SUPPORTED),
    ]  # fmt: skip
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.deciding == verdict.parts[1]
    assert verdict.more_seeds == verdict.parts[1].more_seeds
    # Among supported parts the one nearest to the bar is shown.
    verdict = _judge(higher("m", "a", than=["b", "d"]), values)
    assert verdict.outcome is SUPPORTED
    assert verdict.estimate == pytest.approx(2)


def test_a_part_that_could_not_be_judged_decides_among_inconclusive_ones() -> None:
    values = {**_rows(T_a=5, T_b=5.02, T_c=1), ("T", "c"): [1, math.nan, 1]}
    verdict = _judge(higher("m", "a", than=["b", "c"]), values)
    assert verdict.outcome is INCONCLUSIVE
    assert verdict.deciding is verdict.parts[1]
    assert verdict.parts[0].more_seeds is not None
    assert (verdict.more_seeds, verdict.more) == (None, "")


def test_more_seeds_of_a_verdict_is_the_most() -> None:
    # s = 0.1, t(.975, n−1) * 0.1 / sqrt(n) <= distance: 0.08 at n = 9 (.0769; n = 8: .0836); 0.05 at n = 18 (.0497)
    values = _rows(T_a=5, T_b=4.92, T_c=4.95)
    verdict = _judge(higher("m", "a", than=["b", "c"]), values)
    assert [part.more_seeds for part in verdict.parts] == [6, 15]
    assert verdict.more == "about 15 more seeds would probably decide it"
    never = _judge(higher("m", "a", than=["b", "c"]), _rows(T_a=5, T_b=4.92, T_c=5))
    assert [part.more_seeds for part in never.parts] == [6, None]
    assert never.more == "more than 1000 more seeds would be needed"


# What the budget leaves out


def _budgets(
    claim: Claim, tasks: Sequence[Task | str], arms: Sequence[Arm | str], keep: Mapping[str, list[str]] | None = None
) -> Verdict:
    study = _study(tasks, arms).only(**(keep or {}))
    values: Values = {(t.name, x.name): [9 if x.name == "a" else 1] * 3 for t in study.tasks for x in study.arms}
    return _judge(claim, values, study)


FULL_ARM = _arm("pcp", budgets=LARGE)
FULL_TASK = _task("T3-35", budgets=LARGE)


def test_what_a_larger_budget_has() -> None:
    claim = higher("m", "a", than="pcp")
    verdict = _budgets(claim, ["T"], ["b", FULL_ARM])
    assert (verdict.outcome, verdict.reason) == (UNTESTED, "needs --budget full")
    assert (verdict.parts, verdict.pairs, verdict.deciding) == ((), "", None)
    claim = higher("m", "a", than="b", tasks="T3-35")
    assert _budgets(claim, ["T", FULL_TASK], ["b"]).reason == "needs --budget full"
    paper = _task("P", budgets=(Budget.PAPER,))
    assert _budgets(spread("m", "a", over=["T", "P"], at_most=1), ["T", paper], ["b"]).reason == "needs --budget paper"
    smoke = _task("S", budgets=(Budget.SMOKE,))
    assert _budgets(higher("m", "a", than="b", tasks="S"), ["T", smoke], ["b"]).reason == "needs --budget smoke"


def test_what_is_there_is_judged_and_the_rest_named() -> None:
    claim = higher("m", "a", than=["b", "pcp"], tasks=["T", "T3-35"])
    verdict = _budgets(claim, ["T", FULL_TASK], ["b", FULL_ARM])
    assert verdict.outcome is SUPPORTED
    assert verdict.reason == "without pcp and T3-35 (--budget full)"
    assert [(p.task, p.other) for p in verdict.parts] == [("T", "b")]
    # A claim that names no tasks is about those of the run.
    assert _budgets(higher("m", "a", than="b"), ["T", FULL_TASK], ["b"]).reason == ""


def test_what_the_user_left_out() -> None:
    claim = higher("m", "a", than=["b", "c"], tasks=["T", "U"])
    kept = _budgets(claim, "TU", "bc", {"tasks": ["T"], "arms": ["a", "b"]})
    assert kept.outcome is SUPPORTED
    assert kept.reason == "without c (left out by --arm), without U (left out by --task)"
    gone = _budgets(higher("m", "a", than="c"), "TU", "bc", {"arms": ["a", "b"]})
    assert (gone.outcome, gone.reason) == (UNTESTED, "--arm left out c")
    gone = _budgets(higher("m", "a", than="c", tasks="U"), "TU", "bc", {"tasks": ["T"], "arms": ["b"]})
    assert gone.reason == "--arm left out a and c; --task left out U"


def test_an_arm_that_does_not_run_on_a_task_is_no_part() -> None:
    some = _arm("c", tasks=("T",))
    verdict = _budgets(higher("m", "a", than=["b", "c"]), "TU", ["b", some])
    assert [(p.task, p.other) for p in verdict.parts] == [("T", "b"), ("U", "b"), ("T", "c")]
    assert verdict.reason == ""
    verdict = _budgets(higher("m", "a", than="c", tasks="U"), "TU", ["b", some])
    assert (verdict.outcome, verdict.reason) == (UNTESTED, "no task has cells of a and c")
    verdict = _budgets(higher("m", "a", than=["b", "c"], tasks="U"), "TU", ["b", some])
    assert (verdict.outcome, verdict.reason) == (SUPPORTED, "without c (no such cells in this study)")


def test_an_empty_arm_is_the_method() -> None:
    claim = slope("m", on="n", between=(-0.6, -0.4))
    values: Values = {(f"n{n}", "a"): _errors(n, [1, 2, 3]) for n in (10, 100)}
    assert _judge(claim, values).claim.arm == "a"


@pytest.mark.parametrize(
    "make",
    [
        lambda: higher("m", "a", than=[]),
        lambda: within("m", "a", of=[], by=1),
        lambda: not_lower("m", "a", than=[], by=1),
        lambda: higher("m", "a", than="b", tasks=[]),
        lambda: higher("m", "a", than="b", by=math.nan),
        lambda: at_least("m", "a", 0, of="b"),
        lambda: at_most("m", "a", math.inf),
    ],
)
def test_claims_that_could_not_be_false_are_refused(make: Callable[[], Claim]) -> None:
    with pytest.raises(ValueError, match="the claim on 'm'"):
        make()


# What every verdict keeps

_COUNTS = st.integers(-50, 50)
_ROWS = st.one_of(
    st.lists(st.tuples(_COUNTS, _COUNTS), min_size=3, max_size=6),
    st.lists(st.tuples(_COUNTS, _COUNTS), min_size=10, max_size=13),
)


def _pairs(rows: Sequence[tuple[float, float]]) -> Values:
    return {("T", "a"): [a for a, _ in rows], ("T", "b"): [b for _, b in rows]}


@settings(max_examples=40, deadline=None)
@given(_ROWS, st.randoms(use_true_random=False), st.integers(0, 20))
def test_the_order_of_records_does_not_matter(rows: list[tuple[int, int]], rng: random.Random, by: int) -> None:
    records = _records(_pairs(rows))
    seeds = [r.seed for r in records if r.arm == "a"]
    claim = higher("m", "a", than="b", by=by)
    verdict = judge(claim, _study(), records, Budget.QUICK, seeds)
    rng.shuffle(records)
    rng.shuffle(seeds)
    assert judge(claim, _study(), records, Budget.QUICK, seeds) == verdict


def _same(one: Verdict, other: Verdict, sign: int = 1) -> None:
    ends = (other.low, other.high) if sign == 1 else (other.high, other.low)
    assert one.outcome is other.outcome
    for mine, its in zip((one.estimate, one.low, one.high), (other.estimate, *ends), strict=True):
        assert mine is not None
        assert its is not None
        assert mine == pytest.approx(sign * its, abs=1e-9, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(_ROWS, st.integers(0, 20))
def test_swapping_arms_and_direction_changes_nothing(rows: list[tuple[int, int]], by: int) -> None:
    # The ends of BCa come from resamples of the same positions, mirrored.
    up = _judge(higher("m", "a", than="b", by=by), _pairs(rows))
    down = _judge(lower("m", "b", than="a", by=by), _pairs(rows), _study())
    _same(up, down, sign=-1)
    assert up.bar == -down.bar  # type: ignore[operator]


@settings(max_examples=40, deadline=None)
@given(_ROWS, st.integers(-1000, 1000), st.integers(0, 20))
def test_adding_a_constant_to_both_arms_changes_nothing(rows: list[tuple[int, int]], c: int, by: int) -> None:
    claim = higher("m", "a", than="b", by=by)
    _same(_judge(claim, _pairs(rows)), _judge(claim, _pairs([(a + c, b + c) for a, b in rows])))


@settings(max_examples=40, deadline=None)
@given(_ROWS, st.floats(1e-6, 1e6), st.sampled_from([0.5, 0.9, 1.0, 1.5]))
def test_scaling_both_arms_leaves_ratios(rows: list[tuple[int, int]], scale: float, bar: float) -> None:
    positive = [(abs(a) + 1, abs(b) + 1) for a, b in rows]
    claim = lower("m", "a", than="b", ratio=bar)
    _same(_judge(claim, _pairs(positive)), _judge(claim, _pairs([(a * scale, b * scale) for a, b in positive])))


@settings(max_examples=60, deadline=None)
@given(_ROWS, st.integers(0, 20))
def test_a_claim_and_its_opposite_are_never_both_supported(rows: list[tuple[int, int]], by: int) -> None:
    up = _judge(higher("m", "a", than="b", by=by), _pairs(rows))
    # arm − other > by against other − arm >= −by, judged as a value against a bar
    differences: Values = {("T", "a"): [a - b for a, b in rows]}
    opposite = _judge(at_most("m", "a", by), differences)
    assert {up.outcome, opposite.outcome} in ({SUPPORTED, NOT_SUPPORTED}, {INCONCLUSIVE})
    down = _judge(lower("m", "a", than="b"), _pairs(rows))
    assert not (up.outcome is SUPPORTED and down.outcome is SUPPORTED)


# How often chance is believed

STUDIES = 400
NOISE: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "skewed": lambda rng, n: rng.exponential(size=n),
}


def _outcomes(noise: str, seeds: int, effect: float) -> dict[Outcome, int]:
    """Outcomes of "a is higher than b" over simulated studies; both arms have the same noise on shared data."""
    rng = np.random.default_rng(20)
    claim, study = higher("m", "a", than="b"), _study()
    counts = dict.fromkeys(Outcome, 0)
    for _ in range(STUDIES):
        data = 3 * rng.normal(size=seeds)
        rows: Values = {
            ("T", "a"): list(data + effect + NOISE[noise](rng, seeds)),
            ("T", "b"): list(data + NOISE[noise](rng, seeds)),
        }
        counts[_judge(claim, rows, study).outcome] += 1
    return counts


@pytest.mark.parametrize("seeds", [5, 12])
@pytest.mark.parametrize("noise", list(NOISE))
def test_chance_is_seldom_believed(noise: str, seeds: int) -> None:
    counts = _outcomes(noise, seeds, effect=0)
    # As many as 400 draws at 5 % give but once in a hundred times.
    most = stats.binom.ppf(0.99, STUDIES, 0.05)
    assert counts[SUPPORTED] <= most
    assert counts[NOT_SUPPORTED] <= most
    # An interval that is never wrong would be too wide to be one of 95 %.
    assert counts[SUPPORTED] + counts[NOT_SUPPORTED] > 0


@pytest.mark.parametrize(("seeds", "effect"), [(5, 3.0), (12, 1.7)])
@pytest.mark.parametrize("noise", list(NOISE))
def test_a_real_effect_is_found(noise: str, seeds: int, effect: float) -> None:
    # Differences have a standard deviation of sqrt(2); the power of Student's test is 0.93 at 5 seeds and 0.96 at 12.
    counts = _outcomes(noise, seeds, effect)
    assert counts[SUPPORTED] > 0.85 * STUDIES
    assert counts[NOT_SUPPORTED] == 0
