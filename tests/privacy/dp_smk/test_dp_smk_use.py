import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.errors import InputError
from assay.privacy.dp_smk.instances import nearness
from assay.privacy.dp_smk.use import app, similarity

RNG = np.random.default_rng(0)
SITES = pd.DataFrame(
    {
        "name": [f"site {k}" for k in range(12)],
        "latitude": RNG.uniform(45, 50, 12),
        "longitude": RNG.uniform(5, 15, 12),
        "price": RNG.uniform(0.5, 2, 12).round(2),
    }
)
POINTS = pd.DataFrame({"latitude": RNG.uniform(45, 50, 431), "longitude": RNG.uniform(5, 15, 431)})


@pytest.fixture
def files(tmp_path):
    POINTS.to_csv(tmp_path / "points.csv", index=False)
    SITES.to_csv(tmp_path / "sites.csv", index=False)
    return tmp_path


def run(files, *more, out="picks.csv"):
    given = [files / "points.csv", "--sites", files / "sites.csv", "--cost", "price", "--budget", 5, "--epsilon", 1]
    command = [*given, "--out", files / out, "--reach", 200, *more]
    return CliRunner().invoke(app, [str(part) for part in command])


FAST = ("--algorithm", "greedy_max")


def test_files_in_files_out(files):
    result = run(files, *FAST)
    assert result.exit_code == 0, result.output
    picks = pd.read_csv(files / "picks.csv")
    assert list(picks.columns) == list(SITES.columns)
    assert picks["price"].sum() <= 5
    assert set(picks["name"]) <= set(SITES["name"])
    folder = files / "picks_report"
    assert sorted(p.name for p in folder.iterdir()) == ["bill.png", "ledger.csv", "map.png", "report.json", "report.md"]
    for name in ("bill.png", "map.png"):
        assert (folder / name).read_bytes()[:4] == b"\x89PNG"
    report = json.loads((folder / "report.json").read_text())
    assert report["chosen"] == picks["name"].tolist()
    assert report["private"] is True
    assert report["value_private"] is None
    ledger = pd.read_csv(folder / "ledger.csv")
    assert ledger["rho"].sum() == pytest.approx(report["rho"], rel=1e-9)
    text = (folder / "report.md").read_text()
    for words in ("ε = 1, δ = 1e-06", "## The bill", "## What it does not protect", picks["name"][0], "(map.png)"):
        assert words in text
    assert "seed" not in text


def test_nothing_written_tells_how_many_people_there_are_or_what_the_choice_is_worth(files):
    assert run(files, *FAST, "--seed", 3).exit_code == 0
    near = nearness(POINTS.to_numpy(), SITES[["latitude", "longitude"]].to_numpy(), 200.0)
    picks = pd.read_csv(files / "picks.csv")
    chosen = SITES["name"].isin(picks["name"]).to_numpy()
    value = near[:, chosen].max(axis=1).sum()
    written = "\n".join(p.read_text() for p in (files / "picks_report").iterdir() if p.suffix != ".png")
    written += (files / "picks.csv").read_text()
    assert "431" not in written
    for secret in (value, *near.sum(axis=0)):
        assert f"{secret:.4g}" not in written
    # The same picks and bill come out whoever is in the table, as long as the draws are: nothing else is written.
    before = {p.name: p.read_bytes() for p in (files / "picks_report").iterdir()}
    POINTS.iloc[:-1].to_csv(files / "points.csv", index=False)
    assert run(files, *FAST, "--seed", 3, "--overwrite").exit_code == 0
    assert {p.name: p.read_bytes() for p in (files / "picks_report").iterdir()} == before


def test_options(files):
    result = run(files, "--value", "--delta", 0, "--neighbours", "replace", "--algorithm", "greedy_max", "--seed", 1)
    assert result.exit_code == 0, result.output
    report = json.loads((files / "picks_report" / "report.json").read_text())
    assert report["delta"] == 0
    assert isinstance(report["value_private"], float)
    assert report["private"] is False
    text = (files / "picks_report" / "report.md").read_text()
    assert "**Not private: a seed was given.**" in text
    assert "another person in someone's place" in text
    assert "noise of ±" in text
    SITES.drop(columns="name").to_csv(files / "sites.csv", index=False)
    assert run(files, *FAST, "--plane", "--reach", 3, out="plane.csv").exit_code == 0
    assert pd.read_csv(files / "plane.csv")["site"].between(1, 12).all()
    assert run(files, out="auto.csv").exit_code == 0
    assert "best of many runs" in (files / "auto_report" / "report.md").read_text()


