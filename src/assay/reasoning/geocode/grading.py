"""Grading answers: numbers, units and radicals, plain or in LaTeX; and the reward for training."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.parts.packages import need
from assay.parts.trl import completion_text

from . import logs
from .linear import Row
from .scene import ParseError, Scene
from .score import score_code

if TYPE_CHECKING:
    import sympy

RELATIVE = 1e-3
"""How far a number may be off, relative."""


@dataclass(frozen=True)
class Answer:
    """An exact answer.

    Attributes
    ----------
    kind
        ``angle``, ``length`` or ``ratio``.
    rational, radicand
        The answer is rational · √radicand; angles have the radicand 1.
    """

    kind: str
    rational: Fraction
    radicand: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("angle", "length", "ratio"):
            raise InputError(f"answer.kind must be angle, length or ratio, got {self.kind!r:.40}")
        if not isinstance(self.rational, Fraction | int) or isinstance(self.rational, bool):
            raise InputError(f"answer.rational must be a Fraction, got {self.rational!r:.40}")
        object.__setattr__(self, "rational", Fraction(self.rational))
        if max(abs(self.rational.numerator), self.rational.denominator) > 10**30:
            raise InputError("answer.rational must have at most 30 digits above and below")
        good = isinstance(self.radicand, int) and 1 <= self.radicand <= 10**30
        if not good or (self.kind == "angle" and self.radicand != 1):
            raise InputError(f"answer.radicand must be at least 1, and 1 for an angle, got {self.radicand!r:.40}")

    @property
    def unit(self) -> str:
        """``deg`` for angles, else empty."""
        return "deg" if self.kind == "angle" else ""

    @property
    def value(self) -> float:
        """The answer as a number."""
        return float(self.rational) * math.sqrt(self.radicand)

    @property
    def exact(self) -> sympy.Expr:
        """The answer as an expression of sympy."""
        sympy = need("sympy", "an exact expression")
        return sympy.Rational(self.rational.numerator, self.rational.denominator) * sympy.sqrt(self.radicand)

    def text(self) -> str:
        """The answer for people: ``35°``, ``5√3``, ``7/2``.

        Examples
        --------
        >>> Answer("length", Fraction(5), 3).text()
        '5√3'
        """
        if self.kind == "angle":
            short = self.rational.denominator in (1, 2, 4, 5, 8)
            return f"{float(self.rational):.10g}°" if short else f"{self.rational}°"
        top, bottom = self.rational.numerator, self.rational.denominator
        if self.radicand > 1:
            head = f"{'' if top == 1 else top}√{self.radicand}"
            return head if bottom == 1 else f"{head}/{bottom}"
        return str(self.rational)


def answer_of(kind: str, value: Row) -> Answer | None:
    """The answer for a derived value; None for what is neither rational nor a rational times a square root."""
    if kind == "angle":
        return Answer(kind, value.get(1, Fraction(0)))
    square = logs.square(value)
    if square is None:
        return None
    top, inside = 1, 1
    for p, k in logs.factors(square.numerator * square.denominator):
        top, inside = top * p ** (k // 2), inside * p ** (k % 2)
    return Answer(kind, Fraction(top, square.denominator), inside)


# --- reading what someone answered --------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|sqrt|[-+*/^(){}√])")
_UNIT = r"(?:degrees?|deg|units?|cm|mm|m)\b"
_PARTS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}
_SIGNS = {"\\cdot": "*", "\\times": "*", "\\div": "/", "−": "-", "–": "-", "÷": "/", "$": " ", "{,}": ",", "²": "^2"}
_SIGNS |= dict.fromkeys("·×⋅∙∗", "*")


class _NoNumber(ValueError):
    pass


def _plain(text: str) -> str:
    """LaTeX and units as plain arithmetic."""
    text = re.sub(r"\\(?:left|right|displaystyle|qquad|quad|[,;:!()\[\] ])", " ", text)
    for _ in range(3):
        text = re.sub(r"\\(?:text|mathrm|textbf|mathbf|boldsymbol|mbox|ang)\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"\^\s*(?:\{\s*(?:\\circ|°|o)\s*\}|\\circ|°|o\b)|\\circ|\\degree|[º˚]", "°", text)
    if re.search(rf"(?:°|(?<![a-z\\]){_UNIT})\s*[\^²³]", text, re.I):
        raise _NoNumber("a unit with a power is neither an angle nor a length")
    text = re.sub(r"(\d+)\s*°\s*(\d+)\s*(?:['′’]|\\prime)", r"(\1+\2/60)", text)
    text = re.sub(rf"°|(?<![a-z\\]){_UNIT}", " ", text, flags=re.I)
    for sign, plain in _SIGNS.items():
        text = text.replace(sign, plain)
    for sign, plain in _PARTS.items():
        text = text.replace(sign, f" {plain}")
    # Three and a half is written 3\frac{1}{2} and 3 1/2; neither is a product.
    text = re.sub(r"(?<![\d.])(\d+)\s*\\[dtc]?frac\s*\{?\s*(\d+?)\s*\}?\s*\{?\s*(\d+)\s*\}?", _mixed, text)
    text = re.sub(r"\\[dtc]?frac\s*(\d)\s*(\d)", r"((\1)/(\2))", text)
    for _ in range(6):
        text, found = re.subn(r"\\[dtc]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"((\1)/(\2))", text)
        text, again = re.subn(r"\\sqrt\s*\{([^{}]*)\}", r"(√(\1))", text)
        if not found + again:
            break
    text = re.sub(r"(?<=[\d)])\s*\*\*\s*(?=[\d(])", "^", text.replace("\\sqrt", "√")).replace("**", " ")
    text = re.sub(r"(?<![\d./*^√])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])", _mixed, text)
    text = re.sub(r"(?<![\d.,])(\d+),(\d+)(?![\d.,])", _decimal, text)
    return re.sub(r"(?<=\d)\s*:\s*(?=\d)", "/", text)


def _mixed(found: re.Match[str]) -> str:
    whole, top, bottom = (int(part) for part in found.groups())
    return f"({whole}+{top}/{bottom})" if 0 < top < bottom else found.group()


def _decimal(found: re.Match[str]) -> str:
    """A decimal comma as a point; 1,234 may also be a thousand and stays."""
    whole, part = found.groups()
    return found.group() if len(part) == 3 and whole != "0" else f"{whole}.{part}"


def number_in(expression: str) -> float:
    """The value of plain arithmetic with square roots; ``ValueError`` for anything else.

    Examples
    --------
    >>> round(number_in("5\\\\sqrt{3}"), 3), number_in("7/2")
    (8.66, 3.5)
    """
    if len(expression) > 400:
        raise _NoNumber("too long for an answer")
    plain = _plain(expression).strip().rstrip(".")
    if len(plain) > 120:
        raise _NoNumber("too long for an answer")
    tokens, at = [], 0
    while at < len(plain):
        found = _TOKEN.match(plain, at)
        if not found:
            if not plain[at:].strip():
                break
            raise _NoNumber(f"no number: {plain[at:][:20]!r}")
        tokens.append(found.group(1))
        at = found.end()
    try:
        value, rest = _sum(tokens, 0)
    except OverflowError:
        raise _NoNumber("a power too large") from None
    if rest != len(tokens) or not math.isfinite(value):
        raise _NoNumber("no single number")
    return value


def _sum(tokens: list[str], i: int) -> tuple[float, int]:
    sign = 1.0
    if i < len(tokens) and tokens[i] in "+-":
        sign, i = (-1.0 if tokens[i] == "-" else 1.0), i + 1
    value, i = _product(tokens, i)
    value *= sign
    while i < len(tokens) and tokens[i] in ("+", "-"):
        other, j = _product(tokens, i + 1)
        value, i = (value + other if tokens[i] == "+" else value - other), j
    return value, i


def _product(tokens: list[str], i: int) -> tuple[float, int]:
    value, i = _power(tokens, i)
    while i < len(tokens) and tokens[i] not in ("+", "-", ")", "}"):
        if tokens[i] == "/":
            other, i = _power(tokens, i + 1)
            if other == 0:
                raise _NoNumber("division by zero")
            value /= other
        elif tokens[i] == "*":
            other, i = _power(tokens, i + 1)
            value *= other
        elif tokens[i] in ("√", "sqrt", "("):
            other, i = _power(tokens, i)
            value *= other
        else:
            raise _NoNumber("two numbers without a sign between them")
    return value, i


def _power(tokens: list[str], i: int) -> tuple[float, int]:
    value, i = _atom(tokens, i)
    if i < len(tokens) and tokens[i] == "^":
        other, i = _atom(tokens, i + 1)
        if abs(other) > 8 or (value == 0 and other < 0):
            raise _NoNumber("a power too large")
        value = value**other
        if isinstance(value, complex):
            raise _NoNumber("no real number")
    return value, i


def _atom(tokens: list[str], i: int) -> tuple[float, int]:
    if i >= len(tokens):
        raise _NoNumber("the expression ends too soon")
    token = tokens[i]
    if token in ("√", "sqrt"):
        value, i = _atom(tokens, i + 1)
        if value < 0:
            raise _NoNumber("the root of a negative number")
        return math.sqrt(value), i
    if token in ("(", "{"):
        value, i = _sum(tokens, i + 1)
        if i >= len(tokens) or tokens[i] != {"(": ")", "{": "}"}[token]:
            raise _NoNumber("a bracket is open")
        return value, i + 1
    if token in "+-*/^)}":
        raise _NoNumber(f"{token!r} stands where a number should")
    return float(token), i + 1


def boxed(text: str) -> list[str]:
    r"""What stands in each ``\boxed{…}``, with brackets matched."""
    found, start = [], 0
    while (at := text.find("\\boxed{", start)) >= 0:
        depth, i = 1, at + 7
        while i < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            i += 1
        found.append(text[at + 7 : i - 1] if not depth else "")  # an open bracket gives no answer
        start = i
    return found


_RELATION = re.compile(r"=|≈|≃|\\(?:approx|simeq|doteq)(?![a-z])")
_OTHER = re.compile(
    r"[<>!≠≤≥±~]|\\(?:neq?|leq?|geq?|lt|gt|pm|sim)(?![a-z])|;|,(?!\d)|(?<!\d),|\b(?:or|and|not)\b", re.I
)


def _stated(text: str, longest: int) -> float | None:
    """What a number or a chain of equations comes to; None where its sides disagree or it says several things.

    A side that is no number, such as x or ∠ABC, has at most ``longest`` characters.
    """
    text = re.sub(r"\\[,;:! ]|\{,\}", lambda found: "," if found.group() == "{,}" else " ", text.strip(" *:\n"))
    if _OTHER.search(text):
        return None
    sides, joins = _RELATION.split(text), _RELATION.findall(text)
    values: list[float | None] = []
    for side in sides:
        try:
            values.append(number_in(side))
        except ValueError:
            values.append(None)
            # "30 x" between two signs of equality is the end of one answer and the start of another.
            if len(side) > longest or (re.search(r"\d", side) and not re.search(r"[-+*/^√−]|\\[dtc]?frac", side)):
                return None
    last = values[-1]
    if last is None:
        return None
    known = [value for value in values if value is not None]
    if any(abs(value - last) > 0.01 * abs(last) for value in known):
        return None
    exact = [v for v, join in zip(values, joins, strict=False) if v is not None and join != "="]
    return exact[0] if exact else last


def final_answer(text: str) -> float | None:
    r"""The one number that a text gives as its answer; None where it gives none, or several that differ.

    Read is what is boxed; else what follows the last "answer is" or "answer:"; else a text that is one number, one
    equation or a short sentence with "is". A text that merely holds numbers, such as a problem said again, gives no
    answer.
    """
    text = text[-20_000:].strip()
    boxes = boxed(text)
    if boxes:
        values = {_stated(box, 200) for box in boxes}
        return values.pop() if len(values) == 1 else None
    said = list(re.finditer(r"answer(?:\s+is|\s*[:=])", text, re.I))
    tail = (text[said[-1].end() :] if said else text).strip(" *:\n")
    if "\n" in tail:
        return None
    short = re.fullmatch(r"[^\d=≈]{0,40}\b(?:is|equals)\b(.*)", tail)
    return _stated(short.group(1) if short else tail, 24)


def as_value(answer: Answer | str | float | Any) -> float:
    """The number that an answer stands for; an answer may be a text such as ``5√3``.

    Raises
    ------
    InputError
        For what is no finite number.
    """
    if isinstance(answer, Answer):
        return answer.value
    if isinstance(answer, bool):
        raise InputError(f"answer must be an Answer, a number or a text, got {answer!r}")
    try:
        value = number_in(answer) if isinstance(answer, str) else float(answer)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"answer must be an Answer, a number or a text such as '5√3', got {answer!r:.60}: {error}"
        ) from None
    if not math.isfinite(value):
        raise InputError(f"answer must be finite, got {answer!r:.60}")
    return value


def grade(text: str, answer: Answer | str | float) -> bool:
    """Whether a text gives the right answer, to one part in a thousand.

    Parameters
    ----------
    text
        What was answered, with its reasoning or without.
    answer
        The right answer.

    Raises
    ------
    TypeError, InputError
        For a text that is none, and an answer that is no number.

    Examples
    --------
    >>> grade("x = 5\\\\sqrt{3}", "5√3"), grade("8.66", "5√3"), grade("8.6", "5√3")
    (True, True, False)
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a text, got {type(text).__name__}")
    right = as_value(answer)
    given = final_answer(text)
    return given is not None and abs(given - right) <= RELATIVE * abs(right)


