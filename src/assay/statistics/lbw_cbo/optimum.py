"""The best Gaussian of a study's target, found with gradients from starts that only its maker knows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .baselines import polished
from .nodes import draw_nodes
from .objectives import Density
from .targets import Logistic, Mixture, Periodic

FloatArray = npt.NDArray[np.float64]
Start = tuple[FloatArray, FloatArray]

FIRST_SAMPLES, LAST_SAMPLES = 256, 4096


def best_gaussian(target: Mixture | Periodic | Logistic) -> Start:
    """Mean and covariance of the Gaussian with the least KL(q‖p) that descent finds from every sensible start.

    On a mixture from each component and from what each two are together; on the sunspots from the highest peaks of the
    posterior on a fine grid; on the log-concave target, which has one optimum, from zero.
    """
    if isinstance(target, Mixture):
        starts = _components(target)
    elif isinstance(target, Periodic):
        starts = _peaks(target)
    else:
        starts = [(np.zeros(target.dim), 0.25 * np.eye(target.dim))]
    density, rng = Density(target.log_density), np.random.default_rng(0)
    few = draw_nodes("sobol", FIRST_SAMPLES, target.dim, rng)
    many = draw_nodes("sobol", LAST_SAMPLES, target.dim, rng)
    first = sorted((polished(density, target.gradient, *start, few) for start in starts), key=lambda f: f[0])
    last = [polished(density, target.gradient, mean, cov, many) for _, mean, cov in first[:2]]
    _, mean, cov = min(last, key=lambda f: f[0])
    return mean, cov


def _components(target: Mixture) -> list[Start]:
    eye = np.eye(target.dim)
    starts = [(m, s**2 * eye) for m, s in zip(target.means, target.scales, strict=True)]
    for i in range(len(target.weights)):
        for j in range(i):
            w = target.weights[[i, j]] / target.weights[[i, j]].sum()
            mean = w @ target.means[[i, j]]
            off = target.means[[i, j]] - mean
            starts.append((mean, (w @ target.scales[[i, j]] ** 2) * eye + (w[:, None] * off).T @ off))
    return starts


def _peaks(target: Periodic, most: int = 4) -> list[Start]:
    u, v = np.linspace(-4, 4, 8001), np.linspace(-3, 1, 41)
    values = target.log_density(np.stack(np.meshgrid(u, v, indexing="ij"), axis=-1).reshape(-1, 2)).reshape(8001, 41)
    along = values.max(axis=1)
    inner = np.flatnonzero((along[1:-1] > along[:-2]) & (along[1:-1] > along[2:])) + 1
    best = inner[np.argsort(-along[inner])[:most]]
    return [(np.array([u[i], v[values[i].argmax()]]), np.diag([0.01**2, 0.1**2])) for i in best]
