"""Rewards for training with a group of completions: format, complexity, components, tree and execution."""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.parts.trl import trl_reward

from .checks import must_be
from .completion import parse_completion
from .database import Rows, SafeDatabase, SqlError
from .execution import MODES, Mode, execution_match, gold_rows, orders, reads_a_table, same_rows
from .fragments import components_score
from .levels import LEVELS, complexity
from .matching import tree_score
from .normal_form import canonical
from .tree import SqlParseError


@dataclass(frozen=True)
class RewardWeights:
    """Weights of the rewards; they are divided by their sum. 0 leaves one out."""

    format: float = 0.5
    complexity: float = 0.5
    parts: float = 1.0
    ast: float = 1.0
    execution: float = 2.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise InputError(f"the weight of {name} must be a number, 0 or more, got {value!r}")
        if not sum(asdict(self).values()) > 0:
            raise InputError("one of the weights must be above 0")


def reward_breakdown(
    completion: str | Sequence[Mapping[str, Any]],
    gold_sql: str,
    db: SafeDatabase | None = None,
    *,
    weights: RewardWeights | None = None,
    dialect: str = "sqlite",
    mode: Mode = "bag",
) -> dict[str, Any]:
    """Score a completion on every count.

    Parameters
    ----------
    completion
        A text or chat messages.
    gold_sql
        The right query.
    db
        Where both are run; without it execution is left out and the other weights share its weight.
    weights
        Of the single rewards.
    dialect
        sqlglot's name of the dialect.
    mode
        How results are compared, as in :func:`execution_match`.

    Returns
    -------
    dict
        ``format``, ``complexity``, ``parts``, ``ast``, ``execution`` (each from 0 to 1; None where not judged),
        ``total`` and
        ``errors``, a list of texts. A query that fails to run costs a tenth of execution's weight, so that ``total``
        lies between -0.1 and 1. A query that reads no table where gold reads one is not paid for its rows.

    Raises
    ------
    SqlParseError
        When gold cannot be read.
    InputError
        When gold cannot be run, or completion is neither a text nor messages.
    """
    if db is not None:
        must_be("db", db, SafeDatabase, "a SafeDatabase or None")
    weights = RewardWeights() if weights is None else weights
    must_be("weights", weights, RewardWeights, "RewardWeights or None")
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    found = parse_completion(completion)
    gold = canonical(gold_sql, dialect=dialect)
    level = complexity(gold_sql, dialect=dialect)
    errors = list(found.errors)
    scores: dict[str, Any] = dict.fromkeys(asdict(weights), 0.0)
    scores["format"] = float(found.format_ok)
    if found.level is not None:
        away = abs(LEVELS.index(found.level) - LEVELS.index(level))
        scores["complexity"] = (1.0, 0.5, 0.0)[away]
    if found.sql is not None or found.parts:
        # An empty text has no components either, and has earned nothing by that.
        scores["parts"] = components_score(found.parts, gold_sql, level=level, dialect=dialect).f1
    if found.sql is not None:
        try:
            scores["ast"] = tree_score(canonical(found.sql, dialect=dialect), gold)
        except InputError as error:
            errors.append(str(error))
    penalty = 0.0
    if db is None:
        scores["execution"] = None
    else:
        right = _gold_rows(gold_sql, db)
        given = _ran(found.sql, db) if found.sql is not None else SqlError("there is no query")
        if isinstance(given, SqlError) and found.sql is not None:
            errors.append(given.message)
            penalty = 0.1
        alike = same_rows(given, right, "bag" if mode == "suite" else mode, orders(gold_sql))
        if alike and mode == "suite":
            alike = execution_match(str(found.sql), gold_sql, db, mode="suite")
        if alike and found.sql is not None and reads_a_table(gold_sql) and not reads_a_table(found.sql):
            errors.append("the result is written down as constants: the query reads no table")
            alike = False
        scores["execution"] = float(alike)
    weight = {name: value for name, value in asdict(weights).items() if scores[name] is not None}
    whole = sum(weight.values())
    total = sum(weight[name] * scores[name] for name in weight) - penalty * weight.get("execution", 0.0)
    return {**scores, "total": total / whole if whole else 0.0, "errors": errors}


