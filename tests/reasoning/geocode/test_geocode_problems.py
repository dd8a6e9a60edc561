import dataclasses
import json
import math
import random
import re
from fractions import Fraction

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
from assay.reasoning.geocode.figure import Construction, Fact, Seed
from assay.reasoning.geocode.problem import Step
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


# --- what a drawing shows beside its points ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn():
    """A foot and a midpoint with one angle in the drawing alone, a circle, and two equal sides."""
    foot = seed_of([base("triangle", "ABC", 50, 70, 8), Construction("foot", ("H",), tuple("CAB")),
                    Construction("midpoint", ("M",), tuple("AC"))])  # fmt: skip
    round_ = seed_of([base("chord", "OAB", 104, 6), Construction("on_circle", ("C",), ("O", "A"), (60, 0))])
    return {
        "foot": pose(foot, Target("angle", tuple("HCB")), marked=foot.givens[:1]),
        "chord": pose(round_, Target("angle", tuple("ACB"))),
        "sides": pose(seed_of([base("isosceles", "ABC", 40, 5)]), Target("angle", tuple("ABC"))),
    }


def redrawn(problem, **parts):
    old = problem.scene
    parts = {name: getattr(old, name) for name in ("segments", "circles", "marks")} | parts
    scene = Scene(old.points, parts["segments"], parts["circles"], parts["marks"], old.facts)
    return dataclasses.replace(problem, scene=scene, code=scene.to_matplotlib())


def blamed(problem, gate):
    """What a check says; all others but the legibility pass."""
    detail = dict(verify(problem, skip=("visual",)).detail)
    assert set(detail) == {gate}, detail
    return detail[gate]


def test_what_is_drawn_passes_as_it_is(drawn):
    for problem in drawn.values():
        assert verify(problem, skip=("visual",)).ok, verify(problem).detail


@pytest.mark.parametrize("kind", ["right", "unknown", "equal", "angle"])
def test_a_mark_that_is_missing_is_named(drawn, kind):
    for problem in drawn.values():
        marks = tuple(mark for mark in problem.scene.marks if mark.kind != kind)
        if marks != problem.scene.marks:
            assert "missing" in blamed(redrawn(problem, marks=marks), "semantic") or kind == "angle"


def test_every_kind_of_mark_is_in_the_drawings_of_these_tests(drawn):
    kinds = {mark.kind for problem in drawn.values() for mark in problem.scene.marks}
    assert kinds == {"right", "unknown", "equal", "angle"}


@pytest.mark.parametrize(
    ("mark", "match"),
    [
        (Mark("right", tuple("BAC")), "measures 50"), (Mark("right", tuple("BCH")), "measures 20"),
        (Mark("equal", tuple("ABAC"), "3"), "no reason"), (Mark("unknown", tuple("ACB"), "x"), "no reason"),
        (Mark("angle", tuple("ABC"), "50°"), "no given"), (Mark("length", tuple("AC"), "9"), "no given"),
    ],
)  # fmt: skip
def test_a_mark_that_says_what_is_not_so_is_named(drawn, mark, match):
    problem = drawn["foot"]
    assert match in blamed(redrawn(problem, marks=(*problem.scene.marks, mark)), "semantic")


def test_a_given_marked_at_another_corner_is_not_marked(drawn):
    problem = drawn["foot"]
    old = next(mark for mark in problem.scene.marks if mark.kind == "angle")
    there = Mark("angle", tuple("ABC"), old.text)
    assert old.points[1] == "A"
    marks = tuple(there if mark == old else mark for mark in problem.scene.marks)
    assert "neither in the text nor marked" in blamed(redrawn(problem, marks=marks), "semantic")


def test_an_x_at_another_corner_is_named(drawn):
    problem = drawn["foot"]
    marks = [mark for mark in problem.scene.marks if mark.kind != "unknown"]
    moved = redrawn(problem, marks=(*marks, Mark("unknown", tuple("ABC"), "x")))
    assert "what is asked" in blamed(moved, "semantic")


