"""Placebo: a study in which every claim is about nothing, to see how often the evidence says "supported" then."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from scipy import stats

from assay.errors import InputError
from assay.evidence.cell import arm_seed
from assay.evidence.claim import COMPARISONS, Claim
from assay.evidence.study import Arm, Budget, Study
from assay.evidence.verdict import Outcome, Verdict

# How often a 95 % interval of nothing lies wholly on the claim's side of the bar.
BY_CHANCE = 0.025
# What fewer than one honest study in twenty shows is taken as a sign of a fault.
_RARE = 0.05


@dataclass(frozen=True)
class Again:
    """An arm's ``run`` under another seed, drawn from ``numpy.random.SeedSequence((seed, 2))``."""

    run: Callable[[Any, int, Budget], Any]

    def __call__(self, given: Any, seed: int, budget: Budget) -> Any:
        """Run the arm on the same data."""
        return self.run(given, arm_seed(seed, stream=2), budget)


def placebo(study: Study) -> Study:
    """The study with every strict comparison made between an arm and itself under another seed.

    In each claim made by ``lower`` or ``higher``, and for each arm that it compares with, the claim's arm gives
    way to that same opponent run again ("<name> again"). The bar stays: one so generous that an arm beats
    itself is exactly what must show. Tasks on which the claim's arm does not run are not compared.

    Raises
    ------
    InputError
        If the study has no strict comparison.
    """
    claims: list[Claim] = []
    for claim in study.claims:
        if claim.form not in COMPARISONS:
            continue
        runs_on = study.arm(claim.arm).tasks
        tasks = claim.tasks
        if runs_on is not None:
            named = [task.name for task in study.tasks] if tasks is None else tasks
            tasks = tuple(task for task in named if task in runs_on)
        claims += [
            dataclasses.replace(claim, arm=_twin(other), others=(other,), tasks=tasks, says="", needs="")
            for other in claim.others
            if tasks != ()
        ]
    claims = list(dict.fromkeys(claims))
    if not claims:
        raise InputError(
            f"study {study.name} has no claim made by lower(...) or higher(...), so there is no placebo of it"
        )
    opponents = {other for claim in claims for other in claim.others}
    arms: list[Arm] = []
    for arm in study.arms:
        if arm.name in opponents:
            role = "baseline" if arm.role == "method" else arm.role
            arms += [arm, dataclasses.replace(arm, name=_twin(arm.name), run=Again(arm.run), role=role)]
        elif arm is study.method:
            # A study is about one method; here it is never run.
            arms.append(dataclasses.replace(arm, budgets=()))
    return dataclasses.replace(study, arms=tuple(arms), claims=tuple(claims), accepts={}, own=None)


def placebo_line(verdicts: Iterable[Verdict]) -> str:
    r"""What the verdicts on a placebo say, in one line.

    With :math:`k` of :math:`m` judged claims supported, the chance of that many or more is
    :math:`P(X \ge k)` for :math:`X \sim \mathrm{Binomial}(m, 0.025)`, as if the claims were independent. A bar
    beyond zero and several tasks make each rarer.
    """
    m, k, chance = _count(verdicts)
    if m == 0:
        return "Placebo: no claim could be judged, so it says nothing."
    told = f"Placebo: {k} of {m} claims supported where an arm meets itself"
    if k == 0:
        return f"{told}, as it should be."
    told = f"{told}; chance alone gives {k} or more with probability {chance:.2g}"
    if chance >= _RARE:
        return f"{told}: nothing looks wrong."
    return f"{told}: something is probably wrong, such as a bar so generous that an arm beats itself."


def placebo_alarm(verdicts: Iterable[Verdict]) -> bool:
    """Whether more claims of a placebo came out supported than chance explains."""
    _, k, chance = _count(verdicts)
    return k > 0 and chance < _RARE


def _count(verdicts: Iterable[Verdict]) -> tuple[int, int, float]:
    """Judged claims, supported ones, and the chance of that many or more."""
    outcomes = [verdict.outcome for verdict in verdicts if _judged(verdict)]
    m, k = len(outcomes), outcomes.count(Outcome.SUPPORTED)
    return m, k, float(stats.binom.sf(k - 1, m, BY_CHANCE))


def _twin(name: str) -> str:
    return f"{name} again"


def _judged(verdict: Verdict) -> bool:
    """Supported, not supported, or inconclusive for nothing but chance."""
    if verdict.outcome is Outcome.INCONCLUSIVE:
        return not any(part.reason for part in verdict.parts if part.outcome is Outcome.INCONCLUSIVE)
    return verdict.outcome is not Outcome.UNTESTED
