"""Components, completions and rewards: honest work is paid in full, and no way around it is paid better."""

import contextlib
import sqlite3

import pandas as pd
import pytest

from assay.errors import InputError
from assay.reasoning.sqlparts import (
    RewardWeights,
    SafeDatabase,
    SqlParseError,
    complexity,
    components_score,
    decompose,
    execution_match,
    mcs_score,
    parse_completion,
    reward_breakdown,
    reward_func,
)
from assay.reasoning.sqlparts.levels import LEVELS

GOLD = [
    "SELECT name FROM t WHERE b > (SELECT avg(b) FROM t) ORDER BY a LIMIT 3",
    "WITH c AS (SELECT g, avg(b) AS m FROM t GROUP BY g) SELECT c.g FROM c WHERE m > (SELECT avg(b) FROM t) ORDER BY m",
    "SELECT a FROM t WHERE b = 1 UNION SELECT a FROM u GROUP BY a HAVING count(*) > 2",
    "SELECT t.name, count(*) FROM t JOIN u ON t.a = u.a WHERE u.z > 1 GROUP BY t.name HAVING count(*) > 1 ORDER BY 2 DESC",  # noqa: E501
    "SELECT x.a FROM t x WHERE x.b = (SELECT max(y.b) FROM u y WHERE y.a = x.a) AND x.g > 1 ORDER BY x.a",
]
JUNK = ["SELECT zz FROM qq", "SELECT yy FROM rr WHERE kk = 3", "this is no query"]


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "d.sqlite"
    t = pd.DataFrame({"name": list("abcdef"), "a": range(6), "b": [1.0, 2, 3, 4, 5, 6], "g": [1, 1, 2, 2, 3, 3]})
    u = pd.DataFrame({"a": [0, 0, 0, 1, 1, 5], "b": [1.0] * 6, "z": range(6)})
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for name, frame in {"t": t, "u": u}.items():
            frame.to_sql(name, connection, index=False)
    with SafeDatabase(path) as db:
        yield db


def honest(gold: str, parts: list[str] | None = None) -> str:
    parts = [p.sql for p in decompose(gold)] if parts is None else parts
    inside = "".join(f"<component>{p}</component>" for p in parts)
    return f"<think><complexity>{complexity(gold)}</complexity>{inside} so </think><sql>{gold}</sql>"


@pytest.mark.parametrize("gold", GOLD)
def test_gold_parts_are_parts_and_junk_lowers_their_score(gold):
    parts = [p.sql for p in decompose(gold)]
    assert parts
    assert all(mcs_score(p, gold, norm="pred") == 1 for p in parts)
    whole = components_score(parts, gold)
    assert whole.f1 == whole.precision == whole.recall == 1
    for n in range(1, 4):
        assert components_score(parts + JUNK[:n], gold).f1 < components_score(parts + JUNK[: n - 1], gold).f1
    for gaming in (parts + parts, [*parts, gold], [gold], [gold] * 3, JUNK, parts * 20, ["SELECT 1"] * 3,
                   [gold, gold.replace("SELECT ", "SELECT 1, ", 1), gold.replace("SELECT ", "SELECT 2, ", 1)]):  # fmt: skip  # noqa: E501
        assert components_score(gaming, gold).f1 < 1
    assert components_score(JUNK, gold, count_only=True).f1 == 1  # the reward that pays for junk


def test_a_simple_query_has_no_components():
    assert decompose("SELECT a FROM t") == []
    assert components_score([], "SELECT a FROM t").f1 == 1
    assert components_score(["SELECT a FROM t"], "SELECT a FROM t").f1 == 0.5


def test_a_completion_is_read_and_the_last_query_wins():
    found = parse_completion(honest(GOLD[0]))
    assert found.format_ok
    assert found.level == "challenging"
    assert found.sql == GOLD[0]
    assert len(found.parts) == 2
    assert parse_completion([{"role": "assistant", "content": honest(GOLD[0])}]) == found
    two = parse_completion(honest(GOLD[0]) + "<sql>SELECT 2</sql>")
    assert two.sql == "SELECT 2"
    assert not two.format_ok
    fenced = parse_completion("<think><complexity>simple</complexity></think>\n```sql\nSELECT 1\n```")
    assert fenced.sql == "SELECT 1"
    assert fenced.format_ok
    for text in ("", "SELECT 1", "<sql></sql>", "<think>", "<think><complexity>odd</complexity></think><sql>SELECT 1</sql>",  # noqa: E501
                 "<component>" * 1000, honest(GOLD[0]) * 2, "<think></think>" * 50_000):  # fmt: skip
        found = parse_completion(text)
        assert not found.format_ok
        assert found.errors


