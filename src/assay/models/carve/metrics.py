"""How well a router routes over time, and how much it forgets."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

History = Sequence[Sequence[float]]
"""``history[t][e]``: accuracy on the test queries of experience e after learning experience t, for e ≤ t."""

LEVELS = ("model", "family", "domain")


def route_accuracy(
    right: Sequence[Hashable],
    predicted: Sequence[Hashable],
    families: Mapping[Any, Hashable],
    domains: Mapping[Any, Hashable],
) -> dict[str, float]:
    """Share of queries routed to the right id (``model``), to its family, and to its domain.

    Parameters
    ----------
    right, predicted
        The right ids and the predicted ones, of equal length, not empty.
    families, domains
        Family and domain of each id.

    Raises
    ------
    ValueError
        When the lengths differ or are zero.
    KeyError
        When an id has no family or domain.

    Examples
    --------
    >>> route_accuracy(["a", "b"], ["a", "c"], {"a": 1, "b": 2, "c": 2}, {"a": 0, "b": 0, "c": 0})
    {'model': 0.5, 'family': 1.0, 'domain': 1.0}
    """
    if len(right) != len(predicted) or not len(right):
        raise ValueError(f"right and predicted must have one length, not zero; got {len(right)} and {len(predicted)}")
    pairs = list(zip(right, predicted, strict=True))
    return {
        "model": float(np.mean([a == b for a, b in pairs])),
        "family": float(np.mean([families[a] == families[b] for a, b in pairs])),
        "domain": float(np.mean([domains[a] == domains[b] for a, b in pairs])),
    }


def forgetting(history: History) -> float:
    """Mean over all experiences but the last of (best accuracy at an earlier time − accuracy at the end).

    0 where there is only one experience; negative where later ones helped.

    Examples
    --------
    >>> round(forgetting([[0.8], [0.6, 0.9], [0.7, 0.5, 0.4]]), 3)
    0.25
    """
    last = _checked(history)[-1]
    lost = [max(history[t][e] for t in range(e, len(history) - 1)) - last[e] for e in range(len(history) - 1)]
    return float(np.mean(lost)) if lost else 0.0


def route_report(history: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, float]:
    """Sum a stream up.

    Parameters
    ----------
    history
        ``history[t][e]``: what :func:`route_accuracy` gave for the test queries of experience e after learning
        experience t, for e ≤ t. Levels that are missing are left out of the report.

    Returns
    -------
    For each level (``model``, ``family``, ``domain``) its accuracy at the end as the mean over experiences; under
    ``<level>_over_time`` the mean over all times of the mean over the experiences so far; under
    ``<level>_forgetting`` what :func:`forgetting` gives.

    Raises
    ------
    ValueError
        When an entry of the history has not one accuracy for each experience so far.
    """
    report: dict[str, float] = {}
    for level in LEVELS:
        if not history or not history[0] or level not in history[0][0]:
            continue
        table = _checked([[accuracy[level] for accuracy in row] for row in history])
        report[level] = float(np.mean(table[-1]))
        report[f"{level}_over_time"] = float(np.mean([np.mean(row) for row in table]))
        report[f"{level}_forgetting"] = forgetting(table)
    if not report:
        raise ValueError(f"the history holds none of {', '.join(LEVELS)}")
    return report


def _checked(history: History) -> History:
    for t, row in enumerate(history):
        if len(row) != t + 1:
            raise ValueError(
                f"history[{t}] must have {t + 1} accuracies, one for each experience so far, not {len(row)}"
            )
    if not history:
        raise ValueError("the history is empty")
    return history
