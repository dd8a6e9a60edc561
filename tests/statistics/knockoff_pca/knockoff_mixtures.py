"""Tables for the tests, drawn independently of the method's own study."""

import numpy as np


def mixture(seed, n, d, share, strength=25.0, spikes=(14.0, 8.0)):
    """Rows of covariance I + Σ ℓ uuᵀ; the first round(share·n) are shifted along a random direction."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, len(spikes))))[0]
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, len(spikes))) * np.sqrt(spikes) @ basis.T
    m = round(share * n)
    mu = rng.standard_normal(d)
    mu /= np.linalg.norm(mu)
    if m:
        X[:m] += mu * np.sqrt(strength / (share * (1 - share)))
    return X, np.arange(n) < m, basis.T
