"""Queries on the flights from New York, rewrites that mean the same, and edits that mostly do not; for the study."""

from __future__ import annotations

from collections.abc import Callable

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
    drawn = flights.load("flights").sample(rows, random_state=int(rng.integers(2**31))).reset_index(drop=True)
    return {"flights": drawn} | {name: flights.load(name) for name in ("airlines", "airports", "planes")}


def gold_queries(rng: Rng, n: int) -> list[str]:
    """Queries of eight kinds in turn, with columns and numbers drawn."""
    found: list[str] = []
    while len(found) < n:
        query = _TEMPLATES[len(found) % len(_TEMPLATES)](rng)
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


def edited(sql: str, rng: Rng, times: int) -> str:
    """The query after random edits of a number, text, comparison, column, function or clause."""
    tree = sqlglot.parse_one(sql, read="sqlite")
    done = 0
    for _ in range(50 * times):
        if done == times:
            break
        done += _EDITS[int(rng.integers(len(_EDITS)))](tree, rng)
    return tree.sql(dialect="sqlite")


def _one(tree: exp.Expression, rng: Rng, *kinds: type[exp.Expression]) -> exp.Expression | None:
    found = [node for node in tree.find_all(*kinds) if type(node) in kinds]
    return found[int(rng.integers(len(found)))] if found else None


def _edit_literal(tree: exp.Expression, rng: Rng) -> bool:
    node = _one(tree, rng, exp.Literal)
    if node is None:
        return False
    if node.is_string:
        others = [o for o in _ORIGINS if o != node.name]
        node.set("this", str(rng.choice(others)))
    else:
        node.set("this", str(int(node.name) + int(rng.choice([1, 2, 5, 10]))))
    return True


def _edit_comparison(tree: exp.Expression, rng: Rng) -> bool:
    kinds = (exp.GT, exp.GTE, exp.LT, exp.LTE)
    node = _one(tree, rng, *kinds)
    if node is None:
        return False
    other = [k for k in kinds if k is not type(node)][int(rng.integers(3))]
    node.replace(other(this=node.this.copy(), expression=node.expression.copy()))
    return True


def _edit_column(tree: exp.Expression, rng: Rng) -> bool:
    found = [c for c in tree.find_all(exp.Column) if c.name in _NUMBERS]
    if not found:
        return False
    node = found[int(rng.integers(len(found)))]
    node.set("this", exp.to_identifier(str(rng.choice([n for n in _NUMBERS if n != node.name]))))
    return True


def _edit_function(tree: exp.Expression, rng: Rng) -> bool:
    kinds = (exp.Avg, exp.Max, exp.Min, exp.Sum)
    node = _one(tree, rng, *kinds)
    if node is None:
        return False
    node.replace([k for k in kinds if k is not type(node)][int(rng.integers(3))](this=node.this.copy()))
    return True


def _edit_conjunct(tree: exp.Expression, rng: Rng) -> bool:
    node = _one(tree, rng, exp.And)
    if node is None:
        return False
    node.replace((node.this if rng.random() < 0.5 else node.expression).copy())
    return True


def _edit_distinct(tree: exp.Expression, rng: Rng) -> bool:
    node = _one(tree, rng, exp.Select)
    if node is None:
        return False
    node.set("distinct", None if node.args.get("distinct") else exp.Distinct())
    return True


_EDITS = (_edit_literal, _edit_comparison, _edit_column, _edit_function, _edit_conjunct, _edit_distinct)
