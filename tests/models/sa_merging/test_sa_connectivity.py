import pytest
import sa_merging_models as tiny
import torch
from torch import nn

from assay.models.sa_merging import sensitivity
from assay.models.sa_merging.connectivity import Unknown

CHAIN = {"0.weight": torch.tensor([[1.0, -2], [3, 0]]), "1.weight": torch.tensor([[2.0, -1]])}


def test_reference_values_of_a_chain():
    found = sensitivity("chain", CHAIN)
    assert found["0.weight"].tolist() == [[2, 2], [1, 1]]
    assert found["1.weight"].tolist() == [[3, 3]]
    total = sum(float((found[name] * CHAIN[name].abs()).sum()) for name in CHAIN)
    assert total == 2 * 9  # R is linear in each matrix's magnitudes, and R = 9


def reference(model, state, embeds):
    """The signal's gradient by hand: a dense copy of the network with magnitudes, differentiated by autograd."""
    theta = {name: tensor.double().abs().requires_grad_() for name, tensor in state.items()}
    total = model(theta, embeds)
    names = list(theta)
    grads = torch.autograd.grad(total, [theta[n] for n in names], allow_unused=True)
    return {n: g for n, g in zip(names, grads, strict=True) if g is not None and bool(g.any())}


def by_hand_llama(config):
    heads, groups, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim

    def norm(x, gain):
        return x / x.mean().detach() * gain

    def run(w, u):
        for i in range(config.num_hidden_layers):
            at = f"model.layers.{i}."
            n = norm(u, w[f"{at}input_layernorm.weight"])
            q, k, v = (w[f"{at}self_attn.{x}_proj.weight"] @ n for x in "qkv")
            k, v = (x.view(groups, width).repeat_interleave(heads // groups, 0) for x in (k, v))
            gate = (q.view(heads, width) * k).mean(1)
            gate = gate / gate.mean().detach()
            u = u + w[f"{at}self_attn.o_proj.weight"] @ (gate[:, None] * v).reshape(-1)
            n = norm(u, w[f"{at}post_attention_layernorm.weight"])
            hidden = (w[f"{at}mlp.gate_proj.weight"] @ n) * (w[f"{at}mlp.up_proj.weight"] @ n)
            u = u + w[f"{at}mlp.down_proj.weight"] @ hidden
        return norm(u, w["model.norm.weight"]).sum()

    return run


def by_hand_bert(config):
    heads = config.num_attention_heads

    def norm(x, w, at):
        return x / x.mean().detach() * w[f"{at}.weight"] + 0 * w[f"{at}.bias"]

    def linear(w, at, x):
        return w[f"{at}.weight"] @ x + w[f"{at}.bias"]

    def run(w, u):
        u = norm(u, w, "embeddings.LayerNorm")
        for i in range(config.num_hidden_layers):
            at = f"encoder.layer.{i}."
            q, k, v = (linear(w, f"{at}attention.self.{x}", u) for x in ("query", "key", "value"))
            gate = (q.view(heads, -1) * k.view(heads, -1)).mean(1)
            gate = gate / gate.mean().detach()
            mixed = (gate[:, None] * v.view(heads, -1)).reshape(-1)
            u = norm(u + linear(w, f"{at}attention.output.dense", mixed), w, f"{at}attention.output.LayerNorm")
            inner = linear(w, f"{at}intermediate.dense", u)
            u = norm(u + linear(w, f"{at}output.dense", inner), w, f"{at}output.LayerNorm")
        return u.sum()

    return run


@pytest.mark.parametrize(("kind", "by_hand"), [("llama", by_hand_llama), ("bert", by_hand_bert)])
def test_transformers_against_a_pass_written_out(kind, by_hand):
    model = tiny.expert_of(tiny.build(kind), 1)
    found = sensitivity(model, dtype=torch.float64)
    expected = reference(by_hand(model.config), model.state_dict(), torch.ones(16, dtype=torch.float64))
    shifts = {name for name in found if name.endswith("LayerNorm.bias")}
    assert found.keys() - shifts == expected.keys() - shifts
    for name in expected.keys() - shifts:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=0)
    assert all(bool((found[name] > 0).any()) for name in shifts)


@pytest.mark.parametrize("kind", sorted(tiny.OFF_THE_WAY))
def test_every_architecture_from_module_and_folder(kind, tmp_path):
    model = tiny.expert_of(tiny.build(kind), 1)
    found = sensitivity(model, dtype=torch.float64)
    named = dict(model.named_parameters())
    assert named.keys() - found.keys() == tiny.OFF_THE_WAY[kind]
    for name, tensor in found.items():
        assert tensor.shape == named[name].shape
        assert bool(torch.isfinite(tensor).all())
        assert float(tensor.min()) >= 0
    model.save_pretrained(tmp_path / "m")
    on_disk = sensitivity(tmp_path / "m", dtype=torch.float64)
    # Names on disk may be older ones; the tensors are the same.
    assert sorted(float(t.sum()) for t in on_disk.values()) == pytest.approx(
        sorted(float(t.sum()) for t in found.values())
    )


def test_gains_stored_from_one():
    model = tiny.build("gemma2")
    name = "model.layers.0.input_layernorm.weight"
    with torch.no_grad():
        dict(model.named_parameters())[name].zero_()  # a gain of 1, not of 0
    assert float(sensitivity(model)["model.layers.0.self_attn.v_proj.weight"].max()) > 0


def test_a_deep_chain_does_not_overflow():
    g = torch.Generator().manual_seed(0)
    state = {f"{i}.weight": 50 * torch.randn(32, 32, generator=g) for i in range(30)}
    assert all(bool(torch.isfinite(t).all()) for t in sensitivity("chain", state).values())


def test_convolutions_pools_and_batch_norms():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2, groups=2, bias=False),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 5),
    ).eval()  # fmt: skip
    net[1].running_var.uniform_(0.5, 2)
    found = sensitivity(net)
    theta = {n: p.detach().double().abs().requires_grad_() for n, p in net.named_parameters()}
    ones = torch.ones(1, 3, 20, 20, dtype=torch.float64)
    x = nn.functional.conv2d(ones, theta["0.weight"], theta["0.bias"])
    gain = theta["1.weight"] / (net[1].running_var.double() + net[1].eps).sqrt()
    x = nn.functional.max_pool2d(x * gain[:, None, None], 2)
    x = nn.functional.conv2d(x, theta["4.weight"], groups=2)
    x = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
    (x @ theta["7.weight"].T + theta["7.bias"]).sum().backward()
    for name, parameter in theta.items():
        if name != "1.bias":
            torch.testing.assert_close(found[name], parameter.grad, rtol=1e-6, atol=0)


