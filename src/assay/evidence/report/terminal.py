"""Verdicts, arms and failures as tables for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from assay.evidence.asking import Asking
from assay.evidence.record import Proportion, Record
from assay.evidence.study import Budget, Study
from assay.evidence.verdict import Outcome, Part, Verdict

MARKS = {
    Outcome.SUPPORTED: ("✓", "green"),
    Outcome.NOT_SUPPORTED: ("✗", "red"),
    Outcome.INCONCLUSIVE: ("?", "yellow"),
    Outcome.UNTESTED: ("–", "dim"),
}
COSTS = ("parameters", "steps")
ROUNDING = 1e-12  # what is smaller is what arithmetic left of a zero
WIDE = 110  # columns from which on the numbers of a verdict stand beside the claim
NAMED = 3  # tasks and seeds of one failure that are named


def number(value: float | None, digits: int = 3) -> str:
    """A number for people: three significant digits, no exponent where it can be helped.

    >>> number(96.2714), number(0.00123), number(12345.6), number(131.8, 2), number(None)
    ('96.3', '0.00123', '12,346', '132', '')
    """
    if value is None:
        return ""
    if abs(value) < ROUNDING:
        return "0"
    if 10**digits - 0.5 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def verdict_table(verdicts: Sequence[Verdict], width: int = 120) -> RenderableType:
    """One row a claim: verdict, estimate with interval, bar, pairs; then what the inconclusive ones lack.

    Below ``WIDE`` columns the numbers stand under the claim instead of beside it.
    """
    judged = sum(v.outcome is not Outcome.UNTESTED for v in verdicts)
    wide = width >= WIDE
    table = _table(f"{judged} of {len(verdicts)} claims judged")
    table.add_column("verdict", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for name in ("estimate", "95 % interval", "bar", "pairs") if wide else ():
        table.add_column(name, justify="right" if name in ("estimate", "bar") else "left", no_wrap=True)
    for verdict in verdicts:
        mark, style = MARKS[verdict.outcome]
        interval = f"{number(verdict.low)} to {number(verdict.high)}" if verdict.low is not None else ""
        numbers = [number(verdict.estimate), interval, bar_text(verdict), verdict.pairs]
        beside, under = (numbers, "") if wide else ([], _numbers_text(numbers))
        table.add_row(Text(f"{mark} {verdict.outcome}", style=style), _claim(verdict, under), *beside)
    return Group(table, *(note for verdict in verdicts for note in _notes(verdict)))


def _numbers_text(numbers: Sequence[str]) -> str:
    estimate, interval, bar, pairs = numbers
    between = f" ({interval})" if interval else ""
    return f"{estimate}{between}; bar {bar}; {pairs}" if estimate else ""


def bar_text(verdict: Verdict) -> str:
    """The bar with its sense: ``> 10``, ``≥ 94``, ``≤ 3``, ``± 0.5``."""
    claim, bar = verdict.claim, verdict.bar
    if claim.form == "holds":
        return "always"
    if isinstance(bar, tuple):
        return f"± {number(bar[1])}" if claim.form == "within" else f"{number(bar[0])} to {number(bar[1])}"
    senses = {"lower": "<", "higher": ">", "not_lower": "≥", "at_least": "≥"}
    sense = senses.get(claim.form, "≤" if claim.upper else "≥")
    return f"{sense} {number(bar)}" + (" ×" if claim.ratio else "")


def arms_tables(study: Study, budget: Budget, records: Sequence[Record]) -> RenderableType:
    """Every arm's primary metric on every task (mean over seeds), and what it cost."""
    ok = [r for r in records if r.status == "ok"]
    tasks = list(dict.fromkeys(task.name for task, _ in study.pairs(budget)))
    arms = list(dict.fromkeys(arm.name for _, arm in study.pairs(budget)))
    with_primary = [t for t in tasks if any(r.task == t and study.primary in r.metrics for r in ok)]
    what = study.metrics.get(study.primary, "")
    title = f"{study.primary}{f': {what}' if what else ''} ({study.better} is better; mean over seeds)"
    table = _table(title)
    table.add_column("arm", no_wrap=True)
    table.add_column("role", style="dim")
    for task in with_primary:
        table.add_column(task, justify="right")
    costs = [c for c in COSTS if any(c in r.metrics for r in ok)]
    for name in (*costs, "CPU s", "peak MiB"):
        table.add_column(name, justify="right")
    for arm in arms:
        mine = [r for r in ok if r.arm == arm]
        cells = [number(_mean(r.metrics.get(study.primary) for r in mine if r.task == t)) or "–" for t in with_primary]
        table.add_row(
            arm,
            study.arm(arm).role,
            *cells,
            *(number(_mean(r.metrics.get(c) for r in mine)) for c in costs),
            cpu_text(mine),
            number(_mean(r.peak_mib for r in mine)),
            style="bold" if arm == study.method.name else "",
        )
    return Group(table, *_reported(study, ok))


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)


