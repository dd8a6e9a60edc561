"""How complex a query is, counted from its syntax."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, get_args

from sqlglot import exp

from .normal_form import check_dialect, parse

Level = Literal["simple", "moderate", "challenging"]
LEVELS: tuple[Level, ...] = get_args(Level)


def complexity(sql: str | exp.Expression, *, dialect: str = "sqlite") -> Level:
    """Say how complex a query is.

    A point each for GROUP BY, HAVING, ORDER BY, LIMIT, a join, a CASE, a window, and each condition beyond two that
    AND or OR ties; two for a query within the query, a WITH and a set operation. Up to 1 is simple, 2 and 3 are
    moderate.

    Parameters
    ----------
    sql
        One query.
    dialect
        sqlglot's name of the dialect.

    Raises
    ------
    SqlParseError
        When it cannot be read.

    Examples
    --------
    >>> complexity("SELECT a FROM t"), complexity("SELECT a FROM t WHERE b > (SELECT avg(b) FROM t) ORDER BY a LIMIT 1")
    ('simple', 'challenging')
    """
    check_dialect(dialect)
    return _level_of_text(sql, dialect) if isinstance(sql, str) else _level(sql, dialect)


def _level(sql: str | exp.Expression, dialect: str) -> Level:
    points = _points(parse(sql, dialect))
    return "simple" if points <= 1 else "moderate" if points <= 3 else "challenging"


@lru_cache(maxsize=1024)
def _level_of_text(sql: str, dialect: str) -> Level:
    return _level(sql, dialect)


def _points(query: exp.Expression) -> int:
    points = conditions = 0
    for node in query.walk():
        if isinstance(node, exp.Group | exp.Having | exp.Order | exp.Limit | exp.Join | exp.Case | exp.Window):
            inside_window = isinstance(node, exp.Order) and isinstance(node.parent, exp.Window)
            points += not inside_window
        elif isinstance(node, exp.And | exp.Or):
            conditions += 1
        elif isinstance(node, exp.CTE | exp.SetOperation) or (
            isinstance(node, exp.Select)
            and node is not query
            and not isinstance(node.parent, exp.CTE | exp.SetOperation)
        ):
            points += 2
    return points + max(0, conditions - 1)
