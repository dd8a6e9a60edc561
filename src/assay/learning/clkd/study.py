"""The study of clkd: what does a small survival study gain from a published score, and what does a wrong one cost?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from assay.errors import InputError
from assay.evidence.claim import higher, lower, not_lower
from assay.evidence.study import Arm, Budget, Study, Task

from . import baselines, samples
from .baselines import Given
from .cohort import read_cohort
from .components import Components, make_components
from .concordance import concordance
from .estimator import CLKDSurvival
from .partition import set_partition
from .samples import Draw, Rows

FloatArray = NDArray[np.float64]

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
FULL = (Budget.FULL, Budget.PAPER)

JUDGE_CONTROLS = 50
"""Controls a test case in the held-out loss."""

LEAST_ROWS, LEAST_EVENTS = 45, 15
"""Of a user's cohort: two thirds are the study, one third is test."""


@dataclass(frozen=True)
class Hidden:
    """What only the score sees: test rows, their components for the loss, and the draw, for the ceiling."""

    test: Rows
    components: Components
    draw: Draw | None


class Pooled:
    """The ceiling's output: the score, which holds the external rows, fits the pooled model for it."""


@lru_cache(maxsize=4)
def drawn(seed: int, source: str) -> Draw:
    """The draw of a cohort, or of the made one where ``source`` is an angle."""
    if source in samples.SOURCES:
        return samples.draw(seed, samples.SOURCES[source])
    return samples.rotated(seed, float(source))


def load(
    seed: int,
    budget: Budget,
    source: str,
    teacher: Callable[[FloatArray, np.random.Generator], FloatArray] | None = None,
) -> tuple[Given, Hidden]:
    """A nested case-control sample of a small study, with the external teacher's score or a spoilt one."""
    draw = drawn(seed, source)
    rng = np.random.default_rng([seed, 1])
    study, test = draw.study, draw.test
    if teacher is not None:
        study = replace(study, teacher=teacher(study.teacher, rng))
        test = replace(test, teacher=teacher(test.teacher, rng))
    rows, groups = samples.case_control(study, rng)
    given = Given(rows, groups, study, test.X, test.teacher)
    return given, Hidden(test, _judges(test, seed), Draw(draw.external, study, test))


