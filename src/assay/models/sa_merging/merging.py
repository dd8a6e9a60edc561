"""Merge fine-tuned models of one base without data: keep the updates that reach the output and agree."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.errors import InputError
from assay.parts.checkpoints import pick_device

from .connectivity import Connectivity, Sensing, Terms, Unknown, dense, signal_pass
from .masks import BitMasks, keep_top, kept_count
from .report import MergeReport, TensorReport
from .weights import Source, assemble, check_alike, open_weights

Mode = Literal["signed", "agree", "abs"]
MODES: tuple[Mode, ...] = ("signed", "agree", "abs")
Combine = Literal["capped", "sum"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def merge(
    base: Source,
    experts: Sequence[Source],
    *,
    keep: float = 0.2,
    rounds: int = 10,
    mode: Mode = "signed",
    combine: Combine = "capped",
    scale: float = 1.0,
    connectivity: Connectivity | Literal["none"] = "auto",
    weights: Sequence[float] | None = None,
    include: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "auto",
    out: str | Path | None = None,
    overwrite: bool = False,
    report: bool = False,
    progress: Progress | None = None,
) -> Any:
    """Merge experts into their base, keeping of each tensor's updates those with the highest saliency.

    In each of the rounds every entry of every expert's update gets a score, the sensitivity of the signal to the
    weight times the experts' summed update there, and the lowest scored are dropped. What is left is summed onto the
    base. From "Saliency-Aware Model Merging" (arXiv 2606.00511).

    Parameters
    ----------
    base, experts
        Modules, state dicts or Hugging Face folders with the same tensors. Folders are read tensor by tensor.
    keep
        Share of each tensor's entries that every expert keeps, in (0, 1].
    rounds
        After round t each expert has keep^(t/rounds) of a tensor's entries left.
    mode
        ``"signed"``: sensitivity · sign(weight) · summed update, high where the experts together strengthen a
        connection. ``"agree"``: · sign(own update), high where the expert goes along with the others. ``"abs"``:
        size only.
    combine
        ``"sum"`` adds up what is kept, as in the source. ``"capped"`` then shortens a tensor's summed update to the
        mean length of the experts' own (unpruned) updates where it is longer: experts agree most where all have
        moved far the same way, and there a sum goes beyond what any of them learned.
    scale
        The result is multiplied by this.
    connectivity
        How the signal passes: ``"auto"`` by architecture, ``"chain"`` matrix by matrix, ``"none"`` (every sensitivity
        is 1), or a function from a state dict to non-negative sensitivities. Where the signal can't be passed all are
        1, with a warning and a line in the report.
    weights
        One factor an expert; 1 by default.
    include, exclude
        Patterns (``*`` and ``?``) of names of tensors: only those, not those, are merged; others stay the base's.
    dtype, device
        What scores and sums are computed in. The result has the base's own dtypes.
    out, overwrite
        Where to write the merged folder; base and experts must be folders then. It appears whole or not at all.
    report
        Also return a :class:`MergeReport`.
    progress
        Called as ``progress(what, done, of)``.

    Returns
    -------
    dict, module or path
        A module where ``base`` is one, the path where ``out`` is given, else a state dict; with ``report=True`` a pair.

    Raises
    ------
    KeyError, ShapeMismatchError
        For experts with missing, extra or differently shaped tensors, naming them all.
    ValueError
        For values out of range, NaN or infinity in a tensor, another architecture or tokenizer.
    """
    _check(keep, rounds, mode, scale, dtype)
    if combine not in ("capped", "sum"):
        raise InputError(f"combine must be 'capped' or 'sum', got {combine!r}")
    job = Job(base, experts, weights, include, exclude, dtype, pick_device(device), out is not None)
    tell = progress or (lambda *_: None)
    scratch = Path(out).expanduser().absolute().parent if out is not None else None
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    masks = BitMasks({name: job.base.specs[name].numel for name in job.names}, len(job.experts), scratch)
    try:
        notes = _drop(job, masks, keep, rounds, mode, connectivity, tell) if keep < 1 else []
        summary = MergeReport(
            job.base.label,
            tuple(expert.label for expert in job.experts),
            {
                "keep": keep, "rounds": rounds, "mode": mode, "combine": combine, "scale": scale,
                "weights": list(job.weights),
                "connectivity": connectivity if isinstance(connectivity, str) else "given",
            },
            notes,
        )  # fmt: skip
        done = 0

        def merged(name: str) -> Tensor:
            nonlocal done
            done += 1
            tell("writing" if out is not None else "summing", done, len(job.base.specs))
            if name not in job.chosen:
                return job.base.read(name)
            deltas = [job.update(n, name, masks.read(n, name)) for n in range(len(job.experts))] if report else None
            if deltas is not None:
                summary.tensors.append(TensorReport.of(name, [job.update(n, name) for n in range(len(deltas))], deltas))
            total = job.consensus(name, masks)
            return job.add(name, shorten(total, job.lengths(name)) if combine == "capped" else total, scale)

        result = assemble(job.base, merged, out, overwrite, summary.write if report else None)
    finally:
        masks.close()
    return (result, summary) if report else result


def saliency(
    task_vectors: Sequence[Mapping[str, Tensor]],
    base: Source,
    *,
    mode: Mode = "signed",
    connectivity: Connectivity | Literal["none"] = "auto",
    weights: Sequence[float] | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> list[dict[str, Tensor]]:
    """The scores of one round: what :func:`merge` would rank the entries of these updates by.

    Parameters
    ----------
    task_vectors
        For each expert its update, expert minus base, by tensor name (floating-point tensors of the base).
    base, mode, connectivity, weights, dtype, device
        As for :func:`merge`.

    Returns
    -------
    list of dict
        A score for each entry of each update; only the order within a tensor means something.
    """
    _check(1.0, 1, mode, 1.0, dtype)
    start = open_weights(base, "the base")
    experts = []
    for n, vector in enumerate(task_vectors):
        unknown = [name for name in vector if name not in start.specs]
        if unknown:
            raise KeyError(f"task vector {n + 1} has {unknown[0]!r}, which the base has not")
        experts.append(
            {
                name: start.read(name).to(dtype) + vector[name].to(dtype) if name in vector else start.read(name)
                for name in start.specs
            }
        )
    job = Job(base, experts, weights, None, None, dtype, pick_device(device))
    masks = BitMasks({name: job.base.specs[name].numel for name in job.names}, len(experts))
    sensing, _ = _sensing(job, connectivity)
    found: list[dict[str, Tensor]] = [{} for _ in experts]
    sensed = [sensing(job.reader(n, masks)) if sensing else {} for n in range(len(experts))]
    for name in job.names:
        consensus = job.consensus(name, masks)
        for n in range(len(experts)):
            found[n][name] = _score(job, n, name, consensus, sensed[n].get(name), mode, sensing)
    masks.close()
    return found


def shorten(update: Float[Tensor, ...], lengths: Sequence[float]) -> Float[Tensor, ...]:
    """An update no longer than the mean of ``lengths``."""
    length, most = float(torch.linalg.vector_norm(update, dtype=torch.float64)), sum(lengths) / len(lengths)
    return update * (most / length) if length > most else update


@dataclass
class Job:
    """What is merged: opened and checked models, and which tensors take part."""

    base_source: Source
    sources: Sequence[Source]
    factors: Sequence[float] | None
    include: str | Sequence[str] | None
    exclude: str | Sequence[str] | None
    dtype: torch.dtype
    device: torch.device
    to_folder: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.sources, str | Path | Mapping | nn.Module):
            raise TypeError("experts must be a sequence of models")
        if not self.sources:
            raise InputError("give at least one expert")
        self.weights = tuple(float(w) for w in self.factors) if self.factors is not None else (1.0,) * len(self.sources)
        if len(self.weights) != len(self.sources):
            raise InputError(f"weights must hold one number an expert: {len(self.weights)} for {len(self.sources)}")
        if not all(math.isfinite(w) for w in self.weights):
            raise InputError(f"weights must be finite numbers, got {list(self.weights)}")
        self.base = open_weights(self.base_source, "the base")
        self.experts = [open_weights(source, f"expert {n}") for n, source in enumerate(self.sources, start=1)]
        if self.to_folder and any(one.folder is None for one in (self.base, *self.experts)):
            raise InputError("out needs base and experts that are folders")
        check_alike(self.base, self.experts)
        self.names = [name for name, spec in self.base.specs.items() if spec.dtype.is_floating_point and spec.numel]
        for what, patterns in (("include", self.include), ("exclude", self.exclude)):
            patterns = [patterns] if isinstance(patterns, str) else patterns
            for pattern in patterns or ():
                if not any(fnmatchcase(name, pattern) for name in self.base.specs):
                    raise InputError(f"{what}: no tensor is named like {pattern!r}")
            if patterns is not None:
                keeps = what == "include"
                self.names = [n for n in self.names if any(fnmatchcase(n, p) for p in patterns) == keeps]
        if not self.names:
            raise InputError("no tensor is left to merge")
        self.chosen = frozenset(self.names)
        self._at: tuple[str, Tensor] | None = None

    def _start(self, name: str) -> Tensor:
        """The base's tensor, kept until another is asked for: all experts need it in turn."""
        if self._at is None or self._at[0] != name:
            self._at = (name, self.base.read(name).to(self.device, self.dtype))
        return self._at[1]

    def weight(self, n: int, name: str) -> Tensor:
        """θ of an expert; treat it as read-only."""
        return self.experts[n].read(name).to(self.device, self.dtype)

    def update(self, n: int, name: str, mask: Tensor | None = None) -> Tensor:
        """τ of an expert, masked."""
        delta = self.weight(n, name) - self._start(name)
        return delta if mask is None else delta.mul_(mask.to(self.device, self.dtype).reshape(delta.shape))

    def reader(self, n: int, masks: BitMasks) -> Callable[[str], Tensor]:
        """Reads θ₀ + masked τ of an expert."""

        def read(name: str) -> Tensor:
            if name not in self.chosen:
                return self.base.read(name)
            mask = masks.read(n, name)
            theirs = self.weight(n, name)
            if mask is None:
                return theirs
            # Chooses by truth values, exactly, and several times faster than torch.where.
            return torch.lerp(self._start(name), theirs, mask.to(self.device, self.dtype).reshape(theirs.shape))

        return read

    def consensus(self, name: str, masks: BitMasks) -> Tensor:
        """Σ w τ of all experts, summed in float64 so that their order does not matter."""
        total = torch.zeros(self.base.specs[name].shape, dtype=torch.float64, device=self.device)
        for n, weight in enumerate(self.weights):
            total.add_(self.update(n, name, masks.read(n, name)), alpha=weight)
        return total.to(self.dtype)

    def lengths(self, name: str) -> list[float]:
        """‖w τ‖ of each expert, nothing dropped."""
        return [
            abs(weight) * float(torch.linalg.vector_norm(self.update(n, name), dtype=torch.float64))
            for n, weight in enumerate(self.weights)
        ]

    def add(self, name: str, update: Tensor, scale: float = 1.0) -> Tensor:
        """θ₀ + scale · update in the base's dtype; where the update is 0 the base is kept bit for bit."""
        start = self.base.read(name)
        moved = (start.to(self.device, self.dtype) + scale * update).to(start.dtype)
        return torch.where(update.to(start.device) == 0, start, moved.to(start.device))


