import pytest
import torch
from csplora_models import bert, gpt2, llama, t5
from peft import LoraConfig, get_peft_model, inject_adapter_in_model
from torch import nn
from transformers import LlamaForSequenceClassification

from assay.models.csplora.targets import families, find_targets


def test_linear_layers_but_no_heads():
    assert len(find_targets(bert(layers=3))) == 3 * 6
    assert len(find_targets(llama())) == 3 * 7
    assert len(find_targets(gpt2())) == 2 * 4  # c_attn, c_proj, c_fc, c_proj
    assert len(find_targets(LlamaForSequenceClassification(llama().config))) == 3 * 7
    assert find_targets(gpt2())["transformer.h.0.attn.c_attn"].shape == (48, 16)
    assert len(find_targets(t5())) == 2 * (4 + 2) + 2 * (8 + 2)  # the decoder attends twice
    assert len(find_targets(bert(), "all-linear")) == 12


def test_plain_torch_models():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)), nn.MultiheadAttention(2, 1))
    assert list(find_targets(model)) == ["0", "2.0"]  # no module sees the inputs of attention's own projection


def test_names_ends_and_patterns():
    assert len(find_targets(bert(), ["query", "attention.output.dense"])) == 4
    one = find_targets(bert(), ["bert.encoder.layer.1.attention.self.key"])
    assert list(one) == ["bert.encoder.layer.1.attention.self.key"]
    assert len(find_targets(bert(), r".*layer\.0\..*(query|key)")) == 2
    # An end is whole parts of a name: "uery" is none.
    with pytest.raises(ValueError, match="'uery' matches no module"):
        find_targets(bert(), ["uery"])


def test_adapters_are_no_targets():
    model = get_peft_model(llama(), LoraConfig(target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM"))
    assert list(find_targets(model)) == list(find_targets(llama()))
    injected = inject_adapter_in_model(LoraConfig(target_modules=["q_proj"]), llama())
    assert list(find_targets(injected)) == list(find_targets(llama()))


def family_names(model):
    return set(families({name: target.shape for name, target in find_targets(model).items()}).values())


def test_families():
    names = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert family_names(llama()) == names
    dense = {"attention.output.dense", "layer.output.dense", "intermediate.dense"}
    assert family_names(bert()) == dense | {"query", "key", "value"}
    assert family_names(gpt2()) == {"c_attn", "attn.c_proj", "mlp.c_proj", "c_fc"}
    t5_families = family_names(t5())
    assert {"SelfAttention.q", "EncDecAttention.q", "wi", "wo"} <= t5_families


def test_families_of_odd_names():
    assert families({"0": (2, 2), "1": (2, 2)}) == {"0": "0", "1": "1"}
    # Vision and language part: the same names, other sizes.
    two = families({"vision.layers.0.q_proj": (4, 4), "text.layers.0.q_proj": (8, 8), "text.layers.1.q_proj": (8, 8)})
    assert list(two.values()) == ["vision.layers.q_proj", "text.layers.q_proj", "text.layers.q_proj"]
    # Layers of one path that differ in width are one family all the same.
    assert set(families({"layers.0.up": (4, 4), "layers.1.up": (8, 4)}).values()) == {"up"}


def test_no_linear_layer_at_all():
    with pytest.raises(ValueError, match="no target module in Sequential"):
        find_targets(nn.Sequential(nn.Embedding(3, 3)))
    with pytest.raises(TypeError, match="is a Embedding"):
        find_targets(nn.Sequential(nn.Embedding(3, 3)), ["0"])


def test_buffers_are_no_weights():
    class Packed(nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            del self.weight
            self.register_buffer("weight", torch.zeros(2, 2))

    with pytest.raises(TypeError, match="0 is a Packed"):
        find_targets(nn.Sequential(Packed()))
