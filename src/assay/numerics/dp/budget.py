"""Privacy budgets: what ρ of zero-concentrated privacy an (ε, δ) buys, and a ledger that refuses to overspend."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Literal

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from assay.errors import InputError, MissingPart

Unit = Literal["rho", "epsilon"]

# Rényi orders at which repetition is priced: each gives a valid bound, more of them a tighter one.
_ORDERS = 1 + np.geomspace(0.05, 5000, 120)
_SLACK = 1e-12


class BudgetError(RuntimeError):
    """A mechanism asked for more privacy budget than is left; nothing was released."""


def epsilon_of(rho: float, delta: float) -> float:
    """The ε of the (ε, δ)-differential privacy that ρ-zero-concentrated privacy implies.

    Parameters
    ----------
    rho
        The zCDP parameter, at least 0.
    delta
        Strictly between 0 and 1.

    Returns
    -------
    float
        The least of the bounds over Rényi orders a ≥ 1.01; each of them is valid.

    Raises
    ------
    InputError
        When a parameter is out of range.

    Notes
    -----
    Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy (arXiv 2004.00010), Proposition 12, with
    the Rényi divergence ρa of zCDP (Bun and Steinke, arXiv 1605.02065).

    Examples
    --------
    >>> round(epsilon_of(0.024356, 1e-6), 3)
    1.0
    """
    _number("rho", rho, low=0.0)
    _check_delta(delta, zero=False)
    if rho == 0:
        return 0.0
    log_delta = -math.log(delta)

    def at(t: float) -> float:
        a = 1 + math.exp(t)
        return rho * a + (log_delta - math.log(a)) / (a - 1) + math.log1p(-1 / a)

    # The order of the simple bound ρ + 2√(ρ ln 1/δ) is near the best one.
    near = 0.5 * (math.log(log_delta) - math.log(rho))
    low = math.log(0.01)
    found = minimize_scalar(at, bounds=(max(low, near - 6), max(low + 1e-6, near + 6)), method="bounded")
    return max(0.0, min(float(found.fun), at(max(low, near))))


@lru_cache(maxsize=1024)
def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ of zero-concentrated privacy that implies (ε, δ)-differential privacy.

    Parameters
    ----------
    epsilon
        Greater than 0.
    delta
        Strictly between 0 and 1.

    Returns
    -------
    float
        Rounded down: ``epsilon_of(rho, delta) <= epsilon``.

    Raises
    ------
    InputError
        When a parameter is out of range.

    Examples
    --------
    >>> round(rho_of(1.0, 1e-6), 6)
    0.024356
    """
    _number("epsilon", epsilon, low=0.0, strict=True)
    _check_delta(delta, zero=False)
    return _largest(lambda rho: epsilon_of(rho, delta) <= epsilon, epsilon)


def repeated_epsilon(rho_run: float, mean_runs: float, delta: float, rho_beside: float = 0.0) -> float:
    """The ε of the best of a geometric number of runs, each of ρ-zCDP, and of what else was released once.

    Only the best run's output may be released, not how many runs there were.

    Parameters
    ----------
    rho_run
        zCDP of one run, its score included.
    mean_runs
        Mean of the geometric number of runs, at least 1; it may not depend on the data.
    delta
        Strictly between 0 and 1.
    rho_beside
        zCDP of other releases from the same data.

    Raises
    ------
    InputError
        When a parameter is out of range.
    MissingPart
        When dp-accounting is not installed.

    Notes
    -----
    Papernot and Steinke, Hyperparameter Tuning with Rényi Differential Privacy (arXiv 2110.03620), Theorem 2 with the
    truncated negative binomial of shape 1; priced by dp-accounting.
    """
    _number("rho_run", rho_run, low=0.0)
    _number("rho_beside", rho_beside, low=0.0)
    _number("mean_runs", mean_runs, low=1.0)
    _check_delta(delta, zero=False)
    accounting = _accounting()
    accountant = accounting.rdp.RdpAccountant(orders=_ORDERS.tolist())
    accountant.compose(
        accounting.dp_event.RepeatAndSelectDpEvent(accounting.dp_event.ZCDpEvent(rho_run), mean_runs, 1.0)
    )
    if rho_beside > 0:
        accountant.compose(accounting.dp_event.ZCDpEvent(rho_beside))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=1024)
