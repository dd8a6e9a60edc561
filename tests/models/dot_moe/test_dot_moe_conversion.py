import copy
import dataclasses
import json
from itertools import pairwise

import pytest
import torch
from dot_moe_models import MODELS, VOCABULARY, model, tokens
from safetensors import safe_open
from transformers import AutoModelForCausalLM, MixtralConfig, MixtralForCausalLM

from assay.errors import InputError
from assay.models.dot_moe import (
    ConversionError,
    DotMoEConfig,
    DotMoEFFN,
    UnsupportedModelError,
    active_parameters,
    conversion,
    convert,
    load,
    report,
    save,
    set_top_k,
)
from assay.models.dot_moe.dense import sites
from assay.models.dot_moe.global_stage import _schedule
from assay.models.dot_moe.recording import record_inputs, recorded, token_rows
from assay.parts.checkpoints import load_model

CONFIG = DotMoEConfig(n_experts=8, top_k=2, steps=4, batch_tokens=64)


def logits(net, ids=None):
    with torch.no_grad():
        return net(tokens(3) if ids is None else ids).logits


def same_weights(one, other):
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("kind", list(MODELS))
def test_all_experts_together_are_the_dense_model_and_what_is_saved_is_what_is_loaded(kind, tmp_path):
    net = model(kind)
    before = logits(net)
    same = convert(net, None, tokens(), dataclasses.replace(CONFIG, lr_weights=0.0))
    assert same is net
    converted = logits(net)
    assert (converted - before).abs().max() > 1e-2
    set_top_k(net, 8)
    assert (logits(net) - before).abs().max() < 1e-4
    set_top_k(net, 2)
    save(net, tmp_path / "out")
    again = load(tmp_path / "out", device="cpu")
    assert same_weights(again, net)
    torch.testing.assert_close(logits(again), converted, atol=1e-5, rtol=0)
    assert (logits(load(tmp_path / "out", top_k=8, device="cpu")) - before).abs().max() < 1e-4
    # Nothing takes the folder for a dense model.
    with pytest.raises(ValueError, match="dot_moe"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    with pytest.raises(InputError, match="dot_moe"):
        load_model(tmp_path / "out")


def test_a_loaded_model_generates_as_the_one_that_was_saved(tmp_path):
    net = convert(model(), None, tokens(), CONFIG)
    prompt = tokens(2, 5)
    said = net.generate(prompt, max_new_tokens=8, do_sample=False)
    net.save_pretrained(tmp_path / "out")  # transformers' own way writes the same
    again = load(tmp_path / "out", device="cpu")
    assert torch.equal(again.generate(prompt, max_new_tokens=8, do_sample=False), said)
    # With the cache, token by token, as without it.
    assert torch.equal(again.generate(prompt, max_new_tokens=8, do_sample=False, use_cache=False), said)
    assert again.dot_moe.config == net.dot_moe.config
    assert again.dot_moe.layers == (0, 1)
    with pytest.raises(ValueError, match="dot_moe"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_a_dense_class_does_not_load_a_converted_folder_either(tmp_path):
    net = convert(model(), None, tokens(), CONFIG)
    save(net, tmp_path / "out")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        type(model()).from_pretrained(tmp_path / "out")
    net.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    assert same_weights(load(tmp_path / "shards", device="cpu"), net)


def test_a_pass_in_training_leaves_nothing_behind():
    net = convert(model(), None, tokens(), CONFIG).train()
    loss = net(tokens(2), labels=tokens(2)).loss
    loss.backward()
    again = copy.deepcopy(net).eval()  # fails where a module holds tensors of the pass
    assert torch.equal(logits(again), logits(net.eval()))
    assert all(m.up.grad is not None for m in net.modules() if isinstance(m, DotMoEFFN))


def test_the_saved_files_are_safetensors_and_json_with_experts_side_by_side(tmp_path):
    net = convert(model(), None, tokens(), dataclasses.replace(CONFIG, lr_weights=0.0, layers=(1,)))
    save(net, tmp_path / "out")
    assert {p.suffix for p in (tmp_path / "out").iterdir()} == {".json", ".safetensors"}
    written = json.loads((tmp_path / "out" / "dot_moe.json").read_text())
    assert written["layers"] == [1]
    assert written["base_config"]["model_type"] == "llama"
    with safe_open(tmp_path / "out" / "model.dot_moe.safetensors", "pt") as file:
        up, assignment = file.get_tensor("model.layers.1.mlp.up"), file.get_tensor("model.layers.1.mlp.assignment")
        assert "model.layers.0.mlp.up_proj.weight" in file.keys()  # noqa: SIM118
    order = torch.argsort(assignment, stable=True)
    assert torch.equal(up, model().model.layers[1].mlp.up_proj.weight[order])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models(dtype, tmp_path):
    net = convert(model().to(dtype), None, tokens(), dataclasses.replace(CONFIG, global_steps=2), ("layer", "global"))
    assert {p.dtype for p in net.parameters()} == {dtype}
    save(net, tmp_path / "out")
    assert same_weights(load(tmp_path / "out", device="cpu"), net)
    assert load(tmp_path / "out", dtype="float32", device="cpu").dtype == torch.float32


def test_tied_embeddings_and_generation_settings_survive(tmp_path):
    net = convert(model("gemma"), None, tokens(), CONFIG)
    net.generation_config.max_new_tokens = 3
    save(net, tmp_path / "out")
    again = load(tmp_path / "out", device="cpu")
    assert again.lm_head.weight.data_ptr() == again.model.embed_tokens.weight.data_ptr()
    assert again.generation_config.max_new_tokens == 3


def test_recorded_inputs_are_those_of_the_layers(tmp_path):
    for kind in ("llama", "opt"):
        net, ids = model(kind), tokens(5, 16)
        seen = []
        place = net.model.layers[1].mlp if kind == "llama" else net.model.decoder.layers[1].fc1
        hook = place.register_forward_pre_hook(lambda m, a, seen=seen: seen.append(a[0].detach().reshape(-1, 32)))
        logits(net, ids)
        hook.remove()
        folder = tmp_path / kind
        folder.mkdir()
        record_inputs(net, sites(net), ids, folder, batch_tokens=32)
        torch.testing.assert_close(recorded(folder, 1).float(), torch.cat(seen), atol=1e-2, rtol=1e-2)
        assert not place._forward_pre_hooks


def test_report_and_the_comparison_made_by_convert():
    net, held_out = model(), tokens(4, seed=9)
    before = logits(net, held_out)
    dense_parameters = sum(p.numel() for p in net.parameters())
    convert(net, None, tokens(), dataclasses.replace(CONFIG, lr_weights=0.0), eval_data=held_out)
    made = net.dot_moe.report
    after = logits(net, held_out)

    def perplexity(scores):
        nll = torch.nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), held_out[:, 1:].flatten())
        return float(nll.exp())

    assert made["ppl_dense"] == pytest.approx(perplexity(before), rel=1e-4)
    assert made["ppl_moe"] == pytest.approx(perplexity(after), rel=1e-4)
    assert made["ppl_all_experts"] == pytest.approx(made["ppl_dense"], rel=1e-4)
    p, q = before.log_softmax(-1), after.log_softmax(-1)
    assert made["kl"] == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), rel=1e-3)
    assert made["dense_parameters"] == dense_parameters
    assert made["total_parameters"] == dense_parameters + 2 * 7 * 32
    assert set(made["relative_error"]) == set(made["max_load"]) == {0, 1}
    assert all(0 < e < 2 for e in made["relative_error"].values())
    assert all(1 <= m <= 7 for m in made["max_load"].values())
    # The same from outside, with a dense model beside it.
    beside = report(net, held_out, dense=model())
    for name in ("ppl_dense", "ppl_moe", "kl", "active_parameters", "max_load"):
        assert beside[name] == pytest.approx(made[name], rel=1e-4)
    assert set_top_k(net, 8) is net
    assert active_parameters(net) == made["total_parameters"]


