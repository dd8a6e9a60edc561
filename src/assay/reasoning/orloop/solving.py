"""One solve, with a status that can be relied on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import highspy
import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.parts.highs import solved

from .model import LinearModel

Status = Literal["optimal", "infeasible", "unbounded", "limit", "error"]
STATUSES: tuple[Status, ...] = ("optimal", "infeasible", "unbounded", "limit", "error")
_KNOWN: dict[highspy.HighsModelStatus, Status] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kModelEmpty: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnbounded: "unbounded",
    highspy.HighsModelStatus.kTimeLimit: "limit",
    highspy.HighsModelStatus.kIterationLimit: "limit",
}


@dataclass(frozen=True)
class Solution:
    """What a solve gave.

    Attributes
    ----------
    status
        ``"optimal"``, ``"infeasible"``, ``"unbounded"``, ``"limit"`` or ``"error"``.
    objective, x
        The optimum and a point (n,) that has it; with ``"limit"``, the best point so far, if there is one. Else None.
    """

    status: Status
    objective: float | None = None
    x: NDArray[np.float64] | None = None


def solve(model: LinearModel, *, time_limit: float = 10.0) -> Solution:
    """Solve a model.

    Parameters
    ----------
    model
        The model.
    time_limit
        Seconds; positive. Past it the status is ``"limit"``.

    Returns
    -------
    Solution
        "Unbounded or infeasible" never comes back: it is solved again without presolve, and without costs.

    Raises
    ------
    InputError, TypeError
        For a time limit that is not positive, and a model that is none.
    """
    check_model(model)
    check_time(time_limit)
    if (model.col_lo > model.col_up).any():
        return Solution("infeasible")
    if model.shape[1] == 0:
        return Solution("infeasible" if ((model.row_lo > 0) | (model.row_up < 0)).any() else "optimal", model.offset)
    h = model.to_highs()
    h.setOptionValue("time_limit", float(time_limit))
    h.setOptionValue("mip_rel_gap", 0.0)
    status = solved(h)
    if status == highspy.HighsModelStatus.kUnboundedOrInfeasible:
        h.setOptionValue("presolve", "off")
        status = solved(h)
    if status == highspy.HighsModelStatus.kUnboundedOrInfeasible:  # a mixed-integer model: ask for feasibility alone
        n = model.shape[1]
        h.changeColsCost(n, np.arange(n, dtype=np.int32), np.zeros(n))
        feasible = solved(h) == highspy.HighsModelStatus.kOptimal
        return Solution("unbounded" if feasible else _KNOWN.get(h.getModelStatus(), "error"))
    known = _KNOWN.get(status, "error")
    some = h.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if known != "optimal" and not (known == "limit" and some):
        return Solution(known)
    return Solution(known, float(h.getInfo().objective_function_value), np.array(h.getSolution().col_value))


def check_model(model: object) -> None:
    """Raise TypeError unless it is a LinearModel."""
    if not isinstance(model, LinearModel):
        raise TypeError(f"model must be a LinearModel, got {type(model).__name__}")


def check_time(time_limit: float) -> None:
    """Raise InputError unless it is a positive number of seconds."""
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
        raise InputError(f"time_limit must be a positive number of seconds, got {time_limit!r}")
