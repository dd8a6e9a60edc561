import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.geocode import Fact, Mark, ParseError, Scene, generate, read_code, render, reward_func, score_code
from assay.reasoning.geocode.score import _holds


@pytest.fixture(scope="module")
def problems():
    return generate(5, seed=21, visual_only=1.0)


@pytest.fixture(scope="module")
def scene():
    marks = (Mark("angle", ("B", "A", "C"), "50°"), Mark("right", ("A", "H", "C")), Mark("length", ("A", "B"), "7"))
    points = {"A": (0.1, 0.1), "B": (0.9, 0.15), "C": (0.5, 0.8), "H": (0.542, 0.128)}
    facts = (Fact("perp", tuple("CHAB")), Fact("coll", tuple("HAB")))
    return Scene(points, (("A", "B"), ("B", "C"), ("C", "A"), ("C", "H")), ((0.5, 0.4, 0.3),), marks, facts)


def test_code_reads_back_as_the_scene(problems, scene):
    for one in [scene, *(p.scene for p in problems)]:
        assert read_code(one.to_matplotlib()) == one
        assert read_code(one.to_json()) == one
        assert Scene.from_json(one.to_json()).to_json() == one.to_json()
        assert read_code(f"Here it is:\n```python\n{one.to_matplotlib()}```\nDone.") == one
        assert read_code(one.to_svg()) == one
        assert one.to_tikz().count("\\coordinate") == len(one.points)
        assert score_code(one, one).total == 1


def test_the_script_really_draws_it(scene, tmp_path):
    """The script is ours, so that it may be run here: its lines are compared with what was read."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = {}
    exec(compile(scene.to_matplotlib().replace("plt.show()", ""), "script", "exec"), names)
    lines = [line for line in names["ax"].lines if (line.get_gid() or "").startswith("segment")]
    ends = sorted(tuple(np.round(line.get_xydata().ravel(), 3)) for line in lines)
    assert ends == sorted((*scene.points[a], *scene.points[b]) for a, b in scene.segments)
    plt.close(names["fig"])


def test_a_script_without_names_is_understood():
    code = """
