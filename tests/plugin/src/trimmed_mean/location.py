"""Location estimates."""

import numpy as np
from scipy import stats


def trimmed_mean(x: np.ndarray, share: float = 0.1) -> np.ndarray:
    """Average each column of ``x`` (rows, columns) without the ``share`` largest and smallest values."""
    return stats.trim_mean(x, share, axis=0)
