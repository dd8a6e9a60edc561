"""Base points: where a standard normal law is looked at, so that m + T z looks at N(m, T²)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import qmc

from assay.errors import InputError

FloatArray = npt.NDArray[np.float64]

MOST_HERMITE_DIMENSIONS = 3
MOST_HERMITE_NODES = 200_000
_LARGEST_SOBOL_DIMENSION = 21201


@dataclass(frozen=True, eq=False)
class Nodes:
    """Points and weights that stand for a standard normal law.

    Attributes
    ----------
    points
        (S, d) with mean 0 and covariance I under the weights.
    weights
        (S,) positive, sum one.
    """

    points: FloatArray
    weights: FloatArray


def hermite_order(nodes: str) -> int | None:
    """The q of ``"hermite:q"``, or None for the other kinds; ``InputError`` where it is none of them."""
    kind, colon, number = str(nodes).partition(":")
    if isinstance(nodes, str) and nodes in ("sobol", "mc"):
        return None
    if kind != "hermite" or not colon or not number.isascii() or not number.isdigit() or not 2 <= int(number) <= 64:
        raise InputError(f"nodes must be 'sobol', 'mc' or 'hermite:q' with q from 2 to 64, got {nodes!r}")
    return int(number)


def draw_nodes(nodes: str, n_samples: int, dim: int, rng: np.random.Generator) -> Nodes:
    """The base points of one run.

    Parameters
    ----------
    nodes
        ``"sobol"``: scrambled Sobol points through the normal quantile; ``"mc"``: normal draws. Of both, half are the
        negatives of the others, and all are whitened, so that every quadratic is integrated exactly.
        ``"hermite:q"``: q Gauss–Hermite nodes a dimension, exact for polynomials of degree 2q − 1.
    n_samples
        S, even and at least 2(d + 1); without meaning for hermite, which has qᵈ.
    dim
        d.
    rng
        Where scrambling and draws come from.

    Raises
    ------
    InputError
        When the kind is unknown, S is odd or too small, or hermite is asked for in more than three dimensions.

    Examples
    --------
    >>> nodes = draw_nodes("sobol", 16, 2, np.random.default_rng(0))
    >>> np.abs(nodes.points.mean(axis=0)).max() < 1e-12, np.allclose(nodes.points.T @ nodes.points / 16, np.eye(2))
    (np.True_, True)
    """
    q = hermite_order(nodes)
    if q is not None:
        return _hermite(q, dim)
    if n_samples % 2 or n_samples < 2 * (dim + 1):
        raise InputError(f"n_samples must be even and at least 2(d + 1) = {2 * (dim + 1)}, got {n_samples}")
    half = _sobol(n_samples // 2, dim, rng) if nodes == "sobol" else rng.standard_normal((n_samples // 2, dim))
    return Nodes(_whitened(np.concatenate([half, -half])), np.full(n_samples, 1 / n_samples))


def _sobol(n: int, dim: int, rng: np.random.Generator) -> FloatArray:
    if dim > _LARGEST_SOBOL_DIMENSION:
        raise InputError(f"Sobol points have at most {_LARGEST_SOBOL_DIMENSION} dimensions, not {dim}")
    power = max(n - 1, 1).bit_length()  # a power of two keeps the points balanced; those beyond n are left out
    uniform = qmc.Sobol(dim, scramble=True, rng=rng).random_base2(power)[:n]
    return ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))


def _whitened(points: FloatArray) -> FloatArray:
    """Points with mean zero and, to rounding, the identity as their biased covariance."""
    centred = points - points.mean(axis=0)
    lower = np.linalg.cholesky(centred.T @ centred / len(points))
    return np.linalg.solve(lower, centred.T).T


def _hermite(q: int, dim: int) -> Nodes:
    if dim > MOST_HERMITE_DIMENSIONS or q**dim > MOST_HERMITE_NODES:
        raise InputError(
            f"nodes='hermite:{q}' has {q}^{dim} points; it is for at most {MOST_HERMITE_DIMENSIONS} dimensions and "
            f"{MOST_HERMITE_NODES} points: use 'sobol'"
        )
    x, w = np.polynomial.hermite_e.hermegauss(q)
    grid = np.meshgrid(*[x] * dim, indexing="ij")
    weights = np.ones(1)
    for _ in range(dim):
        weights = np.multiply.outer(weights, w / w.sum()).ravel()
    return Nodes(np.stack([axis.ravel() for axis in grid], axis=1), weights / weights.sum())