def test_a_residual_network_of_ones_own():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.GELU()

        def forward(self, x):
            return x + self.b(self.act(self.a(x)))

    torch.manual_seed(0)
    net = nn.Sequential(Block(), nn.Linear(4, 2))
    found = sensitivity(net)
    w = {n: p.detach().double().abs().requires_grad_() for n, p in net.named_parameters()}
    x = torch.ones(4, dtype=torch.float64)
    x = x + w["0.b.weight"] @ (w["0.a.weight"] @ x + w["0.a.bias"]) + w["0.b.bias"]
    (w["1.weight"] @ x + w["1.bias"]).sum().backward()
    for name, parameter in w.items():
        torch.testing.assert_close(found[name], parameter.grad)


def test_what_the_pass_does_not_know_is_said():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.table

    with pytest.raises(Unknown, match=r"0\.table belongs to a Own"):
        sensitivity(nn.Sequential(Own(), nn.Linear(3, 2)))
    with pytest.raises(Unknown, match="no chain: a gives 2 values, and b takes 3"):
        sensitivity("chain", {"a": torch.ones(2, 2), "b": torch.ones(1, 3)})


def test_ones_own_function_and_its_bad_answers():
    ones = {"0.weight": torch.full((2, 2), 7.0)}
    assert sensitivity(lambda state: ones, CHAIN)["0.weight"].tolist() == [[7, 7], [7, 7]]
    with pytest.raises(ValueError, match="no such parameter"):
        sensitivity(lambda state: {"0.weight": torch.ones(3)}, CHAIN)
    with pytest.raises(ValueError, match="negative or infinite"):
        sensitivity(lambda state: {"0.weight": -torch.ones(2, 2)}, CHAIN)


def test_the_model_is_left_as_it_was():
    model = tiny.build("llama")
    before = {n: p.clone() for n, p in model.named_parameters()}
    attention = model.config._attn_implementation
    sensitivity(model)
    assert model.config._attn_implementation == attention
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    assert model(torch.tensor([[1, 2]])).logits.shape == (1, 2, 50)
