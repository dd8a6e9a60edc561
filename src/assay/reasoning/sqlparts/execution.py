"""Whether two queries give the same, on the database as it is and on changed copies of it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np
import pandas as pd
from sqlglot import exp

from assay.errors import InputError

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
        ``"bag"``: the same rows as often, in the same order where gold orders its result. ``"ordered"``: in the same
        order.
        ``"bird"``: the same set of rows, as BIRD scores: a missing DISTINCT and a wrong order go unseen.
        ``"suite"``: as bag,
        here and on five copies with rows dropped, values moved to the numbers of gold and next to them, and NULLs.
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


def orders(gold: str) -> bool:
    """Whether the outermost query orders its result."""
    try:
        return parse(gold).args.get("order") is not None
    except SqlParseError:  # SQLite reads what sqlglot does not
        return False


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
    mine, theirs = sorted(found.rows, key=_row_key), sorted(right.rows, key=_row_key)
    left: list[Any] = []
    other: list[Any] = []
    for a, b in zip(mine, theirs, strict=True):
        if not _same_row(a, b, tol):
            left.append(a)
            other.append(b)
    if len(left) > 300:
        return False
    for a in left:  # numbers that are equal within the tolerance may have been sorted apart
        place = next((i for i, b in enumerate(other) if _same_row(a, b, tol)), None)
        if place is None:
            return False
        other.pop(place)
    return True


def _same_row(a: Sequence[Any], b: Sequence[Any], tol: float) -> bool:
    return all(_same(x, y, tol) for x, y in zip(a, b, strict=True))


def _same(x: Any, y: Any, tol: float) -> bool:
    if isinstance(x, float) or isinstance(y, float):
        both = isinstance(x, int | float) and isinstance(y, int | float)
        return both and math.isclose(x, y, rel_tol=tol, abs_tol=tol)
    return type(x) is type(y) and x == y


def _row_key(row: Sequence[Any]) -> tuple[Any, ...]:
    """Whole numbers and texts first, so that floats decide only among rows that are equal in everything else."""
    plain = tuple(_key(v) for v in row if not isinstance(v, float))
    return (tuple(isinstance(v, float) for v in row), plain, tuple(v for v in row if isinstance(v, float)))


def _key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (1, value) if isinstance(value, int) else (2, value) if isinstance(value, str) else (3, value)


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
    gold compares
    with a number are that number, or one more or less. Close them when done.

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
    query = parse(gold)
    there = db.schema().tables
    names = sorted({t.name.lower() for t in query.find_all(exp.Table)} & set(there))
    if not names:
        raise InputError("the gold query reads no table of the database")
    literals = _compared(query)
    frames = {}
    with closing(sqlite3.connect(f"{db.path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for name in names:
            quoted = '"' + there[name].name.replace('"', '""') + '"'
            frames[there[name].name] = pd.read_sql_query(f"SELECT * FROM {quoted}", connection, dtype=object)
    made = []
    for copy in range(copies):
        rng = np.random.default_rng([seed, copy])
        changed = {name: _changed(frame, literals, rng) for name, frame in frames.items()}
        made.append(SafeDatabase(changed, timeout=db.timeout, max_rows=db.max_rows, max_memory=db.max_memory))
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
