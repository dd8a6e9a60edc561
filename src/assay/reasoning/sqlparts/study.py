"""The study of sqlparts: does the score rank as running the queries does, does junk pay, and does any of it train?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau
from sklearn.metrics import roc_auc_score

from assay.errors import InputError
from assay.evidence.asking import Asking
from assay.evidence.claim import at_least, higher, holds
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts import flights
from assay.parts.chat import Chat

from . import baselines, labelling, own_pairs, retail, samples
from .asking import Answer, Asker
from .completion import parse_completion
from .database import SafeDatabase
from .execution import execution_match
from .fragments import components_score
from .levels import LEVELS
from .matching import mcs_score
from .prompts import Ways
from .questions import Question, questions

QUERIES = {Budget.SMOKE: 10, Budget.QUICK: 40, Budget.FULL: 120, Budget.PAPER: 300}
ROWS = {Budget.SMOKE: 800, Budget.QUICK: 1500, Budget.FULL: 3000, Budget.PAPER: 3000}
"""Flights, or orders of the shop, in the database on which candidates are run."""

TRAINED = (Budget.QUICK, Budget.FULL, Budget.PAPER)
"""Where models are trained: nothing is learnt in the seconds of a smoke test."""

RARE = 0.03
"""Share of the challenging questions among those that are taught: rare, as they are among the questions people ask."""

Score = Callable[[str, str], float]


@dataclass(frozen=True)
class Pairs:
    """What an arm sees: pairs of a prediction and its gold query, and what they are."""

    kind: str
    preds: tuple[Any, ...]
    golds: tuple[str, ...]


@dataclass(frozen=True)
class Scores:
    """What an arm gives: a number a pair, and the CPU seconds that all of them took."""

    values: list[float]
    seconds: float


def _labelled(name: str, seed: int, budget: Budget) -> list[dict[str, Any]]:
    """The labelled rows of a task, made once for all arms."""
    work = shared(["sqlparts", name, seed, budget.value], partial(_label, name=name, seed=seed, budget=budget))
    return list(json.loads((work / "rows.json").read_text()))


def _label(folder: Path, name: str, seed: int, budget: Budget) -> None:
    rng = np.random.default_rng(seed)
    if name == "shop":
        golds = samples.gold_queries(rng, QUERIES[budget], retail.TEMPLATES)
        rows = labelling.ranking(golds, retail.tables(rng, ROWS[budget]), rng, retail.POOL)
    else:
        golds = samples.gold_queries(rng, QUERIES[budget])
        tables = samples.tables(rng, ROWS[budget])
        if name == "junk":
            rows = labelling.junk(golds, tables, rng)
        else:
            make = labelling.ranking if name == "flights" else labelling.fragments
            rows = make(golds, tables, rng, samples.FLIGHTS)
    (folder / "rows.json").write_text(json.dumps(rows))


def load_queries(seed: int, budget: Budget, name: str) -> tuple[Pairs, dict[str, Any]]:
    """Gold queries, two rewrites and four edited copies of each, or parts of them; labelled by running them."""
    rows = _labelled(name, seed, budget)
    given = Pairs(
        "fragment" if name == "fragments" else "query", tuple(r["pred"] for r in rows), tuple(r["gold"] for r in rows)
    )
    return given, {"right": [r["right"] for r in rows], "edits": [r.get("edits") for r in rows]}


def score_queries(output: Any, hidden: Mapping[str, Any]) -> Mapping[str, float]:
    """How well the scores tell right from wrong, follow the number of edits, and stay at 1 where nothing changed."""
    scores, found = _numbers(output, len(hidden["right"]))
    metrics = {"auc": float(roc_auc_score(hidden["right"], scores)), **found}
    if any(hidden["edits"]):
        edits = np.array(hidden["edits"])
        metrics["tau"] = float(kendalltau(scores, -edits).statistic) if len(set(scores)) > 1 else 0.0
        metrics["floor"] = float(scores[edits == 0].min())
    return metrics


def load_junk(seed: int, budget: Budget) -> tuple[Pairs, dict[str, Any]]:
    """The parts of gold queries; these with three parts of other queries; and with three copies of one of them."""
    rows = _labelled("junk", seed, budget)
    preds = [r[kind] for r in rows for kind in ("parts", "foreign", "double")]
    return Pairs("components", tuple(preds), tuple(r["gold"] for r in rows for _ in range(3))), {"n": len(preds)}


def score_junk(output: Any, hidden: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether junk lowered the score in every case, and by how much on average."""
    scores, found = _numbers(output, hidden["n"])
    clean, foreign, double = scores.reshape(-1, 3).T
    return {
        "lowered": bool((foreign < clean).all() and (double < clean).all()),
        "loss": float((clean - foreign).mean()),
        "loss_double": float((clean - double).mean()),
        **found,
    }


