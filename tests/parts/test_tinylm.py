"""The small language model: it learns, writes from its own distribution, keeps to its seed, and comes back as saved."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.parts.tinylm import END, PAD, SEP, UNKNOWN, Shape, TinyLM, Words, fit, parameters, split

LETTERS = "abcdefghijkl"
WORDS = Words.of([" ".join(LETTERS)])
SMALL = Shape(width=16, layers=2, heads=2, length=32)
# The answer is the prompt the other way round: no word of it is known without attention to the right place.
PAIRS = [(f"{x} {y} {z}", f"{z} {y} {x}") for x in LETTERS for y in LETTERS for z in LETTERS]
PAIRS = [PAIRS[i] for i in np.random.default_rng(0).permutation(len(PAIRS))]


@pytest.fixture(scope="module")
def model():
    made = TinyLM(WORDS, Shape(width=32, layers=2, heads=2, length=32), seed=0)
    fit(made, PAIRS[:1000], steps=300, batch=32, rate=5e-3, seed=0)
    return made


def test_words_come_back_and_unknown_ones_are_named():
    text = "<sql>SELECT a FROM t WHERE b<='x y' AND c=1.5</sql>"
    words = Words.of([text])
    assert words.text(words.numbers(text)).replace(" ", "") == text.replace(" ", "")
    assert {"'x y'", "</sql>", "<="} <= set(split(text))
    assert words.numbers("SELECT nothing") == [words.numbers("SELECT")[0], UNKNOWN]
    assert not {PAD, END} & set(words.numbers("<pad> <end>"))
    with pytest.raises(InputError, match="known"):
        Words(["a", "a"])


@given(st.text(max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_text_has_numbers(text):
    numbers = WORDS.numbers(text)
    assert all(UNKNOWN <= n < len(WORDS) for n in numbers)
    assert len(numbers) == len(split(text))


def test_it_learns_and_knows_what_it_was_not_taught(model):
    unseen = PAIRS[1000:1200]
    written = model.write([p for p, _ in unseen], most=5)
    assert all(written.ended)
    assert np.mean([text == answer for text, (_, answer) in zip(written.texts, unseen, strict=True)]) > 0.9


def test_an_answer_is_the_same_alone_and_beside_longer_prompts(model):
    alone = model.write(["a b c"], most=5).texts
    assert model.write(["a b c", "a", "d e a b c d e"], most=5).texts[:1] == alone


def test_what_is_written_step_by_step_is_likeliest_in_one_reading(model):
    written = model.write(["a b c", "e d", "c"], most=6)
    scores = model(written.ids, written.there)[:, :-1].detach()
    scores[..., [PAD, SEP]] = -torch.inf
    chosen = written.answer[:, 1:]
    assert (scores.argmax(2)[chosen] == written.ids[:, 1:][chosen]).all()


def test_log_probs_are_those_of_the_draws():
    fresh = TinyLM(WORDS, SMALL, seed=1)
    generator = torch.Generator().manual_seed(0)
    drawn = fresh.write(["a b"] * 4000, most=1, temperature=1.0, generator=generator)
    words, counts = np.unique(drawn.ids[:, -1].numpy(), return_counts=True)
    log_probs = fresh.log_probs(drawn.ids, drawn.there)[:, -1].detach().exp().numpy()
    for word, count in zip(words, counts, strict=True):
        p = log_probs[drawn.ids[:, -1].numpy() == word][0]
        assert abs(count / 4000 - p) < 5 * np.sqrt(p * (1 - p) / 4000)
    assert not {PAD, SEP} & set(words)


def test_filling_changes_no_log_prob(model):
    long = model.write(["a b c", "a b c d e a b"], most=4, temperature=1.0, generator=torch.Generator().manual_seed(3))
    first = long.there[0]
    alone = model.log_probs(long.ids[:1, first], long.there[:1, first])[0]
    beside = model.log_probs(long.ids, long.there)[0][first[1:]][-len(alone) :]
    assert torch.allclose(alone, beside, atol=1e-5)


def test_the_same_seed_gives_the_same_and_nothing_global_is_seeded():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    losses = []
    for seed in (0, 0, 1):
        made = TinyLM(WORDS, SMALL, seed=seed)
        losses.append(fit(made, PAIRS, steps=5, seed=seed))
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(before, torch.get_rng_state())


def test_the_loss_falls_and_counts_the_answer_alone():
    made = TinyLM(WORDS, SMALL, seed=0)
    losses = fit(made, [("a b c d e f", "g")], steps=80, batch=2, rate=1e-2, seed=0)
    assert losses[-1] < 0.05 < losses[0]
    prompt = torch.tensor([WORDS.numbers("a b c d e f")])
    there = torch.ones_like(prompt, dtype=torch.bool)
    assert made.log_probs(prompt, there).mean() < -1  # the prompt itself was not learnt


def test_it_comes_back_as_it_was_saved(model, tmp_path):
    model.save(tmp_path / "m")
    back = TinyLM.load(tmp_path / "m", device="cpu")
    assert back.write(["a b c", "e e d"], most=5).texts == model.write(["a b c", "e e d"], most=5).texts
    assert parameters(back) == parameters(model)
    assert {f.name for f in (tmp_path / "m").iterdir()} == {"tinylm.json", "tinylm.safetensors"}
    with pytest.raises(InputError, match="not empty"):
        model.save(tmp_path / "m")


def test_a_damaged_folder_is_refused(tmp_path):
    TinyLM(WORDS, SMALL).save(tmp_path / "m")
    file = tmp_path / "m" / "tinylm.json"
    head = json.loads(file.read_text())
    head["state"]["shape"]["width"] = 32
    file.write_text(json.dumps(head))
    with pytest.raises(InputError, match="no such model"):
        TinyLM.load(tmp_path / "m", device="cpu")
    with pytest.raises(InputError, match="no folder"):
        TinyLM.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda m: m.write([]), "prompts"),
        (lambda m: m.write("a b"), "prompts"),
        (lambda m: m.write(["a"], most=100), "do not fit"),
        (lambda m: m.write(["a"], most=3, temperature=1.0), "generator"),
        (lambda m: m.write(["a"], most=3, temperature=-1.0), "temperature"),
        (lambda m: fit(m, [], steps=1), "pair"),
        (lambda m: fit(m, [("a", "b")], steps=0), "steps"),
        (lambda m: fit(m, [("a", "b " * 40)], steps=1), "words"),
        (lambda m: Shape(width=10, heads=4), "width"),
        (lambda m: Shape(layers=0), "layers"),
    ],
)
def test_bad_input_is_refused(wrong, match):
    with pytest.raises(InputError, match=match):
        wrong(TinyLM(WORDS, SMALL))
