"""How a swarm of Gaussians moves: start, consensus, one Euler–Maruyama step, and back into the cone of roots."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Swarm:
    """N Gaussians.

    Attributes
    ----------
    means
        (N, d).
    roots
        (N, d, d) symmetric, positive definite.
    log_dets
        (N,) log |det T|.
    """

    means: FloatArray
    roots: FloatArray
    log_dets: FloatArray

    def __len__(self) -> int:
        """N."""
        return len(self.means)

    def take(self, which: npt.NDArray[np.int64]) -> Swarm:
        """Some of them."""
        return Swarm(self.means[which], self.roots[which], self.log_dets[which])


def joined(first: Swarm, second: Swarm) -> Swarm:
    """Two swarms as one."""
    return Swarm(
        np.concatenate([first.means, second.means]),
        np.concatenate([first.roots, second.roots]),
        np.concatenate([first.log_dets, second.log_dets]),
    )


def retract(means: FloatArray, roots: FloatArray, bounds: tuple[float, float]) -> Swarm:
    """Bring symmetric matrices back among the roots: each eigenvalue λ becomes |λ|, clipped to the bounds.

    T and T with flipped eigenvalues are roots of the same covariance, so nothing is lost by reflecting, and no particle
    sticks to the boundary where T is singular.

    Parameters
    ----------
    means
        (N, d).
    roots
        (N, d, d), made symmetric here.
    bounds
        Least and largest eigenvalue.
    """
    values, vectors = np.linalg.eigh((roots + np.swapaxes(roots, -1, -2)) / 2)
    values = np.clip(np.abs(values), *bounds)
    full = (vectors * values[:, None, :]) @ np.swapaxes(vectors, -1, -2)
    return Swarm(means, (full + np.swapaxes(full, -1, -2)) / 2, np.log(values).sum(axis=1))


def symmetric_normal(rng: np.random.Generator, n: int, d: int, *, isotropic: bool) -> FloatArray:
    """(n, d, d) random symmetric matrices with standard normals on the diagonal.

    Above it the variance is 1, or ½ for the isotropic law: a standard normal for the Frobenius norm, the same in every
    orthonormal basis.
    """
    upper = rng.standard_normal((n, d, d))
    above = np.triu(upper, 1) * (np.sqrt(0.5) if isotropic else 1.0)
    diagonal = np.eye(d) * upper
    return above + np.swapaxes(above, -1, -2) + diagonal


def scatter(
    n: int,
    mean: FloatArray,
    root: FloatArray,
    spread: FloatArray,
    bounds: tuple[float, float],
    rng: np.random.Generator,
) -> Swarm:
    """Start: means about ``mean``, roots about ``root``, each wider or narrower and turned a little.

    Parameters
    ----------
    n
        N.
    mean
        (d,).
    root
        (d, d) S; the roots are S^½ (e^{u/2} I + 0.2 G) S^½ with u normal and G a symmetric normal matrix.
    spread
        (d, d) symmetric: the means are mean + spread · z.
    bounds
        Of the roots' eigenvalues.
    rng
        Where all draws come from.
    """
    d = len(mean)
    means = mean + rng.standard_normal((n, d)) @ spread
    widths = np.exp(0.5 * rng.standard_normal(n))
    shapes = widths[:, None, None] * np.eye(d) + 0.2 * symmetric_normal(rng, n, d, isotropic=True)
    values, vectors = np.linalg.eigh(root)
    half = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return retract(means, half @ shapes @ half, bounds)


def consensus(swarm: Swarm, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The weighted average of means and of roots, (d,) and (d, d): a root again, as the roots are positive."""
    root = np.tensordot(weights, swarm.roots, axes=1)
    return weights @ swarm.means, (root + root.T) / 2


def distances(swarm: Swarm, mean: FloatArray, root: FloatArray) -> FloatArray:
    """(N,) the linearised Bures–Wasserstein distances to one Gaussian."""
    return np.sqrt(np.sum((swarm.means - mean) ** 2, axis=1) + np.sum((swarm.roots - root) ** 2, axis=(1, 2)))


def step(
    swarm: Swarm,
    mean: FloatArray,
    root: FloatArray,
    *,
    dt: float,
    drift: float,
    noise: float,
    anisotropic: bool,
    bounds: tuple[float, float],
    rng: np.random.Generator,
) -> Swarm:
    """Move each particle towards the consensus, with noise in proportion to how far from it the particle is.

    dX = −λ (X − X̄) dt + σ |X − X̄| ∘ dW for X = (m, T). Anisotropic: |·| entry by entry. Isotropic: the distance to the
    consensus, over √d for the mean and over d for the root.

    Parameters
    ----------
    swarm
        Where the particles are.
    mean, root
        The consensus X̄.
    dt, drift, noise
        The step, λ and σ.
    anisotropic
        Which noise.
    bounds
        Of the roots' eigenvalues.
    rng
        Where the noise comes from.
    """
    n, d = swarm.means.shape
    to_mean, to_root = swarm.means - mean, swarm.roots - root
    if anisotropic:
        far_mean, far_root = np.abs(to_mean), np.abs(to_root)
    else:
        r = distances(swarm, mean, root)
        far_mean, far_root = r[:, None] / np.sqrt(d), r[:, None, None] / d
    scale = noise * np.sqrt(dt)
    means = swarm.means - drift * dt * to_mean + scale * far_mean * rng.standard_normal((n, d))
    wind = symmetric_normal(rng, n, d, isotropic=not anisotropic)
    roots = swarm.roots - drift * dt * to_root + scale * far_root * wind
    return retract(means, roots, bounds)
