"""ORLoop: repair infeasible optimisation models with the solver in the loop, and score it by the optimum."""

from typing import TYPE_CHECKING, Any

from assay.errors import MissingPart

try:
    from .actions import Action, ParseError, parse_action
    from .conflicts import IIS, iis
    from .environment import RepairEnv, prompt
    from .fixing import RepairReport, choices, repair
    from .grading import evaluate
    from .inventory import BiasReport, Decision, bias_report, cost_gap, curriculum, eoq, newsvendor
    from .language import HFAgent, OpenAIAgent, reward_for, reward_func, rl_rows, sft_rows
    from .model import LinearModel
    from .saboteur import Instance, generate, sabotage
    from .scoring import RewardSpec, Score, diagnosis_f1
    from .solving import Solution, solve
except ModuleNotFoundError as error:
    raise MissingPart(f"orloop needs {error.name}", "python -m pip install 'assay[or]'") from error

if TYPE_CHECKING:
    from .order_policy import OrderPolicy, fit_orders, human_orders, train_orders
    from .policy import RepairPolicy, fit_policy, train_policy

__all__ = [
    "IIS",
    "Action",
    "BiasReport",
    "Decision",
    "HFAgent",
    "Instance",
    "LinearModel",
    "OpenAIAgent",
    "OrderPolicy",
    "ParseError",
    "RepairEnv",
    "RepairPolicy",
    "RepairReport",
    "RewardSpec",
    "Score",
    "Solution",
    "bias_report",
    "choices",
    "cost_gap",
    "curriculum",
    "diagnosis_f1",
    "eoq",
    "evaluate",
    "fit_orders",
    "fit_policy",
    "generate",
    "human_orders",
    "iis",
    "newsvendor",
    "parse_action",
    "prompt",
    "repair",
    "reward_for",
    "reward_func",
    "rl_rows",
    "sabotage",
    "sft_rows",
    "solve",
    "train_orders",
    "train_policy",
]


def __getattr__(name: str) -> Any:
    """The policies need torch, and all else does not."""
    if name in ("RepairPolicy", "fit_policy", "train_policy"):
        from . import policy

        return getattr(policy, name)
    if name in ("OrderPolicy", "fit_orders", "human_orders", "train_orders"):
        from . import order_policy

        return getattr(order_policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
