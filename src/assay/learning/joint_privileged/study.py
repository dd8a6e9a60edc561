"""The study of coupled training: does it gain from W where W says something, and lose little where it does not?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.evidence.claim import lower, not_higher
from assay.evidence.study import Arm, Budget, Study, Task

from . import baselines, own, samples
from .classifier import CoupledClassifier
from .regressor import CoupledRegressor
from .samples import Given, Hidden

FloatArray = NDArray[np.float64]

FULL = (Budget.FULL, Budget.PAPER)
QUICK = (Budget.QUICK, *FULL)

MARGIN = 0.02
"""What counts as losing little, as a share of the target's variance."""


class AllLabels:
    """The ceiling's output: the score, which knows the labels, fits a model of the inputs for it."""


def load(
    seed: int, budget: Budget, table: Callable[[np.random.Generator], tuple[Given, Hidden]]
) -> tuple[Given, Hidden]:
    """A table of ``samples.py``, drawn with the seed."""
    return table(np.random.default_rng(seed))


def score(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """Squared error over the variance of the target, or the log-loss, on the test rows."""
    y, classes = hidden.y_test, hidden.given.classes
    if isinstance(output, AllLabels):
        output = baselines.all_labels(hidden.given, hidden.y_train, 0)
    shape = (len(y), classes) if classes else (len(y),)
    try:
        said = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"the output must be an array of numbers of shape {shape}") from None
    if said.shape != shape:
        raise ValueError(f"the output must have shape {shape}, got {said.shape}")
    if np.isnan(said).any() or (not classes and np.isinf(said).any()):
        raise ValueError("the output must be finite, and has NaN or infinity in it")
    if not classes:
        return {"error": float(np.mean((said - y) ** 2) / np.var(y))}
    if not np.allclose(np.exp(said).sum(axis=1), 1, atol=1e-6):
        raise ValueError("the output must be log-probabilities: their exponentials must sum to 1 in each row")
    chosen = np.maximum(said[np.arange(len(y)), y.astype(int)], np.log(1e-6))
    return {"error": float(-chosen.mean()), "accuracy": float(np.mean(said.argmax(axis=1) == y))}


def run_coupled(
    given: Given,
    seed: int,
    budget: Budget,
    lam: str = "aggregate",
    solver: Any = "auto",
    alphas: tuple[float, ...] = baselines.ALPHAS,
) -> FloatArray:
    """Coupled training at its defaults, or with another way to choose."""
    if given.classes:
        classifier = CoupledClassifier(lam=lam, alphas=alphas, random_state=seed % 2**32).fit(
            given.X, given.y, W=given.W
        )
        return np.log(classifier.predict_proba(given.X_test))
    model = CoupledRegressor(lam=lam, solver=solver, alphas=alphas, random_state=seed % 2**32)
    return model.fit(given.X, given.y, W=given.W).predict(given.X_test)


def run_baseline(
    given: Given, seed: int, budget: Budget, which: str, alphas: tuple[float, ...] = baselines.ALPHAS
) -> FloatArray:
    """A contender of ``baselines.py``."""
    if which == "labelled":
        return baselines.best(baselines.labels_only(given, seed, alphas))
    if which == "two-stage":
        return baselines.best(baselines.two_stages(given, seed, alphas))
    one, other = baselines.labels_only(given, seed, alphas), baselines.two_stages(given, seed, alphas)
    return baselines.selected(one, other) if which == "select" else baselines.averaged(one, other, given.classes)


def run_simple(given: Given, seed: int, budget: Budget, which: Callable[[Given, int], FloatArray]) -> FloatArray:
    """A contender of ``baselines.py`` that takes the table as it is."""
    return which(given, seed)


def run_ceiling(given: Given, seed: int, budget: Budget) -> AllLabels:
    """Nothing: the score does the work, because no arm may see the labels."""
    return AllLabels()


def _task(name: str, what: str, table: Any, control: bool = False, budgets: tuple[Budget, ...] = QUICK) -> Task:
    return Task(name, partial(load, table=table), score, what, control, budgets)


