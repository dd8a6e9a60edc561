"""The canonical tree and the largest connected subtree: counted by hand, by brute force, and as properties."""

import itertools
import random

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import InputError
from assay.reasoning.sqlparts import SqlParseError, Tree, canonical, complexity, decompose, mcs, mcs_score
from assay.reasoning.sqlparts.database import Schema, Table

SAME = [
    ("SELECT A FROM T WHERE B > 1", "select a from t where b > 1"),
    (
        "SELECT T1.a, count(1) AS n FROM t AS T1 JOIN u T2 ON T1.id = T2.id WHERE T2.x BETWEEN 1 AND 3 "
        "GROUP BY T1.a ORDER BY n DESC LIMIT 3",
        "select p.a, COUNT(*) from u q, t p where q.id = p.id and q.x >= 1.0 and not q.x > 3 group by 1 "
        "order by 2 desc limit 3;",
    ),
    (
        "WITH c AS (SELECT a, avg(b) m FROM t GROUP BY a) SELECT a FROM c WHERE m > 2",
        "SELECT z.a FROM (SELECT t.a, avg(t.b) AS q FROM t GROUP BY t.a) z WHERE z.q > 2",
    ),
    ("SELECT a.x FROM t a JOIN t b ON a.id = b.pid", "SELECT b.x FROM t a JOIN t b ON b.id = a.pid"),
    ("SELECT x FROM t WHERE NOT (a = 1 OR b < 2)", "SELECT x FROM t WHERE a <> 1 AND 2 <= b"),
    ("SELECT x FROM t WHERE a IN (1)", "SELECT x FROM t WHERE 1 = a"),
    ("SELECT x FROM t WHERE a = -1.0 AND b IN (2, 1)", "SELECT x FROM t WHERE b IN (1.0, 2.00) AND (-1) = a"),
    ("SELECT x FROM t LIMIT 10 OFFSET 5", "SELECT x FROM t LIMIT 5, 10"),
    ("SELECT * FROM (a JOIN b ON a.x = b.x)", "SELECT * FROM a JOIN b ON a.x = b.x"),
    ("SELECT * FROM c, ((a JOIN b ON a.x = b.x) JOIN d)", "SELECT * FROM d, c, a, b WHERE b.x = a.x"),
    ("SELECT x FROM t WHERE a IN (1, 2)", "SELECT x FROM t WHERE (a IN (2, 1)) -- so"),
    ("SELECT x FROM t WHERE NOT a BETWEEN 1 AND 2", "SELECT x FROM t WHERE a < 1 OR a > 2"),
    ("SELECT a FROM t UNION SELECT b FROM u UNION SELECT c FROM v", "SELECT c FROM v UNION SELECT b FROM u UNION SELECT a FROM t"),  # noqa: E501
    (
        "SELECT x FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
        "SELECT q.x FROM t q WHERE EXISTS (SELECT 1 FROM u w WHERE q.id = w.id)",
    ),
]  # fmt: skip

