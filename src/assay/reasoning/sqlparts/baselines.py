"""Other scores of a predicted query against a gold one: token overlap, n-grams, sqlglot's own diff, edit distance."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import sqlglot
from sqlglot.diff import Keep, diff
from sqlglot.errors import SqlglotError

from assay.parts.packages import need

from .normal_form import canonical
from .tree import SqlParseError, Tree


def _tokens(sql: str) -> list[str]:
    try:
        return [token.text.lower() for token in sqlglot.tokenize(sql, read="sqlite")]
    except SqlglotError:  # such as an open quote
        return sql.lower().split()


def token(pred: str, gold: str) -> float:
    """Jaccard index of the sets of tokens."""
    a, b = set(_tokens(pred)), set(_tokens(gold))
    return len(a & b) / len(a | b) if a | b else 0.0


def ngram(pred: str, gold: str) -> float:
    """Dice index of 1- to 4-grams of tokens, mean over the lengths."""
    a, b = _tokens(pred), _tokens(gold)
    scores = []
    for n in range(1, 5):
        x, y = (Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (a, b))
        if x or y:
            scores.append(2 * (x & y).total() / (x.total() + y.total()))
    return sum(scores) / len(scores) if scores else 0.0


def contained_ngram(part: str, gold: str) -> float:
    """Share of a part's 1- to 4-grams that gold has, mean over the lengths."""
    a, b = _tokens(part), _tokens(gold)
    scores = []
    for n in range(1, 5):
        x, y = (Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (a, b))
        if x:
            scores.append((x & y).total() / x.total())
    return sum(scores) / len(scores) if scores else 0.0


def contained_token(part: str, gold: str) -> float:
    """Share of a part's tokens that gold has."""
    a, b = set(_tokens(part)), set(_tokens(gold))
    return len(a & b) / len(a) if a else 0.0


def kept(pred: str, gold: str) -> float:
    """Share of kept nodes among all edits of sqlglot's diff."""
    try:
        edits = diff(sqlglot.parse_one(pred, read="sqlite"), sqlglot.parse_one(gold, read="sqlite"))
    except SqlglotError:
        return 0.0
    return sum(isinstance(edit, Keep) for edit in edits) / len(edits)


def exact(pred: str, gold: str) -> float:
    """1 for the same text but for spaces and letters' case."""
    return float(_tokens(pred) == _tokens(gold))


def edit_distance(pred: str, gold: str) -> float:
    """1 less the tree edit distance of the canonical trees over the sum of their sizes; children in sorted order."""
    a, b, distance = _distance(pred, gold)
    return 1 - distance / (a.size + b.size) if a is not None else 0.0


def contained_distance(part: str, gold: str) -> float:
    """As :func:`edit_distance`, without what it takes to remove the nodes that gold has more; over twice the part."""
    a, b, distance = _distance(part, gold)
    return 1 - (distance - max(0, b.size - a.size)) / (2 * a.size) if a is not None else 0.0


def _distance(pred: str, gold: str) -> tuple[Any, Tree, int]:
    right = canonical(gold)
    try:
        tree = canonical(pred)
    except SqlParseError:
        return None, right, 0
    return tree, right, int(need("apted", "tree edit distance").APTED(tree, right, _config()).compute_edit_distance())


@cache
def _config() -> Any:
    """Unit costs, on our trees."""
    kind = need("apted", "tree edit distance").Config

    class OfTrees(kind):  # type: ignore[misc, valid-type]
        def rename(self, a: Tree, b: Tree) -> int:
            return int(a.label != b.label)

        def children(self, node: Tree) -> tuple[Tree, ...]:
            return node.children

    return OfTrees()
