"""The study of MER-DG: do rich encoders classify new people better, and is it this loss that does it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier

from assay.errors import InputError
from assay.evidence.claim import at_most, higher
from assay.evidence.study import Arm, Budget, Study, Task

from . import step_time
from .arrays import DOMAIN, LABEL, read_recordings
from .contenders import Answer, Given, Terms, fused, linear
from .effective_rank import rankme
from .recordings import Windows, cooccurring, raw_windows, split, summary_windows, without_some

IntArray = NDArray[np.int64]

EPOCHS = {Budget.SMOKE: 2, Budget.QUICK: 25, Budget.FULL: 25, Budget.PAPER: 25}
QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
FULL = (Budget.FULL, Budget.PAPER)

SUBJECT, COOCCUR, RAW, MISSING = "watch-subject", "watch-cooccur", "watch-raw", "watch-missing"
STEP, LARGE_STEP = "step-time", "step-time-large"
WATCH = (SUBJECT, COOCCUR, RAW, MISSING)

ABSENT = 0.3
"""Share of windows that lack a modality in ``watch-missing``, in the source and the target alike."""

GRIDS: dict[str, tuple[Terms, ...]] = {
    "mer": tuple(Terms(lam=x) for x in (0.03, 0.1, 0.3, 1.0)),
    "mer-marg": tuple(Terms(lam=x, w_spec=0.0) for x in (0.01, 0.03, 0.1, 0.3)),
    "mer-spec": tuple(Terms(lam=x, w_marg=0.0) for x in (0.01, 0.03, 0.1, 0.3)),
    "vicreg": tuple(Terms(vicreg=x) for x in (0.03, 0.1, 0.3, 1.0)),
    "modality-dropout": tuple(Terms(modality_dropout=x) for x in (0.05, 0.1, 0.2, 0.3)),
    "label-smoothing": tuple(Terms(label_smoothing=x) for x in (0.1, 0.2, 0.4, 0.6)),
    "weight-decay": tuple(Terms(weight_decay=x) for x in (1e-4, 1e-3, 1e-2, 1e-1)),
}
"""Four values for the knob of every arm that has one.

