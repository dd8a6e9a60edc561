"""What is asked of sqlglot's own tree while the canonical one is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sqlglot import exp

_COMPARING = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between, exp.Limit, exp.Offset)


def names_used(node: exp.Expression, with_: exp.Expression) -> Counter[str]:
    """How often each table is named in a query and in those of its named queries that it comes to use."""

    def named(inside: exp.Expression) -> Counter[str]:
        return Counter(t.name.lower() for t in inside.find_all(exp.Table) if not t.args.get("db"))

    bodies = {cte.alias.lower(): named(cte) for cte in with_.expressions}
    todo = [named(node) - sum(bodies.values(), Counter())]
    counts: Counter[str] = Counter()
    while todo:
        for name, times in todo.pop().items():
            if name in bodies and not counts[name]:
                todo.append(bodies[name])
            counts[name] += times
    return counts


def side_of(join: exp.Expression) -> list[str]:
    """What kind of join it is; nothing for one that is a condition and no more."""
    words = " ".join(str(join.args.get(k) or "").lower() for k in ("method", "side", "kind")).split()
    return [word for word in words if word not in ("inner", "cross", "outer")]


def is_bracketed(item: exp.Expression | None) -> bool:
    """Whether it is a table, or a join of tables, in brackets."""
    inside = item
    while isinstance(inside, exp.Subquery) and not inside.args.get("alias"):
        named = isinstance(inside.this, exp.Subquery) and inside.this.args.get("alias")
        if named or isinstance(inside.this, exp.Table):
            return True
        inside = inside.this
    return False


def opened(
    first: exp.Expression | None, joins: Iterable[exp.Expression]
) -> tuple[exp.Expression, list[exp.Expression]]:
    """The first source and the joins behind it, without the brackets that mean nothing there."""
    found: list[exp.Expression] = []
    while is_bracketed(first):
        assert first is not None
        found[:0] = first.args.get("joins") or ()
        first = first.this
    if first is not None:
        found[:0] = first.args.get("joins") or ()
    for join in joins:
        found.append(join)
        if not side_of(join) and not join.args.get("using"):
            inner, more = opened(join.this, ())
            if inner is not join.this:
                join.set("this", inner)
            found += more
    return first, found  # type: ignore[return-value]


def aliases_of(select: exp.Select) -> dict[str, exp.Expression]:
    """What the outputs of a SELECT are called."""
    return {e.alias.lower(): e.this for e in select.expressions if isinstance(e, exp.Alias)}


def has_tail(node: exp.Expression) -> bool:
    """Whether something stands behind a query or before it: ORDER BY, LIMIT, WITH."""
    return any(node.args.get(name) is not None for name in ("order", "limit", "offset", "with_", "with"))


def is_compared(node: exp.Expression) -> bool:
    """Whether a number is compared with something as it stands: then 1.0 is 1, as it is not in 1.0 / 2."""
    above = node.parent
    while isinstance(above, exp.Paren | exp.Neg):
        above = above.parent
    return isinstance(above, _COMPARING)


def plain_number(node: exp.Literal) -> str:
    """1.0, 1.00 and 1e0 as 1, where they are compared and not reckoned with."""
    if node.is_string:
        return node.name
    try:
        value = float(node.name)
    except ValueError:
        return node.name
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
