import gzip
import io
import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import pandas as frames_of
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from assay.errors import InputError
from assay.parts.frames import columns_named, preprocessor, read_arrays, read_frame


def written(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "id,x,w\n007,1.5,a\n010,,b\n"),
        ("t.csv", "\ufeffid,x,w\r\n007,1.5,a\r\n010,,b\r\n"),
        ("t.csv", "id;x;w\n007;1,5;a\n010;;b\n"),
        ("t.csv", "id\tx\tw\n007\t1.5\ta\n010\t\tb\n"),
        ("t.tsv", "id\tx\tw\n007\t1.5\ta\n010\t\tb\n"),
        ("t.txt", "id\tx\tw\n007\t1,5\ta\n010\t\tb\n"),
        ("t.csv.gz", gzip.compress(b"id,x,w\n007,1.5,a\n010,,b\n", mtime=0)),
        ("t.jsonl", '{"id": "007", "x": 1.5, "w": "a"}\n\n{"id": "010", "w": "b"}\n'),
        (
            "t.jsonl.gz",
            gzip.compress(b'{"id": "007", "x": 1.5, "w": "a"}\n{"id": "010", "x": null, "w": "b"}', mtime=0),
        ),
        ("T.CSV", "id,x,w\n007,1.5,a\n010,,b"),
    ],
)
def test_the_same_table_from_every_kind_of_file(tmp_path, name, content):
    table = read_frame(written(tmp_path, name, content), text=("id", "not there"))
    assert list(table.columns) == ["id", "x", "w"]
    assert table["id"].tolist() == ["007", "010"]
    assert table["x"].dtype == np.float64
    assert table["x"][0] == 1.5
    assert np.isnan(table["x"][1])
    assert table["w"].tolist() == ["a", "b"]


def test_parquet(tmp_path):
    table = pd.DataFrame({"id": [7, 10], "x": [1, 2], "w": ["a", None]})
    table.to_parquet(tmp_path / "t.parquet")
    read = read_frame(tmp_path / "t.parquet", text=["id"])
    assert read["id"].tolist() == ["7", "10"]
    assert read["x"].dtype == np.int64
    assert read["w"].isna().tolist() == [False, True]
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_frame(written(tmp_path, "no.parquet", b"PAR1 is what it is not"))


def test_text_stays_text_and_other_columns_are_as_found(tmp_path):
    path = written(tmp_path, "t.csv", 'id,n,x,w\n1,NA,NA,"a, b"\n,none,2,"say ""x"""\n1e3,,3,c\n')
    table = read_frame(path, text=("id", "n"))
    assert table["id"].tolist()[::2] == ["1", "1e3"]
    assert table["id"].isna().tolist() == [False, True, False]
    assert table["n"].tolist()[:2] == ["NA", "none"]
    assert np.isnan(table["x"][0])
    assert table["w"].tolist() == ["a, b", 'say "x"', "c"]
    assert read_frame(path)["id"].tolist()[::2] == [1.0, 1000.0]


def test_numbers_of_json_lines_are_whole_and_exact(tmp_path):
    rows = [{"id": 7, "n": 2**53 + 1, "x": 0.1 + 0.2}, {"n": 1, "x": 1e300}]
    table = read_frame(written(tmp_path, "t.jsonl", "\n".join(map(json.dumps, rows))), text=["id"])
    assert table["id"][0] == "7"  # and not 7.0, because another row has none
    assert table["n"].tolist() == [2**53 + 1, 1]
    assert table["x"].tolist() == [0.1 + 0.2, 1e300]


def test_sentences_are_no_columns(tmp_path):
    path = written(tmp_path, "t.csv", "query\nhello; there\nhow; are\n")
    assert read_frame(path)["query"].tolist() == ["hello; there", "how; are"]


def test_row_names_are_the_index(tmp_path):
    table = read_frame(written(tmp_path, "t.csv", ",x,y\na,1,2\nb,3,4\n"))
    assert list(table.index) == ["a", "b"]
    assert list(table.columns) == ["x", "y"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", "", "must end in .csv, .tsv, .parquet or .jsonl"),
        ("t", "", "must end in"),
        ("t.csv", "", "cannot be read as a table"),
        ("t.csv", "x,y\n", "0 rows"),
        ("t.csv", "x,y\n1,2\n1,2,3\n", "first line has 2 fields, line 3 has 3"),
        ("t.csv", "x,x\n1,2\n", "column names stand there twice: 'x'"),
        ("t.csv", "a,b,a,b\n1,2,3,4\n", "column names stand there twice: 'a', 'b'"),
        ("t.csv", b"\xff\xfe\x00\x01", "cannot be read as a table"),
        ("t.csv.gz", b"x,y\n1,2\n", "cannot be read as a table"),
        ("t.csv.gz", gzip.compress(b"x,y\n1,2\n" * 1000, mtime=0)[:-9], "cannot be read as a table"),
        ("t.jsonl", '{"a": 1}\n{"a": ', "t.jsonl, line 2 cannot be read as JSON"),
        ("t.jsonl", "[1, 2]", "line 1 must be a JSON object, and is a list"),
        ("t.jsonl", "[" * 100_000, "line 1 cannot be read as JSON"),
        ("t.jsonl", b'{"a": "\xff"}', "cannot be read as JSON lines"),
        ("t.jsonl", "", "0 rows"),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as raised:
        read_frame(written(tmp_path, name, content))
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*nowhere\.csv"):
        read_frame(tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="there is no file"):
        read_arrays(tmp_path / "nowhere.npz")


def test_missing_columns_are_named_with_those_that_are_like_them():
    table = pd.DataFrame(columns=["Time", "event", "age"])
    columns_named(table, "t.csv", "Time", "age")
    with pytest.raises(InputError, match=r"t\.csv has no column 'time'; did you mean 'Time'\?"):
        columns_named(table, "/some/where/t.csv", "age", "time")
    with pytest.raises(InputError, match=r"t\.csv has no column 'zzz'; it has 'Time', 'event', 'age'"):
        columns_named(table, "t.csv", "zzz")


def test_arrays_come_back_by_name(tmp_path):
    given_arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(["x", "yy"]), "c": np.array(True)}
    np.savez(tmp_path / "x.npz", **given_arrays)
    np.savez_compressed(tmp_path / "y.npz", **given_arrays)
    for name in ("x.npz", "y.npz"):
        read = read_arrays(tmp_path / name)
        assert list(read) == ["a", "b", "c"]
        for key, array in given_arrays.items():
            np.testing.assert_array_equal(read[key], array)
            assert read[key].dtype == array.dtype


