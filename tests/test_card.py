"""The measured part of a card: what `assay card` prints, and what it puts where."""

import os
import re
import shutil
from pathlib import Path

import pytest

from assay import catalog
from assay.errors import InputError
from assay.evidence.report import markdown

STORED = ("--storage", "sqlite:///r.db")
SMOKE = ("--budget", "smoke", *STORED)


@pytest.fixture
def room(assay, plug_in, tmp_path):
    """Run assay with a copy of the third party's package, whose card may be changed."""
    copy = tmp_path / "packages"
    shutil.copytree(plug_in, copy)

    def run(*arguments, **options):
        return assay(*arguments, env={"PYTHONPATH": str(copy)}, **options)

    run.card = copy / "trimmed_mean" / "card.md"
    run.study = copy / "trimmed_mean" / "study.py"
    return run


def test_the_measured_part_has_a_row_a_claim_and_a_row_an_arm(room):
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1")
    before = room.card.read_text()
    text = room("card", "trimmed-mean", *SMOKE).stdout
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
    assert re.search(r"Measured \d{4}-\d\d-\d\d by `assay check trimmed-mean --budget smoke --seeds 5`; .+numpy 2", text)
    assert room.card.read_text() == before


def test_update_writes_between_the_markers_and_nowhere_else(room):
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1")
    before, mode = room.card.read_text(), room.card.stat().st_mode
    room("card", "trimmed-mean", "--update", *SMOKE)
    after = room.card.read_text()
    assert after.replace(room("card", "trimmed-mean", *SMOKE).stdout, "Not measured yet.\n") == before
    assert "Words after it stay." in after
    assert room.card.stat().st_mode == mode
    assert catalog.read_card(room.card, "trimmed_mean").state == "3 of 4 judged claims supported at `smoke`"
    room("card", "trimmed-mean", "--update", *SMOKE)
    assert room.card.read_text() == after
    assert sorted(path.name for path in room.card.parent.glob("*card*")) == ["card.md"]


def test_only_a_whole_check_of_this_code_goes_into_a_card(room, tmp_path):
    def refused():
        return room("card", "trimmed-mean", "--update", *SMOKE, code=2).stderr

    assert "there is no such file" in refused()
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1", "--task", "clean")
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1", "--placebo")
    (tmp_path / "own.py").write_text("def fit(given, seed):\n    return given.mean(axis=0)\n")
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1", "--with", "mine=own:fit")
    assert "has no check of trimmed-mean at budget smoke, as it stands; `assay check" in refused()
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1")
    room("check", "trimmed-mean", *SMOKE, "--jobs", "1", "--seeds", "3")
    assert "5 seeds" in room("card", "trimmed-mean", *SMOKE).stdout  # a look at fewer seeds does not hide it
    with room.study.open("a") as study:
        study.write("\nOTHER = 1\n")
    assert "is of other code or package versions" in refused()
    assert "Not measured yet." in room.card.read_text()


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
    assert list(rows) == sorted(built_in, key=lambda name: (built_in[name].field, name))
    for card in built_in.values():
        path = card.path.relative_to(Path(__file__).parents[1])
        assert f"| [{card.name}]({path}) | {card.field} | {card.summary} | {card.state} |" in README
