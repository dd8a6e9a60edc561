"""A scikit-learn estimator that ranks items from comparisons."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from .comparisons import Comparisons
from .fit import fit_bt
from .ids import id_column
from .next_pairs import suggest_pairs
from .representation import RepresentabilityReport, representable
from .rows_needed import EfficiencyReport, efficiency


class BradleyTerryRanker(BaseEstimator):
    """Scores of items from rows "chosen, rejected", with what the rows can and cannot say about them.

    Parameters
    ----------
    context, chosen, rejected, weight, cluster
        Columns, as in :meth:`Comparisons.from_triplets`.
    ridge
        Strength of a quadratic penalty; 0, the default, means none.
    n_boot
        Draws of the test for representability.
    random_state
        Seed of those draws and of suggestions.

    Attributes
    ----------
    scores_
        Series by item (by context and item, where there are contexts); NaN where the data define none.
    std_err_
        Their standard errors.
    fit_
        The :class:`BTFit`.
    comparisons_
        The :class:`Comparisons`.
    report_
        Dictionary with ``"representability"`` (:class:`RepresentabilityReport`) and ``"efficiency"``
        (:class:`EfficiencyReport`).
    classes_
        0: the second item of a pair is preferred; 1: the first.

    Examples
    --------
    >>> frame = pd.DataFrame({"chosen": ["a", "b", "c", "a"], "rejected": ["b", "c", "a", "c"]})
    >>> ranker = BradleyTerryRanker().fit(frame)
    >>> ranker.predict_proba(pd.DataFrame({"chosen": ["a"], "rejected": ["c"]})).round(2).tolist()
    [[0.3, 0.7]]
    """

    def __init__(
        self,
        *,
        context: str | None = None,
        chosen: str = "chosen",
        rejected: str = "rejected",
        weight: str | None = None,
        cluster: str | None = None,
        ridge: float = 0.0,
        n_boot: int = 200,
        random_state: int = 0,
    ) -> None:
        self.context = context
        self.chosen = chosen
        self.rejected = rejected
        self.weight = weight
        self.cluster = cluster
        self.ridge = ridge
        self.n_boot = n_boot
        self.random_state = random_state

    def fit(self, df: pd.DataFrame, y: Any = None) -> Self:
        """Count the rows of ``df``, fit the scores and test them; ``y`` is ignored."""
        c = Comparisons.from_triplets(
            df,
            context=self.context,
            chosen=self.chosen,
            rejected=self.rejected,
            weight=self.weight,
            cluster=self.cluster,
        )
        found = fit_bt(c, ridge=self.ridge)
        representability: RepresentabilityReport = representable(
            c, n_boot=self.n_boot, seed=self.random_state, fit=found
        )
        worth: EfficiencyReport = efficiency(c, found, seed=self.random_state)
        self.comparisons_, self.fit_ = c, found
        self.scores_, self.std_err_ = found.scores, found.std_err
        self.report_ = {"representability": representability, "efficiency": worth}
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, pairs: pd.DataFrame) -> npt.NDArray[np.float64]:
        """(n, 2) for each pair P(second preferred), P(first preferred); the columns are those of the fit.

        NaN where the rows do not compare the two. An item without comparisons raises KeyError.
        """
        check_is_fitted(self)
        first, second = id_column(pairs, self.chosen), id_column(pairs, self.rejected)
        context = id_column(pairs, self.context) if self.context is not None else None
        p = self.fit_.probability(first, second, context)
        return np.stack([1 - p, p], axis=1)

    def predict(self, pairs: pd.DataFrame) -> npt.NDArray[np.float64]:
        """1 where the first item of a pair is more likely to be preferred, 0 where the second; 0.5 where neither is."""
        p = self.predict_proba(pairs)[:, 1]
        return np.where(p > 0.5, 1.0, np.where(p < 0.5, 0.0, 0.5))

    def suggest(
        self, k: int, *, pool: pd.DataFrame | None = None, criterion: Literal["A", "D"] = "A", prior: float = 0.1
    ) -> pd.DataFrame:
        """The k pairs to label next; see :func:`suggest_pairs`."""
        check_is_fitted(self)
        return suggest_pairs(
            self.comparisons_,
            k,
            pool=pool,
            fit=self.fit_,
            criterion=criterion,
            prior=prior,
            seed=self.random_state,
        )
