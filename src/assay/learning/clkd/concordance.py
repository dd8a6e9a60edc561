"""Harrell's concordance: how often, of two rows, the one with the higher risk has its event first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .components import Components

FloatArray = NDArray[np.float64]

TIED = 1e-8
"""Risks closer than this count as the same."""
_PAIRS_AT_ONCE = 2_000_000


def concordant_pairs(event: NDArray[np.bool_], time: FloatArray, risk: FloatArray) -> tuple[float, int]:
    """Concordant pairs (tied risks count one half) and comparable pairs.

    A pair is comparable where an event comes before the other row's time, or at the time at which that row is
    censored.
    """
    order = np.argsort(-time, kind="stable")
    event, time, risk = event[order], time[order], risk[order]
    longer = np.searchsorted(-time, -time, side="left")  # rows with a longer time come first
    with_ties = np.searchsorted(-time, -time, side="right")
    concordant, comparable = 0.0, 0
    cases = np.flatnonzero(event)
    chunk = max(1, _PAIRS_AT_ONCE // max(1, len(risk)))
    for first in range(0, len(cases), chunk):
        some = cases[first : first + chunk]
        upto = int(with_ties[some].max())
        place = np.arange(upto)
        pair = place < longer[some, None]
        pair |= (place < with_ties[some, None]) & ~event[:upto]
        above = risk[some, None] - risk[:upto]
        concordant += float(np.sum(pair & (above > TIED)) + np.sum(pair & (np.abs(above) <= TIED)) / 2)
        comparable += int(pair.sum())
    return concordant, comparable


def concordant_members(components: Components, risk: FloatArray) -> tuple[float, float]:
    """The same for listed components: each case against the other members of its set, by the sets' weights."""
    other = components.index[:, 1:]
    there = other >= 0
    above = risk[components.index[:, :1]] - risk[other]
    won = there * ((above > TIED) + (np.abs(above) <= TIED) / 2)
    return float(components.weight @ won.sum(axis=1)), float(components.weight @ there.sum(axis=1))


def concordance(event: NDArray[np.bool_], time: FloatArray, risk: FloatArray) -> float:
    """Harrell's C: the share of comparable pairs that are concordant; 0.5 where none is comparable."""
    concordant, comparable = concordant_pairs(event, time, risk)
    return concordant / comparable if comparable else 0.5
