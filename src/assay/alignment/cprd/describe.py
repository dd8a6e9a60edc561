"""What a set of comparisons is like, and what it can teach: in numbers and in sentences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .comparisons import BEST_OF_K, Comparisons
from .fit import BTFit
from .representation import RepresentabilityReport
from .rows_needed import EfficiencyReport

MATCHING = 0.8
"""From this share of items that were compared with one other item only, the graph is called almost a matching."""


@dataclass(frozen=True)
class Shape:
    """The graph of the comparisons.

    Attributes
    ----------
    items, contexts, rows, pairs
        How many there are; an item counts once in each context.
    single
        Share of items that were compared with one other item only.
    repeated_pairs, repeat_agreement
        How many pairs have more than one row; and the chance that two rows of one pair, drawn at random, agree
        (NaN where there are none): what people themselves agree on.
    connected, components, largest, alone
        Parts when it does not matter who won; components, within which scores exist; the items of the largest; and
        how many items are components of their own.
    inside
        Share of the rows within components.
    """

    items: int
    contexts: int
    rows: float
    pairs: int
    single: float
    repeated_pairs: int
    repeat_agreement: float
    connected: int
    components: int
    largest: int
    alone: int
    inside: float

    @property
    def matching(self) -> bool:
        """Whether nearly every item was compared with one other alone, and most rows give no score."""
        return self.single >= MATCHING and self.inside < 0.5


def shape_of(c: Comparisons, fit: BTFit, connected: int) -> Shape:
    """Count."""
    i, j = c.ends
    degree = np.bincount(i, minlength=len(c.nodes)) + np.bincount(j, minlength=len(c.nodes))
    w_ij, w_ji = c.wins
    n = c.n
    twice = n > 1 + 1e-9
    couples = float((n * (n - 1))[twice].sum())
    agree = (w_ij * np.maximum(w_ij - 1, 0) + w_ji * np.maximum(w_ji - 1, 0))[twice].sum()
    sizes = fit.graph.sizes
    return Shape(
        len(c.nodes),
        len(c.contexts),
        float(n.sum()),
        len(n),
        float((degree == 1).mean()),
        int(twice.sum()),
        float(agree / couples) if couples else float("nan"),
        connected,
        len(sizes),
        int(sizes.max()),
        int((sizes == 1).sum()),
        float(n[fit.inside].sum() / n.sum()),
    )


def findings(shape: Shape, test: RepresentabilityReport, worth: EfficiencyReport) -> list[str]:
    """What a person should know first, a sentence or two each."""
    said = []
    if shape.matching:
        said.append(
            f"**The comparisons are almost a matching**: {shape.single:.0%} of the {shape.items} items were "
            "compared with one "
            "other item only. No score of items can be recovered from that, by this method or any other: a "
            "reward model "
            "fitted to these rows lives on what items have in common (their text), not on comparisons of the "
            "same items. "
            "What can be learned here: how well the scores of a given reward model agree with the rows "
            "(`--score-chosen`, `--score-rejected`), how often two rows of a pair agree where it comes twice, and "
            f"{_labels(shape)} (`--suggest`)."
        )
    elif shape.inside < 0.5:
        said.append(
            f"**Most rows say nothing about scores**: {shape.inside:.0%} of the rows lie within components that "
            "have finite "
            f"scores; {shape.alone} of {shape.items} items have none."
        )
    elif shape.components > shape.contexts:
        said.append(
            f"**The items fall into {shape.components} components**, the largest with {shape.largest} of "
            f"{shape.items}; "
            f"{alone(shape.alone)}. Scores of different components cannot be compared: "
            "an item that only ever won (or lost) could be better by any amount."
        )
    if test.warning == BEST_OF_K:
        said.append(
            "**Each row group picks one of all items.** Such rows always fit a Bradley–Terry model: the scores "
            "are the centred "
            "log shares, and whether people's pairwise preferences have a score cannot be seen."
        )
    elif np.isnan(test.p):
        said.append(f"**Whether scores can represent the preferences cannot be tested**: {test.reason}.")
    elif test.p < 0.05:
        said.append(
            f"**No score represents these preferences** (p {_p(test.p)}): they hold cycles beyond chance. A "
            "Bradley–Terry reward "
            f"converges to the nearest representable preferences, and stays off by {test.floor_kl:.3g} nats a "
            "row however "
            "many rows are added."
        )
    else:
        said.append(
            f"**Nothing speaks against a score** (p {_p(test.p)}): no cycles beyond chance, among "
            f"{test.repeated} pairs with more "
            "than one row. With few rows a pair, cycles can hide."
        )
    if np.isfinite(worth.predicted_rmse):
        said.append(
            f"**Expected error of a score: {worth.predicted_rmse:.3g}** (log-odds, within components). To halve "
            "it takes "
            f"{count(worth.rows_for(worth.predicted_rmse / 2))} rows spread as these are, against "
            f"{count(worth.rows)} now."
        )
    return said


def _labels(shape: Shape) -> str:
    """What labels are for in a matching."""
    if shape.contexts > 1:  # most contexts hold one pair, and nothing joins two contexts
        return "which pairs to ask again; more answers to each prompt would tell more than more prompts"
    return "which labels would connect the items"


def alone(items: int) -> str:
    """How many items have no finite score."""
    return (
        "1 item is alone and has no finite score" if items == 1 else f"{items} items are alone and have no finite score"
    )


def count(rows: float) -> str:
    """A number of rows for people: written out where it is large.

    >>> count(2.5), count(1706191.2)
    ('2.5', '1,706,191')
    """
    return f"{rows:,.0f}" if rows >= 1000 else f"{rows:.4g}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
