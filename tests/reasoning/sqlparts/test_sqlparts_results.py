"""When two results are the same, in each mode: the traps that others' evaluations fell into, as a table."""

import itertools
import sqlite3

import pandas as pd
import pytest

from assay.errors import InputError
from assay.reasoning.sqlparts import SafeDatabase, changed_copies, changed_tables, execution_match
from assay.reasoning.sqlparts.database import Rows
from assay.reasoning.sqlparts.execution import same_rows

# pred, gold, bag, ordered, bird
PAIRS = {
    "the same": ("SELECT a FROM t", "SELECT a FROM t", True, True, True),
    "no DISTINCT": ("SELECT g FROM t", "SELECT DISTINCT g FROM t", False, False, True),
    "DISTINCT too much": ("SELECT DISTINCT g FROM t", "SELECT g FROM t", False, False, True),
    "UNION for UNION ALL": ("SELECT g FROM t UNION SELECT g FROM t", "SELECT g FROM t UNION ALL SELECT g FROM t", False, False, True),  # noqa: E501
    "another order, none asked for": ("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t", True, False, True),
    "not the order asked for": ("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM t ORDER BY a", False, False, True),
    "order inside only": ("SELECT a FROM t ORDER BY a DESC", "SELECT a FROM (SELECT a FROM t ORDER BY a)", True, False, True),  # noqa: E501
    "order of a union": ("SELECT a FROM t UNION SELECT a FROM t ORDER BY 1 DESC", "SELECT a FROM t UNION SELECT a FROM t ORDER BY 1", False, False, True),  # noqa: E501
    "ordered as asked for": ("SELECT a FROM t ORDER BY -a DESC", "SELECT a FROM t ORDER BY a", True, True, True),
    "columns swapped": ("SELECT g, a FROM t", "SELECT a, g FROM t", False, False, False),
    "a column twice": ("SELECT a, a FROM t", "SELECT a FROM t", False, False, False),
    "two columns alike": ("SELECT a, a FROM t", "SELECT a, a + 0 AS a FROM t", True, True, True),
    "a column too many": ("SELECT a, g FROM t", "SELECT a FROM t", False, False, False),
    "other names": ("SELECT a AS x FROM t", "SELECT a FROM t", True, True, True),
    "NULL is NULL": ("SELECT NULL", "SELECT NULL", True, True, True),
    "NULL is not 0": ("SELECT 0", "SELECT NULL", False, False, False),
    "NULL is not an empty text": ("SELECT ''", "SELECT NULL", False, False, False),
    "NULLs are counted": ("SELECT n FROM t WHERE n IS NOT NULL", "SELECT n FROM t", False, False, False),
    "a float near": ("SELECT 0.1 + 0.2", "SELECT 0.3", True, True, False),
    "a float off": ("SELECT 0.30001", "SELECT 0.3", False, False, False),
    "a whole float": ("SELECT 2.0", "SELECT 2", True, True, True),
    "whole division": ("SELECT 7 / 2", "SELECT 7 / 2.0", False, False, False),
    "whole numbers are exact": ("SELECT 10000000000001", "SELECT 10000000000000", False, False, False),
    "a number is no text": ("SELECT '1'", "SELECT 1", False, False, False),
    "a text is no blob": ("SELECT x'61'", "SELECT 'a'", False, False, False),
    "letters' case counts": ("SELECT 'A'", "SELECT 'a'", False, False, False),
    "spaces count": ("SELECT 'a '", "SELECT 'a'", False, False, False),
    "nothing and nothing": ("SELECT a FROM t WHERE 0", "SELECT a FROM t WHERE 1 = 2", True, True, True),
    "nothing, another width": ("SELECT a, g FROM t WHERE 0", "SELECT a FROM t WHERE 0", False, False, True),
    "nothing and something": ("SELECT a FROM t WHERE 0", "SELECT a FROM t", False, False, False),
    "it fails": ("SELECT nothing FROM t", "SELECT a FROM t", False, False, False),
    "it may not run": ("DELETE FROM t", "SELECT a FROM t", False, False, False),
    "two statements": ("SELECT a FROM t; SELECT a FROM t", "SELECT a FROM t", False, False, False),
    "too many rows": ("SELECT x.a FROM t x, t y, t z, t w, t v", "SELECT a FROM t", False, False, False),
}  # fmt: skip


@pytest.fixture(scope="module")
def db():
    t = pd.DataFrame({"a": range(6), "g": [1, 1, 2, 2, 3, 3], "n": [None, None, 1, 2, 3, 4], "name": list("abcdef")})
    with SafeDatabase({"t": t, "b": pd.DataFrame({"b": [1.0, 2, 3, 4, 5, 6]})}, max_rows=3000) as db:
        yield db


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_of_queries(name, db):
    pred, gold, *wanted = PAIRS[name]
    assert [execution_match(pred, gold, db, mode=mode) for mode in ("bag", "ordered", "bird")] == wanted


