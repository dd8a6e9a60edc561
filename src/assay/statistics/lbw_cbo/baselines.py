"""The contenders: gradient descent over Gaussians, CMA-ES, the same swarm in Cholesky coordinates, ADVI, chance."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from assay.numerics.weights import ess_temperature, gibbs_weights
from assay.parts.packages import need

from .dynamics import scatter
from .measure import GaussianMeasure
from .nodes import Nodes, draw_nodes
from .objectives import LOG_2PI, Density

FloatArray = npt.NDArray[np.float64]

FINAL_SAMPLES = 4096
BOUNDS = (1e-4, 1e4)


@dataclass(frozen=True, eq=False)
class Problem:
    """What every contender is given.

    Attributes
    ----------
    density
        The target's log density, which counts its rows.
    gradient
        (n, d) -> (n, d), its gradient; None where there is none.
    dim
        d.
    spread, root
        The start: means from N(0, spread² I), roots of about root · I.
    n_particles, n_iter, n_samples
        A swarm's size, its iterations, and the base points S.
    """

    density: Density
    gradient: Callable[[FloatArray], FloatArray] | None
    dim: int
    spread: float
    root: float
    n_particles: int
    n_iter: int
    n_samples: int

    @property
    def gaussians(self) -> int:
        """How many Gaussians may be evaluated; each takes ``n_samples`` rows of the density or of its gradient."""
        return (self.n_particles + 1) * self.n_iter

    def nodes(self, rng: np.random.Generator) -> Nodes:
        """Base points."""
        return draw_nodes("sobol", self.n_samples, self.dim, rng)

    def starts(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Means (n, d) and roots (n, d, d) from the law by which a swarm starts."""
        eye = np.eye(self.dim)
        swarm = scatter(n, np.zeros(self.dim), self.root * eye, self.spread * eye, BOUNDS, rng)
        return swarm.means, swarm.roots


def energies(density: Density, means: FloatArray, lowers: FloatArray, nodes: Nodes) -> FloatArray:
    """KL(q‖p) − log Z of N(m, L Lᵀ) for many m and any square roots L, (N,)."""
    n, d = means.shape
    points = means[:, None, :] + nodes.points @ np.swapaxes(lowers, -1, -2)
    log_p = density(points.reshape(-1, d)).reshape(n, -1)
    with np.errstate(invalid="ignore"):
        return -(log_p @ nodes.weights) - np.linalg.slogdet(lowers)[1] - d / 2 * (1 + LOG_2PI)


def best_of(p: Problem, candidates: list[tuple[FloatArray, FloatArray]], rng: np.random.Generator) -> GaussianMeasure:
    """The best of some (m, L), on fresh base points, as the method chooses too."""
    nodes = draw_nodes("sobol", FINAL_SAMPLES, p.dim, rng)
    means, lowers = (np.stack(part) for part in zip(*candidates, strict=True))
    values = energies(p.density, means, lowers, nodes)
    best = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
    return GaussianMeasure.from_cov(means[best], lowers[best] @ lowers[best].T)


def random_search(p: Problem, seed: int) -> GaussianMeasure:
    """The best of as many Gaussians, drawn as a swarm starts: no learning."""
    rng = np.random.default_rng(seed)
    nodes, best = p.nodes(rng), []
    for start in range(0, p.gaussians, p.n_particles):
        means, roots = p.starts(min(p.n_particles, p.gaussians - start), rng)
        values = energies(p.density, means, roots, nodes)
        i = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
        best = sorted([*best, (float(values[i]), start, (means[i], roots[i]))], key=lambda b: b[:2])[:5]
    return best_of(p, [gaussian for _, _, gaussian in best], rng)


def descent(p: Problem, seed: int, *, multi: bool = False) -> GaussianMeasure:
    """Bures–Wasserstein gradient descent (Lambert et al. 2022), from one start or from as many as the budget allows.

    m ← m − η E∇V and Σ ← MΣM with M = I − η(E∇²V − Σ⁻¹), the Hessian by Stein's identity, on fixed base points. A step
    that does not lower the objective is halved and tried again, one that does makes the next longer: no step size is
    right for a narrow and a wide peak, and a fixed one diverges.
    """
    rng = np.random.default_rng(seed)
    nodes, left, found = p.nodes(rng), p.gaussians, []
    while left > 0 and (multi or not found):
        means, roots = p.starts(1, rng)
        value, gaussian, left = _descend(p, means[0], roots[0] @ roots[0], nodes, left)
        found.append((value, gaussian))
    found.sort(key=lambda f: f[0] if math.isfinite(f[0]) else math.inf)
    return best_of(p, [gaussian for _, gaussian in found[:5]], rng)


