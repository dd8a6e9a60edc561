"""Which wrong answers a query is trained against: hard ones, ones of its domain, and ones from elsewhere."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

IntArray = NDArray[np.int64]

_MOST_SCORES = 2**24  # numbers in one block of a score table: 64 MiB


class Candidates:
    """Draws a fixed number of candidates for each query, the true id always first.

    A share are *hard* (drawn from the highest-scoring wrong ids, see :meth:`mine`), a share *semantic* (uniform from
    the other ids of the true id's domain), the rest *far* (uniform from other domains). Where a domain has one id, or
    there is one domain, the draw is from all others. With no more ids than candidates, all of them are taken.

    Parameters
    ----------
    ids
        Numbers of the ids that may be candidates; the targets are among them.
    domains
        Domain number of each of ``ids``.
    size
        Candidates for each query, the true one included, at least 2.
    mix
        Shares of hard, semantic and far ones, summing to 1.
    hard_pool
        How many of the highest-scoring wrong ids hard ones are drawn from.
    rng
        Where the draws come from.
    """

    def __init__(
        self,
        ids: IntArray,
        domains: IntArray,
        size: int,
        mix: tuple[float, float, float],
        hard_pool: int,
        rng: np.random.Generator,
    ) -> None:
        order = np.argsort(domains, kind="stable")
        self.ids = ids[order]  # ids of one domain lie side by side, so that a domain is a range of places
        self.size = min(size, len(ids))
        self.rng = rng
        self._place = np.full(int(ids.max()) + 1, -1, dtype=np.int64)
        self._place[self.ids] = np.arange(len(ids))
        _, first, inverse, count = np.unique(domains[order], return_index=True, return_inverse=True, return_counts=True)
        self._first, self._count = first[inverse], count[inverse]  # of the domain, for each place
        wrong = self.size - 1
        self.everything = len(ids) <= size
        self.hard_pool = min(hard_pool, len(ids) - 1)
        self.n_hard = 0 if self.everything else min(round(mix[0] * wrong), self.hard_pool)
        self.n_semantic = min(round(mix[1] * wrong), wrong - self.n_hard)
        self._pool: IntArray | None = None

    def mine(self, queries: Float[Tensor, "n dim"], vectors: Float[Tensor, "ids dim"], targets: IntArray) -> None:
        """Note, for each query, the wrong ids that score highest now; both tables hold unit rows."""
        if not self.n_hard:
            return
        places = torch.as_tensor(self.ids, device=vectors.device)
        own = torch.as_tensor(self._place[targets], device=vectors.device)
        table = vectors[places]
        found = []
        for start in range(0, len(queries), step := max(1, _MOST_SCORES // len(places))):
            scores = queries[start : start + step] @ table.T
            scores.scatter_(1, own[start : start + step, None], -torch.inf)
            found.append(scores.topk(self.hard_pool, dim=1, sorted=False).indices.cpu().numpy())
        self._pool = np.concatenate(found)

    def draw(self, rows: IntArray, targets: IntArray) -> IntArray:
        """Candidates of a batch, [batch, size], as id numbers; the true one comes first.

        Parameters
        ----------
        rows
            Which of the queries given to :meth:`mine` the batch consists of.
        targets
            Their true ids.
        """
        own = self._place[targets][:, None]
        if self.everything:
            return self.ids[(own + np.arange(len(self.ids))) % len(self.ids)]
        parts = [own]
        if self.n_hard and self._pool is not None:
            pool = self._pool[rows]
            lots = self.rng.random(pool.shape)
            parts.append(np.take_along_axis(pool, lots.argpartition(self.n_hard - 1, axis=1)[:, : self.n_hard], axis=1))
        first, count = self._first[own], self._count[own]
        parts.append(self._from_domain(own, first, count, self.n_semantic))
        parts.append(self._from_elsewhere(own, first, count, self.size - sum(part.shape[1] for part in parts)))
        return self.ids[np.concatenate(parts, axis=1)]

    def _from_domain(self, own: IntArray, first: IntArray, count: IntArray, n: int) -> IntArray:
        drawn = first + self.rng.integers(0, np.maximum(count - 1, 1), size=(len(own), n))
        drawn += drawn >= own  # leave the true id out
        return np.where(count > 1, drawn, self._from_all(own, n))

    def _from_elsewhere(self, own: IntArray, first: IntArray, count: IntArray, n: int) -> IntArray:
        elsewhere = len(self.ids) - count
        drawn = self.rng.integers(0, np.maximum(elsewhere, 1), size=(len(own), n))
        drawn += count * (drawn >= first)
        return np.where(elsewhere > 0, drawn, self._from_all(own, n))

    def _from_all(self, own: IntArray, n: int) -> IntArray:
        drawn = self.rng.integers(0, len(self.ids) - 1, size=(len(own), n))
        return drawn + (drawn >= own)


def route_loss(scores: Float[Tensor, "batch candidates"], temperature: float) -> Float[Tensor, ""]:
    """Mean of −log softmax(scores / temperature) at the first candidate, the true one.

    Examples
    --------
    >>> round(route_loss(torch.tensor([[1.0, 0.0, 0.0]]), 0.5).item(), 4)
    0.2395
    """
    true = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    return torch.nn.functional.cross_entropy(scores / temperature, true)


def candidate_scores(
    queries: Float[Tensor, "batch dim"], vectors: Float[Tensor, "rows dim"], candidates: Int[Tensor, "batch candidates"]
) -> Float[Tensor, "batch candidates"]:
    """Inner products of each query with its own candidates; ``candidates`` are numbers of rows of ``vectors``."""
    # All products with the few thousand rows of a step cost less than picking rows for each query, and their gradients.
    return (queries @ vectors.T).gather(1, candidates)