def _check(keep: float, rounds: int, mode: str, scale: float, dtype: torch.dtype) -> None:
    if not (isinstance(keep, int | float) and 0 < keep <= 1):
        raise InputError(f"keep must lie in (0, 1], got {keep!r}")
    if not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1:
        raise InputError(f"rounds must be a whole number, 1 or more, got {rounds!r}")
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if not math.isfinite(scale):
        raise InputError(f"scale must be a finite number, got {scale!r}")
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype must be float32 or float64, got {dtype}")


def _sensing(job: Job, connectivity: Any) -> tuple[Sensing | None, list[str]]:
    """The pass, or None where every sensitivity is 1, and what the report must say."""
    if connectivity == "none":
        return None, ["connectivity is none: every sensitivity is 1"]
    if not callable(connectivity) and connectivity not in ("auto", "chain"):
        raise InputError(f"connectivity must be 'auto', 'chain', 'none' or a function, got {connectivity!r}")
    try:
        sensing = signal_pass(job.base, connectivity, job.dtype, job.device)
        reached = sensing(job.base.read)
    except Unknown as why:
        if connectivity == "chain":
            raise InputError(f"connectivity='chain': {why}") from why
        note = f"every sensitivity is 1: {why}"
        warnings.warn(f"{job.base.label}: {note}", stacklevel=4)
        return None, [note]
    notes = []
    if sensing.unknown:
        note = (
            f"{len(sensing.unknown)} parameters are of modules of no known kind and have the sensitivity 1: "
            + ", ".join(sensing.unknown[:5])
        )
        warnings.warn(f"{job.base.label}: {note}", stacklevel=4)
        notes.append(note)
    silent = [name for name in job.names if name not in reached and name not in sensing.unknown]
    if silent:
        notes.append(
            f"{len(silent)} tensors are not on the signal's way (embeddings, heads) and have the sensitivity 1: "
            + ", ".join(silent[:8])
        )
    return sensing, notes


