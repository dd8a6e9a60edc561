"""Whether a reward model agrees with what its preference data can teach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit, xlogy

from assay.errors import InputError

from .comparisons import Comparisons
from .conditional import wilson
from .fit import BTFit
from .ids import column_of, plain
from .newton import log_sigmoid
from .representation import quiet_fit

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RewardAudit:
    """A reward model's scores against the rows.

    Attributes
    ----------
    rows
        How many rows were used.
    accuracy, accuracy_lo, accuracy_hi
        Share of rows in which the chosen item has the higher score (a tie counts half), with Wilson's 95 % interval.
    log_loss
        Mean −log σ(score of chosen − score of rejected), in nats; log 2 = 0.693 is a coin's.
    scale, scale_lo, scale_hi
        The factor that would make the scores' differences fit the rows best, with a 95 % interval: below 1 they are too
        sure. NaN where no finite factor is best.
    log_loss_scaled
        The log loss with that factor.
    kl_to_cprd
        Mean KL(r ‖ σ) a row over the pairs within components, in nats.
    kl_floor
        The same of the best score for each item, fitted to these rows: no reward of items alone can be below it.
    excess
        ``kl_to_cprd`` − ``kl_floor``.
    optimism
        By how much the fitted score is expected to look better on its own rows than on new ones.
    rows_inside
        The rows within components, on which those three rest; where there are none, they are NaN.
    calibration
        Ten bins of |difference of scores|: ``rows``, ``predicted`` (mean probability that the higher score was chosen),
        ``observed`` share, ``lo``, ``hi``.
    """

    rows: float
    accuracy: float
    accuracy_lo: float
    accuracy_hi: float
    log_loss: float
    scale: float
    scale_lo: float
    scale_hi: float
    log_loss_scaled: float
    kl_to_cprd: float
    kl_floor: float
    excess: float
    optimism: float
    rows_inside: float
    calibration: pd.DataFrame


def audit_rewards(
    df: pd.DataFrame,
    *,
    score_chosen: str = "score_chosen",
    score_rejected: str = "score_rejected",
    context: str | None = None,
    chosen: str = "chosen",
    rejected: str = "rejected",
    weight: str | None = None,
    fit: BTFit | None = None,
) -> RewardAudit:
    """Compare the scores that a reward model gives with the preferences in the rows.

    Parameters
    ----------
    df
        One comparison a row, with both scores.
    score_chosen, score_rejected
        Columns with the scores of the two items; P(chosen preferred) = σ(difference).
    context, chosen, rejected, weight
        As in :meth:`Comparisons.from_triplets`.
    fit
        The fit of the same rows, where it is there already.

    Raises
    ------
    KeyError
        For a column that is not there.
    InputError
        When a score is missing or no finite number.
    """
    c = Comparisons.from_triplets(df, context=context, chosen=chosen, rejected=rejected, weight=weight)
    from .comparisons import weights_of
    from .ids import id_column

    won, lost = id_column(df, chosen), id_column(df, rejected)
    counts = weights_of(df, weight)
    keep = np.array([a != b for a, b in zip(won, lost, strict=True)]) & (counts > 0)
    d = (_scores(df, score_chosen) - _scores(df, score_rejected))[keep]
    counts = counts[keep]
    total = float(counts.sum())
    right = float(counts @ np.where(d == 0, 0.5, d > 0)) / total
    lo, hi = wilson(np.array([right]), np.array([total]))
    scale, half = _scale(d, counts)
    where = id_column(df, context)[keep] if context is not None else None
    a, b = c.node(won[keep], where), c.node(lost[keep], where)
    fit = quiet_fit(c) if fit is None else fit
    component = fit.component.to_numpy()
    inside = component[a] == component[b]
    to_cprd = floor = optimism = float("nan")
    rows_inside = float(counts[inside].sum())
    if rows_inside:
        entropy = _entropy(c, fit)
        to_cprd = float(-(counts[inside] @ log_sigmoid(d[inside])) - entropy) / rows_inside
        fitted = fit.values[a[inside]] - fit.values[b[inside]]
        floor = max(0.0, float(-(counts[inside] @ log_sigmoid(fitted)) - entropy) / rows_inside)
        used = fit.graph.sizes > 1
        optimism = float(fit.graph.sizes[used].sum() - used.sum()) / rows_inside
    return RewardAudit(
        total,
        right,
        float(lo[0]),
        float(hi[0]),
        float(-(counts @ log_sigmoid(d))) / total,
        scale,
        scale - half,
        scale + half,
        float(-(counts @ log_sigmoid(scale * d))) / total if np.isfinite(scale) else float("nan"),
        to_cprd,
        floor,
        to_cprd - floor,
        optimism,
        rows_inside,
        _calibration(d, counts),
    )


def _scores(df: pd.DataFrame, name: str) -> FloatArray:
    column = pd.to_numeric(column_of(df, name), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isfinite(column).all():
        row = int(np.argmin(np.isfinite(column)))
        raise InputError(
            f"column {name!r}: scores must be finite numbers, not {plain(df[name].iloc[row])!r} in row "
            f"{plain(df.index[row])!r}"
        )
    return column


def _entropy(c: Comparisons, fit: BTFit) -> float:
    """Summed entropy of the pairs' shares within components, in nats."""
    w_ij, w_ji = (side[fit.inside] for side in c.wins)
    n = w_ij + w_ji
    return float((xlogy(n, n) - xlogy(w_ij, w_ij) - xlogy(w_ji, w_ji)).sum())


def _scale(d: FloatArray, counts: FloatArray) -> tuple[float, float]:
    """The β that maximises Σ log σ(β d), and half of its 95 % interval; NaN where the maximum is at infinity."""
    if not ((d > 0).any() and (d < 0).any()):
        return float("nan"), float("nan")
    unit = float(np.abs(d).max())
    x = d / unit

    def slope(beta: float) -> float:
        return float(counts @ (x * expit(-beta * x)))

    end = 1.0
    sign = 1.0 if slope(0.0) >= 0 else -1.0
    while sign * slope(sign * end) > 0 and end < 1e12:
        end *= 2
    beta = float(brentq(slope, *sorted((0.0, sign * end)))) if slope(0.0) != 0 else 0.0
    p = expit(beta * x)
    information = float(counts @ (x * x * p * (1 - p)))
    if information <= 0:
        return float("nan"), float("nan")
    return beta / unit, 1.96 / np.sqrt(information) / unit


def _calibration(d: FloatArray, counts: FloatArray, bins: int = 10) -> pd.DataFrame:
    size = np.abs(d)
    edges = np.unique(np.quantile(size, np.linspace(0, 1, bins + 1)))
    at = np.clip(np.searchsorted(edges, size, side="right") - 1, 0, max(len(edges) - 2, 0))
    many = max(len(edges) - 1, 1)
    rows = np.bincount(at, counts, many)
    there = rows > 0
    predicted = np.bincount(at, counts * expit(size), many)[there] / rows[there]
    observed = np.bincount(at, counts * np.where(d == 0, 0.5, d > 0), many)[there] / rows[there]
    lo, hi = wilson(observed, rows[there])
    return pd.DataFrame({"rows": rows[there], "predicted": predicted, "observed": observed, "lo": lo, "hi": hi})
