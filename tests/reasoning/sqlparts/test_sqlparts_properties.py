"""What holds for queries of every shape: the score's range, its symmetry, what it does not see, and the parts."""

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from assay.reasoning.sqlparts import (
    Tree,
    canonical,
    complexity,
    components_score,
    decompose,
    mcs,
    mcs_score,
    parse_completion,
    reward_breakdown,
    sft_rows,
)

COLUMNS = st.sampled_from(["a", "b", "c", "d"])
TABLES = st.sampled_from(["t", "u", "v"])
NUMBERS = st.integers(0, 9)


@st.composite
def queries(draw, deep=2, grouped=True):
    """A query of one or two tables, with conditions, sub-queries, grouping, order, and set operations."""
    kind = draw(st.integers(0, 5)) if deep else 0
    if kind == 5:
        word = draw(st.sampled_from(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]))
        arms = [f"SELECT {draw(COLUMNS)} FROM {draw(TABLES)} WHERE {draw(conditions())}" for _ in range(2)]
        return f"{arms[0]} {word} {arms[1]}"
    table = draw(TABLES)
    joined = draw(st.booleans())
    other = draw(TABLES)
    pre = ("x.", "y.") if joined else ("", "")
    source = f"{table} AS x JOIN {other} AS y ON x.a = y.{draw(COLUMNS)}" if joined else table
    where = [draw(conditions(pre[draw(st.integers(0, 1))])) for _ in range(draw(st.integers(0, 3)))]
    if deep and draw(st.booleans()):
        inner = draw(queries(deep=deep - 1, grouped=False))
        where.append(draw(st.sampled_from([f"{pre[0]}b IN ({inner})", f"EXISTS ({inner})"])))
    text = f" FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")
    key = pre[0] + draw(COLUMNS)
    if grouped and draw(st.booleans()):
        text = f"SELECT {key}, COUNT(*){text} GROUP BY {key}"
        text += draw(st.sampled_from(["", " HAVING COUNT(*) > 2", " ORDER BY COUNT(*) DESC"]))
    else:
        distinct = draw(st.sampled_from(["", "DISTINCT "]))
        text = f"SELECT {distinct}{key}{text}" + draw(st.sampled_from(["", f" ORDER BY {key}", " LIMIT 3"]))
    if deep == 2 and draw(st.booleans()):
        text = (
            f"WITH w AS (SELECT a, b FROM {other} WHERE {draw(conditions())}) SELECT w.a FROM w WHERE w.a IN ({text})"
        )
    return text


@st.composite
def conditions(draw, prefix=""):
    column, number = prefix + draw(COLUMNS), draw(NUMBERS)
    return draw(
        st.sampled_from(
            [
                f"{column} > {number}",
                f"{column} <= {number}",
                f"{column} = 'x{number}'",
                f"{column} BETWEEN {number} AND {number + 3}",
                f"({column} = {number} OR {column} IS NULL)",
                f"NOT {column} = {number}",
                f"{column} + 1 < {number}",
                f"{column} IN ({number}, 77)",
                f"{column} LIKE '%{number}%'",
            ]
        )
    )


@settings(max_examples=60, deadline=None)
@given(queries(), queries())
def test_a_score_lies_between_0_and_1_is_symmetric_and_1_for_the_same(one, other):
    score = mcs_score(one, other)
    assert 0 <= score <= 1
    assert score == mcs_score(other, one)
    assert mcs_score(one, one) == mcs_score(other, other) == 1
    assert mcs_score(one, other, norm="gold") == pytest.approx(mcs_score(other, one, norm="pred"))
    assert (score == 1) == (canonical(one) == canonical(other)) or "x JOIN" in one  # a self-join may be renumbered


@settings(max_examples=200, deadline=None)
@given(queries(), st.randoms(use_true_random=False))
def test_a_rewrite_that_means_the_same_scores_1(query, rng):
    again = rewritten(query, rng)
    assert mcs_score(again, query) == 1, again
    assert complexity(again) == complexity(query)


def rewritten(query, rng):
    """Other aliases, operands turned round, brackets and comments: by sqlglot, and not by what is tested."""
    tree = sqlglot.parse_one(query, read="sqlite")
    for select in list(tree.find_all(exp.Select)):
        names = {"x": f"q{rng.randrange(99)}", "y": f"r{rng.randrange(99)}"}
        for table in select.find_all(exp.Table):
            if table.alias in names:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(names[table.alias])))
        for column in select.find_all(exp.Column):
            if column.table in names:
                column.set("table", exp.to_identifier(names[column.table]))
    turned = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ}
    for node in list(tree.find_all(*turned)):
        if rng.random() < 0.5:
            node.replace(exp.Paren(this=turned[type(node)](this=node.expression.copy(), expression=node.this.copy())))
    for node in list(tree.find_all(exp.And, exp.Or)):
        if rng.random() < 0.5:
            node.replace(type(node)(this=node.expression.copy(), expression=node.this.copy()))
    text = tree.sql(dialect="sqlite", comments=False)
    return f"/* {rng.randrange(9)} */ ({text}) -- so" if rng.random() < 0.3 else text + ";" * rng.randrange(3)


@settings(max_examples=200, deadline=None)
@given(queries())
def test_every_part_of_a_query_is_contained_in_it_and_all_parts_score_1(query):
    parts = decompose(query)
    for part in parts:
        assert mcs_score(part.sql, query, norm="pred") == 1, part
    texts = [part.sql for part in parts]
    assert components_score(texts, query).f1 == 1
    assert bool(parts) <= (complexity(query) != "simple")
    (row,) = sft_rows([{"question": "?", "sql": query}])
    back = parse_completion(row["messages"])
    assert back.sql == query
    assert list(back.parts) == texts
    assert back.level == complexity(query)
    assert back.format_ok
    assert reward_breakdown(row["messages"], query)["total"] == 1


@settings(max_examples=40, deadline=None)
@given(queries(), conditions(), TABLES)
def test_a_further_right_conjunct_or_source_never_lowers_what_is_shared(query, condition, table):
    base = f"SELECT a FROM {table} WHERE b IN ({query})"
    more = f"{base} AND {condition}"
    gold = f"SELECT a FROM {table} WHERE b IN ({query}) AND c < 5 AND {condition}"
    assert mcs(canonical(base), canonical(gold)).score <= mcs(canonical(more), canonical(gold)).score
    assert mcs_score(base, gold, norm="pred") == mcs_score(more, gold, norm="pred") == 1


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_scores_from_0_to_1_or_is_no_query(text):
    assert 0 <= mcs_score(text, "SELECT a FROM t") <= 1
    found = parse_completion(text)
    assert found.format_ok == (not found.errors)


def test_a_tree_of_many_nodes_in_a_row_is_matched_without_recursion():
    conditions_ = " AND ".join(f"c{i} > {i}" for i in range(100))
    wide = f"SELECT a FROM t WHERE {conditions_}"
    assert mcs_score(wide, wide.replace("c7 ", "z ")) > 0.98
    chain = Tree("x")
    for _ in range(2900):  # more than Python's own limit of calls within calls
        chain = Tree("n", (chain,))
    assert mcs(chain, Tree("n", (chain,))).score == chain.size