def test_active_parameters_of_the_small_language_model():
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.device("meta"):
        net = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                num_attention_heads=9, num_key_value_heads=3, tie_word_embeddings=True,
            )
        )  # fmt: skip
        assert sum(p.numel() for p in net.parameters()) == 134_515_008
        for site in sites(net):
            site.put(DotMoEFFN(site.dense(), 8, 2))
    assert active_parameters(net) == 74_933_568


def test_the_global_stage_brings_predictions_closer():
    net, ids = model(), tokens(24)
    settings = dataclasses.replace(CONFIG, global_steps=30, lr_global=1e-3, batch_tokens=256, ce=0.0)
    apart = convert(model(), None, ids, settings, eval_data=ids)
    steps = []
    convert(net, None, ids, settings, ("layer", "global"), ids, progress=lambda *a: steps.append(a))
    assert net.dot_moe.report["kl"] < 0.8 * apart.dot_moe.report["kl"]
    assert ("global stage", 30, 30) in steps
    # Only what was converted has changed, and all may be trained on.
    assert torch.equal(net.model.layers[0].self_attn.q_proj.weight, model().model.layers[0].self_attn.q_proj.weight)
    assert all(p.requires_grad and p.grad is None for p in net.parameters())


def test_texts_and_batches_are_read(tmp_path):
    class Letters:
        eos_token_id = 0

        def __call__(self, texts, add_special_tokens, verbose):
            return {"input_ids": [[3 + ord(c) % (VOCABULARY - 3) for c in text] for text in texts]}

    net = model()
    rows = token_rows(net, Letters(), ["some words of a text"] * 40)
    assert rows.shape[1] == 64  # the model's context is shorter than 256
    batches = token_rows(net, None, iter([tokens(2), tokens(3)]))
    assert torch.equal(batches, torch.cat([tokens(2), tokens(3)]))
    convert(net, Letters(), ["some words of a text"] * 40, CONFIG)
    assert net.dot_moe.layers == (0, 1)


