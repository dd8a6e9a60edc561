"""Choose features for a budget, so that no one row of the training table shows in the choice."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from assay.errors import InputError

from .feature_information import FeatureInformation
from .solver import DPKnapsack


class DPKnapsackFeatureSelector(SelectorMixin, BaseEstimator):
    """Features that tell the class of as many rows as possible within a budget of costs, chosen privately.

    Only the choice is private: a model fitted on the chosen columns afterwards is not, unless it is trained privately
    too.

    Parameters
    ----------
    costs
        (d,) positive, what it costs to ask for each feature; None means 1 each.
    budget
        What the chosen features may cost together; None means half of the costs' sum.
    epsilon, delta
        As in :class:`DPKnapsack`.
    bounds
        Public: the range of every feature, ``(low, high)``, or (d, 2) for each. What lies outside is moved to the edge.
        Never take it from the data.
    n_bins
        Public: into how many bins of equal width the range is cut.
    classes
        Public: the classes there can be. None takes them from ``y``, and then which classes there are is not protected;
        a row with another class is refused.
    algorithm, neighbours, final_share
        As in :class:`DPKnapsack`.
    random_state
        None for a secret seed. A whole number is for tests and studies only.

    Attributes
    ----------
    support_
        (d,) which features were chosen.
    result_
        The :class:`SelectionResult`, with its bill.
    classes_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    InputError
        For parameters out of range and classes that are not among ``classes``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((2000, 4))
    >>> y = X[:, 2] > 0.5
    >>> DPKnapsackFeatureSelector(budget=1, epsilon=1, random_state=0).fit(X, y).get_support(indices=True).tolist()
    [2]
    """

    def __init__(
        self,
        costs: npt.ArrayLike | None = None,
        budget: float | None = None,
        epsilon: float = 1.0,
        *,
        delta: float = 1e-6,
        bounds: npt.ArrayLike = (0.0, 1.0),
        n_bins: int = 4,
        classes: npt.ArrayLike | None = None,
        algorithm: str = "greedy_max",
        neighbours: str = "add_remove",
        final_share: float = 0.2,
        random_state: int | None = None,
    ) -> None:
        self.costs = costs
        self.budget = budget
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.n_bins = n_bins
        self.classes = classes
        self.algorithm = algorithm
        self.neighbours = neighbours
        self.final_share = final_share
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Choose features of ``X`` (rows, d) by the classes ``y`` (rows,)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_ = np.unique(y) if self.classes is None else np.unique(np.asarray(self.classes))
        if len(self.classes_) < 2:
            raise InputError(f"y must hold at least two classes, got 1 class: {self.classes_[0]!r}")
        codes = np.clip(np.searchsorted(self.classes_, y), 0, len(self.classes_) - 1)
        if not (self.classes_[codes] == y).all():
            raise InputError("y must hold only classes named in classes")
        d = X.shape[1]
        costs = np.ones(d) if self.costs is None else self.costs
        budget = max(np.min(costs), np.sum(costs) / 2) if self.budget is None else self.budget
        objective = FeatureInformation(
            binned(X, self.bounds, self.n_bins), codes.astype(np.int64), self.n_bins, len(self.classes_)
        )
        random_state = self.random_state
        if isinstance(random_state, np.random.RandomState):
            random_state = int(random_state.randint(2**31 - 1))
        self.result_ = DPKnapsack(
            objective,
            costs,
            budget,
            epsilon=self.epsilon,
            delta=self.delta,
            algorithm=self.algorithm,
            neighbours=self.neighbours,
            final_share=self.final_share,
            random_state=random_state,
        ).solve()
        self.support_ = np.isin(np.arange(d), self.result_.items)
        return self

    def _get_support_mask(self) -> npt.NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def binned(X: npt.NDArray[np.float64], bounds: npt.ArrayLike, n_bins: int) -> npt.NDArray[np.int64]:
    """Which of ``n_bins`` bins of equal width between public bounds each number of (rows, d) lies in."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 2:
        raise InputError(f"n_bins must be a whole number of at least 2, got {n_bins!r}")
    edges = np.asarray(bounds, dtype=np.float64)
    if edges.shape not in ((2,), (X.shape[1], 2)) or not np.isfinite(edges).all():
        raise InputError(f"bounds must be (low, high) or one such pair for each of the {X.shape[1]} features")
    low, high = edges[..., 0], edges[..., 1]
    with np.errstate(over="ignore"):
        usable = (low < high) & np.isfinite(high - low)
    if not usable.all():
        raise InputError("bounds must have low < high, and a finite width")
    share = np.clip((X - low) / (high - low), 0.0, 1.0)
    return np.minimum((share * n_bins).astype(np.int64), n_bins - 1)
