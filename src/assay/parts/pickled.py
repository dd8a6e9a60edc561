"""Data that comes as a Python pickle, read without the power that a pickle has to run code."""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Collection
from typing import Any

from assay.errors import InputError, one_line

Name = tuple[str, str]

ARRAYS: frozenset[Name] = frozenset(
    {
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy.core.numeric", "_frombuffer"),
    }
)
"""What builds NumPy arrays."""

FRAMES: frozenset[Name] = ARRAYS | {
    ("builtins", "slice"),
    ("pandas._libs.arrays", "__pyx_unpickle_NDArrayBacked"),
    ("pandas._libs.internals", "_unpickle_block"),
    ("pandas.core.arrays.boolean", "BooleanArray"),
    ("pandas.core.arrays.boolean", "BooleanDtype"),
    ("pandas.core.arrays.categorical", "Categorical"),
    ("pandas.core.arrays.integer", "Int32Dtype"),
    ("pandas.core.arrays.integer", "IntegerArray"),
    ("pandas.core.arrays.string_", "StringArray"),
    ("pandas.core.arrays.string_", "StringDtype"),
    ("pandas.core.dtypes.dtypes", "CategoricalDtype"),
    ("pandas.core.frame", "DataFrame"),
    ("pandas.core.indexes.base", "Index"),
    ("pandas.core.indexes.base", "_new_Index"),
    ("pandas.core.indexes.range", "RangeIndex"),
    ("pandas.core.internals.managers", "BlockManager"),
}
"""What builds pandas frames of numbers, words and categories."""


def read_pickle(content: bytes, what: str, allowed: Collection[Name], encoding: str = "ASCII") -> Any:
    """Build what a pickle holds from the constructors in ``allowed`` alone.

    Parameters
    ----------
    content
        The pickle.
    what
        What it is, for the errors.
    allowed
        Module and name of each constructor that may be called, as the pickle spells it; ``numpy.core`` also under
        its newer name. :data:`ARRAYS` and :data:`FRAMES` are two such sets.
    encoding
        How the strings of a pickle that Python 2 wrote are encoded; such a one may also call ``codecs.encode``, which
        is answered for latin-1 only.

    Raises
    ------
    InputError
        When it names anything else, or is damaged.
    """
    try:
        return _Restricted(content, what, allowed, encoding).load()
    except InputError:
        raise
    except Exception as error:  # a damaged pickle raises whatever the constructor that it feeds raises
        raise InputError(f"{what} cannot be read: {one_line(error)}") from None


class _Restricted(pickle.Unpickler):
    def __init__(self, content: bytes, what: str, allowed: Collection[Name], encoding: str) -> None:
        super().__init__(io.BytesIO(content), encoding=encoding)
        self._what, self._allowed = what, allowed

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        old = module.replace("numpy._core", "numpy.core", 1)
        if (old, name) not in self._allowed:
            raise InputError(f"{self._what} is refused: it would call {module}.{name}, which is no part of such data")
        return getattr(importlib.import_module(old.replace("numpy.core", "numpy._core", 1)), name)

    def persistent_load(self, pid: Any) -> Any:
        raise InputError(f"{self._what} is refused: it refers to things outside itself")


def _latin1(text: str, encoding: str) -> bytes:
    """How a pickle that Python 2 wrote, and Python 3 rewrote, brings bytes."""
    if encoding != "latin1":
        raise InputError(f"text encoded as {encoding!r} is no part of such data")
    return text.encode("latin1")
