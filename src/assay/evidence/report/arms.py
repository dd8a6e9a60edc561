"""Arms as a report shows them: every seed of their metric, their means, and quality against cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from assay.evidence.record import Proportion, Record
from assay.evidence.report import plots
from assay.evidence.report.claims import minus
from assay.evidence.report.svg import Symbols
from assay.evidence.report.terminal import COSTS, cpu_text, number
from assay.evidence.stored_check import ArmLine, StoredCheck

SIGNS = {"method": "●", "yours": "★", "baseline": "□", "trivial": "▽", "ablation": "◇", "ceiling": "△"}
# What is cheaper is drawn there: clocks and allocators say no more.
_LEAST = {"CPU seconds": (1e-3, "1 ms"), "peak memory, MiB": (1.0, "1 MiB")}


@dataclass(frozen=True)
class ArmView:
    """An arm with its mean metric on each task and its mean costs."""

    name: str
    kind: str
    sign: str
    what: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class PanelView:
    """A drawing with what stands above it."""

    name: str
    what: str
    drawing: str


def metric_of(check: StoredCheck, ok: Sequence[Record], task: str) -> str:
    """The metric that is shown for a task: the primary one, else the first that a claim is about; empty for none."""
    there = {name for r in ok if r.task == task for name in r.metrics}
    wanted = (check.primary, *(v.claim.metric for v in check.verdicts))
    return next((name for name in wanted if name in there), "")


def arm_panels(
    check: StoredCheck, ok: Sequence[Record], metrics: Mapping[str, str], id: str, symbols: Symbols
) -> tuple[PanelView, ...]:
    """For each task every seed of every arm."""
    drawn = []
    for task in check.tasks:
        points = [
            plots.ArmPoints(
                arm.name, kind(arm), tuple(_values(ok, metrics[task.name], task.name, arm.name)), len(check.seeds)
            )
            for arm in check.arms
        ]
        drawn.append((task, metrics[task.name], [p for p in points if p.values]))
    panels: list[PanelView] = []
    for metric in dict.fromkeys(metrics.values()):
        primary = metric == check.primary
        mine = [(task, points) for task, its, points in drawn if its == metric and points]
        scales = plots.scales([points for _, points in mine], falls=primary and check.better == "lower")
        for (task, points), scale in zip(mine, scales, strict=True):
            title = f"{metric} on {task.name}{f': {task.what}' if task.what else ''}"
            desc = "; ".join(
                f"{p.label} ({p.kind}): mean {number(fmean(p.values))}, from {number(min(p.values))} to "
                f"{number(max(p.values))} over {len(p.values)} seeds"
                for p in points
            )
            label = f"{metric} ({check.better} is better)" if primary else metric
            name = f"{id}-a{len(panels)}"
            drawing = plots.arms(points, scale, label, symbols, name, title, desc)
            panels.append(PanelView(task.name + (" (control)" if task.control else ""), task.what, drawing))
    return tuple(panels)


def arms_table(
    check: StoredCheck, ok: Sequence[Record], metrics: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[ArmView, ...]]:
    """The columns of the table of arms, and its rows."""
    tasks = [task.name for task in check.tasks if metrics[task.name]]
    costs = [name for name in COSTS if any(name in r.metrics for r in ok)]
    columns = [t if metrics[t] == check.primary else f"{t}, {metrics[t]}" for t in tasks]
    rows = []
    for arm in check.arms:
        mine = [r for r in ok if r.arm == arm.name]
        cells = [_mean(_values(ok, metrics[task], task, arm.name)) for task in tasks]
        cells += [_mean(_values(ok, name, None, arm.name)) for name in costs]
        cells += [cpu_text(mine), _mean([r.peak_mib for r in mine if math.isfinite(r.peak_mib)])]
        rows.append(
            ArmView(
                arm.name,
                kind(arm),
                SIGNS[kind(arm)],
                arm.what.removeprefix("yours: "),
                tuple(minus(c) or "–" for c in cells),
            )
        )
    return (*columns, *costs, "CPU s", "peak MiB"), tuple(rows)


def kind(arm: ArmLine) -> str:
    """An arm's role, or ``yours``."""
    return "yours" if arm.yours else arm.role if arm.role in SIGNS else "baseline"


