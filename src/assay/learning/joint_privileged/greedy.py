"""Sparse coupled least squares for very many columns: a column a round for f and for g, refitted together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .linear import LinearData, LinearFits, Point, completed_fits
from .ridge import FloatArray, Moments, System, path

COLUMNS_A_TIME = 2048


class GreedyGrid:
    """For each lam a sequence of models with more and more columns.

    A round adds to g the column with the largest |z_j' r| / |z_j| for the residual r of g (to f where there is no
    label, and lam times to the labels), then to f the one for its residual (to the labels, and to g where there is
    none). After each, f and g are refitted on the columns that they have, by minimising the loss over both together.
    All lam are worked on at once, so that a round reads the columns twice. The points of the grid are (number of
    columns of each, lam).
    """

    def __init__(self, data: LinearData, grid: Sequence[Point], alpha: float) -> None:
        self.data, self.grid, self.alpha = data, list(grid), alpha

    def fit(self, hidden: NDArray[np.int64] | None = None, points: Sequence[int] | None = None) -> LinearFits:
        """Fit the points, all by default, with the labels of the rows ``hidden`` taken away."""
        data = self.data
        visible = data.labelled.copy()
        if hidden is not None:
            visible[hidden] = False
        chosen = [self.grid[i] for i in (range(len(self.grid)) if points is None else points)]
        lams = list(dict.fromkeys(lam for _, lam in chosen))
        rounds = int(max(size for size, _ in chosen))
        f, g = np.zeros((len(chosen), 1 + data.p, 1)), np.zeros((len(chosen), 1 + data.q, 1))
        losses: list[tuple[float, ...]] = [()] * len(chosen)
        for t, models in enumerate(_rounds(data, visible, lams, rounds, self.alpha), start=1):
            for i, (size, lam) in enumerate(chosen):
                if size == t:
                    model = models[lams.index(lam)]
                    f[i, [0, *(1 + j for j in model.in_f)], 0] = model.f
                    g[i, [0, *(1 + j for j in model.in_g)], 0] = model.g
                    losses[i] = tuple(model.losses)
        return LinearFits(*completed_fits(f, g, chosen), tuple(losses))

    def outputs(self, fits: LinearFits, rows: NDArray[np.int64]) -> FloatArray:
        """(grid, n, 1) what each f says of some training rows."""
        return self.data.outputs(fits, rows)


class _Model:
    """The columns of f and g for one lam, their coefficients (the intercept first), and the loss so far.

    The columns lie side by side with their products over the labelled rows, those of them that have W, and the
    unlabelled rows; a new one adds a row to each table of products.
    """

    def __init__(self, data: LinearData, visible: NDArray[np.bool_], lam: float, rounds: int, alpha: float) -> None:
        self.lam, self.alpha = lam, alpha
        self.in_f: list[int] = []
        self.in_g: list[int] = []
        self.f, self.g = np.zeros(1), np.zeros(1)
        self.losses: list[float] = []
        size, s, self.y = 1 + 2 * rounds, data.weight, data.y[:, 0]
        rows = {"all": visible, "with_w": visible & data.has_w, "pairs": ~visible & data.has_w}
        self.weights = {name: np.where(rows_, s, 0.0) for name, rows_ in rows.items()}
        self.products = {name: np.zeros((size, size)) for name in rows}
        self.with_y = {name: np.zeros(size) for name in rows}
        self.squares = {name: float(weight @ self.y**2) for name, weight in self.weights.items()}
        self.columns = np.zeros((size, len(s)))
        self.of_f, self.of_g, self.count = [0], [0], 0
        self._append(np.ones(len(s)))

    def _append(self, column: FloatArray) -> None:
        k = self.count
        self.columns[k] = column
        for name, weight in self.weights.items():
            row = self.columns[: k + 1] @ (weight * column)
            self.products[name][k, : k + 1] = self.products[name][: k + 1, k] = row
            self.with_y[name][k] = self.y @ (weight * column)
        self.count += 1

    def add(self, which: str, j: int, column: FloatArray) -> None:
        """Give f (``"f"``) or g (``"g"``) the column j."""
        (self.in_f if which == "f" else self.in_g).append(j)
        (self.of_f if which == "f" else self.of_g).append(self.count)
        self._append(column)

    def refit(self) -> None:
        """Minimise the loss over f and g together."""
        f, g, by = np.array(self.of_f), np.array(self.of_g), self.products
        labelled = Moments(
            by["all"][np.ix_(f, f)], by["with_w"][np.ix_(f, f)], by["with_w"][np.ix_(f, g)], by["with_w"][np.ix_(g, g)],
            self.with_y["all"][f, None], self.with_y["with_w"][g, None],
        )  # fmt: skip
        pairs = by["pairs"]
        unlabelled = Moments(
            pairs[np.ix_(f, f)], pairs[np.ix_(f, f)], pairs[np.ix_(f, g)], pairs[np.ix_(g, g)],
            np.zeros((len(f), 1)), np.zeros((len(g), 1)),
        )  # fmt: skip
        system = System.of(labelled, unlabelled)
        of_f, of_g = path(system, self.alpha, [self.lam])
        self.f, self.g = of_f[0, :, 0], of_g[0, :, 0]
        if self.lam == 0:  # g is f
            self.of_g, self.in_g, self.g = list(self.of_f), list(self.in_f), self.f.copy()
        self.losses.append(
            system.objective(of_f[0], of_g[0], self.lam, self.alpha, self.squares["all"], self.squares["with_w"])
        )

    def says(self, which: str) -> FloatArray:
        """(n,) what f or g says of the rows."""
        numbers, coef = (self.of_f, self.f) if which == "f" else (self.of_g, self.g)
        coef = np.concatenate([coef, np.zeros(len(numbers) - len(coef))])
        return coef @ self.columns[numbers]


def _rounds(
    data: LinearData, visible: NDArray[np.bool_], lams: Sequence[float], rounds: int, alpha: float
) -> Iterator[list[_Model]]:
    """The models of all lam after each round."""
    s, y = data.weight, data.y[:, 0]
    pairs, with_w = ~visible & data.has_w, visible & data.has_w
    weights_f = np.column_stack([np.where(visible | (pairs & (lam > 0)), s, 0.0) for lam in lams])
    weights_g = np.column_stack(
        [np.where(pairs & math.isfinite(lam), s, 0.0) + _times(lam) * np.where(with_w, s, 0.0) for lam in lams]
    )
    norms_f, norms_g = _norms(data.X, weights_f), _norms(data.Z, weights_g)
    models = [_Model(data, visible, lam, rounds, alpha) for lam in lams]
    for model in models:
        model.refit()
        model.losses.clear()
    for _ in range(rounds):
        before = [model.count for model in models]
        for which, columns, weights, norms in (
            ("g", data.Z, weights_g, norms_g),
            ("f", data.X, weights_f, norms_f),
        ):
            sizes = [model.count for model in models]
            other = "f" if which == "g" else "g"
            residuals = [np.where(visible, y, m.says(other)) - m.says(which) for m in models]
            _add(models, which, columns, weights, norms, residuals)
            for model, size in zip(models, sizes, strict=True):
                if model.count > size:
                    model.refit()
        for model, size in zip(models, before, strict=True):
            if model.count == size + 2 and model.lam > 0:
                del model.losses[-2]  # one a round
        yield models


def _add(
    models: list[_Model],
    which: str,
    columns: FloatArray,
    weights: FloatArray,
    norms: FloatArray,
    residuals: list[FloatArray],
) -> None:
    """Give each model the column that is most in line with its residual, if there is one."""
    score = np.abs(columns.T @ (weights * np.column_stack(residuals)))
    np.divide(score, norms, out=score, where=norms > 0)
    score[norms <= 0] = 0
    for i, model in enumerate(models):
        if len(score) == 0 or (model.lam == 0 and which == "g"):
            continue
        score[model.in_f if which == "f" else model.in_g, i] = 0
        best = int(np.argmax(score[:, i]))
        if score[best, i] > 0:
            model.add(which, best, columns[:, best])


def _times(lam: float) -> float:
    return lam if math.isfinite(lam) else 1.0


def _norms(columns: FloatArray, weights: FloatArray) -> FloatArray:
    """(d, len(lams)) length of each column about its weighted mean; some columns at a time, so that no copy is made."""
    out = np.empty((columns.shape[1], weights.shape[1]))
    total = np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
    for start in range(0, columns.shape[1], COLUMNS_A_TIME):
        part = columns[:, start : start + COLUMNS_A_TIME]
        squares = (part**2).T @ weights
        variance = squares - (part.T @ weights) ** 2 / total
        out[start : start + COLUMNS_A_TIME] = np.where(variance > 1e-12 * squares, np.sqrt(np.maximum(variance, 0)), 0)
    return out
