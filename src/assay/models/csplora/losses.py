"""The loss of each sample and how sure the model is of its true answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

IGNORED = -100
"""The label of a position that does not count, as in transformers."""

Weighting = Literal["fixed", "adaptive", "uniform"]

FLAT = 1e-4
"""Spread of the difficulties below which ``adaptive`` takes them for equal."""

STEEPEST = 10.0
"""The largest γ that ``adaptive`` chooses."""


def sample_weights(
    confidence: Float[Tensor, " batch"], weighting: Weighting = "fixed", gamma: float = 2.0
) -> Float[Tensor, " batch"]:
    """How much each sample of a batch counts; hard samples count more, and the weights sum to 1.

    With the difficulties d = 1 − confidence: ``fixed`` gives softmax(γ·d); ``adaptive`` the same with
    γ = min(1/σ, 10), σ the population's standard deviation of d; ``uniform`` 1/B.

    >>> sample_weights(torch.tensor([0.9, 0.5, 0.1])).round(decimals=4)
    tensor([0.1223, 0.2721, 0.6056])
    """
    d = 1.0 - confidence.detach().float()
    if weighting == "adaptive":
        sigma = float(d.std(correction=0)) if len(d) > 1 else 0.0
        gamma = 0.0 if sigma < FLAT else min(1.0 / sigma, STEEPEST)
    elif weighting == "uniform":
        gamma = 0.0
    return torch.softmax(gamma * (d - d.mean()), dim=0)


def token_losses(
    logits: Float[Tensor, "batch length vocabulary"], labels: Int[Tensor, "batch length"]
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """Mean cross-entropy and mean probability of the true tokens of each sample, and how many tokens count."""
    counts = labels != IGNORED
    nll = F.cross_entropy(logits[counts].float(), labels[counts], reduction="none")
    row = counts.nonzero()[:, 0]
    empty = torch.zeros(len(labels), device=nll.device)
    tokens = counts.sum(dim=1).float()
    # Samples without a token give 0/1 here; the caller leaves them out.
    mean = tokens.clamp(min=1)
    loss = empty.index_add(0, row, nll) / mean
    confidence = empty.index_add(0, row, torch.exp(-nll.detach())) / mean
    return loss, confidence, tokens


def sample_losses(
    model: nn.Module, outputs: Any, batch: Mapping[str, Any]
) -> tuple[Float[Tensor, " samples"], Float[Tensor, " samples"] | None]:
    """Loss (in nats, or squared units for regression) and confidence of each sample that has a label.

    The kinds are told apart by the shapes of logits and labels: classes (B × C and B), several labels at once (both
    B × C, ``problem_type="multi_label_classification"``), regression (C = 1 or floating labels; no confidence), tokens
    (B × T × V and B × T, shifted by one in a model that predicts the next token).

    Raises
    ------
    ValueError
        Where no sample of the batch has a label, or the shapes fit none of these.
    """
    logits, labels = _logits(outputs), batch["labels"]
    labels = labels.to(logits.device)
    config = getattr(model, "config", None)
    if logits.ndim == 3 and labels.ndim == 2:
        if predicts_next(model):
            logits, labels = logits[:, :-1], labels[:, 1:]
        if bool((labels == IGNORED).all()):
            raise ValueError("every label is −100 (after the shift by one, where the model predicts the next token)")
        loss, confidence, tokens = token_losses(logits, labels)
        return loss[tokens > 0], confidence[tokens > 0]
    if logits.ndim == 2 and labels.ndim == 1 and not labels.is_floating_point() and logits.shape[1] > 1:
        counts = labels != IGNORED
        if not bool(counts.any()):
            raise ValueError("every label is −100")
        nll = F.cross_entropy(logits[counts].float(), labels[counts], reduction="none")
        return nll, torch.exp(-nll.detach())
    if logits.ndim == 2 and logits.shape == labels.shape and _problem(config) == "multi_label_classification":
        nll = F.binary_cross_entropy_with_logits(logits.float(), labels.float(), reduction="none")
        return nll.mean(dim=1), torch.exp(-nll.detach()).mean(dim=1)
    if logits.numel() == labels.numel() and (labels.is_floating_point() or logits.shape[-1] == 1):
        error = (logits.float().reshape(len(labels), -1) - labels.float().reshape(len(labels), -1)) ** 2
        return error.mean(dim=1), None
    raise ValueError(
        f"logits of shape {tuple(logits.shape)} and {labels.dtype} labels of shape {tuple(labels.shape)} are no task "
        "known here; give loss_fn(outputs, batch) -> (loss, confidence), one of each a sample"
    )


def predicts_next(model: nn.Module) -> bool:
    """Whether the logits at a position are for the next token: so in causal language models.

    It is false for an encoder-decoder, and for transformers models that label or fill in tokens.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if getattr(getattr(base, "config", None), "is_encoder_decoder", False):
        return False
    return not type(base).__name__.endswith(("ForTokenClassification", "ForMaskedLM"))


def checked(loss: Any, confidence: Any) -> tuple[Tensor, Tensor | None]:
    """What a user's ``loss_fn`` returned, or an error that says what is wrong with it."""
    if not isinstance(loss, Tensor) or loss.ndim != 1 or not len(loss):
        what = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise ValueError(f"loss_fn must return one loss a sample, a tensor of shape (batch,), got {what}")
    if confidence is None:
        return loss, None
    if not isinstance(confidence, Tensor) or confidence.shape != loss.shape:
        what = f"shape {tuple(confidence.shape)}" if isinstance(confidence, Tensor) else type(confidence).__name__
        raise ValueError(f"loss_fn must return one confidence a sample, of shape {tuple(loss.shape)}, got {what}")
    low, high = float(confidence.min()), float(confidence.max())
    if not (math.isfinite(low) and low >= 0 and high <= 1 + 1e-6):
        raise ValueError(f"confidences must lie between 0 and 1, got {low:.4g} to {high:.4g}")
    return loss, confidence


def _logits(outputs: Any) -> Tensor:
    logits = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    if logits is None and isinstance(outputs, Mapping):
        logits = outputs.get("logits")
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"the model's output ({type(outputs).__name__}) has no logits; give loss_fn(outputs, batch) -> "
            "(loss, confidence), one of each a sample"
        )
    return logits


def _problem(config: Any) -> str | None:
    return getattr(config, "problem_type", None)
