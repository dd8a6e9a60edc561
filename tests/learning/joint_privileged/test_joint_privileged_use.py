import zipfile

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.errors import InputError
from assay.learning.joint_privileged.table import CoupledTable, task_of
from assay.learning.joint_privileged.use import app
from assay.parts.estimator_files import load, save


def frame(classes=False, n=200, seed=0):
    rng = np.random.default_rng(seed)
    w = rng.standard_normal((n, 2))
    out = pd.DataFrame({"a": w[:, 0] + rng.standard_normal(n), "b": rng.standard_normal(n)})
    out["word"] = np.where(w[:, 1] + rng.standard_normal(n) > 0, "up", "down")
    out["who"] = [f"p{i}" for i in range(n)]
    out["w1"], out["w2"] = w[:, 0], w[:, 1]
    full = w.sum(axis=1)
    y = np.where(full > 0, "yes", "no") if classes else full
    out["y"] = pd.Series(y).where(np.arange(n) < 60)
    out.loc[::9, "a"], out.loc[::13, "word"] = np.nan, None
    out.loc[100:109, ["w1", "w2"]] = np.nan
    return out, full


def run(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    if code == 0 and done.exception:
        raise done.exception
    return done


@pytest.mark.parametrize("classes", [False, True])
def test_fit_write_read_and_predict(tmp_path, classes):
    table, full = frame(classes)
    table.to_csv(tmp_path / "train.csv", index=False)
    new = table.drop(columns=["y", "w1", "w2", "who"])
    new.to_csv(tmp_path / "new.csv", index=False)
    done = run(
        tmp_path / "train.csv", "--target", "y", "--privileged", "w1,w2", "--out", tmp_path / "model.skops",
        "--predict", tmp_path / "new.csv", "--pred-out", tmp_path / "first.csv",
    )  # fmt: skip
    assert "60 labelled and 130 unlabelled rows" in done.output
    assert "left out, because they name rows: who" in done.output
    assert "10 unlabelled rows have no W" in done.output
    assert "on held-out labels: ignoring them" in done.output
    said = pd.read_csv(tmp_path / "first.csv", index_col="row")
    if classes:
        assert (said["y"] == np.where(full > 0, "yes", "no")).mean() > 0.65
        np.testing.assert_allclose(said["probability of no"] + said["probability of yes"], 1)
    else:
        assert np.mean((said["y"] - full) ** 2) < 0.9 * np.var(full)
    run("--model", tmp_path / "model.skops", "--predict", tmp_path / "new.csv", "--pred-out", tmp_path / "again.csv")
    assert (tmp_path / "first.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()
    with zipfile.ZipFile(tmp_path / "model.skops") as archive:
        assert not [name for name in archive.namelist() if name.endswith((".pkl", ".pickle"))]
    # Words and gaps that training never saw are no trouble.
    odd = new.assign(word="sideways", a=np.nan)
    assert len(load(tmp_path / "model.skops").predict(odd)) == 200


def test_estimators_with_an_inner_model_are_files_too(tmp_path):
    from sklearn.tree import DecisionTreeRegressor

    from assay.learning.joint_privileged import CoupledRegressor

    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((60, 2)), rng.standard_normal((60, 2))
    y = np.where(np.arange(60) < 30, X[:, 0] + W[:, 0], np.nan)
    tree = DecisionTreeRegressor(max_depth=2)
    model = CoupledRegressor(tree, lams=(0, 1.0), random_state=0).fit(X, y, W=W)  # g's trees see more columns
    save(model, tmp_path / "trees.skops")
    back = load(tmp_path / "trees.skops")
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert back.lam_weights_ == model.lam_weights_
    assert back.value_report() == model.value_report()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a table to fit a model to, or --model"),
        (["{train}", "--model", "{train}"], "give a table to fit a model to, or --model"),
        (["{train}"], "give --target, --privileged and --out"),
        (["{train}", "--target", "y", "--privileged", "w1", "--out", "m.joblib"], "must end in .skops"),
        (["{train}", "--target", "z", "--privileged", "w1", "--out", "m.skops"], "has no column 'z'"),
        (["{train}", "--target", "y", "--privileged", "w1,w3", "--out", "m.skops"], "has no column 'w3'"),
        (["{train}", "--target", "y", "--privileged", "y", "--out", "m.skops"], "not the target"),
        (["{train}", "--target", "y", "--privileged", ",", "--out", "m.skops"], "at least one column"),
        (["{train}", "--target", "y", "--privileged", "w1", "--out", "m.skops", "--lam", "x"], "--lam must be"),
        (["{train}", "--target", "y", "--privileged", "w1", "--out", "m.skops", "--task", "rank"], "task must be"),
        (
            ["{train}", "--target", "y", "--privileged", "w1", "--out", "m.skops", "--predict", "{train}"],
            "belong together",
        ),
        (
            ["{train}", "--target", "word", "--privileged", "w1", "--out", "m.skops", "--task", "regression"],
            "must be numbers",
        ),
        (
            ["{train}", "--target", "b", "--privileged", "w1", "--out", "m.skops", "--task", "classification"],
            "fractions",
        ),
        (["--model", "m.skops"], "--model needs --predict"),
        (["--model", "{train}", "--predict", "{train}", "--pred-out", "p.csv"], "train.csv"),
        (["nowhere.csv", "--target", "y", "--privileged", "w1", "--out", "m.skops"], "nowhere.csv"),
    ],
)
def test_bad_commands_say_what_is_wrong(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    frame()[0].to_csv("train.csv", index=False)
    done = run(*(word.replace("{train}", "train.csv") for word in words), code=1)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert not list(tmp_path.glob("m.*"))


def test_a_table_without_the_inputs_is_refused():
    table, _ = frame()
    table.loc[100:109, ["w1", "w2"]] = 0.0
    model = CoupledTable("y", ["w1", "w2"]).fit(table)
    with pytest.raises(InputError, match="lacks the inputs 'a'"):
        model.predict(table.drop(columns="a"))
    with pytest.raises(InputError, match="'b' has infinity"):
        model.predict(table.assign(b=np.inf))
    with pytest.raises(InputError, match="of another kind"):
        model.predict(table.assign(b="north"))
    with pytest.raises(InputError, match="no column is left"):
        CoupledTable("y", ["w1", "w2"]).fit(table[["y", "w1", "w2"]])


@pytest.mark.parametrize(
    ("values", "task"),
    [
        ([0.5, 1.5, None], "regression"),
        ([0, 1, None], "classification"),
        ([True, False, True], "classification"),
        (["a", "b", None], "classification"),
        (list(range(20)), "regression"),
    ],
)
def test_the_task_is_seen_from_the_target(values, task):
    assert task_of(pd.Series(values)) == task


def test_whole_numbers_as_classes_keep_minus_one():
    table, full = frame()
    table["y"] = pd.Series(np.where(full > 0, 1, -1)).where(np.arange(200) < 60)
    table.loc[100:109, ["w1", "w2"]] = 0.0
    model = CoupledTable("y", ["w1", "w2"]).fit(table)
    assert model.model_.classes_.tolist() == ["-1", "1"]
    assert model.model_.n_labelled_ == 60


def test_rows_that_cannot_be_read_are_told_before_a_model_is_fitted(tmp_path):
    frame()[0].to_csv(tmp_path / "train.csv", index=False)
    done = run(
        tmp_path / "train.csv", "--target", "y", "--privileged", "w1,w2", "--out", tmp_path / "m.skops",
        "--predict", tmp_path / "nowhere.csv", "--pred-out", tmp_path / "p.csv", code=1,
    )  # fmt: skip
    assert "nowhere.csv" in str(done.exception)
    assert not list(tmp_path.glob("m.*"))


@pytest.mark.parametrize("lam", ["aggregate", 1.0])
def test_too_few_targets_are_told_by_the_columns_name(lam):
    table, _ = frame()
    with pytest.raises(InputError, match="the target 'y' is known in 2 rows; at least 3"):
        CoupledTable("y", ["w1", "w2"], lam=lam).fit(table.assign(y=table["y"].where(table.index < 2)))
    with pytest.raises(InputError, match=r"W \(the privileged columns\) beside 'y' is known in 0 rows"):
        CoupledTable("y", ["w1", "w2"], lam=lam).fit(table.assign(w1=np.nan, w2=np.nan))
