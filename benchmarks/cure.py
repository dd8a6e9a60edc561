"""Speed of CURE beside SimGCD, and of the clustering between its stages: ``python benchmarks/cure.py``.

One process, one thread, contenders in turns, medians, CPU seconds: on a shared machine the clock on the wall counts
others' work. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import nn

from assay.learning.cure import CURE, seeded_kmeans, semantic_exploration_energy
from assay.learning.cure.baselines import Problem, simgcd
from assay.learning.cure.encoders import made_with, mlp
from assay.learning.cure.training import train_stage2
from assay.learning.cure.views import tabular_view
from timing import line, seconds

DIM = 64
PASSES = 5  # so that what surrounds the steps hardly counts


def problem(n: int, width: int, n_classes: int) -> Problem:
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(n, width)).astype(np.float32))
    n_known = n_classes // 2
    y = np.where(rng.random(n) < 0.25, np.arange(n) % n_known, -1)
    return Problem(made_with(0, lambda: mlp(width, DIM)), DIM, X, y, n_known, n_classes, tabular_view)


def cure_pass(p: Problem, batch: int) -> Callable[[], object]:
    net = made_with(0, lambda: CURE(p.encoder, DIM, p.n_known))
    net.head.extend(torch.randn(p.n_classes - p.n_known, DIM))
    net.prior = torch.full((p.n_classes,), 1 / p.n_classes)
    return lambda: train_stage2(net, p.X, p.y, p.loop(0, batch, 1e-3), PASSES)


def steps() -> None:
    for batch in (256, 1024):
        p, q = problem(4 * batch, 64, 100), problem(4 * batch, 64, 100)

        def theirs(q: Problem = q, batch: int = batch) -> object:
            return simgcd(q, 0, epochs=PASSES, batch_size=batch)

        taken = seconds({"cure": cure_pass(p, batch), "simgcd": theirs}, turns=5)
        each = {name: 1e3 * t / (4 * PASSES) for name, t in taken.items()}
        print(f"a step of {batch} rows, 100 classes: " + ", ".join(f"{name} {t:.1f} ms" for name, t in each.items()))
        line("  time of a step of stage 2 / of SimGCD", each["cure"] / each["simgcd"], 0.9, "×")


def blobs(n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    of = rng.integers(k, size=n)
    Z = rng.normal(size=(k, d))[of] + 0.7 * rng.normal(size=(n, d))
    Z = (Z / np.linalg.norm(Z, axis=1, keepdims=True)).astype(np.float32)
    return Z, np.where((of < k // 2) & (rng.random(n) < 0.5), of, -1)


def between() -> None:
    Z, y = blobs(50_000, DIM, 100)
    net = made_with(0, lambda: CURE(nn.Identity(), DIM, 50))
    start = time.process_time()
    net.begin_stage2(Z, 100, 0, y)
    line("begin_stage2 of 50 000 × 64, 100 classes, five starts", time.process_time() - start, 15, "s")
    peer = seconds(
        {
            "ours": lambda: seeded_kmeans(Z, 100, y, n_init=1, random_state=0),
            "k-means": lambda: KMeans(100, n_init=1, random_state=0).fit(Z),
        },
        turns=3,
    )
    line("  time of one start / of scikit-learn's k-means without labels", peer["ours"] / peer["k-means"], 2, "×")


def clustering(n: int, d: int, k: int) -> Callable[[], object]:
    Z, y = blobs(n, d, k)
    return lambda: seeded_kmeans(Z, k, y, n_init=1, max_iter=10, random_state=0)


def growth() -> None:
    sizes = {
        "once": (10_000, 64, 100), "rows": (40_000, 64, 100), "width": (10_000, 256, 100), "classes": (10_000, 64, 400)
    }  # fmt: skip
    taken = seconds({name: clustering(*size) for name, size in sizes.items()}, turns=3)
    for name in ("rows", "width", "classes"):
        line(f"clustering, 10 rounds: time at four times the {name} / at once", taken[name] / taken["once"], 6, "×")


def energy(k: int) -> Callable[[], object]:
    rows = torch.randn(k, DIM)
    return lambda: semantic_exploration_energy(rows)


def energies() -> None:
    taken = seconds({str(k): energy(k) for k in (1000, 5000, 20_000)}, turns=3)
    print("SEE: " + ", ".join(f"{k} prototypes {1e3 * t:.0f} ms" for k, t in taken.items()))
    line("  time at 20 000 prototypes (of a sample) / at 5 000 (of all)", taken["20000"] / taken["5000"], 4, "×")


if __name__ == "__main__":
    torch.set_num_threads(1)
    steps()
    between()
    growth()
    energies()
