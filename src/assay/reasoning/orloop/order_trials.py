"""Order decisions with a biased person's answers to learn from, others that are asked, and how answers are scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Literal

from .inventory import Decision, bias_report, curriculum, newsvendor
from .order_policy import human_orders

LEARN = 200
"""Decisions to learn from."""


@dataclass(frozen=True)
class Orders:
    """What an arm sees: ``decisions`` with their best orders, what a biased person ordered, ``stages`` of as many
    other decisions, which ``inputs`` a network is to see, and the decisions that are ``asked``, without best orders.
    """

    decisions: tuple[Decision, ...]
    human: tuple[float, ...]
    stages: tuple[tuple[Decision, ...], ...]
    inputs: Literal["ratio", "prices"]
    asked: tuple[Decision, ...]
    seed: int


def order_trial(seed: int, asked: int, inputs: Literal["ratio", "prices"]) -> tuple[Orders, list[Decision]]:
    """Decisions with critical ratios from 0.2 to 0.8 to learn from, and from 0.05 to 0.95 that are asked."""
    known = newsvendor(LEARN, cr=(0.2, 0.8), seed=100 * seed)
    hidden = newsvendor(asked, cr=(0.05, 0.95), seed=100 * seed + 1)
    stages = tuple(tuple(stage) for stage in curriculum(LEARN, seed=100 * seed + 2))
    human = tuple(human_orders(known, seed=100 * seed + 3))
    without = tuple(replace(decision, optimal=nan) for decision in hidden)
    return Orders(tuple(known), human, stages, inputs, without, seed), hidden


def order_scores(output: Any, hidden: list[Decision]) -> Mapping[str, float]:
    """How far the orders are from the best ones."""
    if not isinstance(output, list | tuple) or len(output) != len(hidden):
        raise ValueError(f"the output must be one order for each of the {len(hidden)} decisions")
    report = bias_report(hidden, output)
    if report.valid < 1:
        raise ValueError(f"orders must be finite and not negative; {1 - report.valid:.0%} are not")
    wide = [i for i, decision in enumerate(hidden) if not 0.2 <= decision.critical_ratio <= 0.8]
    outside = bias_report([hidden[i] for i in wide], [output[i] for i in wide])
    return {
        "mean_abs_bias": report.mean_abs_bias,
        "bias_outside": outside.mean_abs_bias,
        "pull_to_center": report.pull_to_center,
    }
