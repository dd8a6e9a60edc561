"""The study on a user's own models: a base, experts that were fine-tuned from it, and text to judge each by."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from assay.errors import InputError
from assay.parts.checkpoints import load_model, load_tokenizer
from assay.parts.lm_scoring import choice_accuracy, perplexity, token_batches
from assay.parts.text import Choice

from .suites import State

LENGTH = 128
Lines = list[str] | list[Choice]


@dataclass(frozen=True)
class Judged:
    """An expert's folder, and the file of what it is judged by."""

    model: Path
    data: Path


@dataclass(frozen=True)
class OwnSuite:
    """What the score needs."""

    base: Path
    judged: tuple[Judged, ...]
    seed: int


def read_suite(path: Path) -> tuple[Judged, ...]:
    """The experts named in a JSON file: ``[{"model": FOLDER, "data": JSONL}, …]``, paths relative to the file.

    A line of a JSONL is ``{"text": …}``, or a question ``{"question": …, "options": […], "answer": INDEX}``.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path.name} is no JSON: {error}") from error
    if not isinstance(rows, list) or len(rows) < 2:
        raise InputError(
            f'{path.name} must hold a list of two experts or more: [{{"model": FOLDER, "data": JSONL}}, …]'
        )
    found = []
    for n, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("model", "data")):
            raise InputError(f'{path.name}: expert {n} must have "model" and "data", both paths')
        one = Judged(path.parent / row["model"], path.parent / row["data"])
        if not one.model.is_dir():
            raise InputError(f"{path.name}: expert {n}: {one.model} is no folder")
        read_lines(one.data)
        found.append(one)
    return tuple(found)


def read_lines(path: Path) -> Lines:
    """The texts, or the questions, of a JSONL file."""
    if not path.is_file():
        raise InputError(f"{path} is not there; it must be a JSONL file")
    texts: list[str] = []
    questions: list[Choice] = []
    for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path.name}, line {n} is no JSON: {error}") from error
        options = row.get("options") if isinstance(row, dict) else None
        if isinstance(row, dict) and isinstance(row.get("text"), str):
            texts.append(row["text"])
        elif isinstance(options, list) and isinstance(row.get("answer"), int) and 0 <= row["answer"] < len(options):
            questions.append(Choice(str(row.get("question", "")), tuple(map(str, options)), row["answer"]))
        else:
            raise InputError(
                f'{path.name}, line {n} must have "text", or "question", "options" and "answer" (an index)'
            )
    if bool(texts) == bool(questions):
        raise InputError(f"{path.name} must hold texts or questions, and not both")
    return texts or questions


def load_own(seed: int, budget: Any, base: Path, judged: tuple[Judged, ...]) -> tuple[nn.Module, list[Path], OwnSuite]:
    """The base as a module, the experts' folders, and what the score needs."""
    return load_model(base, "float32", "cpu"), [one.model for one in judged], OwnSuite(base, judged, seed)


@torch.no_grad()
def score_own(output: State | None, suite: OwnSuite) -> Mapping[str, float]:
    """How good the merged model is at each expert's text, as a share of the expert; None is each expert itself.

    Each seed draws as many lines as there are, with repetition: merging has no chance in it, and without that every
    seed would say the same. Questions are judged by accuracy, texts by the mean probability of a token (geometric).
    """
    tokenizer = load_tokenizer(suite.base)
    model = load_model(suite.base, "float32", "cpu")
    if output is not None:
        with torch.no_grad():
            state = model.state_dict()
            for name, update in output.items():
                if state[name].is_floating_point():
                    state[name].add_(update)
    shares = []
    for one in suite.judged:
        lines = _drawn(read_lines(one.data), suite.seed)
        own = _quality(load_model(one.model, "float32", "cpu"), tokenizer, lines)
        merged = own if output is None else _quality(model, tokenizer, lines)
        shares.append(merged / own if own > 0 else math.nan)
    return {"accuracy": sum(shares) / len(shares)}


def _drawn(lines: Lines, seed: int) -> Lines:
    return [lines[i] for i in np.random.default_rng(seed).integers(len(lines), size=len(lines))]  # type: ignore[return-value]


def _quality(model: Any, tokenizer: Any, lines: Lines) -> float:
    if isinstance(lines[0], Choice):
        return choice_accuracy(model, tokenizer, lines)
    return 1 / perplexity(model, token_batches(tokenizer, lines, LENGTH), 8)
