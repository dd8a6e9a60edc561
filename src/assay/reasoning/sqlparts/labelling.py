"""What queries are right is found by running them: the pairs that the study's scores are judged on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from . import samples
from .database import Rows, SafeDatabase, SqlError
from .execution import changed_tables, closing_all, gold_rows, orders, same_rows
from .fragments import decompose
from .samples import Pool

Rng = np.random.Generator
Results = list[Rows | SqlError]

COPIES = 3
"""Changed copies of the tables on which a query must agree too."""

EDITS = (1, 2, 3, 5)


def candidates(gold: str, rng: Rng, pool: Pool) -> list[dict[str, Any]]:
    """Two rewrites of a query and four edited ones, not labelled yet."""
    made = [{"gold": gold, "pred": samples.rewritten(gold, rng), "edits": 0} for _ in range(2)]
    for k in EDITS:
        made.append({"gold": gold, "pred": samples.edited(samples.rewritten(gold, rng), rng, k, pool), "edits": k})
    return made


def ranking(golds: Sequence[str], tables: dict[str, pd.DataFrame], rng: Rng, pool: Pool) -> list[dict[str, Any]]:
    """Candidates of each gold query: right are those that give the same on the tables and their changed copies."""
    with _running(tables, golds, rng) as databases:
        rows = []
        for gold in golds:
            there = _results(gold, databases)
            for row in candidates(gold, rng, pool):
                rows.append({**row, "right": _same(_results(row["pred"], databases), there, gold)})
    return rows


def fragments(golds: Sequence[str], tables: dict[str, pd.DataFrame], rng: Rng, pool: Pool) -> list[dict[str, Any]]:
    """The parts of each gold query, rewritten, and the same with one or two edits.

    Right are those that give what one of the parts gives. No condition is dropped: what is left would be less than a
    part, and still a part of gold.
    """
    with _running(tables, golds, rng) as databases:
        rows = []
        for gold in golds:
            parts = [part.sql for part in decompose(gold)]
            there = [(part, _results(part, databases)) for part in parts]
            for part in parts:
                for edits in (0, 1 + int(rng.integers(2))):
                    pred = samples.rewritten(part, rng)
                    pred = samples.edited(pred, rng, edits, pool, drop=False) if edits else pred
                    found = _results(pred, databases)
                    right = any(_same(found, results, own) for own, results in there)
                    rows.append({"gold": gold, "pred": pred, "right": right})
    return rows


def junk(golds: Sequence[str], tables: dict[str, pd.DataFrame], rng: Rng) -> list[dict[str, Any]]:
    """The parts of each gold query; and these with three of other queries, and with three copies of one of their own.

    A part of another query counts as junk where it gives other rows than gold and each of its parts.
    """
    with SafeDatabase(tables, timeout=10) as db:
        known = [(gold, [part.sql for part in decompose(gold)]) for gold in golds]
        known = [(gold, parts) for gold, parts in known if parts]
        results = {sql: db.run(sql) for gold, parts in known for sql in (gold, *parts)}
    rows = []
    for gold, parts in known:
        own = [results[sql] for sql in (gold, *parts)]
        others = [
            part
            for other, more in known
            if other != gold
            for part in more
            if not any(same_rows(results[part], right, "bag", False) for right in own)
        ]
        foreign = [str(part) for part in rng.choice(others, 3, replace=False)]
        double = [parts[int(rng.integers(len(parts)))]] * 3
        rows.append({"gold": gold, "parts": parts, "foreign": parts + foreign, "double": parts + double})
    return rows


def on_database(rows: Sequence[dict[str, Any]], db: SafeDatabase) -> list[dict[str, Any]]:
    """Rows with a gold query and a pred, labelled on one database as it is; InputError where gold gives nothing."""
    there: dict[str, Rows] = {}
    found = []
    for row in rows:
        gold = row["gold"]
        if gold not in there:
            there[gold] = gold_rows(gold, db)
        found.append({**row, "right": _same([db.run(row["pred"])], [there[gold]], gold)})
    return found


def _running(tables: dict[str, pd.DataFrame], golds: Sequence[str], rng: Rng) -> closing_all:
    copies = changed_tables(tables, golds, copies=COPIES, seed=int(rng.integers(2**31)))
    return closing_all([SafeDatabase(each, timeout=10) for each in (tables, *copies)])


def _results(sql: str, databases: Sequence[SafeDatabase]) -> Results:
    return [db.run(sql) for db in databases]


def _same(found: Results, right: Results, gold: str) -> bool:
    ordered = orders(gold)
    return all(
        not isinstance(a, SqlError) and same_rows(a, b, "bag", ordered) for a, b in zip(found, right, strict=True)
    )
