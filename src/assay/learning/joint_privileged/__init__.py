"""Coupled training: use measurements that exist at training time only, without being misled by them."""

from .classifier import CoupledClassifier
from .folds import LabelledKFold
from .regressor import CoupledRegressor
from .ridge import coupled_ridge

__all__ = ["CoupledClassifier", "CoupledRegressor", "LabelledKFold", "coupled_ridge"]
