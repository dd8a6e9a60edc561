"""What the study compares: ways to place the same number of LoRA parameters."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from assay.parts.checkpoints import load_config, load_model

from .examples import Encoded, batches, padding
from .heads import fit_head, load_classifier
from .plan import RankPlan
from .probing import probe
from .scores import ModuleScores
from .targets import families, find_targets
from .training import same_start, train

Scaling = Literal["constant", "source"]


@dataclass(frozen=True)
class Setting:
    """Sizes of a fine-tuning; all contenders have the same.

    ``batch`` rows a step; ``head_steps`` for a new head, ``probe_steps`` for the probe, ``steps`` for the training;
    ``rank`` of uniform LoRA; ``flavour`` ``lora``, ``dora`` or ``pissa``.
    """

    steps: int
    rank: int = 2
    batch: int = 16
    head_steps: int = 20
    probe_steps: int = 12
    lr: float = 6e-3
    head_lr: float = 1e-2
    flavour: str = "lora"


@dataclass(frozen=True)
class Given:
    """What an arm sees: a checkpoint, training rows, and the sizes of the fine-tuning.

    Attributes
    ----------
    source
        Hugging Face folder.
    labels
        Number of classes; 0 for a language model.
    train
        The rows, as token ids with labels.
    pad
        The padding token.
    setting
        The sizes.
    key
        Names all of this, for work that contenders share.
    """

    source: str
    labels: int
    train: Encoded
    pad: int
    setting: Setting
    key: tuple[Any, ...]

    @property
    def task_type(self) -> str:
        """PEFT's name of the task; for a classifier PEFT trains the head as well."""
        return "SEQ_CLS" if self.labels else "CAUSAL_LM"

    def model(self, seed: int) -> Any:
        """The checkpoint; with a new head (drawn from ``seed``, not trained yet) where it is a classifier."""
        if not self.labels:
            return load_model(self.source, "float32", "auto", "causal-lm")
        model = load_classifier(self.source, self.labels, dtype="float32", seed=seed)[0]
        model.config.pad_token_id = self.pad  # by it models that read from the left find a row's last token
        return model

    def batches(self, steps: int, seed: int) -> list[dict[str, Tensor]]:
        """So many batches of training rows in the order of ``seed``."""
        return list(batches(self.train, self.setting.batch, steps, seed, self.pad))

    def start(self, seed: int) -> Any:
        """The model with its head fitted: where every contender starts."""
        model = self.model(seed)
        if not self.labels:
            return model
        return fit_head(model, self.batches(self.setting.head_steps, seed + 1), self.setting.head_lr)


@dataclass(frozen=True)
class Trained:
    """What an arm returns: the model, and what the score reports of it beside the loss."""

    model: Any
    metrics: Mapping[str, float]


def uniform(model: Any, rank: int) -> RankPlan:
    """The same rank everywhere, for the matrices that a probe would score; no probe is needed."""
    shapes = {name: target.shape for name, target in find_targets(model).items()}
    ranks = {name: min(rank, *shape) for name, shape in shapes.items()}
    return RankPlan(ranks=ranks, shapes=shapes, families=families(shapes), scores=dict.fromkeys(shapes, 1.0), rank=rank)


def shuffled(plan: RankPlan, seed: int) -> RankPlan:
    """The plan's ranks at random among matrices of the same shape, so that nothing but the place changes."""
    rng = np.random.default_rng(seed)
    ranks: dict[str, int] = {}
    for shape in sorted(set(plan.shapes.values())):
        names = [name for name, other in plan.shapes.items() if other == shape]
        dealt = rng.permutation([plan.ranks[name] for name in names])
        ranks |= {name: int(rank) for name, rank in zip(names, dealt, strict=True)}
    return dataclasses.replace(plan, ranks={name: ranks[name] for name in plan.ranks})


def reversed_plan(scores: ModuleScores, rank: int) -> RankPlan:
    """The plan of the scores turned round: the least salient matrix of all has the score of the most salient."""
    relative = scores.relative()
    ends = max(relative.values()) + min(relative.values())
    turned = dataclasses.replace(scores, scores={name: ends - score for name, score in relative.items()})
    return turned.plan(rank, budget="params", calibrate=False, smooth=False)


def size_gap(plan: RankPlan) -> float:
    """How far the plan's parameters are from those of uniform LoRA, as a share."""
    return abs(plan.trainable_parameters / plan.uniform_parameters - 1)


def proportional(scores: ModuleScores, ranks: Sequence[int]) -> bool:
    """Whether at each budget what is above the least rank follows the scores to within 1, limits apart."""
    for rank in ranks:
        plan = scores.plan(rank)
        low, high = plan.settings["r_min"], plan.settings["r_max"]
        excess = plan.total_rank - low * len(plan.ranks)
        whole = sum(plan.scores.values())
        for name, got in plan.ranks.items():
            due = low + excess * plan.scores[name] / whole
            if got < min(high, *plan.shapes[name]) and not -1e-6 <= got - np.floor(due + 1e-9) <= 1:
                return False
    return True


