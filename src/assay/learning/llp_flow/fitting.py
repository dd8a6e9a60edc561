"""Warm start, flow and training on both, as often as is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError
from assay.parts.training import EarlyStopping, progress

from .flow import AnchorFlow
from .network import Network
from .training import BagData, Trainer, in_pieces

FloatArray = NDArray[np.float64]

ANCHORS_A_STEP = 64
"""Anchors in a step of training."""


@dataclass(frozen=True)
class Plan:
    """How the network is trained; the names are those of :class:`LLPFlowClassifier`."""

    anchors_per_class: int
    outer: int
    epochs: tuple[int, int]
    flow_steps: int
    flow_lr: float
    lam_bag: float
    lam_anchor: float
    class_term: float
    label_cost: float
    anchor_start: str
    space: str
    lr: float
    max_rows_per_bag: int
    verbose: bool = False

    @property
    def with_anchors(self) -> bool:
        """Whether anchors are made at all: not where they would count nothing."""
        return self.outer > 0 and self.lam_anchor > 0


@dataclass
class History:
    """What was lost: a number for each step of training (bag, anchor), step of the flow, and pass (validation)."""

    bag: list[Tensor] = field(default_factory=list)
    anchor: list[Tensor] = field(default_factory=list)
    transport: list[float] = field(default_factory=list)
    classified: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)

    def arrays(self) -> dict[str, FloatArray]:
        """As arrays by name."""
        return {
            "bag": np.array([float(loss) for loss in self.bag]),
            "anchor": np.array([float(loss) for loss in self.anchor]),
            "transport": np.array(self.transport),
            "class": np.array(self.classified),
            "validation": np.array(self.validation),
        }


def fit_network(
    network: Network,
    data: BagData,
    plan: Plan,
    order: np.random.Generator,
    random: np.random.Generator,
    held: BagData | None = None,
    class_weight: Tensor | None = None,
) -> tuple[AnchorFlow | None, History]:
    """Train the network in place.

    Parameters
    ----------
    network, data
        What is trained, on which bags.
    plan
        How.
    order, random
        Generators: of the order of bags, and of all that is about anchors. They are two so that a run whose anchors
        count nothing is, bit for bit, the run without them.
    held
        Bags on whose loss the best pass is chosen; None keeps the last.
    class_weight
        (K,) factors of the classes in both losses.
    """
    history = History()
    trainer = Trainer(network, data, plan.lr, order, plan.lam_bag, class_weight, history.bag, history.anchor)
    best = EarlyStopping(patience=1_000_000_000)

    def passes(count: int, extra: Callable[[], Tensor] | None = None) -> None:
        for _ in progress(range(count), count, "passes over the bags", plan.verbose):
            trainer.one_pass(extra)
            if held is not None:
                history.validation.append(trainer.loss_of(held))
                best.step(history.validation[-1], network)

    passes(plan.epochs[0])
    flow: AnchorFlow | None = None
    for _ in range(plan.outer):
        extra = None
        if plan.with_anchors:
            flow = run_flow(network, data, plan, flow, random, history)
            extra = anchor_loss(network, flow, plan, data.X.shape[1:], class_weight)
        passes(plan.epochs[1], extra)
    if best.best_step >= 0:
        best.restore(network)
    return flow, history


def run_flow(
    network: Network,
    data: BagData,
    plan: Plan,
    flow: AnchorFlow | None,
    random: np.random.Generator,
    history: History,
) -> AnchorFlow:
    """Move the anchors of a frozen network, new ones where there are none yet."""
    shape = data.X.shape[1:]
    logits = in_pieces(network, data.X)
    Z = (data.X.flatten(1) if plan.space == "input" else in_pieces(network.encoder, data.X)).double().cpu().numpy()
    if not np.isfinite(Z).all() or not bool(logits.isfinite().all()):
        raise InputError("X has rows for which the encoder gives NaN or infinity")
    proportions = data.proportions.double().cpu().numpy()
    proportions /= proportions.sum(axis=1, keepdims=True)  # float32 sums to 1 only about
    if flow is None:
        flow = AnchorFlow(
            proportions.shape[1],
            plan.anchors_per_class,
            Z.shape[1],
            lr=plan.flow_lr,
            class_term=plan.class_term,
            label_cost=plan.label_cost,
            device=data.X.device,
            random_state=random,
        )
        present = proportions.max(axis=0) > 0
        if plan.anchor_start == "noise":
            flow.init_noise(Z, present)
        else:
            flow.init_from(Z, logits.softmax(dim=1), present)
    else:
        flow.restart(Z)

    def classify(anchors: Tensor) -> Tensor:
        return network(anchors.reshape(-1, *shape)) if plan.space == "input" else network.head(anchors)

    predicted = logits.argmax(dim=1).cpu().numpy()
    network.eval()
    trained = [p for p in network.parameters() if p.requires_grad]
    for p in trained:
        p.requires_grad_(False)
    try:
        for _ in progress(range(plan.flow_steps), plan.flow_steps, "steps of the flow", plan.verbose):
            bag = int(random.integers(len(proportions)))
            rows = np.arange(data.starts[bag], data.starts[bag + 1])
            if len(rows) > plan.max_rows_per_bag:
                rows = random.choice(rows, plan.max_rows_per_bag, replace=False)
            step = flow.step(Z[rows], proportions[bag], classify, predicted[rows])
            history.transport.append(step["transport"])
            history.classified.append(step["class"])
    finally:
        for p in trained:
            p.requires_grad_(True)
    return flow


def anchor_loss(
    network: Network, flow: AnchorFlow, plan: Plan, shape: torch.Size, class_weight: Tensor | None
) -> Callable[[], Tensor]:
    """Weighted cross-entropy at a few anchors, drawn anew at each call."""

    def extra() -> Tensor:
        anchors, labels = flow.draw(ANCHORS_A_STEP)
        logits = network(anchors.reshape(-1, *shape)) if plan.space == "input" else network.head(anchors)
        if class_weight is not None and not class_weight[labels].any():  # their mean would be 0 / 0
            return 0.0 * logits.sum()
        return plan.lam_anchor * torch.nn.functional.cross_entropy(logits, labels, weight=class_weight)

    return extra