def _drop(
    job: Job, masks: BitMasks, keep: float, rounds: int, mode: Mode, connectivity: Any, tell: Progress
) -> list[str]:
    """All rounds of dropping; returns what the report must say."""
    sensing, notes = _sensing(job, connectivity)
    steps, done = rounds * (len(job.experts) + len(job.names)), 0

    def step(t: int) -> None:
        nonlocal done
        done += 1
        tell(f"round {t} of {rounds}", done, steps)

    for t in range(1, rounds + 1):
        sensed: list[dict[str, Terms]] = []
        for n in range(len(job.experts)):
            step(t)
            sensed.append(sensing(job.reader(n, masks)) if sensing is not None else {})
        for name in job.names:
            step(t)
            count = kept_count(job.base.specs[name].numel, keep, t, rounds)
            consensus = job.consensus(name, masks)  # of the last round's masks, for all experts
            new = []
            for n in range(len(job.experts)):
                alive = masks.read(n, name)
                score = _score(job, n, name, consensus, sensed[n].get(name), mode, sensing).reshape(-1)
                new.append(keep_top(score, count, None if alive is None else alive.to(score.device)))
            for n, mask in enumerate(new):
                masks.write(n, name, mask)
    return notes


def _score(
    job: Job, n: int, name: str, consensus: Tensor, terms: Terms | None, mode: Mode, sensing: Sensing | None
) -> Tensor:
    """The saliency of an expert's entries; of those that were dropped it means nothing."""
    if mode == "abs":
        score = consensus.abs()
    elif mode == "agree":
        score = job.update(n, name).sign_().mul_(consensus)
    else:
        weight = job.weight(n, name)  # what is alive is the expert's own
        offset = sensing.offset(name) if sensing is not None else 0.0
        score = (weight + offset if offset else weight).sign().mul_(consensus)
    if terms is None:
        return score
    if len(terms) == 1:
        for factor in terms[0]:
            score.mul_(_unit(factor).to(score.dtype))
        return score
    return score.mul_(_unit(dense(terms, tuple(score.shape))).to(score.dtype))


def _unit(factor: Tensor) -> Tensor:
    """The same with its largest entry 1: only the order counts, and nothing runs out of range."""
    return factor / factor.max().clamp_min(torch.finfo(factor.dtype).tiny)
