"""A check as the storage keeps it: what was checked, on which cells, and the verdicts.

Claims live in a study's code. What a check said is stored beside the records, so that a report needs neither that
code nor what the user brought to it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import InputError
from assay.evidence.claim import Claim
from assay.evidence.fingerprint import digest
from assay.evidence.rows import text
from assay.evidence.verdict import Outcome, Part, Verdict


@dataclass(frozen=True, kw_only=True)
class TaskLine:
    """A task of the check, for people."""

    name: str
    what: str = ""
    control: bool = False


@dataclass(frozen=True, kw_only=True)
class ArmLine:
    """An arm of the check, for people; ``yours`` where the user brought it."""

    name: str
    role: str
    what: str = ""
    yours: bool = False


@dataclass(frozen=True, kw_only=True)
class StoredCheck:
    """What a check said.

    Attributes
    ----------
    study, budget, context, seeds
        What was checked; ``context`` tells people what the user brought.
    identity
        Names everything but the seeds, as :attr:`assay.evidence.run.Plan.identity`.
    finished
        When (UTC, ISO 8601).
    command
        The command line that does it again.
    keys
        The keys of its cells.
    verdicts
        One a claim, in the study's order.
    tasks, arms, primary, better, metrics
        The study at this budget, for people.
    left_out
        Tasks and arms that the user left out.
    earlier_looks
        The numbers of seeds with which the verdicts were looked at before.
    decisions
        For each arm of the user's: whether to switch.
    placebo
        Whether each claim's opponent stood in the method's place.
    """

    study: str
    budget: str
    context: str = ""
    seeds: tuple[int, ...] = ()
    identity: str = ""
    finished: str = ""
    command: str = ""
    keys: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    tasks: tuple[TaskLine, ...] = ()
    arms: tuple[ArmLine, ...] = ()
    primary: str = ""
    better: str = "higher"
    metrics: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    earlier_looks: tuple[int, ...] = ()
    decisions: tuple[str, ...] = ()
    placebo: bool = False


_COLUMNS = ("study", "budget", "context", "identity", "finished")


def to_row(check: StoredCheck) -> dict[str, Any]:
    """The check's columns. A check on the same cells replaces the earlier one; one on more seeds stands beside it."""
    data = dataclasses.asdict(check)
    columns = {name: text(data.pop(name)) for name in _COLUMNS}
    return {
        "id": digest(*(columns[name] for name in _COLUMNS[:4]), len(check.seeds)),
        **columns,
        "data": json.dumps(data, allow_nan=False, default=float),
    }


def from_row(row: Any, shown: str) -> StoredCheck:
    """The check that :func:`to_row` took apart; ``InputError`` where the row is damaged."""
    try:
        data: dict[str, Any] = json.loads(row.data)
        data["verdicts"] = tuple(_verdict(one) for one in data["verdicts"])
        data["tasks"] = tuple(TaskLine(**one) for one in data["tasks"])
        data["arms"] = tuple(ArmLine(**one) for one in data["arms"])
        for name in ("seeds", "keys", "left_out", "earlier_looks", "decisions"):
            data[name] = tuple(data[name])
        return StoredCheck(**{name: getattr(row, name) for name in _COLUMNS}, **data)
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            f"storage {shown}: the check of {row.study!r} at budget {row.budget} is damaged ({error}); "
            "restore a copy, or check it again"
        ) from None


def _verdict(data: dict[str, Any]) -> Verdict:
    claim, parts = data.pop("claim"), data.pop("parts")
    for name in ("others", "tasks"):
        claim[name] = tuple(claim[name]) if claim[name] is not None else None
    return Verdict(
        claim=Claim(**claim | {"bar": _bar(claim["bar"])}),
        parts=tuple(Part(**part | {"outcome": Outcome(part["outcome"])}) for part in parts),
        **data | {"outcome": Outcome(data["outcome"]), "bar": _bar(data["bar"])},
    )


def _bar(value: float | list[float]) -> float | tuple[float, float]:
    return (value[0], value[1]) if isinstance(value, list) else value
