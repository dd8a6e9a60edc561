import json

import pytest
from csplora_models import bert, llama
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertModel, PreTrainedTokenizerFast
from typer.testing import CliRunner

from assay.errors import InputError
from assay.models.csplora import ModuleScores, RankPlan
from assay.models.csplora.use import app

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[EOS]", "good", "bad", "film", "very", "not", "a", "the", "it", "was"]


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of each kind with a tokenizer of some words, and training rows."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", eos_token="[EOS]")
    for name, model in (("bare", BertModel(bert().config)), ("classifier", bert(labels=2)), ("language", llama())):
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    rows = [{"text": f"it was a {word} film", "label": word} for word in ("good", "bad") for _ in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def run(folder, *arguments, code=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if code == 0:
        assert done.exit_code == 0, done.output + repr(done.exception)
    return done


def test_a_classifier_with_a_new_head(folder):
    out, config = folder / "plan.json", folder / "lora"
    done = run(
        folder, "--model", folder / "bare", "--data", folder / "rows.jsonl", "--label-field", "label", "--rank", 4,
        "--steps", 5, "--batch-size", 8, "--out", out, "--lora-config", config, "--save-scores", folder / "scores.json",
    )  # fmt: skip
    plan = RankPlan.load(out)
    assert str(plan) in done.output
    assert "a new one is trained first" in done.output
    assert "had not settled after 5 batches" in done.output
    assert plan.trainable_parameters <= plan.uniform_parameters
    assert plan.settings["budget"] == "params"
    assert ModuleScores.load(folder / "scores.json").plan(4, budget="params").ranks == plan.ranks
    # What is written for PEFT makes a model that obeys the plan.
    plan.verify(get_peft_model(bert(labels=2), LoraConfig.from_pretrained(config)))
    assert json.loads((config / "adapter_config.json").read_text())["task_type"] == "SEQ_CLS"


def test_the_checkpoints_own_head(folder):
    done = run(
        folder, "--model", folder / "classifier", "--data", folder / "rows.jsonl", "--label-field", "label",
        "--steps", 3, "--budget", "rank", "--out", folder / "plan.json", "--target", "query", "--target", "value",
    )  # fmt: skip
    assert "new one" not in done.output
    plan = RankPlan.load(folder / "plan.json")
    assert {name.rpartition(".")[2] for name in plan.ranks} == {"query", "value"}
    assert plan.total_rank == 4 * 8


@pytest.mark.parametrize("labels", [[], ["--label-field", "label"]])
def test_a_language_model_with_and_without_answers(folder, labels):
    run(
        folder, "--model", folder / "language", "--data", folder / "rows.jsonl", *labels, "--steps", 3,
        "--out", folder / "plan.json", "--lora-config", folder / "lora", "--dtype", "bfloat16", "--rank", 4,
    )  # fmt: skip
    plan = RankPlan.load(folder / "plan.json")
    plan.verify(get_peft_model(llama(), LoraConfig.from_pretrained(folder / "lora")))


def test_numbers_are_a_regression(folder):
    rows = [{"text": f"it was a {word} film", "label": score} for word, score in (("good", 1.5), ("bad", -2.0))]
    (folder / "numbers.jsonl").write_text("\n".join(json.dumps(row) for row in rows * 20))
    run(
        folder, "--model", folder / "bare", "--data", folder / "numbers.jsonl", "--label-field", "label",
        "--steps", 2, "--out", folder / "plan.json",
    )  # fmt: skip
    assert RankPlan.load(folder / "plan.json").rank == 8


def test_kept_scores_give_other_budgets(folder):
    run(
        folder, "--model", folder / "bare", "--data", folder / "rows.jsonl", "--label-field", "label", "--steps", 3,
        "--out", folder / "plan.json", "--save-scores", folder / "scores.json",
    )  # fmt: skip
    run(folder, "--scores", folder / "scores.json", "--rank", 3, "--out", folder / "three.json")
    assert RankPlan.load(folder / "three.json").rank == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--model": None}, "give --model and --data"),
        ({"--scores": "rows.jsonl"}, "nothing is run"),
        ({"--kind": "vision"}, "--kind must be one of"),
        ({"--label-field": None}, "--label-field: classification needs"),
        ({"--steps": 0}, "--steps must be at least 1"),
        ({"--batch-size": 0}, "--batch-size"),
        ({"--length": 1}, "--length"),
        ({"--text-field": "body"}, "no field 'body'"),
        ({"--budget": "flops"}, "budget must be"),
        ({"--target": "nowhere"}, "'nowhere' matches no module"),
        ({"--gamma": -1}, "gamma"),
        ({"--device": "moon"}, "device"),
    ],
)
def test_mistakes(folder, change, message):
    options = {
        "--model": folder / "bare", "--data": folder / "rows.jsonl", "--label-field": "label", "--steps": 2,
        "--out": folder / "plan.json",
    } | change  # fmt: skip
    if "--scores" in change:
        options["--scores"] = folder / change["--scores"]
    done = run(folder, *[part for item in options.items() if item[1] is not None for part in item], code=1)
    assert isinstance(done.exception, ValueError), done.output
    assert message in str(done.exception)
    assert not (folder / "plan.json").exists()


@pytest.mark.parametrize("option", ["--out", "--save-scores", "--lora-config"])
def test_what_cannot_be_written_is_said_before_anything_is_run(folder, monkeypatch, option):
    monkeypatch.setattr("assay.models.csplora.use._scores", lambda *_: pytest.fail("the probe ran"))
    before = sorted(folder.iterdir())
    done = run(
        folder, "--model", folder / "bare", "--data", folder / "rows.jsonl", "--label-field", "label",
        "--out", folder / "plan.json", option, folder, code=1,
    )  # fmt: skip
    assert isinstance(done.exception, InputError)
    assert option in str(done.exception)
    assert sorted(folder.iterdir()) == before
