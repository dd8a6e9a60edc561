"""The contenders: from counts to the probability that each item is preferred to each other one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.parts.packages import need

from .comparisons import Comparisons
from .fit import BTFit, fit_bt
from .generative import fit_generative
from .next_pairs import suggest_pairs
from .representation import quiet_fit, representable

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PRIOR = 0.1
"""The penalty of every arm's scores while labels are still few (design tasks): all differences are defined then."""


def matrix(fit: BTFit) -> FloatArray:
    """(n, n) the probabilities of a fit; 1/2 where it defines none."""
    c = fit.comparisons
    n = len(c.items)
    s, component = np.zeros(n), np.full(n, -1)
    at = c.nodes["item"].to_numpy()
    s[at], component[at] = fit.values, fit.component.to_numpy()
    defined = (component[:, None] == component) & (component >= 0)[:, None]
    return np.where(defined, 1 / (1 + np.exp(s - s[:, None])), 0.5)


def bradley_terry(c: Comparisons) -> FloatArray:
    """Maximum likelihood."""
    return matrix(quiet_fit(c))


def generative(c: Comparisons) -> FloatArray:
    """Quasi-independence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return matrix(fit_generative(c))


def margins(c: Comparisons) -> FloatArray:
    """Scores log(times chosen / times rejected), half a time added to both: no model is fitted."""
    n = len(c.items)
    i, j = c.table["i"].to_numpy(), c.table["j"].to_numpy()
    w_ij, w_ji = c.wins
    chosen = np.bincount(i, w_ij, n) + np.bincount(j, w_ji, n) + 0.5
    rejected = np.bincount(j, w_ij, n) + np.bincount(i, w_ji, n) + 0.5
    s = np.log(chosen / rejected)
    return 1 / (1 + np.exp(s - s[:, None]))


def free_shares(c: Comparisons) -> FloatArray:
    """Each pair's own share, (wins + 1/2) / (rows + 1): nothing is shared between pairs."""
    n = len(c.items)
    p = np.full((n, n), 0.5)
    i, j = c.table["i"].to_numpy(), c.table["j"].to_numpy()
    p[i, j] = (c.wins[0] + 0.5) / (c.n + 1)
    p[j, i] = 1 - p[i, j]
    return p


def coin(c: Comparisons) -> FloatArray:
    """1/2 for every pair."""
    return np.full((len(c.items), len(c.items)), 0.5)


def choix(c: Comparisons) -> FloatArray:
    """Iterative Luce spectral ranking of choix, without its regulariser."""
    package = need("choix", "the peer")
    n = len(c.items)
    i, j = c.table["i"].to_numpy(), c.table["j"].to_numpy()
    w_ij, w_ji = (side.astype(np.int64) for side in c.wins)
    winners = np.concatenate([np.repeat(i, w_ij), np.repeat(j, w_ji)])
    losers = np.concatenate([np.repeat(j, w_ij), np.repeat(i, w_ji)])
    s = package.ilsr_pairwise(n, list(zip(winners.tolist(), losers.tolist(), strict=True)), alpha=0.0)
    return 1 / (1 + np.exp(s - s[:, None]))


@dataclass(frozen=True)
class Campaign:
    """Labels that can be bought: pilot counts, and an oracle for more.

    Attributes
    ----------
    pilot
        The comparisons so far.
    ask
        ``ask(i, j) -> bool`` arrays: whether i was preferred, one answer for each pair asked.
    batches, size
        How many rounds of labels there are, and pairs in each.
    pool
        (2, pairs) all pairs that may be asked.
    edges
        (2, pairs) the pairs of the pilot.
    """

    pilot: Comparisons
    ask: Callable[[IntArray, IntArray], npt.NDArray[np.bool_]]
    batches: int
    size: int
    pool: IntArray
    edges: IntArray


Pick = Callable[[Comparisons, Campaign, np.random.Generator], IntArray]


def label(campaign: Campaign, seed: int, pick: Pick) -> list[FloatArray]:
    """Buy all batches, each picked after a fit of what is there; the probabilities after each."""
    rng = np.random.default_rng(seed)
    c, after = campaign.pilot, []
    for _ in range(campaign.batches):
        i, j = pick(c, campaign, rng)
        c = with_rows(c, i, j, campaign.ask(i, j))
        after.append(matrix(penalised(c)))
    return after


def penalised(c: Comparisons) -> BTFit:
    """The fit that all arms share while labels are few."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_bt(c, ridge=PRIOR)


def with_rows(c: Comparisons, i: IntArray, j: IntArray, first: npt.NDArray[np.bool_]) -> Comparisons:
    """The comparisons with more rows."""
    low, high = np.minimum(i, j), np.maximum(i, j)
    won = (first == (i < j)).astype(float)
    more = pd.DataFrame({"x": 0, "i": low, "j": high, "w_ij": won, "w_ji": 1 - won})
    table = pd.concat([c.table, more]).groupby(["x", "i", "j"], as_index=False).sum()
    return Comparisons(c.items, c.contexts, table)


def pick_suggested(c: Comparisons, campaign: Campaign, rng: np.random.Generator, criterion: str) -> IntArray:
    """What :func:`suggest_pairs` says."""
    pool = pd.DataFrame({"i": campaign.pool[0], "j": campaign.pool[1]})
    chosen = suggest_pairs(c, campaign.size, pool=pool, fit=penalised(c), criterion=criterion, prior=PRIOR)  # type: ignore[arg-type]
    return chosen[["i", "j"]].to_numpy(dtype=np.int64).T


def pick_same(c: Comparisons, campaign: Campaign, rng: np.random.Generator) -> IntArray:
    """More of the pairs that the pilot had."""
    return campaign.edges[:, rng.integers(0, campaign.edges.shape[1], campaign.size)]


def pick_uniform(c: Comparisons, campaign: Campaign, rng: np.random.Generator) -> IntArray:
    """Any pair, at random."""
    return campaign.pool[:, rng.integers(0, campaign.pool.shape[1], campaign.size)]


def pick_closest(c: Comparisons, campaign: Campaign, rng: np.random.Generator) -> IntArray:
    """The pairs whose scores are closest: the least certain answers."""
    p = matrix(penalised(c))[campaign.pool[0], campaign.pool[1]]
    return campaign.pool[:, np.argsort(np.abs(p - 0.5), kind="stable")[: campaign.size]]


def drawn_test(c: Comparisons, seed: int, n_boot: int) -> float:
    """The p-value of the test for representability."""
    return representable(c, n_boot=n_boot, seed=seed).p


def chi_square_test(c: Comparisons, seed: int, n_boot: int) -> float:
    """The p-value of the deviance by the chi-square law."""
    return representable(c, n_boot=0, seed=seed).p_chi2