def distance(plan: RankPlan, other: RankPlan) -> int:
    """How many matrices have another rank."""
    return int((plan.compare(other)["difference"] != 0).sum())


def probed(given: Given, model: Any, seed: int, **how: Any) -> tuple[ModuleScores, float]:
    """Probe a started model on the batches of ``seed``; also the CPU seconds it took."""
    rows = given.batches(given.setting.probe_steps, seed)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the study's probe is shorter than min_steps on purpose
        found = probe(model, rows, max_steps=max(50, len(rows)), **how)
    return found, time.process_time() - start


def adapted(given: Given, model: Any, plan: RankPlan, scaling: Scaling = "constant") -> Any:
    """The model with the plan's adapters on it, checked against the plan."""
    from peft import get_peft_model

    flavours: dict[str, dict[str, Any]] = {
        "lora": {}, "dora": {"use_dora": True}, "pissa": {"init_lora_weights": "pissa"}
    }  # fmt: skip
    config = plan.to_lora_config(scaling=scaling, task_type=given.task_type, **flavours[given.setting.flavour])
    peft_model = get_peft_model(model, config)
    plan.verify(peft_model)
    return peft_model


def fine_tune(given: Given, model: Any, seed: int, after_step: Callable[[int], object] | None = None) -> float:
    """Train a model with adapters on the setting's batches, in place; the CPU seconds that a step took."""
    if isinstance(model.peft_config["default"].init_lora_weights, bool):
        same_start(model, seed)
    rows = given.batches(given.setting.steps, seed + 3)
    start = time.process_time()
    train(model, rows, given.setting.lr, after_step)
    return (time.process_time() - start) / len(rows)


def save_weights(model: Any, names: set[str], folder: Path) -> None:
    """Write those parameters as safetensors."""
    from safetensors.torch import save_file

    found = {name: parameter.detach().cpu() for name, parameter in model.named_parameters() if name in names}
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, folder / "weights.safetensors")


def load_weights(model: Any, folder: Path) -> None:
    """Put back what :func:`save_weights` wrote."""
    from safetensors.torch import load_file

    known = dict(model.named_parameters())
    with torch.no_grad():
        for name, tensor in load_file(folder / "weights.safetensors").items():
            known[name].copy_(tensor)


def changed_names(model: Any) -> set[str]:
    """What a fine-tuning changes: all that is trained, and for PiSSA the base weights, of which it takes a part."""
    names = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if model.peft_config["default"].init_lora_weights == "pissa":
        names |= {name for name, _ in model.named_parameters() if name.endswith("base_layer.weight")}
    return names


def adalora(given: Given, model: Any, seed: int) -> tuple[Any, float]:
    """PEFT's AdaLoRA: starts at 1.5 times the rank and prunes to it while training."""
    from peft import AdaLoraConfig, get_peft_model

    setting = given.setting
    config = AdaLoraConfig(
        init_r=max(setting.rank + 1, round(1.5 * setting.rank)),
        target_r=setting.rank,
        lora_alpha=2 * setting.rank,
        target_modules=list(find_targets(model)),
        task_type=given.task_type,
        tinit=max(1, setting.steps // 10),
        tfinal=max(1, setting.steps // 3),
        deltaT=1,
        total_step=setting.steps,
    )
    peft_model = get_peft_model(model, config)
    rows = given.batches(setting.steps, seed + 3)
    start = time.process_time()
    with torch.random.fork_rng(devices=[]):
        train(peft_model, rows, setting.lr, peft_model.base_model.update_and_allocate)
    return peft_model, (time.process_time() - start) / len(rows)


def eva(given: Given, model: Any, seed: int) -> tuple[Any, float]:
    """PEFT's EVA: first matrices and ranks (up to twice the mean) from the variance of each matrix's inputs."""
    from peft import EvaConfig, LoraConfig, get_peft_model, initialize_lora_eva_weights

    setting = given.setting
    config = LoraConfig(
        r=setting.rank,
        lora_alpha=2 * setting.rank,
        target_modules=list(find_targets(model)),
        task_type=given.task_type,
        init_lora_weights="eva",
        eva_config=EvaConfig(rho=2.0, use_label_mask=False),
    )
    peft_model = get_peft_model(model, config)
    probe_rows = [{k: v for k, v in b.items() if k != "labels"} for b in given.batches(setting.probe_steps, seed + 2)]
    initialize_lora_eva_weights(peft_model, probe_rows, show_progress_bar=False)
    return peft_model, fine_tune(given, peft_model, seed)


def pad_of(source: str, tokenizer: Any) -> int:
    """The padding token of a checkpoint."""
    return padding(tokenizer, SimpleNamespace(config=load_config(source)))
