"""Speed of Sinkhorn, rounding and exact plans, against POT and simple ways: ``python benchmarks/transport.py``.

One process, one thread, the contenders in turns, medians of CPU seconds. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from assay.numerics.transport import exact_plan, round_balanced, sinkhorn

ROUNDS, TURNS = 20, 15


def medians(contenders: dict[str, Callable[[], Any]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, work in contenders.items():
            start = time.process_time()
            work()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def one_by_one(plan: np.ndarray, capacity: int) -> list[int]:
    """The greedy rounding as it is defined."""
    n, m = plan.shape
    left, column = [capacity] * m, [-1] * n
    for flat in np.argsort(-plan, axis=None, kind="stable").tolist():
        i, e = divmod(flat, m)
        if column[i] < 0 and left[e] > 0:
            column[i] = e
            left[e] -= 1
    return column


def main() -> None:
    torch.set_num_threads(1)
    try:
        import ot
    except ModuleNotFoundError:
        ot = None
        print("without POT: python -m pip install POT")
    for rows, cols in ((1536, 8), (14336, 8), (4096, 64)):
        size = rows // cols
        logits = torch.randn(rows, cols, generator=torch.Generator().manual_seed(0))
        plan = sinkhorn(logits, 1.0, float(size), ROUNDS)
        numbers = plan.numpy()

        def both(logits=logits, size=size) -> None:
            leaf = logits.clone().requires_grad_()
            sinkhorn(leaf, 1.0, float(size), ROUNDS).square().sum().backward()

        def peer(logits=logits, rows=rows, cols=cols, size=size) -> None:
            ot.bregman.sinkhorn_log(
                torch.ones(rows), torch.full((cols,), float(size)), -logits, 1.0, numItermax=ROUNDS, stopThr=0.0,
                warn=False,
            )  # fmt: skip

        contenders = {
            "plan": lambda logits=logits, size=size: sinkhorn(logits, 1.0, float(size), ROUNDS),
            "plan and gradient": both,
            "round": lambda plan=plan, size=size: round_balanced(plan, size),
            "one entry at a time": lambda numbers=numbers, size=size: one_by_one(numbers, size),
        }
        if ot is not None:
            contenders["plan by POT"] = peer
        took = medians(contenders)
        print(f"{rows} × {cols}: " + ", ".join(f"{name} {1e3 * t:.1f} ms" for name, t in took.items()))
        print(f"  rounding, times as fast as one entry at a time: {took['one entry at a time'] / took['round']:.1f}")
        if ot is not None:
            print(f"  plan, times as fast as POT in the log domain: {took['plan by POT'] / took['plan']:.1f}")
        if (rows, cols) == (1536, 8):
            met = took["round"] < 5e-3
            print(f"  12 288 entries rounded in {1e3 * took['round']:.1f} ms (under 5): {'met' if met else 'NOT MET'}")
    if ot is not None:
        exact(ot)


def exact(ot: Any) -> None:
    """What the checks cost beside POT's solver, and what leaving out empty rows and columns gains."""
    rng = np.random.default_rng(0)
    for rows, cols, share in ((100, 10, 1.0), (1000, 10, 1.0), (1000, 1000, 1.0), (1000, 1000, 0.3)):
        cost = rng.random((rows, cols))
        row = rng.random(rows) * (rng.random(rows) < share)
        col = rng.random(cols) * (rng.random(cols) < share)
        row, col = row / row.sum(), col / col.sum()
        took = medians(
            {
                "ours": lambda cost=cost, row=row, col=col: exact_plan(cost, row, col),
                "POT": lambda cost=cost, row=row, col=col: ot.emd(row, col, cost, numItermax=10_000_000),
            }
        )
        print(
            f"exact {rows} × {cols}, {share:.0%} with a mass: {1e3 * took['ours']:.2f} ms, "
            f"times POT's own {took['ours'] / took['POT']:.2f}"
        )


if __name__ == "__main__":
    main()
