"""Choosing lam: the loss of every grid point on held-out labels, and one model or an average of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.numerics.aggregate import exp_weights

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class HeldOut:
    """What every grid point says of labelled rows that it did not see.

    Attributes
    ----------
    outputs
        (grid, rows, k).
    y, weight
        (rows, k) and (rows,).
    fold
        (rows,) the number of the fold that held the row out.
    """

    outputs: FloatArray
    y: FloatArray
    weight: FloatArray
    fold: IntArray


Loss = Callable[[FloatArray, FloatArray], FloatArray]
"""(…, rows, k) outputs and (rows, k) targets to (…, rows) losses."""


def held_out(learner: Any, folds: Sequence[IntArray], y: FloatArray, weight: FloatArray) -> HeldOut:
    """Fit without the labels of each fold in turn, and let the models speak of its rows."""
    outputs = [learner.outputs(learner.fit(hidden=rows), rows) for rows in folds]
    rows = np.concatenate(folds)
    number = np.repeat(np.arange(len(folds)), [len(part) for part in folds])
    return HeldOut(np.concatenate(outputs, axis=1), y[rows], weight[rows], number)


def mean_losses(held: HeldOut, loss: Loss, rows: NDArray[np.bool_] | None = None) -> FloatArray:
    """(grid,) weighted mean loss, over all rows or some."""
    rows = np.ones(len(held.weight), dtype=bool) if rows is None else rows
    weight = held.weight[rows]
    return loss(held.outputs[:, rows], held.y[rows]) @ weight / weight.sum()


def averaging_weights(mean_loss: FloatArray, n: float, squared: bool) -> FloatArray:
    """Weights of the grid points that fall exponentially with the loss on ``n`` held-out labels.

    Of squared losses the least one stands for the noise: exp(-n (E - E_min) / (2 E_min)). Log-losses are
    log-likelihoods as they are: exp(-n (E - E_min)).
    """
    finite = np.where(np.isfinite(mean_loss), mean_loss, np.inf)
    least = finite.min()
    if not np.isfinite(least):
        return np.full(len(mean_loss), 1 / len(mean_loss))
    if not squared:
        return exp_weights(n * finite)
    if least <= 0:
        return exp_weights(np.where(finite <= 0, 0.0, np.inf))
    return exp_weights(n * (finite / least) / 2)


def single(mean_loss: FloatArray) -> FloatArray:
    """All weight on the least loss, the first of equals."""
    weights = np.zeros(len(mean_loss))
    weights[int(np.argmin(np.where(np.isnan(mean_loss), np.inf, mean_loss)))] = 1
    return weights


@dataclass(frozen=True)
class Value:
    """Held-out losses of ignoring W, of two stages, and of coupled training."""

    labelled: float | None
    two_stage: float | None
    coupled: float
    gain: float | None
    gain_se: float | None


def value_of_w(held: HeldOut, loss: Loss, lams: FloatArray, choose: Callable[[FloatArray, float], FloatArray]) -> Value:
    """Compare the two ends with the whole grid, on rows that chose nothing about the model that is judged on them.

    For each fold the weights come from the losses on the other folds, ``choose(mean_losses, rows)``; of each end the
    best alpha is chosen likewise.
    """
    n = len(held.weight)
    contenders = {"labelled": lams == 0, "two_stage": np.isinf(lams), "coupled": np.ones(len(lams), dtype=bool)}
    losses: dict[str, FloatArray] = {}
    for name, members in contenders.items():
        if not members.any():
            continue
        said = np.empty((n, held.outputs.shape[2]))
        for fold in np.unique(held.fold):
            here = held.fold == fold
            means = mean_losses(held, loss, ~here)[members]
            weights = choose(means, float((~here).sum())) if name == "coupled" else single(means)
            said[here] = np.tensordot(weights, held.outputs[members][:, here], axes=1)
        losses[name] = loss(said[None], held.y)[0]
    share = held.weight / held.weight.sum()
    mean = {name: float(share @ values) for name, values in losses.items()}
    gain = gain_se = None
    if "labelled" in losses:
        difference = losses["labelled"] - losses["coupled"]
        gain = float(share @ difference)
        gain_se = float(np.sqrt(np.sum((share * (difference - gain)) ** 2) * n / max(n - 1, 1)))
    return Value(mean.get("labelled"), mean.get("two_stage"), mean["coupled"], gain, gain_se)
