import math

import numpy as np
import pytest
import torch
from beartype import beartype
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import jaxtyped

from assay.numerics import policy_gradient
from assay.numerics.policy_gradient import _MOST_LOG_RATIO, PolicyLoss

checked = jaxtyped(typechecker=beartype)
advantages_of = checked(policy_gradient.group_advantages)
k3_kl = checked(policy_gradient.k3_kl)
aggregate_tokens = checked(policy_gradient.aggregate_tokens)
clipped_policy_loss = checked(policy_gradient.clipped_policy_loss)
dpo_loss = checked(policy_gradient.dpo_loss)

AGGREGATES = ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
HORIZON = 7


def numbers(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def random(*shape, seed=0, scale=1.0, dtype=torch.float64):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def horizon_of(how):
    return HORIZON if how == "seq-mean-token-sum-norm" else None


# ---------------------------------------------------------------------------------------------- advantages


def test_advantages_in_closed_form():
    # A group of 4 with one success: mean 1/4, variance 1/4 (n - 1) or 3/16 (n).
    rewards = numbers(1, 0, 0, 0)
    torch.testing.assert_close(advantages_of(rewards, 4, eps=0.0), numbers(0.75, -0.25, -0.25, -0.25) / 0.5)
    by_n = numbers(0.75, -0.25, -0.25, -0.25) / math.sqrt(3 / 16)
    torch.testing.assert_close(advantages_of(rewards, 4, eps=0.0, unbiased=False), by_n)
    torch.testing.assert_close(advantages_of(rewards, 4, scale="none"), numbers(0.75, -0.25, -0.25, -0.25))
    torch.testing.assert_close(advantages_of(rewards, 4, eps=0.5), numbers(0.75, -0.25, -0.25, -0.25))
    torch.testing.assert_close(advantages_of(rewards, 4, eps=0.0, most=1.0), numbers(1, -0.5, -0.5, -0.5))


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from(["group", "batch", "none"]),
    st.booleans(),
    st.integers(0, 999),
)
def test_advantages_agree_with_numpy(count, size, scale, unbiased, seed):
    rewards = random(count * size, seed=seed).round(decimals=1)
    got = advantages_of(rewards, size, scale=scale, unbiased=unbiased)
    wanted = []
    r = rewards.numpy()
    for group in r.reshape(count, size):
        apart = group - group.mean()
        if np.ptp(group) == 0:
            apart = np.zeros_like(group)
        elif scale == "group":
            apart = apart / (group.std(ddof=int(unbiased)) + 1e-4)
        elif scale == "batch":
            apart = apart / (r.std(ddof=int(unbiased)) + 1e-4)
        wanted.append(apart)
    np.testing.assert_allclose(got.numpy(), np.concatenate(wanted), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e4, -3.3])
