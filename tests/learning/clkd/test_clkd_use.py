"""``assay use clkd``: a cohort's file in, a model, a report and risks of new rows out."""

import json

import numpy as np
import pandas as pd
import pytest
from clkd_cohorts import cohort, sets
from typer.testing import CliRunner

from assay.errors import InputError
from assay.learning.clkd import CLKDSurvival
from assay.learning.clkd.cohort import read_coefficients, read_cohort
from assay.learning.clkd.use import app
from assay.parts import estimator_files

X, EVENT, TIME, STRATA = cohort(0, 90, 3, strata=True)
SITE = np.array(["north", "south"])[(X[:, 2] > 0).astype(int)]
FRAME = pd.DataFrame({"age": X[:, 0], "size": X[:, 1], "site": SITE, "days": TIME, "dead": EVENT.astype(int)})
FRAME["published"] = X[:, 0] + 0.5 * (SITE == "south")
RATIOS = {"age": 1.0, "site=south": 0.5}


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if code:
        assert isinstance(result.exception, InputError | SystemExit), result.exception
        return str(result.exception)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.fixture
def files(tmp_path):
    FRAME.to_csv(tmp_path / "cohort.csv", index=False)
    (tmp_path / "coefs.json").write_text(json.dumps(RATIOS))
    FRAME.drop(columns=["days", "dead", "published"]).head(7).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


COLUMNS = ("--time", "days", "--event", "dead")


def test_from_a_cohort_to_risks_of_new_rows(files):
    told = run(
        files / "cohort.csv", *COLUMNS, "--teacher", files / "coefs.json", "--drop", "published",
        "-o", files / "model.skops", "--report", files / "report.json",
        "--new", files / "new.csv", "--predictions", files / "risks.csv", "--at", 0.2, "--at", 0.5,
    )  # fmt: skip
    assert f"{EVENT.sum()} events; the teacher counts" in told
    assert "held-out loss of a case: study alone" in told
    report = json.loads((files / "report.json").read_text())
    encoded = pd.DataFrame({"site_south": (SITE == "south").astype(float), "age": X[:, 0], "size": X[:, 1]})
    model = CLKDSurvival(random_state=0).fit(encoded, (EVENT, TIME), teacher_risk=FRAME["published"])
    assert list(report["log_hazard_ratios"]) == list(encoded)
    np.testing.assert_allclose(list(report["log_hazard_ratios"].values()), model.coef_)
    assert report["eta"] == pytest.approx(model.eta_)
    assert report["rows"] == 90
    assert report["held_out"] is True
    assert sum(one["weight"] for one in report["eta_weights"]) == pytest.approx(1)
    risks = pd.read_csv(files / "risks.csv", index_col=0)
    np.testing.assert_allclose(risks["risk"], model.predict(encoded)[:7])
    curves = model.predict_survival_function(encoded[:7])
    np.testing.assert_allclose(risks["free_at_0.2"], [f(0.2) for f in curves])
    np.testing.assert_allclose(risks["free_at_0.5"], [f(0.5) for f in curves])

    run(files / "new.csv", "--model", files / "model.skops", "--predictions", files / "again.csv")
    np.testing.assert_allclose(pd.read_csv(files / "again.csv", index_col=0)["risk"], risks["risk"])
    assert sorted(p.name for p in files.iterdir()) == [
        "again.csv", "coefs.json", "cohort.csv", "model.skops", "new.csv", "report.json", "risks.csv"
    ]  # fmt: skip


def test_a_column_of_scores_is_no_feature(files):
    run(files / "cohort.csv", *COLUMNS, "--teacher", "published", "-o", files / "m.skops", "--eta", 2)
    model = estimator_files.load(files / "m.skops")
    assert "published" not in model.feature_names_in_
    assert model["clkd"].eta_ == 2
    run(files / "new.csv", "--model", files / "m.skops", "--predictions", files / "r.csv")


def test_without_a_teacher(files):
    assert "no teacher; alpha" in run(
        files / "cohort.csv", *COLUMNS, "--drop", "published", "-o", files / "m.skops", "--report", files / "r.json"
    )
    assert json.loads((files / "r.json").read_text())["teacher_loss"] is None


