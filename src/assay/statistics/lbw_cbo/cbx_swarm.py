"""A contender from elsewhere: consensus-based optimisation by CBXpy, on the numbers of Gaussians."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from assay.numerics.weights import ess_temperature
from assay.parts.packages import need

from .baselines import Problem, best_of, energies, from_numbers, to_numbers
from .measure import GaussianMeasure

FloatArray = npt.NDArray[np.float64]

SIGMA, DT = 2.0, 0.1
SHARE = 0.05
"""Of a swarm, the effective size of its weights."""

SMALLEST_MOVE = 1e-2
"""CBXpy's root sum of squared moves over the number of particles, below which a swarm is done and the next begins."""

WORST = 1e12
"""The value of a Gaussian without one: CBXpy's weights need numbers."""


class _Schedule:
    """α such that the weights have a given effective size, as CBXpy's ``effective_sample_size`` has it.

    Its own bisection finds α to 3 at best and takes four times as long as all the rest.
    """

    def __init__(self, size: float) -> None:
        self.size = size

    def update(self, dynamics: Any) -> None:
        dynamics.alpha = np.full((1, 1), min(ess_temperature(dynamics.energy[0], self.size), 1e12))


def cbx(p: Problem, seed: int) -> GaussianMeasure:
    """CBXpy's dynamics over mean and log-Cholesky factor, restarted from new starts until the budget is spent.

    The kind and size of its noise, and when to restart, were chosen on other mixtures than the study's.
    """
    need("cbx", "the arm cbx")
    from cbx.dynamics import CBO

    rng = np.random.default_rng(seed)
    nodes, d, n, left = p.nodes(rng), p.dim, p.n_particles, p.gaussians
    seen: list[tuple[float, FloatArray]] = []
    agreed: list[FloatArray] = []

    def values(rows: FloatArray) -> FloatArray:
        nonlocal seen
        e = energies(p.density, *from_numbers(rows, d), nodes)
        e = np.where(np.isfinite(e), e, WORST)
        seen = sorted([*seen, *zip(e.tolist(), rows.copy(), strict=True)], key=lambda s: s[0])[:5]
        return e

    while left >= 30 * n or not agreed:
        means, roots = p.starts(n, rng)
        dynamics = CBO(
            values,
            f_dim="2D",
            check_f_dims=False,  # would take evaluations
            x=to_numbers(means, np.linalg.cholesky(roots @ roots)),
            dt=DT,
            sigma=SIGMA,
            noise="anisotropic",
            sampler=rng.standard_normal,
            term_criteria=[
                {"name": "max-eval", "max_eval": left},
                {"name": "diff-tol", "diff_tol": SMALLEST_MOVE},
            ],
            track_args={"names": []},
            verbosity=0,
        )
        dynamics.optimize(sched=_Schedule(max(2.0, SHARE * n)))
        left -= int(dynamics.num_f_eval[0])
        agreed.append(dynamics.consensus[0, 0])
    means, lowers = from_numbers(np.stack([*(row for _, row in seen), *agreed]), d)
    return best_of(p, list(zip(means, lowers, strict=True)), rng)
