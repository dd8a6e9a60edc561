"""Claims as a report shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from assay.evidence.own import cost_ratio
from assay.evidence.record import Record
from assay.evidence.report.plots import Strips
from assay.evidence.report.terminal import MARKS, bar_text, cpu_text, number
from assay.evidence.verdict import Part, Verdict


@dataclass(frozen=True)
class PartView:
    """A claim on one task against one arm."""

    label: str
    outcome: str
    mark: str
    estimate: str
    interval: str
    pairs: int
    reason: str
    strip: str


@dataclass(frozen=True)
class ClaimView:
    """A claim and its verdict; the numbers are those of the part that decides."""

    says: str
    sentence: str
    outcome: str
    mark: str
    estimate: str
    interval: str
    bar: str
    pairs: str
    cost: str
    decided_by: str
    notes: tuple[str, ...]
    strip: str
    axis: str
    parts: tuple[PartView, ...]
    order: Mapping[str, float | str]
    """What the table is sorted by."""


def claim_view(verdict: Verdict, strips: Strips | None, ok: Sequence[Record]) -> ClaimView:
    """A claim with its numbers, and its drawings where it has any."""
    claim, deciding = verdict.claim, verdict.deciding
    rows = strips.rows if strips else ("",) * len(verdict.parts)
    notes = [one for one in (verdict.reason, verdict.more) if one]
    if claim.needs:
        notes.append(f"a fair test needs {claim.needs}")
    cost, seconds = _claim_cost(verdict, ok)
    return ClaimView(
        says=claim.name,
        sentence=claim.sentence if claim.says else "",
        outcome=str(verdict.outcome),
        mark=MARKS[verdict.outcome][0],
        estimate=_number(verdict.estimate, verdict),
        interval=_interval(verdict, verdict),
        bar=minus(bar_text(verdict)),
        pairs=verdict.pairs,
        cost=cost,
        decided_by=_label(deciding) if deciding is not None and len(verdict.parts) > 1 else "",
        notes=tuple(notes),
        strip=rows[verdict.parts.index(deciding)] if deciding is not None and deciding.estimate is not None else "",
        axis=strips.axis if strips else "",
        parts=tuple(_part_view(part, verdict, row) for part, row in zip(verdict.parts, rows, strict=True)),
        order={
            "claim": claim.name,
            "verdict": list(MARKS).index(verdict.outcome),
            "pairs": verdict.n_tasks * verdict.n_seeds,
            "cost": seconds,
        },
    )


def _part_view(part: Part, verdict: Verdict, strip: str) -> PartView:
    return PartView(
        label=_label(part),
        outcome=str(part.outcome),
        mark=MARKS[part.outcome][0],
        estimate=_number(part.estimate, verdict),
        interval=_interval(part, verdict),
        pairs=part.pairs,
        reason=part.reason or (f"about {part.more_seeds} more seeds" if part.more_seeds else ""),
        strip=strip if part.estimate is not None else "",
    )


def _label(part: Part) -> str:
    return f"{part.task} against {part.other}" if part.other else part.task


def _interval(of: Part | Verdict, verdict: Verdict) -> str:
    return f"{_number(of.low, verdict)} to {_number(of.high, verdict)}" if of.low is not None else ""


def _number(value: float | None, verdict: Verdict) -> str:
    """A number of a verdict; what rounding left of zero, measured by the bar, is zero."""
    bars = verdict.bar if isinstance(verdict.bar, tuple) else (verdict.bar,)
    if value is not None and abs(value) < 1e-12 * max(map(abs, bars)):
        value = 0.0
    return minus(number(value))


def minus(text: str) -> str:
    """The text with minus signs in place of hyphens before numbers."""
    return re.sub(r"(?<![\w])-(?=[\d.])", "−", text)


def _claim_cost(verdict: Verdict, ok: Sequence[Record]) -> tuple[str, float]:
    """CPU seconds a cell of the claim's arm, and how many times those of the arm that it is compared with."""
    arm = verdict.claim.arm
    parts = verdict.parts
    tasks = {task for part in parts for task in part.task.split(" + ")}
    mine = [r for r in ok if r.arm == arm and (not tasks or r.task in tasks)]
    if not mine or not parts:
        return "", math.nan
    deciding = verdict.deciding
    ratio = cost_ratio([r for r in ok if r.task in tasks], arm, deciding.other) if deciding and deciding.other else None
    said = f"{cpu_text(mine)} s"
    if ratio is not None and deciding is not None:
        said += f", {number(ratio, 2)} × {deciding.other}"
    return said, fmean(r.cpu_seconds for r in mine)
