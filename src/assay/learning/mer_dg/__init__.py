"""MER-DG: a loss that keeps every modality's encoder rich, for people, rooms or devices not seen before."""

from assay.errors import MissingPart

try:
    from .criterion import MERLoss
    from .effective_rank import rankme
    from .estimator import MultimodalDGClassifier
    from .fusion import FusionClassifier
    from .losses import marginal_entropy_loss, mer_loss, spectral_entropy_loss
    from .tap import FeatureTap
except ModuleNotFoundError as error:
    raise MissingPart(f"mer-dg needs {error.name}", "python -m pip install 'assay[torch]'") from error

__all__ = [
    "FeatureTap",
    "FusionClassifier",
    "MERLoss",
    "MultimodalDGClassifier",
    "marginal_entropy_loss",
    "mer_loss",
    "rankme",
    "spectral_entropy_loss",
]
