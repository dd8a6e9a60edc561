"""The measured part of a card: what `assay card` prints, and what it puts where."""

import dataclasses
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from assay import catalog
from assay.errors import InputError
from assay.evidence.check import Checked
from assay.evidence.claim import higher
from assay.evidence.record import Record
from assay.evidence.report import markdown
from assay.evidence.run import plan, verdicts
from assay.evidence.storage import Storage
from assay.evidence.study import Arm, Study, Task


def test_a_check_becomes_the_measured_part_of_a_card(assay, plug_in, tmp_path):
    """Of the third party's method, in a copy of its package: what stands around the markers stays as it was."""
    copy = tmp_path / "packages"
    shutil.copytree(plug_in, copy)
    path = copy / "trimmed_mean" / "card.md"
    before, mode = path.read_text(), path.stat().st_mode
    environment = {"PYTHONPATH": str(copy)}
    smoke = ("--budget", "smoke", "--storage", "sqlite:///r.db")
    assert "there is no such file" in assay("card", "trimmed-mean", *smoke, code=2).stderr
    assay("check", "trimmed-mean", *smoke, "--jobs", "1", env=environment)
    text = assay("card", "trimmed-mean", *smoke, env=environment).stdout
    assert path.read_text() == before
    assert text.startswith("**3 of 4 judged claims supported at `smoke`**, 5 seeds.")
    claims, arms = re.findall(r"(?m)(?:^\|.*\n)+", text)
    assert [row.split(" | ")[1] for row in claims.splitlines()[2:]] == [
        "✓ supported", "✓ supported", "✗ not supported", "✓ supported",
    ]  # fmt: skip
    assert "| error: trimmed at most 0.01 on clean | ✗ not supported |" in claims
    assert re.search(r"\| < 0.5 × \| 1 task × 5 seeds \|", claims)
    assert arms.splitlines()[0] == "| arm | role | clean | contaminated | CPU s |"
    assert [row.split(" | ")[0] for row in arms.splitlines()[2:]] == ["| trimmed", "| mean", "| one-row"]
    assert "- error: trimmed at most 0.01 on clean: a fair test needs many more rows" in text
    assert re.search(
        r"Measured \d{4}-\d\d-\d\d by `assay check trimmed-mean --budget smoke --seeds 5`; .+numpy 2", text
    )

    assert assay("card", "trimmed-mean", "--update", *smoke, env=environment).stdout == f"{path}\n"
    after = path.read_text()
    assert after.replace(text, "Not measured yet.\n") == before
    assert "Words after it stay." in after
    assert path.stat().st_mode == mode
    assert catalog.read_card(path, "trimmed_mean").state == "3 of 4 judged claims supported at `smoke`"
    assert [one.name for one in path.parent.glob("*card*")] == ["card.md"]


def nothing(*_):
    raise AssertionError("a card runs nothing")


STUDY = Study(
    name="made-up",
    tasks=(Task("T1", nothing, nothing), Task("T2", nothing, nothing)),
    arms=(Arm("ours", nothing, "method"), Arm("theirs", nothing, "baseline")),
    claims=(higher("hits", "ours", than="theirs"),),
    primary="hits",
    better="higher",
)


def keep(storage, plan, leave_out=0):
    """Store a check of the plan as if it had been run; the method wins by 1 at every seed."""
    records = [
        Record(key=c.key, study=c.study, task=c.task, arm=c.arm, role="", seed=c.seed, budget=c.budget,
               metrics={"hits": c.seed + (c.arm == "ours")})
        for c in plan.cells
    ]  # fmt: skip
    for record in records[leave_out:]:
        if storage.lease(record.key):
            storage.finish(record)
    judged = verdicts(plan, records)
    storage.keep_check(
        Checked(plan=plan, records=records, verdicts=judged, earlier_looks=(), decisions=()).to_store()
    )  # fmt: skip


