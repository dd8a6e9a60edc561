from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from assay.errors import InputError
from assay.evidence.compare import Difference, compare, select
from assay.evidence.intervals import mean_interval
from assay.evidence.record import Proportion, Record
from assay.evidence.report.comparison import comparison
from assay.evidence.storage import Storage


def make(seed: int, **fields: Any) -> Record:
    base: dict[str, Any] = {"study": "s", "task": "t", "arm": "a", "role": "method", "budget": "smoke"}
    record = Record(**({"key": f"{fields}{seed}", "seed": seed, "cpu_seconds": 1.0} | base | fields))
    return record


def side(values: Any, metric: str = "m", **fields: Any) -> list[Record]:
    return [make(seed, metrics={metric: value}, **fields) for seed, value in enumerate(values)]


def only(a: list[Record], b: list[Record]) -> Any:
    (line,) = compare(a, b).metrics
    return line


def test_the_difference_is_paired_by_seed_with_the_interval_of_a_claim():
    rng = np.random.default_rng(0)
    a = rng.normal(10, 5, size=8)
    b = a + 1 + rng.normal(0, 0.1, size=8)
    line = only(side(a), list(reversed(side(b))))
    assert (line.pairs, line.outcome) == (8, Difference.DIFFERS)
    assert line.estimate == pytest.approx(np.mean(b - a))
    assert (line.low, line.high) == pytest.approx(mean_interval(b - a))
    assert (line.a, line.b) == pytest.approx((a.mean(), b.mean()))
    assert only(side(a), side(a + rng.normal(0, 5, size=8))).outcome is Difference.NOT_SHOWN


@pytest.mark.parametrize(
    ("a", "b", "outcome"),
    [
        ([1.0, 2.0], [1.0, 2.0], Difference.IDENTICAL),
        ([math.nan, math.inf, 1.0], [math.nan, math.inf, 1.0], Difference.IDENTICAL),
        ([True, False], [True, False], Difference.IDENTICAL),
        ([Proportion(1, 2)] * 3, [Proportion(1, 2)] * 3, Difference.IDENTICAL),
        ([Proportion(1, 2)] * 3, [Proportion(2, 4)] * 3, Difference.ROUNDING),
        ([0.1, 1e9, 3.0], [np.nextafter(0.1, 1), 1e9, 3.0], Difference.ROUNDING),
        ([1.0, 2.0, 3.0], [1.0, 2.0, math.nan], Difference.DIFFERS),
        ([1.0, 2.0, 3.0], [1.0, 2.0, -math.inf], Difference.DIFFERS),
        ([1.0, 2.0, 3.0], [1.5, 2.5, 3.5], Difference.DIFFERS),
        ([1.0, 2.0], [1.5, 2.5], Difference.FEW),
        ([1.0], [9.0], Difference.FEW),
        ([1.0, 2.0, 3.0], [2.0, 1.0, 3.0], Difference.NOT_SHOWN),
        ([math.nan, 1.0, 2.0, 3.0], [math.nan, 1.1, 1.9, 3.0], Difference.NOT_SHOWN),
        ([1e-300, 2e-300, 3e-300], [1e-300, 2e-300, 4e-300], Difference.NOT_SHOWN),
        ([False] * 5, [True] * 5, Difference.DIFFERS),
    ],
)
def test_outcomes(a, b, outcome):
    line = only(side(a), side(b))
    assert line.outcome is outcome
    assert only(side(b), side(a)).outcome is outcome
    if not math.isnan(line.estimate):
        assert line.estimate == pytest.approx(-only(side(b), side(a)).estimate)


def test_a_proportion_is_compared_by_its_share():
    line = only(side([Proportion(1, 10)] * 3), side([Proportion(6, 20)] * 3))
    assert (line.a, line.b, line.estimate) == pytest.approx((0.1, 0.3, 0.2))


