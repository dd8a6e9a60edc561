"""Claims: sentences about records that can be false.

Each form is one function that reads like the sentence it makes. A claim is plain data; how it is judged
stands in :mod:`assay.evidence.verdict`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Form = Literal[
    "lower", "higher", "not_lower", "not_higher", "at_least", "at_most", "within", "spread", "rate", "slope", "holds"
]  # fmt: skip

COMPARISONS: tuple[Form, ...] = ("lower", "higher")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence about records that can be false; made by the functions of this module.

    Attributes
    ----------
    form
        Which kind of sentence: the name of the function that made it.
    metric
        The metric that it speaks of.
    arm
        The arm that it speaks of; empty means the study's own method.
    others
        The arms that it is compared with; every one must hold.
    bar
        The number that decides, in the metric's unit (a difference, a value, a rate or a slope) or as a
        ratio. Two numbers for an interval (``slope``).
    ratio
        Whether the bar is a ratio of two arms, judged in logarithms.
    upper
        For ``rate``: whether the bar is a ceiling (``at_most``) or a floor (``at_least``).
    on
        For ``slope``: the metric on the horizontal axis.
    log
        For ``slope``: whether both axes are logarithmic.
    tasks
        The tasks that it is about; ``None`` means every task of the run.
    pool
        Judge the pairs of all tasks as one sample instead of task by task.
    needs
        What a fair test would need and this study has not, e.g. ``"a model of 1 B parameters"``.
    says
        The sentence for people; written from the parts where it is empty.
    """

    form: Form
    metric: str
    arm: str = ""
    others: tuple[str, ...] = ()
    bar: float | tuple[float, float] = 0.0
    ratio: bool = False
    upper: bool = True
    on: str = ""
    log: bool = True
    tasks: tuple[str, ...] | None = None
    pool: bool = False
    needs: str = ""
    says: str = ""

    def __post_init__(self) -> None:
        # Without these a claim would have nothing to be false about.
        if self.form in (*COMPARISONS, "not_lower", "not_higher", "within") and not self.others:
            raise ValueError(f"the claim on {self.metric!r} must name an arm to compare {self.arm!r} with")
        if self.tasks == ():
            raise ValueError(f"the claim on {self.metric!r} names no task; give None for every task of the run")
        for bar in self.bar if isinstance(self.bar, tuple) else (self.bar,):
            if not math.isfinite(bar) or (self.ratio and bar <= 0):
                must = "a positive number" if self.ratio else "a finite number"
                raise ValueError(f"the bar of the claim on {self.metric!r} must be {must}, got {bar}")

    @property
    def name(self) -> str:
        """The sentence that stands for the claim in tables."""
        return self.says or self.sentence

    @property
    def sentence(self) -> str:
        """The claim in words, written from its parts."""
        others = " and ".join(self.others)
        where = f" on {', '.join(self.tasks)}" if self.tasks is not None else ""
        bar = " to ".join(f"{b:g}" for b in self.bar) if isinstance(self.bar, tuple) else f"{self.bar:g}"
        match self.form:
            case "lower" | "higher" if self.ratio:
                edge = "below" if self.form == "lower" else "above"
                what = f"{self.metric}: {self.arm} {edge} {bar} × {others}"
            case "lower" | "higher":
                by = f" by more than {bar}" if self.bar else ""
                what = f"{self.metric}: {self.arm} {self.form} than {others}{by}"
            case "not_lower" | "not_higher":
                what = f"{self.metric}: {self.arm} at most {bar} {self.form.removeprefix('not_')} than {others}"
            case "at_least" | "at_most":
                of = f" × {others}" if self.ratio else ""
                what = f"{self.metric}: {self.arm} {self.form.replace('_', ' ')} {bar}{of}"
            case "within":
                what = f"{self.metric}: {self.arm} within {bar} of {others}"
            case "spread":
                what = f"{self.metric}: {self.arm} differs between tasks by at most {bar}"
            case "rate":
                what = f"{self.metric}: rate of {self.arm} {'at most' if self.upper else 'at least'} {bar}"
            case "slope":
                axes = "log-log slope" if self.log else "slope"
                what = f"{self.metric}: {axes} of {self.arm} on {self.on} between {bar.replace(' to ', ' and ')}"
            case "holds":
                what = f"{self.metric}: holds for {self.arm} in every cell"
        return what + where


