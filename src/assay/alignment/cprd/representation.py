"""Whether any score can represent the preferences, and how far the best one stays off."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import expit
from scipy.stats import chi2

from assay.errors import InputError

from .comparisons import BEST_OF_K, Comparisons
from .cycles import Cycles, worst_triangles
from .draws import cluster_draws, deviances, expected_deviances, parametric_draws, tail
from .fit import BTFit, _check, fit_bt

REASONS = {
    BEST_OF_K: "every row picks one of all items: such rows always fit, whatever people think",
    "no_cycle": "no cycle of comparisons can be tested: any shares are represented",
    "single": "no pair was compared twice: single rows cannot tell a contradiction from chance",
    "weights": "the counts are no whole numbers, so that none can be drawn anew",
    "ridge": "a penalised fit has no test",
}


@dataclass(frozen=True, eq=False)
class RepresentabilityReport:
    """What the comparisons say about the best score.

    Attributes
    ----------
    deviance, df
        2 Σ w log(r/σ) of free shares against scores, over pairs within components; and pairs − items + components.
    p
        The p-value to read: ``p_boot`` where there is one, else ``p_chi2``; NaN where nothing can be tested, with
        ``reason``.
    p_chi2, p_boot
        By the chi-square law, which needs many rows a pair; and by drawing new counts from the fitted scores (with
        clusters: by turning the residuals of whole clusters about at random).
    n_boot, drawn
        How many draws were made, and of what: ``"counts"`` or ``"signs of clusters"``.
    repeated
        Pairs within components with more than one row: the others cannot contradict anything.
    floor_kl
        How far the best score stays off for ever: mean KL(r‖σ) a row, in nats, less what noise alone would give; ≥ 0.
    floor_kl_raw
        Without that subtraction.
    floor_abs
        Mean |r − σ| a row, noise included.
    worst_cycles
        The triangles that contradict each other most; see :class:`Cycles`.
    cycles
        How many triangles there are, and how many were looked at.
    warning, reason
        ``"best_of_k"`` or None; and why ``p`` is NaN.
    """

    deviance: float
    df: int
    repeated: int
    floor_kl: float
    floor_kl_raw: float
    floor_abs: float
    worst_cycles: pd.DataFrame
    cycles: Cycles
    p: float = float("nan")
    p_chi2: float = float("nan")
    p_boot: float = float("nan")
    n_boot: int = 0
    drawn: str = "counts"
    warning: str | None = None
    reason: str = ""


def representable(
    c: Comparisons, *, n_boot: int = 200, seed: int = 0, fit: BTFit | None = None, approximate: bool = False
) -> RepresentabilityReport:
    """Test whether scores can represent the preferences: whether log-odds sum to zero around every cycle.

    Parameters
    ----------
    c
        The comparisons. With clusters, the signs of their residuals are drawn, and the statistic is Pearson's less what
        each cluster adds alone.
    n_boot
        How often counts are drawn anew; 0: not at all.
    seed
        Of the draws and of the sample of triangles.
    fit
        The fit, where it is there already.
    approximate
        Take the p-value of the draws from a normal law with their mean and spread: for large tables with few draws.

    Raises
    ------
    TypeError, InputError
        When ``c`` is no :class:`Comparisons`, or ``n_boot`` is negative.

    Notes
    -----
    Source: "What Does Preference Learning Recover from Pairwise Comparison Data?", arXiv 2602.10286; the test is ours.
    Where the drawn counts have no finite scores, their likelihood's supremum is taken, component by component.
    """
    _check(c)
    if not isinstance(n_boot, numbers.Integral) or n_boot < 0:
        raise InputError(f"n_boot must be a whole number ≥ 0, not {n_boot!r}")
    fit = quiet_fit(c) if fit is None else fit
    cycles = worst_triangles(c, seed=seed)
    graph = fit.graph
    w_ij, w_ji = (side[fit.inside] for side in c.wins)
    n = w_ij + w_ji
    d = fit.values[graph.i] - fit.values[graph.j]
    p = expit(d)
    deviance = float(deviances(w_ij, w_ji, d).sum())
    used = graph.sizes > 1
    parameters = int(graph.sizes[used].sum() - used.sum())
    df, total = len(n) - parameters, float(n.sum())
    expected = float(expected_deviances(n, p).sum())  # of free shares; scores take one away for each parameter
    report = RepresentabilityReport(
        deviance=deviance,
        df=df,
        repeated=int((n > 1).sum()),
        floor_kl=max(0.0, deviance - expected + parameters) / (2 * total) if total else 0.0,
        floor_kl_raw=deviance / (2 * total) if total else 0.0,
        floor_abs=float(np.abs(w_ij - n * p).sum()) / total if total else 0.0,
        worst_cycles=cycles.worst,
        cycles=cycles,
        warning=c.warning,
    )
    if fit.ridge > 0:
        return replace(report, reason=REASONS["ridge"])
    if c.warning == BEST_OF_K:
        return replace(report, reason=REASONS[BEST_OF_K])
    if df <= 0:
        return replace(report, floor_kl=0.0, reason=REASONS["no_cycle"])
    if not report.repeated:
        return replace(report, floor_kl=0.0, reason=REASONS["single"])
    p_chi2 = float(chi2.sf(deviance, df))
    report = replace(report, p_chi2=p_chi2, p=p_chi2)
    if n_boot == 0:
        return report
    rng = np.random.default_rng(seed)
    if c.clusters is not None:
        statistic, drawn, pearson = cluster_draws(fit, int(n_boot), rng)
        noise = (expected - parameters) * pearson / df
    elif not np.allclose(n, np.round(n), atol=1e-6):
        return replace(report, reason=REASONS["weights"])
    else:
        statistic, drawn = deviance - expected, parametric_draws(fit, n, int(n_boot), rng)
        noise = expected + float(drawn.mean())
    p_boot = tail(statistic, drawn, approximate)
    floor = max(0.0, deviance - noise) / (2 * total)
    what = "counts" if c.clusters is None else "signs of clusters"
    return replace(report, p_boot=p_boot, p=p_boot, n_boot=int(n_boot), drawn=what, floor_kl=floor)


def quiet_fit(c: Comparisons) -> BTFit:
    """A fit without a penalty whose warnings are not shown: who asks gets a report."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_bt(c)
