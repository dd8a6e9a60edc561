"""What the two estimators share: reading what they are given, choosing lam, and the columns of new rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from assay.errors import InputError

from . import inputs
from .alternating import AlternatingGrid, allows_nan, targets_of
from .folds import dealt
from .greedy import GreedyGrid
from .inputs import Table, Training
from .linear import LinearData, RidgeGrid
from .logistic import LogisticGrid
from .parameters import ATOMS, LIGHTEST, TURNS, TURNS_OF_ESTIMATORS, WIDEST, candidates, check, is_integer
from .selection import HeldOut, averaging_weights, held_out, mean_losses, single, value_of_w

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(eq=False, repr=False)
class Coupled(BaseEstimator):
    """What the regressor and the classifier share: parameters, reading, choosing, and the columns of new rows.

    The parameters are fields of a dataclass, so that they stand here once: scikit-learn reads them from the signature
    of ``__init__``, and that takes in the fields of a subclass.
    """

    estimator: Any = None
    privileged_estimator: Any = None
    _: KW_ONLY
    privileged: Any = None
    lam: float | Literal["aggregate", "cv"] = "aggregate"
    lams: Sequence[float] | None = None
    alphas: Sequence[float] = (0.3, 3.0, 30.0)
    solver: Literal["auto", "direct", "alternating", "greedy"] = "auto"
    standardize: bool = True
    max_iter: int | None = None
    tol: float = 1e-5
    n_atoms: int | Sequence[int] | None = None
    cv: Any = 5
    random_state: int | np.random.RandomState | None = None

    _classifier: ClassVar[bool]

    # ---- fitting

    def fit(self, X: Any, y: Any, W: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit f and g together.

        Parameters
        ----------
        X
            (n, d) inputs, with the privileged columns if ``privileged`` names them. Unlabelled rows belong here.
        y
            (n,) targets; see the class for what means that there is none.
        W
            (n, k) privileged columns, where ``privileged`` is None; a row may be missing as a whole (NaN).
        sample_weight
            (n,) weights of the rows, none negative; a row of weight 0 is as if it were not there.
        """
        check(self, self._classifier)
        data = self._training(X, y, W, sample_weight)
        learner, grid = self._learner(data)
        labelled = np.flatnonzero(data.labelled)
        if len(grid) == 1:
            weights = np.ones(1)
            for name in ("cv_results_", "_value"):
                self.__dict__.pop(name, None)  # of an earlier fit
        else:
            folds = self._folds(labelled, data, y)
            held = held_out(learner, folds, learner.data.y, data.label_weight)
            means = mean_losses(held, self._loss)
            weights = self._choose(means, len(labelled))
            self._report(held, means, grid, len(labelled))
        best = int(np.argmax(weights)) if len(grid) == 1 else int(np.argmax(single(means)))
        self.lam_ = float(grid[best][1])
        self._keep(learner, data, grid, weights, best)
        return self

    @property
    def lam_weights_(self) -> dict[tuple[float, float], float]:
        """What was averaged, with its weights."""
        check_is_fitted(self)
        pairs = zip(self._points.tolist(), self._weights.tolist(), strict=True)
        return {(first, lam): weight for (first, lam), weight in pairs}

    def value_report(self) -> dict[str, float | None]:
        """Did W help? Losses on held-out labels of ignoring W, of two stages, and of this model.

        Each label is judged by models, weights and penalties that it had no part in.

        Returns
        -------
        dict
            ``labelled_loss``, ``two_stage_loss``, ``coupled_loss``: mean {loss}; None where ``lams`` lacks that end.
            ``gain``: what this model gains over ignoring W, and ``gain_se``, its standard error over rows.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        ValueError
            Where nothing was to be chosen, so that no label was held out.
        """
        check_is_fitted(self)
        if not hasattr(self, "_value"):
            raise InputError("value_report needs lam='aggregate' or lam='cv': with one candidate no label is held out")
        value = self._value
        return {
            "labelled_loss": value[0],
            "two_stage_loss": value[1],
            "coupled_loss": value[2],
            "gain": value[3],
            "gain_se": value[4],
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allow_nan()
        return tags

    def _allow_nan(self) -> bool:
        """Whether both models take NaN."""
        others = [e for e in (self.estimator, self.privileged_estimator) if e is not None]
        return self.estimator is not None and all(allows_nan(e) for e in others)

    def _training(self, X: Any, y: Any, W: Any, sample_weight: ArrayLike | None) -> Training:
        if y is None:
            raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        if (W is None) == (self.privileged is None):
            raise InputError(
                "where is W? Give fit(X, y, W=…), or name the columns of X with privileged=[…]"
                if W is None
                else "W is given, and privileged names columns of X too; give one of the two"
            )
        allow_nan = self._allow_nan()
        frame = self.estimator is not None and isinstance(X, pd.DataFrame)
        original = X
        if frame:
            inputs.refuse_doubles(X, "X")
            validate_data(self, X, skip_check_array=True)
            if len(X) < 2:
                raise InputError(f"n_samples={len(X)}: at least 2 rows are needed")
            array: Table = X
        else:
            inputs.refuse_words(X, "X")
            array = validate_data(self, X, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=2)
        d = array.shape[1]
        self.privileged_indices_ = (
            np.array([], dtype=np.int64)
            if self.privileged is None
            else inputs.column_numbers(self.privileged, original if hasattr(original, "columns") else array)
        )
        self.input_indices_ = np.setdiff1d(np.arange(d), self.privileged_indices_)
        if len(self.input_indices_) == 0:
            raise InputError(f"X has {d} feature(s), all of them privileged: none is left to predict from")
        inner = _columns(array, self.input_indices_)
        inputs.finite(inner, self, allow_nan)
        if W is not None:
            privileged = inputs.privileged_table(W, original if hasattr(original, "index") else array, frame=frame)
        else:
            privileged = inputs.privileged_table(_columns(array, self.privileged_indices_), array, "X", frame=frame)
        names = list(privileged.columns) if isinstance(privileged, pd.DataFrame) else self._names_of_w(W)
        has_w = inputs.rows_with_w(privileged, allow_nan, names)
        inputs.refuse_words(sample_weight, "sample_weight")
        weight = _check_sample_weight(sample_weight, inner if not frame else np.zeros((len(X), 1)), dtype=np.float64)
        if (weight < 0).any():
            raise InputError("sample_weight must not be negative")
        labelled, targets, factor = self._targets(y, len(array), weight)
        self.n_privileged_ = privileged.shape[1]
        counts = weight > 0
        self.n_labelled_ = int((labelled & counts).sum())
        self.n_unlabelled_ = int((~labelled & counts & has_w).sum())
        self.n_unlabelled_without_W_ = int((~labelled & counts & ~has_w).sum())
        inputs.say_what_is_left_out(labelled[counts], has_w[counts])
        if not (labelled & has_w & counts).any():
            raise InputError("W is missing in every labelled row: nothing can be learned from it; leave it out")
        kept = counts & (labelled | has_w)
        Z = inputs.beside(inner, privileged)
        self._z_columns = list(Z.columns) if isinstance(Z, pd.DataFrame) else None
        Z = inputs.take(Z, kept)
        inner = Z[:, : inner.shape[1]] if isinstance(Z, np.ndarray) else inputs.take(inner, kept)
        return Training(
            inner,
            Z,
            targets[kept],
            weight[kept],
            (weight * factor)[kept],
            labelled[kept],
            has_w[kept],
            np.flatnonzero(kept),
        )

    def _names_of_w(self, W: Any) -> list[Any]:
        if isinstance(W, pd.DataFrame):
            return list(W.columns)
        if W is not None:
            return list(range(1 if np.ndim(W) == 1 else np.shape(W)[1]))
        names = getattr(self, "feature_names_in_", None)
        return list(self.privileged_indices_ if names is None else names[self.privileged_indices_])

    def _learner(self, data: Training) -> tuple[Any, list[tuple[float, float]]]:
        lams = [float(lam) for lam in (candidates(self) if isinstance(self.lam, str) else [self.lam])]
        lams = list(dict.fromkeys(lams))
        if self.estimator is not None:
            grid = [(0.0, lam) for lam in lams]
            other = self.estimator if self.privileged_estimator is None else self.privileged_estimator
            turns = self.max_iter or TURNS_OF_ESTIMATORS
            seed = self.random_state if is_integer(self.random_state) else None
            classes = len(self.classes_) if self._classifier else 0
            return AlternatingGrid(data, grid, self.estimator, other, turns, self.tol, seed, classes), grid
        linear = self._linear_data(data)
        solver = self.solver
        if solver == "auto":
            fits = self._classifier or linear.p + linear.q <= WIDEST or len(linear.Z) <= WIDEST
            solver = "direct" if fits else "greedy"
        self._solver = solver
        if solver == "greedy":
            most = max(1, self.n_labelled_ - 2)
            sizes = [self.n_atoms] if is_integer(self.n_atoms) else list(self.n_atoms or ATOMS)
            sizes = sorted({min(int(size), most) for size in sizes})
            grid = [(float(size), lam) for size in sizes for lam in lams]
            return GreedyGrid(linear, grid, float(np.median(self.alphas))), grid
        grid = [(float(alpha), lam) for alpha in dict.fromkeys(self.alphas) for lam in lams]
        if self._classifier:
            return LogisticGrid(linear, grid), grid
        descend = (self.max_iter or TURNS, float(self.tol)) if solver == "alternating" else None
        return RidgeGrid(linear, grid, descend), grid

    def _folds(self, labelled: NDArray[np.int64], data: Training, y: Any) -> list[NDArray[np.int64]]:
        n = len(labelled)
        if n < 3:
            raise InputError(
                f"y has {n} label{'s' * (n != 1)}, and at least 3 are needed to choose among candidates; "
                "give a number for lam, and one for alphas"
            )
        if is_integer(self.cv):
            strata = targets_of(data.y[labelled], len(self.classes_)) if self._classifier else None
            k = int(self.cv)
            if n < 2 * k:
                warnings.warn(
                    f"{n} labels are fewer than two for each of cv={k} folds; each label is now a fold",
                    UserWarning,
                    stacklevel=3,
                )
                k = n
            return [labelled[part] for part in dealt(n, k, check_random_state(self.random_state), strata)]
        try:
            parts = [np.asarray(test) for _, test in check_cv(self.cv).split(np.zeros((len(y), 1)), y)]
            tested = [np.isin(data.rows[labelled], part) for part in parts]
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"cv={self.cv!r} cannot split the rows: {error}") from None
        folds = [labelled[part] for part in tested if part.any()]
        if not folds or any(len(fold) == n for fold in folds):
            raise InputError(f"cv={self.cv!r} must hold out some of the {n} labelled rows at a time, not none or all")
        return folds

    def _choose(self, means: FloatArray, n: float) -> FloatArray:
        """Weights of the candidates from their mean losses on ``n`` labels."""
        if self.lam == "aggregate":
            return averaging_weights(means, n, squared=not self._classifier)
        return single(means)

    def _report(self, held: HeldOut, means: FloatArray, grid: list[tuple[float, float]], n: int) -> None:
        first, lams = (np.array(values) for values in zip(*grid, strict=True))
        greedy = self.estimator is None and self._solver == "greedy"
        unit = self._loss_unit()
        self.cv_results_ = {
            "lam": lams,
            "alpha": np.zeros_like(first) if greedy else first,
            "n_atoms": first.astype(np.int64) if greedy else np.zeros(len(first), dtype=np.int64),
            "loss": means * unit,
            "n": np.full(len(first), n),
        }
        value = value_of_w(held, self._loss, lams, self._choose)
        parts = (value.labelled, value.two_stage, value.coupled, value.gain, value.gain_se)
        self._value = [None if part is None else part * unit for part in parts]

    def _keep(
        self, learner: Any, data: Training, grid: list[tuple[float, float]], weights: FloatArray, best: int
    ) -> None:
        """Fit what is averaged on all rows, and keep it."""
        linear = self.estimator is None
        if not linear:
            weights = np.where(weights < LIGHTEST * weights.max(), 0.0, weights)
            weights = weights / weights.sum()
        points = np.flatnonzero(weights)
        if best not in points:
            points = np.sort(np.append(points, best))  # for its path of losses
        fits = learner.fit(points=points)
        # As arrays: a file of skops has no dictionaries of pairs.
        self._points = np.array([grid[i] for i in np.flatnonzero(weights)])
        self._weights = weights[weights > 0]
        self.objective_path_ = np.array(fits.losses[int(np.flatnonzero(points == best)[0])])
        self.n_iter_ = len(self.objective_path_)
        share = weights[points]
        if linear:
            self._keep_linear(learner.data, np.tensordot(share, fits.f, axes=1), np.tensordot(share, fits.g, axes=1))
            turns = self.max_iter or TURNS
            if self._solver == "alternating" and self.n_iter_ >= turns and self.tol > 0:
                warnings.warn(
                    f"f still changed by more than tol={self.tol:g} after max_iter={turns} turns",
                    ConvergenceWarning,
                    stacklevel=3,
                )
            return
        self.estimators_ = [
            (float(weight), f, g) for weight, (f, g) in zip(share, fits.pairs, strict=True) if weight > 0
        ]

    # ---- new rows

    def _inputs_of(self, X: Any, privileged: bool = False) -> tuple[Table, Table | None]:
        """The inputs of new rows, checked, and the privileged columns of ``X`` if asked for."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if not privileged:
            X = inputs.completed(X, names, self.privileged_indices_, self.n_features_in_)
        frame = self.estimator is not None and isinstance(X, pd.DataFrame)
        if frame:
            validate_data(self, X, reset=False, skip_check_array=True)
            array: Table = X
        else:
            if isinstance(X, pd.DataFrame) and X.shape[1] == self.n_features_in_:
                inputs.refuse_words(X.iloc[:, self.input_indices_], "X")
            array = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False)
        inner = _columns(array, self.input_indices_)
        inputs.finite(inner, self, self._allow_nan())
        return inner, _columns(array, self.privileged_indices_) if privileged else None

    def _z_of(self, X: Any, W: Any) -> tuple[Table, Table]:
        check_is_fitted(self)
        if (W is None) == (len(self.privileged_indices_) == 0):
            raise InputError(
                "W is needed: this model was fitted with W"
                if W is None
                else "W is given, but this model takes it from X"
            )
        inner, within = self._inputs_of(X, privileged=W is None)
        frame = isinstance(inner, pd.DataFrame)
        W = inputs.privileged_table(
            within if W is None else W, X if W is not None and hasattr(X, "index") else inner, frame=frame
        )
        if W.shape[1] != self.n_privileged_:
            raise InputError(f"W has {W.shape[1]} columns, and had {self.n_privileged_} in fit")
        missing = W.isna().to_numpy() if isinstance(W, pd.DataFrame) else np.isnan(W)
        if missing.any() and not self._allow_nan():
            raise InputError(f"W has missing values in {int(missing.any(axis=1).sum())} rows; g needs them all")
        Z = inputs.beside(inner, W)
        if isinstance(Z, pd.DataFrame) and self._z_columns is not None and list(Z.columns) != self._z_columns:
            raise InputError(f"W has the columns {list(W.columns)}, and had others, or another order, in fit")
        return inner, Z

    # ---- for the two estimators to say

    def _targets(self, y: Any, n: int, weight: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
        """Which rows have labels, (n, k) targets, and (n,) what a label's class weighs."""
        raise NotImplementedError

    def _loss(self, outputs: FloatArray, y: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _loss_unit(self) -> float:
        return 1.0

    def _linear_data(self, data: Training) -> LinearData:
        return LinearData(data, self.standardize)

    def _keep_linear(self, data: LinearData, f: FloatArray, g: FloatArray) -> None:
        raise NotImplementedError


def _columns(table: Table, numbers_: NDArray[np.int64]) -> Table:
    return table.iloc[:, numbers_] if isinstance(table, pd.DataFrame) else table[:, numbers_]
