"""The example of CURE: it runs, prints what it shows where that is no measurement, and what it measures holds."""

from pathlib import Path

import pages

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "cure.md"


def test_numerals(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    printed = []
    made = pages.run(page, tmp_path, lambda block, text: printed.append((block.text, text)))
    assert len(printed) == 5
    assert all(shown.strip() and text.strip() for shown, text in printed)
    for shown, text in (printed[0], printed[1]):
        assert pages.difference(shown, text) == ""
    table = made["table"]
    assert table.loc["CURE", "all"] > table.loc["k-means with labels", "all"] + 0.03
    assert table.loc["CURE", "known"] > 0.9
    assert (made["found"].labels_[made["labelled"]] == made["y"][made["labelled"]]).all()
    assert 6 <= made["guess"].n_classes_ <= 14
    assert printed[4][1].startswith("True")
