"""The search: evaluate a swarm, weigh it, average it, move it, until it agrees or the iterations are used up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from assay.errors import InputError
from assay.numerics.weights import effective_size, ess_temperature, gibbs_weights

from .dynamics import Swarm, consensus, distances, joined, retract, step

FloatArray = npt.NDArray[np.float64]
Evaluate = Callable[[Swarm], FloatArray]

ELITE = 5
FIRST_STOP = 30  # no stop before so many iterations
SETTLED = 1e-3  # of the swarm's size relative to the consensus, where waiting for better values ends


@dataclass(frozen=True)
class Settings:
    """The search's constants; ``ess_target`` is None where ``alpha`` is a constant."""

    n_iter: int
    restart: bool
    dt: float
    drift: float
    noise: float
    noise_decay: bool
    anisotropic: bool
    ess_target: float | None
    alpha: float
    bounds: tuple[float, float]
    tol: float
    patience: int
    record: bool


@dataclass
class Found:
    """What a search ended with.

    Attributes
    ----------
    swarm, energies
        The last particles, and their values (N,).
    elite, elite_energies
        The best Gaussians ever seen, best first, with their values.
    agreed
        The last consensus of each swarm, as one swarm.
    rows
        One dictionary an iteration: the history.
    converged
        Of each swarm, whether it agreed before the iterations were used up.
    nonfinite
        How many energies after the first iteration were not finite.
    path
        The particles of every iteration, where they are recorded.
    """

    swarm: Swarm
    energies: FloatArray
    elite: Swarm
    elite_energies: FloatArray
    agreed: Swarm
    rows: list[dict[str, float]] = field(default_factory=list)
    converged: list[bool] = field(default_factory=list)
    nonfinite: int = 0
    path: list[Swarm] = field(default_factory=list)


def search(
    evaluate: Evaluate,
    start: Callable[[], Swarm],
    settings: Settings,
    rng: np.random.Generator,
    redraw: Callable[[], None] | None,
) -> Found:
    """Let one swarm search and, where that is wanted, others with the iterations that it left.

    Parameters
    ----------
    evaluate
        Values of many Gaussians; low is good, what is not finite has no weight.
    start
        A new swarm.
    settings
        The constants.
    rng
        Where the noise comes from.
    redraw
        Called before each evaluation but the first, to exchange the base points; None keeps them.

    Raises
    ------
    InputError
        When more than half of the first values are not finite.
    """
    swarm = start()
    none = swarm.take(np.empty(0, np.int64))
    found = Found(swarm, np.empty(0), none, np.empty(0), none)
    while not found.rows or (settings.restart and settings.n_iter - len(found.rows) >= FIRST_STOP):
        _one_swarm(found, evaluate, swarm if not found.rows else start(), settings, rng, redraw)
    return found


def _one_swarm(
    found: Found,
    evaluate: Evaluate,
    swarm: Swarm,
    settings: Settings,
    rng: np.random.Generator,
    redraw: Callable[[], None] | None,
) -> None:
    """Move one swarm until it agrees or the iterations that are left are used up."""
    n, first = len(swarm), len(found.rows)
    left = settings.n_iter - first
    middle: Swarm | None = None
    for k in range(left):
        if redraw is not None and found.rows:
            redraw()
        # The last consensus is evaluated along with the particles, in one call.
        values = evaluate(swarm if middle is None else joined(swarm, middle))
        energies, finite = values[:n], np.isfinite(values[:n])
        if found.rows:
            found.nonfinite += int((~finite).sum())
        else:
            _check_first(finite)
        if middle is not None:
            found.rows[-1]["consensus_objective"] = float(values[n])
            _remember(found, middle, values[n:])
        found.swarm, found.energies = swarm, energies
        _remember(found, swarm, energies)
        if settings.record:
            found.path.append(swarm)
        weights, alpha = _weights(energies, finite, settings)
        if weights is None and middle is None:  # a swarm that begins where nothing is finite
            weights = np.full(n, 1 / n)
        if weights is not None:
            mean, root = consensus(swarm, weights)
            middle = retract(mean[None], root[None], settings.bounds)
        assert middle is not None
        mean, root = middle.means[0], middle.roots[0]
        far = distances(swarm, mean, root)
        diameter = float(np.sqrt(far**2 @ weights)) if weights is not None else float(np.sqrt(np.mean(far**2)))
        found.rows.append(
            {
                "iter": first + k,
                "swarm": len(found.converged),
                "best": float(found.elite_energies[0]),
                "consensus_objective": np.nan,
                "diameter": diameter,
                "ess": effective_size(weights) if weights is not None else 0.0,
                "alpha": alpha,
                "nonfinite": int((~finite).sum()),
            }
        )
        agrees = _agrees(found.rows[first:], diameter, mean, root, settings)
        if agrees or k + 1 == left:
            break
        noise = settings.noise * (_decay(k / left) if settings.noise_decay else 1.0)
        swarm = step(
            swarm, mean, root, dt=settings.dt, drift=settings.drift, noise=noise, anisotropic=settings.anisotropic,
            bounds=settings.bounds, rng=rng,
        )  # fmt: skip
    assert middle is not None
    last = evaluate(middle)
    found.rows[-1]["consensus_objective"] = float(last[0])
    _remember(found, middle, last)
    found.rows[-1]["best"] = float(found.elite_energies[0])
    found.agreed = joined(found.agreed, middle)
    found.converged.append(agrees)


