"""Docstrings say ``:class:`x``` and ``:math:`x```; the site's Markdown says it otherwise."""

import re
from typing import Any

import griffe


def to_markdown(text: str) -> str:
    """A docstring's roles as Markdown: formulas, and links where the site has what they name."""
    text = re.sub(r":math:`([^`]+)`", r"\\(\1\\)", text)
    return re.sub(r":(?:class|func|mod|attr|meth|data|exc):`(~?)([^`]+)`", _reference, text)


def _reference(found: re.Match[str]) -> str:
    short, name = found.groups()
    shown = name.rpartition(".")[2] if short else name
    if "." not in name:
        return f"`{shown}`"
    return f'<autoref identifier="{name}" optional><code>{shown}</code></autoref>'


class Roles(griffe.Extension):
    """Rewrites every docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, a class, a function or an attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
