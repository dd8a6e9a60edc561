"""The mean without the tails."""

from trimmed_mean.location import trimmed_mean

__all__ = ["trimmed_mean"]
