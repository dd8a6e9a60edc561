"""The loss of several modalities at once, with its gradient in closed form: less work than what autograd records.

With c the centred columns, s their standard deviation (divisor N), a = c/(s + ε), C = aᵀa/(N − 1) + εI and
G = ∂L_spec/∂a = −2/(D(N − 1)) a C⁻¹, the chain rule gives

    ∂L_spec/∂c = G/(s + ε) − c · (Σ_n G a)/((s + ε) N s),        ∂L_marg/∂c = −c · [sd < γ]/(sd · D(N − 1)),

and the gradient by z is that by c less its mean over the rows. Where N ≤ D, a C⁻¹ = K⁻¹ a with K = aaᵀ/(N − 1) + εI.
There the vector of ones is an eigenvector of K with the eigenvalue ε, since the columns of a are centred. It is lifted
to 1 + ε, which changes log det by a known number and K⁻¹ a not at all: in float32 an eigenvalue of 1e-4 beside large
ones would have few digits.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .losses import mer


def entropy_losses(
    z: Float[Tensor, "m n d"], gamma: float, eps: float, w_marg: float, w_spec: float
) -> Float[Tensor, " m"]:
    """:func:`~assay.learning.mer_dg.mer_loss` of each of m matrices in float32 or float64, n ≥ 2 and d ≥ 1.

    NaN where a matrix is not finite, or its squares are not.
    """
    return _Entropy.apply(z, gamma, eps, w_marg, w_spec)


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, gamma: float, eps: float, w_marg: float, w_spec: float) -> Tensor:
        with torch.autocast(z.device.type, enabled=False):
            losses, gradient = _value_and_gradient(z, gamma, eps, w_marg, w_spec, ctx.needs_input_grad[0])
        if gradient is not None:
            ctx.save_for_backward(z, gradient)
            ctx.parameters = (gamma, eps, w_marg, w_spec)
        return losses

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        z, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of this gradient is wanted: of what autograd records there is one
            plain = torch.stack([mer(one, *ctx.parameters) for one in z.unbind()])
            (recorded,) = torch.autograd.grad(plain, z, outer[0], create_graph=True)
            return recorded, None, None, None, None
        return gradient * outer[0][:, None, None], None, None, None, None


def _value_and_gradient(
    z: Tensor, gamma: float, eps: float, w_marg: float, w_spec: float, wanted: bool
) -> tuple[Tensor, Tensor | None]:
    _, n, d = z.shape
    c = z - z.mean(dim=1, keepdim=True)
    variance = torch.linalg.vecdot(c, c, dim=1).div_(n).unsqueeze(1)  # (m, 1, d)
    sd = torch.add(eps, variance, alpha=n / (n - 1)).sqrt_()
    gap = (gamma - sd).clamp_(min=0)
    # Zero times infinity is NaN: no finite loss of features whose squares are not.
    losses = gap.sum(dim=(1, 2)).mul_(w_marg / d).add_(variance.sum(dim=(1, 2)), alpha=0)
    # What both halves multiply the centred columns by.
    factor = (gap > 0) / sd.mul_(d * (n - 1) / w_marg) if w_marg else None
    if not w_spec:
        return losses, -c * factor if factor is not None and wanted else (torch.zeros_like(c) if wanted else None)
    s = variance.sqrt()
    inverse = (s + eps).reciprocal_()
    a = c * inverse
    log_det, solved = _log_det_and_solution(a, eps, wanted)
    losses = losses.add_(log_det, alpha=-w_spec / d)
    if solved is None:
        return losses, None
    g = solved.mul_(-2 * w_spec / (d * (n - 1)))
    # A constant column is 0 after centring, so that what it is divided by does not matter.
    along = torch.linalg.vecdot(g, a, dim=1).unsqueeze(1).mul_(inverse).div_(s.mul_(n).clamp_(min=1e-30))
    factor = along if factor is None else along.add_(factor)
    g.mul_(inverse).addcmul_(c, factor, value=-1)
    return losses, g.sub_(g.mean(dim=1, keepdim=True))


def _log_det_and_solution(a: Tensor, eps: float, wanted: bool) -> tuple[Tensor, Tensor | None]:
    """log det(aᵀa/(n − 1) + εI) of each matrix, and a times its inverse."""
    n, d = a.shape[1:]
    dual = n <= d
    gram = torch.matmul(a, a.mT) if dual else torch.matmul(a.mT, a)
    gram.div_(n - 1).diagonal(dim1=1, dim2=2).add_(eps)
    if dual:
        gram.add_(1 / n)
    lower, info = torch.linalg.cholesky_ex(gram)
    if not info.any():
        log_det = lower.diagonal(dim1=1, dim2=2).log().sum(dim=1).mul_(2)
        inverse = torch.cholesky_inverse(lower) if wanted else None
    elif not bool(torch.isfinite(gram).all()):
        nan = torch.full_like(gram[:, 0, 0], math.nan)
        return nan, torch.zeros_like(a) if wanted else None
    else:
        # Rounding left no positive definite matrix: none of its eigenvalues is below ε in truth.
        values, vectors = torch.linalg.eigh(gram)
        inside = values > eps
        values = values.clamp(min=eps)
        log_det = values.log().sum(dim=1)
        inverse = (vectors * (inside / values)[:, None, :]) @ vectors.mT if wanted else None
    if dual:
        log_det = log_det + (d - n + 1) * math.log(eps) - math.log1p(eps)
    if inverse is None:
        return log_det, None
    return log_det, torch.matmul(inverse, a) if dual else torch.matmul(a, inverse)
