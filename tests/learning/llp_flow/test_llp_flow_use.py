import re

import numpy as np
import pandas as pd
import pytest
from llp_flow_bags import clouds
from typer.testing import CliRunner

from assay.errors import InputError
from assay.learning.llp_flow import LLPFlowClassifier
from assay.learning.llp_flow.use import app


@pytest.fixture
def files(tmp_path):
    """Rows with ids that look like numbers, shares and counts of their bags, and rows to classify."""
    X, bags, pi, y = clouds(n=120, classes=2)
    rows = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    new = rows[["d", "c", "b", "a"]].assign(more="x")
    rows.insert(0, "precinct", [f"00{b}" for b in bags])
    rows["name"] = "someone"
    shares = pd.DataFrame(pi, columns=["left", "right"])
    shares.insert(0, "precinct", [f"00{b}" for b in range(len(pi))])
    counts = shares.assign(left=(100 * pi[:, 0]).round(), right=100 - (100 * pi[:, 0]).round())
    for name, table in (("rows", rows), ("shares", shares), ("counts", counts), ("new", new)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path, y


def use(folder, *more, proportions="shares.csv", rows="rows.csv"):
    names = [str(folder / rows), "--bag", "precinct", "--proportions", str(folder / proportions), "--device", "cpu"]
    return CliRunner().invoke(
        app, [*names, "--out", str(folder / "model"), "--ignore", "name", *more], catch_exceptions=True
    )


def test_a_model_and_predictions_come_out(files):
    folder, y = files
    done = use(folder, "--predict", str(folder / "new.csv"), "--pred-out", str(folder / "sub" / "pred.csv"))
    assert done.exit_code == 0, done.output
    assert "120 rows in 6 bags, 2 classes: diversity" in done.output
    found = pd.read_csv(folder / "sub" / "pred.csv", index_col="row")
    assert found.columns.tolist() == ["class", "p_left", "p_right"]
    assert (found["class"] == np.array(["left", "right"])[y]).mean() > 0.8
    model = LLPFlowClassifier.load(folder / "model")
    new = pd.read_csv(folder / "new.csv")[["a", "b", "c", "d"]]
    np.testing.assert_allclose(model.predict_proba(new)[:, 0], found["p_left"], rtol=1e-6)
    twice = use(folder, "--out", str(folder / "b"), "--predict", str(folder / "new.csv"), "--pred-out", str(folder))
    assert "--pred-out" in str(twice.exception)
    assert "give another file" in str(twice.exception)
    again = use(folder, "--lam-anchor", "0")
    assert isinstance(again.exception, InputError)
    assert "not an empty folder" in str(again.exception)
    assert use(folder, "--overwrite", "--counts", "--lam-anchor", "0", proportions="counts.csv").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "change", "message"),
    [
        (["--predict", "x.csv"], {}, "--pred-out must be given together"),
        (["--ignore", "nam"], {}, "no column 'nam'; did you mean 'name'"),
        ([], {"rows": lambda t: t.drop(columns="precinct")}, "no column 'precinct'"),
        ([], {"rows": lambda t: t.assign(e="word")}, "1 column.* hold words or dates, the first is 'e'"),
        ([], {"rows": lambda t: t.assign(a=t["a"].where(t.index > 0))}, "missing or infinite values, the first is 'a'"),
        ([], {"rows": lambda t: t[["precinct", "name"]]}, "no columns to learn from"),
        ([], {"shares": lambda t: t[1:]}, "without a row in proportions, the first is '000'"),
        ([], {"shares": lambda t: t.assign(left=0.9)}, "proportions of bag '000' .* sum to 1"),
        (
            [],
            {"shares": lambda t: t.assign(precinct=t["precinct"].where(t.index > 0))},
            "'precinct' is empty in 1 rows",
        ),
        ([], {"shares": lambda t: t.rename(columns={"precinct": "ward"})}, "no column 'precinct'"),
        ([], {"shares": lambda t: t.assign(left=30, right=70)}, "give --counts"),
    ],
)
def test_files_that_cannot_be_used(files, arguments, change, message):
    folder, _ = files
    for name, of in change.items():
        table = pd.read_csv(folder / f"{name}.csv", dtype={"precinct": str})
        of(table).to_csv(folder / f"{name}.csv", index=False)
    done = use(folder, *arguments)
    assert isinstance(done.exception, InputError), done.output
    assert re.search(message, str(done.exception)), done.exception
    assert not (folder / "model").exists()
