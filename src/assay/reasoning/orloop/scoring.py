"""What a finished repair is worth: the true culprit and the true optimum count, feasibility alone does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from assay.errors import InputError

WITHIN = 5
"""Edits after which a repair no longer counts as quick."""


@dataclass(frozen=True)
class Score:
    """How a repair ended.

    Attributes
    ----------
    rr, rr5
        Feasible at the end; the same within 5 edits.
    op, op5
        Feasible, and with the original optimum; the same within 5 edits.
    diag_f1, diag_precision, diag_recall
        The diagnosed rows (the last DIAGNOSE, else what was edited) against the culprits.
    da_iis
        Which part of the first IIS was diagnosed. The environment itself prints that IIS: naming all of it gives 1.
    steps, edits
        Actions, and those that changed the model.
    loyal
        No row was edited that was not in the IIS of that moment.
    exact
        The model is equal to the original in every number.
    """

    rr: bool
    rr5: bool
    op: bool
    op5: bool
    diag_f1: float
    diag_precision: float
    diag_recall: float
    da_iis: float
    steps: int
    edits: int
    loyal: bool
    exact: bool


def diagnosis_f1(named: Iterable[str], culprits: Iterable[str]) -> tuple[float, float, float]:
    """Return F1, precision and recall of what was named against the culprits; 0 where nothing was named.

    >>> diagnosis_f1({"a", "c"}, {"a", "b"})
    (0.5, 0.5, 0.5)
    """
    said, true = set(named), set(culprits)
    hits = len(said & true)
    if not hits:
        return 0.0, 0.0, 0.0
    return 2 * hits / (len(said) + len(true)), hits / len(said), hits / len(true)


@dataclass(frozen=True)
class RewardSpec:
    """The weights of a reward: ``0.5 outcome + 0.3 diagnosis + 0.2 efficiency`` less penalties.

    Attributes
    ----------
    optimal, feasible, failed
        The outcome: the original optimum is back; feasible with another one; infeasible.
    w_outcome, w_diagnosis, w_steps
        Weights of outcome, of 100 times the diagnosis, and of −1 a step.
    disloyal
        Penalty, once, when a row was edited that was not in the IIS of that moment.
    bad_action
        Penalty for each action that could not be understood or done.
    diagnosis
        ``"f1"`` against the culprits, or ``"iis_recall"`` against the IIS that the environment prints.
    """

    optimal: float = 100.0
    feasible: float = 20.0
    failed: float = -50.0
    w_outcome: float = 0.5
    w_diagnosis: float = 0.3
    w_steps: float = 0.2
    disloyal: float = 20.0
    bad_action: float = 10.0
    diagnosis: Literal["f1", "iis_recall"] = "f1"

    def __post_init__(self) -> None:
        if self.diagnosis not in ("f1", "iis_recall"):
            raise InputError(f"diagnosis must be 'f1' or 'iis_recall', not {self.diagnosis!r}")

    def total(self, score: Score, bad_actions: int = 0) -> float:
        """The reward of a whole episode."""
        outcome = self.optimal if score.op else self.feasible if score.rr else self.failed
        diagnosis = 100 * (score.diag_f1 if self.diagnosis == "f1" else score.da_iis)
        return (
            self.w_outcome * outcome
            + self.w_diagnosis * diagnosis
            - self.w_steps * score.steps
            - self.disloyal * (not score.loyal)
            - self.bad_action * bad_actions
        )

    def bounds(self, max_steps: int) -> tuple[float, float]:
        """The least and the largest reward that an episode of so many steps can give."""
        outcomes = [self.w_outcome * value for value in (self.optimal, self.feasible, self.failed)]
        least = min(outcomes) - self.w_steps * max_steps - self.disloyal - self.bad_action * max_steps
        return least, max(outcomes) + 100 * self.w_diagnosis


REWARDS = {
    "op": RewardSpec(),
    "composite": RewardSpec(feasible=100.0),
    "outcome": RewardSpec(feasible=100.0, w_outcome=1.0, w_diagnosis=0.0, w_steps=0.0, disloyal=0.0),
}


def reward_spec(reward: str | RewardSpec) -> RewardSpec:
    """Return the reward of that name, or the one that was given."""
    if isinstance(reward, RewardSpec):
        return reward
    if reward not in REWARDS:
        raise InputError(f"reward must be one of {', '.join(REWARDS)} or a RewardSpec, not {reward!r}")
    return REWARDS[reward]