import matplotlib.pyplot as plt
fig, ax = plt.subplots()
ax.plot([0, 1], [0, 0])
ax.plot([1, 0, 0], [0, 1, 0], color="red")
ax.text(1.03, 0.03, "B")
"""
    read = read_code(code)
    assert len(read.points) == 3
    assert len(read.segments) == 3
    assert read.points["B"] == (1, 0)


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch {file}')",
        "import os\nos.system('touch {file}')",
        "ax.plot([0, 1], [0, __import__('os').system('touch {file}')])",
        "ax.plot([0, 1], [0, 1], **{{'gid': 'segment A B'}})",
        "fig, ax = plt.subplots(num=open('{file}', 'w'))",
        "ax.figure.savefig('{file}')",
        "plt.savefig('{file}')",
        "for i in range(9): ax.plot([i], [i])",
        "x = [ax.plot([0], [0])]",
        "(lambda: open('{file}', 'w'))()",
        "ax.plot([0, 1e999], [0, 1])",
        "ax.plot([0, float('nan')], [0, 1])",
        "ax.plot([0, 1], [0])",
        "ax.plot([0, 1], [0, 1], gid=3)",
        "ax.text(0, 0)",
        "ax.add_patch(plt.Circle((0, 0), -1))",
        "ax.add_patch(plt.Polygon([[0, 0]]))",
        '{{"points":{{"A":[0,NaN]}}}}',
        '{{"points":{{"A":[0,Infinity]}}}}',
        '{{"points":{{"A":[0]}}}}',
        '{{"points":{{"A":[0,0]}},"segments":[["A","B"]]}}',
        '{{"points":{{"A":[0,0]}},"segments":[["A","A"]]}}',
        '{{"points":{{"A":[0,0]}},"code":1}}',
        '{{"points":{{"A":[0,0]}},"marks":[["blob",["A"],"x"]]}}',
        '{{"points":{{"A":[0,0]}},"marks":[["angle",["A"],"x"]]}}',
        '{{"points":{{"A":[0,0]}},"marks":[[["a"],["A"],"x"]]}}',
        '{{"points":{{"A":[0,0]}},"circles":[[0,0,0]]}}',
        '{{"points":[]}}',
        '<!DOCTYPE svg [<!ENTITY a "b">]><svg/>',
        '<svg><script>alert(1)</script></svg>',
        '<svg><line x1="nan" y1="0" x2="1" y2="0"/></svg>',
        '<svg><line x1="a"/></svg>',
        "<svg>",
        "((((" * 3000,
        "[" * 90_000,
        "x" * 200_000,
        "",
        "   ",
    ],
)  # fmt: skip
def test_nothing_is_executed_and_bad_code_is_refused(code, tmp_path):
    file = tmp_path / "made"
    with pytest.raises(ParseError):
        read_code(code.format(file=file) if len(code) < 300 else code)
    assert not file.exists()
    assert score_code(code, Scene({"A": (0, 0), "B": (1, 1)}, (("A", "B"),))).total == 0


def test_code_must_be_text():
    with pytest.raises(ParseError, match="must be a text"):
        read_code(3)


def renamed(scene, to):
    marks = tuple(Mark(m.kind, tuple(to[n] for n in m.points), m.text) for m in scene.marks)
    points = {to[n]: at for n, at in reversed(scene.points.items())}
    return Scene(points, tuple((to[b], to[a]) for a, b in reversed(scene.segments)), scene.circles, marks)


def test_names_and_order_do_not_count(scene):
    assert score_code(renamed(scene, dict(zip("ABCH", "PXQA", strict=True))), scene).total == 1


def test_what_is_missing_or_made_up_costs(scene):
    whole = score_code(scene, scene)
    fewer = score_code(Scene(scene.points, scene.segments[:-1], scene.circles, scene.marks), scene)
    assert fewer.segment_f1 == pytest.approx(2 * 3 / 7)
    assert whole.segment_f1 == 1
    no_marks = score_code(Scene(scene.points, scene.segments, scene.circles), scene)
    assert no_marks.annotation == 0
    wrong = tuple(Mark(m.kind, m.points, "51°" if m.text == "50°" else m.text) for m in scene.marks)
    assert score_code(Scene(scene.points, scene.segments, scene.circles, wrong), scene).annotation == pytest.approx(
        2 / 4
    )
    assert score_code(Scene(scene.points, scene.segments, (), scene.marks), scene).circle_f1 == 0
    bent = {**scene.points, "H": (0.58, 0.13)}
    assert score_code(Scene(bent, scene.segments, scene.circles, scene.marks), scene).fidelity == 0.5


def test_a_mirrored_drawing_keeps_its_facts_and_loses_its_places(scene):
    mirrored = Scene({n: (1 - x, y) for n, (x, y) in scene.points.items()}, scene.segments, scene.circles, scene.marks)
    named = score_code(mirrored, mirrored, facts=scene.facts)
    assert named.fidelity == 1
    assert score_code(mirrored, scene).total < 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), min_size=2, max_size=8, unique=True),
    st.floats(0, 0.03),
)
def test_scores_lie_between_0_and_1_and_small_shifts_are_forgiven(at, shift):
    points = {chr(65 + i): (x / 1000, y / 1000) for i, (x, y) in enumerate(at)}
    names = list(points)
    gold = Scene(points, tuple(itertools.pairwise(names)))
    moved = Scene({n: (x + shift, y) for n, (x, y) in points.items()}, gold.segments)
    score = score_code(moved, gold)
    assert score.point_f1 == 1
    assert 0 <= score.total <= 1
    assert read_code(gold.to_matplotlib()) == gold


def everything(scene):
    """Every point joined to every other, every mark that could be."""
    names = list(scene.points)
    segments = tuple((a, b) for i, a in enumerate(names) for b in names[:i])
    marks = tuple(Mark("right", (a, b, c)) for a in names for b in names for c in names if len({a, b, c}) == 3)
    grid = {f"{chr(65 + i)}{j}": (i / 5, j / 5) for i in range(6) for j in range(6)}
    return Scene({**scene.points, **grid}, segments, scene.circles, (*scene.marks, *marks)[:60])


def test_gaming_drawings_lose_to_honest_ones(problems):
    honest, tricks = [], {"everything": [], "nothing": [], "other": [], "grid": []}
    for i, problem in enumerate(problems):
        gold = problem.scene
        shaky = {n: (x + 0.01 * (-1) ** k, y - 0.008) for k, (n, (x, y)) in enumerate(gold.points.items())}
        honest.append(score_code(Scene(shaky, gold.segments, gold.circles, gold.marks), gold).total)
        tricks["everything"].append(score_code(everything(gold), gold).total)
        tricks["nothing"].append(score_code('{"points":{}}', gold).total)
        tricks["other"].append(score_code(problems[i - 1].scene, gold).total)
        dots = {f"{chr(65 + i)}{j}": (i / 7, j / 7) for i in range(8) for j in range(8)}
        tricks["grid"].append(score_code(Scene(dots), gold).total)
    for name, scores in tricks.items():
        assert max(scores) < 0.7 < min(honest), (name, scores, honest)


@pytest.mark.parametrize("size", [63, 5000, 3.5])
def test_size_of_images(scene, size):
    with pytest.raises(InputError, match="size"):
        render(scene, size)


def test_images_are_black_where_lines_are(scene):
    grey = np.asarray(render(scene, 336))
    assert grey.shape == (336, 336)
    for a, b in scene.segments:
        (x0, y0), (x1, y1) = scene.points[a], scene.points[b]
        x, y = int(336 * (x0 + x1) / 2), int(336 * (1 - (y0 + y1) / 2))
        assert grey[y - 1 : y + 2, x - 1 : x + 2].min() < 128
    assert (grey < 128).mean() < 0.1
    assert np.array_equal(grey, np.asarray(render(scene, 336)))


@pytest.mark.parametrize(("tol", "gold"), [(0, None), (1, None), (0.1, "scene")])
def test_bad_arguments_of_the_score(scene, tol, gold):
    with pytest.raises(InputError, match=r"tol|gold"):
        score_code(scene, gold or scene, tol=tol)


def test_reward_needs_readable_scenes(scene):
    with pytest.raises(ParseError):
        reward_func(None, ["x"], ["1"], scene=["no scene"])
    right = f"```json\n{scene.to_json()}\n```\n\\boxed{{60°}}"
    assert reward_func(None, [right, "60"], ["60°", "60°"], scene=[scene, scene.to_json()]) == [1.0, pytest.approx(0.6)]
    assert math.isclose(sum(reward_func(None, [[{"role": "assistant", "content": right}]], ["60°"])), 1)


def test_a_mirrored_drawing_fails_only_what_says_which_way_round():
    """ABC runs anticlockwise, and mirrored it doesn't; all other facts stay true."""
    gold = Scene(
        {"A": (0.2, 0.2), "B": (0.8, 0.2), "C": (0.2, 0.7), "M": (0.5, 0.2)}, (("A", "B"), ("A", "C")), (), (),
        (Fact("perp", tuple("ABAC")), Fact("mid", tuple("MAB")), Fact("turn", tuple("ABC"))),
    )  # fmt: skip
    mirrored = Scene({n: (1 - x, y) for n, (x, y) in gold.points.items()}, gold.segments)
    assert score_code(gold, gold).fidelity == 1
    assert score_code(mirrored, mirrored, facts=gold.facts[:2]).fidelity == 1
    assert score_code(mirrored, mirrored, facts=gold.facts).fidelity == pytest.approx(2 / 3)


