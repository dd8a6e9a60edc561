"""Optimal transport between two sets of masses: soft plans by Sinkhorn, exact plans, rounding to one choice a row."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from assay.errors import MissingPart

try:
    import torch
    from jaxtyping import Float, Int
    from torch import Tensor
except ModuleNotFoundError as error:
    raise MissingPart(f"optimal transport needs {error.name}", "python -m pip install 'assay[torch]'") from error

MOST_PIVOTS = 10_000_000
"""Steps of the network simplex; a plan of 3 000 × 3 000 takes far fewer."""


def sinkhorn(
    logits: Float[Tensor, "*batch rows cols"],
    row: Float[Tensor, "*#batch rows"] | Sequence[float] | float,
    col: Float[Tensor, "*#batch cols"] | Sequence[float] | float,
    iters: int,
    *,
    row_penalty: float = math.inf,
    col_penalty: float = math.inf,
) -> Float[Tensor, "*batch rows cols"]:
    """Return the transport plan M that maximises ⟨logits, M⟩ + entropy(M) for the given row and column sums.

    ``iters`` rounds in the log domain, so that large logits neither overflow nor vanish. The last step is a row step:
    the rows' sums are exact to rounding, the columns' as far as the rounds went. Gradients, to the logits and to
    marginals that are tensors, come from differentiating through the rounds; a mass of zero gets none (NaN).

    Parameters
    ----------
    logits
        (..., rows, cols) gains divided by the weight of the entropy, or −cost / weight. ``-inf`` forbids a pair; a
        row or a column of nothing else has no plan (the result is NaN). Half precision is computed as float32.
    row, col
        (..., rows) and (..., cols) the masses, not negative, the same in total; one number stands for all.
    iters
        How many rounds, each a column step and a row step.
    row_penalty, col_penalty
        Unbalanced transport: a marginal's Kullback–Leibler divergence from the given one costs so many times what the
        entropy does; ``inf`` keeps it exactly. The totals may then differ.

    Returns
    -------
    Tensor
        (..., rows, cols) the plan, float32 or float64 as the logits.

    Raises
    ------
    ValueError
        For marginals that are negative, not finite, all zero, of the wrong shape or different in total, ``iters``
        below 1, or penalties that are not positive.
    TypeError
        For logits that are no floating-point numbers.

    Notes
    -----
    Cuturi, Sinkhorn Distances (2013); for soft marginals Chizat et al., Scaling Algorithms for Unbalanced Optimal
    Transport (2018).

    Examples
    --------
    >>> sinkhorn(torch.tensor([[2.0, 0], [1, 0], [0, 0], [0, 1]]), row=1.0, col=2.0, iters=100)[:, 0]
    tensor([0.8176, 0.6225, 0.3775, 0.1824])
    """
    if not logits.is_floating_point():
        raise TypeError(f"logits must be floating-point numbers, got {logits.dtype}")
    if logits.ndim < 2:
        raise ValueError(f"logits must have rows and columns, got shape {tuple(logits.shape)}")
    if iters < 1:
        raise ValueError(f"iters must be at least 1, got {iters}")
    for name, penalty in (("row_penalty", row_penalty), ("col_penalty", col_penalty)):
        if not penalty > 0:
            raise ValueError(f"{name} must be positive, got {penalty}")
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    rows = _masses("row", row, logits, logits.shape[-2])
    cols = _masses("col", col, logits, logits.shape[-1])
    if math.isinf(row_penalty) and math.isinf(col_penalty):
        _same_total(rows, cols)
    log_row, log_col = rows.log(), cols.log()
    # A soft marginal is a step of less than the whole way.
    row_step = 1.0 if math.isinf(row_penalty) else row_penalty / (1 + row_penalty)
    col_step = 1.0 if math.isinf(col_penalty) else col_penalty / (1 + col_penalty)
    u = torch.zeros_like(log_row)
    for _ in range(iters):
        v = col_step * (log_col - torch.logsumexp(logits + u.unsqueeze(-1), dim=-2))
        moved = logits + v.unsqueeze(-2)
        sums = torch.logsumexp(moved, dim=-1)
        u = row_step * (log_row - sums)
    # exp(moved + u), in a form whose rows are exact however large the logits are.
    masses = torch.exp(row_step * log_row + (1 - row_step) * sums)
    return masses.unsqueeze(-1) * torch.softmax(moved, dim=-1)


def _masses(name: str, given: Tensor | Sequence[float] | float, like: Tensor, count: int) -> Tensor:
    """The marginal as a tensor that has a value for each row or column."""
    masses = torch.as_tensor(given, dtype=like.dtype, device=like.device)
    if masses.ndim == 0:
        masses = masses.expand(count)
    if masses.shape[-1] != count or not _fits(masses.shape[:-1], like.shape[:-2]):
        raise ValueError(
            f"{name} must have {count} masses, one list or as many as logits of shape {tuple(like.shape)}; "
            f"got shape {tuple(masses.shape)}"
        )
    if not bool((torch.isfinite(masses) & (masses >= 0)).all()):
        raise ValueError(f"{name} must be finite and not negative, its least is {float(masses.min())}")
    if not bool((masses > 0).any(dim=-1).all()):
        raise ValueError(f"{name} has no mass at all: every one is zero")
    return masses


def _fits(batch: torch.Size, wanted: torch.Size) -> bool:
    """Whether a marginal with these batch dimensions can stand for each plan of the batch."""
    missing = len(wanted) - len(batch)
    return missing >= 0 and all(own in (1, size) for own, size in zip(batch, wanted[missing:], strict=True))


def _same_total(rows: Tensor, cols: Tensor) -> None:
    row_total, col_total = rows.detach().sum(dim=-1), cols.detach().sum(dim=-1)
    if not bool(torch.isclose(row_total, col_total, rtol=1e-4, atol=0.0).all()):
        worst = (row_total - col_total).abs().argmax()
        a, b = (total.expand((row_total - col_total).shape).flatten()[worst] for total in (row_total, col_total))
        raise ValueError(f"row and col must have the same total, got {float(a):g} and {float(b):g}")


def exact_plan(cost: npt.ArrayLike, row: npt.ArrayLike, col: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the transport plan M that minimises ⟨cost, M⟩ for the given row and column sums.

    The network simplex of POT (``ot.emd``), on the rows and columns that have a mass.

    Parameters
    ----------
    cost
        (n, m) finite numbers, of either sign.
    row, col
        (n,) and (m,) the masses, not negative, the same in total to a part in a million; ``col`` is scaled to the rest.

    Returns
    -------
    ndarray
        (n, m) float64, with at most n + m - 1 entries above zero.

    Raises
    ------
    ValueError
        For a cost that is not finite, or masses that are negative, not finite, all zero, not as many as there are rows
        or columns, or different in total.
    RuntimeError
        When the solver finds no optimum.
    MissingPart
        When POT is not installed.

    Notes
    -----
    Bonneel et al., Displacement Interpolation Using Lagrangian Mass Transport (2011); Flamary et al., POT (JMLR, 2021).
    """
    try:
        import ot
    except ModuleNotFoundError as error:
        raise MissingPart(f"an exact transport plan needs {error.name}", "python -m pip install 'assay[ot]'") from error
    costs = np.asarray(cost, dtype=np.float64)
    if costs.ndim != 2 or not np.isfinite(costs).all():
        raise ValueError(f"cost must be finite numbers with rows and columns, got shape {costs.shape}")
    rows, cols = (_exact_masses(*given) for given in (("row", row, costs.shape[0]), ("col", col, costs.shape[1])))
    if not math.isclose(rows.sum(), cols.sum(), rel_tol=1e-6):
        raise ValueError(f"row and col must have the same total, got {rows.sum():g} and {cols.sum():g}")
    plan = np.zeros_like(costs)
    some_rows, some_cols = np.flatnonzero(rows), np.flatnonzero(cols)
    a, b = rows[some_rows], cols[some_cols]
    total = a.sum()
    part = np.ascontiguousarray(costs[np.ix_(some_rows, some_cols)])
    scale = float(np.abs(part).max()) or 1.0  # the solver's tolerances are absolute
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it warns of is raised below
        solved, log = ot.emd(a / total, b / b.sum(), part / scale, numItermax=MOST_PIVOTS, log=True)
    if log["warning"] is not None:
        raise RuntimeError(f"no optimal plan was found: {log['warning']}")
    plan[np.ix_(some_rows, some_cols)] = np.asarray(solved) * total
    return plan


