"""Choose the best affordable set of items from private records."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.errors import InputError
from assay.numerics.dp import (
    Ledger,
    gaussian_mechanism,
    laplace_mechanism,
    repeated_rho,
    rho_of,
    secret_generator,
)
from assay.numerics.submodular import FITS, checked_costs, filled

from .choice import NOTHING_LEFT, Problem, best_extension, density_steps, packing, set_value
from .objectives import SubmodularObjective, checked_objective, spreads

FloatArray = npt.NDArray[np.float64]

Algorithm = Literal["auto", "greedy_max", "enumerate", "sample_greedy_max"]
Neighbours = Literal["add_remove", "replace"]
ALGORITHMS = ("auto", "greedy_max", "enumerate", "sample_greedy_max")

EVALUATIONS = 2_000_000
"""``auto`` enumerates only where that takes at most so many gain evaluations."""

PREPARATION_SHARE = 0.1
"""Of the budget, for objectives that release tables first."""

SCORE_SHARE = 0.2
"""Of a run's budget, for the noise on its value (``enumerate``)."""

RUNS = 300.0
"""Mean number of the runs of ``enumerate``: the price grows with its logarithm, the time with itself."""

EMPTY_START = 0.5
"""Share of the runs of ``enumerate`` that start from nothing: where few items fit, a random one already decides."""

SHORT_RUNS = 0.5
"""Share of the runs of ``enumerate`` that make a random number of picks and fill the rest with the cheapest items."""


@dataclass(frozen=True)
class SelectionResult:
    """A private choice and its bill; all of it may be published, apart from what ``DPKnapsack`` says of time and seeds.

    Attributes
    ----------
    items
        The chosen labels, in the order in which they were picked.
    cost
        Their cost.
    epsilon, delta
        The (ε, δ) that the choice is private with.
    rho
        The zCDP budget that the ledger's lines are charged to. With ``enumerate`` that is one run's and what is
        released beside it; that there are many runs is priced in ε. Where δ = 0 it is what ε implies, ε²/2.
    ledger
        The bill: ``step``, ``mechanism``, ``eps0`` (log-ratio range, missing for noise) and ``rho`` of every line.
    lines
        The same as tuples.
    queries
        How many gain evaluations were made; with ``enumerate`` in the released run alone, since how many runs there
        were must stay secret.
    algorithm
        What was run.
    value_private
        f of the set with noise, where ``release_value`` asked for it; else None. The exact value is not kept.
    """

    items: list[Hashable]
    cost: float
    epsilon: float
    delta: float
    rho: float
    lines: tuple[tuple[int, str, float, float], ...] = field(repr=False)
    queries: int
    algorithm: str
    value_private: float | None = None

    @property
    def ledger(self) -> pd.DataFrame:
        """The bill as a table."""
        return pd.DataFrame(list(self.lines), columns=["step", "mechanism", "eps0", "rho"])