def test_equal_rewards_give_exactly_zero(scale, dtype, value):
    for eps in (0.0, 1e-4):
        for size in (1, 3, 7):
            rewards = torch.full((3 * size,), value, dtype=dtype)
            got = advantages_of(rewards, size, scale=scale, eps=eps)
            assert torch.equal(got, torch.zeros_like(got))
    mixed = torch.tensor([value] * 3 + [0.0, 1.0, 1.0], dtype=dtype)
    got = advantages_of(mixed, 3, scale=scale, eps=0.0)
    assert torch.equal(got[:3], torch.zeros(3, dtype=got.dtype))
    assert (got[3:] != 0).all()


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 4), st.integers(2, 5), st.sampled_from(["group", "batch", "none"]), st.floats(-100, 100),
    st.randoms(use_true_random=False), st.integers(0, 999),
)  # fmt: skip
def test_advantages_know_neither_the_zero_nor_the_order(count, size, scale, shift, chance, seed):
    rewards = random(count * size, seed=seed)
    plain = advantages_of(rewards, size, scale=scale)
    sums = plain.reshape(count, size).sum(dim=1)
    torch.testing.assert_close(sums, torch.zeros_like(sums), atol=1e-9, rtol=0)
    if scale != "batch":  # whose deviation is that of the rewards over all groups
        own = torch.arange(count).repeat_interleave(size) * shift
        torch.testing.assert_close(advantages_of(rewards + own, size, scale=scale), plain, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(advantages_of(rewards + shift, size, scale=scale), plain, atol=1e-8, rtol=1e-8)
    # Any order of the whole batch, with the groups named: within a group, and of the groups.
    order = list(range(count * size))
    chance.shuffle(order)
    names = torch.tensor([11, -4, 7, 300])[torch.arange(count).repeat_interleave(size)]
    torch.testing.assert_close(
        advantages_of(rewards[order], names[order], scale=scale), plain[order], atol=1e-9, rtol=1e-9
    )


def test_the_scale_of_rewards_drops_out_with_the_deviation():
    rewards = random(12)
    plain = advantages_of(rewards, 4, eps=0.0)
    torch.testing.assert_close(advantages_of(5 * rewards, 4, eps=0.0), plain)
    torch.testing.assert_close(
        advantages_of(5 * rewards, 4, scale="batch", eps=0.0), advantages_of(rewards, 4, scale="batch", eps=0.0)
    )


@pytest.mark.parametrize("scale", ["group", "none"])
def test_what_was_not_scored_is_left_out(scale):
    nan = float("nan")
    got = advantages_of(numbers(1, nan, 0, nan, nan, nan, 2, nan, nan), 3, scale=scale)
    without = advantages_of(numbers(1, 0), 2, scale=scale)
    torch.testing.assert_close(got[[0, 2]], without)
    assert torch.equal(got[[1, 3, 4, 5, 6, 7, 8]], torch.zeros(7, dtype=torch.float64))
    everything = advantages_of(numbers(nan, nan), 2, scale=scale)
    assert torch.equal(everything, torch.zeros(2, dtype=torch.float64))


def test_the_deviation_of_the_batch_leaves_out_what_was_not_scored():
    nan = float("nan")
    got = advantages_of(numbers(1, nan, 0, 3, 4, nan), 3, scale="batch", eps=0.0)
    torch.testing.assert_close(got[[0, 2, 3, 4]], numbers(0.5, -0.5, -0.5, 0.5) / np.std([1, 0, 3, 4], ddof=1))


def test_groups_may_differ_in_size():
    got = advantages_of(numbers(1, 5, 0, 3, 7), torch.tensor([0, 1, 0, 1, 2]), scale="none")
    torch.testing.assert_close(got, numbers(0.5, 1, -0.5, -1, 0))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"rewards": torch.tensor([1, 0])}, TypeError, "rewards"),
        ({"rewards": torch.zeros(0)}, ValueError, "rewards"),
        ({"rewards": torch.zeros(2, 2)}, ValueError, "rewards"),
        ({"rewards": torch.tensor([1.0, math.inf])}, ValueError, "rewards"),
        ({"groups": 3}, ValueError, "groups"),
        ({"groups": 0}, ValueError, "groups"),
        ({"groups": True}, TypeError, "groups"),
        ({"groups": 2.0}, TypeError, "groups"),
        ({"groups": torch.tensor([0.0, 1.0])}, TypeError, "groups"),
        ({"groups": torch.tensor([0])}, ValueError, "groups"),
        ({"scale": "std"}, ValueError, "scale"),
        ({"eps": -1.0}, ValueError, "eps"),
        ({"eps": math.nan}, ValueError, "eps"),
        ({"most": 0.0}, ValueError, "most"),
    ],
)
def test_wrong_arguments_of_advantages(change, error, said):
    with pytest.raises(error, match=said):
        policy_gradient.group_advantages(**({"rewards": torch.tensor([1.0, 0.0]), "groups": 2} | change))


# ---------------------------------------------------------------------------------------------- divergence


