"""Speed and memory of KnockoffPCA against its peers, side by side: ``python benchmarks/knockoff_pca.py``.

One process, one thread, the contenders in turns, medians of the runs. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from assay.errors import MissingPart
from assay.statistics.knockoff_pca import KnockoffPCA, baselines
from assay.statistics.knockoff_pca.samples import spiked_mixture

Work = Callable[[np.ndarray], object]


def table(n: int, d: int, share: float = 0.1) -> np.ndarray:
    return spiked_mixture(np.random.default_rng(0), n, d, share)[0]


def seconds(contenders: dict[str, Work], X: np.ndarray, runs: int) -> dict[str, float]:
    """Median seconds of each contender, run in turns so that a slow spell hits all."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        for name, work in contenders.items():
            start = time.perf_counter()
            work(X)
            if turn:  # The first turn warms up.
                times[name].append(time.perf_counter() - start)
    return {name: float(np.median(t)) for name, t in times.items()}


def peak_copies(work: Work, X: np.ndarray) -> float:
    """Most memory held above the level before, in copies of X."""
    tracemalloc.start()
    work(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / X.nbytes


def knockoff(X: np.ndarray) -> object:
    return KnockoffPCA(2, random_state=0).fit(X)


def line(what: str, measured: float, bar: float, unit: str, below: bool = True) -> None:
    good = measured <= bar if below else measured >= bar
    print(f"{what:<66} {measured:8.2f} {unit:<7} {'≤' if below else '≥'} {bar:<5g} {'met' if good else 'NOT MET'}")


def main() -> None:
    n, d = 1000, 900
    contenders: dict[str, Work] = {
        "knockoff": knockoff,
        "pca": PCA(2, svd_solver="full").fit,
    }
    try:
        baselines.robpca(table(60, 20), 2, 0)
        contenders["robpca"] = partial(baselines.robpca, r=2, seed=0)
    except MissingPart as missing:
        print(missing)
    with threadpool_limits(1):
        for share in (0.1, 0.0):
            times = seconds(contenders, table(n, d, share), runs=7)
            print(f"n={n}, d={d}, {share:.0%} shifted: " + ", ".join(f"{k} {1e3 * v:.0f} ms" for k, v in times.items()))
            line("  time of KnockoffPCA / time of PCA(svd_solver='full')", times["knockoff"] / times["pca"], 3, "×")
            if "robpca" in times:
                ratio = times["robpca"] / times["knockoff"]
                line("  time of robpy's ROBPCA / time of KnockoffPCA", ratio, 5, "×", below=False)
        widths = (4000, 8000, 16000, 32000)
        growth = [seconds({"knockoff": knockoff}, table(200, width), runs=3)["knockoff"] for width in widths]
        slope = np.polyfit(np.log(widths), np.log(growth), 1)[0]
        print("n=200: " + ", ".join(f"d={w} {1e3 * t:.0f} ms" for w, t in zip(widths, growth, strict=True)))
        line("  log-log slope of time on d (1 is linear)", slope, 1.1, "")
        for shape in ((n, d), (200, 20_000), (50_000, 20), (2500, 2000)):
            line(f"  peak memory at n={shape[0]}, d={shape[1]}", peak_copies(knockoff, table(*shape)), 3, "copies")


if __name__ == "__main__":
    main()