def _descend(
    p: Problem, mean: FloatArray, cov: FloatArray, nodes: Nodes, left: int
) -> tuple[float, tuple[FloatArray, FloatArray], int]:
    assert p.gradient is not None
    z, eye, eta = nodes.points, np.eye(p.dim), 0.1
    root = np.linalg.cholesky(cov)
    value = float(energies(p.density, mean[None], root[None], nodes)[0])
    left -= 1
    while left > 1:
        slope = -p.gradient(mean + z @ root.T)  # ∇V
        p.density.rows += len(z)
        left -= 1
        first = slope.T @ nodes.weights
        second = np.linalg.solve(root.T, (z * nodes.weights[:, None]).T @ slope)  # Σ⁻¹E(x − m)∇Vᵀ = L⁻ᵀ E z∇Vᵀ
        pull = (second + second.T) / 2 - np.linalg.inv(cov)
        lower = False
        while left > 0 and eta > 1e-10 and not lower:
            new_mean, M = mean - eta * first, eye - eta * pull
            new_cov = M @ cov @ M.T
            try:
                new_root = np.linalg.cholesky((new_cov + new_cov.T) / 2)
            except np.linalg.LinAlgError:
                eta /= 2
                continue
            new = float(energies(p.density, new_mean[None], new_root[None], nodes)[0])
            left -= 1
            lower = new < value
            if not lower:
                eta /= 2
        if not lower:
            break
        gain, value = value - new, new
        mean, cov, root, eta = new_mean, (new_cov + new_cov.T) / 2, new_root, 1.5 * eta
        if gain < 1e-7 * (1 + abs(value)):
            break
    return value, (mean, root), left


def to_numbers(means: FloatArray, lowers: FloatArray) -> FloatArray:
    """(N, d + d(d+1)/2): means, logarithms of the Cholesky factors' diagonals, and what is below them."""
    d = means.shape[1]
    diagonal = np.log(np.diagonal(lowers, axis1=1, axis2=2))
    return np.concatenate([means, diagonal, lowers[:, *np.tril_indices(d, -1)]], axis=1)


def from_numbers(numbers: FloatArray, d: int) -> tuple[FloatArray, FloatArray]:
    """Means and Cholesky factors of rows of numbers."""
    lowers = np.zeros((len(numbers), d, d))
    lowers[:, *np.tril_indices(d, -1)] = numbers[:, 2 * d :]
    lowers[:, range(d), range(d)] = np.exp(np.clip(numbers[:, d : 2 * d], *np.log(BOUNDS)))
    return numbers[:, :d], lowers


def cma_bipop(p: Problem, seed: int) -> GaussianMeasure:
    """BIPOP-CMA-ES over mean and log-Cholesky factor, restarted from new starts until the budget is spent."""
    cma = need("cma", "the arm cma-bipop")
    rng = np.random.default_rng(seed)
    nodes, d = p.nodes(rng), p.dim
    seen: list[tuple[float, FloatArray]] = []
    left = p.gaussians

    def start() -> FloatArray:
        means, roots = p.starts(1, rng)
        return to_numbers(means, np.linalg.cholesky(roots @ roots))[0]

    def values(rows: list[FloatArray]) -> list[float]:
        nonlocal left, seen
        numbers = np.stack(rows)
        left -= len(numbers)
        e = energies(p.density, *from_numbers(numbers, d), nodes)
        e = np.where(np.isfinite(e), e, 1e300)
        seen = sorted([*seen, *zip(e.tolist(), numbers, strict=True)], key=lambda s: s[0])[:5]
        return e.tolist()

    below = d * (d - 1) // 2
    options = {
        "CMA_stds": [p.spread] * d + [0.5] * d + [0.2 * p.root] * below,
        "maxfevals": p.gaussians,
        "verbose": -9,
        "seed": int(rng.integers(1, 2**31)),
    }
    state = np.random.get_state()  # noqa: NPY002  (cma seeds and uses numpy's global generator)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cma.fmin2(None, start, 1.0, options, restarts=9, bipop=True, parallel_objective=values)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    means, lowers = from_numbers(np.stack([numbers for _, numbers in seen]), d)
    return best_of(p, list(zip(means, lowers, strict=True)), rng)


def cbo_cholesky(p: Problem, seed: int) -> GaussianMeasure:
    """The method's dynamics, weights, noise, restarts and choice, in log-Cholesky coordinates."""
    rng = np.random.default_rng(seed)
    nodes, left = p.nodes(rng), p.n_iter
    seen: list[tuple[float, FloatArray]] = []
    agreed: list[FloatArray] = []
    while left >= 30 or not agreed:
        middle, seen, left = _one_swarm(p, nodes, seen, left, rng)
        agreed.append(middle)
    means, lowers = from_numbers(np.stack([*(row for _, row in seen), *agreed]), p.dim)
    return best_of(p, list(zip(means, lowers, strict=True)), rng)


