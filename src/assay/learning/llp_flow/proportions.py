"""Proportion tables: from counts, checked against the rows' bags, and what they can teach."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from assay.errors import InputError
from assay.parts.supervision import aligned

from .rows import shown

FloatArray = NDArray[np.float64]

OFF_ONE = 1e-3
"""How far the proportions of a bag may be from summing to 1."""

WEAK = 0.02
"""Diversity or gap below this is warned of."""


@dataclass(frozen=True)
class Bags:
    """Rows in bags.

    Attributes
    ----------
    index
        (n,) the number of each row's bag.
    ids
        The B bags' ids, in the order of their numbers.
    proportions
        (B, K) float64; rows sum to 1.
    classes
        (K,).
    """

    index: NDArray[np.int64]
    ids: pd.Index
    proportions: FloatArray
    classes: NDArray[Any]


def proportions_from_counts(counts: Any) -> pd.DataFrame:
    """Divide each bag's counts by their sum.

    Parameters
    ----------
    counts
        (B, K) not negative: DataFrame (bags × classes), dict of bag to counts, or array.

    Returns
    -------
    DataFrame

    Raises
    ------
    InputError
        For what is no table of numbers, and for a bag whose counts are negative, not finite or all 0.

    Examples
    --------
    >>> proportions_from_counts({"north": [3, 1], "south": [0, 2]}).loc["north"].tolist()
    [0.75, 0.25]
    """
    if isinstance(counts, Mapping):
        counts = pd.DataFrame.from_dict(dict(counts), orient="index")
    if not isinstance(counts, pd.DataFrame):
        if np.ndim(counts) != 2:
            raise InputError(f"counts must have rows (bags) and columns (classes), got {np.ndim(counts)} dimension(s)")
        counts = pd.DataFrame(np.asarray(counts))
    values = _numbers("counts", counts)
    if values.shape[1] < 2:
        raise InputError("counts must have a column for each class, at least 2, and has 1")
    with np.errstate(over="ignore"):
        total = values.sum(axis=1)
    bad = ~np.isfinite(values).all(axis=1) | (values < 0).any(axis=1) | ~(total > 0) | ~np.isfinite(total)
    if bad.any():
        at = int(np.argmax(bad))
        raise InputError(
            f"counts of bag {shown(counts.index[at])} must be finite, not negative and not all 0, "
            f"got {values[at].tolist()}"
        )
    return pd.DataFrame(values / total[:, None], index=counts.index, columns=counts.columns)


def checked_bags(X: Any, bags: Any, proportions: Any, classes: Any = None) -> Bags:
    """Match rows and proportions by bag id, or say what is wrong.

    Parameters
    ----------
    X
        (n, …) the rows, of which the number and a pandas index count.
    bags
        (n,) ids.
    proportions
        Of each bag: DataFrame (B, K) whose index is the bag ids and whose columns are the classes; Series or dict of
        bag id to K shares, or to the share of the positive class; array (B, K) or (B,), whose row b is bag b.
    classes
        (K,) names and order of the classes; None takes the columns of a DataFrame, else 0, 1, …

    Raises
    ------
    InputError
        As in :meth:`LLPFlowClassifier.fit`.
    """
    ids = _ids(X, bags)
    table = _table(proportions, classes)
    known = table.index
    if not known.is_unique:
        raise InputError(f"proportions has bag {shown(known[known.duplicated()][0])} twice")
    try:
        number, there = pd.factorize(pd.Index(ids, tupleize_cols=False), sort=_sortable(ids))
    except TypeError as error:
        raise InputError(f"bags must hold numbers or words: {error}") from None
    place = known.get_indexer(there)
    if (place < 0).any():
        missing = there[place < 0]
        raise InputError(
            f"bags has {len(missing)} bag(s) without a row in proportions, the first is {shown(missing[0])}; "
            f"proportions has {', '.join(map(shown, known[:5]))}{', …' if len(known) > 5 else ''}"
        )
    if len(known) > len(there):
        rest = known.difference(there, sort=False)
        warnings.warn(
            f"proportions of {len(rest)} bag(s) without rows are ignored, the first is {shown(rest[0])}", stacklevel=3
        )
    values = table.to_numpy()[place]
    for at, row in enumerate(values):
        if not np.isfinite(row).all() or (row < 0).any() or abs(row.sum() - 1) > OFF_ONE:
            more = "; proportions_from_counts turns counts into shares" if (row > 1).any() else ""
            raise InputError(
                f"proportions of bag {shown(there[at])} must be finite, not negative and sum to 1, "
                f"got {row.tolist()}{more}"
            )
    return Bags(number.astype(np.int64), there, values / values.sum(axis=1, keepdims=True), np.asarray(table.columns))


def diversity(proportions: FloatArray) -> float:
    """How many directions the bags' proportions span, and how far: 0 where some mixture of classes never varies.

    The (K − 1)-th largest singular value of the (B, K) proportions about their mean, divided by √B; of the K classes
    that some bag has.
    """
    pi = proportions[:, proportions.max(axis=0) > 0]
    singular = np.linalg.svd(pi - pi.mean(axis=0), compute_uv=False)
    wanted = pi.shape[1] - 2
    return float(singular[wanted] / np.sqrt(len(pi))) if 0 <= wanted < len(singular) else 0.0


def gap(proportions: FloatArray) -> float:
    """Mean over pairs of classes that some bag has of the mean over bags of the difference of their shares."""
    pi = proportions[:, proportions.max(axis=0) > 0]
    k, other = np.triu_indices(pi.shape[1], 1)
    return float(np.abs(pi[:, k] - pi[:, other]).mean()) if len(k) else 0.0


def identifiable(proportions: FloatArray) -> bool:
    """Whether diversity and gap are both at least 0.02."""
    return min(diversity(proportions), gap(proportions)) >= WEAK


def warn_of_weak(bags: Bags) -> None:
    """Warn where proportions cannot, or can hardly, tell the classes apart, and of classes that no bag has."""
    pi = bags.proportions
    absent = bags.classes[pi.max(axis=0) == 0]
    if len(absent):
        warnings.warn(
            f"no bag has class {', '.join(map(repr, absent.tolist()))}: its anchors stay unused",
            stacklevel=3,
        )
    if np.ptp(pi, axis=0).max() <= 1e-9:
        warnings.warn(
            "not identifiable: all bags have the same proportions, which say nothing of single rows", stacklevel=3
        )
        return
    for name, value in (("diversity", diversity(pi)), ("gap", gap(pi))):
        if value < WEAK:
            warnings.warn(
                f"hardly identifiable: the {name} of the proportions is {value:.2g}, below {WEAK}; some classes can be "
                "told apart by chance only",
                stacklevel=3,
            )


def make_bags(
    y: Any,
    size: int,
    kind: str = "iid",
    alpha: float = 0.5,
    random_state: int | np.random.Generator | None = None,
) -> list[NDArray[np.int64]]:
    """Deal labelled rows into bags, for studies.

    Parameters
    ----------
    y
        (n,) classes.
    size
        Rows a bag; what is left over is a smaller last bag, if it has at least two rows.
    kind
        ``"iid"``: rows at random. ``"dirichlet"``: each bag draws its own class mix from a symmetric Dirichlet, until
        classes run out; its rows are in random order.
    alpha
        Of the Dirichlet; small is diverse. Default 0.5.
    random_state
        Seed or generator.

    Returns
    -------
    list of (size,) arrays
        Row numbers; no row twice.

    Raises
    ------
    InputError
        For classes that are missing, a size below 1 or above n, an unknown kind, or an alpha that is not positive.

    Examples
    --------
    >>> [len(bag) for bag in make_bags([0, 1] * 10, 6, random_state=0)]
    [6, 6, 6, 2]
    """
    given = np.asarray(y)
    if given.ndim != 1 or pd.isna(given).any():
        raise InputError(f"y must be (n,) classes, none missing, got shape {given.shape}")
    labels = pd.factorize(given, sort=_sortable(given))[0]
    n = len(labels)
    if isinstance(size, bool) or not isinstance(size, Integral) or not 1 <= size <= n:
        raise InputError(f"size must be 1 … {n}, the number of rows, got {size!r}")
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 0 < alpha < np.inf:
        raise InputError(f"alpha must be positive and finite, got {alpha!r}")
    rng = np.random.default_rng(random_state)
    if kind == "iid":
        order = rng.permutation(n)
    elif kind == "dirichlet":
        order = _dirichlet_order(labels, size, alpha, rng)
    else:
        raise InputError(f"kind must be 'iid' or 'dirichlet', got {kind!r}")
    bags = [order[start : start + size] for start in range(0, n, size)]
    if kind == "dirichlet":  # they were dealt class after class, and the order of rows must not give labels away
        bags = [rng.permutation(bag) for bag in bags]
    return bags if len(bags[-1]) > 1 or size == 1 else bags[:-1]


def _dirichlet_order(labels: NDArray[np.int64], size: int, alpha: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """All rows, bag after bag."""
    pools = [rng.permutation(np.flatnonzero(labels == k)).tolist() for k in range(labels.max() + 1)]
    order: list[int] = []
    while len(order) < len(labels):
        mix = rng.dirichlet(np.full(len(pools), alpha))
        wanted = min(size, len(labels) - len(order))
        while wanted:
            left = np.array([len(pool) for pool in pools])
            share = np.where(left > 0, np.maximum(mix, 1e-12), 0.0)
            for k, count in enumerate(rng.multinomial(wanted, share / share.sum())):
                taken, pools[k] = pools[k][:count], pools[k][count:]
                order += taken
                wanted -= len(taken)
    return np.array(order)


class BagKFold(GroupKFold):
    """Folds that keep bags whole: ``split(X, groups=bags)``. Score a fold with ``bag_score``, which needs no labels.

    Parameters
    ----------
    n_splits
        At least 2, and no more than there are bags; default 5.
    shuffle
        Deal bags at random (default), else to balance the sizes of the folds.
    random_state
        Seed.

    Examples
    --------
    >>> bags = np.array(["a", "a", "b", "b", "c"])
    >>> [set(bags[test].tolist()) for _, test in BagKFold(3, shuffle=False).split(bags, groups=bags)]
    [{'b'}, {'a'}, {'c'}]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: Any = None) -> None:
        super().__init__(n_splits, shuffle=shuffle, random_state=random_state)


