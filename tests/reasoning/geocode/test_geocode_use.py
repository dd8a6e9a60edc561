import dataclasses
import json
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from assay.errors import InputError, MissingPart
from assay.reasoning.geocode import (
    Problem,
    Style,
    generate,
    grade,
    read_code,
    read_dataset,
    render,
    verify,
    write_dataset,
)
from assay.reasoning.geocode.image import drawn_style
from assay.reasoning.geocode.use import app


@pytest.fixture(scope="module")
def problems():
    return generate(4, seed=61, visual_only=1.0)


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=True)


def test_datasets_loads_what_was_written(problems, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    write_dataset(problems, tmp_path / "d", size=96)
    for i, where in enumerate((("imagefolder", tmp_path / "d/train"), (str(tmp_path / "d"), None))):
        loaded = datasets.load_dataset(
            where[0], data_dir=where[1] and str(where[1]), split="train", cache_dir=str(tmp_path / f"cache{i}")
        )
        assert len(loaded) == len(problems)
        rows = {row["id"]: row for row in loaded}
        for problem in problems:
            row = rows[problem.id]
            assert row["image"].size == (96, 96)
            assert (row["answer"], row["depth"]) == (problem.answer.text(), problem.depth)
            roles = [message["role"] for message in row["messages"]]
            assert roles == ["user", "assistant", "user", "assistant"]
            # the drawing code is a turn of its own, before the answer
            assert read_code(row["messages"][1]["content"]) == problem.scene
            assert "boxed" not in row["messages"][1]["content"]
            assert grade(row["messages"][3]["content"], problem.answer)


def test_files_are_never_overwritten(problems, tmp_path):
    for fmt, name in (("hf", "d"), ("jsonl", "p.jsonl"), ("pdf", "p.pdf")):
        write_dataset(problems[:1], tmp_path / name, fmt=fmt, size=64)
        before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
        with pytest.raises(InputError, match="exists"):
            write_dataset(problems, tmp_path / name, fmt=fmt, size=64)
        assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    result = run("make", "--n", 1, "--out", tmp_path / "p.jsonl", "--fmt", "jsonl")
    assert isinstance(result.exception, InputError)


def test_the_same_seed_writes_the_same_bytes_whatever_the_workers(problems, tmp_path):
    again = generate(2, seed=61, visual_only=1.0, workers=2)
    for name, made in (("a", problems[:2]), ("b", again)):
        write_dataset(made, tmp_path / name, size=96)
        write_dataset(made, tmp_path / f"{name}.pdf", fmt="pdf")
    a, b = (sorted(p for p in (tmp_path / name).rglob("*") if p.is_file()) for name in "ab")
    assert [p.name for p in a] == [p.name for p in b]
    assert all(p.read_bytes() == q.read_bytes() for p, q in zip(a, b, strict=True))
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()


def test_a_sheet_has_all_problems_and_their_solutions(problems, tmp_path):
    from assay.reasoning.geocode.dataset import write_sheet

    one = write_sheet(problems[:1], tmp_path / "one.pdf").read_bytes()
    more = write_sheet([*problems, *(dataclasses.replace(p, id=p.id + "b") for p in problems)], tmp_path / "m.pdf")
    assert one.count(b"/Type /Page\n") + one.count(b"/Type /Page ") == 2
    pages = more.read_bytes()
    assert pages.count(b"/Type /Page\n") + pages.count(b"/Type /Page ") == 2 + 2  # four a page, then as fit


def test_distractors_are_true_and_not_needed():
    problems, surplus = generate(3, seed=71, distractors=True), 0
    plain = generate(3, seed=71)
    for problem in problems:
        assert verify(problem).ok, verify(problem).detail
        said = " ".join(step.text for step in problem.solution[:-1])
        unused = [given for given in problem.seed.givens if given.text() not in said]
        surplus += len(unused)
        assert len(unused) <= 2
        assert not any(grade(f"\\boxed{{{given.value}}}", problem.answer) for given in problem.seed.givens)
    assert surplus
    assert sum(len(p.seed.givens) for p in plain) < sum(len(p.seed.givens) for p in problems)


def test_options_hold():
    for problem in generate(3, seed=81, steps=(1, 3), min_depth=5, targets=["angle"], visual_only=0):
        assert problem.target.kind == "angle"
        assert problem.depth >= 5
        assert 2 <= len(problem.seed.constructions) <= 4
        assert "marked" not in problem.text
        assert all(given.text() in problem.text for given in problem.seed.givens)
    drawn = generate(3, seed=82, visual_only=1)
    assert all("marked in the figure" in problem.text for problem in drawn)
    assert all(verify(problem).ok for problem in drawn)
    with pytest.raises(InputError, match="distractors"):
        generate(1, distractors=1)


def test_styles_change_pixels_and_nothing_else(problems):
    scene = problems[0].scene
    plain = np.asarray(render(scene, 128))
    images = [np.asarray(render(scene, 128, seed=seed)) for seed in range(8)]
    assert all(np.array_equal(image, np.asarray(render(scene, 128, seed=i))) for i, image in enumerate(images))
    assert len({image.tobytes() for image in images}) == 8
    for seed, image in enumerate(images):
        style, ink = drawn_style(seed), image < (drawn_style(seed).ink + drawn_style(seed).paper) / 2
        assert abs(style.ink - style.paper) >= 80
        # lines stand where they stood, give or take a hand's wobble and a wider pen
        there = plain < 128
        wide = sum(np.roll(ink, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) > 0
        assert (there & wide).sum() > 0.9 * there.sum()
    assert np.asarray(render(scene, 128, style=Style(ink=255, paper=0))).mean() < 100  # chalk on a board
    for change, match in (({"line": 0}, "style.line"), ({"ink": 250}, "differ"), ({"noise": float("nan")}, "noise")):
        with pytest.raises(InputError, match=match):
            Style(**change)
    with pytest.raises(InputError, match="style must"):
        render(scene, style="bold")
    with pytest.raises(InputError, match="seed must"):
        render(scene, seed=1.5)


@pytest.mark.parametrize(("gone", "work"), [("PIL", "image"), ("mpmath", "oracle"), ("highspy", "solve")])
def test_missing_packages_are_named(problems, monkeypatch, gone, work):
    from assay.reasoning.geocode import deduce
    from assay.reasoning.geocode.checks import oracle

    problem = problems[0]
    for name in [name for name in sys.modules if name == gone or name.startswith(f"{gone}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, gone, None)
    known = deduce(problem.seed.facts, problem.coords, problem.seed.givens)
    todo = {
        "image": lambda: render(problem.scene),
        "oracle": lambda: oracle(problem),
        "solve": lambda: known.solve(problem.target),
    }
    with pytest.raises(MissingPart, match="pip install"):
        todo[work]()


def test_commands_with_options(tmp_path):
    result = run(
        "make", "--n", 2, "--out", tmp_path / "d", "--seed", 4, "--steps", 1, 2, "--target", "length",
        "--target", "ratio", "--distractors", "--styles", "--size", 96,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    made = read_dataset(tmp_path / "d")
    assert {p.target.kind for p in made} <= {"length", "ratio"}
    image = np.asarray(Image.open(tmp_path / "d/train" / f"{made[0].id}.png"))
    assert not np.array_equal(image, np.asarray(render(made[0].scene, 96)))
    assert run("sheet", "--n", 1, "--out", tmp_path / "s.pdf", "--target", "angle").exit_code == 0
    page = (tmp_path / "d/README.md").read_text()
    assert all(problem.text in page for problem in made)
    assert Image.open(tmp_path / "d/overview.png").size[0] > 256
    rows = [{"id": made[0].id, "answer": made[0].answer.text(), "code": made[0].scene.to_svg()}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run("score", tmp_path / "p.jsonl", tmp_path / "d", "--out", tmp_path / "scores").exit_code == 0
    lines = (tmp_path / "scores/scores.csv").read_text().splitlines()
    assert len(lines) == 3
    assert "scores.png" in (tmp_path / "scores/report.md").read_text()
    twice = run("score", tmp_path / "p.jsonl", tmp_path / "d", "--out", tmp_path / "scores")
    assert isinstance(twice.exception, InputError | OSError)


def test_long_solutions_run_over_pages():
    from assay.reasoning.geocode.dataset import LINES, _pages

    blocks = [[f"{i} {k}" for k in range(size)] for i, size in enumerate((10, 65, 3, 200, 1))]
    pages = _pages(blocks)
    assert all(0 < len(page) <= LINES for page in pages)
    assert [line for page in pages for line in page if line] == [line for block in blocks for line in block]
    assert pages[0][-1] == "0 9"  # the second block begins a page, since it does not fit


def test_files_as_other_programs_write_them(problems, tmp_path):
    data, answers = tmp_path / "d.jsonl", tmp_path / "answers.txt"
    write_dataset(problems, data, fmt="jsonl")
    rows = [
        json.dumps({"id": p.id, "answer": p.answer.text(), "note": "a\u2028b"}, ensure_ascii=False) for p in problems
    ]
    answers.write_bytes("\r\n".join(rows).encode("utf-8-sig"))
    result = CliRunner().invoke(app, ["score", str(answers), str(data), "-o", str(tmp_path / "s")])
    assert result.output.startswith("1.000 right"), result.exception
    for text, match in (("", "no prediction"), ('{"id":[1],"answer":"1"}', "no problem"), (None, "is a folder")):
        place = tmp_path / "bad" if text is not None else tmp_path
        if text is not None:
            place.write_text(text)
        result = CliRunner().invoke(app, ["score", str(place), str(data), "-o", str(tmp_path / "t")])
        assert isinstance(result.exception, InputError)
        assert match in str(result.exception)


@pytest.mark.parametrize(
    ("key", "value"),
    [("depth", float("inf")), ("answer_exact", ["length", "3", float("inf")]), ("answer_exact", ["angle", "1e400", 1]),
     ("givens", [["length", ["A", "B"], "1000000000000000003"]]), ("facts", [["ratio", ["A", "B", "A", "C"], "0"]]),
     ("constructions", [["triangle", "ABC", "", ["a", 1, 2]]]), ("target", ["angle", ["A", "A", "B"]])],
)  # fmt: skip
def test_strange_rows_are_refused_and_name_their_key(problems, key, value):
    with pytest.raises(InputError, match=f"{key} of a problem"):
        Problem.from_dict({**problems[0].to_dict(), key: value})


def test_a_row_whose_figure_lacks_a_point_fails_its_checks(problems):
    checks = verify(dataclasses.replace(problems[0], coords={"A": (0.0, 0.0)}))
    assert "there is no point" in checks.detail["coordinate"]
