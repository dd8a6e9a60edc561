"""The page on a small breast cancer study: its code runs, and prints what it shows."""

from pathlib import Path

import pages

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "clkd.md"


def test_the_page_prints_what_it_shows(tmp_path):
    shown = []

    def say(block, printed):
        shown.append(printed)
        different = pages.difference(block.text, printed)
        assert not different, (
            f"{different}\n(`python tests/docs/pages.py docs/examples/clkd.md` writes it anew)\n{printed}"
        )

    made = pages.run(PAGE.read_text(encoding="utf-8"), tmp_path, say)
    assert len(shown) == 4
    mean = made["found"].groupby("women").mean()
    assert mean.loc[40, "clkd"] > max(mean.loc[40, "study alone"], mean.loc[40, "index alone"])
    gain = mean["clkd"] - mean["study alone"]
    assert gain[40] > gain[150]