def test_segments_are_those_that_are_spoken_of(drawn):
    for problem in drawn.values():
        segments = problem.scene.segments
        assert "missing" in blamed(redrawn(problem, segments=()), "semantic")
        for gone in segments:
            left = tuple(pair for pair in segments if pair != gone)
            assert f"{''.join(gone)} is missing" in blamed(redrawn(problem, segments=left), "semantic")
    problem = drawn["foot"]
    more = redrawn(problem, segments=(*problem.scene.segments, ("H", "M")))
    assert "HM is drawn without reason" in blamed(more, "semantic")


def test_circles_are_those_of_the_figure(drawn):
    problem = drawn["chord"]
    ((x, y, r),) = problem.scene.circles
    for circles, match in (
        ((), "missing"), (((x, y, r + 0.02),), "missing"), (((x + 0.02, y, r),), "missing"),
        (((x, y, r), (x, y, r / 2)), "has not"),
    ):  # fmt: skip
        assert match in blamed(redrawn(problem, circles=circles), "execution")
    assert "has not" in blamed(redrawn(drawn["foot"], circles=((0.5, 0.5, 0.2),)), "execution")
    hidden = pose(seed_of([base("cyclic", "ABCD", 95, 80, 30, 7)]), Target("angle", tuple("ADC")))
    assert verify(hidden, skip=("visual",)).ok
    assert "missing" in blamed(redrawn(hidden, circles=()), "execution")


# --- solutions and second figures -------------------------------------------------------------------------------------


def test_solutions_are_read(drawn):
    problem = drawn["foot"]
    steps = problem.solution
    wrong = Step("AB = 99.", "given")
    for solution, depth, match in (
        ((wrong,), 99, "calls 'AB = 99.' given"), ((*steps[:-1], wrong, steps[-1]), problem.depth + 1, "AB = 99"),
        ((), 0, "does not end"), (steps[:-1], problem.depth, "does not end"), (steps, 99, "the depth is 99"),
        (steps[1:], problem.depth, "names"), ((steps[0], *steps), problem.depth + 1, "1 times"),
        ((*steps[:-1], dataclasses.replace(steps[-1], text="∠HCB = 21°.")), problem.depth, "does not end"),
        ((dataclasses.replace(steps[0], because="given"), *steps[1:]), problem.depth, "calls"),
    ):  # fmt: skip
        assert match in blamed(dataclasses.replace(problem, solution=solution, depth=depth), "deduction")


def test_what_holds_by_chance_is_seen_in_a_second_figure():
    steps = (base("triangle", "ABC", 50, 65, 6),)
    chance = Fact("cong", tuple("ABC"))
    seed = Seed(steps, (Given("angle", tuple("BAC"), 50),), (*seed_of(steps).facts, chance))
    problem = pose(seed, Target("angle", tuple("ABC")))
    assert problem.answer.text() == "65°"
    assert "second figure AB = AC does not hold" in problem.report.detail["deduction"]


def degrees(part):
    """Sign, weight and degrees of the terms of a sum: a right angle counts 90, what has no number 0."""
    total = Fraction(0)
    for sign, weight, half, what in re.findall(r"(− |\+ )?(?:([\d/]+) × )?(?:([\d/]+)°|\(([^)]*)\))", part):
        said = re.search(r"= ([\d/]+)°", what)
        size = Fraction(half or (said.group(1) if said else 90 if "⊥" in what else 0))
        total += (-1 if sign == "− " else 1) * Fraction(weight or 1) * size
    return total


def test_the_sum_of_an_angle_adds_up():
    third = pose(seed_of([base("triangle", "ABC", 50, 70, 8)]), Target("angle", tuple("BCA")))
    assert third.solution[-1].because.startswith("sum over the directions of the lines: 180° − (∠")
    made = [third, *generate(12, targets=("angle",), seed=9, visual_only=0)]
    for problem in made:
        part = problem.solution[-1].because.partition(": ")[2]
        assert degrees(part) == problem.answer.rational, part


def test_a_chain_of_radii_names_all_of_them():
    seed = seed_of([base("chord", "OAB", 104, 6), Construction("on_circle", ("C",), ("O", "A"), (60, 0))])
    last = pose(seed, Target("angle", tuple("ACB"))).solution[-1].because
    assert "(OA = OB and OA = OC)" in last or "(OB = OA and OA = OC)" in last
