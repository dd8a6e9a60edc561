"""The router: one vector for each entry of a catalogue, and a projection of queries into their space."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from torch.nn.functional import normalize

from assay.errors import InputError, one_line
from assay.parts.checkpoints import pick_device

from . import coreset, files
from .candidates import Candidates
from .encoders import Encoder, encode, is_text, unit_rows
from .registry import ONE_DOMAIN, Registry, as_array, labels, plain
from .training import Anchor, train

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

_MOST_SCORES = 2**24  # numbers in one block of a score table: 64 MiB


class Buffer(NamedTuple):
    """What is kept of old queries.

    Attributes
    ----------
    X
        float32 [n, d] unit features; texts are not kept.
    ids
        [n] the right id of each.
    experience
        int64 [n] number of the experience that it came with.
    """

    X: FloatArray
    ids: NDArray[Any]
    experience: IntArray


class CarveRouter(BaseEstimator):  # type: ignore[misc]
    """Routes queries to the entries of a catalogue that grows, by learned vectors (CARvE).

    Call :meth:`partial_fit` with each month's (query, right id) pairs. New ids get a vector and learn freely; vectors
    of old ids and the projection of queries are held near where they were, and a small, well-spread sample of old
    queries is replayed. Nothing else of earlier pairs is kept or needed.

    Parameters
    ----------
    dim
        Length of the vectors; with ``init="prototype"`` it is the number of features, and this is not used.
    n_candidates
        Ids that a training query is compared with, the right one among them; all if there are no more.
    temperature
        Scores are cosine / temperature.
    replay
        Queries kept, as a share of all training pairs so far, 0 to 1.
    lambda_emb, lambda_proj
        Strength with which old vectors and the projection are held (infinity: exactly). None means 10, and 100 with
        ``init="prototype"``.
    epochs, lr, batch_size
        Of one ``partial_fit``; Adam. ``lr=None`` means 3e-3, and 1e-3 with ``init="prototype"``.
    mix
        Shares of hard, same-domain and other wrong candidates.
    hard_every, hard_pool
        Hard ones are looked up every so many epochs, and drawn from so many.
    quota
        ``"sqrt"``: the kept queries are a coreset, domains share it by the square root of their sizes.
        ``"random"``: they are drawn at random instead.
    max_per_id
        At most so many kept queries of one id.
    init
        Where a new id's vector starts: ``"random"`` (the source's choice), ``"prototype"`` (the mean of its queries,
        with the identity as first projection: starts as the class-mean look-up and improves on it), ``"card"`` (its
        card, given to ``partial_fit``).
    encoder
        For texts: ``"minilm"`` (needs the extra ``text``) or an object with ``encode(list of texts) -> [n, d]``. None
        if X is always an array of ready embeddings.
    device
        ``"auto"`` (a GPU where torch sees one) or a torch device.
    random_state
        None, a number or a ``numpy.random.RandomState``. The same number gives the same router, on one thread of one
        machine.

    Attributes
    ----------
    ids_
        The ids in order of appearance.
    vectors_
        float32 [ids, dim], unit rows.
    projection_
        float32 [features, dim].
    registry_
        DataFrame with ``id``, ``family``, ``domain``, ``experience``, ``n_seen``, ``retired``.
    buffer_
        The kept queries, a :class:`Buffer`.
    n_features_in_, n_experiences_, n_steps_
        Width of the features, number of ``partial_fit`` calls and of training steps so far.

    Notes
    -----
    Source: "Continual Model Routing in Evolving Model Hubs", arXiv 2605.28577.

    Examples
    --------
    >>> X = np.eye(4).repeat(5, axis=0)
    >>> router = CarveRouter(init="prototype", random_state=0)
    >>> router = router.fit(X[:10], ["sql"] * 5 + ["maps"] * 5, domains=["data"] * 10)
    >>> router = router.partial_fit(X[10:], ["poems"] * 5 + ["code"] * 5, domains=["writing"] * 10)
    >>> router.predict(np.eye(4)).tolist()
    ['sql', 'maps', 'poems', 'code']
    """

    def __init__(
        self,
        dim: int = 256,
        n_candidates: int = 64,
        temperature: float = 0.07,
        replay: float = 0.10,
        lambda_emb: float | None = None,
        lambda_proj: float | None = None,
        epochs: int = 8,
        lr: float | None = None,
        batch_size: int = 64,
        mix: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3),
        hard_every: int = 3,
        hard_pool: int = 32,
        quota: Literal["sqrt", "random"] = "sqrt",
        max_per_id: int | None = None,
        init: Literal["random", "prototype", "card"] = "random",
        encoder: Encoder | str | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.dim = dim
        self.n_candidates = n_candidates
        self.temperature = temperature
        self.replay = replay
        self.lambda_emb = lambda_emb
        self.lambda_proj = lambda_proj
        self.epochs = epochs
        self.lr = lr
        self.batch_size = batch_size
        self.mix = mix
        self.hard_every = hard_every
        self.hard_pool = hard_pool
        self.quota = quota
        self.max_per_id = max_per_id
        self.init = init
        self.encoder = encoder
        self.device = device
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        ids: Any,
        domains: Any = None,
        families: Any = None,
        cards: Mapping[Any, Any] | None = None,
    ) -> CarveRouter:
        """Forget everything, then :meth:`partial_fit`. If that fails, nothing is forgotten."""
        anew = copy.copy(self)
        anew._start_anew()
        self.__dict__ = anew.partial_fit(X, ids, domains, families, cards).__dict__
        return self

    def partial_fit(
        self,
        X: Any,
        ids: Any,
        domains: Any = None,
        families: Any = None,
        cards: Mapping[Any, Any] | None = None,
    ) -> CarveRouter:
        """Learn one experience: pairs of new ids, of old ones, or of both. If it is interrupted, nothing has changed.

        Parameters
        ----------
        X
            n texts (with an encoder), or an array of embeddings [n, d]; rows are scaled to length 1.
        ids
            (n,) the right id of each: any hashable labels.
        domains, families
            (n,) the domain and the family of each one's id. An id has one of each. Without domains all ids are one
            domain, and a warning says so once; families are only reported.
        cards
            With ``init="card"``: for each new id its description, a text or an embedding.

        Raises
        ------
        ValueError
            When an argument is out of range, X and the labels do not fit together, or an id has two domains or
            families.
        """
        self._check_parameters()
        if not hasattr(self, "_registry"):
            self._start_anew()
        H = self._features(X, "X")
        if len(H) == 0:
            raise ValueError("this experience is empty: X has no rows")
        names = labels(ids, "ids", len(H))
        domain_of = None if domains is None else labels(domains, "domains", len(H))
        family_of = None if families is None else labels(families, "families", len(H))
        registry: Registry = self._registry.copy()
        n_old = len(registry)
        targets = registry.add(names, domain_of, family_of, self.n_experiences_)
        if not self._warned and any(domain is None for domain in registry.domains):
            warnings.warn(
                f"no domains were given: all ids count as one domain, {ONE_DOMAIN!r}", UserWarning, stacklevel=2
            )
            self._warned = True

        device = pick_device(self.device)
        rng = np.random.default_rng([self._seed, self.n_experiences_])
        projection = self.projection_ if n_old else self._first_projection(H.shape[1], rng)
        new = self._new_vectors(registry, n_old, H, targets, projection, cards, rng)
        old = self.vectors_ if n_old else np.empty((0, projection.shape[1]), dtype=np.float32)
        starts = np.concatenate([old, new])
        v, w = torch.tensor(starts, device=device), torch.tensor(projection, device=device)
        is_old = torch.arange(len(v), device=device) < n_old
        lambda_emb, lambda_proj, lr = self._strengths()
        anchor = Anchor(is_old, v.clone(), w.clone(), lambda_emb, lambda_proj) if n_old else None

        all_X, all_targets, came_with = H, targets, np.full(len(H), self.n_experiences_, dtype=np.int64)
        if n_old:
            # Queries of retired ids are neither replayed nor kept any longer.
            kept = ~np.array(registry.retired)[self._kept_targets]
            all_X = np.concatenate([all_X, self._kept_X[kept]])
            all_targets = np.concatenate([all_targets, self._kept_targets[kept]])
            came_with = np.concatenate([came_with, self._kept_experience[kept]])
        domains_of_ids, active = registry.domain_codes(), registry.active()
        steps = train(
            v,
            w,
            torch.from_numpy(all_X).to(device),
            all_targets,
            Candidates(active, domains_of_ids[active], self.n_candidates, self.mix, self.hard_pool, rng),
            temperature=self.temperature,
            epochs=self.epochs,
            lr=lr,
            batch_size=self.batch_size,
            hard_every=self.hard_every,
            rng=rng,
            anchor=anchor,
        )
        chosen = self._choose(registry, all_X, all_targets, domains_of_ids, len(H), rng)
        # Vectors that did not move stay bit for bit: scaling a unit vector may change its last digit.
        moved = (v.cpu().numpy() != starts).any(axis=1, keepdims=True)
        trained = np.where(moved, normalize(v).cpu().numpy(), starts)
        # From here on nothing can fail.
        self.vectors_, self.projection_, self._registry = trained, w.cpu().numpy(), registry
        self._kept_X, self._kept_targets, self._kept_experience = all_X[chosen], all_targets[chosen], came_with[chosen]
        self.n_features_in_ = H.shape[1]
        self.n_experiences_ += 1
        self.n_steps_ += steps
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The best id for each query, (n,); of ids with equal scores the one that came first.

        Raises
        ------
        NotFittedError
            Before the first experience.
        ValueError
            When X does not fit, or all ids are retired.
        """
        return self.topk(X, 1)[0][:, 0]

    def topk(self, X: Any, k: int = 3) -> tuple[NDArray[Any], FloatArray]:
        """The k best ids and their scores (cosine / temperature), both (n, k), the best first.

        ``k`` may exceed the number of ids in service; then all of them are returned.
        """
        H, active = self._ready(X)
        if not _is_whole(k) or k < 1:
            raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
        k = min(k, len(active))
        columns, scores = np.empty((len(H), k), dtype=np.int64), np.empty((len(H), k), dtype=np.float32)
        for start, table in self._score_blocks(H, active):
            block = slice(start, start + len(table))
            columns[block], scores[block] = _best(table, k)
        return as_array(self._registry.ids)[active[columns]], scores

    def decision_function(self, X: Any) -> FloatArray:
        """Scores of all ids, (n, ids) in the order of ``ids_``: cosine / temperature, −∞ for retired ones."""
        H, active = self._ready(X)
        scores = np.full((len(H), len(self._registry)), -np.inf, dtype=np.float32)
        for start, table in self._score_blocks(H, active):
            scores[start : start + len(table), active] = table.numpy()
        return scores

    def score(self, X: Any, ids: Any) -> float:
        """Share of queries whose right id is predicted; ids that are not known count as wrong."""
        predicted = self.predict(X)
        truth = labels(ids, "ids", len(predicted))
        if not truth:
            raise ValueError("X has no rows to score")
        return float(np.mean([a == b for a, b in zip(predicted.tolist(), truth, strict=True)]))

    def retire(self, ids: Hashable | Iterable[Hashable]) -> CarveRouter:
        """Take ids (one, or a list) out of service: they are never returned nor trained, and keep their vectors.

        Their kept queries leave the buffer at the next ``partial_fit``. ``KeyError`` where an id is not known.
        """
        return self._set_retired(ids, True)

    def revive(self, ids: Hashable | Iterable[Hashable]) -> CarveRouter:
        """Put retired ids (one, or a list) back into service, with the vectors that they had."""
        return self._set_retired(ids, False)

    @property
    def ids_(self) -> NDArray[Any]:
        """The ids in order of appearance."""
        return as_array(self._fitted().ids)

    @property
    def registry_(self) -> pd.DataFrame:
        """The catalogue, a row an id."""
        return self._fitted().frame()

    @property
    def buffer_(self) -> Buffer:
        """The queries that are kept for replay."""
        ids = as_array(self._fitted().ids)
        return Buffer(self._kept_X.copy(), ids[self._kept_targets], self._kept_experience.copy())

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write the router to a new folder: ``router.safetensors`` and ``router.json``.

        Raises
        ------
        InputError
            When the folder is there and not empty, without ``overwrite``.
        ValueError
            When an id, domain or family is no string, whole number or truth value, which JSON could not give back.
        """
        registry = self._fitted()
        others = ("encoder", "device", "random_state")
        parameters = {name: plain(value) for name, value in self.get_params().items() if name not in others}
        parameters["mix"] = [plain(share) for share in self.mix]
        state = {
            "parameters": parameters,
            "encoder": self.encoder if isinstance(self.encoder, str) or self.encoder is None else "own",
            "seed": self._seed,
            "n_experiences": self.n_experiences_,
            "n_steps": self.n_steps_,
            "warned": self._warned,
        }
        tensors = {
            "vectors": self.vectors_,
            "projection": self.projection_,
            "kept_X": self._kept_X,
            "kept_targets": self._kept_targets,
            "kept_experience": self._kept_experience,
        }
        return files.write(folder, state, registry, tensors, overwrite)

    @classmethod
    def load(cls, folder: str | Path, encoder: Encoder | None = None, device: str = "auto") -> CarveRouter:
        """Read a router that :meth:`save` wrote.

        Parameters
        ----------
        folder
            Where it is.
        encoder
            The encoder, where it was one of the user's own: that is not saved.
        device
            As in the constructor.

        Raises
        ------
        InputError
            When the folder holds no such router, or a damaged one.
        """
        state, registry, tensors = files.read(folder)
        saved = state["encoder"]
        try:
            router = cls(**state["parameters"], encoder=encoder or (None if saved == "own" else saved), device=device)
            router.mix = tuple(router.mix)  # type: ignore[assignment]
            router._check_parameters()
            router._start_anew()
        except (TypeError, ValueError) as error:
            raise InputError(
                f"the router in {folder} is damaged, its parameters are wrong: {one_line(error)}"
            ) from None
        router._registry, router._seed = registry, int(state["seed"])
        router.vectors_, router.projection_ = tensors["vectors"], tensors["projection"]
        router._kept_X, router._kept_targets = tensors["kept_X"], tensors["kept_targets"]
        router._kept_experience = tensors["kept_experience"]
        router.n_features_in_ = len(router.projection_)
        router.n_experiences_, router.n_steps_ = int(state["n_experiences"]), int(state["n_steps"])
        router._warned = bool(state["warned"])
        return router

    def _start_anew(self) -> None:
        self._registry = Registry()
        self.n_experiences_ = self.n_steps_ = 0
        self._warned = False
        state = self.random_state
        if not (state is None or isinstance(state, np.random.RandomState) or (_is_whole(state) and state >= 0)):
            raise ValueError(
                f"random_state must be None, a whole number from 0 on, or a numpy.random.RandomState, got {state!r}"
            )
        if state is None:
            self._seed = int(np.random.SeedSequence().generate_state(1)[0])
        elif isinstance(state, np.random.RandomState):
            self._seed = int(state.randint(2**31))
        else:
            self._seed = int(state)

    def _fitted(self) -> Registry:
        if not len(getattr(self, "_registry", ())):
            raise NotFittedError("this router has learned nothing yet; call partial_fit first")
        return self._registry

    def _features(self, X: Any, what: str) -> FloatArray:
        if isinstance(X, str):
            raise ValueError(f"{what} must be a list of texts, not one text")
        width = self.n_features_in_ if len(getattr(self, "_registry", ())) else None
        if not is_text(X):
            if isinstance(X, list | tuple) and not X:
                X = np.empty((0, width or 1))
            return unit_rows(X, what, width)
        texts = list(X)
        return unit_rows(encode(self.encoder, texts, self.device), "the encoder's output", width, len(texts))

    def _first_projection(self, n_features: int, rng: np.random.Generator) -> FloatArray:
        if self.init == "prototype":
            return np.eye(n_features, dtype=np.float32)
        return rng.normal(0, 1 / math.sqrt(n_features), size=(n_features, self.dim)).astype(np.float32)

    def _new_vectors(
        self,
        registry: Registry,
        n_old: int,
        H: FloatArray,
        targets: IntArray,
        projection: FloatArray,
        cards: Mapping[Hashable, Any] | None,
        rng: np.random.Generator,
    ) -> FloatArray:
        """Where the vectors of the ids from number ``n_old`` on start, unit rows."""
        n_new, dim = len(registry) - n_old, projection.shape[1]
        if self.init == "random" or not n_new:
            return _unit(rng.normal(size=(n_new, dim)))
        if self.init == "card":
            new = registry.ids[n_old:]
            missing = [name for name in new if name not in (cards or {})]
            if missing:
                raise ValueError(f"init='card' needs a card for each new id; {missing[0]!r} has none")
            chosen = [cards[name] for name in new]  # type: ignore[index]
            starts = self._features(chosen if is_text(chosen) else np.array(chosen), "cards") @ projection
            return _unit(starts)
        sums = np.zeros((n_new, dim))
        is_new = targets >= n_old
        np.add.at(sums, targets[is_new] - n_old, _unit(H[is_new] @ projection))
        return _unit(sums)

    def _choose(
        self,
        registry: Registry,
        X: FloatArray,
        targets: IntArray,
        domains_of_ids: IntArray,
        n_new: int,
        rng: np.random.Generator,
    ) -> IntArray:
        """Which of the queries at hand, of which the first ``n_new`` are new, are kept."""
        size = min(round(self.replay * sum(registry.n_seen)), len(X))
        if self.quota == "random":
            # What was kept is a sample of what came before: with the same share of what is new, of everything.
            old = rng.permutation(np.arange(n_new, len(X)))[:size]
            new = rng.choice(n_new, size=min(size - len(old), n_new), replace=False)
            return np.sort(np.concatenate([old, new]))
        seen = np.bincount(domains_of_ids, weights=registry.n_seen).astype(np.int64)
        return coreset.choose(
            X, targets, domains_of_ids[targets], dict(enumerate(seen.tolist())), size, self.max_per_id
        )

    def _ready(self, X: Any) -> tuple[FloatArray, IntArray]:
        """Features, and the numbers of the ids in service."""
        active = self._fitted().active()
        if not len(active):
            raise ValueError("all ids of this router are retired")
        return self._features(X, "X"), active

    def _score_blocks(self, H: FloatArray, active: IntArray) -> Iterator[tuple[int, torch.Tensor]]:
        """Scores of the ids in service, a block of queries at a time, on the CPU: (first row, [rows, ids])."""
        device = pick_device(self.device)
        vectors = self.vectors_ if len(active) == len(self.vectors_) else self.vectors_[active]
        v, w = torch.from_numpy(vectors).to(device), torch.from_numpy(self.projection_).to(device)
        step = max(1, _MOST_SCORES // len(v))
        for start in range(0, len(H), step):
            z = normalize(torch.from_numpy(H[start : start + step]).to(device) @ w)
            yield start, ((z @ v.T) / self.temperature).cpu()

    def _set_retired(self, ids: Hashable | Iterable[Hashable], retired: bool) -> CarveRouter:
        for number in self._fitted().numbers(ids):
            self._registry.retired[number] = retired
        return self

    def _strengths(self) -> tuple[float, float, float]:
        """lambda_emb, lambda_proj and lr, by the start where they are None: a prototype is good before any training."""
        usual = (100.0, 100.0, 1e-3) if self.init == "prototype" else (10.0, 10.0, 3e-3)
        given = (self.lambda_emb, self.lambda_proj, self.lr)
        return tuple(u if g is None else float(g) for g, u in zip(given, usual, strict=True))  # type: ignore[return-value]

    def _check_parameters(self) -> None:
        for name, least in (
            ("dim", 1),
            ("n_candidates", 2),
            ("epochs", 0),
            ("batch_size", 1),
            ("hard_every", 1),
            ("hard_pool", 1),
        ):
            value = getattr(self, name)
            if not _is_whole(value) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        if self.max_per_id is not None and not (_is_whole(self.max_per_id) and self.max_per_id >= 1):
            raise ValueError(f"max_per_id must be a whole number of at least 1, or None, got {self.max_per_id!r}")
        if not _is_number(self.temperature) or not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature must be positive, got {self.temperature!r}")
        if self.lr is not None and not (_is_number(self.lr) and 0 < self.lr < math.inf):
            raise ValueError(f"lr must be positive or None, got {self.lr!r}")
        if not _is_number(self.replay) or not 0 <= self.replay <= 1:
            raise ValueError(f"replay must lie between 0 and 1, got {self.replay!r}")
        for name in ("lambda_emb", "lambda_proj"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value >= 0):
                raise ValueError(f"{name} must not be negative, or be None, got {value!r}")
        mix = self.mix if isinstance(self.mix, Iterable) else ()
        shares = [share if _is_number(share) else math.nan for share in mix]
        if len(shares) != 3 or not min(shares) >= 0 or not math.isclose(sum(shares), 1, abs_tol=1e-6):
            raise ValueError(f"mix must be three shares that sum to 1, got {self.mix!r}")
        for name, choices in (("quota", ("sqrt", "random")), ("init", ("random", "prototype", "card"))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _best(scores: torch.Tensor, k: int) -> tuple[IntArray, FloatArray]:
    """Columns and values of the k highest scores of each row, the first column first where they are equal."""
    if k == 1:
        columns = scores.numpy().argmax(axis=1)[:, None]  # the first of equal ones
        return columns, np.take_along_axis(scores.numpy(), columns, axis=1)
    values, columns = (part.numpy() for part in scores.topk(k, dim=1))
    order = np.lexsort((columns, -values), axis=1)
    values, columns = np.take_along_axis(values, order, axis=1), np.take_along_axis(columns, order, axis=1)
    # Where more than k reach the k-th value, topk may have left out an earlier column.
    tied = np.flatnonzero((scores.numpy() >= values[:, -1:]).sum(axis=1) > k)
    if len(tied):
        columns[tied] = np.argsort(-scores.numpy()[tied], axis=1, kind="stable")[:, :k]
        values[tied] = np.take_along_axis(scores.numpy()[tied], columns[tied], axis=1)
    return columns, values


def _unit(table: NDArray[np.floating[Any]]) -> FloatArray:
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    return (table / np.where(norms > 0, norms, 1)).astype(np.float32)