def test_who_has_no_place_is_near_no_site():
    people = np.array([[48.0, 9.0], [np.nan, 9.0], [123.0, 9.0], [np.inf, 0.0]])
    near = similarity(people, np.array([[48.0, 9.0], [48.5, 9.0]]), 100.0, plane=False)
    assert near[0, 0] == 1
    assert near[0, 1] == pytest.approx(1 - 0.5 * np.pi / 180 * 6371 / 100)
    assert (near[1:] == 0).all()
    flat = similarity(people, np.array([[48.0, 13.0]]), 8.0, plane=True)
    np.testing.assert_array_equal(flat[:, 0], [0.5, 0, 0, 0])
    assert similarity(people, np.array([[0.0, 0.0]]), 1e12, plane=False).max() <= 1


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (None, ("--cost", "prize"), "sites.csv has no column 'prize'; did you mean 'price'"),
        (None, ("--lat", "y"), "has no column 'y'"),
        (None, ("--budget", 0.1), "no item is affordable"),
        (None, ("--epsilon", 0), "epsilon must be"),
        (None, ("--reach", 0), "--reach must be"),
        (None, ("--algorithm", "best"), "algorithm must be one of"),
        (None, ("--name", "title"), "no column 'title'"),
        ({"price": -1.0}, (), "costs must be finite and greater than 0, and 'price' is -1 in row 1 of 12"),
        ({"price": 0.0}, (), "costs must be finite and greater than 0, and 'price' is 0 in row 1 of 12"),
        ({"price": np.nan}, (), "'price' must hold a number in every row"),
        ({"price": "dear"}, (), "'price' must hold a number"),
        ({"latitude": 95.0}, (), "not between -90 and 90"),
        ({"name": "same"}, ("--name", "name"), "names in 'name' must differ"),
    ],
)
def test_bad_tables_are_refused_by_name(files, change, more, message):
    if change:
        SITES.assign(**change).to_csv(files / "sites.csv", index=False)
    result = run(files, *more)
    assert isinstance(result.exception, InputError), result.output
    assert message in str(result.exception)
    assert not (files / "picks.csv").exists()
    assert not (files / "picks_report").exists()


@pytest.mark.parametrize("names", ["twice", None])
def test_sites_whose_names_do_not_tell_them_apart_are_numbered_and_it_says_so(files, names):
    SITES.assign(name=names if names else [None, *SITES["name"][1:]]).to_csv(files / "sites.csv", index=False)
    result = run(files, *FAST)
    assert result.exit_code == 0, result.output
    assert "sites are numbered by row; --name COLUMN" in result.output
    assert pd.read_csv(files / "picks.csv")["site"].between(1, 12).all()
    SITES.to_csv(files / "sites.csv", index=False)
    assert "numbered" not in run(files, *FAST, out="named.csv").output


@pytest.mark.parametrize("kind", ["points", "sites"])
def test_tables_without_rows_or_of_another_kind_are_refused(files, kind):
    path = files / f"{kind}.csv"
    columns = path.read_text().splitlines()[0]
    for text, message in (("", "it is empty"), (columns + "\n", "0 rows"), ("a,b\n1,2\n", "has no column")):
        path.write_text(text)
        result = run(files, *FAST)
        assert isinstance(result.exception, InputError)
        assert message in str(result.exception)
    assert not (files / "picks.csv").exists()


def test_parquet_and_people_without_a_place(files):
    SITES.to_parquet(files / "sites.parquet")
    POINTS.assign(latitude=POINTS["latitude"].mask(POINTS.index % 10 == 0)).to_parquet(files / "points.parquet")
    given = [files / "points.parquet", "--sites", files / "sites.parquet", "--cost", "price", "--budget", 5]
    more = ["--epsilon", 1, "--reach", 200, *FAST, "--out", files / "p.csv"]
    result = CliRunner().invoke(app, [str(part) for part in (*given, *more)])
    assert result.exit_code == 0, result.output
    assert pd.read_csv(files / "p.csv")["price"].sum() <= 5


def test_nothing_is_overwritten_and_nothing_spent_on_it(files):
    assert run(files, *FAST).exit_code == 0
    before = (files / "picks.csv").read_bytes()
    for out, message in (("picks.csv", "every run spends ε anew"), ("picks.txt", "must end in .csv")):
        again = run(files, *FAST, out=out)
        assert message in str(again.exception)
    assert (files / "picks.csv").read_bytes() == before
    POINTS.assign(latitude="north").to_csv(files / "points.csv", index=False)
    assert "'latitude' must hold numbers" in str(run(files, out="new.csv").exception)