def _numbers(output: Any, n: int) -> tuple[np.ndarray, dict[str, float]]:
    """The scores, and what each took, in milliseconds, where that was measured."""
    timed = isinstance(output, Scores)
    scores = np.asarray(output.values if timed else output, dtype=np.float64)
    if scores.shape != (n,) or not np.isfinite(scores).all():
        raise ValueError(f"the output must be {n} finite numbers, one a pair; got shape {scores.shape}")
    return scores, {"ms": 1e3 * output.seconds / n} if timed else {}


def run_score(given: Pairs, seed: int, budget: Budget, query: Score, fragment: Score) -> Scores:
    """One score for whole queries, and one of fragments: how much of them gold contains."""
    score = fragment if given.kind == "fragment" else query
    begin = time.process_time()
    values = [float(score(p, g)) for p, g in zip(given.preds, given.golds, strict=True)]
    return Scores(values, time.process_time() - begin)


def run_mcs(given: Pairs, seed: int, budget: Budget) -> Scores:
    """The method: shared subtrees of queries and fragments, F1 of components."""
    query: Any = partial(_f1, count_only=False) if given.kind == "components" else mcs_score
    return run_score(given, seed, budget, query, partial(mcs_score, norm="pred"))


def run_count(given: Pairs, seed: int, budget: Budget) -> Scores:
    """The number of readable components alone."""
    count: Any = partial(_f1, count_only=True)
    return run_score(given, seed, budget, count, count)


def _f1(parts: Any, gold: str, count_only: bool) -> float:
    return components_score(parts, gold, count_only=count_only).f1


@dataclass(frozen=True)
class Lesson:
    """What an arm learns from and is asked.

    Attributes
    ----------
    taught
        Questions with their queries; few are challenging.
    practice
        Others, of all levels alike, on which it may write and be rewarded.
    asked
        The questions of the test, without their queries.
    tables
        Of the database.
    number
        Names the lesson among those of a budget.
    """

    taught: tuple[Question, ...]
    practice: tuple[Question, ...]
    asked: tuple[str, ...]
    tables: Mapping[str, Any]
    number: int


COLUMNS = ["flight", "origin", "dest", "carrier", "month", "distance", "air_time", "dep_delay", "arr_delay"]


def load_lesson(seed: int, budget: Budget) -> tuple[Lesson, dict[str, Any]]:
    """Questions to learn from, to practise on and to be tested with; no question is two of these."""
    taught, practice, asked = (
        (900, 300, 180) if budget is Budget.QUICK else (60, 30, 30) if budget is Budget.SMOKE else (4000, 900, 300)
    )
    rng = np.random.default_rng(seed)
    everything = questions(rng, asked + practice + 2 * taught)
    test, rest = everything[:asked], everything[asked:]
    practised, rest = rest[:practice], rest[practice:]
    hard = [q for q in rest if q.level == "challenging"][: max(1, round(RARE * taught))]
    easy = [q for q in rest if q.level != "challenging"][: taught - len(hard)]
    tables = {"flights": flights.drawn(1000, seed)[COLUMNS]}
    lesson = Lesson((*easy, *hard), tuple(practised), tuple(q.text for q in test), tables, seed)
    return lesson, {"test": test, "tables": tables}


