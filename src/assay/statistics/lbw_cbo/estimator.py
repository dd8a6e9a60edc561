"""The estimator: the best Gaussian approximation of a distribution, found by a swarm of Gaussians."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from assay.errors import InputError

from . import checks
from .dynamics import Swarm, joined, retract, scatter
from .measure import GaussianMeasure
from .nodes import draw_nodes, hermite_order
from .objectives import (
    CustomObjective,
    Density,
    DivergenceObjective,
    KernelObjective,
    LogDensity,
    Objective,
    median_bandwidth,
    renyi_order,
)
from .search import Found, Settings, other_basins, search

FloatArray = npt.NDArray[np.float64]
Init = GaussianMeasure | tuple[npt.ArrayLike, npt.ArrayLike]


class LBWCBO(BaseEstimator):
    """Gaussian variational inference by consensus: a swarm of Gaussians searches for the one nearest to a target.

    Each particle is a Gaussian, stored as its mean m and the symmetric root T of its covariance. The particles are
    drawn to a weighted average of the best ones, and explore in proportion to how far they still are from it. Only
    values of the target's log density are asked for, no gradient; many peaks are what it is made for, in up to ten
    dimensions or so. The mean-field theory has a swarm contract where 2·drift > noise² (isotropic noise: drift >
    d·noise²/2); the defaults explore beyond that, and agree because the weights favour few and the noise decays.

    Parameters
    ----------
    objective
        ``"kl"``: KL(q‖p); ``"renyi:a"`` with 0 < a < 1: the Rényi divergence; ``"mmd"``: the kernel distance to
        samples, which :meth:`fit` is then given; or a function to minimise, ``(means (N, d), roots (N, d, d),
        log_abs_det (N,)) -> (N,)``.
    n_particles
        N, at least 4.
    n_iter
        Iterations in all, each of (N + 1)·S density rows.
    restart
        What happens when the swarm agrees before that: True, another one starts with the iterations that are left, and
        the best of all is taken; False, the search ends.
    dt, drift, noise
        The step, λ and σ; ``noise=None`` means 3 in up to two dimensions and 2.2 beyond, or 1 where it is isotropic.
    noise_kind
        ``"anisotropic"``: entry by entry; ``"isotropic"``: the same in every direction.
    noise_decay
        Whether the noise falls to 0.3·noise over the second half.
    temperature
        ``"ess"``: in each iteration such that the weights have an effective size of max(2, ess_fraction·N), which makes
        the search the same for a·E + b; or a number, the constant α of the weights exp(−α E).
    ess_fraction
        See ``temperature``; above 0, at most 1.
    nodes
        Base points: ``"sobol"``, ``"mc"`` or ``"hermite:q"`` (d ≤ 3), see :func:`~.nodes.draw_nodes`.
    n_samples
        S base points, even, at least 2(d + 1).
    refresh
        ``"fixed"``: the same base points for the whole run; ``"step"``: new ones in each iteration.
    final_samples
        How many fresh base points choose among the best, and as many more give ``elbo_`` its value.
    init_mean
        (d,) or one number: where means start; None is 0, with ``"mmd"`` the samples' mean.
    init_spread
        Standard deviation of the means at the start, in the unit of the target's parameters.
    init_root
        Size of the roots at the start, in the same unit.
    root_bounds
        Least and largest eigenvalue of a root.
    tol, patience
        A swarm stops, from its 30th iteration on, when it is smaller than ``tol`` (relative to the consensus), or
        smaller than 1e-3 and the best ever seen has not become better by ``tol`` for ``patience`` iterations.
    bandwidth
        Of the kernel of ``"mmd"``: ``"median"`` or a positive number.
    record
        Whether to keep the particles of all iterations in ``path_means_`` and ``path_roots_``.
    random_state
        A seed, a numpy generator or None.

    Attributes
    ----------
    measure_
        The :class:`GaussianMeasure` that was found.
    objective_
        Its objective, on fresh base points.
    elbo_
        For ``"kl"`` −objective_, the evidence lower bound; for ``"renyi:a"`` the bound of that order; else None. It is
        computed on base points that neither the search nor the choice has seen.
    consensus_
        The consensus of the last swarm.
    n_evals_
        Rows of the log density that were asked for.
    n_iter_
        Iterations done.
    n_swarms_
        How many swarms searched, one after another.
    converged_
        Whether one of them agreed before the iterations were used up.
    n_other_basins_
        How many particles of the last swarm ended where the straight way to ``measure_`` first leads up.
    history_
        A row an iteration: ``iter``, ``swarm``, ``best`` so far, ``consensus_objective``, ``diameter``
        (weighted root mean square distance from the consensus), ``ess``, ``alpha``, ``nonfinite`` (particles without a
        finite value).

    Notes
    -----
    Source: Borghi and Carrillo, "Variational inference via Gaussian interacting particles in the Bures–Wasserstein
    geometry", arXiv 2601.00632 (ICML 2026). Time grows as N·S density rows and N·d³ an iteration, memory as N·S·d.

    Examples
    --------
    >>> def log_density(x):  # two peaks, 0.9 and 0.1 of the mass
    ...     return np.logaddexp(np.log(0.9) - (x[:, 0] - 3) ** 2 / 2, np.log(0.1) - (x[:, 0] + 5) ** 2 / 2)
    >>> found = LBWCBO(random_state=0).fit(log_density, dim=1)
    >>> found.measure_.mean.round(2), found.measure_.cov.round(2)
    (array([3.]), array([[1.]]))
    """

    def __init__(
        self,
        objective: str | Objective = "kl",
        n_particles: int = 50,
        n_iter: int = 200,
        restart: bool = True,
        dt: float = 0.1,
        drift: float = 1.0,
        noise: float | None = None,
        noise_kind: str = "anisotropic",
        noise_decay: bool = True,
        temperature: str | float = "ess",
        ess_fraction: float = 0.05,
        nodes: str = "sobol",
        n_samples: int = 128,
        refresh: str = "fixed",
        final_samples: int = 4096,
        init_mean: npt.ArrayLike | None = None,
        init_spread: float = 3.0,
        init_root: float = 1.0,
        root_bounds: tuple[float, float] = (1e-4, 1e4),
        tol: float = 1e-6,
        patience: int = 20,
        bandwidth: str | float = "median",
        record: bool = False,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.objective = objective
        self.n_particles = n_particles
        self.n_iter = n_iter
        self.restart = restart
        self.dt = dt
        self.drift = drift
        self.noise = noise
        self.noise_kind = noise_kind
        self.noise_decay = noise_decay
        self.temperature = temperature
        self.ess_fraction = ess_fraction
        self.nodes = nodes
        self.n_samples = n_samples
        self.refresh = refresh
        self.final_samples = final_samples
        self.init_mean = init_mean
        self.init_spread = init_spread
        self.init_root = init_root
        self.root_bounds = root_bounds
        self.tol = tol
        self.patience = patience
        self.bandwidth = bandwidth
        self.record = record
        self.random_state = random_state

    def fit(
        self, log_density: LogDensity | npt.ArrayLike | None = None, dim: int | None = None, init: Init | None = None
    ) -> LBWCBO:
        """Search for the Gaussian nearest to a target.

        Parameters
        ----------
        log_density
            A function from points (n, d), float64, to unnormalised log densities (n,); an array or a torch tensor. With
            ``objective="mmd"`` the samples (n, d) in its place, and nothing where the objective is a function.
        dim
            d; may be left out where ``init``, ``init_mean`` or the samples tell it.
        init
            (means (N, d), roots (N, d, d)) of all particles, or a :class:`GaussianMeasure` to scatter around, the means
            with ``init_spread`` times its root.

        Returns
        -------
        LBWCBO
            Itself.

        Raises
        ------
        InputError
            When a parameter is out of range, ``dim`` is missing, shapes do not fit, or more than half of the first
            objectives are not finite.
        TypeError
            When a parameter, or what is to be fitted, is of the wrong kind.

        Warns
        -----
        ConvergenceWarning
            When the swarm did not agree within ``n_iter``, or the Gaussian that it found lies at ``root_bounds``.
        RuntimeWarning
            When objectives after the first iteration were not finite.
        """
        rng = checks.generator(self.random_state)
        samples = self._samples(log_density)
        d = self._dimension(dim, init, samples)
        settings = self._settings(d)
        objective = self._objective(log_density, samples, d, rng)
        first = self._start(d, init, samples, rng)  # what is wrong with the start is said before the work

        def evaluate(some: Swarm) -> FloatArray:
            return objective(some.means, some.roots, some.log_dets)

        starts = [first]

        def start() -> Swarm:
            return starts.pop() if starts else self._start(d, init, samples, rng)

        found = search(evaluate, start, settings, rng, self._redraw(objective, d, rng))
        self.n_other_basins_ = other_basins(evaluate, found, settings)
        self._choose(objective, found, rng)
        self._report(objective, found)
        return self

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> FloatArray:
        """Draw ``n`` points from the Gaussian that was found, (n, d)."""
        check_is_fitted(self)
        return self.measure_.sample(n, checks.generator(random_state))

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """The log density of the Gaussian that was found at each row of ``X`` (n, d), (n,)."""
        check_is_fitted(self)
        return self.measure_.logpdf(X)

    def _samples(self, given: Any) -> FloatArray | None:
        """The samples of ``objective="mmd"``; checks that what is given suits the objective."""
        if callable(self.objective):
            if given is not None:
                raise TypeError("log_density must be left out where objective is a function")
            return None
        if self.objective == "mmd":
            if callable(given) or given is None:
                raise TypeError("with objective='mmd' fit is given samples (n, d), not a function")
            samples = checks.numbers(given, "samples")
            if samples.ndim != 2 or not samples.size:
                raise InputError(f"samples must be (n, d), got shape {samples.shape}")
            if not np.isfinite(samples).all():
                raise InputError("samples must be finite, and have NaN or infinity in them")
            return samples
        if not isinstance(self.objective, str):
            raise TypeError(f"objective must be a name or a function, not {self.objective!r}")
        renyi_order(self.objective)
        if not callable(given):
            raise TypeError(f"log_density must be a function from (n, d) to (n,), not a {type(given).__name__}")
        return None

    def _dimension(self, dim: int | None, init: Init | None, samples: FloatArray | None) -> int:
        told: dict[str, int] = {} if dim is None else {"dim": checks.whole(dim, "dim", 1)}
        if isinstance(init, GaussianMeasure):
            told["init"] = init.dim
        elif init is not None:
            told["init"] = self._given_swarm(init)[0].shape[1]
        if samples is not None:
            told["the samples"] = samples.shape[1]
        middle = self._init_mean()
        if middle.ndim:
            told["init_mean"] = len(middle)
        if not told:
            raise InputError("dim must be given: neither init nor init_mean tells the number of dimensions")
        if len(set(told.values())) > 1:
            raise InputError("the dimensions differ: " + ", ".join(f"{name} has {d}" for name, d in told.items()))
        return next(iter(told.values()))

    def _init_mean(self) -> FloatArray:
        """One number, or one for each dimension."""
        mean = np.zeros(()) if self.init_mean is None else checks.numbers(self.init_mean, "init_mean")
        if mean.ndim > 1 or not mean.size or not np.isfinite(mean).all():
            raise InputError(f"init_mean must be (d,) finite numbers or one number, got {self.init_mean!r}")
        return mean

    def _settings(self, d: int) -> Settings:
        n = checks.whole(self.n_particles, "n_particles", 4)
        fraction = checks.positive(self.ess_fraction, "ess_fraction", 1.0)
        checks.one_of(self.refresh, "refresh", ("fixed", "step"))
        isotropic = checks.one_of(self.noise_kind, "noise_kind", ("anisotropic", "isotropic")) == "isotropic"
        default = 1.0 if isotropic else 3.0 if d <= 2 else 2.2
        constant = not isinstance(self.temperature, str)
        if not constant and self.temperature != "ess":
            raise InputError(f"temperature must be 'ess' or a positive number, got {self.temperature!r}")
        return Settings(
            n_iter=checks.whole(self.n_iter, "n_iter", 1),
            restart=checks.yes_or_no(self.restart, "restart"),
            dt=checks.positive(self.dt, "dt"),
            drift=checks.positive(self.drift, "drift"),
            noise=default if self.noise is None else checks.positive(self.noise, "noise"),
            noise_decay=checks.yes_or_no(self.noise_decay, "noise_decay"),
            anisotropic=not isotropic,
            ess_target=None if constant else max(2.0, fraction * n),
            alpha=checks.positive(self.temperature, "temperature") if constant else 0.0,
            bounds=checks.bounds(self.root_bounds),
            tol=checks.positive(self.tol, "tol"),
            patience=checks.whole(self.patience, "patience", 1),
            record=checks.yes_or_no(self.record, "record"),
        )

    def _objective(
        self, log_density: Any, samples: FloatArray | None, d: int, rng: np.random.Generator
    ) -> DivergenceObjective | KernelObjective | CustomObjective:
        if callable(self.objective):
            return CustomObjective(self.objective)
        if samples is not None:
            if isinstance(self.bandwidth, str) and self.bandwidth == "median":
                return KernelObjective(samples, median_bandwidth(samples, rng))
            if isinstance(self.bandwidth, str):
                raise InputError(f"bandwidth must be 'median' or a positive number, got {self.bandwidth!r}")
            return KernelObjective(samples, checks.positive(self.bandwidth, "bandwidth"))
        checks.whole(self.n_samples, "n_samples", 1)
        checks.whole(self.final_samples, "final_samples", 1)
        if hermite_order(self.nodes) is None and (self.final_samples % 2 or self.final_samples < 2 * (d + 1)):
            raise InputError(
                f"final_samples must be even and at least 2(d + 1) = {2 * (d + 1)}, got {self.final_samples}"
            )
        nodes = draw_nodes(self.nodes, self.n_samples, d, rng)
        return DivergenceObjective(Density(log_density), nodes, renyi_order(str(self.objective)))

    def _redraw(self, objective: Any, d: int, rng: np.random.Generator) -> Any:
        if self.refresh == "fixed" or not isinstance(objective, DivergenceObjective):
            return None

        def redraw() -> None:
            objective.nodes = draw_nodes(self.nodes, self.n_samples, d, rng)

        return redraw

    def _start(self, d: int, init: Init | None, samples: FloatArray | None, rng: np.random.Generator) -> Swarm:
        bounds, n = checks.bounds(self.root_bounds), self.n_particles
        spread = checks.positive(self.init_spread, "init_spread")
        width = checks.positive(self.init_root, "init_root")
        if isinstance(init, GaussianMeasure):
            return scatter(n, init.mean, init.root, spread * init.root, bounds, rng)
        if init is not None:
            means, roots = self._given_swarm(init)
            return retract(means, roots, bounds)
        if samples is not None and self.init_mean is None:
            # As the samples lie, whatever their unit; one sample, or a constant column, has no spread of its own.
            middle = samples.mean(axis=0)
            cov = np.atleast_2d(np.cov(samples.T, bias=True))
            if not np.isfinite(cov).all():
                raise InputError("samples are too large to have a covariance: divide them by something")
            own = np.diag(cov)
            cov = cov + 1e-6 * np.diag(np.where(own > 0, own, own.max() or 1.0))
            root = GaussianMeasure.from_cov(middle, cov).root
            return scatter(n, middle, root, root, bounds, rng)
        return scatter(n, np.broadcast_to(self._init_mean(), d), width * np.eye(d), spread * np.eye(d), bounds, rng)

    def _given_swarm(self, init: Any) -> tuple[FloatArray, FloatArray]:
        n = checks.whole(self.n_particles, "n_particles", 4)
        try:
            means, roots = (np.asarray(part, dtype=np.float64) for part in init)
        except (TypeError, ValueError):
            raise TypeError(
                f"init must be a GaussianMeasure or (means, roots) of all particles, not a {type(init).__name__}"
            ) from None
        d = means.shape[-1] if means.ndim == 2 else 0
        if means.shape != (n, d) or roots.shape != (n, d, d) or d == 0:
            raise InputError(
                f"init must be means ({n}, d) and roots ({n}, d, d) for n_particles={n}, got {means.shape} and "
                f"{roots.shape}"
            )
        if not (np.isfinite(means).all() and np.isfinite(roots).all()):
            raise InputError("init must be finite, and has NaN or infinity in it")
        if np.abs(roots - np.swapaxes(roots, 1, 2)).max() > 1e-8 * np.abs(roots).max():
            raise InputError("the roots of init must be symmetric")
        least = np.linalg.eigvalsh(roots)[:, 0].min()
        if least < -1e-10 * np.abs(roots).max():
            raise InputError(f"the roots of init must be positive semidefinite; one has the eigenvalue {least:.3g}")
        return means, roots

    def _choose(self, objective: Any, found: Found, rng: np.random.Generator) -> None:
        """Take the best of the elite and the consensus on fresh base points, and value it on others."""
        candidates = joined(found.elite, found.agreed)
        fresh = isinstance(objective, DivergenceObjective) and hermite_order(self.nodes) is None
        values = np.empty(0)
        for _ in range(2 if fresh else 1):
            if fresh:
                objective.nodes = draw_nodes(self.nodes, self.final_samples, candidates.means.shape[1], rng)
            values = objective(candidates.means, candidates.roots, candidates.log_dets)
            if not np.isfinite(values).any():
                raise InputError(
                    f"log_density is NaN or infinite on some of {len(objective.nodes.points)} fresh points of every "
                    "Gaussian that was found, where KL is not defined: let it return a finite, very low value there"
                    if isinstance(objective, DivergenceObjective)
                    else "the objective of every Gaussian that was found is NaN or infinite"
                )
            best = int(np.nanargmin(np.where(np.isfinite(values), values, np.inf)))
            candidates = candidates.take(np.array([best]))
        self.measure_ = GaussianMeasure(candidates.means[0], candidates.roots[0])
        self.objective_ = float(values[best])
        self.elbo_ = -self.objective_ if isinstance(objective, DivergenceObjective) else None
        self.consensus_ = GaussianMeasure(found.agreed.means[-1], found.agreed.roots[-1])

    def _report(self, objective: Any, found: Found) -> None:
        """Set what tells how the search went, and warn where it did not go well."""
        self.n_evals_ = objective.density.rows if isinstance(objective, DivergenceObjective) else 0
        self.n_iter_ = len(found.rows)
        self.converged_ = any(found.converged)
        self.n_swarms_ = len(found.converged)
        self.history_ = pd.DataFrame(found.rows)
        self.n_features_in_ = self.measure_.dim
        if self.record:
            self.path_means_ = np.stack([swarm.means for swarm in found.path])
            self.path_roots_ = np.stack([swarm.roots for swarm in found.path])
        if found.nonfinite:
            warnings.warn(
                f"{found.nonfinite} objectives after the first iteration were NaN or infinite and got no weight; "
                "history_.nonfinite counts them",
                RuntimeWarning,
                stacklevel=3,
            )
        if not self.converged_:
            size = found.rows[-1]["diameter"]
            other = f", {self.n_other_basins_} of its {len(found.swarm)} particles in other basins"
            warnings.warn(
                f"the swarm had not agreed after {self.n_iter_} iterations (diameter {size:.2g}{other}); raise n_iter, "
                "or lower noise",
                ConvergenceWarning,
                stacklevel=3,
            )
        low, high = checks.bounds(self.root_bounds)
        widths = np.linalg.eigvalsh(self.measure_.root)
        if widths[0] < 1.001 * low or widths[-1] > 0.999 * high:
            side = "narrow" if widths[0] < 1.001 * low else "wide"
            warnings.warn(
                f"the Gaussian that was found is as {side} as root_bounds=({low:g}, {high:g}) let it be: widen them or "
                "scale the parameters; a target without a maximum has no best Gaussian",
                ConvergenceWarning,
                stacklevel=3,
            )
