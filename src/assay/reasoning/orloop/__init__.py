"""ORLoop: repair infeasible optimisation models with the solver in the loop, and score it by the optimum."""

from typing import Any

from assay.errors import MissingPart

try:
    from .actions import Action, ParseError, parse_action
    from .conflicts import IIS, iis
    from .environment import RepairEnv, prompt
    from .fixing import RepairReport, repair
    from .inventory import BiasReport, Decision, bias_report, eoq, newsvendor
    from .language import HFAgent, OpenAIAgent, reward_func, sft_rows
    from .model import LinearModel
    from .saboteur import Instance, generate, sabotage
    from .scoring import RewardSpec, Score, diagnosis_f1
    from .solving import Solution, solve
except ModuleNotFoundError as error:
    raise MissingPart(f"orloop needs {error.name}", "python -m pip install 'assay[or]'") from error

__all__ = [
    "IIS",
    "Action",
    "BiasReport",
    "Decision",
    "HFAgent",
    "Instance",
    "LinearModel",
    "OpenAIAgent",
    "ParseError",
    "RepairEnv",
    "RepairPolicy",
    "RepairReport",
    "RewardSpec",
    "Score",
    "Solution",
    "bias_report",
    "diagnosis_f1",
    "eoq",
    "generate",
    "iis",
    "newsvendor",
    "parse_action",
    "prompt",
    "repair",
    "reward_func",
    "sabotage",
    "sft_rows",
    "solve",
    "train_policy",
]


def __getattr__(name: str) -> Any:
    """The policy needs torch, and all else does not."""
    if name in ("RepairPolicy", "train_policy"):
        from . import policy

        return getattr(policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
