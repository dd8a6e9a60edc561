import math

import numpy as np
import pytest
import torch
import transformers
from beartype import beartype
from jaxtyping import jaxtyped

from assay.parts import lm_scoring, smollm2, text
from assay.parts.checkpoints import load_tokenizer
from assay.parts.text import Choice

perplexity = jaxtyped(typechecker=beartype)(lm_scoring.perplexity)
token_batches = jaxtyped(typechecker=beartype)(lm_scoring.token_batches)
option_scores = jaxtyped(typechecker=beartype)(lm_scoring.option_scores)
choice_accuracy = jaxtyped(typechecker=beartype)(lm_scoring.choice_accuracy)


def llama(**changes):
    torch.manual_seed(0)
    options = {
        "vocab_size": 49152, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "initializer_range": 0.5,
    }  # fmt: skip
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**options | changes)).eval()


def gpt2():
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=49152, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    return transformers.GPT2LMHeadModel(config).eval()


def gemma2():  # squashes its logits after the head
    torch.manual_seed(0)
    config = transformers.Gemma2Config(
        vocab_size=49152, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5, initializer_range=0.5,
    )  # fmt: skip
    return transformers.Gemma2ForCausalLM(config).eval()


MODELS = {"llama": llama, "gpt2": gpt2, "gemma2": gemma2}


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(smollm2.folder())


@pytest.fixture
def ids():
    return torch.randint(49152, (5, 12), generator=torch.Generator().manual_seed(1))


def loss_of_transformers(model, ids):
    with torch.inference_mode():
        return float(model(ids, labels=ids).loss)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("most", [lm_scoring.MOST_LOGITS, 7 * 49152])
def test_perplexity_is_that_of_the_models_own_loss(name, most, ids, monkeypatch):
    monkeypatch.setattr(lm_scoring, "MOST_LOGITS", most)
    model = MODELS[name]()
    want = math.exp(loss_of_transformers(model, ids))
    for batch_size in (1, 2, 8):
        assert perplexity(model, ids, batch_size) == pytest.approx(want, rel=1e-4)


def test_what_a_model_does_after_its_head_is_seen(ids):
    assert lm_scoring._head_gives_logits(llama(), ids[:1])
    assert not lm_scoring._head_gives_logits(gemma2(), ids[:1])
    granite = transformers.GraniteConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, logits_scaling=8.0,
    )  # fmt: skip
    small = ids % 64
    model = transformers.GraniteForCausalLM(granite).eval()
    assert perplexity(model, small) == pytest.approx(math.exp(loss_of_transformers(model, small)), rel=1e-4)


def test_adapters_count(ids):
    import peft

    model = llama()
    plain = perplexity(model, ids)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    assert perplexity(adapted, ids) == pytest.approx(math.exp(loss_of_transformers(adapted, ids)), rel=1e-4)
    assert perplexity(adapted, ids) != pytest.approx(plain, rel=1e-4)


def test_tokens_that_an_adapter_puts_before_the_text_are_not_scored(ids, tokenizer):
    import peft

    adapted = peft.get_peft_model(llama(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    with torch.inference_mode():
        logits = adapted(input_ids=ids).logits
        assert logits.shape[1] == ids.shape[1] + 3
        loss = torch.nn.functional.cross_entropy(logits[:, 3:-1].flatten(0, 1), ids[:, 1:].flatten())
        assert perplexity(adapted, ids) == pytest.approx(math.exp(loss), rel=1e-4)
        whole = torch.tensor([tokenizer("Question: a\nAnswer: yes")["input_ids"]])
        want = adapted(input_ids=whole).logits[0, -2].log_softmax(-1)[whole[0, -1]] / 3
        # Beside a longer option, so that there is padding.
        scores = option_scores(adapted, tokenizer, [Choice("a", ("yes", "no, not at all"), 0)])[0]
    assert scores[0] == pytest.approx(float(want), rel=1e-4)


def test_narrow_integers(ids):
    assert perplexity(llama(), ids.int()) == perplexity(llama(), ids)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(ids):
    model = llama(tie_word_embeddings=False)
    torch.nn.init.zeros_(model.lm_head.weight)
    assert perplexity(model, ids) == pytest.approx(49152, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(ids, dtype):
    model = llama(initializer_range=0.02)
    assert perplexity(model.to(dtype), ids) == pytest.approx(perplexity(model.float(), ids), rel=0.01)


def test_a_hopeless_model_is_infinitely_perplexed(ids):
    model = llama(tie_word_embeddings=False)
    model.lm_head.weight.data *= 1e5
    assert perplexity(model, ids) == math.inf


def test_memory_is_bounded(ids, monkeypatch):
    monkeypatch.setattr(lm_scoring, "MOST_LOGITS", 3 * 49152)
    model = llama()
    rows = []
    model.lm_head.register_forward_hook(lambda head, inputs, out: rows.append(out.shape[:-1].numel()))
    perplexity(model, ids, 5)
    assert rows[:2] == [8, 8]  # a look at the beginning of one row, to see how the model makes its logits
    assert max(rows[2:]) == 3
    assert sum(rows[2:]) == 5 * 11


def test_the_model_is_left_as_it_was(ids, tokenizer):
    model = llama(attention_dropout=0.9).train()
    want = perplexity(model.eval(), ids)
    assert perplexity(model.train(), ids) == want
    assert model.training
    choice_accuracy(model, tokenizer, [Choice("a", ("b", "c"), 0)])
    assert model.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.zeros(0, 4, dtype=torch.long), "n >= 1"),
        (torch.zeros(2, 1, dtype=torch.long), "length >= 2"),
        (torch.zeros(2, 65, dtype=torch.long), "rows of ids have 65 tokens, and the model's context is 64"),
        (torch.full((2, 4), 49152), "must lie in 0 … 49151"),
        (torch.full((2, 4), -100), "must lie in 0 … 49151, the model's vocabulary, not -100"),
    ],
)
def test_bad_ids(bad, message):
    with pytest.raises(ValueError, match=message):
        perplexity(llama(), bad)


