"""What one does without coupled training, on scikit-learn's models: labels only, two stages, and a choice of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Lasso, LassoCV, LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from assay.numerics.aggregate import exp_weights

from .samples import Given

FloatArray = NDArray[np.float64]

ALPHAS = (0.3, 3.0, 30.0)
FOLDS = 5


@dataclass(frozen=True)
class Path:
    """A recipe at every alpha: losses on held-out labels, and predictions of the test rows.

    Attributes
    ----------
    losses
        (alphas,) mean loss.
    outputs
        (alphas, t) predictions, or (alphas, t, K) log-probabilities.
    n
        Number of labels.
    """

    losses: FloatArray
    outputs: FloatArray
    n: int


def labels_only(given: Given, seed: int, alphas: tuple[float, ...] = ALPHAS) -> Path:
    """Ridge (logistic) regression on the labelled rows."""
    return _path(given, seed, alphas, two_stages=False)


def two_stages(given: Given, seed: int, alphas: tuple[float, ...] = ALPHAS) -> Path:
    """A model of inputs and W on the labels; what it says of other rows, and the labels, teach a model of inputs."""
    return _path(given, seed, alphas, two_stages=True)


def best(path: Path) -> FloatArray:
    """The predictions at the alpha of the least loss."""
    return path.outputs[int(np.argmin(path.losses))]


def selected(one: Path, other: Path) -> FloatArray:
    """The predictions of the recipe and alpha of the least loss."""
    return best(one) if one.losses.min() <= other.losses.min() else best(other)


def averaged(one: Path, other: Path, classes: int) -> FloatArray:
    """The average of both recipes at all alphas, with weights that fall exponentially with the losses."""
    losses, outputs = np.concatenate([one.losses, other.losses]), np.concatenate([one.outputs, other.outputs])
    weights = exp_weights(losses * one.n if classes else losses * one.n / (2 * losses.min()))
    mean = np.tensordot(weights, outputs, axes=1)
    return mean - np.logaddexp.reduce(mean, axis=-1, keepdims=True) if classes else mean


def _path(given: Given, seed: int, alphas: tuple[float, ...], two_stages: bool) -> Path:
    X, Z = StandardScaler().fit_transform(given.X), StandardScaler().fit_transform(np.hstack([given.X, given.W]))
    X_test = StandardScaler().fit(given.X).transform(given.X_test)
    labelled = np.flatnonzero(given.y != -1 if given.classes else ~np.isnan(given.y))
    kind = StratifiedKFold if given.classes else KFold
    folds = kind(FOLDS, shuffle=True, random_state=seed % 2**32).split(labelled, given.y[labelled])
    losses = np.zeros(len(alphas))
    for train, test in folds:
        for j, alpha in enumerate(alphas):
            said = _fitted(X, Z, given, labelled[train], alpha, two_stages, X[labelled[test]])
            losses[j] += _loss(said, given.y[labelled[test]], given.classes)
    outputs = [_fitted(X, Z, given, labelled, alpha, two_stages, X_test) for alpha in alphas]
    return Path(losses / len(labelled), np.stack(outputs), len(labelled))


def _fitted(
    X: FloatArray,
    Z: FloatArray,
    given: Given,
    labels: NDArray[np.int64],
    alpha: float,
    two_stages: bool,
    rows: FloatArray,
) -> FloatArray:
    rest = np.setdiff1d(np.arange(len(X)), labels)
    y = given.y[labels]
    if not given.classes:
        if not two_stages:
            return Ridge(alpha).fit(X[labels], y).predict(rows)
        said = Ridge(alpha).fit(Z[labels], y).predict(Z[rest])
        return Ridge(alpha).fit(np.vstack([X[labels], X[rest]]), np.concatenate([y, said])).predict(rows)
    if not two_stages:
        return _log_proba(LogisticRegression(C=1 / alpha, max_iter=1000).fit(X[labels], y), rows, given.classes)
    chances = np.exp(
        _log_proba(LogisticRegression(C=1 / alpha, max_iter=1000).fit(Z[labels], y), Z[rest], given.classes)
    )
    # A row once a class, weighted with its probability: soft labels.
    table = np.vstack([X[labels], *[X[rest]] * given.classes])
    target = np.concatenate([y, np.repeat(np.arange(given.classes), len(rest))])
    weight = np.concatenate([np.ones(len(labels)), chances.T.ravel()])
    model = LogisticRegression(C=1 / alpha, max_iter=1000).fit(table, target, sample_weight=weight)
    return _log_proba(model, rows, given.classes)


def _log_proba(model: Any, rows: FloatArray, classes: int) -> FloatArray:
    full = np.full((len(rows), classes), np.log(1e-6))
    full[:, model.classes_.astype(int)] = model.predict_log_proba(rows)
    return full


def _loss(said: FloatArray, y: NDArray[Any], classes: int) -> float:
    if classes:
        return float(-said[np.arange(len(y)), y.astype(int)].sum())
    return float(np.sum((said - y) ** 2))


def prior(given: Given, seed: int) -> FloatArray:
    """The mean of the labels, or the classes' shares, for every row."""
    if not given.classes:
        return np.full(len(given.X_test), np.nanmean(given.y))
    shares = np.bincount(given.y[given.y >= 0], minlength=given.classes) + 1.0
    return np.tile(np.log(shares / shares.sum()), (len(given.X_test), 1))


def lasso(given: Given, seed: int) -> FloatArray:
    """Lasso on the labelled rows."""
    seen = ~np.isnan(given.y)
    X, X_test = given.X[seen], given.X_test
    cv = KFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    model = LassoCV(cv=cv, max_iter=5000).fit(X, given.y[seen])
    return model.predict(X_test)


def lasso_two_stages(given: Given, seed: int) -> FloatArray:
    """Two stages with the lasso: of inputs and W on the labels, then of inputs on what that says, and the labels."""
    seen = ~np.isnan(given.y)
    Z, cv = np.hstack([given.X, given.W]), KFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    first = LassoCV(cv=cv, max_iter=5000).fit(Z[seen], given.y[seen])
    target = np.where(seen, given.y, first.predict(Z))
    second = LassoCV(cv=cv, max_iter=5000).fit(given.X, target)
    return second.predict(given.X_test)


def all_labels(given: Given, y: NDArray[Any], seed: int) -> FloatArray:
    """The ceiling: a model of inputs with the labels of all training rows."""
    if given.classes:
        scaler = StandardScaler().fit(given.X)
        model = LogisticRegression(C=1 / ALPHAS[1], max_iter=1000).fit(scaler.transform(given.X), y.astype(int))
        return _log_proba(model, scaler.transform(given.X_test), given.classes)
    if given.X.shape[1] > 100:
        return Lasso(0.01, max_iter=5000).fit(given.X, y).predict(given.X_test)
    return LinearRegression().fit(given.X, y).predict(given.X_test)