OTHER = [
    ("SELECT a FROM t", "SELECT DISTINCT a FROM t"),
    ("SELECT a, b FROM t", "SELECT b, a FROM t"),
    ("SELECT a FROM t ORDER BY a", "SELECT a FROM t ORDER BY a DESC"),
    ("SELECT a FROM t ORDER BY a, b", "SELECT a FROM t ORDER BY b, a"),
    ("SELECT a FROM t WHERE a < b", "SELECT a FROM t WHERE b < a"),
    ("SELECT a FROM t WHERE a = 1 AND b = 2", "SELECT a FROM t WHERE a = 1 OR b = 2"),
    ("SELECT a FROM t WHERE a = '1'", "SELECT a FROM t WHERE a = 1"),
    ("SELECT a FROM t EXCEPT SELECT a FROM u", "SELECT a FROM u EXCEPT SELECT a FROM t"),
    ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a FROM t UNION ALL SELECT a FROM u"),
    ("SELECT a FROM t UNION SELECT a FROM u", "SELECT a FROM u EXCEPT SELECT a FROM t"),
    ("SELECT t.a FROM t LEFT JOIN u ON t.i = u.i", "SELECT t.a FROM t JOIN u ON t.i = u.i"),
    ("SELECT a / 2 FROM t", "SELECT a / 2.0 FROM t"),
    ("SELECT a / (2) FROM t", "SELECT a / (2.0) FROM t"),
    ("SELECT a / -2 FROM t", "SELECT a / -2.0 FROM t"),
    (
        "SELECT sum(CASE WHEN a = 1 THEN 1 ELSE 0 END) / count(*) FROM t",
        "SELECT sum(CASE WHEN a = 1 THEN 1.0 ELSE 0 END) / count(*) FROM t",
    ),
    ("SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY a)", "SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY b)"),
    ("SELECT a FROM t WHERE a IN u", "SELECT a FROM t WHERE a IN v"),
    ("SELECT * FROM (a JOIN b ON a.x = b.x)", "SELECT * FROM (c JOIN b ON c.x = b.x)"),
    (
        "SELECT * FROM c LEFT JOIN (a JOIN b ON a.x = 1) ON c.y = a.y",
        "SELECT * FROM c LEFT JOIN (a JOIN b ON a.x = 2) ON c.y = a.y",
    ),
    ("SELECT count(a) FROM t", "SELECT count(*) FROM t"),
    ("SELECT count(a) FROM t", "SELECT count(DISTINCT a) FROM t"),
    ("SELECT a FROM t LIMIT 1", "SELECT a FROM t LIMIT 1 OFFSET 1"),
    ("SELECT t.a FROM t JOIN u ON t.i = u.i", "SELECT u.a FROM t JOIN u ON t.i = u.i"),
]


def test_sizes_and_scores_counted_by_hand():
    one = "SELECT a FROM t"
    assert canonical(one).size == 5
    assert mcs_score(one, one) == 1
    assert mcs_score("SELECT b FROM t", one) == 0.8
    few, more = "SELECT a FROM t WHERE x>1", "SELECT a FROM t WHERE 1<x AND y=2"
    assert canonical(few).size == 10
    assert canonical(more).size == 13
    assert mcs_score(few, more) == pytest.approx(20 / 23)
    assert mcs_score(few, more, norm="pred") == 1
    assert mcs_score(few, more, norm="gold") == pytest.approx(10 / 13)


@pytest.mark.parametrize(("left", "right"), SAME)
def test_what_means_nothing_does_not_count(left, right):
    assert mcs_score(left, right) == 1


@pytest.mark.parametrize(("left", "right"), OTHER)
def test_what_means_something_counts(left, right):
    score = mcs_score(left, right)
    assert 0 < score < 1
    assert score == mcs_score(right, left)


@pytest.mark.parametrize(
    ("dialect", "left", "right"),
    [
        ("postgres", "SELECT DISTINCT ON (a) a, b FROM t", "SELECT DISTINCT ON (b) a, b FROM t"),
        ("postgres", "SELECT DISTINCT ON (a) a, b FROM t GROUP BY a, b", "SELECT a, b FROM t GROUP BY a, b"),
        ("postgres", "(SELECT a FROM t LIMIT 5) LIMIT 1", "(SELECT a FROM t LIMIT 5) LIMIT 2"),
        ("postgres", "(SELECT a FROM t) LIMIT 1", "SELECT a FROM t"),
        ("snowflake", "SELECT a FROM t QUALIFY rank() OVER (ORDER BY a) = 1", "SELECT a FROM t"),
        ("duckdb", "SELECT a FROM t TABLESAMPLE (10 PERCENT)", "SELECT a FROM t"),
        ("duckdb", "SELECT TRY_CAST(a AS INT) FROM t", "SELECT CAST(a AS INT) FROM t"),
    ],
)
def test_what_only_other_dialects_have_counts_too(dialect, left, right):
    assert 0 < mcs_score(left, right, dialect=dialect) < 1
    assert mcs_score(left, left, dialect=dialect) == 1


