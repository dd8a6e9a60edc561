"""Coupled training for classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from assay.errors import InputError
from assay.parts.supervision import unlabelled

from . import inputs
from .alternating import LEAST, says
from .base import Coupled
from .inputs import Table, refuse_no_labels
from .linear import LinearData
from .logistic import centred, log_probabilities
from .parameters import is_real

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(eq=False, repr=False, kw_only=True)
class CoupledClassifier(ClassifierMixin, Coupled):
    """Classification that learns from measurements which exist at training time only.

    As :class:`CoupledRegressor`, with the log-loss on labels. The linear models of inputs, and of inputs and privileged
    columns, agree in their logits; other estimators agree in their probabilities. A row is unlabelled where ``y`` is -1
    (integers), or None or NaN.

    Parameters
    ----------
    estimator
        The model f of the inputs; None is a linear one. Otherwise any classifier of scikit-learn whose ``fit`` takes
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
        Ridge penalties of the linear model, as candidates beside ``lams``. A lam of 0 is then
        ``LogisticRegression(C=1/alpha)`` on the labelled rows.
    solver
        ``"direct"``: one minimisation a candidate, of the linear model. ``"alternating"``: f and g by turns, if there
        is an ``estimator``. ``"auto"``: the one that is possible.
    standardize
        Whether the linear model works on columns with mean 0 and variance 1. The coefficients are in your units anyway.
    max_iter, tol
        Of ``"alternating"``: at most so many turns (None is 10), and at an end when what f says of the training rows
        changes by less than this share.
    n_atoms
        Of the regressor's greedy solver; without effect here.
    cv
        How many folds of the labelled rows; with fewer than two labels a fold each label is a fold. Or a splitter of
        scikit-learn or a list of splits, over all rows; of their test rows those with a label count. Held-out rows keep
        their W and count as unlabelled.
    random_state
        Draws the folds, and an int is passed on to estimators that have none.
    class_weight
        Weights of the classes' labels: a dict, or ``"balanced"``.

    Attributes
    ----------
    classes_
        (K,) the classes.
    lam_
        The candidate with the least loss on held-out labels.
    lam_weights_
        {(alpha, lam): weight} of what was averaged.
    cv_results_
        Arrays ``alpha``, ``lam``, ``n_atoms`` (0), ``loss`` (mean log-loss) and ``n`` (labels it is over), a value a
        candidate; only where there was something to choose.
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
    >>> X = W + rng.standard_normal((300, 3))
    >>> y = np.where(np.arange(300) < 60, W.sum(axis=1) > 0, -1)
    >>> model = CoupledClassifier(random_state=0).fit(X, y, W=W)
    >>> model.classes_, model.predict([[2, 2, 2], [-2, -2, -2]])
    (array([0, 1]), array([1, 0]))
    """

    _classifier = True

    class_weight: dict[Any, float] | Literal["balanced"] | None = None

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class (n,) of each row of inputs."""
        best = self._log_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return probabilities (n, K) of the classes, in the order of ``classes_``."""
        return np.exp(self._log_proba(X))

    def decision_function(self, X: Any) -> FloatArray:
        """Return logits: (n,) of the second class where there are two, else (n, K)."""
        if self.estimator is None:
            logits = self._logits(self._inputs_of(X)[0])
        else:
            logits = centred(self._log_proba(X))
            logits = logits[:, 1:] - logits[:, :1] if len(self.classes_) == 2 else logits
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_privileged(self, X: Any, W: Any = None) -> NDArray[Any]:
        """The most probable class by g, from the inputs and ``W`` (n, k), or the privileged columns of ``X``."""
        inner, Z = self._z_of(X, W)
        if self.estimator is None:
            logits = Z @ self.privileged_coef_.T + self.privileged_intercept_
            return self.classes_[log_probabilities(logits).argmax(axis=1)]
        probabilities = self._average([f if g is None else g for _, f, g in self.estimators_], [inner, Z])
        return self.classes_[probabilities.argmax(axis=1)]

    def _log_proba(self, X: Any) -> FloatArray:
        inner, _ = self._inputs_of(X)
        if self.estimator is None:
            return log_probabilities(self._logits(inner))
        average = np.maximum(self._average([f for _, f, _ in self.estimators_], [inner]), 0.1 * LEAST)
        return np.log(average / average.sum(axis=1, keepdims=True))

    def _logits(self, inner: FloatArray) -> FloatArray:
        return centred(inner @ self.coef_.T + self.intercept_)

    def _average(self, models: list[Any], tables: list[Table]) -> FloatArray:
        K = len(self.classes_)
        total = np.zeros((len(tables[0]), K))
        for model, (weight, f, _) in zip(models, self.estimators_, strict=True):
            total += weight * says(model, tables[0] if model is f else tables[-1], K)
        return total

    def _targets(self, y: Any, n: int, weight: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
        inputs.refuse_complex(y, "y")
        y = column_or_1d(y, warn=True)
        if len(y) != n:
            raise InputError(f"y has {len(y)} values, and X has {n} rows")
        if y.dtype.kind == "f" and np.isinf(y).any():
            raise InputError(f"Input y contains infinity or a value too large for {y.dtype!r}.")
        labelled = ~unlabelled(y, task="classification")
        seen = labelled & (weight > 0)
        refuse_no_labels(seen, "y is -1, None or NaN in every row")
        labels = y[labelled]
        if labels.dtype == object:
            words = sum(isinstance(label, str) for label in labels)
            if 0 < words < len(labels):  # NumPy would make words of the numbers
                raise InputError("y has labels that are words beside others that are not; make all of them words")
            labels = np.array(labels.tolist())
        check_classification_targets(labels)
        self.classes_ = np.unique(labels[weight[labelled] > 0])
        K = len(self.classes_)
        if K < 2:
            raise InputError(
                f"y has labels of one class only, {str(self.classes_[0])!r}; at least 2 classes are needed"
            )
        # A class that has weight 0 everywhere is no class; its rows are dropped later.
        number = np.zeros(n, dtype=np.int64)
        known = np.searchsorted(self.classes_, labels)
        number[labelled] = np.minimum(known, K - 1)
        factor = np.ones(n)
        if self.class_weight is not None:
            self._check_class_weight()
            rows = np.flatnonzero(seen)
            factor[rows] = compute_sample_weight(self.class_weight, self.classes_[number[rows]])
        targets = number[:, None].astype(np.float64) if K == 2 else np.eye(K)[number]
        targets[~labelled] = 0
        return labelled, targets, factor

    def _check_class_weight(self) -> None:
        given = self.class_weight
        if isinstance(given, dict):
            bad = [c for c, v in given.items() if not is_real(v) or not 0 <= v < math.inf]
            if bad:
                raise InputError(f"class_weight of {bad[0]!r} must be a number from 0 on, got {given[bad[0]]!r}")
        elif given != "balanced":
            raise InputError(f"class_weight must be None, a dict or 'balanced', got {given!r}")

    def _loss(self, outputs: FloatArray, y: FloatArray) -> FloatArray:
        logs = log_probabilities(outputs) if self.estimator is None else np.log(np.maximum(outputs, LEAST))
        onehot = np.hstack([1 - y, y]) if y.shape[1] == 1 else y
        return -np.sum(logs * onehot, axis=-1)

    def _keep_linear(self, data: LinearData, f: FloatArray, g: FloatArray) -> None:
        coef, intercept = data.scale_x.undo(f)
        coef_g, intercept_g = data.scale_z.undo(g)
        self.coef_, self.intercept_ = coef.T, intercept
        self.privileged_coef_, self.privileged_intercept_ = coef_g.T, intercept_g
