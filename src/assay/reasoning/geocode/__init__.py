"""Geometry problems whose text, drawing, answer and solution are verified to agree."""

from typing import TYPE_CHECKING, Any

from assay.errors import MissingPart

try:
    from .checks import verify
    from .constructions import seed_of
    from .dataset import read_dataset, write_dataset
    from .deduction import Deduction, Derivation, deduce
    from .environment import GeoEnv
    from .figure import Construction, Fact, Given, InconsistentSeed, Rejected, Seed, Target
    from .grading import Answer, grade, reward_func
    from .image import Style, render
    from .making import generate, pose, realise
    from .problem import Checks, Problem, Step
    from .read import read_code
    from .scene import Mark, ParseError, Scene
    from .score import CodeScore, score_code
except ModuleNotFoundError as error:
    raise MissingPart(f"geocode needs {error.name}", "python -m pip install 'assay[geometry]'") from error

if TYPE_CHECKING:
    from .align_data import AlignItems, align_items
    from .align_net import AlignNet, AlignShape
    from .align_training import score_read, train_align

__all__ = [
    "AlignItems",
    "AlignNet",
    "AlignShape",
    "Answer",
    "Checks",
    "CodeScore",
    "Construction",
    "Deduction",
    "Derivation",
    "Fact",
    "GeoEnv",
    "Given",
    "InconsistentSeed",
    "Mark",
    "ParseError",
    "Problem",
    "Rejected",
    "Scene",
    "Seed",
    "Step",
    "Style",
    "Target",
    "align_items",
    "deduce",
    "generate",
    "grade",
    "pose",
    "read_code",
    "read_dataset",
    "realise",
    "render",
    "reward_func",
    "score_code",
    "score_read",
    "seed_of",
    "train_align",
    "verify",
    "write_dataset",
]

_LEARNER = {
    "AlignItems": "align_data",
    "AlignNet": "align_net",
    "AlignShape": "align_net",
    "align_items": "align_data",
    "score_read": "align_training",
    "train_align": "align_training",
}


def __getattr__(name: str) -> Any:
    """The small learner needs torch, and all else does not."""
    if name not in _LEARNER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_LEARNER[name]}"), name)
    except ModuleNotFoundError as error:
        raise MissingPart(f"{name} needs {error.name}", "python -m pip install 'assay[geometry-study]'") from error