def test_k3_is_the_divergence_on_average_and_never_negative():
    p, q = numbers(0.7, 0.2, 0.1), numbers(0.2, 0.3, 0.5)
    each = k3_kl(p.log(), q.log())
    assert (each >= 0).all()
    assert float((p * each).sum()) == pytest.approx(float((p * (p / q).log()).sum()), rel=1e-12)
    assert torch.equal(k3_kl(p.log(), p.log()), torch.zeros(3, dtype=torch.float64))


def test_k3_keeps_its_digits_where_policies_are_nearly_the_same():
    near = k3_kl(torch.tensor([0.0]), torch.tensor([1e-3]))
    assert float(near) == pytest.approx(5.0016671e-07, rel=1e-3)  # d²/2 + d³/6 + …


def test_the_gradient_of_k3_is_one_minus_the_ratio():
    new = random(5).requires_grad_()
    ref = random(5, seed=1)
    k3_kl(new, ref).sum().backward()
    torch.testing.assert_close(new.grad, 1 - torch.exp(ref - new.detach()))


# ---------------------------------------------------------------------------------------------- aggregates


def test_aggregates_in_closed_form():
    values = numbers(1, 2, 3, 10, 99, 99).reshape(2, 3)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    wanted = {"token-mean": 16 / 4, "seq-mean-token-mean": (2 + 10) / 2, "seq-mean-token-sum": (6 + 10) / 2}
    for how, value in wanted.items():
        assert float(aggregate_tokens(values, mask, how)) == pytest.approx(value)
    assert float(aggregate_tokens(values, mask, "seq-mean-token-sum-norm", horizon=4)) == pytest.approx(8 / 4)


@pytest.mark.parametrize("how", AGGREGATES)
def test_nothing_to_aggregate_is_zero_with_a_gradient_of_zero(how):
    values = torch.full((2, 3), math.nan, requires_grad=True)
    total = aggregate_tokens(values, torch.zeros(2, 3), how, horizon=horizon_of(how))
    total.backward()
    assert float(total.detach()) == 0
    assert torch.equal(values.grad, torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"values": torch.zeros(3)}, ValueError, "values"),
        ({"values": torch.zeros(0, 3), "mask": torch.zeros(0, 3)}, ValueError, "values"),
        ({"values": torch.zeros(2, 3, dtype=torch.int64)}, TypeError, "values"),
        ({"mask": torch.ones(3, 2)}, ValueError, "mask"),
        ({"mask": torch.full((2, 3), 0.5)}, ValueError, "mask"),
        ({"mask": torch.full((2, 3), math.nan)}, ValueError, "mask"),
        ({"how": "mean"}, ValueError, "how"),
        ({"how": "seq-mean-token-sum-norm"}, ValueError, "horizon"),
        ({"how": "seq-mean-token-sum-norm", "horizon": 0}, ValueError, "horizon"),
        ({"how": "token-mean", "horizon": 3}, ValueError, "horizon"),
    ],
)
def test_wrong_arguments_of_aggregates(change, error, said):
    with pytest.raises(error, match=said):
        policy_gradient.aggregate_tokens(**({"values": torch.zeros(2, 3), "mask": torch.ones(2, 3)} | change))


# ---------------------------------------------------------------------------------------------- clipped ratios


