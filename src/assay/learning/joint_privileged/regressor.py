"""Coupled training for numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from assay.errors import InputError
from assay.parts.supervision import unlabelled

from . import inputs
from .base import Coupled
from .inputs import Training, refuse_no_labels
from .linear import LinearData

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class CoupledRegressor(RegressorMixin, Coupled):
    """Regression that learns from measurements which exist at training time only.

    A model f of the inputs is fitted together with a model g of inputs and privileged columns: both to the labels, and
    on unlabelled rows to one another. How much g counts is found on held-out labels, so that columns which say nothing
    do little harm. ``predict`` needs the inputs alone. A row is unlabelled where ``y`` is NaN.

    Parameters
    ----------
    estimator
        The model f of the inputs; None is a linear one. Otherwise any regressor of scikit-learn whose ``fit`` takes
        ``sample_weight`` (of a Pipeline, its last step); then the two models are fitted by turns.
    privileged_estimator
        The model g of inputs and privileged columns; None is a clone of ``estimator``.
    privileged
        The columns of ``X`` that are known at training time only: names, positions, truth values, or a function of X
        that returns such. None: ``fit`` is given them as ``W``.
    lam
        How closely g must explain the labels. ``"aggregate"``: the average of the models for all of ``lams``, with
        weights that fall exponentially with their loss on held-out labels. ``"cv"``: the one with the least such loss.
        A number from 0 (ignore W) to ``inf`` (two stages): that one.
    lams
        The candidates; None is 0, 0.1, 0.3, 1, 3, 10, 30, 100, 1000, inf, and 0, 0.3, 3, 30, inf with an ``estimator``.
    alphas
        Ridge penalties of the linear model, as candidates beside ``lams``. A lam of 0 is then ``Ridge(alpha)`` on the
        labelled rows.
        The greedy solver takes their median.
    solver
        ``"direct"``: one linear system a candidate. ``"alternating"``: f and g by turns. ``"greedy"``: f and g
        take a column a round, for up to 1e5 columns. ``"auto"``.
    standardize
        Whether the linear model works on columns with mean 0 and variance 1. The coefficients are in your units anyway.
    max_iter, tol
        Of ``"alternating"``: at most so many turns (None is 1000, and 10 with an ``estimator``), and at an end when
        what f says of the training rows changes by less than this share.
    n_atoms
        Of ``"greedy"``: how many columns f and g take each, or candidates for that; None is 1, 2, 3, 5, 8, 12, 20, 30.
    cv
        How many folds of the labelled rows; with fewer than two labels a fold each label is a fold. Or a splitter of
        scikit-learn or a list of splits, over all rows; of their test rows those with a label count. Held-out rows keep
        their W and count as unlabelled.
    random_state
        Draws the folds, and an int is passed on to estimators that have none.

    Attributes
    ----------
    lam_
        The candidate with the least loss on held-out labels.
    lam_weights_
        {(alpha, lam): weight} of what was averaged; with ``"greedy"`` the number of columns is in the place of alpha.
    cv_results_
        Arrays ``alpha``, ``lam``, ``n_atoms`` (0 but for ``"greedy"``), ``loss`` (mean squared error) and ``n``
        (labels it is over), a value a candidate; only where there was something to choose.
    coef_, intercept_, privileged_coef_, privileged_intercept_
        Of linear models, in your units: f on the inputs in their order, g on those and then the privileged columns.
    estimators_
        Of others: a list of (weight, f, g); g is None where it is f.
    input_indices_, privileged_indices_
        Which columns of ``X`` are inputs, and which are privileged.
    n_labelled_, n_unlabelled_, n_unlabelled_without_W_
        Numbers of training rows; the last ones were left out.
    objective_path_, n_iter_
        The loss that was minimised for ``lam_``, after each iteration, and how many there were.
    n_features_in_, feature_names_in_
        As in scikit-learn, with the privileged columns of ``X``.

    Raises
    ------
    ValueError
        For NaN or infinity where the models take none, rows with a part of W, no label, fewer than 3 where something is
        to be chosen, columns that are not numbers, and parameters out of range.
    TypeError
        For an ``estimator`` that does not take ``sample_weight``.

    Notes
    -----
    Source: "Coupled Training with Privileged Information and Unlabeled Data", Shi, Hagrass and Klusowski, arXiv
    2605.23268, ICML 2026.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> W = rng.standard_normal((300, 3))
    >>> X = W + rng.standard_normal((300, 3))             # the cheap inputs are the measurements with noise
    >>> y = np.where(np.arange(300) < 30, W.sum(axis=1), np.nan)
    >>> model = CoupledRegressor(random_state=0).fit(X, y, W=W)
    >>> model.predict([[1, 1, 1]]).shape, model.value_report()["gain"] > 0
    ((1,), True)
    """

    _classifier = False

    def predict(self, X: Any) -> FloatArray:
        """Predict from the inputs (n, p) alone; privileged columns may be there, and are not looked at."""
        inner, _ = self._inputs_of(X)
        if self.estimator is None:
            return inner @ self.coef_ + self.intercept_
        return sum(weight * np.asarray(f.predict(inner)).reshape(len(inner)) for weight, f, _ in self.estimators_)

    def predict_privileged(self, X: Any, W: Any = None) -> FloatArray:
        """Predict with g, from the inputs and the privileged columns: ``W`` (n, k), or columns of ``X``."""
        inner, Z = self._z_of(X, W)
        if self.estimator is None:
            return Z @ self.privileged_coef_ + self.privileged_intercept_
        return sum(
            weight * np.asarray(f.predict(inner) if g is None else g.predict(Z)).reshape(len(Z))
            for weight, f, g in self.estimators_
        )

    def _targets(self, y: Any, n: int, weight: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
        inputs.refuse_complex(y, "y")
        y = column_or_1d(y, warn=True)
        if len(y) != n:
            raise InputError(f"y has {len(y)} values, and X has {n} rows")
        if y.dtype.kind == "f" and np.isinf(y).any():
            raise InputError(f"Input y contains infinity or a value too large for {y.dtype!r}.")
        labelled = ~unlabelled(y, task="regression")
        numbers = np.where(labelled, pd.to_numeric(pd.Series(y), errors="coerce").to_numpy(dtype=np.float64), 0.0)
        refuse_no_labels(labelled & (weight > 0), "y is NaN in every row")
        seen = labelled & (weight > 0)
        # About their mean, divided by their spread: only the linear model works on these.
        self._y_mean = float(np.average(numbers[seen], weights=weight[seen]))
        largest = float(np.abs(numbers[seen] - self._y_mean).max()) or 1.0
        spread = largest * float(
            np.sqrt(np.average(((numbers[seen] - self._y_mean) / largest) ** 2, weights=weight[seen]))
        )
        self._y_sd = spread or 1.0
        if largest > 1e150:
            raise InputError("y has values so large that their squares leave the range of float64")
        return labelled, numbers[:, None], np.ones(n)

    def _linear_data(self, data: Training) -> LinearData:
        standard = np.where(data.labelled[:, None], (data.y - self._y_mean) / self._y_sd, 0.0)
        return LinearData(replace(data, y=standard), self.standardize)

    def _loss(self, outputs: FloatArray, y: FloatArray) -> FloatArray:
        return np.square(outputs - y).sum(axis=-1)

    def _loss_unit(self) -> float:
        return self._y_sd**2 if self.estimator is None else 1.0

    def _keep_linear(self, data: LinearData, f: FloatArray, g: FloatArray) -> None:
        coef, intercept = data.scale_x.undo(f)
        coef_g, intercept_g = data.scale_z.undo(g)
        self.coef_ = coef[:, 0] * self._y_sd
        self.intercept_ = float(intercept[0] * self._y_sd + self._y_mean)
        self.privileged_coef_ = coef_g[:, 0] * self._y_sd
        self.privileged_intercept_ = float(intercept_g[0] * self._y_sd + self._y_mean)