def score_answers(output: Any, hidden: Mapping[str, Any]) -> Mapping[str, float]:
    """How many of the completions hold a query that gives the right rows, in all and by level."""
    test = hidden["test"]
    if not isinstance(output, list | tuple) or len(output) != len(test):
        raise ValueError(f"the output must be a list of {len(test)} completions, one a question")
    right: dict[str, list[bool]] = {level: [] for level in LEVELS}
    with SafeDatabase(hidden["tables"], timeout=5) as db:
        for text, question in zip(output, test, strict=True):
            sql = parse_completion(text).sql
            right[question.level].append(sql is not None and execution_match(sql, question.sql, db))
    rates = {f"ex_{level}": float(np.mean(found)) for level, found in right.items() if found}
    return {"ex": float(np.mean([one for found in right.values() for one in found])), **rates}


def _size(budget: Budget) -> Any:
    from .training import Shape, Size

    if budget is Budget.SMOKE:
        return Size(8, 1, Shape(32, 1, 2, 160))
    return Size(200, 8, Shape(64, 2, 4, 160)) if budget is Budget.QUICK else Size(300, 60, Shape(64, 2, 4, 160))


def _taught(given: Lesson, mode: Ways, seed: int, budget: Budget) -> Any:
    """The model of a lesson and seed, taught once for all arms that begin with it."""
    from . import training

    work = shared(
        ["sqlparts taught", mode, given.number, seed, budget.value],
        partial(training.keep_taught, questions=given.taught, mode=mode, size=_size(budget), seed=seed),
    )
    return training.read_taught(work)


def run_taught(given: Lesson, seed: int, budget: Budget, mode: Ways) -> list[str]:
    """A small model that has learnt from right completions."""
    from .training import answered

    return answered(_taught(given, mode, seed, budget), given.asked)


def run_practised(given: Lesson, seed: int, budget: Budget, reward: str) -> list[str]:
    """The model that writes parts first, after practice for a reward."""
    from . import training

    model = _taught(given, "parts", seed, budget)
    with SafeDatabase(given.tables, timeout=5) as db:
        rewarder = training.Rewarder(reward, db)
        training.practised(model, given.practice, rewarder, _size(budget).practice, seed)
    return training.answered(model, given.asked)


def ask_model(chat: Chat, given: Lesson, seed: int, budget: Budget, mode: Ways) -> list[str]:
    """A user's language model, asked as :class:`Asker` asks it; a question that it does not answer is wrong."""
    with SafeDatabase(given.tables, timeout=5) as db:
        found = Asker(chat, db, mode=mode, seed=seed).ask_many(list(given.asked))
    return [f"<sql>{a.sql}</sql>" if isinstance(a, Answer) and a.sql else "" for a in found]


def load_asked(seed: int, budget: Budget) -> tuple[Lesson, dict[str, Any]]:
    """The test of the lesson alone, for models that need no lesson."""
    lesson, hidden = load_lesson(seed, budget)
    n = 12 if budget is Budget.SMOKE else 60
    return replace(lesson, taught=(), practice=(), asked=lesson.asked[:n]), {**hidden, "test": hidden["test"][:n]}


RANKED = ("flights", "shop")

CONTENDERS = (
    ("ngram", baselines.ngram, baselines.contained_ngram, "baseline", "1- to 4-grams of tokens"),
    ("token", baselines.token, baselines.contained_token, "baseline", "sets of tokens"),
    ("diff", baselines.kept, baselines.kept, "baseline", "share of nodes that sqlglot's diff keeps"),
    ("ted", baselines.edit_distance, baselines.contained_distance, "baseline", "edit distance of the same trees"),
    ("exact", baselines.exact, baselines.exact, "trivial", "the same text"),
)

