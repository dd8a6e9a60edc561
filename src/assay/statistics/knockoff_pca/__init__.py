"""PCA that finds and removes a hidden mean shift."""

from .estimator import KnockoffPCA
from .spectrum import KnockoffSpectrum, knockoff_spectrum
from .theory import predicted_alignment, spiked_count

__all__ = ["KnockoffPCA", "KnockoffSpectrum", "knockoff_spectrum", "predicted_alignment", "spiked_count"]
