"""The study of orloop: is a feasible model a repaired one, and does learning in the loop repair more?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.errors import InputError
from assay.evidence.asking import Asking
from assay.evidence.claim import at_least, at_most, higher, lower, not_lower
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts.chat import Chat, Reply

from .actions import Action
from .environment import RepairEnv, prompt, row_text
from .files import read_instances, write_instances
from .fixing import unknown
from .hand_rules import RULES
from .model import LinearModel
from .naming import renamed
from .saboteur import ERRORS, Instance, generate, sabotage

TRAIN_DOMAINS = ("transport", "production", "blending", "inventory")
NEW_DOMAINS = ("facility", "scheduling")
MOST = 10
"""Actions an arm may take on one model."""

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
LARGE = (Budget.FULL, Budget.PAPER)
SIZES = {  # models to learn from, models a task, updates, instances and episodes an update
    Budget.SMOKE: (6, 6, 3, 3, 3),
    Budget.QUICK: (36, 18, 24, 6, 6),
    Budget.FULL: (150, 60, 60, 8, 8),
    Budget.PAPER: (600, 450, 60, 8, 8),
}
INTEGER = {Budget.SMOKE: 4, Budget.QUICK: 18, Budget.FULL: 40, Budget.PAPER: 300}
FEWER_ERRORS = {"milp": "ABCD", "ood": "ABCDFI"}
"""Two and three errors at once are rare in the new domains, and integer models slow: they would be most of the work."""
LIKE = 4
"""Other rows of each family in conflict that a language model is shown; rules and policies compare with all of them."""
AFTER = 1e-3
"""Rate of the updates that follow on shown repairs; with the 3e-3 of fresh weights they lose what was shown."""


@dataclass(frozen=True)
class Given:
    """What an arm sees: infeasible ``models``, and the folder of instances with known errors to ``learn`` from."""

    models: tuple[LinearModel, ...]
    learn: str
    names: str


def instances(what: str, seed: int, budget: Budget) -> Path:
    """The folder of the instances of a task and seed, made once."""
    learn, test, *_ = SIZES[budget]
    domains: Sequence[str] = NEW_DOMAINS if what == "ood" else TRAIN_DOMAINS
    size = {"learn": learn, "milp": INTEGER[budget]}.get(what, test)
    errors = FEWER_ERRORS.get(what, ERRORS)
    number = {"learn": 0, "lp": 1, "ood": 2, "milp": 3}[what]

    def make(folder: Path) -> None:
        made = generate(size, domains=domains, errors=errors, milp=what == "milp", seed=10 * seed + number)
        write_instances(made, folder)

    return shared(["instances", what, seed, str(budget)], make)


def load(seed: int, budget: Budget, what: str) -> tuple[Given, list[Instance]]:
    """The models of a task, and with them in hiding the culprits and the optimum."""
    names = {"named": "kinds", "unnamed": "numbers"}.get(what, "sections")
    folder = instances("lp" if what in ("named", "unnamed") else what, seed, budget)
    known = [renamed(one, names) for one in read_instances(folder)]
    if what == "milp":  # and for comparison the linear models with the same kinds of error
        linear = [one for one in read_instances(instances("lp", seed, budget)) if one.error in FEWER_ERRORS["milp"]]
        known += [renamed(one, names) for one in linear]
    learn = instances("learn", seed, budget)
    return Given(tuple(one.model for one in known), str(learn), names), known


def score_milp(output: Any, hidden: list[Instance]) -> Mapping[str, float]:
    """The scores on integer models, and their lead over 0.8 times the repairs of linear ones."""
    if not isinstance(output, list | tuple) or len(output) != len(hidden):
        raise ValueError(f"the output must be one list of actions for each of the {len(hidden)} models")
    whole = [one.model.integer.any() for one in hidden]
    parts = []
    for kind in (True, False):
        mine = [i for i, is_whole in enumerate(whole) if is_whole == kind]
        parts.append(score([output[i] for i in mine], [hidden[i] for i in mine]))
    return {**parts[0], "transfer": parts[0]["op5"] - 0.8 * parts[1]["op5"], "op5_linear": parts[1]["op5"]}


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
    return {"steps_taken": out.pop("steps"), "drift": out["rr5"] - out["op5"], **out}


def run_rule(given: Given, seed: int, budget: Budget, rule: str) -> list[list[Action]]:
    """A rule without learning."""
    rng = np.random.default_rng(seed)
    return [_played(model, lambda env: RULES[rule](env, rng)) for model in given.models]


def run_diagnose_all(given: Given, seed: int, budget: Budget) -> list[list[Action]]:
    """Name every row of the conflict, then drop rows until the model is feasible: what games recall and feasibility."""
    rng = np.random.default_rng(seed)

    def rule(env: RepairEnv) -> Action:
        return RULES["drop_first"](env, rng) if env.steps else Action("DIAGNOSE", names=env.state.rows)

    return [_played(model, rule) for model in given.models]


def run_policy(given: Given, seed: int, budget: Budget, reward: str, start: str) -> list[list[Action]]:
    """A policy that was shown the repairs of other instances, or trained in the loop on them, or both in turn."""
    from .policy import RepairPolicy, fit_policy, train_policy

    _, _, steps, batch, group = SIZES[budget]
    what = [Path(given.learn).name, seed, str(budget), given.names]

    def known() -> list[Instance]:
        return [renamed(one, given.names) for one in read_instances(given.learn)]

    def show(folder: Path) -> None:
        fit_policy(known(), seed=seed).save_pretrained(folder / "policy")

    def train(folder: Path) -> None:
        size = {"reward": reward, "steps": steps, "batch": batch, "group": group, "seed": seed}
        if start == "shown":
            first = RepairPolicy.from_pretrained(shared(["shown", *what], show) / "policy", device="cpu")
            policy = train_policy(known(), start=first, lr=AFTER, **size)
        else:
            policy = train_policy(known(), **size)
        policy.save_pretrained(folder / "policy")

    folder = shared(["policy", reward, start, *what], train) if reward else shared(["shown", *what], show)
    policy = RepairPolicy.from_pretrained(folder / "policy", device="cpu")
    return [_played(model, policy.act) for model in given.models]


def ask_model(chat: Chat, given: Given, seed: int, budget: Budget) -> list[list[str]]:
    """What the user's model does with each model, one action a reply; a request that fails is a bad action."""
    envs = [RepairEnv(unknown(model), max_steps=MOST) for model in given.models]
    for env in envs:
        env.reset()
    actions: list[list[str]] = [[] for _ in envs]
    while going := [i for i, env in enumerate(envs) if not env.done]:
        replies = chat.complete([_question(envs[i]) for i in going], temperature=0.0)
        failed = [reply for reply in replies if not isinstance(reply, Reply)]
        if len(failed) == len(replies):
            raise failed[0].error()
        for i, reply in zip(going, replies, strict=True):
            actions[i].append(reply.samples[0].text if isinstance(reply, Reply) else "")
            envs[i].step(actions[i][-1])
    return actions


