"""Agents that look for reward without the work: none of them gets as much as honest work does."""

import pandas as pd
import pytest

from assay.errors import InputError
from assay.reasoning.sqlparts import (
    SafeDatabase,
    SqlParseError,
    completion_of,
    complexity,
    components_score,
    decompose,
    execution_match,
    fragments,
    mcs_score,
    parse_completion,
    prompt,
    reward_breakdown,
    reward_func,
)
from assay.reasoning.sqlparts.matching import best_renaming

GOLD = [
    "SELECT name FROM t WHERE b > (SELECT avg(b) FROM t) ORDER BY a LIMIT 3",
    "WITH c AS (SELECT g, avg(b) AS m FROM t GROUP BY g) SELECT c.g FROM c WHERE m > (SELECT avg(b) FROM t) ORDER BY m",
    "SELECT a FROM t WHERE b = 1 UNION SELECT a FROM u GROUP BY a HAVING count(*) > 2",
    "SELECT name FROM t WHERE b > 2",
]
WRONG = "SELECT u.b FROM u WHERE u.a = 1"
EVERYTHING = "SELECT * FROM t, u"
JUNK = ["SELECT zz FROM qq", "SELECT yy FROM rr WHERE kk = 3", "SELECT max(z) FROM u GROUP BY b"]


@pytest.fixture(scope="module")
def db():
    t = pd.DataFrame({"name": list("abcdef"), "a": range(6), "b": [1.0, 2, 3, 4, 5, 6], "g": [1, 1, 2, 2, 3, 3]})
    u = pd.DataFrame({"a": [0, 0, 0, 1, 1, 5], "b": [1.0] * 6, "z": range(6)})
    with SafeDatabase({"t": t, "u": u}) as db:
        yield db


def written(gold, sql, parts=None, level=None):
    parts = [part.sql for part in decompose(gold)] if parts is None else parts
    inside = "".join(f"<component>{part}</component>" for part in parts)
    return f"<think><complexity>{level or complexity(gold)}</complexity>{inside}</think><sql>{sql}</sql>"


def content(db):
    """The database's whole content as constants, in as many columns as gold gives rows of."""
    rows = [row for table in ("t", "u") for row in db.run(f"SELECT * FROM {table}").rows]
    return "VALUES " + ", ".join(f"({row[0]!r})" for row in rows)