NAMES = {
    "ngram": "n-grams",
    "token": "token overlap",
    "diff": "sqlglot's diff",
    "ted": "tree edit distance",
    "exact": "equality",
}


def _scorers(tasks: tuple[str, ...]) -> tuple[Arm, ...]:
    return tuple(
        Arm(name, partial(run_score, query=query, fragment=fragment), role, what, tasks)  # type: ignore[arg-type]
        for name, query, fragment, role, what in CONTENDERS
    )


def _learners() -> tuple[Arm, ...]:
    at: Any = {"tasks": ("training",), "budgets": TRAINED}
    first = "taught to write parts first"
    return (
        Arm("direct", partial(run_taught, mode="direct"), "baseline", "small model, taught to write the query", **at),
        Arm("parts", partial(run_taught, mode="parts"), "ablation", f"the same, {first}", **at),
        Arm("rl-mcs", partial(run_practised, reward="mcs"), "ablation", f"{first}; then rewards with trees", **at),
        Arm("rl-exec", partial(run_practised, reward="exec"), "baseline", f"{first}; then execution alone", **at),
        Arm("rl-token", partial(run_practised, reward="token"), "baseline", f"{first}; then token overlap", **at),
        Arm(
            "rl-count",
            partial(run_practised, reward="count"),
            "ablation",
            f"{first}; then trees, and parts only counted",
            ("training",),
            (Budget.FULL, Budget.PAPER),
        ),
        *(
            Arm(f"ask-{mode}", Asking(partial(ask_model, mode=mode)), "baseline", f"your model, {how}", ("asked",))
            for mode, how in (("direct", "asked for the query"), ("parts", "asked for parts first"))
        ),
    )


METRICS = {
    "auc": "area under the ROC curve of right against wrong (0.5 is chance)",
    "tau": "Kendall's rank correlation with the number of edits, the fewer the higher",
    "floor": "lowest score of a rewrite that means the same",
    "ms": "CPU milliseconds a pair, reading both queries included",
    "lowered": "whether junk lowered the score in every case",
    "loss": "by how much three components of other queries lowered it, mean",
    "loss_double": "by how much three copies of an own component lowered it, mean",
    "ex": "questions answered with the right rows",
    **{f"ex_{level}": f"the same of {level} questions" for level in LEVELS},
}

CONTRACT = """f(given, seed) -> scores

given.kind   "query" or "fragment": of a fragment is asked how much of it the right query contains
given.preds  n SQL texts, as a model has written them
given.golds  n right queries, one for each
returns      n numbers, higher for what is more right
"""

ACCEPTS = (
    "your right queries, with a model's if you have them: a table (.csv, .tsv, .parquet, .jsonl) with the columns sql "
    "and pred, or sql alone; databases beside it, by a column db (a path from the table's folder) or db_id "
    "(database/ID/ID.sqlite), or the folder's only .sqlite; or a folder in the layout of BIRD or Spider "
    "(dev.json, database/ID/ID.sqlite)"
)

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 4, Budget.FULL: 10, Budget.PAPER: 10}


def own(brought: Mapping[str, Path]) -> Study:
    """Return the study on a user's queries and databases: which score tells right from wrong there?

    Raises
    ------
    InputError
        When it is no such table or folder, or holds too few queries.
    """
    if set(brought) != {"data"}:
        raise InputError(f"sqlparts takes queries as data, got {', '.join(sorted(brought)) or 'nothing'}")
    path = Path(brought["data"])
    found = own_pairs.read(path)
    predicted = found[0].pred is not None
    what = "your model's queries" if predicted else "your queries, rewritten and edited"
    return Study(
        name="sqlparts",
        tasks=(
            Task(
                "own",
                partial(load_own, path=path, first=STUDY.base_seed),
                score_queries,
                f"{path.name}: {what}, labelled by running them; dealt into {own_pairs.FOLDS} folds, one a seed",
            ),
        ),
        arms=(Arm("mcs", run_mcs, "method", "largest connected subtree"), *_scorers(("own",))),
        claims=tuple(
            higher("auc", "mcs", than=name, says=f"ranks your candidates better than {what}")
            for name, what in NAMES.items()
        ),
        primary="auc",
        better="higher",
        metrics=METRICS,
        seeds=dict.fromkeys(Budget, own_pairs.FOLDS),
        contract=CONTRACT,
    )