def _one_swarm(
    p: Problem, nodes: Nodes, seen: list[tuple[float, FloatArray]], left: int, rng: np.random.Generator
) -> tuple[FloatArray, list[tuple[float, FloatArray]], int]:
    """One swarm's consensus, the five best rows of numbers ever seen, and the iterations that it left."""
    d, n = p.dim, p.n_particles
    means, roots = p.starts(n, rng)
    X = to_numbers(means, np.linalg.cholesky(roots @ roots))
    sigma, bests, middle, diameter = 3.0 if d <= 2 else 2.2, [], X[:1], math.inf
    for k in range(left):
        rows = X if k == 0 else np.concatenate([X, middle])
        e = energies(p.density, *from_numbers(rows, d), nodes)
        good = np.isfinite(e)
        seen = sorted([*seen, *zip(e[good].tolist(), rows[good], strict=True)], key=lambda s: s[0])[:5]
        bests.append(seen[0][0])
        fine = good[:n]
        if fine.any():
            alpha = ess_temperature(e[:n][fine], min(max(2.0, 0.05 * n), fine.sum())) if fine.sum() > 1 else 0.0
            w = np.zeros(n)
            w[fine] = gibbs_weights(e[:n][fine], alpha)
            middle = (w @ X)[None]
            diameter = math.sqrt(w @ np.sum((X - middle) ** 2, axis=1))
        size = 1 + float(np.linalg.norm(middle))
        stuck = k >= 20 and bests[-21] - bests[-1] < 1e-6 * (1 + abs(bests[-1]))
        if k >= 29 and (diameter < 1e-6 * size or (stuck and diameter < 1e-3 * size)):
            break
        decay = 1.0 - 0.7 * max(2 * k / left - 1, 0.0)
        far = X - middle
        X = X - 0.1 * far + sigma * decay * math.sqrt(0.1) * np.abs(far) * rng.standard_normal(X.shape)
    return middle[0], seen, left - k - 1


def advi(p: Problem, seed: int, steps: int = 2000, lr: float = 0.01) -> GaussianMeasure:
    """Pyro's full-rank automatic variational inference: a multivariate normal guide, Adam on one-sample gradients."""
    pyro = need("pyro", "the arm advi")
    torch = need("torch", "the arm advi")
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoMultivariateNormal, init_to_value

    assert p.gradient is not None
    gradient, density = p.gradient, p.density

    class LogDensity(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            rows = x.detach().numpy()[None]
            ctx.save_for_backward(torch.from_numpy(gradient(rows)[0]))
            return torch.from_numpy(density(rows))[0]

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0]

    def model() -> None:
        real = torch.distributions.constraints.independent(torch.distributions.constraints.real, 1)
        x = pyro.sample("x", pyro.distributions.ImproperUniform(real, (), (p.dim,)))
        pyro.factor("target", LogDensity.apply(x))

    rng = np.random.default_rng(seed)
    means, _ = p.starts(1, rng)
    with torch.random.fork_rng(devices=[]), pyro.get_param_store().scope():
        torch.manual_seed(int(rng.integers(2**31)))
        guide = AutoMultivariateNormal(
            model, init_loc_fn=init_to_value(values={"x": torch.from_numpy(means[0])}), init_scale=p.root
        )
        svi = SVI(model, guide, pyro.optim.Adam({"lr": lr}), Trace_ELBO())
        for _ in range(steps):
            svi.step()
        law = guide.get_posterior()
        mean, lower = law.loc.detach().double().numpy(), law.scale_tril.detach().double().numpy()
    return GaussianMeasure.from_cov(mean, lower @ lower.T)


def polished(
    density: Density,
    gradient: Callable[[FloatArray], FloatArray],
    mean: FloatArray,
    cov: FloatArray,
    nodes: Nodes,
) -> tuple[float, FloatArray, FloatArray]:
    """The local optimum near N(mean, cov) by L-BFGS: its KL − log Z on ``nodes``, mean and covariance."""
    d, z, w = len(mean), nodes.points, nodes.weights
    below = np.tril_indices(d, -1)

    def value(row: FloatArray) -> tuple[float, FloatArray]:
        means, lowers = from_numbers(row[None], d)
        points = means[0] + z @ lowers[0].T
        e = -float(density(points) @ w) - row[d : 2 * d].sum() - d / 2 * (1 + LOG_2PI)
        slope = -gradient(points) * w[:, None]
        G = slope.T @ z
        return e, np.concatenate([slope.sum(axis=0), np.diag(G) * np.diag(lowers[0]) - 1, G[below]])

    start = to_numbers(mean[None], np.linalg.cholesky(cov)[None])[0]
    done = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 200, "ftol": 1e-13, "gtol": 1e-7})
    means, lowers = from_numbers(done.x[None], d)
    return float(done.fun), means[0], lowers[0] @ lowers[0].T