def _ids(X: Any, bags: Any) -> NDArray[Any]:
    if bags is None:
        raise InputError("bags must be given: the bag id of each row")
    ids = aligned("bags", bags, X)
    if isinstance(ids, pd.DataFrame):
        ids = ids.to_numpy()
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1:
        raise InputError(f"bags must have one id for each row of X, got shape {ids.shape}")
    unknown = np.asarray(pd.isna(ids), dtype=bool)
    if unknown.any():
        raise InputError(f"bags has no id in {int(unknown.sum())} row(s), the first is row {int(np.argmax(unknown))}")
    return ids


def _sortable(ids: NDArray[Any]) -> bool:
    """Whether the order of the rows can be kept out of the result; ids of several types have no order."""
    return ids.dtype.kind != "O" or len({type(one) for one in ids}) == 1


def _table(proportions: Any, classes: Any) -> pd.DataFrame:
    """Bags × classes, float64."""
    named = None if classes is None else _classes(classes)
    if proportions is None:
        raise InputError("proportions must be given: of each bag the shares of the classes")
    if isinstance(proportions, pd.DataFrame | pd.Series) and (
        proportions.index.nlevels > 1 or (proportions.ndim == 2 and proportions.columns.nlevels > 1)
    ):
        raise InputError(
            "proportions has an index or columns of several levels; it must have a row a bag and a column a class: "
            ".unstack(fill_value=0) makes such a table of a Series by bag and class"
        )
    if isinstance(proportions, pd.DataFrame):
        frame = proportions
        if named is not None:
            if set(named) != set(frame.columns) or len(named) != frame.shape[1]:
                raise InputError(
                    f"classes must be the columns of proportions, {list(frame.columns)!r}, got {named.tolist()!r}"
                )
            frame = frame[list(named)]
        else:
            named = _classes(list(frame.columns))
        return pd.DataFrame(_numbers("proportions", frame), index=frame.index, columns=pd.Index(named))
    if isinstance(proportions, Mapping):
        index: Any = list(proportions)
        rows: Any = [np.asarray(proportions[key]) for key in index]
    elif isinstance(proportions, pd.Series):
        index, rows = proportions.index, [np.asarray(one) for one in proportions]
    else:
        rows = proportions if isinstance(proportions, Sequence) else np.asarray(proportions)
        index = range(len(rows)) if np.ndim(rows) else []
    try:
        if np.asarray(rows).dtype.kind == "c":
            raise TypeError("they are complex")
        values = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"proportions must be numbers, as many for each bag: {error}") from None
    if values.ndim == 1 and len(values):
        values = np.stack([1 - values, values], axis=1)  # the share of the positive class
    if values.ndim != 2 or len(values) == 0:
        raise InputError(f"proportions must be (bags, classes) or (bags,), got shape {values.shape}")
    named = _classes(range(values.shape[1])) if named is None else named
    if len(named) != values.shape[1]:
        raise InputError(f"proportions has {values.shape[1]} classes, and classes names {len(named)}")
    return pd.DataFrame(values, index=pd.Index(index, tupleize_cols=False), columns=pd.Index(named))


def _classes(given: Any) -> NDArray[Any]:
    try:
        named = pd.Index(list(given), tupleize_cols=False)
    except TypeError:
        raise InputError(f"classes must be a list of names, got {given!r}") from None
    if len(named) < 2:
        hint = "; the share of the positive class alone goes in as a Series" if len(named) == 1 else ""
        raise InputError(f"there must be at least 2 classes (columns of proportions), got {named.tolist()!r}{hint}")
    if not named.is_unique or named.hasnans:
        raise InputError(f"classes must be different and known, got {list(named)!r}")
    return np.asarray(named)


def _numbers(name: str, frame: pd.DataFrame) -> FloatArray:
    if frame.ndim != 2 or frame.shape[0] == 0 or frame.shape[1] == 0:
        raise InputError(f"{name} must have rows (bags) and columns (classes), got shape {frame.shape}")
    try:
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None
