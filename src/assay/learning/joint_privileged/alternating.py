"""Coupled training of any two estimators: by turns, each fitted to the labels and to what the other one says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from assay.errors import InputError

from .inputs import Table, Training, take

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LEAST = 1e-6
"""Least probability in a logarithm, and least weight of a class that a row is fitted with."""


def checked(name: str, estimator: Any, classifier: bool) -> None:
    """Refuse an estimator that cannot be fitted by turns: it must take weights, and a classifier give probabilities."""
    if not hasattr(estimator, "fit") or isinstance(estimator, type):
        raise TypeError(f"{name} must be an estimator of scikit-learn's kind, got {estimator!r}")
    if _weight_name(estimator) is None:
        raise TypeError(
            f"{name}={type(estimator).__name__}() does not take sample_weight in fit, which coupled training needs to "
            "weigh labels against agreement"
        )
    needed = "predict_proba" if classifier else "predict"
    if not hasattr(estimator, needed):
        raise TypeError(f"{name}={type(estimator).__name__}() has no {needed}")


def allows_nan(estimator: Any) -> bool:
    """Whether an estimator takes NaN, by its tags."""
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.allow_nan)
    except AttributeError:  # an estimator that is older than tags
        return False


def _weight_name(estimator: Any) -> str | None:
    """By what name ``fit`` takes weights; of a pipeline, its last step's."""
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner = _weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


class Constant(BaseEstimator):
    """The same class for every row, where the labels that are left have one."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    @property
    def classes_(self) -> NDArray[np.int64]:
        """(1,) the class."""
        return np.array([self.value])

    def fit(self, X: Table, y: Any = None) -> Constant:
        """Nothing to learn."""
        return self

    def predict_proba(self, X: Table) -> FloatArray:
        """Return ones (n, 1)."""
        return np.ones((len(X), 1))


@dataclass(frozen=True)
class ModelFits:
    """Fitted pairs of models, one a grid point; g is None where lam is 0, for it is f then.

    Attributes
    ----------
    pairs
        (f, g) of each point.
    losses
        For each the loss after each turn, without penalties that the estimators may have.
    n_classes
        0 for regression.
    """

    pairs: tuple[tuple[Any, Any], ...]
    losses: tuple[tuple[float, ...], ...]
    n_classes: int

    def outputs(self, X: Table) -> FloatArray:
        """(grid, n, k) what each f says of rows: a number, or a probability of each class."""
        return np.stack([says(f, X, self.n_classes) for f, _ in self.pairs])

    def privileged_outputs(self, X: Table, Z: Table) -> FloatArray:
        """(grid, n, k) what each g says."""
        return np.stack(
            [says(f, X, self.n_classes) if g is None else says(g, Z, self.n_classes) for f, g in self.pairs]
        )


def says(model: Any, rows: Table, n_classes: int) -> FloatArray:
    """(n, k) a model's predictions, or its probabilities with a column for every class."""
    if n_classes == 0:
        values = np.asarray(model.predict(rows), dtype=np.float64)
        if values.shape != (len(rows),):
            values = values.reshape(len(rows), 1)[:, 0]
        return values[:, None]
    found = np.asarray(model.predict_proba(rows), dtype=np.float64)
    full = np.zeros((len(rows), n_classes))
    full[:, np.asarray(model.classes_, dtype=int)] = found
    return full


class AlternatingGrid:
    """Pairs of estimators for all points of a grid; the first number of a point means nothing here."""

    def __init__(
        self,
        data: Training,
        grid: Sequence[tuple[float, float]],
        estimator: Any,
        privileged_estimator: Any,
        max_iter: int,
        tol: float,
        seed: int | None,
        n_classes: int = 0,
    ) -> None:
        self.data, self.grid, self.max_iter, self.tol = data, list(grid), max_iter, tol
        self.n_classes = n_classes
        self.estimator, self.privileged_estimator = (_seeded(e, seed) for e in (estimator, privileged_estimator))

    def fit(self, hidden: IntArray | None = None, points: Sequence[int] | None = None) -> ModelFits:
        """Fit the points, all by default, with the labels of the rows ``hidden`` taken away."""
        chosen = [self.grid[i] for i in (range(len(self.grid)) if points is None else points)]
        visible = self.data.labelled.copy()
        if hidden is not None:
            visible[hidden] = False
        rows = _Rows(self, visible)
        pairs, losses = [], []
        for _, lam in chosen:
            f, g, loss = self._pair(rows, lam)
            pairs.append((f, g))
            losses.append(tuple(loss))
        return ModelFits(tuple(pairs), tuple(losses), self.n_classes)

    def outputs(self, fits: ModelFits, rows: IntArray) -> FloatArray:
        """(grid, n, k) what each f says of some training rows."""
        return fits.outputs(take(self.data.X, rows))

    def _pair(self, rows: _Rows, lam: float) -> tuple[Any, Any, list[float]]:
        if lam == 0 or not rows.with_w.any():
            f = rows.fit_f(None)
            return f, None, [rows.loss(rows.of(f, "x"), None, 0.0)]
        g = rows.first_g()
        if math.isinf(lam) or not rows.pairs.any():
            f = rows.fit_f(rows.of(g, "z"))
            return f, g, [rows.loss(rows.of(f, "x"), rows.of(g, "z"), 0.0)]
        before: FloatArray | None = None
        losses: list[float] = []
        for _ in range(self.max_iter):
            f = rows.fit_f(rows.of(g, "z"))
            said = rows.of(f, "x")
            g = rows.fit_g(said, lam)
            losses.append(rows.loss(said, rows.of(g, "z"), lam))
            if before is not None and np.linalg.norm(said - before) <= self.tol * np.linalg.norm(said):
                break
            before = said
        return f, g, losses


