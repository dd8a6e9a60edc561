"""The page on blood values at training time only: its code runs, and prints what it shows."""

from pathlib import Path

import pages
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "joint-privileged.md"


def test_the_page_prints_what_it_shows(tmp_path):
    pytest.importorskip("SurvSet")
    shown = []

    def say(block, printed):
        shown.append(printed)
        different = pages.difference(block.text, printed)
        assert not different, (
            f"{different}\n(`python tests/docs/pages.py docs/examples/joint-privileged.md` writes it anew)\n{printed}"
        )

    made = pages.run(PAGE.read_text(encoding="utf-8"), tmp_path, say)
    assert len(shown) == 3
    means = made["means"]
    assert (means["coupled"] > means[["W ignored", "two stages"]].max(axis=1) - 0.5).all()
