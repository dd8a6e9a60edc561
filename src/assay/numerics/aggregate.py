"""One model from several: weights that fall exponentially with each one's loss."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["exp_weights"]


def exp_weights(total_loss: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return weights in proportion to ``exp(-total_loss)``, which sum to 1.

    Computed from the differences to the least loss, so that losses of any size neither overflow nor vanish.

    Parameters
    ----------
    total_loss
        (m,) the loss of each model summed over the validation rows, in nats where it is a log-likelihood; a temperature
        is for the caller to divide by. ``inf`` gives a weight of 0.

    Returns
    -------
    ndarray
        (m,) float64.

    Raises
    ------
    ValueError
        When there is no model, a loss is NaN or ``-inf``, or all are ``inf``.

    Notes
    -----
    Dalalyan and Tsybakov, Aggregation by exponential weighting (Machine Learning, 2008).

    Examples
    --------
    >>> exp_weights([700.0, 700.0, 700.0 + np.log(2), np.inf])
    array([0.4, 0.4, 0.2, 0. ])
    """
    loss = np.asarray(total_loss, dtype=np.float64)
    if loss.ndim != 1 or not len(loss):
        raise ValueError(f"total_loss must be one loss for each model, got the shape {loss.shape}")
    if np.isnan(loss).any() or np.isneginf(loss).any():
        raise ValueError(f"total_loss must hold no NaN and no -inf, and the model at {_first_bad(loss)} has one")
    if np.isposinf(loss).all():
        raise ValueError("total_loss is infinite for every model: none can have a weight")
    weights = np.exp(loss.min() - loss)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _first_bad(loss: npt.NDArray[np.float64]) -> int:
    return int(np.flatnonzero(np.isnan(loss) | np.isneginf(loss))[0])
