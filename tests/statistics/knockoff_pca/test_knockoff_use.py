import numpy as np
import pandas as pd
import pytest
from knockoff_mixtures import mixture
from typer.testing import CliRunner

from assay.errors import InputError
from assay.statistics.knockoff_pca.table import read_table
from assay.statistics.knockoff_pca.use import FILES, app

X, SHIFTED, _ = mixture(40, 120, 30, 0.2, strength=40)
FRAME = pd.DataFrame(X, columns=[f"gene{j}" for j in range(30)], index=[f"cell{i}" for i in range(120)])


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy", "tsv", "csv.gz"])
def test_every_format_gives_the_same(tmp_path, suffix):
    path = tmp_path / f"in.{suffix}"
    if suffix == "parquet":
        FRAME.to_parquet(path)
    elif suffix == "npy":
        np.save(path, X)
    else:
        FRAME.to_csv(path, sep="\t" if suffix == "tsv" else ",")
    result = run(path, "--out", tmp_path / "a" / "b")
    assert result.exit_code == 0, result.output
    assert "One hidden mean shift was found, in 24 of 120 rows." in result.output
    out = tmp_path / "a" / "b"
    assert sorted(p.name for p in out.iterdir()) == sorted(FILES)
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]  # nothing is left beside it
    scores = pd.read_csv(out / "scores.csv", index_col=0)
    np.testing.assert_array_equal(scores["group"], SHIFTED)
    components = pd.read_csv(out / "components.csv", index_col=0)
    means = pd.read_csv(out / "means.csv", index_col=0)
    assert list(means.index) == ["clean mean", "shift 1"]
    np.testing.assert_allclose(
        scores[list(components.index)], (X - means.loc["clean mean"].to_numpy()) @ components.T.to_numpy(), atol=1e-9
    )
    if suffix != "npy":
        assert list(components.columns) == list(FRAME.columns)
        assert list(scores.index) == list(FRAME.index)
    report = pd.read_csv(out / "report.csv")
    assert report.columns.tolist()[:3] == ["round", "component", "eigenvalue"]
    assert report["moved"].sum() == 1
    text = (out / "report.md").read_text()
    for words in ("120 rows, 30 columns", "**shift**", "24 rows (20.0 %)", "< 0.0001", "## How to use this"):
        assert words in text
    assert (out / "spectrum.png").read_bytes()[:4] == b"\x89PNG"


def test_a_csv_without_names_and_one_with_numbers_as_names(tmp_path):
    FRAME.to_csv(tmp_path / "bare.csv", header=False, index=False)
    bare = read_table(tmp_path / "bare.csv")
    assert bare.numbers.shape == (120, 30)
    assert "read as a row" in bare.notes[0]
    pd.DataFrame(X).to_csv(tmp_path / "numbered.csv", index=False)
    assert read_table(tmp_path / "numbered.csv", header=True).numbers.shape == (120, 30)
    # Row names that a data frame wrote are no measurement.
    pd.DataFrame(X).to_csv(tmp_path / "indexed.csv")
    assert read_table(tmp_path / "indexed.csv").numbers.shape == (120, 30)


def test_no_shift_is_said_plainly(tmp_path):
    clean = np.random.default_rng(0).standard_normal((80, 20)) * [5, *[1] * 19]
    np.save(tmp_path / "clean.npy", clean)
    result = run(tmp_path / "clean.npy", "-o", tmp_path / "out")
    assert "No hidden mean shift was found: this is plain PCA." in result.output
    assert "None; nothing was removed." in (tmp_path / "out" / "report.md").read_text()


def test_options(tmp_path):
    frame = FRAME.copy()
    frame.insert(3, "id", frame.index)
    frame.to_csv(tmp_path / "in.csv", index=False)
    out = tmp_path / "out"
    result = run(
        tmp_path / "in.csv", "-o", out, "--index", "id", "--components", 3, "--removal", "drop", "--standardise"
    )
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(out / "components.csv")) == 3
    text = (out / "report.md").read_text()
    assert "the components that moved were deleted" in text
    assert "divided by their standard deviation" in text
    assert pd.read_csv(out / "scores.csv")["id"].tolist() == FRAME.index.tolist()


def test_the_report_says_what_could_be_missed(tmp_path):
    for n, few in ((37, True), (120, False), (800, False)):
        rng = np.random.default_rng(0)
        np.save(tmp_path / "in.npy", rng.standard_normal((n, 20)) * [5, *[1] * 19])
        assert run(tmp_path / "in.npy", "-o", tmp_path / "out").exit_code == 0
        text = (tmp_path / "out" / "report.md").read_text()
        missed = text.split("## What could be missed")[1].split("\n## ")[0]
        assert f"fewer than {8 if n == 800 else 5} rows" in missed
        assert "strong as a covariance component" in missed
        assert ("fewer than 38" in missed) == few
        assert "--standardise" not in text


