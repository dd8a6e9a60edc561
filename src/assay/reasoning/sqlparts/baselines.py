"""Other scores of a predicted query against a gold one: token overlap, n-grams, sqlglot's own diff, equality."""

from __future__ import annotations

from collections import Counter

import sqlglot
from sqlglot.diff import Keep, diff
from sqlglot.errors import SqlglotError


def _tokens(sql: str) -> list[str]:
    return [token.text.lower() for token in sqlglot.tokenize(sql, read="sqlite")]


def token(pred: str, gold: str) -> float:
    """Jaccard index of the sets of tokens."""
    a, b = set(_tokens(pred)), set(_tokens(gold))
    return len(a & b) / len(a | b)


def ngram(pred: str, gold: str) -> float:
    """Dice index of 1- to 4-grams of tokens, mean over the lengths."""
    a, b = _tokens(pred), _tokens(gold)
    scores = []
    for n in range(1, 5):
        x, y = (Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (a, b))
        if x or y:
            scores.append(2 * (x & y).total() / (x.total() + y.total()))
    return sum(scores) / len(scores)


def contained_ngram(part: str, gold: str) -> float:
    """Share of a part's 1- to 4-grams that gold has, mean over the lengths."""
    a, b = _tokens(part), _tokens(gold)
    scores = []
    for n in range(1, 5):
        x, y = (Counter(zip(*(t[i:] for i in range(n)), strict=False)) for t in (a, b))
        if x:
            scores.append((x & y).total() / x.total())
    return sum(scores) / len(scores)


def contained_token(part: str, gold: str) -> float:
    """Share of a part's tokens that gold has."""
    a, b = set(_tokens(part)), set(_tokens(gold))
    return len(a & b) / len(a)


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