def _exact_masses(name: str, given: npt.ArrayLike, count: int) -> npt.NDArray[np.float64]:
    masses = np.asarray(given, dtype=np.float64)
    if masses.shape != (count,):
        raise ValueError(f"{name} must have {count} masses, got shape {masses.shape}")
    if not (np.isfinite(masses) & (masses >= 0)).all():
        raise ValueError(f"{name} must be finite and not negative")
    if not masses.any():
        raise ValueError(f"{name} has no mass at all: every one is zero")
    return masses


def round_balanced(
    plan: Float[Tensor, "*batch rows cols"], capacity: int | Sequence[int] | Int[Tensor, " cols"]
) -> Int[Tensor, "*batch rows"]:
    """Round a plan to one column a row, no column taken more often than its capacity.

    Greedy: entries from large to small, skipping rows that have a column and columns that are full. Of equal entries
    the one earlier in the flat (row by row) order comes first, so that the result never depends on the machine.

    Parameters
    ----------
    plan
        (..., rows, cols) any finite numbers; only their order matters.
    capacity
        How many rows each column takes: one number for all, or one for each column. Together at least ``rows``.

    Returns
    -------
    Tensor
        (..., rows) int64, the column of each row, on the device of the plan.

    Raises
    ------
    ValueError
        For a plan that is not finite, or capacities that are negative, too few, or not one for each column.

    Examples
    --------
    >>> round_balanced(torch.zeros(4, 2), capacity=2)
    tensor([0, 0, 1, 1])
    """
    if plan.ndim < 2:
        raise ValueError(f"the plan must have rows and columns, got shape {tuple(plan.shape)}")
    n, m = plan.shape[-2:]
    given = torch.as_tensor(capacity, device="cpu")
    given = given.expand(m) if given.ndim == 0 else given
    room = given.to(torch.int64)
    if room.shape != (m,) or bool((given != room).any()) or bool((room < 0).any()) or int(room.sum()) < n:
        raise ValueError(
            f"capacity must be whole numbers that give {m} columns room for {n} rows in all, got {given.tolist()}"
        )
    # The rounding is many small steps: quicker on the CPU than as many calls of a GPU.
    values = plan.detach().to(device="cpu")
    if not bool(torch.isfinite(values).all()):
        raise ValueError("the plan must be finite, and has NaN or infinity in it")
    plans = values.reshape(-1, n, m)
    columns = [_greedy(one, room) for one in plans]
    result = torch.stack(columns) if columns else torch.empty(0, n, dtype=torch.int64)
    return result.reshape(plan.shape[:-1]).to(plan.device)