def test_a_column_with_nearly_all_the_variance_is_noted(tmp_path):
    frame = FRAME.copy()
    frame["weight in mg"] = 1e6 * np.random.default_rng(0).standard_normal(120)
    frame.to_csv(tmp_path / "in.csv")
    run(tmp_path / "in.csv", "-o", tmp_path / "a")
    run(tmp_path / "in.csv", "-o", tmp_path / "b", "--standardise")
    words = "the column 'weight in mg' holds 100.0 % of the total variance"
    assert words in (tmp_path / "a" / "report.md").read_text()
    assert words not in (tmp_path / "b" / "report.md").read_text()


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"x,who,y\n1,ann,2\n3,bob,4\n",
            r"of 3 columns are not numbers: 'who'; drop the column first \(assay use has --index\)",
        ),
        ("a.csv", b"x,p,q\n1,a,b\n2,c,d\n", r"2 of 3 columns are not numbers: 'p', 'q'; drop them first"),
        ("a.csv", b"x,y\n1,\n2,3\n", r"1 columns have missing or infinite values, in 1 of 2 rows: 'y'"),
        ("a.csv", b"x,y\n1,2\n3,4,5,6\n", "cannot be read as a table: its first line has 2 fields, line 3 has 4"),
        ("a.csv", b"x,y\n9,1,2\n8,3,4\n", "its first line has 2 fields, line 2 has 3; give every column a name"),
        ("a.csv", b",x,y\n9,1,2,5\n8,3,4,5\n", "its first line has 3 fields, line 2 has 4"),
        ("a.csv", b"x,y\n" + b"1,2\n" * 99 + b"1,2,3\n", "cannot be read as a table"),
        ("a.csv", b"x,y\n" + b"1,2,\n" * 99 + b"1,2,3\n", "cannot be read as a table"),
        ("a.csv", b"", "cannot be read as a table"),
        ("a.csv", b"x,y\n", "0 rows"),
        ("a.csv", b"\xff\xfe\x00\x01", "cannot be read as a table"),
        ("a.npy", b"no array", "cannot be read as a NumPy array"),
        ("a.parquet", b"no parquet", "cannot be read as Parquet"),
        ("a.xlsx", b"", "must end in"),
    ],
)
def test_bad_files(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message):
        read_table(written(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", b"x,y\n1.5,2,\n-3.5,4,\n", ["x", "y"]),
        ("a.csv", b"x,y,\n1.5,2,\n-3.5,4,\n", ["x", "y"]),
        ("a.csv", b"1.5,2,\n-3.5,4,\n", ["column0", "column1"]),
        ("a.csv", b",x,y\nann,1.5,2,\nbob,-3.5,4,\n", ["x", "y"]),
        ("a.csv", b"x;y\n1,5;2\n-3,5;4\n", ["x", "y"]),
        ("a.csv", b"x;y;\n1,5;2;\n-3,5;4;\n", ["x", "y"]),
        ("a.csv", b"1,5;2\n-3,5;4\n", ["column0", "column1"]),
        ("a.csv", b"x;y\n1.5;2\n-3.5;4\n", ["x", "y"]),
        ("a.csv", b"\xef\xbb\xbfx\ty\n1.5\t2\n-3.5\t4\n", ["x", "y"]),
        ("a.csv", b'"x, the first",y\n1.5,2\n-3.5,4\n', ["x, the first", "y"]),
        ("a.tsv", b"x\ty\n1,5\t2\n-3,5\t4\n", ["x", "y"]),
        ("a.txt", b"x,y\n1.5,2\n-3.5,4\n", ["x", "y"]),
    ],
)
def test_separators_are_recognised(tmp_path, name, content, columns):
    table = read_table(written(tmp_path, name, content))
    assert list(table.numbers.columns) == columns
    np.testing.assert_array_equal(table.numbers, [[1.5, 2], [-3.5, 4]])
    unusual = b";" in content or name == "a.txt" or (b"\t" in content) == (name == "a.csv") or b"1,5\t" in content
    assert any("separated by" in note for note in table.notes) == unusual


def test_pickles_and_other_shapes_are_refused(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{1: 2}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read"):
        read_table(tmp_path / "o.npy")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    with pytest.raises(InputError, match="two dimensions"):
        read_table(tmp_path / "cube.npy")
    with pytest.raises(InputError, match="no column 'nix'"):
        read_table(written(tmp_path, "a.csv", b"x,y\n1,2\n"), index="nix")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nowhere.csv")


def test_failures_leave_nothing_behind(tmp_path):
    np.save(tmp_path / "constant.npy", np.ones((20, 4)))
    result = run(tmp_path / "constant.npy", "-o", tmp_path / "out")
    assert isinstance(result.exception, ValueError)
    assert "no variance" in str(result.exception)
    assert not (tmp_path / "out").exists()
    result = run(tmp_path / "constant.npy", "-o", tmp_path / "constant.npy")
    assert isinstance(result.exception, InputError)
    result = run(tmp_path / "constant.npy", "-o", tmp_path / "out", "--standardise")
    assert "cannot be standardised" in str(result.exception)
