"""The study of sqlparts: does the score rank queries and fragments as running them does, and does junk pay?"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from assay.evidence.claim import at_least, higher, holds
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task

from . import baselines, samples
from .database import SafeDatabase
from .execution import _changed, _compared, closing_all, orders, same_rows
from .fragments import components_score, decompose
from .matching import mcs_score
from .normal_form import parse

QUERIES = {Budget.SMOKE: 16, Budget.QUICK: 50, Budget.FULL: 150, Budget.PAPER: 300}
ROWS = {Budget.SMOKE: 1000, Budget.QUICK: 2000, Budget.FULL: 4000, Budget.PAPER: 4000}
"""Flights in the database on which candidates are run."""

EDITS = (1, 2, 3, 5)
COPIES = 3

Score = Callable[[str, str], float]


@dataclass(frozen=True)
class Pairs:
    """What an arm sees: pairs of a prediction and its gold query, which of them belong together, and what is asked."""

    kind: str
    preds: tuple[Any, ...]
    golds: tuple[str, ...]


def load_ranking(seed: int, budget: Budget) -> tuple[Pairs, dict[str, Any]]:
    """Task R: gold queries, two rewrites and four edited copies of each, labelled by running them."""
    work = shared(["sqlparts ranking", seed, budget.value], partial(_label, seed=seed, budget=budget))
    found = json.loads((work / "labelled.json").read_text())
    rows = found["rows"]
    given = Pairs("query", tuple(r["pred"] for r in rows), tuple(r["gold"] for r in rows))
    return given, {"right": [r["right"] for r in rows], "edits": [r["edits"] for r in rows]}


def _label(folder: Path, seed: int, budget: Budget) -> None:
    rng = np.random.default_rng(seed)
    golds = samples.gold_queries(rng, QUERIES[budget])
    frames = samples.tables(rng, ROWS[budget])
    literals: dict[str, list[float]] = {}
    for gold in golds:
        for column, numbers in _compared(parse(gold)).items():
            literals.setdefault(column, []).extend(numbers)
    copies = [
        {
            name: _changed(frame.astype(object).where(frame.notna(), None), literals, rng)
            for name, frame in frames.items()
        }
        for _ in range(COPIES)
    ]
    rows = []
    with closing_all([SafeDatabase(tables, timeout=10) for tables in (frames, *copies)]) as databases:
        for gold in golds:
            right = [db.run(gold) for db in databases]
            candidates = [(samples.rewritten(gold, rng), 0) for _ in range(2)]
            candidates += [(samples.edited(samples.rewritten(gold, rng), rng, k), k) for k in EDITS]
            for pred, edits in candidates:
                same = all(
                    same_rows(db.run(pred), there, "bag", orders(gold))
                    for db, there in zip(databases, right, strict=True)
                )
                rows.append({"gold": gold, "pred": pred, "edits": edits, "right": same})
    (folder / "labelled.json").write_text(json.dumps({"rows": rows}))


def score_ranking(output: Any, hidden: dict[str, Any]) -> Mapping[str, float]:
    """How well the scores tell right from wrong, and the lowest score that a rewrite got."""
    scores = _numbers(output, len(hidden["right"]))
    edits = np.array(hidden["edits"])
    return {"auc": float(roc_auc_score(hidden["right"], scores)), "floor": float(scores[edits == 0].min())}


def load_fragments(seed: int, budget: Budget) -> tuple[Pairs, dict[str, Any]]:
    """Task C: the parts of gold queries, rewritten, and the same with one or two edits."""
    rng = np.random.default_rng(seed)
    preds, golds, right = [], [], []
    for gold in samples.gold_queries(rng, 2 * QUERIES[budget]):
        for part in decompose(gold):
            for edits in (0, 1 + int(rng.integers(2))):
                text = samples.rewritten(part.sql, rng)
                text = samples.edited(text, rng, edits) if edits else text
                whole = edits == 0 or mcs_score(text, part.sql) == 1  # an edit may have undone another
                preds.append(text)
                golds.append(gold)
                right.append(whole)
    return Pairs("fragment", tuple(preds), tuple(golds)), {"right": right}


def score_fragments(output: Any, hidden: dict[str, Any]) -> Mapping[str, float]:
    """How well the scores tell right fragments from wrong ones."""
    return {"auc": float(roc_auc_score(hidden["right"], _numbers(output, len(hidden["right"]))))}


def load_junk(seed: int, budget: Budget) -> tuple[Pairs, dict[str, Any]]:
    """Task J: the parts of gold queries, and the same with three parts of other queries beside them."""
    rng = np.random.default_rng(seed)
    found = [(gold, [p.sql for p in decompose(gold)]) for gold in samples.gold_queries(rng, 2 * QUERIES[budget])]
    found = [(gold, parts) for gold, parts in found if parts]
    preds, golds = [], []
    for gold, parts in found:
        others = [p for other, more in found if other != gold for p in more if mcs_score(p, gold, norm="pred") < 0.9]
        junk = [str(p) for p in rng.choice(others, 3, replace=False)]
        preds += [parts, parts + junk]
        golds += [gold, gold]
    return Pairs("components", tuple(preds), tuple(golds)), {"n": len(golds)}


def score_junk(output: Any, hidden: dict[str, Any]) -> Mapping[str, Any]:
    """Whether junk lowered the score in every case, and by how much on average."""
    scores = _numbers(output, hidden["n"]).reshape(-1, 2)
    return {"lowered": bool((scores[:, 1] < scores[:, 0]).all()), "loss": float((scores[:, 0] - scores[:, 1]).mean())}


def _numbers(output: Any, n: int) -> np.ndarray:
    scores = np.asarray(output, dtype=np.float64)
    if scores.shape != (n,) or not np.isfinite(scores).all():
        raise ValueError(f"the output must be {n} finite numbers, one a pair; got shape {scores.shape}")
    return scores


def run_mcs(given: Pairs, seed: int, budget: Budget) -> list[float]:
    """The method on every task."""
    if given.kind == "components":
        return [components_score(p, g).f1 for p, g in zip(given.preds, given.golds, strict=True)]
    norm: Any = "pred" if given.kind == "fragment" else "dice"
    return [mcs_score(p, g, norm=norm) for p, g in zip(given.preds, given.golds, strict=True)]


def run_other(given: Pairs, seed: int, budget: Budget, query: Score, fragment: Score) -> list[float]:
    """A score of ``baselines.py``; of fragments how much of them gold contains."""
    score = fragment if given.kind == "fragment" else query
    return [score(p, g) for p, g in zip(given.preds, given.golds, strict=True)]


def run_count(given: Pairs, seed: int, budget: Budget) -> list[float]:
    """The number of readable components alone."""
    return [components_score(p, g, count_only=True).f1 for p, g in zip(given.preds, given.golds, strict=True)]


OTHERS = ("ngram", "token", "diff", "exact")

STUDY = Study(
    name="sqlparts",
    tasks=(
        Task("ranking", load_ranking, score_ranking, "rewrites and edits of queries, labelled by running them"),
        Task("fragments", load_fragments, score_fragments, "right and edited parts of queries"),
        Task("junk", load_junk, score_junk, "right parts with and without three of other queries"),
    ),
    arms=(
        Arm("mcs", run_mcs, "method", "largest connected subtree; F1 of components"),
        *(
            Arm(
                name,
                partial(run_other, query=query, fragment=fragment),
                role,
                what,
                ("ranking", "fragments"),
            )
            for name, query, fragment, role, what in (
                ("ngram", baselines.ngram, baselines.contained_ngram, "baseline", "1- to 4-grams of tokens"),
                ("token", baselines.token, baselines.contained_token, "baseline", "sets of tokens"),
                ("diff", baselines.kept, baselines.kept, "baseline", "share of nodes that sqlglot's diff keeps"),
                ("exact", baselines.exact, baselines.exact, "trivial", "the same text"),
            )
        ),
        Arm("count", run_count, "ablation", "components are only counted", ("junk",)),
    ),
    claims=(
        *(
            higher("auc", "mcs", than=name, tasks="ranking", says=f"ranks candidates better than {what}")
            for name, what in (
                ("ngram", "n-grams"),
                ("token", "token overlap"),
                ("diff", "sqlglot's diff"),
                ("exact", "equality"),
            )
        ),
        at_least("floor", "mcs", 1.0, tasks="ranking", says="blind to rewrites that mean the same"),
        at_least("auc", "mcs", 0.98, tasks="fragments", says="tells right fragments from wrong ones"),
        higher(
            "auc",
            "mcs",
            than=("ngram", "token", "diff"),
            tasks="fragments",
            says="tells fragments better than the others",
        ),
        holds("lowered", "mcs", tasks="junk", says="junk components do not pay"),
    ),
    primary="auc",
    better="higher",
    metrics={
        "auc": "area under the ROC curve of right against wrong (0.5 is chance)",
        "floor": "lowest score of a rewrite that means the same",
        "lowered": "whether three junk components lowered the score in every case",
        "loss": "by how much they lowered it, mean",
    },
    seeds={Budget.SMOKE: 3, Budget.QUICK: 10, Budget.FULL: 20, Budget.PAPER: 20},
    contract="""f(given, seed) -> scores

given.kind   "query", "fragment" or "components"
given.preds  n predictions: SQL texts, or on "components" lists of SQL texts
given.golds  n right queries, one for each
returns      n numbers, higher for what is more right
""",
)
