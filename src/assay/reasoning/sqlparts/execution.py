"""Whether two queries give the same, on the database as it is and on changed copies of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd
from sqlglot import exp

from assay.errors import InputError

from .checks import must_be
from .database import Rows, SafeDatabase, SqlError
from .normal_form import parse
from .tree import SqlParseError

Mode = Literal["bag", "bird", "ordered", "suite"]
MODES = ("bag", "bird", "ordered", "suite")
COPIES = 5
"""Changed copies of a database in ``suite``."""

ROWS_OF_A_COPY = 5000
"""Of a table in a changed copy at most; of a larger one they are drawn."""


def execution_match(
    pred: str,
    gold: str,
    db: SafeDatabase,
    *,
    mode: Mode = "bag",
    float_tol: float = 1e-6,
) -> bool:
    """Whether a predicted query gives what the gold query gives.

    Parameters
    ----------
    pred, gold
        The queries; a pred that fails gives nothing and does not match.
    db
        The database.
    mode
        ``"bag"``: the same rows as often, in the same order where gold orders its result, also where its keys tie.
        ``"ordered"``: in the same order. ``"bird"``: the same set of rows, as BIRD scores: a missing DISTINCT and a
        wrong order go unseen. ``"suite"``: as bag, here and on five copies with rows dropped, values moved to the
        numbers of gold and next to them, and NULLs.
    float_tol
        Relative and absolute tolerance of numbers that are not whole (not in ``bird``).

    Raises
    ------
    InputError
        For another mode, a negative tolerance, or a gold query that fails or gives more rows than the database returns.
    """
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    if not isinstance(float_tol, int | float) or not 0 <= float_tol < math.inf:
        raise InputError(f"float_tol must be a number, 0 or more, got {float_tol!r}")
    must_be("db", db, SafeDatabase, "a SafeDatabase")
    right = gold_rows(gold, db)
    found = db.run(pred)
    if not same_rows(found, right, "bag" if mode == "suite" else mode, orders(gold), float_tol):
        return False
    if mode != "suite":
        return True
    with closing_all(changed_copies(db, gold)) as copies:
        return all(same_rows(copy.run(pred), copy.run(gold), "bag", orders(gold), float_tol) for copy in copies)


def gold_rows(gold: str, db: SafeDatabase) -> Rows:
    """What the gold query gives, or an InputError that says why nothing."""
    right = db.run(gold)
    if isinstance(right, SqlError):
        raise InputError(f"the gold query gives no rows to compare with: {right.message}")
    if right.truncated:
        raise InputError(f"the gold query gives more than {db.max_rows} rows; raise max_rows of the database")
    return right


@lru_cache(maxsize=1024)
def orders(gold: str) -> bool:
    """Whether the outermost query orders its result."""
    try:
        return parse(gold).args.get("order") is not None
    except SqlParseError:  # SQLite reads what sqlglot does not
        return False


@lru_cache(maxsize=1024)
def reads_a_table(sql: str) -> bool:
    """Whether a query reads anything but constants, as far as can be seen."""
    try:
        query = parse(sql)
    except SqlParseError:
        return True
    named = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    return any(table.name.lower() not in named for table in query.find_all(exp.Table))


def same_rows(found: Rows | SqlError, right: Rows | SqlError, mode: str, ordered: bool, tol: float = 1e-6) -> bool:
    """Compare two results."""
    if isinstance(found, SqlError) or isinstance(right, SqlError):
        return isinstance(found, SqlError) and isinstance(right, SqlError)
    if found.truncated or right.truncated:
        return False
    if mode == "bird":
        return set(found.rows) == set(right.rows)
    if len(found.rows) != len(right.rows) or len(found.columns) != len(right.columns):
        return False
    if mode == "ordered" or ordered:
        return all(_same_row(a, b, tol) for a, b in zip(found.rows, right.rows, strict=True))
    return _same_bag(found.rows, right.rows, len(right.columns), tol)


def _same_bag(mine: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]], columns: int, tol: float) -> bool:
    """Whether two lists hold the same rows as often, numbers within the tolerance.

    Rows are first sorted by the columns in which equal means equal, so that only those that agree there are compared
    with a tolerance.
    """
    exact = [c for c in range(columns) if all(_is_exact(row[c], tol) for rows in (mine, theirs) for row in rows)]
    loose = [c for c in range(columns) if c not in set(exact)]
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for side, rows in enumerate((mine, theirs)):
        for row in rows:
            groups.setdefault(tuple(_key(row[c]) for c in exact), ([], []))[side].append([row[c] for c in loose])
    return all(len(a) == len(b) and (not loose or _same_group(a, b, tol)) for a, b in groups.values())


def _same_group(mine: list[Any], theirs: list[Any], tol: float) -> bool:
    mine, theirs = (sorted(rows, key=lambda row: tuple(map(_key, row))) for rows in (mine, theirs))
    left = [(a, b) for a, b in zip(mine, theirs, strict=True) if not _same_row(a, b, tol)]
    others = [b for _, b in left]
    if len(left) > _MOST_LEFT:
        return False
    for a, _ in left:  # numbers that are equal within the tolerance may have been sorted apart
        place = next((i for i, b in enumerate(others) if _same_row(a, b, tol)), None)
        if place is None:
            return False
        others.pop(place)
    return True


_MOST_LEFT = 1000


def _is_exact(value: Any, tol: float) -> bool:
    """Whether a value equals another only if it is the same: no number, a whole one, or one whole and not too large."""
    return not isinstance(value, float) or (value.is_integer() and abs(value) * tol < 0.1 and tol < 0.1)


def _same_row(a: Sequence[Any], b: Sequence[Any], tol: float) -> bool:
    return all(_same(x, y, tol) for x, y in zip(a, b, strict=True))


def _same(x: Any, y: Any, tol: float) -> bool:
    if isinstance(x, float) or isinstance(y, float):
        both = isinstance(x, int | float) and isinstance(y, int | float)
        return both and math.isclose(x, y, rel_tol=tol, abs_tol=tol)
    return type(x) is type(y) and bool(x == y)


def _key(value: Any) -> tuple[int, Any]:
    """For sorting: 1 and 1.0 are the same."""
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int | float) else (2, value) if isinstance(value, str) else (3, value)


class closing_all:
    """Close several databases at the end."""

    def __init__(self, databases: list[SafeDatabase]) -> None:
        self.databases = databases

    def __enter__(self) -> list[SafeDatabase]:
        return self.databases

    def __exit__(self, *_: object) -> None:
        for database in self.databases:
            database.close()


def changed_copies(db: SafeDatabase, gold: str, *, copies: int = COPIES, seed: int = 0) -> list[SafeDatabase]:
    """Copies of the tables that gold reads, changed so that a query that is right by luck is found out.

    In each copy 30 % of the rows are gone, 5 % of the values are NULL, and a fifth of the values in the columns that
    gold compares with a number are that number, or one more or less. Close them when done.

    Parameters
    ----------
    db
        The database.
    gold
        The right query.
    copies
        How many.
    seed
        What the changes are drawn with.

    Raises
    ------
    InputError
        When gold names no table of the database.
    """
    must_be("db", db, SafeDatabase, "a SafeDatabase")
    query = parse(gold)
    there = db.schema().tables
    names = sorted({t.name.lower() for t in query.find_all(exp.Table)} & set(there))
    if not names:
        raise InputError("the gold query reads no table of the database")
    frames = {there[name].name: _rows_of(db, there[name].name) for name in names}
    limits = {"timeout": db.timeout, "max_rows": db.max_rows, "max_memory": db.max_memory}
    return [SafeDatabase(tables, **limits) for tables in changed_tables(frames, [gold], copies=copies, seed=seed)]


def _rows_of(db: SafeDatabase, name: str) -> pd.DataFrame:
    """A table; of a large one, rows at even distances."""
    quoted = '"' + name.replace('"', '""') + '"'
    counted = db.run(f"SELECT count(*) FROM {quoted}")
    n = 0 if isinstance(counted, SqlError) else counted.rows[0][0]
    numbered = f'SELECT row_number() OVER () AS "row #", * FROM {quoted}'
    for most in (10_000, 2_000, 200):  # fewer where the rows are large
        step = max(1, math.ceil(n / min(most, db.max_rows)))
        found = db.run(f'SELECT * FROM ({numbered}) AS numbered WHERE numbered."row #" % {step} = 0')
        if not isinstance(found, SqlError):
            return pd.DataFrame([row[1:] for row in found.rows], columns=list(found.columns)[1:], dtype=object)
        if found.kind != "limit":
            break
    raise InputError(f"the table {name} can't be read for the changed copies: {found.message}")


def changed_tables(
    tables: Mapping[str, pd.DataFrame], golds: Sequence[str], *, copies: int = COPIES, seed: int = 0
) -> list[dict[str, pd.DataFrame]]:
    """Copies of tables, changed as :func:`changed_copies` says, for several gold queries at once.

    Parameters
    ----------
    tables
        The tables by name.
    golds
        The right queries; the numbers that they compare columns with are what values are moved to.
    copies
        How many.
    seed
        What the changes are drawn with.

    Raises
    ------
    SqlParseError
        When a gold query cannot be read.
    """
    frames = isinstance(tables, Mapping) and all(isinstance(frame, pd.DataFrame) for frame in tables.values())
    if not frames:
        raise TypeError(f"tables must be DataFrames by name, got {type(tables).__name__}")
    if isinstance(golds, str) or not isinstance(golds, Sequence):
        raise TypeError(f"golds must be a list of texts, got {type(golds).__name__}")
    for name, value, least in (("copies", copies, 1), ("seed", seed, 0)):
        must_be(name, value, int, "a whole number")
        if value < least:
            raise InputError(f"{name} must be {least} or more, got {value}")
    literals: dict[str, list[float]] = {}
    for gold in golds:
        for column, numbers in _compared(parse(gold)).items():
            literals.setdefault(column, []).extend(numbers)
    plain = {name: frame.astype(object).where(frame.notna(), None) for name, frame in tables.items()}
    made = []
    for copy in range(copies):
        rng = np.random.default_rng([seed, copy])
        made.append({name: _changed(frame, literals, rng) for name, frame in plain.items()})
    return made


def _compared(query: exp.Expression) -> dict[str, list[float]]:
    """Which columns are compared with which numbers."""
    found: dict[str, list[float]] = {}
    for node in query.find_all(exp.Predicate):
        columns = [c for c in (node.this, node.args.get("expression")) if isinstance(c, exp.Column)]
        for column in columns:
            numbers = [
                float(n.name)
                for n in node.find_all(exp.Literal)
                if not n.is_string and n.name.replace(".", "").isdigit()
            ]
            found.setdefault(column.name.lower(), []).extend(numbers)
    return found


def _changed(frame: pd.DataFrame, literals: dict[str, list[float]], rng: np.random.Generator) -> pd.DataFrame:
    n = len(frame)
    kept = np.sort(rng.choice(n, min(max(1, round(0.7 * n)), ROWS_OF_A_COPY), replace=False)) if n else np.arange(0)
    frame = frame.iloc[kept].reset_index(drop=True)
    columns = {}
    for name in frame.columns:
        values = np.array(frame[name], dtype=object)
        number = next((isinstance(v, int | float) for v in values if v is not None), False)
        near = literals.get(str(name).lower(), [])
        if near and number:
            moved = rng.random(len(values)) < 0.2
            picked = rng.choice(near, len(values)) + rng.integers(-1, 2, len(values))
            values[moved] = [int(v) if float(v).is_integer() else float(v) for v in picked[moved]]
        values[rng.random(len(values)) < 0.05] = None
        columns[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(columns)