def test_bird_is_what_python_s_sets_say(db):
    """The published definition, with sqlite3 and sets alone."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(db._image)
    for pred, gold, *_ in PAIRS.values():
        if not pred.startswith("SELECT"):
            continue
        try:
            theirs = set(connection.execute(pred).fetchmany(3001)) == set(connection.execute(gold).fetchall())
        except (sqlite3.Error, sqlite3.Warning):
            theirs = False
        assert execution_match(pred, gold, db, mode="bird") == theirs, pred
    connection.close()


def rows(*given):
    return Rows(("x",) * len(given[0]), tuple(given))


def test_many_rows_with_whole_and_broken_numbers_match_in_any_order():
    n = 2500
    left = rows(*((i, i * 0.1, str(i % 7), float(i % 11)) for i in range(n)))
    right = rows(*((float(i), i * 0.1 * (1 + 1e-9), str(i % 7), i % 11) for i in reversed(range(n))))
    assert same_rows(left, right, "bag", False)
    off = rows(*(row if i else (row[0], row[1] + 0.01, *row[2:]) for i, row in enumerate(right.rows)))
    assert not same_rows(left, off, "bag", False)
    moved = rows(*((row[0], left.rows[i][1], *row[2:]) for i, row in enumerate(right.rows)))
    assert not same_rows(left, moved, "bag", False)  # the same values, in other rows


def test_near_numbers_match_one_to_one_and_not_twice():
    one = rows((1.0000001,), (1.0000002,), (3.5,))
    assert same_rows(one, rows((3.5,), (1.0000002,), (1.0000001,)), "bag", False)
    assert not same_rows(one, rows((3.5,), (3.5,), (1.0,)), "bag", False)
    assert same_rows(one, rows((3.5,), (1,), (1,)), "bag", False)
    assert not same_rows(one, rows((3.5,), (1,), (1,)), "bag", False, tol=0.0)
    big = 2.0**53
    assert not same_rows(rows((2**53 + 1,)), rows((2**53,)), "bag", False)
    assert same_rows(rows((big,)), rows((2**53 + 1,)), "bag", False)
    for order in itertools.permutations([(None,), (float("inf"),), ("x",), (b"x",), (1.5,)]):
        assert same_rows(rows(*order), rows((1.5,), (b"x",), ("x",), (float("inf"),), (None,)), "bag", False)


def test_suite_finds_what_is_right_by_luck():
    names = [f"n{i}" for i in range(40)]
    frame = pd.DataFrame({"name": names, "a": [i % 8 for i in range(40)], "g": [(i % 8) // 3 for i in range(40)]})
    gold = "SELECT name FROM t WHERE a > 2"
    with SafeDatabase({"t": frame}) as db:
        answer = [row[0] for row in db.run(gold).rows]
        lucky = [
            "SELECT name FROM t WHERE g > 0",
            "SELECT name FROM t WHERE a <> 0 AND a <> 1 AND a <> 2",
            "VALUES " + ", ".join(f"('{name}')" for name in answer),
            " UNION ALL ".join(f"SELECT '{name}'" for name in answer),
        ]
        for pred in lucky:
            assert execution_match(pred, gold, db)
        found = [execution_match(pred, gold, db, mode="suite") for pred in lucky]
        assert found == [False, True, False, False]  # no value below 0 is drawn: the second is right on whole numbers
        for same in (
            "SELECT x.name FROM t AS x WHERE 2 < x.a",
            "SELECT name FROM t WHERE NOT a <= 2 AND a IS NOT NULL",
        ):
            assert execution_match(same, gold, db, mode="suite")


def test_changed_copies_are_the_same_each_time_and_leave_the_tables_alone(db):
    tables = {"t": pd.DataFrame({"a": range(200), "b": [0.5] * 200, "c": ["x"] * 200})}
    before = tables["t"].copy()
    one, two = (changed_tables(tables, ["SELECT c FROM t WHERE a > 7.0 AND b < 3"], seed=s) for s in (4, 4))
    other = changed_tables(tables, ["SELECT c FROM t WHERE a > 7.0 AND b < 3"], seed=5)
    assert all(x["t"].equals(y["t"]) for x, y in zip(one, two, strict=True))
    assert not one[0]["t"].equals(other[0]["t"])
    pd.testing.assert_frame_equal(tables["t"], before)
    for copy in one:
        assert len(copy["t"]) == 140
        assert 0.005 < copy["t"]["c"].isna().mean() < 0.15
        assert {6, 7, 8} <= set(copy["t"]["a"])
        assert {2, 3, 4} <= set(copy["t"]["b"])
        assert set(copy["t"]["c"].dropna()) == {"x"}
    copies = changed_copies(db, "SELECT a FROM t", copies=2)
    assert [copy.run("SELECT count(*) FROM t").rows for copy in copies] == [((4,),), ((4,),)]
    for copy in copies:
        copy.close()
    with pytest.raises(InputError, match="no table"):
        changed_copies(db, "SELECT 1")


def test_a_large_table_is_read_at_even_distances(tmp_path):
    big = pd.DataFrame({"a": range(30_000)})
    with SafeDatabase({"t": big}) as db:
        (copy,) = changed_copies(db, "SELECT a FROM t WHERE a < 10", copies=1)
        with copy:
            n, most = copy.run("SELECT count(*), max(a) FROM t").rows[0]
    assert n == 5000
    assert most > 29_000