def reference(new, old, gain, mask, clip, how, horizon, ref, weight):
    """The loss and its gradient to ``new``, a token at a time, from the formulas."""
    rows, columns = new.shape
    values, slopes = np.zeros((rows, columns)), np.zeros((rows, columns))
    for i in range(rows):
        for t in range(columns):
            if not mask[i, t]:
                continue
            a = float(gain[i] if gain.ndim == 1 else gain[i, t])
            ratio = math.exp(float(new[i, t] - old[i, t]))
            value, slope = ratio * a, ratio * a
            if clip is not None:
                if a > 0 and ratio > 1 + clip[1]:
                    value, slope = (1 + clip[1]) * a, 0.0
                if a < 0 and ratio < 1 - clip[0]:
                    value, slope = (1 - clip[0]) * a, 0.0
            values[i, t], slopes[i, t] = -value, -slope
            if ref is not None:
                d = float(ref[i, t] - new[i, t])
                values[i, t] += weight * (math.exp(d) - d - 1)
                slopes[i, t] += weight * (1 - math.exp(d))
    tokens = mask.sum(1)
    for i in range(rows):
        share = {
            "token-mean": 1 / max(tokens.sum(), 1),
            "seq-mean-token-mean": 1 / max(tokens[i], 1) / rows,
            "seq-mean-token-sum": 1 / rows,
            "seq-mean-token-sum-norm": 1 / rows / (horizon or 1),
        }[how]
        values[i] *= share
        slopes[i] *= share
    return values.sum(), slopes


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 4), st.integers(1, 5), st.sampled_from(AGGREGATES),
    st.sampled_from([None, (0.2, 0.2), (0.2, 0.28), (0.0, 0.0), (1.0, 3.0)]), st.booleans(), st.booleans(),
    st.integers(0, 999),
)  # fmt: skip
def test_loss_and_gradient_agree_with_the_formulas(rows, columns, how, clip, per_token, with_reference, seed):
    new, old = random(rows, columns, seed=seed, scale=0.4), random(rows, columns, seed=seed + 1, scale=0.4)
    ref = random(rows, columns, seed=seed + 2) if with_reference else None
    gain = random(rows, columns, seed=seed + 3) if per_token else random(rows, seed=seed + 3)
    mask = random(rows, columns, seed=seed + 4) > -0.5
    leaf = new.clone().requires_grad_()
    done = clipped_policy_loss(
        leaf,
        old,
        gain,
        mask,
        clip=clip,
        aggregate=how,
        horizon=horizon_of(how),
        ref_log_probs=ref,
        kl_weight=0.3 if with_reference else 0.0,
    )
    done.loss.backward()
    value, slopes = reference(new, old, gain, mask.numpy(), clip, how, horizon_of(how), ref, 0.3)
    assert float(done.loss.detach()) == pytest.approx(value, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(leaf.grad.numpy(), slopes, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("how", AGGREGATES)
def test_the_gradient_is_that_of_finite_differences(how):
    old, ref, gain = random(2, 3, seed=1, scale=0.05), random(2, 3, seed=2), random(2, seed=3)
    mask = torch.tensor([[1.0, 1, 0], [1, 1, 1]])

    def loss(new):
        return clipped_policy_loss(
            new, old, gain, mask, aggregate=how, horizon=horizon_of(how), ref_log_probs=ref, kl_weight=0.1
        ).loss

    assert torch.autograd.gradcheck(loss, random(2, 3, seed=4, scale=0.05).requires_grad_())


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(AGGREGATES), st.sampled_from([None, (0.2, 0.2), (0.1, 0.3)]), st.integers(0, 999))
def test_a_ratio_of_one_gives_the_plain_policy_gradient(how, clip, seed):
    logits = random(3, 4, 6, seed=seed).requires_grad_()
    tokens = torch.randint(0, 6, (3, 4), generator=torch.Generator().manual_seed(seed))
    mask, gain = random(3, 4, seed=seed + 1) > -0.5, random(3, seed=seed + 2)
    log_probs = torch.log_softmax(logits, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    done = clipped_policy_loss(
        log_probs, log_probs.detach(), gain, mask, clip=clip, aggregate=how, horizon=horizon_of(how)
    )
    (got,) = torch.autograd.grad(done.loss, logits, retain_graph=True)
    plain = aggregate_tokens(-gain.unsqueeze(1) * log_probs, mask, how, horizon=horizon_of(how))
    (wanted,) = torch.autograd.grad(plain, logits)
    torch.testing.assert_close(got, wanted)
    assert float(done.clipped) == 0
    assert float(done.ratio) == (1 if mask.any() else 0)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(AGGREGATES), st.sampled_from([math.nan, math.inf, -math.inf, 1e300]), st.integers(0, 999))
def test_masked_tokens_do_not_matter_whatever_they_are(how, rubbish, seed):
    mask = random(3, 4, seed=seed) > 0
    inputs = [random(3, 4, seed=seed + i, scale=0.3) for i in range(1, 5)]
    results = []
    for filler in (0.0, rubbish):
        new, old, ref, gain = (torch.where(mask, x, filler) for x in inputs)
        new = new.requires_grad_()
        done = clipped_policy_loss(
            new, old, gain, mask, aggregate=how, horizon=horizon_of(how), ref_log_probs=ref, kl_weight=0.1
        )
        done.loss.backward()
        assert torch.equal(new.grad[~mask], torch.zeros_like(new.grad[~mask]))
        results.append([*(x.detach() for x in vars(done).values()), new.grad])
    for plain, other in zip(*results, strict=True):
        assert torch.equal(plain, other)


@pytest.mark.parametrize("how", AGGREGATES)
def test_padding_does_not_matter(how):
    new, old, gain = random(2, 3, seed=1, scale=0.3), random(2, 3, seed=2, scale=0.3), random(2, seed=3)
    padded = [torch.nn.functional.pad(x, (1, 2), value=5.0) for x in (new, old, torch.ones(2, 3))]
    padded[2] = (padded[2] == 1).double()
    one = clipped_policy_loss(new, old, gain, torch.ones(2, 3), aggregate=how, horizon=horizon_of(how)).loss
    two = clipped_policy_loss(padded[0], padded[1], gain, padded[2], aggregate=how, horizon=horizon_of(how)).loss
    torch.testing.assert_close(one, two)


def test_what_is_reported_beside_the_loss():
    old = torch.zeros(1, 4, dtype=torch.float64)
    new = numbers(1.5, 1.25, 0.5, 0.9).log().reshape(1, 4).requires_grad_()
    done = clipped_policy_loss(
        new, old, numbers(1, 1, -1, -1).reshape(1, 4), torch.ones(1, 4), clip=(0.2, 0.28), ref_log_probs=old
    )
    assert float(done.clipped) == 0.5  # 1.5 upwards and 0.5 downwards
    assert float(done.ratio) == pytest.approx((1.5 + 1.25 + 0.5 + 0.9) / 4)
    assert float(done.kl) == pytest.approx(float(k3_kl(new.detach(), old).mean()))  # watched, with a weight of 0
    assert float(done.loss.detach()) == pytest.approx(-(1.28 + 1.25 - 0.8 - 0.9) / 4)
    assert isinstance(done, PolicyLoss)
    assert not any(x.requires_grad for x in (done.kl, done.ratio, done.clipped))


def test_the_policies_that_do_not_learn_get_no_gradient():
    new, old, ref, gain = (random(2, 3, seed=i, scale=0.1).requires_grad_() for i in range(4))
    clipped_policy_loss(new, old, gain, torch.ones(2, 3), ref_log_probs=ref, kl_weight=0.1).loss.backward()
    assert new.grad is not None
    assert old.grad is None
    assert ref.grad is None
    assert gain.grad is None


def test_ratios_that_would_overflow_stay_finite():
    new, old = torch.zeros(1, 3, requires_grad=True), torch.full((1, 3), -200.0)
    done = clipped_policy_loss(new, old, torch.tensor([[0.0, 1.0, -1.0]]), torch.ones(1, 3))
    done.loss.backward()
    assert torch.isfinite(done.loss)
    assert torch.isfinite(new.grad).all()
    assert float(done.loss.detach()) == pytest.approx((math.exp(_MOST_LOG_RATIO) - 1.2) / 3, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_as_float32(dtype):
    new, old = random(2, 3, seed=1, scale=0.1).to(dtype), random(2, 3, seed=2, scale=0.1).to(dtype)
    gain = random(2, seed=3).to(dtype)
    one = clipped_policy_loss(new, old, gain, torch.ones(2, 3)).loss
    two = clipped_policy_loss(new.float(), old.float(), gain.float(), torch.ones(2, 3)).loss
    assert one.dtype == torch.float32
    assert torch.equal(one, two)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"log_probs": torch.zeros(3)}, ValueError, "log_probs"),
        ({"log_probs": torch.zeros(2, 3, dtype=torch.int64)}, TypeError, "log_probs"),
        ({"log_probs": torch.full((2, 3), math.nan)}, ValueError, "log_probs must be finite"),
        ({"old_log_probs": torch.zeros(2, 4)}, ValueError, "old_log_probs"),
        ({"old_log_probs": torch.full((2, 3), -math.inf)}, ValueError, "old_log_probs must be finite"),
        ({"advantages": torch.zeros(3)}, ValueError, "advantages"),
        ({"advantages": torch.tensor([0.0, math.nan])}, ValueError, "advantages must be finite"),
        ({"advantages": torch.tensor([0, 1])}, TypeError, "advantages"),
        ({"mask": torch.ones(2, 2)}, ValueError, "mask"),
        ({"clip": (-0.1, 0.2)}, ValueError, "clip"),
        ({"clip": (1.1, 0.2)}, ValueError, "clip"),
        ({"clip": (0.2, math.inf)}, ValueError, "clip"),
        ({"kl_weight": 0.1}, ValueError, "ref_log_probs"),
        ({"kl_weight": -0.1}, ValueError, "kl_weight"),
        ({"ref_log_probs": torch.zeros(3, 2)}, ValueError, "ref_log_probs"),
        ({"aggregate": "sum"}, ValueError, "how"),
        ({"aggregate": "seq-mean-token-sum-norm"}, ValueError, "horizon"),
    ],
)
def test_wrong_arguments_of_the_clipped_loss(change, error, said):
    good = {
        "log_probs": torch.zeros(2, 3), "old_log_probs": torch.zeros(2, 3), "advantages": torch.ones(2),
        "mask": torch.ones(2, 3),
    }  # fmt: skip
    with pytest.raises(error, match=said):
        policy_gradient.clipped_policy_loss(**(good | change))


