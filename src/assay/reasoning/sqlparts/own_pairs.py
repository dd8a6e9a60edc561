"""A user's right queries and a model's, with their databases, for the study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sqlglot import exp

from assay.errors import InputError
from assay.parts.frames import read_frame

from . import labelling
from .database import SafeDatabase
from .normal_form import parse
from .samples import Pool
from .tables import json_list
from .tree import SqlParseError

FOLDS = 5
"""Into which the queries are dealt: every fold is other queries, so that a seed is independent of the others."""

LEAST = 4 * FOLDS
LAYOUT = "dev.json"


@dataclass(frozen=True)
class OwnPair:
    """A right query, the model's where there is one, and the database of both."""

    gold: str
    pred: str | None
    database: Path


def read(path: Path) -> list[OwnPair]:
    """The queries of a table, or of a folder in the layout of BIRD or Spider.

    Raises
    ------
    InputError
        When columns, databases or queries are missing, a right query cannot be read, or there are too few.
    """
    folder = path if path.is_dir() else path.parent
    frame = _layout(path) if path.is_dir() else read_frame(path, text=("sql", "pred", "db_id", "db"))
    gold = next((name for name in ("sql", "SQL", "query", "gold") if name in frame), None)
    if gold is None:
        raise InputError(f"{path.name} needs a column sql with the right queries; it has {', '.join(map(str, frame))}")
    pairs = []
    for place, row in enumerate(frame.to_dict("records")):
        if not isinstance(row[gold], str) or not row[gold].strip():
            raise InputError(f"{path.name}, row {place}: {gold} must be a query, got {row[gold]!r}")
        try:
            parse(row[gold])
        except SqlParseError as error:
            raise InputError(f"{path.name}, row {place}: {error}") from None
        pred = None if "pred" not in frame else row["pred"] if isinstance(row["pred"], str) else ""
        pairs.append(OwnPair(row[gold], pred, _database(folder, row, path.name)))
    if len(pairs) < LEAST:
        raise InputError(f"{path.name} has {len(pairs)} queries; this study needs at least {LEAST}")
    return pairs


def labelled(path: Path, fold: int) -> list[dict[str, Any]]:
    """One fold's pairs, labelled by running them on the databases as they are.

    Without a model's queries there are two rewrites and four edited copies of each right one.

    Raises
    ------
    InputError
        When a right query fails or gives too many rows.
    """
    rng = np.random.default_rng([fold, 0])
    mine = [pair for place, pair in enumerate(read(path)) if place % FOLDS == fold]
    by_file: dict[Path, list[OwnPair]] = {}
    for pair in mine:
        by_file.setdefault(pair.database, []).append(pair)
    rows = []
    for file, pairs in by_file.items():
        with SafeDatabase(file, timeout=30, max_rows=100_000) as db:
            pool = _pool(pairs, db)
            for pair in pairs:
                if pair.pred is not None:
                    asked = [{"gold": pair.gold, "pred": pair.pred, "edits": 0}]
                else:
                    asked = labelling.candidates(pair.gold, rng, pool)
                rows += labelling.on_database(asked, db)
    return rows


def fingerprint(path: Path) -> list[list[Any]]:
    """Names, sizes and times of the files that are read: other ones are labelled anew."""
    files = {path / LAYOUT if path.is_dir() else path, *(pair.database for pair in read(path))}
    return [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(files)]


def _layout(folder: Path) -> pd.DataFrame:
    file = folder / LAYOUT
    if not file.is_file():
        raise InputError(f"the folder {folder} holds no {LAYOUT}, as BIRD and Spider have it")
    frame = json_list(file)
    return frame[[name for name in ("sql", "SQL", "query", "pred", "db_id") if name in frame]]


def _database(folder: Path, row: dict[str, Any], name: str) -> Path:
    named, number = row.get("db"), row.get("db_id")
    if isinstance(named, str) and named:
        tried = [folder / named]
    elif isinstance(number, str) and number:
        if Path(number).name != number:
            raise InputError(f"{name}: db_id must be a plain name, got {number!r}")
        homes = ("database", "databases", "dev_databases", ".")
        tried = [folder / home / number / f"{number}.sqlite" for home in homes] + [folder / f"{number}.sqlite"]
    else:
        tried = list(_only(folder, name))
    found = next((file for file in tried if file.is_file()), None)
    if found is None:
        raise InputError(f"{name}: there is no database {tried[0]}")
    return found


def _only(folder: Path, name: str) -> Iterator[Path]:
    there = sorted(file for end in ("sqlite", "db") for file in folder.glob(f"*.{end}"))
    if len(there) != 1:
        raise InputError(f"{name} has no column db or db_id, and {folder} holds {len(there)} databases, not one")
    yield there[0]


def _pool(pairs: Sequence[OwnPair], db: SafeDatabase) -> Pool:
    """Texts that the queries compare with; and of a column, the others of its table with the same type."""
    texts = {lit.name for p in pairs for lit in parse(p.gold).find_all(exp.Literal) if lit.is_string}
    columns: dict[str, tuple[str, ...]] = {}
    for table in db.schema().tables.values():
        for name, kind in table.columns:
            others = tuple(n for n, k in table.columns if n != name and k.upper() == kind.upper())
            columns.setdefault(name.lower(), others)
    return Pool(tuple(sorted(texts)), columns)
