"""How well the chosen features tell each person's class: an objective whose tables cost a share of the budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import InputError

from .objectives import FacilityLocation, _labels, _set

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Release = Callable[[FloatArray, float, float], FloatArray]
"""``release(values, l1, l2)`` adds the noise that the share of the budget pays for."""


@dataclass(frozen=True, eq=False, repr=False)
class FeatureInformation:
    """The sum, over people, of what the best chosen feature says about the person's class, in [0, 1].

    A feature j says s_ij = clip(log(p(y_i | x_ij)/p(y_i)), 0, cap)/cap of person i. The tables p are released once,
    with noise; after that s_ij depends on person i's record and on the release alone, so f(S) = Σ_i max_{j∈S} s_ij is a
    facility location: Δ = 1, one-sided. (The mutual information itself has no sensitivity that could be used.)

    Parameters
    ----------
    X
        (people, features) whole numbers from 0: which value, or bin, each person has. Bins must be public.
    y
        (people,) whole numbers from 0: the classes.
    n_values
        How many values there can be, one number or one for each feature; public, so not ``X.max() + 1``.
    n_classes
        How many classes there can be; public.
    cap
        What counts as full information, in nats; log(n_classes) + 1 by default.
    labels
        Names of the features, 0 … n − 1 by default.

    Raises
    ------
    InputError
        When a value or class lies outside what is public, shapes don't fit, or there is no feature.

    Notes
    -----
    One record changes one cell in each of the n tables by 1: the counts have L2 sensitivity √n and L1 sensitivity n,
    and a replaced record √(2n) and 2n. Clipping the noisy counts at 1 and dividing are done after the release.
    """

    X: npt.ArrayLike
    y: npt.ArrayLike
    n_values: int | Sequence[int]
    n_classes: int
    cap: float | None = None
    labels: Sequence[Hashable] | None = None
    monotone = True
    one_sided = True
    record_sensitivity = 1.0

    def __post_init__(self) -> None:
        X, y = _whole("X", self.X, 2), _whole("y", self.y, 1)
        if X.shape[1] < 1:
            raise InputError("X must have at least one feature")
        if len(X) != len(y):
            raise InputError(f"y must be one class for each of the {len(X)} people, got {len(y)}")
        n = X.shape[1]
        values = np.broadcast_to(_whole("n_values", self.n_values, None), (n,)).copy()
        for name, least, number in (("n_values", 1, int(values.min())), ("n_classes", 2, self.n_classes)):
            if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < least:
                raise InputError(f"{name} must be whole numbers of at least {least}, got {number!r}")
        if X.size and (X.min() < 0 or (X.max(axis=0) >= values).any()):
            raise InputError("X must hold whole numbers from 0 to n_values − 1; put what is outside into a public bin")
        if y.size and (y.min() < 0 or y.max() >= self.n_classes):
            raise InputError(f"y must hold whole numbers from 0 to n_classes − 1 = {self.n_classes - 1}")
        cap = math.log(self.n_classes) + 1 if self.cap is None else self.cap
        if isinstance(cap, bool) or not isinstance(cap, int | float | np.floating) or not 0 < cap < math.inf:
            raise InputError(f"cap must be a finite number greater than 0, got {cap!r}")
        _set(self, X=X, y=y, n_values=values, cap=float(cap), n=n, labels=_labels(self.labels, n))

    def prepared(self, release: Release, replace: bool) -> FacilityLocation:
        """The objective with its tables released; ``replace`` says whether neighbours replace a record."""
        cells = (2 if replace else 1) * self.n
        return self._with(release(self._counts(), float(cells), math.sqrt(cells)))

    def exact(self) -> FacilityLocation:
        """The objective with exact tables. Not private: for tests, studies and ceilings."""
        return self._with(self._counts())

    def _counts(self) -> FloatArray:
        """(features, classes, values) people in each cell."""
        widest = int(self.n_values.max())
        cells = self.y[:, None] * widest + self.X
        return np.stack(
            [np.bincount(column, minlength=self.n_classes * widest) for column in cells.T] if len(cells) else
            [np.zeros(self.n_classes * widest)] * self.n
        ).reshape(self.n, self.n_classes, widest).astype(np.float64)  # fmt: skip

    def _with(self, counts: FloatArray) -> FacilityLocation:
        there = np.arange(counts.shape[2]) < self.n_values[:, None, None]
        counts = np.where(there, np.maximum(counts, 1.0), 0.0)
        classes = counts.sum(axis=(0, 2))
        by_value = counts.sum(axis=1, keepdims=True)
        given = counts / np.where(by_value > 0, by_value, 1.0)
        with np.errstate(divide="ignore"):
            told = np.log(given / (classes / classes.sum())[None, :, None])
        scores = np.clip(told, 0.0, self.cap) / self.cap
        return FacilityLocation(scores[np.arange(self.n), self.y[:, None], self.X], self.labels)


def _whole(name: str, values: Any, dimensions: int | None) -> IntArray:
    array = np.asarray(values)
    if dimensions is not None and array.ndim != dimensions:
        raise InputError(
            f"{name} must have {dimensions} dimension{'s' * (dimensions > 1)}, got the shape {array.shape}"
        )
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name} must hold whole numbers, got {array.dtype}")
    return array.astype(np.int64)
