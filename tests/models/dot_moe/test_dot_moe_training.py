import dataclasses
from itertools import pairwise

import pytest
import torch
from dot_moe_models import dense, inputs

from assay.models.dot_moe import ConversionError, DenseFFN, DotMoEConfig, DotMoEFFN, convert_layer
from assay.models.dot_moe.baselines import best_neurons, pruned, with_cut
from assay.models.dot_moe.layer_stage import dense_outputs, move_correction, router_losses, train
from assay.models.dot_moe.samples import made_up_layer
from assay.models.dot_moe.starts import expert_outputs, start_affinity, start_cut, start_router

SMALL = DotMoEConfig(n_experts=4, top_k=2, n_shared=0, steps=30, batch_tokens=64)


def error(ffn, source, x):
    with torch.no_grad():
        y = source.output(x)
        return float(((ffn(x) - y).square().sum(dim=1) / y.square().sum(dim=1)).mean())


def test_straight_through_with_the_correction_is_the_exact_effect_of_a_move():
    """For every neuron and expert, and every token and expert, against the loss computed with and without."""
    source = dense(d_ffn=8, gated=False)
    ffn = DotMoEFFN(source, 4, 2).train()
    with torch.no_grad():
        ffn.router.weight.copy_(torch.randn(4, 12, generator=torch.Generator().manual_seed(3)))
    ffn.learn_cut(torch.randn(8, 4, generator=torch.Generator().manual_seed(1)))
    x, v = inputs(5), torch.rand(5, generator=torch.Generator().manual_seed(2))
    target = source.output(x) + 0.1
    parts = ffn.parts(x)
    parts.soft_cut.retain_grad()
    parts.probabilities.retain_grad()
    squared = ((parts.output - target).square().sum(dim=1) * v).sum()
    (squared - move_correction(ffn, parts, v)).backward()
    values, chosen = parts.hidden.detach(), parts.chosen
    own = parts.cut.argmax(dim=1)

    def mask_loss(mask):
        return (((values * mask) @ source.down - target).square().sum(dim=1) * v).sum()

    mask = chosen[:, own]
    for i in range(8):
        for e in range(4):
            # The gain of neuron i being on, for the tokens of expert e.
            on, off = mask.clone(), mask.clone()
            rows = chosen[:, e] > 0
            on[rows, i], off[rows, i] = 1, 0
            gain = mask_loss(off) - mask_loss(on)
            torch.testing.assert_close(-parts.soft_cut.grad[i, e], gain, atol=1e-5, rtol=1e-4)
    for t in range(5):
        for e in range(4):
            on, off = mask.clone(), mask.clone()
            on[t, own == e], off[t, own == e] = 1, 0
            gain = mask_loss(off) - mask_loss(on)
            torch.testing.assert_close(-parts.probabilities.grad[t, e], gain, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("own", "expected"), [(1, 36.0), (0, 36.0)])
def test_correction_by_hand(own, expected):
    """One token, h = 2, w = 3, target 6, routed to expert 0: having the neuron there is worth 36 wherever it is now."""
    source = DenseFFN(torch.tensor([[2.0], [0.0]]), torch.tensor([[3.0], [0.0]]), torch.nn.functional.relu)
    ffn = DotMoEFFN(source, 2, 1).train()
    with torch.no_grad():
        ffn.router.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    affinity = torch.zeros(2, 2)
    affinity[0, own] = affinity[1, 1 - own] = 1
    ffn.learn_cut(affinity)
    parts = ffn.parts(torch.ones(1, 1))
    parts.soft_cut.retain_grad()
    squared = (parts.output - 6).square().sum()
    (squared - move_correction(ffn, parts, torch.ones(1))).backward()
    assert float(-parts.soft_cut.grad[0, 0]) == pytest.approx(expected)


