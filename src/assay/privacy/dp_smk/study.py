"""The study of private choice with costs: is it as useful as it says, and as private?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.evidence.claim import at_least, at_most, higher, lower, rate
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Proportion, Study, Task

from . import baselines, instances
from .auditing import audit
from .instances import Instance
from .neighbours import EPSILON, Pair, half_the_noise, heavy_record, honest, not_private, pairs
from .solver import DPKnapsack

DELTA = 1e-6
RUNS = {Budget.SMOKE: 2, Budget.QUICK: 4, Budget.FULL: 10, Budget.PAPER: 20}
"""Runs of each arm in a cell; their mean is the cell's metric."""

AUDIT_RUNS = {Budget.SMOKE: 60, Budget.QUICK: 500, Budget.FULL: 2000, Budget.PAPER: 10_000}
"""Solves on each of two neighbouring data sets; cheats that must be told from a promise get three times as many."""

PEOPLE = {Budget.SMOKE: 600, Budget.QUICK: 3000, Budget.FULL: 3000, Budget.PAPER: 3000}
MEAN_RUNS = {Budget.SMOKE: 5.0, Budget.QUICK: None, Budget.FULL: None, Budget.PAPER: None}
"""Of ``enumerate``; None is the solver's own default."""

BASE_SEED = 3000
"""Not 1000: the fallback was added after a look at what seeds from 1000 on gave, so those can no longer judge it."""


@dataclass(frozen=True)
class Given:
    """What an arm sees.

    Attributes
    ----------
    instance
        ``objective``, ``costs`` (n,) and ``budget``; the objective holds the private records.
    epsilon, delta
        What the choice may cost in privacy.
    runs
        How many independent choices to make.
    """

    instance: Instance
    epsilon: float
    delta: float
    runs: int


@dataclass(frozen=True)
class Hidden:
    """What only the score sees: the exact objective, and the value that counts as 1."""

    objective: Any
    costs: np.ndarray
    budget: float
    reference: float
    runs: int


@dataclass(frozen=True)
class Picks:
    """An arm's choices, one a run, and how many gain evaluations it took for each on average."""

    sets: list[tuple[int, ...]]
    queries: float


@dataclass(frozen=True)
class AuditGiven:
    """What an arm sees on the audit: pairs of neighbouring data sets made by hand, and how often to run on each set."""

    pairs: tuple[Pair, ...]
    runs: int


def load_sites(seed: int, budget: Budget, epsilon: float) -> tuple[Given, Hidden]:
    """T1: sites for people."""
    file = shared({"cities of the contiguous US": 1}, _write_cities) / "us.csv"
    us = pd.read_csv(file, keep_default_na=False)
    instance = instances.sites(np.random.default_rng(seed), us, people=PEOPLE[budget])
    return _given(instance, epsilon, budget)


def _write_cities(folder: Path) -> None:
    instances.contiguous_us().to_csv(folder / "us.csv", index=False)


def load_trap(seed: int, budget: Budget) -> tuple[Given, Hidden]:
    """T2: density alone falls into it."""
    # It is quick, and a rate of 95 % takes many runs to tell.
    return _given(instances.trap(np.random.default_rng(seed)), 1.0, budget, runs=3 * RUNS[budget])


def load_questions(seed: int, budget: Budget) -> tuple[Given, Hidden]:
    """T3: questions that tell who sees a physician often."""
    return _given(instances.questions(np.random.default_rng(seed)), 1.0, budget)


def load_contacts(seed: int, budget: Budget, epsilon: float) -> tuple[Given, Hidden]:
    """T4: a cut; the optimum, by trying all sets, counts as 1."""
    instance = instances.contacts(np.random.default_rng(seed))
    return _given(instance, epsilon, budget, instances.best_value(instance))


def load_own(seed: int, budget: Budget, path: Path, epsilon: float) -> tuple[Given, Hidden]:
    """A user's problem; the data are the same for all seeds, the draws are not."""
    return _given(instances.read_instance(path), epsilon, budget)


def load_audit(seed: int, budget: Budget) -> tuple[AuditGiven, None]:
    """Neighbouring data sets; they are the same for all seeds, the draws are not."""
    return AuditGiven(pairs(), AUDIT_RUNS[budget]), None


def _given(
    instance: Instance, epsilon: float, budget: Budget, reference: float | None = None, runs: int | None = None
) -> tuple[Given, Hidden]:
    objective = baselines.exact(instance.objective)
    if reference is None:
        best, _ = baselines.nonprivate(instance, epsilon, DELTA, np.random.default_rng(0))
        reference = instances.value_of(objective, best)
    runs = runs or RUNS[budget]
    return (
        Given(instance, epsilon, DELTA, runs),
        Hidden(objective, instance.costs, instance.budget, reference, runs),
    )


