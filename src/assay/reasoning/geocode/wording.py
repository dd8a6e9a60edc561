"""The problem in words, by a grammar that also reads them back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from assay.errors import InputError

from .constructions import OPS
from .figure import Construction, Given, Target

MARKED = "Further measures are marked in the figure."


def _template(op: str) -> str:
    return OPS[op].words


def sentence(step: Construction) -> str:
    """One construction in words."""
    names = {f"o{i}": name for i, name in enumerate(step.out)} | {f"a{i}": name for i, name in enumerate(step.args)}
    return _template(step.op).format(**names)


def problem_text(constructions: Sequence[Construction], givens: Sequence[Given], marked: bool) -> str:
    """The whole problem but its question; ``marked`` says that the figure holds further numbers."""
    parts = [sentence(step) for step in constructions]
    if givens:
        parts.append("Given: " + ", ".join(given.text() for given in givens) + ".")
    if marked:
        parts.append(MARKED)
    return " ".join(parts)


def question(target: Target) -> str:
    """What is asked, in words."""
    return f"Find {target.text()}."


def _pattern(op: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def slot(found: re.Match[str]) -> str:
        name = found.group(1)
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>[A-Z])"

    return re.compile(re.sub(r"\\\{([oa]\d)\\\}", slot, re.escape(_template(op))))


# Several constructions share their words (a triangle by two angles or by two sides); the first stands for all.
PATTERNS: dict[str, re.Pattern[str]] = {}
for _op in OPS:
    if OPS[_op].words not in [OPS[known].words for known in PATTERNS]:
        PATTERNS[_op] = _pattern(_op)

_GIVEN = re.compile(r"(∠[A-Z]{3}|[A-Z]{2}) = (\d+(?:/\d+)?)(°?)")


def read_problem(text: str) -> tuple[list[tuple[str, tuple[str, ...], tuple[str, ...]]], list[Given], bool]:
    """Read a problem back.

    Returns
    -------
    tuple
        The constructions as (sentence pattern, new points, old points), the givens, and whether more is marked in the
        figure.

    Raises
    ------
    InputError
        For a sentence that the grammar has not.
    """
    steps, givens, marked = [], [], False
    for part in re.findall(r"[^.]+\.", text):
        said = part.strip()
        if said == MARKED:
            marked = True
            continue
        if said.startswith("Given: "):
            for item in said.removeprefix("Given: ").removesuffix(".").split(", "):
                found = _GIVEN.fullmatch(item)
                if not found or found.group(1).startswith("∠") != bool(found.group(3)):
                    raise InputError(f"no given is written like {item!r}")
                names = tuple(found.group(1).removeprefix("∠"))
                givens.append(Given("angle" if found.group(3) else "length", names, Fraction(found.group(2))))
            continue
        for op, pattern in PATTERNS.items():
            found = pattern.fullmatch(said)
            if found:
                names = found.groupdict()
                out = tuple(names[f"o{i}"] for i in range(OPS[op].outs))
                steps.append((op, out, tuple(names[f"a{i}"] for i in range(OPS[op].args))))
                break
        else:
            raise InputError(f"the grammar has no sentence {said!r}")
    if re.sub(r"[^.]+\.", "", text).strip():
        raise InputError(f"the text does not end with a full stop: {text[-40:]!r}")
    return steps, givens, marked


def read_question(text: str) -> Target:
    """Read a question back, or raise an InputError."""
    found = re.fullmatch(r"Find (?:∠([A-Z]{3})|([A-Z]{2})|([A-Z]{2})/([A-Z]{2}))\.", text.strip())
    if not found:
        raise InputError(f"no question is written like {text!r}")
    if found.group(1):
        return Target("angle", tuple(found.group(1)))
    if found.group(2):
        return Target("length", tuple(found.group(2)))
    return Target("ratio", (*found.group(3), *found.group(4)))


def spoken(op: str) -> str:
    """The construction that stands for all with the same words."""
    return next(known for known in PATTERNS if OPS[known].words == OPS[op].words)
