import dataclasses
import json
import math
import random

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from assay.errors import InputError
from assay.reasoning.geocode import (
    Given,
    Problem,
    Rejected,
    Target,
    generate,
    layout,
    pose,
    read_dataset,
    seed_of,
    verify,
    write_dataset,
)
from assay.reasoning.geocode.checks import GATES
from assay.reasoning.geocode.constructions import OPS
from assay.reasoning.geocode.faults import FAULTS
from assay.reasoning.geocode.figure import Construction
from assay.reasoning.geocode.scene import Mark, Scene
from assay.reasoning.geocode.use import app
from assay.reasoning.geocode.wording import read_problem, read_question, sentence, spoken

SEES = {
    "wrong given": {"coordinate", "deduction"},
    "slid point": {"coordinate"},
    "false fact": {"coordinate", "semantic"},
    "wrong answer": {"deduction"},
    "changed number": {"semantic"},
    "lost mark": {"semantic"},
    "swapped labels": {"execution"},
    "changed code": {"execution"},
    "illegible": {"visual"},
}


@pytest.fixture(scope="module")
def problems():
    return generate(6, seed=41, visual_only=0.7)


def test_problems_pass_their_checks_and_are_deep(problems):
    for problem in problems:
        assert verify(problem).ok, verify(problem).detail
        assert problem.report.ok
        assert problem.depth >= 4
        assert len(problem.solution) > problem.depth
        assert problem.answer.text() in problem.solution[-1].text
        points = set(problem.seed.points)
        assert points == set(problem.coords) == set(problem.scene.points)


def test_same_seed_same_problems_and_other_seed_others(problems):
    again = generate(2, seed=41, visual_only=0.7)
    assert [p.to_dict() for p in again] == [p.to_dict() for p in problems[:2]]
    assert generate(1, seed=42)[0].to_dict()["text"] != problems[0].text


def test_problems_survive_json(problems):
    for problem in problems:
        there = Problem.from_dict(json.loads(json.dumps(problem.to_dict())))
        assert there == dataclasses.replace(problem, report=None)


@pytest.mark.parametrize("name", list(FAULTS))
def test_each_fault_is_seen_by_its_check(problems, name):
    rng, seen = random.Random(1), 0
    for problem in problems:
        broken = FAULTS[name](problem, rng)
        if broken is None:
            continue
        failed = set(verify(broken).detail)
        assert failed & SEES[name] == SEES[name], (name, failed)
        assert verify(broken, skip=tuple(GATES)).ok
        seen += 1
    assert seen


@pytest.mark.parametrize("op", list(OPS))
def test_every_sentence_reads_back(op):
    letters = iter("ABCDEFGHIJKL")
    args = tuple(next(letters) for _ in range(OPS[op].args))
    out = tuple(next(letters) for _ in range(OPS[op].outs))
    steps, givens, marked = read_problem(sentence(Construction(op, out, args)))
    assert steps == [(spoken(op), out, args)]
    assert (givens, marked) == ([], False)


@pytest.mark.parametrize(
    "text", ["Draw a circle.", "ABC is a triangle", "Given: AB is 7.", "Given: AB = 7°.", "Given: ∠ABC = 7."]
)
def test_other_sentences_are_refused(text):
    with pytest.raises(InputError):
        read_problem(text)


def test_questions_read_back():
    for target in (Target("angle", tuple("ABC")), Target("length", tuple("AB")), Target("ratio", tuple("ABCD"))):
        from assay.reasoning.geocode.wording import question

        assert read_question(question(target)) == target
    with pytest.raises(InputError, match="no question"):
        read_question("Why?")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n": 0}, "n must be"), ({"n": 2.5}, "n must be"), ({"steps": (3, 1)}, "steps"), ({"steps": 3}, "steps"),
        ({"min_depth": 0}, "min_depth"), ({"targets": "angle"}, "targets"), ({"targets": ["area"]}, "targets"),
        ({"targets": []}, "targets"), ({"visual_only": 2}, "visual_only"), ({"visual_only": math.nan}, "visual_only"),
        ({"seed": -1}, "seed"), ({"workers": 0}, "workers"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(change, match):
    with pytest.raises(InputError, match=match):
        generate(**{"n": 1, **change})


@pytest.mark.parametrize(
    "key", ["constructions", "givens", "facts", "target", "answer_exact", "coords", "scene", "text", "depth"]
)
def test_broken_rows_name_their_key(problems, key):
    raw = problems[0].to_dict()
    with pytest.raises(InputError, match=key):
        Problem.from_dict({**raw, key: 5 if key == "text" else "what"})
    with pytest.raises(InputError, match=key):
        Problem.from_dict({k: v for k, v in raw.items() if k != key})


def test_verify_takes_problems(problems):
    with pytest.raises(TypeError, match="problem must be"):
        verify("a problem")
    with pytest.raises(InputError, match="skip"):
        verify(problems[0], skip=("taste",))


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=True)


