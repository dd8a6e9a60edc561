"""Queries on flights, rewrites of queries that mean the same, and edits that mostly do not; for the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import sqlglot
from sqlglot import exp

from assay.parts import flights

Rng = np.random.Generator

_ORIGINS = ("EWR", "JFK", "LGA")
_NUMBERS = ("dep_delay", "arr_delay", "air_time", "distance")
_GROUPS = ("carrier", "origin", "dest", "month")
_FUNCTIONS = ("AVG", "MAX", "MIN", "SUM", "COUNT")


def tables(rng: Rng, rows: int) -> dict[str, pd.DataFrame]:
    """A sample of the flights with the airlines, airports and planes."""
    drawn = flights.drawn(rows, int(rng.integers(2**31)))
    return {"flights": drawn} | {name: flights.load(name) for name in ("airlines", "airports", "planes")}


@dataclass(frozen=True)
class Pool:
    """What an edit may put in place of something.

    Attributes
    ----------
    texts
        Quoted texts.
    columns
        Of a column, others that may stand where it stands.
    """

    texts: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]]


FLIGHTS = Pool(_ORIGINS, {name: tuple(n for n in _NUMBERS if n != name) for name in _NUMBERS})


def gold_queries(rng: Rng, n: int, kinds: Sequence[Callable[[Rng], str]] | None = None) -> list[str]:
    """Different queries of some kinds in turn, eight on flights by default, with columns and numbers drawn."""
    kinds = kinds or _TEMPLATES
    found: list[str] = []
    while len(found) < n:
        query = kinds[len(found) % len(kinds)](rng)
        if query not in found:
            found.append(query)
    return found


def _pick(rng: Rng, among: tuple[str, ...]) -> str:
    return str(rng.choice(among))


def _condition(rng: Rng, table: str = "") -> str:
    kind = rng.integers(4)
    if kind == 0:
        return f"{table}origin = '{_pick(rng, _ORIGINS)}'"
    if kind == 1:
        low = int(rng.integers(1, 8))
        return f"{table}month BETWEEN {low} AND {low + int(rng.integers(1, 5))}"
    if kind == 2:
        return f"{table}distance > {int(rng.integers(3, 20)) * 100}"
    return f"{table}dep_delay >= {int(rng.integers(0, 8)) * 5}"


def _two(rng: Rng, table: str = "") -> str:
    while True:
        one, other = _condition(rng, table), _condition(rng, table)
        if one.split()[0] != other.split()[0]:
            return f"{one} AND {other}"


_TEMPLATES: tuple[Callable[[Rng], str], ...] = (
    lambda rng: f"SELECT carrier, flight FROM flights WHERE {_two(rng)}",
    lambda rng: f"SELECT {_pick(rng, _FUNCTIONS)}({_pick(rng, _NUMBERS)}) FROM flights WHERE {_two(rng)}",
    lambda rng: (
        f"SELECT {(g := _pick(rng, _GROUPS))}, {_pick(rng, _FUNCTIONS)}({_pick(rng, _NUMBERS)}) FROM flights "
        f"WHERE {_condition(rng)} GROUP BY {g} ORDER BY {g}"
    ),
    lambda rng: (
        f"SELECT a.name, COUNT(*) FROM flights AS f JOIN airlines AS a ON f.carrier = a.carrier WHERE {_two(rng, 'f.')} "  # noqa: E501
        f"GROUP BY a.name HAVING COUNT(*) > {int(rng.integers(1, 15))}"
    ),
    lambda rng: (
        f"SELECT flight, dest FROM flights WHERE {(c := _pick(rng, _NUMBERS))} > (SELECT AVG({c}) FROM flights WHERE "
        f"{_condition(rng)}) AND {_condition(rng)}"
    ),
    lambda rng: (
        f"SELECT DISTINCT p.manufacturer FROM flights AS f JOIN planes AS p ON f.tailnum = p.tailnum "
        f"WHERE p.seats > {int(rng.integers(5, 30)) * 10} AND {_two(rng, 'f.')}"
    ),
    lambda rng: (
        f"WITH s AS (SELECT dest, AVG({_pick(rng, _NUMBERS)}) AS m FROM flights WHERE {_condition(rng)} GROUP BY dest) "
        f"SELECT p.name, s.m FROM s JOIN airports AS p ON s.dest = p.faa WHERE s.m > {int(rng.integers(0, 20))}"
    ),
    lambda rng: (
        f"SELECT dest FROM flights WHERE {_two(rng)} {_pick(rng, ('UNION', 'INTERSECT', 'EXCEPT'))} "
        f"SELECT dest FROM flights WHERE {_condition(rng)}"
    ),
)


def rewritten(sql: str, rng: Rng) -> str:
    """The same query with other aliases, operands in another order, comparisons turned and BETWEEN taken apart."""
    tree = sqlglot.parse_one(sql, read="sqlite")
    for select in list(tree.find_all(exp.Select)):
        names = {t.alias: f"{t.alias}{rng.integers(10, 99)}" for t in select.find_all(exp.Table) if t.alias}
        for table in select.find_all(exp.Table):
            if table.alias in names:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(names[table.alias])))
        for column in select.find_all(exp.Column):
            if column.table in names:
                column.set("table", exp.to_identifier(names[column.table]))
    for node in list(tree.find_all(exp.Between)):
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
        node.replace(exp.and_(low, exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())))
    turned = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.EQ: exp.EQ}
    for node in list(tree.find_all(exp.Predicate)):
        if type(node) in turned and rng.random() < 0.5:
            node.replace(turned[type(node)](this=node.expression.copy(), expression=node.this.copy()))
    for node in list(tree.find_all(exp.And)):
        if rng.random() < 0.5:
            left, right = node.this.copy(), node.expression.copy()
            node.replace(exp.And(this=right, expression=left))
    return tree.sql(dialect="sqlite")


def edited(sql: str, rng: Rng, times: int, pool: Pool = FLIGHTS, *, drop: bool = True) -> str:
    """The query after random edits: of a number, text, comparison, column, function, DISTINCT, or a condition gone.

    Parameters
    ----------
    sql
        The query.
    rng
        What draws them.
    times
        How many; fewer where there is nothing to edit.
    pool
        What is put in.
    drop
        Whether conditions may be dropped: what is left of a fragment then is less, but not wrong.
    """
    tree = sqlglot.parse_one(sql, read="sqlite")
    edits = _EDITS if drop else tuple(edit for edit in _EDITS if edit is not _edit_conjunct)
    done = 0
    for _ in range(50 * times):
        if done == times:
            break
        done += edits[int(rng.integers(len(edits)))](tree, rng, pool)
    return tree.sql(dialect="sqlite")


def _one(tree: exp.Expression, rng: Rng, *kinds: type[exp.Expression]) -> exp.Expression | None:
    found = [node for node in tree.find_all(*kinds) if type(node) in kinds]
    return found[int(rng.integers(len(found)))] if found else None


def _edit_literal(tree: exp.Expression, rng: Rng, pool: Pool) -> bool:
    node = _one(tree, rng, exp.Literal)
    if node is None:
        return False
    if node.is_string:
        others = [text for text in pool.texts if text != node.name]
        if not others:
            return False
        node.set("this", str(rng.choice(others)))
        return True
    by = int(rng.choice([1, 2, 5, 10]))
    node.set("this", str(int(node.name) + by) if node.name.isdigit() else str(float(node.name) + by))
    return True


def _edit_comparison(tree: exp.Expression, rng: Rng, pool: Pool) -> bool:
    kinds = (exp.GT, exp.GTE, exp.LT, exp.LTE)
    node = _one(tree, rng, *kinds)
    if node is None:
        return False
    other = [k for k in kinds if k is not type(node)][int(rng.integers(3))]
    return _replaced(node, other(this=node.this.copy(), expression=node.expression.copy()))


def _edit_column(tree: exp.Expression, rng: Rng, pool: Pool) -> bool:
    found = [c for c in tree.find_all(exp.Column) if pool.columns.get(c.name.lower())]
    if not found:
        return False
    node = found[int(rng.integers(len(found)))]
    node.set("this", exp.to_identifier(str(rng.choice(pool.columns[node.name.lower()]))))
    return True


def _edit_function(tree: exp.Expression, rng: Rng, pool: Pool) -> bool:
    kinds = (exp.Avg, exp.Max, exp.Min, exp.Sum)
    node = _one(tree, rng, *kinds)
    if node is None:
        return False
    return _replaced(node, [k for k in kinds if k is not type(node)][int(rng.integers(3))](this=node.this.copy()))


def _edit_conjunct(tree: exp.Expression, rng: Rng, pool: Pool) -> bool:
    node = _one(tree, rng, exp.And)
    if node is None:
        return False
    return _replaced(node, (node.this if rng.random() < 0.5 else node.expression).copy())


def _edit_distinct(tree: exp.Expression, rng: Rng, pool: Pool) -> bool:
    node = _one(tree, rng, exp.Select)
    if node is None:
        return False
    node.set("distinct", None if node.args.get("distinct") else exp.Distinct())
    return True


def _replaced(node: exp.Expression, new: exp.Expression) -> bool:
    node.replace(new)
    return True


_EDITS = (_edit_literal, _edit_comparison, _edit_column, _edit_function, _edit_conjunct, _edit_distinct)