def test_a_tree_of_the_parser_is_left_as_it_was():
    query = sqlglot.parse_one(
        "SELECT a FROM (t JOIN u ON t.i = u.i) WHERE b BETWEEN 1 AND 2 AND a > 3 AND NOT c = 4 AND d IN (5)",
        read="sqlite",
    )
    before = [(id(node), id(node.parent)) for node in query.walk()]
    assert mcs_score(query, query) == 1
    decompose(query)
    complexity(query)
    assert before == [(id(node), id(node.parent)) for node in query.walk()]


def test_a_schema_gives_columns_their_table():
    schema = Schema({"t": Table("t", (("a", ""), ("i", ""))), "u": Table("u", (("b", ""), ("i", "")))})
    bare, said = (
        "SELECT a FROM t JOIN u ON t.i = u.i WHERE b > 1",
        "SELECT t.a FROM t JOIN u ON t.i = u.i WHERE u.b > 1",
    )
    assert mcs_score(bare, said) < 1
    assert mcs_score(bare, said, schema=schema) == 1
    assert mcs_score('SELECT a FROM t WHERE a = "x"', "SELECT a FROM t WHERE a = 'x'", schema=schema) == 1


def tree_of(rng: random.Random, most: int) -> Tree:
    label = rng.choice("abc")
    children: list[Tree] = []
    left = rng.randrange(most)
    while left > 0:
        child = tree_of(rng, left)
        children.append(child)
        left -= child.size
    # As in queries, a kind always has or always lacks an order.
    return Tree(label, tuple(children), unordered=label != "a")


def brute(a: Tree, b: Tree) -> int:
    """Every way to match children, tried."""

    def rooted(u: Tree, v: Tree) -> int:
        if u.label != v.label:
            return 0
        best = 0
        for k in range(min(len(u.children), len(v.children)) + 1):
            for us in itertools.combinations(u.children, k):
                ways = itertools.permutations if u.unordered else itertools.combinations
                for vs in ways(v.children, k):
                    best = max(best, sum(rooted(x, y) for x, y in zip(us, vs, strict=True)))
        return 1 + best

    return max(rooted(u, v) for u in a.nodes() for v in b.nodes())


def test_the_match_is_the_largest_there_is():
    rng = random.Random(5)
    for _ in range(300):
        a, b = tree_of(rng, 7), tree_of(rng, 7)
        match = mcs(a, b)
        assert match.score == brute(a, b) == mcs(b, a).score
        assert len(match.pairs) == match.score == len({u for u, _ in match.pairs}) == len({v for _, v in match.pairs})
        left, right = list(a.nodes()), list(b.nodes())
        assert all(left[u].label == right[v].label for u, v in match.pairs)
        if match.pairs:
            parent_a, parent_b = parents(a), parents(b)
            others = [p for p in match.pairs if p != (match.root_a, match.root_b)]
            assert all((parent_a[u], parent_b[v]) in match.pairs for u, v in others)


def parents(tree: Tree) -> dict[int, int]:
    return {child: place for place, children in enumerate(tree.flat.children) for child in children}


COLUMNS = st.sampled_from(["a", "b", "c", "d"])
CONDITION = st.tuples(COLUMNS, st.sampled_from(["<", "<=", "=", "<>"]), st.integers(0, 5))


@settings(max_examples=200, deadline=None)
@given(st.lists(CONDITION, min_size=1, max_size=5, unique=True), st.randoms(use_true_random=False), COLUMNS)
def test_rewriting_conditions_never_counts_and_adding_a_right_one_never_hurts(conditions, rng, column):
    turned = {"<": ">", "<=": ">=", "=": "=", "<>": "<>"}
    negated = {"<": ">=", "<=": ">", "=": "!=", "<>": "="}
    plain = [f"{c} {op} {n}" for c, op, n in conditions]
    others = []
    for c, op, n in conditions:
        others.append(rng.choice([f"{n} {turned[op]} x.{c}", f"NOT ({c} {negated[op]} {n}.0)", f"({c} {op} {n})"]))
    rng.shuffle(others)
    gold = f"SELECT {column} FROM t WHERE {' AND '.join(plain)}"
    assert mcs_score(f"SELECT x.{column} AS y FROM t AS x WHERE {' AND '.join(others)}", gold) == 1
    shared = [mcs(canonical(f"SELECT {column} FROM t WHERE {' AND '.join(plain[: k + 1])}"), canonical(gold)).score
              for k in range(len(plain))]  # fmt: skip
    assert shared == sorted(shared)
    assert shared[-1] == canonical(gold).size


