"""``assay use lbw-cbo``: files that a person and a program can read, and one plain line where something is wrong."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.errors import InputError
from assay.statistics.lbw_cbo.use import app
from assay.statistics.lbw_cbo.user_target import named_function, outline

TARGET = '''"""A target with two peaks."""
import numpy as np

DIM = 2
INIT_SPREAD = 2.0

def log_density(x):
    return np.logaddexp(-np.sum((x - 2) ** 2, axis=1), -2 - np.sum((x + 2) ** 2, axis=1))

def wide(x):
    return -np.sum(x**2, axis=1)

def fails(x):
    return 1 / 0
'''
QUICK = ["--particles", "12", "--iterations", "40", "--points", "32"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    (tmp_path / "peaks_of_mine.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.parametrize("target", ["peaks_of_mine:log_density", "peaks_of_mine.py:log_density"])
def test_a_target_becomes_a_gaussian_with_a_report(home, target):
    result = run("--target", target, "--dim", 2, "--names", "size, speed", "--out", home / "new" / "g.npz", *QUICK)
    assert result.exit_code == 0, result.output
    assert "ELBO" in result.output
    out = home / "new"
    endings = {".npz", ".md", ".csv", ".json", "-trace.csv", "-trace.png", "-marginals.png"}
    assert {p.name.removeprefix("g") for p in out.iterdir()} == endings
    with np.load(out / "g.npz") as held:
        mean, root, cov = held["mean"], held["root"], held["cov"]
    assert np.abs(mean - 2).max() < 0.3
    np.testing.assert_allclose(root @ root, cov, atol=1e-12)
    told = json.loads((out / "g.json").read_text())
    assert told["parameters"] == ["size", "speed"]
    np.testing.assert_allclose(told["mean"], mean)
    assert told["elbo"] == -told["objective_value"]
    table = pd.read_csv(out / "g.csv", index_col="parameter")
    np.testing.assert_allclose(table["sd"], np.sqrt(np.diag(cov)))
    assert list(table.columns) == ["mean", "sd", "low", "high", "cor size", "cor speed"]
    trace = pd.read_csv(out / "g-trace.csv")
    assert (np.diff(trace["best"]) <= 0).all()
    text = (out / "g.md").read_text()
    for words in ("| speed |", "g-trace.png", "g-marginals.png", "lower bound on the log evidence", "rows of the log"):
        assert words in text
    for picture in ("g-trace.png", "g-marginals.png"):
        assert (out / picture).read_bytes()[:4] == b"\x89PNG"


def test_samples_become_a_gaussian(home):
    X = np.random.default_rng(0).multivariate_normal([5, -1, 0], np.diag([1.0, 4, 1]), 300)
    pd.DataFrame(X, columns=["a", "b", "c"]).to_csv("table.csv", index=False)
    result = run("--samples", "table.csv", "--out", "g.npz", "--particles", "20", "--iterations", "80")
    assert result.exit_code == 0, result.output
    table = pd.read_csv("g.csv", index_col="parameter")
    assert list(table.index) == ["a", "b", "c"]
    np.testing.assert_allclose(table["mean"], [5, -1, 0], atol=0.5)
    assert json.loads((home / "g.json").read_text())["elbo"] is None
    text = (home / "g.md").read_text()
    assert "nearest to the samples" in text
    assert "ELBO" not in text
    assert "rows of the log density" not in text


def test_a_bar_in_a_name_breaks_no_table(home):
    run("--target", "peaks_of_mine:wide", "--dim", 2, "--names", "a|b,c", "--out", "g.npz", *QUICK)
    text = (home / "g.md").read_text()
    assert r"| a\|b |" in text
    assert "a|b" not in text
    assert json.loads((home / "g.json").read_text())["parameters"] == ["a|b", "c"]


@pytest.mark.parametrize("dim", [1, 6])
def test_any_dimension_has_its_files(home, dim):
    run("--target", "peaks_of_mine:wide", "--dim", dim, "--out", "g.npz", *QUICK)
    assert (home / "g-marginals.png").exists() == (dim == 1)
    assert ("g-marginals.png" in (home / "g.md").read_text()) == (dim == 1)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--out", "g.npz"], "give --target or --samples"),
        (["--target", "a:b", "--samples", "x.csv", "--out", "g.npz"], "and not both"),
        (["--target", "peaks_of_mine:log_density", "--out", "g.npz"], "--dim must be given"),
        (["--target", "peaks_of_mine:log_density", "--dim", "2", "--out", "g.txt"], "ends in .npz"),
        (["--target", "peaks_of_mine", "--dim", "2", "--out", "g.npz"], "must read module:function"),
        (["--target", "peaks_of_mine:nothing", "--dim", "2", "--out", "g.npz"], "has no function 'nothing'"),
        (["--target", "not_there_at_all:f", "--dim", "2", "--out", "g.npz"], "cannot be imported"),
        (["--target", "not_there.py:f", "--dim", "2", "--out", "g.npz"], "there is no file"),
        (
            ["--target", "peaks_of_mine:log_density", "--dim", "2", "--names", "a", "--out", "g.npz"],
            "2 different names",
        ),
        (
            ["--target", "peaks_of_mine:log_density", "--dim", "2", "--objective", "x", "--out", "g.npz"],
            "objective must",
        ),
        (["--target", "peaks_of_mine:fails", "--dim", "2", "--out", "g.npz"], "division by zero (peaks_of_mine.py"),
        (["--samples", "words.csv", "--out", "g.npz"], "the column 'w' does not"),
        (["--samples", "gaps.csv", "--out", "g.npz"], "'a' has missing"),
        (["--samples", "gaps.csv", "--objective", "renyi:0.5", "--out", "g.npz"], "approximated by mmd"),
    ],
)
def test_what_cannot_be_used_is_one_line(home, arguments, what):
    (home / "words.csv").write_text("a,w\n1,x\n2,y\n")
    (home / "gaps.csv").write_text("a,b\n1,2\n,3\n4,5\n")
    result = run(*arguments)
    assert isinstance(result.exception, InputError)
    assert what in str(result.exception)
    assert not (home / "g.npz").exists()


def test_a_target_that_fails_to_run_is_named(home):
    (home / "broken.py").write_text("import nothing_like_this\n")
    with pytest.raises(InputError, match=r"broken\.py cannot be run: ModuleNotFoundError"):
        named_function("broken:f", home)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("def log_density(x): return x", "must set DIM"),
        ("DIM = 2", "defines no log_density"),
        ("DIM = two()\ndef log_density(x): return x", "DIM must be a plain number"),
        ("DIM = 0\ndef log_density(x): return x", "it has 0"),
        ("DIM = 2\nINIT_ROOT = -1\ndef log_density(x): return x", "INIT_ROOT must be a positive number"),
        ("DIM = = 2", "cannot be read as Python"),
    ],
)
def test_a_file_that_is_no_target(home, text, what):
    (home / "t.py").write_text(text)
    with pytest.raises(InputError, match=what):
        outline(home / "t.py")


def test_a_targets_file_is_read_without_running_it(home):
    (home / "t.py").write_text(TARGET + "\nraise SystemExit\n\ndef gradient(x):\n    return x\n")
    told = outline(home / "t.py")
    assert (told.dim, told.spread, told.root, told.has_gradient) == (2, 2.0, 1.0, True)
    with pytest.raises(InputError, match="must be a Python file"):
        outline(home / "t.csv")
