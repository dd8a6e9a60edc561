"""A user's rows of text, and the batches that a model takes, made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from assay.errors import InputError, MissingPart, one_line

from .losses import IGNORED

SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet")

MANY_CLASSES = 1000
"""More different labels than this are taken for a mistake."""


@dataclass(frozen=True)
class Rows:
    """Texts and, where there are some, labels: strings for classes and answers, numbers for regression."""

    texts: list[str]
    labels: list[str] | list[float] | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def sample(self, count: int, seed: int) -> Rows:
        """So many rows at random, or all of them in random order."""
        order = np.random.default_rng(seed).permutation(len(self))[:count]
        return self.take(order.tolist())

    def take(self, places: Sequence[int]) -> Rows:
        """The rows at those places."""
        labels: Any = None if self.labels is None else [self.labels[i] for i in places]
        return Rows([self.texts[i] for i in places], labels)


def read_rows(path: str | Path, text_field: str, label_field: str | None = None) -> Rows:
    """Read a table of texts: .jsonl, .csv, .tsv or .parquet. Rows without a text or label are an error.

    Raises
    ------
    InputError
        Where the file or a field is not there, a value is missing, or there are fewer than 2 rows.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path.name}: give a table as {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    table = _read(path)
    for what, name in (("text", text_field), ("label", label_field)):
        if name is not None and name not in table.columns:
            raise InputError(
                f"{path.name} has no field {name!r} for the {what}; it has {', '.join(map(str, table.columns))}"
            )
    if len(table) < 2:
        raise InputError(f"{path.name} has {len(table)} rows; at least 2 are needed")
    texts = table[text_field]
    empty = texts.isna() | (texts.astype(str).str.strip() == "")
    if empty.any():
        raise InputError(f"{path.name}: {int(empty.sum())} rows have no {text_field}, the first is row {_first(empty)}")
    if label_field is None:
        return Rows([str(text) for text in texts])
    column = table[label_field]
    if column.isna().any():
        raise InputError(
            f"{path.name}: {int(column.isna().sum())} rows have no {label_field}, the first is row "
            f"{_first(column.isna())}"
        )
    if pd.api.types.is_float_dtype(column):
        if not np.isfinite(column).all():
            raise InputError(f"{path.name}: a number in {label_field} is not finite")
        if (column % 1 != 0).any():
            return Rows([str(text) for text in texts], [float(value) for value in column])
        column = column.astype("int64")  # 0.0 and 1.0 are classes
    return Rows([str(text) for text in texts], [str(value) for value in column])


def _read(path: Path) -> pd.DataFrame:
    try:
        match path.suffix.lower():
            case ".jsonl":
                return pd.read_json(path, lines=True, dtype=False)
            case ".parquet":
                return pd.read_parquet(path)
            case suffix:
                return pd.read_csv(path, sep="\t" if suffix == ".tsv" else ",", keep_default_na=True)
    except ImportError:
        raise MissingPart("reading Parquet needs pyarrow", "pip install 'assay[parquet]'") from None
    except (ValueError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path.name} cannot be read as {path.suffix[1:]}: {one_line(error, 160)}") from None


def _first(rows: pd.Series[bool]) -> int:
    return int(np.flatnonzero(rows.to_numpy())[0]) + 1


def is_regression(rows: Rows) -> bool:
    """Whether the labels are numbers that are not all whole."""
    return bool(rows.labels) and isinstance(rows.labels[0], float)


def classes(rows: Rows, known: dict[str, int] | None = None) -> dict[str, int]:
    """The number of each class: the checkpoint's own where it knows them all, else in sorted order.

    Raises
    ------
    InputError
        Where there are no labels, one class only, or more than 1000.
    """
    if rows.labels is None:
        raise InputError("classification needs a label field")
    names = {str(label) for label in rows.labels}
    if known:
        by_name = {str(name): index for name, index in known.items()}
        if names <= by_name.keys():
            return by_name
        by_index = {str(index): index for index in known.values()}
        if names <= by_index.keys():
            return by_index
    if not 2 <= len(names) <= MANY_CLASSES:
        raise InputError(f"classification needs 2 to {MANY_CLASSES} different labels, got {len(names)}")
    whole = all(name.lstrip("-").isdigit() for name in names)
    return {name: index for index, name in enumerate(sorted(names, key=lambda n: (int(n) if whole else 0, n)))}


@dataclass(frozen=True)
class Encoded:
    """Token ids of each row, and its label: a class or a number, or for language models a label for each token."""

    ids: list[list[int]]
    labels: list[Any]

    def __len__(self) -> int:
        return len(self.ids)


def encode_labelled(tokenizer: Any, rows: Rows, length: int, numbers: dict[str, int] | None) -> Encoded:
    """Rows for a classifier (``numbers`` of the classes) or a regression (``None``)."""
    assert rows.labels is not None
    ids = tokenizer(rows.texts, truncation=True, max_length=length)["input_ids"]
    labels = [float(label) if numbers is None else numbers[str(label)] for label in rows.labels]
    return Encoded(ids, labels)


def encode_language(tokenizer: Any, rows: Rows, length: int) -> Encoded:
    """Rows for a causal language model: every token is learnt, or only those of the label, set after its text.

    A text that is too long with its answer is cut at its own end, so that the answer stays.
    """
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    ids, labels = [], []
    for place, text in enumerate(rows.texts):
        prompt = tokenizer(text)["input_ids"]
        if rows.labels is None:
            row = (prompt + end)[:length]
            ids.append(row)
            labels.append(list(row))
            continue
        answer = tokenizer(" " + str(rows.labels[place]), add_special_tokens=False)["input_ids"] + end
        answer = answer[: length - 1]
        prompt = prompt[: length - len(answer)]
        ids.append(prompt + answer)
        labels.append([IGNORED] * len(prompt) + answer)
    # A row of one token has no next token to learn.
    kept = [i for i, row in enumerate(labels) if any(label != IGNORED for label in row[1:])]
    if not kept:
        raise InputError("no row has a token to learn")
    return Encoded([ids[i] for i in kept], [labels[i] for i in kept])


def batches(data: Encoded, batch_size: int, steps: int, seed: int, pad: int) -> Iterator[dict[str, Tensor]]:
    """So many batches in an order drawn from ``seed``, over and over the rows; each padded to its longest row."""
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for _ in range(steps):
        while len(order) < batch_size:
            order += rng.permutation(len(data)).tolist()
        places, order = order[:batch_size], order[batch_size:]
        yield collate(data, places, pad)


def collate(data: Encoded, places: Sequence[int], pad: int) -> dict[str, Tensor]:
    """The rows at those places as one batch, padded on the right."""
    longest = max(len(data.ids[i]) for i in places)
    ids = torch.full((len(places), longest), pad)
    mask = torch.zeros_like(ids)
    for row, i in enumerate(places):
        ids[row, : len(data.ids[i])] = torch.tensor(data.ids[i])
        mask[row, : len(data.ids[i])] = 1
    labels = [data.labels[i] for i in places]
    if isinstance(labels[0], list):
        targets = torch.full_like(ids, IGNORED)
        for row, tokens in enumerate(labels):
            targets[row, : len(tokens)] = torch.tensor(tokens)
    else:
        targets = torch.tensor(labels)
    return {"input_ids": ids, "attention_mask": mask, "labels": targets}


def padding(tokenizer: Any, model: Any) -> int:
    """The padding token; where a tokenizer has none, the end of text, which the model's configuration is told of.

    Models that read from the left find a row's last token by it.
    """
    pad = tokenizer.pad_token_id
    if pad is None:
        pad = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else 0
    if getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = pad
    return int(pad)


def usable_length(tokenizer: Any, model: Any, length: int) -> int:
    """``length``, or the longest text that the model can take where that is shorter."""
    limits = [getattr(model.config, "max_position_embeddings", None), tokenizer.model_max_length]
    known = [int(limit) for limit in limits if isinstance(limit, int | float) and math.isfinite(limit) and limit > 1]
    return min([length, *known])
