"""Fine-tuning under equal conditions: contenders differ in their adapters alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .losses import sample_losses
from .targets import move

WARM_UP = 0.1
"""Share of the steps in which the learning rate rises; after that it falls to 0 in a line."""


def same_start(model: nn.Module, seed: int) -> None:
    """Draw the adapters' first matrices so that they agree between plans.

    Each matrix has a generator of its own, named for its module, and takes the first rows of what that draws: two plans
    that give a module the same rank start it alike, and a larger rank only adds rows. The distribution is PEFT's own,
    which does not depend on the rank.
    """
    for name, parameter in model.named_parameters():
        if ".lora_A." not in name or parameter.ndim != 2:
            continue
        digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        rank, width = parameter.shape
        rows = torch.rand(rank, width, generator=generator) * 2 - 1
        with torch.no_grad():
            parameter.copy_(rows / math.sqrt(width))


def train(
    model: nn.Module,
    batches: Sequence[Mapping[str, Tensor]],
    lr: float,
    after_step: Callable[[int], object] | None = None,
) -> None:
    """One AdamW step a batch on what requires a gradient; warm-up, then linear decay; gradients clipped to norm 1.

    Dropout is off: in so short a training it would be noise that hides what the contenders differ in.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    steps = len(batches)
    rise = max(1, round(WARM_UP * steps))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: min((t + 1) / rise, (steps - t) / steps))
    device = parameters[0].device
    model.eval()
    for step, batch in enumerate(batches):
        batch = {key: move(value, device) for key, value in batch.items()}
        model(**batch).loss.backward()  # the model's own loss, to which PEFT adds AdaLoRA's regulariser
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if after_step is not None:
            after_step(step)
        optimizer.zero_grad()
        schedule.step()


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Mean ``loss`` of the samples in nats and, for classes, their ``accuracy`` in per cent."""
    model.eval()
    device = next(model.parameters()).device
    losses, right, count = 0.0, 0, 0
    classified = False
    for batch in batches:
        batch = {key: move(value, device) for key, value in batch.items()}
        outputs: Any = model(**_inputs(batch))
        labels = batch["labels"]
        if labels.ndim == 1:
            classified = True
            losses += float(F.cross_entropy(outputs.logits.float(), labels, reduction="sum"))
            right += int((outputs.logits.argmax(dim=1) == labels).sum())
            count += len(labels)
        else:
            loss, _ = sample_losses(model, outputs, batch)
            losses += float(loss.sum())
            count += len(loss)
    return {"loss": losses / count} | ({"accuracy": 100 * right / count} if classified else {})


def _inputs(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: value for key, value in batch.items() if key != "labels"}