def other_basins(evaluate: Evaluate, found: Found, settings: Settings, parts: int = 5) -> int:
    """How many of the last particles are cut off from the best Gaussian: the straight line to it first leads up.

    Parameters
    ----------
    evaluate
        Values of many Gaussians.
    found
        The search's end.
    settings
        For the bounds of the roots.
    parts
        Into how many parts a line is cut; the ``parts`` − 1 points between are evaluated.
    """
    there = np.flatnonzero(np.isfinite(found.energies))
    swarm, energies = found.swarm.take(there), found.energies[there]
    top = np.full(len(there), -np.inf)
    for t in np.arange(1, parts) / parts:
        means = (1 - t) * swarm.means + t * found.elite.means[0]
        roots = (1 - t) * swarm.roots + t * found.elite.roots[0]
        top = np.fmax(top, evaluate(retract(means, roots, settings.bounds)))
    return int(np.sum(top > energies + 1e-9 * (1 + np.abs(energies))))


def _check_first(finite: npt.NDArray[np.bool_]) -> None:
    if 2 * (~finite).sum() > len(finite):
        raise InputError(
            f"{(~finite).sum()} of the {len(finite)} first Gaussians have an objective that is NaN or infinite: "
            "log_density, or the objective given, must be a finite number where they lie (KL is infinite where the "
            "target has no mass, and a bounded target needs a change of variables); see init_mean, init_spread and "
            "init_root"
        )


def _weights(
    energies: FloatArray, finite: npt.NDArray[np.bool_], settings: Settings
) -> tuple[FloatArray | None, float]:
    """Weights of the particles, and α; None where no value is finite."""
    good = energies[finite]
    if not len(good):
        return None, 0.0
    if settings.ess_target is None:
        alpha = settings.alpha
    else:
        alpha = ess_temperature(good, min(settings.ess_target, len(good))) if len(good) > 1 else 0.0
    weights = np.zeros(len(energies))
    weights[finite] = gibbs_weights(good, alpha)
    return weights, alpha


def _remember(found: Found, swarm: Swarm, energies: FloatArray) -> None:
    """Keep the best Gaussians ever seen."""
    finite = np.flatnonzero(np.isfinite(energies))
    finite = finite[np.argsort(energies[finite], kind="stable")[:ELITE]]
    every, values = joined(found.elite, swarm.take(finite)), np.concatenate([found.elite_energies, energies[finite]])
    best = np.argsort(values, kind="stable")[:ELITE]
    found.elite, found.elite_energies = every.take(best), values[best]


def _agrees(
    rows: list[dict[str, float]], diameter: float, mean: FloatArray, root: FloatArray, settings: Settings
) -> bool:
    if len(rows) < FIRST_STOP:
        return False
    size = 1 + float(np.sqrt(np.sum(mean**2) + np.sum(root**2)))
    if diameter < settings.tol * size:
        return True
    if len(rows) <= settings.patience or diameter >= SETTLED * size:
        return False
    now, before = rows[-1]["best"], rows[-1 - settings.patience]["best"]
    return before - now < settings.tol * (1 + abs(now))


def _decay(share: float) -> float:
    """The noise falls over the second half, from all to three tenths."""
    return 1.0 - 0.7 * max(2 * share - 1, 0.0)
