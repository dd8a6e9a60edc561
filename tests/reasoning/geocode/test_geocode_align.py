import dataclasses

import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from assay.errors import InputError
from assay.reasoning.geocode import score_code
from assay.reasoning.geocode.align_data import BINS, NUMBERS, PAGE, UNKNOWN, AlignItems, align_items, scene_of_code
from assay.reasoning.geocode.align_net import LENGTHS, MODES, WORDS, AlignNet, AlignShape, Read, words_of
from assay.reasoning.geocode.align_training import score_read, train_align, typical_answers

SMALL = AlignShape(size=32, patch=4, channels=(8, 8), width=16, layers=1, heads=2)


@pytest.fixture(scope="module")
def items():
    return align_items(40, seed=11)


def state(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.values(), b.values(), strict=True))


def test_answers_follow_from_the_marks(items):
    known = np.where(items.marks == UNKNOWN, 0, items.marks).sum(axis=1)
    assert ((items.marks == UNKNOWN).sum(axis=1) == 1).all()
    assert (items.answers == np.where(items.questions == 1, known, 180 - known)).all()
    assert set(items.questions) == {0, 1}
    assert items.images.shape == (40, PAGE, PAGE)
    assert (items.answers % 5 == 0).all()


def test_corners_are_where_the_triangle_is_drawn_to_scale():
    drawn = align_items(30, seed=2)
    for row in range(30):
        item = drawn[row : row + 1]
        corners = (item.corners[0] + 0.5) / BINS
        ink = item.images[0] < 140
        for x, y in corners:
            column, line = round(x * PAGE), round((1 - y) * PAGE)
            assert ink[max(0, line - 4) : line + 5, max(0, column - 4) : column + 5].any()
        for k in range(3):
            if item.marks[0][k] == UNKNOWN:
                continue
            u, v = corners[(k + 1) % 3] - corners[k], corners[(k + 2) % 3] - corners[k]
            angle = np.degrees(np.arccos(u @ v / np.linalg.norm(u) / np.linalg.norm(v)))
            assert abs(angle - item.marks[0][k]) < 12
    assert (np.diff(drawn.corners[:, :, 0], axis=1) >= 0).all()


def test_same_seed_same_items_and_other_seed_others(items):
    again, other = align_items(40, seed=11), align_items(40, seed=12)
    assert (again.images == items.images).all()
    assert (again.marks == items.marks).all()
    assert (other.images != items.images).any()
    assert (align_items(10, seed=11).images == items.images[:10]).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [({"n": 0}, "n must"), ({"n": 2.0}, "n must"), ({"n": True}, "n must"), ({"size": 8}, "size must"),
     ({"size": 4096}, "size must"), ({"seed": -1}, "seed must")],
)  # fmt: skip
def test_bad_sizes_are_refused(change, match):
    with pytest.raises(InputError, match=match):
        align_items(**{"n": 2, **change})


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("images", np.zeros((40, 96), np.uint8), "images must be an array"),
        ("images", np.zeros((40, 96, 96)), "images must be an array"),
        ("images", np.zeros((40, 96, 96), np.int64), "images must be bytes"),
        ("images", np.zeros((40, 8, 8), np.uint8), "at least 16"),
        ("images", np.zeros((0, 96, 96), np.uint8), "at least one item"),
        ("questions", np.full(40, 2), "questions must be among"),
        ("questions", np.zeros(39, int), "a row for each of 40"),
        ("corners", np.full((40, 3, 2), BINS), "corners must be among"),
        ("corners", np.zeros((40, 2, 2), int), "three an item"),
        ("marks", np.full((40, 3), 50), "exactly one corner"),
        ("marks", np.full((40, 3), 51), "marks must be among"),
        ("answers", np.full(40, 180), "answers must be among"),
        ("answers", np.full(40, np.nan), "whole numbers"),
    ],
)
def test_bad_items_are_refused(items, name, value, match):
    with pytest.raises(InputError, match=match):
        dataclasses.replace(items, **{name: value})


def test_items_are_taken_by_slices(items):
    assert len(items[:3]) == 3
    assert (items[np.array([5, 2])].answers == items.answers[[5, 2]]).all()
    with pytest.raises(TypeError, match="slice"):
        items[3]


def test_true_code_is_a_drawing_that_scores_full(items):
    for corners, marks in zip(items.corners, items.marks, strict=True):
        scene = scene_of_code(corners, marks)
        assert score_code(scene, scene).total == 1
        assert sorted(mark.text for mark in scene.marks) == sorted("x" if m == UNKNOWN else f"{m}°" for m in marks)
    assert scene_of_code(np.zeros((3, 2), int), items.marks[0]) is None


