"""The terms of the loss: energy of prototypes, agreement of two views, entropy of the mean, distillation."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from assay.errors import InputError

__all__ = ["js_consistency", "logit_adjusted_distillation", "mean_entropy", "semantic_exploration_energy"]

MOST_PROTOTYPES = 5000
"""Up to so many prototypes all pairs count; beyond, each sees a sample of ``NEIGHBOURS``."""

NEIGHBOURS = 2000


def semantic_exploration_energy(
    prototypes: Float[Tensor, "classes dim"], temperature: float = 0.2, generator: torch.Generator | None = None
) -> Float[Tensor, ""]:
    """Energy that is low where prototypes stay softly linked to others, and 0 where all are orthogonal.

    SEE(C) = −(t/K) Σ_k log[ (1/(K−1)) Σ_{j≠k} exp(c_k·c_j / t) ] with rows c of length 1. It lies between −1 and 1. One
    prototype has energy 0.

    Parameters
    ----------
    prototypes
        (K, d) of any scale, floating; a row of zeros is orthogonal to all.
    temperature
        t > 0: how much the nearest prototypes outweigh the others; default 0.2.
    generator
        With more than 5 000 prototypes each is compared with the same random 2 000, drawn by this generator (on the
        CPU; ``None``: torch's own).

    Returns
    -------
    A scalar with a gradient, of the prototypes' dtype.

    Raises
    ------
    InputError
        If the prototypes are no floating matrix or the temperature is not positive.

    Notes
    -----
    The source names the energy; this form of it is a decision (see the card).

    Examples
    --------
    >>> round(abs(float(semantic_exploration_energy(torch.eye(3)))), 6)
    0.0
    """
    if (
        not isinstance(prototypes, Tensor)
        or prototypes.ndim != 2
        or not prototypes.is_floating_point()
        or len(prototypes) == 0
    ):
        raise InputError(f"prototypes must be a floating (K, d) matrix, got {_shape(prototypes)}")
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature must be positive and finite, got {temperature}")
    k = len(prototypes)
    if k == 1:
        return 0.0 * prototypes.sum()  # no other prototype; a zero with a gradient
    rows = F.normalize(prototypes, dim=1)
    if k <= MOST_PROTOTYPES:
        columns, own = rows, torch.arange(k, device=rows.device)
    else:
        sample = torch.randperm(k, generator=generator)[:NEIGHBOURS].to(rows.device)
        columns = rows[sample]
        own = torch.full((k,), -1, device=rows.device)
        own[sample] = torch.arange(NEIGHBOURS, device=rows.device)
    scaled = rows @ columns.T / temperature
    has_own = own >= 0
    itself = F.one_hot(own.clamp_min(0), len(columns)).bool() & has_own[:, None]
    others = len(columns) - has_own.to(scaled.dtype)
    energy = torch.logsumexp(scaled.masked_fill(itself, -torch.inf), dim=1) - others.log()
    return -temperature * energy.mean()


def js_consistency(
    logits_a: Float[Tensor, "batch classes"], logits_b: Float[Tensor, "batch classes"]
) -> Float[Tensor, ""]:
    """Jensen–Shannon divergence of the predictions for two views, in nats: 0 where they agree, at most log 2.

    JS = H((p_a + p_b)/2) − (H(p_a) + H(p_b))/2 with p = softmax(logits), averaged over the batch.

    Parameters
    ----------
    logits_a, logits_b
        (batch, K) floating, of the two views; the order of the views does not matter.

    Raises
    ------
    InputError
        If the shapes differ or are no matrices.

    Examples
    --------
    >>> one, other = torch.tensor([[99.0, 0.0]]), torch.tensor([[0.0, 99.0]])
    >>> round(float(js_consistency(one, other)), 4)
    0.6931
    """
    _same_matrices("logits_a", logits_a, "logits_b", logits_b)
    log_a, log_b = F.log_softmax(logits_a, dim=1), F.log_softmax(logits_b, dim=1)
    log_mean = torch.logaddexp(log_a, log_b) - torch.log(torch.tensor(2.0, dtype=log_a.dtype, device=log_a.device))
    # The same as the difference of entropies, term by term: a divergence of either view from their mean.
    apart = log_a.exp() * (log_a - log_mean) + log_b.exp() * (log_b - log_mean)
    return apart.sum(dim=1).mean() / 2


def mean_entropy(probs: Float[Tensor, "batch classes"]) -> Float[Tensor, ""]:
    """Entropy of the mean prediction, in nats: high where the batch is spread over all classes, 0 where it is in one.

    Parameters
    ----------
    probs
        (batch, K) rows of probabilities.

    Raises
    ------
    InputError
        If ``probs`` is no matrix with a row.

    Examples
    --------
    >>> round(float(mean_entropy(torch.eye(4))), 4)  # log 4
    1.3863
    """
    if not _is_matrix(probs):
        raise InputError(f"probs must be a floating (batch, K) matrix with a row, got {_shape(probs)}")
    return torch.special.entr(probs.mean(dim=0)).sum()


def logit_adjusted_distillation(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    log_prior: Float[Tensor, " classes"],
    *,
    t_student: float = 1.0,
    t_teacher: float = 0.4,
    strength: float = 1.0,
) -> Float[Tensor, ""]:
    """Cross-entropy of the student with a sharpened teacher from which the classes' running shares are taken out.

    CE(q, softmax(student / t_student)) with q = softmax((teacher − strength·log π) / t_teacher), which is constant: no
    gradient reaches the teacher. A class that takes more rows than others is held back.

    Parameters
    ----------
    student_logits, teacher_logits
        (batch, K) floating, of two views of the same rows.
    log_prior
        (K,) log of the share π of each class; finite, so clamp shares of 0 first.
    t_student, t_teacher
        Temperatures relative to the logits; a teacher below the student sharpens.
    strength
        0 is plain self-distillation.

    Raises
    ------
    InputError
        If shapes differ, the prior or the strength is not finite, or a temperature is not positive.
    """
    _same_matrices("student_logits", student_logits, "teacher_logits", teacher_logits)
    if log_prior.shape != student_logits.shape[1:]:
        raise InputError(f"log_prior must have shape ({student_logits.shape[1]},), got {_shape(log_prior)}")
    if not torch.isfinite(log_prior).all():
        raise InputError("log_prior must be finite: clamp shares of 0 before the logarithm")
    if not math.isfinite(strength):
        raise InputError(f"strength must be finite, got {strength}")
    if not (t_student > 0 and t_teacher > 0):
        raise InputError(f"t_student and t_teacher must be positive, got {t_student} and {t_teacher}")
    target = F.softmax((teacher_logits.detach() - strength * log_prior.detach()) / t_teacher, dim=1)
    return -(target * F.log_softmax(student_logits / t_student, dim=1)).sum(dim=1).mean()


def _same_matrices(name_a: str, a: Tensor, name_b: str, b: Tensor) -> None:
    if not _is_matrix(a) or not _is_matrix(b) or a.shape != b.shape:
        raise InputError(
            f"{name_a} and {name_b} must be floating, (batch, K) and alike, got {_shape(a)} and {_shape(b)}"
        )


def _is_matrix(tensor: Tensor) -> bool:
    return isinstance(tensor, Tensor) and tensor.is_floating_point() and tensor.ndim == 2 and len(tensor) > 0


def _shape(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
