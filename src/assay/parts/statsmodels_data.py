"""Data sets of the package statsmodels: only its CSV files are read, its code never runs."""

from __future__ import annotations

import io

import pandas as pd

from assay.parts.packages import checked_file

PACKAGE = "statsmodels"

# The files that are known here; they are the same in versions 0.14 and 0.15.
SHA256 = {
    "nile": "88e97bea7249e5832a85e41aec6ce4b8f7b1b14aae930c8363da7f193286b598",
    "randhie": "9f6c87d05aef087a82cc4465310c8cd3f38327be6eafa43bd81fb98c4f3d088c",
    "sunspots": "f67889b1d9002cd5227f0e0ef54e35b419cdd85a31279adef6f73fb41e5c0a9b",
}


def load(name: str) -> pd.DataFrame:
    """A data set of statsmodels as a table, with the column names of its file in lower case.

    Origin: package ``statsmodels`` (BSD 3); the data are in the public domain.

    - ``sunspots``: 309 × 2, ``year`` (1700 to 2008) and ``sunactivity``, the yearly mean number of sunspots (National
      Geophysical Data Center).
    - ``randhie``: 20 190 × 10, a subset of the RAND Health Insurance Experiment (Cameron and Trivedi,
      Microeconometrics, 2005): ``mdvis`` visits to a physician in a year; ``lncoins`` log(coinsurance rate in % + 1);
      ``idp`` individual deductible plan; ``lpi`` log of the participation incentive; ``fmde`` log of the medical
      deductible; ``physlm`` physical limitation; ``disea`` number of chronic diseases; ``hlthg``, ``hlthf``,
      ``hlthp`` self-rated health good, fair, poor (else excellent).
    - ``nile``: 100 × 2, ``year`` (1871 to 1970) and ``volume``, the annual flow at Aswan in 10⁸ m³.

    Parameters
    ----------
    name
        ``"sunspots"``, ``"randhie"`` or ``"nile"``.

    Returns
    -------
    DataFrame
        Numbers, int64 or float64, none missing.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    ValueError
        When there is no such data set here.
    """
    if name not in SHA256:
        raise ValueError(f"name must be one of {', '.join(SHA256)}, not {name!r}")
    content = checked_file(PACKAGE, "datasets", name, f"{name}.csv", sha256=SHA256[name])
    table = pd.read_csv(io.BytesIO(content))
    return table.rename(columns=str.lower)