class Broken(Exception):
    pass


def breaks(number):
    calls = []

    def progress(what, done, total):
        calls.append(what)
        if what == "layers" and done == number:
            raise Broken

    return progress


def test_what_was_interrupted_goes_on(tmp_path, monkeypatch):
    whole = convert(model(), None, tokens(), CONFIG)
    net = model()
    before = logits(net)
    with pytest.raises(Broken):
        convert(net, None, tokens(), CONFIG, progress=breaks(1), work=tmp_path / "work")
    assert torch.equal(logits(net), before)
    assert not hasattr(net, "dot_moe")
    done = []
    original = conversion.convert_layer
    monkeypatch.setattr(conversion, "convert_layer", lambda *a: done.append(a[3]) or original(*a))
    convert(net, None, tokens(), CONFIG, work=tmp_path / "work")
    assert done == [1]  # layer 0 was finished
    assert torch.equal(logits(net), logits(whole))
    # Another text, another settings: nothing of it is used.
    done.clear()
    convert(model(), None, tokens(seed=5), CONFIG, work=tmp_path / "work")
    assert done == [0, 1]


def test_what_another_model_left_is_not_used(tmp_path, monkeypatch):
    convert(model(), None, tokens(), CONFIG, work=tmp_path / "work")
    other = model()
    with torch.no_grad():
        other.model.layers[0].self_attn.q_proj.weight.mul_(1.5)  # its feed-forward layers are the same
    done = []
    original = conversion.convert_layer
    monkeypatch.setattr(conversion, "convert_layer", lambda *a: done.append(a[3]) or original(*a))
    convert(other, None, tokens(), CONFIG, work=tmp_path / "work")
    assert done == [0, 1]


def test_an_interrupted_comparison_leaves_the_dense_model(monkeypatch):
    def broken(*arguments):
        raise Broken

    net = model()
    monkeypatch.setattr(conversion, "compare", broken)
    with pytest.raises(Broken):
        convert(net, None, tokens(), CONFIG, eval_data=tokens(2, seed=3))
    assert same_weights(net, model())
    assert not hasattr(net, "dot_moe")


@pytest.mark.parametrize("name", ["mine.txt", "key"])
def test_a_folder_with_other_things_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="holds other things"):
        convert(model(), None, tokens(), CONFIG, work=tmp_path)
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize("stages", [("layer",), ("layer", "global")])
def test_a_loss_that_is_not_finite_leaves_the_dense_model(stages):
    net = model()
    before = logits(net)
    bad = {"lr_weights": 1e18} if stages == ("layer",) else {"lr_global": float("1e30"), "global_steps": 5}
    with pytest.raises(ConversionError, match="at step") as caught:
        convert(net, None, tokens(), dataclasses.replace(CONFIG, **bad), stages)
    assert caught.value.layer == (0 if stages == ("layer",) else None)
    assert torch.equal(logits(net), before)
    assert not any(isinstance(m, DotMoEFFN) for m in net.modules())


