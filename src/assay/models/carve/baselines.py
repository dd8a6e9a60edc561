"""The contenders: look-ups that are not trained, and ways to train the same router without anchors and coreset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax, normalize

from assay.parts.packages import need

from .candidates import Candidates
from .registry import Registry
from .router import CarveRouter
from .training import train

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class Pairs:
    """What an arm is given of one experience.

    Attributes
    ----------
    texts, X
        Training queries, and their unit features [n, d].
    ids, domains, families
        Of each.
    cards, card_X
        Description of each id that is new or met again, a dictionary, and its features. Empty where there are none.
    test_texts, test_X
        Queries to be routed after this and every later experience.
    """

    texts: list[str]
    X: FloatArray
    ids: list[str]
    domains: list[str]
    families: list[str]
    cards: Mapping[str, str]
    card_X: Mapping[str, FloatArray]
    test_texts: list[str]
    test_X: FloatArray


Predicted = list[list[list[str]]]
"""``predicted[t][e]``: an id for each test query of experience e, after experience t."""


@dataclass(frozen=True)
class Answer:
    """What an arm gives back.

    Attributes
    ----------
    predicted
        See :data:`Predicted`.
    parameters, steps
        Numbers held at the end, and training steps made.
    kept
        Old queries kept at the end.
    """

    predicted: Predicted
    parameters: int = 0
    steps: int = 0
    kept: int = 0


def follow(
    experiences: Sequence[Pairs], learn: Callable[[Pairs], object], route: Callable[[Pairs], Sequence[str]]
) -> Predicted:
    """Learn the experiences one after the other; after each, route the test queries of all so far."""
    predicted: Predicted = []
    for t, pairs in enumerate(experiences):
        learn(pairs)
        predicted.append([list(route(earlier)) for earlier in experiences[: t + 1]])
    return predicted


def class_mean(experiences: Sequence[Pairs], seed: int) -> Answer:
    """The id whose mean of query features is nearest: nothing is trained, nothing is forgotten."""
    sums: dict[str, FloatArray] = {}

    def learn(pairs: Pairs) -> None:
        for name, row in zip(pairs.ids, pairs.X, strict=True):
            sums[name] = sums[name] + row if name in sums else row.copy()

    def route(pairs: Pairs) -> Sequence[str]:
        return _nearest(pairs.test_X, sums)

    return Answer(follow(experiences, learn, route), parameters=sum(row.size for row in sums.values()))


def card_retrieval(experiences: Sequence[Pairs], seed: int) -> Answer:
    """The id whose card's embedding is nearest to the query's."""
    cards: dict[str, FloatArray] = {}

    def learn(pairs: Pairs) -> None:
        cards.update(pairs.card_X)

    def route(pairs: Pairs) -> Sequence[str]:
        return _nearest(pairs.test_X, cards)

    return Answer(follow(experiences, learn, route), parameters=sum(row.size for row in cards.values()))


def bm25(experiences: Sequence[Pairs], seed: int) -> Answer:
    """The id whose card scores highest by BM25 (bm25s, its defaults, English stop words)."""
    bm25s: Any = need("bm25s", "the BM25 arm")
    cards: dict[str, str] = {}
    index: dict[str, Any] = {}

    def learn(pairs: Pairs) -> None:
        cards.update(pairs.cards)
        index["retriever"] = bm25s.BM25()
        tokens = bm25s.tokenize(list(cards.values()), stopwords="en", show_progress=False)
        index["retriever"].index(tokens, show_progress=False)

    def route(pairs: Pairs) -> Sequence[str]:
        tokens = bm25s.tokenize(pairs.test_texts, stopwords="en", show_progress=False, return_ids=False)
        found, _ = index["retriever"].retrieve(tokens, k=1, show_progress=False)
        names = list(cards)
        return [names[int(i)] for i in found[:, 0]]

    return Answer(follow(experiences, learn, route))


def _nearest(X: FloatArray, rows: Mapping[str, FloatArray]) -> list[str]:
    names = list(rows)
    table = np.stack([rows[name] for name in names])
    table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return [names[i] for i in np.argmax(X @ table.T, axis=1)]


def routed(experiences: Sequence[Pairs], seed: int, **parameters: Any) -> Answer:
    """A :class:`CarveRouter` with these parameters."""
    router = CarveRouter(device="cpu", random_state=seed, **parameters)

    def learn(pairs: Pairs) -> None:
        cards = dict(pairs.card_X) if router.init == "card" else None
        router.partial_fit(pairs.X, pairs.ids, pairs.domains, pairs.families, cards)

    predicted = follow(experiences, learn, lambda pairs: router.predict(pairs.test_X).tolist())
    size = router.vectors_.size + router.projection_.size
    return Answer(predicted, size, router.n_steps_, len(router.buffer_.X))


def joint(experiences: Sequence[Pairs], seed: int, **parameters: Any) -> Answer:
    """A new router at each time, trained on everything so far."""
    routers: list[CarveRouter] = []

    def learn(pairs: Pairs) -> None:
        so_far = experiences[: len(routers) + 1]
        X = np.concatenate([earlier.X for earlier in so_far])
        ids = [name for earlier in so_far for name in earlier.ids]
        domains = [name for earlier in so_far for name in earlier.domains]
        routers.append(CarveRouter(device="cpu", random_state=seed, replay=1.0, **parameters).fit(X, ids, domains))

    predicted = follow(experiences, learn, lambda pairs: routers[-1].predict(pairs.test_X).tolist())
    router = routers[-1]
    size = router.vectors_.size + router.projection_.size
    return Answer(predicted, size, sum(r.n_steps_ for r in routers), len(router.buffer_.X))


def regularised(
    experiences: Sequence[Pairs], seed: int, kind: Literal["ewc", "lwf"], strength: float, lr: float = 3e-3
) -> Answer:
    """Elastic weight consolidation or learning without forgetting: no replay, but a penalty on change."""
    learner = Regularised(seed, kind, strength, lr)
    predicted = follow(experiences, learner.learn, learner.route)
    assert learner.vectors is not None
    assert learner.projection is not None
    return Answer(predicted, learner.vectors.numel() + learner.projection.numel(), learner.steps)


class Regularised:
    """The same router, start, candidates and training, and one of two penalties in place of anchors and replay.

    ``"ewc"``: strength / 2 · Σ F (θ − θ⁻)² over projection and old vectors, F the diagonal of the Fisher information of
    the route softmax over all ids, summed over experiences. ``"lwf"``: strength · KL of the softmax over old ids before
    and now, on the new queries.
    """

    def __init__(self, seed: int, kind: Literal["ewc", "lwf"], strength: float, lr: float) -> None:
        self.kind, self.strength, self.lr = kind, strength, lr
        self.defaults = CarveRouter()
        self.rng = np.random.default_rng(seed)
        self.registry = Registry()
        self.vectors: Tensor | None = None
        self.projection: Tensor | None = None
        self.fisher: tuple[Tensor, Tensor] | None = None
        self.steps = 0

    def learn(self, pairs: Pairs) -> None:
        """One experience."""
        r = self.defaults
        n_old = len(self.registry)
        targets = self.registry.add(pairs.ids, pairs.domains, None, 0)
        X = torch.from_numpy(pairs.X)
        if self.projection is None or self.vectors is None:
            self.projection = torch.from_numpy(
                self.rng.normal(0, X.shape[1] ** -0.5, size=(X.shape[1], r.dim)).astype(np.float32)
            )
            self.vectors = torch.empty(0, r.dim)
        new = torch.from_numpy(self.rng.normal(size=(len(self.registry) - n_old, r.dim)).astype(np.float32))
        v, w = torch.cat([self.vectors, normalize(new)]), self.projection.clone()
        ids = np.arange(len(v))
        penalty = None
        if n_old:
            penalty = (self._ewc if self.kind == "ewc" else self._lwf)(v.clone(), w.clone(), n_old)
        self.steps += train(
            v,
            w,
            X,
            targets,
            Candidates(ids, self.registry.domain_codes(), r.n_candidates, r.mix, r.hard_pool, self.rng),
            temperature=r.temperature,
            epochs=r.epochs,
            lr=self.lr,
            batch_size=r.batch_size,
            hard_every=r.hard_every,
            rng=self.rng,
            penalty=penalty,
        )
        self.vectors, self.projection = normalize(v), w
        if self.kind == "ewc":
            of_w, of_v = fisher(self.vectors, w, X, torch.from_numpy(targets), r.temperature)
            if self.fisher is not None:
                of_w = of_w + self.fisher[0]
                of_v[:n_old] += self.fisher[1]
            self.fisher = (of_w, of_v)

    def route(self, pairs: Pairs) -> list[str]:
        """The best ids for the test queries."""
        assert self.vectors is not None
        assert self.projection is not None
        best = (torch.from_numpy(pairs.test_X) @ self.projection @ self.vectors.T).argmax(dim=1)
        return [str(self.registry.ids[i]) for i in best.tolist()]

    def _ewc(self, v0: Tensor, w0: Tensor, n_old: int) -> Callable[..., Tensor]:
        assert self.fisher is not None
        of_w, of_v = self.fisher
        of_v = torch.cat([of_v, torch.zeros(len(v0) - n_old, of_v.shape[1])])

        def penalty(queries: Tensor, rows: Tensor, v: Tensor, waited: Tensor, w: Tensor) -> Tensor:
            on_v = (waited[:, None] * of_v[rows] * (v - v0[rows]) ** 2).sum()
            return self.strength / 2 * ((of_w * (w - w0) ** 2).sum() + on_v)

        return penalty

    def _lwf(self, v0: Tensor, w0: Tensor, n_old: int) -> Callable[..., Tensor]:
        temperature = self.defaults.temperature

        def penalty(queries: Tensor, rows: Tensor, v: Tensor, waited: Tensor, w: Tensor) -> Tensor:
            old = rows < n_old
            if not old.any():
                return v.sum() * 0
            before = normalize(queries @ w0) @ v0[rows[old]].T / temperature
            now = normalize(queries @ w) @ v[old].T / temperature
            target = log_softmax(before, dim=1)
            return self.strength * kl_div(log_softmax(now, dim=1), target, reduction="batchmean", log_target=True)

        return penalty


def fisher(
    vectors: Tensor, projection: Tensor, X: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Diagonal of the empirical Fisher information of log softmax(z·e/τ) at the right ids: mean of squared gradients.

    In closed form a query at a time, without a loop: a gradient of the projection is an outer product x ⊗ g, so its
    squares are x² ⊗ g²; one of a unit vector e is (p − y)(z − (z·e)e)/τ.
    """
    u = (X @ projection).requires_grad_()
    z = normalize(u)
    scores = z @ vectors.T
    torch.nn.functional.cross_entropy(scores / temperature, targets, reduction="sum").backward()
    assert u.grad is not None
    of_projection = (X**2).T @ (u.grad**2) / len(X)
    with torch.no_grad():
        p = torch.softmax(scores / temperature, dim=1)
        p[torch.arange(len(X)), targets] -= 1
        p2 = (p / temperature) ** 2
        of_vectors = (
            p2.T @ z**2 - 2 * ((p2 * scores).T @ z) * vectors + (p2 * scores**2).sum(dim=0)[:, None] * vectors**2
        ) / len(X)
    return of_projection.detach(), of_vectors
