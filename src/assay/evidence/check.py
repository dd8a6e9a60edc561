"""Checking a method: prepare the plan, run it with progress, judge it, and show the result."""

from __future__ import annotations

import dataclasses
import datetime
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from assay.evidence import own
from assay.evidence.asking import with_endpoint
from assay.evidence.fingerprint import code_fingerprint, package_versions, stamp
from assay.evidence.placebo import placebo as with_placebo
from assay.evidence.placebo import placebo_alarm, placebo_line
from assay.evidence.record import Record
from assay.evidence.report.terminal import arms_tables, failure_lines, plain, verdict_table, wide_console
from assay.evidence.run import Plan, plan, run, verdicts
from assay.evidence.storage import Storage
from assay.evidence.stored_check import ArmLine, StoredCheck, TaskLine
from assay.evidence.study import Arm, Study
from assay.evidence.verdict import Outcome, Verdict
from assay.parts.chat import Chat

SAY_EVERY = 10.0  # seconds between two lines of progress where the output is no terminal


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A study that was run and judged."""

    plan: Plan
    records: Sequence[Record]
    verdicts: Sequence[Verdict]
    earlier_looks: Sequence[int]
    decisions: Sequence[str]

    @property
    def not_supported(self) -> bool:
        """Whether any claim came out not supported; for a placebo, whether more came out supported than by chance."""
        if self.plan.placebo:
            return placebo_alarm(self.verdicts)
        return any(verdict.outcome is Outcome.NOT_SUPPORTED for verdict in self.verdicts)

    def data(self) -> dict[str, Any]:
        """The result as plain data, for programs."""
        return {
            "method": self.plan.study.name,
            "budget": str(self.plan.budget),
            "seeds": list(self.plan.seeds),
            "context": self.plan.context,
            "placebo": self.plan.placebo,
            "looked_at_seeds": list(self.earlier_looks),
            "decisions": list(self.decisions),
            **plain(self.verdicts, self.records),
        }

    def to_store(self) -> StoredCheck:
        """The result as the storage keeps it for reports."""
        plan, study = self.plan, self.plan.study
        pairs = study.pairs(plan.budget)
        tasks, arms = {task.name for task, _ in pairs}, {arm.name for _, arm in pairs}
        return StoredCheck(
            study=study.name, budget=str(plan.budget), context=plan.context, seeds=plan.seeds, identity=plan.identity,
            finished=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), command=plan.command,
            keys=tuple(cell.key for cell in plan.cells), verdicts=tuple(self.verdicts),
            tasks=tuple(TaskLine(name=t.name, what=t.what, control=t.control) for t in study.tasks if t.name in tasks),
            arms=tuple(
                ArmLine(name=a.name, role=a.role, what=a.what, yours=isinstance(a.run, own.UserArm))
                for a in study.arms
                if a.name in arms
            ),
            primary=study.primary, better=study.better, metrics=dict(study.metrics),
            # A placebo never runs the method; that is no choice of the user's.
            left_out=(
                *(task.name for task in study.tasks if not task.budgets),
                *(a.name for a in study.arms if not a.budgets and not (self.plan.placebo and a is study.method)),
            ),
            earlier_looks=tuple(self.earlier_looks), decisions=tuple(self.decisions), placebo=self.plan.placebo,
        )  # fmt: skip


def prepare(
    study: Study,
    *,
    card_module: str,
    extras: Sequence[str] = (),
    budget: str = "quick",
    seeds: int | None = None,
    brought: Mapping[str, Path] | None = None,
    own_arms: Sequence[Arm] = (),
    chat: Chat | None = None,
    tasks: Sequence[str] = (),
    arms: Sequence[str] = (),
    placebo: bool = False,
) -> Plan:
    """The plan of a study with what the user brought, on the chosen tasks and arms.

    ``chat`` is the language model for the arms that ask one.
    """
    brought = brought or {}
    stamps = {path: stamp(path) for path in (p.resolve() for p in brought.values()) if path.exists()}
    study = own.on_own(study, brought)
    if chat is not None:
        study = with_endpoint(study, chat)
    study = own.with_arms(study, own_arms)
    if tasks or arms:
        study = study.only(tasks, arms)
    if placebo:
        study = with_placebo(study)
    context = ", ".join(
        [f"{kind} {path}" for kind, path in brought.items()]
        + [f"{arm.name} = {arm.what.removeprefix('yours: ')}" for arm in own_arms]
        + ([f"{chat.model} at {chat.base_url}"] if chat else [])
        + (["placebo"] if placebo else [])
    )
    made = plan(
        study,
        budget,
        seeds=seeds,
        code=code_fingerprint(f"{card_module}.study"),
        context=context,
        content=own.content(brought),
        versions=package_versions(extras),
    )
    words = ["assay", "check", study.name, "--budget", str(made.budget), "--seeds", str(len(made.seeds))]
    words += [word for kind, path in brought.items() for word in (f"--{kind}", str(path))]
    words += [word for arm in own_arms for word in ("--with", f"{arm.name}={arm.what.removeprefix('yours: ')}")]
    if chat:
        words += ["--endpoint", chat.base_url, "--llm", chat.model]
        words += ["--key-env", chat.key_env] if chat.key_env else []
    words += [word for option, names in (("--task", tasks), ("--arm", arms)) for n in names for word in (option, n)]
    return dataclasses.replace(
        made, stamps=stamps, placebo=placebo, command=shlex.join(words + ["--placebo"] * placebo)
    )


def check_plan(plan: Plan, storage: Storage, *, quiet: bool = False, **options: Any) -> Checked:
    """Run a plan with live progress, judge its claims and print the result; ``options`` are those of ``run``."""
    out, live = wide_console(quiet=quiet), wide_console(stderr=True, quiet=quiet)
    count = len(plan.cells)
    size = f"{count} cell{'s' if count != 1 else ''} ({_sizes(plan)})"
    live.print(f"{plan.study.name}, budget {plan.budget}: {size}{f'; {plan.context}' if plan.context else ''}")
    with _progress(live, plan) as told:
        records = run(plan, storage, **told, **options)
    if not live.is_terminal:  # the bar says it otherwise
        status = Counter(record.status for record in records)
        missing = f", {status['missing']} missing" if status["missing"] else ""
        live.print(f"  {len(records)} of {count} cells, {status['failed']} failed{missing}")
    judged = verdicts(plan, records)
    looks = storage.look(plan.study.name, plan.identity, str(plan.budget), len(plan.seeds))
    mine = [arm.name for arm in plan.study.arms if isinstance(arm.run, own.UserArm) and arm.budgets]
    by_name = {v.claim.others[0]: v for v in judged if v.claim.others and v.claim.name.endswith("(yours)")}
    decisions = [own.decision(plan.study, name, by_name[name], records) for name in mine if name in by_name]
    checked = Checked(
        plan=plan,
        records=records,
        verdicts=judged,
        earlier_looks=[n for n in looks if n < len(plan.seeds)],
        decisions=decisions,
    )
    storage.keep_check(checked.to_store())
    for line in _result(checked, out.width):
        out.print(line)
    return checked


def _result(checked: Checked, width: int) -> Iterator[Any]:
    plan, records = checked.plan, checked.records
    yield arms_tables(plan.study, plan.budget, records)
    yield from failure_lines(records)
    if any(record.status == "failed" for record in records):
        yield "Failed cells are kept; --retry runs them again."
    yield verdict_table(checked.verdicts, width)
    if checked.earlier_looks:
        looks = " and ".join(str(n) for n in checked.earlier_looks)
        yield (
            f"These verdicts were looked at with {looks} seeds and then extended to {len(plan.seeds)}: "
            "looking and going on makes chance findings likelier than 5 %."
        )
    if checked.plan.placebo:
        yield placebo_line(checked.verdicts)
    for line in checked.decisions:
        yield Text(f"\n{line}", style="bold")


def _sizes(plan: Plan) -> str:
    pairs = plan.study.pairs(plan.budget)
    tasks, arms = len({t.name for t, _ in pairs}), len({a.name for _, a in pairs})
    counts = ((tasks, "task"), (arms, "arm"), (len(plan.seeds), "seed"))
    return ", ".join(f"{n} {what}{'s' if n != 1 else ''}" for n, what in counts)


@contextmanager
def _progress(console: Any, plan: Plan) -> Iterator[dict[str, Any]]:
    """Progress while a study runs: a live bar in a terminal, now and then a line elsewhere."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    total, done = len(plan.cells), Counter[str]()
    said = time.monotonic()
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    now = TextColumn("{task.description}", markup=False)
    bar = Progress(*columns, now, console=console, disable=not console.is_terminal)
    task = bar.add_task("", total=total)

    def trouble() -> str:
        return "".join(f"{done[status]} {status} · " for status in ("failed", "missing") if done[status])

    def describe(what: str, count: int | None = None) -> None:
        nonlocal said
        count = done.total() if count is None else count
        bar.update(task, completed=count, description=trouble() + what)
        if not console.is_terminal and time.monotonic() - said > SAY_EVERY:
            said = time.monotonic()
            console.print(f"  {count} of {total} cells · {trouble()}{what}")

    def on_start(stored: Sequence[Record]) -> None:
        done.update(record.status for record in stored)
        describe(f"{len(stored)} stored already" if stored else "")

    def on_record(record: Record) -> None:
        done[record.status] += 1
        describe(f"{record.arm} on {record.task}, seed {record.seed}")

    def on_wait(cells: int) -> None:
        describe(f"waiting for another run, which has {cells} cells", total - cells)

    with bar:
        yield {"on_start": on_start, "on_record": on_record, "on_wait": on_wait}
