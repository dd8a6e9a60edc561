"""The largest connected subtree that two queries share, and the score made of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from assay.errors import InputError

from .checks import must_be
from .normal_form import canonical
from .tree import SqlParseError, Tree

if TYPE_CHECKING:
    from sqlglot import exp

    from .database import Schema

Norm = Literal["dice", "gold", "pred"]
_NUMBERED = re.compile(r"(?P<name>.+)#(?P<number>\d+)")
_MOST_RENAMINGS = 36


@dataclass(frozen=True)
class Match:
    """A maximum common connected subtree.

    Attributes
    ----------
    score
        Its number of nodes.
    pairs
        Which node of the first tree is matched with which of the second, as pre-order indices, sorted.
    root_a, root_b
        The matched pair that is above all others; -1 where nothing matches.
    """

    score: int
    pairs: list[tuple[int, int]]
    root_a: int
    root_b: int


def mcs(a: Tree, b: Tree) -> Match:
    """Return the largest connected subtree that two trees have in common.

    Labels must be equal and a parent's match must be its matched child's parent. Of ordered children the order is kept.
    Ties go to the smaller index in ``a``, then in ``b``. Time grows with the number of pairs with equal labels.

    Parameters
    ----------
    a, b
        Trees, as :func:`canonical` makes them, of at most 3000 nodes.

    Raises
    ------
    InputError
        For a larger tree.

    Examples
    --------
    >>> match = mcs(canonical("SELECT a FROM t"), canonical("SELECT b FROM t"))
    >>> match.score, match.root_a
    (4, 0)
    """
    for name, tree in (("a", a), ("b", b)):
        must_be(name, tree, Tree, "a Tree, as canonical makes it")
    table = _Table(a, b)
    best, root = table.best()
    pairs = table.pairs(*root) if best else []
    return Match(best, sorted(pairs), *root)


def mcs_size(a: Tree, b: Tree) -> int:
    """The score of :func:`mcs` alone, which is faster."""
    return a.size if a.key == b.key else _Table(a, b).best()[0]


def normed(shared: int, pred: Tree, gold: Tree, norm: Norm = "dice") -> float:
    """A number of shared nodes as a score from 0 to 1."""
    if norm == "dice":
        return 2 * shared / (pred.size + gold.size)
    if norm in ("gold", "pred"):
        return shared / (gold.size if norm == "gold" else pred.size)
    raise InputError(f"norm must be 'dice', 'gold' or 'pred', got {norm!r}")


def mcs_score(
    pred: str | exp.Expression,
    gold: str | exp.Expression,
    *,
    norm: Norm = "dice",
    dialect: str = "sqlite",
    schema: Schema | None = None,
) -> float:
    """Score a predicted query by how much of the right tree it builds, without running either.

    Parameters
    ----------
    pred
        The prediction; what cannot be read as one query scores 0.
    gold
        The right query.
    norm
        ``"dice"``: 2·shared/(both sizes), the default; ``"gold"``: shared/size of gold; ``"pred"``: shared/size of
        pred,
        which is 1 for a fragment that gold contains.
    dialect
        sqlglot's name of the dialect.
    schema
        Where given, columns without a table are given theirs.

    Returns
    -------
    float
        From 0 to 1; 1 for queries that differ only in what means nothing.

    Raises
    ------
    SqlParseError
        When gold cannot be read.
    InputError
        For an unknown dialect or norm, or a query of more than 3000 nodes.

    Notes
    -----
    Source: "Addressing Semantic Blind Spots in Text-to-SQL via Component Pre-generation and AST Matching Rewards",
    ICML 2026.

    Examples
    --------
    >>> round(mcs_score("SELECT a FROM t WHERE x > 1", "SELECT u.a FROM t AS u WHERE 1 < u.x AND u.y = 2"), 6)
    0.869565
    """
    right = canonical(gold, dialect=dialect, schema=schema)
    if norm not in ("dice", "gold", "pred"):
        normed(0, right, right, norm)
    try:
        tree = canonical(pred, dialect=dialect, schema=schema)
    except SqlParseError:
        return 0.0
    return tree_score(tree, right, norm)


def tree_score(pred: Tree, gold: Tree, norm: Norm = "dice") -> float:
    """As :func:`mcs_score`, of trees."""
    shared = best_renaming(pred, gold)[0]
    if shared < min(pred.size, gold.size) and _numbers(pred) != _numbers(gold):
        shared = max(shared, best_renaming(gold, pred)[0])  # as often on both sides, one way round is enough
    return normed(shared, pred, gold, norm)


def best_renaming(pred: Tree, gold: Tree) -> tuple[int, Tree]:
    """The most nodes shared over the ways to number self-joined tables in pred, and pred so numbered."""
    best, found = -1, pred
    for renamed in renamings(pred):
        shared = mcs_size(renamed, gold)
        if shared > best:
            best, found = shared, renamed
        if best == min(pred.size, gold.size):
            break
    return best, found


def renamings(tree: Tree) -> list[Tree]:
    """The tree, and as it would be with the occurrences of a self-joined table numbered in another order."""
    numbers = _numbers(tree)
    orders = [
        [dict(zip(sorted(have), order, strict=True)) for order in itertools.permutations(sorted(have))]
        for have in numbers.values()
        if 2 <= len(have) <= 3
    ]
    names = [name for name, have in numbers.items() if 2 <= len(have) <= 3]
    trees = [tree]
    for chosen in itertools.islice(itertools.product(*orders), 1, _MOST_RENAMINGS):
        labels = {f"{n}#{i}": f"{n}#{j}" for n, order in zip(names, chosen, strict=True) for i, j in order.items()}
        trees.append(_relabelled(tree, labels))
    return trees


def _numbers(tree: Tree) -> dict[str, set[int]]:
    """The numbers of each table that stands several times in one query."""
    numbers: dict[str, set[int]] = {}
    for node in tree.nodes():
        found = _NUMBERED.fullmatch(node.label) if "#" in node.label else None
        if found and node.label.startswith("table "):
            numbers.setdefault(found["name"], set()).add(int(found["number"]))
    return numbers


def _relabelled(tree: Tree, labels: dict[str, str]) -> Tree:
    children = tuple(_relabelled(child, labels) for child in tree.children)
    return Tree(labels.get(tree.label, tree.label), children, tree.unordered)


class _Table:
    """f(u, v), the largest common subtree with u and v as its roots, for all pairs with equal labels."""

    def __init__(self, a: Tree, b: Tree) -> None:
        self.a, self.b = a.flat, b.flat
        self.f: dict[tuple[int, int], int] = {}
        for u in self.a.by_height:
            node = self.a.nodes[u]
            for v in self.b.by_label.get(node.label, ()):
                other = self.b.nodes[v]
                if node.key == other.key:
                    self.f[u, v] = node.size
                elif node.children and other.children:
                    below = _bag if node.unordered else _sequence
                    self.f[u, v] = 1 + below(self.a.children[u], self.b.children[v], self._gain)[0]
                else:
                    self.f[u, v] = 1

    def _gain(self, u: int, v: int) -> int:
        # A child's f may be missing only for unequal labels: by height, children come before their parents.
        return self.f.get((u, v), 0)

    def best(self) -> tuple[int, tuple[int, int]]:
        """The largest f, and where."""
        if not self.f:
            return 0, (-1, -1)
        most = max(self.f.values())
        return most, min(pair for pair, value in self.f.items() if value == most)

    def pairs(self, u: int, v: int) -> list[tuple[int, int]]:
        """The matched pairs of f(u, v)."""
        found, stack = [], [(u, v)]
        while stack:
            u, v = stack.pop()
            found.append((u, v))
            below = _bag if self.a.nodes[u].unordered else _sequence
            stack.extend(below(self.a.children[u], self.b.children[v], self._gain)[1])
        return found


Gain = Callable[[int, int], int]


def _sequence(us: list[int], vs: list[int], gain: Gain) -> tuple[int, list[tuple[int, int]]]:
    """The best matching of two sequences of children that keeps their order: a weighted common subsequence."""
    if len(us) == 1 and len(vs) == 1:
        value = gain(us[0], vs[0])
        return value, [(us[0], vs[0])] if value else []
    rows, columns = len(us), len(vs)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            value = gain(us[i], vs[j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], value + best[i + 1][j + 1] if value else 0)
    pairs, i, j = [], 0, 0
    while i < rows and j < columns:
        value = gain(us[i], vs[j])
        if value and best[i][j] == value + best[i + 1][j + 1]:
            pairs.append((us[i], vs[j]))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return best[0][0], pairs


def _bag(us: list[int], vs: list[int], gain: Gain) -> tuple[int, list[tuple[int, int]]]:
    """The best matching of two sets of children: an assignment of maximum weight."""
    if len(us) <= 1 or len(vs) <= 1:
        value, u, v = max(((gain(u, v), -u, -v) for u in us for v in vs), default=(0, 0, 0))
        return value, [(-u, -v)] if value else []
    weights = np.array([[gain(u, v) for v in vs] for u in us])
    i, j = linear_sum_assignment(weights, maximize=True)
    taken = weights[i, j]
    pairs = [(us[x], vs[y]) for x, y, value in zip(i, j, taken, strict=True) if value]
    return int(taken.sum()), pairs