def tries(gold, db):
    """What an agent that does not know the answer may do, and what one may do that knows it and shirks."""
    parts = [part.sql for part in decompose(gold)]
    right = db.run(gold).rows
    constants = "VALUES " + ", ".join("(" + ", ".join(map(repr, row)) + ")" for row in right)
    return {
        "nothing": "",
        "chat": "I can't answer this.",
        "the prompt": prompt("Which?", db.schema_text())[1]["content"],
        "the instructions": prompt("Which?", db.schema_text())[0]["content"],
        "tags alone": "<think><complexity></complexity><component></component></think><sql></sql>",
        "all levels": written(gold, WRONG).replace(
            "<complexity>", "<complexity>simple</complexity><complexity>moderate</complexity><complexity>"
        ),
        "everything at once": written(gold, EVERYTHING, [EVERYTHING]),
        "all columns": written(gold, "SELECT t.name, t.a, t.b, t.g, u.a, u.b, u.z FROM t, u"),
        "each table whole": written(gold, "SELECT * FROM t", ["SELECT * FROM t", "SELECT * FROM u"]),
        "the database's content": written(gold, content(db), JUNK),
        "many queries": written(gold, "; ".join([WRONG, EVERYTHING, gold])),
        "many queries, tagged": written(gold, WRONG) + "<sql>" + EVERYTHING + "</sql>",
        "gold in a comment": written(gold, f"{WRONG} /* {gold} */"),
        "gold in a line comment": written(gold, f"{WRONG} -- {gold}"),
        "gold as a text": written(gold, "SELECT '" + gold.replace("'", "''") + "'"),
        "gold named and not used": written(gold, f"WITH unused AS ({gold}) {WRONG}"),
        "gold beside": written(gold, f"SELECT 1 UNION ALL SELECT 2 WHERE EXISTS ({gold})"),
        "gold never true": written(
            gold, f"SELECT a FROM ({gold}) WHERE 1 = 0" if "a" in gold[:9] else f"SELECT * FROM ({gold}) WHERE 0"
        ),
        "gold with an error": written(gold, gold + " GROUP BY"),
        "right parts, wrong query": written(gold, WRONG),
        "right parts, no query": written(gold, ""),
        "right query, no parts": written(gold, gold, []) if parts else written(gold, gold, [WRONG]),
        "right query, junk parts": written(gold, gold, JUNK),
        "right query, right and junk parts": written(gold, gold, parts + JUNK),
        "right query, parts twice": written(gold, gold, (parts or [WRONG]) * 2),
        "right query as its own part": written(gold, gold, [gold, gold + " ", gold.lower()]),
        "right query, parts of one node each": written(gold, gold, ["SELECT 1", "SELECT a", "SELECT b", "SELECT name"]),
        "right query, many parts": written(gold, gold, parts + [f"SELECT a FROM t WHERE b > {i}" for i in range(200)]),
        "right query, another level": written(gold, gold, level="simple" if parts else "challenging"),
        "right query, no format": f"<sql>{gold}</sql>",
        "the answer as constants": written(gold, constants),
        "harm": written(gold, "DROP TABLE t"),
        "no end": written(gold, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT x FROM c"),
        "all brackets": written(gold, "SELECT " + "(" * 3000 + "1" + ")" * 3000),
        "all wildcards": written(gold, "SELECT " + ", ".join(["*"] * 500) + " FROM t"),
    }


@pytest.mark.parametrize("gold", GOLD)
def test_no_way_around_pays_as_much_as_the_work(gold, db):
    honest = reward_breakdown(completion_of(gold), gold, db)
    assert honest["total"] == 1
    paid = {name: reward_breakdown(text, gold, db) for name, text in tries(gold, db).items()}
    for name, found in paid.items():
        assert -0.1 <= found["total"] < 1, name
    for name in ("nothing", "chat", "the prompt", "tags alone"):
        assert paid[name]["total"] <= 0, name
    # Without the right query no way is paid as an honest attempt that is nearly right would be.
    near = gold.replace("b > ", "b >= ").replace("b = 1", "b = 2")
    attempt = reward_breakdown(written(gold, near), gold, None)["total"]
    for name in ("everything at once", "all columns", "each table whole", "the database's content", "gold as a text"):
        assert reward_breakdown(tries(gold, db)[name], gold, None)["total"] < attempt, name


@pytest.mark.parametrize("gold", GOLD)
def test_what_is_hidden_in_a_query_is_not_built(gold):
    low = mcs_score(WRONG, gold)
    assert mcs_score(f"{WRONG} /* {gold} */", gold) == low
    assert mcs_score(f"{WRONG} -- {gold}", gold) == low
    assert mcs_score(f"WITH unused AS ({gold}) {WRONG}", gold) <= low
    assert mcs_score(f"WITH u1 AS ({gold}), u2 AS (SELECT * FROM u1) {WRONG}", gold) <= low
    assert mcs_score(f"WITH u1 AS ({gold}), u2 AS (SELECT 1 FROM u1 AS p, u1 AS q) {WRONG}", gold) <= low
    assert mcs_score(f"WITH RECURSIVE u1 AS ({gold} UNION ALL SELECT * FROM u1) {WRONG}", gold) <= low
    assert mcs_score("SELECT '" + gold.replace("'", "''") + "'", gold) <= 0.6
    assert mcs_score(f"{gold}; {gold}", gold) == 0


@pytest.mark.parametrize("gold", GOLD[:3])
def test_each_junk_part_costs_and_each_right_part_pays(gold):
    parts = [part.sql for part in decompose(gold)]
    scores = [components_score(parts + JUNK[:n], gold).f1 for n in range(4)]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 4
    some = [components_score(parts[:n], gold).f1 for n in range(len(parts) + 1)]
    assert some == sorted(some)
    assert some[0] == 0
    assert some[-1] == 1
    long_junk = "SELECT " + ", ".join(f"c{i}" for i in range(50)) + " FROM nowhere"
    assert components_score([*parts, long_junk], gold).f1 < scores[1]


def test_many_large_parts_cost_no_time_to_compare(monkeypatch):
    work = []

    def counted(tree, other):
        work.append(tree.size * other.size)
        return best_renaming(tree, other)

    monkeypatch.setattr(fragments, "best_renaming", counted)
    tables = ", ".join(f"{name} AS {name}{i}" for name in "tuv" for i in range(3))
    large = [f"SELECT {', '.join(['t0.a'] * (140 + i))} FROM {tables}" for i in range(32)]
    found = components_score(large, GOLD[0])
    assert found.f1 < 0.1
    assert found.precision < 0.1
    assert sum(work) < 500_000  # each is compared with gold, and few with one another


def test_the_answer_as_constants_is_not_paid_and_with_a_table_beside_only_the_suite_sees_it(db):
    gold = GOLD[3]
    for constants in (
        "VALUES ('c'), ('d'), ('e'), ('f')",
        "SELECT 'c' UNION ALL SELECT 'd' UNION ALL SELECT 'e' UNION ALL SELECT 'f'",
        "WITH t2(name) AS (VALUES ('c'), ('d'), ('e'), ('f')) SELECT name FROM t2",
    ):
        found = reward_breakdown(written(gold, constants), gold, db)
        assert execution_match(constants, gold, db)
        assert found["execution"] == 0
        assert "constants" in found["errors"][-1]
    beside = written(gold, "SELECT name FROM t WHERE name IN ('c', 'd', 'e', 'f')")
    assert reward_breakdown(beside, gold, db)["execution"] == 1
    assert reward_breakdown(beside, gold, db, mode="suite")["execution"] == 0
    assert reward_breakdown(completion_of(gold), gold, db, mode="suite")["total"] == 1
    plain = "SELECT 1 + 1"
    assert reward_breakdown(written(plain, "SELECT 2"), plain, db)["execution"] == 1
    with pytest.raises(InputError, match="mode"):
        reward_breakdown(beside, gold, db, mode="luck")


def test_a_trainer_may_give_none_empty_and_odd_completions():
    gold = [GOLD[3]] * 6
    given = [
        None,
        "",
        [],
        [{"role": "assistant", "content": None}],
        [{"role": "user", "content": "x"}],
        completion_of(GOLD[3]),
    ]
    assert reward_func(["?"] * 6, given, gold_sql=gold) == [0, 0, 0, 0, 0, 1]
    assert reward_func([[{"role": "user", "content": "?"}]] * 6, given, gold_sql=gold, trainer_state=object()) == [
        0,
        0,
        0,
        0,
        0,
        1,
    ]
    assert reward_func([], [], gold_sql=[]) == []
    parts = [[{"role": "assistant", "content": [{"type": "text", "text": completion_of(GOLD[3])}]}]]
    assert reward_func(["?"], parts, gold_sql=GOLD[3]) == [1]


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"completions": [5]}, InputError, "completions\\[0\\]"),
        ({"completions": "SELECT 1"}, InputError, "completions"),
        ({"completions": [[5]]}, InputError, "messages"),
        ({"gold_sql": []}, InputError, "gold_sql"),
        ({"gold_sql": [None]}, TypeError, "sql"),
        ({"gold_sql": [5]}, TypeError, "sql"),
        ({"gold_sql": ["SELECT a FROM"]}, SqlParseError, "line 1"),
        ({"gold_sql": [""]}, SqlParseError, "one statement"),
        ({"gold_sql": ["DELETE FROM t"]}, SqlParseError, "not a query"),
        ({"db_path": ["/no/such.sqlite"]}, InputError, "no database"),
        ({"db_id": ["x"]}, InputError, "db_path"),
        ({"db_path": "/tmp", "db_id": ["../x"]}, InputError, "plain name"),
        ({"db_path": "/tmp", "db_id": [".."]}, InputError, "plain name"),
        ({"dialect": ["sqlit"]}, InputError, "dialect"),
    ],
)
def test_bad_columns_are_named(given, error, why):
    columns = {"prompts": ["?"], "completions": ["<sql>SELECT 1</sql>"], "gold_sql": ["SELECT a FROM t"]} | given
    with pytest.raises(error, match=why):
        reward_func(**columns)


def test_texts_of_any_kind_are_read_without_an_exception():
    odd = ["<sql>" * 5000, "</sql>" * 5000, "<think>" + "<component>x" * 3000, "\0", "\ud800", "<sql>\ud800</sql>"]
    odd += ["🦆" * 1000, "```sql\nSELECT 1", "<SQL>SELECT 1</SQL>", "<think></think><sql>SELECT 1", "</think><think>"]
    for text in odd:
        assert not parse_completion(text).format_ok
        assert 0 <= reward_breakdown(text, GOLD[3])["total"] < 0.6
