"""Losses that keep a feature distribution rich: no dimension dies, and none copies another.

The entropy of a Gaussian with the covariance Σ = Λ C Λ (Λ the standard deviations, C the correlations) is, up to
constants, ½ log det Σ = Σ_d log σ_d + ½ log det C. Each half has a loss of its own here: a floor under the σ_d, and
−log det C.
"""

from __future__ import annotations

import math
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from assay.errors import InputError
from assay.numerics.logdet import logdet_gram

LARGEST = {torch.float32: 1e16, torch.float64: 1e150}
"""Squares of larger features, summed over a batch, would not be finite."""


def marginal_entropy_loss(z: Float[Tensor, "n d"], *, gamma: float = 1.0, eps: float = 1e-4) -> Float[Tensor, ""]:
    """The floor under every dimension's standard deviation: mean over d of max(0, γ − √(var_d + ε)).

    Zero once every standard deviation is at least γ; it never pulls one down.

    Parameters
    ----------
    z
        (N, D) features of any floating dtype; half precision is computed in float32.
    gamma
        The floor γ, in the features' own unit, positive.
    eps
        ε, added to the variance (divisor N − 1), positive.

    Returns
    -------
    A scalar of float32, or float64 where z is. Exactly 0, still part of the graph, where N < 2 or D < 1: one row has
    no variance.

    Raises
    ------
    ValueError
        If z is no matrix of finite floating-point numbers, or γ or ε is not positive.

    Notes
    -----
    Source: Yarici and AlRegib, "MER-DG: Modality-Entropy Regularization for Multimodal Domain Generalization",
    arXiv 2605.01967.

    Examples
    --------
    >>> round(float(marginal_entropy_loss(torch.tensor([[1.0, 2, 0], [3, 4, 1], [5, 0, -1], [-1, 1, 0.5]]))), 4)
    0.0487
    """
    check_positive("gamma", gamma)
    check_positive("eps", eps)
    return _marginal(checked(z), gamma, eps)


def spectral_entropy_loss(z: Float[Tensor, "n d"], *, eps: float = 1e-4) -> Float[Tensor, ""]:
    """How far the dimensions are from uncorrelated: −(1/D) log det(C + εI), C their correlations in the batch.

    Least where C = I. Columns are centred and divided by their standard deviation (divisor N) plus ε, and C has the
    divisor N − 1. Where N < D the N × N side of the problem is solved, which has the same value and gradient.

    Parameters
    ----------
    z
        (N, D) features of any floating dtype; half precision is computed in float32.
    eps
        ε, positive. It bounds the loss: a dimension that is constant, or a copy of another, adds log(1/ε)/D.

    Returns
    -------
    A scalar of float32, or float64 where z is. Exactly 0, still part of the graph, where N < 2 or D < 1. A constant
    column has a gradient of zero here, and so has it in :func:`marginal_entropy_loss`: nothing says which way out.

    Raises
    ------
    ValueError
        If z is no matrix of finite floating-point numbers, or ε is not positive.

    Examples
    --------
    >>> round(float(spectral_entropy_loss(torch.tensor([[1.0, 2, 0], [3, 4, 1], [5, 0, -1], [-1, 1, 0.5]]))), 4)
    0.5
    """
    check_positive("eps", eps)
    return _spectral(checked(z), eps)


def mer_loss(
    z: Float[Tensor, "n d"], *, gamma: float = 1.0, eps: float = 1e-4, w_marg: float = 1.0, w_spec: float = 1.0
) -> Float[Tensor, ""]:
    """The loss of one modality: ``w_marg`` · marginal + ``w_spec`` · spectral entropy loss.

    Parameters
    ----------
    z, gamma, eps
        As in :func:`marginal_entropy_loss` and :func:`spectral_entropy_loss`.
    w_marg, w_spec
        Weights, not negative; with 0 that half is not computed.

    Returns
    -------
    A scalar of float32, or float64 where z is.

    Raises
    ------
    ValueError
        If z is no matrix of finite floating-point numbers, or another argument is out of range.
    """
    check_parameters(gamma, eps, w_marg, w_spec)
    return mer(checked(z), gamma, eps, w_marg, w_spec)


def mer(z: Float[Tensor, "n d"], gamma: float, eps: float, w_marg: float, w_spec: float) -> Float[Tensor, ""]:
    """:func:`mer_loss` of features and parameters that are checked already."""
    loss = z.new_zeros(())
    if w_marg:
        loss = loss + w_marg * _marginal(z, gamma, eps)
    if w_spec:
        loss = loss + w_spec * _spectral(z, eps)
    return loss


def check_parameters(gamma: float, eps: float, w_marg: float, w_spec: float) -> None:
    """Raise ``InputError`` where one is out of range."""
    check_positive("gamma", gamma)
    check_positive("eps", eps)
    check_not_negative("w_marg", w_marg)
    check_not_negative("w_spec", w_spec)


def check_positive(name: str, value: float) -> None:
    """Raise ``InputError`` unless it is a finite number above 0."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number above 0, got {value!r}")


def check_not_negative(name: str, value: float) -> None:
    """Raise ``InputError`` unless it is a finite number of at least 0."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a finite number of at least 0, got {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)  # NumPy's numbers too


def checked(z: Tensor, name: str = "z") -> Float[Tensor, "n d"]:
    """Return the features in float32 or float64, or raise ``InputError`` that says what is wrong with ``name``."""
    if not isinstance(z, Tensor):
        raise InputError(f"{name} must be a torch tensor, got {type(z).__name__}")
    if not z.is_floating_point():
        raise InputError(f"{name} must hold floating-point numbers, got {z.dtype}")
    if z.ndim != 2:
        raise InputError(f"{name} must have two dimensions (rows, features), got shape {tuple(z.shape)}")
    wide = z if z.dtype in LARGEST else z.float()
    # To look at values stops a compiled graph, so that there nobody looks.
    if wide.numel() and not torch.compiler.is_compiling():
        largest = float(wide.detach().abs().amax())
        if not math.isfinite(largest):
            raise InputError(f"{name} holds NaN or infinity")
        if largest > LARGEST[wide.dtype]:
            raise InputError(f"{name} holds numbers up to {largest:.1e}, too large for their squares in {wide.dtype}")
    return wide


def _marginal(z: Float[Tensor, "n d"], gamma: float, eps: float) -> Float[Tensor, ""]:
    if says_nothing(z):
        return z.sum() * 0
    return torch.relu(gamma - (z.var(dim=0) + eps).sqrt()).mean()


def _spectral(z: Float[Tensor, "n d"], eps: float) -> Float[Tensor, ""]:
    if says_nothing(z):
        return z.sum() * 0
    n, d = z.shape
    centred = z - z.mean(dim=0)
    variance = centred.square().mean(dim=0)
    # The root has no gradient at 0, and none is needed there: the centred column that it would scale is 0 as well.
    constant = variance == 0
    sd = variance.masked_fill(constant, 1).sqrt().masked_fill(constant, 0)
    return -logdet_gram(centred / ((sd + eps) * math.sqrt(n - 1)), eps) / d


def says_nothing(z: Tensor) -> bool:
    """Whether there are too few rows or columns for a variance."""
    return z.shape[0] < 2 or z.shape[1] < 1
