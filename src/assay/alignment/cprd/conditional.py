"""The conditional preference distribution: all that rows of comparisons contain."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from .comparisons import Comparisons
from .fit import _check

FloatArray = npt.NDArray[np.float64]

_Z = 1.959963984540054


def cprd(c: Comparisons) -> pd.DataFrame:
    """For each context and pair, the share of rows in which i was preferred to j.

    Parameters
    ----------
    c
        The comparisons.

    Returns
    -------
    DataFrame
        ``context``, ``i``, ``j``; ``n`` rows; ``r`` the share; ``lo``, ``hi`` its 95 % interval (Wilson);
        ``margin`` = |2r − 1|.

    Examples
    --------
    >>> c = Comparisons.from_triplets(pd.DataFrame({"chosen": ["a", "a", "b"], "rejected": ["b", "b", "a"]}))
    >>> cprd(c).round(3).to_dict("records")
    [{'context': '', 'i': 'a', 'j': 'b', 'n': 3.0, 'r': 0.667, 'lo': 0.208, 'hi': 0.939, 'margin': 0.333}]
    """
    _check(c)
    n = c.n
    r = c.wins[0] / n
    lo, hi = wilson(r, n)
    table = c.table
    return pd.DataFrame(
        {
            "context": c.contexts.take(table["x"].to_numpy()),
            "i": c.items.take(table["i"].to_numpy()),
            "j": c.items.take(table["j"].to_numpy()),
            "n": n,
            "r": r,
            "lo": lo,
            "hi": hi,
            "margin": np.abs(2 * r - 1),
        }
    )


def wilson(share: FloatArray, n: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The ends of Wilson's 95 % interval of a share of n."""
    z2 = _Z * _Z
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * np.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)
