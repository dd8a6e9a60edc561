"""The study: clean and contaminated samples, the plain mean and the median."""

from pathlib import Path

import numpy as np
import pandas as pd

from assay.evidence.claim import at_most, holds, lower, within
from assay.evidence.study import Arm, Budget, Study, Task
from trimmed_mean.location import trimmed_mean

ROWS = {Budget.SMOKE: 100, Budget.QUICK: 200, Budget.FULL: 500, Budget.PAPER: 2000}


def clean(seed, budget):
    x = np.random.default_rng(seed).normal(size=(ROWS[budget], 5))
    return x, np.zeros(5)


def contaminated(seed, budget):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS[budget], 5))
    x[: len(x) // 20] += 20
    return rng.permutation(x), np.zeros(5)


def score(output, truth):
    output = np.asarray(output, dtype=float)
    if output.shape != truth.shape:
        raise ValueError(f"an estimate has shape {truth.shape}, not {output.shape}")
    return {"error": np.linalg.norm(output - truth), "finite": bool(np.isfinite(output).all())}


def from_table(brought: dict[str, Path]) -> Study:
    table = pd.read_csv(brought["data"]).to_numpy(float)

    def half(seed, budget):
        order = np.random.default_rng(seed).permutation(len(table))
        middle = len(table) // 2
        return table[order[:middle]], np.median(table[order[middle:]], axis=0)

    return Study(
        name="trimmed-mean",
        tasks=(Task("yours", half, score, "half of your rows against the median of the rest"),),
        arms=ARMS,
        claims=(lower("error", "trimmed", than="mean"),),
        primary="error",
        better="lower",
        contract=CONTRACT,
    )


ARMS = (
    Arm("trimmed", lambda given, seed, budget: trimmed_mean(given), "method", "the mean without the tails"),
    Arm("mean", lambda given, seed, budget: given.mean(axis=0), "baseline"),
    Arm("one-row", lambda given, seed, budget: given[seed % len(given)], "trivial", "a row drawn by chance"),
)
CONTRACT = "given is an array (rows, 5); return its location, an array (5,)"
STUDY = Study(
    name="trimmed-mean",
    tasks=(
        Task("clean", clean, score, "normal noise", control=True),
        Task("contaminated", contaminated, score, "5 % of the rows moved by 20"),
    ),
    arms=ARMS,
    claims=(
        lower("error", "trimmed", than=["mean", "one-row"], ratio=0.5, tasks="contaminated"),
        within("error", "trimmed", of="mean", by=0.1, tasks="clean"),
        at_most("error", "trimmed", 0.01, tasks="clean", needs="many more rows"),
        holds("finite", "trimmed"),
    ),
    primary="error",
    better="lower",
    metrics={"error": "distance to the true location"},
    contract=CONTRACT,
    seeds={Budget.SMOKE: 5, Budget.QUICK: 10, Budget.FULL: 20, Budget.PAPER: 20},
    accepts={"data": "a CSV file of numbers, rows = samples"},
    own=from_table,
)
