"""Anchors: points with known classes, moved until, weighted by proportions, they look like every bag."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from assay.errors import InputError, one_line

from .transport import plan_and_gradient, whole_labels

FloatArray = NDArray[np.float64]


class AnchorFlow:
    r"""Points in feature space, the same number for each class, that a particle flow moves.

    A step takes one bag. The anchors of class k share :math:`\pi_k`, and move down the gradient of the exact transport
    cost to the bag's rows, plus ``class_term`` times the cross-entropy between what the classifier says of each
    anchor and its class. The step is one of Adam, of size ``lr`` in units of s, the features' standard deviation.

    Parameters
    ----------
    n_classes, per_class, dim
        K classes, A anchors each, d features.
    lr
        Size of a step, in standard deviations of the features; default 0.05.
    class_term
        Weight of the classifier's say; default 1.
    label_cost
        What it costs beside the distance to move a row to an anchor of another class than was predicted; default 0.
    device
        Where the anchors lie; the transport itself is solved on the CPU in float64.
    random_state
        A ``numpy.random.Generator``, or a seed.

    Attributes
    ----------
    anchors : Tensor
        (K·A, d) float32.
    labels : Tensor
        (K·A,) int64, the class of each anchor: A times 0, A times 1, …
    scale : float
        s: the root of the mean variance of the features.
    """

    def __init__(
        self,
        n_classes: int,
        per_class: int,
        dim: int,
        *,
        lr: float = 0.05,
        class_term: float = 1.0,
        label_cost: float = 0.0,
        device: str | torch.device = "cpu",
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        for name, value in (("n_classes", n_classes), ("per_class", per_class), ("dim", dim)):
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        for name, number in (("lr", lr), ("class_term", class_term), ("label_cost", label_cost)):
            if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= number < np.inf:
                raise InputError(f"{name} must be a finite number, not negative, got {number!r}")
        self.lr, self.class_term, self.label_cost = lr, class_term, label_cost
        self.per_class = per_class
        self._labels = np.repeat(np.arange(n_classes), per_class)
        self.labels = torch.as_tensor(self._labels, device=device)
        self.anchors = torch.zeros(n_classes * per_class, dim, device=device)
        self.scale = 1.0
        self.random = np.random.default_rng(random_state)
        self._usable = np.arange(len(self._labels))
        self._moving = torch.ones(len(self.labels), 1, device=device)
        self._optimiser = torch.optim.Adam([self.anchors], lr=lr)

    def init_from(self, Z: Any, probs: Any, present: NDArray[np.bool_] | None = None) -> AnchorFlow:
        """Put the anchors of class k on rows that are drawn in proportion to their predicted share of k.

        Parameters
        ----------
        Z
            (n, d) features of all rows.
        probs
            (n, K) predicted.
        present
            (K,) whether any bag has the class; the anchors of one that none has never move.
        """
        rows, p = _array(Z), _array(probs)
        classes = len(self._labels) // self.per_class
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != self.anchors.shape[1] or p.shape != (len(rows), classes):
            raise InputError(
                f"Z must be (n ≥ 1, {self.anchors.shape[1]}) and probs (n, {classes}), got {rows.shape} and {p.shape}"
            )
        if not np.isfinite(rows).all() or not np.isfinite(p).all() or (p < 0).any():
            raise InputError("Z and probs must be finite, and probs not negative")
        drawn = []
        for k in range(classes):
            total = p[:, k].sum()
            share = p[:, k] / total if total > 0 else None
            drawn.append(self.random.choice(len(rows), self.per_class, p=share))
        return self._place(rows[np.concatenate(drawn)], rows, present)

    def init_noise(self, Z: Any, present: NDArray[np.bool_] | None = None) -> AnchorFlow:
        """Put all anchors into one Gaussian cloud about the mean of the rows, twice as wide as they are.

        That is about the source's start, N(0, 4).

        Parameters
        ----------
        Z, present
            As in :meth:`init_from`.
        """
        rows = _array(Z)
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != self.anchors.shape[1] or not np.isfinite(rows).all():
            raise InputError(f"Z must be finite and (n, {self.anchors.shape[1]}), got {rows.shape}")
        cloud = rows.mean(axis=0) + 2 * _spread(rows) * self.random.standard_normal(self.anchors.shape)
        return self._place(cloud, rows, present)

    def _place(self, points: FloatArray, rows: FloatArray, present: NDArray[np.bool_] | None) -> AnchorFlow:
        self.anchors = torch.as_tensor(points, dtype=torch.float32, device=self.labels.device)
        if present is not None:
            present = np.asarray(present)
            classes = len(self._labels) // self.per_class
            if present.shape != (classes,) or present.dtype.kind != "b" or not present.any():
                raise InputError(f"present must be {classes} times true or false, and true for some class")
            self._usable = np.flatnonzero(present[self._labels])
            self._moving = torch.as_tensor(present[self._labels], device=self.labels.device).float()[:, None]
        self.restart(rows)
        return self

    def restart(self, Z: Any) -> None:
        """Measure s on the features of all rows and forget the momentum: the features have changed."""
        self.scale = _spread(_array(Z))
        self._optimiser = torch.optim.Adam([self.anchors], lr=self.lr * self.scale)

    def step(
        self, Z_bag: Any, proportion: Any, head: Callable[[Tensor], Tensor], z_labels: Any = None
    ) -> dict[str, float]:
        """Move the anchors once.

        Parameters
        ----------
        Z_bag
            (n, d) features of the bag's rows.
        proportion
            (K,), sums to 1.
        head
            Features to logits (K·A, K); its parameters get no gradient that is used.
        z_labels
            (n,) predicted classes of the rows, where ``label_cost`` is positive.

        Returns
        -------
        dict
            ``transport``: the cost of the plan in units of s²; ``class``: the cross-entropy at the anchors.

        Raises
        ------
        InputError
            For rows, shares, classes or logits that do not fit or are not finite, and for a step that is so large that
            the anchors are no longer finite.
        """
        rows, pi = _array(Z_bag), _array(proportion)
        predicted = None if z_labels is None else whole_labels("z_labels", z_labels)
        self._check(rows, pi, predicted)
        points = self.anchors.detach().cpu().numpy().astype(np.float64)
        cost, pull = plan_and_gradient(
            rows, points, self._labels, pi[self._labels] / self.per_class, self.label_cost, predicted, self.scale
        )
        gradient = torch.as_tensor(pull, dtype=torch.float32, device=self.anchors.device)
        said = 0.0
        if self.class_term > 0:
            loss, push = self._classified(head)
            said = float(loss)
            gradient = gradient + self.class_term * push
        # Per standard deviation, so that Adam's epsilon means the same in every unit.
        self.anchors.grad = gradient * self._moving * self.scale
        self._optimiser.step()
        self.anchors.grad = None
        if not bool(self.anchors.isfinite().all()):
            raise InputError(
                f"the flow's lr={self.lr:g} (flow_lr) or class_term={self.class_term:g} is too large: the anchors are "
                "no longer finite"
            )
        return {"transport": cost, "class": said}

    def _check(self, rows: FloatArray, pi: FloatArray, predicted: NDArray[np.int64] | None) -> None:
        """Refuse a bag that cannot be transported."""
        dim, classes = self.anchors.shape[1], len(self._labels) // self.per_class
        if rows.ndim != 2 or not len(rows) or rows.shape[1] != dim or not np.isfinite(rows).all():
            raise InputError(f"Z_bag must be finite and (n ≥ 1, {dim}), got shape {rows.shape}")
        if pi.shape != (classes,) or not np.isfinite(pi).all() or (pi < 0).any() or abs(pi.sum() - 1) > 1e-6:
            raise InputError(f"proportion must be {classes} shares that sum to 1, got {pi.tolist()}")
        if self.label_cost > 0 and predicted is None:
            raise InputError("label_cost needs z_labels, the predicted class of each row")
        if predicted is not None and predicted.shape != (len(rows),):
            raise InputError(f"z_labels must be {len(rows)} classes, one a row, got shape {predicted.shape}")

    def _classified(self, head: Callable[[Tensor], Tensor]) -> tuple[Float[Tensor, ""], Tensor]:
        """Cross-entropy at the anchors and its gradient there."""
        with torch.enable_grad():
            points = self.anchors.detach().requires_grad_(True)
            logits = head(points)
            if logits.shape != (len(points), len(points) // self.per_class):
                raise InputError(f"head must return (anchors, classes) logits, got shape {tuple(logits.shape)}")
            loss = torch.nn.functional.cross_entropy(logits, self.labels)
            (push,) = torch.autograd.grad(loss, points)
        return loss.detach(), push

    def draw(self, size: int) -> tuple[Tensor, Tensor]:
        """Anchors and labels, drawn at random from the classes that some bag has."""
        some = torch.as_tensor(self.random.choice(self._usable, size), device=self.anchors.device)
        return self.anchors[some].detach(), self.labels[some]


def _spread(rows: FloatArray) -> float:
    """The root of the mean variance; 1 where nothing varies."""
    return float(np.sqrt(rows.var(axis=0).mean())) or 1.0


def _array(given: Any) -> FloatArray:
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"features and shares must be numbers: {one_line(error, 120)}") from None