def test_data_set_has_the_layout_that_image_folders_have(problems, tmp_path):
    write_dataset(problems, tmp_path / "d", size=128)
    rows = [json.loads(line) for line in (tmp_path / "d/train/metadata.jsonl").read_text().splitlines()]
    assert {row["file_name"] for row in rows} == {p.name for p in (tmp_path / "d/train").glob("*.png")}
    types = [{key: type(value) for key, value in row.items()} for row in rows]
    assert all(t == types[0] for t in types)  # Arrow needs one type a column
    assert [list(m) for row in rows for m in row["messages"]] == [["role", "content"]] * 4 * len(rows)
    image = Image.open(tmp_path / "d/train" / rows[0]["file_name"])
    assert image.size == (128, 128)
    assert np.asarray(image).min() < 50
    assert read_dataset(tmp_path / "d") == [dataclasses.replace(p, report=None) for p in problems]
    assert "overview.png" in (tmp_path / "d/README.md").read_text()
    assert run("verify", tmp_path / "d").exit_code == 0


def test_commands(problems, tmp_path):
    result = run("make", "--n", 2, "--out", tmp_path / "d", "--target", "angle", "--seed", 2)
    assert result.exit_code == 0, result.output
    assert isinstance(run("make", "--n", 2, "--out", tmp_path / "d").exception, InputError)
    made = read_dataset(tmp_path / "d")
    lines = [
        {"id": made[0].id, "completion": f"```json\n{made[0].scene.to_json()}\n```\n\\boxed{{{made[0].answer.text()}}}"}
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = run("score", tmp_path / "p.jsonl", tmp_path / "d", "--out", tmp_path / "s")
    assert result.exit_code == 0, result.output
    mean = json.loads((tmp_path / "s/scores.json").read_text())["mean"]
    assert (mean["right"], mean["answered"], mean["code"]) == (0.5, 0.5, 0.5)
    assert (tmp_path / "s/scores.png").stat().st_size > 1000
    for bad, match in (
        ({"id": "none", "code": ""}, "no problem"),
        ({"id": made[0].id}, "is needed"),
        ({"id": made[0].id, "code": 3}, "must be a text"),
    ):
        (tmp_path / "b.jsonl").write_text(json.dumps(bad))
        error = run("score", tmp_path / "b.jsonl", tmp_path / "d", "--out", tmp_path / "x").exception
        assert isinstance(error, InputError)
        assert match in str(error)
    broken = made[0].to_dict() | {"text": made[0].text.replace(" is ", " was ")}
    (tmp_path / "d.jsonl").write_text(json.dumps(broken))
    result = run("verify", tmp_path / "d.jsonl")
    assert result.exit_code == 1
    assert "semantic" in result.output
    write_dataset(problems[:2], tmp_path / "sheet.pdf", fmt="pdf")
    assert (tmp_path / "sheet.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("content", "match"),
    [("", "no problem"), ("[1]", "object"), ("{", "line 1 is no JSON"), ('{"problem": "{"}', "no JSON"),
     ('{"id": "x"}', "needs the key")],
)  # fmt: skip
def test_files_that_are_no_data_set(tmp_path, content, match):
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(InputError, match=match):
        read_dataset(tmp_path / "x.jsonl")


def test_writing_refuses(problems, tmp_path):
    for change, match in (
        ({"fmt": "csv"}, "fmt"),
        ({"problems": []}, "at least one"),
        ({"problems": [problems[0]] * 2}, "twice"),
    ):
        with pytest.raises(InputError, match=match):
            write_dataset(**{"problems": problems, "out": tmp_path / "x", **change})


def base(op, out, *param):
    return Construction(op, tuple(out), (), param)


def test_own_seeds_become_problems():
    seed = seed_of([base("triangle", "ABC", 50, 70, 8), Construction("incentre", ("I",), tuple("ABC"))])
    problem = pose(seed, Target("angle", tuple("BIC")), name="mine", marked=seed.givens[2:])
    assert problem.answer.text() == "115°"
    assert problem.report.ok, problem.report.detail
    assert "AB = 8" not in problem.text
    assert "∠ABC = 70°" in problem.text
    assert any(mark.text == "8" for mark in problem.scene.marks)
    turned = pose(seed, Target("angle", tuple("BIC")), turn=3)
    assert turned.answer == problem.answer
    assert turned.coords != problem.coords
    # a side that no construction draws is drawn where it is asked for
    seed = seed_of([base("chord", "OAB", 104, 6), Construction("on_circle", ("C",), ("O", "A"), (60, 0))])
    assert ("B", "C") in pose(seed, Target("angle", tuple("ACB"))).scene.segments
    with pytest.raises(InputError, match="does not follow"):
        pose(seed_of(seed.constructions, []), Target("angle", tuple("ACB")))
    with pytest.raises(InputError, match="no given of the seed"):
        pose(seed, Target("angle", tuple("ACB")), marked=[Given("length", ("O", "A"), 7)])
    with pytest.raises(Rejected, match="parallel"):
        pose(seed_of([base("rectangle", "ABCD", 4, 6), Construction("meet", ("X",), tuple("ABCD"))]),
             Target("angle", tuple("ABC")))  # fmt: skip


def test_right_angles_and_equal_halves_are_marked():
    seed = seed_of([
        base("triangle", "ABC", 50, 70, 8), Construction("foot", ("H",), tuple("CAB")),
        Construction("midpoint", ("M",), tuple("AC")),
    ])  # fmt: skip
    marks = pose(seed, Target("angle", tuple("HCB"))).scene.marks
    kinds = {mark.kind: mark for mark in marks}
    assert kinds["right"].points[1] == "H"
    assert "C" in kinds["right"].points
    assert set(kinds["equal"].points) == {"A", "M", "C"}
    assert kinds["unknown"].points[1] == "C"


def test_problems_keep_the_least_number_of_constructions(problems):
    assert all(len(problem.seed.constructions) > 2 for problem in problems)


def gap(at, scene, pair):
    """The distance of a text's centre from a segment, by its nearest of many points."""
    a, b = (np.array(scene.points[name]) for name in pair)
    return np.linalg.norm(a + np.linspace(0, 1, 2001)[:, None] * (b - a) - at, axis=1).min()


def test_a_length_s_text_is_clearly_that_of_its_own_segment(problems):
    made = [*problems, *generate(15, targets=("length", "ratio"), visual_only=1.0, seed=31)]
    texts_of_lengths = 0
    for problem in made:
        scene = problem.scene
        for text in layout.texts(scene):
            if not isinstance(text.owner, str) and text.owner.kind == "length":
                own = gap(text.at, scene, text.owner.points)
                others = [pair for pair in scene.segments if set(pair) != set(text.owner.points)]
                assert min(gap(text.at, scene, pair) for pair in others) > 1.3 * own
                texts_of_lengths += 1
    assert texts_of_lengths >= 10


def test_a_length_between_two_close_segments_is_refused():
    scene = Scene(
        {"A": (0.1, 0.5), "B": (0.9, 0.5), "C": (0.1, 0.44), "D": (0.9, 0.44), "E": (0.1, 0.56), "F": (0.9, 0.56)},
        (("A", "B"), ("C", "D"), ("E", "F")), (), (Mark("length", ("A", "B"), "7"),),
    )  # fmt: skip
    (seven,) = (text for text in layout.texts(scene) if text.text == "7")
    assert layout.astray(scene, seven)
    alone = dataclasses.replace(scene, segments=(("A", "B"),))
    (seven,) = (text for text in layout.texts(alone) if text.text == "7")
    assert not layout.astray(alone, seven)
