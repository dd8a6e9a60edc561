import numpy as np
import pandas as pd
import pytest
from cure_rows import separate
from typer.testing import CliRunner

from assay.errors import InputError
from assay.learning.cure import CUREDiscovery
from assay.learning.cure.use import app


def run(*arguments, fails=None):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if fails is None:
        assert result.exit_code == 0, (result.output, result.exception)
    else:
        assert isinstance(result.exception, InputError), result.exception
        assert fails in str(result.exception)
    return result.output


@pytest.fixture
def files(tmp_path):
    X, true, y = separate(each=15)
    np.savez(tmp_path / "f.npz", X=X, y=y)
    words = np.where(y >= 0, np.array(["b", "a", ""])[y], "")
    frame = pd.DataFrame(X, columns=list("uvwxyz")).assign(kind=words, id=[f"{i:03}" for i in range(len(X))])
    frame.to_csv(tmp_path / "f.csv", index=False)
    return tmp_path, X, true, y


def test_arrays_in_a_table_out(files):
    folder, X, _true, y = files
    out = run(folder / "f.npz", "--out", folder / "r.csv", "--classes", 4, "--model", folder / "m")
    assert "4 classes (2 known, 2 new)" in out
    table = pd.read_csv(folder / "r.csv")
    assert list(table) == ["row", "class", "new", "given", "probability"]
    assert table["row"].tolist() == list(range(60))
    assert (table["class"][y >= 0] == y[y >= 0]).all()
    assert (table["given"] == (y >= 0)).all()
    assert (table["new"] == (table["class"] > 1)).all()
    assert table["probability"].between(0, 1).all()
    again = CUREDiscovery.load(folder / "m")
    assert (again.labels_ == table["class"]).all()
    assert again.predict(X).shape == (60,)


def test_a_table_with_names_of_rows(files):
    folder, *_ = files
    run(folder / "f.csv", "--labels", "kind", "--index", "id", "--out", folder / "r.csv", "--encoder", "residual")
    table = pd.read_csv(folder / "r.csv", dtype={"row": str})
    assert table["row"].tolist()[:2] == ["000", "001"]
    assert set(table["class"]) >= {"a", "b"}
    assert table.loc[table["new"], "class"].str.startswith("new-").all()


def test_whole_numbers_with_gaps_stay_whole(files):
    folder, X, _, y = files
    pd.DataFrame(X).add_prefix("c").assign(y=pd.Series(y).where(y >= 0)).to_csv(folder / "g.csv", index=False)
    run(folder / "g.csv", "--out", folder / "r.csv", "--classes", 4)
    assert set(pd.read_csv(folder / "r.csv")["class"]) == {0, 1, 2, 3}


def test_gaps_are_the_same_in_every_kind_of_file(files):
    folder, X, _, y = files
    frame = pd.DataFrame(X).add_prefix("c")
    words = np.array(["a", "b", ""])[y]
    frame.assign(y=words).to_parquet(folder / "blank.parquet")
    frame.assign(y=np.array(["a", "b", "-1"])[y]).to_csv(folder / "minus.csv", index=False)
    np.savez(folder / "words.npz", X=X, y=words)
    np.savez(folder / "floats.npz", X=X, y=y.astype(float))
    for name, known in (("blank.parquet", "ab"), ("minus.csv", "ab"), ("words.npz", "ab"), ("floats.npz", "01")):
        run(folder / name, "--out", folder / "r.csv", "--classes", 4, "--encoder", "residual")
        table = pd.read_csv(folder / "r.csv", dtype={"class": str})
        assert (table["given"] == (y >= 0)).all(), name
        assert set(table.loc[~table["new"], "class"]) == set(known), name


def test_bad_input_is_one_line(files):
    folder, *_ = files
    out = ["--out", folder / "r.csv"]
    run(folder / "f.npz", *out, "--classes", "few", fails="--classes must be auto or a whole number")
    run(folder / "f.npz", *out, "--encoder", "vit", fails="--encoder must be mlp or residual")
    run(folder / "f.npz", *out, "--labels", "kind", fails="has no array 'kind'; it has X, y")
    run(folder / "f.npz", *out, "--index", "id", fails="--index")
    run(folder / "f.csv", *out, "--labels", "knd", fails="knd")
    run(folder / "nothing.csv", *out, fails="nothing.csv")
    run(folder / "f.npz", "--out", folder, fails="is a folder")
    run(folder / "f.npz", *out, "--model", folder, fails="not empty")
    run(folder / "f.npz", *out, "--classes", 1, fails="n_classes must be at least 2")
    assert not (folder / "r.csv").exists()
