"""Folds over labelled rows: a row without a label cannot test anything, so it is always in training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from assay.errors import InputError
from assay.parts.supervision import unlabelled

IntArray = NDArray[np.int64]


class LabelledKFold:
    """K folds of the labelled rows, for scikit-learn's ``cv=``; rows without a label are in every training part.

    With it ``GridSearchCV`` and ``cross_val_score`` work on targets with gaps. Where the labels are classes, each fold
    gets its share of every class.

    Parameters
    ----------
    n_splits
        How many folds, at least 2.
    shuffle
        Deal the rows at random; otherwise in their order.
    random_state
        Seed of the order; an int gives the same folds each time.
    task
        ``"regression"``: NaN means unlabelled; ``"classification"``: also -1 among integers. ``"auto"``: classification
        unless ``y`` is of a float type.

    Examples
    --------
    >>> y = np.array([0.5, np.nan, 1.5, np.nan, 2.5, 3.5])
    >>> for train, test in LabelledKFold(2, shuffle=False).split(y[:, None], y):
    ...     print(train.tolist(), test.tolist())
    [1, 3, 4, 5] [0, 2]
    [0, 1, 2, 3] [4, 5]
    """

    def __init__(
        self,
        n_splits: int = 5,
        shuffle: bool = True,
        random_state: int | np.random.RandomState | None = None,
        task: Literal["auto", "regression", "classification"] = "auto",
    ) -> None:
        if isinstance(n_splits, bool) or not isinstance(n_splits, int | np.integer) or n_splits < 2:
            raise InputError(f"n_splits must be a whole number of at least 2, got {n_splits!r}")
        if task not in ("auto", "regression", "classification"):
            raise InputError(f"task must be 'auto', 'regression' or 'classification', got {task!r}")
        self.n_splits, self.shuffle, self.random_state, self.task = int(n_splits), shuffle, random_state, task

    def __repr__(self) -> str:
        return (
            f"LabelledKFold(n_splits={self.n_splits}, shuffle={self.shuffle}, random_state={self.random_state!r}, "
            f"task={self.task!r})"
        )

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """How many folds there are."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield the training and test rows of each fold.

        Raises
        ------
        ValueError
            When ``y`` is None or has fewer labels than folds.
        """
        if y is None:
            raise InputError("LabelledKFold needs y, to know which rows have a label")
        classes = self.task == "classification" or (self.task == "auto" and np.asarray(y).dtype.kind != "f")
        hidden = unlabelled(y, task="classification" if classes else "regression")
        rows = np.flatnonzero(~hidden)
        if len(rows) < self.n_splits:
            raise InputError(f"n_splits={self.n_splits} is more than the number of labelled rows, {len(rows)}")
        strata = np.unique(np.asarray(y, dtype=object)[rows].astype(str), return_inverse=True)[1] if classes else None
        order = check_random_state(self.random_state) if self.shuffle else None
        everything = np.arange(len(hidden))
        for part in dealt(len(rows), self.n_splits, order, strata):
            yield np.setdiff1d(everything, rows[part]), rows[part]


def dealt(
    n: int, k: int, random_state: np.random.RandomState | None, strata: NDArray[Any] | None = None
) -> list[IntArray]:
    """Deal ``n`` rows into ``k`` parts of nearly equal size.

    Parameters
    ----------
    n, k
        Rows and parts.
    random_state
        Draws the order; None keeps the rows' own.
    strata
        (n,) numbers of groups; each group is spread over the parts as evenly as can be.

    Returns
    -------
    list of ndarray
        The rows of each part, ascending.
    """
    order = np.arange(n) if random_state is None else random_state.permutation(n)
    if strata is None:
        return [np.sort(part) for part in np.array_split(order, k)]
    order = order[np.argsort(strata[order], kind="stable")]
    return [np.sort(order[i::k]) for i in range(k)]
