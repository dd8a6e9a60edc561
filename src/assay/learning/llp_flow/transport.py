"""Exact transport between the rows of a bag and anchors that are weighted by the bag's proportions."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.numerics.transport import exact_plan

FloatArray = NDArray[np.float64]

LARGEST = 1e150
"""Squares of larger numbers overflow."""


def transport_to_bag(
    Z: Any,
    anchors: Any,
    anchor_labels: Any,
    proportion: Any,
    label_cost: float = 0.0,
    z_labels: Any = None,
    *,
    scale: float = 1.0,
) -> tuple[float, FloatArray]:
    r"""Cost of the transport from a bag to the anchors weighted by its proportions, and its gradient.

    Rows weigh :math:`1/n`, anchors :math:`b_j = \pi_{y_j} / A_{y_j}`, where :math:`A_k` anchors have class k; moving
    row i to anchor j costs :math:`M_{ij} = \|z_i - a_j\|^2 / s^2`, and ``label_cost`` more where the row's predicted
    class is another. With the plan G held constant the gradient for anchor j is
    :math:`2 (b_j a_j - \sum_i G_{ij} z_i) / s^2`. Anchors of a class that the bag does not have do not move.

    Parameters
    ----------
    Z
        (n, d) features of the bag's rows, array or tensor.
    anchors
        (m, d).
    anchor_labels
        (m,) int, the class of each.
    proportion
        (K,), sums to 1.
    label_cost
        Added where the classes differ; default 0.
    z_labels
        (n,) int, predicted classes; needed where ``label_cost`` is positive.
    scale
        s, the unit of length; default 1.

    Returns
    -------
    cost : float
    grad : (m, d) float64

    Raises
    ------
    InputError
        For shapes that do not fit, numbers that are not finite, a class that the bag has and no anchor, or a
        ``label_cost`` without ``z_labels``.

    References
    ----------
    Rakotomamonjy, Vono, Ralaivola, "Particle Flow for Learning from Label Proportions", ICML 2026.

    Examples
    --------
    >>> cost, grad = transport_to_bag([[0.0], [1.0]], [[-1.0], [0.2], [0.8], [3.0]], [0, 0, 1, 1], [0.5, 0.5])
    >>> round(cost, 6), grad.ravel().round(6).tolist()
    (1.27, [-0.5, 0.1, -0.1, 1.0])
    """
    rows, points, pi = _floats("Z", Z, 2), _floats("anchors", anchors, 2), _floats("proportion", proportion, 1)
    labels = whole_labels("anchor_labels", anchor_labels)
    if rows.shape[1] != points.shape[1] or len(rows) == 0:
        raise InputError(f"Z and anchors must be (n, d) and (m, d) with n ≥ 1, got {rows.shape} and {points.shape}")
    if labels.shape != (len(points),) or (len(labels) and not 0 <= labels.min() <= labels.max() < len(pi)):
        raise InputError(f"anchor_labels must be {len(points)} classes in 0 … {len(pi) - 1}, got shape {labels.shape}")
    if (pi < 0).any() or abs(pi.sum() - 1) > 1e-3:
        raise InputError(f"proportion must not be negative and must sum to 1, got {pi.tolist()}")
    for name, value in (("scale", scale), ("label_cost", label_cost)):
        if isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(value) or value < 0:
            raise InputError(f"{name} must be a finite number, not negative, got {value!r}")
    if scale == 0:
        raise InputError("scale must be positive, got 0")
    if max(np.abs(rows).max(), np.abs(points).max(initial=0.0)) / scale > LARGEST:
        raise InputError(f"Z and anchors must lie within {LARGEST:g} scales of 0: their squared distances overflow")
    count = np.bincount(labels, minlength=len(pi))
    if ((pi > 0) & (count == 0)).any():
        raise InputError(f"class {int(np.argmax((pi > 0) & (count == 0)))} has a share of the bag and no anchor")
    if label_cost > 0 and z_labels is None:
        raise InputError("label_cost needs z_labels, the predicted class of each row")
    predicted = None if z_labels is None else whole_labels("z_labels", z_labels)
    if predicted is not None and predicted.shape != (len(rows),):
        raise InputError(f"z_labels must be {len(rows)} classes, one a row, got shape {predicted.shape}")
    weights = pi[labels] / np.maximum(count[labels], 1) / pi.sum()
    return plan_and_gradient(rows, points, labels, weights, label_cost, predicted, scale)


def plan_and_gradient(
    Z: FloatArray,
    anchors: FloatArray,
    labels: NDArray[np.int64],
    weights: FloatArray,
    label_cost: float,
    z_labels: NDArray[np.int64] | None,
    scale: float,
) -> tuple[float, FloatArray]:
    """:func:`transport_to_bag` for the flow, whose arguments are known to be right."""
    there = np.flatnonzero(weights > 0)  # all others are far cheaper left out than transported nothing to
    points, b = anchors[there], weights[there]
    cost = squared_distances(Z, points) / scale**2
    if label_cost > 0 and z_labels is not None:
        cost += label_cost * (z_labels[:, None] != labels[there][None, :])
    plan = exact_plan(cost, np.full(len(Z), 1 / len(Z)), b)
    grad = np.zeros_like(anchors)
    grad[there] = 2 * (b[:, None] * points - plan.T @ Z) / scale**2
    return float(np.vdot(plan, cost)), grad


def squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    """(n, m) squared Euclidean distances, about a common centre so that little is lost to rounding."""
    centre = a.mean(axis=0)
    a, b = a - centre, b - centre
    squares = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)[None, :] - 2 * (a @ b.T)
    return np.maximum(squares, 0.0, out=squares)


def whole_labels(name: str, given: Any) -> NDArray[np.int64]:
    """Classes as whole numbers; an empty list is none."""
    labels = np.asarray(given.detach().cpu().numpy() if hasattr(given, "detach") else given)
    if labels.size and labels.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, the classes, got the type {labels.dtype}")
    return labels.astype(np.int64)


def _floats(name: str, given: Any, ndim: int) -> FloatArray:
    if hasattr(given, "detach"):
        given = given.detach().cpu().numpy()
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None
    if array.ndim != ndim or not np.isfinite(array).all():
        raise InputError(f"{name} must be finite and have {ndim} dimension(s), got shape {array.shape}")
    return array
