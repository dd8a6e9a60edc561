import copy
import json

import peft
import pytest
import sa_merging_models as tiny
import torch
from beartype import beartype
from jaxtyping import jaxtyped
from safetensors.torch import load_file, save_file

from assay.models.sa_merging import ShapeMismatchError, merge_lora, sensitivity
from assay.models.sa_merging.lora import component_saliency

TARGETS = {
    "llama": ["q_proj", "v_proj", "down_proj"], "bert": ["query", "value", "output.dense"], "gpt2": ["c_attn", "c_fc"],
}  # fmt: skip


def adapted(kind, seed, rank=4, targets=None, **options):
    """A base with a LoRA adapter whose A and B are random."""
    model = peft.get_peft_model(
        tiny.build(kind),
        peft.LoraConfig(
            r=rank, lora_alpha=8, target_modules=targets or TARGETS[kind], fan_in_fan_out=kind == "gpt2", **options
        ),
    )
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=g))
    return model.eval()


def updates(model):
    """ΔW of each module, as PEFT computes it."""
    return {
        name.removeprefix("base_model.model."): module.get_delta_weight("default").detach()
        for name, module in model.named_modules()
        if isinstance(module, peft.tuners.lora.LoraLayer)
    }


def saved(tmp_path, kind="llama", seeds=(1, 2), **options):
    folders = []
    for seed in seeds:
        adapted(kind, seed, **options).save_pretrained(tmp_path / f"a{seed}")
        folders.append(tmp_path / f"a{seed}")
    return folders


def test_reference_value_of_a_component():
    b, a = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, -1.0]])
    assert component_saliency(torch.eye(2), b, a).tolist() == [1.0]
    with pytest.raises(Exception, match="component_saliency"):
        jaxtyped(typechecker=beartype)(component_saliency)(torch.eye(2), b, torch.ones(1, 3))


@pytest.mark.parametrize("kind", sorted(TARGETS))
def test_keeping_all_is_the_sum_and_peft_loads_it(kind, tmp_path):
    adapters = [adapted(kind, 1), adapted(kind, 2, rank=3)]
    expected = {name: d + updates(adapters[1])[name] for name, d in updates(adapters[0]).items()}
    merged = merge_lora(tiny.build(kind), adapters, keep=1, device="cpu")
    for name, delta in updates(merged).items():
        torch.testing.assert_close(delta, expected[name], msg=name)
    for n, model in enumerate(adapters):
        model.save_pretrained(tmp_path / str(n))
    out = merge_lora(tiny.build(kind), [tmp_path / "0", tmp_path / "1"], keep=1, to=tmp_path / "merged", device="cpu")
    again = peft.PeftModel.from_pretrained(tiny.build(kind), out)
    assert updates(again).keys() == expected.keys()
    for name, delta in updates(again).items():
        torch.testing.assert_close(delta, expected[name], msg=name)


