"""Coupled training on a table as it comes from a file: words, gaps, a target with gaps, privileged columns by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay.errors import InputError
from assay.parts.frames import preprocessor, some

from .classifier import CoupledClassifier
from .regressor import CoupledRegressor

Task = Literal["regression", "classification"]

NAMES_OF_ROWS = 0.5
"""A column of text with different ones in more than this share of its rows is a name of rows and no input."""

LEAST_LABELS = 3
"""Fewer cannot choose a penalty."""


class CoupledTable(BaseEstimator):
    """A coupled model with what makes numbers of its table: medians and marks of gaps, a column for each word.

    Parameters
    ----------
    target
        The column to predict; empty where it is not known.
    privileged
        The columns that are known at training time only. A row may lack all of them.
    task
        ``"regression"`` or ``"classification"``; None asks the target: words, truth values, and whole numbers with at
        most 10 values are classes.
    lam
        As in :class:`CoupledRegressor`.
    random_state
        Draws the folds.

    Attributes
    ----------
    model_
        The fitted :class:`CoupledRegressor` or :class:`CoupledClassifier`.
    inputs_
        Names of the columns that are inputs.
    left_out_
        Names of columns of text that were left out, because they name rows.
    """

    def __init__(
        self,
        target: str,
        privileged: Sequence[str],
        task: Task | None = None,
        lam: float | str = "aggregate",
        random_state: int | None = 0,
    ) -> None:
        self.target = target
        self.privileged = privileged
        self.task = task
        self.lam = lam
        self.random_state = random_state

    def fit(self, frame: pd.DataFrame, y: Any = None) -> Self:
        """Fit to a table (n rows) that has the target and the privileged columns; ``y`` is ignored.

        Raises
        ------
        ValueError
            When a column is not there, nothing is left as an input, or the models refuse what is in it.
        """
        if self.task not in (None, "regression", "classification"):
            raise InputError(f"task must be 'regression' or 'classification', got {self.task!r}")
        wanted = [self.target, *self.privileged]
        absent = [name for name in wanted if name not in frame.columns]
        if absent:
            raise InputError(f"the table has no column {absent[0]!r}; it has {some(list(map(str, frame.columns)), 10)}")
        if not self.privileged or len(set(wanted)) < len(wanted):
            raise InputError("privileged must name at least one column, none twice, and not the target")
        rest = [name for name in frame.columns if name not in wanted]
        self.left_out_ = [name for name in rest if _names_rows(frame[name])]
        self.inputs_ = [name for name in rest if name not in self.left_out_]
        if not self.inputs_:
            raise InputError("no column is left as an input, beside the target and the privileged ones")
        X, W = frame[self.inputs_], frame[list(self.privileged)]
        self.numbers_of_inputs_ = preprocessor(X).fit(_no_infinity(X))
        self.numbers_of_privileged_ = preprocessor(W).fit(_no_infinity(W))
        measured = W.notna().any(axis=1).to_numpy()
        table = _columns(self.numbers_of_privileged_, W)
        table[~measured] = np.nan
        target = frame[self.target]
        known = target.notna().to_numpy()
        for rows, what in (
            (known, f"the target {self.target!r}"),
            (known & measured, f"W (the privileged columns) beside {self.target!r}"),
        ):
            if rows.sum() < LEAST_LABELS:
                raise InputError(f"{what} is known in {rows.sum()} rows; at least {LEAST_LABELS} are needed")
        self.task_ = self.task or task_of(target)
        if self.task_ == "regression":
            if not pd.api.types.is_numeric_dtype(target):
                raise InputError(f"the target {self.target!r} must be numbers for a regression")
            self.model_ = CoupledRegressor(lam=self.lam, random_state=self.random_state)
            labels: Any = target.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            self.model_ = CoupledClassifier(lam=self.lam, random_state=self.random_state)
            labels = _labels(target)
        self.model_.fit(_columns(self.numbers_of_inputs_, X), labels, W=table)
        return self

    def predict(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Predict (n,) from the inputs of a table; other columns are not looked at."""
        return self.model_.predict(self._numbers(frame))

    def predict_proba(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """Return probabilities (n, K) of the classes of ``model_.classes_``."""
        return self.model_.predict_proba(self._numbers(frame))

    def _numbers(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        check_is_fitted(self)
        absent = [name for name in self.inputs_ if name not in frame.columns]
        if absent:
            raise InputError(f"the table lacks the inputs {some(absent)}, which the model was fitted with")
        return _columns(self.numbers_of_inputs_, _no_infinity(frame[self.inputs_]))


def task_of(target: pd.Series) -> Task:
    """Whether a target is numbers or classes."""
    known = target.dropna()
    if not pd.api.types.is_numeric_dtype(target) or pd.api.types.is_bool_dtype(target):
        return "classification"
    whole = bool((known.astype(float) % 1 == 0).all())
    return "classification" if whole and known.nunique() <= 10 else "regression"


def _labels(target: pd.Series) -> NDArray[Any]:
    """Classes as words, whole numbers where they are such, and None where there is none."""
    known = target.notna().to_numpy()
    labels = np.full(len(target), None, dtype=object)
    whole = pd.api.types.is_numeric_dtype(target) and not pd.api.types.is_bool_dtype(target)
    if whole and not (target.dropna().astype(float) % 1 == 0).all():
        raise InputError(f"the target {target.name!r} has fractions; it is for a regression")
    labels[known] = [str(int(value)) if whole else str(value) for value in target[known]]
    return labels


def _columns(transformer: Any, frame: pd.DataFrame) -> NDArray[np.float64]:
    try:
        return np.array(transformer.transform(frame), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"a column is of another kind than when the model was fitted: {error}") from None


def _no_infinity(frame: pd.DataFrame) -> pd.DataFrame:
    for name in frame.columns:
        numeric = pd.api.types.is_numeric_dtype(frame[name])
        if numeric and np.isinf(frame[name].to_numpy(dtype=np.float64, na_value=np.nan)).any():
            raise InputError(f"the column {name!r} has infinity in it")
    return frame


def _names_rows(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column) or isinstance(column.dtype, pd.CategoricalDtype):
        return False
    return len(column) > 20 and column.nunique() > NAMES_OF_ROWS * len(column)
