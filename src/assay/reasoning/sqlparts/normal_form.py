"""A query's tree without what means nothing: aliases, operand order, brackets, the place of a join's condition."""

from __future__ import annotations

import difflib
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError

from assay.errors import InputError, one_line

from .parsed import aliases_of, has_tail, is_bracketed, is_compared, names_used, opened, plain_number, side_of
from .tree import SqlParseError, Tree

if TYPE_CHECKING:
    from .database import Schema

MOST_CHARACTERS = 50_000
"""Of a query's text."""

_COMPARISONS: dict[type[exp.Expression], str] = {exp.EQ: "EQ", exp.NEQ: "NEQ", exp.LT: "LT", exp.LTE: "LTE"}
_TURNED: dict[type[exp.Expression], type[exp.Expression]] = {exp.GT: exp.LT, exp.GTE: exp.LTE}
_NEGATED: dict[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.NEQ, exp.NEQ: exp.EQ, exp.LT: exp.GTE, exp.LTE: exp.GT, exp.GT: exp.LTE, exp.GTE: exp.LT,
}  # fmt: skip
_COMMUTE = (exp.Add, exp.Mul, exp.BitwiseAnd, exp.BitwiseOr)
_WRITTEN = {
    exp.Select: frozenset(
        {"with_", "with", "expressions", "from_", "from", "joins", "where", "group", "having", "distinct"}
        | {"order", "limit", "offset", "hint"}
    ),
    exp.Table: frozenset(["this", "db", "catalog", "alias", "joins", "hints", "indexed"]),
}
"""What of a query and a table is written by rules of its own; whatever else they have is written as it stands."""

_QUERIES = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)


def canonical(sql: str | exp.Expression, *, dialect: str = "sqlite", schema: Schema | None = None) -> Tree:
    """Return the tree of a query, the same for queries that differ only in what means nothing.

    Table aliases, output aliases, brackets, comments and letters' case of identifiers are gone; ``a > b`` is ``b < a``,
    BETWEEN two comparisons, NOT is pushed inwards, operands of AND and OR and the two of =, + and * have no order,
    and conditions of inner joins stand in WHERE.

    Parameters
    ----------
    sql
        One SELECT (with WITH and set operations), as a text or as sqlglot's tree.
    dialect
        sqlglot's name of the dialect.
    schema
        Where given, columns without a table are given theirs if several tables are in sight.

    Raises
    ------
    SqlParseError
        When it cannot be read, is empty, holds several statements, or is no query.
    InputError
        For an unknown dialect, a text of more than 50 000 characters.

    Examples
    --------
    >>> print(canonical("SELECT x.a FROM t AS x WHERE x.b > 1"))
    Query
      Projections
        col a
      Sources
        table t
      Where
        And
          LT
            1
            col b
    """
    check_dialect(dialect)
    if schema is not None and not (hasattr(schema, "tables") and hasattr(schema, "has")):
        raise TypeError(f"schema must be a Schema or None, got {type(schema).__name__}")
    if isinstance(sql, str) and schema is None:
        return _cached(sql, dialect)
    return _tree(sql, dialect, schema)


def parse(sql: str | exp.Expression, dialect: str = "sqlite") -> exp.Expression:
    """Sqlglot's tree of one query.

    Raises
    ------
    SqlParseError, InputError
        As :func:`canonical`.
    """
    check_dialect(dialect)
    if isinstance(sql, exp.Expression):
        found = sql
    else:
        if not isinstance(sql, str):
            raise TypeError(f"sql must be a text or a sqlglot expression, got {type(sql).__name__}")
        if len(sql) > MOST_CHARACTERS:
            raise SqlParseError(f"the query has {len(sql)} characters; at most {MOST_CHARACTERS} are read")
        found = _parsed(sql, dialect)
    while isinstance(found, exp.Subquery | exp.Paren) and not found.args.get("alias") and not has_tail(found):
        found = found.this
    if not isinstance(found, _QUERIES):
        kind = one_line(type(found).__name__.upper(), 40)
        raise SqlParseError(f"not a query: {kind} is none of SELECT, WITH and set operations", 1, 1)
    if isinstance(found, exp.Select) and not found.expressions:
        raise SqlParseError("the query selects nothing", 1, 1)
    return found


