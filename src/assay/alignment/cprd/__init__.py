"""What preference data can teach a Bradley–Terry reward, and what they cannot."""

from .audit import RewardAudit, audit_rewards
from .comparisons import Comparisons
from .conditional import cprd
from .cycles import Cycles
from .fit import BTFit, DisconnectedComparisons, NotConverged, fit_bt, project
from .generative import fit_generative
from .next_pairs import suggest_pairs
from .ranker import BradleyTerryRanker
from .representation import RepresentabilityReport, representable
from .rows_needed import EfficiencyReport, efficiency

__all__ = [
    "BTFit",
    "BradleyTerryRanker",
    "Comparisons",
    "Cycles",
    "DisconnectedComparisons",
    "EfficiencyReport",
    "NotConverged",
    "RepresentabilityReport",
    "RewardAudit",
    "audit_rewards",
    "cprd",
    "efficiency",
    "fit_bt",
    "fit_generative",
    "project",
    "representable",
    "suggest_pairs",
]