class DPKnapsack:
    """The best affordable set by a submodular benefit, chosen so that no one record shows.

    Public are: the items, their costs, the budget, the records' schema and every parameter here. Private are the
    records behind ``objective``; a person who has several records is protected only once they are made one. Each call
    of :meth:`solve` spends ε anew.

    Parameters
    ----------
    objective
        A :class:`SubmodularObjective`: :class:`Coverage`, :class:`FacilityLocation`, :class:`FeatureInformation`,
        :class:`GraphCut`, :class:`Modular`, one of them with :func:`minus_penalty`, or your own.
    costs
        (n,) positive, or a mapping from labels.
    budget
        What the chosen items may cost together.
    epsilon
        Greater than 0.
    delta
        From 0 to 1e-3; 0 is pure privacy by basic composition, and needs more ε for the same benefit.
    algorithm
        ``greedy_max`` (monotone, fast: half of the optimum less an additive error), ``enumerate`` (monotone: the best
        of many runs, half of them from random starts), ``sample_greedy_max`` (any: a quarter in expectation), or
        ``auto``: not monotone → ``sample_greedy_max``; monotone → ``enumerate`` where it takes at most 2·10⁶ gain
        evaluations, else ``greedy_max``.
    neighbours
        What one record is worth: one more or less (``add_remove``), or another in its place (``replace``).
    final_share
        Of the budget, for the one choice among prefixes with one more item; 0 leaves that choice out, and with it the
        guarantee. In [0, 1).
    fallback
        Whether that choice is also among the prefixes filled with the cheapest items, and so never much worse than
        what costs alone would choose. For monotone objectives.
    discard
        Probability with which ``sample_greedy_max`` throws a pick away for good; in [0, 1). The guarantee needs 0.5; 0
        is often a little better, and has none.
    seed_size
        From how many items half of the runs of ``enumerate`` start; 1 or 2.
    mean_runs
        Mean of the geometric number of runs of ``enumerate``, 300 by default.
    max_steps
        How many items the set may have at most; by default as many as fit, cheapest first.
    release_value
        Whether f of the chosen set is released too, with noise.
    value_share
        Of the budget, for that release; in (0, 1).
    random_state
        None for a secret seed. A whole number or a generator repeats the run: for tests and studies only, since who
        knows the seed can undo the noise.

    Raises
    ------
    InputError
        For parameters out of range, costs that are not positive, nothing affordable, and ``greedy_max`` or
        ``enumerate`` with an objective that is not monotone.
    SensitivityError
        When the objective's ``record_sensitivity`` is missing or not greater than 0.
    TypeError
        When the objective lacks members.
    MissingPart
        When ``enumerate`` is to be priced and dp-accounting is not installed.

    Notes
    -----
    Source: "Differentially Private Submodular Maximization with a Knapsack Constraint", arXiv 2606.14951 (ICML 2026).

    Why it is private, in short:

    - *Spread.* With a record added, one-sided gains all move in one direction by at most Δ; public costs scale them
      down. So probabilities ∝ exp(ε0·score/Δ) have a log-ratio range of ε0, and cost ρ = ε0²/8 (:func:`spreads`).
    - *Composition.* What each step spends hangs on earlier picks, which are outputs; fully adaptive zCDP filters
      allow it. The ledger refuses to overspend, and unspent budget goes to the last choice.
    - *No second channel.* What fits, the number of steps, ``queries`` and when it stops follow from picks, coins and
      costs. What is left of the budget is filled from public costs and earlier picks.
    - *Many runs* (``enumerate``). Their number is geometric, drawn before any data are seen, and secret; the best noisy
      value wins. Its price is that of Papernot and Steinke (arXiv 2110.03620), by dp-accounting. For δ = 0 it is 3
      times a run's.
    - *Not covered.* How long a solve takes (the runs of ``enumerate`` show in it), who watches memory, and errors:
      records outside their schema are refused before anything is spent, and that refusal depends on them. Arithmetic is
      float64: probabilities are off by some 1e-12, which δ is meant to hold too.

    Examples
    --------
    >>> from assay.privacy.dp_smk import Coverage
    >>> reach = np.repeat([[1, 0, 0], [1, 1, 0], [0, 0, 1]], [60, 30, 400], axis=0)
    >>> chosen = DPKnapsack(Coverage(reach, ["a", "b", "c"]), [1, 1, 1], 2, epsilon=2, random_state=0).solve()
    >>> sorted(chosen.items), chosen.cost
    (['a', 'c'], 2.0)
    """

    def __init__(
        self,
        objective: SubmodularObjective,
        costs: npt.ArrayLike | Mapping[Hashable, float] | pd.Series,
        budget: float,
        *,
        epsilon: float,
        delta: float = 1e-6,
        algorithm: Algorithm = "auto",
        neighbours: Neighbours = "add_remove",
        final_share: float = 0.2,
        fallback: bool = True,
        discard: float = 0.5,
        seed_size: int = 1,
        mean_runs: float | None = None,
        max_steps: int | None = None,
        release_value: bool = False,
        value_share: float = 0.1,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.objective = checked_objective(objective)
        self.costs = checked_costs(_by_label(costs, objective.labels), budget, objective.n)
        self.budget = float(budget)
        if not math.isfinite(self.budget):
            raise InputError(f"budget must be finite, got {budget!r}")
        self.epsilon = _between("epsilon", epsilon, 0.0, 1e12)
        self.delta = _between("delta", delta, 0.0, 1e-3, low_too=True, high_too=True)
        if algorithm not in ALGORITHMS:
            raise InputError(f"algorithm must be one of {', '.join(ALGORITHMS)}, not {algorithm!r}")
        if neighbours not in ("add_remove", "replace"):
            raise InputError(f"neighbours must be 'add_remove' or 'replace', not {neighbours!r}")
        if algorithm in ("greedy_max", "enumerate") and not objective.monotone:
            raise InputError(
                f"algorithm {algorithm!r} needs a monotone objective, and this one is not: use 'sample_greedy_max'"
            )
        self.neighbours = neighbours
        self.final_share = _between("final_share", final_share, 0.0, 1.0, low_too=True)
        self.fallback = bool(fallback)
        self.discard = _between("discard", discard, 0.0, 1.0, low_too=True)
        self.seed_size = _whole("seed_size", seed_size, 1, 2)
        self.release_value = bool(release_value)
        self.value_share = _between("value_share", value_share, 0.0, 1.0)
        most = packing(self.costs, self.budget)
        self.max_steps = most if max_steps is None else _whole("max_steps", max_steps, 1, objective.n)
        self.mean_runs = RUNS if mean_runs is None else _between("mean_runs", mean_runs, 1.0, math.inf, low_too=True)
        self.algorithm = algorithm
        if algorithm == "auto":
            work = objective.n * most * self.mean_runs
            quick = "enumerate" if work <= EVALUATIONS else "greedy_max"
            self.algorithm = quick if objective.monotone else "sample_greedy_max"
        self.random_state = random_state
        secret_generator(random_state)  # refuses what is none

    def solve(self) -> SelectionResult:
        """Choose; every call spends ε anew."""
        rng = secret_generator(self.random_state)
        replaced = self.neighbours == "replace"
        total = self.epsilon if self.delta == 0 else rho_of(self.epsilon, self.delta)
        beside = Ledger(total, "epsilon" if self.delta == 0 else "rho")
        objective = self.objective
        if hasattr(objective, "prepared"):
            share = PREPARATION_SHARE * total

            def release(values: FloatArray, l1: float, l2: float) -> FloatArray:
                beside.charge(share, "noise: the objective's tables", 0)
                return _noise(values, l1, l2, share, beside, rng)

            objective = checked_objective(objective.prepared(release, replaced))
            if objective.n != self.objective.n or objective.monotone != self.objective.monotone:
                raise TypeError("prepared of the objective must return one with the same n and monotone")
        gain_spread, value_spread, value_change = spreads(objective, replaced)
        discard = self.discard if self.algorithm == "sample_greedy_max" else 0.0
        draws = min(objective.n, math.ceil(self.max_steps / (1 - discard)))
        problem = Problem(self.costs, self.budget, self.max_steps, draws, gain_spread, value_spread)
        value_amount = self.value_share * total if self.release_value else 0.0

        if self.algorithm == "enumerate":
            chosen, ledger, queries = self._best_run(objective, problem, beside, value_amount, value_change, rng)
        else:
            ledger = beside
            amount = ledger.left - value_amount
            trace = density_steps(objective, problem, ledger, (1 - self.final_share) * amount, rng, discard=discard)
            chosen = tuple(trace.kept)
            rest = ledger.left - value_amount
            if self.final_share > 0 and rest > NOTHING_LEFT * amount:
                chosen = best_extension(objective, trace, problem, ledger, rest, rng, fallback=self.fallback)
            chosen = self._filled(chosen, trace.kept, objective.monotone)
            queries = trace.queries

        value = None
        if self.release_value:
            ledger.charge(value_amount, "noise: the value of the set", len(chosen) + 1)
            value = float(_noise(set_value(objective, chosen), value_change, value_change, value_amount, ledger, rng))
        return SelectionResult(
            items=[self.objective.labels[item] for item in chosen],
            cost=math.fsum(self.costs[list(chosen)]),
            epsilon=self.epsilon,
            delta=self.delta,
            rho=ledger.total if ledger.unit == "rho" else self.epsilon**2 / 2,
            lines=_bill(ledger),
            queries=queries,
            algorithm=self.algorithm,
            value_private=value,
        )

    def _best_run(
        self,
        objective: Any,
        problem: Problem,
        beside: Ledger,
        value_amount: float,
        value_change: float,
        rng: np.random.Generator,
    ) -> tuple[tuple[int, ...], Ledger, int]:
        """The run with the best noisy value, of a number of runs that no data decide."""
        paid = beside.spent
        if beside.unit == "epsilon":
            run_amount = (beside.left - value_amount) / 3
        else:
            run_amount = repeated_rho(self.epsilon, self.delta, self.mean_runs, paid + value_amount)
        runs = int(rng.geometric(1 / self.mean_runs))
        best: tuple[float, tuple[int, ...], Ledger, int] | None = None
        for _ in range(runs):
            ledger = Ledger(run_amount, beside.unit)
            start = self._start(rng)
            draws = int(rng.integers(problem.draws + 1)) if rng.random() < SHORT_RUNS else problem.draws
            short = replace(problem, draws=draws)
            trace = density_steps(objective, short, ledger, (1 - SCORE_SHARE) * run_amount, rng, start=start)
            items = self._filled(tuple(trace.kept), trace.kept, True)
            amount = ledger.left
            ledger.charge(amount, "noise: the score of the run", len(items) + 1)
            score = float(_noise(set_value(objective, items), value_change, value_change, amount, ledger, rng))
            if best is None or score > best[0]:
                best = (score, items, ledger, trace.queries)
        assert best is not None
        _, items, ledger, queries = best
        whole = Ledger(paid + run_amount + value_amount, beside.unit, [*beside.entries, *ledger.entries])
        return items, whole, queries

    def _start(self, rng: np.random.Generator) -> tuple[int, ...]:
        """Nothing, or random items that fit, ``seed_size`` of them where so many do; no data decide."""
        if rng.random() < EMPTY_START:
            return ()
        fitting = np.flatnonzero(self.costs <= self.budget * FITS)
        start: list[int] = []
        for item in rng.permutation(fitting).tolist():
            if math.fsum(self.costs[[*start, item]]) <= self.budget * FITS:
                start.append(item)
            if len(start) == min(self.seed_size, self.max_steps):
                break
        return tuple(start)

    def _filled(self, chosen: tuple[int, ...], picks: list[int], monotone: bool) -> tuple[int, ...]:
        """With what is left of the budget: earlier picks, then the cheapest; more never harms a monotone benefit."""
        if not monotone:
            return chosen
        order = [*picks, *np.argsort(self.costs, kind="stable").tolist()]
        return filled(chosen, order, self.costs, self.budget, self.max_steps)


def _noise(
    values: npt.ArrayLike, l1: float, l2: float, amount: float, ledger: Ledger, rng: np.random.Generator
) -> FloatArray:
    """Gaussian noise where the ledger counts ρ, Laplace noise where it counts ε."""
    if ledger.unit == "rho":
        return gaussian_mechanism(values, l2, amount, rng)
    return laplace_mechanism(values, l1, amount, rng)


def _bill(ledger: Ledger) -> tuple[tuple[int, str, float, float], ...]:
    lines = []
    for entry in ledger.entries:
        draw = entry.mechanism.startswith("exponential")
        eps0 = ledger.log_range(entry.amount) if draw else math.nan
        rho = entry.amount if ledger.unit == "rho" else eps0**2 / 8 if draw else entry.amount**2 / 2
        lines.append((entry.step, entry.mechanism, eps0, rho))
    return tuple(lines)


def _by_label(costs: Any, labels: Any) -> Any:
    if isinstance(costs, Mapping | pd.Series):
        missing = [label for label in labels if label not in costs]
        if missing:
            raise InputError(
                f"costs has no cost for {missing[0]!r}" + f" and {len(missing) - 1} more" * (len(missing) > 1)
            )
        return [costs[label] for label in labels]
    return costs


def _between(name: str, value: Any, low: float, high: float, low_too: bool = False, high_too: bool = False) -> float:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not number or not (low < value < high or (low_too and value == low) or (high_too and value == high)):
        least = f"at least {low:g}" if low_too else f"greater than {low:g}"
        most = f" and {'at most' if high_too else 'less than'} {high:g}" if math.isfinite(high) else " and finite"
        raise InputError(f"{name} must be a number {least}{most}, got {value!r}")
    return float(value)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
        raise InputError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
    return int(value)
