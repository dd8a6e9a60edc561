"""The commands: scores of files, answers of a model behind an endpoint, rows to learn from."""

import json
import sqlite3

import pandas as pd
import pytest
from chat_server import completion, said, serving
from PIL import Image
from typer.testing import CliRunner

from assay.errors import InputError
from assay.reasoning.sqlparts import parse_completion
from assay.reasoning.sqlparts.prompts import completion_of
from assay.reasoning.sqlparts.use import app

GOLD = [
    {"question_id": "1", "question": "All?", "sql": "SELECT a FROM t"},
    {"question_id": "2", "question": "The largest?", "sql": "SELECT max(a) FROM t"},
    {"question_id": "3", "question": "All again?", "sql": "SELECT a FROM t"},
    {"question_id": "4", "question": "Above?", "sql": "SELECT a FROM t WHERE a > (SELECT avg(a) FROM t) LIMIT 3"},
]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "dbs" / "shop").mkdir(parents=True)
    with sqlite3.connect(tmp_path / "dbs" / "shop" / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
    connection.close()
    gold = pd.DataFrame(GOLD).assign(db_id="shop")
    gold.to_json(tmp_path / "gold.jsonl", orient="records", lines=True)
    predicted = {"1": "SELECT a FROM t", "2": "SELECT min(a) FROM t", "4": "DROP TABLE t"}
    pd.DataFrame({"question_id": list(predicted), "sql": list(predicted.values())}).to_csv(
        tmp_path / "pred.csv", index=False
    )
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False, standalone_mode=False)


def test_scores_a_summary_a_report_and_pictures(files):
    found = run("score", files / "pred.csv", files / "gold.jsonl", "--db", files / "dbs", "--out", files / "out")
    assert "execution (bag) 0.250" in found.output
    scores = pd.read_csv(files / "out" / "scores.csv")
    assert scores["execution"].tolist() == [1, 0, 0, 0]
    # A query alone is not judged as a completion, and no format is asked of it.
    assert scores[["format", "complexity", "parts"]].isna().all(axis=None)
    assert scores["total"].tolist()[0] == 1
    assert scores["errors"].isna().tolist() == [True, True, False, False]
    assert scores["ast"].tolist()[0] == 1
    assert scores["total"].tolist()[2] == 0
    assert scores["total"].tolist()[3] <= 0
    assert "not a query" in scores["errors"].tolist()[3]
    report = (files / "out" / "report.md").read_text()
    assert "| simple | 3 |" in report
    assert "format" not in report
    assert "`bag`" in report
    for name in ("levels.png", "trees.png"):
        assert f"({name})" in report
        assert Image.open(files / "out" / name).size[0] > 600
    summary = json.loads((files / "out" / "summary.json").read_text())
    assert summary["mode"] == "bag"
    assert summary["levels"]["simple"]["execution"] == pytest.approx(1 / 3)
    assert pd.read_csv(files / "out" / "summary.csv")["questions"].tolist() == [3, 1, 4]


def test_bird_s_own_layout_and_without_a_database(files):
    gold = [{"db_id": "shop", "question": g["question"], "SQL": g["sql"], "difficulty": "simple"} for g in GOLD]
    (files / "dev.json").write_text(json.dumps(gold))
    (files / "said.json").write_text(json.dumps([{"sql": g["sql"]} for g in GOLD]))
    run("score", files / "said.json", files / "dev.json", "--db", files / "dbs", "--mode", "bird", "-o", files / "o")
    assert pd.read_csv(files / "o" / "scores.csv")["execution"].tolist() == [1, 1, 1, 1]
    assert "`bird`" in (files / "o" / "report.md").read_text()
    found = run("score", files / "said.json", files / "dev.json", "-o", files / "dry")
    assert "execution" not in found.output
    assert pd.read_csv(files / "dry" / "scores.csv")["execution"].isna().all()
    assert not (files / "dry" / "trees.png").exists()


def test_spider_s_own_layout_with_a_parse_beside_each_query(files):
    gold = [{"db_id": "shop", "question": g["question"], "query": g["sql"], "sql": {"select": [0]}} for g in GOLD]
    (files / "dev.json").write_text(json.dumps(gold))
    (files / "said.json").write_text(json.dumps([{"sql": g["sql"]} for g in GOLD]))
    run("score", files / "said.json", files / "dev.json", "--db", files / "dbs", "-o", files / "o")
    assert pd.read_csv(files / "o" / "scores.csv")["ast"].tolist() == [1, 1, 1, 1]


