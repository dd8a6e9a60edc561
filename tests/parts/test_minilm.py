import multiprocessing
import sqlite3

import numpy as np
import pytest

from assay.parts import minilm
from assay.parts.minilm import encode

EATING = "A man is eating food."
BREAD = "A man is eating a piece of bread."
GIRL = "The girl is carrying a baby."


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def embedded(monkeypatch):
    """The texts that were embedded, and not found in the cache."""
    texts = []
    embed = minilm._embed

    def watch(todo, *rest):
        texts.extend(todo)
        return embed(todo, *rest)

    monkeypatch.setattr(minilm, "_embed", watch)
    return texts


def test_known_cosines():
    vectors = encode([EATING, BREAD, GIRL])
    assert vectors.dtype == np.float32
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert vectors[0] @ vectors[1] == pytest.approx(0.755, abs=5e-4)
    assert vectors[0] @ vectors[2] == pytest.approx(-0.105, abs=5e-4)


def test_only_what_is_new_is_embedded(embedded):
    first = encode([EATING, GIRL, EATING])
    assert sorted(embedded) == sorted([EATING, GIRL])
    embedded.clear()
    second = encode([BREAD, GIRL, BREAD, EATING])
    assert embedded == [BREAD]
    np.testing.assert_array_equal(second[[3, 1]], first[:2])
    np.testing.assert_array_equal(first[0], first[2])
    embedded.clear()
    np.testing.assert_array_equal(encode([BREAD, GIRL, BREAD, EATING]), second)
    assert embedded == []


def test_order_and_padding_change_nothing():
    texts = [f"{'word ' * n}number {n}." for n in (1, 40, 3, 90, 7, 20)] + ["", "ünïcode ☃ 漢字"]
    together = encode(texts, batch_size=4)
    alone = np.concatenate([vectors for text in texts for _, vectors in minilm._embed([text], 1, "cpu")])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_the_model_of_the_field_gives_the_same():
    import torch

    model, tokenizer = minilm.load()
    text = "x " * 400 + EATING  # longer than the model reads
    with torch.inference_mode():
        hidden = model(**tokenizer(text, truncation=True, max_length=256, return_tensors="pt")).last_hidden_state[0]
    want = hidden.mean(0) / hidden.mean(0).norm()
    np.testing.assert_allclose(encode([text])[0], want.numpy(), atol=1e-5)


def test_many_texts_are_found_again(embedded, cache):
    rng = np.random.default_rng(0)
    texts = [f"text {i}" for i in range(3000)]
    vectors = rng.normal(size=(3000, 384)).astype(np.float32)
    with minilm._vectors() as database, database:
        rows = [(minilm._key(text), vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        database.executemany("INSERT INTO vectors VALUES (?, ?)", rows)
    order = rng.permutation(3000)
    np.testing.assert_array_equal(encode([texts[i] for i in order]), vectors[order])
    assert embedded == []


def test_what_was_embedded_before_an_interrupt_is_kept(monkeypatch, embedded):
    embed = minilm._embed

    def interrupted(todo, *rest):
        yield from embed(todo[:2], *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(minilm, "_embed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            encode([EATING, BREAD, GIRL])
    embedded.clear()
    encode([EATING, BREAD, GIRL])
    assert embedded == [GIRL]


def test_processes_at_once_share_the_cache(cache):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write_and_read, args=(seed,)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    with sqlite3.connect(cache / "kept" / f"{minilm.NAME}.db") as database:
        assert database.execute("SELECT count(*) FROM vectors").fetchone() == (300,)


def _write_and_read(seed):
    def embed(texts, *_):
        for start in range(0, len(texts), 20):
            places = list(range(start, min(start + 20, len(texts))))
            yield places, np.array([[float(texts[place])] * 384 for place in places], np.float32)

    minilm._embed = embed
    order = np.random.default_rng(seed).permutation(300)
    assert [int(v[0]) for v in encode([str(i) for i in order])] == list(order)


def damage(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def no_database(path):
    path.write_bytes(b"x" * 5000)


def folder_in_the_way(path):
    path.unlink()
    path.mkdir()


def other_table(path):
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE vectors")
        database.execute("CREATE TABLE vectors (a, b)")


@pytest.mark.parametrize("spoil", [damage, no_database, folder_in_the_way, other_table])
def test_without_a_cache_that_can_be_used_all_is_embedded(spoil, cache):
    want = encode([EATING, GIRL])
    spoil(minilm._database())
    with pytest.warns(UserWarning, match=r"embedding without the cache, since .*\.db cannot be used") as said:
        np.testing.assert_allclose(encode([EATING, GIRL]), want, atol=1e-6)
    assert len(said) == 1
    assert said[0].filename == __file__


def test_a_full_disk_costs_no_work(monkeypatch, embedded):
    encode([EATING])
    embedded.clear()
    connect = sqlite3.connect

    def full(*arguments, **options):
        database = connect(*arguments, **options)
        database.execute("PRAGMA max_page_count = 1")  # becomes what the database has now
        return database

    monkeypatch.setattr(minilm, "_KEEP_EVERY", 20)
    monkeypatch.setattr(sqlite3, "connect", full)
    texts = [EATING, *(f"text {i}" for i in range(60))]
    with pytest.warns(UserWarning, match="database or disk is full") as said:
        assert np.isfinite(encode(texts, batch_size=20)).all()
    assert len(said) == 1
    assert EATING not in embedded  # what was kept before is still read


def test_a_vector_that_is_none_is_made_again():
    want = encode([EATING, GIRL])
    with minilm._vectors() as database, database:
        database.execute("UPDATE vectors SET vector = substr(vector, 1, 100)")
    for _ in range(2):
        np.testing.assert_allclose(encode([EATING, GIRL]), want, atol=1e-6)
    with minilm._vectors() as database:
        assert {len(vector) for (vector,) in database.execute("SELECT vector FROM vectors")} == {384 * 4}


def test_a_vector_that_another_process_kept_meanwhile_stays(monkeypatch):
    theirs = np.full(384, 0.5, np.float32)
    with minilm._vectors() as database, database:
        database.execute("INSERT INTO vectors VALUES (?, ?)", (minilm._key(EATING), theirs.tobytes()))
    with monkeypatch.context() as patch:
        patch.setattr(minilm, "_read", lambda database, keys: {})  # looked before it came
        encode([EATING])
    np.testing.assert_array_equal(encode([EATING])[0], theirs)


def test_half_a_surrogate_pair_is_read_as_a_question_mark():
    np.testing.assert_allclose(encode(["what \ud800"]), encode(["what ?"]), atol=1e-6)


def test_no_texts():
    assert encode([]).shape == (0, 384)


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        ("one string", {}, TypeError, "texts must be a list of strings, not one string"),
        (["a", None], {}, TypeError, r"texts\[1\] must be a string, not NoneType"),
        ([b"bytes"], {}, TypeError, r"texts\[0\] must be a string, not bytes"),
        (["a"], {"batch_size": 0}, ValueError, "batch_size must be at least 1, not 0"),
        (["a"], {"device": "gpu"}, ValueError, "device must be 'auto' or"),
    ],
)
def test_bad_input(texts, options, error, message):
    with pytest.raises(error, match=message):
        encode(texts, **options)
