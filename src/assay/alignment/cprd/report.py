"""The report on a set of comparisons: for people in Markdown, for programs as a dictionary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .audit import RewardAudit
from .comparisons import Comparisons
from .describe import Shape, count, findings, shape_of
from .fit import BTFit
from .ids import shown
from .representation import RepresentabilityReport, quiet_fit, representable
from .rows_needed import EfficiencyReport, efficiency

LARGE = 200_000
"""From this many pairs on the test draws fewer tables, and takes the p-value from a law with their mean and spread."""


@dataclass(frozen=True, eq=False)
class Report:
    """All that was found out about a set of comparisons."""

    comparisons: Comparisons
    fit: BTFit
    shape: Shape
    test: RepresentabilityReport
    worth: EfficiencyReport
    audit: RewardAudit | None = None
    suggested: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()


def examine(c: Comparisons, fit: BTFit | None = None, *, n_boot: int = 200, seed: int = 0) -> Report:
    """Fit, test and measure."""
    fit = quiet_fit(c) if fit is None else fit
    pairs = int(fit.inside.sum())
    draws = n_boot if pairs <= LARGE else min(n_boot, max(10, 10_000_000 // pairs))
    test = representable(c, n_boot=draws, seed=seed, fit=fit, approximate=draws < n_boot)
    worth = efficiency(c, fit, seed=seed)
    return Report(c, fit, shape_of(c, fit, worth.n_connected), test, worth)


def scores_table(report: Report) -> pd.DataFrame:
    """A row for each item: its score and standard error, component, rows and wins; the best first."""
    c, fit = report.comparisons, report.fit
    i, j = c.ends
    w_ij, w_ji = c.wins
    count = len(c.nodes)
    frame = pd.DataFrame(
        {
            "item": c.items.take(c.nodes["item"].to_numpy()),
            "score": fit.scores.to_numpy(),
            "std_err": fit.std_err.to_numpy(),
            "component": fit.component.to_numpy(),
            "rows": np.bincount(i, c.n, count) + np.bincount(j, c.n, count),
            "wins": np.bincount(i, w_ij, count) + np.bincount(j, w_ji, count),
        }
    )
    if c.has_contexts:
        frame.insert(0, "context", c.contexts.take(c.nodes["x"].to_numpy()))
    size = fit.graph.sizes[fit.component.to_numpy()]
    order = np.lexsort((-np.nan_to_num(frame["score"], nan=-np.inf), frame["component"], -size))
    return frame.iloc[order].reset_index(drop=True)


def as_dict(report: Report) -> dict[str, Any]:
    """The report for programs: plain numbers and lists; what is not defined is null."""
    test, worth, shape = report.test, report.worth, report.shape
    found: dict[str, Any] = {
        "shape": vars(shape) | {"matching": shape.matching},
        "fit": {
            "ridge": report.fit.ridge,
            "converged": report.fit.converged,
            "iterations": report.fit.iterations,
            "loglik": report.fit.loglik,
        },
        "representability": {
            name: getattr(test, name)
            for name in ("deviance", "df", "repeated", "p", "p_chi2", "p_boot", "n_boot", "floor_kl", "floor_kl_raw",
                         "floor_abs", "warning", "reason")
        }
        | {
            "triangles": test.cycles.count,
            "triangles_examined": test.cycles.examined,
            "triangles_sampled": test.cycles.sampled,
            "worst_cycles": test.worst_cycles.to_dict("records"),
        },
        "efficiency": {
            name: getattr(worth, name)
            for name in ("lambda2", "fisher_lambda2", "trace_pinv", "fisher_trace_pinv", "predicted_rmse",
                         "mean_margin", "min_margin", "rows", "rows_inside", "exact")
        }
        | {"components": _largest(worth.components).to_dict("records")},
        "findings": [text.replace("**", "") for text in findings(shape, test, worth)],
        "notes": list(report.notes),
    }  # fmt: skip
    if report.audit is not None:
        found["audit"] = {k: v for k, v in vars(report.audit).items() if k != "calibration"} | {
            "calibration": report.audit.calibration.to_dict("records")
        }
    if report.suggested is not None:
        found["suggested"] = report.suggested.head(20).to_dict("records")
    return _plain(found)


def as_markdown(report: Report, name: str, pictures: dict[str, str]) -> str:
    """The report for people."""
    c, shape, test, worth = report.comparisons, report.shape, report.test, report.worth
    parts = [f"# What {name} can teach a Bradley–Terry reward"]
    parts.append("\n".join(f"- {text}" for text in findings(shape, test, worth)))
    if report.notes:
        parts.append("Notes:\n" + "\n".join(f"- {note}" for note in report.notes))
    parts.append("## The comparisons\n\n" + _shape_table(shape))
    if "components" in pictures:
        parts.append(f"![How many items are in components of each size]({pictures['components']})")
    parts.append("## Scores\n\n" + _scores_text(report))
    if "scores" in pictures:
        parts.append(f"![Scores of the largest component]({pictures['scores']})")
    if "shares" in pictures:
        parts.append(f"![Observed shares against the probabilities of the scores]({pictures['shares']})")
    parts.append("## Can scores represent the preferences?\n\n" + _test_text(test))
    if len(test.worst_cycles):
        parts.append(_cycles_table(test, c.has_contexts))
    parts.append("## How many rows are needed?\n\n" + _worth_text(report))
    if report.audit is not None:
        parts.append("## The reward model\n\n" + _audit_text(report.audit))
        if "audit" in pictures:
            parts.append(f"![Calibration of the reward model]({pictures['audit']})")
    if report.suggested is not None:
        parts.append("## What to label next\n\n" + _suggested_text(report.suggested))
    return "\n\n".join(parts) + "\n"


def _shape_table(shape: Shape) -> str:
    rows = [
        ("rows", count(shape.rows)),
        ("items" + (" (in their contexts)" if shape.contexts > 1 else ""), str(shape.items)),
        ("contexts", str(shape.contexts)),
        ("different pairs", str(shape.pairs)),
        ("items compared with one other item only", f"{shape.single:.1%}"),
        ("pairs with more than one row", str(shape.repeated_pairs)),
        ("two rows of such a pair agree", _number(shape.repeat_agreement, "{:.1%}")),
        ("connected parts", str(shape.connected)),
        (
            "components, within which scores compare",
            f"{shape.components} ({shape.alone} of one item, without a finite score)",
        ),
        ("items of the largest component", str(shape.largest)),
        ("rows within components", f"{shape.inside:.1%}"),
    ]
    return _table(("", ""), rows)


def _scores_text(report: Report, most: int = 10) -> str:
    fit = report.fit
    ridge = (
        f"A penalty of {fit.ridge:g}/2 · |s|² was added: the scores depend on it."
        if fit.ridge
        else "No penalty was added: the scores are those of maximum likelihood, and where rows define none, none is "
        "given."
    )
    table = scores_table(report)
    defined = table[table["score"].notna()]
    if not len(defined):
        return f"{ridge}\n\nNo item has a finite score. `scores.csv` lists the items."
    largest = defined[defined["component"] == defined["component"].iloc[0]]
    rows = [
        (
            *((shown(row.context, 24),) if "context" in table else ()),
            shown(row.item),
            f"{row.score:+.3f}",
            f"{row.std_err:.3f}",
            count(row.rows),
            count(row.wins),
        )
        for row in largest.head(most).itertuples()
    ]
    head = (*(("context",) if "context" in table else ()), "item", "score", "s.e.", "rows", "wins")
    of = f"The best {len(rows)} of {len(largest)} items of the largest component; `scores.csv` has all of them."
    return f"{ridge}\n\n{of}\n\n{_table(head, rows)}"


def _test_text(test: RepresentabilityReport) -> str:
    draws = f"{test.n_boot} draws of {test.drawn}"
    rows = [
        ("deviance, degrees of freedom", f"{test.deviance:.4g}, {test.df}"),
        ("p-value", _number(test.p, "{:.3g}") + (f" ({draws})" if not math.isnan(test.p_boot) else "")),
        ("p-value by the chi-square law", _number(test.p_chi2, "{:.3g}") + " (needs many rows a pair)"),
        ("distance that stays, noise taken off", f"{test.floor_kl:.3g} nats a row"),
        ("mean distance of shares, with noise", f"{test.floor_abs:.3g}"),
        ("triangles", f"{test.cycles.count}" + (f", {test.cycles.examined} sampled" if test.cycles.sampled else "")),
    ]
    text = _table(("", ""), rows)
    return text + (f"\n\nNot tested: {test.reason}." if test.reason else "")


def _cycles_table(test: RepresentabilityReport, contexts: bool, most: int = 8) -> str:
    rows = [
        (
            *((shown(row.context, 20),) if contexts else ()),
            " → ".join(shown(item, 24) for item in (row.i, row.j, row.k)),
            f"{row.sum:+.2f}",
            f"{row.z:.1f}",
            f"{row.p:.2g}",
        )
        for row in test.worst_cycles.head(most).itertuples()
    ]
    head = (*(("context",) if contexts else ()), "triangle", "sum of log-odds", "z", "p, for all triangles")
    return "Triangles that contradict themselves most (the sum is 0 where a score exists):\n\n" + _table(head, rows)


def _worth_text(report: Report) -> str:
    worth = report.worth
    if not worth.rows_inside:
        return "There is no component with more than one item: no number of rows of this kind gives scores."
    estimated = (
        "" if worth.exact else " Traces of large components are estimated, with their standard errors in `report.json`."
    )
    rows = [
        ("expected error of a score", f"{worth.predicted_rmse:.3g}"),
        ("second eigenvalue, by rows", f"{worth.lambda2:.4g}"),
        ("second eigenvalue, by information", f"{worth.fisher_lambda2:.4g}"),
        ("mean margin of a row", f"{worth.mean_margin:.3g}"),
    ]
    targets = [(f"{t:g}", count(worth.rows_for(t))) for t in (0.5, 0.2, 0.1, 0.05)]
    largest = _largest(worth.components, 5)
    shown_rows = [
        (str(int(r.items)), str(int(r.pairs)), count(r.rows), f"{r.lambda2:.3g}", f"{r.predicted_rmse:.3g}")
        for r in largest.itertuples()
        if r.items > 1
    ]
    return (
        f"{_table(('', ''), rows)}\n\nRows, spread as these are, for an expected error of a score:{estimated}\n\n"
        f"{_table(('error', 'rows'), targets)}\n\nThe largest components:\n\n"
        f"{_table(('items', 'pairs', 'rows', 'second eigenvalue', 'expected error'), shown_rows)}"
    )


def _audit_text(audit: RewardAudit) -> str:
    scale = _number(audit.scale, "{:.3g}")
    between = f" ({audit.scale_lo:.3g} to {audit.scale_hi:.3g})" if math.isfinite(audit.scale) else ""
    rows = [
        ("rows", count(audit.rows)),
        ("accuracy", f"{audit.accuracy:.1%} ({audit.accuracy_lo:.1%} to {audit.accuracy_hi:.1%})"),
        ("log loss", f"{audit.log_loss:.4f} (a coin: 0.6931)"),
        ("best factor for its differences", scale + between),
        ("log loss with that factor", _number(audit.log_loss_scaled, "{:.4f}")),
        ("rows within components", count(audit.rows_inside)),
        ("KL to the preferences there", _number(audit.kl_to_cprd, "{:.4f}")),
        ("of the best score for each item", _number(audit.kl_floor, "{:.4f}")),
        ("excess", _number(audit.excess, "{:.4f}")),
        ("of which the best score's optimism", _number(audit.optimism, "{:.4f}")),
    ]
    return _table(("", ""), rows)


def _suggested_text(suggested: pd.DataFrame, most: int = 10) -> str:
    contexts = "context" in suggested
    rows = [
        (*((shown(row.context, 24),) if contexts else ()), shown(row.i), shown(row.j), f"{row.gain:.3g}")
        for row in suggested.head(most).itertuples()
    ]
    head = (*(("context",) if contexts else ()), "i", "j", "gain")
    return (
        f"The first {len(rows)} of {len(suggested)} pairs; `next_pairs.csv` has all of them. The gain is the "
        "drop of the summed "
        f"variance of all scores (or of the log-determinant), after the labels above it.\n\n{_table(head, rows)}"
    )


def _table(head: tuple[str, ...], rows: list[Any]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def _number(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "–"


def _largest(components: pd.DataFrame, most: int = 20) -> pd.DataFrame:
    return components.sort_values("items", ascending=False, kind="stable").head(most)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
