"""Verdicts: whether the records support a claim."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assay.evidence.claim import COMPARISONS, Claim
from assay.evidence.intervals import mean_interval, more_seeds, more_seeds_for_rate, proportion_interval
from assay.evidence.record import Record
from assay.evidence.sample import Numbers, Spot, gaps_text, gather, sample, spots
from assay.evidence.scope import Scope, left_out, scopes, why_untested
from assay.evidence.study import Budget, Study

LEAST_PAIRS = 3

# An end of an interval this close to the bar, in units of the numbers compared, touches it: 0.8 − 0.7 is 0.1.
_ROUNDING = 1e-12


class Outcome(StrEnum):
    """What the records say about a claim."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not supported"
    INCONCLUSIVE = "inconclusive"
    UNTESTED = "untested"


# The worst outcome among its parts is that of a claim: one part that is false refutes it, whatever else is missing.
_FROM_WORST = (Outcome.NOT_SUPPORTED, Outcome.UNTESTED, Outcome.INCONCLUSIVE, Outcome.SUPPORTED)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A claim on one task (or on all together) against one other arm.

    Attributes
    ----------
    task
        The task; several are joined by " + ".
    other
        The arm compared with; empty where there is none.
    outcome
        What its records say.
    estimate, low, high
        The estimate and its 95 % interval in the claim's unit (differences are arm − other); ``None`` where
        there is none.
    pairs
        How many pairs (cells for ``rate`` and ``holds``, seeds for ``spread`` and ``slope``) it rests on.
    reason
        Why it could not be judged; empty where it was. For ``holds``, where it was false.
    more_seeds
        For a judged part that is inconclusive: about how many more seeds would probably decide it; ``None``
        above 1000.
    """

    task: str
    other: str
    outcome: Outcome
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    reason: str = ""
    more_seeds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the records say about a claim.

    Attributes
    ----------
    claim
        The claim.
    outcome
        Not supported if any part is not; else untested where what it needs is not there; supported if every part
        is; else inconclusive.
    estimate, low, high
        Those of the part that decides, :attr:`deciding`.
    bar
        The bar in the same unit and with its sign: ``lower(by=10)`` has −10; two numbers for an interval.
    parts
        Each task with each other arm, in the study's order.
    n_tasks, n_seeds
        What it was judged on.
    reason
        What is missing, and what was left out; empty where nothing is.
    more_seeds
        About how many more seeds would probably decide an inconclusive claim; ``None`` above 1000, and where
        more seeds are not what it lacks. :attr:`more` says it in words.
    """

    claim: Claim
    outcome: Outcome
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    bar: float | tuple[float, float] = 0.0
    parts: tuple[Part, ...] = ()
    n_tasks: int = 0
    n_seeds: int = 0
    reason: str = ""
    more_seeds: int | None = None

    @property
    def pairs(self) -> str:
        """What it rests on, like ``3 tasks × 5 seeds``; empty where nothing was judged."""
        if not self.n_tasks:
            return ""
        return f"{_count(self.n_tasks, 'task')} × {_count(self.n_seeds, 'seed')}"

    @property
    def deciding(self) -> Part | None:
        """Among the parts with the worst outcome, the one whose interval lies worst for the claim.

        That is where the interval's worse end reaches least far to the claim's side of the bar (in
        logarithms for ratios); a part that could not be judged comes first.
        """
        return _deciding(self.claim, self.parts)

    @property
    def more(self) -> str:
        """How many more seeds would probably decide it, in words; empty where seeds are not what it lacks."""
        if self.outcome is not Outcome.INCONCLUSIVE or not _lacks_seeds(self.parts):
            return ""
        if self.more_seeds is None:
            return "more than 1000 more seeds would be needed"
        return f"about {_count(self.more_seeds, 'more seed')} would probably decide it"


