"""CURE as a module: the two losses, and what happens between the stages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import InputError
from assay.numerics.contrastive import supervised_contrastive

from .clustering import directions, matched_first, seeded_kmeans
from .head import CosineHead
from .labels import read_numbers
from .losses import js_consistency, logit_adjusted_distillation, mean_entropy, semantic_exploration_energy

PRIOR_MEMORY, LEAST_PRIOR = 0.9, 1e-4
"""The running mean of the predictions: what it keeps at each step, and the least share of a class."""

TEACHER_START, TEACHER_END, TEACHER_RAMP = 0.7, 0.4, 0.3
"""The teacher's temperature relative to the logits falls from start to end over this part of stage 2."""


class CURE(nn.Module):
    """Known prototypes first, then new ones, learned by agreement of two views alone.

    Stage 1 places prototypes of the known classes. :meth:`begin_stage2` adds prototypes for the new ones. Stage 2
    trains on all rows. No term pushes unlike rows apart. The module drops into any training loop; it moves no encoder
    to a device and changes no ``requires_grad``. A ``state_dict`` of stage 2 loads into a new module too, which grows
    as many prototypes (before its optimiser is made).

    Parameters
    ----------
    encoder
        Any module that maps a batch to (batch, dim).
    dim
        Width of what the encoder gives.
    n_known
        Number of known classes, at least 1; their labels are 0 to n_known − 1.
    see1, see2
        Weights of the exploration energy of the prototypes in stage 1 and 2.
    supcon
        Weight of the supervised contrastive loss in stage 1.
    sup_weight
        Share of the labelled rows' cross-entropy in stage 2; the rest goes to the terms without labels.
    entropy
        Weight of the entropy of the mean prediction in stage 2: what keeps classes from swallowing all rows.
    adjust
        Strength of the logit adjustment of the teacher; 0 is plain self-distillation.
    scale
        Factor on the cosine, 1 / temperature.

    Raises
    ------
    InputError
        If a number is out of range.

    Notes
    -----
    Source: "CURE: Consistency-under-Unified Semantic Regularization for Generalized Category Discovery", ICML 2026.

    Examples
    --------
    >>> net = CURE(nn.Linear(8, 4), dim=4, n_known=2)
    >>> rows, y = torch.randn(6, 8), torch.tensor([0, 1, 0, 1, 0, 1])
    >>> sorted(net.stage1_loss(rows, rows, y))
    ['ce', 'loss', 'see', 'supcon']
    """

    prior: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        n_known: int,
        *,
        see1: float = 0.1,
        see2: float = 0.1,
        supcon: float = 0.5,
        sup_weight: float = 0.35,
        entropy: float = 2.0,
        adjust: float = 1.0,
        scale: float = 10.0,
    ) -> None:
        super().__init__()
        if not isinstance(encoder, nn.Module):
            raise TypeError(f"encoder must be a torch.nn.Module, not {type(encoder).__name__}")
        weights = {"see1": see1, "see2": see2, "supcon": supcon, "entropy": entropy, "adjust": adjust}
        for name, value in weights.items():
            if not isinstance(value, int | float | np.number) or not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name} must be a finite number that is not negative, got {value!r}")
        if not 0 <= sup_weight <= 1:
            raise InputError(f"sup_weight must lie between 0 and 1, got {sup_weight}")
        if not isinstance(n_known, int | np.integer) or n_known < 1:
            raise InputError(f"n_known must be a whole number of at least 1, got {n_known!r}")
        self.encoder, self.dim, self.n_known = encoder, dim, n_known
        self.see1, self.see2, self.supcon = see1, see2, supcon
        self.sup_weight, self.entropy, self.adjust = sup_weight, entropy, adjust
        self.head = CosineHead(dim, n_known, scale)
        self.register_buffer("prior", torch.full((n_known,), 1 / n_known))

    @property
    def n_classes(self) -> int:
        """Number of prototypes: the known ones, and after :meth:`begin_stage2` the new ones too."""
        return len(self.head.prototypes)

    def features(self, x: Tensor) -> Float[Tensor, "batch dim"]:
        """What the encoder gives, scaled to rows of length 1."""
        z = self.encoder(x)
        if not isinstance(z, Tensor) or z.ndim != 2 or z.shape[1] != self.dim:
            was = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            raise InputError(f"encoder must give (batch, dim={self.dim}), it gave {was}")
        return F.normalize(z, dim=1)

    def forward(self, x: Tensor) -> Float[Tensor, "batch classes"]:
        """Logits of all prototypes, (batch, K)."""
        return self.head(self.features(x))

    def stage1_loss(self, view_a: Tensor, view_b: Tensor, y: Int[Tensor, " batch"]) -> dict[str, Tensor]:
        """Loss of stage 1 on labelled rows.

        Parameters
        ----------
        view_a, view_b
            Two views of the same rows, as the encoder takes them.
        y
            (batch,) labels, 0 to n_known − 1.

        Returns
        -------
        Scalars ``loss``, ``ce``, ``supcon`` and ``see``; the terms are without their weights.

        Raises
        ------
        InputError
            If a label is none of a known class, views and labels differ in number, or the encoder's width is another.
        """
        y = _batch(view_a, view_b, y)
        if int(y.min()) < 0 or int(y.max()) >= self.n_known:
            raise InputError(f"y of stage 1 must be labels from 0 to n_known - 1 = {self.n_known - 1}")
        z = self.features(torch.cat([view_a, view_b]))
        twice = torch.cat([y, y])
        ce = F.cross_entropy(self.head(z), twice)
        contrast = supervised_contrastive(z, twice) if self.supcon else ce.new_zeros(())
        see = semantic_exploration_energy(self.head.prototypes)
        return {"loss": ce + self.supcon * contrast + self.see1 * see, "ce": ce, "supcon": contrast, "see": see}

    @torch.no_grad()
    def place_known(self, Z: ArrayLike | Tensor, y: ArrayLike) -> None:
        """Put each known prototype at the mean of its labelled rows.

        Parameters
        ----------
        Z
            (n, dim) features of rows.
        y
            (n,) labels 0 to n_known − 1; −1 is unlabelled and does not count.

        Raises
        ------
        InputError
            If a known class has no row, a label is of another, or Z is no finite matrix of width dim.
        """
        features = _rows(Z, self.dim)
        labels = read_numbers(y, len(features), self.n_known)
        means = np.stack([features[labels == k].mean(axis=0) for k in range(self.n_known)])
        self._put(torch.from_numpy(means), slice(0, self.n_known))

    @torch.no_grad()
    def begin_stage2(
        self,
        Z: ArrayLike | Tensor,
        n_classes: int,
        random_state: int | np.random.Generator | None = None,
        y: ArrayLike | None = None,
    ) -> NDArray[np.int64]:
        """Cluster all rows and start the prototypes of the new classes at the clusters that no known class has.

        ``head.prototypes`` becomes a new parameter: make a new optimiser.

        Parameters
        ----------
        Z
            (n, dim) features of all rows by the encoder of stage 1 in evaluation mode; scaled to length 1 here.
        n_classes
            K, all classes, known and new.
        random_state
            Seed of the starts of the clustering.
        y
            (n,) labels 0 to n_known − 1, −1 where unknown. With them labelled rows of a class stay in one cluster, and
            that cluster is the class's. Without, clusters are matched to the known prototypes by their cosines.

        Returns
        -------
        (n,) the cluster of every row: 0 to n_known − 1 for known classes, then the new ones.

        Raises
        ------
        InputError
            If K is below the number of known classes or above that of rows, Z is no finite matrix of width dim, or y
            has no row of a known class or one of another.
        """
        features = _rows(Z, self.dim)
        if self.n_classes != self.n_known:
            raise InputError("stage 2 has begun already: the head has the prototypes of new classes")
        if not isinstance(n_classes, int | np.integer) or not self.n_known <= n_classes <= len(features):
            raise InputError(
                f"n_classes must be from {self.n_known} (the known) to {len(features)} (the rows), got {n_classes!r}"
            )
        labels = np.full(len(features), -1) if y is None else read_numbers(y, len(features), self.n_known)
        found = seeded_kmeans(features, n_classes, labels, random_state=random_state)
        clusters, centroids = found.labels, found.centroids
        if y is None:
            known = F.normalize(self.head.prototypes, dim=1).cpu().numpy()
            clusters, centroids = matched_first(clusters, centroids, known)
        self.head.extend(torch.from_numpy(centroids[self.n_known :]))
        self.head.prototypes.copy_(F.normalize(self.head.prototypes, dim=1))
        self.prior = torch.full((n_classes,), 1 / n_classes, dtype=self.prior.dtype, device=self.prior.device)
        return clusters

    def stage2_loss(
        self, view_a: Tensor, view_b: Tensor, y: Int[Tensor, " batch"], epoch_fraction: float
    ) -> dict[str, Tensor]:
        """Loss of stage 2 on a batch of any rows.

        Parameters
        ----------
        view_a, view_b
            Two views of the same rows, as the encoder takes them.
        y
            (batch,) labels 0 to n_known − 1, −1 for unlabelled rows.
        epoch_fraction
            How much of stage 2 is over, 0 to 1; the teacher's temperature hangs on it.

        Returns
        -------
        Scalars ``loss``, ``ce``, ``js``, ``distill``, ``mean_entropy`` and ``see``; the terms are without their
        weights.

        Raises
        ------
        InputError
            If a label or the fraction is out of range, views and labels differ in number, or the encoder's width is
            another.
        """
        if not 0 <= epoch_fraction <= 1:
            raise InputError(f"epoch_fraction must lie between 0 and 1, got {epoch_fraction}")
        y = _batch(view_a, view_b, y)
        if int(y.min()) < -1 or int(y.max()) >= self.n_known:
            raise InputError(f"y of stage 2 must be -1 or labels from 0 to n_known - 1 = {self.n_known - 1}")
        a, b = self(torch.cat([view_a, view_b])).chunk(2)
        return self.stage2_terms(a, b, y, epoch_fraction)

    def stage2_terms(
        self,
        a: Float[Tensor, "batch classes"],
        b: Float[Tensor, "batch classes"],
        y: Int[Tensor, " batch"],
        epoch_fraction: float,
    ) -> dict[str, Tensor]:
        """Like :meth:`stage2_loss`, from the logits of the two views."""
        p = F.softmax(torch.cat([a, b]), dim=1)
        if self.training:
            mean = p.detach().mean(dim=0).to(self.prior)
            if not torch.isfinite(mean).all():
                raise InputError("the views have logits of NaN: training diverged; lower lr or a weight of the loss")
            self.prior = PRIOR_MEMORY * self.prior + (1 - PRIOR_MEMORY) * mean
        log_prior = self.prior.clamp_min(LEAST_PRIOR).log()
        teacher = teacher_temperature(epoch_fraction)
        distil = [
            logit_adjusted_distillation(student, other, log_prior, t_teacher=teacher, strength=self.adjust)
            for student, other in ((a, b), (b, a))
        ]
        terms = {
            "js": js_consistency(a, b),
            "distill": (distil[0] + distil[1]) / 2,
            "mean_entropy": mean_entropy(p),
            "see": semantic_exploration_energy(self.head.prototypes),
        }
        labelled = y >= 0
        both = torch.cat([labelled, labelled])
        # A sum over no rows is a zero with a gradient, where a mean would be NaN.
        ce = F.cross_entropy(torch.cat([a, b])[both], torch.cat([y, y])[both], reduction="sum") / both.sum().clamp_min(
            1
        )
        without = terms["js"] + terms["distill"] - self.entropy * terms["mean_entropy"]
        loss = self.sup_weight * ce + (1 - self.sup_weight) * without + self.see2 * terms["see"]
        return {"loss": loss, "ce": ce, **terms}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        saved = state_dict.get(f"{prefix}head.prototypes")
        if saved is not None and saved.ndim == 2 and saved.shape[1] == self.dim and len(saved) > self.n_classes:
            self.head.extend(saved[self.n_classes :])
            self.prior = self.prior.new_full((len(saved),), 1 / len(saved))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _put(self, rows: Tensor, where: slice) -> None:
        self.head.prototypes[where] = F.normalize(rows, dim=1).to(self.head.prototypes)


def teacher_temperature(epoch_fraction: float) -> float:
    """The teacher's temperature relative to the logits: a line down, then constant."""
    return TEACHER_START + (TEACHER_END - TEACHER_START) * min(1.0, epoch_fraction / TEACHER_RAMP)


def _rows(Z: ArrayLike | Tensor, dim: int) -> NDArray[np.float32]:
    return directions(Z.detach().float().cpu().numpy() if isinstance(Z, Tensor) else Z, dim)


def _batch(view_a: Tensor, view_b: Tensor, y: Tensor) -> Tensor:
    """Labels of a batch as int64; both views must have as many rows."""
    if not isinstance(y, Tensor) or y.ndim != 1 or y.is_floating_point() or y.dtype == torch.bool:
        was = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
        raise InputError(f"y must be a tensor (batch,) of whole numbers, got {was}")
    if len(y) == 0 or not len(view_a) == len(view_b) == len(y):
        raise InputError(
            f"view_a, view_b and y must have the same number of rows, at least one; got {len(view_a)}, {len(view_b)} "
            f"and {len(y)}"
        )
    return y.long()
