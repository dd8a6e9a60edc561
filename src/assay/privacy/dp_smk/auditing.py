"""Try to break a solver's promise: lower bounds on its ε from runs on two neighbouring data sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.errors import InputError
from assay.numerics.dp import audit_outputs, secret_generator


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes
    ----------
    eps_lower
        With the confidence below, the solver's ε is no smaller than this. Above the promised ε: the promise is broken.
    confidence
        Of that statement.
    event
        The choices whose probabilities differ most, as sorted tuples of labels.
    hits, hits_other, runs
        How often the event came on the data where it is more probable and on the other, each of ``runs``.
    """

    eps_lower: float
    confidence: float
    event: tuple[tuple[Any, ...], ...]
    hits: int
    hits_other: int
    runs: int


def audit(
    solver_factory: Callable[[Any, np.random.Generator], Any],
    data: Any,
    data_neighbour: Any,
    runs: int,
    *,
    delta: float = 0.0,
    confidence: float = 0.95,
    random_state: int | np.random.Generator | None = None,
) -> AuditReport:
    """A lower bound on a solver's ε, from ``runs`` solves on each of two neighbouring data sets.

    Half of the runs look for the most revealing event, the other half measure it (exact binomial bounds). Use made-up
    data: the report counts what happened on them.

    Parameters
    ----------
    solver_factory
        ``solver_factory(data, generator)`` returns an object with ``solve()``, e.g. a :class:`DPKnapsack` whose
        ``random_state`` is the generator.
    data, data_neighbour
        Two data sets of which one has one record more; choose those on which the solver should differ most.
    runs
        Solves on each, at least 20.
    delta
        The solver's δ.
    confidence
        Of the bound.
    random_state
        Of all solves together.

    Raises
    ------
    InputError
        When there are too few runs, or a parameter is out of range.
    """
    if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 20:
        raise InputError(f"runs must be a whole number of at least 20, got {runs!r}")
    rng = secret_generator(random_state)
    sides = [[tuple(solver_factory(d, rng).solve().items) for _ in range(runs)] for d in (data, data_neighbour)]
    found = audit_outputs(*sides, delta=delta, confidence=confidence)
    return AuditReport(
        eps_lower=found.eps_lower,
        confidence=confidence,
        event=tuple(sorted(found.event, key=repr)),
        hits=found.hits,
        hits_other=found.hits_other,
        runs=found.runs,
    )
