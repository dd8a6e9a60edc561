"""Speed of orloop, side by side with HiGHS's own conflict: ``python benchmarks/orloop.py``.

One process, one thread, the contenders in turns, medians of the runs, CPU seconds: on a shared machine the clock on the
wall counts others' work. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from assay.reasoning.orloop import LinearModel, RepairEnv, generate, iis, solve

INF = np.inf
STRATEGY = 6  # of HiGHS: from a ray of the relaxation, then reduced to an irreducible set


def seconds(contenders: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    """Median CPU seconds of each contender, run in turns so that a slow spell hits all."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        for name, work in contenders.items():
            start = time.process_time()
            work()
            if turn:  # The first turn warms up.
                times[name].append(time.process_time() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def line(what: str, measured: float, bar: float, unit: str, least: bool = False) -> None:
    good = measured >= bar if least else measured <= bar
    print(f"{what:<72} {measured:8.2f} {unit:<4} {'≥' if least else '≤'} {bar:<5g} {'met' if good else 'NOT MET'}")


def infeasible(m: int, n: int, entries: int, seed: int = 0) -> LinearModel:
    """A sparse model, feasible but for a few rows that contradict sums of others."""
    rng = np.random.default_rng(seed)
    while True:
        i, j = rng.integers(m, size=entries), rng.integers(n, size=entries)
        A = sp.csr_matrix((rng.uniform(1, 5, entries).round(2), (i, j)), shape=(m, n))
        up = A @ rng.uniform(0, 3, n) + 1
        group = rng.choice(m, 6, replace=False)
        extra = sp.csr_matrix(A[group].sum(axis=0))
        model = LinearModel.from_arrays(
            sp.vstack([A, extra]),
            np.append(np.full(m, -INF), 1.05 * up[group].sum()),
            np.append(up, INF),
            np.zeros(n),
            np.full(n, 50.0),
            np.ones(n),
        )
        if solve(model).status == "infeasible":
            return model


def theirs(model: LinearModel) -> Any:
    h = model.to_highs()
    h.setOptionValue("iis_strategy", STRATEGY)
    return h.getIis()


def conflicts() -> None:
    for m, n in ((20, 12), (60, 40), (200, 120)):
        models = [infeasible(m, n, 4 * m, seed) for seed in range(5)]
        taken = seconds(
            {
                "orloop": lambda models=models: [iis(one) for one in models],
                "HiGHS": lambda models=models: [theirs(one) for one in models],
            },
            runs=5,
        )
        sure = sum(iis(one).certified for one in models)
        line(f"certified conflict ({sure} of 5), {m} × {n}: time / getIis", taken["orloop"] / taken["HiGHS"], 1, "×")
    large = infeasible(1000, 600, 3000)
    start = time.process_time()
    found = iis(large)
    line(f"conflict of 1 000 rows, 3 000 entries (certified: {found.certified})", time.process_time() - start, 3, "s")


def loop() -> None:
    instances = generate(20, errors="ABCD", seed=3)
    cache: dict[Any, Any] = {}
    env = RepairEnv(instances, cache=cache)
    rng = np.random.default_rng(0)

    def episodes() -> int:
        edits = 0
        for _ in range(10):
            for index in range(len(instances)):
                env.reset(options={"instance": index})
                while not env.done and env.steps < 6:
                    options = env.candidates()
                    env.step(options[int(rng.integers(len(options)))] if options else "SUBMIT")
                edits += env.n_edits
        return edits

    start = time.process_time()
    edits = episodes()
    line("edits a CPU second, states cached as they come", edits / (time.process_time() - start), 100, "1/s", True)
    start = time.process_time()
    made = generate(40, errors="ABCD", seed=4)
    line("instances made a CPU second, kinds A to D", len(made) / (time.process_time() - start), 20, "1/s", True)


if __name__ == "__main__":
    conflicts()
    loop()
