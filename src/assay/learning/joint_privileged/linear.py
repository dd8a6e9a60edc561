"""Linear models on standardised columns, for all points of a grid at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from assay.errors import InputError

from .inputs import Training
from .ridge import FloatArray, Moments, System, descent, path

Point = tuple[float, float]
"""(alpha, lam); for the greedy solver (number of columns, lam)."""


@dataclass(frozen=True)
class Scale:
    """How columns were centred and divided, and which vary at all.

    Attributes
    ----------
    mean, sd
        (d,) zeros and ones where nothing was standardised.
    varies
        (d,) whether a column has more than one value.
    """

    mean: FloatArray
    sd: FloatArray
    varies: NDArray[np.bool_]

    @classmethod
    def of(cls, X: FloatArray, weight: FloatArray, standardize: bool) -> Scale:
        """Of the columns of X (n, d) with weights (n,)."""
        share = weight / weight.sum()
        largest = np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0))
        largest[largest == 0] = 1.0
        mean = share @ X
        centred = X - mean
        centred /= largest  # squares of very large or small numbers leave the range of float64
        sd = largest * np.sqrt(share @ np.square(centred, out=centred))
        # A column of one large value is not to look as if it varied, by rounding.
        varies = sd > 10 * np.finfo(float).eps * np.sqrt(len(X)) * largest
        sd = np.where(varies, sd, 1.0)
        return cls(mean, sd if standardize else np.ones_like(sd), varies)

    def apply(self, X: FloatArray) -> FloatArray:
        """The columns that vary, centred and divided."""
        out = X[:, self.varies] - self.mean[self.varies]
        out /= self.sd[self.varies]
        return out

    def undo(self, coef: FloatArray) -> tuple[FloatArray, FloatArray]:
        """From (…, 1 + varying, k) to coefficients (…, d, k) and intercepts (…, k) of the columns as they came."""
        full = np.zeros((*coef.shape[:-2], len(self.mean), coef.shape[-1]))
        with np.errstate(over="ignore", invalid="ignore"):
            full[..., self.varies, :] = coef[..., 1:, :] / self.sd[self.varies, None]
            intercept = coef[..., 0, :] - np.einsum("d,...dk->...k", self.mean, full)
        if not (np.isfinite(full).all() and np.isfinite(intercept).all()):
            raise InputError("X or W has columns with values so small that coefficients leave the range of float64")
        return full, intercept


@dataclass(frozen=True)
class Basis:
    """Columns in fewer coordinates, where there are more columns than rows; lengths of coefficients stay.

    Attributes
    ----------
    features
        (n, 1 + r): a column of ones, then the coordinates.
    turn
        (d, r) orthonormal columns, or None where r = d.
    """

    features: FloatArray
    turn: FloatArray | None

    @classmethod
    def of(cls, columns: FloatArray) -> Basis:
        """Of a column of ones and others, (n, 1 + d)."""
        n, d = len(columns), columns.shape[1] - 1
        if d <= n:
            return cls(columns, None)
        turn, upper = qr(columns[:, 1:].T, mode="economic")
        return cls(np.hstack([columns[:, :1], upper.T]), turn)

    def back(self, coef: FloatArray) -> FloatArray:
        """From (…, 1 + r, k) to (…, 1 + d, k)."""
        if self.turn is None:
            return coef
        wide = np.moveaxis(np.tensordot(coef[..., 1:, :], self.turn, axes=(-2, 1)), -1, -2)
        return np.concatenate([coef[..., :1, :], wide], axis=-2)


@dataclass(frozen=True)
class LinearFits:
    """Fitted models, one a grid point, on the standardised columns that vary.

    Attributes
    ----------
    f, g
        (grid, 1 + p, k) and (grid, 1 + q, k).
    losses
        For each the loss after each iteration.
    """

    f: FloatArray
    g: FloatArray
    losses: tuple[tuple[float, ...], ...]


class LinearData:
    """The training rows as standardised columns, which every linear solver starts from.

    One table is in memory: a column of ones, the inputs, the privileged columns. Views of it are X (n, p), Z (n, q),
    and ``ones_x`` and ``ones_z`` with the ones.
    """

    def __init__(self, data: Training, standardize: bool) -> None:
        weight, has_w = data.weight, data.has_w
        p = data.X.shape[1]
        self.scale_x = Scale.of(data.X, weight, standardize)
        W = data.Z[:, p:]
        scale_w = Scale.of(W[has_w], weight[has_w], standardize)
        self.scale_z = Scale(
            *(np.concatenate([getattr(s, n) for s in (self.scale_x, scale_w)]) for n in ("mean", "sd", "varies"))
        )
        self.p, self.q = int(self.scale_x.varies.sum()), int(self.scale_z.varies.sum())
        self.ones_z = np.empty((len(W), 1 + self.q))
        self.ones_z[:, 0] = 1.0
        self.ones_x, self.Z = self.ones_z[:, : 1 + self.p], self.ones_z[:, 1:]
        self.X = self.Z[:, : self.p]
        self.X[:] = self.scale_x.apply(data.X)
        self.Z[:, self.p :] = scale_w.apply(W)
        self.Z[~has_w, self.p :] = 0.0
        if not np.isfinite(self.Z).all():
            raise InputError("X or W has values so large that their differences leave the range of float64")
        self.y, self.weight, self.label_weight = data.y, data.weight, data.label_weight
        self.labelled, self.has_w = data.labelled, data.has_w

    def outputs(self, fits: LinearFits, rows: NDArray[np.int64]) -> FloatArray:
        """(grid, n, k) what each f says of some training rows."""
        return fits.f[:, :1] + np.einsum("np,gpk->gnk", self.X[rows], fits.f[:, 1:], optimize=True)


class RidgeGrid:
    """The least-squares problem for all points of a grid: moments once, then a small system a point."""

    def __init__(self, data: LinearData, grid: Sequence[Point], descend: tuple[int, float] | None = None) -> None:
        self.grid, self.descend = list(grid), descend
        self.data = data
        self.basis_x, self.basis_z = Basis.of(data.ones_x), Basis.of(data.ones_z)
        self.labels = self._moments(data.labelled)
        self.others = self._moments(~data.labelled)

    def outputs(self, fits: LinearFits, rows: NDArray[np.int64]) -> FloatArray:
        """(grid, n, k) what each f says of some training rows."""
        return self.data.outputs(fits, rows)

    def _moments(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Moments:
        d = self.data
        return Moments.of(
            self.basis_x.features[rows], self.basis_z.features[rows], d.y[rows], d.weight[rows], d.has_w[rows]
        )

    def fit(self, hidden: NDArray[np.int64] | None = None, points: Sequence[int] | None = None) -> LinearFits:
        """Fit the points, all by default, with the labels of the rows ``hidden`` taken away."""
        labels, others, data = self.labels, self.others, self.data
        visible = data.labelled.copy()
        if hidden is not None:
            gone = self._moments(hidden)
            labels, others = labels - gone, others + gone
            visible[hidden] = False
        system = System.of(labels, others)
        chosen = [self.grid[i] for i in (range(len(self.grid)) if points is None else points)]
        f = np.empty((len(chosen), len(system.A), data.y.shape[1]))
        g = np.empty((len(chosen), len(system.C), data.y.shape[1]))
        losses: list[tuple[float, ...]] = [()] * len(chosen)
        squares = data.weight * np.sum(data.y**2, axis=1)
        yy, yy_w = float(squares[visible].sum()), float(squares[visible & data.has_w].sum())
        for alpha in dict.fromkeys(alpha for alpha, _ in chosen):
            here = [i for i, point in enumerate(chosen) if point[0] == alpha]
            lams = [chosen[i][1] for i in here]
            if self.descend is None:
                f[here], g[here] = path(system, alpha, lams)
                for i in here if hidden is None else ():
                    losses[i] = (system.objective(f[i], g[i], chosen[i][1], alpha, yy, yy_w),)
                continue
            for i, lam in zip(here, lams, strict=True):
                if lam == 0 or math.isinf(lam):  # the ends need no turns
                    f[i], g[i] = (end[0] for end in path(system, alpha, [lam]))
                    losses[i] = (system.objective(f[i], g[i], lam, alpha, yy, yy_w),)
                else:
                    f[i], g[i], turns = descent(system, lam, alpha, *self.descend, yy, yy_w)
                    losses[i] = tuple(turns)
        return LinearFits(*completed_fits(self.basis_x.back(f), self.basis_z.back(g), chosen), tuple(losses))


def completed_fits(f: FloatArray, g: FloatArray, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
    """Where lam is 0 nothing determines g: it is f, with zeros for W."""
    for i, (_, lam) in enumerate(points):
        if lam == 0:
            g[i] = 0
            g[i, : f.shape[1]] = f[i]
    return f, g
