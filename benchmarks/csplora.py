"""Speed and memory of csplora against what it stands beside: ``python benchmarks/csplora.py``.

One process, one thread, the contenders in turns, medians of the runs. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from assay.models.csplora import allocate, probe
from assay.models.csplora.targets import find_targets
from timing import line, seconds

Work = Callable[[], object]
BATCH, LENGTH = 16, 32


def model() -> Any:
    """A BERT of MiniLM's size, at random: speed does not depend on the weights."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, num_labels=4
    )
    return BertForSequenceClassification(config)


def batch(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 30000, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(0, 4, (BATCH,), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def plain_step(network: nn.Module, rows: dict[str, torch.Tensor]) -> Work:
    """Forward and backward with the same weights requiring gradients, and nothing else."""
    network.eval()
    targets = [target.weight for target in find_targets(network).values()]
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    for weight in targets:
        weight.requires_grad_(True)

    def step() -> None:
        network(**rows).loss.backward()
        for weight in targets:
            weight.grad = None

    return step


def training_step(network: Any, rows: dict[str, torch.Tensor]) -> Work:
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-4)
    count = 0

    def step() -> None:
        nonlocal count
        network(**rows).loss.backward()
        optimizer.step()
        if hasattr(network.base_model, "update_and_allocate"):
            network.base_model.update_and_allocate(count)
            count += 1
        optimizer.zero_grad()

    return step


def probing(rows: dict[str, torch.Tensor], turns: int = 9) -> None:
    network = model()
    times = seconds({"probe": lambda: probe(network, [rows], min_steps=1), "plain": plain_step(model(), rows)}, turns)
    line("a probe step / a forward and backward with the same gradients", times["probe"] / times["plain"], 1.3, "×")


def training(rows: dict[str, torch.Tensor], turns: int = 9) -> None:
    from peft import AdaLoraConfig, LoraConfig, get_peft_model

    plan = probe(model(), [rows], min_steps=1).plan(8, budget="params")
    names = list(plan.ranks)
    planned = get_peft_model(model(), plan.to_lora_config(task_type="SEQ_CLS"))
    plan.verify(planned)
    uniform = get_peft_model(model(), LoraConfig(r=8, lora_alpha=16, target_modules=names, task_type="SEQ_CLS"))
    ada = get_peft_model(
        model(),
        AdaLoraConfig(
            init_r=12,
            target_r=8,
            tinit=2,
            tfinal=2,
            deltaT=1,
            total_step=100,
            target_modules=names,
            task_type="SEQ_CLS",
        ),
    )
    steps = {"planned": planned, "uniform": uniform, "adalora": ada}
    times = seconds({name: training_step(network, rows) for name, network in steps.items()}, turns)
    line(
        "a training step with a plan / with uniform LoRA of equal size", times["planned"] / times["uniform"], 1.02, "×"
    )
    line("a training step with a plan / with AdaLoRA", times["planned"] / times["adalora"], 1.0, "×")


def allocating() -> None:
    rng = np.random.default_rng(0)
    scores = {f"layer.{i}.m": float(value) for i, value in enumerate(rng.lognormal(size=1000))}
    took = seconds({"allocate": lambda: allocate(scores, 8000, 2, 32)}, 15)["allocate"]
    line("allocate on 1000 modules", 1000 * took, 50, "ms")


def most_held(network: nn.Module, rows: dict[str, torch.Tensor], group_size: int | None) -> float:
    """Most bytes of the targets' gradients held at the moment when a gradient is complete, in MiB."""
    weights = [target.weight for target in find_targets(network).values()]
    most = 0

    def look(_: torch.Tensor) -> None:
        nonlocal most
        most = max(most, sum(w.grad.nbytes for w in weights if w.grad is not None))

    watched = []
    for weight in weights:
        weight.requires_grad_(True)
        watched.append(weight.register_post_accumulate_grad_hook(look))
    probe(network, [rows], min_steps=1, group_size=group_size)
    for hook in watched:
        hook.remove()
    return most / 2**20


def memory(rows: dict[str, torch.Tensor]) -> None:
    network = model()
    sizes = sorted((target.weight.nbytes / 2**20 for target in find_targets(network).values()), reverse=True)
    print(f"gradients of all targets together: {sum(sizes):.1f} MiB")
    for size in (None, 4, 1):
        bar = sum(sizes[: size or 2])
        what = (
            "without groups (bar: the two largest)" if size is None else f"group_size={size} (bar: the {size} largest)"
        )
        line(f"gradients held at most, {what}", most_held(network, rows, size), bar, "MiB")


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = batch()
    allocating()
    memory(rows)
    probing(rows)
    training(rows)


if __name__ == "__main__":
    main()
