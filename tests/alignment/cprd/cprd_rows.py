"""Rows of comparisons for the tests of cprd."""

import numpy as np
import pandas as pd

from assay.alignment.cprd import Comparisons


def of_wins(wins):
    """Comparisons with wins[i, j] rows in which i was chosen over j."""
    rows = [(i, j, w) for (i, j), w in np.ndenumerate(np.asarray(wins, dtype=float)) if w > 0]
    frame = pd.DataFrame(rows, columns=["chosen", "rejected", "weight"])
    return Comparisons.from_triplets(frame, weight="weight")


def rows_of(seed, n=10, rows=400, spread=1.0):
    """Random rows answered by normal scores: items are text."""
    rng = np.random.default_rng(seed)
    s = spread * rng.standard_normal(n)
    a = rng.integers(0, n, rows)
    b = (a + rng.integers(1, n, rows)) % n
    first = rng.random(rows) < 1 / (1 + np.exp(s[b] - s[a]))
    names = np.array([f"item {k}" for k in range(n)], dtype=object)
    return pd.DataFrame({"chosen": names[np.where(first, a, b)], "rejected": names[np.where(first, b, a)]})
