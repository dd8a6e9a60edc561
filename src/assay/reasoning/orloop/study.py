"""The study of orloop: is a feasible model a repaired one, and does learning in the loop repair more?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import InputError
from assay.evidence.claim import at_least, at_most, higher, not_higher
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task

from .actions import Action
from .environment import RepairEnv
from .files import read_instances, write_instances
from .fixing import unknown
from .hand_rules import RULES
from .model import LinearModel
from .saboteur import ERRORS, Instance, generate, sabotage

TRAIN_DOMAINS = ("transport", "production", "blending", "inventory")
NEW_DOMAINS = ("facility", "scheduling")
MOST = 10
"""Actions an arm may take on one model."""

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
SIZES = {  # models to learn from, models a task, updates, instances and episodes an update
    Budget.SMOKE: (9, 9, 4, 3, 3),
    Budget.QUICK: (45, 27, 24, 6, 6),
    Budget.FULL: (180, 90, 60, 8, 8),
    Budget.PAPER: (600, 450, 60, 8, 8),
}
FEWER_ERRORS = {"milp": "ABCD", "ood": "ABCDFI"}
"""Two and three errors at once are rare in the new domains, and integer models slow: they would be most of the work."""


@dataclass(frozen=True)
class Given:
    """What an arm sees: infeasible ``models``, and the folder of instances with known errors to ``learn`` from."""

    models: tuple[LinearModel, ...]
    learn: str
    named: bool


def instances(what: str, seed: int, budget: Budget) -> Path:
    """The folder of the instances of a task and seed, made once."""
    learn, test, *_ = SIZES[budget]
    domains: Sequence[str] = NEW_DOMAINS if what == "ood" else TRAIN_DOMAINS
    size = learn if what == "learn" else test
    errors = FEWER_ERRORS.get(what, ERRORS)
    number = {"learn": 0, "lp": 1, "ood": 2, "milp": 3}[what]

    def make(folder: Path) -> None:
        made = generate(size, domains=domains, errors=errors, milp=what == "milp", seed=10 * seed + number)
        write_instances(made, folder)

    return shared(["instances", what, seed, str(budget)], make)


def without_names(one: Instance) -> Instance:
    """The same instance with rows and columns that are only numbered, so that no family shows."""
    rows = dict.fromkeys([*one.model.row_names, *one.original.row_names])
    rows = {name: f"r_{i + 1}" for i, name in enumerate(rows)}
    cols = {name: f"c_{i + 1}" for i, name in enumerate(one.model.col_names)}
    both = rows | cols

    def renamed(model: LinearModel) -> LinearModel:
        return replace(
            model,
            row_names=tuple(rows[name] for name in model.row_names),
            col_names=tuple(cols[name] for name in model.col_names),
            family=("r",) * model.shape[0],
        )

    undo = tuple(
        replace(
            action, target=both.get(action.target, action.target), names=tuple(both.get(n, n) for n in action.names)
        )
        for action in one.undo
    )
    return replace(
        one,
        model=renamed(one.model),
        original=renamed(one.original),
        culprits=frozenset(both[name] for name in one.culprits),
        undo=undo,
        iis_rows=tuple(rows[name] for name in one.iis_rows),
    )


def load(seed: int, budget: Budget, what: str) -> tuple[Given, list[Instance]]:
    """The models of a task, and with them in hiding the culprits and the optimum."""
    known = read_instances(instances("lp" if what == "unnamed" else what, seed, budget))
    if what == "unnamed":
        known = [without_names(one) for one in known]
    learn = instances("learn", seed, budget)
    return Given(tuple(one.model for one in known), str(learn), what != "unnamed"), known


def score(output: Any, hidden: list[Instance]) -> Mapping[str, float]:
    """Play each list of actions, and compare with the culprits and the optimum."""
    if not isinstance(output, list | tuple) or len(output) != len(hidden):
        raise ValueError(f"the output must be one list of actions for each of the {len(hidden)} models")
    scores = []
    for actions, one in zip(output, hidden, strict=True):
        env = RepairEnv(one, max_steps=MOST)
        env.reset()
        for action in list(actions)[:MOST]:
            if not env.done:
                env.step(action)
        scores.append(env.score())
    names = ("rr5", "op5", "diag_f1", "diag_recall", "da_iis", "steps", "loyal", "exact")
    out = {name: float(np.mean([getattr(one, name) for one in scores])) for name in names}
    return {"steps_taken": out.pop("steps"), **out}


def run_rule(given: Given, seed: int, budget: Budget, rule: str) -> list[list[Action]]:
    """A rule without learning."""
    rng = np.random.default_rng(seed)
    return [_played(model, lambda env: RULES[rule](env, rng)) for model in given.models]


def run_policy(given: Given, seed: int, budget: Budget, reward: str) -> list[list[Action]]:
    """A policy that was trained on other instances with this reward."""
    from .policy import RepairPolicy, train_policy

    _, _, steps, batch, group = SIZES[budget]

    def make(folder: Path) -> None:
        known = read_instances(given.learn)
        if not given.named:
            known = [without_names(one) for one in known]
        policy = train_policy(known, reward=reward, steps=steps, batch=batch, group=group, seed=seed)
        policy.save_pretrained(folder / "policy")

    folder = shared(["policy", Path(given.learn).name, reward, seed, str(budget), given.named], make)
    policy = RepairPolicy.from_pretrained(folder / "policy", device="cpu")
    return [_played(model, policy.act) for model in given.models]


def _played(model: LinearModel, choose: Any) -> list[Action]:
    env = RepairEnv(unknown(model), max_steps=MOST)
    env.reset()
    actions = []
    while not env.done:
        actions.append(choose(env))
        env.step(actions[-1])
    return actions


def _arms() -> tuple[Arm, ...]:
    def rule(name: str) -> Any:
        return partial(run_rule, rule=name)

    def policy(reward: str) -> Any:
        return partial(run_policy, reward=reward)

    return (
        Arm("grpo", policy("op"), "method", "trained in the loop; success is the original optimum"),
        Arm(
            "grpo_composite",
            policy("composite"),
            "ablation",
            "the source's reward: success is feasibility",
            ("lp", "unnamed"),
            QUICK,
        ),
        Arm("grpo_outcome", policy("outcome"), "ablation", "rewarded for feasibility alone", ("lp",), QUICK),
        Arm("random", rule("random"), "trivial", "any candidate edit"),
        Arm("drop_first", rule("drop_first"), "trivial", "drop the first row of the IIS"),
        Arm("min_relax", rule("min_relax"), "baseline", "relax the row for which the least suffices"),
        Arm("whole_model", rule("whole_model"), "baseline", "HiGHS: the least total relaxation of all rows"),
        Arm("outlier", rule("outlier"), "baseline", "mend the row that is most unlike its family"),
    )


TASKS = (
    Task("lp", partial(load, what="lp"), score, "linear models of known domains, all nine kinds of error"),
    Task(
        "unnamed",
        partial(load, what="unnamed"),
        score,
        "the same models, rows and columns without families",
        budgets=QUICK,
    ),
    Task(
        "ood", partial(load, what="ood"), score, "linear models of two domains that were not learnt from", budgets=QUICK
    ),
    Task("milp", partial(load, what="milp"), score, "mixed-integer models of the known domains", budgets=QUICK),
)
BASELINES = ("random", "drop_first", "min_relax", "whole_model", "outlier")
METRICS = {
    "op5": "share of models with the original optimum within 5 edits",
    "rr5": "share of models that are feasible within 5 edits",
    "diag_f1": "F1 of the edited rows against the culprits",
    "diag_recall": "share of the culprits that were edited",
    "da_iis": "share of the first IIS that was edited (the source's measure)",
    "steps_taken": "actions a model",
    "loyal": "share of models of which no row outside the IIS was edited",
    "exact": "share of models equal to the original in every number",
}
CONTRACT = """f(given, seed) -> actions

