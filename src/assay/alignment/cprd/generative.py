"""Scores as a ratio of densities: how often an item is chosen, over how often it is rejected."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from assay.errors import InputError
from assay.numerics.laplacian import Graph

from .comparisons import Comparisons
from .fit import BTFit, _check, _made

FloatArray = npt.NDArray[np.float64]

_MAX_ITER = 10_000


def fit_generative(c: Comparisons, *, support: Literal["all", "observed"] = "all") -> BTFit:
    """Fit rows (chosen i, rejected j) by a_i b_j, and return the scores log a − log b.

    They equal those of the Bradley–Terry model where chosen and rejected are independent given the context, and not
    otherwise. An item is never compared with itself, so that plain ratios of margins are biased even then; this is
    quasi-independence off the diagonal, by iterative proportional fitting. An item that was never chosen (or never
    rejected) counts as half a time.

    Parameters
    ----------
    c
        The comparisons.
    support
        Which pairs could have come: ``"all"`` of a context's items, or the ``"observed"`` ones alone.

    Raises
    ------
    TypeError, InputError
        When ``c`` is no :class:`Comparisons`, or ``support`` another word.
    """
    _check(c)
    if support not in ("all", "observed"):
        raise InputError(f"support must be 'all' or 'observed', not {support!r}")
    i, j = c.ends
    w_ij, w_ji = c.wins
    n = len(c.nodes)
    place = c.nodes["x"].to_numpy()
    chosen = np.bincount(i, w_ij, n) + np.bincount(j, w_ji, n)
    rejected = np.bincount(j, w_ij, n) + np.bincount(i, w_ji, n)
    chosen, rejected = (np.where(margin > 0, margin, 0.5) for margin in (chosen, rejected))

    def others(x: FloatArray) -> FloatArray:
        """Of each item, the sum of x over those that it could have come with."""
        if support == "all":
            return np.bincount(place, x)[place] - x
        return np.bincount(i, x[j], n) + np.bincount(j, x[i], n)

    a, b = chosen / np.sqrt(chosen.sum()), rejected / np.sqrt(chosen.sum())
    scores, converged, iterations = np.log(a) - np.log(b), False, 0
    while not converged and iterations < _MAX_ITER:
        iterations += 1
        a = chosen / others(b)
        b = rejected / others(a)
        # Only the scores matter: half a time for an empty margin leaves the totals unequal, and a and b adrift.
        new = np.log(a) - np.log(b)
        new -= (np.bincount(place, new) / np.bincount(place))[place]
        converged = bool(np.abs(new - scores).max() < 1e-10)
        scores = new
    graph = Graph(n, i, j)
    if support == "all":  # a chain through the items of each context, so that its components are the contexts
        order = np.lexsort((np.arange(n), place))
        same = place[order][1:] == place[order][:-1]
        graph = Graph(n, order[:-1][same], order[1:][same])
    return _made(c, graph, scores, converged, iterations, 0.0, "generative")
