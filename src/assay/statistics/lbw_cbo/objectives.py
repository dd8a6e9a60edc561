"""What is minimised over Gaussians: KL, Rényi divergence, and the distance of kernel means to given samples.

An objective is a function of many Gaussians at once: ``(means (N, d), roots (N, d, d), log_abs_det (N,)) -> (N,)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

from assay.errors import InputError

from .checks import numbers
from .nodes import Nodes

FloatArray = npt.NDArray[np.float64]
LogDensity = Callable[[FloatArray], Any]
Objective = Callable[[FloatArray, FloatArray, FloatArray], Any]

LOG_2PI = math.log(2 * math.pi)
MOST_PAIRS = 1000  # samples whose distances the median heuristic looks at


@dataclass
class Density:
    """An unnormalised log density that counts the rows it was asked for and checks what comes back.

    Attributes
    ----------
    function
        ``(n, d) float64 -> (n,)``; a torch tensor is taken too.
    rows
        How many rows it has been asked for.
    """

    function: LogDensity
    rows: int = 0

    def __call__(self, points: FloatArray) -> FloatArray:
        """The log density at each row of ``points`` (n, d)."""
        self.rows += len(points)
        returned = self.function(points)
        if hasattr(returned, "detach"):  # a tensor, perhaps on a GPU
            returned = returned.detach().cpu().numpy()
        values = numbers(returned, "what log_density returns")
        if values.shape != (len(points),):
            raise InputError(
                f"log_density must return ({len(points)},) for points of shape {points.shape}, and returned "
                f"{values.shape}"
            )
        return values


@dataclass
class DivergenceObjective:
    """KL(q‖p) − log Z, or the Rényi divergence of order a in its place, by base points.

    With ℓ_s = log p̃(m + T z_s) − log q(m + T z_s): −Σ w_s ℓ_s, or −log Σ w_s exp((1 − a) ℓ_s) / (1 − a).

    Attributes
    ----------
    density
        log p̃.
    nodes
        The base points z_s and weights w_s; may be exchanged between calls.
    order
        a, between 0 and 1; None for KL.
    """

    density: Density
    nodes: Nodes
    order: float | None = None

    def __call__(self, means: FloatArray, roots: FloatArray, log_abs_det: FloatArray) -> FloatArray:
        """(N,) one value for each Gaussian; +inf or NaN where the density has no mass, or none that is a number."""
        n, d = means.shape
        z, w = self.nodes.points, self.nodes.weights
        points = means[:, None, :] + z @ roots  # the roots are symmetric
        log_p = self.density(points.reshape(-1, d)).reshape(n, len(z))
        with np.errstate(invalid="ignore", over="ignore"):
            if self.order is None:
                return -(log_p @ w) - log_abs_det - d / 2 * (1 + LOG_2PI)
            log_q = -d / 2 * LOG_2PI - log_abs_det[:, None] - np.sum(z**2, axis=1) / 2
            rest = 1 - self.order
            return -logsumexp(rest * (log_p - log_q), b=w, axis=1) / rest


@dataclass
class KernelObjective:
    """The squared maximum mean discrepancy to samples, less what does not depend on the Gaussian; in closed form.

    Kernel exp(−‖x − y‖² / 2h²): E k(x, x') − 2/n Σ_j E k(x, y_j).

    Attributes
    ----------
    samples
        (n, d) y_j.
    bandwidth
        h, in the unit of the samples.
    """

    samples: FloatArray
    bandwidth: float

    def __call__(self, means: FloatArray, roots: FloatArray, log_abs_det: FloatArray) -> FloatArray:
        """(N,) one value for each Gaussian, between −2 and 1."""
        return np.array([self._one(m, T) for m, T in zip(means, roots, strict=True)])

    def _one(self, mean: FloatArray, root: FloatArray) -> float:
        d, h2 = len(mean), self.bandwidth**2
        values, vectors = np.linalg.eigh(root)
        spread = values**2
        to_samples = ((self.samples - mean) @ vectors) ** 2 @ (1 / (spread + h2))
        near = math.exp(0.5 * (d * math.log(h2) - np.log(spread + h2).sum())) * np.exp(-to_samples / 2).mean()
        itself = math.exp(0.5 * (d * math.log(h2) - np.log(2 * spread + h2).sum()))
        return float(itself - 2 * near)


@dataclass
class CustomObjective:
    """A user's own function of means, roots and log |det T|, checked."""

    function: Objective
    calls: int = field(default=0)

    def __call__(self, means: FloatArray, roots: FloatArray, log_abs_det: FloatArray) -> FloatArray:
        """(N,) one value for each Gaussian."""
        # Copies, for the swarm must not change where the function writes to what it is given.
        returned = self.function(means.copy(), roots.copy(), log_abs_det.copy())
        if hasattr(returned, "detach"):
            returned = returned.detach().cpu().numpy()
        values = numbers(returned, "what objective returns")
        if values.shape != (len(means),):
            raise InputError(f"objective must return ({len(means)},) for {len(means)} Gaussians, got {values.shape}")
        return values


def renyi_order(objective: str) -> float | None:
    """The a of ``"renyi:a"``, None for ``"kl"``; ``InputError`` for anything else."""
    if objective == "kl":
        return None
    kind, _, number = objective.partition(":")
    try:
        order = float(number)
    except ValueError:
        order = math.nan
    if kind != "renyi" or not 0 < order < 1:
        raise InputError(f"objective must be 'kl', 'mmd', 'renyi:a' with 0 < a < 1, or a function, got {objective!r}")
    return order


def median_bandwidth(samples: FloatArray, rng: np.random.Generator) -> float:
    """The median distance between samples, of at most 1000 of them; ``InputError`` where it is zero."""
    some = samples if len(samples) <= MOST_PAIRS else samples[rng.choice(len(samples), MOST_PAIRS, replace=False)]
    h = float(np.median(pdist(some))) if len(some) > 1 else 0.0
    if not h > 0:
        raise InputError("the samples' median distance is zero: give bandwidth a positive number")
    return h