def _values(ok: Iterable[Record], metric: str, task: str | None, arm: str) -> list[float]:
    """An arm's values of a metric, seed by seed."""
    mine = sorted((r for r in ok if r.arm == arm and task in (None, r.task)), key=lambda r: (r.task, r.seed))
    return [x for x in (_number_of(r.metrics.get(metric)) for r in mine) if x is not None]


def _number_of(value: Any) -> float | None:
    if isinstance(value, Proportion):
        value = value.events / value.trials if value.trials else None
    if not isinstance(value, bool | int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _mean(values: Sequence[float]) -> str:
    return number(fmean(values)) if values else ""


def cost_panels(check: StoredCheck, ok: Sequence[Record], id: str, symbols: Symbols) -> tuple[tuple[str, ...], str]:
    """The primary metric against each cost, over the tasks that every arm ran, and what to know about it."""
    kinds = {arm.name: kind(arm) for arm in check.arms}
    scored = [r for r in ok if _number_of(r.metrics.get(check.primary)) is not None and r.arm in kinds]
    ran = {arm.name: {r.task for r in scored if r.arm == arm.name} for arm in check.arms}
    ran = {arm: tasks for arm, tasks in ran.items() if tasks}
    if len(ran) < 2:
        return (), ""
    no_control = {t.name for t in check.tasks if not t.control}
    common = set.intersection(*ran.values())
    if not common:  # the task that most arms ran, and those arms
        most = max((t.name for t in check.tasks), key=lambda t: sum(t in tasks for tasks in ran.values()))
        common = {most}
    tasks = [t.name for t in check.tasks if t.name in (common & no_control or common)]
    scored = [r for r in scored if r.task in tasks]
    arms = [arm for arm in check.arms if any(r.arm == arm.name for r in scored)]
    costs: dict[str, dict[str, float | None]] = {
        "CPU seconds": {r.key: r.cpu_seconds + sum(r.shared.values()) for r in scored},
        "peak memory, MiB": {r.key: r.peak_mib for r in scored},
        "parameters": {r.key: _number_of(r.metrics.get("parameters")) for r in scored},
    }
    panels = []
    note = f"Means over seeds on {', '.join(tasks)}. Work that arms share counts in full for each."
    for i, (label, by_key) in enumerate(costs.items()):
        least, said = _LEAST.get(label, (0.0, ""))
        points = [_cost_point(arm.name, kinds, check.primary, scored, by_key, least) for arm in arms]
        points_there = [p for p in points if p is not None]
        if len({p.cost for p in points_there}) < 2:
            continue
        if any(p.cost <= least for p in points_there):
            note += f" Less than {said} is drawn at {said}."
        desc = "; ".join(f"{p.name}: {number(p.quality)} at {number(p.cost)}" for p in points_there)
        y = f"{check.primary} ({check.better} is better)"
        title = f"{check.primary} against {label}"
        panels.append(plots.cost(points_there, label, y, symbols, f"{id}-c{i}", title, desc))
    return tuple(
        panels
    ), f"Means over seeds on {', '.join(tasks)}. Work that arms share counts in full for each." * bool(panels)


def _cost_point(
    arm: str, kinds: Mapping[str, str], metric: str, scored: Sequence[Record], by_key: Mapping[str, float | None],
    least: float,
) -> plots.CostPoint | None:  # fmt: skip
    mine = [r for r in scored if r.arm == arm]
    costs = [by_key[r.key] for r in mine]
    known = [c for c in costs if c is not None and math.isfinite(c)]
    if not known or len(known) < len(costs):
        return None
    return plots.CostPoint(arm, kinds[arm], max(fmean(known), least), fmean(_values(mine, metric, None, arm)))
