"""Comparisons: rows "chosen, rejected" counted by context and pair."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.errors import InputError

from .ids import coded, column_of, id_column, plain

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BEST_OF_K = "best_of_k"
"""The warning where every row offers all items: then a Bradley–Terry model always fits, whatever people think."""


@dataclass(frozen=True)
class Rows:
    """The rows that were counted, where they come in clusters.

    Attributes
    ----------
    pair
        (rows,) the row of the table that each counts for.
    forward
        (rows,) whether the pair's first item was chosen.
    weight
        (rows,) how much each counts.
    """

    pair: IntArray
    forward: npt.NDArray[np.bool_]
    weight: FloatArray


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Counts of who was chosen over whom; made by :meth:`from_triplets` or :meth:`from_choices`.

    The same item in two contexts is two nodes: nothing is shared between contexts.

    Attributes
    ----------
    items
        The items, sorted where they can be.
    contexts
        The contexts; one, named ``""``, where none were given.
    table
        A row for each context and pair: integers ``x``, ``i`` < ``j`` (positions in ``contexts`` and ``items``), and
        float64 ``w_ij`` (how often i was chosen over j) and ``w_ji``.
    clusters
        (rows,) the cluster of each row (a person, an occasion), numbered from 0; None where rows are independent.
    rows
        Which pair each row counts for; None where there are no clusters.
    warning
        ``"best_of_k"`` or None.
    has_contexts
        Whether contexts were given.
    """

    items: pd.Index
    contexts: pd.Index
    table: pd.DataFrame
    clusters: IntArray | None = None
    rows: Rows | None = None
    warning: str | None = None
    has_contexts: bool = False

    @classmethod
    def from_triplets(
        cls,
        df: pd.DataFrame,
        *,
        context: str | None = None,
        chosen: str = "chosen",
        rejected: str = "rejected",
        weight: str | None = None,
        cluster: str | None = None,
    ) -> Self:
        """Count the rows of a frame, each of which says that ``chosen`` was preferred to ``rejected``.

        Parameters
        ----------
        df
            One comparison a row.
        context, chosen, rejected
            Columns with ids: text, numbers, or lists of chat messages. Without a context all rows share one.
        weight
            Column that says how often a row counts, ≥ 0; default: once.
        cluster
            Column that says which rows belong together (a person, a session) and are not independent.

        Raises
        ------
        KeyError
            For a column that is not there.
        InputError
            For an empty frame, a missing id, and a weight that is negative or no number.

        Examples
        --------
        >>> frame = pd.DataFrame({"chosen": ["a", "a", "b"], "rejected": ["b", "b", "a"]})
        >>> Comparisons.from_triplets(frame).table.to_dict("records")
        [{'x': 0, 'i': 0, 'j': 1, 'w_ij': 2.0, 'w_ji': 1.0}]
        """
        _need_rows(df)
        won, lost = id_column(df, chosen), id_column(df, rejected)
        where = id_column(df, context) if context is not None else None
        of = id_column(df, cluster) if cluster is not None else None
        counts = weights_of(df, weight)
        (first, second), items = coded(won, lost)
        same = first == second
        if same.any():
            if same.all():
                raise InputError(f"no comparisons: {chosen!r} and {rejected!r} are the same in every row")
            warnings.warn(
                f"{int(same.sum())} rows have the same item as {chosen!r} and {rejected!r}; they were dropped",
                UserWarning,
                stacklevel=2,
            )
        keep = ~same & (counts > 0)
        if not keep.any():
            raise InputError("no comparisons: every row has weight 0")
        if keep.all():
            x, contexts = _contexts(where, len(df))
            clusters = coded(of)[0][0] if of is not None else None
        else:
            (first, second), items = coded(won[keep], lost[keep])
            counts = counts[keep]
            x, contexts = _contexts(None if where is None else where[keep], int(keep.sum()))
            clusters = coded(of[keep])[0][0] if of is not None else None
        made = cls._counted(items, contexts, x, first, second, counts, clusters, where is not None)
        if clusters is not None and _complete_sets(x, first, second, clusters):
            made = replace(made, warning=BEST_OF_K)
        return made

    @classmethod
    def from_choices(
        cls,
        df: pd.DataFrame,
        *,
        options: Sequence[str] | None = None,
        choice: str,
        offered: Sequence[str] | None = None,
        context: str | None = None,
        cluster: str | None = None,
    ) -> Self:
        """Count rows that pick one of several: the choice is preferred to each of the other options.

        Parameters
        ----------
        df
            One choice a row.
        options
            The items, where every row offered all of them.
        choice
            Column with the item that was chosen.
        offered
            Instead of ``options``: the columns that hold what a row offered; missing where it offered fewer.
        context, cluster
            As in :meth:`from_triplets`; each row is a cluster of its own unless one is given.

        Raises
        ------
        KeyError
            For a column that is not there.
        InputError
            When neither or both of ``options`` and ``offered`` are given, a choice is none of the options, or there are
            fewer than two.
        """
        _need_rows(df)
        if (options is None) == (offered is None):
            raise InputError("give options (the items, always all of them) or offered (columns with each row's items)")
        won = id_column(df, choice)
        n = len(df)
        if options is not None:
            names = list(dict.fromkeys(options))
            if len(names) < 2 or len(names) < len(list(options)):
                raise InputError(f"options must be at least two different items, not {list(options)!r}")
            sets = np.empty((n, len(names)), dtype=object)
            sets[:] = np.array(names, dtype=object)
            there = np.ones((n, len(names)), dtype=bool)
        else:
            columns = [column_of(df, name) for name in offered or ()]
            if len(columns) < 2:
                raise InputError(f"offered must name at least two columns, not {list(offered or ())!r}")
            there = np.stack([column.notna().to_numpy() for column in columns], axis=1)
            sets = np.empty((n, len(columns)), dtype=object)
            for k, column in enumerate(columns):
                sets[there[:, k], k] = id_column(df[there[:, k]], str(column.name))
        chosen_here = (sets == won[:, None]) & there
        if not chosen_here.any(axis=1).all():
            row = int(np.argmin(chosen_here.any(axis=1)))
            raise InputError(f"column {choice!r}: {won[row]!r} in row {df.index[row]!r} is none of its options")
        row_of, column_at = np.nonzero(there & ~chosen_here)
        if not len(row_of):
            raise InputError("no comparisons: no row offers two different items")
        frame = pd.DataFrame({"chosen": won[row_of], "rejected": sets[row_of, column_at], "row": row_of})
        if context is not None:
            frame["context"] = id_column(df, context)[row_of]
        if cluster is not None:
            frame["row"] = id_column(df, cluster)[row_of]
        made = cls.from_triplets(frame, context="context" if context is not None else None, cluster="row")
        whole = options is not None or bool(there.all() and len({frozenset(row) for row in sets}) == 1)
        return replace(made, warning=BEST_OF_K if whole else None)

    @classmethod
    def _counted(
        cls,
        items: pd.Index,
        contexts: pd.Index,
        x: IntArray,
        first: IntArray,
        second: IntArray,
        counts: FloatArray,
        clusters: IntArray | None,
        has_contexts: bool,
    ) -> Self:
        n = len(items)
        low, high = np.minimum(first, second), np.maximum(first, second)
        forward = first == low
        # A node is an item in a context; numbers of nodes keep the key of a pair within 64 bits.
        nodes, node = np.unique(np.concatenate([x * n + low, x * n + high]), return_inverse=True)
        keys, pair = np.unique(node[: len(x)] * len(nodes) + node[len(x) :], return_inverse=True)
        i, j = keys // len(nodes), keys % len(nodes)
        table = pd.DataFrame(
            {
                "x": nodes[i] // n,
                "i": nodes[i] % n,
                "j": nodes[j] % n,
                "w_ij": np.bincount(pair[forward], counts[forward], len(keys)),
                "w_ji": np.bincount(pair[~forward], counts[~forward], len(keys)),
            }
        )
        rows = Rows(pair, forward, counts) if clusters is not None else None
        return cls(items, contexts, table, clusters, rows, None, has_contexts)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The items of each context that has comparisons of them: integers ``x`` and ``item``, sorted."""
        return pd.DataFrame({"x": self._node_keys // len(self.items), "item": self._node_keys % len(self.items)})

    @cached_property
    def _node_keys(self) -> IntArray:
        x, n = self.table["x"].to_numpy(), len(self.items)
        return np.unique(np.concatenate([x * n + self.table["i"].to_numpy(), x * n + self.table["j"].to_numpy()]))

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """(pairs,) the positions in :attr:`nodes` of each pair's two items."""
        x, n = self.table["x"].to_numpy(), len(self.items)
        i = np.searchsorted(self._node_keys, x * n + self.table["i"].to_numpy())
        return i.astype(np.int64), np.searchsorted(self._node_keys, x * n + self.table["j"].to_numpy()).astype(np.int64)

    @property
    def wins(self) -> tuple[FloatArray, FloatArray]:
        """(pairs,) ``w_ij`` and ``w_ji``."""
        return self.table["w_ij"].to_numpy(), self.table["w_ji"].to_numpy()

    @property
    def n(self) -> FloatArray:
        """(pairs,) how often each pair was compared."""
        return self.table["w_ij"].to_numpy() + self.table["w_ji"].to_numpy()

    @cached_property
    def labels(self) -> pd.Index:
        """What names each node: the item, or (context, item) where contexts were given."""
        item = self.nodes["item"].to_numpy()
        if not self.has_contexts:
            return self.items.take(item).rename("item")
        # Long texts are not copied: the index points to them.
        return pd.MultiIndex([self.contexts, self.items], [self.nodes["x"].to_numpy(), item], names=["context", "item"])

    def node(self, items: npt.ArrayLike, contexts: npt.ArrayLike | None = None) -> IntArray:
        """Positions in :attr:`nodes` of items (in contexts); −1 where there are no comparisons of one."""
        item = self.items.get_indexer(pd.Index(np.asarray(items, dtype=object)))
        x = np.zeros_like(item)
        if contexts is not None and self.has_contexts:
            x = self.contexts.get_indexer(pd.Index(np.asarray(contexts, dtype=object)))
        key = x * len(self.items) + item
        at = np.minimum(np.searchsorted(self._node_keys, key), len(self._node_keys) - 1)
        found = (item >= 0) & (x >= 0) & (self._node_keys[at] == key)
        return np.where(found, at, -1)

    def with_counts(self, w_ij: FloatArray, w_ji: FloatArray) -> Self:
        """The same pairs with other counts, and no clusters."""
        return replace(
            self, table=self.table.assign(w_ij=w_ij, w_ji=w_ji), clusters=None, rows=None, warning=self.warning
        )


