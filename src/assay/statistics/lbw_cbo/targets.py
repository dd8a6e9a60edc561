"""The study's targets: mixtures, the period of the sunspots, a logistic regression; each with its gradient."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.special import expit, logsumexp
from sklearn.datasets import load_breast_cancer

from assay.parts import statsmodels_data

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of isotropic Gaussians, normalised.

    Attributes
    ----------
    means
        (K, d).
    scales
        (K,) standard deviations.
    weights
        (K,) positive, sum one.
    """

    means: FloatArray
    scales: FloatArray
    weights: FloatArray

    @property
    def dim(self) -> int:
        """d."""
        return self.means.shape[1]

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n, d) -> (n,)."""
        return logsumexp(self._logs(x), axis=1)

    def gradient(self, x: FloatArray) -> FloatArray:
        """Of the log density, (n, d) -> (n, d)."""
        logs = self._logs(x)
        share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True)) / self.scales**2
        return share @ self.means - share.sum(axis=1, keepdims=True) * x

    def _logs(self, x: FloatArray) -> FloatArray:
        squared = np.sum(x**2, axis=1, keepdims=True) - 2 * x @ self.means.T + np.sum(self.means**2, axis=1)
        const = np.log(self.weights) - self.dim * np.log(self.scales * np.sqrt(2 * np.pi))
        return const - squared / (2 * self.scales**2)


def random_mixture(rng: np.random.Generator, dim: int = 2, n_components: int = 5) -> Mixture:
    """Means uniform in [−4, 4]^d, scales uniform in [0.3, 1.2], weights uniform on the simplex."""
    means = rng.uniform(-4, 4, (n_components, dim))
    return Mixture(means, rng.uniform(0.3, 1.2, n_components), rng.dirichlet(np.ones(n_components)))


@dataclass(frozen=True, eq=False)
class Periodic:
    """The posterior of the period and the noise of a series y_t = A cos 2πft + B sin 2πft + ε, one value a year.

    A, B ~ N(0, 1) are integrated out. Parameters u and v with standard normal priors: the frequency is
    f = exp(u/4 − 2.5) a year, the noise has the standard deviation exp(v/2). What depends on y and f alone, the Fourier
    transform of y, has period one in f, and is read from a table that is fine enough to be exact to 1e-7.

    Attributes
    ----------
    series
        (n,) y with mean 0 and standard deviation 1, n odd.
    grid
        Points of the table.
    """

    series: FloatArray
    grid: int = 2**15
    dim: int = field(default=2, init=False)
    _cos: CubicSpline = field(init=False, repr=False)
    _sin: CubicSpline = field(init=False, repr=False)
    _most: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n = len(self.series)
        if n % 2 == 0:
            raise ValueError(f"the series must have an odd length, so that its middle is a year, got {n}")
        f = np.arange(self.grid + 1) / self.grid
        circle = np.zeros(self.grid)
        circle[np.arange(n) - n // 2] = self.series  # time zero is the middle: cosines and sines are orthogonal
        transform = np.fft.fft(circle)
        transform = np.append(transform, transform[0])
        object.__setattr__(self, "_cos", CubicSpline(f, transform.real, bc_type="periodic"))
        object.__setattr__(self, "_sin", CubicSpline(f, -transform.imag, bc_type="periodic"))
        # No frequency explains more of the series than the best one, whatever rounding makes of those near 0 and 1/2,
        # where the sines vanish; else a noise of next to nothing would have an endless likelihood there.
        f = f[(f > 1e-3) & (f < 0.499)]
        kernel = _dirichlet(f, n)
        most = 2 * (self._cos(f) ** 2 / (n + kernel) + self._sin(f) ** 2 / (n - kernel))
        object.__setattr__(self, "_most", 1.001 * float(most.max()))

    def frequency(self, u: FloatArray) -> FloatArray:
        """f in 1 / year."""
        return np.exp(0.25 * np.clip(u, -2000, 2000) - 2.5)

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n, 2) -> (n,): log likelihood, without its (n/2) log 2π, plus log prior, without its log 2π."""
        u, v = x.T
        n, f, var = len(self.series), self.frequency(u), np.exp(np.clip(v, -500, 500))
        c, s, kernel = self._cos(f % 1), self._sin(f % 1), _dirichlet(f, n)
        fit = c**2 / (var + (n + kernel) / 2) + s**2 / (var + (n - kernel) / 2)
        fit = np.minimum(fit, self._most)
        logs = np.log1p((n + kernel) / (2 * var)) + np.log1p((n - kernel) / (2 * var))
        likelihood = -0.5 * (n * np.log(var) + logs + (self.series @ self.series - fit) / var)
        return likelihood - (u**2 + v**2) / 2

    def gradient(self, x: FloatArray) -> FloatArray:
        """Of the log density, (n, 2) -> (n, 2)."""
        u, v = x.T
        n, f, var = len(self.series), self.frequency(u), np.exp(np.clip(v, -500, 500))
        c, s, kernel = self._cos(f % 1), self._sin(f % 1), _dirichlet(f, n)
        dc, ds, dkernel = self._cos(f % 1, 1), self._sin(f % 1, 1), _dirichlet_slope(f, n)
        plus, minus = var + (n + kernel) / 2, var + (n - kernel) / 2
        fit = np.minimum(c**2 / plus + s**2 / minus, self._most)
        dfit = 2 * c * dc / plus + 2 * s * ds / minus - (c**2 / plus**2 - s**2 / minus**2) * dkernel / 2
        d_f = -0.25 * (dkernel / plus - dkernel / minus) + dfit / (2 * var)
        squares = self.series @ self.series
        d_var = -0.5 * ((n - 2) / var + 1 / plus + 1 / minus)
        d_var += (squares - fit) / (2 * var**2) - (c**2 / plus**2 + s**2 / minus**2) / (2 * var)
        return np.stack([d_f * f * 0.25 - u, d_var * var - v], axis=1)


