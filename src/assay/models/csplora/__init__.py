"""Plan where LoRA rank should go before you train: a short probe, then one rank for each weight matrix."""

from assay.errors import MissingPart

try:
    from .allocation import allocate
    from .heads import fit_head
    from .losses import sample_weights
    from .plan import RankPlan, RankPlanError
    from .probing import probe
    from .scores import ModuleScores
except ModuleNotFoundError as error:
    raise MissingPart(f"csplora needs {error.name}", "python -m pip install 'assay[models]'") from error

__all__ = ["ModuleScores", "RankPlan", "RankPlanError", "allocate", "fit_head", "probe", "sample_weights"]