def test_a_bandit_is_learnt():
    """The three pieces together: among 5 answers the policy comes to prefer the one that is rewarded."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(5, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.1)
    for _ in range(40):
        old = torch.log_softmax(logits.detach(), dim=0)
        answers = torch.multinomial(old.exp(), 32, replacement=True, generator=generator)
        gain = advantages_of((answers == 3).float(), 8)
        for _ in range(2):
            new = torch.log_softmax(logits, dim=0)[answers].unsqueeze(1)
            optimizer.zero_grad()
            clipped_policy_loss(new, old[answers].unsqueeze(1), gain, torch.ones(32, 1)).loss.backward()
            optimizer.step()
    assert float(torch.softmax(logits.detach(), 0)[3]) > 0.9


# ---------------------------------------------------------------------------------------------- preferences


def dpo_reference(chosen, rejected, ref_chosen, ref_rejected, beta, smoothing):
    """Equation 7 of Rafailov et al. with Mitchell's smoothing, a pair at a time."""
    total = 0.0
    for w, l, rw, rl in zip(chosen, rejected, ref_chosen, ref_rejected, strict=True):  # noqa: E741
        h = beta * ((float(w) - float(rw)) - (float(l) - float(rl)))
        total += (1 - smoothing) * math.log1p(math.exp(-h)) + smoothing * math.log1p(math.exp(h))
    return total / len(chosen)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5), st.sampled_from([0.01, 0.1, 1.0]), st.sampled_from([0.0, 0.1, 0.49]), st.integers(0, 999))
