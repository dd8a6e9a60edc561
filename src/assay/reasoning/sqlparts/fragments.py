"""The pieces of a query: taken from a gold query, and scored where a model has written them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from assay.errors import InputError

from .levels import LEVELS, Level, complexity
from .matching import best_renaming, mcs
from .normal_form import canonical, check_dialect, parse
from .tree import Tree

if TYPE_CHECKING:
    from .database import Schema

ASKED_FOR: dict[Level, int] = {"simple": 0, "moderate": 2, "challenging": 3}
"""Components asked for by level; never more than the gold query has."""

MOST_PARTS = 32
"""Of a completion; what comes after counts as junk without being read."""

_MOST_NODES = (200, 4)
"""Of all components together: so many, and so many times those of gold; those beyond are junk, and so is what they
would cost to compare with one another."""


@dataclass(frozen=True)
class Part:
    """A piece of a query.

    Attributes
    ----------
    sql
        A query by itself.
    role
        ``"cte"``, ``"subquery"``, ``"arm"`` of a set operation, or ``"core"``: the outer query without what is
        computed last.
    depends
        Names that it takes from outside: tables of the query around it, and earlier named queries.
    """

    sql: str
    role: Literal["cte", "subquery", "arm", "core"]
    depends: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComponentScore:
    """How good a model's components are.

    Attributes
    ----------
    f1
        From 0 to 1: the harmonic mean of precision and recall, lowered where too few components are of use.
    precision
        Share of the written nodes that are part of the gold query; what is junk, double or already said counts as
        wrong.
    recall
        Share of what the gold query's own parts cover that the components cover.
    n_useful
        Components that add something right.
    """

    f1: float
    precision: float
    recall: float
    n_useful: int


def decompose(sql: str | exp.Expression, *, dialect: str = "sqlite") -> list[Part]:
    """Take a query apart into complete queries, innermost first.

    Each sub-query, named query and arm of a set operation; then the outer query without HAVING, ORDER BY, LIMIT and the
    conditions that hold a sub-query. A part that is the whole query, or stands within another part, is left out, and so
    is one that cannot stand alone without becoming another. A simple query has none.

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
    >>> for part in decompose("SELECT a FROM t WHERE b > (SELECT avg(b) FROM t) ORDER BY a LIMIT 3"):
    ...     print(part.role, "|", part.sql)
    subquery | SELECT AVG(b) FROM t
    core | SELECT a FROM t
    """
    check_dialect(dialect)
    return list(_decomposed(sql, dialect) if isinstance(sql, str) else _decompose(sql, dialect))


def _decompose(sql: str | exp.Expression, dialect: str) -> tuple[Part, ...]:
    query = parse(sql, dialect).copy()
    if complexity(query, dialect=dialect) == "simple":
        return ()
    found = _pieces(query, dialect) + _core(query, dialect)
    whole = canonical(query, dialect=dialect)
    kept: list[tuple[Part, Tree]] = []
    for part in found:
        tree = canonical(part.sql, dialect=dialect)
        # What names something outside may read differently when it stands alone.
        if tree.key == whole.key or best_renaming(tree, whole)[0] < tree.size:
            continue
        if any(best_renaming(tree, other)[0] == tree.size for _, other in kept):
            continue
        kept = [(p, t) for p, t in kept if best_renaming(t, tree)[0] < t.size]
        kept.append((part, tree))
    return tuple(part for part, _ in kept)


@lru_cache(maxsize=1024)
def _decomposed(sql: str, dialect: str) -> tuple[Part, ...]:
    """The parts of a text; a group of completions has the same gold."""
    return _decompose(sql, dialect)


def components_score(
    parts: Sequence[str],
    gold: str | exp.Expression,
    *,
    level: Level | None = None,
    count_only: bool = False,
    dialect: str = "sqlite",
    schema: Schema | None = None,
) -> ComponentScore:
    """Score the components that a model has written against the gold query.

    Precision is over the nodes of all components, weighted by their size, so that junk costs what it weighs: components
    that cannot be read, stand there twice, are contained in another, or are simply the whole answer count as wrong.

    Parameters
    ----------
    parts
        The components' SQL.
    gold
        The right query.
    level
        How complex it is; by default :func:`complexity` of gold. Asked for are 0, 2 and 3 components, but never more
        than :func:`decompose` finds.
    count_only
        Only count readable components against the number asked for: the reward that pays for junk, for comparison.
    dialect, schema
        As in :func:`mcs_score`.

    Raises
    ------
    SqlParseError
        When gold cannot be read.
    InputError
        For another level.
    TypeError
        When parts is not a sequence of texts.
    """
    if isinstance(parts, str) or not isinstance(parts, Sequence) or not all(isinstance(p, str) for p in parts):
        raise TypeError("parts must be a list of texts")
    if level is not None and level not in LEVELS:
        raise InputError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
    level = level or complexity(gold, dialect=dialect)
    right = canonical(gold, dialect=dialect, schema=schema)
    own = decompose(gold, dialect=dialect)
    asked = min(ASKED_FOR[level], len(own))
    if count_only:
        readable = sum(_read(p, dialect, schema) is not None for p in parts[:MOST_PARTS])
        return ComponentScore(min(1.0, readable / asked) if asked else float(not parts), 1.0, 1.0, readable)
    if not asked:  # nothing to prepare
        return ComponentScore(0.5 if parts else 1.0, 0.0 if parts else 1.0, 1.0, 0)
    if not parts:
        return ComponentScore(0.0, 0.0, 0.0, 0)
    reach = set().union(*(_covered(canonical(p.sql, dialect=dialect, schema=schema), right) for p in own))
    trees, weight = _distinct(parts, right, dialect, schema)
    hit: set[int] = set()
    good = 0.0
    useful = 0
    for tree in trees:
        places = _covered(tree, right)
        good += len(places)
        useful += 2 * len(places) > tree.size and bool((places & reach) - hit)
        hit |= places
    precision, recall = good / weight, len(hit & reach) / len(reach)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return ComponentScore(f1 * min(1.0, useful / asked), precision, recall, useful)


def _distinct(parts: Sequence[str], gold: Tree, dialect: str, schema: Schema | None) -> tuple[list[Tree], float]:
    """The components that say something of their own, and the weight of all of them."""
    weight = 0.0
    left = _MOST_NODES[0] + _MOST_NODES[1] * gold.size
    trees: list[Tree] = []
    for place, part in enumerate(parts):
        tree = _read(part, dialect, schema) if place < MOST_PARTS else None
        weight += max(1, len(part.split())) if tree is None else tree.size
        if tree is not None and tree.size > left:
            continue
        left -= 0 if tree is None else tree.size
        if tree is not None and tree.key != gold.key and all(tree.key != other.key for other in trees):
            trees.append(tree)
    alone = [
        t for t in trees if not any(o is not t and o.size > t.size and best_renaming(t, o)[0] == t.size for o in trees)
    ]
    return alone, weight


def _read(part: str, dialect: str, schema: Schema | None) -> Tree | None:
    try:
        tree = canonical(part, dialect=dialect, schema=schema)
        tree.flat  # noqa: B018  too large a tree is refused here
    except InputError:
        return None
    return tree


def _covered(part: Tree, gold: Tree) -> set[int]:
    """The nodes of gold that a part is matched with."""
    return {v for _, v in mcs(best_renaming(part, gold)[1], gold).pairs}


def _pieces(query: exp.Expression, dialect: str) -> list[Part]:
    """Named queries, sub-queries and arms, innermost first."""
    found: list[tuple[int, Part]] = []
    for place, node in enumerate(query.walk()):
        if not isinstance(node, exp.Select | exp.SetOperation) or node is query:
            continue
        role: Literal["cte", "subquery", "arm"] = "subquery"
        if isinstance(node.parent, exp.CTE):
            role = "cte"
        elif isinstance(node.parent, exp.SetOperation):
            role = "arm"
        depth = sum(1 for _ in _above(node))
        found.append((-1000 * depth + place, _alone(node, role, dialect)))
    return [part for _, part in sorted(found, key=lambda item: item[0])]


def _above(node: exp.Expression) -> list[exp.Expression]:
    chain = []
    while node.parent is not None:
        node = node.parent
        chain.append(node)
    return chain


def _alone(node: exp.Expression, role: Literal["cte", "subquery", "arm"], dialect: str) -> Part:
    """A piece as a query of its own: with the named queries that it uses, and outer aliases as their tables' names."""
    piece = node.copy()
    named: dict[str, exp.CTE] = {}
    outer: dict[str, str] = {}
    for above in reversed(_above(node)):
        with_ = above.args.get("with_") or above.args.get("with")
        for cte in with_.expressions if with_ is not None else ():
            if cte.this is node or any(cte is a for a in _above(node)):
                break
            named[cte.alias.lower()] = cte
        if isinstance(above, exp.Select):
            outer |= {t.alias_or_name.lower(): t.name for t in _tables_of(above)}
    inside = {t.alias_or_name.lower() for t in piece.find_all(exp.Table)}
    depends = []
    for column in piece.find_all(exp.Column):
        alias = column.table.lower()
        if alias and alias not in inside and alias in outer:
            depends.append(outer[alias])
            column.set("table", exp.to_identifier(outer[alias]))
    needed: list[str] = []
    stack = [t.name.lower() for t in piece.find_all(exp.Table)]
    while stack:
        name = stack.pop()
        if name in named and name not in needed:
            needed.append(name)
            stack += [t.name.lower() for t in named[name].find_all(exp.Table)]
    for name in named:
        if name in needed and isinstance(piece, exp.Query):
            piece = piece.with_(name, as_=named[name].this.copy(), dialect=dialect)
    return Part(piece.sql(dialect=dialect), role, tuple(dict.fromkeys(depends + [n for n in named if n in needed])))


