import json

import pytest
import torch
from dot_moe_models import checkpoint_with_words, model
from typer.testing import CliRunner

from assay.errors import InputError
from assay.models.dot_moe import load, use


@pytest.fixture
def checkpoint(tmp_path):
    return checkpoint_with_words(tmp_path)[0]


def run(folder, *more, out="out", text="text.txt"):
    home = folder.parent
    arguments = [str(folder), "--text", str(home / text), "--out", str(home / out), "--device", "cpu", "--steps", "3"]
    return CliRunner().invoke(use.app, [*arguments, "--batch-tokens", "64", *more], env={"COLUMNS": "200"})


def failed(result, message):
    assert result.exit_code == 1
    assert isinstance(result.exception, ValueError)
    assert message in str(result.exception)


def test_a_folder_is_converted_compared_and_written(checkpoint):
    result = run(checkpoint, "--freeze-weights")
    assert result.exit_code == 0, result.output
    for line in ("perplexity", "active parameters", "KL from dense", "seconds to convert", "layers' relative error"):
        assert line in result.output
    out = checkpoint.parent / "out"
    report = json.loads((out / "dot_moe.json").read_text())["report"]
    assert report["ppl_all_experts"] == pytest.approx(report["ppl_dense"], rel=1e-4)
    assert report["ppl_moe"] != pytest.approx(report["ppl_dense"], rel=1e-4)
    assert f"{report['ppl_dense']:.2f}" in result.output
    assert f"{report['active_parameters']:,}" in result.output
    assert report["active_parameters"] < report["dense_parameters"]
    ids = torch.arange(10)[None]
    with torch.no_grad():
        dense = model()(ids).logits
        assert (load(out, top_k=8, device="cpu")(ids).logits - dense).abs().max() < 1e-4
    assert load(out, device="cpu").generate(ids, max_new_tokens=3).shape == (1, 13)
    assert (out / "tokenizer.json").exists()
    assert not (checkpoint.parent / "out.unfinished").exists()


def test_options_reach_the_conversion(checkpoint):
    numbers = (
        "--experts",
        "5",
        "--top-k",
        "3",
        "--n-shared",
        "2",
        "--layers",
        "1",
        "--seed",
        "4",
        "--global-steps",
        "1",
    )
    text = str(checkpoint.parent / "text.txt")
    result = run(checkpoint, *numbers, "--init", "weight", "--dtype", "bfloat16", "--eval-text", text)
    assert result.exit_code == 0, result.output
    config = load(checkpoint.parent / "out", device="cpu").dot_moe.config
    assert (config.n_experts, config.top_k, config.n_shared) == (5, 3, 2)
    assert (config.layers, config.seed, config.init, config.global_steps) == ((1,), 4, "weight", 1)
    assert load(checkpoint.parent / "out", device="cpu").dtype == torch.bfloat16
    assert run(checkpoint, "--top-k", "1", out="one").exit_code == 0
    assert load(checkpoint.parent / "one", device="cpu").dot_moe.config.n_shared == 0


def test_layers_are_numbers_and_ranges():
    assert use._numbers("") is None
    assert use._numbers("4-6, 9") == (4, 5, 6, 9)
    for bad in ("a", "4-", "-3", "1,,2", "1.5"):
        with pytest.raises(InputError, match="numbers and ranges"):
            use._numbers(bad)


def test_bad_input(checkpoint):
    home = checkpoint.parent
    (home / "empty.txt").write_text("\n \n")
    (home / "latin.txt").write_bytes("Größe".encode("latin-1"))
    (home / "short.txt").write_text("w1 w2 w3")
    failed(run(checkpoint, text="empty.txt"), "holds no text")
    failed(run(checkpoint, text="latin.txt"), "no UTF-8 text")
    failed(run(checkpoint, text="short.txt"), "less than one row")
    failed(run(checkpoint, "--max-tokens", "200"), "at least 256 are needed")
    failed(run(checkpoint, "--top-k", "9"), "top_k=9 and n_experts=8")
    failed(run(checkpoint, "--top-k", "2", "--n-shared", "2"), "n_shared=2 and top_k=2")
    failed(run(checkpoint, "--layers", "7"), "numbers from 0 to 1")
    failed(run(checkpoint, "--max-tokens", "0"), "--max-tokens must be at least 1")
    failed(run(home / "nothing"), "no folder")
    assert isinstance(run(checkpoint, text="absent.txt").exception, FileNotFoundError)
    assert not (home / "out").exists()
    (home / "full").mkdir()
    (home / "full" / "mine").write_text("mine")
    failed(run(checkpoint, out="full"), "not empty")


def test_a_converted_folder_is_not_converted_again(checkpoint):
    assert run(checkpoint).exit_code == 0
    failed(run(checkpoint.parent / "out", out="twice"), "is converted already")


def test_of_a_long_text_only_what_is_asked_for_is_read(tmp_path):
    (tmp_path / "long.txt").write_text("word " * 2**19)
    (paragraph,) = use._paragraphs(tmp_path / "long.txt", 10)
    assert len(paragraph) == 2**20