def _question(env: RepairEnv) -> list[dict[str, str]]:
    """The messages of a state, and rows of the same families to compare with."""
    rules, state = prompt(env)
    model, shown = env.state.model, set(env.state.rows)
    like = []
    for family in dict.fromkeys(model.family[model.row(name)] for name in env.state.rows[:MOST]):
        mates = [n for n, f in zip(model.row_names, model.family, strict=True) if f == family and n not in shown]
        like += [row_text(model, name) for name in mates[:LIKE]]
    if like:
        state = state | {"content": state["content"] + "\n\nOther rows of these families:\n" + "\n".join(like)}
    return [rules, state]


def _played(model: LinearModel, choose: Any) -> list[Action]:
    env = RepairEnv(unknown(model), max_steps=MOST)
    env.reset()
    actions = []
    while not env.done:
        actions.append(choose(env))
        env.step(actions[-1])
    return actions


REPAIR = ("lp", "named", "unnamed", "ood", "milp")


def _arms(repair: tuple[str, ...] | None = REPAIR) -> tuple[Arm, ...]:
    def rule(name: str) -> Any:
        return partial(run_rule, rule=name)

    def policy(reward: str, start: str) -> Any:
        return partial(run_policy, reward=reward, start=start)

    linear = repair and tuple(task for task in repair if task not in ("named", "milp"))
    loop = "learns in the loop from fresh weights"
    return (
        Arm("grpo", policy("op", "shown"), "method", "shown repairs, then the loop; success is the optimum", repair),
        Arm("shown", policy("", "shown"), "ablation", "the same network fitted to true repairs, no loop", linear),
        Arm("grpo_scratch", policy("op", "fresh"), "ablation", f"{loop}; success is the optimum", ("lp",), LARGE),
        Arm(
            "grpo_composite",
            policy("composite", "fresh"),
            "ablation",
            f"{loop}; the source's weights, with F1",
            ("lp",),
            QUICK,
        ),
        Arm("grpo_outcome", policy("outcome", "fresh"), "ablation", f"{loop}; only feasibility counts", ("lp",), QUICK),
        Arm("random", rule("random"), "trivial", "any candidate edit", linear),
        Arm("drop_first", rule("drop_first"), "trivial", "drop the first row of the IIS", repair),
        Arm("diagnose_all", run_diagnose_all, "trivial", "name the whole IIS, then drop its first row", ("lp",)),
        Arm("min_relax", rule("min_relax"), "baseline", "relax the row for which the least suffices", linear),
        Arm("whole_model", rule("whole_model"), "baseline", "HiGHS: the least total relaxation of all rows", linear),
        Arm(
            "by_kind",
            rule("by_kind"),
            "baseline",
            "restore, else flip, else another right-hand side, else drop",
            linear,
        ),
        Arm(
            "outlier",
            rule("outlier"),
            "baseline",
            "mend the row that is most unlike its family",
            linear and (*linear, "named"),
        ),
        Arm("model", Asking(ask_model), "baseline", "your model, shown the conflict and rows like it", ("lp",)),
    )