class _Rows:
    """The rows of one fit, with the labels that may be seen."""

    def __init__(self, grid: AlternatingGrid, visible: NDArray[np.bool_]) -> None:
        self.grid, self.data = grid, grid.data
        self.visible = visible
        self.pairs = ~visible & self.data.has_w
        self.with_w = visible & self.data.has_w
        self.tables = {"x": self.data.X, "z": self.data.Z}
        self._first: Any = None

    def of(self, model: Any, which: str) -> FloatArray:
        """(n, k) what a model says of all rows that it can see; 0 of rows without W, for g."""
        usable = np.ones(len(self.visible), dtype=bool) if which == "x" else self.data.has_w
        out = np.zeros((len(usable), max(self.grid.n_classes, 1)))
        out[usable] = says(model, take(self.tables[which], usable), self.grid.n_classes)
        return out

    def first_g(self) -> Any:
        """Return g of the labels alone, the same for every lam."""
        if self._first is None:
            self._first = self._fit(self.grid.privileged_estimator, "z", self.with_w, None, None, 1.0)
        return self._first

    def fit_f(self, said_by_g: FloatArray | None) -> Any:
        """Return f of the labels, and of what g says elsewhere."""
        pairs = None if said_by_g is None else self.pairs
        return self._fit(self.grid.estimator, "x", self.visible, pairs, said_by_g, 1.0)

    def fit_g(self, said_by_f: FloatArray, lam: float) -> Any:
        """Return g of what f says, and of the labels with the weight lam."""
        return self._fit(self.grid.privileged_estimator, "z", self.with_w, self.pairs, said_by_f, lam)

    def _fit(
        self,
        estimator: Any,
        which: str,
        labels: NDArray[np.bool_],
        pairs: NDArray[np.bool_] | None,
        said: FloatArray | None,
        lam: float,
    ) -> Any:
        data, K = self.data, self.grid.n_classes
        numbers, weights = [np.flatnonzero(labels)], [lam * data.label_weight[labels]]
        targets = [targets_of(data.y[labels], K)]
        if pairs is not None and said is not None and pairs.any():
            others = np.flatnonzero(pairs)
            for c in range(K):  # a row once a class, with the other model's probability as its weight
                likely = said[others, c] > LEAST
                numbers.append(others[likely])
                weights.append(data.weight[others[likely]] * said[others[likely], c])
                targets.append(np.full(int(likely.sum()), c))
            if K == 0:
                numbers.append(others)
                weights.append(data.weight[others])
                targets.append(said[others, 0])
        rows, weight, target = (np.concatenate(parts) for parts in (numbers, weights, targets))
        if K and len(np.unique(target)) == 1:
            return Constant(int(target[0]))
        model = clone(estimator)
        model.fit(take(self.tables[which], rows), target, **{str(_weight_name(model)): weight})
        return model

    def loss(self, f: FloatArray, g: FloatArray | None, lam: float) -> float:
        """Squared losses, or log-losses with cross entropy between the models."""
        data, y = self.data, self.data.y
        s, label = data.weight, data.label_weight
        if self.grid.n_classes == 0:
            total = np.sum(label[self.visible] * np.sum((y - f)[self.visible] ** 2, axis=1))
            if g is not None:
                total += np.sum(s[self.pairs] * np.sum((g - f)[self.pairs] ** 2, axis=1))
                total += lam * np.sum(label[self.with_w] * np.sum((y - g)[self.with_w] ** 2, axis=1))
            return float(total)
        onehot = np.eye(self.grid.n_classes)[targets_of(y, self.grid.n_classes)]
        log_f = np.log(np.maximum(f, LEAST))
        total = -np.sum(label[self.visible] * np.sum((onehot * log_f)[self.visible], axis=1))
        if g is not None:
            total -= np.sum(s[self.pairs] * np.sum((g * log_f)[self.pairs], axis=1))
            log_g = np.log(np.maximum(g, LEAST))
            total -= lam * np.sum(label[self.with_w] * np.sum((onehot * log_g)[self.with_w], axis=1))
        return float(total)


def targets_of(y: FloatArray, n_classes: int) -> NDArray[Any]:
    """Numbers of classes from indicators (n, 1) of two classes or (n, K), or numbers as they are."""
    if n_classes == 0:
        return y[:, 0]
    return y[:, 0].astype(np.int64) if y.shape[1] == 1 else y.argmax(axis=1)


def _seeded(estimator: Any, seed: int | None) -> Any:
    """A clone whose unset ``random_state`` is the seed."""
    try:
        new = clone(estimator)
    except TypeError as error:
        raise InputError(f"the estimator cannot be cloned: {error}") from None
    if seed is not None:
        names = [
            n
            for n, v in new.get_params().items()
            if v is None and (n == "random_state" or n.endswith("__random_state"))
        ]
        new.set_params(**dict.fromkeys(names, seed))
    return new