def test_queries_that_cannot_be_read_score_zero_and_a_bad_gold_says_where():
    for bad in ("", "  ", "nonsense here", "SELECT", "SELECT 1; SELECT 2", "DROP TABLE t", "PRAGMA x", "SELECT 'a", "(" * 5000,  # noqa: E501
                "SELECT * FROM (", "\0", "SELECT a FROM t WHERE " + "(" * 3000 + "a" + ")" * 3000):  # fmt: skip
        assert mcs_score(bad, "SELECT a FROM t") == 0
        with pytest.raises(SqlParseError):
            mcs_score("SELECT a FROM t", bad)
    with pytest.raises(SqlParseError, match="line 2") as caught:
        canonical("SELECT a\nFROM t WHERE )")
    assert caught.value.line == 2


def test_what_a_model_wrote_is_not_logged_and_others_use_of_the_parser_is(caplog):
    assert mcs_score("DROP INDEX INTO u", "SELECT a FROM t") == mcs_score("EXPLAIN SELECT 1", "SELECT a FROM t") == 0
    assert not caplog.records
    sqlglot.parse("EXPLAIN SELECT 1", read="sqlite")
    assert caplog.records


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match=r"dialect.*sqlite"):
        mcs_score("SELECT 1", "SELECT 1", dialect="sqlit")
    with pytest.raises(InputError, match="norm"):
        mcs_score("SELECT 1", "SELECT 1", norm="jaccard")
    with pytest.raises(TypeError, match="sql"):
        canonical(5)
    wide = "SELECT " + ", ".join(f"c{i}" for i in range(3500)) + " FROM t"
    with pytest.raises(InputError, match="3000"):
        mcs_score(wide, "SELECT c1 FROM t")


def test_levels_by_points():
    assert complexity("SELECT a FROM t WHERE a = 1 AND b = 2 ORDER BY a") == "simple"
    assert complexity("SELECT a FROM t WHERE a = 1 AND b = 2 AND c = 3 ORDER BY a") == "moderate"
    assert complexity("SELECT a FROM t UNION SELECT b FROM u") == "moderate"
    assert complexity("SELECT a FROM t JOIN u ON t.i = u.i GROUP BY a HAVING count(*) > 1 ORDER BY a") == "challenging"


@pytest.mark.parametrize(
    ("query", "level"),
    [
        ("SELECT CASE WHEN a > 1 THEN 1 ELSE 2 END FROM t", "simple"),
        ("SELECT CASE WHEN a > 1 THEN 1 ELSE 2 END FROM t ORDER BY a", "moderate"),
        ("SELECT a, rank() OVER (ORDER BY b) FROM t LIMIT 2", "moderate"),
        ("WITH w AS (SELECT a FROM t) SELECT a FROM w", "moderate"),
        ("WITH w AS (SELECT a FROM t) SELECT a FROM w ORDER BY a LIMIT 1", "challenging"),
    ],
)
def test_each_clause_counts_towards_the_level(query, level):
    assert complexity(query) == level


def test_a_part_says_which_outer_tables_it_needs():
    (part,) = decompose("SELECT a FROM t WHERE b > (SELECT avg(u.b) FROM u WHERE u.k = t.k)")[:1]
    assert part.role == "subquery"
    assert part.depends == ("t",)
    assert decompose("SELECT a FROM t WHERE b > (SELECT avg(b) FROM t)")[0].depends == ()


def test_of_equal_matches_the_first_places_are_taken():
    found = mcs(Tree("x", (Tree("y"), Tree("y"))), Tree("z", (Tree("y"), Tree("y"))))
    assert (found.score, found.root_a, found.root_b) == (1, 1, 1)
