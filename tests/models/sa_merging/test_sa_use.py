import json

import peft
import pytest
import sa_merging_models as tiny
import torch
from test_sa_lora import saved
from typer.testing import CliRunner

from assay.models.sa_merging import merge
from assay.models.sa_merging.use import app

RUN = CliRunner()


@pytest.fixture
def home(tmp_path):
    base = tiny.build("llama")
    base.save_pretrained(tmp_path / "base")
    for n in (1, 2):
        tiny.expert_of(base, n).save_pretrained(tmp_path / f"e{n}")
    return tmp_path


def test_a_merged_folder_and_its_report(home):
    done = RUN.invoke(
        app, [*map(str, (home / "base", home / "e1", home / "e2")), "--out", str(home / "m"), "--keep", "0.4"]
    )
    assert done.exit_code == 0, done.output
    assert "what was kept of 2 experts" in done.output
    expected = merge(tiny.build("llama"), [tiny.expert_of(tiny.build("llama"), n) for n in (1, 2)], keep=0.4)
    found = type(expected).from_pretrained(home / "m")
    for a, b in zip(found.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    report = json.loads((home / "m" / "merge_report.json").read_text())
    assert report["settings"]["keep"] == 0.4
    assert "# Merge report" in (home / "m" / "merge_report.md").read_text()


def test_a_merged_adapter(home, tmp_path):
    folders = saved(tmp_path)
    done = RUN.invoke(app, [*map(str, (home / "base", *folders)), "--lora", "-o", str(home / "a")])
    assert done.exit_code == 0, done.output
    assert peft.PeftModel.from_pretrained(tiny.build("llama"), home / "a") is not None
    assert "ranks" in (home / "a" / "merge_report.md").read_text()


def test_options_without_a_meaning_are_refused(home, tmp_path):
    folders = saved(tmp_path)
    for extra in (["--include", "*"], ["--scale", "2"], ["--mode", "abs"]):
        done = RUN.invoke(app, [*map(str, (home / "base", *folders)), "--lora", "-o", str(home / "a"), *extra])
        assert "has no meaning with --lora" in str(done.exception)
    assert not (home / "a").exists()


def test_notes_reach_the_user(home):
    done = RUN.invoke(app, [*map(str, (home / "base", home / "e1")), "-o", str(home / "m"), "--connectivity", "none"])
    assert done.exit_code == 0
    assert "every sensitivity is 1" in (home / "m" / "merge_report.md").read_text()


def test_through_the_command_line(home, assay):
    done = assay("use", "sa-merging", home / "base", home / "e1", home / "gone", "--out", home / "m", code=2)
    assert "gone is no folder" in done.stderr + done.stdout
    assert not (home / "m").exists()