def test_a_right_query_that_cannot_be_judged_is_named_and_does_not_stop_the_others(files):
    rows = [*GOLD, {"question_id": "5", "sql": "SELECT nothing FROM t"}, {"question_id": "6", "sql": "SELECT a FROM"}]
    pd.DataFrame(rows).to_json(files / "some.jsonl", orient="records", lines=True)
    shop = files / "dbs" / "shop" / "shop.sqlite"
    run("score", files / "pred.csv", files / "some.jsonl", "--db", shop, "-o", files / "o")
    scores = pd.read_csv(files / "o" / "scores.csv")
    assert scores["total"].isna().tolist() == [False] * 4 + [True] * 2
    assert "could not be judged (2)" in (files / "o" / "report.md").read_text()
    pd.DataFrame(rows[4:]).to_json(files / "bad.jsonl", orient="records", lines=True)
    pd.DataFrame({"question_id": ["5"], "sql": ["SELECT 1"]}).to_csv(files / "p.csv", index=False)
    with pytest.raises(InputError, match="can be judged"):
        run("score", files / "p.csv", files / "bad.jsonl", "--db", shop, "-o", files / "o2")
    assert not (files / "o2").exists()


def test_a_query_stands_where_there_is_no_completion_and_spider_s_own_tree_is_passed_over(files):
    rows = [
        {"question_id": "1", "sql": "SELECT a FROM t", "completion": None},
        {"question_id": "2", "sql": None, "completion": "<sql>SELECT max(a) FROM t</sql>"},
        {"question_id": "3", "sql": None, "completion": None},
    ]
    (files / "both.json").write_text(json.dumps(rows))
    spider = [
        {"question_id": i, "question": "?", "query": g["sql"], "sql": {"from": []}} for i, g in enumerate(GOLD, 1)
    ]
    (files / "spider.json").write_text(json.dumps(spider))
    run("score", files / "both.json", files / "spider.json", "-o", files / "o")
    assert pd.read_csv(files / "o" / "scores.csv")["ast"].tolist() == [1, 1, 0, 0]


def test_nothing_that_is_there_is_written_over(files):
    (files / "rows.jsonl").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        run("sft", files / "gold.jsonl", "-o", files / "rows.jsonl")
    assert (files / "rows.jsonl").read_text() == "mine"
    known = ("--db", files / "dbs" / "shop" / "shop.sqlite", "--endpoint", "http://localhost:1/v1", "--model", "m")
    for given in (("score", files / "pred.csv", files / "gold.jsonl"), ("ask", "Which?", *known)):
        with pytest.raises(InputError, match="not an empty folder"):  # before a model is asked
            run(*given, "-o", files / "dbs")


def test_bad_files_are_refused(files):
    (files / "tree.json").write_text('[{"question_id": "1", "sql": ["SELECT 1"]}]')
    (files / "talk.json").write_text('[{"question_id": "1", "completion": {"a": 1}}]')
    (files / "list.json").write_text("{}")
    (files / "odd.jsonl").write_text('{"question_id": "1", "sql": "SELECT 1", "db_id": "../shop"}\n')
    (files / "twice.csv").write_text("question_id,sql\n1,SELECT 1\n1,SELECT 2\n")
    (files / "none.csv").write_text("question_id,other\n1,2\n")
    (files / "apart.csv").write_text("question_id,sql\nx,SELECT 1\n")
    for pred, gold, why in (
        ("gold.jsonl", "pred.csv", "db_id"),
        ("gold.jsonl", "odd.jsonl", "db_id"),
        ("gold.jsonl", "list.json", "list"),
        ("gold.jsonl", "missing.json", "no file"),
        ("twice.csv", "gold.jsonl", "twice"),
        ("none.csv", "gold.jsonl", "sql or completion"),
        ("gold.jsonl", "tree.json", "row 1: sql must be a text"),
        ("talk.json", "gold.jsonl", "row 1: completion must be a text"),
        ("gold.jsonl", "none.csv", "sql"),
        ("apart.csv", "gold.jsonl", "in common"),
    ):
        with pytest.raises(InputError, match=why):
            run("score", files / pred, files / gold, "--db", files / "dbs", "--out", files / "o")
    with pytest.raises(InputError, match="mode"):
        run("score", files / "pred.csv", files / "gold.jsonl", "--out", files / "o", "--mode", "exact")
    assert not (files / "o").exists()


