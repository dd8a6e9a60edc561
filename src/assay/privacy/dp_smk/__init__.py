"""Pick the best affordable set from private data: submodular maximisation with a knapsack constraint."""

from .auditing import AuditReport, audit
from .feature_information import FeatureInformation
from .objectives import (
    Coverage,
    FacilityLocation,
    GraphCut,
    MinusPenalty,
    Modular,
    SensitivityError,
    SubmodularObjective,
    minus_penalty,
)
from .selector import DPKnapsackFeatureSelector
from .solver import DPKnapsack, SelectionResult

__all__ = [
    "AuditReport",
    "Coverage",
    "DPKnapsack",
    "DPKnapsackFeatureSelector",
    "FacilityLocation",
    "FeatureInformation",
    "GraphCut",
    "MinusPenalty",
    "Modular",
    "SelectionResult",
    "SensitivityError",
    "SubmodularObjective",
    "audit",
    "minus_penalty",
]
