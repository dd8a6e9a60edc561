from pathlib import Path

import yaml

import assay.models.dot_moe as room
from assay.models.dot_moe.study import STUDY

TEXT = (Path(room.__file__).parent / "card.md").read_text(encoding="utf-8")


def test_front_matter_and_claims_are_those_of_the_study():
    _, front, body = TEXT.split("---\n", 2)
    head = yaml.safe_load(front)
    assert head["name"] == STUDY.name
    assert len(head["summary"]) <= 80
    assert set(head) == {"name", "title", "field", "summary", "extras", "study_extras", "source"}
    claims = body.split("## Claims")[1].split("##")[0]
    listed = [line[2:].partition(":")[0] for line in claims.splitlines() if line.startswith("- ")]
    assert listed == [claim.name for claim in STUDY.claims]
    assert body.count("<!-- evidence -->") == body.count("<!-- /evidence -->") == 1