@pytest.mark.parametrize(("value", "error"), [(float("nan"), "writes NaN or infinity"), (1e30, "very large numbers")])
def test_damaged_weights_are_named(value, error):
    net = model()
    with torch.no_grad():
        net.model.layers[1].mlp.up_proj.weight[0, 0] = value
    with pytest.raises((InputError, ConversionError), match=f"layer 1.*{error}"):
        convert(net, None, tokens(), CONFIG)
    assert not any(isinstance(m, DotMoEFFN) for m in net.modules())


def test_models_that_cannot_be_converted():
    mixtral = MixtralForCausalLM(
        MixtralConfig(
            vocab_size=97, hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, num_local_experts=2,
        )
    )  # fmt: skip
    with pytest.raises(UnsupportedModelError, match="Mixtral"):
        convert(mixtral, None, tokens(), CONFIG)
    with pytest.raises(UnsupportedModelError, match="no list of decoder layers"):
        convert(torch.nn.Linear(3, 3), None, tokens(), CONFIG)
    net = convert(model(), None, tokens(), CONFIG)
    with pytest.raises(ValueError, match="converted already"):
        convert(net, None, tokens(), CONFIG)
    opt = convert(model("opt"), None, tokens(), CONFIG)
    with pytest.raises(ValueError, match="converted already"):
        convert(opt, None, tokens(), CONFIG)


def test_a_layer_that_computes_something_else_with_such_weights_is_refused():
    net = model()
    mlp = net.model.layers[1].mlp
    plain = type(mlp).forward
    mlp.forward = lambda x: 2 * plain(mlp, x)
    with pytest.raises(UnsupportedModelError, match=r"layer 1: LlamaMLP has the weights .* computes something else"):
        convert(net, None, tokens(), CONFIG)


def test_quantised_weights_and_adapters_are_refused():
    net = model()

    class Linear4bit(torch.nn.Linear):
        pass

    net.model.layers[0].mlp.up_proj = Linear4bit(32, 50)
    with pytest.raises(TypeError, match="made of Linear4bit, not of plain linear layers"):
        convert(net, None, tokens(), CONFIG)
    net = model()
    net.model.layers[0].mlp.up_proj.weight = torch.nn.Parameter(torch.zeros(50, 32, dtype=torch.int8), False)
    with pytest.raises(TypeError, match=r"must be floating-point numbers, not torch\.int8"):
        convert(net, None, tokens(), CONFIG)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (tokens(1, 64), ValueError, "has 64 tokens; at least 256 are needed"),
        (tokens(0), ValueError, "whole numbers of shape"),
        (torch.zeros(4, 32), ValueError, r"torch\.float32"),
        ([], ValueError, "holds nothing"),
        (["text"], ValueError, "texts need a tokenizer"),
        (["text", 3], ValueError, "holds int, str"),
        ([tokens(2, 8), tokens(2, 9)], ValueError, "one length"),
        (tokens() + VOCABULARY, ValueError, r"tokens must be 0 to 96 for this model"),
        (tokens(8, 65), ValueError, "rows have 65 tokens, and the model's context is 64"),
        ("a text", TypeError, "not str"),
        (7, TypeError, "not int"),
    ],
)
def test_bad_text(data, error, message):
    with pytest.raises(error, match=message):
        convert(model(), None, data, CONFIG)


@pytest.mark.parametrize(
    ("settings", "stages", "message"),
    [
        ({"n_experts": 51}, ("layer",), "n_experts=51 and d_ffn=50"),
        ({"layers": (0, 2)}, ("layer",), r"numbers from 0 to 1, got \[2\]"),
        ({"layers": ()}, ("layer",), "numbers from 0 to 1"),
        ({}, ("global",), "stages must be"),
        ({}, ("layer", "global"), "global_steps of at least 1"),
    ],
)
def test_settings_that_do_not_fit_the_model(settings, stages, message):
    with pytest.raises(ValueError, match=message):
        convert(model(), None, tokens(16, 60), dataclasses.replace(CONFIG, **settings), stages)