def _dirichlet(f: FloatArray, n: int) -> FloatArray:
    """Σ cos 4πft over n years around zero."""
    below = np.sin(2 * np.pi * f)
    near = np.abs(below) < 1e-9
    return np.where(near, float(n), np.clip(np.sin(2 * np.pi * n * f) / np.where(near, 1.0, below), -n, n))


def _dirichlet_slope(f: FloatArray, n: int) -> FloatArray:
    below = np.sin(2 * np.pi * f)
    near = np.abs(below) < 1e-7
    below = np.where(near, 1.0, below)
    above, outer, inner = np.sin(2 * np.pi * n * f), np.cos(2 * np.pi * n * f), np.cos(2 * np.pi * f)
    return np.where(near, 0.0, 2 * np.pi * (n * outer - above * inner / below) / below)


def sunspots() -> Periodic:
    """The yearly numbers of sunspots, 1700 to 2008."""
    y = statsmodels_data.load("sunspots")["sunactivity"].to_numpy(dtype=np.float64)
    return Periodic((y - y.mean()) / y.std())


@dataclass(frozen=True, eq=False)
class Logistic:
    """The posterior of a logistic regression with the prior N(0, 4 I) on all coefficients; log-concave.

    Attributes
    ----------
    signed
        (n, d) the rows of the design, times 1 for the first class and −1 for the other.
    """

    signed: FloatArray

    @property
    def dim(self) -> int:
        """d."""
        return self.signed.shape[1]

    def log_density(self, x: FloatArray) -> FloatArray:
        """(n, d) -> (n,)."""
        const = -self.dim / 2 * np.log(8 * np.pi)
        t = -x @ self.signed.T
        # Σ log(1 + eᵗ): one logarithm of a product, whose factors lie between 1 and 2, instead of many.
        above = np.maximum(t, 0).sum(axis=1)
        return const - np.sum(x**2, axis=1) / 8 - above - np.log(np.prod(1 + np.exp(-np.abs(t)), axis=1))

    def gradient(self, x: FloatArray) -> FloatArray:
        """Of the log density, (n, d) -> (n, d)."""
        return -x / 4 + expit(-x @ self.signed.T) @ self.signed


def tumours(rng: np.random.Generator, rows: int, n_components: int = 4) -> Logistic:
    """Is a tumour benign? An intercept and the leading components of some rows of the breast cancer data."""
    X, y = load_breast_cancer(return_X_y=True)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    scores = np.linalg.svd(Z, full_matrices=False)[0][:, :n_components] * np.sqrt(len(Z))
    some = rng.choice(len(Z), rows, replace=False)
    design = np.column_stack([np.ones(rows), scores[some]])
    return Logistic(design * np.where(y[some] == 1, 1.0, -1.0)[:, None])