def test_dpo_agrees_with_its_equation_and_its_gradient(pairs, beta, smoothing, seed):
    chosen, rejected, ref_chosen, ref_rejected = (random(pairs, seed=seed + i, scale=5.0) for i in range(4))
    chosen.requires_grad_()
    rejected.requires_grad_()
    done = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=beta, label_smoothing=smoothing)
    done.loss.backward()
    inputs = (chosen.detach(), rejected.detach(), ref_chosen, ref_rejected)
    assert float(done.loss.detach()) == pytest.approx(dpo_reference(*inputs, beta, smoothing), rel=1e-9)
    margin = beta * ((inputs[0] - ref_chosen) - (inputs[1] - ref_rejected))
    # d loss / d margin = σ(margin) - (1 - ε)
    slope = beta * (torch.sigmoid(margin) - (1 - smoothing)) / pairs
    torch.testing.assert_close(chosen.grad, slope)
    torch.testing.assert_close(rejected.grad, -slope)
    torch.testing.assert_close(done.chosen_reward - done.rejected_reward, margin)
    assert float(done.accuracy) == pytest.approx(float((margin > 0).double().mean()))


def test_dpo_in_closed_form():
    zero = torch.zeros(3)
    assert float(dpo_loss(zero, zero, zero, zero).loss) == pytest.approx(math.log(2))
    assert float(dpo_loss(zero, zero, zero, zero).accuracy) == 0
    # σ(log 3) = 3/4
    better = numbers(10 * math.log(3))
    assert float(dpo_loss(better, 0 * better, reference_free=True).loss) == pytest.approx(math.log(4 / 3))
    # With smoothing the least loss is at σ(h) = 1 - ε, not at infinity.
    at_best = numbers(10 * math.log(0.9 / 0.1)).requires_grad_()
    dpo_loss(at_best, torch.zeros_like(at_best), reference_free=True, label_smoothing=0.1).loss.backward()
    assert float(at_best.grad) == pytest.approx(0, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.floats(-1000, 1000), st.integers(0, 99))
