"""Runs the fenced blocks of a page of the documentation, and compares what they print with what the page shows.

Of a page, in order and in one folder: ``bash`` blocks run in a shell; ``python`` blocks run in one namespace, or are
written to a file where their title, or a comment on their first line, names one; a ``text`` block titled "Output" shows
what the block before it printed. ``python tests/docs/pages.py PAGE.md …`` puts what is printed now into those blocks.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w+)([^\n`]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+−]?\d+(?:,\d{3})*(?:\.\d+)?")
COSTS = ("CPU s", "peak MiB")  # measured by clocks and allocators, so they differ from run to run


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title, its text and where the text stands in the page."""

    language: str
    title: str
    text: str
    span: tuple[int, int]

    @property
    def file(self) -> str:
        """The file that the block is, if it is one."""
        named = re.match(r"# (\w+\.py)\b", self.text)
        return self.title if self.title.endswith(".py") else named[1] if named else ""


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    found = []
    for match in FENCE.finditer(page):
        title = re.search(r'title="([^"]*)"', match[2])
        found.append(Block(match[1], title[1] if title else "", match[3], match.span(3)))
    return found


def run(
    page: str, folder: Path, say: Callable[[Block, str], None], *, shell: Callable[[str], str] = lambda text: text
) -> dict[str, object]:
    """Run the page's blocks in ``folder``; ``say`` is told each output block and what was printed.

    ``shell`` changes a ``bash`` block before it is run. Returns what the ``python`` blocks defined.
    """
    namespace: dict[str, object] = {"__name__": "__page__"}
    bin = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "ASSAY_CACHE": str(folder / "cache")}
    printed = ""
    for block in blocks(page):
        if block.language == "text" and block.title == "Output":
            say(block, printed)
        elif block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            out = io.StringIO()
            with contextlib.chdir(folder), contextlib.redirect_stdout(out):
                exec(compile(block.text, "page", "exec"), namespace)
            printed = out.getvalue()
        elif block.language == "bash":
            script = f"set -euo pipefail\n{shell(block.text)}"
            done = subprocess.run(
                ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
            printed = done.stdout
    return namespace


def commands(script: str) -> str:
    """Of a shell script what is about assay: installing is another matter."""
    lines = script.replace("\\\n", " ").splitlines()
    return "\n".join(line for line in lines if line.startswith("assay "))


def difference(shown: str, printed: str) -> str:
    """The first line or paragraph that differs, or nothing.

    Words must be the same. Numbers may differ by 1 % or in the last digit; costs may be any. A line that is only "…"
    stands for any lines. Spaces, rules and where a paragraph is broken do not count.
    """
    want, have = _parts(shown), _parts(printed)
    costs = False
    while want:
        part = want.pop(0)
        if part == "…":
            if not want:
                return ""
            while have and not _alike(want[0], have[0]):
                have.pop(0)
            continue
        if not have:
            return f"the page shows what is not printed: {part!r}"
        costs = part.startswith(" ") and (costs or COSTS[0] in part)
        if not _alike(part, have[0], len(COSTS) if costs and COSTS[0] not in part else 0):
            return f"the page shows\n  {part}\nbut this is printed\n  {have[0]}"
        have.pop(0)
    return f"the page does not show what is printed: {have[0]!r}" if have else ""


def _parts(text: str) -> list[str]:
    """Lines of tables, which begin with a space, and paragraphs."""
    parts: list[str] = []
    open_paragraph = False
    for line in text.splitlines():
        plain = " ".join(line.split())
        table = line.startswith(" ")
        if table and plain.strip("─ "):
            parts.append(f" {plain}")
        elif open_paragraph and plain and not table and "…" not in (plain, parts[-1]):
            parts[-1] += f" {plain}"
        elif plain and not table:
            parts.append(plain)
        open_paragraph = bool(plain) and not table
    return parts


def _alike(shown: str, printed: str, costs: int = 0) -> bool:
    """Whether two parts say the same; the last ``costs`` numbers may be any."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", printed):
        return False
    told = [match[1] for match in re.finditer(rf"takes ({NUMBER.pattern}) times the CPU time", shown)]
    want, have = NUMBER.findall(shown), NUMBER.findall(printed)
    pairs = list(zip(want, have, strict=True))[: len(want) - costs]
    return all(w in told or _close(w, h) for w, h in pairs)


def _close(shown: str, printed: str) -> bool:
    want, have = (float(text.replace(",", "").replace("−", "-")) for text in (shown, printed))
    last = 10.0 ** -len(shown.partition(".")[2])
    return abs(want - have) <= max(1.001 * last if "." in shown or abs(want) >= 50 else 0, 0.01 * abs(want))


def update(path: Path) -> None:
    """Put what the page's blocks print now into its output blocks, but for those that leave lines out."""
    page = path.read_text(encoding="utf-8")
    changes: list[tuple[tuple[int, int], str]] = []

    def say(block: Block, printed: str) -> None:
        if "\n…\n" not in f"\n{block.text}":
            lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
            changes.append((block.span, "\n".join(lines) + "\n"))
        elif difference(block.text, printed):
            print(f"{path}: {difference(block.text, printed)}\n{printed}")

    with tempfile.TemporaryDirectory() as folder:
        run(page, Path(folder), say, shell=commands)
    for (start, end), text in reversed(changes):
        page = page[:start] + text + page[end:]
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        update(Path(name))
