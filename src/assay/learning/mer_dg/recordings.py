"""The study's data: windows of smart-watch recordings, split by person."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from assay.parts import watch

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

WINDOW, STRIDE = 128, 96
"""Samples of a window, and from one window to the next; 50 are a second."""

BINS = 24
N_SOURCE = 3
"""People to learn from; the others are the target."""

CODE, CODE_COLUMNS = 4, 8
TIED = 0.9
"""Share of the source windows in which the code tells the class."""


@dataclass(frozen=True)
class Windows:
    """Windows of both modalities.

    Attributes
    ----------
    inputs
        ``"acc"`` and ``"gyr"``: (n, …).
    y, subject, recording
        (n,) exercise, person, and which recording the window is of.
    """

    inputs: dict[str, FloatArray]
    y: IntArray
    subject: IntArray
    recording: IntArray

    def take(self, rows: NDArray[np.bool_]) -> Windows:
        """Some of the windows."""
        inputs = {name: array[rows] for name, array in self.inputs.items()}
        return Windows(inputs, self.y[rows], self.subject[rows], self.recording[rows])


@lru_cache(maxsize=1)
def raw_windows() -> Windows:
    """Every window as it was recorded: acceleration and angular velocity, each (n, 3, 128)."""
    held = watch.load()
    parts, y, subject, recording = [], [], [], []
    for number, signal in enumerate(held.X):
        starts = range(0, len(signal) - WINDOW + 1, STRIDE)
        parts += [signal[start : start + WINDOW].T for start in starts]
        y += [held.y[number]] * len(starts)
        subject += [held.subject[number]] * len(starts)
        recording += [number] * len(starts)
    both = np.stack(parts)
    inputs = {"acc": both[:, :3], "gyr": both[:, 3:]}
    return Windows(inputs, np.array(y), np.array(subject), np.array(recording))


@lru_cache(maxsize=1)
def summary_windows() -> Windows:
    """Of each channel mean, sd, least, largest and the log-spectrum's first 24 bins: (n, 84) a modality."""
    raw = raw_windows()
    return Windows({name: _summary(x) for name, x in raw.inputs.items()}, raw.y, raw.subject, raw.recording)


def _summary(x: FloatArray) -> FloatArray:
    spectrum = np.log1p(np.abs(np.fft.rfft(x, axis=2))[:, :, 1 : BINS + 1])
    moments = np.stack([x.mean(axis=2), x.std(axis=2), x.min(axis=2), x.max(axis=2)], axis=2)
    return np.concatenate([moments, spectrum], axis=2).reshape(len(x), -1)


def split(windows: Windows, rng: np.random.Generator) -> tuple[Windows, Windows]:
    """Source and target: three people at random, and the others."""
    chosen = rng.permutation(np.unique(windows.subject))[:N_SOURCE]
    source = np.isin(windows.subject, chosen)
    return windows.take(source), windows.take(~source)


def with_code(
    windows: Windows, tied: float, codebook: FloatArray, mixing: dict[str, FloatArray], rng: np.random.Generator
) -> Windows:
    """Add columns to each modality that carry the same code: that of the class in a share ``tied``, else of any class.

    Columns are (code + 0.3 · noise) M/2 + 0.3 · noise, M normal and different in each modality.
    """
    n = len(windows.y)
    shown = np.where(rng.random(n) < tied, windows.y, rng.integers(len(codebook), size=n))
    inputs = {}
    for name, array in windows.inputs.items():
        code = codebook[shown] + 0.3 * rng.standard_normal((n, CODE))
        columns = code @ mixing[name] / 2 + 0.3 * rng.standard_normal((n, CODE_COLUMNS))
        inputs[name] = np.concatenate([array, columns], axis=1)
    return Windows(inputs, windows.y, windows.subject, windows.recording)


def cooccurring(source: Windows, target: Windows, rng: np.random.Generator) -> tuple[Windows, Windows]:
    """A code in both modalities alike that tells the class in 90 % of the source windows, and not in the target."""
    codebook = rng.standard_normal((int(source.y.max()) + 1, CODE))
    mixing = {name: rng.standard_normal((CODE, CODE_COLUMNS)) for name in source.inputs}
    return with_code(source, TIED, codebook, mixing, rng), with_code(target, 0.0, codebook, mixing, rng)


def without_some(windows: Windows, share: float, rng: np.random.Generator) -> Windows:
    """One modality, at random, is absent (NaN) in a share of the windows."""
    n = len(windows.y)
    gone = np.where(rng.random(n) < share, rng.integers(len(windows.inputs), size=n), -1)
    inputs = {}
    for place, (name, array) in enumerate(windows.inputs.items()):
        inputs[name] = array.copy()
        inputs[name][gone == place] = np.nan
    return Windows(inputs, windows.y, windows.subject, windows.recording)