def test_dpo_knows_only_differences(shift, seed):
    four = [random(4, seed=seed + i) for i in range(4)]
    plain = dpo_loss(*four).loss
    torch.testing.assert_close(dpo_loss(four[0] + shift, four[1] + shift, four[2], four[3]).loss, plain)
    torch.testing.assert_close(dpo_loss(four[0] + shift, four[1], four[2] + shift, four[3]).loss, plain)
    without = dpo_loss(four[0], four[1], reference_free=True).loss
    torch.testing.assert_close(dpo_loss(four[0], four[1], 0 * four[0], 0 * four[1]).loss, without)


def test_dpo_stays_finite_at_large_margins_and_gives_the_reference_no_gradient():
    far, ref = torch.tensor([1e6, -1e6], requires_grad=True), torch.zeros(2, requires_grad=True)
    done = dpo_loss(far, torch.zeros(2), ref, ref, beta=1.0, label_smoothing=0.1)
    done.loss.backward()
    assert torch.isfinite(done.loss)
    assert torch.isfinite(far.grad).all()
    assert ref.grad is None


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"chosen": torch.tensor([1, 2])}, TypeError, "chosen"),
        ({"chosen": torch.zeros(0)}, ValueError, "chosen"),
        ({"chosen": torch.zeros(2, 1)}, ValueError, "chosen"),
        ({"chosen": torch.tensor([0.0, math.nan])}, ValueError, "chosen must be finite"),
        ({"rejected": torch.zeros(3)}, ValueError, "rejected"),
        ({"ref_chosen": torch.zeros(1)}, ValueError, "ref_chosen"),
        ({"ref_rejected": torch.tensor([0.0, math.inf])}, ValueError, "ref_rejected must be finite"),
        ({"ref_chosen": None}, ValueError, "ref_chosen is missing"),
        ({"reference_free": True}, ValueError, "ref_chosen must not be given"),
        ({"beta": 0.0}, ValueError, "beta"),
        ({"beta": math.nan}, ValueError, "beta"),
        ({"label_smoothing": 0.5}, ValueError, "label_smoothing"),
        ({"label_smoothing": -0.1}, ValueError, "label_smoothing"),
    ],
)
def test_wrong_arguments_of_dpo(change, error, said):
    two = torch.zeros(2)
    good = {"chosen": two, "rejected": two, "ref_chosen": two, "ref_rejected": two}
    with pytest.raises(error, match=said):
        policy_gradient.dpo_loss(**(good | change))
