"""The probe: forward and backward over some batches of training data, and how much each matrix matters for the loss."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .losses import IGNORED, Weighting, checked, sample_losses, sample_weights
from .scores import ModuleScores
from .targets import Target, families, find_targets, move

LossFunction = Callable[[Any, Mapping[str, Any]], tuple[Tensor, Tensor | None]]

FP16_SCALE = 1024.0
"""By this the loss is multiplied for fp16 weights, as small gradients would be zero; the scores are divided by it."""


def probe(
    model: nn.Module,
    batches: Iterable[Mapping[str, Any]],
    *,
    target_modules: Sequence[str] | str | None = None,
    gamma: float = 2.0,
    weighting: Weighting = "fixed",
    min_steps: int = 50,
    max_steps: int = 500,
    check_every: int = 10,
    tol: float = 0.02,
    patience: int = 3,
    top_k: int = 20,
    rank_tol: int = 5,
    group_size: int | None = None,
    loss_fn: LossFunction | None = None,
    device: str | torch.device | None = None,
) -> ModuleScores:
    """Score every target matrix by ‖W ⊙ ∂L/∂W‖₁, L a loss in which hard samples count more.

    Nothing is trained. The model is left as it was: weights, gradients, ``requires_grad``, modes, device.

    Parameters
    ----------
    model
        A model whose forward takes a batch: with a transformers model for classification, regression or language
        modelling nothing else is needed. A new head should be trained a little first (:func:`fit_head`): through a
        random one the gradients say little about the task.
    batches
        Dictionaries for ``model(**batch)`` that hold ``labels``. Each is used once, in order.
    target_modules
        ``None`` for every linear layer but heads; names, ends of names or a regular expression as in PEFT.
    gamma
        How much more hard samples count with ``weighting="fixed"``; 0 is ``uniform``.
    weighting
        ``fixed``, ``adaptive`` (γ from the batch's spread) or ``uniform``: see :func:`sample_weights`.
    min_steps, max_steps
        Batches at least and at most.
    check_every, tol, patience, top_k, rank_tol
        From ``min_steps`` on, every ``check_every`` batches: the sum of all scores changed by less than ``tol``
        (relative) and the same ``top_k`` matrices (by score per weight) lead, none moved by more than ``rank_tol``
        places. After ``patience`` such checks in a row it ends.
    group_size
        Take gradients of so many matrices at a time, with a forward and backward for each group: slower, and less
        memory. Gradients are dropped one by one as they come in any case.
    loss_fn
        ``loss_fn(outputs, batch) -> (loss, confidence)``, each (batch,), for other tasks. The confidence, 0 to 1, is
        the probability of the true answer; ``None`` for no weighting.
    device
        Where to run; default where the model is. It is moved back afterwards.

    Returns
    -------
    ModuleScores

    Raises
    ------
    ValueError
        Where there is no batch, a batch without labels, or an argument out of range; where a matrix never had a
        finite gradient or no matrix had any.
    TypeError
        Where the weights are quantised and have no gradient.

    References
    ----------
    "CSPLoRA: Confidence-Guided Structural Planning for Low-Rank Adaptation", Ding et al., ICML 2026.
    """
    _check(gamma, weighting, min_steps, max_steps, check_every, tol, patience, top_k, rank_tol, group_size)
    targets = find_targets(model, target_modules)
    sums, counts, stats = dict.fromkeys(targets, 0.0), dict.fromkeys(targets, 0), _WeightStats()
    watch = _Settling(targets, tol, patience, top_k, rank_tol)
    steps, converged = 0, False
    with _as_it_was(model, targets, device) as where:
        for index, batch in enumerate(batches):
            batch = _checked(batch, index, where)
            for group in _groups(targets, group_size):
                values = _step(model, batch, group, index, weighting, gamma, loss_fn, stats)
                for name, value in values.items():
                    if math.isfinite(value):
                        sums[name] += value
                        counts[name] += 1
                    else:
                        stats.skipped += 1
            steps = index + 1
            if steps % check_every == 0:
                means = {name: sums[name] / max(counts[name], 1) for name in targets}
                if watch.settled(means, steps >= min_steps):
                    converged = True
                    break
            if steps >= max_steps:
                break
    if not steps:
        raise ValueError("batches is empty; the probe needs at least one batch")
    never = [name for name in targets if not counts[name]]
    if never:
        raise ValueError(
            f"{len(never)} matrices never had a finite gradient, the first is {never[0]}; "
            "run the probe in bf16 or fp32, or look for NaN in the weights or the data"
        )
    scores = {name: sums[name] / counts[name] for name in targets}
    if not any(scores.values()):
        raise ValueError("every score is 0: the loss does not depend on any target matrix")
    if steps < min_steps:
        warnings.warn(f"the batches ended after {steps}, before min_steps={min_steps}", UserWarning, stacklevel=2)
    shapes = {name: target.shape for name, target in targets.items()}
    return ModuleScores(
        scores=scores,
        shapes=shapes,
        families=families(shapes),
        steps=steps,
        converged=converged,
        history=watch.history,
        weight_stats=stats.means(),
        settings={"weighting": weighting, "gamma": gamma, "loss": "own" if loss_fn else "built in"},
    )


def _step(
    model: nn.Module,
    batch: Mapping[str, Any],
    group: Mapping[str, Target],
    index: int,
    weighting: Weighting,
    gamma: float,
    loss_fn: LossFunction | None,
    stats: _WeightStats,
) -> dict[str, float]:
    """‖W ⊙ ∂L/∂W‖₁ of each matrix of a group for one batch; 0 for one that the loss does not reach."""
    found: dict[str, Tensor] = {}

    def take(name: str) -> Callable[[Tensor], None]:
        def hook(weight: Tensor) -> None:
            gradient = weight.grad
            assert gradient is not None
            found[name] = (weight.detach() * gradient).abs().sum(dtype=torch.float32)
            weight.grad = None  # at once, so that no two gradients are held longer than backward itself does

        return hook

    half = any(target.weight.dtype == torch.float16 for target in group.values())
    hooks = []
    try:
        for name, target in group.items():
            target.weight.requires_grad_(True)
            hooks.append(target.weight.register_post_accumulate_grad_hook(take(name)))
        with torch.enable_grad():
            loss, confidence = _losses(model, batch, index, loss_fn)
            if confidence is None:
                weights = torch.full_like(loss.detach(), 1 / len(loss))
            else:
                weights = sample_weights(confidence, weighting, gamma).to(loss.device)
                stats.add(confidence.detach(), weights)
            total = (weights * loss).sum()
            if not total.requires_grad:
                return dict.fromkeys(group, 0.0)
            (total.float() * FP16_SCALE if half else total).backward()
    finally:
        for hook in hooks:
            hook.remove()
        for target in group.values():
            target.weight.requires_grad_(False)
    scale = FP16_SCALE if half else 1.0
    return {name: float(found[name]) / scale if name in found else 0.0 for name in group}


def _losses(
    model: nn.Module, batch: Mapping[str, Any], index: int, loss_fn: LossFunction | None
) -> tuple[Tensor, Tensor | None]:
    if loss_fn is not None:
        return checked(*loss_fn(model(**batch), batch))
    # A transformers model would compute its own loss from the labels, which is not needed; only an encoder-decoder
    # makes its inputs of them.
    config = getattr(model, "config", None)
    needs = getattr(config, "is_encoder_decoder", not hasattr(model, "get_input_embeddings"))
    inputs = batch if needs else {key: value for key, value in batch.items() if key != "labels"}
    try:
        return sample_losses(model, model(**inputs), batch)
    except ValueError as error:
        raise ValueError(f"batch {index}: {error}") from error


def _checked(batch: Any, index: int, device: torch.device) -> dict[str, Any]:
    if not isinstance(batch, Mapping):
        raise TypeError(f"batch {index} must be a dictionary for model(**batch), got {type(batch).__name__}")
    labels = batch.get("labels")
    if not isinstance(labels, Tensor):
        raise ValueError(f"batch {index} has no tensor 'labels'; it holds {', '.join(map(str, batch)) or 'nothing'}")
    if labels.numel() == 0 or (not labels.is_floating_point() and bool((labels == IGNORED).all())):
        raise ValueError(f"batch {index}: every label is −100, so that nothing counts")
    return {key: move(value, device) for key, value in batch.items()}


class _WeightStats:
    """Means over the batches of how the samples were weighted."""

    def __init__(self) -> None:
        self.skipped, self.batches, self.confidence, self.share = 0, 0, 0.0, 0.0

    def add(self, confidence: Tensor, weights: Tensor) -> None:
        self.batches += 1
        self.confidence += float(confidence.float().mean())
        self.share += 1 / (len(weights) * float((weights.float() ** 2).sum()))

    def means(self) -> dict[str, float]:
        if not self.batches:
            return {"skipped": self.skipped}
        return {
            "confidence": self.confidence / self.batches,
            "effective_share": self.share / self.batches,
            "skipped": self.skipped,
        }


class _Settling:
    """Whether the scores have settled: their sum, and the order of the leading matrices."""

    def __init__(self, targets: Mapping[str, Target], tol: float, patience: int, top_k: int, rank_tol: int) -> None:
        self.sizes = {name: target.weight.numel() for name, target in targets.items()}
        self.tol, self.patience, self.top_k, self.rank_tol = tol, patience, top_k, rank_tol
        self.history: list[float] = []
        self.leaders: list[str] = []
        self.in_a_row = 0

    def settled(self, scores: Mapping[str, float], counts: bool) -> bool:
        """Look at the running means; ``counts`` says whether this look may already end the probe."""
        total = math.fsum(scores.values())
        leaders = sorted(scores, key=lambda name: -scores[name] / self.sizes[name])[: self.top_k]
        same = False
        if self.history and set(leaders) == set(self.leaders):
            moved = max(abs(place - self.leaders.index(name)) for place, name in enumerate(leaders))
            same = abs(total - self.history[-1]) < self.tol * abs(self.history[-1]) and moved <= self.rank_tol
        self.in_a_row = self.in_a_row + 1 if same and counts else 0
        self.history.append(total)
        self.leaders = leaders
        return self.in_a_row >= self.patience


@contextlib.contextmanager
def _as_it_was(
    model: nn.Module, targets: Mapping[str, Target], device: str | torch.device | None
) -> Iterator[torch.device]:
    """Freeze the model in evaluation mode; afterwards put back modes, flags, gradients and device."""
    parameters = list(model.parameters())
    kept = [(parameter, parameter.requires_grad, parameter.grad) for parameter in parameters]
    modes = [(module, module.training) for module in model.modules()]
    here = parameters[0].device
    there = here if device is None else torch.device(device)
    if there != here and len({parameter.device for parameter in parameters}) > 1:
        raise ValueError(f"device={device!r}: the model is spread over several devices; leave device away")
    try:
        model.eval()
        for parameter in parameters:
            parameter.grad = None
            parameter.requires_grad_(False)
        if there != here:
            model.to(there)
        yield there
    finally:
        if there != here:
            model.to(here)
        for parameter, required, gradient in kept:
            parameter.requires_grad_(required)
            parameter.grad = gradient
        for module, training in modes:
            module.training = training


def _groups(targets: Mapping[str, Target], size: int | None) -> Iterator[dict[str, Target]]:
    names = list(targets)
    for start in range(0, len(names), size or len(names)):
        yield {name: targets[name] for name in names[start : start + (size or len(names))]}


def _check(
    gamma: float,
    weighting: str,
    min_steps: int,
    max_steps: int,
    check_every: int,
    tol: float,
    patience: int,
    top_k: int,
    rank_tol: int,
    group_size: int | None,
) -> None:
    if not (math.isfinite(gamma) and gamma >= 0):
        raise ValueError(f"gamma must be a finite number of at least 0, got {gamma}")
    if weighting not in ("fixed", "adaptive", "uniform"):
        raise ValueError(f"weighting must be 'fixed', 'adaptive' or 'uniform', got {weighting!r}")
    if not 1 <= min_steps <= max_steps:
        raise ValueError(f"min_steps and max_steps must be 1 ≤ min_steps ≤ max_steps, got {min_steps} and {max_steps}")
    for what, number in (("check_every", check_every), ("patience", patience), ("top_k", top_k)):
        if number < 1:
            raise ValueError(f"{what} must be at least 1, got {number}")
    if not tol > 0 or rank_tol < 0:
        raise ValueError(f"tol must be above 0 and rank_tol at least 0, got {tol} and {rank_tol}")
    if group_size is not None and group_size < 1:
        raise ValueError(f"group_size must be at least 1 or None, got {group_size}")
