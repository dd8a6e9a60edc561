"""Grades of an agent over models with known errors; what was scored stays when an endpoint breaks off."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import EndpointError

from .environment import RepairEnv
from .saboteur import Instance
from .scoring import Score


def evaluate(agent: Any, instances: Sequence[Instance], *, max_steps: int = 10, reward: str = "op") -> list[Score]:
    """Let an agent repair instances, and return a score each.

    Parameters
    ----------
    agent
        Anything with ``act(env)`` that returns an action or text: ``OpenAIAgent``, ``HFAgent``, ``RepairPolicy``.
    instances
        With known errors.
    max_steps
        Most actions an instance.
    reward
        As in :class:`RepairEnv`.

    Raises
    ------
    EndpointError
        From the agent; its ``scores`` are those of the instances that were done until then.
    """
    scores: list[Score] = []
    env = RepairEnv(instances, max_steps=max_steps, reward=reward)
    for index in range(len(env.instances)):
        env.reset(options={"instance": index})
        try:
            while not env.done:
                env.step(agent.act(env))
        except EndpointError as error:
            error.scores = scores  # type: ignore[attr-defined]
            raise
        scores.append(env.score())
    return scores


def grade_agent(
    agent: Any, instances: Sequence[Instance], folder: Path, *, max_steps: int = 10
) -> EndpointError | None:
    """Write scores.csv, grade.json and grade.md; return the error that broke it off, if one did."""
    broken: EndpointError | None = None
    try:
        scores = evaluate(agent, instances, max_steps=max_steps)
    except EndpointError as error:
        broken, scores = error, error.scores  # type: ignore[attr-defined]
    names = [one.name for one in fields(Score)]
    with (folder / "scores.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, ["id", "error", "domain", *names])
        table.writeheader()
        for one, score in zip(instances, scores, strict=False):
            table.writerow({"id": one.id, "error": one.error, "domain": one.domain, **_plain(score)})
    means = {name: float(np.mean([_plain(score)[name] for score in scores])) for name in names} if scores else {}
    known = {"instances": len(instances), "scored": len(scores), "broken_off": None if broken is None else str(broken)}
    (folder / "grade.json").write_text(json.dumps(known | {"means": means}, indent=2) + "\n", encoding="utf-8")
    lines = [f"# {len(scores)} of {len(instances)} models", "", "| measure | mean |", "|---|---|"]
    lines += [f"| {name} | {value:.3f} |" for name, value in means.items()]
    lines += [
        "",
        "op5 is what counts: the original optimum within five edits. rr5 is feasibility, which deleting rows has.",
    ]
    (folder / "grade.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return broken


def _plain(score: Score) -> dict[str, float]:
    return {name: float(value) for name, value in asdict(score).items()}
