"""The page on genes and lipids of mice: its code runs, and prints what it shows."""

from pathlib import Path

import pages

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "mer-dg.md"


def test_the_page_prints_what_it_shows(tmp_path):
    shown = []

    def say(block, printed):
        shown.append(printed)
        different = pages.difference(block.text, printed)
        assert not different, (
            f"{different}\n(`python tests/docs/pages.py docs/examples/mer-dg.md` writes it anew)\n{printed}"
        )

    made = pages.run(PAGE.read_text(encoding="utf-8"), tmp_path, say)
    assert len(shown) == 5
    # What the page says in words.
    report = made["report"]
    assert (report.loc[0.1, "rankme"] > 1.3 * report.loc[0, "rankme"]).all()
    assert max(made["right"].values()) - min(made["right"].values()) < 0.05
    assert not any(module._forward_hooks for module in made["net"].modules())
