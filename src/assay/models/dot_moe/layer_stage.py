"""The layer stage: one layer's cut, router and weights are trained to write what the dense layer writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .config import DotMoEConfig
from .dense import DenseFFN
from .errors import ConversionError
from .ffn import DotMoEFFN, Parts
from .starts import expert_outputs, start_affinity, start_cut, start_router

START_TOKENS = 8192
"""Starts are made from at most so many tokens."""

LEAST_POWER = 1e-6
"""Of a token's dense output, as a share of the mean: below that it counts no more."""


def convert_layer(
    dense: DenseFFN,
    x: Float[Tensor, "n d"],
    config: DotMoEConfig,
    layer: int = 0,
    on_step: Callable[[int, float], None] | None = None,
) -> DotMoEFFN:
    """Cut one layer into experts, by training on the inputs that it has in the dense model.

    Minimises the mean over tokens of ‖Ŷ_t − Y_t‖² / ‖Y_t‖², plus the balancing and z-losses of the router.

    Parameters
    ----------
    dense
        The layer; it is copied, and trained in float32.
    x
        (n, d) its inputs on the calibration text; may lie on another device, or on disk.
    config
        The settings.
    layer
        Its number, for messages.
    on_step
        Called after each step with its number and the relative error of the batch.

    Returns
    -------
    DotMoEFFN
        float32, on the device of ``dense``, in evaluation mode, its cut frozen.

    Raises
    ------
    ConversionError
        When the loss is not finite; says the layer and the step.
    """
    device = dense.up.device
    dense = dense.to(device, torch.float32)
    targets, weight = dense_outputs(dense, x, config.batch_tokens)
    generator = torch.Generator().manual_seed(config.seed)
    some = torch.randperm(len(x), generator=generator)[:START_TOKENS].sort().values
    sample, sample_weight = x[some].to(device, torch.float32), weight[some].to(device)
    ffn = DotMoEFFN(dense.to(device, torch.float32), config.n_experts, config.top_k, config.n_shared)
    with torch.no_grad():
        assignment = start_cut(dense, sample, sample_weight, config)
    start_router(ffn, dense, assignment, sample, sample_weight, config)
    if config.learn_cut:
        ffn.learn_cut(start_affinity(assignment, config), config.sinkhorn_iters)
    else:
        ffn.set_cut(assignment)
    ffn.train()
    train(ffn, x, targets, weight, config, generator, layer, on_step)
    ffn.tau = config.tau_end
    ffn.freeze_cut()
    ffn.last = None
    return ffn.eval().requires_grad_(True)


