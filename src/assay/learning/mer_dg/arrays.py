"""A user's recordings from an ``.npz`` file: an array for each modality, one of labels and one of domains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.parts.frames import read_arrays

from .views import Views, checked_views

LABEL, DOMAIN = "label", "domain"


@dataclass(frozen=True)
class Recordings:
    """What the file holds.

    Attributes
    ----------
    views
        The modalities.
    label, domain
        (n,) arrays; None where the file has none and none was asked for.
    """

    views: Views
    label: NDArray[Any] | None
    domain: NDArray[Any] | None

    @property
    def inputs(self) -> dict[str, NDArray[Any]]:
        """The modalities, with rows of NaN where one is absent."""
        found = {}
        for name, rows in self.views.arrays.items():
            there = self.views.present[name].reshape(-1, *[1] * (rows.ndim - 1))
            found[name] = np.where(there, rows, np.nan)
        return found


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an ``.npz`` file; another kind of file is refused with a word on how to write one."""
    if path.is_file() and path.suffix.lower() != ".npz":
        raise InputError(f"{path.name} is no .npz file: write one with numpy.savez(file, NAME=array, …)")
    return read_arrays(path)


def read_recordings(
    path: Path,
    modalities: Sequence[str] | None = None,
    label: str | None = LABEL,
    domain: str | None = DOMAIN,
) -> Recordings:
    """Read and check an ``.npz`` file.

    Parameters
    ----------
    path
        Written by ``numpy.savez``; no pickled objects.
    modalities
        Names of the arrays (n, …); default all but the labels and the domains.
    label, domain
        Names of the arrays (n,) of classes and of domains; None where none is wanted.

    Raises
    ------
    InputError
        If the file is none, or an array is not there, or not usable.
    """
    held = arrays_of(path)
    for name in (label, domain, *(modalities or ())):
        if name is not None and name not in held:
            raise InputError(f"{path.name} has no array {name!r}; it has {', '.join(sorted(held))}")
    names = list(modalities or [name for name in held if name not in (label, domain)])
    if not names:
        raise InputError(f"{path.name} has no modality beside {label!r} and {domain!r}")
    if len(set(names)) < len(names):
        raise InputError(f"a modality is named twice: {', '.join(names)}")
    wrong = [name for name in (label, domain) if name in names]
    if wrong:
        raise InputError(f"{wrong[0]!r} is a modality and the labels or domains at once")
    try:
        views = checked_views({name: held[name] for name in names})
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from None
    sides = {what: held[what] for what in (label, domain) if what is not None}
    for what, values in sides.items():
        if values.shape != (len(views),):
            raise InputError(f"{path.name}: {what!r} must have shape ({len(views)},), it has {values.shape}")
        if values.dtype.kind not in "biufSU":
            raise InputError(f"{path.name}: {what!r} must hold numbers or text, not {values.dtype}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise InputError(f"{path.name}: {what!r} holds NaN or infinity")
    return Recordings(views, sides.get(label) if label else None, sides.get(domain) if domain else None)
