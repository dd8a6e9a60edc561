"""PCA that finds and removes hidden mean shifts."""

from __future__ import annotations

import numbers
import warnings
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from assay.numerics.spectra import Eigen, truncated_eigen

from .shift_test import p_value, refined_rows, shifted_rows, z_value
from .spectrum import KnockoffSpectrum, known_centre, move
from .theory import noise_edge

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

SMALLEST_GROUP = 5
"""The mean of fewer rows is too noisy to be subtracted."""


class KnockoffPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Principal components of rows of which a share has, unknown to us, another mean.

    A hidden group of rows (a batch, a second site, mislabelled samples) adds a spike to the covariance that is
    no direction of variation, and often becomes the first component. A known "knockoff" mean is added to the
    data: eigenvalues of the covariance stay, those that a shift makes move. What moves is tested, the shifted
    rows are found, and every group is centred by its own mean.

    Parameters
    ----------
    n_components
        How many components to keep; ``None`` means as many as stand above the noise, at least 1.
    k_max
        How many leading components are examined at most.
    alpha
        Level of the test for a move, over all examined components of a round together.
    center
        The clean mean: ``"robust"`` (unknown; the median along each component), ``"zero"`` (known to be 0:
        returns, log ratios, residuals), or an array (d,).
    removal
        ``"recentre"`` centres each group by its own mean and looks again; ``"drop"`` deletes the components
        that moved, and leaves the rows as they are, so that at most min(n, d) less those components are left.
    bic_margin
        How much better (in BIC) two groups must explain the scores than one skewed group. A large margin costs
        power where few rows are shifted.
    max_rounds
        How many times shifts can be removed and the rest examined again (``"recentre"``).
    min_fraction
        The smallest share of rows that can be a group; a group has at least 5 rows.
    random_state
        Used only where min(n, d) > 1500, by the randomized decomposition.

    Attributes
    ----------
    components_
        (r, d) unit rows, orthogonal; the largest loading of each is positive.
    explained_variance_, explained_variance_ratio_
        (r,) variance of the clean rows along each component (divisor n − 1), and its share of all of it.
    noise_variance_
        Mean variance of the directions left out, as in :class:`sklearn.decomposition.PCA`.
    mean_
        (d,) the estimated clean mean: that of the rows in no shifted group.
    shifts_
        (q, d) estimated shift of each shifted group from the clean rows.
    memberships_
        (n, q) which rows each shift moved.
    labels_
        (n,) 0 for clean rows, else 1 + the first shift that moved the row.
    report_
        A row for each examined raw component: ``eigenvalue`` (about the assumed clean centre, divisor n),
        ``knockoff_eigenvalue``, ``relative_move``, ``z``, ``p_value``, ``bic_gain``, ``moved``. ``bic_gain`` is
        NaN where the move is not significant, for then nothing hangs on it.
    rounds_
        The same table for every round, ``rounds_[0]`` being ``report_``.
    spectrum_
        :class:`KnockoffSpectrum` of the raw table, examined components and more.
    edge_
        Largest eigenvalue that noise alone would give in the raw table (divisor n).
    n_components_, n_samples_, n_features_in_, feature_names_in_
        As in scikit-learn.

    Raises
    ------
    ValueError
        For NaN, infinity, fewer than 10 rows or 2 columns, a table without variance, and parameters out of
        range.

    Notes
    -----
    Source: "Mean-Shift PCA by Knockoff Mean", Li, Li and Yao, arXiv 2605.25460. Everything is computed in
    float64, and ``X`` is not changed. New rows are projected as they are: ``transform`` does not try to find
    out whether they are shifted.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 100))
    >>> X[:, 0] *= 4                                      # the direction of variation
    >>> X[:30] += rng.standard_normal(100) * 2            # the hidden batch
    >>> pca = KnockoffPCA(n_components=1).fit(X)
    >>> bool(abs(pca.components_[0, 0]) > 0.95), int(pca.labels_[:30].sum()), int(pca.labels_[30:].sum())
    (True, 30, 0)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        k_max: int = 10,
        alpha: float = 0.01,
        center: str | ArrayLike = "robust",
        removal: Literal["recentre", "drop"] = "recentre",
        bic_margin: float = 2.0,
        max_rounds: int = 5,
        min_fraction: float = 0.01,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.k_max = k_max
        self.alpha = alpha
        self.center = center
        self.removal = removal
        self.bic_margin = bic_margin
        self.max_rounds = max_rounds
        self.min_fraction = min_fraction
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Find the shifts in ``X`` (n, d), n ≥ 10, d ≥ 2, remove them and fit the components; ``y`` is ignored."""
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=10, ensure_min_features=2)
        n, d = X.shape
        self._check_parameters(n, d)
        known = known_centre(self.center, d)
        random_state = check_random_state(self.random_state)

        mean = X.mean(axis=0)
        Y = X - mean
        # Squares of very large or small numbers leave the range of float64; of Y / scale they cannot.
        scale = _power_of_two(np.abs(Y).max())
        Y /= scale
        varying = _varying_columns(Y, mean / scale)
        if varying == 0:
            raise ValueError("no variance: every column of X is constant")
        k = min(self.k_max, n - 1, varying)
        # "drop" needs as many components more as it may delete.
        wanted = (self.n_components or 0) + (k if self.removal == "drop" else 0)
        members = np.zeros((n, 0), dtype=bool)
        shifts = np.zeros((0, d))
        self.rounds_: list[pd.DataFrame] = []
        while True:
            eigen = truncated_eigen(Y, max(k, min(wanted, n, d)), random_state, bulk=not self.rounds_)
            scores = Y @ eigen.vectors[:k].T
            if not self.rounds_:
                # Group means taken out later change a few of the many eigenvalues behind the noise level.
                edge = noise_edge(eigen.bulk, eigen.n_bulk, varying)
            spectrum = _spectrum(eigen, k, scores, None if known is None else (known - mean) / scale)
            examined = int(np.sum(eigen.values[:k] > edge))
            report, groups = self._examine(spectrum, examined, known is not None)
            if not self.rounds_:
                self.spectrum_, self.edge_ = _in_units(spectrum, scale), edge * scale * scale
            report[["eigenvalue", "knockoff_eigenvalue"]] *= scale
            report[["eigenvalue", "knockoff_eigenvalue"]] *= scale
            self.rounds_.append(report)
            moved = np.flatnonzero(report["moved"])
            if len(moved) == 0 or self.removal == "drop":
                break
            if len(self.rounds_) > self.max_rounds:
                warnings.warn(
                    f"components still move after shifts were removed in max_rounds={self.max_rounds} rounds",
                    ConvergenceWarning,
                    stacklevel=2,
                )
                break
            strongest_first = moved[np.argsort(-report["bic_gain"].to_numpy()[moved], kind="stable")]
            members = np.column_stack([members, *_distinct([groups[j] for j in strongest_first])])
            mean, shifts = _group_means(X, members)
            _recentre(X, mean, shifts, members, out=Y)
            Y /= scale

        kept = np.arange(len(eigen.values))
        spikes = examined
        if self.removal == "drop" and len(moved):
            kept, spikes = np.setdiff1d(kept, moved), examined - len(moved)
            members = np.column_stack(_distinct([groups[j] for j in moved]))
            mean, shifts = _group_means(X, members)
        if len(self.report_) == 0:
            warnings.warn(
                "no component stands above the noise: this is plain PCA, and no shift could be found",
                UserWarning,
                stacklevel=2,
            )
        r = self.n_components if self.n_components is not None else max(1, spikes)
        if r > len(kept):
            warnings.warn(
                f"n_components={r}, but {len(moved)} of the {min(n, d)} components moved and were dropped: "
                f"{len(kept)} are left",
                UserWarning,
                stacklevel=2,
            )
        self._keep(eigen, kept[:r], n, d, scale)
        self.mean_, self.shifts_, self.memberships_ = mean, shifts, members
        self.labels_ = (
            np.where(members.any(axis=1), members.argmax(axis=1) + 1, 0)
            if members.size
            else (np.zeros(n, dtype=np.int64))
        )
        self.n_samples_ = n
        return self

    @property
    def report_(self) -> pd.DataFrame:
        """The examined components of the raw table."""
        return self.rounds_[0]

    def transform(self, X: ArrayLike) -> FloatArray:
        """Return the scores (m, r) of rows ``X`` (m, d) about the clean mean."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return X @ self.components_.T - self.mean_ @ self.components_.T

    def inverse_transform(self, X: ArrayLike) -> FloatArray:
        """Return rows (m, d) from scores ``X`` (m, r): the projection about the clean mean."""
        check_is_fitted(self)
        scores = np.asarray(X, dtype=np.float64)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise ValueError(f"X must have shape (m, {self.n_components_}), got {scores.shape}")
        return scores @ self.components_ + self.mean_

    def plot_spectrum(self, ax: Any = None) -> Any:
        """Draw the raw spectrum without and with the knockoff mean; return the matplotlib axes.

        Components that moved and were found to be shifts carry a cross and the share of rows.
        """
        check_is_fitted(self)
        from .plot import plot_spectrum

        return plot_spectrum(self, ax)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def _check_parameters(self, n: int, d: int) -> None:
        for name in ("k_max", "max_rounds"):
            value = getattr(self, name)
            if not _is_integer(value) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        if not (_is_real(self.alpha) and 0 < self.alpha < 1):
            raise ValueError(f"alpha must be a number strictly between 0 and 1, got {self.alpha!r}")
        if not (_is_real(self.min_fraction) and 0 <= self.min_fraction < 0.5):
            raise ValueError(f"min_fraction must be a number in [0, 0.5), got {self.min_fraction!r}")
        if not (_is_real(self.bic_margin) and np.isfinite(self.bic_margin)):
            raise ValueError(f"bic_margin must be a finite number, got {self.bic_margin!r}")
        if self.removal not in ("recentre", "drop"):
            raise ValueError(f"removal must be 'recentre' or 'drop', got {self.removal!r}")
        r = self.n_components
        if r is not None and (not _is_integer(r) or not 1 <= r <= min(n, d)):
            raise ValueError(
                f"n_components must be None or an integer from 1 to min(n_samples, n_features) = {min(n, d)}, got {r!r}"
            )

    def _examine(
        self, spectrum: KnockoffSpectrum, examined: int, known_centre: bool
    ) -> tuple[pd.DataFrame, list[BoolArray]]:
        columns = [spectrum.scores[:, j] for j in range(examined)]
        z = np.array([z_value(s, c, known_centre) for s, c in zip(columns, spectrum.centre, strict=False)])
        p = p_value(z, examined)
        n = len(spectrum.scores)
        smallest = max(SMALLEST_GROUP, self.min_fraction * n)
        gains, moved = np.full(examined, np.nan), np.zeros(examined, dtype=bool)
        groups = [np.zeros(n, dtype=bool)] * examined
        for j in np.flatnonzero(p < self.alpha):
            gains[j], rows, weight = shifted_rows(columns[j])
            moved[j] = gains[j] > self.bic_margin and rows.sum() >= smallest and weight >= self.min_fraction
            if moved[j]:
                groups[j] = refined_rows(spectrum.scores[:, :examined], rows, smallest)
        report = pd.DataFrame(
            {
                "eigenvalue": spectrum.eigenvalues[:examined],
                "knockoff_eigenvalue": spectrum.knockoff_eigenvalues[:examined],
                "relative_move": spectrum.relative_move[:examined],
                "z": z.astype(float),
                "p_value": p.astype(float),
                "bic_gain": gains,
                "moved": moved,
            },
            index=pd.RangeIndex(examined, name="component"),
        )
        return report, groups

    def _keep(self, eigen: Eigen, kept: NDArray[np.int64], n: int, d: int, scale: float) -> None:
        components = eigen.vectors[kept]
        largest = np.abs(components).argmax(axis=1)
        signs = np.where(components[np.arange(len(kept)), largest] < 0, -1.0, 1.0)
        self.components_ = components * signs[:, None]
        self.n_components_ = len(kept)
        self.explained_variance_ = eigen.values[kept] * n / (n - 1) * scale * scale
        self.explained_variance_ratio_ = eigen.values[kept] / eigen.total
        rest = min(n, d) - len(kept)
        left = max(eigen.total - eigen.values[kept].sum(), 0.0) * n / (n - 1)
        self.noise_variance_ = left / rest * scale * scale if rest else 0.0


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _power_of_two(largest: float) -> float:
    """The power of two next to a positive number: dividing by it rounds nothing."""
    return float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1)) if largest > 0 else 1.0