def cpu_text(records: Sequence[Record]) -> str:
    """Mean CPU seconds of an arm's cells, with the shared work that it used added as ``+ seconds``."""
    if not records:
        return ""
    shared: dict[str, float] = {}
    for record in records:
        shared.update(record.shared)
    extra = f" + {number(sum(shared.values()), 2)} shared" if shared else ""
    return number(_mean(r.cpu_seconds for r in records), 2) + extra


def failures(records: Iterable[Record]) -> dict[tuple[str, str, str, str], list[int]]:
    """The seeds of the cells that failed or lack something, by status, task, arm and reason."""
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for record in records:
        if record.status != "ok":
            groups.setdefault((record.status, record.task, record.arm, record.reason), []).append(record.seed)
    return groups


def failure_lines(records: Iterable[Record]) -> list[Text]:
    """One line for each reason for which an arm's cells failed or lack something."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record.status != "ok":
            groups.setdefault((record.status, record.arm, record.reason), []).append(record)
    lines = []
    for (status, arm, reason), cells in groups.items():
        tasks, seeds = (_few(dict.fromkeys(getattr(c, name) for c in cells)) for name in ("task", "seed"))
        count = f"{len(cells)} cell{'s' if len(cells) != 1 else ''}"
        lines.append(Text(f"{status}: {arm}, {count} (on {tasks}; seeds {seeds}): {reason}", style="yellow"))
    return lines


def _few(names: Iterable[object]) -> str:
    named = [str(name) for name in names]
    return ", ".join(named[:NAMED]) + (" …" if len(named) > NAMED else "")


def plain(verdicts: Sequence[Verdict], records: Sequence[Record]) -> dict[str, Any]:
    """Verdicts and cells as plain data, for programs."""
    return {
        "claims": [
            {
                "claim": v.claim.name,
                "sentence": v.claim.sentence,
                "verdict": str(v.outcome),
                "estimate": v.estimate,
                "interval": [v.low, v.high] if v.low is not None else None,
                "bar": v.bar,
                "pairs": v.pairs,
                "reason": v.reason,
                "more_seeds": v.more_seeds,
                "needs": v.claim.needs,
                "parts": [_plain_part(p) for p in v.parts],
            }
            for v in verdicts
        ],
        "cells": [
            {
                "task": r.task,
                "arm": r.arm,
                "seed": r.seed,
                "status": r.status,
                "reason": r.reason,
                "metrics": {k: _plain_metric(m) for k, m in r.metrics.items()},
                "cpu_seconds": r.cpu_seconds,
                "wall_seconds": r.wall_seconds,
                "peak_mib": r.peak_mib,
                "shared": dict(r.shared),
            }
            for r in records
        ],
    }


def _plain_part(part: Part) -> dict[str, Any]:
    return {
        "task": part.task,
        "other": part.other,
        "verdict": str(part.outcome),
        "estimate": part.estimate,
        "interval": [part.low, part.high] if part.low is not None else None,
        "pairs": part.pairs,
        "reason": part.reason,
    }


def _plain_metric(value: Any) -> Any:
    return {"events": value.events, "trials": value.trials} if isinstance(value, Proportion) else value


def _claim(verdict: Verdict, numbers: str) -> Text:
    text = Text(verdict.claim.name)
    if numbers:
        text.append(f"\n{numbers}", style="bold")
    aside = [dataclasses.replace(verdict.claim, tasks=None).sentence] if verdict.claim.says else []
    part = verdict.deciding
    if part is not None and len(verdict.parts) > 1:
        against = f" against {part.other}" if part.other and len(verdict.claim.others) > 1 else ""
        aside.append(f"shown is {part.task}{against}, which decides of {len(verdict.parts)}")
    if aside:
        text.append("\n" + "; ".join(aside), style="dim")
    return text


def _notes(verdict: Verdict) -> list[Text]:
    notes = []
    mark, style = MARKS[verdict.outcome]
    said = "; ".join(s for s in (verdict.reason, verdict.more) if s)
    if said:
        notes.append(Text(f"{mark} {verdict.claim.name}: {said}", style=style))
    if verdict.claim.needs and verdict.outcome is not Outcome.SUPPORTED:
        notes.append(Text(f"{mark} {verdict.claim.name}: a fair test needs {verdict.claim.needs}", style="dim"))
    return notes


def _reported(study: Study, ok: Sequence[Record]) -> list[Text]:
    """Metrics that no claim judges, said to be so."""
    judged = {study.primary, *COSTS} | {c.metric for c in study.claims} | {c.on for c in study.claims}
    others: dict[str, dict[str, list[Any]]] = {}
    for record in ok:
        for name, value in record.metrics.items():
            if name not in judged:
                others.setdefault(name, {}).setdefault(record.arm, []).append(value)
    return [
        Text(f"reported, not judged: {name}: " + ", ".join(f"{a} {number(_mean(v))}" for a, v in arms.items()), "dim")
        for name, arms in others.items()
    ]


def _mean(values: Iterable[Any]) -> float | None:
    found = [v.events / v.trials if isinstance(v, Proportion) else float(v) for v in values if v is not None]
    return fmean(found) if found else None


def study_text(study: Study) -> RenderableType:
    """What a study has: tasks, arms, claims, what it accepts, and how an arm of one's own is called."""
    tasks = _list("Tasks")
    for task in study.tasks:
        tasks.add_row(task.name, task.what + (" (control)" if task.control else ""), _budgets(task.budgets))
    arms = _list("Arms")
    for arm in study.arms:
        arms.add_row(arm.name, arm.role, arm.what, _budgets(arm.budgets))
    claims = _list("Claims")
    for claim in study.claims:
        claims.add_row("·", claim.name + (f" (a fair test needs {claim.needs})" if claim.needs else ""))
    yours = [Text("Yours", style="bold")]
    yours += [Text(f"  --{kind}: {what}") for kind, what in study.accepts.items()]
    if asking := [arm.name for arm in study.arms if isinstance(arm.run, Asking)]:
        yours.append(Text(f"  --endpoint URL --llm NAME: the language model of {', '.join(asking)}"))
    if study.contract:
        yours.append(Text(f"  --with NAME=module:function, called f(given, seed): {study.contract}"))
    return Group(tasks, arms, claims, *yours)


def _list(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None)


def _budgets(budgets: Sequence[Budget]) -> str:
    return "" if len(budgets) == len(Budget) else ", ".join(budgets)


def wide_console(**options: Any) -> Console:
    """A console that keeps tables readable where the output is no terminal."""
    options = {"highlight": False, "markup": False} | options
    console = Console(**options)
    if not console.is_terminal and "width" not in options:
        console = Console(**options | {"width": 120})
    return console
