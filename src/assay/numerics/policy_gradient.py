"""Losses that move a policy towards what was rewarded: group-relative advantages, clipped ratios, preferences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from assay.errors import MissingPart

try:
    import torch
    from jaxtyping import Float, Int, Shaped
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingPart(f"policy gradients need {error.name}", "python -m pip install 'assay[torch]'") from error

__all__ = [
    "Aggregate",
    "DPOLoss",
    "PolicyLoss",
    "aggregate_tokens",
    "clipped_policy_loss",
    "dpo_loss",
    "group_advantages",
    "k3_kl",
]

Aggregate = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"]
"""How the values of a batch's tokens become one: see :func:`aggregate_tokens`."""

# A ratio beyond is far outside any clip range; larger ones would overflow, and times an advantage of 0 be NaN.
_MOST_LOG_RATIO = 60.0

_AGGREGATES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


@dataclass(frozen=True)
class PolicyLoss:
    """A clipped policy loss, and what to watch while it falls; only ``loss`` carries a gradient."""

    loss: Float[Tensor, ""]
    kl: Float[Tensor, ""]
    """The estimated divergence from the reference, averaged over tokens; 0 without a reference."""
    ratio: Float[Tensor, ""]
    """The ratio new / old, averaged over tokens."""
    clipped: Float[Tensor, ""]
    """The share of tokens whose gradient the clipping took away."""


@dataclass(frozen=True)
class DPOLoss:
    """A preference loss, and the rewards it implies; only ``loss`` carries a gradient."""

    loss: Float[Tensor, ""]
    chosen_reward: Float[Tensor, " pairs"]
    """β log(π / π_ref) of the preferred answers."""
    rejected_reward: Float[Tensor, " pairs"]
    accuracy: Float[Tensor, ""]
    """The share of pairs in which the preferred answer has the higher reward."""


def group_advantages(
    rewards: Float[Tensor, " batch"],
    groups: int | Int[Tensor, " batch"],
    *,
    scale: Literal["group", "batch", "none"] = "group",
    eps: float = 1e-4,
    unbiased: bool = True,
    most: float | None = None,
) -> Float[Tensor, " batch"]:
    """Return how much better each answer is than the others to the same prompt.

    ``A = (r - mean) / (std + eps)``, the mean and the standard deviation over the answers to one prompt. A group whose
    rewards are all equal gives exactly 0, and so does a group of one.

    Parameters
    ----------
    rewards
        (batch,) one reward an answer, finite; NaN where an answer was not scored: its advantage is 0, and its group's
        mean and standard deviation are those of the others. Half precision is computed as float32.
    groups
        The size of the groups, which then stand one behind the other; or (batch,) integers, the same for the answers
        to one prompt, in any order.
    scale
        What the differences are divided by: the standard deviation in the ``"group"`` (DeepSeekMath), that of the
        whole ``"batch"``'s rewards, or ``"none"``: dividing by a group's favours prompts that are nearly always or
        nearly never solved (Dr. GRPO).
    eps
        Added to the standard deviation, not negative.
    unbiased
        Whether the variance is the sum of squares divided by n - 1, as the common trainers have it, or by n.
    most
        Advantages beyond ±most are set to ±most; None leaves them.

    Raises
    ------
    TypeError
        For rewards that are no floating-point numbers, or groups that are no integers.
    ValueError
        For rewards that are not a vector or infinite, a group size that does not divide their number, ids of another
        shape, or an unknown ``scale``, negative ``eps`` or ``most`` that is not positive.

    Notes
    -----
    Shao et al., DeepSeekMath, arXiv 2402.03300, section 4.1.2; without the standard deviation: Liu et al.,
    Understanding R1-Zero-Like Training (Dr. GRPO), arXiv 2503.20783.

    Examples
    --------
    >>> group_advantages(torch.tensor([1.0, 0, 0, 1, 1, 1]), 3, scale="none")
    tensor([ 0.6667, -0.3333, -0.3333,  0.0000,  0.0000,  0.0000])
    """
    _floating("rewards", rewards)
    if rewards.ndim != 1 or not len(rewards):
        raise ValueError(f"rewards must be one for each answer, got shape {tuple(rewards.shape)}")
    if bool(torch.isinf(rewards).any()):
        raise ValueError("rewards must be finite, or NaN where an answer was not scored; there is an infinite one")
    if scale not in ("group", "batch", "none"):
        raise ValueError(f"scale must be 'group', 'batch' or 'none', got {scale!r}")
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps must be finite and not negative, got {eps}")
    if most is not None and not most > 0:
        raise ValueError(f"most must be positive or None, got {most}")
    ids, count = _group_ids(groups, rewards)
    r = _widened(rewards).detach()
    scored = ~torch.isnan(r)
    r = torch.where(scored, r, 0.0)

    def total(values: Tensor) -> Tensor:
        return values.new_zeros(count).index_add(0, ids, torch.where(scored, values, 0.0))

    size = total(torch.ones_like(r))
    mean = total(r) / size.clamp(min=1)
    apart = r - mean[ids]
    # Rounding leaves a difference from the mean of equal rewards; divided by as small a deviation it would count.
    alike = _extreme(r, ids, scored, count, "amax") == _extreme(r, ids, scored, count, "amin")
    apart = torch.where(scored & ~alike[ids], apart, 0.0)
    if scale == "group":
        spread = (total(apart**2) / (size - int(unbiased)).clamp(min=1)).sqrt()[ids]
        apart = apart / torch.where(spread > 0, spread + eps, 1.0)
    elif scale == "batch" and bool((apart != 0).any()):
        apart = apart / (r[scored].std(correction=int(unbiased)) + eps)
    return apart if most is None else apart.clamp(-most, most)


