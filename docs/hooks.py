"""What of the site is made from the code: a page a method, the commands, and formulas as MathML."""

import html
import re
from typing import Any

import latex2mathml.converter
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from assay import catalog, cli
from assay.doctor import UNDECLARED

RELATIONS = {"±": "&#x000B1;", "∼": "&#x0007E;"}
METHODS = [card for card in catalog.cards().values() if card.module.startswith("assay.")]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the methods' pages into the navigation."""
    for entry in config.nav:
        if "Methods" in entry:
            entry["Methods"] = [
                {"All methods": "methods/index.md"},
                *({c.name: f"methods/{c.name}.md"} for c in METHODS),
            ]
        if "Reference" in entry:
            entry["Reference"] += [{c.name: f"reference/methods/{c.name}.md"} for c in METHODS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages = {"methods/index.md": methods_page(), "commands.md": commands_page()}
    pages |= {f"methods/{card.name}.md": method_page(card) for card in METHODS}
    pages |= {f"reference/methods/{card.name}.md": reference_page(card) for card in METHODS}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Turn every formula into MathML, which browsers draw themselves."""
    return re.sub(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', _formula, content, flags=re.DOTALL)


def _formula(found: re.Match[str]) -> str:
    tag, source = found.groups()
    display = "block" if tag == "div" else "inline"
    maths = latex2mathml.converter.convert(html.unescape(source), display=display)
    for sign, letter in RELATIONS.items():  # the converter takes them for letters, which stand without space
        maths = maths.replace(f"<mi>{letter}</mi>", f'<mo lspace="0.25em" rspace="0.25em">{sign}</mo>')
    return f'<{tag} class="formula">{maths}</{tag}>'


def methods_page() -> str:
    """The table of methods."""
    rows = [f"| [{c.name}]({c.name}.md) | {c.field} | {c.summary} | {c.state} |" for c in METHODS]
    return "\n".join(
        [
            "# Methods",
            "",
            "What a method claims, and what of it held when it was last measured. `assay check METHOD` measures it on "
            "your machine.",
            "",
            "| method | field | what it does | state |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def method_page(card: catalog.Card) -> str:
    """A method's page: what its card's front matter says, then the card."""
    heading, _, body = card.text.partition("\n")
    with_study = (*card.extras, *card.study_extras)
    lines = ["# the method", _install(card.extras)]
    if card.study_extras:
        lines += ["# what its study compares it with", _install(with_study)]
    alone = [package for extra in with_study for package in UNDECLARED.get(extra, ())]
    lines += ["# these ask for old versions of other packages, so they come without them"] if alone else []
    lines += [f"python -m pip install --no-deps {package}" for package in alone]
    install = "\n".join(lines)
    return f"""---
title: {card.name}
description: {card.summary}
---

{heading}

*{card.title}*

Source
:   {card.source}

State
:   {card.state} ([what that means](../verdicts.md))

Code
:   [`{card.module}`](../reference/methods/{card.name}.md)

```bash title="Install, in a checkout"
{install}
```

`assay doctor {card.name}` says whether everything is there.
{body}"""


def _install(extras: tuple[str, ...]) -> str:
    return f"python -m pip install -e '.[{','.join(extras)}]'" if extras else "python -m pip install -e ."


def reference_page(card: catalog.Card) -> str:
    """The public names of a method."""
    return f"""---
title: {card.name}
---

# {card.module}

[What it does, and whether it holds](../../methods/{card.name}.md)

::: {card.module}
    options:
      members: {_public(card.module)}
"""


def _public(module: str) -> list[str]:
    import importlib

    return list(importlib.import_module(module).__all__)


def commands_page() -> str:
    """Every command with its arguments and options, from the program's own help."""
    whole = typer.main.get_command(cli.app)
    parts = [
        "# Commands",
        str(whole.help),
        "A mistake in what you type or bring is told in one line, with exit code 2; `--debug` shows the traceback. "
        "Ctrl-C ends a run with exit code 130, and the same command goes on from there.",
        _parameters(whole),
    ]
    for name, command in whole.commands.items():
        if not command.hidden and name != "use":
            parts += [f"## {name}", _command(command, f"assay {name}")]
    parts += ["## use", str(whole.commands["use"].help)]
    for card in METHODS:
        if card.has_use:
            command = typer.main.get_command(catalog.load_use(card))
            parts += [f"### use {card.name}", _command(command, f"assay use {card.name}")]
    return "\n\n".join(parts) + "\n"


def _command(command: Any, name: str) -> str:
    usage = command.get_usage(typer.Context(command, info_name=name)).removeprefix("Usage: ")
    return f"{command.help}\n\n```text\n{' '.join(usage.split())}\n```\n\n{_parameters(command)}"


def _parameters(command: Any) -> str:
    """Arguments and options as a list of definitions, which a phone can show too."""
    lines = []
    for one in command.params:
        if one.param_type_name == "argument":
            names, default = f"`{(one.metavar or one.name.upper()).strip('[]')}`", None
        else:
            names = ", ".join(f"`{opt}`" for opt in (*one.opts, *one.secondary_opts))
            default = one.default
            names += "" if one.is_flag else " *VALUE*"
        said = [str(one.help or "")]
        if one.required:
            said.append("Required.")
        elif one.param_type_name == "argument":
            said.append("May be left out.")
        elif default not in (None, "", False, ()) and not callable(default):
            said.append(f"Default: `{default}`.")
        if getattr(one, "envvar", None):
            said.append(f"Also by the environment variable `{one.envvar}`.")
        lines.append(f"{names}\n:   {' '.join(filter(None, said))}\n")
    return "\n".join(lines)
