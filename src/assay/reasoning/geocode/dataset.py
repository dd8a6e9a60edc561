"""Data sets on disk: images with JSON lines that ``datasets`` loads, plain JSON lines, and worksheets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.parts.checkpoints import new_file, new_folder

from .image import render
from .problem import Problem

FORMATS = ("hf", "jsonl", "pdf")

README = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: "train/**"
---
# Geometry problems with drawings

{n} problems; every one passed five checks (coordinates, deduction, wording, drawing code, image).
`datasets.load_dataset("imagefolder", data_dir="train")` gives an image and these columns:

| column | what it is |
|---|---|
| `image` | the drawing, {size} × {size} pixels |
| `text`, `question` | the problem; what the text leaves out is marked in the drawing |
| `answer`, `answer_value` | exact, and as a number |
| `depth` | how many facts and givens the answer rests on |
| `scene` | the drawing as canonical code: the training target |
| `messages` | a conversation in which the code comes before the answer |
| `problem` | everything, as JSON; `assay use geocode verify` reads it |

`svg/` and `code/` hold each drawing as SVG and as a script for matplotlib.

![The first problems](overview.png)

{rows}
"""


def messages(problem: Problem) -> list[dict[str, str]]:
    """A conversation: the problem, the drawing code, then the answer."""
    return [
        {
            "role": "user",
            "content": f"{problem.text} {problem.question} First give the drawing as JSON, then the answer.",
        },
        {"role": "assistant", "content": f"```json\n{problem.scene.to_json()}\n```"},
        {"role": "user", "content": "Now the answer."},
        {
            "role": "assistant",
            "content": " ".join(s.text for s in problem.solution[:-1]) + f" \\boxed{{{problem.answer.text()}}}",
        },
    ]


def row_of(problem: Problem) -> dict[str, Any]:
    """One row of a data set: flat columns that Arrow can type, and the whole problem as one JSON text."""
    return {
        "file_name": f"{problem.id}.png",
        "id": problem.id,
        "text": problem.text,
        "question": problem.question,
        "answer": problem.answer.text(),
        "answer_value": problem.answer.value,
        "depth": problem.depth,
        "scene": problem.scene.to_json(),
        "messages": messages(problem),
        "problem": json.dumps(problem.to_dict(), ensure_ascii=False),
    }


def write_dataset(
    problems: Sequence[Problem], out: str | Path, *, fmt: str = "hf", size: int = 336, styles: int | None = None
) -> Path:
    """Write problems.

    Parameters
    ----------
    problems
        At least one, with different ids.
    out
        A new folder for ``hf``, a file for ``jsonl`` and ``pdf``.
    fmt
        ``hf``: images and ``metadata.jsonl`` as the imagefolder of ``datasets`` reads them, SVG, scripts and a page for
        people. ``jsonl``: one problem a line. ``pdf``: a worksheet with solutions.
    size
        Pixels of the images.
    styles
        A seed: each image of ``hf`` is drawn in a style of its own; by default all are black on white.

    Raises
    ------
    InputError
        For no problems, ids that are there twice, an unknown format, a folder that is not empty and a file that exists.
    """
    if fmt not in FORMATS:
        raise InputError(f"fmt must be one of {', '.join(FORMATS)}, got {fmt!r}")
    problems = list(problems) if isinstance(problems, Sequence) else []
    if not problems or not all(isinstance(problem, Problem) for problem in problems):
        raise InputError("problems must be a list of at least one Problem")
    ids = [problem.id for problem in problems]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"problems: the id {twice!r} is there twice")
    if any(not name.replace("-", "").replace("_", "").isalnum() for name in ids):
        raise InputError("problems: an id may have letters, digits, - and _, since it names files")
    refuse_taken(out, fmt)
    if fmt == "jsonl":
        with new_file(out) as file:
            file.write_text(
                "".join(json.dumps(p.to_dict(), ensure_ascii=False) + "\n" for p in problems), encoding="utf-8"
            )
        return Path(out)
    if fmt == "pdf":
        return write_sheet(problems, out)
    with new_folder(out) as folder:
        for name in ("train", "svg", "code"):
            (folder / name).mkdir()
        lines = []
        for i, problem in enumerate(problems):
            style = None if styles is None else 1_000_003 * styles + i
            render(problem.scene, size, seed=style).save(folder / "train" / f"{problem.id}.png")
            (folder / "svg" / f"{problem.id}.svg").write_text(problem.scene.to_svg(), encoding="utf-8")
            (folder / "code" / f"{problem.id}.py").write_text(problem.code, encoding="utf-8")
            lines.append(json.dumps(row_of(problem), ensure_ascii=False) + "\n")
        (folder / "train" / "metadata.jsonl").write_text("".join(lines), encoding="utf-8")
        _overview(problems[:12]).save(folder / "overview.png")
        table = ["| id | problem | question | answer | depth |", "|---|---|---|---|---:|"]
        table += [f"| {p.id} | {p.text} | {p.question} | {p.answer.text()} | {p.depth} |" for p in problems[:12]]
        page = README.format(n=len(problems), size=size, rows="\n".join(table))
        (folder / "README.md").write_text(page, encoding="utf-8")
    return Path(out)


