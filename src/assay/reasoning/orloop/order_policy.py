"""A small network that decides orders: fitted to somebody's orders, or trained by what its own orders cost."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Literal

import numpy as np

from assay.errors import InputError, MissingPart, one_line
from assay.parts import net_files
from assay.parts.checkpoints import pick_device

from .inventory import Decision

try:
    import torch
    from jaxtyping import Float
    from torch import Tensor

    from assay.numerics.policy_gradient import group_advantages
except ModuleNotFoundError as error:
    raise MissingPart(f"an order policy needs {error.name}", "python -m pip install 'assay[torch]'") from error

Inputs = Literal["ratio", "prices"]
INPUTS: dict[str, tuple[str, ...]] = {"ratio": ("critical ratio", "sigma / mu"), "prices": ("p", "c", "s")}
KIND = "orloop-orders"
HIDDEN = 32


class OrderPolicy(torch.nn.Module):
    """Newsvendor orders, in standard deviations from mean demand, by a network with 32 hidden units and tanh.

    Parameters
    ----------
    inputs
        ``"ratio"``: the critical ratio and σ/μ; ``"prices"``: price, cost and salvage, from which the ratio must be
        learnt first.
    seed
        Of the first weights.

    Raises
    ------
    InputError
        For other inputs.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, inputs: Inputs = "ratio", seed: int = 0) -> None:
        super().__init__()
        if inputs not in INPUTS:
            raise InputError(f"inputs must be one of {', '.join(INPUTS)}, not {inputs!r}")
        self.inputs = inputs
        width = len(INPUTS[inputs])
        # Linear's own first weights would take numbers from the global source of chance.
        layers = [torch.nn.utils.skip_init(torch.nn.Linear, *size) for size in ((width, HIDDEN), (HIDDEN, 1))]
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            bound = layer.in_features**-0.5
            with torch.no_grad():
                layer.weight.uniform_(-bound, bound, generator=generator)
                layer.bias.zero_()
        self.net = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))

    def forward(self, numbers: Float[Tensor, "decisions inputs"]) -> Float[Tensor, " decisions"]:
        """Return (order - mu) / sigma for each decision."""
        return self.net((numbers - self.centre) / self.spread).squeeze(-1)

    def orders(self, decisions: Sequence[Decision]) -> list[float]:
        """Return the orders, in units, never below zero; InputError for what is no newsvendor decision."""
        with torch.no_grad():
            steps = self(self._numbers(decisions)).cpu().numpy()
        return [max(0.0, float(d.params["mu"] + z * d.params["sigma"])) for d, z in zip(decisions, steps, strict=True)]

    def _numbers(self, decisions: Sequence[Decision]) -> Tensor:
        params = _newsvendor_params(decisions)
        if self.inputs == "prices":
            rows = [[p["p"], p["c"], p["s"]] for p in params]
        else:
            rows = [[d.critical_ratio, p["sigma"] / p["mu"]] for d, p in zip(decisions, params, strict=True)]
        return torch.tensor(rows, dtype=torch.float32, device=self.centre.device)

    def _set_scale(self, decisions: Sequence[Decision]) -> None:
        numbers = self._numbers(decisions)
        self.centre.copy_(numbers.mean(0))
        self.spread.copy_(numbers.std(0, correction=0).clamp_min(1e-6))

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the weights as safetensors with JSON beside them; return the folder."""
        net_files.save(folder, KIND, {"inputs": self.inputs, "hidden": HIDDEN}, self.state_dict())
        return Path(folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str = "auto") -> OrderPolicy:
        """Read what :meth:`save_pretrained` wrote; InputError for another folder."""
        state, weights = net_files.load(folder, KIND)
        try:
            policy = cls(state["inputs"])
            policy.load_state_dict(weights)
        except (KeyError, InputError, RuntimeError) as error:
            raise InputError(f"{folder} holds no such order policy: {one_line(error, 100)}") from None
        return policy.to(pick_device(device))


def human_orders(
    decisions: Sequence[Decision], *, slope: float = 0.5, noise: float = 0.3, seed: int = 0
) -> list[float]:
    """Return orders as people give them: pulled to mean demand, and noisy.

    ``mu + sigma (slope Φ⁻¹(ratio) + noise ε)``, with ε standard normal.

    Parameters
    ----------
    decisions
        As made by :func:`newsvendor`.
    slope
        How much of the best step away from the mean is made: 1 is rational, 0 always orders the mean.
    noise
        In standard deviations of demand.
    seed
        Of ε.

    Raises
    ------
    InputError
        For other decisions, a slope that is not finite, or noise that is negative.
    """
    params = _newsvendor_params(decisions)
    if not isfinite(slope) or not isfinite(noise) or noise < 0:
        raise InputError(f"slope must be finite and noise not negative, got slope={slope}, noise={noise}")
    errors = noise * np.random.default_rng(seed).standard_normal(len(params))
    return [
        max(0.0, float(p["mu"] + slope * (d.optimal - p["mu"]) + p["sigma"] * e))
        for d, p, e in zip(decisions, params, errors, strict=True)
    ]


def fit_orders(
    decisions: Sequence[Decision],
    orders: Sequence[float],
    *,
    inputs: Inputs = "ratio",
    steps: int = 400,
    lr: float = 1e-2,
    seed: int = 0,
    device: str = "cpu",
) -> OrderPolicy:
    """Fit an order policy to given orders by least squares: imitation, with whatever bias the orders have.

    Parameters
    ----------
    decisions
        As made by :func:`newsvendor`.
    orders
        One a decision, in units, finite.
    inputs
        What the network sees, as in :class:`OrderPolicy`.
    steps, lr
        Of Adam, on all decisions at once.
    seed
        Same seed, same policy on one machine.
    device
        Where it is fitted; ``"auto"`` takes a GPU.

    Raises
    ------
    InputError
        For lists of different lengths, orders that are not finite, or numbers out of range.
    """
    _counts(steps=steps)
    _positive(lr=lr)
    params = _newsvendor_params(decisions)
    values = np.asarray(orders, dtype=float)
    if values.shape != (len(params),) or not np.isfinite(values).all():
        raise InputError(f"orders must be one finite number a decision, got shape {values.shape} for {len(params)}")
    policy = OrderPolicy(inputs, seed)
    policy._set_scale(decisions)
    policy.to(pick_device(device))
    numbers = policy._numbers(decisions)
    target = torch.tensor(
        [(q - p["mu"]) / p["sigma"] for q, p in zip(values, params, strict=True)],
        dtype=torch.float32,
        device=numbers.device,
    )
    optimiser = torch.optim.Adam(policy.parameters(), lr)
    for _ in range(steps):
        loss = (policy(numbers) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return policy


def train_orders(
    policy: OrderPolicy,
    stages: Sequence[Sequence[Decision]],
    *,
    steps: int = 300,
    batch: int = 32,
    group: int = 16,
    noise: float = 0.25,
    lr: float = 5e-3,
    seed: int = 0,
    device: str = "cpu",
) -> OrderPolicy:
    """Train an order policy by what its orders cost: a verified reward, no shown orders.

    A Gaussian around the network's order is drawn ``group`` times a decision. The reward is minus the expected cost
    beyond that of the best order, divided by σ; advantages are relative to the group.

    Parameters
    ----------
    policy
        To begin with; it is not changed.
    stages
        Lists of decisions, learnt from one after the other for the same number of updates. One list is plain
        sampling; :func:`curriculum` gives three.
    steps, batch, group
        Updates in all; decisions an update; orders drawn a decision.
    noise
        Standard deviation of the drawn orders, in standard deviations of demand.
    lr
        Of Adam.
    seed
        Same seed, same policy on one machine.
    device
        Where it is trained; ``"auto"`` takes a GPU.

    Returns
    -------
    OrderPolicy
        A new one.

    Raises
    ------
    InputError
        For no or empty stages, fewer updates than stages, or numbers out of range.
    """
    _counts(steps=steps, batch=batch, group=group)
    _positive(noise=noise, lr=lr)
    if group < 2:
        raise InputError(f"group must be at least 2, for rewards are compared within it, got {group}")
    if not len(stages) or steps < len(stages):
        raise InputError(f"stages must be at least one and at most one an update, got {len(stages)} for {steps}")
    for decisions in stages:
        _newsvendor_params(decisions)
    trained = copy.deepcopy(policy).to(pick_device(device))
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that all devices draw the same
    optimiser = torch.optim.Adam(trained.parameters(), lr)
    ends = [steps * (i + 1) // len(stages) for i in range(len(stages))]
    tables = [_table(trained, decisions) for decisions in stages]
    for step in range(steps):
        numbers, ratio, price = tables[next(i for i, end in enumerate(ends) if step < end)]
        picked = torch.randint(len(ratio), (batch,), generator=generator)
        mean = trained(numbers[picked])
        drawn = torch.randn(batch, group, generator=generator).to(mean.device)
        taken = (mean[:, None] + noise * drawn).detach()
        reward = -price[picked][:, None] * _excess(taken, ratio[picked][:, None])
        advantage = group_advantages(reward.flatten(), group, eps=1e-6, unbiased=False).view(batch, group)
        log_density = -0.5 * ((taken - mean[:, None]) / noise).square()
        loss = -(advantage * log_density).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return trained


def _table(policy: OrderPolicy, decisions: Sequence[Decision]) -> tuple[Tensor, Tensor, Tensor]:
    """The network's inputs, the critical ratio, and price less salvage."""
    numbers = policy._numbers(decisions)
    ratio = torch.tensor([d.critical_ratio for d in decisions], dtype=torch.float32, device=numbers.device)
    price = [d.params["p"] - d.params["s"] for d in decisions]
    return numbers, ratio, torch.tensor(price, dtype=torch.float32, device=numbers.device)


def _excess(z: Tensor, ratio: Tensor) -> Tensor:
    """Expected cost beyond the best, over σ (p - s), of ordering ``z`` standard deviations above the mean."""
    return _loss(z, ratio) - _loss(torch.special.ndtri(ratio), ratio)


def _loss(z: Tensor, ratio: Tensor) -> Tensor:
    # (p - c) E[(D - Q)+] + (c - s) E[(Q - D)+], divided by σ (p - s), for normal demand.
    density = torch.exp(-0.5 * z.square()) / (2 * torch.pi) ** 0.5
    return density + z * (torch.special.ndtr(z) - ratio)


def _newsvendor_params(decisions: Sequence[Decision]) -> list[dict[str, float]]:
    if not len(decisions):
        raise InputError("decisions must not be empty")
    for d in decisions:
        if not isinstance(d, Decision) or not {"p", "c", "s", "mu", "sigma"} <= set(d.params):
            raise InputError(f"decisions must be newsvendor decisions, with p, c, s, mu and sigma; got {d!r:.80}")
    return [d.params for d in decisions]


def _counts(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{name} must be a positive whole number, got {value!r}")


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not isfinite(value) or value <= 0:
            raise InputError(f"{name} must be a positive number, got {value!r}")
