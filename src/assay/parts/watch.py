"""Smart-watch recordings of shoulder exercises, of the package seglearn: only its data file is read."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from assay.errors import InputError
from assay.parts.packages import checked_file
from assay.parts.pickled import ARRAYS, read_pickle

RATE = 50
"""Samples a second."""

_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"


@dataclass(frozen=True)
class Watch:
    """Recordings of one exercise each, made by ten people with the watch on the left or the right wrist.

    Attributes
    ----------
    X
        140 arrays (t, 6), float64, 50 samples a second: acceleration in g, then angular velocity in rad/s.
    y
        (140,) int64, the exercise, an index into ``exercises``.
    side
        (140,) int64, 1 for the right arm and 0 for the left.
    subject
        (140,) int64, the number of the person, ten different ones.
    exercises
        The names of the seven exercises, abbreviated.
    channels
        The names of the six columns: ``ax``, ``ay``, ``az``, ``wx``, ``wy``, ``wz``.
    """

    X: list[npt.NDArray[np.float64]]
    y: npt.NDArray[np.int64]
    side: npt.NDArray[np.int64]
    subject: npt.NDArray[np.int64]
    exercises: tuple[str, ...]
    channels: tuple[str, ...]


def load() -> Watch:
    """140 recordings of seven shoulder exercises by ten people.

    Origin: package ``seglearn`` 1.2.5 (BSD 3-clause), the data of Burns et al., arXiv 1802.01489.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file than the one known here.
    """
    file = io.BytesIO(checked_file("seglearn", "data", "watch_dataset.npy", sha256=_SHA256))
    what = "seglearn's watch_dataset.npy"
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    held = read_pickle(file.read(), what, ARRAYS, encoding="latin1")
    data = held.item() if isinstance(held, np.ndarray) and held.shape == () else None
    if not isinstance(data, dict):
        raise InputError(f"{what} does not hold the recordings")
    return Watch(
        X=[np.ascontiguousarray(recording, dtype=np.float64) for recording in data["X"]],
        y=np.asarray(data["y"]).astype(np.int64),
        side=np.asarray(data["side"]).astype(np.int64),
        subject=np.asarray(data["subject"]).astype(np.int64),
        exercises=tuple(map(str, data["y_labels"])),
        channels=tuple(map(str, data["X_labels"])),
    )
