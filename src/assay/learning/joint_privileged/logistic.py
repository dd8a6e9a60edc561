"""The coupled classifier: log-loss on labels, and the divergence of the two models' probabilities between them.

With logits f(x) and g(z), one number for two classes and K for more, p_f and p_g their probabilities, the loss is

    sum_L s ll(y, f) + sum_U s KL(p_g | p_f) + lam sum_L s ll(y, g) + alpha/2 |b|^2 + lam alpha/2 |c|^2

which is to the log-loss what (g - f)^2 is to the squared one: what g says is a soft label for f. With lam = 0 it is
logistic regression on the labels, with lam = inf two stages with soft labels. It is convex in f and not in g, so that
between the ends a minimum is followed from large lam to small ones, from the two stages on.

The second derivative of ll is at most h (1/4 for one logit, 1/2 for several). With the Cholesky factor R of what then
bounds the Hessian at agreement, coordinates u = R theta are well conditioned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dposv, dpotrf, dtrtrs
from scipy.optimize import minimize
from scipy.special import expit

from .linear import Basis, LinearData, LinearFits, Point, completed_fits
from .ridge import FloatArray, Moments, System, ridged

GTOL, ITERATIONS = 1e-6, 300

MOST_FOR_NEWTON = 400
"""Coordinates; with more, L-BFGS is faster than factorising the Hessian."""


class LogisticGrid:
    """The classification problem for all points of a grid."""

    def __init__(self, data: LinearData, grid: Sequence[Point]) -> None:
        self.grid, self.data = list(grid), data
        self.basis_x, self.basis_z = Basis.of(data.ones_x), Basis.of(data.ones_z)
        self.bound = 0.25 if data.y.shape[1] == 1 else 0.5
        self.labels = self._moments(data.labelled, data.label_weight)
        self.others = self._moments(~data.labelled, data.weight)

    def outputs(self, fits: LinearFits, rows: NDArray[np.int64]) -> FloatArray:
        """(grid, n, k) the logits that each f gives some training rows."""
        return centred(self.data.outputs(fits, rows))

    def _moments(self, rows: NDArray[np.bool_] | NDArray[np.int64], weight: FloatArray) -> Moments:
        d, nothing = self.data, self.data.y[rows] * 0
        return Moments.of(
            self.basis_x.features[rows], self.basis_z.features[rows], nothing, weight[rows], d.has_w[rows]
        )

    def fit(self, hidden: NDArray[np.int64] | None = None, points: Sequence[int] | None = None) -> LinearFits:
        """Fit the points, all by default, with the labels of the rows ``hidden`` taken away."""
        labels, others = self.labels, self.others
        visible = self.data.labelled.copy()
        if hidden is not None:
            labels = labels - self._moments(hidden, self.data.label_weight)
            others = others + self._moments(hidden, self.data.weight)
            visible[hidden] = False
        system, rows = System.of(labels, others), self._rows(visible)
        chosen = [self.grid[i] for i in (range(len(self.grid)) if points is None else points)]
        k = self.data.y.shape[1]
        f, g = np.empty((len(chosen), len(system.A), k)), np.zeros((len(chosen), len(system.G), k))
        losses: list[tuple[float, ...]] = [()] * len(chosen)
        for alpha in dict.fromkeys(alpha for alpha, _ in chosen):
            here = sorted((i for i, point in enumerate(chosen) if point[0] == alpha), key=lambda i: -chosen[i][1])
            ends = None
            for i in here:
                lam = chosen[i][1]
                if lam == 0:
                    f[i], loss = minimum(
                        rows.X, rows.y, rows.s, self.bound, self.bound * ridged(system.K, alpha / self.bound)
                    )
                elif math.isinf(lam):
                    f[i], g[i], loss = self._two_stages(system, rows, alpha)
                    ends = f[i], g[i]
                else:
                    if ends is None:
                        ends = self._two_stages(system, rows, alpha)[:2]
                    f[i], g[i], loss = self._between(system, rows, alpha, lam, *ends)
                    ends = f[i], g[i]
                losses[i] = (loss,)
        return LinearFits(*completed_fits(self.basis_x.back(f), self.basis_z.back(g), chosen), tuple(losses))

    def _rows(self, visible: NDArray[np.bool_]) -> _Rows:
        d, X, Z = self.data, self.basis_x.features, self.basis_z.features
        labels, with_w, pairs = visible, visible & d.has_w, ~visible & d.has_w
        return _Rows(
            X[labels], d.y[labels], d.label_weight[labels],
            Z[with_w], d.y[with_w], d.label_weight[with_w],
            X[pairs], Z[pairs], d.weight[pairs],
        )  # fmt: skip

    def _two_stages(self, system: System, rows: _Rows, alpha: float) -> tuple[FloatArray, FloatArray, float]:
        h = self.bound
        g, _ = minimum(rows.Z, rows.y_w, rows.s_w, h, h * ridged(system.G, alpha / h))
        soft = chances(rows.Z_pairs @ g)
        f, loss = minimum(
            np.vstack([rows.X, rows.X_pairs]),
            np.vstack([rows.y, soft]),
            np.concatenate([rows.s, rows.s_pairs]),
            h,
            h * ridged(system.A, alpha / h),
        )
        return f, g, loss

    def _between(
        self, system: System, rows: _Rows, alpha: float, lam: float, f: FloatArray, g: FloatArray
    ) -> tuple[FloatArray, FloatArray, float]:
        h, p, k = self.bound, len(f), f.shape[1]
        R = _factor(h * system.hessian(lam, alpha / h))
        penalty = np.concatenate([np.full(p, alpha), np.full(len(g), lam * alpha)])[:, None]
        penalty[0] = penalty[p] = 0

        def loss(u: FloatArray) -> tuple[float, FloatArray]:
            theta, _ = dtrtrs(R, u.reshape(-1, k))
            of_f, of_g = theta[:p], theta[p:]
            value = 0.5 * np.sum(penalty * theta * theta)
            gradient = penalty * theta
            for X, y, s, which in (
                (rows.X, rows.y, rows.s, slice(None, p)),
                (rows.Z, rows.y_w, lam * rows.s_w, slice(p, None)),
            ):
                ll, slope = log_loss(X @ theta[which], y)
                value += s @ ll
                gradient[which] += X.T @ (s[:, None] * slope)
            kl, by_f, by_g = divergence(rows.X_pairs @ of_f, rows.Z_pairs @ of_g)
            value += rows.s_pairs @ kl
            gradient[:p] += rows.X_pairs.T @ (rows.s_pairs[:, None] * by_f)
            gradient[p:] += rows.Z_pairs.T @ (rows.s_pairs[:, None] * by_g)
            return float(value), dtrtrs(R, gradient, trans=1)[0].ravel()

        options = {"gtol": GTOL, "ftol": 1e-10, "maxiter": ITERATIONS, "maxcor": 20}
        start = (R @ np.vstack([f, g])).ravel()
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        theta = solve_triangular(R, found.x.reshape(-1, k), check_finite=False)
        return theta[:p], theta[p:], float(found.fun)


@dataclass(frozen=True)
class _Rows:
    """Rows of one fit: inputs with labels, inputs and W with labels, and both without."""

    X: FloatArray
    y: FloatArray
    s: FloatArray
    Z: FloatArray
    y_w: FloatArray
    s_w: FloatArray
    X_pairs: FloatArray
    Z_pairs: FloatArray
    s_pairs: FloatArray


def minimum(
    rows: FloatArray, y: FloatArray, weight: FloatArray, h: float, bound: FloatArray
) -> tuple[FloatArray, float]:
    """The coefficients (p, k) that minimise the log-loss of some rows plus a quadratic form.

    Parameters
    ----------
    rows, y, weight
        (n, p), (n, k) indicators or probabilities of the classes, (n,).
    h
        Bound of the log-loss's second derivative: 1/4 for one logit, 1/2 for several.
    bound
        (p, p): h times the moments of ``rows``, plus the quadratic form.
    """
    p, k = len(bound), y.shape[1]
    R = _factor(bound)
    D = solve_triangular(R, rows.T, trans="T", check_finite=False).T
    turn = None
    if len(rows) < p:  # the solution lies among the rows
        turn, upper = qr(D.T, mode="economic")
        D = upper.T
    problem = _Problem(D, y, weight[:, None], h)
    u, value = problem.newton() if D.shape[1] * k <= MOST_FOR_NEWTON else problem.lbfgs()
    return solve_triangular(R, u if turn is None else turn @ u, check_finite=False), value


class _Problem:
    """The loss of one model in the coordinates u (p, k), whose Hessian lies between 0 and 1.

    It is |u|^2/2 + sum_i w_i (ll(y_i, eta_i) - h/2 |eta_i|^2) with eta = D u.
    """

    def __init__(self, D: FloatArray, y: FloatArray, w: FloatArray, h: float) -> None:
        self.D, self.y, self.w, self.h = D, y, w, h
        self.shape = (D.shape[1], y.shape[1])

    def loss(self, u: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The value, the gradient (p, k), and the probabilities (n, k)."""
        eta = self.D @ u
        ll, slope = log_loss(eta, self.y)
        # The mean of several logits is no probability's business. Left out here, it keeps the whole |u|^2 and stays 0.
        eta = centred(eta)
        value = 0.5 * np.sum(u * u) + np.sum(self.w[:, 0] * ll) - 0.5 * self.h * np.sum(self.w * eta * eta)
        return float(value), u + self.D.T @ (self.w * (slope - self.h * eta)), slope + self.y

    def hessian(self, chance: FloatArray) -> FloatArray:
        """The second derivative (p k, p k), of u as rows of k."""
        D, (p, k) = self.D, self.shape
        if k == 1:
            return np.eye(p) + D.T @ ((self.w * (chance * (1 - chance) - self.h)) * D)
        out = np.zeros((p, k, p, k))
        for a in range(k):
            for b in range(a + 1):
                curve = (chance[:, a] * ((a == b) - chance[:, b]) - self.h * ((a == b) - 1 / k))[:, None]
                out[:, a, :, b] = out[:, b, :, a] = D.T @ (self.w * curve * D)
        return out.reshape(p * k, p * k) + np.eye(p * k)

    def newton(self) -> tuple[FloatArray, float]:
        """Newton's method with halved steps; each costs a factorisation."""
        u = np.zeros(self.shape)
        value, gradient, chance = self.loss(u)
        for _ in range(ITERATIONS):
            _, step, info = dposv(self.hessian(chance), gradient.reshape(-1, 1))
            step = gradient if info else step.reshape(u.shape)
            fall, size = float(np.sum(gradient * step)), 1.0
            if fall <= 1e-14 * max(1.0, abs(value)):
                break
            while True:
                new = self.loss(u - size * step)
                if new[0] <= value - 1e-4 * size * fall or size < 1e-8:
                    break
                size /= 2
            if not new[0] < value:
                break  # rounding is all that is left
            u, (value, gradient, chance) = u - size * step, new
        return u, value

    def lbfgs(self) -> tuple[FloatArray, float]:
        """Limited-memory BFGS, where a factorisation would be too large."""

        def flat(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient, _ = self.loss(x.reshape(self.shape))
            return value, gradient.ravel()

        options = {"gtol": GTOL, "ftol": 1e-14, "maxiter": ITERATIONS, "maxcor": 20}
        found = minimize(flat, np.zeros(self.shape).ravel(), jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(self.shape), float(found.fun)


def _factor(matrix: FloatArray) -> FloatArray:
    """The upper Cholesky factor; of a semi-definite matrix, of one with a little on its diagonal."""
    lift = 0.0
    for _ in range(4):
        factor, info = dpotrf(matrix + lift * np.eye(len(matrix)), clean=True)
        if info == 0 and np.diag(factor).min() > 0:
            return factor
        lift = max(100 * lift, 1e-10 * max(float(np.trace(matrix)) / len(matrix), 1e-10))
    raise ArithmeticError("the moments of the rows are not finite, or far from positive definite")


def log_loss(eta: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n,) the log-loss of logits (n, k) and classes (n, k), soft ones too, and its derivative (n, k)."""
    if eta.shape[1] == 1:
        return (np.logaddexp(0, eta) - y * eta)[:, 0], expit(eta) - y
    logs = log_softmax(eta)
    return -np.sum(y * logs, axis=1), np.exp(logs) - y


def divergence(f: FloatArray, g: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(n,) the divergence of p_f from p_g, and its derivatives (n, k) by the logits f and g (n, k)."""
    if f.shape[1] == 1:
        p, q = expit(g), expit(f)
        apart = g - f
        value = p * apart - np.logaddexp(0, g) + np.logaddexp(0, f)
        return np.maximum(value[:, 0], 0), q - p, p * (1 - p) * apart
    log_p, log_q = log_softmax(g), log_softmax(f)
    p = np.exp(log_p)
    apart = log_p - log_q
    value = np.sum(p * apart, axis=1)
    return np.maximum(value, 0), np.exp(log_q) - p, p * (apart - value[:, None])


def log_softmax(eta: FloatArray) -> FloatArray:
    """Log-probabilities (…, K) from logits."""
    shifted = eta - eta.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def chances(logits: FloatArray) -> FloatArray:
    """(n, 1) the probability of the second of two classes, or (n, K) of all."""
    return expit(logits) if logits.shape[1] == 1 else np.exp(log_softmax(logits))


def centred(logits: FloatArray) -> FloatArray:
    """Several logits less their mean; a single one as it is."""
    return logits if logits.shape[-1] == 1 else logits - logits.mean(axis=-1, keepdims=True)


def log_probabilities(logits: FloatArray) -> FloatArray:
    """Log-probabilities (…, classes) from logits (…, 1) of two classes or (…, K) of more."""
    if logits.shape[-1] == 1:
        return -np.logaddexp(0, np.concatenate([logits, -logits], axis=-1))
    return log_softmax(logits)
