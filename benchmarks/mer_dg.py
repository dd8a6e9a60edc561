"""Speed and memory of the modality-entropy loss against its usual form: ``python benchmarks/mer_dg.py``.

The usual form is log det of the D × D correlations by ``torch.linalg.slogdet``, as the source's code has it, through
autograd. One process, one thread, the contenders in turns, medians of the runs, CPU seconds: on a shared machine the
clock on the wall counts others' work. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from assay.learning.mer_dg import MERLoss, mer_loss
from assay.learning.mer_dg.step_time import large_step, small_step, step_ratio
from timing import line, seconds

EPS = 1e-4


def slogdet_loss(z: Tensor) -> Tensor:
    """Both halves with the D × D matrix."""
    n, d = z.shape
    centred = z - z.mean(dim=0)
    unit = centred / (centred.square().mean(dim=0).sqrt() + EPS)
    correlation = unit.T @ unit / (n - 1) + EPS * torch.eye(d, dtype=z.dtype)
    floor = torch.relu(1 - (z.var(dim=0) + EPS).sqrt()).mean()
    return floor - torch.linalg.slogdet(correlation)[1] / d


def with_gradient(loss: Callable[[Tensor], Tensor], z: Tensor) -> Callable[[], float]:
    def work() -> float:
        leaf = z.clone().requires_grad_()
        value = loss(leaf)
        value.backward()
        return float(value.detach())

    return work


def features(n: int, d: int) -> Tensor:
    return torch.randn((n, d), generator=torch.Generator().manual_seed(0))


def against_slogdet(n: int, d: int, bar: float, turns: int) -> None:
    z, ours = features(n, d), MERLoss(lam=1.0)
    work = {
        "slogdet": with_gradient(slogdet_loss, z),
        "mer_loss": with_gradient(mer_loss, z),
        "MERLoss": with_gradient(ours, z),
    }
    taken = seconds(work, turns)
    print(f"N={n}, D={d}, value and gradient: " + ", ".join(f"{k} {1e3 * v:.2f} ms" for k, v in taken.items()))
    line("  time of slogdet / time of MERLoss", taken["slogdet"] / taken["MERLoss"], bar, below=False)
    line("  time of slogdet / time of mer_loss", taken["slogdet"] / taken["mer_loss"], bar, below=False)
    exact = float(slogdet_loss(z.double()))
    line(
        "  MERLoss in float32: relative distance from slogdet in float64", abs(work["MERLoss"]() - exact) / exact, 1e-4
    )
    line("  mer_loss in float32: the same", abs(work["mer_loss"]() - exact) / exact, 1e-4)


def growth() -> None:
    ours = MERLoss(lam=1.0)
    for what, shapes in (
        ("D at N=48", [(48, d) for d in (1024, 2048, 4096, 8192)]),
        ("N at D=32", [(n, 32) for n in (4096, 8192, 16384, 32768)]),
    ):
        taken = [seconds({"ours": with_gradient(ours, features(*shape))}, 9)["ours"] for shape in shapes]
        sizes = [max(shape) for shape in shapes]
        slope = np.polyfit(np.log(sizes), np.log(taken), 1)[0]
        print(f"growth with {what}: " + ", ".join(f"{s}: {1e3 * t:.2f} ms" for s, t in zip(sizes, taken, strict=True)))
        line(f"  log-log slope of time on {what.partition(' ')[0]} (1 is linear)", slope, 1.15, "")


def memory() -> None:
    """Peak of what torch allocates on the CPU, in copies of z."""
    for n, d in ((48, 8192), (8192, 32)):
        z = features(n, d)
        work = with_gradient(MERLoss(lam=1.0), z)
        copies = _peak_bytes(work) / (z.numel() * 4)
        print(f"memory at N={n}, D={d}")
        line("  peak of value and gradient, in copies of z", copies, 12, "")


def _peak_bytes(work: Callable[[], object]) -> int:
    work()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        work()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def steps() -> None:
    ratios = [step_ratio(small_step(seed), seed) for seed in range(5)]
    line("a training step, two MLPs of 84–128–32, N=64: with the loss / without", statistics.median(ratios), 1.15)
    plain = [step_ratio(small_step(seed), seed, _plain) for seed in range(5)]
    print(f"  the same with the loss through autograd: {statistics.median(plain):.2f} ×")
    line("a training step, two encoders of 7 million weights, N=48: with / without", step_ratio(large_step(0), 0), 1.05)


def _plain(features_: dict[str, Tensor]) -> Tensor:
    parts: Sequence[Tensor] = [mer_loss(z) for z in features_.values()]
    return 0.1 * torch.stack(list(parts)).sum()


if __name__ == "__main__":
    torch.set_num_threads(1)
    assert math.isclose(float(slogdet_loss(features(64, 32))), float(mer_loss(features(64, 32))), rel_tol=1e-4)
    against_slogdet(64, 512, bar=5, turns=15)
    against_slogdet(48, 2304, bar=20, turns=5)
    growth()
    memory()
    steps()