def reward_func(
    prompts: Sequence[Any] | None,
    completions: Sequence[Any],
    answer: Sequence[Any],
    scene: Sequence[Any] | None = None,
    weights: tuple[float, float, float] = (0.1, 0.6, 0.3),
    **columns: Any,
) -> list[float]:
    r"""Rewards as the trainers of TRL ask for them: format, answer and drawing code.

    Parameters
    ----------
    prompts, completions
        Texts or conversations; of a conversation the assistant's last message counts.
    answer
        The right answer of each, as a text or a number.
    scene
        The drawing of each as canonical code; without it format and answer share the whole weight.
    weights
        Of the format (exactly one answer in ``\boxed{}``), the answer and the code.

    Raises
    ------
    InputError
        For missing columns and ones of different lengths, weights that are negative or all zero, and scenes that
        cannot be read.
    """
    checked_weights(weights)
    if completions is None or isinstance(completions, str):
        raise InputError(f"completions must be a list of texts or of conversations, got {type(completions).__name__}")
    for name, column in (("answer", answer), ("scene", scene)):
        if isinstance(column, str) or not (hasattr(column, "__len__") or (column is None and name == "scene")):
            raise InputError(f"{name} must be a list with a row for each completion, got {type(column).__name__}")
        if column is not None and len(column) != len(completions):
            raise InputError(f"{name} must have a row for each of {len(completions)} completions, got {len(column)}")
    rewards = []
    for i, completion in enumerate(completions):
        try:
            text = completion_text(completion)
        except InputError as error:
            raise InputError(f"completions[{i}] {error}") from None
        good = [float(len(boxed(text)) == 1), float(grade(text, answer[i]))]
        parts = weights[:2]
        if scene is not None:
            gold = _gold(scene[i], i)
            good.append(score_code(code_in(text), gold).total)
            parts = weights
        rewards.append(sum(w * g for w, g in zip(parts, good, strict=True)) / (sum(parts) or 1.0))
    return rewards


def checked_weights(weights: Any) -> None:
    """Raise an InputError for what is no three weights of format, answer and code."""
    numbers = isinstance(weights, Sequence) and all(isinstance(w, int | float) and 0 <= w < math.inf for w in weights)
    if not numbers or isinstance(weights, str) or len(weights) != 3 or sum(weights) <= 0:
        raise InputError(f"weights must be three numbers, none negative and not all zero, got {weights!r:.60}")


def _gold(scene: Any, i: int) -> Scene:
    if isinstance(scene, Scene):
        return scene
    if not isinstance(scene, str):
        raise InputError(f"scene[{i}] must be a Scene or its code, got {type(scene).__name__}")
    try:
        return Scene.from_json(scene)
    except ParseError as error:
        raise ParseError(f"scene[{i}]: {error}") from None


def code_in(text: str) -> str:
    """The drawing code in an answer: the first fenced block, or the first line that is a JSON object."""
    fence = re.search(r"```[a-z]*\n(.*?)```", text, re.S)
    if fence:
        return fence.group(1)
    for line in text.splitlines():
        if line.strip().startswith("{"):
            try:
                json.loads(line)
            except (ValueError, RecursionError):
                continue
            return line
    return ""
