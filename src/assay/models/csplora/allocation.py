"""From scores to ranks: every matrix gets the least, and the rest is dealt out by score."""

from __future__ import annotations

import math
from collections.abc import Mapping


def allocate(
    scores: Mapping[str, float],
    total_rank: int,
    r_min: int,
    r_max: int,
    rho: float = 1.0,
    caps: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Deal a total rank out by score.

    Each module gets ``r_min + floor(excess · score / Σ scores)``, at most ``r_max``, with excess = total − L·r_min;
    what is left goes out one by one from the highest score down, round and round, past those that are full.

    Parameters
    ----------
    scores
        Non-negative scores by module.
    total_rank
        The ranks of all modules together; met exactly.
    r_min, r_max
        The least and the most that a module gets, at least 1.
    rho
        The modules that hold this share of all score share in the excess; the others get ``r_min``.
    caps
        A further limit of each module, such as the smaller side of its matrix; it goes before ``r_min``.

    Returns
    -------
    dict
        The rank of each module, in the order of ``scores``.

    Raises
    ------
    ValueError
        Where a score is negative or not finite, or no ranks within the limits sum to ``total_rank``.

    Examples
    --------
    >>> allocate({"a": 3, "b": 1}, total_rank=8, r_min=1, r_max=8)
    {'a': 6, 'b': 2}
    """
    _check(scores, r_min, r_max, rho)
    limits = {name: r_max if caps is None else min(r_max, caps[name]) for name in scores}
    least = {name: min(r_min, limits[name]) for name in scores}
    order = sorted(scores, key=lambda name: -scores[name])  # stable: ties in the modules' order
    kept = _holding(scores, order, rho)
    most = {name: limits[name] if name in kept else least[name] for name in scores}
    smallest, largest = sum(least.values()), sum(most.values())
    if total_rank < smallest:
        raise ValueError(
            f"total_rank {total_rank} is too small: {len(scores)} modules with at least {r_min} each need {smallest}"
        )
    if total_rank > largest:
        raise ValueError(
            f"total_rank {total_rank} is too large: the most that {len(scores)} modules can take with r_max={r_max}"
            f"{f', rho={rho:g}' if rho < 1 else ''}{' and the sides of their matrices' if caps else ''} is {largest}"
        )
    excess = total_rank - smallest
    # Equal shares where no module has any score. The 1e-9 keeps 2.9999999999 from being 2.
    whole = math.fsum(scores[name] for name in kept)
    share = {name: scores[name] / whole if whole > 0 else 1 / len(kept) for name in kept}
    ranks = {
        name: min(most[name], least[name] + math.floor(excess * share[name] + 1e-9)) if name in kept else least[name]
        for name in scores
    }
    left = total_rank - sum(ranks.values())
    while left:
        for name in order:
            if left and ranks[name] < most[name]:
                ranks[name] += 1
                left -= 1
    return ranks


def allocate_parameters(
    scores: Mapping[str, float],
    costs: Mapping[str, int],
    parameters: int,
    r_min: int,
    r_max: int,
    rho: float = 1.0,
    caps: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """The ranks of the largest total rank whose parameters fit, plus single ranks in what is then left.

    ``costs`` is the number of parameters of one rank of each module, its input plus its output width.

    Raises
    ------
    ValueError
        As :func:`allocate`; also where the least ranks cost more than ``parameters``.
    """

    def plan(total: int) -> dict[str, int]:
        return allocate(scores, total, r_min, r_max, rho, caps)

    def cost(ranks: Mapping[str, int]) -> int:
        return sum(rank * costs[name] for name, rank in ranks.items())

    _check(scores, r_min, r_max, rho)
    limits = {name: min(r_max, caps[name]) if caps else r_max for name in scores}
    least = {name: min(r_min, limits[name]) for name in scores}
    if cost(least) > parameters:
        raise ValueError(
            f"{parameters} parameters are too few: {len(scores)} modules with r_min={r_min} need {cost(least)}"
        )
    order = sorted(scores, key=lambda name: -scores[name])
    kept = _holding(scores, order, rho)
    low, high = sum(least.values()), sum(limits[name] if name in kept else least[name] for name in scores)
    while low < high:  # low fits always
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(plan(middle)) <= parameters else (low, middle - 1)
    ranks = plan(low)
    left = parameters - cost(ranks)
    for name in order:
        if name in kept and costs[name] <= left and ranks[name] < limits[name]:
            ranks[name] += 1
            left -= costs[name]
    return ranks


def _holding(scores: Mapping[str, float], order: list[str], rho: float) -> set[str]:
    """The fewest modules, from the highest score down, that hold the share ``rho`` of all score."""
    if rho >= 1:
        return set(order)
    wanted, held, kept = rho * math.fsum(scores.values()), 0.0, set()
    for name in order:
        kept.add(name)
        held += scores[name]
        if held >= wanted * (1 - 1e-12):
            break
    return kept


def _check(scores: Mapping[str, float], r_min: int, r_max: int, rho: float) -> None:
    if not scores:
        raise ValueError("scores is empty; there must be at least one module")
    for name, score in scores.items():
        if not (math.isfinite(score) and score >= 0):
            raise ValueError(f"the score of {name!r} must be a finite number of at least 0, got {score}")
    if not 1 <= r_min <= r_max:
        raise ValueError(f"r_min and r_max must be 1 ≤ r_min ≤ r_max, got {r_min} and {r_max}")
    if not 0 < rho <= 1:
        raise ValueError(f"rho must lie above 0 and at most be 1, got {rho}")