given.models  infeasible models (assay.reasoning.orloop.LinearModel)
given.learn   a folder of instances with known errors to learn from (files.read_instances)
given.named   whether the names of rows tell their families
returns       for each model a list of at most 10 actions: texts of the grammar, or Action objects
"""


def _load_own(seed: int, budget: Budget, path: Path) -> tuple[Given, list[Instance]]:
    model = LinearModel.read(path)
    rng = np.random.default_rng(seed)
    size = SIZES[budget][1]
    known: list[Instance] = []
    for number in range(4 * size):
        one = sabotage(model, "ABCD"[number % 4], rng)
        if one is not None:
            known.append(one)
        if len(known) == size:
            break
    if not known:
        raise InputError(f"{path.name}: no error of the kinds A to D makes this model infeasible")
    learn = instances("learn", seed, budget)
    return Given(tuple(one.model for one in known), str(learn), True), known


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's feasible model: errors of four kinds are put in, and must be found and mended."""
    if set(paths) != {"data"}:
        raise InputError(f"orloop takes a model as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    from .solving import solve

    status = solve(LinearModel.read(path)).status
    if status != "optimal":
        raise InputError(f"{path.name} is {status}; the study puts errors into a model that has an optimum")
    task = Task("own", partial(_load_own, path=path), score, f"{path.name} with errors of the kinds A to D")
    return Study(
        name="orloop",
        tasks=(task,),
        arms=tuple(replace(arm, tasks=None) for arm in _arms() if arm.role != "ablation"),
        claims=(
            higher("op5", "grpo", than="drop_first", says="the policy repairs more than dropping does"),
            higher("op5", "grpo", than="whole_model", says="the policy repairs more than the least relaxation does"),
            higher("op5", "grpo", than="outlier", says="the policy repairs more than the rule of outliers does"),
        ),
        primary="op5",
        better="higher",
        metrics=METRICS,
        seeds=SEEDS,
        contract=CONTRACT,
    )


SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 3, Budget.FULL: 5, Budget.PAPER: 5}

STUDY = Study(
    name="orloop",
    tasks=TASKS,
    arms=_arms(),
    claims=(
        at_least("rr5", "drop_first", 0.95, tasks=["lp"], says="dropping rows makes nearly every model feasible"),
        at_most("op5", "drop_first", 0.5, tasks=["lp"], says="and repairs at most half of them"),
        at_most("op5", "whole_model", 0.5, tasks=["lp"], says="the least total relaxation repairs at most half too"),
        higher("op5", "grpo", than=BASELINES, tasks=["lp"], says="the trained policy repairs more than any rule"),
        higher("op5", "grpo", than=BASELINES, tasks=["unnamed"], says="it does so where names tell no families"),
        higher("op5", "grpo", than=BASELINES, tasks=["ood"], says="it does so in domains it has not learnt from"),
        not_higher("steps_taken", "grpo", than="drop_first", by=0.1, tasks=["lp"], says="it needs hardly more steps"),
        higher(
            "diag_f1", "grpo_composite", than="grpo_outcome", tasks=["lp"], says="rewarding the diagnosis improves it"
        ),
        higher("op5", "grpo", than="grpo_composite", tasks=["unnamed"], says="rewarding the optimum beats feasibility"),
        at_least("op5", "grpo", 0.5, tasks=["milp"], says="what was learnt on linear models repairs integer ones"),
    ),
    primary="op5",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=1000,
    contract=CONTRACT,
    accepts={"data": "a feasible linear or mixed-integer model with an optimum (.mps or .lp); errors are put into it"},
    own=own,
)
