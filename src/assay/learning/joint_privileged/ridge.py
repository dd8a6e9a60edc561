"""The coupled least-squares problem: second moments of the rows, and its solution for a grid of lam and alpha.

With f(x) = [1, x]·b and g(z) = [1, z]·c, z = [x, w], labelled rows L, unlabelled rows U and weights s the loss is

    sum_L s (y - f)^2 + sum_U s (g - f)^2 + lam sum_L s (y - g)^2 + alpha |b|^2 + lam alpha |c|^2

without the intercepts in the penalties. Its normal equations are, with the moments of :class:`System`,

    (A + alpha P) b - B c = a        -B' b + (C + lam (G + alpha P)) c = lam d

and eliminating b leaves (S + lam (G + alpha P)) c = lam d + B'(A + alpha P)^-1 a with S = C - B'(A + alpha P)^-1 B,
which is well conditioned for every lam: one factorisation of A serves all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.linalg.lapack import dposv

from assay.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Weighted second moments of some rows; index 0 is the intercept. Rows without W count in ``xx`` and ``xy`` alone.

    Attributes
    ----------
    xx, xy
        (p, p) and (p, k) of all rows.
    xx_w
        (p, p) of the rows that have W.
    xz, zz, zy
        (p, q), (q, q) and (q, k) of the rows that have W.
    """

    xx: FloatArray
    xx_w: FloatArray
    xz: FloatArray
    zz: FloatArray
    xy: FloatArray
    zy: FloatArray

    @classmethod
    def of(cls, X: FloatArray, Z: FloatArray, y: FloatArray, weight: FloatArray, has_w: NDArray[np.bool_]) -> Moments:
        """Of rows X (n, p) and Z (n, q), both with a leading column of ones, targets y (n, k) and weights (n,)."""
        even = bool((weight == 1).all())  # then nothing has to be copied
        Xs, Zs, ys = (T if even else T * np.sqrt(weight)[:, None] for T in (X, Z, y))
        if has_w.all():
            Xw, yw = Xs, ys
        else:
            Xw, Zs, yw = Xs[has_w], Zs[has_w], ys[has_w]
        xx = Xs.T @ Xs
        return cls(xx, xx if Xw is Xs else Xw.T @ Xw, Xw.T @ Zs, Zs.T @ Zs, Xs.T @ ys, Zs.T @ yw)

    def __sub__(self, other: Moments) -> Moments:
        return Moments(*(a - b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(a + b for a, b in zip(self._parts(), other._parts(), strict=True)))

    def _parts(self) -> tuple[FloatArray, ...]:
        return self.xx, self.xx_w, self.xz, self.zz, self.xy, self.zy


@dataclass(frozen=True)
class System:
    """The moments in the normal equations.

    Attributes
    ----------
    A
        (p, p) of f on all rows.
    K, a
        (p, p) and (p, k) of f on the labelled rows.
    B, C
        (p, q) of f with g, and (q, q) of g, on the unlabelled rows.
    G, d
        (q, q) and (q, k) of g on the labelled rows.
    """

    A: FloatArray
    K: FloatArray
    a: FloatArray
    B: FloatArray
    C: FloatArray
    G: FloatArray
    d: FloatArray

    @classmethod
    def of(cls, labelled: Moments, unlabelled: Moments) -> System:
        """From the moments of the labelled and of the unlabelled rows."""
        return cls(
            labelled.xx + unlabelled.xx_w,
            labelled.xx,
            labelled.xy,
            unlabelled.xz,
            unlabelled.zz,
            labelled.zz,
            labelled.zy,
        )

    def hessian(self, lam: float, alpha: float) -> FloatArray:
        """The matrix (p + q, p + q) of the normal equations."""
        return np.block([[ridged(self.A, alpha), -self.B], [-self.B.T, self.C + lam * ridged(self.G, alpha)]])

    def objective(self, f: FloatArray, g: FloatArray, lam: float, alpha: float, yy: float, yy_w: float) -> float:
        """The loss of f (p, k) and g (q, k).

        ``yy`` and ``yy_w`` are the weighted sums of y² over the labelled rows, and over those of them that have W.
        """
        on_labels = yy - 2 * np.sum(f * self.a) + np.sum(f * (self.K @ f))
        between = np.sum(f * ((self.A - self.K) @ f)) - 2 * np.sum(f * (self.B @ g)) + np.sum(g * (self.C @ g))
        of_g = yy_w - 2 * np.sum(g * self.d) + np.sum(g * (self.G @ g)) + alpha * np.sum(g[1:] ** 2)
        loss = on_labels + between + alpha * np.sum(f[1:] ** 2)
        return float(loss + lam * of_g) if math.isfinite(lam) else float(loss)


def ridged(matrix: FloatArray, alpha: float) -> FloatArray:
    """``matrix`` with ``alpha`` added on its diagonal, but for the intercept's entry."""
    out = matrix.copy()
    out.flat[:: len(out) + 1] += alpha
    out[0, 0] -= alpha
    return out


def solve_spd(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve with a symmetric matrix that is positive definite, or semi-definite: then the shortest solution."""
    factor, solution, info = dposv(matrix, right)
    if info == 0:
        pivots = np.diag(factor)
        # Squared pivots at rounding level mean that a direction is not determined at all.
        if len(pivots) == 0 or pivots.min() ** 2 > 100 * len(pivots) * np.finfo(float).eps * pivots.max() ** 2:
            return solution
    values, vectors = eigh(matrix)
    kept = values > 1000 * len(values) * np.finfo(float).eps * max(values[-1], 0)
    return vectors[:, kept] @ ((vectors[:, kept].T @ right) / values[kept, None])


def path(system: System, alpha: float, lams: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """The minimisers for one alpha and several lam.

    Returns
    -------
    f
        (len(lams), p, k).
    g
        (len(lams), q, k); zero where ``lam`` is 0, for then nothing determines it.
    """
    p, k = system.a.shape
    q = len(system.G)
    f, g = np.empty((len(lams), p, k)), np.zeros((len(lams), q, k))
    if any(lam > 0 for lam in lams):
        V = solve_spd(ridged(system.A, alpha), np.hstack([system.B, system.a]))
        V_B, V_a = V[:, :q], V[:, q:]
        G = ridged(system.G, alpha)
        S, t = system.C - system.B.T @ V_B, system.B.T @ V_a
        S = (S + S.T) / 2
    for j, lam in enumerate(lams):
        if lam == 0:
            f[j] = solve_spd(ridged(system.K, alpha), system.a)
            continue
        g[j] = solve_spd(G, system.d) if math.isinf(lam) else solve_spd(S + lam * G, lam * system.d + t)
        f[j] = V_a + V_B @ g[j]
    return f, g


def descent(
    system: System, lam: float, alpha: float, max_iter: int, tol: float, yy: float, yy_w: float
) -> tuple[FloatArray, FloatArray, list[float]]:
    """Minimise by turns over f and over g, from the g of the labelled rows; also the loss after each turn."""
    p, k = system.a.shape
    A, G = ridged(system.A, alpha), system.C + lam * ridged(system.G, alpha)
    g = solve_spd(ridged(system.G, alpha), system.d)
    f = np.zeros((p, k))
    losses: list[float] = []
    last = math.inf
    for _ in range(max_iter):
        before = f
        f = solve_spd(A, system.a + system.B @ g)
        g = solve_spd(G, lam * system.d + system.B.T @ f)
        losses.append(system.objective(f, g, lam, alpha, yy, yy_w))
        # Lengths in the geometry of the training rows: |f| is that of its predictions. Changes shrink by nearly the
        # same factor each turn, so the way that is left is a geometric series.
        change, length = (math.sqrt(max(float(np.sum(v * (system.A @ v))), 0.0)) for v in (f - before, f))
        rate = change / last if last > 0 else 0.0
        if change <= tol * length * min(1.0, max(1 - rate, 0.0) / max(rate, 1e-300)):
            break
        last = change
    return f, g, losses


def coupled_ridge(
    XL: ArrayLike,
    yL: ArrayLike,
    ZL: ArrayLike,
    XU: ArrayLike,
    ZU: ArrayLike,
    lam: float,
    alpha: float = 0.0,
    *,
    w: tuple[ArrayLike, ArrayLike] | None = None,
) -> tuple[FloatArray, float, FloatArray, float]:
    """Fit f(x) and g(z) together by penalised least squares; nothing is standardised.

    Parameters
    ----------
    XL, yL, ZL
        (n, p), (n,), (n, q) the labelled rows; a row of Z holds the inputs and the privileged columns.
    XU, ZU
        (m, p), (m, q) the unlabelled rows; m may be 0.
    lam
        How closely g must explain the labels, 0 to ``inf``.
    alpha
        Ridge penalty; 0 means none, and the shortest solution where several are best.
    w
        Weights (n,) and (m,) of the rows; 1 by default.

    Returns
    -------
    coef_f, b_f, coef_g, b_g
        (p,), a number, (q,), a number. Where ``lam`` is 0 nothing determines g, and it is f if Z begins with X, as it
        should.

    Raises
    ------
    InputError
        For shapes that do not fit, values that are not finite, and a negative ``lam`` or ``alpha``.

    Notes
    -----
    Source: "Coupled Training with Privileged Information and Unlabeled Data", Shi, Hagrass and Klusowski, arXiv
    2605.23268.

    Examples
    --------
    >>> X, W = np.array([[0.], [1.], [2.], [3.]]), np.array([[1.], [0.], [2.], [1.]])
    >>> XU, WU = np.array([[4.], [5.], [-1.]]), np.array([[0.], [1.], [1.]])
    >>> f, b, g, c = coupled_ridge(X, [0, 1, 3, 2], np.hstack([X, W]), XU, np.hstack([XU, WU]), lam=0.5)
    >>> f.round(4), round(b, 4)
    (array([0.7689]), 0.3244)
    """
    XL, ZL, XU, ZU = (_matrix(name, a) for name, a in (("XL", XL), ("ZL", ZL), ("XU", XU), ("ZU", ZU)))
    y = _finite("yL", yL)
    if y.ndim != 1 or len(y) != len(XL) or len(y) == 0:
        raise InputError(f"yL must have one number for each of the {len(XL)} rows of XL, got the shape {y.shape}")
    for one, other, names in ((XL, ZL, "XL and ZL"), (XU, ZU, "XU and ZU")):
        if len(one) != len(other):
            raise InputError(f"{names} must have as many rows, got {len(one)} and {len(other)}")
    for one, other, names in ((XL, XU, "XL and XU"), (ZL, ZU, "ZL and ZU")):
        if one.shape[1] != other.shape[1]:
            raise InputError(f"{names} must have as many columns, got {one.shape[1]} and {other.shape[1]}")
    for name, value in (("lam", lam), ("alpha", alpha)):
        if not value >= 0 or (name == "alpha" and math.isinf(value)):
            raise InputError(f"{name} must be at least 0{' and finite' * (name == 'alpha')}, got {value!r}")
    sL, sU = (np.ones(len(XL)), np.ones(len(XU))) if w is None else (_finite("w", s) for s in w)
    if sL.shape != (len(XL),) or sU.shape != (len(XU),) or (sL < 0).any() or (sU < 0).any():
        raise InputError(f"w must be weights, none negative, of {len(XL)} labelled and {len(XU)} unlabelled rows")
    # About the labelled means everything is smaller, and so is what rounding takes away.
    mean_x, mean_z, mean_y = XL.mean(axis=0), ZL.mean(axis=0), y.mean()
    labelled, unlabelled = (
        Moments.of(_ones(X - mean_x), _ones(Z - mean_z), t[:, None], s, np.ones(len(X), dtype=bool))
        for X, Z, t, s in ((XL, ZL, y - mean_y, sL), (XU, ZU, np.zeros(len(XU)), sU))
    )
    f, g = path(System.of(labelled, unlabelled), float(alpha), [float(lam)])
    (b_f, *_), (b_g, *_) = f[0, :, 0], g[0, :, 0]
    coef_f, coef_g = f[0, 1:, 0], g[0, 1:, 0]
    if lam == 0:
        b_g, coef_g = b_f, np.concatenate([coef_f, np.zeros(max(ZL.shape[1] - len(coef_f), 0))])[: ZL.shape[1]]
    return coef_f, float(b_f + mean_y - mean_x @ coef_f), coef_g, float(b_g + mean_y - mean_z @ coef_g)


def _matrix(name: str, values: ArrayLike) -> FloatArray:
    array = _finite(name, values)
    if array.ndim != 2:
        raise InputError(f"{name} must have two dimensions, got the shape {array.shape}")
    return array


def _finite(name: str, values: ArrayLike) -> FloatArray:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers") from None
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, and has NaN or infinity in it")
    return array


def _ones(X: FloatArray) -> FloatArray:
    return np.hstack([np.ones((len(X), 1)), X])
