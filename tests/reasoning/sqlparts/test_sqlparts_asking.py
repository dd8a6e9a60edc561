"""Choosing among a model's samples without gold, prompts, and rows to learn from."""

import pandas as pd
import pytest
from chat_server import completion, said, serving

from assay.errors import EndpointError, InputError
from assay.parts.chat import Chat, Failure, Timeouts
from assay.reasoning.sqlparts import (
    Answer,
    Asker,
    Rows,
    SafeDatabase,
    SqlError,
    SqlParseError,
    choose,
    completion_of,
    mcs_score,
    parse_completion,
    prompt,
    sft_rows,
)

HALF = "SELECT a FROM t WHERE a < 3"


@pytest.fixture(scope="module")
def db():
    with SafeDatabase({"t": pd.DataFrame({"a": range(6), "b": list("xyxyxy")})}, timeout=1) as db:
        yield db


def chat(server):
    return Chat(server.url, "small", cache=False, backoff=0.01, retries=0, timeouts=Timeouts(5, 15, 30))


def tagged(*queries):
    return [f"<sql>{query}</sql>" for query in queries]


def test_the_nearest_to_all_others_that_run_is_taken(db):
    queries = [
        "SELECT b FROM t",
        HALF,
        "SELECT x.a FROM t AS x WHERE 3 > x.a",
        "SELECT a FROM t WHERE a <= 2",
        "DROP TABLE t",
    ]
    answer = choose(tagged(*queries), db)
    assert answer.sql == HALF
    assert answer.rows.rows == ((0,), (1,), (2,))
    assert [vote.same for vote in answer.votes] == [1, 3, 3, 3, 0]
    assert isinstance(answer.votes[4].rows, SqlError)
    others = [mcs_score(HALF, other) for other in queries[:1] + queries[2:4]]
    assert answer.votes[1].agreement == pytest.approx(sum(others) / 3)


def test_by_rows_or_by_trees_or_the_first(db):
    # Two samples share a tree but for a number and no rows; three share rows with other trees.
    same = ["SELECT max(a) FROM t", "SELECT a FROM t ORDER BY a DESC LIMIT 1", "SELECT 5"]
    near = [f"SELECT a FROM t WHERE a < {n} AND b = 'x' ORDER BY a, b LIMIT 2" for n in (4, 5, 6)]
    near[1] = near[1].replace("'x'", "'y'")
    assert choose(tagged(*same, *near), db).sql in near
    assert choose(tagged(*same, *near), db, consensus="execution").sql in same
    assert choose(tagged("SELECT nothing FROM t", *same), db, consensus=None).sql == "SELECT nothing FROM t"
    assert choose(tagged("SELECT nothing FROM t", *same), db).sql in same


def test_ties_go_to_the_shorter_and_then_to_the_earlier(db):
    assert choose(tagged("SELECT x.a FROM t AS x", "SELECT a FROM t"), db).sql == "SELECT a FROM t"
    assert choose(tagged("SELECT  a FROM t", "SELECT a FROM  t"), db).sql == "SELECT  a FROM t"


def test_samples_without_a_query_or_that_all_fail_are_an_answer_too(db):
    none = choose(["I can't", ""], db)
    assert none.sql is None
    assert none.rows is None
    assert choose([], db) == Answer(None, None, (), ())
    failed = choose(["I can't", *tagged("SELECT nothing FROM t", "DELETE FROM t")], db)
    assert failed.sql == "SELECT nothing FROM t"
    assert failed.rows.kind == "sql"
    alone = choose(tagged("SELECT a FROM t"), db)
    assert alone.votes[0].agreement == alone.votes[0].same == 1


def test_what_only_sqlite_can_read_takes_part(db):
    odd = "SELECT a FROM t WHERE a IS NOT DISTINCT FROM 1 OR b GLOB 'x*' COLLATE nocase"
    deep = "SELECT " + "abs(" * 90 + "a" + ")" * 90 + " FROM t"
    answer = choose(tagged(odd, odd, deep, "SELECT a FROM t"), db)
    assert answer.sql is not None
    assert all(0 <= vote.agreement <= 1 for vote in answer.votes)


