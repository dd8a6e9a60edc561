"""What a model is asked, and what it is taught to answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from sqlglot import exp

from assay.errors import InputError

from .checks import must_be
from .completion import parse_completion
from .fragments import decompose
from .levels import complexity
from .tree import SqlParseError

Ways = Literal["parts", "direct"]
WAYS = ("parts", "direct")
"""Write the parts first, or the query at once."""

_TASK = {
    "parts": (
        "You write SQLite queries. First think inside <think>: name the complexity of the query in <complexity> "
        "(simple, moderate or challenging). For a query that is not simple, write each piece that it rests on, such as "
        "a sub-query, a named query or the joined and filtered tables, as a complete query of its own in <component>, "
        "the innermost first: at least two for a moderate query, three for a challenging one if it has so many. A "
        "simple query has none. Then write the whole query, one SELECT statement, in <sql>. For example:\n"
        "<think><complexity>moderate</complexity><component>SELECT AVG(price) FROM goods</component>"
        "<component>SELECT name FROM goods</component></think>\n"
        "<sql>SELECT name FROM goods WHERE price > (SELECT AVG(price) FROM goods)</sql>"
    ),
    "direct": "You write SQLite queries. Write the query that answers the question, one SELECT statement, in <sql>.",
}  # fmt: skip


def prompt(question: str, schema: str = "", *, mode: Ways = "parts", evidence: str = "") -> list[dict[str, str]]:
    """The messages that ask a model for a query.

    Parameters
    ----------
    question
        What is to be known.
    schema
        The tables, as :meth:`SafeDatabase.schema_text` describes them.
    mode
        ``"parts"``: complexity and components first; ``"direct"``: the query alone.
    evidence
        What else helps: meanings of columns, formulas.

    Raises
    ------
    InputError
        For another mode, or an empty question.

    Examples
    --------
    >>> [message["role"] for message in prompt("How many?", "CREATE TABLE t (a);")]
    ['system', 'user']
    """
    if mode not in WAYS:
        raise InputError(f"mode must be 'parts' or 'direct', got {mode!r}")
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"question must be a text that is not empty, got {question!r}")
    for name, value in (("schema", schema), ("evidence", evidence)):
        must_be(name, value, str, "a text")
    said = [f"Tables:\n{schema.strip()}"] if schema.strip() else []
    said += [f"Known: {evidence.strip()}"] if evidence.strip() else []
    said.append(f"Question: {question.strip()}")
    return [{"role": "system", "content": _TASK[mode]}, {"role": "user", "content": "\n\n".join(said)}]


def completion_of(sql: str | exp.Expression, *, mode: Ways = "parts", dialect: str = "sqlite") -> str:
    """The completion that writes a query as asked for: its complexity, its own parts, and the whole.

    Parameters
    ----------
    sql
        The query.
    mode, dialect
        As in :func:`sft_rows`.

    Raises
    ------
    SqlParseError
        When it cannot be read.
    InputError
        When it holds a tag of the completion's own, for another mode.

    Examples
    --------
    >>> completion_of("SELECT a FROM t")
    '<think><complexity>simple</complexity></think>\\n<sql>SELECT a FROM t</sql>'
    """
    if mode not in WAYS:
        raise InputError(f"mode must be 'parts' or 'direct', got {mode!r}")
    must_be("sql", sql, (str, exp.Expression), "a text or a sqlglot expression")
    text = (sql if isinstance(sql, str) else sql.sql(dialect=dialect)).strip()
    level = complexity(sql, dialect=dialect)
    parts = [part.sql for part in decompose(sql, dialect=dialect)]
    thought = f"<think><complexity>{level}</complexity>" + "".join(f"<component>{p}</component>" for p in parts)
    whole = f"<sql>{text}</sql>"
    written = f"{thought}</think>\n{whole}" if mode == "parts" else whole
    found = parse_completion(written)
    if found.sql != text or (mode == "parts" and found.parts != tuple(parts)):
        raise InputError("sql holds a tag of the completion's own, such as </sql>, or is too long to be taught")
    return written


def sft_rows(
    rows: Sequence[Mapping[str, Any]], *, mode: Ways = "parts", dialect: str = "sqlite"
) -> list[dict[str, list[dict[str, str]]]]:
    """Return conversations to fine-tune a model on: what it is asked, and the right query's parts and text.

    Parameters
    ----------
    rows
        Each with ``question`` and ``sql``; ``schema`` (a text) and ``evidence`` where there are any.
    mode
        ``"parts"``: complexity and the gold query's own components first; ``"direct"``: the query alone.
    dialect
        sqlglot's name of the dialect.

    Returns
    -------
    list of dict
        A row each, with ``messages`` of system, user and assistant.

    Raises
    ------
    InputError
        When a row lacks a question or a query; SqlParseError, one of these, when a query cannot be read. Both say which
        row.
    TypeError
        When rows are no mappings.

    Examples
    --------
    >>> sft_rows([{"question": "Which?", "sql": "SELECT a FROM t"}], mode="direct")[0]["messages"][-1]["content"]
    '<sql>SELECT a FROM t</sql>'
    """
    if mode not in WAYS:
        raise InputError(f"mode must be 'parts' or 'direct', got {mode!r}")
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise TypeError(f"rows must be a list of mappings with question and sql, got {type(rows).__name__}")
    made = []
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"rows must be mappings with question and sql, row {place} is a {type(row).__name__}")
        for name in ("question", "sql"):
            if not isinstance(row.get(name), str) or not row[name].strip():
                raise InputError(f"row {place} needs a text as {name}, got {row.get(name)!r}")
        try:
            asked = prompt(row["question"], _text(row, "schema"), mode=mode, evidence=_text(row, "evidence"))
            answer = completion_of(row["sql"], mode=mode, dialect=dialect)
        except SqlParseError as error:
            raise SqlParseError(f"row {place}: {error}") from None
        except InputError as error:
            raise InputError(f"row {place}: {error}") from None
        made.append({"messages": [*asked, {"role": "assistant", "content": answer}]})
    return made


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""