A fifth was tried where the best lay at or near the edge, and never won: of all but ``mer`` and ``weight-decay``.
"""

CHOSEN = {
    "mer": 1, "mer-marg": 1, "mer-spec": 1, "vicreg": 2, "modality-dropout": 1, "label-smoothing": 2, "weight-decay": 1,
}  # fmt: skip
"""Which of them: the best accuracy on a source person left out, on seeds 0 to 5; no target was looked at."""

CHOSEN_RAW = {"mer": 0, "vicreg": 2}
"""The same for convolutional encoders on the raw signal, on seeds 0 and 1 alone; no other arm has a knob there."""


@dataclass(frozen=True)
class Hidden:
    """What only the score sees.

    Attributes
    ----------
    y
        (m,) true classes of the target.
    domains
        (m,) their domains.
    source_y
        (n,) classes of the source, to train probes on.
    target
        Modality to the target rows, and ``recording`` (m,) which recording each is of: for the ceiling.
    """

    y: IntArray
    domains: IntArray
    source_y: IntArray
    target: dict[str, NDArray[Any]]
    recording: IntArray
    n_classes: int
    encoder: Any


class WithinTarget:
    """The ceiling's output: the score trains on half of the target's recordings for it, and classifies the rest."""

    def __init__(self, seed: int, epochs: int) -> None:
        self.seed, self.epochs = seed, epochs


def load(seed: int, budget: Budget, kind: str) -> tuple[Given, Hidden]:
    """Three people to learn from, seven to classify; drawn by the seed."""
    rng = np.random.default_rng(seed)
    source, target = split(raw_windows() if kind == RAW else summary_windows(), rng)
    if kind == COOCCUR:
        source, target = cooccurring(source, target, rng)
    elif kind == MISSING:
        source, target = (without_some(part, ABSENT, rng) for part in (source, target))
    return _given(source, target, int(max(source.y.max(), target.y.max())) + 1, "cnn1d" if kind == RAW else "mlp")


def _given(source: Windows, target: Windows, n_classes: int, encoder: Any) -> tuple[Given, Hidden]:
    domains = np.unique(source.subject, return_inverse=True)[1]
    given = Given(source.inputs, source.y, domains, target.inputs, n_classes, encoder)
    hidden = Hidden(target.y, target.subject, source.y, target.inputs, target.recording, n_classes, encoder)
    return given, hidden


def load_step(seed: int, budget: Budget, large: bool) -> tuple[step_time.Step, None]:
    """A training step to be timed."""
    if large:
        return step_time.large_step(seed), None
    return step_time.small_step(seed, turns=10 if budget is Budget.SMOKE else 120), None


def score(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """Accuracy on the target; where an arm gives features, their rank and what linear probes read from them."""
    if isinstance(output, WithinTarget):
        output = _within_target(output, hidden)
    answer = output if isinstance(output, Answer) else Answer(np.asarray(output))
    predicted = np.asarray(answer.predicted)
    if predicted.shape != hidden.y.shape or predicted.dtype.kind not in "iu":
        raise ValueError(
            f"the output must be {len(hidden.y)} class numbers, one for each target row; got shape {predicted.shape} "
            f"of dtype {predicted.dtype}"
        )
    metrics = {"accuracy": 100 * float((predicted == hidden.y).mean())}
    if answer.parameters:
        metrics["parameters"] = answer.parameters
    if answer.steps:
        metrics["steps"] = answer.steps
    if answer.target and answer.source:
        metrics |= _probes(answer, hidden)
    return metrics


def _probes(answer: Answer, hidden: Hidden) -> dict[str, float]:
    """Means over the modalities; the probe is ridge regression on the classes, trained on the source's features."""
    ranks, classes, domains = [], [], []
    several = len(np.unique(hidden.domains)) > 1
    recordings = np.unique(hidden.recording, return_inverse=True)[1]
    even = recordings % 2 == 0
    for name, z in answer.target.items():
        ranks.append(rankme(z))
        probe = RidgeClassifier().fit(answer.source[name], hidden.source_y)
        classes.append(float((probe.predict(z) == hidden.y).mean()))
        if several:
            halves = [(even, ~even), (~even, even)]
            told = [
                RidgeClassifier().fit(z[a], hidden.domains[a]).predict(z[b]) == hidden.domains[b] for a, b in halves
            ]
            domains.append(float(np.concatenate(told).mean()))
    found = {"rankme": float(np.mean(ranks)), "probe": 100 * float(np.mean(classes))}
    return found | ({"domain_probe": 100 * float(np.mean(domains))} if several else {})


def _within_target(output: WithinTarget, hidden: Hidden) -> Answer:
    """Plain fusion trained on every second recording of the target people, on the others, and the other way round."""
    even = np.unique(hidden.recording, return_inverse=True)[1] % 2 == 0
    predicted = np.zeros(len(hidden.y), dtype=np.int64)
    for train, test in ((even, ~even), (~even, even)):
        part = Given(
            {name: rows[train] for name, rows in hidden.target.items()},
            hidden.y[train],
            np.unique(hidden.domains[train], return_inverse=True)[1],
            {name: rows[test] for name, rows in hidden.target.items()},
            hidden.n_classes,
            hidden.encoder,
        )
        predicted[test] = fused(part, output.seed, output.epochs, Terms()).predicted
    return Answer(predicted)


def score_step(output: Any, hidden: None) -> Mapping[str, float]:
    """The ratio of a step's times."""
    ratio = float(output)
    if not ratio > 0:
        raise ValueError(f"on a step-time task the output must be a positive ratio, got {output!r}")
    return {"step_ratio": ratio}


