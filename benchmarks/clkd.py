"""Speed and memory of CLKDSurvival, side by side with scikit-survival's Cox model: ``python benchmarks/clkd.py``.

One process, one thread, the contenders in turns, CPU seconds (the lower quartile of the turns, as a busy machine
only adds). The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
from sksurv.linear_model import CoxPHSurvivalAnalysis
from threadpoolctl import threadpool_limits

from assay.learning.clkd import CLKDSurvival
from timing import line, seconds

ALPHA = 0.1


def cohort(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcome with half of the rows censored and whole days as times, and a teacher's score."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    y = np.empty(n, dtype=[("event", bool), ("time", float)])
    y["time"] = np.ceil(1000 * rng.exponential(np.exp(-0.5 * X[:, 0])))
    y["event"] = rng.random(n) < 0.5
    return X, y, 0.5 * X[:, 0] + 0.1 * X[:, 1]


def ours(X: np.ndarray, y: np.ndarray, eta: float = 0.0, teacher: np.ndarray | None = None) -> Callable[[], object]:
    model = CLKDSurvival(eta=eta, alphas=(ALPHA,), standardize=False)
    return lambda: model.fit(X, y, teacher_risk=teacher)


def against_scikit_survival() -> None:
    X, y, teacher = cohort(5000, 20)
    penalty = ALPHA * y["event"].sum()  # there the penalty stands beside a sum, here beside a mean
    theirs = CoxPHSurvivalAnalysis(alpha=penalty, ties="breslow")
    mine = CLKDSurvival(eta=0, alphas=(ALPHA,), standardize=False).fit(X, y)
    apart = np.abs(mine.coef_ - theirs.fit(X, y).coef_).max()
    taken = seconds(
        {"cox": lambda: theirs.fit(X, y), "eta 0": ours(X, y), "eta 1": ours(X, y, 1.0, teacher)},
        turns=9,
        quantile=0.25,
    )
    print(f"5 000 × 20, {y['event'].sum()} events: " + ", ".join(f"{k} {1e3 * v:.0f} ms" for k, v in taken.items()))
    print(f"  coefficients differ by at most {apart:.1e}")
    line("  time / time of CoxPHSurvivalAnalysis", taken["eta 0"] / taken["cox"], 1, "×")
    line("  time with a teacher / without", taken["eta 1"] / taken["eta 0"], 1.3, "×")


def growth() -> None:
    sizes = (10_000, 20_000, 40_000, 80_000)
    taken = seconds({str(n): ours(*cohort(n, 20)[:2]) for n in sizes}, turns=5, quantile=0.25)
    print("p = 20: " + ", ".join(f"n={n} {1e3 * taken[str(n)]:.0f} ms" for n in sizes))
    slope = np.polyfit(np.log(sizes), np.log([taken[str(n)] for n in sizes]), 1)[0]
    line("  time at twice the rows", 2**slope, 2.3, "×")
    widths = (20, 40, 80, 160)
    taken = seconds({str(p): ours(*cohort(5000, p)[:2]) for p in widths}, turns=5, quantile=0.25)
    print("n = 5 000: " + ", ".join(f"p={p} {1e3 * taken[str(p)]:.0f} ms" for p in widths))
    slope = np.polyfit(np.log(widths), np.log([taken[str(p)] for p in widths]), 1)[0]
    line("  time at twice the columns", 2**slope, 4.0, "×")


def memory() -> None:
    copies = []
    for n in (5000, 20_000):
        X, y, teacher = cohort(n, 20)
        work = ours(X, y, 1.0, teacher)
        tracemalloc.start()
        work()
        copies.append(tracemalloc.get_traced_memory()[1] / X.nbytes)
        tracemalloc.stop()
    print(f"peak memory in copies of X: {copies[0]:.1f} at 5 000 rows, {copies[1]:.1f} at 20 000")
    line("  memory / copies at a quarter of the rows", copies[1] / copies[0], 1.1, "×")


def whole_grid() -> None:
    rng = np.random.default_rng(1)
    X, groups, case = rng.normal(size=(180, 8)), np.repeat(np.arange(60), 3), np.tile([1, 0, 0], 60)
    model = CLKDSurvival(components="matched", random_state=0)
    taken = seconds({"grid": lambda: model.fit(X, case, groups=groups, teacher_risk=X[:, 0])}, turns=9, quantile=0.25)[
        "grid"
    ]
    line("60 sets × 3 × 8: 8 etas × 4 alphas × 5 folds, and all data", taken, 0.5, "s")


if __name__ == "__main__":
    with threadpool_limits(1):
        against_scikit_survival()
        growth()
        memory()
        whole_grid()
