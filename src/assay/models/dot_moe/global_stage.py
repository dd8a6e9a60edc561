"""The global stage: all converted layers together learn to give the dense model's predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from .config import DotMoEConfig
from .dense import Site
from .errors import ConversionError
from .ffn import DotMoEFFN
from .layer_stage import router_losses

WARM_UP = 0.2  # of the steps


@contextmanager
def dense_again(originals: Mapping[int, tuple[Site, tuple[nn.Module, ...]]]) -> Iterator[None]:
    """The model with its dense layers inside the block, and converted again after it."""
    converted = {layer: site.modules() for layer, (site, _) in originals.items()}
    for site, modules in originals.values():
        site.restore(modules)
    try:
        yield
    finally:
        for layer, (site, _) in originals.items():
            site.restore(converted[layer])


def train_together(
    model: nn.Module,
    ffns: Mapping[int, DotMoEFFN],
    originals: Mapping[int, tuple[Site, tuple[nn.Module, ...]]],
    ids: Int[Tensor, "n length"],
    config: DotMoEConfig,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train routers and weights of all converted layers on the model's predictions; all else stays as it is.

    Minimises kl · KL(dense ‖ converted), mean per token, + ce · next-token loss + the router's losses, by Adam with a
    warm-up of a fifth of the steps and a cosine to 0. The dense model is the same one with its dense layers put back
    for the moment, so that no second copy is in memory.

    Raises
    ------
    ConversionError
        When the loss is not finite.
    """
    dtypes = {layer: ffn.up.dtype for layer, ffn in ffns.items()}
    kept = {layer: {k: v.clone() for k, v in ffn.state_dict().items()} for layer, ffn in ffns.items()}
    frozen = {name: p.requires_grad for name, p in model.named_parameters()}
    model.requires_grad_(False)
    parameters: list[Tensor] = []
    for ffn in ffns.values():
        ffn.float().train()
        ffn.keep_parts = True
        trained = [p for name, p in ffn.named_parameters() if config.lr_weights > 0 or name == "router.weight"]
        parameters += [p.requires_grad_(True) for p in trained]
    optimizer = torch.optim.Adam(parameters, lr=config.lr_global, fused=True)
    generator = torch.Generator().manual_seed(config.seed)
    rows = max(1, config.batch_tokens // ids.shape[1])
    order = torch.empty(0, dtype=torch.int64)
    device = next(model.parameters()).device
    failed = True
    try:
        for step in range(config.global_steps):
            for group in optimizer.param_groups:
                group["lr"] = config.lr_global * _schedule(step, config.global_steps)
            while len(order) < rows:
                order = torch.cat([order, torch.randperm(len(ids), generator=generator)])
            batch, order = ids[order[:rows]].to(device), order[rows:]
            with torch.no_grad(), dense_again(originals):
                teacher = _logits(model, batch).float().log_softmax(dim=-1)
            student = _logits(model, batch).float().log_softmax(dim=-1)
            loss = config.kl * (teacher.exp() * (teacher - student)).sum(dim=-1).mean()
            if config.ce > 0:
                loss = loss + config.ce * nn.functional.nll_loss(student[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
            for ffn in ffns.values():
                assert ffn.last is not None
                loss = loss + router_losses(ffn, ffn.last, config) / len(ffns)
            value = float(loss.detach())
            if not math.isfinite(value):
                raise ConversionError(
                    f"global stage: the loss was {value} at step {step}; the layers are as the layer stage left them. "
                    f"Lower lr_global ({config.lr_global:g})",
                    None,
                    step,
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if on_step is not None:
                on_step(step, value)
        failed = False
    finally:
        for layer, ffn in ffns.items():
            ffn.keep_parts, ffn.last = False, None
            ffn.to(dtypes[layer]).eval()
            if failed:
                ffn.load_state_dict(kept[layer])
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(frozen[name])
            parameter.grad = None


def _schedule(step: int, steps: int) -> float:
    warm = max(1, round(WARM_UP * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _logits(model: Any, batch: Tensor) -> Tensor:
    return model(input_ids=batch, use_cache=False).logits
