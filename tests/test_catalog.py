import os
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
        missing = [claim.name for claim in study.claims if claim.name not in card.text]
        assert not missing, f"the card of {card.name} does not name the claims {missing}"


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
