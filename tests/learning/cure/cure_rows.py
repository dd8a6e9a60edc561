"""Rows of well-separated classes with gaps in their labels."""

import numpy as np

FAST = {"pretrain_epochs": 10, "epochs": (1, 12), "device": "cpu", "random_state": 0}


def separate(n_classes=4, each=30, d=6, n_known=2, seed=0):
    """X, the true classes, and labels of half of the rows of the known ones."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), each)
    X = rng.normal(size=(len(y), d)) + 12 * np.eye(max(d, n_classes))[y][:, :d]
    return X, y, np.where((y < n_known) & (np.arange(len(y)) % 2 == 0), y, -1)
