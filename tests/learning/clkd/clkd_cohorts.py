"""Cohorts for the tests."""

import numpy as np


def cohort(seed=0, n=120, p=4, ties=False, strata=False):
    """Features, event, time, and labels of strata."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    time = rng.exponential(np.exp(-0.8 * X[:, 0] + 0.5 * X[:, -1]))
    if ties:
        time = np.ceil(4 * time)
    event = rng.random(n) < 0.5
    return X, event, time, np.array(["a", "b", "c"])[rng.integers(0, 3 if strata else 1, n)]


def structured(event, time):
    """Event and time as scikit-survival has them."""
    y = np.empty(len(event), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = event, time
    return y


def sets(seed=0, n_sets=40, size=3, p=3):
    """Features, case and set of matched rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_sets * size, p))
    groups = np.repeat(np.arange(n_sets), size)
    score = X @ np.linspace(1, -0.5, p) + rng.gumbel(size=len(X))
    case = np.zeros(len(X), dtype=int)
    for g in range(n_sets):
        rows = np.flatnonzero(groups == g)
        case[rows[np.argmax(score[rows])]] = 1
    return X, case, groups


def brute_force(components, r, Z):
    """A, its gradient and Hessian, component by component."""
    value, gradient, hessian = 0.0, np.zeros(len(r)), np.zeros((Z.shape[1],) * 2)
    total = components.weight.sum()
    for row, w in zip(components.index, components.weight / total, strict=True):
        members = row[row >= 0]
        q = np.exp(r[members] - np.logaddexp.reduce(r[members]))
        value += w * np.logaddexp.reduce(r[members])
        gradient[members] += w * q
        m = q @ Z[members]
        hessian += w * ((Z[members] * q[:, None]).T @ Z[members] - np.outer(m, m))
    return value, gradient, hessian
