"""Learn a classifier of single rows from the class proportions of groups."""

from assay.errors import MissingPart

try:
    from .estimator import LLPFlowClassifier
    from .flow import AnchorFlow
    from .losses import bag_loss
    from .proportions import BagKFold, make_bags, proportions_from_counts
    from .transport import transport_to_bag
except ModuleNotFoundError as error:
    raise MissingPart(f"llp-flow needs {error.name}", "python -m pip install 'assay[torch,ot]'") from error

__all__ = [
    "AnchorFlow",
    "BagKFold",
    "LLPFlowClassifier",
    "bag_loss",
    "make_bags",
    "proportions_from_counts",
    "transport_to_bag",
]
