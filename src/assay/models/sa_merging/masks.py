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

_SAMPLE = 16_384


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
    """The ``count`` highest scores among the entries alive; of equal ones those with the lower index."""
    if count >= (scores.numel() if alive is None else _count(alive)):
        return torch.ones_like(scores, dtype=torch.bool) if alive is None else alive.clone()
    if count <= 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    if alive is not None:
        # -inf where dead, inf where alive; by arithmetic, since choosing by truth values is several times slower.
        bound = alive.to(scores.dtype).sub_(0.5).mul_(torch.inf)
        scores = torch.minimum(scores, bound, out=bound)
    threshold = _kth_largest(scores, count)
    chosen = scores >= threshold
    surplus = _count(chosen) - count
    if surplus:
        ties = (scores == threshold).nonzero().squeeze(1)
        chosen[ties[len(ties) - surplus :]] = False
    return chosen


def _count(mask: Bool[Tensor, " entries"]) -> int:
    return int(np.count_nonzero(mask.numpy())) if mask.device.type == "cpu" else int(mask.sum())


def _kth_largest(scores: Float[Tensor, " entries"], k: int) -> float:
    """The k-th largest value, exactly: bracketed from a sample at fixed steps, then found within the bracket."""
    n = scores.numel()
    if scores.device.type != "cpu":
        return float(scores.kthvalue(n - k + 1).values)
    values = scores.numpy()
    if n > 4 * _SAMPLE:
        sample = np.sort(values[:: n // _SAMPLE])[::-1]
        at, margin = k / n * len(sample), 4 * (len(sample) ** 0.5)
        above = values > sample[max(0, int(at - margin))]
        inside = values[(values >= sample[min(len(sample) - 1, int(at + margin))]) ^ above]
        before = int(np.count_nonzero(above))
        if before < k <= before + len(inside):  # else the sample misled, as periodic scores can
            values, k = inside, k - before
    return float(np.partition(values, len(values) - k)[len(values) - k])