def _in_units(spectrum: KnockoffSpectrum, scale: float) -> KnockoffSpectrum:
    """The spectrum of a table divided by ``scale``, as that of the table."""
    return replace(
        spectrum,
        eigenvalues=spectrum.eigenvalues * scale * scale,
        knockoff_eigenvalues=spectrum.knockoff_eigenvalues * scale * scale,
        knockoff_spike=spectrum.knockoff_spike * scale * scale,
        kappa=spectrum.kappa * scale,
        scores=spectrum.scores * scale,
        centre=spectrum.centre * scale,
    )


def _varying_columns(Y: FloatArray, mean: FloatArray) -> int:
    """How many columns vary by more than the rounding of their own mean."""
    sd = np.sqrt(np.einsum("ij,ij->j", Y, Y) / len(Y))
    return int(np.sum(sd > 4 * np.finfo(np.float64).eps * np.abs(mean)))


def _spectrum(eigen: Eigen, k: int, scores: FloatArray, offset: FloatArray | None) -> KnockoffSpectrum:
    leading = eigen._replace(values=eigen.values[:k], vectors=eigen.vectors[:k])
    return move(leading, scores, offset)


def _distinct(groups: list[BoolArray]) -> list[BoolArray]:
    """The groups without those that an earlier one already tells: one shift can move several components.

    Two groups are the same where they, or one and the rest of the other, differ in less than a fifth of the
    smaller one, or in fewer rows than a group has.
    """
    kept: list[BoolArray] = []
    for group in groups:
        differ = [min((group ^ other).sum(), (group ^ ~other).sum()) for other in kept]
        least = [max(SMALLEST_GROUP, 0.2 * min(group.sum(), other.sum())) for other in kept]
        if all(a >= b for a, b in zip(differ, least, strict=True)):
            kept.append(group)
    return kept


def _group_means(X: FloatArray, members: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Least squares of the rows on the memberships: the clean mean (d,) and the shifts (q, d).

    For disjoint groups these are the group means; groups that cross (two batches of two kinds) add up.
    """
    design = np.column_stack([np.ones(len(X)), members])
    effects = np.linalg.pinv(design.T @ design) @ (design.T @ X)
    return effects[0], effects[1:]


def _recentre(X: FloatArray, mean: FloatArray, shifts: FloatArray, members: BoolArray, out: FloatArray) -> None:
    np.subtract(X, mean, out=out)
    for shift, rows in zip(shifts, members.T, strict=True):
        out[rows] -= shift