def test_folders_that_are_no_converted_model(tmp_path):
    with pytest.raises(InputError, match=r"holds no dot_moe\.json"):
        load(tmp_path)
    with pytest.raises(ValueError, match="no converted transformers model"):
        save(model(), tmp_path / "dense")
    out = tmp_path / "out"
    save(convert(model(), None, tokens(), CONFIG), out)
    with pytest.raises(InputError, match="not empty"):
        save(convert(model(), None, tokens(), CONFIG), out)
    with pytest.raises(ValueError, match="top_k=9"):
        load(out, top_k=9, device="cpu")
    path = out / "dot_moe.json"
    good = json.loads(path.read_text())
    for bad, message in [
        ("{", "is no JSON"),
        (json.dumps(good | {"format": 2}), "format"),
        (json.dumps({k: v for k, v in good.items() if k != "config"}), "damaged"),
        (json.dumps(good | {"base_class": "AutoTokenizer"}), "no model of transformers"),
        (json.dumps(good | {"top_k": 99}), "top_k=99"),
        (json.dumps(good | {"base_class": "GPT2LMHeadModel"}), "cannot be loaded"),
    ]:
        path.write_text(bad)
        with pytest.raises(InputError, match=message):
            load(out, device="cpu")
    path.write_text(json.dumps(good))
    (out / "model.dot_moe.safetensors").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be loaded"):
        load(out, device="cpu")


@pytest.mark.parametrize(
    ("settings", "needed"), [({"batch_tokens": 150}, 300), ({"batch_tokens": 20, "n_experts": 10}, 320)]
)
def test_the_least_text_is_enough_and_a_token_less_is_not(settings, needed):
    config = dataclasses.replace(CONFIG, steps=1, **settings)
    assert convert(model(), None, tokens(needed // 20, 20), config).dot_moe.layers == (0, 1)
    with pytest.raises(ValueError, match=rf"has {needed - 19} tokens; at least {needed} are needed"):
        convert(model(), None, tokens(needed - 19, 1), config)


def test_texts_without_a_word_are_too_few():
    class Words:
        eos_token_id = 0

        def __call__(self, texts, add_special_tokens, verbose):
            return {"input_ids": [[3] * len(text.split()) for text in texts]}

    for texts in ([""], ["", "  "]):
        with pytest.raises(ValueError, match="less than one row"):
            convert(model(), Words(), texts, CONFIG)


def test_another_top_k_when_loaded_is_another_top_k_when_set(tmp_path):
    net = convert(model(), None, tokens(), CONFIG)
    save(net, tmp_path / "out")
    before = logits(net)
    for k in (3, 5):
        again = load(tmp_path / "out", top_k=k, device="cpu")
        assert {m.top_k for m in again.modules() if isinstance(m, DotMoEFFN)} == {k}
        torch.testing.assert_close(logits(again), logits(set_top_k(net, k)), atol=1e-5, rtol=0)
        assert (logits(again) - before).abs().max() > 1e-3


def test_the_global_stage_warms_up_and_cools_to_nothing():
    rates = [_schedule(step, 50) for step in range(51)]
    assert rates[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert rates[10] == 1
    assert rates[30] == pytest.approx(0.5)
    assert rates[50] == pytest.approx(0)
    assert all(later < earlier for earlier, later in pairwise(rates[10:]))


def test_the_global_loss_by_hand(monkeypatch):
    losses = []
    original = conversion.train_together

    def watched(net, ffns, originals, rows, config, on_step):
        original(net, ffns, originals, rows, config, lambda step, value: losses.append(value))

    monkeypatch.setattr(conversion, "train_together", watched)

    def peaked():  # so that the divergence from one to the other is not the one back
        net = model()
        with torch.no_grad():
            net.lm_head.weight.mul_(8)
        return net

    ids = tokens(1).repeat(16, 1)  # all rows alike: every batch has the same loss
    config = dataclasses.replace(CONFIG, global_steps=1, steps=2, balance=0.0, z_loss=0.0)
    before, after = (logits(net, ids[:1]).log_softmax(-1) for net in (peaked(), convert(peaked(), None, ids, config)))
    kl = float((before.exp() * (before - after)).sum(-1).mean())
    backwards = float((after.exp() * (after - before)).sum(-1).mean())
    assert abs(kl - backwards) > 0.01 * kl
    ce = float(torch.nn.functional.nll_loss(after[0, :-1], ids[0, 1:]))
    for a, b in ((1.0, 0.0), (0.0, 1.0), (0.5, 2.0)):
        convert(peaked(), None, ids, dataclasses.replace(config, kl=a, ce=b), ("layer", "global"))
        assert losses.pop() == pytest.approx(a * kl + b * ce, rel=1e-3)  # of the one step, taken before it
    # The losses of the routers come with it.
    for changed in ({"balance": 1.0}, {"z_loss": 1.0}):
        convert(peaked(), None, ids, dataclasses.replace(config, kl=0.0, ce=0.0, **changed), ("layer", "global"))
        assert losses.pop() > 0.5