def _greedy(plan: Tensor, capacity: Tensor) -> Tensor:
    """Greedy rounding of one plan.

    Between the moments at which a column becomes full, each free row's turn comes with its best entry among the
    columns that are open. So it takes one round for each column that fills, not one step for each entry.
    """
    n, m = plan.shape
    rank = torch.empty(n * m, dtype=torch.int64)
    rank[torch.argsort(plan.flatten(), descending=True, stable=True)] = torch.arange(n * m)
    rank = rank.reshape(n, m)
    column, free, room = torch.empty(n, dtype=torch.int64), torch.arange(n), capacity.clone()
    while len(free):
        best, choice = rank[free].masked_fill(room == 0, n * m).min(dim=1)
        turn = torch.argsort(best)
        chosen = choice[turn]
        taken = torch.nn.functional.one_hot(chosen, m).cumsum(dim=0).gather(1, chosen[:, None])[:, 0]
        fills = torch.nonzero(taken == room[chosen])
        until = int(fills[0]) + 1 if len(fills) else len(free)
        placed = turn[:until]
        column[free[placed]] = chosen[:until]
        room -= torch.bincount(chosen[:until], minlength=m)
        still = torch.ones(len(free), dtype=torch.bool)
        still[placed] = False
        free = free[still]
    return column
