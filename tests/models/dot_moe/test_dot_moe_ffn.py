import copy

import pytest
import torch
from beartype import beartype
from dot_moe_models import dense, inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from assay.models.dot_moe import DotMoEFFN
from assay.models.dot_moe.ffn import capacities
from assay.numerics.transport import sinkhorn


def cut(d_ffn=50, experts=8, seed=0):
    labels = [e for e, size in enumerate(capacities(d_ffn, experts)) for _ in range(size)]
    return torch.tensor(labels)[torch.randperm(d_ffn, generator=torch.Generator().manual_seed(seed))]


def route(ffn, seed=7):
    with torch.no_grad():
        ffn.router.weight.copy_(torch.randn(ffn.router.weight.shape, generator=torch.Generator().manual_seed(seed)))


def layer(experts=8, top_k=2, n_shared=0, **sizes):
    source = dense(**sizes)
    ffn = DotMoEFFN(source, experts, top_k, n_shared)
    ffn.set_cut(cut(len(source.up), experts))
    route(ffn)
    return source, ffn.eval()


def by_hand(source, ffn, x):
    """Each token by itself, from the dense layer's weights and the assignment."""
    rows = []
    for token in x:
        logits = ffn.router.weight @ token
        chosen = set(range(ffn.n_shared)) | {
            int(e) + ffn.n_shared for e in logits.argsort(descending=True)[: ffn.top_k - ffn.n_shared]
        }
        on = torch.tensor([int(e) in chosen for e in ffn.assignment])
        y = (source.hidden(token[None])[0] * on) @ source.down
        rows.append(y if source.down_bias is None else y + source.down_bias)
    return torch.stack(rows)