def k3_kl(log_probs: Float[Tensor, "*shape"], ref_log_probs: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    """Return the estimate of KL(policy ‖ reference) from each sampled token, which is never negative.

    ``exp(d) - d - 1`` with ``d = log π_ref - log π``: unbiased where the tokens are the policy's own. Its gradient is
    not the divergence's, but that of the same estimate.

    Parameters
    ----------
    log_probs, ref_log_probs
        Log-probabilities of the sampled tokens under the policy and the reference, of the same shape.

    Raises
    ------
    TypeError
        For what are no floating-point numbers.
    ValueError
        For different shapes.

    Notes
    -----
    Schulman, Approximating KL Divergence (2020), the estimator k3; DeepSeekMath, arXiv 2402.03300, equation 4.

    Examples
    --------
    >>> k3_kl(torch.tensor([0.5, 0.2]).log(), torch.tensor([0.5, 0.4]).log())  # 2 - log 2 - 1
    tensor([0.0000, 0.3069])
    """
    _floating("log_probs", log_probs)
    _floating("ref_log_probs", ref_log_probs)
    _same_shape("ref_log_probs", ref_log_probs, log_probs)
    apart = _widened(ref_log_probs) - _widened(log_probs)
    # expm1 keeps the digits of policies that are nearly the same.
    return torch.expm1(apart) - apart


def aggregate_tokens(
    values: Float[Tensor, "batch tokens"],
    mask: Shaped[Tensor, "batch tokens"],
    how: Aggregate = "token-mean",
    *,
    horizon: int | None = None,
) -> Float[Tensor, ""]:
    """Return one value for a batch of sequences of values.

    Parameters
    ----------
    values
        (batch, tokens). What is masked may be anything, NaN too.
    mask
        (batch, tokens) booleans, or 0 and 1: which of the tokens count.
    how
        ``"token-mean"``: the mean over all tokens of the batch (DAPO), in which long answers weigh more;
        ``"seq-mean-token-mean"``: the mean over a sequence's tokens, then over sequences (GRPO), in which a token of
        a long answer weighs less;
        ``"seq-mean-token-sum"``: the sum over its tokens, then the mean, which is the policy gradient itself;
        ``"seq-mean-token-sum-norm"``: that divided by ``horizon`` (Dr. GRPO).
        A sequence without tokens counts as one whose value is 0.
    horizon
        For the last of them alone: the most tokens that an answer may have.

    Raises
    ------
    TypeError
        For values that are no floating-point numbers.
    ValueError
        For a shape that is not (batch, tokens), a mask that is not as described, an unknown ``how``, and a horizon
        that is missing, below 1, or given where it is not used.

    Notes
    -----
    DeepSeekMath, arXiv 2402.03300; Yu et al., DAPO, arXiv 2503.14476; Dr. GRPO, arXiv 2503.20783. The names are those
    of the trainer verl.

    Examples
    --------
    >>> values = torch.tensor([[1.0, 1, 1], [5, 0, 0]])
    >>> mask = torch.tensor([[True, True, True], [True, False, False]])
    >>> [float(aggregate_tokens(values, mask, how)) for how in ("token-mean", "seq-mean-token-mean")]
    [2.0, 3.0]
    """
    _floating("values", values)
    if values.ndim != 2 or not values.shape[0]:
        raise ValueError(f"values must be (batch, tokens), got shape {tuple(values.shape)}")
    if how not in _AGGREGATES:
        raise ValueError(f"how must be one of {', '.join(_AGGREGATES)}, got {how!r}")
    if how == "seq-mean-token-sum-norm":
        if horizon is None or horizon < 1:
            raise ValueError(f"horizon must be at least 1 with seq-mean-token-sum-norm, got {horizon}")
    elif horizon is not None:
        raise ValueError(f"horizon is only used with seq-mean-token-sum-norm, not with {how}")
    used = _used(mask, values)
    kept = torch.where(used, _widened(values), 0.0)
    if how == "token-mean":
        return kept.sum() / used.sum().clamp(min=1)
    sums = kept.sum(dim=1)
    if how == "seq-mean-token-mean":
        return (sums / used.sum(dim=1).clamp(min=1)).mean()
    return sums.mean() / (horizon or 1)


def clipped_policy_loss(
    log_probs: Float[Tensor, "batch tokens"],
    old_log_probs: Float[Tensor, "batch tokens"],
    advantages: Float[Tensor, " batch"] | Float[Tensor, "batch tokens"],
    mask: Shaped[Tensor, "batch tokens"],
    *,
    clip: tuple[float, float] | None = (0.2, 0.2),
    aggregate: Aggregate = "token-mean",
    horizon: int | None = None,
    ref_log_probs: Float[Tensor, "batch tokens"] | None = None,
    kl_weight: float = 0.0,
) -> PolicyLoss:
    """Return the loss whose descent raises what was better than expected, no further than the clip range.

    For each token ``-min(ρ A, clip(ρ, 1 - low, 1 + high) A) + kl_weight · k3``, with ``ρ = π / π_old``.

    Parameters
    ----------
    log_probs
        (batch, tokens) log-probabilities of the sampled tokens under the policy that learns; it alone gets a gradient.
        Half precision is computed as float32.
    old_log_probs
        (batch, tokens) the same under the policy that wrote them. ``log_probs.detach()`` for one step on fresh
        answers: the ratios are 1, and the gradient is the plain policy gradient.
    advantages
        (batch,) one an answer, or (batch, tokens).
    mask
        (batch, tokens) booleans, or 0 and 1: the tokens that the policy wrote. What is masked may be anything.
    clip
        (low, high): the ratio counts only from 1 - low to 1 + high; (0.2, 0.28) is the range of DAPO. None clips not
        at all.
    aggregate, horizon
        As in :func:`aggregate_tokens`.
    ref_log_probs
        (batch, tokens) the same under the reference, needed where ``kl_weight`` is not 0.
    kl_weight
        Weight of the penalty, not negative.

    Raises
    ------
    TypeError
        For what are no floating-point numbers.
    ValueError
        For shapes that do not fit, a value that counts and is not finite, a clip range that is not 0 ≤ low ≤ 1 and
        high ≥ 0, and a weight without a reference.

    Notes
    -----
    Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347, equation 7; with group-relative
    advantages and the penalty: DeepSeekMath, arXiv 2402.03300, equation 3; the two-sided range: DAPO, arXiv 2503.14476.

    Examples
    --------
    >>> new, old = torch.tensor([[0.9, 0.5]]).log(), torch.tensor([[0.5, 0.5]]).log()
    >>> done = clipped_policy_loss(new, old, torch.tensor([1.0]), torch.ones(1, 2))
    >>> round(float(done.loss), 4), float(done.clipped)  # -(1.2 + 1) / 2
    (-1.1, 0.5)
    """
    _floating("log_probs", log_probs)
    if log_probs.ndim != 2 or not log_probs.shape[0]:
        raise ValueError(f"log_probs must be (batch, tokens), got shape {tuple(log_probs.shape)}")
    if clip is not None and not (0 <= clip[0] <= 1 and 0 <= clip[1] < math.inf):
        raise ValueError(f"clip must be (low, high) with 0 ≤ low ≤ 1 and high ≥ 0, or None; got {clip}")
    if not 0 <= kl_weight < math.inf:
        raise ValueError(f"kl_weight must be finite and not negative, got {kl_weight}")
    if kl_weight and ref_log_probs is None:
        raise ValueError(f"ref_log_probs is needed with a kl_weight of {kl_weight}")
    used = _used(mask, log_probs)
    new = _at_used("log_probs", log_probs, used)
    old = _at_used("old_log_probs", old_log_probs, used).detach()
    if advantages.ndim == 1 and len(advantages) == len(log_probs):
        advantages = advantages.unsqueeze(1).expand_as(log_probs)
    gain = _at_used("advantages", advantages, used).detach()

    ratio = torch.exp((new - old).clamp(max=_MOST_LOG_RATIO))
    surrogate = ratio * gain
    cut = torch.zeros_like(used)
    if clip is not None:
        bounded = ratio.clamp(1 - clip[0], 1 + clip[1]) * gain
        cut = bounded < surrogate
        surrogate = torch.minimum(surrogate, bounded)
    loss = -surrogate
    kl = torch.zeros_like(ratio)
    if ref_log_probs is not None:
        kl = k3_kl(new, _at_used("ref_log_probs", ref_log_probs, used).detach())
        loss = loss + kl_weight * kl if kl_weight else loss

    def mean(values: Tensor) -> Tensor:
        return aggregate_tokens(values.detach().to(new.dtype), used)

    total = aggregate_tokens(loss, used, aggregate, horizon=horizon)
    return PolicyLoss(total, kl=mean(kl), ratio=mean(ratio), clipped=mean(cut))


def dpo_loss(
    chosen: Float[Tensor, " pairs"],
    rejected: Float[Tensor, " pairs"],
    ref_chosen: Float[Tensor, " pairs"] | None = None,
    ref_rejected: Float[Tensor, " pairs"] | None = None,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    reference_free: bool = False,
) -> DPOLoss:
    """Return the loss of a policy that should prefer one answer to another, further than a reference does.

    ``-(1 - ε) log σ(β h) - ε log σ(-β h)``, averaged over pairs, with ``h = log(π / π_ref)(chosen) -
    log(π / π_ref)(rejected)`` and ε the ``label_smoothing``.

    Parameters
    ----------
    chosen, rejected
        (pairs,) log-probabilities of whole answers, summed over their tokens, under the policy that learns.
    ref_chosen, ref_rejected
        (pairs,) the same under the reference; they get no gradient.
    beta
        Positive: how closely the policy is held to the reference.
    label_smoothing
        The probability that a preference is the wrong way round, at least 0 and below 0.5.
    reference_free
        Whether the reference is one that finds all answers equally likely; none is given then.

    Raises
    ------
    TypeError
        For what are no floating-point numbers.
    ValueError
        For shapes that do not fit, no pair, values that are not finite, a reference that is missing or given together
        with ``reference_free``, and ``beta`` or ``label_smoothing`` out of range.

    Notes
    -----
    Rafailov et al., Direct Preference Optimization, arXiv 2305.18290, equation 7; the smoothing: Mitchell, A note on
    DPO with noisy preferences and relationship to IPO (2023).

    Examples
    --------
    >>> zero = torch.zeros(1)
    >>> round(float(dpo_loss(zero, zero, zero, zero).loss), 4)  # log 2
    0.6931
    """
    if not 0 < beta < math.inf:
        raise ValueError(f"beta must be positive and finite, got {beta}")
    if not 0 <= label_smoothing < 0.5:
        raise ValueError(f"label_smoothing must be at least 0 and below 0.5, got {label_smoothing}")
    references = {"ref_chosen": ref_chosen, "ref_rejected": ref_rejected}
    for name, given in references.items():
        if reference_free and given is not None:
            raise ValueError(f"{name} must not be given with reference_free=True")
        if not reference_free and given is None:
            raise ValueError(f"{name} is missing: give the reference's log-probabilities, or reference_free=True")
    answers = {"chosen": chosen, "rejected": rejected}
    for name, values in (answers | references).items():
        if values is None:
            continue
        _floating(name, values)
        if values.ndim != 1 or not len(values) or values.shape != chosen.shape:
            raise ValueError(
                f"{name} must be one log-probability for each pair, got shape {tuple(values.shape)}"
                f" beside {tuple(chosen.shape)} of chosen"
            )
        if not bool(torch.isfinite(values).all()):
            raise ValueError(f"{name} must be finite")
    better, worse = _widened(chosen), _widened(rejected)
    if ref_chosen is not None and ref_rejected is not None:
        better = better - _widened(ref_chosen).detach()
        worse = worse - _widened(ref_rejected).detach()
    margin = beta * (better - worse)
    log_sigmoid = torch.nn.functional.logsigmoid
    loss = -(1 - label_smoothing) * log_sigmoid(margin) - label_smoothing * log_sigmoid(-margin)
    return DPOLoss(
        loss.mean(),
        chosen_reward=beta * better.detach(),
        rejected_reward=beta * worse.detach(),
        accuracy=(margin.detach() > 0).to(margin.dtype).mean(),
    )


def _group_ids(groups: int | Tensor, rewards: Tensor) -> tuple[Tensor, int]:
    """The group of each answer as a number from 0, and how many groups there are."""
    if isinstance(groups, Tensor):
        if groups.is_floating_point() or groups.is_complex() or groups.dtype == torch.bool:
            raise TypeError(f"groups must be integers, got {groups.dtype}")
        if groups.shape != rewards.shape:
            raise ValueError(f"groups must be one id a reward, got {tuple(groups.shape)} for {tuple(rewards.shape)}")
        names, ids = torch.unique(groups.to(rewards.device), return_inverse=True)
        return ids, len(names)
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise TypeError(f"groups must be an integer or a tensor of integers, got {type(groups).__name__}")
    if groups < 1 or len(rewards) % groups:
        raise ValueError(f"groups must divide the number of rewards, got groups of {groups} for {len(rewards)}")
    count = len(rewards) // groups
    return torch.arange(count, device=rewards.device).repeat_interleave(groups), count


def _extreme(values: Tensor, ids: Tensor, scored: Tensor, count: int, which: Literal["amax", "amin"]) -> Tensor:
    """The largest or the smallest scored value of each group; equal ones where none is scored."""
    start = values.new_full((count,), -math.inf if which == "amax" else math.inf)
    found = start.scatter_reduce(0, ids[scored], values[scored], which)
    return torch.where(torch.isinf(found), 0.0, found)


def _used(mask: Tensor, values: Tensor) -> Tensor:
    """The mask as booleans."""
    if mask.shape != values.shape:
        raise ValueError(f"mask must have the shape {tuple(values.shape)}, got {tuple(mask.shape)}")
    if mask.dtype == torch.bool:
        return mask
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("mask must be booleans, or 0 and 1")
    return mask == 1


def _at_used(name: str, values: Tensor, used: Tensor) -> Tensor:
    """Values with 0 where they do not count, so that nothing that stands there reaches a result or a gradient."""
    _floating(name, values)
    _same_shape(name, values, used)
    kept = torch.where(used, _widened(values), 0.0)
    if not bool(torch.isfinite(kept).all()):
        raise ValueError(f"{name} must be finite wherever the mask is 1")
    return kept


def _floating(name: str, values: Tensor) -> None:
    if not values.is_floating_point():
        raise TypeError(f"{name} must be floating-point numbers, got {values.dtype}")


def _same_shape(name: str, values: Tensor, like: Tensor) -> None:
    if values.shape != like.shape:
        raise ValueError(f"{name} must have the shape {tuple(like.shape)}, got {tuple(values.shape)}")


def _widened(values: Tensor) -> Tensor:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
