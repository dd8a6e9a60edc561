"""Speed and memory of coupled training against a two-stage grid search: ``python benchmarks/joint_privileged.py``.

One process, one thread, the contenders in turns, medians of CPU seconds. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import math
import tracemalloc
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from assay.errors import MissingPart
from assay.learning.joint_privileged import CoupledClassifier, CoupledRegressor, LabelledKFold
from assay.learning.joint_privileged.samples import rhc
from timing import line, seconds

Table = tuple[np.ndarray, np.ndarray, np.ndarray]


class TwoStages(RegressorMixin, BaseEstimator):
    """The script that one would write: ``columns`` of X are the inputs, all of X is what the teacher sees."""

    def __init__(self, columns: int = 1, first: float = 1.0, second: float = 1.0) -> None:
        self.columns, self.first, self.second = columns, first, second

    def fit(self, Z: np.ndarray, y: np.ndarray) -> TwoStages:
        """Fit a ridge on the labels, let it fill in the others, and fit a ridge of the inputs to that."""
        seen = ~np.isnan(y)
        self.scale_z, self.scale_x = StandardScaler().fit(Z), StandardScaler().fit(Z[:, : self.columns])
        whole = self.scale_z.transform(Z)
        said = Ridge(self.first).fit(whole[seen], y[seen]).predict(whole)
        X = self.scale_x.transform(Z[:, : self.columns])
        self.model = Ridge(self.second).fit(X, np.where(seen, y, said))
        return self

    def predict(self, Z: np.ndarray) -> np.ndarray:
        """Predict from the inputs."""
        return self.model.predict(self.scale_x.transform(Z[:, : self.columns]))


def coupled(table: Table, **how: object) -> object:
    X, W, y = table
    return CoupledRegressor(random_state=0, **how).fit(X, y, W=W)


def grid_search(table: Table) -> object:
    """30 candidates and 5 folds, as the coupled model has by default."""
    X, W, y = table
    grid = {"first": np.logspace(-1, 2, 10), "second": [0.3, 3.0, 30.0]}
    return GridSearchCV(TwoStages(X.shape[1]), grid, cv=LabelledKFold(5, random_state=0)).fit(np.hstack([X, W]), y)


def synthetic(n: int, m: int, p: int, k: int) -> Table:
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((n + m, p)), rng.standard_normal((n + m, k))
    y = X[:, 0] + W[:, 0] + rng.standard_normal(n + m)
    return X, W, np.where(np.arange(n + m) < n, y, np.nan)


def peak_copies(work: Callable[[], object], table: Table) -> float:
    """Most memory held above the level before, in copies of X and W."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (table[0].nbytes + table[1].nbytes)


def main() -> None:
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        try:
            given, _ = rhc(np.random.default_rng(0), "real")
            table: Table = (given.X, given.W, given.y)
        except MissingPart as missing:
            print(missing, "(a table of random numbers of that size stands in)")
            table = synthetic(40, 1000, 8, 12)
        times = seconds({"coupled": partial(coupled, table), "grid search": partial(grid_search, table)}, turns=5)
        print(f"rhc-real, 30 candidates × 5 folds: {', '.join(f'{k} {1e3 * v:.0f} ms' for k, v in times.items())}")
        line(
            "  time of CoupledRegressor / GridSearchCV of two stages", times["coupled"] / times["grid search"], 1.5, "×"
        )

        growth = {m: partial(coupled, synthetic(100, m, 50, 50)) for m in (20_000, 40_000)}
        times = seconds({str(m): work for m, work in growth.items()}, turns=3)
        print("100 + m rows, 50 + 50 columns: " + ", ".join(f"m={m} {1e3 * t:.0f} ms" for m, t in times.items()))
        line("  time with twice the unlabelled rows", times["40000"] / times["20000"], 2.0, "×")

        widths = (100, 200, 400, 800)
        times = seconds({str(k): partial(coupled, synthetic(100, 2000, 20, k)) for k in widths}, turns=2)
        slope = np.polyfit(np.log(widths), np.log(list(times.values())), 1)[0]
        print("100 + 2000 rows, 20 + k columns: " + ", ".join(f"k={k} {1e3 * t:.0f} ms" for k, t in times.items()))
        line("  log-log slope of time on k (3 is a factorisation's)", slope, 3, "")

        large = synthetic(100, 20_000, 100, 100)
        line(
            "  peak memory at 20 100 rows, 100 + 100 columns", peak_copies(partial(coupled, large), large), 6, "copies"
        )
        widths = (5000, 10_000, 20_000)
        greedy = {k: synthetic(100, 200, k, 50) for k in widths}
        how = {"solver": "greedy", "lams": (0, 3.0, math.inf), "n_atoms": (2, 5, 10)}
        times = seconds({str(k): partial(coupled, t, **how) for k, t in greedy.items()}, turns=2)
        slope = np.polyfit(np.log(widths), np.log(list(times.values())), 1)[0]
        print("greedy, 300 rows: " + ", ".join(f"{k} columns {1e3 * t:.0f} ms" for k, t in times.items()))
        line("  log-log slope of the greedy solver's time on columns", slope, 1.2, "")
        copies = peak_copies(partial(coupled, greedy[20_000], **how), greedy[20_000])
        line("  the greedy solver's peak memory at 20 000 columns", copies, 8, "copies")

        X, W, y = synthetic(100, 2000, 10, 20)
        labels = np.where(np.isnan(y), -1, y > 0).astype(int)
        classify = seconds({"c": lambda: CoupledClassifier(random_state=0).fit(X, labels, W=W)}, turns=1)["c"]
        regress = seconds({"r": partial(coupled, (X, W, y))}, turns=3)["r"]
        print(
            f"classifier, 2100 rows, 10 + 20 columns: {classify:.1f} s, {classify / regress:.0f} times the regressor's"
        )


if __name__ == "__main__":
    main()