def test_matched_sets_and_strata(files):
    features, case, groups = sets(1, 30)
    table = pd.DataFrame(features, columns=list("abc")).assign(case=case, pair=[f"{g:03}" for g in groups])
    table["score"] = features[:, 0]
    table.to_csv(files / "sets.csv", index=False)
    told = run(
        files / "sets.csv", "--event", "case", "--matched-set", "pair", "--teacher", "score", "-o", files / "m.skops"
    )
    assert "30 matched sets" in told
    FRAME.assign(clinic=STRATA).to_csv(files / "clinics.csv", index=False)
    FRAME.assign(clinic=STRATA).head(5).to_csv(files / "new.csv", index=False)
    run(
        files / "clinics.csv", *COLUMNS, "--teacher", "published", "--strata", "clinic", "-o", files / "s.skops",
        "--new", files / "new.csv", "--predictions", files / "r.csv", "--at", 0.3,
    )  # fmt: skip
    assert pd.read_csv(files / "r.csv")["free_at_0.3"].between(0, 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--out is needed"),
        (("-o", "m.pkl"), "--out must end in .skops"),
        (("-o", "m.skops", "--new", "new.csv"), "go together"),
        (("-o", "m.skops", "--at", 1), "--at is for --predictions"),
        (("-o", "m.skops", "--eta", "much"), "--eta must be"),
        (("-o", "m.skops", "--eta", "-1"), "eta must be a number of at least 0"),
        (("-o", "m.skops", "--time", "when"), "when"),
        (("-o", "m.skops", "--teacher", "score"), "score"),
        (("-o", "m.skops", "--teacher", "none.json"), "is no file"),
        (("-o", "m.skops", "--teacher", "dead"), "two parts to play"),
        (("-o", "m.skops", "--event", "age"), "column 'age': age must be true or false"),
        (("-o", "m.skops", "--drop", "nothing"), "nothing"),
        (("--model", "m.skops"), "--model needs --predictions"),
        (("--model", "m.skops", "--predictions", "r.csv", "-o", "x.skops"), "fits nothing"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(files, monkeypatch, arguments, message):
    monkeypatch.chdir(files)
    columns = () if "--model" in arguments else [*COLUMNS]
    before = sorted(p.name for p in files.iterdir())
    assert message in run("cohort.csv", *columns, *arguments, code=1)
    assert sorted(p.name for p in files.iterdir()) == before


def test_tables_that_cannot_be_used(files):
    def refused(frame, message, **columns):
        frame.to_csv(files / "bad.csv", index=False)
        with pytest.raises(InputError, match=message):
            read_cohort(files / "bad.csv", **({"event": "dead", "time": "days", "teacher": "published"} | columns))

    hole = FRAME.copy()
    hole.loc[3, "age"] = np.nan
    refused(hole, "bad.csv: missing values in 'age', in 1 of 90 rows")
    hole = FRAME.copy()
    hole.loc[3, "published"] = np.nan
    refused(hole, "the columns 'published' have missing values")
    refused(FRAME.assign(days=-1.0), "column 'days': time must be positive")
    refused(FRAME.assign(published="high"), "column 'published'")
    refused(FRAME.assign(name=[f"p{i}" for i in range(90)]), "column 'name' holds 90 words, as an id does")
    refused(FRAME[["days", "dead", "published"]], "no column left for a feature")
    refused(FRAME, "no row has 'site' equal to 'west'; there are north, south", teacher={"site=west": 1.0})
    refused(FRAME, r"'site' holds words; give a log hazard ratio for each level \(site=north", teacher={"site": 1.0})
    refused(FRAME, "grade", teacher={"grade": 1.0})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "must hold an object"),
        ("{}", "must hold an object"),
        ('{"age": "old"}', "log hazard ratio of 'age' must be a finite number"),
        ('{"age": NaN}', "must be a finite number"),
        ('{"age": true}', "must be a finite number"),
        ("not json", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
    ],
)
def test_coefficients_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_coefficients(tmp_path / "c.json")


def test_new_rows_that_do_not_fit(files):
    run(files / "cohort.csv", *COLUMNS, "--teacher", "published", "-o", files / "m.skops")
    new = pd.read_csv(files / "new.csv")
    for bad, message in (
        (new.drop(columns="age"), "age"),
        (new.assign(age=np.nan), "missing values in 'age'"),
    ):
        bad.to_csv(files / "bad.csv", index=False)
        rest = ("--model", files / "m.skops", "--predictions", files / "r.csv")
        assert message in run(files / "bad.csv", *rest, code=1)
    late = ("--model", files / "m.skops", "--predictions", files / "r.csv", "--at", 1e6)
    assert "after the last time" in run(files / "new.csv", *late, code=1)
    assert not (files / "r.csv").exists()
    new.assign(site="west").to_csv(files / "bad.csv", index=False)
    told = run(files / "bad.csv", *rest, code=1)
    assert "bad.csv: the column 'site' holds 'west', which the fit has not seen (it saw 'north', 'south')" in told
    assert "those 7 rows" in told


def test_columns_are_named_as_in_the_file(files):
    FRAME.assign(ward=1).to_csv(files / "flat.csv", index=False)
    told = CliRunner().invoke(
        app, [str(a) for a in (files / "flat.csv", *COLUMNS, "--teacher", "published", "-o", files / "m.skops")]
    )
    assert "columns that do not vary were dropped: ward" in told.output
    FRAME.assign(age=np.inf).to_csv(files / "far.csv", index=False)
    assert "column 'age' has" in run(
        files / "far.csv", *COLUMNS, "--teacher", "published", "-o", files / "n.skops", code=1
    )


def test_the_time_of_matched_rows_is_no_feature(files):
    """Controls outlive their case, so a time would tell who the case is."""
    features, case, groups = sets(1, 30)
    table = pd.DataFrame(features, columns=list("abc")).assign(case=case, pair=groups, days=2.0 - case)
    table.to_csv(files / "sets.csv", index=False)
    run(files / "sets.csv", "--event", "case", "--time", "days", "--matched-set", "pair", "-o", files / "m.skops")
    assert list(estimator_files.load(files / "m.skops").feature_names_in_) == list("abc")
