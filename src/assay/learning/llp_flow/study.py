"""The study of LLP-Flow: do anchors that a flow has moved make a better classifier than the bag loss alone?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.evidence.claim import at_most, higher, holds, not_lower
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task

from . import contenders, samples
from .estimator import LLPFlowClassifier
from .own import OwnTable, own_sample, read_own
from .samples import Sample

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
FULL = (Budget.FULL, Budget.PAPER)

ROWS, TESTS = 1200, 500
EPOCHS, OUTER = (40, 20), 2
"""Passes over the bags in the warm start and in each round; every arm makes as many in all."""

SMOKE_SHARE = 3
"""The smoke budget has a third of the rows and of the passes."""

END = 20
"""Steps at the start and the end of a flow whose transport costs are compared."""


@dataclass(frozen=True)
class Given:
    """What an arm sees.

    Attributes
    ----------
    X, bags, proportions
        (n, d) rows, (n,) each row's bag 0 … B − 1, (B, K).
    X_test
        (m, d) rows to classify.
    even_bags, even_proportions
        The same rows dealt into bags at random, on the task digits; else None.
    """

    X: FloatArray
    bags: IntArray
    proportions: FloatArray
    X_test: FloatArray
    even_bags: IntArray | None = None
    even_proportions: FloatArray | None = None


@dataclass(frozen=True)
class Answer:
    """What an arm of the study returns: the classes of the test rows, and of a flow how it went."""

    classes: IntArray
    transport_ratio: float | None = None
    finite: bool | None = None


@dataclass(frozen=True)
class WithLabels:
    """The ceiling's output: the score, which knows the labels, trains the network on them."""

    seed: int
    passes: int


def load(
    seed: int, budget: Budget, source: Callable[[np.random.Generator], tuple[FloatArray, IntArray]], **dealt: Any
) -> tuple[Given, Sample]:
    """Draw rows and deal them into bags."""
    rng = np.random.default_rng(seed)
    X, y = source(rng)
    both = dealt.pop("both", False)
    rows, tests = dealt.pop("rows", ROWS), TESTS
    if budget is Budget.SMOKE:
        rows, tests = rows // SMOKE_SHARE, tests // SMOKE_SHARE
    sample = samples.deal(X, y, rng, rows, tests, **dealt)
    given = Given(sample.X, sample.bags, sample.proportions, sample.X_test)
    if both:
        bags = np.empty(len(sample.X), dtype=np.int64)
        even = samples.make_bags(sample.y, dealt["size"], "iid", random_state=rng)
        for number, bag in enumerate(even):
            bags[bag] = number
        K = sample.proportions.shape[1]
        pi = np.stack([np.bincount(sample.y[bag], minlength=K) / len(bag) for bag in even])
        given = replace(given, even_bags=bags, even_proportions=pi)
    return given, sample