def weights_of(df: pd.DataFrame, weight: str | None) -> FloatArray:
    """The weights of the rows, checked: finite and not negative; ones where no column is named."""
    if weight is None:
        return np.ones(len(df))
    column = pd.to_numeric(column_of(df, weight), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = ~np.isfinite(column) | (column < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"column {weight!r}: weights must be finite numbers ≥ 0, not {plain(df[weight].iloc[row])!r} in row "
            f"{plain(df.index[row])!r}"
        )
    return column


def _need_rows(df: Any) -> None:
    if not isinstance(df, pd.DataFrame):
        raise TypeError(f"df must be a pandas DataFrame, not a {type(df).__name__}")
    if df.empty:
        raise InputError("no comparisons: the frame has no rows")


def _contexts(where: npt.NDArray[np.object_] | None, n: int) -> tuple[IntArray, pd.Index]:
    if where is None:
        return np.zeros(n, dtype=np.int64), pd.Index([""], dtype=object)
    (x,), contexts = coded(where)
    return x, contexts


def _complete_sets(x: IntArray, first: IntArray, second: IntArray, clusters: IntArray) -> bool:
    """Whether each cluster is one choice among all items of its context: then all rows are pick-one-of-k."""
    if not (np.bincount(clusters) > 1).any():
        return False
    order = np.lexsort((second, clusters))
    c, won, lost, place = clusters[order], first[order], second[order], x[order]
    start = np.flatnonzero(np.diff(c, prepend=-1))
    size = np.diff(np.append(start, len(c)))
    one_choice = np.repeat(won[start], size) == won
    one_context = np.repeat(place[start], size) == place
    if not (one_choice.all() and one_context.all()):
        return False
    twice = (np.diff(lost, prepend=-1) == 0) & (np.diff(c, prepend=-1) == 0)
    if twice.any():
        return False
    n_items = max(int(x.max()), 0) + 1
    top = int(max(first.max(), second.max())) + 1
    keys = np.unique(np.concatenate([x * top + first, x * top + second]))
    in_context = np.bincount(keys // top, minlength=n_items)
    return bool((size == in_context[place[start]] - 1).all() and (in_context[np.unique(x)] > 2).any())