def test_rows_to_learn_from_describe_the_tables_and_can_be_read_back(files):
    run("sft", files / "gold.jsonl", "--db", files / "dbs", "-o", files / "rows.jsonl")
    rows = [json.loads(line) for line in (files / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    for row, gold in zip(rows, GOLD, strict=True):
        assert [message["role"] for message in row["messages"]] == ["system", "user", "assistant"]
        assert "CREATE TABLE t" in row["messages"][1]["content"]
        assert gold["question"] in row["messages"][1]["content"]
        back = parse_completion(row["messages"])
        assert back.sql == gold["sql"]
        assert back.format_ok
    run("sft", files / "gold.jsonl", "-o", files / "direct.jsonl", "--mode", "direct")
    first = json.loads((files / "direct.jsonl").read_text().splitlines()[0])
    assert first["messages"][-1]["content"] == "<sql>SELECT a FROM t</sql>"
    with pytest.raises(InputError, match="mode"):
        run("sft", files / "gold.jsonl", "-o", files / "x.jsonl", "--mode", "both")
    (files / "empty.jsonl").write_text('{"question": "  ", "sql": "SELECT 1"}\n')
    with pytest.raises(InputError, match=r"row 0.*question"):
        run("sft", files / "empty.jsonl", "-o", files / "x.jsonl")
    assert not (files / "x.jsonl").exists()


def model(handler, body, count):
    """Three right samples, one wrong and one that does harm, in the model's own words."""
    queries = [
        "SELECT min(a) FROM t",
        "SELECT max(a) FROM t",
        "SELECT max(x.a) AS m FROM t AS x",
        "SELECT a FROM t ORDER BY a DESC LIMIT 1",
        "DELETE FROM t",
    ]
    assert "CREATE TABLE t" in said(body)
    texts = [f"<think><complexity>simple</complexity></think><sql>{q}</sql>" for q in queries]
    handler.json(completion(*texts[: body.get("n", 1)]))


def test_a_question_is_answered_through_an_endpoint(files, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(files / "cache"))
    shop = files / "dbs" / "shop" / "shop.sqlite"
    with serving(model) as server:
        known = ("--db", shop, "--endpoint", server.url, "--model", "small")
        one = run("ask", "The smallest?", *known)
        assert "SELECT min(a) FROM t" in one.output
        assert "written" not in one.output.lower()
        five = run("ask", "The largest | or ![x](y)?", *known, "--n", 5, "-o", files / "answer")
        assert "SELECT max(a) FROM t" in five.output
        many = run("ask", "--questions", files / "gold.jsonl", *known, "-o", files / "many")
        assert "4 questions, 4 with a query" in many.output
        assert any(body.get("temperature") == 0 for body in server.bodies)
    answer = json.loads((files / "answer" / "answer.json").read_text())
    assert answer["sql"] == "SELECT max(a) FROM t"
    assert [vote["same"] for vote in answer["votes"]] == [1, 3, 3, 3, 0]
    assert "not a query" in answer["votes"][4]["error"]
    assert pd.read_csv(files / "answer" / "rows.csv").iloc[0, 0] == 2
    report = (files / "answer" / "report.md").read_text()
    assert "![x]" not in report
    assert Image.open(files / "answer" / "samples.png").size[0] > 600
    assert answer["completion"] == answer["votes"][1]["completion"]
    run("score", files / "many" / "predictions.jsonl", files / "gold.jsonl", "--db", files / "dbs", "-o", files / "s")
    scores = pd.read_csv(files / "s" / "scores.csv")
    assert len(scores) == 4
    assert scores["format"].tolist() == [1] * 4  # what the model wrote is scored, and not its query alone
    assert scores["complexity"].tolist()[0] == 1


def test_asking_needs_a_question_a_database_and_a_model(files):
    shop = files / "dbs" / "shop" / "shop.sqlite"
    with pytest.raises(InputError, match="question"):
        run("ask", "--db", shop, "--endpoint", "http://localhost:1/v1", "--model", "m")
    with pytest.raises(InputError, match="--endpoint"):
        run("ask", "Which?", "--db", shop)
    with pytest.raises(InputError, match="--out"):
        run(
            "ask",
            "--questions",
            files / "gold.jsonl",
            "--db",
            shop,
            "--endpoint",
            "http://localhost:1/v1",
            "--model",
            "m",
        )
    with pytest.raises(InputError, match="consensus"):
        run("ask", "Which?", "--db", shop, "--endpoint", "http://localhost:1/v1", "--model", "m", "--consensus", "luck")


def test_where_completions_are_given_a_missing_one_counts_as_empty(files):
    said = [{"question_id": "1", "completion": completion_of("SELECT a FROM t")}]
    (files / "said.jsonl").write_text("\n".join(json.dumps(row) for row in said))
    run("score", files / "said.jsonl", files / "gold.jsonl", "--db", files / "dbs", "-o", files / "o")
    scores = pd.read_csv(files / "o" / "scores.csv")
    assert scores["format"].tolist() == [1, 0, 0, 0]
    assert scores["total"].tolist()[1:] == [0, 0, 0]