def judge(claim: Claim, study: Study, records: Iterable[Record], budget: Budget, seeds: Iterable[int]) -> Verdict:
    """Judge a claim by the records of a run.

    Parameters
    ----------
    claim
        One of the study's claims.
    study
        The study.
    records
        The records of the run, in any order; those of other cells do not matter.
    budget
        The budget of the run.
    seeds
        The seeds of the run: a cell without a record is noticed.
    """
    if not claim.arm:
        claim = dataclasses.replace(claim, arm=study.method.name)
    bar = _bar(claim)
    found = scopes(claim, study, budget)
    if not found:
        reason = why_untested(claim, study, budget)
        return Verdict(claim=claim, outcome=Outcome.UNTESTED, bar=bar, reason=reason)
    # The resampling goes by position, so the order is fixed here.
    run_seeds = sorted(set(seeds))
    wanted = [spot for scope in found for spot in spots(claim, scope, run_seeds)]
    numbers = gather(claim, wanted, records)
    judged = [_judge_part(claim, scope, run_seeds, numbers) for scope in found]
    parts = tuple(part for part, _ in judged)
    worst = _deciding(claim, parts)
    assert worst is not None
    # One gap can spoil several parts; the verdict tells it once, over all cells.
    reasons = [*numbers.missing.values(), gaps_text(numbers.gaps, wanted)]
    reasons += [part.reason for part, complete in judged if complete]
    reasons.append(left_out(claim, study, budget))
    return Verdict(
        claim=claim,
        outcome=worst.outcome,
        estimate=worst.estimate,
        low=worst.low,
        high=worst.high,
        bar=bar,
        parts=parts,
        n_tasks=len({task for scope in found for task in scope.tasks}),
        n_seeds=len(run_seeds),
        reason="; ".join(dict.fromkeys(reason for reason in reasons if reason)),
        more_seeds=_most_seeds(parts) if worst.outcome is Outcome.INCONCLUSIVE else None,
    )


@dataclass(frozen=True)
class _Estimate:
    """An estimate with its interval, in logarithms for ratios.

    ``size`` is that of the numbers it comes from, ``lacks`` why it is none, and ``more`` what it takes to
    decide it.
    """

    value: float
    low: float
    high: float
    pairs: int
    size: float = 1.0
    lacks: str = ""
    more: Callable[[], int | None] = lambda: None


def _judge_part(claim: Claim, scope: Scope, seeds: Sequence[int], numbers: Numbers) -> tuple[Part, bool]:
    """One part of a claim, and whether all its cells gave numbers."""
    wanted = spots(claim, scope, seeds)
    part = Part(task=" + ".join(scope.tasks), other=scope.other, outcome=Outcome.INCONCLUSIVE)
    missing = dict.fromkeys(numbers.missing[spot] for spot in wanted if spot in numbers.missing)
    if missing:
        return dataclasses.replace(part, outcome=Outcome.UNTESTED, reason="; ".join(missing)), False
    estimate = _estimate(claim, scope, seeds, numbers)
    enough = estimate.pairs >= LEAST_PAIRS
    # A share of cells in which something holds is counted, not estimated: it has no interval.
    interval = enough and claim.form != "holds"
    part = dataclasses.replace(
        part,
        pairs=estimate.pairs,
        estimate=_shown(claim, estimate.value),
        low=_shown(claim, estimate.low) if interval else None,
        high=_shown(claim, estimate.high) if interval else None,
    )
    gaps, false = gaps_text(numbers.gaps, wanted), _false_text(claim, wanted, numbers)
    if gaps:
        return dataclasses.replace(part, reason="; ".join(filter(None, (gaps, false)))), False
    if not enough:
        unit = "cells" if claim.form in ("rate", "holds") else "pairs"
        few = f"needs at least {LEAST_PAIRS} {unit}, has {estimate.pairs}"
        return dataclasses.replace(part, reason="; ".join(filter(None, (few, false)))), True
    if estimate.lacks:
        return dataclasses.replace(part, reason=estimate.lacks), True
    outcome = _decide(_region(claim), claim.form in COMPARISONS, estimate)
    more = estimate.more() if outcome is Outcome.INCONCLUSIVE else None
    return dataclasses.replace(part, outcome=outcome, reason=false, more_seeds=more), True


def _estimate(claim: Claim, scope: Scope, seeds: Sequence[int], numbers: Numbers) -> _Estimate:
    there = [numbers.values[spot] for spot in spots(claim, scope, seeds) if spot in numbers.values]
    if claim.form == "holds":
        share = sum(true for (true,) in there) / len(there) if there else math.nan
        return _Estimate(share, share, share, len(there))
    if claim.form == "rate":
        bar = _single(claim.bar)
        k, n = (int(sum(column)) for column in zip(*there, strict=True)) if there else (0, 0)
        low, high = proportion_interval(k, n)
        return _Estimate(
            k / n if n else math.nan, low, high, len(there),
            lacks="" if n else "there were no trials",
            more=lambda: more_seeds_for_rate(k, n, bar, len(seeds)),
        )  # fmt: skip
    x, size = sample(claim, scope, seeds, numbers)
    lacks = ""
    if not all(map(math.isfinite, x)):
        lacks = "the numbers are too large to be compared"
        if claim.form == "slope":
            lacks = f"needs at least 2 different values of {claim.on} at every seed"
    ends = [end for end in _region(claim) if math.isfinite(end)]
    per_seed = len(scope.tasks) if claim.pool else 1
    return _Estimate(
        float(x.mean()) if len(x) else math.nan, *mean_interval(x), len(x), size, lacks,
        more=lambda: more_seeds(x, ends, per_seed),
    )  # fmt: skip


