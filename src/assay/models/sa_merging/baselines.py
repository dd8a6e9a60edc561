"""The rules that merging is compared with: each looks at one tensor, and at the size of numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from assay.errors import InputError
from assay.parts.checkpoints import pick_device

from .masks import keep_top
from .merging import Job
from .weights import Source, assemble

Rule = Callable[[list[Tensor]], Tensor]


def average(base: Source, experts: Sequence[Source], **options: Any) -> Any:
    """The mean of the experts. Arguments and result as of :func:`assay.models.sa_merging.merge`."""
    return _by_rule(base, experts, lambda deltas: torch.stack(deltas).mean(0), options)


def task_arithmetic(base: Source, experts: Sequence[Source], *, scale: float = 0.3, **options: Any) -> Any:
    """The base plus ``scale`` times the summed updates (arXiv 2212.04089)."""

    def rule(deltas: list[Tensor]) -> Tensor:
        # In float64, as merge sums: with keep=1 and combine="sum" it gives the same bits.
        return scale * torch.stack(deltas).sum(0, dtype=torch.float64).to(deltas[0].dtype)

    return _by_rule(base, experts, rule, options)


def ties(base: Source, experts: Sequence[Source], *, density: float = 0.2, scale: float = 1.0, **options: Any) -> Any:
    """Keep each expert's largest updates, elect a sign for each entry, average those that have it (arXiv 2306.01708).

    Parameters
    ----------
    density
        Share of each tensor's entries that is kept, in (0, 1].
    scale
        Factor of the result.
    """
    _check_share(density)

    def rule(deltas: list[Tensor]) -> Tensor:
        kept = torch.stack([largest(delta, density) for delta in deltas])
        elected = torch.where(kept.sum(0) >= 0, 1.0, -1.0)
        agrees = kept.sign() == elected
        return scale * (kept * agrees).sum(0) / agrees.sum(0).clamp_min(1)

    return _by_rule(base, experts, rule, options)


def dare(
    base: Source,
    experts: Sequence[Source],
    *,
    density: float = 0.1,
    scale: float = 0.3,
    seed: int = 0,
    **options: Any,
) -> Any:
    """Drop updates at random, enlarge the rest by 1/density, add ``scale`` times their sum (arXiv 2311.03099)."""
    _check_share(density)
    generators: dict[torch.device, torch.Generator] = {}

    def rule(deltas: list[Tensor]) -> Tensor:
        where = deltas[0].device
        generator = generators.setdefault(where, torch.Generator(where).manual_seed(seed))
        share = torch.full_like(deltas[0], density)
        return scale / density * sum(delta * torch.bernoulli(share, generator=generator) for delta in deltas)

    return _by_rule(base, experts, rule, options)


def magnitude(
    base: Source, experts: Sequence[Source], *, density: float = 0.1, scale: float = 1.0, **options: Any
) -> Any:
    """The base plus the summed largest updates of each expert."""
    _check_share(density)
    return _by_rule(base, experts, lambda deltas: scale * sum(largest(d, density) for d in deltas), options)


def largest(delta: Float[Tensor, ...], density: float) -> Float[Tensor, ...]:
    """The entries of largest magnitude, ⌊density · numel⌋ but at least one; the others are 0."""
    count = max(1, int(density * delta.numel()))
    return delta * keep_top(delta.abs().reshape(-1), count).reshape(delta.shape)


def _by_rule(base: Source, experts: Sequence[Source], rule: Rule, options: dict[str, Any]) -> Any:
    unknown = set(options) - {"dtype", "device", "include", "exclude", "out", "overwrite"}
    if unknown:
        raise TypeError(f"unknown argument {sorted(unknown)[0]!r}")
    out = options.get("out")
    device = pick_device(options.get("device", "auto"))
    dtype = options.get("dtype", torch.float32)
    job = Job(base, experts, None, options.get("include"), options.get("exclude"), dtype, device, out is not None)

    def merged(name: str) -> Tensor:
        if name not in job.chosen:
            return job.base.read(name)
        return job.add(name, rule([job.update(n, name) for n in range(len(job.experts))]))

    return assemble(job.base, merged, out, options.get("overwrite", False))


def _check_share(density: float) -> None:
    if not 0 < density <= 1:
        raise InputError(f"density must lie in (0, 1], got {density!r}")
