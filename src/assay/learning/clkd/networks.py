"""Networks as students: the same loss, fitted by Adam with early stopping on held-out components."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.errors import InputError, one_line
from assay.parts.checkpoints import pick_device
from assay.parts.training import EarlyStopping

from . import grid
from .partition import Partition, RiskSets, Sets
from .problem import folds

FloatArray = NDArray[np.float64]

LEARNING_RATE = 1e-3
PATIENCE = 20
MOST_EPOCHS = 1000
ONE_BATCH = 5000
"""Up to so many components all are one batch."""
BATCH = 512
"""Components a batch where there are more."""
HELD_OUT = 7
"""One in so many rows or sets is held out: about 15 %."""


@dataclass(frozen=True)
class Networks:
    """A network for each eta and alpha, its mean score on the training rows, and what was held out.

    ``held`` is as of a cross-validation with one fold; ``epochs`` is the most that any took.
    """

    networks: list[list[nn.Module]]
    levels: FloatArray
    held: grid.Held
    epochs: int


def fit_networks(
    student: Callable[[int], nn.Module],
    data: grid.Data,
    etas: Sequence[float],
    alphas: Sequence[float],
    rng: np.random.Generator,
    device: str,
) -> Networks:
    """Fit one network for each eta and alpha, all from the same start and on the same split."""
    place = pick_device(device)
    seed = int(rng.integers(2**31))
    cases = int(data.problem.with_case.sum())
    train, out, units = next(iter(folds(data.problem, min(HELD_OUT, max(2, cases // 2)), rng)))
    kept = np.setdiff1d(data.problem.units, units)
    shape = (len(etas), len(alphas))
    losses, cindex, levels = np.zeros(shape), np.full(shape, 0.5), np.zeros(shape)
    networks: list[list[nn.Module]] = [[] for _ in etas]
    epochs = 0
    Z = torch.as_tensor(data.Z, dtype=torch.float32, device=place)
    cuda = [place] if place.type == "cuda" else []
    for i, eta in enumerate(etas):
        for j, alpha in enumerate(alphas):
            with torch.random.fork_rng(devices=cuda):
                torch.manual_seed(seed)
                network = _made(student, data.Z.shape[1]).to(place)
                took = _train(network, Z, data, train, kept, out, eta, alpha, np.random.default_rng(seed))
            epochs = max(epochs, took)
            risk = network_scores(network, data.Z)
            losses[i, j] = grid.loss(out, risk)
            concordant, comparable = data.problem.concordant(units, risk)
            cindex[i, j] = concordant / comparable if comparable else 0.5
            levels[i, j] = risk[train.rows].mean()
            networks[i].append(network.cpu())
    n_out = int(np.isin(data.problem.units[data.problem.with_case], units).sum())
    return Networks(networks, levels, grid.Held(losses, cindex, n_out, (), (out,)), epochs)


def network_scores(network: nn.Module, Z: FloatArray) -> FloatArray:
    """Scores (n,) of rows, without gradients and with dropout off."""
    network.eval()
    place = next((p.device for p in network.parameters()), torch.device("cpu"))
    with torch.no_grad():
        return _scores(network, torch.as_tensor(Z, dtype=torch.float32, device=place)).double().cpu().numpy()


def log_partition(part: Partition, r: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """A(r) / W of the partition's rows, as :attr:`Point.value`, for gradients."""
    a = r + torch.as_tensor(part.log_v, dtype=r.dtype, device=r.device)
    weight = torch.as_tensor(part.weight / part.total, dtype=r.dtype, device=r.device)
    if isinstance(part, Sets):
        index = torch.as_tensor(part.index, device=r.device)
        absent = torch.as_tensor(~part.there, device=r.device)
        return weight @ torch.logsumexp(a[index].masked_fill(absent, -math.inf), dim=1)
    assert isinstance(part, RiskSets)
    ends = np.append(part.starts[1:], len(part.rows))
    sums = []
    for some in part.strata:
        first = part.starts[some.start]
        running = torch.logcumsumexp(a[first : ends[some.stop - 1]], dim=0)
        sums.append(running[torch.as_tensor(ends[some] - 1 - first, device=r.device)])
    return weight @ torch.cat(sums)


def _train(
    network: nn.Module,
    Z: Tensor,
    data: grid.Data,
    train: Partition,
    kept: NDArray[np.int64],
    out: Partition,
    eta: float,
    alpha: float,
    rng: np.random.Generator,
) -> int:
    adam = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, weight_decay=alpha)
    stopping = EarlyStopping(PATIENCE)
    cases = round(len(kept) * data.problem.n_components / len(data.problem.units))
    batches = 1 if cases <= ONE_BATCH else math.ceil(cases / BATCH)
    whole = _Part(train, data, eta, Z)
    for _ in range(MOST_EPOCHS):
        network.train()
        for part in [whole] if batches == 1 else _dealt(data, kept, batches, eta, Z, rng):
            adam.zero_grad()
            r = _scores(network, part.Z)
            loss = log_partition(part.part, r) - part.target @ r
            loss.backward()
            adam.step()
        held = grid.loss(out, network_scores(network, data.Z))
        if stopping.step(held, network):
            break
    if not math.isfinite(stopping.best):
        raise InputError(f"student gives no finite scores, at eta={eta:g} and alpha={alpha:g}")
    stopping.restore(network)
    return stopping.steps


class _Part:
    """A partition with the rows' features and the target on the device."""

    def __init__(self, part: Partition, data: grid.Data, eta: float, Z: Tensor) -> None:
        target = grid.mixed(part.case, grid.teachers_cases(part, data) if eta else part.case, eta)
        self.part = part
        self.Z = Z[torch.as_tensor(part.rows, device=Z.device)]
        self.target = torch.as_tensor(target, dtype=Z.dtype, device=Z.device)


def _dealt(
    data: grid.Data, kept: NDArray[np.int64], batches: int, eta: float, Z: Tensor, rng: np.random.Generator
) -> Any:
    """The training units dealt into batches, with their cases evenly; components are made within a batch."""
    problem = data.problem
    case = np.isin(kept, problem.units[problem.with_case])
    batch = np.empty(len(kept), dtype=np.int64)
    for some in (case, ~case):
        batch[some] = rng.permutation(np.arange(int(some.sum())) % batches)
    for k in range(batches):
        yield _Part(problem.partition(kept[batch == k]), data, eta, Z)


def _made(student: Callable[[int], nn.Module], p: int) -> nn.Module:
    try:
        network = student(p)
    except Exception as error:
        raise InputError(f"student({p}) makes no module: {type(error).__name__}: {one_line(error)}") from error
    if not isinstance(network, nn.Module):
        raise InputError(f"student({p}) must be a torch.nn.Module, got {type(network).__name__}")
    if not any(True for _ in network.parameters()):
        raise InputError(f"student({p}) has no parameters to fit")
    return network


def _scores(network: nn.Module, Z: Float[Tensor, "n p"]) -> Float[Tensor, " n"]:
    try:
        r = network(Z)
    except Exception as error:  # it is the user's code, which may raise anything
        raise InputError(f"student cannot score {tuple(Z.shape)} rows: {one_line(error)}") from error
    if not isinstance(r, Tensor):
        raise InputError(f"student must give a tensor of scores, got {type(r).__name__}")
    if r.shape not in ((len(Z),), (len(Z), 1)):
        raise InputError(f"student must map {tuple(Z.shape)} to ({len(Z)},) or ({len(Z)}, 1), got {tuple(r.shape)}")
    return r.reshape(-1)