def score(output: Any, hidden: Hidden) -> Mapping[str, Any]:
    """The mean of f(set)/f(reference) over the runs; how often it is at least a half; gain evaluations a run."""
    sets = output.sets if isinstance(output, Picks) else output
    try:
        sets = [np.asarray(chosen, dtype=np.int64).ravel() for chosen in sets]
    except (TypeError, ValueError) as error:
        raise ValueError(f"the output must be {hidden.runs} lists of item positions: {error}") from None
    if len(sets) != hidden.runs:
        raise ValueError(f"the output must be {hidden.runs} lists of item positions, one a run; got {len(sets)}")
    ratios = []
    for chosen in sets:
        if len(np.unique(chosen)) < len(chosen) or (
            len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(hidden.costs)
        ):
            raise ValueError(
                f"a set must hold different positions from 0 to {len(hidden.costs) - 1}, got {chosen.tolist()}"
            )
        if hidden.costs[chosen].sum() > hidden.budget * (1 + 1e-9):
            raise ValueError(f"a set costs {hidden.costs[chosen].sum():g}, and the budget is {hidden.budget:g}")
        ratios.append(instances.value_of(hidden.objective, chosen) / hidden.reference)
    metrics = {
        "ratio": float(np.mean(ratios)),
        "half": Proportion(int(np.sum(np.array(ratios) >= 0.5)), len(ratios)),
    }
    return metrics | ({"queries": float(output.queries)} if isinstance(output, Picks) and output.queries else {})


def score_audit(output: Any, hidden: None) -> Mapping[str, float]:
    """The largest and the least of the lower bounds on ε that an audit found, one for each pair."""
    bounds = np.asarray(output, dtype=np.float64)
    if bounds.ndim != 1 or not len(bounds) or not np.isfinite(bounds).all():
        raise ValueError("on the audit the output must be a list of lower bounds on ε, one for each pair")
    return {"eps_lower": float(bounds.max()), "eps_least": float(bounds.min())}


def run_contender(given: Given, seed: int, budget: Budget, contender: baselines.Contender) -> Picks:
    """A contender, as often as asked."""
    rng = np.random.default_rng(seed)
    found = [contender(given.instance, given.epsilon, given.delta, rng) for _ in range(given.runs)]
    return Picks([items for items, _ in found], float(np.mean([queries for _, queries in found])))


def run_method(given: Given | AuditGiven, seed: int, budget: Budget, **parameters: Any) -> Any:
    """The solver; on the audit, the lower bounds on its ε."""
    if isinstance(given, AuditGiven):
        return _audit(given.pairs, given.runs, seed, partial(honest, **parameters))
    return run_contender(given, seed, budget, partial(baselines.private, **parameters))


