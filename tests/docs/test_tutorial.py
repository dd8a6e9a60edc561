"""Whatever the documentation tells to type is typed here, and what it shows is what is printed."""

import re
from pathlib import Path

import numpy as np
import pages
import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("index.md", "tutorial.md", "concepts.md", "verdicts.md")


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_shows_is_what_is_printed(tmp_path, name):
    shown = []

    def say(block, printed):
        shown.append(block)
        different = pages.difference(block.text, printed)
        assert not different, (
            f"{name}: {different}\n(`python tests/docs/pages.py docs/{name}` writes it anew)\n{printed}"
        )

    pages.run((ROOT / "docs" / name).read_text(encoding="utf-8"), tmp_path, say, shell=pages.commands)
    assert shown


def test_the_readmes_commands_run(tmp_path):
    """At the smallest budget: the README leaves the budget to the reader."""

    def small(script):
        return re.sub(r"(?m)^assay check", "assay check --budget smoke --seeds 1", pages.commands(script))

    np.savetxt(tmp_path / "mine.csv", np.random.default_rng(0).normal(size=(60, 5)), delimiter=",")
    pages.run((ROOT / "README.md").read_text(encoding="utf-8"), tmp_path, lambda *_: None, shell=small)
    assert (tmp_path / "assay.db").exists()


TABLE = """
 arm   role     T1   CPU s   peak MiB
 ─────────────────────────────────────
 ours  method   96.4  0.06       1.77
"""


@pytest.mark.parametrize(
    ("shown", "printed", "differs"),
    [
        ("3 tasks, 0.5 s", "3  tasks, 0.5 s\n", False),
        ("mean 96.4", "mean 96.3", False),
        ("mean 96.4", "mean 92.1", True),
        ("12 seeds", "13 seeds", True),
        ("-1.23 to 2.29", "1.23 to 2.29", True),
        ("supported", "not supported", True),
        ("one\n…\nfour", "one\n\ntwo\nthree\n\nfour", False),
        ("one\n…\nfour", "one\n\ntwo\nthree", True),
        ("one", "one\ntwo", True),
        ("a b\nc\n\nd", "a\nb c\n\nd", False),
        ("a b\n\nc", "a b", True),
        (TABLE, TABLE.replace("0.06", "0.31").replace("1.77", "12.5"), False),
        (TABLE, TABLE.replace("96.4", "56.4"), True),
        ("ours takes 2 times the CPU time of pca", "ours takes 31 times the CPU time of pca", False),
    ],
)
def test_numbers_may_differ_in_the_last_digit_costs_freely_and_words_not_at_all(shown, printed, differs):
    assert bool(pages.difference(shown, printed)) == differs


def test_blocks_are_found_with_their_titles():
    page = 'x\n```python title="mine.py"\na = 1\n```\n\n```bash\nassay list\n```\n```text title="Output"\n…\n```\n'
    found = pages.blocks(page)
    assert [(b.language, b.file, b.text) for b in found] == [
        ("python", "mine.py", "a = 1\n"),
        ("bash", "", "assay list\n"),
        ("text", "", "…\n"),
    ]
    assert pages.blocks("```python\n# own.py, where you run assay\nb = 2\n```\n")[0].file == "own.py"