def flipped(scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The teacher says the opposite."""
    return -scores


def shuffled(scores: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The teacher says something of other rows."""
    return rng.permutation(scores)


def _judges(test: Rows, seed: int) -> Components:
    rng = np.random.default_rng([seed, 2])
    return make_components(test.event, test.time, kind="ncc", n_controls=JUDGE_CONTROLS, random_state=rng)


def score(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """Harrell's C of the test rows, and the mean −log of the chance that the scores give the cases."""
    if isinstance(output, Pooled):
        output = _pooled(hidden)
    try:
        risk = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the output must be log risks, numbers: {error}") from None
    if risk.shape != (len(hidden.test),):
        raise ValueError(f"the output must have shape ({len(hidden.test)},), a log risk a test row; got {risk.shape}")
    if not np.isfinite(risk).all():
        raise ValueError("the output must be finite, and has NaN or infinity in it")
    judges = set_partition(hidden.components, np.ones(len(risk)))
    r = risk[judges.rows]
    return {
        "cindex": concordance(hidden.test.event, hidden.test.time, risk),
        "loss": judges.at(r).value - float(judges.case @ r),
        "test_events": int(hidden.test.event.sum()),
    }


def _pooled(hidden: Hidden) -> FloatArray:
    draw = hidden.draw
    if draw is None:
        raise ValueError("this task has no external rows to pool")
    X = np.concatenate([draw.external.X, draw.study.X])
    event = np.concatenate([draw.external.event, draw.study.event])
    time = np.concatenate([draw.external.time, draw.study.time])
    return CLKDSurvival(random_state=0).fit(X, (event, time)).predict(draw.test.X)


def run(given: Given, seed: int, budget: Budget, contender: Callable[..., FloatArray], **parameters: Any) -> FloatArray:
    """A contender of ``baselines.py``."""
    return contender(given, seed, **parameters)


def run_teacher(given: Given, seed: int, budget: Budget) -> FloatArray:
    """The teacher's own score."""
    return given.test_teacher


def run_pooled(given: Given, seed: int, budget: Budget) -> Pooled:
    """Nothing: the score does the work, because no arm may see the external rows."""
    return Pooled()


def _tasks() -> tuple[Task, ...]:
    def real(name: str, what: str, budgets: tuple[Budget, ...] = QUICK) -> Task:
        return Task(name, partial(load, source=name), score, what, budgets=budgets)

    def spoilt(source: str, how: Callable[..., FloatArray], what: str) -> Task:
        where = partial(load, source=source, teacher=how)
        return Task(f"{source}-{how.__name__}", where, score, what, control=True, budgets=QUICK)

    def made(degrees: int, budgets: tuple[Budget, ...]) -> Task:
        what = f"made rows; the teacher's coefficients are the true ones of 4 of 6 features, turned by {degrees}°"
        where = partial(load, source=str(degrees))
        return Task(f"rotated-{degrees}", where, score, what, control=degrees >= 90, budgets=budgets)

    return (
        real("smarto", "vascular patients, 300 of them studied; lipids, creatinine and wall thickness are new"),
        real("nwtco", "Wilms' tumour, 250 children studied; central histology is new", tuple(Budget)),
        real("Framingham", "teacher from men, 250 women studied; cholesterol and body mass index are new"),
        real("nwtco-lean", "the same without the subcohort's label and a second coding of stage"),
        real("Framingham-lean", "the same without the month of the examination"),
        spoilt("smarto", flipped, "smarto, and the teacher says the opposite"),
        spoilt("nwtco", flipped, "nwtco, and the teacher says the opposite"),
        spoilt("smarto", shuffled, "smarto, and the teacher's scores are those of other rows"),
        made(0, tuple(Budget)),
        made(45, FULL),
        made(90, FULL),
        made(180, FULL),
        real("prostateSurvival", "prostate cancer, 600 men studied, 5.6 % events; the tumour's grade is new", FULL),
        real("actg", "HIV, 300 patients studied, 8 % events; the CD4 count is new", FULL),
    )


TASKS = _tasks()
NAMES = tuple(task.name for task in TASKS)
REAL = ("smarto", "nwtco", "Framingham")
LEAN = ("nwtco-lean", "Framingham-lean")
FLIPPED = ("smarto-flipped", "nwtco-flipped")
ALONE = ("internal", "internal-averaged")
SPOILT = (*FLIPPED, "smarto-shuffled")


def _arms() -> tuple[Arm, ...]:
    method = baselines.method
    with_all = tuple(name for name in NAMES if name not in SPOILT)
    return (
        Arm("clkd", partial(run, contender=method), "method", "coefficients averaged over eta and alpha"),
        Arm("clkd-cv", partial(run, contender=method, eta="cv"), "ablation", "the best eta and alpha", REAL),
        Arm("internal", partial(run, contender=baselines.internal), "baseline", "the study alone, the best alpha"),
        Arm(
            "internal-averaged",
            partial(run, contender=baselines.internal, eta="aggregate"),
            "baseline",
            "the study alone, averaged over alpha as clkd is",
            with_all,
        ),
        Arm("teacher", run_teacher, "trivial", "the external score as it is"),
        Arm("stack", partial(run, contender=baselines.stack), "baseline", "the score as one more column"),
        Arm("offset", partial(run, contender=baselines.offset), "baseline", "the score as an offset"),
        Arm(
            "blend",
            partial(run, contender=baselines.blend),
            "ablation",
            "mean of the study's and the teacher's score, weighted by held-out loss: no distillation",
        ),
        Arm(
            "risk_set",
            partial(run, contender=baselines.on_cohort, components="risk_set"),
            "ablation",
            "clkd on all rows of the study in place of the sample",
            REAL,
            FULL,
        ),
        Arm(
            "pairwise",
            partial(run, contender=baselines.on_cohort, components="pairwise"),
            "ablation",
            "the same with pairs",
            REAL,
            FULL,
        ),
        Arm("pooled", run_pooled, "ceiling", "Cox model of the external and the study's rows", with_all, FULL),
    )


CONTRACT = """f(given, seed) -> risk

given.rows         a nested case-control sample of a small study: X (n, p), event (n,) bool (the case of its set),
                   time (n,) and teacher (n,), the log risk that the published model gives
given.groups       (n,) the matched set of each row; None where rows are a whole cohort
given.cohort       all rows of the small study, in the same form
given.test_X       (m, p) features of the rows to be ranked
given.test_teacher (m,) what the published model says of them
returns            (m,) log risks, a larger one for an earlier event
"""

METRICS = {
    "cindex": "Harrell's C on test rows",
    "loss": f"mean −log chance that the scores give a test case among {JUDGE_CONTROLS} controls; lower is better",
    "test_events": "events among the test rows",
}

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 15, Budget.FULL: 50, Budget.PAPER: 50}

OWN_CONTRACT = CONTRACT.replace(
    "a nested case-control sample of a small study: X (n, p), event (n,) bool (the case of its set),",
    "two thirds of your rows: X (n, p), event (n,) bool,",
)


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's cohort: two thirds of it are the small study, one third is test."""
    if set(paths) != {"data"}:
        raise InputError(f"clkd takes a cohort as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    rows = own_rows(path)
    n, events = len(rows), int(rows.event.sum())
    if n < LEAST_ROWS or events < LEAST_EVENTS:
        raise InputError(
            f"{path.name} has {n} rows and {events} events; this study needs at least {LEAST_ROWS} and {LEAST_EVENTS}: "
            "two thirds of them are the study, one third is test"
        )
    others: dict[str | tuple[str, ...], str] = {
        ALONE: "clkd beats your study alone",  # averaged too, or averaging might be all of the gain
        "teacher": "clkd beats the teacher alone on your rows",
        "stack": "clkd beats the score as one more column on your rows",
        "offset": "clkd beats the score as an offset on your rows",
        "blend": "clkd beats the mean of the two scores on your rows",
    }
    names = {"clkd", "clkd-cv", *ALONE, "teacher", "stack", "offset", "blend"}
    return Study(
        name="clkd",
        tasks=(
            Task(
                "own", partial(load_own, path=path), score, f"{path.name}: {n} rows, {events} events; one third is test"
            ),
        ),
        arms=tuple(replace(arm, tasks=None) for arm in _arms() if arm.name in names),
        claims=tuple(higher("cindex", "clkd", than=other, says=says) for other, says in others.items()),
        primary="cindex",
        better="higher",
        metrics=METRICS,
        seeds=SEEDS,
        contract=OWN_CONTRACT,
    )


@lru_cache(maxsize=2)
def own_rows(path: Path) -> Rows:
    """A user's rows, words one-hot."""
    cohort = read_cohort(path, time="time", event="event", teacher="teacher")
    X = pd.get_dummies(cohort.X, columns=list(cohort.words), drop_first=True, dtype=float)
    return Rows(X.to_numpy(dtype=np.float64), cohort.event, cohort.time, cohort.teacher)


def load_own(seed: int, budget: Budget, path: Path) -> tuple[Given, Hidden]:
    """Split a user's rows anew, with as large a share of events in both parts."""
    rows = own_rows(path)
    strata = rows.event if min(rows.event.sum(), (~rows.event).sum()) >= 2 else None
    study, test = train_test_split(np.arange(len(rows)), test_size=1 / 3, random_state=seed, stratify=strata)
    given = Given(rows[study], None, rows[study], rows.X[test], rows.teacher[test])
    return given, Hidden(rows[test], _judges(rows[test], seed), None)


STUDY = Study(
    name="clkd",
    tasks=TASKS,
    arms=_arms(),
    claims=(
        higher("cindex", "clkd", than=ALONE, tasks=REAL, says="better than the study alone"),
        higher("cindex", "clkd", than="teacher", tasks="smarto", says="better than the teacher where much is new"),
        not_lower(
            "cindex", "clkd", than="teacher", by=0.005, tasks=REAL, says="nowhere clearly worse than the teacher"
        ),
        higher("cindex", "clkd", than="stack", tasks=REAL, says="better than the score as one more column"),
        higher("cindex", "clkd", than="offset", tasks=REAL[:2], says="better than the score as an offset"),
        lower("loss", "clkd", than=ALONE, tasks=REAL, says="better fit, not only ranks"),
        not_lower(
            "cindex", "clkd", than="internal", by=0.03, tasks=FLIPPED, says="a teacher turned round does little harm"
        ),
        higher("cindex", "clkd", than="teacher", by=0.15, tasks=FLIPPED, says="a teacher turned round is not believed"),
        not_lower(
            "cindex",
            "clkd",
            than="internal",
            by=0.03,
            tasks="smarto-shuffled",
            says="an arbitrary teacher does little harm",
        ),
        higher("cindex", "clkd", than="clkd-cv", tasks=REAL, says="averaging beats the best eta"),
        higher("cindex", "clkd", than="blend", tasks=REAL, says="distillation beats the mean of the two scores"),
        higher("cindex", "clkd", than=ALONE, tasks=LEAN, says="still better without columns that mean nothing"),
    ),
    primary="cindex",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={
        "data": "a cohort (.csv, .tsv, .parquet or .jsonl), a row a patient, with the columns time (above 0), event "
        "(1 seen, 0 censored), teacher (the published model's log risk) and features; nothing missing, at "
        "least 45 rows and 15 events"
    },
    own=own,
)