def load_own(seed: int, budget: Budget, path: Path, first: int) -> tuple[Pairs, dict[str, Any]]:
    """One fold of the user's queries."""
    fold = seed - first
    if not 0 <= fold < own_pairs.FOLDS:
        raise InputError(
            f"your queries are dealt into {own_pairs.FOLDS} folds, one a seed; there is no more for others"
        )
    work = shared(
        ["sqlparts own", path.name, own_pairs.fingerprint(path), fold],
        lambda folder: (folder / "rows.json").write_text(json.dumps(own_pairs.labelled(path, fold))),
    )
    rows = json.loads((work / "rows.json").read_text())
    right = [r["right"] for r in rows]
    if len(set(right)) < 2:
        raise InputError(f"of the queries in fold {fold} {'all' if all(right) else 'none'} are right: nothing to tell")
    given = Pairs("query", tuple(r["pred"] for r in rows), tuple(r["gold"] for r in rows))
    return given, {"right": right, "edits": [r["edits"] for r in rows]}


STUDY = Study(
    name="sqlparts",
    tasks=(
        Task(
            "flights",
            partial(load_queries, name="flights"),
            score_queries,
            "rewrites and edits of queries on flights from New York, labelled by running them",
        ),
        Task("shop", partial(load_queries, name="shop"), score_queries, "the same on a made-up shop with six tables"),
        Task(
            "fragments",
            partial(load_queries, name="fragments"),
            score_queries,
            "right and edited parts of the queries on flights, labelled by running them",
        ),
        Task("junk", load_junk, score_junk, "right parts with and without three that are junk", control=True),
        Task(
            "training",
            load_lesson,
            score_answers,
            "small models learn to answer questions on flights; 3 % of what they are taught is challenging",
            control=True,
            budgets=TRAINED,
        ),
        Task("asked", load_asked, score_answers, "the same questions, to your language model", control=True),
    ),
    arms=(
        Arm("mcs", run_mcs, "method", "largest connected subtree; F1 of components", (*RANKED, "fragments", "junk")),
        *_scorers((*RANKED, "fragments")),
        Arm("count", run_count, "ablation", "components are only counted", ("junk",)),
        *_learners(),
    ),
    claims=(
        *(
            higher("auc", "mcs", than=name, tasks=RANKED, says=f"ranks candidates better than {what}")
            for name, what in NAMES.items()
        ),
        at_least("floor", "mcs", 1.0, tasks=RANKED, says="blind to rewrites that mean the same"),
        at_least("auc", "mcs", 0.98, tasks="fragments", says="tells right fragments from wrong ones"),
        higher(
            "auc",
            "mcs",
            than=("ngram", "token", "diff", "ted"),
            tasks="fragments",
            says="tells fragments better than the others",
        ),
        holds("lowered", "mcs", tasks="junk", says="junk components do not pay"),
        higher("ex_challenging", "parts", than="direct", tasks="training", says="parts help challenging questions"),
        higher("ex", "rl-mcs", than="rl-exec", tasks="training", says="the dense reward helps"),
        higher("ex", "rl-mcs", than="rl-token", tasks="training", says="trees reward better than token overlap"),
        higher(
            "ex_challenging",
            "ask-parts",
            than="ask-direct",
            tasks="asked",
            says="parts help your model with challenging questions",
        ),
    ),
    primary="auc",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={"data": ACCEPTS},
    own=own,
)