def train(
    ffn: DotMoEFFN,
    x: Float[Tensor, "n d"],
    targets: Float[Tensor, "n d"],
    weight: Float[Tensor, " n"],
    config: DotMoEConfig,
    generator: torch.Generator,
    layer: int = 0,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train an FFN that is set up to write ``targets``, each token with its ``weight``."""
    device = ffn.up.device
    rates = [(_some(ffn.affinity), config.lr_affinity), ([ffn.router.weight], config.lr_router)]
    weights = [p for name, p in ffn.named_parameters() if name not in ("affinity", "router.weight")]
    rates.append((weights, config.lr_weights))
    for parameters, rate in rates:
        for parameter in parameters:
            parameter.requires_grad_(rate > 0)
    groups = [{"params": parameters, "lr": rate} for parameters, rate in rates if parameters and rate > 0]
    optimizer = torch.optim.Adam(groups, fused=True) if groups else None
    batches = _batches(len(x), config.batch_tokens, generator)
    for step in range(config.steps if optimizer is not None else 0):
        assert optimizer is not None
        decay = 0.5 * (1 + math.cos(math.pi * step / config.steps))
        for group, start in zip(optimizer.param_groups, groups, strict=True):
            group["lr"] = start["lr"] * decay
        ffn.tau = config.tau_start * (config.tau_end / config.tau_start) ** (step / max(1, config.steps - 1))
        rows = next(batches)
        batch = x[rows].to(device, torch.float32)
        target, v = targets[rows].to(device), weight[rows].to(device) / len(rows)
        parts = ffn.parts(batch)
        error = ((parts.output - target).square().sum(dim=-1) * v).sum()
        loss = error + router_losses(ffn, parts, config)
        if config.correction:
            loss = loss - move_correction(ffn, parts, v)
        value = float(error.detach())
        if not math.isfinite(float(loss.detach())):
            cause = (
                f"Lower lr_weights ({config.lr_weights:g}), lr_router or lr_affinity"
                if step
                else "Its weights or its inputs hold NaN or very large numbers"
            )
            raise ConversionError(
                f"layer {layer}: the loss was {float(loss.detach())} at step {step}; the layer is left dense. {cause}",
                layer,
                step,
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if on_step is not None:
            on_step(step, value)


def router_losses(ffn: DotMoEFFN, parts: Parts, config: DotMoEConfig) -> Tensor:
    """Load balancing, E Σ_e f_e P_e over the routed experts, and the mean square of the logits' log-sum-exp."""
    slots = ffn.top_k - ffn.n_shared
    share = parts.chosen[:, ffn.n_shared :].mean(dim=0) / slots
    balance = len(share) * (share * parts.probabilities.mean(dim=0)).sum()
    return config.balance * balance + config.z_loss * parts.logits.logsumexp(dim=-1).square().mean()


def move_correction(ffn: DotMoEFFN, parts: Parts, v: Float[Tensor, " n"]) -> Tensor:
    """What straight-through gradients leave out of the effect of a move, as a term to subtract from the loss.

    With a squared loss, having neuron i active at token t lowers the loss by exactly
    b_ti = −2 h_ti (r_t·w_i) + (2 a_ti − 1) h_ti² ‖w_i‖², where r is the present error and a_ti is 1 where it is active
    now. Straight-through gradients are the first term: as if taking away an active neuron were free, and adding one
    gained twice as much. The same holds of expert e for token t, with o_te in place of h_ti w_i. The value of this term
    means nothing; its gradients, to the soft plan and to the router's probabilities, are the second terms.
    """
    with torch.no_grad():
        values = parts.hidden
        own = parts.cut.argmax(dim=-1)
        order = torch.argsort(own, stable=True)
        outputs = expert_outputs(values[:, order], ffn.down[order], ffn.sizes)
        sign = 2 * parts.chosen - 1
        of_experts = (v[:, None] * sign * outputs.square().sum(dim=-1).T)[:, ffn.n_shared :]
        if parts.soft_cut is not None:
            squares = values.square() * ffn.down.square().sum(dim=-1) * sign[:, own]
            of_neurons = squares.T @ (v[:, None] * parts.chosen)
    total = (parts.probabilities * of_experts).sum()
    if parts.soft_cut is not None:
        total = total + (parts.soft_cut * of_neurons).sum()
    return total


@torch.no_grad()
def dense_outputs(
    dense: DenseFFN, x: Float[Tensor, "n d"], batch_tokens: int
) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Y and v_t = 1/‖Y_t‖² in main memory: each token's error counts relative to what the dense layer writes for it."""
    device = dense.up.device
    outputs = torch.cat([dense.output(part.to(device, torch.float32)).cpu() for part in x.split(batch_tokens)])
    power = outputs.square().sum(dim=-1)
    return outputs, 1 / power.clamp_min(LEAST_POWER * float(power.mean()) + 1e-30)


def _batches(n: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Rows in random order, each once before any comes again."""
    left = torch.empty(0, dtype=torch.int64)
    while True:
        while len(left) < size:
            left = torch.cat([left, torch.randperm(n, generator=generator)])
        yield left[:size]
        left = left[size:]


def _some(parameter: nn.Parameter | None) -> list[Tensor]:
    return [] if parameter is None else [parameter]