def refuse_taken(out: str | Path, fmt: str) -> None:
    """Raise an InputError where something stands at ``out`` that would be lost."""
    place = Path(out)
    if fmt == "hf":
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InputError(f"{out} exists and is not empty: give another folder")
    elif place.exists():
        raise InputError(f"{out} exists: give another file")


def _overview(problems: Sequence[Problem]) -> Any:
    from PIL import Image

    across = min(4, len(problems))
    sheet = Image.new("L", (across * 260, -(-len(problems) // across) * 260), 255)
    for i, problem in enumerate(problems):
        sheet.paste(render(problem.scene, 256), (260 * (i % across), 260 * (i // across)))
    return sheet


def write_sheet(problems: Sequence[Problem], out: str | Path) -> Path:
    """A worksheet: four problems a page, then their solutions."""
    import textwrap

    from matplotlib.backends.backend_pdf import FigureCanvasPdf, PdfPages
    from matplotlib.figure import Figure

    with new_file(out) as file, PdfPages(file, metadata={"CreationDate": None}) as pdf:
        for start in range(0, len(problems), 4):
            page = Figure(figsize=(8.27, 11.69))
            FigureCanvasPdf(page)
            for k, problem in enumerate(problems[start : start + 4]):
                top = 0.95 - 0.235 * k
                axes = page.add_axes((0.06, top - 0.2, 0.29, 0.205))
                axes.imshow(render(problem.scene, 600), cmap="gray", vmin=0, vmax=255)
                axes.axis("off")
                words = textwrap.wrap(f"{start + k + 1}. {problem.text} {problem.question}", 62)
                # Sixteen lines fill the place of a problem; longer ones are set smaller.
                size = 10 * min(1.0, 16 / len(words))
                page.text(0.38, top, "\n".join(words), va="top", fontsize=size)
            pdf.savefig(page)
        for lines in _pages([_solution(i, problem) for i, problem in enumerate(problems, 1)]):
            page = Figure(figsize=(8.27, 11.69))
            FigureCanvasPdf(page)
            page.text(0.06, 0.96, "Solutions", va="top", fontsize=12)
            page.text(0.06, 0.93, "\n".join(lines), va="top", fontsize=8, linespacing=1.3)
            pdf.savefig(page)
    return Path(out)


LINES = 70
"""Of a page of solutions."""


def _solution(number: int, problem: Problem) -> list[str]:
    """The lines of a solution."""
    import textwrap

    words = [f"{number}. {problem.target.text()} = {problem.answer.text()}"]
    words += [f"   {step.text}  ({step.because})" for step in problem.solution]
    return [line for word in words for line in textwrap.wrap(word, 105, subsequent_indent="      ")]


def _pages(blocks: Sequence[list[str]]) -> list[list[str]]:
    """Blocks of lines upon pages: a block that no longer fits begins a new page, and a long one runs over several."""
    pages: list[list[str]] = [[]]
    for block in blocks:
        if pages[-1] and len(pages[-1]) + 1 + len(block) > LINES:
            pages.append([])
        lines = [""] * bool(pages[-1]) + block
        while lines:
            room = LINES - len(pages[-1])
            if not room:
                pages.append([])
                continue
            pages[-1] += lines[:room]
            lines = lines[room:]
    return pages


def read_dataset(path: str | Path) -> list[Problem]:
    """Read problems from a folder or a file that :func:`write_dataset` wrote.

    Raises
    ------
    InputError
        For what is no such data set, with the line at fault.
    """
    place = data_file(path)
    problems = []
    for i, row in enumerate(json_lines(place), 1):
        raw = row
        if isinstance(row.get("problem"), str):
            try:
                raw = json.loads(row["problem"])
            except (ValueError, RecursionError) as error:
                raise InputError(f"{place}, line {i}: problem is no JSON: {error}") from None
        try:
            problems.append(Problem.from_dict(raw))
        except InputError as error:
            raise InputError(f"{place}, line {i}: {error}") from None
    if not problems:
        raise InputError(f"{place} holds no problem")
    return problems


def data_file(path: str | Path) -> Path:
    """The file of JSON lines of a data set: a folder's own, or the file itself."""
    place = Path(path)
    if not place.exists():
        raise InputError(f"there is no {path}: give a folder or file of problems")
    if not place.is_dir():
        return place
    found = [p for p in (place / "train" / "metadata.jsonl", place / "metadata.jsonl") if p.is_file()]
    if not found:
        raise InputError(f"{path} holds no train/metadata.jsonl")
    return found[0]


def json_lines(path: str | Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines, or an InputError that names the line."""
    rows = []
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # with or without the mark that some editors put first
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, and a file of JSON lines is needed") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text in UTF-8: {error}") from None
    for i, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {i} is no JSON: {str(error)[:100]}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {i} must be an object, got a {type(row).__name__}")
        rows.append(row)
    return rows
