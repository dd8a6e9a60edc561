"""Choosing which records to forget: by study, arm, age, failure, and whether their code is the present one."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from assay.errors import InputError
from assay.evidence.record import Record
from assay.evidence.run import Plan
from assay.evidence.study import Budget, Study

Present = Callable[[str], tuple[Study, str] | None]
"""A study's name to the study and the fingerprint of its code as they are now; ``None`` where it is not installed."""

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Choice:
    """What was chosen, and in words what could not be judged and therefore stays."""

    records: Sequence[Record]
    kept: Sequence[str] = ()


def age(text: str) -> datetime.timedelta:
    """An age such as ``30d``, ``12h``, ``2w`` or ``45m``.

    >>> age("2w").days
    14
    """
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if found is None:
        raise InputError(f"--older-than must be a number of minutes, hours, days or weeks such as 30d, got {text!r}")
    return datetime.timedelta(**{_UNITS[found[2]]: int(found[1])})


def choose(
    records: Iterable[Record],
    *,
    study: str | None = None,
    arms: Sequence[str] = (),
    older_than: datetime.timedelta | None = None,
    failed: bool = False,
    stale: Present | None = None,
) -> Choice:
    """The records that fit all that is asked for.

    Parameters
    ----------
    records
        Those to choose from.
    study, arms
        Only of this study; only of one of these arms.
    older_than
        Only those that were finished so long ago or earlier.
    failed
        Only those without a result: failed, or missing something.
    stale
        Only those that the study's code as it is now did not make.
    """
    kept: list[str] = []
    fit = [
        record
        for record in records
        if (study is None or record.study == study)
        and (not arms or record.arm in arms)
        and (not failed or record.status != "ok")
    ]
    if older_than is not None:
        known = [record for record in fit if _finished(record) is not None]
        kept += [f"{len(fit) - len(known)} of unknown age"] if len(known) < len(fit) else []
        now = datetime.datetime.now(datetime.UTC)
        fit = [record for record in known if (end := _finished(record)) is not None and now - end >= older_than]
    if stale is not None:
        verdicts = {record.key: fresh for name in _names(fit) for record, fresh in _freshness(name, fit, stale)}
        unknown = Counter(record.study for record in fit if verdicts[record.key] is None)
        kept += [f"{count} of {name} whose code cannot be told" for name, count in sorted(unknown.items())]
        fit = [record for record in fit if verdicts[record.key] is False]
    return Choice(fit, kept)


def _freshness(name: str, records: Sequence[Record], present: Present) -> list[tuple[Record, bool | None]]:
    """Each record of a study with whether its code is the present one; ``None`` where that cannot be told.

    A record's key is computed anew, from the present code and the record's own package versions: an upgrade of a
    package alone makes nothing stale. What a user brought to a check is not at hand.
    """
    mine = [record for record in records if record.study == name]
    now = present(name)
    if now is None:
        return [(record, None) for record in mine]
    study, code = now
    keys: set[str] = set()
    for budget, versions in {(r.budget, tuple(sorted(r.versions.items()))) for r in mine}:
        if budget in list(Budget):
            seeds = tuple(sorted({r.seed for r in mine if r.budget == budget}))
            plan = Plan(study=study, budget=Budget(budget), seeds=seeds, code=code, versions=dict(versions))
            keys.update(cell.key for cell in plan.cells)
    return [(r, True if r.key in keys else None if r.context else False) for r in mine]


def _finished(record: Record) -> datetime.datetime | None:
    try:
        end = datetime.datetime.fromisoformat(record.finished)
    except ValueError:
        return None
    return end if end.tzinfo else end.replace(tzinfo=datetime.UTC)


def _names(records: Iterable[Record]) -> list[str]:
    return sorted({record.study for record in records})


def summary(choice: Choice) -> str:
    """What would go, in one line: how many records of which studies, and what it took to make them."""
    counts = Counter(record.study for record in choice.records)
    of = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    seconds = sum(r.cpu_seconds for r in choice.records if r.cpu_seconds > 0)
    kept = f"; kept are {' and '.join(choice.kept)}" if choice.kept else ""
    if not choice.records:
        return f"no record fits{kept}"
    count = len(choice.records)
    return f"{count} record{'s' if count != 1 else ''} ({of}), which took {seconds:,.3g} CPU seconds{kept}"