def _tables_of(select: exp.Select) -> list[exp.Table]:
    from_ = select.args.get("from_") or select.args.get("from")
    items = ([from_.this] if from_ else []) + [join.this for join in select.args.get("joins") or ()]
    return [item for item in items if isinstance(item, exp.Table)]


def _core(query: exp.Expression, dialect: str) -> list[Part]:
    """The outer query without what is computed last; none where its sources are queries themselves."""
    if not isinstance(query, exp.Select) or query.args.get("with_") or query.args.get("with"):
        return []
    from_ = query.args.get("from_") or query.args.get("from")
    items = ([from_.this] if from_ else []) + [join.this for join in query.args.get("joins") or ()]
    if not all(isinstance(item, exp.Table) for item in items):
        return []
    core = query.copy()
    for name in ("having", "order", "limit", "offset"):
        core.set(name, None)
    where = core.args.get("where")
    if where is not None:
        plain = [c for c in _conjuncts(where.this) if c.find(exp.Query) is None]
        core.set("where", exp.Where(this=exp.and_(*plain)) if plain else None)
    return [Part(core.sql(dialect=dialect), "core")]


def _conjuncts(node: exp.Expression) -> list[exp.Expression]:
    while isinstance(node, exp.Paren):
        node = node.this
    return [inner for part in node.flatten() for inner in _conjuncts(part)] if isinstance(node, exp.And) else [node]
