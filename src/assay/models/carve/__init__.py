"""CARvE: a router over a catalogue of models or tools that keeps learning as the catalogue grows."""

from assay.errors import MissingPart

try:
    from .metrics import forgetting, route_accuracy, route_report
    from .router import Buffer, CarveRouter
    from .stream import ContinualStream, Experience
except ModuleNotFoundError as error:
    raise MissingPart(f"carve needs {error.name}", "python -m pip install 'assay[models]'") from error

__all__ = [
    "Buffer",
    "CarveRouter",
    "ContinualStream",
    "Experience",
    "forgetting",
    "route_accuracy",
    "route_report",
]
