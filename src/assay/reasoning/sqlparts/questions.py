"""Questions on flights of three levels with the queries that answer them; what the study teaches small models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .levels import LEVELS, Level

Rng = np.random.Generator


@dataclass(frozen=True)
class Question:
    """A question, the query that answers it, and how complex that is."""

    text: str
    sql: str
    level: Level


_MEASURES = {
    "departure delay": "dep_delay",
    "arrival delay": "arr_delay",
    "air time": "air_time",
    "distance": "distance",
}
_GROUPS = {"airline": "carrier", "start": "origin", "target": "dest", "month": "month"}
_FUNCTIONS = {"mean": "AVG", "largest": "MAX", "smallest": "MIN", "total": "SUM"}
_ORIGINS = ("EWR", "JFK", "LGA")
_CARRIERS = ("AA", "B6", "DL", "EV", "UA", "US", "WN")


def _one(rng: Rng, among: dict[str, str]) -> tuple[str, str]:
    word = str(rng.choice(list(among)))
    return word, among[word]


def _condition(rng: Rng) -> tuple[str, str]:
    kind = int(rng.integers(5))
    if kind == 0:
        origin = str(rng.choice(_ORIGINS))
        return f"from {origin}", f"origin = '{origin}'"
    if kind == 1:
        carrier = str(rng.choice(_CARRIERS))
        return f"by {carrier}", f"carrier = '{carrier}'"
    if kind == 2:
        month = int(rng.integers(1, 13))
        return f"in {month}", f"month = {month}"
    if kind == 3:
        miles = 200 * int(rng.integers(1, 9))
        return f"beyond {miles}", f"distance > {miles}"
    minutes = 10 * int(rng.integers(0, 6))
    return f"late by {minutes}", f"dep_delay > {minutes}"


def _two(rng: Rng) -> tuple[str, str]:
    while True:
        (a, x), (b, y) = _condition(rng), _condition(rng)
        if x.split()[0] != y.split()[0]:
            return f"{a} and {b}", f"{x} AND {y}"


def _some(rng: Rng) -> tuple[str, str]:
    return _two(rng) if rng.random() < 0.5 else _condition(rng)


def _listed(rng: Rng) -> tuple[str, str]:
    (g, column), (c, where) = _one(rng, _GROUPS), _some(rng)
    return f"which {g} for flights {c}", f"SELECT DISTINCT {column} FROM flights WHERE {where}"


def _computed(rng: Rng) -> tuple[str, str]:
    (f, function), (m, column), (c, where) = _one(rng, _FUNCTIONS), _one(rng, _MEASURES), _some(rng)
    return f"{f} {m} for flights {c}", f"SELECT {function}({column}) FROM flights WHERE {where}"


def _counted(rng: Rng) -> tuple[str, str]:
    c, where = _two(rng)
    return f"how many flights {c}", f"SELECT COUNT(*) FROM flights WHERE {where}"


def _grouped(rng: Rng) -> tuple[str, str]:
    (g, key), (f, function), (m, column) = _one(rng, _GROUPS), _one(rng, _FUNCTIONS), _one(rng, _MEASURES)
    c, where = _condition(rng)
    return (
        f"{f} {m} per {g} in order for flights {c}",
        f"SELECT {key}, {function}({column}) FROM flights WHERE {where} GROUP BY {key} ORDER BY {key}",
    )


def _frequent(rng: Rng) -> tuple[str, str]:
    (g, key), (c, where), n = _one(rng, _GROUPS), _some(rng), int(rng.integers(1, 10))
    return (
        f"which {g} has over {n} flights {c}",
        f"SELECT {key} FROM flights WHERE {where} GROUP BY {key} HAVING COUNT(*) > {n}",
    )


def _above(rng: Rng) -> tuple[str, str]:
    (m, column), (c, where), (d, inner) = _one(rng, _MEASURES), _condition(rng), _condition(rng)
    return (
        f"flights {c} whose {m} is above the mean for flights {d}",
        f"SELECT flight FROM flights WHERE {where} AND {column} > (SELECT AVG({column}) FROM flights WHERE {inner})",
    )


def _between(rng: Rng) -> tuple[str, str]:
    """The inner query is needed twice."""
    (m, column), (c, where) = _one(rng, _MEASURES), _some(rng)
    f, low = _one(rng, _FUNCTIONS)
    inner = f"(SELECT {low}({column}) FROM flights WHERE {where})"
    return (
        f"flights whose {m} is between the {f} for flights {c} and twice that",
        f"SELECT flight FROM flights WHERE {column} > {inner} AND {column} < 2 * {inner}",
    )


def _groups_above(rng: Rng) -> tuple[str, str]:
    (g, key), (f, function), (m, column) = _one(rng, _GROUPS), _one(rng, _FUNCTIONS), _one(rng, _MEASURES)
    (c, where), (d, inner) = _condition(rng), _condition(rng)
    return (
        f"which {g} for flights {c} has a {f} {m} above that for flights {d}",
        f"SELECT {key} FROM flights WHERE {where} GROUP BY {key} "
        f"HAVING {function}({column}) > (SELECT {function}({column}) FROM flights WHERE {inner})",
    )


def _without(rng: Rng) -> tuple[str, str]:
    (g, key), (c, where), (d, other), n = _one(rng, _GROUPS), _condition(rng), _condition(rng), int(rng.integers(1, 10))
    return (
        f"which {g} has over {n} flights {c} and none {d}",
        f"SELECT {key} FROM flights WHERE {where} GROUP BY {key} HAVING COUNT(*) > {n} "
        f"EXCEPT SELECT {key} FROM flights WHERE {other}",
    )


_KINDS: dict[Level, tuple[Callable[[Rng], tuple[str, str]], ...]] = {
    "simple": (_listed, _computed, _counted),
    "moderate": (_grouped, _frequent, _above),
    "challenging": (_between, _groups_above, _without),
}


def questions(rng: Rng, n: int) -> list[Question]:
    """Different questions, the three levels in turn, and of each level its kinds in turn."""
    found: dict[str, Question] = {}
    turn = 0
    while len(found) < n:
        level = LEVELS[turn % 3]
        text, sql = _KINDS[level][turn // 3 % 3](rng)
        if text not in found:
            found[text] = Question(text, sql, level)
            turn += 1
    return list(found.values())


__all__ = ["Question", "questions"]
