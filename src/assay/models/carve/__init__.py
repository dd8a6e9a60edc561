"""CARvE: a router over a catalogue of models or tools that keeps learning as the catalogue grows."""

from assay.parts.packages import need

for _module in ("torch", "safetensors", "jaxtyping"):
    need(_module, "carve")

from .metrics import forgetting, route_accuracy, route_report  # noqa: E402
from .router import Buffer, CarveRouter  # noqa: E402
from .stream import ContinualStream, Experience  # noqa: E402

__all__ = [
    "Buffer",
    "CarveRouter",
    "ContinualStream",
    "Experience",
    "forgetting",
    "route_accuracy",
    "route_report",
]
