"""Two sets of records side by side, as tables for a terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from assay.evidence.compare import FEWEST, CellsLine, Compared, CostLine, Difference, MetricLine, Place
from assay.evidence.report.terminal import _few, _table, number

MARKS = {
    Difference.DIFFERS: ("≠", "red"),
    Difference.PERHAPS: ("~", "yellow"),
    Difference.NOT_SHOWN: ("·", ""),
    Difference.FEW: ("?", "dim"),
    Difference.ROUNDING: ("≈", "dim"),
    Difference.IDENTICAL: ("=", "dim"),
}


def comparison(compared: Compared, a: str, b: str) -> RenderableType:
    """The metrics that are not identical, the CPU seconds, and what is on one side only; ``a``, ``b`` name them."""
    parts: list[RenderableType] = [Text(f"A  {a}"), Text(f"B  {b}")]
    for study in dict.fromkeys((p.study, p.budget, p.brought) for p in _places(compared)):
        title = f"{study[0]}, {study[1]}{f'; {study[2]}' if study[2] else ''}"
        parts.append(Text(f"\n{title}", style="bold"))
        metrics = [m for m in compared.metrics if m.place[:3] == study]
        other = [m for m in metrics if m.outcome is not Difference.IDENTICAL]
        parts += [_metrics_table(other)] if other else []
        parts += _identical(metrics)
        costs = [c for c in compared.costs if c.place[:3] == study]
        parts += [_costs_table(costs)] if costs else []
        parts += [_cells_text(c) for c in compared.cells if c.place[:3] == study]
    return Group(*parts, Text(), *_closing(compared))


def _places(compared: Compared) -> list[Place]:
    lines: list[MetricLine | CostLine | CellsLine] = [*compared.metrics, *compared.costs, *compared.cells]
    return sorted({line.place for line in lines})


def _metrics_table(lines: Sequence[MetricLine]) -> RenderableType:
    table = _table("metrics: B − A over common seeds")
    table.add_column("")
    for name in ("task", "arm", "metric"):
        table.add_column(name, overflow="fold")
    for name in ("A", "B", "B − A"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("pairs", justify="right")
    for line in lines:
        mark, style = MARKS[line.outcome]
        difference = "" if math.isnan(line.estimate) else number(line.estimate)
        table.add_row(
            Text(mark, style=style), line.place.task, line.place.arm, line.metric, number(line.a), number(line.b),
            difference, _interval(line.low, line.high), str(line.pairs),
        )  # fmt: skip
    return table


def _costs_table(lines: Sequence[CostLine]) -> RenderableType:
    table = _table("CPU seconds: B / A over common seeds, not judged")
    for name in ("task", "arm"):
        table.add_column(name, overflow="fold")
    for name in ("A", "B", "B / A"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("95 % interval", no_wrap=True)
    table.add_column("pairs", justify="right")
    for line in lines:
        values = (number(line.a, 2), number(line.b, 2), number(line.ratio), _interval(line.low, line.high))
        table.add_row(line.place.task, line.place.arm, *values, str(line.pairs))
    return table


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"{number(low)} to {number(high)}"


def _identical(lines: Sequence[MetricLine]) -> list[Text]:
    same = [line for line in lines if line.outcome is Difference.IDENTICAL]
    if not same:
        return []
    if len(same) == len(lines):
        return [Text(f"= identical to the last bit in every pair: all of {_count(len(lines))}")]
    arms: dict[str, list[str]] = {}
    for line in same:
        arms.setdefault(f"{line.place.arm} on {line.place.task}", []).append(line.metric)
    what = "; ".join(f"{where}: {', '.join(metrics)}" for where, metrics in arms.items())
    return [Text(f"= identical to the last bit in every pair, {len(same)} of {_count(len(lines))}: {what}")]


def _count(comparisons: int) -> str:
    return f"{comparisons} comparison{'s' if comparisons != 1 else ''}"


def _cells_text(line: CellsLine) -> Text:
    seeds = f"seed{'s' if len(line.seeds) != 1 else ''} {_few(line.seeds)}"
    return Text(f"{line.place.arm} on {line.place.task}, {seeds}: {line.why}", style="yellow" if line.lost else "dim")


def _closing(compared: Compared) -> list[Text]:
    found = Counter(line.outcome for line in compared.metrics)
    said = [f"{MARKS[outcome][0]} {found[outcome]} {outcome}" for outcome in MARKS if found[outcome]]
    lines = [Text("; ".join(said) or "no metric is on both sides")]
    if compared.judged:
        lines.append(
            Text(
                f"≠ holds after Holm's correction at 5 % for {_count(compared.judged)}. An interval alone excludes "
                f"0 by chance in about {number(0.05 * compared.judged, 2)} of them where nothing differs (~).",
                style="dim",
            )
        )
    if found[Difference.FEW]:
        lines.append(Text(f"? needs {FEWEST} common seeds to be judged.", style="dim"))
    if any(compared.superseded):
        a, b = compared.superseded
        lines.append(Text(f"Of a cell that was run again the latest record counts: left out are {a} in A, {b} in B."))
    return lines