def repeated_rho(epsilon: float, delta: float, mean_runs: float, rho_beside: float = 0.0) -> float:
    """The largest ρ of one run for which :func:`repeated_epsilon` is at most ε.

    Parameters
    ----------
    epsilon
        Greater than 0.
    delta, mean_runs, rho_beside
        As in :func:`repeated_epsilon`.

    Raises
    ------
    InputError
        When a parameter is out of range, or nothing is left for the runs.
    MissingPart
        When dp-accounting is not installed.
    """
    _number("epsilon", epsilon, low=0.0, strict=True)
    least = epsilon * 1e-12
    if repeated_epsilon(least, mean_runs, delta, rho_beside) > epsilon:
        raise InputError(
            f"epsilon={epsilon:g} at delta={delta:g} buys nothing for repeated runs (mean_runs={mean_runs:g}): "
            "give more epsilon or fewer runs"
        )
    low, high = math.log(least), math.log(epsilon)
    while repeated_epsilon(math.exp(high), mean_runs, delta, rho_beside) <= epsilon:
        low, high = high, high + math.log(2)

    def over(log_rho: float) -> float:
        return repeated_epsilon(math.exp(log_rho), mean_runs, delta, rho_beside) - epsilon

    rho = math.exp(brentq(over, low, high, xtol=1e-6))
    while repeated_epsilon(rho, mean_runs, delta, rho_beside) > epsilon:
        rho *= 1 - 2e-6
    return rho


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Attributes
    ----------
    step
        Which step of the work spent it.
    mechanism
        What was run.
    amount
        What it cost, in the ledger's unit.
    """

    step: int
    mechanism: str
    amount: float


@dataclass
class Ledger:
    """A budget that mechanisms are charged to before they run; more than there is left is refused.

    The amounts may be chosen from what earlier mechanisms gave out. Such a filter is sound for zCDP (the Rényi
    filter of Feldman and Zrnic, arXiv 2008.11193, holds at every order at once) and for pure ε (Rogers et al.,
    arXiv 1605.08294), as long as they are chosen from nothing else.

    Attributes
    ----------
    total
        The budget.
    unit
        ``rho`` of zCDP, or ``epsilon`` of pure differential privacy.
    entries
        What was spent, in order.
    """

    total: float
    unit: Unit = "rho"
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        _number("total", self.total, low=0.0)
        if self.unit not in ("rho", "epsilon"):
            raise InputError(f"unit must be 'rho' or 'epsilon', not {self.unit!r}")

    @property
    def spent(self) -> float:
        """All that was charged."""
        return math.fsum(entry.amount for entry in self.entries)

    @property
    def left(self) -> float:
        """What may still be charged."""
        return max(0.0, self.total - self.spent)

    def charge(self, amount: float, mechanism: str, step: int) -> float:
        """Charge a mechanism, before it runs, and return its log-ratio range ε0 as :meth:`log_range` does.

        Raises
        ------
        InputError
            When the amount is no number of at least 0.
        BudgetError
            When it is more than is left.
        """
        _number("amount", amount, low=0.0)
        if self.spent + amount > self.total * (1 + _SLACK):
            raise BudgetError(f"{mechanism} asked for {amount:.6g} of {self.unit}, and {self.left:.6g} is left")
        self.entries.append(Entry(step, mechanism, float(amount)))
        return self.log_range(amount)

    def log_range(self, amount: float) -> float:
        """The range ε0 of the logarithm of probability ratios that an amount pays for.

        ε0-bounded range costs ρ = ε0²/8 (Cesar and Rogers, arXiv 2004.07223), and ε0 of pure privacy, since a
        logarithm that has both signs lies within its own range.
        """
        return math.sqrt(8 * amount) if self.unit == "rho" else amount


def _largest(fits: Callable[[float], bool], start: float) -> float:
    """The largest number for which an antitone condition holds, rounded down."""
    high = start
    while fits(high):
        high *= 2
    low = high / 2
    while not fits(low):
        low /= 2
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _accounting() -> ModuleType:
    try:
        importlib.import_module("dp_accounting.rdp")
        return importlib.import_module("dp_accounting")
    except ModuleNotFoundError as error:
        raise MissingPart(f"pricing repeated runs needs {error.name}", "python -m pip install 'assay[dp]'") from error


def _number(name: str, value: float, *, low: float, strict: bool = False) -> None:
    good = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value < low or (strict and value == low):
        must = f"greater than {low:g}" if strict else f"at least {low:g}"
        raise InputError(f"{name} must be a finite number {must}, got {value!r}")


def _check_delta(delta: float, *, zero: bool) -> None:
    _number("delta", delta, low=0.0, strict=not zero)
    if delta >= 1:
        raise InputError(f"delta must be less than 1, got {delta!r}")