@pytest.mark.parametrize("mode", MODES)
def test_words_of_a_mode(items, mode):
    words = words_of(items, mode)
    assert words.shape == (40, LENGTHS[mode] + 1)
    said = [[WORDS[w] for w in row] for row in words]
    for row, answer, marks in zip(said, items.answers, items.marks, strict=True):
        assert row[-1] == str(answer)
        numbers = {str(m) for m in marks if m != UNKNOWN}
        assert mode == "answer" or numbers <= set(row)
    with pytest.raises(InputError, match="mode"):
        words_of(items, "svg")


@pytest.mark.parametrize("mode", MODES)
def test_a_network_learns_a_few_items_by_heart(mode):
    items = align_items(6, seed=3, size=32)
    net = train_align(items, mode, steps=150, batch=6, rate=1e-2, shape=SMALL, seed=1, device="cpu")
    score = score_read(net.read(items.images, items.questions), items)
    assert score.exact == 1
    assert score.mean_error == 0
    if mode != "answer":
        assert score.annotation == 1
        assert score.solved_read == 1
        assert score.solved_misread is None
    assert (score.code == 1) == (mode == "code")


def test_same_seed_same_network_and_no_trace_in_the_global_generator():
    items = align_items(12, seed=3, size=32)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    nets = [train_align(items, steps=4, batch=5, shape=SMALL, seed=seed, device="cpu") for seed in (1, 1, 2)]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert same(state(nets[0]), state(nets[1]))
    assert not same(state(nets[0]), state(nets[2]))


def test_marks_do_not_reach_who_only_answers():
    items = align_items(12, seed=3, size=32)
    other = dataclasses.replace(items, marks=items.marks[::-1], corners=items.corners[::-1])
    a, b = (train_align(i, "answer", steps=4, batch=5, shape=SMALL, seed=1, device="cpu") for i in (items, other))
    assert same(state(a), state(b))
    c, d = (train_align(i, "code", steps=4, batch=5, shape=SMALL, seed=1, device="cpu") for i in (items, other))
    assert not same(state(c), state(d))


def test_a_word_does_not_see_later_ones():
    net = AlignNet("code", SMALL, seed=0).eval()
    items = align_items(2, seed=1, size=32)
    images, words = torch.from_numpy(items.images), torch.from_numpy(words_of(items, "code"))
    changed = words.clone()
    changed[:, 5:] = 0
    with torch.no_grad():
        a, b = net(images, words[:, :-1]), net(images, changed[:, :-1])
    assert torch.equal(a[:, :5], b[:, :5])
    assert not torch.equal(a[:, 5:], b[:, 5:])


def test_reading_does_not_depend_on_the_batch_and_keeps_the_mode():
    items = align_items(9, seed=4, size=32)
    net = train_align(items, steps=10, batch=5, shape=SMALL, seed=1, device="cpu").train()
    a = net.read(items.images, items.questions, batch=2)
    b = net.read(items.images, items.questions)
    assert (a.answers == b.answers).all()
    assert (a.marks == b.marks).all()
    assert net.training


@pytest.mark.parametrize("mode", MODES)
def test_networks_survive_a_folder(tmp_path, mode):
    items = align_items(9, seed=4, size=32)
    net = train_align(items, mode, steps=5, batch=5, shape=SMALL, seed=1, device="cpu")
    net.save(tmp_path / "net")
    there = AlignNet.load(tmp_path / "net", device="cpu")
    assert there.mode == mode
    assert there.shape == SMALL
    assert (there.read(items.images, items.questions).answers == net.read(items.images, items.questions).answers).all()
    assert sorted(p.suffix for p in (tmp_path / "net").iterdir()) == [".json", ".safetensors"]
    with pytest.raises(InputError, match="not empty"):
        net.save(tmp_path / "net")
    (tmp_path / "net" / "alignnet.safetensors").write_bytes(b"no")
    with pytest.raises(InputError, match="damaged"):
        AlignNet.load(tmp_path / "net")
    with pytest.raises(InputError, match="no folder"):
        AlignNet.load(tmp_path / "other")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"mode": "svg"}, "mode must"), ({"steps": 0}, "steps must"), ({"steps": 2.0}, "steps must"),
        ({"batch": 0}, "batch must"), ({"rate": 0.0}, "rate must"), ({"rate": float("nan")}, "rate must"),
        ({"shape": AlignShape(size=96)}, "96 × 96 pixels, got 32 × 32"), ({"device": "abacus"}, "device must"),
    ],
)  # fmt: skip
def test_bad_training_is_refused(change, match):
    with pytest.raises(InputError, match=match):
        train_align(align_items(4, seed=1, size=32), **{"shape": SMALL, "steps": 2, "device": "cpu", **change})


