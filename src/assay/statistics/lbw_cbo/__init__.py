"""LBW-CBO: the best Gaussian approximation of a distribution with many peaks, without gradients."""

from .bridges import log_density_from_pyro, log_density_from_torch
from .estimator import LBWCBO
from .measure import GaussianMeasure, lbw_distance

__all__ = ["LBWCBO", "GaussianMeasure", "lbw_distance", "log_density_from_pyro", "log_density_from_torch"]
