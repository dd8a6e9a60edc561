"""Choosing λ from source data alone: what works on a source domain that was left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.parts.training import progress

IntArray = NDArray[np.int64]

MOST_FOLDS = 10
"""More domains than this are dealt into so many groups, of which one at a time is left out."""

FOLDS_WITHOUT_DOMAINS = 3


def folds(y: IntArray, domains: IntArray | None, rng: np.random.Generator) -> list[IntArray]:
    """The rows to leave out, fold by fold: each domain, or without two domains random thirds of each class.

    Raises
    ------
    InputError
        If there is no fold without which two classes are left to learn.
    """
    held = []
    if domains is not None:
        names, place = np.unique(domains, return_inverse=True)
        held = _usable(y, rng.permutation(len(names))[place] % MOST_FOLDS)
    if not held:
        warnings.warn(
            "lam='auto' has no two source domains to choose by, so it chooses by random folds: give domains, "
            "since a λ that helps on the same recordings need not help on new ones",
            stacklevel=4,
        )
        place = np.empty(len(y), dtype=np.int64)
        for label in np.unique(y):
            rows = rng.permutation(np.flatnonzero(y == label))
            place[rows] = (np.arange(len(rows)) + rng.integers(FOLDS_WITHOUT_DOMAINS)) % FOLDS_WITHOUT_DOMAINS
        held = _usable(y, place)
    if not held:
        raise InputError("lam='auto' cannot choose: whatever is left out, fewer than two classes remain; give a number")
    return held


def _usable(y: IntArray, place: IntArray) -> list[IntArray]:
    """The folds whose other rows hold two classes."""
    held = [np.flatnonzero(place == fold) for fold in np.unique(place)]
    return [rows for rows in held if len(np.unique(np.delete(y, rows))) > 1]


def choose(
    lams: Sequence[float],
    held_out: Sequence[IntArray],
    accuracy: Callable[[float, IntArray], float],
    show: bool = False,
) -> tuple[float, pd.DataFrame]:
    """The λ with the best mean accuracy on what is left out, the smallest of equals, and the table of all.

    Parameters
    ----------
    lams
        The candidates.
    held_out
        Row numbers of each fold.
    accuracy
        ``accuracy(lam, rows)``: of a model trained on the other rows, on these.
    show
        Whether a bar is shown.

    Returns
    -------
    lam
        The choice.
    table
        A row for each candidate and fold: ``lam``, ``fold``, ``rows``, ``accuracy``.
    """
    cells = [(lam, fold, rows) for lam in sorted(set(map(float, lams))) for fold, rows in enumerate(held_out)]

    def measured() -> Iterator[dict[str, float]]:
        for lam, fold, rows in progress(cells, len(cells), "choosing lam", show):
            yield {"lam": lam, "fold": fold, "rows": len(rows), "accuracy": accuracy(lam, rows)}

    table = pd.DataFrame(list(measured()), columns=["lam", "fold", "rows", "accuracy"])
    means = table.groupby("lam")["accuracy"].mean()
    best = means.index[means >= means.max() - 1e-9].min()
    return float(best), table