def test_honest_work_gets_everything_and_gaming_less(db):
    for gold in GOLD:
        best = reward_breakdown(honest(gold), gold, db)["total"]
        assert best == 1
        wrong = "SELECT count(*) FROM u"
        right_parts = honest(gold).split("<sql>")[0]
        prompt = f"Write a query for: {gold!r} <think><complexity>…</complexity><component>SELECT …</component></think><sql>…</sql>"  # noqa: E501
        for gaming in (
            "", "I don't know", prompt, honest(gold) + honest(gold), honest(gold, []), honest(gold, [gold]), honest(gold, JUNK),  # noqa: E501
            right_parts + f"<sql>{wrong}</sql>", right_parts + "<sql>SELECT</sql>", f"<sql>{gold}</sql>",
            right_parts + "<sql>" + ";".join(GOLD) + "</sql>", right_parts + "<sql>DROP TABLE t</sql>",
        ):  # fmt: skip
            assert reward_breakdown(gaming, gold, db)["total"] < best
        assert reward_breakdown("", gold, db)["total"] == 0
        assert reward_breakdown(right_parts + f"<sql>{wrong}</sql>", gold, db)["total"] < 0.65


def test_a_failing_query_costs_a_tenth_of_the_weight_of_execution(db):
    found = reward_breakdown("<sql>SELECT nothing FROM t</sql>", "SELECT a FROM t", db)
    paid = (1.0 * found["parts"] + 1.0 * found["ast"] - 0.2) / 5
    assert found["total"] == pytest.approx(paid)
    assert found["execution"] == 0
    assert found["errors"]


def test_a_trainer_s_lists_and_messages_give_the_same_rewards(db):
    texts = [honest(g) for g in GOLD] + ["nothing"]
    chats = [[{"role": "assistant", "content": t}] for t in texts]
    gold = [*GOLD, GOLD[0]]
    path = [str(db.path)] * len(texts)
    rewards = reward_func(["?"] * 6, texts, gold_sql=gold, db_path=path)
    assert rewards == [1, 1, 1, 1, 1, 0]
    prompts = [[{"role": "user", "content": "?"}]] * 6
    assert reward_func(prompts, chats, gold_sql=gold, db_path=path, completion_ids=[[1]] * 6) == rewards
    with pytest.raises(InputError):
        reward_func(["?"], texts, gold_sql=gold)
    with pytest.raises(InputError, match="no database"):
        reward_func(["?"], texts[:1], gold_sql=gold[:1], db_path=["/no/such.sqlite"])
    with pytest.raises(InputError, match="plain name"):
        reward_func(["?"], texts[:1], gold_sql=gold[:1], db_path="/tmp", db_id=["../x"])
    with pytest.raises(SqlParseError):
        reward_func(["?"], texts[:1], gold_sql=["not sql at"])


def test_matching_results(db):
    def match(pred, gold, mode="bag"):
        return execution_match(pred, gold, db, mode=mode)

    assert match("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t")
    assert not match("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t ORDER BY a")
    assert not match("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t", "ordered")
    assert not match("SELECT g FROM t", "SELECT DISTINCT g FROM t")
    assert match("SELECT g FROM t", "SELECT DISTINCT g FROM t", "bird")
    assert not match("SELECT a, a FROM t", "SELECT a FROM t")
    assert match("SELECT NULL, 0.1 + 0.2", "SELECT NULL, 0.3")
    assert match("SELECT 1.0", "SELECT 1")
    assert not match("SELECT '1'", "SELECT 1")
    assert not match("SELECT broken", "SELECT 1")
    lucky, gold = "SELECT name FROM t WHERE a > 2", "SELECT name FROM t WHERE b > 3"
    assert match(lucky, gold)
    assert not match(lucky, gold, "suite")
    assert match("SELECT x.name FROM t x WHERE 3 < x.b", gold, "suite")
    with pytest.raises(InputError, match="mode"):
        match("SELECT 1", "SELECT 1", "exact")
    with pytest.raises(InputError, match="gold"):
        match("SELECT 1", "SELECT broken")
    with pytest.raises(InputError, match="float_tol"):
        execution_match("SELECT 1", "SELECT 1", db, float_tol=-1)


def test_bad_arguments_are_named():
    for weights in (
        {"ast": -1},
        {"format": float("nan")},
        dict.fromkeys(("format", "complexity", "parts", "ast", "execution"), 0),
    ):
        with pytest.raises(InputError, match="weight"):
            RewardWeights(**weights)
    with pytest.raises(TypeError, match="parts"):
        components_score("SELECT 1", GOLD[0])
    with pytest.raises(InputError, match="level"):
        components_score([], GOLD[0], level="hard")
    with pytest.raises(InputError):
        parse_completion(5)


def test_a_level_beside_the_right_one_earns_half(db):
    gold = "SELECT a FROM t"
    texts = [f"<think><complexity>{level}</complexity></think><sql>{gold}</sql>" for level in LEVELS]
    assert [reward_breakdown(text, gold, db)["complexity"] for text in texts] == [1, 0.5, 0]
