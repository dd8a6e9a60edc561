"""``assay use sqlparts``: files in, scores out."""

import sqlite3

import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.errors import InputError
from assay.reasoning.sqlparts.use import app


@pytest.fixture
def files(tmp_path):
    (tmp_path / "dbs" / "shop").mkdir(parents=True)
    with sqlite3.connect(tmp_path / "dbs" / "shop" / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
    connection.close()
    gold = pd.DataFrame(
        {"question_id": ["1", "2", "3"], "sql": ["SELECT a FROM t", "SELECT max(a) FROM t", "SELECT a FROM t"]}
    )
    gold["db_id"] = "shop"
    gold.to_json(tmp_path / "gold.jsonl", orient="records", lines=True)
    pd.DataFrame({"question_id": ["1", "2"], "sql": ["SELECT a FROM t", "SELECT min(a) FROM t"]}).to_csv(
        tmp_path / "pred.csv", index=False
    )
    return tmp_path


def test_scores_a_summary_and_a_report(files):
    paths = [str(files / name) for name in ("pred.csv", "gold.jsonl")]
    found = CliRunner().invoke(app, [*paths, "--db", str(files / "dbs"), "--out", str(files / "out")])
    assert found.exit_code == 0, found.output
    scores = pd.read_csv(files / "out" / "scores.csv")
    assert scores["execution"].tolist() == [1, 0, 0]
    assert scores["ast"].tolist()[0] == 1
    assert scores["total"].tolist()[2] == 0
    assert "| simple | 3 |" in (files / "out" / "report.md").read_text()
    assert pd.read_csv(files / "out" / "summary.csv")["questions"].tolist() == [3, 3]


def test_bad_files_are_refused(files):
    paths = [str(files / name) for name in ("gold.jsonl", "pred.csv")]
    with pytest.raises(InputError, match="db_id"):
        CliRunner().invoke(
            app,
            [*paths, "--db", str(files / "dbs"), "--out", str(files / "o")],
            catch_exceptions=False,
            standalone_mode=False,
        )