def run_fused(given: Any, seed: int, budget: Budget, name: str) -> Any:
    """The network of all arms, with this arm's term; on a step-time task what the term costs."""
    if isinstance(given, step_time.Step):
        return step_time.step_ratio(given, seed)
    return fused(given, seed, EPOCHS[budget], _terms(name, given.encoder))


def _terms(name: str, encoder: Any) -> Terms:
    if name not in GRIDS:
        return Terms(only=name.removesuffix("-only")) if name.endswith("-only") else Terms()
    chosen = CHOSEN_RAW if encoder == "cnn1d" else CHOSEN
    return GRIDS[name][chosen[name]]


def run_projected(given: Given, seed: int, budget: Budget) -> Answer:
    """The loss on a learned head over the features, as in the authors' code."""
    chosen = _terms("mer", given.encoder)
    return fused(given, seed, EPOCHS[budget], Terms(lam=chosen.lam, project=(64, 128)))


def run_linear(given: Given, seed: int, budget: Budget) -> Answer:
    """Logistic regression."""
    return linear(given, seed)


def run_ceiling(given: Given, seed: int, budget: Budget) -> WithinTarget:
    """Nothing: the score does the work, because no arm may see the target's classes."""
    return WithinTarget(seed, EPOCHS[budget])


def _arm(name: str, role: Any, what: str, tasks: tuple[str, ...] | None, budgets: tuple[Budget, ...]) -> Arm:
    return Arm(name, partial(run_fused, name=name), role, what, tasks, budgets)


def _value(name: str) -> str:
    """The chosen knob in words."""
    terms = GRIDS[name][CHOSEN[name]]
    return f"{max(terms.lam, terms.vicreg, terms.modality_dropout, terms.label_smoothing, terms.weight_decay):g}"


def _arms() -> tuple[Arm, ...]:
    both = (SUBJECT, COOCCUR)
    every = tuple(Budget)
    return (
        _arm("mer", "method", f"fusion + modality entropy, λ {_value('mer')}", None, every),
        _arm("fusion", "baseline", "cross-entropy alone", WATCH, every),
        _arm("mer-marg", "ablation", f"its marginal half, λ {_value('mer-marg')}", both, QUICK),
        _arm("mer-spec", "ablation", f"its spectral half, λ {_value('mer-spec')}", both, QUICK),
        _arm("vicreg", "baseline", f"VICReg's terms, weight {_value('vicreg')}", (*both, RAW), QUICK),
        _arm(
            "modality-dropout",
            "baseline",
            f"a modality left out with p = {_value('modality-dropout')}",
            (*both, MISSING),
            QUICK,
        ),
        _arm("label-smoothing", "baseline", f"label smoothing {_value('label-smoothing')}", both, QUICK),
        _arm("weight-decay", "baseline", f"weight decay {_value('weight-decay')}", both, QUICK),
        Arm("linear", run_linear, "trivial", "logistic regression on all columns", (*both, MISSING), every),
        _arm("acc-only", "ablation", "fusion with acceleration alone", both, FULL),
        _arm("gyr-only", "ablation", "fusion with rotation alone", both, FULL),
        Arm("mer-projected", run_projected, "ablation", "the loss on heads of 128", both, FULL),
        Arm("within-target", run_ceiling, "ceiling", "fusion trained on the target people", (SUBJECT,), FULL),
    )


TASKS = (
    Task(
        SUBJECT,
        partial(load, kind=SUBJECT),
        score,
        "watch recordings of shoulder exercises, summaries of 2.6 s; learn from 3 people, classify 7 others",
    ),
    Task(
        COOCCUR,
        partial(load, kind=COOCCUR),
        score,
        "the same, and a code in both signals that tells the exercise of 90 % of the source windows and of no target",
        budgets=QUICK,
    ),
    Task(STEP, partial(load_step, large=False), score_step, "time of a step, small encoders: with / without"),
    Task(
        LARGE_STEP,
        partial(load_step, large=True),
        score_step,
        "time of a step, encoders of 7 million weights: with / without",
        budgets=QUICK,
    ),
    Task(RAW, partial(load, kind=RAW), score, "the raw signals, convolutional encoders", budgets=FULL),
    Task(
        MISSING,
        partial(load, kind=MISSING),
        score,
        f"one signal absent in {ABSENT:.0%} of the windows of source and target",
        budgets=FULL,
    ),
)