def test_of_many_comparisons_few_differ_by_chance_after_the_correction():
    """Of 400 metrics without a difference about 20 intervals exclude 0; Holm leaves none, and one true one stays."""
    rng = np.random.default_rng(1)
    names = [f"m{i}" for i in range(400)]
    a, b = ([make(s, metrics=dict(zip(names, rng.normal(size=400), strict=True))) for s in range(8)] for _ in "ab")
    for x, y in zip(a, b, strict=True):
        x.metrics["true"], y.metrics["true"] = 0.0, 5.0 + rng.normal(0, 0.1)
        x.metrics["same"] = y.metrics["same"] = 1.0
    found = compare(a, b)
    assert found.judged == 401
    assert [m.metric for m in found.metrics if m.outcome is Difference.DIFFERS] == ["true"]
    assert 8 <= sum(m.outcome is Difference.PERHAPS for m in found.metrics) <= 34
    assert all((m.low > 0 or m.high < 0) == (m.outcome in (Difference.DIFFERS, Difference.PERHAPS))
               for m in found.metrics if m.metric != "same")  # fmt: skip


def test_the_ratio_of_cpu_seconds_has_an_interval_and_counts_shared_work():
    rng = np.random.default_rng(2)
    seconds = rng.uniform(1, 2, size=6)
    a = [make(i, cpu_seconds=s - 0.5, shared={"x": 0.5}) for i, s in enumerate(seconds)]
    b = [make(i, cpu_seconds=2 * s * math.exp(0.01 * (-1) ** i)) for i, s in enumerate(seconds)]
    (cost,) = compare(a, b).costs
    assert cost.ratio == pytest.approx(2)
    assert 1.9 < cost.low < 2 < cost.high < 2.1
    (none,) = compare([make(1, cpu_seconds=0.0)], [make(1, cpu_seconds=0.0)]).costs
    assert (none.ratio, math.isnan(none.low)) == (1, True)
    (unknown,) = compare([make(1, cpu_seconds=math.nan)], [make(1)]).costs
    assert (unknown.pairs, math.isnan(unknown.ratio)) == (0, True)


def test_what_is_on_one_side_only_is_listed():
    a = [*side([1.0] * 4), make(9, arm="old"), make(4, status="failed"), make(5, metrics={"m": 1}), make(6)]
    b = [*side([1.0] * 2), make(4, status="failed"), make(5, status="failed"), make(6, metrics={"new": 1})]
    found = compare(a, b)
    assert {(c.place.arm, c.why, c.seeds, c.lost) for c in found.cells} == {
        ("old", "only in A", (9,), False),
        ("a", "only in A", (2, 3), False),
        ("a", "failed in A, failed in B", (4,), False),
        ("a", "ok in A, failed in B", (5,), True),
        ("a", "metric new only in B", (6,), False),
    }
    assert found.differs  # a result was lost
    assert not compare(side([1.0] * 3), side([1.0] * 5)).differs
    assert compare([], []).metrics == ()


def test_cells_are_paired_by_what_was_brought_but_not_by_whose_arms_ran_beside_them():
    a = [*side([1.0] * 3, context="data x.csv"), *side([2.0] * 3, arm="c")]
    b = [
        *side([1.0] * 3, context="data y.csv"),
        *side([2.0] * 3, arm="c", context="mine = m:f, his = package.m:g"),
        *side([1.0] * 3, context="data x.csv, mine = m:f"),
    ]
    found = compare(a, b)
    assert {(m.place.arm, m.place.brought, m.outcome) for m in found.metrics} == {
        ("a", "data x.csv", Difference.IDENTICAL), ("c", "", Difference.IDENTICAL),
    }  # fmt: skip
    assert [(c.place.brought, c.why) for c in found.cells] == [("data y.csv", "only in B")]


def test_of_a_cell_that_was_run_again_the_latest_counts():
    a = [*side([1.0] * 3, finished="2026-01-02"), *side([7.0] * 3, finished="2026-01-01")]
    found = compare(a, side([1.0] * 3))
    assert found.superseded == (3, 0)
    assert found.metrics[0].outcome is Difference.IDENTICAL


