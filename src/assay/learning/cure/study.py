"""The study of CURE: does discovery gain when nothing pushes unlike rows apart, and what does the work?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import nn

from assay.errors import InputError
from assay.evidence.claim import Claim, at_most, higher, lower, not_lower
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts import minilm
from assay.parts.training import generator

from . import baselines
from .accuracy import gcd_accuracy
from .baselines import Answer, Problem
from .discovery import CUREDiscovery
from .encoders import Residual, made_with, mlp, principal_basis
from .estimation import estimate_n_classes
from .rows import standard
from .sources import digits, mnist5k, news_texts, own_rows
from .training import Loop, pretrain
from .views import image_view, tabular_view

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
FULL = (Budget.FULL, Budget.PAPER)
SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 8, Budget.FULL: 20, Budget.PAPER: 20}

DIM = 64
BATCH = 256
LR = 3e-3
"""Of 3e-4, 1e-3 and 3e-3 the best on digits for CURE, SimGCD and SimGCD without uniformity, by seeds below 100."""

PRETRAIN = {Budget.SMOKE: 6, Budget.QUICK: 40, Budget.FULL: 40, Budget.PAPER: 40}
EPOCHS = {Budget.SMOKE: (1, 5), Budget.QUICK: (1, 25), Budget.FULL: (1, 25), Budget.PAPER: (1, 25)}
"""Passes of CURE's two stages; contenders with one stage have as many in all."""

LEAST_CLASSES, LEAST_ROWS = 4, 200
"""Of a user's data."""

Rows = tuple[NDArray[np.float32], NDArray[np.int64]]


@dataclass(frozen=True)
class Given:
    """What an arm sees.

    Attributes
    ----------
    X
        (n, …) float32 rows.
    y
        (n,) known classes, 0 to C − 1; −1 where unknown.
    n_classes
        All classes, or None where the number is unknown too.
    views
        ``"image"`` or ``"tabular"``: how views are made.
    start
        Makes the common encoder, rows to (n, dim).
    """

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    n_classes: int | None
    views: str
    start: Callable[[], nn.Module]


@dataclass(frozen=True)
class Hidden:
    """What only the score sees: the true classes, the known ones first, and which rows had a label."""

    y: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    n_known: int


def load(
    seed: int, budget: Budget, rows: Callable[[int, Budget], Rows], key: str, told: bool, encoder: str
) -> tuple[Given, Hidden]:
    """Choose known classes by the seed and hide the labels of the others and of half of their own rows."""
    X, classes = rows(seed, budget)
    rng = np.random.default_rng([seed, 1])
    n_classes = int(classes.max()) + 1
    n_known = n_classes // 2
    place = np.argsort(rng.permutation(n_classes))  # known classes are those that land in the first half
    y = place[classes]
    labelled = (y < n_known) & (rng.random(len(y)) < 0.5)
    for k in range(n_known):  # at the least one label each
        labelled[np.flatnonzero(y == k)[0]] |= not (labelled & (y == k)).any()
    views = "tabular" if X.ndim == 2 else "image"
    if encoder == "mlp":
        passes = PRETRAIN[budget]
        folder = shared(["cure", key, seed, passes, X.shape], partial(_pretrained, X=X, seed=seed, passes=passes))
        start: Callable[[], nn.Module] = partial(_read, folder=folder, width=int(np.prod(X.shape[1:])))
    else:
        start = partial(_residual, X=X, seed=seed)
    given = Given(X, np.where(labelled, y, -1), n_classes if told else None, views, start)
    return given, Hidden(y, labelled, n_known)


def _pretrained(folder: Path, X: NDArray[np.float32], seed: int, passes: int) -> None:
    rows = torch.from_numpy(X)
    encoder = made_with(seed, lambda: mlp(rows[0].numel(), DIM))
    augment = tabular_view if X.ndim == 2 else image_view
    draws = generator(seed)
    pretrain(encoder, DIM, rows, Loop(BATCH, LR, draws, draws, torch.device("cpu"), augment), passes, seed)
    save_file(encoder.state_dict(), folder / "encoder.safetensors")


def _read(folder: Path, width: int) -> nn.Module:
    encoder = mlp(width, DIM)
    encoder.load_state_dict(load_file(folder / "encoder.safetensors"))
    return encoder


def _residual(X: NDArray[np.float32], seed: int) -> nn.Module:
    """Embeddings as they are, of full width, plus a change that is nothing yet."""
    rows = torch.from_numpy(X)
    return made_with(seed, lambda: Residual(principal_basis(rows, X.shape[1])))