def run_enumerate(given: Given | AuditGiven, seed: int, budget: Budget) -> Any:
    """The best of many runs."""
    if isinstance(given, AuditGiven):
        monotone = [pair for pair in given.pairs if pair.data.monotone]
        few = max(20, given.runs // 4)
        return _audit(monotone, few, seed, partial(honest, algorithm="enumerate", mean_runs=3.0))
    return run_method(given, seed, budget, algorithm="enumerate", mean_runs=MEAN_RUNS[budget])


def run_nonprivate(given: Given | AuditGiven, seed: int, budget: Budget) -> Any:
    """Greedy+max without noise; the audit must see it."""
    if isinstance(given, AuditGiven):
        return _audit(given.pairs, 60, seed, not_private)
    items, queries = baselines.nonprivate(given.instance, given.epsilon, given.delta, np.random.default_rng(seed))
    return Picks([items] * given.runs, float(queries))


def run_cheat(given: AuditGiven, seed: int, budget: Budget, factory: Callable[..., Any]) -> list[float]:
    """A solver that breaks its promise; the audit must see it.

    On the pairs with one pick and without the last choice, where all of the promised ε is in what comes out.
    """
    return _audit(given.pairs[:2], 3 * given.runs, seed, partial(factory, final_share=0.0))


def _audit(among: Iterable[Pair], runs: int, seed: int, factory: Callable[[Pair], Any]) -> list[float]:
    return [audit(factory(pair), pair.data, pair.more, runs, random_state=seed).eps_lower for pair in among]


EPSILONS = (0.25, 0.5, 1.0, 2.0)
T1 = {epsilon: f"T1-{epsilon:g}" for epsilon in EPSILONS}
T4 = {epsilon: f"T4-{epsilon:g}" for epsilon in (0.5, 2.0)}
UTILITY = (*T1.values(), "T2", "T3", *T4.values())
MONOTONE = (*T1.values(), "T2", "T3")


def _tasks() -> tuple[Task, ...]:
    quick = (Budget.QUICK, Budget.FULL, Budget.PAPER)
    return (
        *(
            Task(
                name,
                partial(load_sites, epsilon=epsilon),
                score,
                f"60 candidate sites for people drawn by US city populations, budget 5, ε = {epsilon:g}",
                budgets=tuple(Budget) if epsilon in (0.5, 1.0) else quick,
            )
            for epsilon, name in T1.items()
        ),
        Task(
            "T2", load_trap, score, "a trap: 20 cheap items have twice the density of one that is worth it all, ε = 1"
        ),
        Task(
            "T3",
            load_questions,
            score,
            "questions that tell who sees a physician often (randhie), ε = 1",
            budgets=quick,
        ),
        *(
            Task(
                name,
                partial(load_contacts, epsilon=epsilon),
                score,
                f"a cut of 16 places, ε = {epsilon:g}",
                budgets=tuple(Budget) if epsilon == 0.5 else quick,
            )
            for epsilon, name in T4.items()
        ),
        Task(
            "audit",
            load_audit,
            score_audit,
            "six pairs of neighbouring data sets made by hand; ε = 1, δ = 0",
            control=True,
        ),
    )


def _arms() -> tuple[Arm, ...]:
    def contender(work: baselines.Contender) -> Any:
        return partial(run_contender, contender=work)

    quick = (Budget.QUICK, Budget.FULL, Budget.PAPER)
    enumerated = (T1[0.25], T1[1.0], T1[2.0], "audit")
    return (
        Arm("dp-smk", run_method, "method", "greedy_max; on cuts, and where more can harm, sample_greedy_max"),
        Arm("enumerate", run_enumerate, "ablation", "the best of many runs", enumerated),
        Arm(
            "density",
            partial(run_method, final_share=0.0),
            "ablation",
            "the picks alone, without the last draw",
            MONOTONE,
        ),
        Arm(
            "no-fallback",
            partial(run_method, fallback=False),
            "ablation",
            "the last draw without prefixes that are filled with the cheapest items",
            tuple(T1.values()),
        ),
        Arm(
            "no-coin",
            contender(partial(baselines.private, discard=0.0)),
            "ablation",
            "keeps every pick",
            tuple(T4.values()),
        ),
        Arm("continuous", contender(baselines.continuous), "baseline", "private continuous greedy", tuple(T1.values())),
        Arm(
            "continuous-fallback",
            contender(partial(baselines.continuous, fallback_share=0.2)),
            "baseline",
            "the same with the method's last draw among beginnings filled with the cheapest items",
            (T1[0.5], T1[1.0]),
        ),
        Arm("unit-cost", contender(baselines.unit_cost), "baseline", "private greedy by gains", (*T1.values(), "T2")),
        Arm("random", contender(baselines.random_choice), "trivial", "random order", UTILITY),
        Arm("cheapest", contender(baselines.cheapest), "trivial", "cheapest first: costs alone, no data", UTILITY),
        Arm("nonprivate", run_nonprivate, "ceiling", "greedy+max on the exact data"),
        Arm(
            "half-noise",
            partial(run_cheat, factory=half_the_noise),
            "ablation",
            "a cheat: spends twice the ε it promises",
            ("audit",),
            quick,
        ),
        Arm(
            "heavy-record",
            partial(run_cheat, factory=heavy_record),
            "ablation",
            "a cheat: a record counts three times what its bound says",
            ("audit",),
            quick,
        ),
    )


CONTRACT = """f(given, seed) -> a list of given.runs sets

given.instance     objective (n, labels, empty(), gains(state), add(state, item), value(state)), costs (n,), budget
given.epsilon, given.delta
                   what one choice may cost in privacy; one record more or less
given.runs         how many independent choices are wanted
returns            for each run the positions of the chosen items, which together cost at most the budget

On the task "audit" given.pairs holds pairs of neighbouring data sets and given.runs; the answer is a list of lower
bounds on ε, one for each pair.
"""

METRICS = {
    "ratio": "f of the set / f of non-private greedy+max (T1 to T3) or the optimum (T4), mean over the runs",
    "half": "share of the runs with a ratio of at least a half",
    "queries": "gain evaluations of a run; for enumerate, of the released run alone",
    "eps_lower": "audit: the solver's ε is at least this on some pair (95 % each); every solver there promises 1",
    "eps_least": "audit: the same for the pair that shows least",
}

OWN_METRICS = {name: METRICS[name] for name in ("ratio", "half", "queries")}


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's problem, at ε = 0.5, 1 and 2."""
    if set(paths) != {"data"}:
        raise InputError(f"dp-smk takes people × items as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    instance = instances.read_instance(path)
    if not instances.value_of(instance.objective, np.flatnonzero(instance.costs <= instance.budget)) > 0:
        raise InputError(f"{path.name}: nothing that can be paid is of any benefit, so there is nothing to compare")
    DPKnapsack(instance.objective, instance.costs, instance.budget, epsilon=1.0, algorithm="greedy_max")
    tasks = tuple(
        Task(f"own-{e:g}", partial(load_own, path=path, epsilon=e), score, f"{path.name}, ε = {e:g}")
        for e in (0.5, 1.0, 2.0)
    )
    names = tuple(task.name for task in tasks)
    keep = (
        "dp-smk",
        "enumerate",
        "density",
        "continuous",
        "continuous-fallback",
        "unit-cost",
        "random",
        "cheapest",
        "nonprivate",
    )
    return Study(
        name="dp-smk",
        tasks=tasks,
        arms=tuple(replace(arm, tasks=names) for arm in _arms() if arm.name in keep),
        claims=(
            higher("ratio", "dp-smk", than="continuous", says="more benefit than private continuous greedy"),
            higher("ratio", "dp-smk", than="unit-cost", says="more benefit than private greedy by gains"),
            higher("ratio", "dp-smk", than="cheapest", says="worth the privacy: more than cheapest first"),
            at_least("ratio", "dp-smk", 0.8, says="four fifths of what greedy+max gets without privacy"),
        ),
        primary="ratio",
        better="higher",
        metrics=OWN_METRICS,
        seeds=STUDY.seeds,
        base_seed=BASE_SEED,
        contract=CONTRACT.partition("\n\nOn the task")[0],
    )


STUDY = Study(
    name="dp-smk",
    tasks=_tasks(),
    arms=_arms(),
    claims=(
        higher(
            "ratio",
            "dp-smk",
            than="continuous",
            tasks=[T1[0.25], T1[0.5], T1[1.0]],
            says="more benefit than private continuous greedy at equal ε ≤ 1",
        ),
        higher(
            "ratio",
            "dp-smk",
            than="continuous-fallback",
            tasks=[T1[0.5], T1[1.0]],
            says="and more than continuous greedy with the same last draw",
        ),
        lower(
            "queries",
            "dp-smk",
            than="continuous",
            ratio=0.1,
            tasks=[*T1.values()],
            says="a tenth of its gain evaluations",
        ),
        higher(
            "ratio",
            "dp-smk",
            than="unit-cost",
            by=0.08,
            tasks=[T1[0.5], T1[1.0], T1[2.0]],
            says="costs must be used: 0.08 more than greedy by gains at ε ≥ 0.5",
        ),
        higher(
            "ratio",
            "dp-smk",
            than="cheapest",
            tasks=[T1[0.5], T1[1.0], T1[2.0]],
            says="worth the privacy: more than cheapest first at ε ≥ 0.5",
        ),
        rate("half", "dp-smk", at_least=0.95, tasks="T2", says="half of the optimum in the trap, in 95 % of runs"),
        at_most("ratio", "density", 0.4, tasks="T2", says="the trap is one: density alone gets at most 0.4"),
        at_least("ratio", "dp-smk", 0.25, tasks=[*T4.values()], says="a quarter of the optimum where more can harm"),
        higher(
            "ratio",
            "enumerate",
            than="dp-smk",
            tasks=[T1[1.0], T1[2.0]],
            says="the best of many runs is better than one at ε ≥ 1",
        ),
        higher(
            "ratio",
            "enumerate",
            than="continuous",
            tasks=[T1[0.25], T1[1.0], T1[2.0]],
            says="the best of many runs has more benefit than private continuous greedy",
        ),
        at_most("eps_lower", "dp-smk", EPSILON, tasks="audit", says="private in fact: no audit finds more than ε"),
        at_most(
            "eps_lower",
            "enumerate",
            EPSILON,
            tasks="audit",
            says="the best of many runs is private in fact: no audit finds more than ε",
        ),
        at_least("eps_least", "nonprivate", EPSILON, tasks="audit", says="every audit catches greedy without noise"),
        at_least("eps_least", "half-noise", EPSILON, tasks="audit", says="audits catch half of the noise"),
        at_least("eps_least", "heavy-record", EPSILON, tasks="audit", says="audits catch a record over its bound"),
    ),
    primary="ratio",
    better="higher",
    metrics=METRICS,
    seeds={Budget.SMOKE: 3, Budget.QUICK: 10, Budget.FULL: 24, Budget.PAPER: 24},
    base_seed=BASE_SEED,
    contract=CONTRACT,
    accepts={
        "data": "people × items: an .npz with similarity (people, items) in [0, 1], costs (items,) and budget, or a "
        "table of such numbers (each item then costs 1, and a quarter can be paid)"
    },
    own=own,
)
