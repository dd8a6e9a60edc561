"""The catalogue that a router knows: ids in order, their families and domains, what was seen, what is retired."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

ONE_DOMAIN = "all"
"""What the domain of ids is called for which none was given."""

IntArray = NDArray[np.int64]


@dataclass
class Registry:
    """Lists of equal length, one entry an id, in the order in which ids appeared.

    Attributes
    ----------
    ids
        The labels.
    domains, families
        None where none was given.
    experience
        Number of the experience that brought the id.
    n_seen
        How many training pairs it had so far.
    retired
        Whether it is out of service.
    """

    ids: list[Hashable] = field(default_factory=list)
    domains: list[Hashable | None] = field(default_factory=list)
    families: list[Hashable | None] = field(default_factory=list)
    experience: list[int] = field(default_factory=list)
    n_seen: list[int] = field(default_factory=list)
    retired: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = {name: i for i, name in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def copy(self) -> Registry:
        """One that can be changed without changing this."""
        lists = {name: list(getattr(self, name)) for name in self.__dataclass_fields__}
        return replace(self, **lists)

    def frame(self) -> pd.DataFrame:
        """The catalogue as a table."""
        return pd.DataFrame(
            {
                "id": self.ids,
                "family": self.families,
                "domain": [ONE_DOMAIN if d is None else d for d in self.domains],
                "experience": self.experience,
                "n_seen": self.n_seen,
                "retired": self.retired,
            }
        )

    def add(
        self,
        ids: Sequence[Hashable],
        domains: Sequence[Hashable] | None,
        families: Sequence[Hashable] | None,
        experience: int,
    ) -> IntArray:
        """Enter training pairs; returns the number of each pair's id. New ids come last, in order of appearance.

        Raises
        ------
        ValueError
            When an id has two domains or two families, or is retired.
        """
        for i, name in enumerate(ids):
            if name not in self.index:
                self.index[name] = len(self.ids)
                self.ids.append(name)
                self.domains.append(None)
                self.families.append(None)
                self.experience.append(experience)
                self.n_seen.append(0)
                self.retired.append(False)
            number = self.index[name]
            if self.retired[number]:
                raise ValueError(f"the id {name!r} is retired; revive it before it learns again")
            self.n_seen[number] += 1
            for what, given, known in (("domain", domains, self.domains), ("family", families, self.families)):
                if given is None:
                    continue
                if known[number] is None:
                    known[number] = given[i]
                elif known[number] != given[i]:
                    plural = {"domain": "domains", "family": "families"}[what]
                    raise ValueError(f"the id {name!r} has two {plural}, {known[number]!r} and {given[i]!r}")
        return np.array([self.index[name] for name in ids], dtype=np.int64)

    def numbers(self, ids: Hashable | Iterable[Hashable]) -> list[int]:
        """Numbers of ids; ``KeyError`` names one that is not known."""
        several = isinstance(ids, Iterable) and not isinstance(ids, str | bytes | tuple)
        names = [plain(name) for name in ids] if several else [plain(ids)]  # type: ignore[union-attr]
        for name in names:
            if name not in self.index:
                raise KeyError(f"there is no id {name!r} in this router")
        return [self.index[name] for name in names]

    def domain_codes(self) -> IntArray:
        """A number for the domain of each id."""
        codes: dict[Hashable, int] = {}
        return np.array([codes.setdefault(domain, len(codes)) for domain in self.domains], dtype=np.int64)

    def active(self) -> IntArray:
        """Numbers of the ids that are not retired."""
        return np.flatnonzero(~np.array(self.retired, dtype=bool)).astype(np.int64)


def plain(name: Any) -> Hashable:
    """A label as plain Python has it: numpy's numbers and strings become Python's."""
    return name.item() if isinstance(name, np.generic) else name


def labels(values: Any, what: str, n: int) -> list[Hashable]:
    """Check a column of labels: n of them, hashable, none missing."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{what} must be a list with one entry for each row of X, got a {type(values).__name__}")
    column = [plain(value) for value in values]
    if len(column) != n:
        raise ValueError(f"X has {n} rows, and {what} {len(column)} entries")
    for i, value in enumerate(column):
        if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
            raise ValueError(f"{what}[{i}] is missing ({value!r})")
        try:
            hash(value)
        except TypeError:
            raise ValueError(f"{what}[{i}] must be hashable, got a {type(value).__name__}") from None
    return column


def as_array(ids: Sequence[Hashable]) -> NDArray[Any]:
    """Labels as an array of their own type where they have one type, else of objects."""
    kinds = {type(name) for name in ids}
    if kinds in ({str}, {int}):
        return np.array(ids)
    array = np.empty(len(ids), dtype=object)
    array[:] = ids
    return array
