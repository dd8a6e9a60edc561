"""Merge fine-tuned models without data, keeping the updates that reach the output."""

from assay.errors import MissingPart

try:
    from .baselines import average, dare, magnitude, task_arithmetic, ties
    from .connectivity import sensitivity
    from .lora import merge_lora
    from .merging import merge, saliency
    from .report import MergeReport
    from .weights import ShapeMismatchError
except ModuleNotFoundError as error:
    raise MissingPart(f"sa-merging needs {error.name}", "python -m pip install 'assay[models]'") from error

__all__ = [
    "MergeReport",
    "ShapeMismatchError",
    "average",
    "dare",
    "magnitude",
    "merge",
    "merge_lora",
    "saliency",
    "sensitivity",
    "task_arithmetic",
    "ties",
]