def test_expert_outputs_of_equal_and_unequal_sizes():
    for d_ffn in (48, 50):
        source = dense(d_ffn=d_ffn)
        ffn = DotMoEFFN(source, 8, 2)
        values = source.hidden(inputs(6))
        outputs = expert_outputs(values, source.down, ffn.sizes)
        start = 0
        for e, size in enumerate(ffn.sizes):
            part = slice(start, start + size)
            torch.testing.assert_close(outputs[e], values[:, part] @ source.down[part], atol=1e-5, rtol=1e-4)
            start += size


def test_a_layer_with_topics_is_cut_better_than_at_random_and_with_the_correction():
    source, x = made_up_layer(0, 1024)
    train, test = x[:768], x[768:]
    config = dataclasses.replace(SMALL, n_experts=8, steps=40, batch_tokens=128)
    learned = error(convert_layer(source, train, config), source, test)
    random = error(with_cut(source, train, dataclasses.replace(config, init="random")), source, test)
    uncorrected = error(convert_layer(source, train, dataclasses.replace(config, correction=False)), source, test)
    assert learned < 0.7 * random
    assert learned < uncorrected


def test_training_helps_and_frozen_weights_stay():
    source, x = made_up_layer(1, 1024, topics=12)
    before = source.up.clone()
    frozen = convert_layer(source, x, dataclasses.replace(SMALL, lr_weights=0.0))
    order = torch.argsort(frozen.assignment, stable=True)
    for name in ("up", "gate", "down"):
        assert torch.equal(getattr(frozen, name), getattr(source, name)[order])
    assert torch.equal(source.up, before)
    untrained = convert_layer(source, x, dataclasses.replace(SMALL, steps=0))
    trained = convert_layer(source, x, SMALL)
    assert error(trained, source, x) < error(frozen, source, x) < error(untrained, source, x)
    assert not torch.equal(trained.up, source.up[torch.argsort(trained.assignment, stable=True)])
    assert torch.equal(source.up, before)
    assert not trained.training
    assert trained.affinity is None


def test_same_seed_same_layer_and_no_trace_on_the_global_generator():
    source, x = made_up_layer(2, 512)
    state = torch.random.get_rng_state()
    first, second = convert_layer(source, x, SMALL), convert_layer(source, x, SMALL)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(
        torch.equal(a, b) for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )
    other = convert_layer(source, x, dataclasses.replace(SMALL, seed=1))
    assert not torch.equal(first.router.weight, other.router.weight)


def test_inputs_may_be_half_precision_and_steps_are_told():
    source, x = made_up_layer(2, 512)
    seen = []
    convert_layer(
        source, x.half(), dataclasses.replace(SMALL, steps=3), on_step=lambda step, value: seen.append((step, value))
    )
    assert [step for step, _ in seen] == [0, 1, 2]
    assert all(0 < value < 2 for _, value in seen)


@pytest.mark.parametrize("init", ["activation", "weight", "random"])
@pytest.mark.parametrize("n_shared", [0, 1])
def test_starts_are_balanced_and_affinities_round_to_them(init, n_shared):
    source, x = dense(), inputs(200)
    config = DotMoEConfig(n_experts=8, top_k=2, n_shared=n_shared, init=init)
    _, v = dense_outputs(source, x, 64)
    assignment = start_cut(source, x, v, config)
    assert torch.bincount(assignment).tolist() == [7, 7, 6, 6, 6, 6, 6, 6]
    affinity = start_affinity(assignment, config)
    assert affinity.abs().mean() < 0.1
    if init != "random":
        ffn = DotMoEFFN(source, 8, 2, n_shared)
        ffn.learn_cut(affinity)
        assert (ffn._plan()[0] == assignment).float().mean() > 0.9
        if n_shared:
            strength = (v @ source.hidden(x).square()) * source.down.square().sum(dim=1)
            assert set(strength.topk(7).indices.tolist()) == set(torch.nonzero(assignment == 0)[:, 0].tolist())