def test_training_takes_items_alone():
    with pytest.raises(TypeError, match="AlignItems"):
        train_align([1, 2], steps=1)


@pytest.mark.parametrize(
    ("change", "match"),
    [({"width": 15}, "heads must divide"), ({"channels": ()}, "channels"), ({"patch": 5}, "patch must divide"),
     ({"layers": 0}, "layers must"), ({"size": 8}, "size must be at least"), ({"channels": (8, 0)}, "channels must")],
)  # fmt: skip
def test_bad_shapes_are_refused(change, match):
    with pytest.raises(InputError, match=match):
        AlignShape(**{**dataclasses.asdict(SMALL), **change})


def test_bad_images_and_questions_are_refused_by_reading():
    net, items = AlignNet("code", SMALL), align_items(3, seed=1, size=32)
    for images, questions, match in (
        (items.images[:, :16], items.questions, "32 × 32 pixels"),
        (items.images.astype(float), items.questions, "images must be bytes"),
        (items.images, items.questions[:2], "questions must be"),
        (items.images, items.questions + 5, "questions must be"),
        (items.images[:0], items.questions[:0], "images must be bytes"),
    ):
        with pytest.raises(InputError, match=match):
            net.read(images, questions)


def test_shapes_of_tensors():
    items = align_items(2, seed=1, size=32)
    net = AlignNet("caption", SMALL)
    checked = jaxtyped(typechecker=beartype)(AlignNet.forward)
    words = torch.from_numpy(words_of(items, "caption"))[:, :-1]
    assert checked(net, torch.from_numpy(items.images), words).shape == (2, 6, len(WORDS))


def test_scores_by_hand(items):
    few = items[:4]
    answers = few.answers.copy()
    answers[1] += 5 if answers[1] < 175 else -5
    answers[2] = 0
    marks = few.marks.copy()
    k = int(np.flatnonzero(marks[3] != UNKNOWN)[0])
    marks[3, k] = 100 if marks[3, k] != 100 else 95
    score = score_read(Read(answers, marks=marks, corners=few.corners), few)
    assert (score.exact, score.within, score.mean_error) == (0.5, 0.75, (0 + 5 + 180 + 0) / 4)
    assert (score.annotation, score.solved_read, score.solved_misread) == (0.75, pytest.approx(1 / 3), 1.0)
    # Marks make up a third of a score without facts: points, segments and marks.
    assert score.code == pytest.approx((3 + (1 + 1 + 0.5) / 3) / 4)
    with pytest.raises(InputError, match="4 answers"):
        score_read(Read(answers[:3]), few)


def test_captions_are_compared_without_order(items):
    numbers = np.sort(items.marks, axis=1)[:, :0:-1]
    score = score_read(Read(items.answers, numbers=numbers), items)
    assert (score.exact, score.annotation, score.code) == (1, 1, None)


def test_the_typical_answer_looks_at_the_question_alone(items):
    read = typical_answers(items, np.array([0, 1, 0]))
    for question, answer in ((0, read.answers[0]), (1, read.answers[1])):
        assert abs(answer - np.median(items.answers[items.questions == question])) <= 2.5
    assert read.answers[0] == read.answers[2]


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_what_is_written_can_be_anything(data):
    items = align_items(2, seed=1, size=32)
    answers = np.array(data.draw(st.lists(st.sampled_from((0, *NUMBERS)), min_size=2, max_size=2)))
    marks = np.array(data.draw(st.lists(st.sampled_from((0, UNKNOWN, *NUMBERS)), min_size=6, max_size=6)))
    corners = np.array(data.draw(st.lists(st.integers(-1, BINS - 1), min_size=12, max_size=12)))
    score = score_read(Read(answers, marks.reshape(2, 3), corners.reshape(2, 3, 2)), items)
    assert 0 <= score.exact <= score.within <= 1
    assert 0 <= score.code <= 1
    assert score.mean_error <= 180


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_learning_on_a_gpu():
    items = align_items(6, seed=3, size=32)
    net = train_align(items, steps=150, batch=6, rate=1e-2, shape=SMALL, seed=1, device="cuda")
    assert net.device.type == "cuda"
    assert score_read(net.read(items.images, items.questions), items).exact == 1


def test_items_of_ones_own(items):
    mine = AlignItems(items.images[:5], items.questions[:5], items.corners[:5], items.marks[:5], items.answers[:5])
    assert len(mine) == 5
