"""The report for people on a Gaussian that was found, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from .estimator import LBWCBO

NEAR = 0.05  # of an objective (nats) that is as good


def summary(model: LBWCBO, names: Sequence[str]) -> pd.DataFrame:
    """A row a parameter: its mean, standard deviation, the middle 95 %, and correlations with the others."""
    mean, cov = model.measure_.mean, model.measure_.cov
    sd = np.sqrt(np.diag(cov))
    table = pd.DataFrame(
        {"mean": mean, "sd": sd, "low": mean - 1.959964 * sd, "high": mean + 1.959964 * sd},
        index=pd.Index(list(names), name="parameter"),
    )
    correlation = pd.DataFrame(cov / np.outer(sd, sd), index=table.index, columns=[f"cor {name}" for name in names])
    return table.join(correlation)


def verdict(model: LBWCBO) -> str:
    """The result in one sentence."""
    if model.elbo_ is not None:
        value = (
            f"ELBO {model.elbo_:.4f}"
            if model.objective == "kl"
            else f"bound of order {_order(model)} {model.elbo_:.4f}"
        )
    else:
        value = f"objective {model.objective_:.6g}"
    agreed = "a swarm agreed" if model.converged_ else "the swarm did NOT agree"
    return f"{value}; {agreed} within {model.n_iter_} iterations."


def report_text(
    model: LBWCBO, what: str, names: Sequence[str], trace: str, marginals: str | None, notes: Sequence[str]
) -> str:
    """The report, in Markdown.

    Parameters
    ----------
    model
        A fitted estimator.
    what
        The target, in words.
    names
        Of the parameters.
    trace, marginals
        Names of the pictures; None where there is no second one.
    notes
        What was noticed on the way.
    """
    names = [name.replace("|", "\\|") for name in names]
    table = summary(model, names)
    rows = "\n".join(
        f"| {row.Index} | {row.mean:.5g} | {row.sd:.4g} | {row.low:.5g} to {row.high:.5g} |"
        for row in table[["mean", "sd", "low", "high"]].itertuples()
    )
    parts = [
        f"# A Gaussian for {what}",
        verdict(model),
        f"| parameter | mean | sd | middle 95 % |\n|---|---:|---:|---:|\n{rows}",
    ]
    if len(names) > 1:
        parts.append(f"## Correlations\n{_correlations(table, names)}")
    if marginals:
        parts.append(f"![The Gaussian over the target]({marginals})")
    parts.append(f"## The search\n![Objective and diameter by iteration]({trace})")
    parts.append(_search_text(model))
    if notes:
        parts.append("Notes:\n" + "\n".join(f"- {note}" for note in notes))
    parts.append("## What this is, and what it is not\n" + "\n".join(f"- {line}" for line in _limits(model)))
    return "\n\n".join(parts) + "\n"


def _limits(model: LBWCBO) -> list[str]:
    if model.elbo_ is None:
        return [
            "One Gaussian, the nearest to the samples by the mean of a kernel: far samples count for little, and what "
            "is shaped otherwise than a Gaussian is not in it.",
            "Of two fits to the same samples the one with the lower objective is nearer. Run it again with another "
            "seed: where it differs, more particles or iterations are due.",
        ]
    value = "ELBO" if model.objective == "kl" else "bound"
    near = "KL(q‖p)" if model.objective == "kl" else f"the Rényi divergence of order {_order(model)}"
    return [
        f"One Gaussian, the nearest by {near}: it sits on **one** peak (or on some that run into each other), and its "
        "spread is that of the peak, not of all of them. What lies elsewhere is not in it.",
        f"The {value} was computed on points that neither the search nor the choice has seen. It is a lower bound on "
        "the log evidence log Z; of two fits to the same density the higher one is nearer.",
        f"Run it again with another seed: where the {value} differs by more than some hundredths, the search has not "
        "found the best basin each time, and more particles or iterations are due.",
    ]


def _search_text(model: LBWCBO) -> str:
    other = model.n_other_basins_
    swarms = "one swarm" if model.n_swarms_ == 1 else f"{model.n_swarms_} swarms one after another"
    rows = f", {model.n_evals_:,} rows of the log density" if model.n_evals_ else ""
    lines = [
        f"{model.n_particles} Gaussians a swarm, {swarms}, {model.n_iter_} iterations in all{rows}; "
        f"diameter of the swarm at the end {model.history_['diameter'].iloc[-1]:.3g}.",
        f"{other} of {model.n_particles} particles of the last swarm ended in other basins: from there the straight "
        "way to the result first leads up."
        if other
        else "No particle ended in another basin.",
    ]
    if model.n_swarms_ > 1:
        ends = model.history_.groupby("swarm")["consensus_objective"].last()
        as_good = int((ends < ends.min() + NEAR).sum())
        lines.append(
            f"The swarms ended at objectives {', '.join(f'{end:.4g}' for end in ends)}: {as_good} of {len(ends)} "
            f"within {NEAR} of the best. Where few are, chance decides which basin is found."
        )
    bad = int(model.history_["nonfinite"].sum())
    if bad:
        lines.append(f"{bad} objectives were NaN or infinite and got no weight.")
    return "\n".join(f"- {line}" for line in lines)


def _correlations(table: pd.DataFrame, names: Sequence[str]) -> str:
    head = "| | " + " | ".join(names) + " |\n|---" + "|---:" * len(names) + "|"
    values = table[[f"cor {name}" for name in names]].to_numpy()
    lines = [
        f"| {name} | " + " | ".join(f"{value:.2f}" for value in row) + " |"
        for name, row in zip(names, values, strict=True)
    ]
    return "\n".join([head, *lines])


def _order(model: LBWCBO) -> str:
    return str(model.objective).partition(":")[2]