def test_token_batches_hold_the_texts_in_order(tokenizer):
    texts = ["One text here.", "And another, somewhat longer one.", "Third."]
    rows = token_batches(tokenizer, texts, 4)
    end = tokenizer.eos_token
    assert tokenizer.decode(rows.flatten()) in end.join(texts) + end
    whole = [i for t in texts for i in [*tokenizer(t)["input_ids"], tokenizer.eos_token_id]]
    assert rows.shape == (len(whole) // 4, 4)
    assert rows.flatten().tolist() == whole[: rows.numel()]
    assert torch.equal(token_batches(tokenizer, iter(texts), 4), rows)


def test_token_batches_of_bad_input(tokenizer):
    with pytest.raises(ValueError, match="length must be at least 2"):
        token_batches(tokenizer, ["a"], 1)
    with pytest.raises(TypeError, match="texts must be several strings, not one"):
        lm_scoring.token_batches(tokenizer, "a text that is long enough", 2)
    with pytest.raises(TypeError, match=r"texts\[1\] must be a string, not NoneType"):
        lm_scoring.token_batches(tokenizer, ["a", None], 2)
    with pytest.raises(ValueError, match="have 2 tokens, less than one row of length=128"):
        token_batches(tokenizer, ["a"], 128)


CHOICES = [
    Choice("Where do fish live?", ("in water", "on the moon", "a"), 0),
    Choice("What is 2 + 2? Think about it for a while, since it is not at all easy.", ("five", "four"), 1),
    Choice("Name an animal.", ("a rock that lies on the ground for ever", "dog"), 1),
]


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_one_row_at_a_time(name, tokenizer):
    model = MODELS[name]()
    want = []
    for choice in CHOICES:
        prompt = tokenizer(f"Question: {choice.question}\nAnswer:", return_tensors="pt")["input_ids"]
        scores = []
        for option in choice.options:
            own = tokenizer(f" {option}", return_tensors="pt")["input_ids"]
            with torch.inference_mode():
                logits = model(torch.cat([prompt, own], 1)).logits[0, prompt.shape[1] - 1 : -1].log_softmax(-1)
            scores.append(float(logits.gather(1, own[0, :, None]).sum()) / len(option.encode()))
        want.append(scores)
    for batch_size in (1, 3, 16):
        for got, expected in zip(option_scores(model, tokenizer, CHOICES, batch_size), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_a_tokenizer_that_ends_each_text_changes_nothing(tokenizer):
    class Ending:
        eos_token_id = tokenizer.eos_token_id

        def __call__(self, text, **options):
            return {"input_ids": [*tokenizer(text, **options)["input_ids"], self.eos_token_id]}

    model = llama()
    got, want = (lm_scoring.option_scores(model, t, CHOICES) for t in (Ending(), tokenizer))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)


def test_accuracy_counts_right_answers(tokenizer):
    model = llama()
    best = [int(np.argmax(scores)) for scores in option_scores(model, tokenizer, CHOICES)]
    right = [Choice(c.question, c.options, b) for c, b in zip(CHOICES, best, strict=True)]
    assert choice_accuracy(model, tokenizer, right) == 1.0
    wrong = Choice(right[0].question, right[0].options, (best[0] + 1) % 3)
    assert choice_accuracy(model, tokenizer, [wrong, *right[1:]]) == pytest.approx(2 / 3)


def test_a_question_beyond_the_context_is_cut_at_the_front(tokenizer):
    model = gpt2()  # 64 positions, and an error beyond
    long = Choice("word " * 300 + "end?", ("yes", "no"), 0)
    scores = option_scores(model, tokenizer, [long])[0]
    with torch.inference_mode():
        whole = torch.tensor([tokenizer(f"Question: {long.question}\nAnswer: yes")["input_ids"][-64:]])
        logits = model(whole).logits[0, -2].log_softmax(-1)
    assert scores[0] == pytest.approx(float(logits[whole[0, -1]]) / 3, rel=1e-4)


def test_bad_choices(tokenizer):
    with pytest.raises(ValueError, match="at least one question"):
        choice_accuracy(llama(), tokenizer, [])
    with pytest.raises(ValueError, match="a question has no options"):
        option_scores(llama(), tokenizer, [Choice("a", (), 0)])
    for answer in (2, -1):
        with pytest.raises(ValueError, match=f"answer must be 0 to 1, an option's number, not {answer}"):
            choice_accuracy(llama(), tokenizer, [Choice("a", ("b", "c"), answer)])
    with pytest.raises(ValueError, match="an option is empty"):
        choice_accuracy(llama(), tokenizer, [Choice("a", ("b", " "), 0)])
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        choice_accuracy(llama(), tokenizer, CHOICES, batch_size=0)
    with pytest.raises(ValueError, match="batch_size must be at least 1, not -1"):
        perplexity(llama(), torch.zeros(1, 4, dtype=torch.long), -1)


def test_a_real_model_reads_english_and_knows_something(tokenizer):
    model, _ = smollm2.load()
    ids = token_batches(tokenizer, text.boolq_passages()[:20], 64)[:4]
    english = perplexity(model, ids)
    assert 10 < english < 60
    shuffled = ids[:, torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    assert perplexity(model, shuffled) > 10 * english
    assert choice_accuracy(model, tokenizer, text.choices("piqa")[:16]) > 0.5
