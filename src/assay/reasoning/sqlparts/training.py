"""Small models that learn to write SQL: taught with right completions, then practising for a reward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assay.errors import MissingPart
from assay.numerics.policy_gradient import clipped_policy_loss, group_advantages
from assay.parts.tinylm import Shape, TinyLM, Words, fit

from .baselines import contained_token, token
from .completion import parse_completion
from .database import SafeDatabase
from .fragments import components_score
from .prompts import Ways, completion_of
from .questions import Question
from .rewards import RewardWeights, reward_breakdown

try:
    import torch
except ModuleNotFoundError as error:
    raise MissingPart(f"training needs {error.name}", "python -m pip install 'assay[torch]'") from error

MOST_WORDS = 96
"""Of a completion."""

TAUGHT_RATE, PRACTICE_RATE = 1e-2, 3e-4
GROUP = 8
"""Completions of one question that are compared with each other."""

PROMPTS = 8
"""Questions a step of practice."""

CLIP = (0.2, 0.28)

Reward = Callable[[str, str], float]
"""``reward(completion, gold_sql)``."""


@dataclass(frozen=True)
class Size:
    """How much is learnt.

    Attributes
    ----------
    taught
        Steps of learning from right completions, 32 a step.
    practice
        Steps of learning from rewards, :data:`PROMPTS` questions a step.
    shape
        Of the model.
    """

    taught: int
    practice: int
    shape: Shape


def taught(questions: Sequence[Question], mode: Ways, size: Size, seed: int) -> TinyLM:
    """A model that has learnt from right completions.

    Parameters
    ----------
    questions
        What it learns from.
    mode
        Parts first, or the query at once.
    size
        How much.
    seed
        What weights and batches are drawn with; equal for both modes, so that they begin as the same model.
    """
    answers = {way: [completion_of(q.sql, mode=way) for q in questions] for way in ("parts", "direct")}
    # Both modes know the same words.
    words = Words.of([*(q.text for q in questions), *answers["parts"], *answers["direct"]])
    model = TinyLM(words, size.shape, seed=seed)
    pairs = [(q.text, answer) for q, answer in zip(questions, answers[mode], strict=True)]
    fit(model, pairs, steps=size.taught, rate=TAUGHT_RATE, seed=seed)
    return model


def practised(model: TinyLM, questions: Sequence[Question], reward: Reward, steps: int, seed: int) -> list[float]:
    """Let a model write, and move it towards what is rewarded more than its other completions of the same question.

    Group-relative policy optimisation with a clipped ratio, without a penalty on the distance from where it began.

    Parameters
    ----------
    model
        It is changed.
    questions
        What it practises on, drawn anew each step.
    reward
        Of a completion.
    steps
        How many.
    seed
        What draws questions and words.

    Returns
    -------
    list of float
        The mean reward of each step.
    """
    rng = np.random.default_rng(seed)
    generator = torch.Generator(model.device).manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=PRACTICE_RATE)
    means = []
    for _ in range(steps):
        asked = [questions[i] for i in rng.choice(len(questions), PROMPTS, replace=False) for _ in range(GROUP)]
        written = model.write([q.text for q in asked], most=MOST_WORDS, temperature=1.0, generator=generator)
        rewards = torch.tensor([reward(t, q.sql) for t, q in zip(written.texts, asked, strict=True)])
        means.append(float(rewards.mean()))
        advantages = group_advantages(rewards, GROUP).to(model.device)
        with torch.no_grad():
            before = model.log_probs(written.ids, written.there)
        for _ in range(2):
            now = model.log_probs(written.ids, written.there)
            loss = clipped_policy_loss(now, before, advantages, written.answer[:, 1:], clip=CLIP).loss
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
    return means


@dataclass
class Rewarder:
    """One of the rewards that are compared; what a group writes twice is scored once.

    ``"exec"`` pays format, complexity and execution; the others pay as much again for how near the query and its parts
    are: ``"mcs"`` by shared subtrees, ``"token"`` by shared tokens (and as many parts as are asked for), ``"count"`` as
    mcs with parts only counted.
    """

    kind: str
    db: SafeDatabase

    def __post_init__(self) -> None:
        self._known: dict[tuple[str, str], float] = {}

    def __call__(self, completion: str, gold: str) -> float:
        """The reward of a completion."""
        if (completion, gold) not in self._known:
            self._known[completion, gold] = self._score(completion, gold)
        return self._known[completion, gold]

    def _score(self, completion: str, gold: str) -> float:
        full = RewardWeights()
        if self.kind == "mcs":
            return float(reward_breakdown(completion, gold, self.db)["total"])
        base = float(reward_breakdown(completion, gold, self.db, weights=RewardWeights(parts=0, ast=0))["total"])
        if self.kind == "exec":
            return base
        if self.kind not in ("token", "count"):
            raise ValueError(f"there is no reward {self.kind!r}")
        found = parse_completion(completion)
        near = parts = 0.0
        if found.sql is not None or found.parts:  # as in reward_breakdown
            parts = components_score(found.parts, gold, count_only=True).f1
        if self.kind == "count":
            near = float(reward_breakdown(completion, gold)["ast"])
        else:
            near = token(found.sql, gold) if found.sql else 0.0
            parts *= float(np.mean([contained_token(p, gold) for p in found.parts])) if found.parts else 1.0
        rest = full.format + full.complexity + full.execution
        return (rest * base + full.ast * near + full.parts * parts) / (rest + full.ast + full.parts)


def answered(model: TinyLM, texts: Sequence[str]) -> list[str]:
    """The likeliest completion of each question."""
    return [
        c for start in range(0, len(texts), 64) for c in model.write(texts[start : start + 64], most=MOST_WORDS).texts
    ]


def keep_taught(folder: Path, questions: Sequence[Question], mode: Ways, size: Size, seed: int) -> None:
    """Teach a model and write it into ``folder/model``."""
    taught(questions, mode, size, seed).save(folder / "model")


def read_taught(folder: Path) -> TinyLM:
    """The model that :func:`keep_taught` wrote, on the GPU where there is one."""
    return TinyLM.load(folder / "model")