def of_digits(rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Images of digits."""
    return samples.digits()


def of_satimage(rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Satellite pixels."""
    return samples.satimage()


def of_blobs(rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Gaussian classes."""
    return samples.blobs(rng, 900 + TESTS)


def of_news(rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Embedded posts, embedded once for all cells."""
    texts, y = samples.news()
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    folder = shared(["minilm", digest], lambda new: np.save(new / "X.npy", samples.embed(texts), allow_pickle=False))
    return np.load(folder / "X.npy", allow_pickle=False), y


def score(output: Any, hidden: Sample) -> Mapping[str, Any]:
    """Balanced accuracy on the test rows."""
    if isinstance(output, WithLabels):
        output = _supervised(hidden, output)
    answer = output if isinstance(output, Answer) else Answer(output)
    classes = np.asarray(answer.classes)
    K = hidden.proportions.shape[1]
    if classes.shape != hidden.y_test.shape or classes.dtype.kind not in "iu":
        raise ValueError(
            f"the output must be {len(hidden.y_test)} whole numbers, the class of each test row; got shape "
            f"{classes.shape} of type {classes.dtype}"
        )
    if len(classes) and not 0 <= classes.min() <= classes.max() < K:
        raise ValueError(f"classes must be 0 … {K - 1}, got {classes.min()} … {classes.max()}")
    recalls = [np.mean(classes[hidden.y_test == k] == k) for k in np.unique(hidden.y_test)]
    metrics: dict[str, Any] = {"accuracy": float(np.mean(recalls))}
    if answer.transport_ratio is not None:
        metrics["transport_ratio"] = answer.transport_ratio
    if answer.finite is not None:
        metrics["finite"] = answer.finite
    return metrics


def _supervised(hidden: Sample, how: WithLabels) -> IntArray:
    """Every row a bag of its own: the bag loss is the cross-entropy then."""
    K = hidden.proportions.shape[1]
    clf = LLPFlowClassifier(range(K), outer=0, epochs=(how.passes, 0), device="cpu", random_state=how.seed)
    clf.fit(hidden.X, np.arange(len(hidden.X)), np.eye(K)[hidden.y])
    return clf.predict(hidden.X_test)


def run_flow(given: Given, seed: int, budget: Budget, even: bool = False, **parameters: Any) -> Answer:
    """The method, or what is left of it without some of its parts."""
    epochs, outer = parameters.pop("epochs", _epochs(budget)), parameters.pop("outer", OUTER)
    if budget is Budget.SMOKE:
        parameters = {"flow_steps": 60, **parameters}
    bags, proportions = _bags(given, even)
    clf = LLPFlowClassifier(
        range(proportions.shape[1]), epochs=epochs, outer=outer, device="cpu", random_state=seed, **parameters
    ).fit(given.X, bags, proportions)
    probs = clf.predict_proba(given.X_test)
    steps = clf.history_["transport"][: clf.flow_steps]
    if len(steps) == 0:
        return Answer(probs.argmax(axis=1))
    finite = all(np.isfinite(numbers).all() for numbers in (probs, clf.anchors_, *clf.history_.values()))
    return Answer(probs.argmax(axis=1), float(steps[-END:].mean() / steps[:END].mean()), finite)


def run_bag(given: Given, seed: int, budget: Budget, even: bool = False) -> Answer:
    """The bag loss alone, with as many passes as the method has in all."""
    return run_flow(given, seed, budget, even, outer=0, epochs=(_passes(budget), 0))


def run_mixbag(given: Given, seed: int, budget: Budget) -> Answer:
    """MixBag on the same network."""
    probs = contenders.mixbag(given.X, given.bags, given.proportions, given.X_test, seed, _passes(budget))
    return Answer(probs.argmax(axis=1))


def run_ot_pseudo(given: Given, seed: int, budget: Budget) -> Answer:
    """Labels by transport, as often as the method lets its anchors flow."""
    probs = contenders.ot_pseudo(
        given.X, given.bags, given.proportions, given.X_test, seed, _epochs(budget), OUTER, weight=1.0
    )
    return Answer(probs.argmax(axis=1))


def run_mean_map(given: Given, seed: int, budget: Budget) -> Answer:
    """No training."""
    return Answer(contenders.mean_map(given.X, given.bags, given.proportions, given.X_test).argmax(axis=1))


def run_with_labels(given: Given, seed: int, budget: Budget) -> WithLabels:
    """Nothing: the score does the work, because no arm may see the labels."""
    return WithLabels(seed, _passes(budget) // 4)


def _epochs(budget: Budget) -> tuple[int, int]:
    return (EPOCHS[0] // SMOKE_SHARE, EPOCHS[1] // SMOKE_SHARE) if budget is Budget.SMOKE else EPOCHS


def _passes(budget: Budget) -> int:
    """Of the warm start and all rounds together."""
    first, each = _epochs(budget)
    return first + OUTER * each


def _bags(given: Given, even: bool) -> tuple[IntArray, FloatArray]:
    if not even:
        return given.bags, given.proportions
    assert given.even_bags is not None
    assert given.even_proportions is not None
    return given.even_bags, given.even_proportions


def _tasks() -> tuple[Task, ...]:
    return (
        Task(
            "digits",
            partial(load, source=of_digits, size=50, kind="dirichlet", both=True),
            score,
            "images of digits, 24 bags of 50 with a class mix of their own; arms that end in -iid get the same rows in "
            "24 random bags",
        ),
        Task(
            "satimage",
            partial(load, source=of_satimage, size=100, kind="dirichlet"),
            score,
            "satellite pixels, 6 classes, 12 bags of 100 with a class mix of their own",
            budgets=QUICK,
        ),
        Task(
            "text-iid",
            partial(load, source=of_news, size=100, kind="iid"),
            score,
            "posts of 6 newsgroups as MiniLM embeddings, 12 random bags of 100, so with nearly equal proportions",
            budgets=QUICK,
        ),
        Task(
            "blobs",
            partial(load, source=of_blobs, size=150, kind="iid", rows=900),
            score,
            "4 Gaussian classes that overlap, 6 random bags of 150: too few to learn from",
            control=True,
        ),
    )


LONG = {"anchors_per_class": 200, "flow_steps": 2000, "outer": 1, "epochs": (40, 40)}
SOURCE = {**LONG, "anchor_start": "noise", "lam_anchor": 0.1}

TASKS = _tasks()
NAMES = tuple(task.name for task in TASKS)


def _arms() -> tuple[Arm, ...]:
    return (
        Arm("flow", run_flow, "method", "warm start, then flow and training on both, twice"),
        Arm(
            "flow-weak",
            partial(run_flow, lam_anchor=0.1),
            "ablation",
            "lam_anchor 0.1, the source's",
            ("text-iid",),
            QUICK,
        ),
        Arm("still", partial(run_flow, flow_steps=0), "ablation", "anchors stay where they start"),
        Arm(
            "flow-noise",
            partial(run_flow, anchor_start="noise"),
            "ablation",
            "anchors start as one cloud, the source's start",
            ("text-iid",),
            QUICK,
        ),
        Arm(
            "flow-long",
            partial(run_flow, **LONG),
            "ablation",
            "200 anchors a class, 2000 steps, one round of as many passes",
            ("digits", "text-iid"),
            FULL,
        ),
        Arm(
            "flow-source",
            partial(run_flow, **SOURCE),
            "ablation",
            "the same from one cloud, with lam_anchor 0.1",
            ("text-iid",),
            FULL,
        ),
        Arm("bag", run_bag, "baseline", "the bag loss alone, as many passes in all (DLLP)"),
        Arm("mixbag", run_mixbag, "baseline", "bags mixed from two", ("text-iid",), QUICK),
        Arm("ot-pseudo", run_ot_pseudo, "baseline", "labels by transport between predictions and proportions"),
        Arm("mean-map", run_mean_map, "trivial", "class means by least squares, no training"),
        Arm("flow-iid", partial(run_flow, even=True), "ablation", "the method on random bags", ("digits",)),
        Arm("bag-iid", partial(run_bag, even=True), "baseline", "the bag loss on random bags", ("digits",)),
        Arm("labels", run_with_labels, "ceiling", "the same network with the labels, a quarter of the passes"),
    )


METRICS = {
    "accuracy": "balanced accuracy on single rows that were in no bag",
    "transport_ratio": "mean transport cost of the last 20 steps of the first flow over that of its first 20",
    "finite": "whether all probabilities, anchors and losses are finite",
}

CONTRACT = """f(given, seed) -> classes

given.X            (n, d) float64: rows
given.bags         (n,) the bag of each row, 0 … B - 1
given.proportions  (B, K): the share of each class in each bag
given.X_test       (m, d): rows to classify
returns            (m,) whole numbers, the class 0 … K - 1 of each
"""

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 6, Budget.FULL: 12, Budget.PAPER: 20}

NO_HARM = 0.04


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's table of rows with bags and labels."""
    if set(paths) != {"data"}:
        raise InputError(f"llp-flow takes a table as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    table: OwnTable = read_own(path)
    task = Task(
        "own",
        partial(load_own, path=path),
        score,
        f"{path.name}: {len(table.labels)} rows in {table.bags.max() + 1} bags, {len(table.classes)} classes; a "
        "quarter of each bag's rows is classified, the proportions are those of the rest",
    )
    wanted = ("flow", "flow-weak", "still", "bag", "mixbag", "ot-pseudo", "mean-map", "labels")
    arms = tuple(replace(arm, tasks=None, budgets=tuple(Budget)) for arm in _arms() if arm.name in wanted)
    return Study(
        name="llp-flow",
        tasks=(task,),
        arms=arms,
        claims=(
            higher("accuracy", "flow", than="bag", says="the flow beats the bag loss on your table"),
            not_lower("accuracy", "flow", than="bag", by=NO_HARM, says="the flow does no harm on your table"),
            higher("accuracy", "flow", than="ot-pseudo", says="the flow beats labels by transport on your table"),
            higher("accuracy", "flow", than="mean-map", says="the flow beats the mean map on your table"),
        ),
        primary="accuracy",
        better="higher",
        metrics=METRICS,
        seeds=SEEDS,
        base_seed=100,
        contract=CONTRACT,
    )


def load_own(seed: int, budget: Budget, path: Path) -> tuple[Given, Sample]:
    """A split of the user's rows."""
    sample = own_sample(path, np.random.default_rng(seed))
    return Given(sample.X, sample.bags, sample.proportions, sample.X_test), sample


STUDY = Study(
    name="llp-flow",
    tasks=TASKS,
    arms=_arms(),
    claims=(
        higher("accuracy", "flow", than="bag", tasks="text-iid", says="anchors improve on the bag loss: text-iid"),
        higher("accuracy", "flow", than="bag", tasks="digits", says="anchors improve on the bag loss: digits"),
        higher(
            "accuracy", "flow-iid", than="bag-iid", tasks="digits", says="anchors improve on the bag loss: digits-iid"
        ),
        higher("accuracy", "flow", than="bag", tasks="satimage", says="anchors improve on the bag loss: satimage"),
        higher(
            "accuracy",
            "flow",
            than=["still", "ot-pseudo"],
            tasks="text-iid",
            says="it is the flow that does it",
        ),
        higher(
            "accuracy",
            "flow-source",
            than="bag",
            tasks="text-iid",
            says="the source's settings improve on the bag loss",
        ),
        not_lower(
            "accuracy", "flow", than="bag", by=NO_HARM, tasks=("digits", "satimage"), says="does no harm"
        ),
        not_lower(
            "accuracy", "flow-iid", than="bag-iid", by=NO_HARM, tasks="digits", says="does no harm on random bags"
        ),
        higher(
            "accuracy", "bag", than="bag-iid", by=0.04, tasks="digits", says="diversity decides learnability: bag loss"
        ),
        higher(
            "accuracy", "flow", than="flow-iid", by=0.04, tasks="digits", says="diversity decides learnability: flow"
        ),
        at_most("transport_ratio", "flow", 0.7, says="the flow converges"),
        at_most(
            "transport_ratio",
            "flow-noise",
            0.7,
            tasks="text-iid",
            says="the flow converges from the source's start",
        ),
        holds("finite", "flow", says="never NaN"),
    ),
    primary="accuracy",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=100,
    contract=CONTRACT,
    accepts={
        "data": "a table (CSV, TSV, Parquet or JSON lines) of single rows with the columns 'bag' and 'label', at least "
        "40 rows in 4 bags; the labels give the proportions and the score, and no arm sees them"
    },
    own=own,
)  # fmt: skip
