"""The page on votes by income bracket: its code runs, and prints what it shows."""

from pathlib import Path

import pages

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "llp-flow.md"


def test_the_page_prints_what_it_shows(tmp_path):
    shown = []

    def say(block, printed):
        shown.append(printed)
        different = pages.difference(block.text, printed)
        assert not different, (
            f"{different}\n(`python tests/docs/pages.py docs/examples/llp-flow.md` writes it anew)\n{printed}"
        )

    made = pages.run(PAGE.read_text(encoding="utf-8"), tmp_path, say)
    assert len(shown) == 3
    right = made["right"]
    assert right["flow"] > right["majority of the bracket"] + 0.15
    assert right["flow"] > right["with the votes"] - 0.05