def npz(tmp_path, **files):
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("_npy", ".npy"), content)
    return tmp_path / "x.npz"


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def test_arrays_that_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"array a is of Python objects, which are not read .* \.astype\(str\)"):
        read_arrays(npz(tmp_path, a_npy=npy(np.array([1, None], dtype=object), allow_pickle=True)))
    with pytest.raises(InputError, match=r"x\.npz is damaged, or no archive"):
        read_arrays(written(tmp_path, "x.npz", b"no archive"))
    with pytest.raises(InputError, match=r"it holds schema\.json"):
        read_arrays(npz(tmp_path, **{"schema.json": b"{}"}))
    with pytest.raises(InputError, match="holds no arrays"):
        read_arrays(npz(tmp_path))
    with pytest.raises(InputError, match="array a: it is damaged"):
        read_arrays(npz(tmp_path, a_npy=b"no array"))
    whole = npy(np.arange(1000.0))
    with pytest.raises(InputError, match="array a: it is damaged"):
        read_arrays(npz(tmp_path, a_npy=whole[:-8]))
    huge = whole.replace(b"(1000,), }" + b" " * 9, b"(1000000000000,), }")
    assert huge != whole
    with pytest.raises(InputError, match="its header promises more than is there"):  # and no terabytes are reserved
        read_arrays(npz(tmp_path, a_npy=huge))
    with pytest.raises(InputError, match=r"0\.0156 GiB unpacked; up to 0\.000977 GiB are read"):
        read_arrays(npz(tmp_path, a_npy=npy(np.zeros(2**21))), most_bytes=2**20)
    damaged = bytearray(npz(tmp_path, a_npy=whole).read_bytes())
    damaged[200] ^= 255
    with pytest.raises(InputError, match="damaged"):
        read_arrays(written(tmp_path, "x.npz", bytes(damaged)))


MIXED = pd.DataFrame(
    {
        "n": [1, 2, 3, 4] * 10,
        "x": [0.5, np.nan, 1.5, np.nan] * 10,
        "b": [True, False, True, True] * 10,
        "w": ["a", "b", None, "a"] * 10,
        "c": pd.Categorical(["u", "v", "u", None] * 10),
        "empty": np.full(40, np.nan),
        "k": pd.array([1, None, 3, 4] * 10, dtype="Int64"),
    }
)


def test_a_mixed_table_becomes_numbers():
    made = preprocessor(MIXED).fit(MIXED)
    table = pd.DataFrame(made.transform(MIXED), columns=made.get_feature_names_out())
    assert np.isfinite(table.to_numpy(dtype=float)).all()
    assert table["x"].tolist()[:2] == [0.5, 1.0]  # the median of 0.5 and 1.5
    assert table["missingindicator_x"].tolist()[:4] == [0, 1, 0, 1]
    assert table[["w_a", "w_b", "w_missing"]].to_numpy()[:3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert {"c_u", "c_v", "c_missing", "k", "missingindicator_k"} <= set(table)


def test_words_that_are_rare_or_new_share_a_column():
    table = pd.DataFrame({"w": ["a"] * 30 + ["b"] * 30 + ["c", "d"] * 3})
    made = preprocessor(table).fit(table)
    new = pd.DataFrame({"w": ["a", "c", "never seen", None]})
    assert list(made.get_feature_names_out()) == ["w_a", "w_b", "w_infrequent_sklearn"]
    assert made.transform(new).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_what_is_neither_numbers_nor_words_is_refused():
    with pytest.raises(InputError, match="'when', 'z' are neither"):
        preprocessor(pd.DataFrame({"when": pd.to_datetime(["2020-01-01"]), "x": [1], "z": [1j]}))
    with pytest.raises(InputError, match="at least one column"):
        preprocessor(pd.DataFrame(index=[1, 2]))


COLUMNS = [
    frames_of.column("x", elements=st.one_of(st.floats(-1e6, 1e6), st.just(np.nan)), dtype=float),
    frames_of.column("n", elements=st.integers(-5, 5), dtype=int),
    frames_of.column("w", elements=st.one_of(st.none(), st.just(np.nan), st.text(max_size=2)), dtype=object),
    frames_of.column("m", elements=st.one_of(st.none(), st.integers(0, 2), st.text(max_size=1)), dtype=object),
]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frames_of.data_frames(COLUMNS, index=frames_of.range_indexes(min_size=2, max_size=30)))
def test_any_mixed_table_becomes_finite_numbers(table):
    made = preprocessor(table, min_frequency=1).fit(table)
    assert np.isfinite(made.transform(table).astype(float)).all()


def test_it_is_a_step_of_a_pipeline():
    y = np.arange(40) % 2
    pipe = make_pipeline(preprocessor(MIXED), LogisticRegression()).fit(MIXED, y)
    assert pipe.predict(MIXED.iloc[::-1]).shape == (40,)
