"""Speed of orloop, side by side with HiGHS's own conflict: ``python benchmarks/orloop.py``.

One process, one thread, CPU seconds, the contenders in turns: on a shared machine the clock on the wall counts others'
work. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import Any

import numpy as np
import scipy.sparse as sp

from assay.reasoning.orloop import Instance, LinearModel, RepairEnv, generate, iis, repair, solve
from assay.reasoning.orloop.environment import RecentStates
from timing import line, seconds

INF = np.inf
STRATEGY = 6  # of HiGHS: from a ray of the relaxation, then reduced to an irreducible set


def infeasible(m: int, n: int, entries: int, seed: int = 0, milp: bool = False) -> LinearModel:
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
            rng.random(n) < (0.3 if milp else 0.0),
        )
        if solve(model).status == "infeasible":
            return model


def chain(m: int) -> LinearModel:
    """Each number is at least one above the last, and the last is not far enough above the first: all rows conflict."""
    steps = sp.diags([-np.ones(m), np.ones(m)], [0, 1], shape=(m, m + 1))
    ends = sp.csr_matrix(([1.0, -1.0], ([0, 0], [m, 0])), shape=(1, m + 1))
    return LinearModel.from_arrays(
        sp.vstack([steps, ends]),
        np.append(np.ones(m), -INF),
        np.append(np.full(m, INF), m - 1),
        np.zeros(m + 1),
        np.full(m + 1, 10.0 * m),
        np.ones(m + 1),
    )


def theirs(model: LinearModel) -> Any:
    h = model.to_highs()
    h.setOptionValue("iis_strategy", STRATEGY)
    return h.getIis()


def conflicts() -> None:
    kinds = [
        (f"{m} × {n}", [infeasible(m, n, 4 * m, s) for s in range(5)]) for m, n in ((20, 12), (60, 40), (200, 120))
    ]
    kinds += [(f"a chain of {m}", [chain(m)]) for m in (50, 200)]
    for name, models in kinds:
        taken = seconds(
            {
                "orloop": lambda models=models: [iis(one) for one in models],
                "HiGHS": lambda models=models: [theirs(one) for one in models],
            },
            turns=5,
        )
        sure = sum(iis(one).certified for one in models)
        line(
            f"certified conflict ({sure} of {len(models)}), {name}: time / getIis", taken["orloop"] / taken["HiGHS"], 1
        )


def growth() -> None:
    sizes = (1000, 4000, 16000)
    models = {str(m): infeasible(m, (3 * m) // 5, 3 * m) for m in sizes}
    taken = seconds({name: lambda one=one: iis(one) for name, one in models.items()}, turns=3)
    line("conflict of 1 000 rows, 3 000 entries, linear", taken["1000"], 3, "s")
    exponent = np.polyfit(np.log(sizes), np.log([taken[str(m)] for m in sizes]), 1)[0]
    line("exponent of its time in the size, to 16 000 rows", exponent, 1.5, "")
    line("conflict of 1 000 rows that all conflict (a chain)", seconds({"": lambda: iis(chain(1000))}, 1)[""], 3, "s")
    mixed = infeasible(1000, 600, 3000, milp=True)
    line("conflict of 1 000 rows, 3 000 entries, mixed-integer", seconds({"": lambda: iis(mixed)}, 1)[""], 3, "s")
    line("repair of 1 000 rows, linear", seconds({"": lambda: repair(models["1000"])}, 1)[""], 10, "s")


def episodes(env: RepairEnv, rounds: int, seed: int = 0) -> int:
    rng, edits = np.random.default_rng(seed), 0
    for _ in range(rounds):
        for index in range(len(env.instances)):
            env.reset(options={"instance": index})
            while not env.done and env.steps < 6:
                options = env.candidates()
                env.step(options[int(rng.integers(len(options)))] if options else "SUBMIT")
            edits += env.n_edits
    return edits


def held(instances: list[Instance], rounds: int) -> int:
    """Bytes that an environment holds after so many rounds."""
    tracemalloc.start()
    env = RepairEnv(instances, cache=RecentStates(30))
    episodes(env, rounds)
    gc.collect()
    bytes_held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return bytes_held


def loop() -> None:
    instances = generate(20, errors="ABCD", seed=3)
    start = time.process_time()
    edits = episodes(RepairEnv(instances), 10)
    line("edits a CPU second, states kept as they come", edits / (time.process_time() - start), 100, "1/s", below=False)
    start = time.process_time()
    made = generate(40, errors="ABCD", seed=4)
    speed = len(made) / (time.process_time() - start)
    line("instances made a CPU second, kinds A to D", speed, 20, "1/s", below=False)
    few = instances[:3]
    line("memory of 200 rounds against 50 rounds, 3 instances, 30 states kept", held(few, 200) / held(few, 50), 1.5)


if __name__ == "__main__":
    conflicts()
    growth()
    loop()