def score(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """Accuracies on the rows without a label, in percent, by one matching over all of them."""
    answer = output if isinstance(output, Answer) else Answer(np.asarray(output))
    classes = np.asarray(answer.classes)
    if classes.shape != hidden.y.shape or classes.dtype.kind not in "iu":
        raise ValueError(
            f"the output must be {len(hidden.y)} whole numbers, a class for each row; got {classes.dtype} "
            f"{classes.shape}"
        )
    rows = ~hidden.labelled
    found = gcd_accuracy(hidden.y[rows], classes[rows], range(hidden.n_known))
    k = len(np.unique(classes[rows]))
    costs = {"parameters": answer.parameters, "steps": answer.steps}
    more = {"k_error": abs(k - len(np.unique(hidden.y))), "rows": int(rows.sum())}
    return {name: 100 * value for name, value in found.items()} | more | costs


def problem_of(given: Given, seed: int) -> Problem:
    """The common start, with the number of classes told or estimated; the estimate is the same for every arm."""
    encoder = given.start()
    n_known = int(given.y.max()) + 1
    augment = tabular_view if given.views == "tabular" else image_view
    problem = Problem(encoder, DIM, torch.from_numpy(given.X), given.y, n_known, given.n_classes or n_known, augment)
    width = problem.features()
    problem = replace(problem, dim=width.shape[1])
    if given.n_classes is None:
        problem = replace(problem, n_classes=_estimated(width, given.y, seed))
    return problem


def _estimated(Z: NDArray[np.float32], y: NDArray[np.int64], seed: int) -> int:
    def make(folder: Path) -> None:
        np.save(folder / "k.npy", estimate_n_classes(Z, y, random_state=seed)[0], allow_pickle=False)

    return int(np.load(shared(["cure classes", _name(Z, y), seed], make) / "k.npy", allow_pickle=False))


def run_cure(given: Given, seed: int, budget: Budget, **weights: float) -> Answer:
    """The estimator, as a user calls it."""
    problem = problem_of(given, seed)
    model = CUREDiscovery(
        problem.n_classes,
        encoder=problem.encoder,
        dim=problem.dim,
        augment=problem.augment,
        epochs=EPOCHS[budget],
        batch_size=BATCH,
        lr=LR,
        device="cpu",
        random_state=seed,
        **weights,
    )
    model.fit(given.X, given.y)
    classes = np.searchsorted(model.classes_, model.predict(given.X))
    passes = model.history_["stage"].value_counts()
    steps = baselines.steps(problem, int(passes.get("known", 0)), int(passes.get("all", 0)), BATCH)
    return Answer(classes, baselines.size(model.net_.parameters()), steps)


def run_discover(given: Given, seed: int, budget: Budget, **changed: Any) -> Answer:
    """CURE with an ingredient changed."""
    return baselines.discover(
        problem_of(given, seed), seed, epochs=EPOCHS[budget], batch_size=BATCH, lr=LR, **changed
    )  # fmt: skip


def run_simgcd(given: Given, seed: int, budget: Budget, **changed: Any) -> Answer:
    """SimGCD, as many passes as CURE's two stages have."""
    return baselines.simgcd(
        problem_of(given, seed), seed, epochs=sum(EPOCHS[budget]), batch_size=BATCH, lr=LR, **changed
    )  # fmt: skip


def run_untrained(given: Given, seed: int, budget: Budget, contender: Callable[[Problem, int], Answer]) -> Answer:
    """A clustering of the common encoder's features."""
    return contender(problem_of(given, seed), seed)


def _arms(
    every: tuple[str, ...] | None, told: tuple[str, ...] | None, parts: tuple[str, ...] | None
) -> tuple[Arm, ...]:
    """The contenders on ``every`` task; SEE where the number of classes is ``told``; what else does it on ``parts``."""

    def arm(name: str, run: Any, role: Any, what: str, tasks: Any = every, budgets: Any = tuple(Budget)) -> Arm:
        return Arm(name, run, role, what, tasks, budgets)

    def clustering(contender: Callable[[Problem, int], Answer]) -> Any:
        return partial(run_untrained, contender=contender)

    def simgcd(**changed: Any) -> Any:
        return partial(run_simgcd, **changed)

    def discover(**changed: Any) -> Any:
        return partial(run_discover, **changed)

    def cure(**weights: float) -> Any:
        return partial(run_cure, **weights)

    return (
        arm("cure", run_cure, "method", "two stages, clusters between them, no uniformity, SEE"),
        arm("simgcd", run_simgcd, "baseline", "one stage: distillation, contrastive terms, mean entropy"),
        arm("simgcd-no-uniformity", simgcd(contrast=0.0), "ablation", "SimGCD without contrastive terms"),
        arm("kmeans", clustering(baselines.kmeans), "trivial", "k-means of the features, nothing trained"),
        arm("seeded-kmeans", clustering(baselines.seeded), "trivial", "k-means, labelled rows kept together"),
        arm("cure-no-see", cure(see1=0.0, see2=0.0), "ablation", "SEE left out", told),
        arm("cure+infonce", discover(infonce=1.0), "ablation", "InfoNCE added to stage 2", parts),
        arm("cure-random-start", discover(start="random"), "ablation", "new prototypes start anywhere", parts, QUICK),
        arm(
            "simgcd-nu-clusters",
            simgcd(contrast=0.0, start="kmeans"),
            "ablation",
            "SimGCD without contrastive terms, from clusters as CURE",
            parts,
            QUICK,
        ),
        arm("cure-no-adjust", cure(adjust=0.0), "ablation", "distillation without logit adjustment", parts, FULL),
        arm("simgcd-clusters", simgcd(start="kmeans"), "ablation", "SimGCD from clusters as CURE", parts, FULL),
    )


def digit_rows(seed: int, budget: Budget) -> Rows:
    """The small digits."""
    X, y = digits()
    return (X[:600], y[:600]) if budget is Budget.SMOKE else (X, y)


def mnist_rows(seed: int, budget: Budget) -> Rows:
    """The large digits."""
    return mnist5k(seed, MNIST_EACH)


def news_rows(seed: int, budget: Budget) -> Rows:
    """Embeddings of news, columns scaled; embedded once for all cells."""
    texts, y = news_texts(NEWS_EACH)
    folder = shared(
        ["cure-minilm", NEWS_EACH], lambda new: np.save(new / "X.npy", minilm.encode(texts), allow_pickle=False)
    )
    X = np.load(folder / "X.npy", allow_pickle=False)
    return standard(X)(X).numpy(), y


MNIST_EACH, NEWS_EACH = 250, 60


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's fully labelled rows; it hides classes itself."""
    if set(paths) != {"data"}:
        raise InputError(f"cure takes labelled rows as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    X, y = own_rows(path)
    counts = np.bincount(y)
    if len(counts) < LEAST_CLASSES or len(X) < LEAST_ROWS:
        raise InputError(
            f"{path.name} has {len(counts)} classes in {len(X)} labelled rows; this study needs at least "
            f"{LEAST_CLASSES} and {LEAST_ROWS}: half of the classes are hidden"
        )
    if counts.min() < 4:
        raise InputError(f"{path.name} has a class with {counts.min()} rows; this study needs at least 4 of each")
    task = Task(
        "own",
        partial(load, rows=partial(_own, path=path), key=_name(X, y), told=True, encoder="mlp"),
        score,
        f"{path.name}: {len(X)} rows of {len(counts)} classes; {len(counts) // 2} known, half of their rows labelled",
    )
    keep = ("cure", "simgcd", "simgcd-no-uniformity", "kmeans", "seeded-kmeans", "cure-no-see")
    others = {
        "simgcd": "cure beats SimGCD on your data",
        "seeded-kmeans": "cure beats k-means with labels on your data",
        "simgcd-no-uniformity": "cure beats SimGCD without uniformity on your data",
    }
    return Study(
        name="cure",
        tasks=(task,),
        arms=tuple(replace(a, budgets=tuple(Budget)) for a in _arms(None, None, None) if a.name in keep),
        claims=tuple(higher("all", "cure", than=other, says=says) for other, says in others.items()),
        primary="all",
        better="higher",
        metrics=METRICS,
        seeds=SEEDS,
        base_seed=100,
        contract=CONTRACT,
    )


def _own(seed: int, budget: Budget, path: Path) -> Rows:
    return own_rows(path)


def _name(X: NDArray[np.float32], y: NDArray[np.int64]) -> str:
    return hashlib.sha256(X.tobytes() + y.tobytes()).hexdigest()


METRICS = {
    "all": "rows without a label in the right class, %, by one matching of classes over all of them",
    "known": "the same for rows of known classes",
    "novel": "the same for rows of new classes",
    "gap": "known less novel, points",
    "k_error": "how far the number of classes that rows are put into is from the true one",
    "rows": "rows without a label",
}

CONTRACT = """f(given, seed) -> classes

given.X           (n, …) float32 rows: images (n, h, w) or features (n, d)
given.y           (n,) classes 0 to C - 1 of the rows with a label, -1 elsewhere; there are more classes than C
given.n_classes   how many in all, or None where that is to be found out
given.views       "image" or "tabular": how this study makes views
given.start()     the encoder that every arm starts from, rows -> (n, dim)
returns           (n,) whole numbers, a class for each row; new classes may have any number
"""


def _tasks() -> tuple[Task, ...]:
    return (
        Task(
            "digits",
            partial(load, rows=digit_rows, key="digits", told=True, encoder="mlp"),
            score,
            "1 797 small images of digits, 5 of 10 known; an encoder pre-trained on them",
        ),
        Task(
            "news",
            partial(load, rows=news_rows, key="news", told=True, encoder="residual"),
            score,
            f"MiniLM embeddings of {20 * NEWS_EACH:,} posts to 20 newsgroups, 10 of 20 known; related classes".replace(
                ",", " "
            ),
            budgets=QUICK,
        ),
        Task(
            "mnist5k",
            partial(load, rows=mnist_rows, key="mnist5k", told=True, encoder="mlp"),
            score,
            f"{10 * MNIST_EACH:,} images of MNIST, 5 of 10 digits known".replace(",", " "),
            budgets=FULL,
        ),
        Task(
            "digits-autoK",
            partial(load, rows=digit_rows, key="digits", told=False, encoder="mlp"),
            score,
            "digits, the number of classes is estimated",
            budgets=FULL,
        ),
    )


CLAIMS: tuple[Claim, ...] = (
    higher("all", "cure", than="simgcd", tasks="digits", says="beats SimGCD on all unlabelled rows of digits"),
    higher("all", "cure", than="simgcd", tasks="news", says="beats SimGCD on all unlabelled rows of news"),
    higher("all", "cure", than="simgcd", tasks="mnist5k", says="beats SimGCD on all unlabelled rows of MNIST"),
    lower("gap", "cure", than="simgcd", tasks="digits", says="a smaller gap between known and new classes on digits"),
    lower("gap", "cure", than="simgcd", tasks="news", says="a smaller gap between known and new classes on news"),
    higher("novel", "simgcd-no-uniformity", than="simgcd", tasks="digits",
           says="uniformity is what hurts SimGCD on new classes"),
    higher("novel", "cure", than="cure+infonce", tasks="digits", says="uniformity hurts CURE on new classes"),
    higher("all", "cure", than="simgcd-no-uniformity", tasks="digits",
           says="more than SimGCD without its contrastive terms"),
    higher("all", "cure", than="simgcd-nu-clusters", tasks="digits",
           says="more than SimGCD without its contrastive terms, from the same clusters"),
    higher("all", "cure", than="cure-random-start", tasks="digits", says="starting new prototypes at clusters helps"),
    higher("all", "cure", than="cure-no-see", tasks="digits", says="SEE helps on digits"),
    higher("all", "cure", than="cure-no-see", tasks="news", says="SEE helps where classes are related"),
    not_lower("all", "cure", than="cure-no-see", by=1, says="SEE does no harm"),
    higher("all", "cure", than=["kmeans", "seeded-kmeans"], tasks=("digits", "mnist5k"),
           says="training beats clustering on images"),
    higher("all", "cure", than=["kmeans", "seeded-kmeans"], tasks="news", says="training beats clustering on news"),
    higher("all", "cure", than="simgcd", tasks="digits-autoK", says="beats SimGCD with an estimated number of classes"),
    at_most("k_error", "cure", 2, tasks="digits-autoK", says="the number of classes is found within 2"),
)  # fmt: skip

STUDY = Study(
    name="cure",
    tasks=_tasks(),
    arms=_arms(None, ("digits", "news", "mnist5k"), ("digits",)),
    claims=CLAIMS,
    primary="all",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=100,
    contract=CONTRACT,
    accepts={
        "data": "rows with their class (.npz with X and y; CSV or Parquet with a column y, all others numbers), at "
        f"least {LEAST_ROWS} of {LEAST_CLASSES} classes; the study hides half of the classes, and half of the labels "
        "of the others"
    },
    own=own,
)