class _Quiet(logging.Filter):
    """Keeps sqlglot from logging what a model wrote, a line a statement that is no query; others' use of it is not
    changed.
    """

    here = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log it."""
        return not getattr(self.here, "on", False)


logging.getLogger("sqlglot").addFilter(_Quiet())


def _parsed(sql: str, dialect: str) -> exp.Expression:
    _Quiet.here.on = True
    try:
        statements = [s for s in sqlglot.parse(sql, read=dialect) if s is not None and not isinstance(s, exp.Semicolon)]
    except ParseError as error:
        about = error.errors[0] if error.errors else {}
        message = one_line(about.get("description") or str(error), 160)
        raise SqlParseError(f"the query can't be read: {message}", about.get("line"), about.get("col")) from None
    except (TokenError, SqlglotError, RecursionError, ValueError, AttributeError, IndexError, TypeError) as error:
        # The parser's own stumbles over odd texts are also texts that can't be read.
        why = "too deep" if isinstance(error, RecursionError) else one_line(str(error), 160)
        raise SqlParseError(f"the query can't be read: {why}") from None
    finally:
        _Quiet.here.on = False
    if len(statements) != 1:
        raise SqlParseError(f"there must be one statement, not {len(statements)}", 1, 1)
    return statements[0]


def check_dialect(dialect: str) -> None:
    """Refuse a dialect that sqlglot does not know."""
    known = sorted(name for name in sqlglot.Dialect.classes if name)
    if dialect not in known:
        near = difflib.get_close_matches(str(dialect), known, n=1)
        raise InputError(
            f"dialect must be one of {', '.join(known)}, got {dialect!r}" + (f"; {near[0]}?" if near else "")
        )


@lru_cache(maxsize=4096)
def _cached(sql: str, dialect: str) -> Tree:
    return _tree(sql, dialect, None)


def _tree(sql: str | exp.Expression, dialect: str, schema: Schema | None) -> Tree:
    parsed = parse(sql, dialect)
    if isinstance(sql, exp.Expression):
        parsed = parsed.copy()  # what is written anew below takes over pieces of what it is given
    try:
        return Writer(dialect, schema).query(parsed, None)
    except RecursionError:
        raise SqlParseError("the query is too deeply nested") from None


@dataclass
class Source:
    """A table or a query in a FROM: the name it goes by, what stands for it, and what its outputs are."""

    alias: str
    label: str
    table: str | None
    outputs: dict[str, str] = field(default_factory=dict)


@dataclass
class Scope:
    """What the names in a query mean."""

    sources: list[Source]
    parent: Scope | None
    ctes: dict[str, Cte]
    aliases: dict[str, exp.Expression] = field(default_factory=dict)


@dataclass
class Cte:
    """A query that WITH has named; used once it stands where it is used."""

    name: str
    query: exp.Expression
    uses: int
    label: str
    outer: Scope | None
    columns: list[str]


class Writer:
    """Writes canonical trees; one for each query."""

    def __init__(self, dialect: str, schema: Schema | None) -> None:
        self.any_case = dialect == "sqlite"  # it takes quoted names in any case too
        self.schema = schema
        self.named = 0

    def query(self, node: exp.Expression, outer: Scope | None) -> Tree:
        """A SELECT, VALUES or set operation."""
        while isinstance(node, exp.Subquery | exp.Paren) and not has_tail(node):
            node = node.this
        scope = Scope([], outer, dict(outer.ctes) if outer else {})
        if isinstance(node, exp.Subquery):  # (SELECT …) LIMIT 1
            return Tree(
                "Query bracketed",
                (*self._with(node, scope), self.query(node.this, scope), *self._tail(node, scope, [])),
            )
        named = self._with(node, scope)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, scope, named)
        if isinstance(node, exp.Values):
            return Tree("Values", tuple(self.expression(e, scope) for e in node.expressions))
        return self._select(node, scope, named)

    def _with(self, node: exp.Expression, scope: Scope) -> list[Tree]:
        """Note the names that WITH gives; return the bodies that are not put where they are used."""
        with_ = node.args.get("with_") or node.args.get("with")
        if with_ is None:
            return []
        bodies: list[tuple[str, Tree]] = []
        recursive = bool(with_.args.get("recursive"))
        used = names_used(node, with_)
        for cte in with_.expressions:
            name = cte.alias.lower()
            uses = used[name]
            columns = [c.name.lower() for c in cte.args["alias"].columns]
            inside = sum(1 for t in cte.find_all(exp.Table) if t.name.lower() == name)
            if uses == 1 and not inside:
                scope.ctes[name] = Cte(name, cte.this, 1, "", scope.parent, columns)
                scope.ctes[name].outer = Scope([], scope.parent, dict(scope.ctes))
                del scope.ctes[name].outer.ctes[name]
                continue
            self.named += 1
            label = f"with {self.named}"
            before = Scope([], scope.parent, dict(scope.ctes))
            scope.ctes[name] = Cte(name, cte.this, uses, label, before, columns)
            if inside:
                before.ctes[name] = scope.ctes[name]
            body = self.query(cte.this, before)
            bodies.append((label, body if uses else _unused(body)))
        kind = " recursive" if recursive and bodies else ""
        return [Tree(f"With{kind} {label}", (body,)) for label, body in bodies]

    def _set_operation(self, node: exp.SetOperation, scope: Scope, named: list[Tree]) -> Tree:
        kind = type(node).__name__ + ("" if node.args.get("distinct", True) else " all")
        arms: list[exp.Expression] = []
        stack: list[exp.Expression] = [node]
        while stack:  # flat, where nesting means nothing
            top = stack.pop()
            inner = top
            while isinstance(inner, exp.Subquery) and not has_tail(inner):
                inner = inner.this
            same = type(inner) is type(node) and (top is node or not has_tail(inner))
            flat = same and (inner is node or not isinstance(node, exp.Except))
            if flat and bool(inner.args.get("distinct", True)) == bool(node.args.get("distinct", True)):
                stack += [inner.args["expression"], inner.this]
            else:
                arms.append(top)
        trees = tuple(self.query(arm, scope) for arm in arms)
        first = arms[0]
        while isinstance(first, exp.Subquery):
            first = first.this
        if isinstance(first, exp.Select):
            scope.aliases = aliases_of(first)
        tail = self._tail(node, scope, list(first.expressions) if isinstance(first, exp.Select) else [])
        # A label is always ordered or never is: only so is a match from either side the same.
        arms_tree = Tree("Sides", trees) if isinstance(node, exp.Except) else Tree("Arms", trees, True)
        return Tree(kind, (*named, arms_tree, *tail))

    def _select(self, node: exp.Select, scope: Scope, named: list[Tree]) -> Tree:
        args = node.args
        from_ = args.get("from_") or args.get("from")
        first, joins = opened(from_.this if from_ else None, args.get("joins") or ())
        items = ([first] if from_ else []) + [join.this for join in joins]
        trees = self._sources(items, scope)
        conditions: list[Tree] = []
        sources = trees[: 1 if from_ else 0]
        movable = not any(str(join.args.get("side") or "").upper() in ("RIGHT", "FULL") for join in joins)
        for place, (join, tree) in enumerate(zip(joins, trees[len(sources) :], strict=True), start=len(sources)):
            side = side_of(join)
            on = self._conjuncts(join.args.get("on"), scope)
            on += [self._using(name.name, place, scope) for name in join.args.get("using") or ()]
            if not side and movable:
                sources.append(tree)
                conditions += on
            else:
                below = (tree, Tree("On", (Tree("And", tuple(on), True),))) if on else (tree,)
                sources.append(Tree(f"Join {' '.join(side) or 'inner'}", below))
        scope.aliases = aliases_of(node)
        children = list(named)
        distinct = args.get("distinct")
        on = distinct.args.get("on") if distinct is not None else None
        outputs = Tree("Projections", tuple(self.expression(e, scope) for e in node.expressions))
        children.append(outputs)
        if sources:
            children.append(Tree("Sources", tuple(sources), True))
        where = args.get("where")
        conditions += self._conjuncts(where.this if where else None, scope)
        if conditions:
            children.append(Tree("Where", (Tree("And", tuple(conditions), True),)))
        group = args.get("group")
        if group is not None:
            keys = tuple(self._key(e, scope, node.expressions) for e in group.expressions)
            rest = [
                self.expression(e, scope) for k in ("rollup", "cube", "grouping_sets") for e in group.args.get(k) or ()
            ]
            children.append(Tree("GroupBy", (*keys, *rest), True))
            if on is None and not rest and {key.key for key in keys} <= {output.key for output in outputs.children}:
                distinct = None  # the rows differ by their groups already
        having = args.get("having")
        if having is not None:
            inside = tuple(self._conjuncts(having.this, scope, by_alias=True))
            children.append(Tree("Having", (Tree("And", inside, True),)))
        children += self._rest(node, scope)
        if on is not None:
            children.append(Tree("distinct on", tuple(self.expression(e, scope) for e in on.expressions), True))
        children += self._tail(node, scope, node.expressions)
        return Tree("Query distinct" if distinct is not None else "Query", tuple(children))

    def _tail(self, node: exp.Expression, scope: Scope, outputs: list[exp.Expression]) -> list[Tree]:
        """ORDER BY, LIMIT and OFFSET."""
        trees = []
        order = node.args.get("order")
        if order is not None:
            keys = []
            for key in order.expressions:
                down = bool(key.args.get("desc"))
                nulls = key.args.get("nulls_first")
                odd = nulls is not None and bool(nulls) == down  # by default NULL is the smallest value
                label = ("Desc" if down else "Asc") + (" nulls first" if odd and down else " nulls last" if odd else "")
                keys.append(Tree(label, (self._key(key.this, scope, outputs),)))
            trees.append(Tree("OrderBy", tuple(keys)))
        for name in ("limit", "offset"):
            part = node.args.get(name)
            if part is not None:
                value = part.args.get("expression") or part.args.get("count")
                trees.append(Tree(name.capitalize(), (self.expression(value, scope),) if value is not None else ()))
        return trees

    def _rest(self, node: exp.Select | exp.Table, scope: Scope) -> list[Tree]:
        """What no rule speaks of: named windows, QUALIFY, samples and the like."""
        trees = []
        for name, value in node.args.items():
            if value and name not in _WRITTEN[exp.Table if isinstance(node, exp.Table) else exp.Select]:
                below = value if isinstance(value, list) else [value]
                inside = [self.expression(b, scope) if isinstance(b, exp.Expression) else Tree(str(b)) for b in below]
                trees.append(Tree(name, tuple(inside)))
        return trees

    def _key(self, node: exp.Expression, scope: Scope, outputs: list[exp.Expression]) -> Tree:
        """A key of GROUP BY or ORDER BY: an expression, an output's alias or its place."""
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            place = int(node.name)
            if 1 <= place <= len(outputs):
                return self.expression(outputs[place - 1], scope)
        return self.expression(node, scope, by_alias=True)

    def _sources(self, items: list[exp.Expression], scope: Scope) -> list[Tree]:
        """What stands in FROM, as trees; fills the scope."""
        counts: dict[str, int] = {}
        for item in items:
            if isinstance(item, exp.Table) and item.name.lower() not in scope.ctes:
                counts[self._name(item.this)] = counts.get(self._name(item.this), 0) + 1
        seen: dict[str, int] = {}
        trees = []
        queries = 0
        for item in items:
            cte = scope.ctes.get(item.name.lower()) if isinstance(item, exp.Table) and not item.args.get("db") else None
            if isinstance(item, exp.Table) and cte is None:
                if not isinstance(item.this, exp.Identifier):  # a function that gives a table
                    trees.append(self.expression(item.this, scope))
                    scope.sources.append(Source(item.alias_or_name.lower(), "table function", None))
                    continue
                name = self._name(item.this)
                seen[name] = seen.get(name, 0) + 1
                label = f"table {name}" + (f"#{seen[name]}" if counts[name] > 1 else "")
                scope.sources.append(Source(item.alias_or_name.lower(), label, name))
                trees.append(Tree(label, tuple(self._rest(item, scope))))
                continue
            if is_bracketed(item):
                trees.append(self._brackets(item, scope))
                continue
            queries += 1
            label = "derived" if queries == 1 else f"derived {queries}"
            alias = item.alias_or_name.lower()
            if cte is not None and cte.label:
                trees.append(Tree(cte.label))
                label = (
                    cte.label if cte.label not in {s.label for s in scope.sources} else f"{cte.label} again {queries}"
                )
                scope.sources.append(Source(alias, label, None, self._outputs(cte.query, cte.columns)))
            elif cte is not None:
                trees.append(self.query(cte.query, cte.outer))
                scope.sources.append(Source(alias, label, None, self._outputs(cte.query, cte.columns)))
            elif isinstance(item, _QUERIES):
                trees.append(self.query(item, Scope([], scope.parent, scope.ctes)))
                scope.sources.append(Source(alias, label, None, self._outputs(item, [])))
            else:
                trees.append(self.expression(item, scope))
                scope.sources.append(Source(alias, label, None))
        return trees

    def _brackets(self, item: exp.Expression, scope: Scope) -> Tree:
        """A join in brackets on the right of an outer join."""
        first, joins = opened(item, ())
        trees = self._sources([first, *(join.this for join in joins)], scope)
        conditions = [c for join in joins for c in self._conjuncts(join.args.get("on"), scope)]
        sides = " ".join(word for join in joins for word in side_of(join))
        inside = Tree("Sources", tuple(trees), not sides)
        on = (Tree("On", (Tree("And", tuple(conditions), True),)),) if conditions else ()
        return Tree(f"Brackets {sides}".strip(), (inside, *on))

    def _outputs(self, query: exp.Expression, columns: list[str]) -> dict[str, str]:
        """What the outputs of a query in FROM are called from outside: by their column, or else by their place."""
        while isinstance(query, exp.Subquery | exp.Paren | exp.SetOperation):
            query = query.this
        found = {}
        for place, output in enumerate(query.expressions if isinstance(query, exp.Select) else ()):
            inside = output.this if isinstance(output, exp.Alias) else output
            name = columns[place] if place < len(columns) else output.alias_or_name.lower()
            plain = isinstance(inside, exp.Column) and not isinstance(inside.this, exp.Star)
            found[name] = f"col {self._name(inside.this)}" if plain else f"output {place + 1}"
        return found

    def _using(self, name: str, place: int, scope: Scope) -> Tree:
        """JOIN … USING (name) as an equation of columns."""
        name = name.lower() if self.any_case else name
        left = next(
            (s for s in scope.sources[:place] if self.schema and s.table and self.schema.has(s.table, name)),
            scope.sources[0],
        )
        sides = tuple(Tree(f"col {name}", (Tree(side.label),)) for side in (left, scope.sources[place]))
        return Tree("EQ", sides, True)

    def _conjuncts(self, node: exp.Expression | None, scope: Scope, by_alias: bool = False) -> list[Tree]:
        """The conditions that must all hold."""
        if node is None:
            return []
        tree = self.condition(node, scope, False, by_alias)
        found = tree.children if tree.label == "And" else (tree,)
        return [one for one in found if one.label != "TRUE"]

    def condition(self, node: exp.Expression, scope: Scope, negated: bool = False, by_alias: bool = False) -> Tree:
        """A condition with NOT pushed inwards and AND and OR flattened."""
        while isinstance(node, exp.Paren | exp.Not):
            negated ^= isinstance(node, exp.Not)
            node = node.this
        if isinstance(node, exp.And | exp.Or):
            label = "And" if isinstance(node, exp.And) ^ negated else "Or"
            parts = [self.condition(part, scope, negated, by_alias) for part in node.flatten()]
            return _flat(label, parts)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            low = exp.LTE(this=node.args["low"], expression=node.this)
            high = exp.LTE(this=node.this, expression=node.args["high"])
            return _flat("Or" if negated else "And", [self.condition(c, scope, negated, by_alias) for c in (low, high)])
        if isinstance(node, exp.In) and len(node.expressions) == 1 and not isinstance(node.expressions[0], exp.Query):
            node = exp.EQ(this=node.this, expression=node.expressions[0])
        if negated and type(node) in _NEGATED:
            node, negated = _NEGATED[type(node)](this=node.this, expression=node.expression), False
        tree = self.expression(node, scope, by_alias)
        return Tree("Not", (tree,)) if negated else tree

    def expression(self, node: exp.Expression, scope: Scope, by_alias: bool = False) -> Tree:
        """Anything that has a value."""
        while isinstance(node, exp.Paren | exp.Alias):
            node = node.this
        if isinstance(node, _QUERIES):
            return self.query(node, scope)
        if isinstance(node, exp.And | exp.Or | exp.Not | exp.Between):
            return self.condition(node, scope, by_alias=by_alias)
        if isinstance(node, exp.In) and len(node.expressions) == 1 and not isinstance(node.expressions[0], exp.Query):
            return self.condition(node, scope, by_alias=by_alias)
        if isinstance(node, exp.Column):
            return self._column(node, scope, by_alias)
        if isinstance(node, exp.Literal):
            number = plain_number(node) if is_compared(node) else node.name
            return Tree(f"'{node.name}'" if node.is_string else number)
        if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
            return Tree("-" + self.expression(node.this, scope).label)
        if isinstance(node, exp.Null | exp.Boolean | exp.Star):
            return Tree(node.sql())
        if type(node) in _TURNED:
            node = _TURNED[type(node)](this=node.args["expression"], expression=node.this)
        if type(node) in _COMPARISONS:
            sides = tuple(self.expression(side, scope, by_alias) for side in (node.this, node.args["expression"]))
            return Tree(_COMPARISONS[type(node)], sides, isinstance(node, exp.EQ | exp.NEQ))
        if isinstance(node, exp.In):
            query = node.args.get("query")
            among = (
                self.query(query, scope)
                if query is not None
                else Tree(f"table {self._name(node.args['field'].this)}")  # a IN t
                if isinstance(node.args.get("field"), exp.Column)
                else Tree("List", tuple(self.expression(e, scope) for e in node.expressions), True)
            )
            return Tree("In", (self.expression(node.this, scope, by_alias), among))
        if isinstance(node, exp.Exists):
            return Tree("Exists", (self.query(node.this, scope),))
        if isinstance(node, exp.Count):
            return self._count(node, scope)
        if isinstance(node, exp.Cast):
            return Tree(
                f"{type(node).__name__} {node.to.sql().lower()}", (self.expression(node.this, scope, by_alias),)
            )
        return self._other(node, scope, by_alias)

    def _count(self, node: exp.Count, scope: Scope) -> Tree:
        inside = node.this
        if isinstance(inside, exp.Distinct):
            return Tree("Count distinct", tuple(self.expression(e, scope) for e in inside.expressions))
        everything = inside is None or isinstance(inside, exp.Star | exp.Literal)  # COUNT(1) counts rows too
        return Tree("Count", (Tree("*") if everything else self.expression(inside, scope),))

    def _column(self, node: exp.Column, scope: Scope, by_alias: bool) -> Tree:
        if isinstance(node.this, exp.Star):
            found = self._source(node.table.lower(), scope) if node.table else None
            return Tree("*", (Tree(found.label),) if found and len(scope.sources) > 1 else ())
        name = self._name(node.this)
        if not node.table:
            if by_alias and name.lower() in scope.aliases and not self._is_column(name, scope):
                return self.expression(scope.aliases[name.lower()], scope)
            return self._unqualified(node, name, scope)
        found = self._source(node.table.lower(), scope)
        if found is None:
            return Tree(f"col {name}", (Tree(f"table {node.table.lower()}"),))
        label = found.outputs.get(name.lower(), f"col {name}")
        # With one table in sight, saying which is saying nothing.
        alone = len(scope.sources) == 1 and found is scope.sources[0]
        return Tree(label, () if alone else (Tree(found.label),))

    def _unqualified(self, node: exp.Column, name: str, scope: Scope) -> Tree:
        level: Scope | None = scope
        while level is not None:
            for source in level.sources:
                has = bool(source.table and self.schema and self.schema.has(source.table, name))
                if has or name.lower() in source.outputs:
                    label = source.outputs.get(name.lower(), f"col {name}")
                    alone = level is scope and len(scope.sources) == 1
                    return Tree(label, () if alone else (Tree(source.label),))
            level = level.parent
        known = self.schema is not None and all(s.table and s.table in self.schema.tables for s in scope.sources)
        if node.this.args.get("quoted") and known and scope.sources:
            return Tree(f"'{node.name}'")  # SQLite takes "x" for a text where no column is called x
        return Tree(f"col {name}")

    def _is_column(self, name: str, scope: Scope) -> bool:
        """Whether a source is known to have that column, which then hides an output's alias."""
        return any(
            (s.table and self.schema and self.schema.has(s.table, name)) or name.lower() in s.outputs
            for s in scope.sources
        )

    def _source(self, alias: str, scope: Scope) -> Source | None:
        level: Scope | None = scope
        while level is not None:
            for source in level.sources:
                if source.alias == alias:
                    return source
            level = level.parent
        return None

    def _other(self, node: exp.Expression, scope: Scope, by_alias: bool) -> Tree:
        """Functions, CASE, windows and the rest: the kind with its flags, and what is below in its order."""
        label = node.name.upper() if isinstance(node, exp.Anonymous) else type(node).__name__
        flags, children = [], []
        for name, value in node.args.items():
            if isinstance(node, exp.Anonymous) and name == "this":
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, exp.Identifier | exp.Var | exp.DataType):
                    flags.append(f"{name}={one.name.lower() or one.sql().lower()}")
                elif isinstance(one, exp.Expression):
                    tree = self.expression(one, scope, by_alias)
                    children.append(tree if name in ("this", "expression", "expressions") else Tree(name, (tree,)))
                elif one is not None and one is not False:
                    flags.append(f"{name}={one}")
        return Tree(" ".join([label, *flags]), tuple(children), isinstance(node, _COMMUTE))

    def _name(self, identifier: exp.Expression) -> str:
        name = identifier.name
        quoted = isinstance(identifier, exp.Identifier) and identifier.args.get("quoted")
        return name if quoted and not self.any_case else name.lower()


def _unused(tree: Tree) -> Tree:
    """What is named and never used: it has its size, and matches nothing that is used."""
    return Tree(f"unused {tree.label}", tuple(map(_unused, tree.children)), tree.unordered)


def _flat(label: str, parts: Iterable[Tree]) -> Tree:
    """AND or OR of parts; those of the same kind among them are opened."""
    flat: list[Tree] = []
    for part in parts:
        flat += part.children if part.label == label else (part,)
    return Tree(label, tuple(flat), True)
