"""What an encoder's features hold: their rank, the classes and the domains that a linear probe reads from them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .effective_rank import rankme

IntArray = NDArray[np.int64]

PROBE_FOLDS = 5


def linear_probe() -> object:
    """The probe: standardised features, logistic regression with scikit-learn's usual penalty."""
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))


def diagnosis(
    features: Mapping[str, NDArray[np.float32]],
    present: Mapping[str, NDArray[np.bool_]],
    y: IntArray,
    domains: IntArray | None,
    seed: int,
) -> pd.DataFrame:
    """A row for each modality; see :meth:`MultimodalDGClassifier.diagnose`."""
    rows = []
    for name, table in features.items():
        there = present[name]
        z, labels = table[there].astype(np.float64), y[there]
        row = {"modality": name, "rows": int(there.sum())}
        row["rankme"] = rankme(z) if there.any() else 0.0
        held = domains[there] if domains is not None else None
        row["probe_accuracy"] = _new_domain_accuracy(z, labels, held, seed)
        row["probe_chance"] = _chance(labels)
        if held is not None:
            row["domain_accuracy"] = _accuracy(z, held, seed)
            row["domain_chance"] = _chance(held)
        rows.append(row)
    return pd.DataFrame(rows).set_index("modality")


def _new_domain_accuracy(z: NDArray[np.float64], y: IntArray, domains: IntArray | None, seed: int) -> float:
    """Mean accuracy of the probe on a domain that it did not see; by random folds where there are no two domains."""
    names = np.unique(domains) if domains is not None else []
    splits = [np.flatnonzero(domains == name) for name in names] if len(names) > 1 else []
    splits = [held for held in splits if len(np.unique(np.delete(y, held))) > 1]
    if not splits:
        return _accuracy(z, y, seed)
    return float(np.mean([_probe(z, y, held) for held in splits]))


def _accuracy(z: NDArray[np.float64], y: IntArray, seed: int) -> float:
    """Accuracy of the probe on random folds; that of the commonest class where a fold could not be had."""
    counts = np.bincount(y)
    k = int(min(PROBE_FOLDS, counts[counts > 0].min(initial=len(y))))
    if k < 2 or len(np.unique(y)) < 2:
        return _chance(y)
    folds = StratifiedKFold(k, shuffle=True, random_state=seed).split(z, y)
    return float(np.mean([_probe(z, y, held) for _, held in folds]))


def _probe(z: NDArray[np.float64], y: IntArray, held: IntArray) -> float:
    rest = np.delete(np.arange(len(y)), held)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        probe = linear_probe().fit(z[rest], y[rest])
    return float((probe.predict(z[held]) == y[held]).mean())


def _chance(y: IntArray) -> float:
    return float(np.bincount(y).max() / len(y)) if len(y) else 0.0
