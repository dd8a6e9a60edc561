"""The catalogue: finds cards without importing methods, and loads a method's study or command when asked.

Built-in methods are the folders ``assay/<field>/<method>`` that hold a ``card.md``. A third party's package adds its
own by the entry-point group ``assay.methods``: the entry's name is the method's, its value the package of the room,
which holds ``card.md``, ``study.py`` with ``STUDY`` and, where it serves, ``use.py`` with ``app``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError, MissingPart, one_line

if TYPE_CHECKING:
    from assay.evidence.study import Study

GROUP = "assay.methods"
MOST_BYTES = 1_000_000  # a card is a page; anything larger is no card


@dataclass(frozen=True, kw_only=True)
class Card:
    """A method's card: the front matter for the catalogue, and where its room is.

    ``extras`` are the extras of assay that the method needs, ``study_extras`` those that its study needs besides.
    """

    name: str
    title: str
    field: str
    summary: str
    source: str
    module: str
    path: Path
    extras: tuple[str, ...] = ()
    study_extras: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The card without its front matter, as Markdown."""
        return _split(self.path)[1]

    @property
    def state(self) -> str:
        """What its measured part begins with, like ``6 of 7 judged claims supported at `quick```."""
        measured = self.text.partition("<!-- evidence -->")[2].partition("<!-- /evidence -->")[0]
        found = re.match(r"\s*\*\*(\d+ of \d+ judged claims supported at `\w+`)\*\*", measured)
        return found.group(1) if found else "not measured yet"

    @property
    def has_use(self) -> bool:
        """Whether ``assay use`` has a command for it."""
        return (self.path.parent / "use.py").is_file()


def cards() -> dict[str, Card]:
    """All cards by the method's name, built-in methods first."""
    return dict(_cards())


@lru_cache(maxsize=1)
def _cards() -> tuple[tuple[str, Card], ...]:
    root = Path(__file__).parent
    found: dict[str, Card] = {}
    for path in sorted(root.glob("*/*/card.md")):
        card = read_card(path, f"assay.{path.parts[-3]}.{path.parts[-2]}")
        found[card.name] = card
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.name):
        with suppress(InputError):
            if entry.name not in found:
                found[entry.name] = _plug_in(entry)
    return tuple(found.items())


def broken() -> dict[str, str]:
    """The plug-ins that cannot be used, with the reason."""
    known, reasons = cards(), {}
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            if known.get(entry.name, _plug_in(entry)).module != entry.module:
                reasons[entry.name] = f"{entry.module} has the name of a method that exists"
        except InputError as error:
            reasons[entry.name] = str(error)
    return reasons


def _plug_in(entry: importlib.metadata.EntryPoint) -> Card:
    try:
        spec = importlib.util.find_spec(entry.module)
    except Exception as error:  # to find it imports the packages that it is in
        raise InputError(f"{entry.module} cannot be found: {type(error).__name__}: {one_line(error)}") from None
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places or not Path(places[0], "card.md").is_file():
        raise InputError(f"{entry.module} is no package with a card.md")
    card = read_card(Path(places[0], "card.md"), entry.module)
    if card.name != entry.name:
        raise InputError(f"its card calls it {card.name!r}")
    return card


def card(name: str) -> Card:
    """The card of a method; ``InputError`` suggests names for one that does not exist."""
    known = cards()
    if name not in known:
        import difflib

        why = broken().get(name)
        if why:
            raise InputError(f"the plug-in {name!r} cannot be used: {why}")
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known) or 'none'}"
        raise InputError(f"there is no method {name!r}; {hint}")
    return known[name]


def read_card(path: Path, module: str) -> Card:
    """Read a card's front matter; ``InputError`` says what is missing in it."""
    head, _ = _split(path)
    for key in ("name", "title", "field", "summary", "source"):
        if not isinstance(head.get(key), str):
            raise InputError(f"card {path}: the front matter needs {key!r}, a text")
    for key in ("extras", "study_extras"):
        extras = head.get(key) or []
        if not isinstance(extras, list) or not all(isinstance(extra, str) for extra in extras):
            raise InputError(f"card {path}: {key!r} must be a list of texts")
    return Card(
        name=head["name"], title=head["title"], field=head["field"], summary=head["summary"], source=head["source"],
        extras=tuple(head.get("extras") or ()), study_extras=tuple(head.get("study_extras") or ()),
        module=module, path=path,
    )  # fmt: skip


def load_study(card: Card) -> Study:
    """Import the method's study."""
    try:
        study: Study = importlib.import_module(f"{card.module}.study").STUDY
    except (MissingPart, InputError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise InputError(f"the study of {card.name} cannot be imported: {reason}") from error
    if study.name != card.name:
        raise InputError(f"the study of {card.name!r} calls itself {study.name!r}")
    return study


def load_use(card: Card) -> Any:
    """Import the Typer app behind ``assay use``; ``InputError`` where the method has none."""
    if not card.has_use:
        raise InputError(f"{card.name} has no command of its own; `assay show {card.name}` shows how to use it")
    return importlib.import_module(f"{card.module}.use").app


def _split(path: Path) -> tuple[dict[str, Any], str]:
    import yaml

    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"card {path} is larger than {MOST_BYTES} bytes")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"card {path} must be text in UTF-8") from None
    _, _, rest = text.partition("---\n")
    head, fence, body = rest.partition("\n---\n")
    if not text.startswith("---\n") or not fence:
        raise InputError(f"card {path} must begin with front matter between lines of ---")
    try:
        data = yaml.load(head, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # safe, and fast where C is there
    except yaml.YAMLError as error:
        raise InputError(f"card {path}: the front matter is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise InputError(f"card {path}: the front matter must be names and values")
    return data, body.lstrip("\n")
