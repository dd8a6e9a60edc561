"""What an agent may do: the grammar, its parser, and what each action makes of a model."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from .model import LinearModel

LOOKS = ("GET_IIS", "CHECK_SLACK", "DIAGNOSE")
EDITS = ("RELAX", "DROP", "SET_RHS", "FLIP", "SET_COEF", "SET_BOUNDS", "SET_TYPE")
OTHERS = ("RESET", "SUBMIT")
_JSON = json.JSONDecoder()
LARGEST = 1e15
"""Larger numbers HiGHS refuses, or takes for infinite."""
TYPES = ("integer", "continuous", "binary")
GRAMMAR = """GET_IIS
CHECK_SLACK row
DIAGNOSE row1, row2
RELAX row by 3.5
DROP row
SET_RHS row 40
FLIP row
SET_COEF row col 2.5 col2 -4
SET_BOUNDS col lo hi
SET_TYPE col integer|continuous|binary
RESET
SUBMIT"""


@dataclass(frozen=True)
class Action:
    """One action.

    Attributes
    ----------
    kind
        GET_IIS, CHECK_SLACK, DIAGNOSE, RELAX, DROP, SET_RHS, FLIP, SET_COEF, SET_BOUNDS, SET_TYPE, RESET or SUBMIT.
    target
        The row, or for SET_BOUNDS and SET_TYPE the column.
    values
        The numbers: the amount of RELAX, the side of SET_RHS, the coefficients of SET_COEF, the two bounds.
    names
        The rows of DIAGNOSE, the columns of SET_COEF, the type of SET_TYPE.
    """

    kind: str
    target: str = ""
    values: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        def quoted(name: str) -> str:
            return shlex.quote(name) if not re.fullmatch(r"[^\s,'\"]+", name) else name

        if self.kind == "DIAGNOSE":
            return "DIAGNOSE " + ", ".join(quoted(n) for n in self.names)
        if self.kind == "RELAX":
            return f"RELAX {quoted(self.target)} by {self.values[0]!r}"
        if self.kind == "SET_COEF":
            pairs = " ".join(f"{quoted(n)} {v!r}" for n, v in zip(self.names, self.values, strict=True))
            return f"SET_COEF {quoted(self.target)} {pairs}"
        words = [self.kind, quoted(self.target) if self.target else "", *self.names, *(repr(v) for v in self.values)]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class ParseError:
    """Why a text is no action."""

    why: str


def parse_action(text: str) -> Action | ParseError:
    """Return the last valid action that stands in a text: on a line of its own, or as a JSON object.

    Parameters
    ----------
    text
        What a model said. Keywords in any case; names in quotes where they hold spaces.

    Returns
    -------
    Action or ParseError
        Never raises, whatever the text holds.

    Examples
    --------
    >>> parse_action("I think row cap_3 points the wrong way.\\nflip cap_3")
    Action(kind='FLIP', target='cap_3', values=(), names=())
    >>> parse_action('{"action": "RELAX", "target": "cap_3", "value": 3.5}').values
    (3.5,)
    """
    if not isinstance(text, str):
        return ParseError(f"an action must be text, got {type(text).__name__}")
    text = text[:20_000]
    found: list[tuple[int, Action]] = []
    why = "there is no action in it"
    end = -1
    for match in list(re.finditer(r"\{", text))[:200]:
        if match.start() < end:
            continue  # inside an object that was read already
        try:
            held, end = _JSON.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        one = _from_json(held)
        if isinstance(one, Action):
            found.append((match.start(), one))
        elif one is not None:
            why = one.why
    at = 0
    for line in text.splitlines(keepends=True):
        one = _from_line(line.strip().strip("`*").strip())
        if isinstance(one, Action):
            found.append((at, one))
        elif one is not None:
            why = one.why
        at += len(line)
    return max(found, key=lambda pair: pair[0])[1] if found else ParseError(why)


def _from_line(line: str) -> Action | ParseError | None:
    head = line.split(maxsplit=1)
    if not head or head[0].upper().rstrip(":") not in (*LOOKS, *EDITS, *OTHERS):
        return None
    kind = head[0].upper().rstrip(":")
    try:
        words = shlex.split(head[1].replace(",", " ") if len(head) > 1 else "")
    except ValueError as error:
        return ParseError(f"{kind}: {error}")
    return _action(kind, words)


def _from_json(held: Any) -> Action | ParseError | None:
    if not isinstance(held, dict) or not isinstance(held.get("action"), str):
        return None
    kind = held["action"].upper()
    if kind not in (*LOOKS, *EDITS, *OTHERS):
        return ParseError(f"there is no action {held['action']!r}")
    words: list[str] = []
    for key in ("target", "value"):
        value = held.get(key)
        if isinstance(value, dict):
            value = [word for pair in value.items() for word in pair]
        values = value if isinstance(value, list) else [] if value is None else [value]
        words += [str(one) for one in values]
    return _action(kind, words)


def _action(kind: str, words: list[str]) -> Action | ParseError:
    if kind in ("GET_IIS", *OTHERS):
        return ParseError(f"{kind} takes nothing") if words else Action(kind)
    if not words:
        return ParseError(f"{kind} needs a name")
    if kind == "DIAGNOSE":
        return Action(kind, names=tuple(dict.fromkeys(words)))
    target, rest = words[0], words[1:]
    if kind in ("CHECK_SLACK", "DROP", "FLIP"):
        return ParseError(f"{kind} takes one row") if rest else Action(kind, target)
    if kind == "RELAX":
        rest = rest[1:] if rest and rest[0].lower() == "by" else rest
    if kind == "SET_TYPE":
        if len(rest) != 1 or rest[0].lower() not in TYPES:
            return ParseError(f"SET_TYPE takes a column and one of {', '.join(TYPES)}")
        return Action(kind, target, names=(rest[0].lower(),))
    names: tuple[str, ...] = ()
    if kind == "SET_COEF":
        if len(rest) < 2 or len(rest) % 2:
            return ParseError("SET_COEF takes a row and pairs of a column and a number")
        names, rest = tuple(rest[::2]), rest[1::2]
    wanted = {"RELAX": 1, "SET_RHS": 1, "SET_BOUNDS": 2, "SET_COEF": len(names)}[kind]
    if len(rest) != wanted:
        return ParseError(f"{kind} takes a name and {wanted} number{'s' if wanted > 1 else ''}")
    try:
        values = tuple(float(word) for word in rest)
    except ValueError:
        return ParseError(f"{kind}: {' '.join(rest)} is no number")
    if any(math.isnan(v) or (math.isinf(v) and kind != "SET_BOUNDS") for v in values):
        return ParseError(f"{kind}: numbers must be finite")
    return Action(kind, target, values, names)


def apply(model: LinearModel, action: Action) -> LinearModel:
    """Return the model after an editing action.

    Raises
    ------
    KeyError
        For a row or column that there is not.
    ValueError
        For an edit that makes no sense there, such as flipping an equality.
    """
    if any(np.isfinite(value) and abs(value) >= LARGEST for value in action.values):
        raise ValueError(f"{action.kind}: numbers must be below {LARGEST:g} in size")
    if action.kind in ("SET_BOUNDS", "SET_TYPE"):
        col = model.col(action.target)
        if action.kind == "SET_BOUNDS":
            lo, up = action.values
            if lo == np.inf or up == -np.inf:
                raise ValueError(f"SET_BOUNDS: {lo} and {up} leave nothing between them")
            return model.with_column(col, lo, up)
        kind = action.names[0]
        if kind == "binary":
            return model.with_column(col, 0.0, 1.0, True)
        return model.with_column(col, integer=kind == "integer")
    row = model.row(action.target)
    lo, up = float(model.row_lo[row]), float(model.row_up[row])
    if action.kind == "DROP":
        return model.rows([i for i in range(model.shape[0]) if i != row])
    if action.kind == "RELAX":
        if action.values[0] < 0:
            raise ValueError("RELAX: the amount must not be negative")
        return model.with_sides(row, lo - action.values[0], up + action.values[0])
    if action.kind == "SET_COEF":
        return model.with_coefficients(row, [model.col(name) for name in action.names], action.values)
    if action.kind == "SET_RHS":
        value = action.values[0]
        if np.isfinite(lo) and np.isfinite(up) and lo != up:
            raise ValueError(f"SET_RHS: row {action.target} has two different sides")
        return model.with_sides(row, value if np.isfinite(lo) else lo, value if np.isfinite(up) else up)
    if action.kind == "FLIP":
        if np.isfinite(lo) == np.isfinite(up):
            raise ValueError(f"FLIP: row {action.target} has not exactly one side")
        return model.with_sides(row, -np.inf if np.isfinite(lo) else up, np.inf if np.isfinite(up) else lo)
    raise ValueError(f"{action.kind} changes no model")