@settings(deadline=None, max_examples=40)
@given(
    d_ffn=st.integers(8, 40), experts=st.integers(2, 8), top_k=st.integers(1, 8), n_shared=st.integers(0, 3),
    gated=st.booleans(), bias=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_both_paths_give_what_the_chosen_neurons_write(d_ffn, experts, top_k, n_shared, gated, bias, seed):
    top_k = min(top_k, experts)
    n_shared = min(n_shared, top_k - 1)
    source, ffn = layer(experts, top_k, n_shared, d_ffn=d_ffn, gated=gated, bias=bias, seed=seed)
    x = inputs(9, seed=seed)
    with torch.no_grad():
        expected = by_hand(source, ffn, x)
        torch.testing.assert_close(ffn(x), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ffn(x[:1]), expected[:1], atol=1e-5, rtol=1e-5)  # one token has a path of its own
        torch.testing.assert_close(ffn.train()(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("n_shared", [0, 1])
def test_all_experts_are_the_dense_layer(gated, n_shared):
    source, ffn = layer(8, 2, n_shared, gated=gated, bias=True)
    x = inputs()
    ffn.top_k = 8
    with torch.no_grad():
        torch.testing.assert_close(ffn(x), source.output(x), atol=1e-5, rtol=0)
        torch.testing.assert_close(ffn.train()(x), source.output(x), atol=1e-5, rtol=0)


@settings(deadline=None, max_examples=25)
@given(order=st.permutations(range(12)), some=st.integers(1, 12))
def test_a_tokens_output_does_not_depend_on_its_neighbours(order, some):
    _, ffn = layer(8, 3, 1)
    x = inputs(12)
    with torch.no_grad():
        whole = ffn(x)
        torch.testing.assert_close(ffn(x[list(order)]), whole[list(order)], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(ffn(x[:some]), whole[:some], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(ffn(x.view(3, 4, 12)).view(12, 12), whole, atol=1e-6, rtol=1e-5)
    assert ffn(x[:0]).shape == (0, 12)


def test_every_neuron_is_in_one_expert_and_experts_are_equal():
    assert capacities(1536, 8) == [192] * 8
    assert capacities(50, 8) == [7, 7, 6, 6, 6, 6, 6, 6]
    ffn = DotMoEFFN(dense(), 8, 2)
    ffn.learn_cut(torch.randn(50, 8, generator=torch.Generator().manual_seed(3)))
    ffn.freeze_cut()
    assert torch.bincount(ffn.assignment).tolist() == [7, 7, 6, 6, 6, 6, 6, 6]
    assert ffn.affinity is None


def test_freezing_keeps_the_output():
    ffn = DotMoEFFN(dense(), 8, 2)
    ffn.learn_cut(torch.randn(50, 8, generator=torch.Generator().manual_seed(3)))
    ffn.tau = 0.3
    route(ffn)
    x = inputs()
    with torch.no_grad():
        before = ffn.eval()(x)
        ffn.freeze_cut()
        torch.testing.assert_close(ffn(x), before, atol=1e-6, rtol=1e-5)


def test_load_is_the_share_of_slots_and_sums_to_one():
    _, ffn = layer(8, 3, 1)
    with pytest.raises(ValueError, match="no token has passed"):
        ffn.load()
    x = inputs(20)
    ffn(x)
    for token in x[:3]:
        ffn(token[None])
    best = (x @ ffn.router.weight.T).topk(2, dim=1).indices + 1
    best = torch.cat([best, best[:3]])
    expected = torch.bincount(best.flatten(), minlength=8).float()
    expected[0] = 23
    torch.testing.assert_close(ffn.load(), expected / 69)
    assert float(ffn.load().sum()) == pytest.approx(1)
    ffn.reset_load()
    with pytest.raises(ValueError, match="no token"):
        ffn.load()


def test_straight_through_gradients_are_those_of_the_soft_plan_and_the_probabilities():
    source = dense(d_ffn=8)
    ffn = DotMoEFFN(source, 4, 2).train()
    route(ffn)
    affinity = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    ffn.learn_cut(affinity)
    x = inputs(6)
    parts = ffn.parts(x)
    slope = torch.randn(parts.output.shape, generator=torch.Generator().manual_seed(5))
    (parts.output * slope).sum().backward()
    # By the chain rule from the two places that the choice enters by.
    of_mask = parts.hidden.detach() * (slope @ source.down.T)
    soft = ffn.affinity.detach().clone().requires_grad_()
    plan = sinkhorn(soft, 1.0, 2.0, 20)
    (plan * (of_mask.T @ parts.chosen)).sum().backward()
    torch.testing.assert_close(ffn.affinity.grad, soft.grad, atol=1e-6, rtol=1e-4)
    router = ffn.router.weight.detach().clone().requires_grad_()
    ((x @ router.T).softmax(dim=-1) * (of_mask @ parts.cut)).sum().backward()
    torch.testing.assert_close(ffn.router.weight.grad, router.grad, atol=1e-6, rtol=1e-4)


def test_active_parameters():
    _, ffn = layer(8, 2, 0, d_ffn=48)
    assert ffn.active_parameters() == 2 * 6 * 3 * 12 + 8 * 12
    ffn.top_k = 8
    assert ffn.active_parameters() == sum(p.numel() for p in ffn.parameters())
    _, shared = layer(8, 2, 1, d_ffn=48, bias=True)
    assert shared.active_parameters() == 12 * (3 * 12 + 2) + 7 * 12 + 12


def test_half_precision_and_what_surrounds_it():
    _, ffn = layer(8, 2, 1, bias=True)
    x = inputs()
    with torch.no_grad():
        exact = ffn(x)
        assert ffn(x.bfloat16()).dtype == torch.bfloat16  # float32 weights within a model of half precision
        half = copy.deepcopy(ffn).bfloat16()
        same = (half._logits(x.bfloat16()).topk(1).indices == ffn._logits(x).topk(1).indices)[:, 0]
        assert same.float().mean() > 0.8
        torch.testing.assert_close(half(x.bfloat16())[same].float(), exact[same], atol=0.05, rtol=0.05)


def test_shapes_are_checked_as_written():
    forward = jaxtyped(typechecker=beartype)(DotMoEFFN.forward)
    _, ffn = layer()
    assert forward(ffn, inputs(4)).shape == (4, 12)
    assert forward(ffn, inputs(4).view(2, 2, 12)).shape == (2, 2, 12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 0, 0), "top_k=0 and n_experts=8"),
        ((8, 9, 0), "top_k=9 and n_experts=8"),
        ((8, 2, 2), "n_shared=2 and top_k=2"),
        ((51, 2, 0), "n_experts=51 and d_ffn=50"),
        ((1, 1, 0), "n_experts=1 and d_ffn=50"),
    ],
)
def test_numbers_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=message):
        DotMoEFFN(dense(), *arguments)


def test_top_k_and_cut_are_checked_when_set():
    _, ffn = layer(8, 3, 1)
    for bad in (0, 1, 9):
        with pytest.raises(ValueError, match=f"top_k={bad}"):
            ffn.top_k = bad
    with pytest.raises(ValueError, match="the assignment gives them"):
        ffn.set_cut(torch.zeros(50, dtype=torch.int64))


def test_the_parts_of_a_layer_have_their_shapes():
    _, ffn = layer(8, 3, 1)
    assert ffn.experts == 8
    assert type(ffn.router) is torch.nn.Linear
    assert ffn.router.weight.shape == (7, 12)  # the shared expert is not chosen
    assert ffn.router.bias is None
    assert ffn.assignment.dtype == torch.int64
    assert ffn.assignment.shape == (50,)
    assert ffn.load.__self__ is ffn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_experts_are_chosen_in_float32(dtype):
    """Two logits that half precision cannot tell apart."""
    source = dense(d_ffn=8, d=2)
    ffn = DotMoEFFN(source, 2, 1).to(dtype).eval()
    with torch.no_grad():
        ffn.router.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 2.0**-7]]))
    x = torch.tensor([[1.0, 2.0**-7]], dtype=dtype)  # logits 1 and 1 + 2^-14
    assert ffn._logits(x).dtype == torch.float32
    ffn(x)
    assert ffn.load().tolist() == [0, 1]
    x[0, 1] *= -1
    ffn(x)
    assert ffn.load().tolist() == [0.5, 0.5]
