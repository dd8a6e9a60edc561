"""Speed of private choice beside greedy without privacy, in turns and as ratios: `python benchmarks/dp_smk.py`.

The peers are submodlib's lazy greedy with costs (C++) on the same matrix, and the private continuous greedy of the
study. One process, one thread, medians, CPU seconds; milliseconds are the machine's.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from assay.numerics.submodular import greedy_knapsack
from assay.privacy.dp_smk import DPKnapsack, FacilityLocation
from assay.privacy.dp_smk.baselines import continuous
from assay.privacy.dp_smk.instances import Instance
from timing import line, seconds

TURNS = 9


def problem(people: int, items: int, budget: float = 5.0) -> Instance:
    rng = np.random.default_rng(0)
    home, where = rng.random((people, 2)), rng.random((items, 2))
    distance = np.linalg.norm(home[:, None] - where[None], axis=2)
    costs = rng.uniform(0.2, 0.8, items)
    return Instance(FacilityLocation(np.maximum(0.0, 1 - 4 * distance)), costs, budget)


def solve(instance: Instance, **parameters: object) -> Callable[[], object]:
    parameters = {"random_state": 0} | parameters
    return lambda: DPKnapsack(instance.objective, instance.costs, instance.budget, epsilon=1, **parameters).solve()


def peer(instance: Instance) -> Callable[[], object]:
    """submodlib on the same similarities; the matrix is handed over before the clock starts, as ours is."""
    from submodlib import FacilityLocationFunction

    similarity = np.ascontiguousarray(instance.objective.similarity.T)
    people, items = similarity.shape
    function = FacilityLocationFunction(n=items, mode="dense", separate_rep=True, n_rep=people, sijs=similarity)
    costs = instance.costs.tolist()
    return lambda: function.maximize(
        budget=instance.budget,
        optimizer="LazyGreedy",
        costs=costs,
        costSensitiveGreedy=True,
        show_progress=False,
    )


def side_by_side() -> None:
    instance = problem(3000, 60)
    took = seconds(
        {
            "private": solve(instance, algorithm="greedy_max"),
            "submodlib": peer(instance),
            "lazy": lambda: greedy_knapsack(instance.objective, instance.costs, instance.budget),
            "continuous": lambda: continuous(instance, 1.0, 1e-6, np.random.default_rng(0)),
        },
        TURNS,
    )
    print(", ".join(f"{name} {1e3 * t:.1f} ms" for name, t in took.items()))
    line("greedy_max, 3000 people × 60 items", 1e3 * took["private"], 50, "ms")
    line("  by submodlib's non-private greedy", took["private"] / took["submodlib"], 5, "×")
    line("  by our own non-private lazy greedy", took["private"] / took["lazy"], 5, "×")
    line("  by private continuous greedy", took["private"] / took["continuous"], 0.1, "×")
    # The number of runs is random: the mean over seeds is what counts.
    start = time.process_time()
    for seed in range(40):
        solve(instance, algorithm="enumerate", mean_runs=20, random_state=seed)()
    mean = (time.process_time() - start) / 40
    line("enumerate with 20 runs on average, in solves of greedy_max", mean / took["private"], 40, "×")


def growth() -> None:
    for what, sizes, make in (
        ("people", (4000, 8000, 16_000, 32_000), lambda n: problem(n, 60)),
        ("items", (50, 100, 200, 400), lambda n: problem(2000, n)),
        ("budget", (4.0, 8.0, 16.0), lambda b: problem(2000, 200, b)),
    ):
        took = seconds({str(n): solve(make(n), algorithm="greedy_max") for n in sizes}, 5)
        slope = float(np.polyfit(np.log(sizes), np.log([took[str(n)] for n in sizes]), 1)[0])
        print(f"{what}: " + ", ".join(f"{n:g} {1e3 * took[str(n)]:.0f} ms" for n in sizes))
        line(f"  log-log slope of time on {what}", slope, 1.2, "")


def memory() -> None:
    instance = problem(20_000, 100)
    work = solve(instance, algorithm="greedy_max")
    work()
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    line("memory of a solve, in similarity matrices", peak / instance.objective.similarity.nbytes, 1.5, "×")


if __name__ == "__main__":
    with threadpool_limits(1):
        side_by_side()
        growth()
        memory()