def _tasks() -> tuple[Task, ...]:
    noise = "40 columns of noise"
    rhc = "APACHE score of intensive-care patients from 8 bedside measurements, 40 labels of 1040"
    diabetes = "progression of diabetes from age, sex, body mass index and blood pressure, 30 labels of 300"
    return (
        _task("rhc-real", f"{rhc}; W: 12 laboratory values", partial(samples.rhc, kind="real")),
        _task("rhc-mixed", f"the same; W: 12 laboratory values and {noise}", partial(samples.rhc, kind="mixed")),
        _task("rhc-noise", f"the same; W: {noise}", partial(samples.rhc, kind="noise"), control=True),
        _task(
            "diabetes-real",
            f"{diabetes}; W: 6 blood values",
            partial(samples.diabetes, kind="real"),
            budgets=tuple(Budget),
        ),
        _task("diabetes-noise", f"the same; W: {noise}", partial(samples.diabetes, kind="noise"), True, tuple(Budget)),
        _task("synth-0", "y from x alone, 60 labels; W: 30 columns", partial(samples.synthetic, strength=0), True),
        _task("synth-1", "y from x and as much from w", partial(samples.synthetic, strength=1)),
        _task("synth-4", "y from x and 16 times the variance from w", partial(samples.synthetic, strength=4)),
        _task("wdbc", "malignant or not from 3 columns, 24 labels; W: the other 27", samples.tissue, budgets=FULL),
        _task("greedy-500", "5 of 500 columns x and 3 of 50 w matter, 60 labels", samples.wide, budgets=FULL),
    )


TASKS = _tasks()
DENSE = tuple(t.name for t in TASKS if t.name != "greedy-500")
PLAIN = (1e-6,)
"""Least squares, as in the source: a penalty that only keeps singular systems solvable."""

REAL = ("rhc-real", "rhc-mixed", "rhc-noise", "diabetes-real", "diabetes-noise")


def _arms(dense: tuple[str, ...] | None, wide: tuple[str, ...] = ()) -> tuple[Arm, ...]:
    def baseline(which: str) -> Any:
        return partial(run_baseline, which=which)

    coupled = run_coupled
    more = (
        Arm("lasso", partial(run_simple, which=baselines.lasso), "baseline", "lasso on labels", wide, FULL),
        Arm(
            "lasso-two-stage",
            partial(run_simple, which=baselines.lasso_two_stages),
            "baseline",
            "two stages with the lasso",
            wide,
            FULL,
        ),
        Arm(
            "coupled-greedy",
            partial(run_coupled, solver="greedy"),
            "ablation",
            "a column a round, averaged over lam and the number of columns",
            wide,
            FULL,
        ),
    )
    plain = (
        Arm(
            "coupled-ols",
            partial(coupled, alphas=PLAIN),
            "ablation",
            "coupled without a ridge penalty",
            ("synth-1",),
            QUICK,
        ),
        *(
            Arm(
                f"{which}-ols",
                partial(run_baseline, which=which, alphas=PLAIN),
                "baseline",
                f"{which} without a ridge penalty",
                ("synth-1",),
                QUICK,
            )
            for which in ("labelled", "two-stage", "endpoints")
        ),
    )
    return (
        Arm("coupled", coupled, "method", "averaged over lam and alpha by held-out losses"),
        Arm("coupled-cv", partial(coupled, lam="cv"), "ablation", "the candidate of the least held-out loss", dense),
        Arm("labelled", baseline("labelled"), "baseline", "ridge (logistic) regression on the labels; W ignored"),
        Arm("two-stage", baseline("two-stage"), "baseline", "a model with W labels the other rows"),
        Arm("select", baseline("select"), "baseline", "labelled or two-stage, by held-out loss", dense),
        Arm("endpoints", baseline("endpoints"), "baseline", "labelled and two-stage averaged, as coupled is", dense),
        Arm("prior", partial(run_simple, which=baselines.prior), "trivial", "the labels' mean, or shares"),
        Arm("all-labels", run_ceiling, "ceiling", "a model of the inputs with every training label", None),
        *(more if wide else ()),
        *(plain if wide else ()),
    )


METRICS = {
    "error": "squared error on test rows over the target's variance there; with classes the log-loss, in nats",
    "accuracy": "share of test rows whose class is the most probable one",
}

CONTRACT = """f(given, seed) -> predictions

given.X            (n, p) float64: the inputs of training rows, without gaps
given.W            (n, k) float64: the privileged columns of training rows
given.y            (n,) float64 targets, NaN where unlabelled; where there are classes int64, and -1
given.X_test       (t, p): rows to predict; their W is not known
given.classes      number of classes, 0 for a regression
returns            (t,) predictions; where there are classes (t, classes) log-probabilities
"""


