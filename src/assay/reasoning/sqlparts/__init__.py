"""Score, reward and ask for SQL by the parts of the right query's syntax tree."""

from assay.errors import MissingPart

try:
    from .asking import Answer, Asker, Vote, choose
    from .completion import Completion, parse_completion
    from .database import Rows, SafeDatabase, Schema, SqlError
    from .execution import changed_copies, changed_tables, execution_match
    from .fragments import ComponentScore, Part, components_score, decompose
    from .levels import complexity
    from .matching import Match, mcs, mcs_score
    from .normal_form import canonical
    from .prompts import completion_of, prompt, sft_rows
    from .rewards import RewardWeights, reward_breakdown, reward_func
    from .tree import SqlParseError, Tree
except ModuleNotFoundError as error:
    raise MissingPart(f"sqlparts needs {error.name}", "python -m pip install 'assay[sql]'") from error

__all__ = [
    "Answer",
    "Asker",
    "Completion",
    "ComponentScore",
    "Match",
    "Part",
    "RewardWeights",
    "Rows",
    "SafeDatabase",
    "Schema",
    "SqlError",
    "SqlParseError",
    "Tree",
    "Vote",
    "canonical",
    "changed_copies",
    "changed_tables",
    "choose",
    "completion_of",
    "complexity",
    "components_score",
    "decompose",
    "execution_match",
    "mcs",
    "mcs_score",
    "parse_completion",
    "prompt",
    "reward_breakdown",
    "reward_func",
    "sft_rows",
]
