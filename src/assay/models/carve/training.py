"""One experience's training: the route loss, and anchors that hold what was known before."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from .candidates import Candidates, candidate_scores, route_loss

IntArray = NDArray[np.int64]
BETAS, EPS = (0.9, 0.999), 1e-8  # Adam's usual ones

Penalty = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""``penalty(queries, rows, their unit vectors, steps since their last update, projection)``, added to the loss."""


@dataclass(frozen=True)
class Anchor:
    """Where the ids known before and the projection stood, and how strongly they are held there.

    Attributes
    ----------
    old
        Which ids were known before; the others are free.
    vectors, projection
        Their unit vectors and the projection before this experience.
    lambda_emb, lambda_proj
        Strengths; infinity keeps them exactly where they are.
    """

    old: Bool[Tensor, " ids"]
    vectors: Float[Tensor, "ids dim"]
    projection: Float[Tensor, "features dim"]
    lambda_emb: float
    lambda_proj: float


def train(
    vectors: Float[Tensor, "ids dim"],
    projection: Float[Tensor, "features dim"],
    X: Float[Tensor, "n features"],
    targets: IntArray,
    candidates: Candidates,
    *,
    temperature: float,
    epochs: int,
    lr: float,
    batch_size: int,
    hard_every: int,
    rng: np.random.Generator,
    anchor: Anchor | None = None,
    penalty: Penalty | None = None,
) -> int:
    """Train ``vectors`` and ``projection`` in place with Adam, and return the number of steps.

    The loss of a batch is L_route + λ_emb · mean over old ids of (1 − cos(v, v⁻)) + λ_proj · d · mean((W − W⁻)²).

    A step touches only the vectors among its candidates: their Adam moments, and their part of the anchor, which counts
    for all the steps since the vector's last update. A vector that was never touched lies on its anchor, where the
    anchor has no gradient. So a step costs the same for any number of ids.

    Parameters
    ----------
    vectors, projection
        Changed in place; vectors need not have unit length, only their directions count.
    X
        Unit features of the queries.
    targets
        True id number of each.
    candidates
        Which ids each query is compared with.
    temperature, epochs, lr, batch_size
        As the names say; the learning rate is constant.
    hard_every
        Hard candidates are looked up anew every so many epochs.
    rng
        Order of the queries.
    anchor
        None at the first experience.
    penalty
        Another term of the loss.
    """
    device = vectors.device
    adam_rows, adam_projection = RowAdam(vectors, lr), RowAdam(projection, lr)
    last = torch.zeros(len(vectors), device=device)
    all_rows = torch.arange(len(projection), device=device)
    hold_rows = anchor is not None and math.isinf(anchor.lambda_emb)
    hold_projection = anchor is not None and math.isinf(anchor.lambda_proj)
    n_old = int(anchor.old.sum()) if anchor is not None else 0
    step = 0
    for epoch in range(epochs):
        if epoch % hard_every == 0:
            with torch.no_grad():
                candidates.mine(normalize(X @ projection), normalize(vectors), targets)
        order = rng.permutation(len(targets))
        for start in range(0, len(order), batch_size):
            step += 1
            batch = order[start : start + batch_size]
            drawn = torch.from_numpy(candidates.draw(batch, targets[batch])).to(device)
            rows, local = torch.unique(drawn, return_inverse=True)
            v = vectors.index_select(0, rows)
            norms = torch.linalg.vector_norm(v, dim=1, keepdim=True)
            e = v.div_(norms).requires_grad_()
            w = projection.detach().requires_grad_(not hold_projection)
            queries = X[torch.from_numpy(batch).to(device)]
            waited = step - last[rows]
            last[rows] = step
            loss = route_loss(candidate_scores(normalize(queries @ w), e, local), temperature)
            if anchor is not None and anchor.lambda_proj and not hold_projection:
                loss = loss + anchor.lambda_proj * len(w) * ((w - anchor.projection) ** 2).mean()
            if penalty is not None:
                loss = loss + penalty(queries, rows, e, waited, w)
            loss.backward()
            gradient, e = e.grad, e.detach()
            assert gradient is not None
            if anchor is not None and anchor.lambda_emb and not hold_rows:
                pull = waited * anchor.old[rows] * (anchor.lambda_emb / n_old)
                gradient.addcmul_(anchor.vectors.index_select(0, rows), pull[:, None], value=-1)
            # From the unit vectors to the vectors: what lies along a vector changes no direction.
            gradient.addcmul_(e, torch.linalg.vecdot(e, gradient)[:, None], value=-1).div_(norms)
            if hold_rows and anchor is not None:
                free = ~anchor.old[rows]
                rows, gradient = rows[free], gradient[free]
            adam_rows.step(rows, gradient, step)
            if w.grad is not None:
                adam_projection.step(all_rows, w.grad, step)
    return step


class RowAdam:
    """Adam in which rows that a step does not name keep their values and their moments."""

    def __init__(self, values: Float[Tensor, "rows dim"], lr: float) -> None:
        self.values, self.lr = values, lr
        self.first, self.second = torch.zeros_like(values), torch.zeros_like(values)

    @torch.no_grad()
    def step(self, rows: Tensor, gradient: Tensor, step: int) -> None:
        """Update these rows; ``step`` counts from 1."""
        # index_select and index_copy_ take whole rows at a time, several times as fast as brackets do.
        first = self.first.index_select(0, rows).lerp_(gradient, 1 - BETAS[0])
        second = self.second.index_select(0, rows).mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        self.first.index_copy_(0, rows, first)
        self.second.index_copy_(0, rows, second)
        scale = math.sqrt(1 - BETAS[1] ** step)
        length = self.lr * scale / (1 - BETAS[0] ** step)
        self.values.index_add_(0, rows, first.div_(second.sqrt_().add_(EPS * scale)), alpha=-length)
