"""The tables of the study: few labels, many rows without one, privileged columns for training rows only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes

from assay.parts import survset

FloatArray = NDArray[np.float64]

BEDSIDE = ("age", "edu", "scoma1", "meanbp1", "hrt1", "resp1", "temp1", "wtkilo1")
LABORATORY = (
    "wblc1", "pafi1", "alb1", "hema1", "bili1", "crea1", "sod1", "pot1", "paco21", "ph1", "adld3p", "urin1",
)  # fmt: skip
NOISE_COLUMNS = 40


@dataclass(frozen=True)
class Given:
    """What an arm sees.

    Attributes
    ----------
    X, W
        (n, p) and (n, k) of the training rows.
    y
        (n,) float64 targets, NaN where there is none; on classification tasks int64 classes, and -1.
    X_test
        (t, p) the rows to predict.
    classes
        How many there are; 0 on regression tasks.
    """

    X: FloatArray
    W: FloatArray
    y: NDArray[Any]
    X_test: FloatArray
    classes: int = 0


@dataclass(frozen=True)
class Hidden:
    """What only the score sees: the targets (t,) of the test rows, and those (n,) of all training rows."""

    y_test: NDArray[Any]
    y_train: NDArray[Any]
    given: Given


def dealt_out(
    rng: np.random.Generator, X: FloatArray, W: FloatArray, y: NDArray[Any], n: int, m: int, t: int, classes: int = 0
) -> tuple[Given, Hidden]:
    """Draw n labelled, m unlabelled and t test rows (all that are left where m is -1); fill gaps by training medians.

    Where there are classes, the labelled rows have at least two of each.
    """
    order = rng.permutation(len(y))
    if classes:
        first = np.concatenate([order[y[order] == c][:2] for c in range(classes)])
        order = np.concatenate([first, order[~np.isin(order, first)]])
    m = len(y) - n - t if m < 0 else m
    train, test = order[: n + m], order[n + m : n + m + t]
    X_train, W_train, X_test = (
        filled(table[rows], table[train]) for table, rows in ((X, train), (W, train), (X, test))
    )
    seen = y[train].astype(np.int64 if classes else np.float64)
    seen[n:] = -1 if classes else np.nan
    given = Given(X_train, W_train, seen, X_test, classes)
    return given, Hidden(y[test], y[train], given)


def filled(table: FloatArray, by: FloatArray) -> FloatArray:
    """``table`` with the medians of ``by`` in its gaps."""
    return np.where(np.isnan(table), np.nanmedian(by, axis=0), table)


@lru_cache(maxsize=1)
def intensive_care() -> tuple[FloatArray, FloatArray, FloatArray]:
    """5 735 patients: bedside measurements, laboratory values, and the APACHE score of the first day."""
    table = survset.load("rhc")
    X, W = (table[[f"num_{name}" for name in names]].to_numpy() for names in (BEDSIDE, LABORATORY))
    return X, W, table["num_aps1"].to_numpy()


def rhc(rng: np.random.Generator, kind: str) -> tuple[Given, Hidden]:
    """40 labels; W is the laboratory (``real``), that beside columns of noise (``mixed``), or noise alone."""
    X, W, y = intensive_care()
    noise = rng.standard_normal((len(y), NOISE_COLUMNS))
    W = {"real": W, "mixed": np.hstack([W, noise]), "noise": noise}[kind]
    return dealt_out(rng, X, W, y, 40, 1000, 1500)


def diabetes(rng: np.random.Generator, kind: str) -> tuple[Given, Hidden]:
    """30 labels of 442 patients; W is six blood values (``real``), or columns of noise."""
    X, y = load_diabetes(return_X_y=True, scaled=False)
    W = X[:, 4:] if kind == "real" else rng.standard_normal((len(y), NOISE_COLUMNS))
    return dealt_out(rng, X[:, :4], W, y, 30, -1, 142)


def synthetic(rng: np.random.Generator, strength: float) -> tuple[Given, Hidden]:
    """60 labels; y = x·b + w·t + noise with |b| = 1 and |t| = strength, 10 columns x and 30 columns w."""
    n, m, t = 60, 1000, 1500
    X, W = rng.standard_normal((n + m + t, 10)), rng.standard_normal((n + m + t, 30))
    b, of_w = rng.standard_normal(10), rng.standard_normal(30)
    y = X @ (b / np.linalg.norm(b)) + strength * W @ (of_w / np.linalg.norm(of_w)) + rng.standard_normal(n + m + t)
    return dealt_out(rng, X, W, y, n, m, t)


def tissue(rng: np.random.Generator) -> tuple[Given, Hidden]:
    """24 labels of 569 tissue samples: 3 columns as inputs, 27 as W, two classes."""
    data = load_breast_cancer()
    names = list(data.feature_names)
    inputs = [names.index(f"mean {name}") for name in ("texture", "smoothness", "symmetry")]
    X, W = data.data[:, inputs], np.delete(data.data, inputs, axis=1)
    return dealt_out(rng, X, W, data.target, 24, -1, 169, classes=2)


def wide(rng: np.random.Generator) -> tuple[Given, Hidden]:
    """60 labels, 500 columns of x of which 5 matter, and 50 of w of which 3 do; they are measured with the target."""
    n, m, t = 60, 1000, 1500
    rows = n + m + t
    X, W = rng.standard_normal((rows, 500)), rng.standard_normal((rows, 50))
    y = X[:, :5].sum(axis=1) + W[:, :3].sum(axis=1) + 0.5 * rng.standard_normal(rows)
    return dealt_out(rng, X, W, y, n, m, t)
