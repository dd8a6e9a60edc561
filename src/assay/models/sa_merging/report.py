"""What a merge kept: for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

JSON, MARKDOWN = "merge_report.json", "merge_report.md"


@dataclass
class TensorReport:
    """One tensor.

    Attributes
    ----------
    name, numel
        Which, and how many entries.
    kept
        For each expert the share of entries kept.
    norm_before, norm_after
        For each expert the length of its update.
    conflicts_before, conflicts_after
        Share of entries where two experts' updates have opposite signs.
    overlap
        For each pair of experts, how many entries both keep; the diagonal is how many one keeps.
    """

    name: str
    numel: int
    kept: list[float]
    norm_before: list[float]
    norm_after: list[float]
    conflicts_before: float
    conflicts_after: float
    overlap: list[list[int]]

    @classmethod
    def of(cls, name: str, before: Sequence[Tensor], after: Sequence[Tensor]) -> TensorReport:
        """Compare the updates of all experts to a tensor before and after dropping."""
        alive = [(delta != 0).reshape(-1) for delta in after]
        overlap = [[int((a & b).sum()) for b in alive] for a in alive]
        n = before[0].numel()
        return cls(
            name, n, [overlap[i][i] / n for i in range(len(after))],
            [float(d.double().norm()) for d in before], [float(d.double().norm()) for d in after],
            _conflicts(before), _conflicts(after), overlap,
        )  # fmt: skip


def _conflicts(deltas: Sequence[Tensor]) -> float:
    up = torch.zeros(deltas[0].shape, dtype=torch.bool, device=deltas[0].device)
    down = up.clone()
    for delta in deltas:
        up |= delta > 0
        down |= delta < 0
    return float((up & down).double().mean())


@dataclass
class MergeReport:
    """What was merged, how, and what was kept of it.

    Attributes
    ----------
    base, experts
        What they were called.
    settings
        The arguments.
    notes
        What a reader must know: tensors without a sensitivity, and why.
    tensors
        One :class:`TensorReport` for each merged tensor.
    """

    base: str
    experts: tuple[str, ...]
    settings: dict[str, Any]
    notes: list[str]
    tensors: list[TensorReport] = field(default_factory=list)

    @property
    def overlap(self) -> list[list[float]]:
        """Row i, column j: which share of what expert i keeps expert j keeps as well."""
        n = len(self.experts)
        both = [[sum(t.overlap[i][j] for t in self.tensors) for j in range(n)] for i in range(n)]
        return [[both[i][j] / max(1, both[i][i]) for j in range(n)] for i in range(n)]

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return asdict(self) | {"overlap": self.overlap}

    def markdown(self) -> str:
        """The report for people."""
        total = max(1, sum(t.numel for t in self.tensors))
        parts = [
            "# Merge report",
            f"Base: `{self.base}`. Settings: " + ", ".join(f"{k} = {v}" for k, v in self.settings.items()) + ".",
        ]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        lines = ["| | expert | entries changed | of the update's squared length |", "|---|---|---:|---:|"]
        for i, expert in enumerate(self.experts):
            kept = sum(t.kept[i] * t.numel for t in self.tensors) / total
            before, after = (sum(getattr(t, k)[i] ** 2 for t in self.tensors) for k in ("norm_before", "norm_after"))
            lines.append(f"| {i + 1} | `{expert}` | {kept:.1%} | {after / before if before else 0:.1%} |")
        parts.append("## What each expert keeps\n\n" + "\n".join(lines))
        before, after = (
            sum(getattr(t, k) * t.numel for t in self.tensors) / total for k in ("conflicts_before", "conflicts_after")
        )
        parts.append(
            f"Entries where two experts pull in opposite directions: {before:.1%} before, {after:.1%} after dropping."
        )
        if len(self.experts) > 1:
            head = "| kept by | " + " | ".join(f"also by {j + 1}" for j in range(len(self.experts))) + " |"
            rows = [
                f"| {i + 1} | " + " | ".join(f"{share:.1%}" for share in row) + " |"
                for i, row in enumerate(self.overlap)
            ]
            rule = "|---|" + "---:|" * len(self.experts)
            parts.append("## Overlap of what is kept\n\n" + "\n".join([head, rule, *rows]))
        return "\n\n".join(parts) + f"\n\nTensor by tensor: `{JSON}`.\n"

    def write(self, folder: Path) -> None:
        """Both forms into a folder."""
        (folder / JSON).write_text(json.dumps(self.as_dict(), indent=1), encoding="utf-8")
        (folder / MARKDOWN).write_text(self.markdown(), encoding="utf-8")
