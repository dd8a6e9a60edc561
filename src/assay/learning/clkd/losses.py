"""The composite likelihood with a teacher as a loss for networks."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from assay.errors import InputError

from .components import Components
from .outcome import number


def composite_kd_loss(
    risk: Float[Tensor, "n ..."],
    components: Components,
    teacher_risk: Float[Tensor, "n ..."] | None = None,
    eta: float = 1.0,
) -> Float[Tensor, ""]:
    """Return the mean over components of the cross entropy between a target and the model.

    The target of a component is (1[case] + eta p) / (1 + eta), with p the softmax of the teacher's scores over its
    members; of the model it is the softmax of ``risk``. Up to a constant this is
    [−log q(case) + eta KL(p ‖ q)] / (1 + eta); without a teacher or with eta = 0 it is the negative log likelihood.

    Parameters
    ----------
    risk
        (n,) or (n, 1) scores of a module, a larger one for an earlier event. Half precision is computed in float32.
    components
        Sets among these n rows, of :func:`make_components`.
    teacher_risk
        (n,), or (n, T) of several teachers, whose p are averaged.
    eta
        How much the teacher counts, from 0 to ``inf`` (it alone).

    Raises
    ------
    InputError
        When shapes do not agree, ``components`` names a row that is not there, ``eta`` is negative, or a score is NaN
        or infinite.

    Notes
    -----
    Source: "Component-Wise Composite Likelihood Distillation for Censored Time-to-Event Data", ICML 2026.

    Examples
    --------
    >>> from assay.learning.clkd import make_components
    >>> sets = make_components([1, 0, 1, 0], [1.0, 2.0, 3.0, 4.0], kind="risk_set")
    >>> composite_kd_loss(torch.zeros(4), sets)  # mean of log 4 and log 2
    tensor(1.0397)
    """
    number("eta", eta, 0, infinite=True)
    r = _scores(risk, "risk")
    if r.shape[1] != 1:
        raise InputError(f"risk must have shape (n,) or (n, 1), got {tuple(risk.shape)}")
    listed, weights = _listed(components)
    index = torch.as_tensor(listed, device=r.device)
    if index.min() < -1 or (index[:, 0] < 0).any() or index.max() >= len(r):
        raise InputError(
            f"components must number the rows of risk, 0 to {len(r) - 1}, with the case first; they go from "
            f"{int(index[:, 0].min())} to {int(index.max())}. Build them from the rows of the batch"
        )
    absent = index < 0
    weight = torch.as_tensor(weights, dtype=r.dtype, device=r.device)
    log_q = _log_softmax(r[:, 0], index, absent)
    target = torch.zeros_like(log_q)
    target[:, 0] = 1.0
    if teacher_risk is not None and eta > 0:
        t = _scores(teacher_risk, "teacher_risk").to(r.device).detach()
        if len(t) != len(r):
            raise InputError(f"teacher_risk has {len(t)} rows and risk has {len(r)}; they must agree")
        p = torch.stack([_log_softmax(column, index, absent).exp() for column in t.T.to(r.dtype)]).mean(0)
        target = p if math.isinf(eta) else (target + eta * p) / (1 + eta)
    # Where there is no member, log q is −inf and the target 0.
    entropy = -(target * log_q.masked_fill(absent, 0.0)).sum(1)
    return (weight * entropy).sum() / weight.sum()


class CompositeKDLoss(nn.Module):
    """:func:`composite_kd_loss` as a module, with its ``eta``."""

    def __init__(self, eta: float = 1.0) -> None:
        super().__init__()
        number("eta", eta, 0, infinite=True)
        self.eta = eta

    def forward(
        self,
        risk: Float[Tensor, "n ..."],
        components: Components,
        teacher_risk: Float[Tensor, "n ..."] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the loss."""
        return composite_kd_loss(risk, components, teacher_risk, self.eta)

    def extra_repr(self) -> str:
        """Show eta."""
        return f"eta={self.eta}"


def _listed(components: Components) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows (K, M) and weights (K,) of components that a user may have made."""
    if not isinstance(components, Components):
        raise InputError(f"components must be Components, of make_components, got {type(components).__name__}")
    index, weight = np.asarray(components.index), np.asarray(components.weight)
    if index.ndim != 2 or 0 in index.shape:
        raise InputError("components must hold at least one set")
    if index.dtype.kind not in "iu":
        raise InputError(f"components.index must be whole numbers, got {index.dtype}")
    if weight.shape != (len(index),) or weight.dtype.kind not in "fiu":
        raise InputError(f"components.weight must be a number for each of the {len(index)} sets, got {weight.shape}")
    if not np.isfinite(weight).all() or (weight < 0).any() or not weight.any():
        raise InputError("components.weight must be finite, not negative and not all zero")
    return index.astype(np.int64), weight.astype(np.float64)


def _scores(values: Tensor, name: str) -> Tensor:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.ndim not in (1, 2):
        what = f"{tuple(values.shape)} of {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} must be a tensor of floats (n,) or (n, k), got {what}")
    if values.ndim == 2 and values.shape[1] == 0:
        raise InputError(f"{name} must have at least one column, got shape {tuple(values.shape)}")
    if not torch.isfinite(values).all():
        raise InputError(f"{name} has NaN or infinity in it")
    values = values[:, None] if values.ndim == 1 else values
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def _log_softmax(r: Tensor, index: Tensor, absent: Tensor) -> Tensor:
    return torch.log_softmax(r[index.clamp(min=0)].masked_fill(absent, -math.inf), dim=1)