def test_a_sample_cannot_win_by_weight_or_by_being_everything(db):
    honest = ["SELECT a FROM t WHERE b = 'x'", "SELECT t.a FROM t WHERE 'x' = t.b"]
    heavy = "SELECT a FROM t WHERE b = 'x' AND " + " AND ".join(f"a <> {i}" for i in range(100, 160))
    union = "SELECT a FROM t WHERE b = 'x' UNION ALL SELECT a FROM t UNION ALL SELECT 1 UNION ALL SELECT a FROM t"
    assert choose(tagged(heavy, union, *honest), db).sql == honest[0]


def test_an_asker_asks_runs_and_says_what_failed(db):
    def answer(handler, body, count):
        assert "CREATE TABLE t" in said(body)
        if "fail" in said(body):
            handler.json({"error": {"message": "too long"}}, 400)
        elif "Known: b is a letter" in said(body):
            handler.json(completion(*tagged("SELECT b FROM t LIMIT 1") * body.get("n", 1)))
        else:
            handler.json(completion(*[completion_of("SELECT max(a) FROM t")] * body.get("n", 1)))

    with serving(answer) as server:
        asker = Asker(chat(server), db)
        one = asker.ask("The largest a?")
        assert one.rows == Rows(("max(a)",), ((5,),))
        assert server.bodies[0]["temperature"] == 0
        assert asker.ask("Which?", evidence="b is a letter").rows.rows == (("x",),)
        many = asker.ask_many(["The largest?", "fail"])
        assert isinstance(many[0], Answer)
        assert isinstance(many[1], Failure)
        with pytest.raises(EndpointError):
            asker.ask("fail")
        several = Asker(chat(server), db, mode="direct", n=3, seed=4)
        assert len(several.ask("The largest?").votes) == 3
        assert server.bodies[-1]["temperature"] == 0.7
        assert "<component>" not in server.bodies[-1]["messages"][0]["content"]
        with pytest.raises(InputError, match="question"):
            asker.ask("  ")
        with pytest.raises(InputError, match="evidence"):
            asker.ask_many(["a", "b"], evidence=["c"])


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"mode": "both"}, InputError, "mode"),
        ({"n": 0}, InputError, "n must"),
        ({"n": 1.5}, InputError, "n must"),
        ({"n": True}, InputError, "n must"),
        ({"consensus": "luck"}, InputError, "consensus"),
        ({"db": "x.sqlite"}, TypeError, "SafeDatabase"),
    ],
)
def test_bad_settings_of_an_asker_are_named(given, error, why, db):
    with pytest.raises(error, match=why):
        Asker(Chat("http://localhost:1/v1", "m"), **({"db": db} | given))


def test_rows_to_learn_from_hold_the_question_the_tables_and_the_parts():
    sql = "SELECT a FROM t WHERE b > (SELECT avg(b) FROM t) ORDER BY a LIMIT 3"
    (row,) = sft_rows([{"question": "Which?", "sql": sql, "schema": "t: a, b", "evidence": "b is a length"}])
    system, user, assistant = (message["content"] for message in row["messages"])
    assert "<component>" in system
    assert user.index("t: a, b") < user.index("b is a length") < user.index("Which?")
    assert assistant.index("AVG(b)") < assistant.index("<sql>")
    assert parse_completion(row["messages"]).parts == ("SELECT AVG(b) FROM t", "SELECT a FROM t")
    assert parse_completion(system).format_ok is False  # the instructions themselves are no completion
    assert prompt("Which?")[1]["content"] == "Question: Which?"


@pytest.mark.parametrize(
    ("rows", "error", "why"),
    [
        ([{"question": "?"}], InputError, "row 0 needs a text as sql"),
        ([{"question": "?", "sql": "SELECT 1"}, {"question": None, "sql": "SELECT 1"}], InputError, "row 1.*question"),
        ([{"question": "?", "sql": float("nan")}], InputError, "sql"),
        ([{"question": "?", "sql": "SELECT"}], SqlParseError, "row 0"),
        ([{"question": "?", "sql": "DROP TABLE t"}], SqlParseError, "not a query"),
        ([{"question": "?", "sql": "SELECT '</sql>'"}], InputError, "row 0.*tag"),
        ([{"question": "?", "sql": "SELECT 1"}, 5], TypeError, "row 1"),
        (["SELECT 1"], TypeError, "mappings"),
    ],
)
def test_bad_rows_are_named(rows, error, why):
    with pytest.raises(error, match=why):
        sft_rows(rows)
    with pytest.raises(InputError, match="mode"):
        sft_rows([], mode="both")
