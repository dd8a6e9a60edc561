"""A model's completion: its complexity, its components and its query, whatever else it may have written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.parts.trl import completion_text

from .levels import LEVELS, Level

MOST_CHARACTERS = 100_000
"""Of a completion; what comes after is not read."""

_FENCE = re.compile(r"```[ \t]*sql[ \t]*\n", re.IGNORECASE)


@dataclass(frozen=True)
class Completion:
    """What a model has written.

    Attributes
    ----------
    level
        The complexity that it names, or None.
    parts
        Its components, in order.
    sql
        Its query, or None; the last where there are several.
    format_ok
        Whether it is written exactly as asked for.
    errors
        What is not as asked for.
    """

    level: Level | None
    parts: tuple[str, ...]
    sql: str | None
    format_ok: bool
    errors: tuple[str, ...]


def parse_completion(text: str | Sequence[Mapping[str, Any]]) -> Completion:
    """Read a completion.

    Asked for is ``<think><complexity>…</complexity><component>…</component>… </think><sql>…</sql>``; a fenced
    block of ``sql`` may stand in place of ``<sql>``. A simple query has no components; whether another has as many as
    it should is for :func:`components_score` to say, since some cannot be taken apart.

    Parameters
    ----------
    text
        A text, or chat messages, of which the assistant's last is read.

    Returns
    -------
    Completion
        For any text; what is wrong stands in its ``errors``.

    Raises
    ------
    InputError
        For what is neither a text nor messages.

    Examples
    --------
    >>> found = parse_completion("<think><complexity>simple</complexity></think><sql>SELECT 1</sql>")
    >>> found.level, found.sql, found.format_ok
    ('simple', 'SELECT 1', True)
    """
    said = completion_text(text)
    errors = []
    if len(said) > MOST_CHARACTERS:
        errors.append(f"longer than {MOST_CHARACTERS} characters")
        said = said[:MOST_CHARACTERS]
    thought, rest = _split(said, errors)
    names = _between(thought, "complexity")
    named = names[-1].strip().lower() if names else ""
    level: Level | None = next((known for known in LEVELS if known == named), None)
    if len(names) != 1 or level is None:
        errors.append(f"one complexity of {', '.join(LEVELS)} must stand in <complexity>")
    parts = tuple(part.strip() for part in _between(thought, "component"))
    if not all(parts):
        errors.append("a component is empty")
    if thought.count("<component>") != len(parts) or thought.count("</component>") != len(parts):
        errors.append("a component is not closed")
    queries = _queries(rest)
    if len(queries) != 1:
        errors.append(f"one query must stand in <sql> behind the thinking, found {len(queries)}")
    sql = queries[-1].strip() if queries else None
    if sql is not None and not sql:
        errors.append("the query is empty")
        sql = None
    if level == "simple" and parts:
        errors.append("a simple query has no components")
    return Completion(level, tuple(p for p in parts if p), sql, not errors, tuple(errors))


def _split(said: str, errors: list[str]) -> tuple[str, str]:
    """What stands inside <think> and what stands behind it."""
    if said.count("<think>") != 1 or said.count("</think>") != 1 or not said.lstrip().startswith("<think>"):
        errors.append("one <think>…</think> must stand first")
    start, end = said.find("<think>"), said.rfind("</think>")
    if end < 0:
        return said, said
    return said[start + len("<think>") if 0 <= start < end else 0 : end], said[end + len("</think>") :]


def _between(said: str, tag: str) -> list[str]:
    """What stands in each pair of tags; a pair never reaches over another opening tag."""
    found, at = [], 0
    opening, closing = f"<{tag}>", f"</{tag}>"
    while (end := said.find(closing, at)) >= 0:
        start = said.rfind(opening, at, end)
        if start >= 0:
            found.append(said[start + len(opening) : end])
        at = end + len(closing)
    return found


def _queries(said: str) -> list[str]:
    tagged = _between(said, "sql")
    if tagged:
        return tagged
    found, at = [], 0
    while (start := _FENCE.search(said, at)) and (end := said.find("```", start.end())) >= 0:
        found.append(said[start.end() : end])
        at = end + 3
    return found
