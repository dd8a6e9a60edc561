"""The study of CARvE: does a growing router keep what it knew, and does it beat look-ups that learn nothing?"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.errors import InputError
from assay.evidence.claim import Claim, higher, lower
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts import minilm

from . import baselines, hubs
from .baselines import Answer, Pairs
from .metrics import route_accuracy, route_report
from .stream import ContinualStream, checked_table
from .table import read_columns, read_table

FloatArray = NDArray[np.float32]

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
FULL = (Budget.FULL, Budget.PAPER)

N_EXPERIENCES = 4
"""Into how many experiences a catalogue without an order of time is dealt."""


@dataclass(frozen=True)
class Hidden:
    """What only the score sees.

    Attributes
    ----------
    right
        For each experience the right id of each test query.
    families, domains
        Of each id.
    known
        For each experience the ids known after it.
    table
        Number that names the content of the catalogue.
    n_queries
        Of the catalogue, training and test.
    """

    right: list[list[str]]
    families: Mapping[str, str]
    domains: Mapping[str, str]
    known: list[set[str]]
    table: int
    n_queries: int


def functions(budget: Budget) -> pd.DataFrame:
    """The catalogue of functions, of a size that fits the budget."""
    if budget is Budget.SMOKE:
        return hubs.functions(1, 3)
    return hubs.functions(15, 8) if budget is Budget.QUICK else hubs.functions()


def experts(budget: Budget) -> pd.DataFrame:
    """The catalogue of experts."""
    return hubs.experts(24 if budget is Budget.QUICK else 60)


def load(seed: int, budget: Budget, table: Callable[[Budget], pd.DataFrame]) -> tuple[list[Pairs], Hidden]:
    """Embed a catalogue, deal it into experiences if it has none, and split each id's queries by the seed."""
    frame = _table(table, budget)
    if "experience" not in frame:
        frame = dealt(frame, seed)
    stream = ContinualStream(frame, test_frac=1 / 3, seed=seed)
    texts = list(frame["query"])
    cards = dict(zip(frame["id"], frame["card"], strict=True)) if "card" in frame else {}
    features = embedded(texts + list(cards.values()))
    of_card = dict(zip(cards, features[len(texts) :], strict=True))
    given, right, known, so_far = [], [], [], set()
    for experience in stream:
        train, test = experience.train, experience.test
        here = list(dict.fromkeys(train["id"]))
        so_far = so_far | set(here)
        given.append(
            Pairs(
                texts=list(train["query"]),
                X=features[train.index.to_numpy()],
                ids=list(train["id"]),
                domains=list(train["domain"]),
                families=list(train["family"]),
                cards={name: cards[name] for name in here if name in cards},
                card_X={name: of_card[name] for name in here if name in cards},
                test_texts=list(test["query"]),
                test_X=features[test.index.to_numpy()],
            )
        )
        right.append(list(test["id"]))
        known.append(so_far)
    return given, Hidden(right, dict(stream.families), dict(stream.domains), known, _number(frame), len(frame))


@lru_cache(maxsize=4)
def _table(table: Callable[[Budget], pd.DataFrame], budget: Budget) -> pd.DataFrame:
    return table(budget)


