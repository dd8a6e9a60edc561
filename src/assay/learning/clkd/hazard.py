"""Breslow's baseline hazard, and the survival functions that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.errors import InputError
from assay.parts.packages import need

from .outcome import codes
from .partition import risk_set_partition

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class BaselineHazard:
    """Of each stratum an array (2, m): event times and the cumulative hazard of a row with score 0."""

    table: Mapping[Any, FloatArray]

    @classmethod
    def fitted(
        cls,
        event: NDArray[np.bool_],
        time: FloatArray,
        stratum: NDArray[np.int64],
        v: FloatArray,
        scores: FloatArray,
        names: Mapping[int, Any],
    ) -> Self:
        """Sums of weight of events / summed risk of those at risk."""
        table = {}
        for s, name in names.items():
            mine = stratum == s
            if not (event & mine).any():
                table[name] = np.zeros((2, 0))
                continue
            part = risk_set_partition(event[mine], time[mine], np.zeros(mine.sum(), dtype=np.int64), v[mine])
            times = np.unique(time[mine][event[mine]])
            table[name] = np.stack([times, np.cumsum(part.hazard(scores[mine][part.rows])[::-1])])
        return cls(table)

    def cumulative(self, risk: FloatArray, times: FloatArray, strata: ArrayLike | None) -> FloatArray:
        """The cumulative hazard (n, m) of rows with log risks (n,) at some times (m,)."""
        if strata is None:
            if len(self.table) > 1:
                raise InputError("strata is needed: the model was fitted with a baseline hazard for each")
            labels = np.full(len(risk), next(iter(self.table)), dtype=object)
        else:
            codes(strata, len(risk), "strata")
            labels = np.asarray(strata).ravel()
        hazard = np.empty((len(risk), len(times)))
        for label in set(labels.tolist()):
            if label not in self.table:
                raise InputError(
                    f"strata: the model has not seen {label!r}; it knows {', '.join(map(repr, self.table))}"
                )
            at, cumulative = self.table[label]
            level = np.concatenate([[0.0], cumulative])[np.searchsorted(at, times, side="right")]
            mine = labels == label
            with np.errstate(over="ignore"):
                hazard[mine] = np.minimum(np.exp(risk[mine]), 1e300)[:, None] * level
        return hazard


def step_functions(times: FloatArray, values: FloatArray, start: float) -> NDArray[Any]:
    """scikit-survival's step functions (n,) through ``values`` (n, m), which have the value ``start`` before."""
    functions = need("sksurv.functions", "a survival function as a step function")
    at = np.concatenate([[0.0], times])
    out = np.empty(len(values), dtype=object)
    for i, row in enumerate(values):
        out[i] = functions.StepFunction(at, np.concatenate([[start], row]))
    return out
