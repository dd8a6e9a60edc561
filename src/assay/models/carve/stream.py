"""A table of queries becomes a stream of experiences, each with queries to learn from and queries to be tested on."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from assay.errors import InputError

from .registry import ONE_DOMAIN


@dataclass(frozen=True)
class Experience:
    """What comes at one time.

    Attributes
    ----------
    name
        The value of the time column.
    train, test
        Rows of the table, with the columns ``query``, ``id``, ``family``, ``domain``; the index is the table's.
    """

    name: Hashable
    train: pd.DataFrame
    test: pd.DataFrame


class ContinualStream:
    """Experiences in order of time, with a test split inside each id.

    Parameters
    ----------
    table
        One row a query: ``query`` and ``id``, and if there are such ``family``, ``domain`` and the time column. Without
        a family an id is its own family; without domains all are one.
    time
        Name of the column that says when a pair came; None makes one experience of all. Its order is that of a
        categorical column's categories, of numbers, or else of the sorted values (as in "2026-03").
    test_frac
        Share of an id's queries within an experience that is for testing, at least one; an id with a single query
        is only learned from.
    seed
        Of the split.

    Attributes
    ----------
    experiences
        The list of :class:`Experience`; iterating gives the same.
    families, domains
        Family and domain of each id, dictionaries.

    Raises
    ------
    InputError
        When a column is missing, something in it is missing or no text, or an id has two domains or families.

    Examples
    --------
    >>> hub = pd.DataFrame({"query": list("abcdef"), "id": ["x"] * 3 + ["y"] * 3, "month": [1] * 3 + [2] * 3})
    >>> [(e.name, len(e.train), len(e.test)) for e in ContinualStream(hub, time="month")]
    [(1, 2, 1), (2, 2, 1)]
    """

    def __init__(
        self, table: pd.DataFrame, time: str | None = "experience", test_frac: float = 1 / 3, seed: int = 0
    ) -> None:
        if not 0 <= test_frac < 1:
            raise ValueError(f"test_frac must be at least 0 and below 1, got {test_frac}")
        table = checked_table(table, [] if time is None else [time])
        self.families: dict[Hashable, Hashable] = dict(zip(table["id"], table["family"], strict=True))
        self.domains: dict[Hashable, Hashable] = dict(zip(table["id"], table["domain"], strict=True))
        rng = np.random.default_rng(seed)
        self.experiences: list[Experience] = []
        for name in _times(table, time):
            rows = table if time is None else table[table[time] == name]
            chance = rng.permutation(len(rows))
            rank = pd.Series(chance, index=rows.index).groupby(rows["id"]).rank(method="first") - 1
            size = rows.groupby("id")["id"].transform("size")
            n_test = np.where(size > 1, np.maximum(np.floor(size * test_frac + 1e-9), float(test_frac > 0)), 0)
            is_test = (rank < n_test).to_numpy()
            columns = ["query", "id", "family", "domain"]
            self.experiences.append(Experience(name, rows.loc[~is_test, columns], rows.loc[is_test, columns]))

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.experiences)

    def __len__(self) -> int:
        return len(self.experiences)


def checked_table(table: pd.DataFrame, also: list[str], called: Mapping[str, str | None] | None = None) -> pd.DataFrame:
    """The table with family and domain filled in and a plain index; ``InputError`` says what is wrong with it.

    ``called`` gives the names of the columns in the user's file, for the messages.
    """
    theirs = {column: name for column, name in (called or {}).items() if name is not None}
    for column in ["query", "id", *also]:
        if column not in table.columns:
            raise InputError(f"the table has no column {column!r}; it has {', '.join(map(str, table.columns))}")
    if not len(table):
        raise InputError("the table has no rows")
    table = table.reset_index(drop=True)
    if "family" not in table:
        table["family"] = table["id"]
    if "domain" not in table:
        table["domain"] = ONE_DOMAIN
    for column in ["query", "id", "family", "domain", *also]:
        if table[column].isna().any():
            row = int(np.flatnonzero(table[column].isna())[0])
            raise InputError(f"the column {theirs.get(column, column)!r} is empty in row {row} (counted from 0)")
    odd = [not isinstance(query, str) or not query.strip() for query in table["query"]]
    if any(odd):
        raise InputError(f"row {odd.index(True)} (counted from 0) has no text as its query")
    for column, several in (("domain", "domains"), ("family", "families")):
        different = table.groupby("id", sort=False)[column].nunique()
        if (different > 1).any():
            name = different.index[different > 1][0]
            some = table.loc[table["id"] == name, column].unique()[:2]
            raise InputError(f"the id {name!r} has two {several}, {some[0]!r} and {some[1]!r}")
    return table


def _times(table: pd.DataFrame, time: str | None) -> list[Hashable]:
    if time is None:
        return ["all"]
    column = table[time]
    if isinstance(column.dtype, pd.CategoricalDtype):
        there = set(column.unique())
        return [value for value in column.cat.categories if value in there]
    try:
        return sorted(column.unique().tolist())
    except TypeError as error:
        raise InputError(f"the values of the column {time!r} cannot be put in order: {error}") from None
