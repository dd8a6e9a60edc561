"""Small tables for the tests of coupled training."""

import numpy as np


def table(seed=0, n=40, m=200, p=3, k=4, noise=1.0):
    """Inputs, privileged columns, targets with gaps, and all targets; the first n rows are labelled."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n + m, k))
    X = W[:, :1] + rng.standard_normal((n + m, p))
    full = W.sum(axis=1) + X[:, 0] + noise * rng.standard_normal(n + m)
    return X, W, np.where(np.arange(n + m) < n, full, np.nan), full


def classes(seed=0, n=60, m=200, p=3, k=4, n_classes=2):
    """The same with whole numbers as classes, and -1 where there is none."""
    X, W, y, full = table(seed, n, m, p, k)
    cuts = np.quantile(full, np.arange(1, n_classes) / n_classes)
    return X, W, np.where(np.isnan(y), -1, np.digitize(full, cuts)), np.digitize(full, cuts)