def test_router_starts_where_experts_gain_most():
    source, x = made_up_layer(3, 1024)
    config = dataclasses.replace(SMALL, n_experts=4, top_k=1, n_shared=0)
    _, v = dense_outputs(source, x, 64)
    assignment = start_cut(source, x, v, config)
    ffn = DotMoEFFN(source, 4, 1)
    start_router(ffn, source, assignment, x, v, config)
    order = torch.argsort(assignment, stable=True)
    outputs = expert_outputs(source.hidden(x)[:, order], source.down[order], ffn.sizes)
    best = (outputs - source.output(x)).square().sum(dim=-1).argmin(dim=0)
    guessed = (x @ ffn.router.weight.T).argmax(dim=1)
    assert (guessed == best).float().mean() > 0.5  # a quarter is chance
    assert float((x @ ffn.router.weight.T).detach().std()) == pytest.approx(1, rel=0.2)
    start_router(ffn, source, assignment, x, v, dataclasses.replace(config, fit_router=False))
    assert float(ffn.router.weight.std()) == pytest.approx(0.02, rel=0.3)


def test_each_token_counts_relative_to_its_output():
    source, x = dense(bias=True), inputs(30)
    outputs, weights = dense_outputs(source, x, 7)
    torch.testing.assert_close(outputs, source.output(x))
    torch.testing.assert_close(weights, 1 / outputs.square().sum(dim=1))
    x[3] = 0
    _, weights = dense_outputs(dense(gated=False), x, 7)
    assert torch.isfinite(weights).all()  # a token for which nothing is written counts, and not without limit
    assert weights[3] == weights.max()


def test_pruning_keeps_the_strongest_and_refits():
    source, x = made_up_layer(4, 1024)
    config = dataclasses.replace(SMALL, n_experts=8, steps=0)
    _, v = dense_outputs(source, x, 64)
    strength = (v @ source.hidden(x).square()) * source.down.square().sum(dim=1)
    kept = strength.topk(16).indices.sort().values
    small = pruned(source, x, config)
    assert small.active_parameters() == 3 * 16 * 32 + 32
    with torch.no_grad():
        torch.testing.assert_close(small.up, source.up[kept])
        values = source.hidden(x)[:, kept]
        plain = float(((values @ source.down[kept] - source.output(x)).square().sum(dim=1) * v).mean())
        assert error(small, source, x) < plain
        # No other weights for the same neurons are better, but for the ridge.
        solution = torch.linalg.lstsq(values * v[:, None].sqrt(), source.output(x) * v[:, None].sqrt()).solution
        exact = float(((values @ solution - source.output(x)).square().sum(dim=1) * v).mean())
    assert error(small, source, x) == pytest.approx(exact, rel=0.02)
    assert error(pruned(source, x, dataclasses.replace(config, steps=30)), source, x) < error(small, source, x)


def test_best_neurons_of_each_token():
    source, x = dense(), inputs(10)
    torch.testing.assert_close(best_neurons(source, x, 50), source.output(x), atol=1e-5, rtol=1e-4)
    one = best_neurons(source, x[:1], 1)[0]
    values = source.hidden(x[:1])[0]
    strongest = (values.abs() * source.down.norm(dim=1)).argmax()
    torch.testing.assert_close(one, values[strongest] * source.down[strongest])


