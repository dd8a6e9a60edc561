"""Survival models for small studies that borrow from a published risk score."""

from typing import TYPE_CHECKING, Any

from assay.errors import MissingPart
from assay.parts.packages import install_line

from .components import CaseControlSample, Components, make_components, nested_case_control, sampling_weights
from .estimator import CLKDSurvival

if TYPE_CHECKING:
    from .losses import CompositeKDLoss, composite_kd_loss

__all__ = [
    "CLKDSurvival",
    "CaseControlSample",
    "Components",
    "CompositeKDLoss",
    "composite_kd_loss",
    "make_components",
    "nested_case_control",
    "sampling_weights",
]


def __getattr__(name: str) -> Any:
    """The losses need torch, and nothing else here does."""
    if name not in ("CompositeKDLoss", "composite_kd_loss"):
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    try:
        from . import losses
    except ModuleNotFoundError as error:
        raise MissingPart(f"{name} needs {error.name}", install_line("torch")) from error
    return getattr(losses, name)