@pytest.mark.parametrize("kind", sorted(TARGETS))
def test_one_round_by_hand(kind):
    adapters = [adapted(kind, 1), adapted(kind, 2)]
    base = tiny.build(kind)
    merged = merge_lora(copy.deepcopy(base), adapters, keep=0.5, rounds=1, dtype=torch.float64, device="cpu")
    deltas = [updates(a) for a in adapters]
    name = next(iter(deltas[0]))
    flip = kind == "gpt2"
    consensus = (deltas[0][name] + deltas[1][name]).double()
    expected = torch.zeros_like(consensus)
    for adapter, delta in zip(adapters, deltas, strict=True):
        moved = copy.deepcopy(base)
        with torch.no_grad():
            for module, d in delta.items():
                moved.get_submodule(module).weight.add_(d)
        weight = moved.get_submodule(name).weight
        g = sensitivity(moved, dtype=torch.float64)[f"{name}.weight"] * weight.detach().sign()
        layer = adapter.get_submodule(f"base_model.model.{name}")
        B, A = (x["default"].weight.detach().double() for x in (layer.lora_B, layer.lora_A))
        g, c = (g.T, consensus.T) if flip else (g, consensus)
        score = ((B * (g @ A.T)).sum(0) * (B * (c @ A.T)).sum(0)).abs()
        kept = score.topk(2).indices
        part = layer.scaling["default"] * B[:, kept] @ A[kept]
        expected += part.T if flip else part
    torch.testing.assert_close(updates(merged)[name].double(), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("keep", [0.5, 0.01])
def test_ranks_and_whole_components(keep, tmp_path):
    folders = saved(tmp_path)
    out = merge_lora(tiny.build("llama"), folders, keep=keep, to=tmp_path / "merged", device="cpu")
    config = json.loads((out / "adapter_config.json").read_text())
    each = max(1, round(4 * keep))  # at least one
    assert set(config["rank_pattern"].values()) == {2 * each}
    assert config["alpha_pattern"] == config["rank_pattern"]
    state = load_file(out / "adapter_model.safetensors")
    theirs = [load_file(f / "adapter_model.safetensors") for f in folders]
    for name, tensor in state.items():
        if "lora_A" in name:
            rows = torch.cat([t[name] for t in theirs])
            assert all(bool((rows == row).all(1).any()) for row in tensor)
    loaded = peft.PeftModel.from_pretrained(tiny.build("llama"), out)
    plain = tiny.build("llama")(torch.tensor([[1, 2]])).logits
    assert not torch.allclose(loaded(torch.tensor([[1, 2]])).logits, plain)


def test_dense_result(tmp_path):
    folders = saved(tmp_path)
    tiny.build("llama").save_pretrained(tmp_path / "base")
    attached = merge_lora(tmp_path / "base", folders, device="cpu")
    written = merge_lora(tmp_path / "base", folders, out="dense", to=tmp_path / "dense", device="cpu")
    state = merge_lora(tmp_path / "base", folders, out="dense", device="cpu")
    model = merge_lora(tiny.build("llama"), folders, out="dense", device="cpu")
    expected = attached.merge_and_unload().state_dict()
    on_disk = type(tiny.build("llama")).from_pretrained(written).state_dict()
    for name, tensor in expected.items():
        torch.testing.assert_close(on_disk[name], tensor)
        torch.testing.assert_close(state[name], tensor)
        torch.testing.assert_close(model.state_dict()[name], tensor)


def test_rslora_and_patterns_are_counted(tmp_path):
    model = adapted("llama", 1, use_rslora=True, rank_pattern={"q_proj": 2}, alpha_pattern={"v_proj": 3})
    merged = merge_lora(tiny.build("llama"), [model], keep=1, device="cpu")
    for name, delta in updates(merged).items():
        torch.testing.assert_close(delta, updates(model)[name])


def test_missing_modules(tmp_path):
    a, b = adapted("llama", 1), adapted("llama", 2, targets=["q_proj"])
    with pytest.raises(ValueError, match=r"adapter 2 has no update of model\.layers\.0\.mlp\.down_proj"):
        merge_lora(tiny.build("llama"), [a, b], device="cpu")
    merged = merge_lora(tiny.build("llama"), [a, b], keep=1, allow_missing=True, device="cpu")
    name = "model.layers.1.mlp.down_proj"
    torch.testing.assert_close(updates(merged)[name], updates(a)[name])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep": 0}, "keep must lie in"),
        ({"rounds": 0}, "rounds must be"),
        ({"out": "sparse"}, "out must be 'adapter' or 'dense'"),
        ({"out": "dense", "to": "x"}, "only where base is a folder"),
    ],
)
def test_values_out_of_range(options, says):
    with pytest.raises(ValueError, match=says):
        merge_lora(tiny.build("llama"), [adapted("llama", 1)], device="cpu", **options)


def test_what_is_no_adapter(tmp_path):
    base = tiny.build("llama")
    with pytest.raises(ValueError, match="at least one adapter"):
        merge_lora(base, [], device="cpu")
    with pytest.raises(ValueError, match="is no adapter"):
        merge_lora(base, [tmp_path], device="cpu")
    with pytest.raises(TypeError, match="adapter 1 must be a PEFT folder"):
        merge_lora(base, [base], device="cpu")


def edited(tmp_path, **changes):
    folders = saved(tmp_path)
    path = folders[1] / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folders


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"base_model_name_or_path": "another"}, "base_model_name_or_path is 'another'"),
        ({"peft_type": "IA3"}, "is a IA3 adapter"),
        ({"use_dora": True}, "use_dora = True is not supported"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
    ],
)
def test_other_kinds_and_bases(tmp_path, changes, says):
    with pytest.raises(ValueError, match=says):
        merge_lora(tiny.build("llama"), edited(tmp_path, **changes), to=tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_broken_tensors(tmp_path):
    folders = saved(tmp_path)
    path = folders[1] / "adapter_model.safetensors"
    good = load_file(path)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"

    def refused(tensor, says, error=ValueError):
        save_file(good | {name: tensor}, path)
        with pytest.raises(error, match=says):
            merge_lora(tiny.build("llama"), folders, device="cpu")

    refused(good[name] * torch.nan, "lora_A.weight of .*a2 holds NaN")
    refused(torch.ones(3, 16), r"A \[3, 16\] and B \[16, 4\]", ShapeMismatchError)
    refused(torch.ones(4, 15), "q_proj is 16 × 16, elsewhere 16 × 15", ShapeMismatchError)
    with pytest.raises(ValueError, match="the base has no weight for the module"):
        merge_lora(tiny.build("bert"), folders[:1], device="cpu")


def test_a_base_of_another_width(tmp_path):
    import transformers

    wide = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(tiny.GROUPED | {"hidden_size": 32})))
    with pytest.raises(ShapeMismatchError, match=r"down_proj: \[16, 24\] in the adapters, \[32, 24\] in the base"):
        merge_lora(wide, saved(tmp_path), device="cpu")


def test_deterministic_and_the_order_does_not_matter():
    adapters = [adapted("llama", n) for n in (1, 2, 3)]
    a = updates(merge_lora(tiny.build("llama"), adapters, device="cpu"))
    b = updates(merge_lora(tiny.build("llama"), adapters[::-1], device="cpu"))
    assert all(torch.allclose(a[n], b[n], atol=1e-6) for n in a)