def _region(claim: Claim) -> tuple[float, float]:
    """Where the claim is true, from and to, in logarithms for ratios."""
    if isinstance(claim.bar, tuple):
        return claim.bar
    bar = math.log(claim.bar) if claim.ratio else claim.bar
    match claim.form:
        case "lower":
            # The margin counts in the claim's direction; subtracted, so that no margin is not −0.
            return -math.inf, bar if claim.ratio else 0.0 - bar
        case "higher" | "at_least":
            return bar, math.inf
        case "not_lower":
            return -bar, math.inf
        case "within":
            return -bar, bar
        case "rate" if not claim.upper:
            return bar, math.inf
        case "holds":
            return 1.0, math.inf
        case _:
            return -math.inf, bar


def _bar(claim: Claim) -> float | tuple[float, float]:
    """The bar as a verdict shows it."""
    if claim.ratio:
        return claim.bar
    low, high = _region(claim)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else low if math.isfinite(low) else high


def _decide(region: tuple[float, float], strict: bool, estimate: _Estimate) -> Outcome:
    """Whether the interval lies inside the region, outside, or neither; a strict claim does not own its bar."""
    low, high = (_snap(end, region, estimate.size) for end in (estimate.low, estimate.high))
    above, below = region
    if strict:
        inside, outside = above < low and high < below, high <= above or low >= below
    else:
        inside, outside = above <= low and high <= below, high < above or low > below
    return Outcome.SUPPORTED if inside else Outcome.NOT_SUPPORTED if outside else Outcome.INCONCLUSIVE


def _snap(end: float, region: tuple[float, float], size: float) -> float:
    for bar in region:
        if abs(end - bar) <= _ROUNDING * max(size, abs(bar) if math.isfinite(bar) else 0.0):
            return bar
    return end


def _deciding(claim: Claim, parts: Sequence[Part]) -> Part | None:
    if not parts:
        return None
    worst = next(outcome for outcome in _FROM_WORST if any(part.outcome is outcome for part in parts))
    return min((part for part in parts if part.outcome is worst), key=lambda part: _margin(claim, part))


def _margin(claim: Claim, part: Part) -> float:
    """How far the whole interval lies on the claim's side of the bar; negative where it does not."""
    judged = part.outcome in (Outcome.SUPPORTED, Outcome.NOT_SUPPORTED) or not part.reason
    low, high = (part.estimate,) * 2 if claim.form == "holds" else (part.low, part.high)
    if not judged or low is None or high is None:
        return -math.inf
    if claim.ratio:
        low, high = (math.log(end) if end > 0 else -math.inf for end in (low, high))
    above, below = _region(claim)
    return min(low - above, below - high)


def _lacks_seeds(parts: Iterable[Part]) -> bool:
    """Whether the parts that are inconclusive were all judged, so that seeds are what they lack."""
    return not any(part.reason for part in parts if part.outcome is Outcome.INCONCLUSIVE)


def _most_seeds(parts: Sequence[Part]) -> int | None:
    if not _lacks_seeds(parts):
        return None
    found = [part.more_seeds for part in parts if part.outcome is Outcome.INCONCLUSIVE]
    return None if None in found else max(more for more in found if more is not None)


def _false_text(claim: Claim, wanted: Iterable[Spot], numbers: Numbers) -> str:
    """For ``holds``: where it is false."""
    if claim.form != "holds":
        return ""
    false = [spot for spot in wanted if numbers.values.get(spot) == (0.0,)]
    if not false:
        return ""
    seeds = ", ".join(str(spot.seed) for spot in false)
    return f"false for {false[0].arm} on {false[0].task} at seed{'s' if len(false) > 1 else ''} {seeds}"


def _shown(claim: Claim, value: float) -> float | None:
    """A number as people read it: ratios out of logarithms; ``None`` where there is none."""
    if claim.ratio:
        try:
            value = math.exp(value)
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def _single(bar: float | tuple[float, float]) -> float:
    return bar[0] if isinstance(bar, tuple) else bar


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"