def own_study(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's table."""
    if set(paths) != {"data"}:
        raise InputError(f"joint-privileged takes a table as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    table = _own_table(path)
    kind = f"{table.classes} classes" if table.classes else "regression"
    size = f"{path.name}: {table.X.shape[1]} inputs, {table.W.shape[1]} privileged; {table.target} ({kind})"
    tasks = tuple(
        Task(name, partial(load_own, path=path, share=share), score, f"{size}; {what}")
        for name, (share, what) in own.tasks_of(table).items()
    )
    # Where targets have gaps nobody knows all labels, and so there is no ceiling.
    gaps = bool(np.isnan(table.y).any())
    return Study(
        name="joint-privileged",
        tasks=tasks,
        arms=tuple(arm for arm in _arms(None) if not (gaps and arm.role == "ceiling")),
        claims=(
            lower("error", "coupled", than="labelled", says="your W helps: better than ignoring it"),
            lower("error", "coupled", than="two-stage", says="better than two stages on your table"),
            lower("error", "coupled", than="select", says="better than picking an end on your table"),
            not_higher(
                "error", "coupled", than=["labelled", "two-stage"], by=MARGIN, says="never loses much on your table"
            ),
        ),
        primary="error",
        better="lower",
        metrics=METRICS,
        seeds=SEEDS,
        base_seed=100,
        contract=CONTRACT,
    )


@lru_cache(maxsize=1)
def _own_table(path: Path) -> own.Table:
    return own.read(path)


def load_own(seed: int, budget: Budget, path: Path, share: float) -> tuple[Given, Hidden]:
    """The user's table, dealt by the seed."""
    return own.load(np.random.default_rng(seed), _own_table(path), share)


SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 20, Budget.FULL: 60, Budget.PAPER: 60}

STUDY = Study(
    name="joint-privileged",
    tasks=TASKS,
    arms=_arms(DENSE, ("greedy-500",)),
    claims=(
        lower(
            "error",
            "coupled",
            than="labelled",
            tasks=["rhc-real", "rhc-mixed"],
            says="W informative: beats ignoring it",
        ),
        lower(
            "error",
            "coupled",
            than="two-stage",
            tasks=["rhc-noise", "diabetes-noise", "synth-0"],
            says="W useless: beats two stages",
        ),
        not_higher(
            "error",
            "coupled",
            than=["labelled", "two-stage"],
            by=MARGIN,
            tasks=REAL,
            says="never loses much to the better end",
        ),
        lower("error", "coupled", than="select", tasks="rhc-mixed", says="beats picking an end by held-out loss"),
        lower(
            "error",
            "coupled",
            than=["labelled", "two-stage"],
            tasks="synth-1",
            says="between the ends helps at moderate signal",
        ),
        lower("error", "coupled", than="endpoints", tasks="synth-1", says="the path adds to an average of the ends"),
        lower(
            "error",
            "coupled-ols",
            than=["labelled-ols", "two-stage-ols"],
            tasks="synth-1",
            says="without a ridge, as in the source: between the ends helps",
        ),
        lower(
            "error",
            "coupled-ols",
            than="endpoints-ols",
            tasks="synth-1",
            says="without a ridge: the path adds to an average of the ends",
        ),
        lower(
            "error",
            "coupled",
            than="coupled-cv",
            tasks=["rhc-mixed", "rhc-noise", "diabetes-noise"],
            says="averaging beats picking one lam in noisy cases",
        ),
        lower("error", "coupled", than="labelled", tasks="wdbc", says="classes: beats ignoring W"),
        not_higher(
            "error",
            "coupled",
            than=["labelled", "two-stage"],
            by=MARGIN,
            tasks="wdbc",
            says="classes: never loses much to the better end",
        ),
        lower(
            "error",
            "coupled-greedy",
            than="coupled",
            tasks="greedy-500",
            says="few of many columns matter: the greedy solver beats the direct one",
        ),
        lower(
            "error",
            "coupled-greedy",
            than=["lasso", "lasso-two-stage"],
            tasks="greedy-500",
            says="few of many columns matter: the greedy solver beats the lasso",
        ),
    ),
    primary="error",
    better="lower",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=100,
    contract=CONTRACT,
    accepts={
        "data": "a table (.csv, .tsv, .parquet or .jsonl) whose target is the column y or target, empty where "
        "unlabelled, whose privileged columns have names that begin with w_ or priv_, and whose other columns are "
        "inputs; at least 40 labels"
    },
    own=own_study,
)
