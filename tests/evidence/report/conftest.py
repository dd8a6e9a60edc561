"""Checks to report on, made without running anything; and a browser, where one is installed."""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from assay.evidence.check import Checked
from assay.evidence.claim import at_least, higher, holds, rate, slope, spread, within
from assay.evidence.record import Proportion, Record
from assay.evidence.report.page import Stored
from assay.evidence.run import plan, verdicts
from assay.evidence.storage import Storage
from assay.evidence.stored_check import StoredCheck
from assay.evidence.study import Arm, Study, Task

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HAS_BROWSER = CHROMIUM is not None and importlib.util.find_spec("playwright") is not None
if not HAS_BROWSER:
    collect_ignore = ["test_browser.py"]


def pytest_report_collectionfinish() -> str:
    without = "" if HAS_BROWSER else ", not tried (no Chromium or no playwright here)"
    return f"report tests cover: the page{', in a browser' if HAS_BROWSER else without}"


HOSTILE = "<img src=x onerror=alert(1)>"
Case = tuple[StoredCheck, Sequence[Record]]


def nothing(*_: Any) -> Any:
    raise AssertionError("a report runs nothing")


def make_study(name: str = "made-up", tasks: int = 5, arm: str = "pca") -> Study:
    """A study with every form of claim and every role."""
    names = [f"T{i}" for i in range(tasks)]
    roles = {"ours": "method", arm: "baseline", "random": "trivial", "ours-flat": "ablation", "oracle": "ceiling"}
    return Study(
        name=name,
        tasks=tuple(Task(n, nothing, nothing, f"the task {n}", control=n == "T0") for n in names),
        arms=tuple(Arm(n, nothing, role, f"the {role}") for n, role in roles.items()),  # type: ignore[arg-type]
        claims=(
            higher("hits", "ours", than=[arm, "random"], by=5, tasks=names[1:]),
            higher("hits", "ours", than="oracle", says="ours beats what cannot be beaten"),
            at_least("hits", "ours", 0.8, of="oracle", tasks=names[1:3]),
            within("hits", "ours", of=arm, by=1, tasks="T0", needs="more rows"),
            rate("alarm", "ours", at_most=0.2),
            spread("hits", "ours", over=names[1:4], at_most=30),
            slope("hits", "ours", on="n", between=(0.0, 0.5), tasks=names[1:]),
            holds("whole", "ours"),
            at_least("never", "ours", 1),
        ),
        primary="hits",
        better="higher",
        metrics={"hits": "share of hits, in %"},
    )


def make_records(study: Study, keys: Sequence[Any], seed: int = 0, failing: str = "") -> list[Record]:
    rng = np.random.default_rng(seed)
    level = {arm.name: 90 - 8 * i for i, arm in enumerate(study.arms)} | {"oracle": 95}
    records = []
    for cell in keys:
        bad = cell.arm == failing and cell.seed % 3 == 0
        metrics = {
            "hits": level[cell.arm] + float(rng.normal(0, 3)), "n": 100.0 * 2 ** int(cell.task[1:]),
            "alarm": Proportion(int(rng.integers(0, 3)), 40), "whole": True, "parameters": 1000 * len(cell.arm),
        }  # fmt: skip
        records.append(
            Record(
                key=cell.key, study=study.name, task=cell.task, arm=cell.arm, role=study.arm(cell.arm).role,
                seed=cell.seed, budget=cell.budget, status="failed" if bad else "ok",
                reason=f"ValueError: {HOSTILE} & no 'rows'" if bad else "", metrics={} if bad else metrics,
                cpu_seconds=float(rng.gamma(2, 0.1 * len(cell.arm))), wall_seconds=1.0,
                peak_mib=float(rng.gamma(5, 10)), versions={"python": "3.11", "numpy": "2.4"},
                machine="a machine, 2 cores", finished="2026-01-01T00:00:00+00:00",
            )
        )  # fmt: skip
    return records


def make_check(
    study: Study, budget: str = "quick", seeds: int = 5, failing: str = "", placebo: bool = False, **plan_fields: Any
) -> Case:
    """A check of a study and its records."""
    made = plan(study, budget, seeds=seeds, **{"context": "placebo" if placebo else ""} | plan_fields)
    command = f"assay check {study.name} --budget {budget} --seeds {seeds}"
    made = dataclasses.replace(made, command=command, placebo=placebo)
    records = make_records(study, made.cells, failing=failing)
    checked = Checked(
        plan=made, records=records, verdicts=verdicts(made, records),
        earlier_looks=[3] if failing else [], decisions=[f"Switch: ours beats {failing}."] if failing else [],
    )  # fmt: skip
    return dataclasses.replace(checked.to_store(), finished="2026-01-01T00:00:00+00:00"), records


@pytest.fixture
def store() -> Callable[..., None]:
    """Put checks with their records into a storage."""

    def put(storage: Storage, *cases: Case) -> None:
        for check, records in cases:
            for record in records:
                assert storage.lease(record.key)
                assert storage.finish(record)
            storage.keep_check(check)

    return put


def make_stored(studies: int) -> Stored:
    """Studies of 5 tasks × 5 arms × 9 seeds, one of them with a user's failing arm, the user's data and a placebo."""
    check, records = make_check(make_study(), seeds=9)  # fewer than 10: no bootstrap, which takes long
    names = [f"study-{i:02}" for i in range(studies - 1)]
    checks: dict[str, list[Case]] = {name: [(dataclasses.replace(check, study=name), records)] for name in names}
    hostile = make_study("hostile & co", arm=HOSTILE)
    checks[hostile.name] = [
        make_check(hostile, seeds=6, failing=HOSTILE),
        make_check(hostile, "smoke", seeds=5, context="data <my file>.csv"),
        make_check(hostile, "smoke", seeds=5, placebo=True),
    ]
    return Stored(checks, {"study-00": 312}, 1)


@pytest.fixture(scope="session")
def making() -> SimpleNamespace:
    return SimpleNamespace(
        study=make_study, check=make_check, stored=make_stored, hostile=HOSTILE, chromium=Path(CHROMIUM or "")
    )