TASKS = (
    Task("lp", partial(load, what="lp"), score, "linear models, nine kinds of error; names tell the section of a row"),
    Task(
        "named",
        partial(load, what="named"),
        score,
        "the same models; names tell what a row says, and the odd one shows",
        control=True,
        budgets=QUICK,
    ),
    Task(
        "unnamed",
        partial(load, what="unnamed"),
        score,
        "the same models, rows and columns only numbered",
        budgets=QUICK,
    ),
    Task(
        "ood", partial(load, what="ood"), score, "linear models of two domains that were not learnt from", budgets=QUICK
    ),
    Task(
        "milp",
        partial(load, what="milp"),
        score_milp,
        "mixed-integer models of the known domains; nothing integer was learnt from",
        budgets=QUICK,
    ),
)
BASELINES = ("random", "drop_first", "min_relax", "whole_model", "by_kind", "outlier")
ALL = ("bias", "bias_hard")
ORDER_SIZES = {Budget.SMOKE: (200, 40), Budget.QUICK: (1000, 300), Budget.FULL: (1000, 300), Budget.PAPER: (1000, 300)}
"""Decisions that are asked, and updates."""


def load_orders(seed: int, budget: Budget, inputs: Literal["ratio", "prices"]) -> tuple[Any, Any]:
    """Decisions to learn from and others that are asked, and these with their best orders."""
    from .order_trials import order_trial

    return order_trial(seed, ORDER_SIZES[budget][0], inputs)


def score_orders(output: Any, hidden: Any) -> Mapping[str, float]:
    """How far the orders are from the best ones."""
    from .order_trials import order_scores

    return order_scores(output, hidden)


def order_mean(given: Any, seed: int, budget: Budget) -> list[float]:
    """Mean demand, always."""
    return [decision.params["mu"] for decision in given.asked]


