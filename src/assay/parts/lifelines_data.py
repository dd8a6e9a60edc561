"""Survival tables of the package lifelines: only its CSV files are read, its code never runs."""

from __future__ import annotations

import io

import pandas as pd

from assay.parts.packages import checked_file, package_file

PACKAGE = "lifelines"
_FOLDER = "datasets"

# The files that are known here, of version 0.30.3.
SHA256 = {
    "ACTG175": "56fba31fa0d7bfbff9667b7149fd96a97c352e72aa582871a62a935e812f0e07",
    "gbsg2": "695954dbed9eaa619f9854f6c945bdccf5b21b12ea3fb46bd28797b9e8284d49",
    "kidney_transplant": "5e276e73eb144cba9725b4353a09a81f88b80db6fdbfe4ac841ca4a2f54eb91c",
    "lung": "16ebd02c38bbb5708186d600cff80ad84d0764974619436f83ba4a605e77eb44",
    "rossi": "0214400170e07f3015a285edca2014cac0dae8aac125fcbaad642490e05f892c",
}


def load(name: str) -> pd.DataFrame:
    """A survival table with the columns of its file, numbers as int64 or float64 and words as text.

    Origin: package ``lifelines`` 0.30.3 (MIT). Among them: ``rossi`` 432 × 9, time ``week`` and event ``arrest``;
    ``gbsg2`` 686 × 10, ``time`` and ``cens`` (1 an event); ``lung`` 228 × 10, ``time`` and ``status`` (1 a death);
    ``kidney_transplant`` 863 × 6, ``time`` and ``death``; ``ACTG175`` 2 139 × 27, ``days`` and ``cens``.

    Parameters
    ----------
    name
        The name of its file without ``.csv``; :func:`names` lists them.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    ValueError
        When there is no such table.
    """
    if name not in (there := names()):
        raise ValueError(f"name must be one of {', '.join(there)}, not {name!r}")
    content = checked_file(PACKAGE, _FOLDER, f"{name}.csv", sha256=SHA256.get(name))
    separator = "," if b"," in content.partition(b"\n")[0] else " "
    table = pd.read_csv(io.BytesIO(content), sep=separator, skipinitialspace=True)
    return table.loc[:, [not str(column).startswith("Unnamed") for column in table]]  # the rows' names that R wrote


def names() -> list[str]:
    """The names of all tables, sorted.

    Raises
    ------
    MissingPart
        When the package is not installed.
    """
    return sorted(file.name.removesuffix(".csv") for file in package_file(PACKAGE, _FOLDER).glob("*.csv"))
