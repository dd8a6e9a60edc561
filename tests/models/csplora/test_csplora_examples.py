import json

import pytest
import torch
from transformers import BertTokenizerFast

from assay.errors import InputError
from assay.models.csplora.examples import (
    Encoded,
    Rows,
    batches,
    classes,
    collate,
    encode_labelled,
    encode_language,
    is_regression,
    padding,
    read_rows,
    usable_length,
)


class Letters:
    """A tokenizer of single letters, with an end of text but no padding."""

    pad_token_id, eos_token_id, model_max_length = None, 9, 10**30

    def __call__(self, text, add_special_tokens=True, truncation=False, max_length=None):
        if isinstance(text, list):
            return {"input_ids": [self(t)["input_ids"][: max_length or None] for t in text]}
        return {"input_ids": [ord(letter) % 50 + 10 for letter in text]}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_tables_are_read_alike(tmp_path, kind):
    import pandas as pd

    table = pd.DataFrame({"text": ["one, two", "drei\nvier", "fünf"], "label": ["a", "b", "a"], "more": [1, 2, 3]})
    path = tmp_path / f"x.{kind}"
    if kind == "jsonl":
        table.to_json(path, orient="records", lines=True)
    elif kind == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    rows = read_rows(path, "text", "label")
    assert rows == Rows(["one, two", "drei\nvier", "fünf"], ["a", "b", "a"])
    assert read_rows(path, "text").labels is None


@pytest.mark.parametrize(
    ("labels", "expected", "regression"),
    [
        ([0, 1, 1], ["0", "1", "1"], False),
        ([0.0, 1.0, 2.0], ["0", "1", "2"], False),
        ([0.5, 1.0, 2.0], [0.5, 1.0, 2.0], True),
        ([True, False, True], ["True", "False", "True"], False),
    ],
)
def test_labels_are_classes_or_numbers(tmp_path, labels, expected, regression):
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(json.dumps({"text": "t", "label": label}) for label in labels))
    rows = read_rows(path, "text", "label")
    assert rows.labels == expected
    assert is_regression(rows) is regression


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", "hello", "give a table as"),
        ("x.jsonl", '{"text": "a"}\n{"text": "b"}', "no field 'label' for the label; it has text"),
        ("x.jsonl", '{"label": "a"}\n{"label": "b"}', "no field 'text'"),
        ("x.jsonl", '{"text": "a", "label": 1}', "has 1 rows"),
        ("x.jsonl", '{"text": "a", "label": 1}\n{"text": " ", "label": 2}', "1 rows have no text, the first is row 2"),
        ("x.jsonl", '{"text": null, "label": 1}\n{"text": "b", "label": 2}', "the first is row 1"),
        ("x.jsonl", '{"text": "a", "label": null}\n{"text": "b", "label": 2}', "1 rows have no label"),
        ("x.jsonl", "not json\n", "cannot be read as jsonl"),
        ("x.csv", "", "cannot be read as csv"),
        ("x.parquet", "PAR", "cannot be read as parquet"),
    ],
)
def test_bad_tables(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_rows(tmp_path / name, "text", "label")


def test_no_such_table(tmp_path):
    with pytest.raises(InputError, match="no file"):
        read_rows(tmp_path / "x.csv", "text")


def test_classes():
    rows = Rows(["t"] * 3, ["10", "9", "10"])
    assert classes(rows) == {"9": 0, "10": 1}  # numbers in their own order
    assert classes(Rows(["t"] * 2, ["b", "a"])) == {"a": 0, "b": 1}
    assert classes(Rows(["t"] * 2, ["b", "a"]), {"c": 0, "b": 1, "a": 2}) == {"c": 0, "b": 1, "a": 2}
    assert classes(Rows(["t"] * 2, ["1", "0"]), {"LABEL_0": 0, "LABEL_1": 1}) == {"0": 0, "1": 1}
    assert classes(Rows(["t"] * 2, ["x", "a"]), {"b": 0, "a": 1}) == {"a": 0, "x": 1}  # the checkpoint knows no x
    with pytest.raises(InputError, match="2 to 1000 different labels, got 1"):
        classes(Rows(["t"] * 2, ["a", "a"]))
    with pytest.raises(InputError, match="needs a label field"):
        classes(Rows(["t"]))


def test_language_rows():
    tokens = Letters()
    a, b, space = ord("a") % 50 + 10, ord("b") % 50 + 10, ord(" ") % 50 + 10
    plain = encode_language(tokens, Rows(["ab", "abab"]), 3)
    assert plain == Encoded([[a, b, 9], [a, b, a]], [[a, b, 9], [a, b, a]])
    answered = encode_language(tokens, Rows(["ab"], ["b"]), 20)
    assert answered == Encoded([[a, b, space, b, 9]], [[-100, -100, space, b, 9]])
    # A long text gives way to its answer.
    assert encode_language(tokens, Rows(["ababab"], ["b"]), 4).ids == [[a, space, b, 9]]
    assert encode_language(tokens, Rows(["ab"], ["bbbbbb"]), 4).labels == [[-100, space, b, b]]
    with pytest.raises(InputError, match="no row has a token"):
        encode_language(tokens, Rows(["ab"]), 1)


def test_batches_go_round_and_pad():
    data = Encoded([[1, 2, 3], [4], [5, 6]], [0, 1, 2])
    batch = collate(data, [0, 1], pad=7)
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 7, 7]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [0, 1]
    tokens = collate(Encoded([[1, 2], [3]], [[1, 2], [3]]), [0, 1], pad=0)
    assert tokens["labels"].tolist() == [[1, 2], [3, -100]]
    found = [b["labels"].tolist() for b in batches(data, 2, 3, seed=1, pad=0)]
    flat = [label for labels in found for label in labels]
    assert sorted(flat[:3]) == sorted(flat[3:]) == [0, 1, 2]  # every row once before any comes again
    assert found == [b["labels"].tolist() for b in batches(data, 2, 3, seed=1, pad=0)]
    numbers = collate(Encoded([[1], [2]], [0.5, 1.5]), [0, 1], pad=0)
    assert numbers["labels"].dtype == torch.float32


def test_encode_labelled(tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]))
    tokenizer = BertTokenizerFast(vocab=str(vocabulary))
    encoded = encode_labelled(tokenizer, Rows(["good bad good", "bad"], ["x", "y"]), 4, {"x": 0, "y": 1})
    assert [len(ids) for ids in encoded.ids] == [4, 3]
    assert encoded.labels == [0, 1]
    assert encode_labelled(tokenizer, Rows(["bad"], [0.5]), 4, None).labels == [0.5]


class Model:
    class config:
        pad_token_id = None
        max_position_embeddings = 64


def test_padding_and_length():
    model = Model()
    model.config.pad_token_id = None
    assert padding(Letters(), model) == 9
    assert model.config.pad_token_id == 9
    assert usable_length(Letters(), model, 100) == 64
    assert usable_length(Letters(), model, 32) == 32
