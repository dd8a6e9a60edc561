"""A classification head for a checkpoint, and its first training: through a random head a probe sees little."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.errors import InputError, one_line
from assay.parts.checkpoints import as_dtype, load_config, load_model, pick_device
from assay.parts.packages import need

from .losses import sample_losses
from .targets import move


def load_classifier(
    source: str | Path,
    num_labels: int,
    *,
    regression: bool = False,
    dtype: str | None = None,
    device: str = "auto",
    seed: int = 0,
) -> tuple[Any, bool]:
    """A model for sequence classification (or regression), and whether its head is new.

    The checkpoint's own head is taken where it has one of that many labels; else a new one is drawn from ``seed``. A
    tokenizer's padding token, which models that read from the left need, is yours to set.

    Raises
    ------
    InputError
        Where there is no such checkpoint, or its architecture has no classifier.
    """
    transformers = need("transformers", "loading a checkpoint")
    config = load_config(source)
    trained = any("SequenceClassification" in name for name in config.architectures or ())
    if trained and config.num_labels == num_labels:
        return load_model(source, dtype, device, "sequence-classification"), False
    problem = "regression" if regression else "single_label_classification"
    try:
        with torch.random.fork_rng(devices=[]), _quietly(transformers):
            torch.manual_seed(seed)  # transformers draws the new weights from the global generator
            model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
                str(Path(source).expanduser()) if Path(source).expanduser().is_dir() else str(source),
                num_labels=num_labels,
                problem_type=problem,
                dtype=as_dtype(dtype),
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{source} cannot be made a classifier: {one_line(error, 200)}") from None
    # What is missing may be the head, and BERT's pooler, which is part of it.
    body = [n for n in report["missing_keys"] if n.startswith(f"{model.base_model_prefix}.") and "pooler" not in n]
    if body:
        raise InputError(f"{source} lacks weights of {len(body)} parts of its body, the first is {min(body)}")
    return model.to(pick_device(device)).eval(), True


@contextlib.contextmanager
def _quietly(transformers: Any) -> Iterator[None]:
    """Without the report that a head is missing: that is known here."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(before)


def head_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of the last linear layers outside the model's body, such as ``classifier`` or ``score``.

    Raises
    ------
    ValueError
        Where there are none, as in a language model, whose head is trained already.
    """
    body = getattr(model, getattr(model, "base_model_prefix", "") or "-", None)
    if not isinstance(body, nn.Module):
        raise ValueError(f"{type(model).__name__} has no body with a head on it")
    inside = {id(parameter) for parameter in body.parameters()}
    found = [parameter for parameter in model.parameters() if id(parameter) not in inside]
    if not found:
        raise ValueError(f"{type(model).__name__} has no head of its own: nothing lies outside its body")
    return found


def fit_head(model: nn.Module, batches: Iterable[Mapping[str, Any]], lr: float = 1e-2) -> nn.Module:
    """Train the head alone, one AdamW step a batch, in place; the body stays as it is. Returns the model.

    Dropout is off. Gradients and ``requires_grad`` are afterwards as they were.

    Raises
    ------
    ValueError
        Where the model has no head of its own.
    """
    head = head_parameters(model)
    parameters = list(model.parameters())
    kept = [(parameter, parameter.requires_grad, parameter.grad) for parameter in parameters]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        for parameter in parameters:
            parameter.grad = None
            parameter.requires_grad_(False)
        for parameter in head:
            parameter.requires_grad_(True)
        optimizer = torch.optim.AdamW(head, lr=lr, weight_decay=0.0)
        for batch in batches:
            batch = {key: move(value, head[0].device) for key, value in batch.items()}
            inputs = {key: value for key, value in batch.items() if key != "labels"}
            with torch.enable_grad():
                loss, _ = sample_losses(model, model(**inputs), batch)
                loss.mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    finally:
        for parameter, required, gradient in kept:
            parameter.requires_grad_(required)
            parameter.grad = gradient
        for module, training in modes:
            module.training = training
    return model
