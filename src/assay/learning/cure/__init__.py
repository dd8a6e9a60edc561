"""CURE: sort unlabelled rows into the classes you know and the ones you don't."""

from assay.errors import MissingPart

try:
    from .accuracy import gcd_accuracy
    from .clustering import seeded_kmeans
    from .discovery import CUREDiscovery
    from .estimation import estimate_n_classes
    from .head import CosineHead
    from .losses import js_consistency, logit_adjusted_distillation, mean_entropy, semantic_exploration_energy
    from .network import CURE
except ModuleNotFoundError as error:
    raise MissingPart(f"cure needs {error.name}", "python -m pip install 'assay[torch]'") from error

__all__ = [
    "CURE",
    "CUREDiscovery",
    "CosineHead",
    "estimate_n_classes",
    "gcd_accuracy",
    "js_consistency",
    "logit_adjusted_distillation",
    "mean_entropy",
    "seeded_kmeans",
    "semantic_exploration_energy",
]
