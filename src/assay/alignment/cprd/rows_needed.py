"""How many rows scores need: from the margin and the connectivity of the comparisons."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import coo_array, csgraph

from assay.errors import InputError

from .comparisons import Comparisons
from .fit import BTFit, _check
from .representation import quiet_fit

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EfficiencyReport:
    """What the comparisons are worth.

    Numbers for the whole are means over the components with more than one item, weighted by their rows; the worst
    component stands in ``components``.

    Attributes
    ----------
    components
        A row for each component: ``context``, ``items``, ``pairs``, ``rows``; ``lambda2`` and ``fisher_lambda2``, the
        second eigenvalue of its Laplacian with the rows, or their information n σ(1 − σ), as weights;
        ``trace_pinv`` and ``fisher_trace_pinv``, of those Laplacians' pseudo-inverses, with ``…_error``, its
        standard error where it was estimated; ``predicted_rmse``.
    n_connected
        Into how many parts the data fall when it does not matter who won; ``components`` can be more.
    rows, rows_inside
        All rows; and those within components, on which the scores rest.
    lambda2, fisher_lambda2, trace_pinv, fisher_trace_pinv
        Means of the above. A large λ₂ and a small trace mean well connected.
    predicted_rmse
        √(trace/items) of the information: the expected error of a score, in its own unit (log-odds).
    mean_margin, min_margin
        |2r − 1| over pairs within components, weighted by rows; and its smallest. Below 1/√n a margin is noise: it is
        taken of the fitted probabilities.
    exact
        Whether nothing was estimated (no component above 1000 items).
    """

    components: pd.DataFrame
    n_connected: int
    rows: float
    rows_inside: float
    lambda2: float
    fisher_lambda2: float
    trace_pinv: float
    fisher_trace_pinv: float
    predicted_rmse: float
    mean_margin: float
    min_margin: float
    exact: bool

    def rows_for(self, target_rmse: float) -> float:
        """How many rows, spread as these are, would bring the expected error of a score to ``target_rmse``.

        Raises
        ------
        InputError
            When the target is not positive.
        """
        if not isinstance(target_rmse, numbers.Real) or not target_rmse > 0:
            raise InputError(f"target_rmse must be positive, not {target_rmse!r}")
        return float(self.rows * (self.predicted_rmse / target_rmse) ** 2)


def efficiency(c: Comparisons, fit: BTFit | None = None, *, seed: int = 0) -> EfficiencyReport:
    """Margin, connectivity and the error that they predict.

    Parameters
    ----------
    c
        The comparisons.
    fit
        Their fit, where it is there already.
    seed
        Of the random signs with which traces of large components are estimated.

    Raises
    ------
    TypeError, InputError
        When ``c`` is no :class:`Comparisons`, or the fit is of other ones.
    """
    _check(c)
    fit = quiet_fit(c) if fit is None else fit
    if fit.comparisons is not c and len(fit.scores) != len(c.nodes):
        raise InputError("fit must be a fit of these comparisons")
    graph, n = fit.graph, c.n
    inside_n = n[fit.inside]
    sizes = graph.sizes
    by_rows, by_information = (graph.second(weight).values for weight in (inside_n, fit.fisher))
    plain, information = (graph.inverse(weight, seed=seed) for weight in (inside_n, fit.fisher))
    rmse = np.sqrt(information.trace / sizes)
    rows = np.bincount(graph.component[graph.i], inside_n, len(sizes))
    first = np.unique(graph.component, return_index=True)[1]
    alone = sizes == 1
    components = pd.DataFrame(
        {
            "context": c.contexts.take(c.nodes["x"].to_numpy()[first]),
            "items": sizes,
            "pairs": np.bincount(graph.component[graph.i], minlength=len(sizes)),
            "rows": rows,
            "lambda2": by_rows,
            "fisher_lambda2": by_information,
            "trace_pinv": np.where(alone, np.nan, plain.trace),
            "trace_pinv_error": plain.trace_error,
            "fisher_trace_pinv": np.where(alone, np.nan, information.trace),
            "fisher_trace_pinv_error": information.trace_error,
            "predicted_rmse": np.where(alone, np.nan, rmse),
        }
    )
    margin = np.abs(np.tanh((fit.values[graph.i] - fit.values[graph.j]) / 2))
    total = float(rows.sum())

    def mean(name: str) -> float:
        return float(rows[~alone] @ components[name].to_numpy()[~alone] / total) if total else float("nan")

    i, j = c.ends
    pattern = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(graph.n, graph.n))
    return EfficiencyReport(
        components,
        int(csgraph.connected_components(pattern, directed=False, return_labels=False)),
        float(n.sum()),
        total,
        mean("lambda2"),
        mean("fisher_lambda2"),
        mean("trace_pinv"),
        mean("fisher_trace_pinv"),
        float(np.sqrt(information.trace[~alone].sum() / sizes[~alone].sum())) if total else float("nan"),
        float(inside_n @ margin / total) if total else float("nan"),
        float(margin.min()) if total else float("nan"),
        not graph.large,
    )