def test_a_loss_that_is_not_finite_names_layer_and_step():
    source, x = made_up_layer(5, 512)
    with pytest.raises(ConversionError, match=r"layer 7: the loss was (nan|inf) at step") as caught:
        convert_layer(source, x, dataclasses.replace(SMALL, lr_weights=1e18), layer=7)
    assert caught.value.layer == 7
    assert caught.value.step >= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_experts": 1}, "n_experts must be at least 2, got 1"),
        ({"top_k": 0}, "top_k=0 and n_experts=8"),
        ({"top_k": 9}, "top_k=9 and n_experts=8"),
        ({"n_shared": 2}, "n_shared=2 and top_k=2"),
        ({"n_shared": -1}, "n_shared=-1 and top_k=2"),
        ({"tau_start": 0.0}, "tau_start must be positive and finite, got 0"),
        ({"tau_end": -1.0}, "tau_end must be positive and finite, got -1"),
        ({"tau_end": 2.0}, "tau_end must be at most tau_start, got 2.0 and 1.0"),
        ({"tau_start": float("inf")}, "tau_start must be positive and finite, got inf"),
        ({"n_experts": 8.0}, r"n_experts must be a whole number, got 8\.0"),
        ({"top_k": "2"}, "top_k must be a whole number, got '2'"),
        ({"seed": -1}, "seed must be a finite number and not negative"),
        ({"lr_weights": "1e-3"}, "lr_weights must be a number"),
        ({"learn_cut": "no"}, "learn_cut must be True or False"),
        ({"layers": 3}, "layers must be several numbers"),
        ({"layers": ("3",)}, "layers must be whole numbers, got '3'"),
        ({"sinkhorn_iters": 0}, "sinkhorn_iters must be positive"),
        ({"batch_tokens": 0}, "batch_tokens must be positive"),
        ({"steps": -1}, "steps must be a finite number and not negative"),
        ({"lr_weights": float("nan")}, "lr_weights must be a finite number"),
        ({"init": "kmeans"}, "init must be 'activation', 'weight' or 'random', got 'kmeans'"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        DotMoEConfig(**settings)


@pytest.mark.parametrize("n_shared", [0, 1])
def test_router_losses_by_hand(n_shared):
    ffn = DotMoEFFN(dense(), 8, 3, n_shared).train()
    with torch.no_grad():
        ffn.router.weight.normal_(generator=torch.Generator().manual_seed(1))
    parts = ffn.parts(inputs(20))
    routed = 8 - n_shared
    logits = inputs(20) @ ffn.router.weight.T
    p = logits.softmax(dim=-1)
    slots = torch.bincount(logits.topk(3 - n_shared).indices.flatten(), minlength=routed).float()
    balance = routed * (slots / slots.sum() * p.mean(dim=0)).sum()
    z = logits.exp().sum(dim=-1).log().square().mean()
    for a, b in ((1.0, 0.0), (0.0, 1.0), (0.3, 0.2)):
        found = router_losses(ffn, parts, DotMoEConfig(balance=a, z_loss=b))
        torch.testing.assert_close(found, a * balance + b * z)
    # All tokens alike: f_e = P_e = 1/E, and the loss is 1.
    even = ffn.parts(torch.zeros(5, 12))
    assert float(router_losses(ffn, even, DotMoEConfig(balance=1.0, z_loss=0.0)).detach()) == pytest.approx(1)


def test_balance_and_z_loss_reach_the_router():
    source, x = made_up_layer(2, 512)
    config = dataclasses.replace(SMALL, n_experts=8, lr_router=2e-2, balance=0.0, z_loss=0.0)

    def trained(**changes):
        ffn = convert_layer(source, x, dataclasses.replace(config, **changes))
        with torch.no_grad():
            ffn(x)
            return float(ffn.load().max()), float((x @ ffn.router.weight.T).logsumexp(dim=-1).square().mean())

    (load, z), (even, _), (_, small) = trained(), trained(balance=10.0), trained(z_loss=10.0)
    assert even < load
    assert small < 0.5 * z


def test_the_plan_cools_geometrically_and_steps_shrink_to_nothing():
    source, x = made_up_layer(2, 512)
    config = dataclasses.replace(SMALL, n_experts=8, steps=9, tau_start=2.0, tau_end=0.02)
    targets, weight = dense_outputs(source, x, 64)
    ffn = DotMoEFFN(source, 8, 2).train()
    ffn.learn_cut(start_affinity(start_cut(source, x, weight, config), config))
    taus, routers = [], [ffn.router.weight.detach().clone()]

    def look(step, value):
        taus.append(ffn.tau)
        routers.append(ffn.router.weight.detach().clone())

    train(ffn, x, targets, weight, config, torch.Generator().manual_seed(0), on_step=look)
    assert taus == pytest.approx([2.0 * 0.01 ** (step / 8) for step in range(9)])
    moved = [float((b - a).abs().max()) for a, b in pairwise(routers)]
    assert moved[0] == pytest.approx(config.lr_router, rel=1e-3)  # the first step of Adam has the length of the rate
    assert moved[-1] < 0.1 * moved[0]
