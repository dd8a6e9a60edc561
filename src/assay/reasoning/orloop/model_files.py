"""Model files of other programs: what HiGHS would misread is refused, and what it need not refuse is put right."""

from __future__ import annotations

import gzip
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import highspy

from assay.errors import InputError, one_line
from assay.parts.checkpoints import new_file
from assay.parts.highs import silent_highs

SUFFIXES = (".mps", ".lp", ".mps.gz", ".lp.gz")
LARGEST = 2**31
"""Bytes of a model file, unpacked."""

_NUMBER = r"(?:[-+]\s*)?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|inf(?:inity)?)"
_BELOW, _ABOVE = r"<=|=<|<", r">=|=>|>"
_RANGE = re.compile(
    rf"(?P<label>[^\s:<>=]+\s*:\s*)?(?<![\w.])(?P<first>{_NUMBER})\s*(?P<one>{_BELOW}|{_ABOVE})"
    rf"(?P<body>[^<>=:]*[A-Za-z_][^<>=:]*?)(?P<two>{_BELOW}|{_ABOVE})\s*(?P<last>{_NUMBER})(?![\w.])",
    re.IGNORECASE,
)
_ROWS_BEGIN = re.compile(
    r"^[ \t]*(?:subject\s+to|such\s+that|s\.\s?t\.?|st\.?)(?=[ \t:\r\n])", re.IGNORECASE | re.MULTILINE
)
_ROWS_END = re.compile(
    r"^[ \t]*(?:bounds?|gen(?:erals?)?|int(?:egers?)?|bin(?:ar(?:y|ies))?|semi\S*|sos|lazy\s+constraints|user\s+cuts"
    r"|end)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_ODD_NAME = re.compile(r'"(?P<quoted>[^"\n]+)"|(?P<indexed>[A-Za-z_][^\s:+\-*<>=\[\]^"]*\[[^\]\n]*\][^\s:+\-*<>=^"]*)')
_HARMLESS = ("appears more than once", "|values|", "treated as", "fixed format")
_MISREAD = ("ignored", "same name", "not defined", "undefined", "not in ", "duplicate")


@dataclass
class Read:
    """A HiGHS instance that holds a file's model, and what was changed on the way: names, and second sides of rows."""

    highs: highspy.Highs
    names: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)


def read_highs(path: str | Path) -> Read:
    """Let HiGHS read an ``.mps`` or ``.lp`` file; InputError for what it cannot read, or would read in part only."""
    file = Path(path)
    if not file.is_file():
        raise InputError(f"there is no file {str(path)!r}")
    kind = next((s for s in SUFFIXES if file.name.lower().endswith(s)), None)
    if kind is None:
        raise InputError(f"{file.name} must end with one of {', '.join(SUFFIXES)}")
    text = _text(file, packed=kind.endswith(".gz"))
    if len(text.split()) < 3:
        raise InputError(f"{file.name} cannot be read as a model: it is empty")
    names: dict[str, str] = {}
    ranges: dict[str, tuple[float, float]] = {}
    if kind.startswith(".lp"):
        text, names = _plain_names(_without_comments(text))
        text, ranges = _one_side_each(text)
    else:
        _check_mps(file.name, text)
    with tempfile.TemporaryDirectory(prefix="assay-") as home:
        copy, log = Path(home) / f"model{kind.removesuffix('.gz')}", Path(home) / "log"
        copy.write_text(text, encoding="utf-8")
        h = silent_highs()
        h.setOptionValue("log_to_console", False)
        h.setOptionValue("output_flag", True)
        h.setOptionValue("log_file", str(log))
        try:
            status = h.readModel(str(copy))
        except Exception as error:
            raise InputError(f"{file.name} cannot be read: {one_line(error)}") from error
        finally:
            h.setOptionValue("log_file", "")
            h.setOptionValue("output_flag", False)
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if status == highspy.HighsStatus.kError:
        raise InputError(f"{file.name} cannot be read as a model: {_back(_complaint(said, text), names)}")
    for line in said.splitlines():
        warning = line.startswith("WARNING") or "not in " in line
        if warning and any(word in line for word in _MISREAD) and not any(word in line for word in _HARMLESS):
            where = re.search(r"-->[^\n]*?:(\d+):\d+", said[said.index(line) :])
            place = f", line {where.group(1)}" if where and where.start() < 200 else ""
            what = one_line(line.removeprefix("WARNING:"))
            raise InputError(f"{file.name}{place}: {_back(what, names)}; the model that is meant is not certain")
    return Read(h, names, ranges)


def write_highs(h: highspy.Highs, path: str | Path) -> Path:
    """Let HiGHS write its model as ``.mps`` or ``.lp``, also ``.gz``; InputError for names that LP cannot hold."""
    file = Path(path)
    kind = next((s for s in SUFFIXES if file.name.lower().endswith(s)), None)
    if kind is None:
        raise InputError(f"{file.name} must end with one of {', '.join(SUFFIXES)}")
    with tempfile.TemporaryDirectory(prefix="assay-") as home, new_file(file) as fresh:
        plain = Path(home) / f"model{kind.removesuffix('.gz')}"
        rows, cols = set(h.getLp().row_names_), set(h.getLp().col_names_)  # HiGHS renames what a format cannot hold
        if h.writeModel(str(plain)) == highspy.HighsStatus.kError:
            raise InputError(f"{file.name}: HiGHS cannot write this model in that format; write .mps")
        text = plain.read_bytes()
        if kind.startswith(".lp"):
            back = silent_highs()
            back.readModel(str(plain))
            found = set(back.getLp().row_names_)
            if set(back.getLp().col_names_) != cols or not all(n in found or f"{n}lo" in found for n in rows):
                raise InputError(f"{file.name}: an LP file cannot hold all names of this model; write .mps")
        fresh.write_bytes(gzip.compress(text, mtime=0) if kind.endswith(".gz") else text)
    return file


def _text(file: Path, packed: bool) -> str:
    try:
        with gzip.open(file, "rb") if packed else file.open("rb") as source:
            held = source.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file.name} cannot be read: {one_line(error)}") from error
    if len(held) > LARGEST:
        raise InputError(f"{file.name} holds more than {LARGEST} bytes")
    if b"\0" in held[:10_000]:
        raise InputError(f"{file.name} is no text file")
    try:
        text = held.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = held.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_comments(text: str) -> str:
    return re.sub(r"\\.*", "", text)


def _plain_names(text: str) -> tuple[str, dict[str, str]]:
    """LP text with names that hold brackets or stand in quotes replaced, and what each stands for."""
    stands: dict[str, str] = {}

    def plain(found: re.Match[str]) -> str:
        name = found.group("quoted") or found.group("indexed")
        if name not in stands:
            stands[name] = f"assay_name_{len(stands)}_"
        return stands[name]

    text = _ODD_NAME.sub(plain, text)
    return text, {new: old for old, new in stands.items()}


def _one_side_each(text: str) -> tuple[str, dict[str, tuple[float, float]]]:
    """LP text in which rows such as ``2 <= x + y <= 8`` have one side, and both sides of each of these rows."""
    begin = _ROWS_BEGIN.search(text)
    if begin is None:
        return text, {}
    end = _ROWS_END.search(text, begin.end())
    stop = end.start() if end else len(text)
    ranges: dict[str, tuple[float, float]] = {}

    def one(found: re.Match[str]) -> str:
        below = found.group("one") in ("<=", "=<", "<")
        body = found.group("body")
        # A line that goes on has a sign at its break; without one two rows stand there, and not one with two sides.
        if below != (found.group("two") in ("<=", "=<", "<")) or re.search(r"[^\s+-]\s*\n\s*[^\s+-]", body):
            return found.group()
        name = (found.group("label") or "").rstrip(": \t\n") or f"range_{len(ranges) + 1}"
        first, last = _number(found.group("first")), _number(found.group("last"))
        ranges[name] = (first, last) if below else (last, first)
        skipped = "\n" * (found.group().count("\n") - body.strip().count("\n"))  # so that lines keep their numbers
        return f"{name}: {body.strip()} {found.group('two')} {found.group('last')}{skipped}"

    return text[: begin.end()] + _RANGE.sub(one, text[begin.end() : stop]) + text[stop:], ranges


def _number(text: str) -> float:
    return float(re.sub(r"\s+", "", text))


def _check_mps(name: str, text: str) -> None:
    """InputError for rows that are named twice, or in COLUMNS alone: HiGHS drops these and stumbles on those."""
    rows: set[str] = set()
    blanks = False  # in names: then columns of the text count, which HiGHS knows, and no words
    for section, number, line in _mps_lines(text):
        words = line.split()
        if section == "ROWS" and len(words) >= 2:
            row = line.split(maxsplit=1)[1].strip()
            if row in rows:
                raise InputError(f"{name} names the row {row!r} twice; names must differ")
            rows.add(row)
            blanks |= " " in row
        elif section == "COLUMNS" and len(words) in (3, 5) and "'MARKER'" not in words and not blanks:
            for row in words[1::2]:
                if row not in rows:
                    raise InputError(f"{name}, line {number}: there is no row {row!r}: {one_line(line, 80)}")


def _mps_lines(text: str) -> Iterator[tuple[str, int, str]]:
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("*") or not line.strip():
            continue
        if not line[0].isspace():
            section = line.split()[0].upper()
            if section not in ("NAME", "OBJSENSE", "OBJSEN", "ROWS", "COLUMNS"):
                return
        else:
            yield section, number, line


def _complaint(said: str, text: str) -> str:
    """What HiGHS said of a file that it refused, as one line."""
    found = re.search(
        r"ERROR:\s*(?P<what>[^\n]+)(?:\n\s*-->[^\n]*?:(?P<line>\d+):\d+)?(?P<rest>(?:\n[^EW\n][^\n]*)*)", said
    )
    if found is None or found.group("what").startswith("Parser error"):
        if "ENDATA" not in text and re.search(r"^\s*end\s*$", text, re.IGNORECASE | re.MULTILINE) is None:
            return "it ends too early"
        return "it is no complete file of that format"
    help_ = re.search(r"= help: ([^\n]+)", found.group("rest"))
    line = f"line {found.group('line')}: " if found.group("line") else ""
    return one_line(line + found.group("what") + (f" ({help_.group(1)})" if help_ else ""))


def _back(text: str, names: dict[str, str]) -> str:
    return re.sub(r"assay_name_\d+_", lambda found: names.get(found.group(), found.group()), text)
