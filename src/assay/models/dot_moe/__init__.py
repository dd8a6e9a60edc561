"""Cut a dense language model's feed-forward layers into experts, learning the cut."""

from assay.errors import MissingPart

try:
    from .checkpoint import Conversion, load, save
    from .comparison import active_parameters, report, set_top_k
    from .config import DotMoEConfig
    from .conversion import convert
    from .dense import DenseFFN
    from .errors import ConversionError, UnsupportedModelError
    from .ffn import DotMoEFFN
    from .layer_stage import convert_layer
except ModuleNotFoundError as error:
    raise MissingPart(f"dot-moe needs {error.name}", "python -m pip install 'assay[models]'") from error

__all__ = [
    "Conversion",
    "ConversionError",
    "DenseFFN",
    "DotMoEConfig",
    "DotMoEFFN",
    "UnsupportedModelError",
    "active_parameters",
    "convert",
    "convert_layer",
    "load",
    "report",
    "save",
    "set_top_k",
]
