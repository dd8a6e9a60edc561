"""Survival tables of the package SurvSet: only its data files are read, its code never runs."""

from __future__ import annotations

import difflib
from typing import Any

import numpy as np
import pandas as pd

from assay.errors import InputError
from assay.parts.packages import checked_file, package_file
from assay.parts.pickled import FRAMES, read_pickle

PACKAGE = "SurvSet"
_FOLDER = ("resources", "pickles")

# The files that are known here, of version 0.2.11; any other that the package has is read with the same care.
SHA256 = {
    "Framingham": "0ffff0e3622244f44002bcc971c8b47a75250450fd8e2cba4e292e22c74919b8",
    "actg": "318251ae458ed736a26ebf805b49d2099b3b0f7fee1654347c00254b01c105a8",
    "nwtco": "6570e51a589b53cf886dfedb491566cf9efe2df2dee849835bd57b9a0d4e024a",
    "prostateSurvival": "6f65e51955b5b55357f72921600434af28943553772d26dc721f650354398fd7",
    "rhc": "8250a5f1d8d5aa3d6f1a4c2cd18c41facc70506d0c77c655fa4423582ac780e4",
    "smarto": "ce20e159a4d0a4408c5e79773c69a5afa58743a8be63ffe1b82db83fc5b5c708",
}


def load(name: str) -> pd.DataFrame:
    """A survival table, one row a subject (or a spell of one, where there is a column ``time2``).

    Origin: package ``SurvSet`` 0.2.11 (Drysdale, arXiv 2203.03094), which is under the GPL 3: it is read where the
    user has installed it. The tables come from R packages, each under its own terms. Among them: ``rhc`` 5 735 × 56,
    ``smarto`` 3 873 × 29, ``nwtco`` 4 028 × 10, ``Framingham`` 4 699 × 10, ``prostateSurvival`` 14 294 × 6,
    ``actg`` 1 151 × 14.

    Parameters
    ----------
    name
        The name of the table in SurvSet; :func:`names` lists them.

    Returns
    -------
    DataFrame
        ``pid``; ``event``, int64, 1 where the event was seen and 0 where not; ``time`` float64 (with ``time2``, the
        start of the spell, and that its end); then ``num_…`` float64 with NaN where missing, and ``fac_…`` text.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    ValueError
        When there is no such table.
    """
    there = names()
    if name not in there:
        near = difflib.get_close_matches(str(name), there, n=3, cutoff=0.4)
        raise ValueError(f"name must be a table of SurvSet, not {name!r}; {_like(near)}it has {len(there)}")
    content = checked_file(PACKAGE, *_FOLDER, f"{name}.pickle", sha256=SHA256.get(name))
    return _plain(read_pickle(content, f"SurvSet's {name}", FRAMES), name)


def names() -> list[str]:
    """The names of all tables, sorted.

    Raises
    ------
    MissingPart
        When the package is not installed.
    """
    return sorted(file.name.removesuffix(".pickle") for file in package_file(PACKAGE, *_FOLDER).glob("*.pickle"))


def _like(near: list[str]) -> str:
    return f"near it are {', '.join(near)}; " if near else ""


def _plain(frame: Any, name: str) -> pd.DataFrame:
    if not isinstance(frame, pd.DataFrame) or not {"pid", "event", "time"} <= set(frame.columns):
        raise InputError(f"SurvSet's {name} is no survival table")
    columns: dict[str, Any] = {}
    for column in map(str, frame.columns):
        if column == "event":
            columns[column] = frame[column].to_numpy(dtype=np.int64)
        elif column.startswith(("num_", "time")):
            columns[column] = frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
        elif column.startswith("fac_"):
            columns[column] = pd.Series([_word(value) for value in frame[column]], dtype=str)
        else:
            columns[column] = frame[column].to_numpy()
    return pd.DataFrame(columns)


def _word(value: Any) -> Any:
    return np.nan if pd.isna(value) else str(value)