def test_a_side_is_chosen_by_the_records_fields():
    records = [
        make(1, versions={"numpy": "2.3"}, machine="AMD EPYC, 2 cores", finished="2026-01-01T10:00:00+00:00"),
        make(2, versions={"numpy": "2.4"}, machine="Apple M3", finished="2026-01-02T00:00:00+00:00", budget="full"),
    ]

    def seeds(*wanted):
        return [record.seed for record in select(records, wanted)]

    assert seeds() == [1, 2]
    assert seeds("numpy=2.3") == [1]
    assert seeds("machine=M3") == [2]
    assert seeds("budget=full", "numpy=2.3") == []
    assert seeds("since=2026-01-02") == [2]
    assert seeds("until=2026-01-02") == [1]
    for wrong, words in [
        ("numpy", "by FIELD=VALUE such as numpy=2.4.6, got 'numpy'"),
        ("colour=red", "cannot be chosen by 'colour'; choose by machine, budget, since, until, numpy"),
        ("since=noon", "since must be a day or time such as 2026-11-30, got 'noon'"),
    ]:
        with pytest.raises(InputError, match=words):
            select(records, [wrong])


def test_the_table_for_people(capsys):
    a = [*side([1.0, 2.0, 3.0], metric="[bold]m", task="[t]"), *side([1.0] * 3, arm="same"), make(9)]
    b = [*side([2.0, 3.0, 4.0], metric="[bold]m", task="[t]"), *side([1.0] * 3, arm="same")]
    Console(width=120, highlight=False, markup=False).print(comparison(compare(a, b), "a.db", "b.db"))
    out = capsys.readouterr().out
    assert any(
        line.split() == ["≠", "[t]", "a", "[bold]m", "2", "3", "1", "1", "to", "1", "3"] for line in out.splitlines()
    )
    assert "= identical to the last bit in every pair, 1 of 2 comparisons: same on t: m" in out
    assert "a on t, seed 9: only in A" in out
    assert "≠ 1 differs; = 1 identical" in out
    assert "Holm's correction at 5 % for 1 comparison." in out


# The command


@pytest.fixture
def files(tmp_path):
    for name, records in {
        "a.db": side([1.0, 2.0, 3.0], versions={"numpy": "1"}),
        "b.db": [*side([2.0, 3.0, 4.0], versions={"numpy": "2"}), make(7, metrics={"m": math.nan})],
    }.items():
        with Storage(f"sqlite:///{tmp_path / name}") as storage:
            for record in records:
                assert storage.lease(record.key)
                assert storage.finish(record)
    return tmp_path


def test_compare_two_storages(assay, files: Path):
    data = json.loads(assay("compare", "a.db", "sqlite:///b.db", "--json").stdout)
    (line,) = data["metrics"]
    assert (line["study"], line["arm"], line["metric"], line["outcome"]) == ("s", "a", "m", "differs")
    assert (line["estimate"], line["low"], line["high"], line["pairs"]) == (1, 1, 1, 3)
    assert data["unpaired"][0]["why"] == "only in B"
    assert (data["judged"], data["differing"]) == (1, 1)
    assert "≠ 1 differs" in assay("compare", "a.db", "b.db", "--strict", code=1).stdout


def test_compare_two_parts_of_one_storage(assay, files: Path):
    done = assay("compare", "b.db", "--a", "numpy=2", "--b", "budget=smoke", "--study", "s", "--strict")
    assert "identical to the last bit in every pair: all of 1 comparison\n" in done.stdout
    assert "(numpy=2), 3 records" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a.db"], "compare A with what?"),
        (["a.db", "gone.db"], "storage gone.db: there is no such file"),
        (["a.db", "--a", "scipy=1"], "cannot be chosen by 'scipy'; choose by machine, budget, since, until, numpy"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_compare_refuses_in_one_line(refused, files, arguments, words):
    assert words in refused("compare", *arguments)