def test_ticks_are_read_back_and_their_number_is_free(scene):
    marks = (Mark("equal", tuple("AHBH"), "1"), Mark("equal", tuple("ACBC"), "2"))
    gold = Scene(scene.points, scene.segments, (), marks)
    for code in (gold.to_json(), gold.to_matplotlib(), gold.to_svg()):
        assert read_code(code) == gold
    assert gold.to_matplotlib().count('gid="equal A C B C 2"') == 4  # two ticks on each of two sides
    swapped = tuple(Mark(m.kind, m.points, {"1": "3", "2": ""}[m.text]) for m in marks)
    assert score_code(Scene(scene.points, scene.segments, (), swapped), gold).total == 1
    wrong = (Mark("equal", tuple("ABAC"), "1"), marks[1])
    assert score_code(Scene(scene.points, scene.segments, (), wrong), gold).annotation == pytest.approx(1 / 3)
    with pytest.raises(ParseError, match="ticks"):
        Scene(scene.points, (), (), (Mark("equal", tuple("ACBC"), "9"),))


def test_each_lost_segment_lowers_its_score(problems):
    for problem in problems:
        gold, last = problem.scene, 1.0
        for k in range(len(gold.segments) - 1, -1, -1):
            now = score_code(Scene(gold.points, gold.segments[:k], gold.circles, gold.marks), gold)
            assert now.segment_f1 < last
            last = now.segment_f1
        assert last == 0


def test_scores_do_not_depend_on_names_in_problems(problems):
    for problem in problems:
        gold = problem.scene
        letters = dict(zip(gold.points, [f"Q{i}" for i in range(len(gold.points))], strict=True))
        assert score_code(renamed(gold, letters), gold).total == 1


def test_two_empty_drawings_are_the_same():
    assert score_code(Scene({}), Scene({})).total == 1


@pytest.mark.parametrize("parts", [(None,), ({}, None), ({}, (), None), ({}, (), (), (1,)), ({}, (), (), (), None)])
def test_drawings_of_strange_parts_are_refused(parts):
    with pytest.raises(ParseError, match="must"):
        Scene(*parts)


@pytest.mark.parametrize(
    ("fact", "moved", "near", "far"),
    [
        (Fact("bis", tuple("BACM")), "M", (0.51, 0.49), (0.56, 0.44)),
        (Fact("cyc", tuple("BCDE")), "E", (0.5, -0.07), (0.5, -0.2)),
        (Fact("cong", tuple("ABC")), "C", (0.1, 0.91), (0.1, 0.95)),
        (Fact("eqlen", tuple("ABAC")), "C", (0.1, 0.91), (0.1, 0.95)),
        (Fact("para", tuple("ABCF")), "F", (0.9, 0.91), (0.9, 0.95)),
        (Fact("ratio", tuple("AGAB"), 0.5), "G", (0.505, 0.1), (0.53, 0.1)),
    ],
)  # fmt: skip
def test_a_fact_holds_nearly_and_not_where_it_is_false(fact, moved, near, far):
    at = {
        "A": (0.1, 0.1), "B": (0.9, 0.1), "C": (0.1, 0.9), "M": (0.5, 0.5), "D": (0.9, 0.9),
        "E": (0.5, 0.5 - 0.4 * math.sqrt(2)), "F": (0.9, 0.9), "G": (0.5, 0.1),
    }  # fmt: skip
    assert _holds(fact, at)
    assert _holds(fact, {**at, moved: near})
    assert not _holds(fact, {**at, moved: far})
    assert not _holds(fact, {name: place for name, place in at.items() if name != fact.points[1]})
