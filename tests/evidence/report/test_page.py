from __future__ import annotations

import dataclasses
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.errors import InputError
from assay.evidence.report.page import Stored, collect, current, render, write_report
from assay.evidence.storage import Storage
from assay.evidence.stored_check import ArmLine, StoredCheck

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """Collects ids, references and text, and notes what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.wanted: set[str] = set()
        self.tags: Counter[str] = Counter()
        self.addresses: set[str] = set()
        self.text: list[str] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            elif name in ("aria-labelledby", "data-copy"):
                self.wanted.update((value or "").split())
            elif name == "href" and (value or "").startswith("#"):
                self.wanted.add((value or "")[1:])
            elif name in ("href", "src", "xlink:href"):
                self.addresses.add(value or "")
            elif name.startswith("on"):
                self.wrong.append(f"{tag} {name}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(text: str) -> Page:
    page = Page(text)
    assert page.wrong == []
    assert [name for name, count in page.ids.items() if count > 1] == []
    assert page.wanted - page.ids.keys() == set()
    assert page.addresses == set()
    assert "url(" not in text
    return page


def without_date(text: str) -> str:
    return re.sub(r'<p id="made">.*?</p>', "", text)


def test_38_studies_are_small_and_valid(making: SimpleNamespace) -> None:
    many = making.stored(38)
    cards = {
        name: SimpleNamespace(title=f"The study {name}", field="statistics", summary="a summary", source="a source")
        for name in list(many.checks)[:-1]
    }
    text = render(many, cards)
    assert len(text.encode()) < 6_000_000
    page = parse(text)
    assert page.tags["article"] == 40
    assert page.tags["title"] > 38 * 6
    assert page.tags["title"] == page.tags["desc"] + 1
    words = " ".join(" ".join(page.text).split())
    assert "312 records of study-00 that belong to earlier versions" in words
    assert "1 check whose place a later one has taken" in words


def test_what_a_check_says_is_there(making: SimpleNamespace) -> None:
    check, records = making.check(making.study(), seeds=6, failing="random")
    text = render(Stored({check.study: [(check, records)]}, {}, 0), {})
    words = " ".join(" ".join(parse(text).text).split())
    for verdict in check.verdicts:
        assert verdict.claim.name in words
        for part in verdict.parts:
            assert part.task in words
    for said in (
        "Which claims hold here?", "1 method, 9 claims", "hits: ours higher than pca and random by more than 5",
        "a fair test needs more rows", "6 seeds", "Switch: ours beats random.", "looked at with 3 seeds",
        "assay check made-up --budget quick --seeds 6", "python 3.11, numpy 2.4", "a machine, 2 cores",
        "ValueError: <img src=x onerror=alert(1)> & no 'rows'", "random (4 of 6)", "hits against CPU seconds",
        "hits against parameters", "the task T3", "share of hits, in % (higher is better)",
    ):  # fmt: skip
        # Some of these stand in more than one element: compare without tags and extra spaces.
        assert said in words or said in words.replace("\N{NO-BREAK SPACE}", " "), said
    assert "Not shown" not in words


def test_markup_in_names_is_text(making: SimpleNamespace) -> None:
    study = making.study("</script><b>$x_1$</b>", arm=making.hostile)
    check, records = making.check(study, failing=making.hostile, context="\x00\ud800 ]]> <!-- 'data'.csv")
    check = dataclasses.replace(
        check, arms=(*check.arms, ArmLine(name="</title></svg>", role="baseline", what="\x08", yours=True))
    )
    text = render(Stored({study.name: [(check, records)]}, {"<i>": 2}, 0), {})
    page = parse(text)
    assert text.encode()  # no half of a pair is left
    assert not re.search(r"[\x00-\x08]", text)
    for tag in ("img", "b>$", "i>"):
        assert f"<{tag}" not in text
    assert page.tags["script"] == 1
    assert making.hostile in "".join(page.text)
    assert "$x_1$" in "".join(page.text)


def test_the_same_storage_gives_the_same_page(making: SimpleNamespace, store: Any, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'r.db'}"
    study = making.study(tasks=3)
    with Storage(url) as storage:
        store(
            storage,
            making.check(study, "smoke", failing="random"),
            making.check(study, "smoke", placebo=True, code="p"),
        )
        texts = [write_report(storage, tmp_path / out, {}).read_text() for out in ("a", "b")]
        assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "index.html"]
        with pytest.raises(InputError, match=r"r\.db is a file; name a folder"):
            write_report(storage, tmp_path / "r.db", {})
    assert without_date(texts[0]) == without_date(texts[1]) != texts[0]
    assert "Placebo:" in texts[0]


def test_earlier_versions_are_counted_not_shown(making: SimpleNamespace, store: Any, tmp_path: Path) -> None:
    study = making.study(tasks=3)
    old, old_records = making.check(study, "smoke", seeds=4, code="old")
    new, new_records = making.check(study, "smoke", seeds=3, code="new")
    new = dataclasses.replace(new, finished="2026-02-01")
    with Storage(f"sqlite:///{tmp_path / 'r.db'}") as storage:
        store(storage, (old, old_records), (new, new_records))
        found = collect(storage)
        assert [check for check, _ in found.checks[study.name]] == [new]
        assert [r.key for _, records in found.checks[study.name] for r in records] == list(new.keys)
        assert found.earlier == {study.name: len(old_records)}
        assert found.replaced == 1
        with pytest.raises(InputError, match="has no check of other"):
            collect(storage, study="other")
        with pytest.raises(InputError, match="has no check at budget full"):
            collect(storage, budget="full")
        with pytest.raises(InputError, match="budget 'huge' is none of smoke"):
            collect(storage, budget="huge")


def test_the_check_on_the_most_seeds_of_the_latest_code_is_shown() -> None:
    def check(identity: str, seeds: int, budget: str = "quick", **fields: Any) -> StoredCheck:
        return StoredCheck(study="s", identity=identity, seeds=tuple(range(seeds)), budget=budget, **fields)

    many, few, newer = check("i", 10), check("i", 3), check("j", 3)
    assert current([many, few]) == [many]
    assert current([few, many]) == [many]
    assert current([many, few, newer]) == [newer]
    full, data, part = check("i", 3, "full"), check("i", 3, context="data t.csv"), check("i", 3, left_out=("T1",))
    empty = check("i", 3, "full", context="placebo", placebo=True)
    assert current([empty, data, part, many, full]) == [full, many, part, data, empty]


def test_a_record_that_is_gone_is_said(making: SimpleNamespace, store: Any, tmp_path: Path) -> None:
    check, records = making.check(making.study(tasks=2), "smoke", seeds=3)
    with Storage(f"sqlite:///{tmp_path / 'r.db'}") as storage:
        store(storage, (check, records[1:]))
        assert "1 no longer stored" in render(collect(storage), {})


def test_the_command_reports_what_was_checked(assay: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def fit(given, seed):\n    raise ValueError('<i>no</i>')\n")
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(f"{i},{i % 7}" for i in range(40)))
    own = ("--with", "mine=mine:fit", "--data", "t.csv")
    assay("check", "trimmed-mean", "--budget", "smoke", "--storage", "r.db", "--jobs", "1", *own)
    (tmp_path / "mine.py").unlink()  # a report imports nothing of the user's
    (tmp_path / "t.csv").unlink()
    done = assay("report", "-o", "out", "--storage", "r.db")
    assert done.stdout.strip() == "out/index.html"
    text = (tmp_path / "out" / "index.html").read_text()
    words = " ".join(" ".join(parse(text).text).split())
    assert "The mean without the tails" in words
    assert "assay check trimmed-mean --budget smoke --seeds 3 --data t.csv --with mine=mine:fit" in words
    assert "<i>no</i>" in words
