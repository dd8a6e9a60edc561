"""Geometry problems whose text, drawing, answer and solution are verified to agree."""

from assay.errors import MissingPart

try:
    from .checks import verify
    from .constructions import seed_of
    from .dataset import read_dataset, write_dataset
    from .deduction import Deduction, Derivation, deduce
    from .figure import Construction, Fact, Given, InconsistentSeed, Rejected, Seed, Target
    from .grading import Answer, grade, reward_func
    from .image import render
    from .making import generate, realise
    from .problem import Checks, Problem, Step
    from .read import read_code
    from .scene import Mark, ParseError, Scene
    from .score import CodeScore, score_code
except ModuleNotFoundError as error:
    raise MissingPart(f"geocode needs {error.name}", "python -m pip install 'assay[geometry]'") from error

__all__ = [
    "Answer",
    "Checks",
    "CodeScore",
    "Construction",
    "Deduction",
    "Derivation",
    "Fact",
    "Given",
    "InconsistentSeed",
    "Mark",
    "ParseError",
    "Problem",
    "Rejected",
    "Scene",
    "Seed",
    "Step",
    "Target",
    "deduce",
    "generate",
    "grade",
    "read_code",
    "read_dataset",
    "realise",
    "render",
    "reward_func",
    "score_code",
    "seed_of",
    "verify",
    "write_dataset",
]