def fit(given: Any, seed: int, budget: Budget, shown: Literal["human", "best"]) -> list[float]:
    """The network fitted to a person's orders, or to the best ones."""
    return _fitted(given, seed, shown).orders(given.asked)


def train(given: Any, seed: int, budget: Budget, order: Literal["uniform", "stages", "shuffled"]) -> list[float]:
    """The network that a person was imitated with, trained by what its orders cost."""
    from .order_policy import train_orders

    stages = {
        "uniform": [given.decisions],
        "stages": list(given.stages),
        "shuffled": [sum(given.stages, ())],
    }[order]
    return train_orders(_fitted(given, seed, "human"), stages, steps=ORDER_SIZES[budget][1], seed=seed).orders(
        given.asked
    )


def _fitted(given: Any, seed: int, shown: str) -> Any:
    from .order_policy import OrderPolicy, fit_orders

    orders = given.human if shown == "human" else [decision.optimal for decision in given.decisions]

    def make(folder: Path) -> None:
        policy = fit_orders(given.decisions, orders, inputs=given.inputs, seed=seed)
        policy.save_pretrained(folder / "policy")

    return OrderPolicy.from_pretrained(
        shared(["orders", shown, seed, given.seed, given.inputs], make) / "policy", device="cpu"
    )


ORDER_TASKS = (
    Task(
        "bias",
        partial(load_orders, inputs="ratio"),
        score_orders,
        "newsvendor orders at more extreme critical ratios than learnt from; the ratio is an input",
    ),
    Task(
        "bias_hard",
        partial(load_orders, inputs="prices"),
        score_orders,
        "the same; price, cost and salvage are the inputs",
        budgets=QUICK,
    ),
)
ORDER_ARMS = (
    Arm("rlvr", partial(train, order="uniform"), "ablation", "imitation, then trained by what orders cost", ALL),
    Arm(
        "rlvr_curriculum", partial(train, order="stages"), "ablation", "the same, from clear-cut decisions to all", ALL
    ),
    Arm(
        "rlvr_shuffled",
        partial(train, order="shuffled"),
        "ablation",
        "the curriculum's decisions in any order",
        ALL,
        QUICK,
    ),
    Arm("imitation", partial(fit, shown="human"), "baseline", "fitted to the orders of a biased person", ALL),
    Arm("told", partial(fit, shown="best"), "baseline", "fitted to the best orders", ALL, QUICK),
    Arm("order_mean", order_mean, "trivial", "mean demand, always", ALL),
)
ORDER_METRICS = {
    "mean_abs_bias": "mean distance from the best order, in standard deviations of demand",
    "bias_outside": "the same where the critical ratio is below 0.2 or above 0.8",
    "pull_to_center": "1 less the slope of orders on best orders: 0 is rational, 1 always orders the mean",
}
ORDER_CLAIMS = (
    lower(
        "mean_abs_bias", "rlvr", than="imitation", ratio=0.5, tasks=ALL, says="verified reward removes pull-to-centre"
    ),
    lower(
        "mean_abs_bias",
        "rlvr_curriculum",
        than="rlvr",
        tasks=["bias"],
        says="a curriculum beats uniform sampling where the ratio is given",
    ),
    lower(
        "mean_abs_bias",
        "rlvr_curriculum",
        than="rlvr",
        tasks=["bias_hard"],
        says="a curriculum beats uniform sampling where it is not",
    ),
    lower(
        "mean_abs_bias",
        "rlvr_curriculum",
        than="rlvr_shuffled",
        tasks=["bias_hard"],
        says="its order helps, and not its wider range",
    ),
)

