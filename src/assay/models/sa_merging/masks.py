"""Masks: which entries of an update are kept; one bit each."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

_SAMPLE = 65_536


class BitMasks:
    """A mask for each tensor of each expert, one bit an entry, in a scratch file that goes when it is closed.

    Parameters
    ----------
    sizes
        Tensor name to number of entries.
    experts
        How many experts; all masks start full.
    folder
        Where the scratch file lies; by default in the system's folder for such files.
    """

    def __init__(self, sizes: Mapping[str, int], experts: int, folder: Path | None = None) -> None:
        self._sizes, self._starts, end = dict(sizes), {}, 0
        for name, size in sizes.items():
            self._starts[name] = end
            end += (size + 7) // 8
        self._stride, self._full = end, {(n, name) for n in range(experts) for name in sizes}
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, prefix=".sa-merging-")  # noqa: SIM115

    def read(self, expert: int, name: str) -> Tensor | None:
        """The flat mask (truth values), or None where nothing was dropped yet."""
        if (expert, name) in self._full:
            return None
        size = self._sizes[name]
        self._file.seek(expert * self._stride + self._starts[name])
        packed = np.frombuffer(self._file.read((size + 7) // 8), dtype=np.uint8)
        return torch.from_numpy(np.unpackbits(packed, count=size).view(np.bool_))

    def write(self, expert: int, name: str, mask: Bool[Tensor, " entries"]) -> None:
        """Store a flat mask."""
        self._file.seek(expert * self._stride + self._starts[name])
        self._file.write(np.packbits(mask.cpu().numpy()).tobytes())
        self._full.discard((expert, name))

    def close(self) -> None:
        """Delete the scratch file."""
        self._file.close()


def kept_count(numel: int, keep: float, round_: int, rounds: int) -> int:
    """Entries of a tensor that are left after a round: round(keep^(round/rounds) · numel)."""
    return round(keep ** (round_ / rounds) * numel)


def keep_top(
    scores: Float[Tensor, " entries"], count: int, alive: Bool[Tensor, " entries"] | None = None
) -> Bool[Tensor, " entries"]:
    """The ``count`` highest scores among the entries alive; of equal ones those with the lower index.

    Takes two or three passes over the scores: a threshold is bracketed from a sample at fixed steps, and only what
    lies in the bracket is sorted out.
    """
    index = None
    if alive is not None:
        index = alive.nonzero().squeeze(1)
        scores = scores[index]
    n = scores.numel()
    if count >= n:
        return alive.clone() if alive is not None else torch.ones_like(scores, dtype=torch.bool)
    if count <= 0:
        return torch.zeros(len(alive) if alive is not None else n, dtype=torch.bool, device=scores.device)
    threshold = _kth_largest(scores, count)
    chosen = scores > threshold
    ties = (scores == threshold).nonzero().squeeze(1)
    chosen[ties[: count - int(chosen.sum())]] = True
    if index is None or alive is None:
        return chosen
    mask = torch.zeros_like(alive)
    mask[index[chosen]] = True
    return mask


def _kth_largest(scores: Float[Tensor, " entries"], k: int) -> Tensor:
    """The k-th largest value, exactly."""
    n = scores.numel()
    if n > 8 * _SAMPLE:
        sample = scores[:: n // _SAMPLE].sort(descending=True).values
        at, margin = k / n * len(sample), 4 * (len(sample) ** 0.5)
        high = sample[max(0, int(at - margin))]
        low = sample[min(len(sample) - 1, int(at + margin))]
        above = int((scores > high).sum())
        inside = scores[(scores <= high) & (scores >= low)]
        if above < k <= above + len(inside):  # else the sample misled, as periodic scores can
            scores, k = inside, k - above
    return scores.kthvalue(scores.numel() - k + 1).values
