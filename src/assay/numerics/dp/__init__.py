"""Differential privacy: budgets and what they are worth, mechanisms that spend them, audits that try to break them."""

from .audits import Audit, audit_outputs, clopper_pearson, epsilon_lower_bound, one_run_epsilon
from .budget import BudgetError, Entry, Ledger, epsilon_of, repeated_epsilon, repeated_rho, rho_of
from .mechanisms import (
    exponential_mechanism,
    exponential_probabilities,
    gaussian_mechanism,
    gaussian_sigma,
    laplace_mechanism,
    secret_generator,
)

__all__ = [
    "Audit",
    "BudgetError",
    "Entry",
    "Ledger",
    "audit_outputs",
    "clopper_pearson",
    "epsilon_lower_bound",
    "epsilon_of",
    "exponential_mechanism",
    "exponential_probabilities",
    "gaussian_mechanism",
    "gaussian_sigma",
    "laplace_mechanism",
    "one_run_epsilon",
    "repeated_epsilon",
    "repeated_rho",
    "rho_of",
    "secret_generator",
]