def test_only_a_whole_check_of_this_code_goes_into_a_card():
    whole = plan(STUDY)
    with Storage("sqlite://") as storage:
        with pytest.raises(InputError, match="has no check of made-up at budget quick, as it stands; `assay check"):
            markdown.measured(storage, whole)
        keep(storage, plan(STUDY.only(tasks=["T1"])))
        keep(storage, plan(STUDY, context="data mine.csv", content={"data": "x"}))
        keep(storage, dataclasses.replace(plan(STUDY, context="placebo"), placebo=True))
        keep(storage, plan(STUDY, "full"))
        with pytest.raises(InputError, match="has no check of made-up at budget quick, as it stands"):
            markdown.measured(storage, whole)
        keep(storage, plan(STUDY, code="before"))
        with pytest.raises(InputError, match="is of other code or package versions than those here; `assay check"):
            markdown.measured(storage, whole)
        keep(storage, whole)
        keep(storage, plan(STUDY, seeds=4))
        text = markdown.measured(storage, whole)
        assert text.startswith("**1 of 1 judged claims supported at `quick`**, 10 seeds."), text
        assert "| hits: ours higher than theirs | ✓ supported | 1 (1 to 1) | > 0 | 2 tasks × 10 seeds |" in text


def test_a_check_whose_records_are_gone_does_not_go_into_a_card():
    with Storage("sqlite://") as storage:
        keep(storage, plan(STUDY), leave_out=2)
        with pytest.raises(InputError, match="2 records of the check of made-up are gone; `assay check"):
            markdown.measured(storage, plan(STUDY))


CARD = f"head\n{markdown.BEGIN}\nold\n{markdown.END}\ntail\n"


def test_a_card_without_one_pair_of_markers_is_left_alone(tmp_path):
    for text in ("no markers", CARD + CARD, f"{markdown.END}\n{markdown.BEGIN}\n", f"{markdown.BEGIN}\n"):
        path = tmp_path / "card.md"
        path.write_text(text)
        with pytest.raises(InputError, match="must have one line"):
            markdown.update_card(path, "new")
        assert path.read_text() == text
        assert os.listdir(tmp_path) == ["card.md"]


def test_a_card_that_cannot_be_written_is_said_so(tmp_path, monkeypatch):
    path = tmp_path / "card.md"
    path.write_text(CARD)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=r"card\.md cannot be written; without --update"):
        markdown.update_card(path, "new")


def test_a_write_that_fails_leaves_the_card_whole(tmp_path, monkeypatch):
    path = tmp_path / "card.md"
    path.write_text(CARD)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        markdown.update_card(path, "new")
    assert path.read_text() == CARD
    assert os.listdir(tmp_path) == ["card.md"]


def test_a_link_to_a_card_stays_a_link(tmp_path):
    (tmp_path / "real.md").write_text(CARD)
    (tmp_path / "card.md").symlink_to("real.md")
    markdown.update_card(tmp_path / "card.md", "new")
    assert (tmp_path / "card.md").is_symlink()
    assert (tmp_path / "real.md").read_text() == CARD.replace("old", "new")


def test_names_cannot_break_a_table():
    assert markdown._table(("a|b", "c"), [("x\ny", "<b>*z*")], "lr") == (
        "| a\\|b | c |\n|---|---:|\n| x y | &lt;b>\\*z\\* |"
    )


README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_every_built_in_method_with_its_state():
    rows = dict(re.findall(r"^\| \[([\w-]+)\]\((.+?)\) \|", README, flags=re.MULTILINE))
    built_in = {card.name: card for card in catalog.cards().values() if card.module.startswith("assay.")}
    by_field = sorted(built_in, key=lambda name: (built_in[name].field, name))
    assert list(rows) == by_field, "the README's table of methods needs one row a method, field by field"
    for card in built_in.values():
        path = card.path.relative_to(Path(__file__).parents[1])
        row = f"| [{card.name}]({path}) | {card.field} | {card.summary} | {card.state} |"
        assert row in README, f"the README's table of methods should have\n{row}"


@pytest.mark.parametrize("name", sorted(n for n, c in catalog.cards().items() if c.module.startswith("assay.")))
def test_a_built_in_card_has_its_front_matter_and_lists_the_claims_of_its_study(name):
    card = catalog.card(name)
    study = catalog.load_study(card)
    _, front, body = card.path.read_text(encoding="utf-8").split("---\n", 2)
    head = yaml.safe_load(front)
    assert set(head) == {"name", "title", "field", "summary", "extras", "study_extras", "source"}
    assert head["name"] == study.name == name
    assert len(head["summary"]) <= 80
    claims = body.split("## Claims")[1].split("##")[0]
    listed = [line[2:] for line in claims.splitlines() if line.startswith("- ")]
    for item, claim in zip(listed, study.claims, strict=True):
        assert item.startswith(f"{claim.name}:")
    assert body.count("<!-- evidence -->") == body.count("<!-- /evidence -->") == 1
