"""The furniture of a new room: ``assay new FIELD NAME`` writes it, so that all methods start alike."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from assay.catalog import cards
from assay.errors import InputError

FIELDS = (
    "models", "alignment", "reasoning", "generative", "science", "privacy", "federated", "reinforcement", "learning",
    "statistics",
)  # fmt: skip

# Template to place; {field} and {room} are filled in.
PLACES = {
    "card.md.jinja": "src/assay/{field}/{room}/card.md",
    "init.py.jinja": "src/assay/{field}/{room}/__init__.py",
    "location.py.jinja": "src/assay/{field}/{room}/location.py",
    "study.py.jinja": "src/assay/{field}/{room}/study.py",
    "test_location.py.jinja": "tests/{field}/{room}/test_{room}.py",
    "test_study.py.jinja": "tests/{field}/{room}/test_{room}_study.py",
}


def furnish(checkout: Path, field: str, name: str) -> list[Path]:
    """Write a new method's room into a checkout of assay and return the files written.

    What is written runs: a small method with a study, to be replaced piece by piece.

    Raises
    ------
    InputError
        For an unknown field, a name that is no slug (``two-words``), a method that exists, or a folder that is no
        checkout.
    """
    if field not in FIELDS:
        raise InputError(f"field {field!r} is none of {', '.join(FIELDS)}")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise InputError(f"name {name!r} must be lower-case words joined by hyphens, e.g. knockoff-pca")
    if not (checkout / "src" / "assay" / "catalog.py").is_file():
        raise InputError(f"{checkout} is no checkout of assay; run this in the folder that holds src/assay")
    room = name.replace("-", "_")
    if name in cards() or (checkout / "src" / "assay" / field / room).exists():
        raise InputError(f"there is a method {name!r} already")
    from jinja2 import Environment, StrictUndefined

    jinja = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    words = {"field": field, "name": name, "room": room, "title": name.replace("-", " ").capitalize()}
    written = []
    package = checkout / "src" / "assay" / field / "__init__.py"
    if not package.exists():
        package.parent.mkdir(parents=True)
        package.write_text(f'"""{field.capitalize()}."""\n')
        written.append(package)
    for template, place in PLACES.items():
        source = resources.files("assay.furniture").joinpath(template).read_text(encoding="utf-8")
        path = checkout / place.format(field=field, room=room)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(jinja.from_string(source).render(words), encoding="utf-8")
        written.append(path)
    return written
