"""Small bags to test with."""

import numpy as np

from assay.learning.llp_flow import LLPFlowClassifier, make_bags

FAST = {"hidden": (8, 3), "head_hidden": 4, "anchors_per_class": 5, "epochs": (3, 2), "flow_steps": 5, "device": "cpu"}


def clouds(seed=0, n=120, classes=3, size=20, columns=4, spread=4.0):
    """Gaussian classes in bags of diverse mixes: X, bag of each row, proportions (B, K), y."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = spread * rng.standard_normal((classes, columns))[y] + rng.standard_normal((n, columns))
    deal = make_bags(y, size, "dirichlet", random_state=rng)
    rows = np.concatenate(deal)
    bags = np.repeat(np.arange(len(deal)), [len(bag) for bag in deal])
    X, y = X[rows], y[rows]
    pi = np.stack([np.bincount(y[bags == b], minlength=classes) / (bags == b).sum() for b in range(len(deal))])
    return X, bags, pi, y


def fast(**parameters):
    return LLPFlowClassifier(**{**FAST, "random_state": 0, **parameters})
