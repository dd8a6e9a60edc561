"""The tree that queries are compared as: small, immutable, independent of any parser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from assay.errors import InputError

MOST_NODES = 3000
"""Of a tree that is compared."""


class SqlParseError(InputError):
    """A query that cannot be read; ``line`` and ``column`` say where, from 1, or are None."""

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        where = f" (line {line}, column {column})" if line is not None else ""
        super().__init__(message + where)
        self.line, self.column = line, column


@dataclass(frozen=True, eq=False)
class Tree:
    """A node with what is below it.

    Attributes
    ----------
    label
        Its kind with every flag that changes the meaning.
    children
        In the query's order; where ``unordered``, sorted, so that equal sets are equal trees.
    unordered
        Whether the order of the children means nothing.
    size
        Number of nodes, itself included.
    key
        Equal exactly for equal trees.
    """

    label: str
    children: tuple[Tree, ...] = ()
    unordered: bool = False
    size: int = field(init=False)
    key: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.unordered:
            object.__setattr__(self, "children", tuple(sorted(self.children, key=lambda child: child.key)))
        object.__setattr__(self, "size", 1 + sum(child.size for child in self.children))
        inside = "".join(child.key for child in self.children)
        object.__setattr__(self, "key", f"({len(self.label)}:{self.label}{'~' * self.unordered}{inside})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def nodes(self) -> Iterator[Tree]:
        """All nodes in pre-order: a node, then what is below its first child, and so on."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    @cached_property
    def flat(self) -> Flat:
        """The nodes as lists, for matching."""
        return Flat(self)

    def __str__(self) -> str:
        lines, stack = [], [(self, 0)]
        while stack:
            node, depth = stack.pop()
            lines.append("  " * depth + node.label)
            stack.extend((child, depth + 1) for child in reversed(node.children))
        return "\n".join(lines)


class Flat:
    """A tree's nodes in pre-order: their labels, keys, sizes, their children's places, and the order by height."""

    def __init__(self, tree: Tree) -> None:
        if tree.size > MOST_NODES:
            raise InputError(f"the query has {tree.size} nodes; at most {MOST_NODES} can be compared")
        self.nodes = list(tree.nodes())
        self.children: list[list[int]] = []
        self.by_label: dict[str, list[int]] = {}
        for place, node in enumerate(self.nodes):
            self.by_label.setdefault(node.label, []).append(place)
            below, at = [], place + 1
            for child in node.children:
                below.append(at)
                at += child.size
            self.children.append(below)
        heights = [0] * len(self.nodes)
        for place in reversed(range(len(self.nodes))):  # children stand behind their parent
            heights[place] = 1 + max((heights[c] for c in self.children[place]), default=-1)
        self.by_height = sorted(range(len(self.nodes)), key=heights.__getitem__)
