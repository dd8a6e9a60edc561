"""The report: one HTML file that needs nothing else, made from what is stored."""

from __future__ import annotations

import base64
import datetime
import gc
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from assay import __version__
from assay.errors import InputError
from assay.evidence.record import Record
from assay.evidence.report.claims import ClaimView
from assay.evidence.report.svg import Symbols, fit
from assay.evidence.report.terminal import MARKS
from assay.evidence.report.view import About, CheckView, StudyView, count_outcomes, study_view
from assay.evidence.storage import Storage
from assay.evidence.stored_check import StoredCheck
from assay.evidence.study import Budget

FILE = "index.html"
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Stored:
    """What a report is made of: the checks that it shows with their records, and what it leaves out.

    ``earlier`` counts each study's records that belong to no check shown; ``replaced`` the checks that a later one
    on newer code, or on more seeds, took the place of.
    """

    checks: Mapping[str, Sequence[tuple[StoredCheck, Sequence[Record]]]]
    earlier: Mapping[str, int]
    replaced: int


def write_report(
    storage: Storage, out: Path, cards: Mapping[str, About], *, study: str | None = None, budget: str | None = None
) -> Path:
    """Write the report into the folder ``out``, whole or not at all; return the file's path.

    Parameters
    ----------
    storage
        The checks and records.
    out
        The folder; it is made where it does not exist.
    cards
        The method's cards by name; a study without one is shown under its name.
    study, budget
        Only this method's checks; only those at this budget.

    Raises
    ------
    InputError
        If nothing that is stored fits.
    """
    text = render(collect(storage, study, budget), cards)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    path, part = out / FILE, out / f"{FILE}.part"
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def collect(storage: Storage, study: str | None = None, budget: str | None = None) -> Stored:
    """Choose the checks that are shown and fetch their records."""
    if budget is not None and budget not in list(Budget):
        raise InputError(f"budget {budget!r} is none of {', '.join(Budget)}")
    where = {name: value for name, value in (("study", study), ("budget", budget)) if value is not None}
    stored = storage.checks(**where)
    records = {record.key: record for record in storage.records(**where)}
    if not stored:
        what = f" of {study}" if study else ""
        at = f" at budget {budget}" if budget else ""
        raise InputError(
            f"storage {storage.url} has no check{what}{at} ({len(records)} records); `assay check {study or 'METHOD'}` "
            "makes one, and runs nothing again that is stored"
        )
    shown = current(stored)
    checks: dict[str, list[tuple[StoredCheck, Sequence[Record]]]] = {}
    for check in shown:
        cells = [records[key] for key in check.keys if key in records]
        checks.setdefault(check.study, []).append((check, cells))
    used = {key for check in shown for key in check.keys}
    earlier: dict[str, int] = {}
    for key, record in records.items():
        if key not in used:
            earlier[record.study] = earlier.get(record.study, 0) + 1
    return Stored(checks, dict(sorted(earlier.items())), len(stored) - len(shown))


def current(checks: Sequence[StoredCheck]) -> list[StoredCheck]:
    """For each study, budget and what the user brought or left out: the latest code's check on the most seeds.

    A look at fewer seeds does not hide one at more. Ordered with the largest budget first and placebos last.
    """
    latest: dict[tuple[object, ...], StoredCheck] = {}
    for check in checks:  # the latest comes last
        place = (check.study, check.budget, check.context, check.left_out)
        known = latest.get(place)
        if known is None or known.identity != check.identity or len(known.seeds) <= len(check.seeds):
            latest[place] = check
    budgets = list(map(str, Budget))
    return sorted(
        latest.values(),
        key=lambda c: (c.placebo, bool(c.context), bool(c.left_out), -budgets.index(c.budget), c.context, c.left_out),
    )


def render(stored: Stored, cards: Mapping[str, About]) -> str:
    """The page as text; the same for the same records, but for the line that says when it was made."""
    symbols = Symbols()
    gc.freeze()  # a fifth quicker: the drawings' many objects else make the collector walk through all records
    try:
        studies = [study_view(name, cards.get(name), checks, symbols) for name, checks in stored.checks.items()]
    finally:
        gc.unfreeze()
    studies.sort(key=lambda s: (s.field, s.name))
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=lambda value: fit(value) if type(value) is str else value,
    )  # fmt: skip
    environment.filters["drawing"] = Markup
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(
        studies=studies,
        rows=_rows(studies),
        counts=count_outcomes(claim for *_, claim in _rows(studies)),
        marks={str(outcome): mark for outcome, (mark, _) in MARKS.items()},
        stored=stored,
        symbols=Markup(symbols.markup),
        css=Markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # Nothing but this script may run and nothing may be fetched, whatever a name in the records holds.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        made=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def _rows(studies: Sequence[StudyView]) -> list[tuple[StudyView, CheckView, int, ClaimView]]:
    """Every claim with its study, its check and its number there; a placebo's claims are about nothing."""
    return [
        (study, check, number, claim)
        for study in studies
        for check in study.checks
        if not check.placebo
        for number, claim in enumerate(check.claims, 1)
    ]