def dealt(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Deal the ids into experiences at random, so that each brings new ids of every domain."""
    ids = frame["id"].unique()
    place = dict(zip(np.random.default_rng([seed, 1]).permutation(ids), np.arange(len(ids)), strict=True))
    return frame.assign(experience=[place[name] * N_EXPERIENCES // len(ids) for name in frame["id"]])


def embedded(texts: Sequence[str]) -> FloatArray:
    """Unit features [n, 384], made once for all cells."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    folder = shared(["minilm", digest], lambda new: np.save(new / "X.npy", minilm.encode(texts), allow_pickle=False))
    return np.load(folder / "X.npy", allow_pickle=False)


def _number(frame: pd.DataFrame) -> int:
    text = frame[["query", "id", "family", "domain"]].to_json(orient="values")
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


def score(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """Accuracies at the end and over time, and what was forgotten, in percent; an id not known by then is wrong."""
    answer = output if isinstance(output, Answer) else Answer(output)
    n = len(hidden.right)
    if not isinstance(answer.predicted, list | tuple) or len(answer.predicted) != n:
        raise ValueError(
            f"the output must be a list of {n}, one a time, each with a list of ids for each experience so far"
        )
    history = []
    for t, row in enumerate(answer.predicted):
        if len(row) != t + 1:
            raise ValueError(
                f"output[{t}] must hold {t + 1} lists of ids, one for each experience so far, not {len(row)}"
            )
        history.append([_accuracy(row[e], t, e, hidden) for e in range(t + 1)])
    report = {name: 100 * value for name, value in route_report(history).items()}
    costs = {"parameters": answer.parameters, "steps": answer.steps, "kept": answer.kept}
    catalogue = {"ids": len(hidden.known[-1]), "queries": hidden.n_queries, "table": hidden.table}
    return report | costs | catalogue


def _accuracy(predicted: Sequence[str], t: int, e: int, hidden: Hidden) -> dict[str, float]:
    right = hidden.right[e]
    if len(predicted) != len(right):
        raise ValueError(f"output[{t}][{e}] must hold {len(right)} ids, one for each test query, not {len(predicted)}")
    known = hidden.known[t]
    unknown = "\0"  # no id of a table
    names = [name if name in known else unknown for name in predicted]
    families, domains = {**hidden.families, unknown: unknown}, {**hidden.domains, unknown: unknown}
    return route_accuracy(right, names, families, domains)


def run(given: list[Pairs], seed: int, budget: Budget, contender: Callable[..., Answer], **parameters: Any) -> Answer:
    """A contender of ``baselines.py``."""
    return contender(given, seed, **parameters)


NO_ANCHORS = {"lambda_emb": 0.0, "lambda_proj": 0.0}
FROZEN = {"lambda_emb": math.inf, "lambda_proj": math.inf}
RANDOM_REPLAY = {"quota": "random", **NO_ANCHORS}

EWC, LWF = 1e4, 3e3
"""Strengths, of 1e2 … 1e5 and 0.3 … 3e3 the best: model accuracy on two experiences of ``functions``, seeds 0 and 1.

Those seeds split the same queries as the study's; the first two experiences' training queries alone choose the same.
"""


Contender = Callable[..., Answer]


def _arm(
    name: str,
    role: Any,
    what: str,
    contender: Contender,
    budgets: tuple[Budget, ...] = tuple(Budget),
    **parameters: Any,
) -> Arm:
    return Arm(name, partial(run, contender=contender, **parameters), role, what, budgets=budgets)


def _arms() -> tuple[Arm, ...]:
    routed, regularised = baselines.routed, baselines.regularised
    return (
        _arm("carve", "method", "random start, anchors, coreset of 10 %", routed),
        _arm("carve-prototype", "ablation", "vectors start from the means of their queries", routed, init="prototype"),
        _arm("class-mean", "trivial", "nearest mean of an id's queries; trains nothing", baselines.class_mean),
        _arm("card-retrieval", "baseline", "nearest card by MiniLM", baselines.card_retrieval),
        _arm("bm25", "baseline", "best card by BM25", baselines.bm25),
        _arm("sequential", "baseline", "no replay, no anchors", routed, replay=0.0, **RANDOM_REPLAY),
        _arm("random-replay", "baseline", "10 % of old queries at random, no anchors", routed, **RANDOM_REPLAY),
        _arm("random-replay-20", "baseline", "the same with 20 %", routed, QUICK, replay=0.2, **RANDOM_REPLAY),
        _arm("ewc", "baseline", "Fisher-weighted penalty on change", regularised, QUICK, kind="ewc", strength=EWC),
        _arm("lwf", "baseline", "distillation of the router before", regularised, QUICK, kind="lwf", strength=LWF),
        _arm("carve-noanchor", "ablation", "coreset, no anchors", routed, QUICK, **NO_ANCHORS),
        _arm("carve-frozen", "ablation", "old vectors and projection do not move", routed, QUICK, **FROZEN),
        _arm("carve-randombuffer", "ablation", "anchors, old queries at random", routed, QUICK, quota="random"),
        _arm("carve-cardinit", "ablation", "vectors start from the cards", routed, QUICK, init="card"),
        _arm(
            "prototype-noanchor",
            "ablation",
            "prototype start, no anchors",
            routed,
            FULL,
            init="prototype",
            **NO_ANCHORS,
        ),
        _arm(
            "prototype-frozen",
            "ablation",
            "prototype start, nothing old moves",
            routed,
            FULL,
            init="prototype",
            **FROZEN,
        ),
        _arm("carve-20", "ablation", "coreset of 20 %", routed, FULL, replay=0.2),
        _arm("joint", "ceiling", "trained anew on everything each time", baselines.joint, FULL),
    )


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's table. The method is the prototype start, which the card recommends."""
    if set(paths) != {"data"}:
        raise InputError(f"carve takes a table as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    frame = own_table(Budget.QUICK, path)
    n_ids = frame["id"].nunique()
    if n_ids < 2 * N_EXPERIENCES:
        raise InputError(f"{path.name} has {n_ids} ids; this study needs at least {2 * N_EXPERIENCES}")
    timed = "experience" in frame
    if timed and frame["experience"].nunique() < 2:
        raise InputError(f"the column 'experience' of {path.name} holds one value; leave it out, or give at least two")
    untested = ContinualStream(frame if timed else dealt(frame, 0))
    empty = [e.name for e in untested if not len(e.test)]
    if empty:
        raise InputError(
            f"in {path.name} no id of the experience {empty[0]!r} has two queries, so that none is left to test on"
        )
    growth = "its column 'experience'" if timed else f"its ids dealt at random into {N_EXPERIENCES} experiences"
    names = ["carve-prototype", "carve", "class-mean", "random-replay", "sequential", "ewc", "joint"]
    names += ["card-retrieval", "bm25"] if "card" in frame else []
    arms = []
    for arm in _arms():
        if arm.name in names:
            roles = {"carve-prototype": "method", "carve": "ablation"}
            arms.append(replace(arm, role=roles.get(arm.name, arm.role), budgets=tuple(Budget)))
    others = {
        "class-mean": "carve-prototype beats the class-mean look-up on your table",
        "random-replay": "carve-prototype beats random replay on your table",
        "ewc": "carve-prototype beats EWC on your table",
        "card-retrieval": "carve-prototype beats card retrieval on your table",
        "bm25": "carve-prototype beats BM25 on your table",
    }
    return Study(
        name="carve",
        tasks=(
            Task(
                "own",
                partial(load, table=partial(own_table, path=path)),
                score,
                f"{path.name}: {len(frame)} queries of {n_ids} ids; experiences: {growth}",
            ),
        ),
        arms=tuple(arms),
        claims=tuple(
            higher("model", "carve-prototype", than=other, says=says)
            for other, says in others.items()
            if other in {a.name for a in arms}
        ),
        primary="model",
        better="higher",
        metrics=METRICS,
        seeds=SEEDS,
        contract=CONTRACT,
    )


def own_table(budget: Budget, path: Path) -> pd.DataFrame:
    """The user's table with the columns that this study reads, checked."""
    there = read_columns(path)
    names = {name: name if name in there or name in ("query", "id") else None for name in OWN_COLUMNS}
    table = read_table(path, names)
    if "card" in table and table["card"].isna().any():
        raise InputError(f"the column 'card' of {path.name} is empty in some rows")
    checked = checked_table(table, ["experience"] if "experience" in table else [])
    return checked.astype(dict.fromkeys(("id", "family", "domain"), str))


OWN_COLUMNS = ("query", "id", "family", "domain", "card", "experience")

METRICS = {
    "model": "queries routed to the right id, %, mean over experiences at the end",
    "family": "queries routed to an id of the right family, %",
    "domain": "queries routed to an id of the right domain, %",
    "model_over_time": "accuracy on all experiences so far, %, mean over all times",
    "family_over_time": "the same for families",
    "domain_over_time": "the same for domains",
    "model_forgetting": "best earlier accuracy on an experience less the one at the end, points, mean over experiences",
    "family_forgetting": "the same for families",
    "domain_forgetting": "the same for domains",
    "kept": "old queries kept at the end; one takes 4 bytes × 384 features",
    "ids": "in the catalogue",
    "queries": "in the catalogue, for training and test",
    "table": "a number that names the catalogue's content; other versions of packages give another",
}

CONTRACT = """f(given, seed) -> predicted

given              a list of experiences in order of time; of each experience e
  .texts, .X       training queries, and their MiniLM embeddings (n, 384) float32, rows of length 1
  .ids, .domains, .families   of each training query
  .cards, .card_X  descriptions of the ids met here, id -> text and id -> embedding; may be empty
  .test_texts, .test_X        queries to route
returns            predicted[t][e]: a list of ids, one for each test query of experience e, routed after learning the
                   experiences 0 to t and nothing later; for all e up to t
"""

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 5, Budget.FULL: 5, Budget.PAPER: 5}


def _claims() -> tuple[Claim, ...]:
    claims = [
        higher(metric, "carve", than="random-replay", says=f"beats random replay of equal size in {metric} accuracy")
        for metric in ("model", "family", "domain")
    ]
    claims.append(
        lower("domain_forgetting", "carve", than="random-replay", ratio=0.6, says="forgets less than random replay")
    )
    claims += [
        higher(metric, "carve", than="random-replay-20", says=f"half the memory still wins in {metric} accuracy")
        for metric in ("model", "domain")
    ]
    claims += [
        higher("model", "carve", than="carve-noanchor", says="the anchors do it"),
        higher("model", "carve", than="carve-frozen", says="anchors beat holding the old still"),
        higher("model", "carve", than="carve-randombuffer", says="the coreset adds to the anchors"),
        higher("model", "carve", than=["card-retrieval", "bm25"], says="beats card retrieval and BM25"),
    ]
    claims += [
        higher(metric, "carve", than=other, says=f"beats {name} in {metric} accuracy")
        for other, name in (("sequential", "sequential training"), ("ewc", "EWC"), ("lwf", "LwF"))
        for metric in ("model", "domain")
    ]
    claims += [
        higher("model", "carve", than="carve-cardinit", says="a random start beats a start from cards"),
        higher("model", "carve", than="class-mean", says="beats the class-mean look-up"),
    ]
    claims += [
        higher(
            metric,
            "carve-prototype",
            than="class-mean",
            says=f"the prototype start beats class means in {metric} accuracy",
        )
        for metric in ("model", "domain")
    ]
    return tuple(claims)


STUDY = Study(
    name="carve",
    tasks=(
        Task(
            "functions",
            partial(load, table=functions),
            score,
            "functions of six packages, queries from their docstrings; whole packages join, in 4 experiences",
        ),
        Task(
            "experts",
            partial(load, table=experts),
            score,
            "news topics, newsgroups and question sets as experts; each of 4 experiences brings some of every source",
            budgets=QUICK,
        ),
    ),
    arms=_arms(),
    claims=_claims(),
    primary="model",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={
        "data": "a table of queries (.csv, .tsv, .parquet or .jsonl) with the columns query and id, and if there are "
        "such domain, family, card and experience (when the query came); at least 8 ids, with 2 queries or more"
    },
    own=own,
)