def _names(names: str | Iterable[str] | None) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)


def _tasks(tasks: str | Iterable[str] | None) -> tuple[str, ...] | None:
    return None if tasks is None else _names(tasks)


def _comparison(
    form: Form,
    metric: str,
    arm: str,
    than: str | Iterable[str],
    by: float | None,
    ratio: float | None,
    tasks: str | Iterable[str] | None,
    pool: bool,
    needs: str,
    says: str,
) -> Claim:
    if by is not None and ratio is not None:
        raise ValueError(f"one bar a claim: give by={by} or ratio={ratio}, not both")
    if by is not None and by < 0:
        raise ValueError(f"by must not be negative (a margin in the claim's own direction), got {by}")
    if ratio is not None and ratio <= 0:
        raise ValueError(f"ratio must be positive, got {ratio}")
    bar = ratio if ratio is not None else (by or 0.0)
    return Claim(
        form=form, metric=metric, arm=arm, others=_names(than), bar=bar, ratio=ratio is not None,
        tasks=_tasks(tasks), pool=pool, needs=needs, says=says,
    )  # fmt: skip


def lower(
    metric: str,
    arm: str,
    *,
    than: str | Iterable[str],
    by: float | None = None,
    ratio: float | None = None,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``arm`` has a lower ``metric`` than each of ``than``, by more than ``by`` or below ``ratio`` times.

    >>> lower("error", "dot-moe", than="random", ratio=0.9).sentence
    'error: dot-moe below 0.9 × random'
    """
    return _comparison("lower", metric, arm, than, by, ratio, tasks, pool, needs, says)


def higher(
    metric: str,
    arm: str,
    *,
    than: str | Iterable[str],
    by: float | None = None,
    ratio: float | None = None,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``arm`` has a higher ``metric`` than each of ``than``, by more than ``by`` or above ``ratio`` times.

    >>> higher("alignment", "knockoff", than=["spherical", "robpca"], by=10, tasks=["T1-20"]).sentence
    'alignment: knockoff higher than spherical and robpca by more than 10 on T1-20'
    """
    return _comparison("higher", metric, arm, than, by, ratio, tasks, pool, needs, says)


def not_lower(
    metric: str,
    arm: str,
    *,
    than: str | Iterable[str],
    by: float,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``metric`` of ``arm`` is at most ``by`` lower than that of each of ``than`` (non-inferiority).

    >>> not_lower("accuracy", "flow", than="bag", by=0.02).sentence
    'accuracy: flow at most 0.02 lower than bag'
    """
    return _non_inferior("not_lower", metric, arm, than, by, tasks, pool, needs, says)


def not_higher(
    metric: str,
    arm: str,
    *,
    than: str | Iterable[str],
    by: float,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``metric`` of ``arm`` is at most ``by`` higher than that of each of ``than`` (non-inferiority)."""
    return _non_inferior("not_higher", metric, arm, than, by, tasks, pool, needs, says)


def _non_inferior(
    form: Form,
    metric: str,
    arm: str,
    than: str | Iterable[str],
    by: float,
    tasks: str | Iterable[str] | None,
    pool: bool,
    needs: str,
    says: str,
) -> Claim:
    if not by > 0:
        raise ValueError(f"by must be positive (how much worse still counts as no worse), got {by}")
    return Claim(
        form=form, metric=metric, arm=arm, others=_names(than), bar=float(by),
        tasks=_tasks(tasks), pool=pool, needs=needs, says=says,
    )  # fmt: skip


def at_least(
    metric: str,
    arm: str,
    bar: float,
    *,
    of: str | None = None,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``metric`` of ``arm`` is at least ``bar``, or at least ``bar`` times that of the arm ``of``.

    >>> at_least("retention", "dot-moe", 0.9, of="dense").sentence
    'retention: dot-moe at least 0.9 × dense'
    """
    return Claim(
        form="at_least", metric=metric, arm=arm, others=_names(of), bar=float(bar), ratio=of is not None,
        tasks=_tasks(tasks), pool=pool, needs=needs, says=says,
    )  # fmt: skip


def at_most(
    metric: str,
    arm: str,
    bar: float,
    *,
    of: str | None = None,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``metric`` of ``arm`` is at most ``bar``, or at most ``bar`` times that of the arm ``of``."""
    return Claim(
        form="at_most", metric=metric, arm=arm, others=_names(of), bar=float(bar), ratio=of is not None,
        tasks=_tasks(tasks), pool=pool, needs=needs, says=says,
    )  # fmt: skip


def within(
    metric: str,
    arm: str,
    *,
    of: str | Iterable[str],
    by: float,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``arm`` differs from every arm in ``of`` by no more than ``by``, in either direction.

    >>> within("alignment", "knockoff", of="pca", by=0.5).sentence
    'alignment: knockoff within 0.5 of pca'
    """
    if by <= 0:
        raise ValueError(f"by must be positive, got {by}")
    return Claim(
        form="within", metric=metric, arm=arm, others=_names(of), bar=float(by),
        tasks=_tasks(tasks), pool=pool, needs=needs, says=says,
    )  # fmt: skip


def spread(
    metric: str, arm: str, *, over: str | Iterable[str], at_most: float, needs: str = "", says: str = ""
) -> Claim:
    """Claim that ``metric`` of ``arm`` differs between the tasks ``over`` by at most ``at_most``.

    For each seed the range (largest minus smallest) over the tasks; the interval is over seeds.
    """
    return Claim(form="spread", metric=metric, arm=arm, bar=float(at_most), tasks=_tasks(over), needs=needs, says=says)


def rate(
    metric: str,
    arm: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    tasks: str | Iterable[str] | None = None,
    pool: bool = False,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that the rate of an event is at most (or at least) a bar, by the exact binomial interval.

    The metric is a :class:`~assay.evidence.study.Proportion`, or 0 or 1 in each cell.
    """
    if (at_most is None) == (at_least is None):
        raise ValueError("one bar a claim: give at_most or at_least")
    bar = at_most if at_most is not None else at_least
    assert bar is not None
    if not 0 <= bar <= 1:
        raise ValueError(f"the bar of a rate must lie between 0 and 1, got {bar}")
    return Claim(
        form="rate", metric=metric, arm=arm, bar=float(bar), upper=at_most is not None,
        tasks=_tasks(tasks), pool=pool, needs=needs, says=says,
    )  # fmt: skip


def slope(
    metric: str,
    arm: str = "",
    *,
    on: str,
    between: tuple[float, float],
    log: bool = True,
    tasks: str | Iterable[str] | None = None,
    needs: str = "",
    says: str = "",
) -> Claim:
    """Claim that ``metric`` has a slope on the metric ``on`` that lies in ``between``: for each seed, over the tasks.

    Both axes are logarithmic unless ``log=False``.

    >>> slope("error", "knockoff", on="n", between=(-0.6, -0.4)).sentence
    'error: log-log slope of knockoff on n between -0.6 and -0.4'
    """
    low, high = between
    if not low < high:
        raise ValueError(f"between must be (low, high) with low < high, got {between}")
    return Claim(
        form="slope", metric=metric, arm=arm, bar=(float(low), float(high)), on=on, log=log,
        tasks=_tasks(tasks), needs=needs, says=says,
    )  # fmt: skip


def holds(metric: str, arm: str, *, tasks: str | Iterable[str] | None = None, needs: str = "", says: str = "") -> Claim:
    """Claim that ``metric`` is true in every cell of ``arm``."""
    return Claim(form="holds", metric=metric, arm=arm, tasks=_tasks(tasks), needs=needs, says=says)