METRICS = {
    "op5": "share of models with the original optimum within 5 edits",
    "rr5": "share of models that are feasible within 5 edits",
    "drift": "share of models that are feasible within 5 edits with another optimum: rr5 less op5",
    "diag_f1": "F1 of the diagnosed rows, else of the edited ones, against the culprits",
    "diag_recall": "share of the culprits that were diagnosed, else edited",
    "da_iis": "share of the first IIS that was diagnosed, else edited (the source's measure)",
    "steps_taken": "actions a model",
    "loyal": "share of models of which no row outside the IIS was edited",
    "exact": "share of models equal to the original in every number",
    "transfer": "op5 on integer models less 0.8 times op5 on linear ones with the same kinds of error",
    "op5_linear": "op5 on those linear models",
    **ORDER_METRICS,
}
CONTRACT = """f(given, seed) -> actions

given.models  infeasible models (assay.reasoning.orloop.LinearModel)
given.learn   a folder of instances with known errors to learn from (files.read_instances)
given.names   "kinds", "sections" or "numbers": what the names of rows tell
returns       for each model a list of at most 10 actions: texts of the grammar, or Action objects

On the tasks bias and bias_hard: given.decisions, given.human and given.stages to learn from; return one order for each
decision of given.asked.
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
    return Given(tuple(one.model for one in known), str(learn), "kinds"), known


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
        arms=tuple(replace(arm, tasks=None) for arm in _arms() if arm.role != "ablation" or arm.name == "shown"),
        claims=(
            higher("op5", "grpo", than="drop_first", says="the policy repairs more than dropping does"),
            higher("op5", "grpo", than="whole_model", says="the policy repairs more than the least relaxation does"),
            higher("op5", "grpo", than="outlier", says="the policy repairs more than the rule of outliers does"),
            higher(
                "op5", "grpo", than="model", says="the policy repairs more than your model", needs="a language model"
            ),
        ),
        primary="op5",
        better="higher",
        metrics=METRICS,
        seeds=SEEDS,
        contract=CONTRACT,
    )


SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 4, Budget.FULL: 6, Budget.PAPER: 6}
CLAIMS = (
    at_least("rr5", "drop_first", 0.95, tasks=["lp"], says="dropping rows makes nearly every model feasible"),
    at_most("op5", "drop_first", 0.5, tasks=["lp"], says="and repairs at most half of them"),
    at_least("rr5", "whole_model", 0.95, tasks=["lp"], says="the least total relaxation makes them feasible too"),
    at_most("op5", "whole_model", 0.5, tasks=["lp"], says="and it repairs at most half"),
    at_most("diag_f1", "diagnose_all", 0.5, tasks=["lp"], says="naming the whole conflict is no diagnosis"),
    higher("op5", "grpo", than=BASELINES, tasks=["lp"], says="the trained policy repairs more than any rule"),
    higher("op5", "grpo", than=BASELINES, tasks=["unnamed"], says="it does so where names tell nothing"),
    higher("op5", "grpo", than=BASELINES, tasks=["ood"], says="it does so in domains it has not learnt from"),
    not_lower("op5", "grpo", than="outlier", by=0.1, tasks=["named"], says="where the odd row shows it keeps up"),
    higher("op5", "grpo", than="shown", tasks=["lp"], says="the loop adds to what was shown"),
    lower("steps_taken", "grpo", than="drop_first", tasks=["lp"], says="it needs fewer steps than dropping"),
    higher("diag_f1", "grpo_composite", than="grpo_outcome", tasks=["lp"], says="rewarding the diagnosis improves it"),
    at_least("transfer", "grpo", 0.0, tasks=["milp"], says="what was learnt on linear models serves integer ones"),
    *ORDER_CLAIMS,
    at_least(
        "drift", "model", 0.45, tasks=["lp"], says="your model: feasibility is not repair", needs="a language model"
    ),
    higher(
        "op5",
        "grpo",
        than="model",
        tasks=["lp"],
        says="the trained policy repairs more than your model",
        needs="a language model",
    ),
)

STUDY = Study(
    name="orloop",
    tasks=(*TASKS, *ORDER_TASKS),
    arms=(*_arms(), *ORDER_ARMS),
    claims=CLAIMS,
    primary="op5",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=2000,
    contract=CONTRACT,
    accepts={"data": "a feasible linear or mixed-integer model with an optimum (.mps or .lp); errors are put into it"},
    own=own,
)
