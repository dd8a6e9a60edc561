"""What the benchmarks share: contenders timed in turns, and the line that says whether a bar is met."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np


def seconds(contenders: Mapping[str, Callable[[], object]], turns: int, quantile: float = 0.5) -> dict[str, float]:
    """CPU seconds of each contender, the median of its turns; they take turns so that a slow spell hits all."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, work in contenders.items():
            start = time.process_time()
            work()
            if turn:  # the first turn warms up
                times[name].append(time.process_time() - start)
    return {name: float(np.quantile(taken, quantile)) for name, taken in times.items()}


def line(what: str, measured: float, bar: float, unit: str = "×", below: bool = True) -> None:
    """Print what was measured, the bar, and whether it is met."""
    met = measured <= bar if below else measured >= bar
    print(
        f"{what:<78} {measured:9.3g} {unit:<7} {'≤' if below else '≥'} {bar:<6g} {'met' if met else 'NOT MET'}",
        flush=True,
    )
