"""The data sets of statsmodels: what is documented of them is true of them."""

import subprocess
import sys

import numpy as np
import pytest

from assay.errors import MissingPart
from assay.parts import statsmodels_data


def test_the_sunspots():
    table = statsmodels_data.load("sunspots")
    assert list(table.columns) == ["year", "sunactivity"]
    assert table["year"].tolist() == list(range(1700, 2009))
    assert table["sunactivity"].iloc[:3].tolist() == [5, 11, 16]
    assert table.loc[table["sunactivity"].idxmax(), "year"] == 1957  # the highest yearly mean on record


def test_the_health_insurance_experiment():
    table = statsmodels_data.load("randhie")
    assert table.shape == (20190, 10)
    assert list(table.columns[:4]) == ["mdvis", "lncoins", "idp", "lpi"]
    assert not table.isna().any().any()
    assert (table["mdvis"] >= 0).all()
    assert table["lncoins"].max() == pytest.approx(np.log(101), abs=1e-4)  # log(100 % + 1)
    assert (table[["hlthg", "hlthf", "hlthp"]].sum(axis=1) <= 1).all()


def test_the_nile():
    table = statsmodels_data.load("nile")
    assert table["year"].tolist() == list(range(1871, 1971))
    assert table["volume"].iloc[0] == 1120
    assert table["volume"].mean() == pytest.approx(919.35)  # as R's datasets::Nile


def test_the_package_is_not_imported():
    code = (
        "import sys; from assay.parts.statsmodels_data import load; load('nile'); print('statsmodels' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_name_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="sunspots, not 'moon'"):
        statsmodels_data.load("moon")


def test_another_file_is_refused(monkeypatch):
    monkeypatch.setitem(statsmodels_data.SHA256, "nile", "0" * 64)
    with pytest.raises(MissingPart, match=r"another datasets/nile/nile\.csv"):
        statsmodels_data.load("nile")


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPart) as raised:
        statsmodels_data.load("sunspots")
    assert raised.value.install == "python -m pip install statsmodels"
