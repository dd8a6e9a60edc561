import itertools
import os
import re
import subprocess
import sys

import pytest

from assay import catalog
from assay.errors import InputError
from assay.evidence.study import Budget


def test_every_built_in_card_matches_its_room_and_study():
    for card in catalog.cards().values():
        if not card.module.startswith("assay."):
            continue
        assert card.module == f"assay.{card.field}.{card.name.replace('-', '_')}"
        assert len(card.summary) <= 90
        study = catalog.load_study(card)
        roles = {arm.role for arm in study.arms}
        assert {"method", "baseline", "trivial"} <= roles, card.name
        assert study.contract
        assert study.pairs(Budget.SMOKE)
        assert min(study.seeds.values()) >= 3
        assert listed_claims(card.text, [claim.name for claim in study.claims]) == [c.name for c in study.claims]


def listed_claims(text, names):
    """The items under "## Claims": one that begins with the claim in its place gives its name, others all they say."""
    section = re.search(r"^## Claims\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    items = re.findall(r"^- (.*(?:\n  .*)*)", section[1], flags=re.MULTILINE) if section else []
    items = [" ".join(item.split()) for item in items]
    return [
        name if item == name or item.startswith(f"{name}: ") else item
        for item, name in itertools.zip_longest(items, names, fillvalue="")
        if item
    ]


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        ("## Claims\n\n- one: why\n- two: halves\n\nText.\n\n## Next\n- three\n", ["one", "two: halves"]),
        ("## Claims\n- one\n  and a half: why\n- two: halves: of it\n", ["one and a half: why", "two: halves"]),
        ("## Claims\n- two: halves\n- one\n", ["two: halves", "one"]),
        ("## Claims\n- one\n", ["one"]),
        ("## Claims\n- one\n- two: halves\n- three: more\n", ["one", "two: halves", "three: more"]),
        ("no such heading", []),
    ],
)
def test_claims_are_read_from_a_card(text, listed):
    assert listed_claims(text, ["one", "two: halves"]) == listed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no front matter", "must begin with front matter"),
        ("---\nname: x\n", "must begin with front matter"),
        ("---\nname: x\n---\nbody", "needs 'title'"),
        ("---\n[1, 2]\n---\nbody", "names and values"),
        ("---\nname: [unclosed\n---\nbody", "no YAML"),
        ("---\nname: !!python/object/apply:os.system ['true']\n---\n", "no YAML"),
    ],
)
def test_a_bad_card_is_refused_with_its_path(tmp_path, text, words):
    path = tmp_path / "card.md"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as error:
        catalog.read_card(path, "x.y")
    assert str(path) in str(error.value)


def test_a_broken_plug_in_is_named_and_does_not_stop_the_others(tmp_path):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[assay.methods]\nbroken = no_such_package\nknockoff-pca = json\n")
    done = subprocess.run(
        [sys.executable, "-c", "from assay.cli import main; main()", "list"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert "knockoff-pca" in done.stdout
    assert "the plug-in 'broken' is left out: no_such_package is no package with a card.md" in done.stderr
    assert "the plug-in 'knockoff-pca' is left out" in done.stderr