def reward_func(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    gold_sql: Sequence[str],
    db_path: Sequence[str] | str | None = None,
    db_id: Sequence[str] | None = None,
    dialect: Sequence[str] | str | None = None,
    **columns: Any,
) -> list[float]:
    """Reward completions; a trainer of TRL takes this in ``reward_funcs``.

    Parameters
    ----------
    prompts, completions
        As the trainer gives them: texts or conversations; None counts as an empty text.
    gold_sql
        Column of the data set: the right query of each row.
    db_path
        The row's database, or with ``db_id`` the folder that holds ``ID/ID.sqlite``; without it nothing is run.
    db_id
        Names of databases in the folder ``db_path``.
    dialect
        sqlglot's name of the dialect, "sqlite" by default.
    columns
        Other columns; they are not used.

    Returns
    -------
    list of float
        From -0.1 to 1 each.

    Raises
    ------
    InputError
        For lists of unequal length, a missing database and a gold query that fails.

    Examples
    --------
    >>> good = "<think><complexity>simple</complexity></think><sql>SELECT a FROM t</sql>"
    >>> [round(r, 3) for r in reward_func(["?", "?"], [good, "I don't know"], gold_sql=["SELECT a FROM t"] * 2)]
    [1.0, 0.0]
    """
    if isinstance(completions, Sequence) and not isinstance(completions, str):
        completions = ["" if completion is None else completion for completion in completions]
    found = _REWARD(prompts, completions, gold_sql=gold_sql, db_path=db_path, db_id=db_id, dialect=dialect)
    return [float(reward) for reward in found if reward is not None]


def _score(
    prompt: str,
    completion: str,
    gold_sql: str,
    db_path: str | None = None,
    db_id: str | None = None,
    dialect: str | None = None,
) -> float:
    if db_id is not None and db_path is None:
        raise InputError("db_id needs db_path, the folder of the databases")
    if db_id is not None:
        if db_id in ("", ".", "..") or Path(db_id).name != db_id:
            raise InputError(f"db_id must be a plain name, got {db_id!r}")
        db_path = str(Path(str(db_path)) / db_id / f"{db_id}.sqlite")
    db = _database(str(db_path)) if db_path is not None else None
    return float(reward_breakdown(completion, gold_sql, db, dialect=dialect or "sqlite")["total"])


_REWARD = trl_reward(_score, name="sqlparts")

_OPEN: OrderedDict[str, SafeDatabase] = OrderedDict()
_RESULTS: OrderedDict[tuple[Any, ...], Rows] = OrderedDict()
_LOCK = threading.Lock()


def _unlocked_in_child() -> None:
    """A fork may come while another thread holds the lock; in the child nobody would ever release it."""
    global _LOCK
    _LOCK = threading.Lock()


os.register_at_fork(after_in_child=_unlocked_in_child)
_MOST_OPEN, _MOST_RESULTS, _MOST_ROWS_KEPT = 8, 256, 1000


def _database(path: str) -> SafeDatabase:
    """The database of a path; the last few stay open."""
    with _LOCK:
        db = _OPEN.pop(path, None) or SafeDatabase(path)
        _OPEN[path] = db
        while len(_OPEN) > _MOST_OPEN:
            _OPEN.popitem(last=False)  # it ends when nobody uses it any more
    return db


def _gold_rows(gold_sql: str, db: SafeDatabase) -> Rows:
    """What gold gives; a group of completions has the same gold."""
    return _kept(gold_sql, db, lambda: gold_rows(gold_sql, db), always=True)


def _ran(sql: str, db: SafeDatabase) -> Rows | SqlError:
    """What a query gives; in a group of completions the same query often comes several times."""
    return _kept(sql, db, lambda: db.run(sql))


def _kept(sql: str, db: SafeDatabase, run: Callable[[], Any], always: bool = False) -> Any:
    if db.path is None:
        return run()
    key = (str(db.path), db.stamp(), sql, db.max_rows, db.timeout, always)
    with _LOCK:
        found = _RESULTS.get(key)
    if found is None:
        found = run()
        if always or (isinstance(found, Rows) and len(found.rows) <= _MOST_ROWS_KEPT):
            with _LOCK:
                _RESULTS[key] = found
                while len(_RESULTS) > _MOST_RESULTS:
                    _RESULTS.popitem(last=False)
    return found


__all__ = ["RewardWeights", "SqlParseError", "reward_breakdown", "reward_func"]
