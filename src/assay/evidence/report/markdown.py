"""What a stored check said, as the measured part of a method's card."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from assay.errors import InputError
from assay.evidence.record import Record
from assay.evidence.report.claims import minus
from assay.evidence.report.terminal import MARKS, bar_text, cpu_text, failures, number
from assay.evidence.run import Plan
from assay.evidence.storage import Storage
from assay.evidence.stored_check import StoredCheck
from assay.evidence.verdict import Outcome, Verdict

BEGIN, END = "<!-- evidence -->", "<!-- /evidence -->"


def measured(storage: Storage, plan: Plan) -> str:
    """The measured part of a card: what the check of ``plan`` said, on the most seeds that are stored.

    Raises
    ------
    InputError
        If the storage has no such check, only one of other code or versions, or not all of its records.
    """
    name, budget = plan.study.name, str(plan.budget)
    again = f"`assay check {name} --budget {budget}` makes one"
    stored = storage.checks(study=name, budget=budget)
    whole = [c for c in stored if not (c.context or c.left_out or c.placebo)]
    if not whole:
        raise InputError(f"storage {storage.url} has no check of {name} at budget {budget}, as it stands; {again}")
    same = [c for c in whole if c.identity == plan.identity]
    if not same:
        raise InputError(
            f"storage {storage.url}: the check of {name} at budget {budget} is of other code or package versions than "
            f"those here; {again}"
        )
    check = max(same, key=lambda c: len(c.seeds))
    records = storage.finished(check.keys)
    if len(records) < len(check.keys):
        gone = len(check.keys) - len(records)
        raise InputError(f"storage {storage.url}: {gone} records of the check of {name} are gone; {again}")
    return evidence(check, [records[key] for key in check.keys])


def evidence(check: StoredCheck, records: Sequence[Record]) -> str:
    """The check as Markdown: one row a claim, one row an arm, and how it was measured."""
    parts = [f"**{state(check)}**, {len(check.seeds)} seeds.", _claims(check.verdicts)]
    parts += [text for text in (_notes(check.verdicts), _arms(check, records), _failures(records)) if text]
    parts.append(_how(check, records))
    return "\n\n".join(parts) + "\n"


def state(check: StoredCheck) -> str:
    """How many of the judged claims are supported, as cards and the README say it."""
    outcomes = [v.outcome for v in check.verdicts if v.outcome is not Outcome.UNTESTED]
    return f"{outcomes.count(Outcome.SUPPORTED)} of {len(outcomes)} judged claims supported at `{check.budget}`"


def with_evidence(card: str, text: str, path: Path) -> str:
    """The card's text with ``text`` between its markers; ``InputError`` where it has not one pair of them."""
    before, begin, rest = card.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or any(mark in before + after for mark in (BEGIN, END)):
        raise InputError(f"card {path} must have one line {BEGIN} and one line {END} after it")
    return f"{before}{BEGIN}\n{text.strip()}\n{END}{after}"


def update_card(path: Path, text: str) -> None:
    """Put ``text`` between the markers of the card at ``path``, whole or not at all.

    Raises
    ------
    InputError
        If the card has no markers.
    PermissionError
        If the card cannot be written.
    """
    path = path.resolve()  # a link stays one
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise PermissionError(f"card {path} cannot be written; without --update its text is printed")
    changed = with_evidence(path.read_text(encoding="utf-8"), text, path)
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=path.parent, prefix=f".{path.name}-", delete=False
    ) as part:
        try:
            part.write(changed)
            part.flush()
            os.fsync(part.fileno())
            os.chmod(part.name, path.stat().st_mode & 0o777)
            os.replace(part.name, path)
        except BaseException:
            os.unlink(part.name)
            raise


def _claims(verdicts: Iterable[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        estimate = minus(number(verdict.estimate))
        if verdict.low is not None:
            estimate += f" ({minus(number(verdict.low))} to {minus(number(verdict.high))})"
        said = f"{MARKS[verdict.outcome][0]} {verdict.outcome}"
        rows.append((verdict.claim.name, said, estimate, minus(bar_text(verdict)), verdict.pairs))
    return _table(("claim", "verdict", "estimate (95 % interval)", "bar", "pairs"), rows, "llrrl")


def _notes(verdicts: Iterable[Verdict]) -> str:
    """What decides where there are several parts, and what is missing or left out; a note several share stands once."""
    notes: dict[str, list[str]] = {}
    for verdict in verdicts:
        part = verdict.deciding
        found = [verdict.reason, verdict.more]
        if part is not None and len(verdict.parts) > 1:
            against = f" against {part.other}" if len(verdict.claim.others) > 1 else ""
            found.insert(0, f"shown is {part.task}{against}, which decides of {len(verdict.parts)}")
        if verdict.claim.needs and verdict.outcome is not Outcome.SUPPORTED:
            found.append(f"a fair test needs {verdict.claim.needs}")
        said = "; ".join(filter(None, found))
        if said:
            notes.setdefault(said, []).append(_plain(verdict.claim.name))
    return "\n".join(f"- {', '.join(names)}: {_plain(said)}" for said, names in notes.items())


def _arms(check: StoredCheck, records: Sequence[Record]) -> str:
    ok = [r for r in records if r.status == "ok" and check.primary in r.metrics]
    tasks = [task.name for task in check.tasks if any(r.task == task.name for r in ok)]
    if not tasks:
        return ""
    rows = []
    for arm in check.arms:
        mine = [r for r in ok if r.arm == arm.name]
        if mine:
            cells = [_mean(check.primary, [r for r in mine if r.task == task]) for task in tasks]
            rows.append((arm.name, arm.role, *cells, cpu_text(mine)))
    what = check.metrics.get(check.primary, "")
    title = f"{check.primary}{f': {what}' if what else ''} ({check.better} is better). Means over seeds"
    head = ("arm", "role", *tasks, "CPU s")
    return f"{_plain(title)}; CPU seconds a cell.\n\n" + _table(head, rows, "ll" + "r" * (len(head) - 2))


def _mean(metric: str, records: Sequence[Record]) -> str:
    return minus(number(fmean(float(r.metrics[metric]) for r in records))) if records else "–"


def _failures(records: Sequence[Record]) -> str:
    return "\n".join(
        f"- {status}: {arm} on {task}, {len(seeds)} cell{'s' if len(seeds) != 1 else ''}: {_plain(reason)}"
        for (status, task, arm, reason), seeds in failures(records).items()
    )


def _how(check: StoredCheck, records: Sequence[Record]) -> str:
    machines = dict.fromkeys(r.machine for r in records if r.machine)
    versions = dict.fromkeys(f"{name} {version}" for r in records for name, version in r.versions.items())
    said = [f"Measured {check.finished[:10]} by `{check.command}`", *map(_plain, machines), ", ".join(versions)]
    return "; ".join(filter(None, said)) + "."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> str:
    rules = ["---:" if side == "r" else "---" for side in sides]
    lines = ["| " + " | ".join(map(_plain, head)) + " |", "|" + "|".join(rules) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(_plain, row)) + " |" for row in rows])


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    text = re.sub(r"([\\`*_|\[])", r"\\\1", " ".join(text.split()))
    return re.sub(r"<(?=[\w/!?])", "&lt;", text)
