"""The tasks of the full budget, end to end, with tiny networks in place of MiniLM and SmolLM2."""

import pytest
import torch
import transformers as hf

from assay.evidence.study import Budget
from assay.models.sa_merging import language, study
from assay.models.sa_merging.study import STUDY
from assay.parts import minilm
from assay.parts.checkpoints import load_tokenizer
from assay.parts.text import Choice

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = ("wing", "bridge", "harbour", "violin")


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(minilm.folder())


def build(cls, config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return cls(config).eval()


def kinds():
    """Two kinds of text; in the second one class is too rare to be learned."""
    texts = [f"a {WORDS[i % 4]} number {i}" for i in range(60)]
    return {
        "first": (texts, [WORDS[i % 4] for i in range(60)]),
        "second": (texts, ["rare" if i == 0 else WORDS[i % 2] for i in range(60)]),
    }


@pytest.fixture
def encoders(tokenizer, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    network = build(hf.BertModel, hf.BertConfig(**SIZES, vocab_size=len(tokenizer)))
    monkeypatch.setattr(language.minilm, "load", lambda: (network, tokenizer))
    monkeypatch.setattr(language, "kinds", kinds)
    monkeypatch.setattr(language, "LEAST", 3)
    monkeypatch.setattr(language, "TOKENS", 8)
    small = language.make_minilm_experts
    monkeypatch.setattr(language, "make_minilm_experts", lambda seed, folder: small(seed, folder, steps=20))


def test_every_arm_runs_on_encoders(encoders):
    given, suite = STUDY.task("minilm").load(0, Budget.FULL)
    assert [asked.head.shape[0] for asked in suite.questions] == [4, 2]  # the rare class is left out
    for n, (expert, asked) in enumerate(zip(suite.experts, suite.questions, strict=True)):
        assert len(asked.tune[0]) == len(asked.tune[1]) > 0
        # An expert has learned its own questions, and never moved the pooler.
        loss = [float(study.accuracies(suite, state, "test", [n])[0, 1]) for state in (suite.base, expert)]
        assert loss[1] < loss[0]
        assert torch.equal(expert["pooler.dense.weight"], suite.base["pooler.dense.weight"])
    for arm in STUDY.arms:
        if "minilm" in arm.tasks:
            found = STUDY.task("minilm").score(arm.run(given, 0, Budget.FULL), suite)
            assert found["accuracy"] > 0, arm.name
            assert ("of_best_scale" in found) == (arm.name not in ("base", "experts")), arm.name


@pytest.fixture
def adapters(tokenizer, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    config = hf.LlamaConfig(**SIZES, vocab_size=len(tokenizer), max_position_embeddings=64)
    base = build(hf.LlamaForCausalLM, config)
    base.save_pretrained(tmp_path / "base")
    monkeypatch.setattr(language.smollm2, "folder", lambda: tmp_path / "base")
    monkeypatch.setattr(
        language.smollm2, "load", lambda: (hf.LlamaForCausalLM.from_pretrained(tmp_path / "base").eval(), tokenizer)
    )
    monkeypatch.setattr(
        language,
        "_all_choices",
        lambda: {
            "first": [Choice(f"a {WORDS[i % 4]}?", ("yes", "no"), 0) for i in range(12)],
            "second": [Choice(f"no {WORDS[i % 4]}?", WORDS[:3], 2) for i in range(12)],
        },
    )
    monkeypatch.setattr(language, "ASKED", 4)
    monkeypatch.setattr(language, "LORA_RATE", 0.05)
    small = language.make_adapters
    monkeypatch.setattr(language, "make_adapters", lambda seed, folder: small(seed, folder, steps=12))


def test_adapters_are_trained_merged_and_scored(adapters, tokenizer):
    task = STUDY.task("lora")
    given, questions = task.load(0, Budget.FULL)
    assert [folder.name for folder in given.experts] == ["first", "second"]
    assert {name: len(asked) for name, asked in questions.asked.items()} == {"first": 4, "second": 4}
    found = {
        arm.name: task.score(arm.run(given, 0, Budget.FULL), questions) for arm in STUDY.arms if "lora" in arm.tasks
    }
    assert {name: one["ranks_out"] for name, one in found.items()} == {
        "sa-merging": 0.5, "adapter-sum": 0.0, "base": 1.0,
    }  # fmt: skip
    # Each adapter alone has learned the answers to its own kind of question.
    for folder, asked in zip(given.experts, questions.asked.values(), strict=True):
        alone = language.merged_adapter(given.base, [folder], keep=1.0)
        assert task.score(alone, language.LoraQuestions({"own": asked}))["accuracy"] == 1
