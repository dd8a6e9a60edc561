"""A plan: one LoRA rank for each matrix, as a table, as JSON and as PEFT's LoraConfig."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from assay.errors import InputError, MissingPart

from .files import read_json, write_json

if TYPE_CHECKING:
    from peft import LoraConfig
    from torch import nn

KIND = "csplora plan"

OURS = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "target_modules", "exclude_modules")
"""What the plan writes into a LoraConfig itself."""

UNFIT = ("layers_to_transform", "layers_pattern", "layer_replication", "target_parameters")
"""Options of a LoraConfig that would leave out or multiply modules of the plan."""


class RankPlanError(ValueError):
    """A model whose adapters do not have the ranks of the plan."""


@dataclass(frozen=True, kw_only=True)
class RankPlan:
    """One rank for each target matrix.

    Attributes
    ----------
    ranks
        By module name, as in ``model.named_modules()``.
    shapes, families, scores
        Of each module: ``(out, in)``, its family, and the score by which ranks were dealt.
    rank
        The rank of uniform LoRA of the same size; a fraction where a total rank was asked for.
    settings
        How it was made.
    """

    ranks: Mapping[str, int]
    shapes: Mapping[str, tuple[int, int]]
    families: Mapping[str, str]
    scores: Mapping[str, float]
    rank: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError("ranks is empty; there must be at least one module")
        if not (self.ranks.keys() == self.shapes.keys() == self.families.keys() == self.scores.keys()):
            raise ValueError("ranks, shapes, families and scores must speak of the same modules")
        for name, rank in self.ranks.items():
            if not 1 <= rank <= min(self.shapes[name]):
                raise ValueError(f"the rank of {name!r} must be 1 to {min(self.shapes[name])}, got {rank}")

    @property
    def total_rank(self) -> int:
        """The ranks of all modules together."""
        return sum(self.ranks.values())

    @property
    def trainable_parameters(self) -> int:
        """The parameters of the adapters, heads and DoRA's magnitudes not counted."""
        return sum(rank * sum(self.shapes[name]) for name, rank in self.ranks.items())

    @property
    def uniform_parameters(self) -> float:
        """The parameters of LoRA with the same rank everywhere."""
        return sum(self.rank * sum(shape) for shape in self.shapes.values())

    def to_lora_config(
        self, alpha: float | None = None, scaling: Literal["constant", "source"] = "constant", **options: Any
    ) -> LoraConfig:
        """The plan as PEFT's ``LoraConfig``, for any flavour: ``use_dora=True``, ``init_lora_weights="pissa"`` ...

        Parameters
        ----------
        alpha
            LoRA's alpha at the uniform rank; default twice that rank.
        scaling
            PEFT multiplies an adapter's output by alpha/r (alpha/√r with ``use_rslora``). ``constant`` writes an alpha
            for each module so that this factor is the same in all. ``source`` leaves one alpha for all: then a module
            with a quarter of another's rank takes four times its factor.
        options
            Further options of ``LoraConfig``, such as ``task_type``, ``lora_dropout``, ``modules_to_save``.

        Raises
        ------
        ValueError
            For an option that the plan itself sets, or one that would keep PEFT from following it.
        """
        try:
            from peft import LoraConfig
        except ImportError:
            raise MissingPart("to_lora_config needs peft", "pip install 'assay[models]'") from None
        if scaling not in ("constant", "source"):
            raise ValueError(f"scaling must be 'constant' or 'source', got {scaling!r}")
        for option in options:
            if option in OURS:
                raise ValueError(f"{option} is set by the plan" + (" (give alpha)" if option == "lora_alpha" else ""))
            if option in UNFIT and options[option] is not None:
                raise ValueError(f"{option} would change which modules get an adapter; probe those modules instead")
        alpha = 2 * self.rank if alpha is None else alpha
        if not (math.isfinite(alpha) and alpha > 0):
            raise ValueError(f"alpha must be a positive number, got {alpha}")
        power = 0.5 if options.get("use_rslora") else 1.0
        alphas = {name: _plain(alpha * (rank / self.rank) ** power) for name, rank in self.ranks.items()}
        # PEFT matches a key against the end of a module's name, as a regular expression, and takes the first that fits.
        # Escaped and bound to the start it fits its own module and no other.
        keys = {name: "^" + re.escape(name) for name in self.ranks}
        return LoraConfig(
            r=max(1, round(self.rank)),
            lora_alpha=_plain(alpha),
            target_modules=list(self.ranks),
            rank_pattern={keys[name]: rank for name, rank in self.ranks.items()},
            alpha_pattern={keys[name]: alphas[name] for name in self.ranks} if scaling == "constant" else {},
            **options,
        )

    def verify(self, model: nn.Module, adapter: str | None = None) -> None:
        """See that every module of a model got its rank: PEFT leaves out a pattern that fits nothing.

        Parameters
        ----------
        model
            What ``get_peft_model`` returned, or a model with an adapter injected.
        adapter
            Which of its adapters; default the active one.

        Raises
        ------
        RankPlanError
            Naming the modules that have another rank, no adapter, or an adapter that the plan does not have.
        """
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        found: dict[str, int] = {}
        for name, module in base.named_modules():
            matrices = getattr(module, "lora_A", None)
            if matrices is None or not hasattr(module, "base_layer"):
                continue
            active = adapter or next(iter(module.active_adapters), None)
            if active in matrices:
                found[name] = matrices[active].weight.shape[0]
        wrong = [
            f"{name} has {f'rank {found[name]}' if name in found else 'no adapter'}, planned {rank}"
            for name, rank in self.ranks.items()
            if found.get(name) != rank
        ]
        wrong += [f"{name} has rank {rank}, planned none" for name, rank in found.items() if name not in self.ranks]
        if wrong:
            more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
            raise RankPlanError(f"{len(wrong)} modules do not follow the plan: {'; '.join(wrong[:3])}{more}")

    def compare(self, other: RankPlan) -> pd.DataFrame:
        """Both plans side by side: ``family``, ``rank``, ``other`` and ``difference`` by module.

        Raises
        ------
        ValueError
            Where they do not plan the same modules.
        """
        if self.ranks.keys() != other.ranks.keys():
            odd = sorted(self.ranks.keys() ^ other.ranks.keys())
            raise ValueError(f"the plans are for different modules: {len(odd)} are in one only, such as {odd[0]!r}")
        table = pd.DataFrame(
            {
                "family": pd.Series(dict(self.families)),
                "rank": pd.Series(dict(self.ranks)),
                "other": pd.Series({name: other.ranks[name] for name in self.ranks}),
            }
        )
        return table.assign(difference=table["rank"] - table["other"]).rename_axis("module")

    def table(self) -> pd.DataFrame:
        """``family``, ``out``, ``in``, ``score``, ``rank`` and ``parameters`` by module, largest rank first."""
        rows = {
            name: (self.families[name], *self.shapes[name], self.scores[name], rank, rank * sum(self.shapes[name]))
            for name, rank in self.ranks.items()
        }
        columns = ["family", "out", "in", "score", "rank", "parameters"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("module")
        return table.sort_values(["rank", "score"], ascending=False, kind="stable")

    def __str__(self) -> str:
        share = round(100 * (self.trainable_parameters / self.uniform_parameters - 1), 1) + 0.0  # no "-0.0"
        ranks = sorted(self.ranks.values())
        head = (
            f"{len(ranks)} matrices, ranks {ranks[0]} to {ranks[-1]}, {self.total_rank} together; "
            f"{self.trainable_parameters:,} parameters, {share:+.1f} % of LoRA with rank {self.rank:g}"
        )
        return f"{head}\n{self.table().to_string(formatters={'score': '{:.3f}'.format})}"

    def save(self, path: str | Path) -> None:
        """Write as JSON, the largest rank first, whole or not at all."""
        table = self.table()
        write_json(
            path,
            {
                "kind": KIND,
                "rank": self.rank,
                "total_rank": self.total_rank,
                "trainable_parameters": self.trainable_parameters,
                "settings": dict(self.settings),
                "order": list(self.ranks),
                "modules": {
                    name: {
                        "rank": self.ranks[name],
                        "score": self.scores[name],
                        "shape": list(self.shapes[name]),
                        "family": self.families[name],
                    }
                    for name in table.index
                },
            },
        )

    @classmethod
    def load(cls, path: str | Path) -> RankPlan:
        """Read what :meth:`save` wrote; ``InputError`` where it is something else."""
        content = read_json(path, KIND, {"rank", "settings", "order", "modules"})
        try:
            modules, order = content["modules"], content["order"]
            if sorted(order) != sorted(modules):
                raise ValueError("order and modules differ")
            return cls(
                ranks={name: int(modules[name]["rank"]) for name in order},
                shapes={name: (int(modules[name]["shape"][0]), int(modules[name]["shape"][1])) for name in order},
                families={name: str(modules[name]["family"]) for name in order},
                scores={name: float(modules[name]["score"]) for name in order},
                rank=float(content["rank"]),
                settings=content["settings"],
            )
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(f"{path} holds no plan: {error}") from None


def _plain(number: float) -> int | float:
    """A whole number as an ``int``, as PEFT writes alphas."""
    return int(number) if float(number).is_integer() else number