CONTRACT = """f(given, seed) -> predicted

given.source     modality -> (n, …) rows to learn from; a row of NaN: absent there
given.y          (n,) their classes, whole numbers from 0
given.domains    (n,) whose recordings they are, whole numbers from 0
given.target     modality -> (m, …) rows to classify, of other people
given.n_classes  how many classes there are
given.encoder    "mlp" or "cnn1d": what this study's arms use
returns          (m,) class numbers

On the tasks "step-time…" given.inputs and given.y are one batch, and the answer is a ratio: the time of your training
step, over that of the same step without what you add.
"""

METRICS = {
    "accuracy": "rows of the target classified correctly, %",
    "rankme": "RankMe of a modality's target features (of 32), mean over modalities",
    "probe": "accuracy on the target of a linear probe on one modality's features, trained on the source, %, mean",
    "domain_probe": "target people told by a linear probe on one modality's features, on other recordings, %, mean",
    "step_ratio": "CPU time of a training step with the loss / without, median over turns",
}

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 10, Budget.FULL: 40, Budget.PAPER: 40}


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's recordings: two thirds of the domains, drawn by the seed, are the source."""
    if set(paths) != {"data"}:
        raise InputError(f"mer-dg takes recordings as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    windows, n_classes = own_windows(path)
    domains = len(np.unique(windows.subject))
    if domains < 3:
        raise InputError(f"{path.name} has {domains} domains; this study needs 3: two to learn from, one to classify")
    if n_classes < 2:
        raise InputError(f"all labels of {path.name} are the same")
    names = ("mer", "fusion", "vicreg", "modality-dropout", "label-smoothing", "weight-decay")
    if len(windows.inputs) == 1:
        names = tuple(name for name in names if name != "modality-dropout")
    whats = {arm.name: arm for arm in _arms()}
    arms = [
        Arm(
            name,
            partial(run_tuned, name=name),
            whats[name].role,
            "cross-entropy alone" if name == "fusion" else f"{name}, its knob chosen on a source domain left out",
        )
        for name in names
    ]
    arms.append(Arm("linear", run_linear, "trivial", whats["linear"].what))
    what = ", ".join(f"{name} {rows.shape[1:]}" for name, rows in windows.inputs.items())
    return Study(
        name="mer-dg",
        tasks=(
            Task(
                "own",
                partial(load_own, path=path),
                score,
                f"{path.name}: {len(windows.y)} rows ({what}) of {n_classes} classes and {domains} domains, of which "
                f"{n_own_source(domains)} are learnt from",
            ),
        ),
        arms=tuple(arms),
        claims=(
            higher("accuracy", "mer", than="fusion", says="better than plain fusion on your new domains"),
            *(
                higher("accuracy", "mer", than=name, says=f"better than {name} on your new domains")
                for name in (*names[2:], "linear")
            ),
            higher("rankme", "mer", than="fusion", ratio=1.8, says="keeps rank on your recordings"),
        ),
        primary="accuracy",
        better="higher",
        metrics={name: text for name, text in METRICS.items() if name != "step_ratio"},
        base_seed=BASE_SEED,
        contract=CONTRACT.partition("\nOn the tasks")[0],
    )


BASE_SEED = 2000


@lru_cache(maxsize=2)
def own_windows(path: Path) -> tuple[Windows, int]:
    """A user's recordings, and how many classes there are."""
    held = read_recordings(path)
    assert held.label is not None
    assert held.domain is not None
    classes, y = np.unique(held.label, return_inverse=True)
    domain = np.unique(held.domain, return_inverse=True)[1]
    return Windows(held.inputs, y, domain, np.arange(len(y))), len(classes)


def n_own_source(domains: int) -> int:
    """How many of a user's domains are learnt from."""
    return min(max(2, round(2 * domains / 3)), domains - 1)


def load_own(seed: int, budget: Budget, path: Path) -> tuple[Given, Hidden]:
    """Two thirds of the domains to learn from, the others to classify."""
    windows, n_classes = own_windows(path)
    domains = np.random.default_rng(seed).permutation(np.unique(windows.subject))
    source = np.isin(windows.subject, domains[: n_own_source(len(domains))])
    encoders = {name: "cnn1d" if rows.ndim == 3 else "mlp" for name, rows in windows.inputs.items()}
    return _given(windows.take(source), windows.take(~source), n_classes, encoders)


def run_tuned(given: Given, seed: int, budget: Budget, name: str) -> Answer:
    """Choose the arm's knob on one source domain left out, then train on the whole source."""
    epochs = EPOCHS[budget]
    terms = Terms()
    if name in GRIDS:
        held = given.domains == np.random.default_rng(seed).choice(np.unique(given.domains))
        part = Given(
            {m: rows[~held] for m, rows in given.source.items()},
            given.y[~held],
            given.domains[~held],
            {m: rows[held] for m, rows in given.source.items()},
            given.n_classes,
            given.encoder,
        )
        right = [int((fused(part, seed, epochs, one).predicted == given.y[held]).sum()) for one in GRIDS[name]]
        terms = GRIDS[name][int(np.argmax(right))]  # the first, and weakest, of equals
    return fused(given, seed, epochs, terms)


ON_SUBJECT, ON_COOCCUR = [SUBJECT], [COOCCUR]

STUDY = Study(
    name="mer-dg",
    tasks=TASKS,
    arms=_arms(),
    claims=(
        higher("accuracy", "mer", than="fusion", tasks=ON_SUBJECT, says="better on new people than plain fusion"),
        higher("accuracy", "mer", than="fusion", tasks=ON_COOCCUR, says="better where the signals share a shortcut"),
        higher("rankme", "mer", than="fusion", ratio=1.8, tasks=[SUBJECT, COOCCUR], says="keeps the encoders' rank"),
        higher("accuracy", "mer", than=["mer-marg", "mer-spec"], tasks=ON_SUBJECT, says="both halves count"),
        higher("accuracy", "mer", than="weight-decay", tasks=ON_SUBJECT, says="more than weight decay"),
        higher("accuracy", "mer", than="label-smoothing", tasks=ON_SUBJECT, says="more than label smoothing"),
        higher("accuracy", "mer", than="modality-dropout", tasks=ON_SUBJECT, says="more than modality dropout"),
        higher("accuracy", "mer", than="vicreg", tasks=ON_SUBJECT, says="more than VICReg's terms"),
        higher("accuracy", "mer", than="linear", tasks=ON_SUBJECT, says="better than logistic regression"),
        at_most("step_ratio", "mer", 1.15, tasks=[STEP], says="costs little with small encoders"),
        at_most("step_ratio", "mer", 1.05, tasks=[LARGE_STEP], says="costs next to nothing with large encoders"),
        higher("accuracy", "mer", than="fusion", tasks=[RAW], says="better with convolutions on raw signals"),
        higher("accuracy", "mer", than="fusion", tasks=[MISSING], says="better where signals are missing"),
    ),
    primary="accuracy",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=BASE_SEED,
    contract=CONTRACT,
    accepts={
        "data": "an .npz file with an array (n, …) for each modality (any names; rows of NaN where one is absent), "
        f"'{LABEL}' (n,) and '{DOMAIN}' (n,) of at least 3 domains. Rows (channels, time) get convolutional encoders, "
        "others an MLP"
    },
    own=own,
)
