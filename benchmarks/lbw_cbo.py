"""Speed of LBW-CBO beside CMA-ES with BIPOP restarts, and its growth: ``python benchmarks/lbw_cbo.py``.

One process, one thread, contenders in turns, medians, CPU seconds: on a shared machine the clock on the wall counts
others' work. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from assay.statistics.lbw_cbo import LBWCBO
from assay.statistics.lbw_cbo.baselines import Problem, cma_bipop
from assay.statistics.lbw_cbo.objectives import Density
from assay.statistics.lbw_cbo.targets import random_mixture
from timing import line, seconds


def fit(density: Callable[[np.ndarray], np.ndarray], dim: int, n: int, iterations: int, samples: int) -> object:
    model = LBWCBO(
        n_particles=n, n_iter=iterations, n_samples=samples, tol=1e-300, patience=10**9, random_state=0
    )  # a swarm that never agrees: every iteration is done
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(density, dim=dim)


def beside_cma() -> None:
    target = random_mixture(np.random.default_rng(0))

    def cma() -> object:
        return cma_bipop(Problem(Density(target.log_density), None, 2, 3.0, 1.0, 40, 147, 64), 0)

    taken = seconds({"lbw-cbo": lambda: fit(target.log_density, 2, 40, 147, 64), "cma": cma}, turns=3)
    print("6 000 Gaussians × 64 rows, d = 2: " + ", ".join(f"{name} {t:.2f} s" for name, t in taken.items()))
    line("  total time / of CMA-ES with BIPOP restarts", taken["lbw-cbo"] / taken["cma"], 0.7, "×")


def overhead() -> None:
    for d, bar in ((2, 1.5), (10, 6.0)):

        def free(x: np.ndarray) -> np.ndarray:
            return x[:, 0]  # a density that costs nothing

        taken = seconds({"all": lambda d=d, free=free: fit(free, d, 50, 200, 128)}, turns=3)
        line(f"an iteration without the density, N = 50, S = 128, d = {d}", 1e3 * taken["all"] / 200, bar, "ms")


def growth() -> None:
    target = random_mixture(np.random.default_rng(0))
    sizes = {"once": (50, 64), "particles": (200, 64), "points": (50, 256), "all": (200, 256)}
    work = {name: lambda s=s: fit(target.log_density, 2, s[0], 60, s[1]) for name, s in sizes.items()}
    taken = seconds(work, turns=3)
    for name in ("particles", "points"):
        line(f"time at four times the {name} / at once", taken[name] / taken["once"], 5, "×")
    line("time at four times both / at four times the particles", taken["all"] / taken["particles"], 5, "×")


if __name__ == "__main__":
    with threadpool_limits(1):
        beside_cma()
        overhead()
        growth()
