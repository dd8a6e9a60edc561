"""What a report shows, as plain data: the stored checks with their records, in words, numbers and drawings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from assay.evidence.placebo import placebo_line
from assay.evidence.record import Record
from assay.evidence.report import plots
from assay.evidence.report.arms import (
    SIGNS,
    ArmView,
    PanelView,
    arm_panels,
    arms_table,
    cost_panels,
    kind,
    metric_of,
)
from assay.evidence.report.claims import ClaimView, claim_view, minus
from assay.evidence.report.svg import Symbols
from assay.evidence.report.terminal import MARKS, failures, number
from assay.evidence.stored_check import StoredCheck


class About(Protocol):
    """What a card says of a method."""

    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def field(self) -> str: ...  # noqa: D102
    @property
    def summary(self) -> str: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class CheckView:
    """One check of a study."""

    id: str
    study: str
    budget: str
    seeds: int
    context: str
    part: bool
    finished: str
    placebo: str
    status: str
    notes: tuple[str, ...]
    decisions: tuple[str, ...]
    claims: tuple[ClaimView, ...]
    panels: tuple[PanelView, ...]
    columns: tuple[str, ...]
    arms: tuple[ArmView, ...]
    roles: tuple[tuple[str, str], ...]
    metric: str
    cost_panels: tuple[str, ...]
    cost_note: str
    failures: tuple[tuple[str, str, str, str, str], ...]
    command: str
    versions: tuple[tuple[str, str], ...]
    machines: tuple[str, ...]


@dataclass(frozen=True)
class StudyView:
    """A study with its checks, that of the largest budget first and placebos last."""

    name: str
    title: str
    field: str
    summary: str
    source: str
    checks: tuple[CheckView, ...]
    counts: Mapping[str, int]


def study_view(
    name: str, about: About | None, checks: Sequence[tuple[StoredCheck, Sequence[Record]]], symbols: Symbols
) -> StudyView:
    """A study's section from its checks, each with the records of its cells."""
    views = tuple(
        _check_view(check, records, f"{_slug(name)}-{i}", symbols) for i, (check, records) in enumerate(checks)
    )
    claims = [claim for view in views if not view.placebo for claim in view.claims]
    return StudyView(
        name=name,
        title=about.title if about else name,
        field=about.field if about else "",
        summary=about.summary if about else "",
        source=about.source if about else "",
        checks=views,
        counts=count_outcomes(claims),
    )


def count_outcomes(claims: Iterable[ClaimView]) -> dict[str, int]:
    """How many claims have each outcome."""
    found = [claim.outcome for claim in claims]
    return {str(outcome): found.count(str(outcome)) for outcome in MARKS}


def _check_view(check: StoredCheck, records: Sequence[Record], id: str, symbols: Symbols) -> CheckView:
    strips = plots.forest(check.verdicts, symbols)
    ok = [r for r in records if r.status == "ok"]
    kinds = {kind(arm) for arm in check.arms}
    metrics = {task.name: metric_of(check, ok, task.name) for task in check.tasks}
    columns, arms = arms_table(check, ok, metrics)
    cost_drawings, cost_note = ((), "") if check.placebo else cost_panels(check, ok, id, symbols)
    what = check.metrics.get(check.primary, "")
    return CheckView(
        id=id,
        study=check.study,
        budget=check.budget,
        seeds=len(check.seeds),
        context=check.context.removesuffix("placebo").removesuffix(", ") if check.placebo else check.context,
        part=bool(check.left_out),
        finished=check.finished.replace("T", " ").replace("+00:00", " UTC"),
        placebo=placebo_line(check.verdicts) if check.placebo else "",
        status=_status(check, records),
        notes=_check_notes(check),
        decisions=tuple(map(minus, check.decisions)),
        claims=tuple(claim_view(v, s, ok) for v, s in zip(check.verdicts, strips, strict=True)),
        panels=() if check.placebo else arm_panels(check, ok, metrics, id, symbols),
        columns=columns,
        arms=arms,
        roles=tuple((sign, one) for one, sign in SIGNS.items() if one in kinds),
        metric=f"{check.primary}{f': {what}' if what else ''} ({check.better} is better)",
        cost_panels=cost_drawings,
        cost_note=cost_note,
        failures=tuple(
            (status, arm, task, ", ".join(map(str, sorted(seeds))), reason)
            for (status, task, arm, reason), seeds in failures(records).items()
        ),
        command=check.command,
        versions=_versions(records),
        machines=tuple(dict.fromkeys(r.machine for r in records if r.machine)),
    )


def _status(check: StoredCheck, records: Sequence[Record]) -> str:
    ok = sum(r.status == "ok" for r in records)
    said = [f"{len(check.keys)} cells"]
    said += [f"{len(records) - ok} without a result"] if ok < len(records) else []
    gone = len(check.keys) - len(records)
    said += [f"{gone} no longer stored"] if gone else []
    said.append(f"{number(sum(r.cpu_seconds for r in records if math.isfinite(r.cpu_seconds)))} CPU seconds")
    return ", ".join(said)


def _check_notes(check: StoredCheck) -> tuple[str, ...]:
    notes = []
    if check.earlier_looks:
        looks = " and ".join(map(str, check.earlier_looks))
        notes.append(
            f"These verdicts were looked at with {looks} seeds and then extended to {len(check.seeds)}: looking and "
            "going on makes chance findings likelier than 5 %."
        )
    if check.left_out:
        notes.append(f"Left out by choice: {', '.join(check.left_out)}.")
    return tuple(notes)


def _versions(records: Sequence[Record]) -> tuple[tuple[str, str], ...]:
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for name, version in record.versions.items():
            found.setdefault(name, {})[version] = None
    return tuple((name, ", ".join(versions)) for name, versions in found.items())


def _slug(name: str) -> str:
    """A name as part of an id; names that differ stay different."""
    return re.sub(r"[^a-z0-9-]", lambda found: f"_{ord(found[0]):x}_", name)
