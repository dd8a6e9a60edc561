"""``assay use mer-dg``: a model from a file, and classes from a model."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.errors import InputError
from assay.learning.mer_dg import MultimodalDGClassifier
from assay.learning.mer_dg.use import app


def data(path, **changes):
    rng = np.random.default_rng(0)
    y, person = np.arange(60) % 2, (np.arange(60) // 2) % 3
    arrays = {
        "acc": rng.normal(size=(60, 3, 16)) + y[:, None, None],
        "gyr": rng.normal(size=(60, 4)),
        "y": np.array(["rest", "walk"])[y],
        "subject": person,
    }
    np.savez(path, **(arrays | changes))
    return path


def run(*arguments, refused=None):
    done = CliRunner().invoke(app, list(map(str, arguments)))
    if refused is not None:
        assert isinstance(done.exception, InputError), done.output
        assert refused in str(done.exception)
    elif done.exception:
        raise done.exception
    return done.output


NAMES = ("--modalities", "acc,gyr", "--label", "y", "--domain", "subject", "--device", "cpu")


def test_fit_and_classify(tmp_path):
    path = data(tmp_path / "data.npz")
    told = run(path, *NAMES, "--epochs", 2, "--out", tmp_path / "model")
    assert "60 rows of 2 classes and 3 domains; λ = " in told
    assert "Accuracy on source data left out, by λ: 0: " in told
    model = MultimodalDGClassifier.load(tmp_path / "model")
    assert model.encoders == {"acc": "cnn1d", "gyr": "mlp"}
    told = run(path, "--model", tmp_path / "model", "--out", tmp_path / "classes.csv")
    assert "60 rows classified" in told
    frame = pd.read_csv(tmp_path / "classes.csv", index_col="row")
    assert list(frame.columns) == ["class", "p(rest)", "p(walk)"]
    held = dict(np.load(path))
    X = {name: held[name] for name in ("acc", "gyr")}
    np.testing.assert_array_equal(frame["class"], model.predict(X))
    np.testing.assert_allclose(frame[["p(rest)", "p(walk)"]], model.predict_proba(X), atol=1e-9)
    told = run(path, "--model", tmp_path / "model", "--modalities", "acc", "--out", tmp_path / "acc.csv")
    assert "'gyr' is absent in every row" in told


def test_a_number_for_lam_and_one_encoder(tmp_path):
    path = data(tmp_path / "data.npz", subject=np.zeros(60, dtype=int))
    told = run(path, *NAMES, "--epochs", 1, "--lam", "0.1", "--encoder", "mlp", "--out", tmp_path / "model")
    assert "λ = 0.1. Written" in told
    assert "by λ" not in told
    assert MultimodalDGClassifier.load(tmp_path / "model").encoders == "mlp"
    told = run(path, *NAMES, "--epochs", 1, "--out", tmp_path / "auto")
    assert "Note: lam='auto' has no two source domains" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lam", "much"), "--lam must be auto or a number"),
        (("--lam", "-1"), "lam must be a finite number of at least 0"),
        (("--encoder", "rnn"), "--encoder must be"),
        (("--modalities", "acc,video"), "no array 'video'; it has acc, gyr, subject, y"),
        (("--modalities", "acc,acc"), "named twice"),
        (("--modalities", "acc,y"), "'y' is a modality and the labels"),
        (("--domain", "room"), "no array 'room'"),
        (("--encoder", "cnn1d"), "'gyr' have shape"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path, arguments, message):
    path = data(tmp_path / "data.npz")
    run(path, *NAMES, "--epochs", 1, *arguments, "--out", tmp_path / "model", refused=message)
    assert not (tmp_path / "model").exists()


def test_bad_files(tmp_path):
    path = data(tmp_path / "data.npz")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("a")
    run(path, *NAMES, "--out", tmp_path / "full", refused="not empty")
    (tmp_path / "text.npz").write_text("a,b")
    run(tmp_path / "text.npz", *NAMES, "--out", tmp_path / "model", refused="text.npz")
    (tmp_path / "text.csv").write_text("a,b")
    run(tmp_path / "text.csv", *NAMES, "--out", tmp_path / "model", refused="text.csv is no .npz file: write one with")
    run(path, "--model", tmp_path / "none", "--out", tmp_path / "c.csv", refused="no folder")
    run(path, *NAMES, "--epochs", 1, "--lam", "0", "--out", tmp_path / "model")
    np.savez(tmp_path / "other.npz", video=np.zeros((3, 2)))
    other = (tmp_path / "other.npz", "--model", tmp_path / "model", "--out", tmp_path / "c.csv")
    run(*other, refused="none of the model's")
