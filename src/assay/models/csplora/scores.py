"""What a probe found: the saliency of each target matrix, from which plans for any budget are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

from assay.errors import InputError

from .allocation import allocate, allocate_parameters
from .files import read_json, write_json
from .plan import RankPlan

KIND = "csplora scores"


@dataclass(frozen=True, kw_only=True)
class ModuleScores:
    """The result of :func:`~assay.models.csplora.probe`. It depends on no budget: probe once, plan often.

    Attributes
    ----------
    scores
        Mean over the batches of ‖W ⊙ ∂L/∂W‖₁ by module name, in the loss's unit.
    shapes
        ``(out, in)`` of each matrix.
    families
        What each matrix is called whatever its layer, e.g. ``q_proj``.
    steps
        Batches used.
    converged
        Whether the scores settled before ``max_steps`` or the end of the batches.
    history
        Σ of all scores at each check, running means.
    weight_stats
        Of the samples' weights: ``confidence`` (mean), ``effective_share`` (1 / (B Σ w²), mean over batches; 1 where
        all samples count the same) and ``skipped`` (values left out because they were not finite).
    settings
        How it was made.
    """

    scores: Mapping[str, float]
    shapes: Mapping[str, tuple[int, int]]
    families: Mapping[str, str]
    steps: int
    converged: bool
    history: list[float] = field(default_factory=list)
    weight_stats: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.scores:
            raise ValueError("scores is empty; there must be at least one module")
        if not (self.scores.keys() == self.shapes.keys() == self.families.keys()):
            raise ValueError("scores, shapes and families must speak of the same modules")
        for name, score in self.scores.items():
            if not (math.isfinite(score) and score >= 0):
                raise ValueError(f"the score of {name!r} must be a finite number of at least 0, got {score}")

    def relative(self, calibrate: bool = True, smooth: bool = True) -> dict[str, float]:
        """The scores that ranks are dealt by.

        ``calibrate`` divides each by the mean of its family, so that a matrix competes with the same matrix of other
        layers and the loss's unit drops out; ``smooth`` then takes log(1 + score).
        """
        scores = dict(self.scores)
        if calibrate:
            groups: dict[str, list[float]] = {}
            for name, score in scores.items():
                groups.setdefault(self.families[name], []).append(score)
            means = {family: math.fsum(group) / len(group) for family, group in groups.items()}
            # A family without any saliency has no matrix above another.
            scores = {n: s / means[self.families[n]] if means[self.families[n]] > 0 else 0.0 for n, s in scores.items()}
        return {name: math.log1p(score) for name, score in scores.items()} if smooth else scores

    def plan(
        self,
        rank: int | None = None,
        *,
        total_rank: int | None = None,
        budget: Literal["rank", "params"] = "rank",
        r_min: int | None = None,
        r_max_factor: float = 4.0,
        rho: float = 1.0,
        calibrate: bool = True,
        smooth: bool = True,
    ) -> RankPlan:
        """Turn the scores into one rank for each matrix.

        Parameters
        ----------
        rank
            The plan is as large as LoRA with this rank everywhere; 8 where neither it nor ``total_rank`` is given.
        total_rank
            The ranks of all matrices together, instead of ``rank``.
        budget
            What "as large" means: the same total ``rank``, or at most the same number of parameters (``params``). A
            rank on a wide matrix costs more than one on a narrow matrix, so plans of the same total rank can differ in
            parameters by some percent.
        r_min
            The least rank; 2, but 1 where ``rank`` is below 4: with r_min = rank no rank could move.
        r_max_factor
            The largest rank, as a multiple of ``rank``.
        rho
            The modules that hold this share of all score share in what is above the least; the others get ``r_min``.
        calibrate, smooth
            See :meth:`relative`.

        Raises
        ------
        ValueError
            Where the budget cannot be met; the message names the smallest or largest possible.
        """
        if rank is not None and total_rank is not None:
            raise ValueError(f"give rank or total_rank, not both (got {rank} and {total_rank})")
        if budget not in ("rank", "params"):
            raise ValueError(f"budget must be 'rank' or 'params', got {budget!r}")
        if total_rank is not None and budget == "params":
            raise ValueError("budget='params' means the parameters of LoRA at `rank`; give rank, not total_rank")
        if not r_max_factor >= 1:
            raise ValueError(f"r_max_factor must be at least 1, got {r_max_factor}")
        for what, value in (("rank", rank), ("total_rank", total_rank), ("r_min", r_min)):
            if value is not None and (not isinstance(value, Integral) or isinstance(value, bool) or value < 1):
                raise ValueError(f"{what} must be a whole number of at least 1, got {value!r}")
        count = len(self.scores)
        if rank is None and total_rank is None:
            rank = 8
        total = int(total_rank) if total_rank is not None else int(rank) * count  # type: ignore[arg-type]
        mean = total / count
        r_min = (1 if mean < 4 else 2) if r_min is None else r_min
        r_max = math.floor(r_max_factor * mean + 1e-9)
        if r_max < r_min:
            if total < r_min * count:
                raise ValueError(
                    f"total_rank {total} is too small: {count} modules with at least {r_min} each need {r_min * count}"
                )
            r_max = r_min
        relative = self.relative(calibrate, smooth)
        caps = {name: min(shape) for name, shape in self.shapes.items()}
        if budget == "params":
            costs = {name: sum(shape) for name, shape in self.shapes.items()}
            # No matrix takes more than its smaller side; nor does LoRA of that rank on every matrix.
            allowed = sum(min(rank, caps[name]) * costs[name] for name in costs)  # type: ignore[type-var]
            ranks = allocate_parameters(relative, costs, allowed, r_min, r_max, rho, caps)
        else:
            ranks = allocate(relative, total, r_min, r_max, rho, caps)
        settings = {
            "budget": budget, "r_min": r_min, "r_max": r_max, "rho": rho, "calibrate": calibrate, "smooth": smooth,
        }  # fmt: skip
        return RankPlan(
            ranks=ranks,
            shapes=dict(self.shapes),
            families=dict(self.families),
            scores=relative,
            rank=mean,
            settings=settings | {"probe": dict(self.settings) | {"steps": self.steps}},
        )

    def save(self, path: str | Path) -> None:
        """Write as JSON, whole or not at all."""
        write_json(
            path,
            {
                "kind": KIND,
                "steps": self.steps,
                "converged": self.converged,
                "history": self.history,
                "weight_stats": dict(self.weight_stats),
                "settings": dict(self.settings),
                "modules": {
                    name: {"score": score, "shape": list(self.shapes[name]), "family": self.families[name]}
                    for name, score in self.scores.items()
                },
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> ModuleScores:
        """Read what :meth:`save` wrote; ``InputError`` where it is something else."""
        content = read_json(path, KIND, {"steps", "converged", "history", "weight_stats", "settings", "modules"})
        try:
            modules = content["modules"]
            return cls(
                scores={name: float(module["score"]) for name, module in modules.items()},
                shapes={name: (int(module["shape"][0]), int(module["shape"][1])) for name, module in modules.items()},
                families={name: str(module["family"]) for name, module in modules.items()},
                steps=int(content["steps"]),
                converged=bool(content["converged"]),
                history=[float(value) for value in content["history"]],
                weight_stats=content["weight_stats"],
                settings=content["settings"],
            )
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"{path} holds no scores: {error}") from None
