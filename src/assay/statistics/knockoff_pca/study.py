"""The study of knockoff PCA: does it see the covariance behind a hidden mean shift, and when does it matter?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.evidence.claim import at_least, higher, rate, spread, within
from assay.evidence.study import Arm, Budget, Proportion, Study, Task

from . import baselines
from .estimator import KnockoffPCA
from .samples import inject, one_digit, spiked_mixture, two_digits
from .table import read_table

FloatArray = NDArray[np.float64]

SIZES = {Budget.SMOKE: (300, 270), Budget.QUICK: (500, 450), Budget.FULL: (1000, 900), Budget.PAPER: (1000, 900)}
"""Rows and columns of the simulated tables: the source's aspect ratio 0.9."""

FLAG_SIZES = {Budget.SMOKE: (100, 90), Budget.QUICK: (200, 180), Budget.FULL: (200, 180), Budget.PAPER: (200, 180)}
FLAG_FITS = 40
ALPHA = 0.01

INJECTED_SHARE = 0.12
"""Share of the rows of a real table that a known shift is put into."""

STRENGTHS = (0.5, 1.0, 1.5)
"""A user's table: variance π(1 − π)c² of the shift c, as multiples of the table's own first eigenvalue."""

LEAST_ROWS, LEAST_COLUMNS = 38, 3
"""Of a user's table: with fewer rows 12 % of them are less than 5, the smallest group that can be found."""


@dataclass(frozen=True)
class Given:
    """What an arm sees: ``X`` (n, d), or on the flags tasks a stack (fits, n, d), and ``n_components``."""

    X: FloatArray
    n_components: int


@dataclass(frozen=True)
class Hidden:
    """What only the score sees.

    Attributes
    ----------
    reference
        (r, d) the true components.
    X
        (n, d) the arm's table.
    shifted
        (n,) which of its rows are shifted.
    """

    reference: FloatArray
    X: FloatArray
    shifted: NDArray[np.bool_]


class TrueLabels:
    """The ceiling's output: the score, which knows the labels, fits PCA within the true groups for it."""


def load_mixture(
    seed: int, budget: Budget, share: float, strength: float = 25.0, degrees: float | None = None
) -> tuple[Given, Hidden]:
    """T1 to T4: two covariance spikes and a shift; the reference is the first spike's direction."""
    rng = np.random.default_rng(seed)
    X, shifted, directions = spiked_mixture(rng, *SIZES[budget], share, strength, degrees)
    return Given(X, 1), Hidden(directions[:1], X, shifted)


def load_injected(
    seed: int,
    budget: Budget,
    table: Callable[[np.random.Generator], FloatArray],
    length: float | None = None,
    strength: float | None = None,
) -> tuple[Given, Hidden]:
    """T5 and a user's table: a shift put into 12 % of the rows; the reference is PCA before that.

    The shift has that ``length``, or its variance is ``strength`` times the table's own first eigenvalue.
    """
    rng = np.random.default_rng(seed)
    clean = table(rng)
    r = 2
    if length is None:
        singular = np.linalg.norm(clean - clean.mean(axis=0), ord=2) / np.sqrt(len(clean))
        length = float(singular * np.sqrt(strength / (INJECTED_SHARE * (1 - INJECTED_SHARE))))
    X, shifted = inject(rng, clean, INJECTED_SHARE, length)
    return Given(X, r), Hidden(baselines.pca(clean, r, 0), X, shifted)


def load_two_digits(seed: int, budget: Budget) -> tuple[Given, Hidden]:
    """T6: images of one digit, and a tenth of another; the reference is PCA of the first."""
    X, shifted = two_digits(np.random.default_rng(seed))
    return Given(X, 2), Hidden(baselines.pca(X[~shifted], 2, 0), X, shifted)


def load_clean_stack(seed: int, budget: Budget, degrees: float | None) -> tuple[Given, None]:
    """Many small tables without a shift."""
    rng = np.random.default_rng(seed)
    stack = [spiked_mixture(rng, *FLAG_SIZES[budget], 0.0, degrees=degrees)[0] for _ in range(FLAG_FITS)]
    return Given(np.stack(stack), 1), None


def score_alignment(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """100·|ûᵀu| for one component, 100·‖U_refᵀÛ‖_F²/r for several; scale and order of the rows do not count."""
    r = len(hidden.reference)
    if isinstance(output, TrueLabels):
        output = baselines.within_groups(hidden.X, hidden.shifted.astype(np.int64), r)
    rows = orthonormal_rows(output, hidden.reference.shape)
    overlap = float(np.linalg.norm(hidden.reference @ rows.T))
    return {"alignment": 100 * overlap if r == 1 else 100 * overlap**2 / r}


def score_flags(output: Any, hidden: None) -> Mapping[str, Proportion]:
    """In how many of the tables without a shift one was found."""
    flags = np.asarray(output)
    if flags.shape != (FLAG_FITS,) or flags.dtype != np.bool_:
        raise ValueError(
            f"on a flags task the output must be {FLAG_FITS} truth values, one a table; got shape {flags.shape} "
            f"of dtype {flags.dtype}"
        )
    return {"false_flag": Proportion(int(flags.sum()), FLAG_FITS)}


def orthonormal_rows(output: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return an orthonormal basis of the rows of an arm's output, or say what is wrong with it."""
    try:
        rows = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the output must be an array of numbers of shape {shape}: {error}") from None
    if rows.shape != shape:
        raise ValueError(f"the output must have shape {shape} (components, columns), got {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError("the output must be finite, and has NaN or infinity in it")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (lengths > 0).all():
        raise ValueError("a row of the output is zero; each must be a direction")
    q, upper = np.linalg.qr((rows / lengths).T)
    if np.abs(np.diag(upper)).min() < 1e-8:
        raise ValueError("the rows of the output are linearly dependent; each must be a direction of its own")
    return q.T


def run_knockoff(given: Given, seed: int, budget: Budget, removal: str = "recentre") -> Any:
    """Components of a table; on a flags task, which of the tables were said to be shifted."""
    if given.X.ndim == 3:
        return np.array([len(_knockoff(X, 1, seed, removal).shifts_) > 0 for X in given.X])
    return _knockoff(given.X, given.n_components, seed, removal).components_


def _knockoff(X: FloatArray, r: int, seed: int, removal: str) -> KnockoffPCA:
    return KnockoffPCA(r, alpha=ALPHA, removal=removal, random_state=seed).fit(X)


def run_baseline(
    given: Given, seed: int, budget: Budget, components: Callable[[FloatArray, int, int], FloatArray]
) -> FloatArray:
    """A contender of ``baselines.py``."""
    return components(given.X, given.n_components, seed)


def run_oracle(given: Given, seed: int, budget: Budget) -> TrueLabels:
    """Nothing: the score does the work, because no arm may see the labels."""
    return TrueLabels()


def _tasks() -> tuple[Task, ...]:
    smoke = tuple(Budget)
    quick = (Budget.QUICK, Budget.FULL, Budget.PAPER)
    full = (Budget.FULL, Budget.PAPER)
    tasks = []
    for family, degrees, noise in (("T1", None, "Gaussian"), ("T2", 6.0, "Student's t with 6 degrees of freedom")):
        for percent in (0, 5, 10, 15, 20):
            budgets = full
            if family == "T1" and percent in (0, 20):
                budgets = smoke
            elif family == "T1" and percent == 10:
                budgets = quick
            tasks.append(
                Task(
                    f"{family}-{percent:02}",
                    partial(load_mixture, share=percent / 100, degrees=degrees),
                    score_alignment,
                    f"{noise}; {percent} % of the rows shifted" if percent else f"{noise}; no shift",
                    control=percent == 0,
                    budgets=budgets,
                )
            )
    for percent, budgets in ((35, full), (50, quick)):
        what = f"Gaussian; {percent} % of the rows shifted"
        load = partial(load_mixture, share=percent / 100)
        tasks.append(Task(f"T3-{percent}", load, score_alignment, what, budgets=budgets))
    return (
        *tasks,
        Task(
            "T4",
            partial(load_mixture, share=0.1, strength=14.0),
            score_alignment,
            "Gaussian; 10 % shifted, the shift as strong as the first spike, so that the two mix",
            budgets=quick,
        ),
        Task(
            "T5",
            partial(load_injected, table=one_digit, length=40.0),
            score_alignment,
            "images of one digit; a shift of 40 grey levels injected into 12 % of the rows",
        ),
        Task("T6", load_two_digits, score_alignment, "images of one digit, 10 % of another", budgets=full),
        Task(
            "T0-flags",
            partial(load_clean_stack, degrees=None),
            score_flags,
            f"{FLAG_FITS} small Gaussian tables without a shift: how often is one found?",
            control=True,
        ),
        Task(
            "T0-flags-t6",
            partial(load_clean_stack, degrees=6.0),
            score_flags,
            f"{FLAG_FITS} small tables of Student's t without a shift: how often is one found?",
            control=True,
            budgets=quick,
        ),
    )


def _arms(tasks: tuple[str, ...], pursuit: tuple[str, ...]) -> tuple[Arm, ...]:
    """The contenders on ``tasks``; the slow principal component pursuit only on ``pursuit``."""
    quick = (Budget.QUICK, Budget.FULL, Budget.PAPER)
    full = (Budget.FULL, Budget.PAPER)

    def baseline(components: Callable[[FloatArray, int, int], FloatArray]) -> Any:
        return partial(run_baseline, components=components)

    return (
        Arm("knockoff", run_knockoff, "method", "shifts found and taken out, rows centred again"),
        Arm(
            "knockoff-drop",
            partial(run_knockoff, removal="drop"),
            "ablation",
            "components that moved are deleted, rows stay as they are: the source's second stage",
            tasks,
            quick,
        ),
        Arm("pca", baseline(baselines.pca), "baseline", "plain PCA", tasks),
        Arm("pca-drop-first", baseline(baselines.pca_drop_first), "trivial", "PCA less its first", tasks),
        Arm("spherical", baseline(baselines.spherical), "baseline", "rows put on a sphere, then PCA", tasks),
        Arm("trimmed", baseline(baselines.trimmed), "baseline", "PCA of the central 75 %", tasks, quick),
        Arm("gmm", baseline(baselines.gmm), "baseline", "two Gaussians on 10 scores", tasks, quick),
        Arm("robpca", baseline(baselines.robpca), "baseline", "ROBPCA with 10 components", tasks, quick),
        Arm("pcp", baseline(baselines.pcp), "baseline", "low rank + sparse, then PCA", pursuit, full),
        Arm("oracle", run_oracle, "ceiling", "PCA within the true groups", tasks),
    )


TASKS = _tasks()
WITH_COMPONENTS = tuple(t.name for t in TASKS if t.score is score_alignment)
FLAGS = tuple(t.name for t in TASKS if t.score is score_flags)
FROM_10 = ("T1-10", "T1-15", "T1-20", "T3-35", "T3-50")
FROM_20 = ("T1-20", "T3-35", "T3-50")

CONTRACT = """f(given, seed) -> components

given.X            (n, d) float64: the rows; a share of them may have another mean
given.n_components r: how many components are asked for (1 or 2)
returns            (r, d): directions as rows, most variance first; length and sign do not matter

On the tasks "T0-flags…" given.X is a stack (40, n, d) of tables without a shift, and the answer is 40 truth
values: in which of them a shift is found.
"""

METRICS = {
    "alignment": "100·|cos| with the true first component, or 100·mean squared cosine with the true plane (T5, T6)",
    "false_flag": "share of tables without a shift in which one is found",
}


OWN_CONTRACT = """f(given, seed) -> components

given.X            (n, d) float64: the table's rows; 12 % of them have another mean, unknown which. The variance
                   of that shift is 0.5, 1 or 1.5 times the table's first eigenvalue, by task
given.n_components r: how many components are asked for (2)
returns            (r, d): directions as rows, most variance first; length and sign do not matter
"""

OWN_METRICS = {
    "alignment": "100·mean squared cosine with the plane of the table's first two components before the shift"
}


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's table: a known shift, of three strengths, injected into 12 % of its rows."""
    if set(paths) != {"data"}:
        raise InputError(f"knockoff-pca takes a table as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    n, d = read_table(path).numbers.shape
    if n < LEAST_ROWS or d < LEAST_COLUMNS:
        raise InputError(
            f"{path.name} has {n} rows and {d} columns; this study needs at least {LEAST_ROWS} and {LEAST_COLUMNS}: "
            f"it shifts 12 % of the rows, and fewer than 5 shifted rows can't be found as a group"
        )
    tasks = tuple(
        Task(
            f"injected-{strength:g}",
            partial(load_injected, table=partial(_own_rows, path), strength=strength),
            score_alignment,
            f"{path.name} ({n} × {d}); a shift with {strength:g} times the variance of its first component injected "
            "into 12 % of its rows; the reference is PCA before that",
        )
        for strength in STRENGTHS
    )
    names = tuple(task.name for task in tasks)
    return Study(
        name="knockoff-pca",
        tasks=tasks,
        arms=_arms(names, names),
        claims=(
            higher("alignment", "knockoff", than="pca", says="knockoff beats plain PCA on your table"),
            higher("alignment", "knockoff", than="pca-drop-first", says="knockoff beats dropping the first component"),
            higher("alignment", "knockoff", than="trimmed", says="knockoff beats trimming on your table"),
            higher("alignment", "knockoff", than="gmm", says="knockoff beats a Gaussian mixture on your table"),
            within("alignment", "knockoff", of="oracle", by=5, says="knockoff does nearly as well as with the labels"),
        ),
        primary="alignment",
        better="higher",
        metrics=OWN_METRICS,
        contract=OWN_CONTRACT,
    )


def _own_rows(path: Path, rng: np.random.Generator) -> FloatArray:
    return read_table(path).numbers.to_numpy()


STUDY = Study(
    name="knockoff-pca",
    tasks=TASKS,
    arms=_arms(WITH_COMPONENTS, ("T1-20", "T3-35", "T3-50", "T5", "T6")),
    claims=(
        at_least("alignment", "knockoff", 94, tasks=FROM_10, says="a shift does not hide the covariance from knockoff"),
        higher("alignment", "knockoff", than="pca", by=50, tasks=FROM_10, says="the same shift ruins plain PCA"),
        spread(
            "alignment",
            "knockoff",
            over=("T1-10", "T1-20", "T3-35", "T3-50"),
            at_most=3,
            says="how many rows are shifted does not matter",
        ),
        higher("alignment", "knockoff", than="spherical", by=10, tasks=FROM_20, says="beats spherical PCA"),
        higher("alignment", "knockoff", than="robpca", by=10, tasks=FROM_20, says="beats ROBPCA"),
        higher("alignment", "knockoff", than="pcp", by=10, tasks=FROM_20, says="beats principal component pursuit"),
        within("alignment", "knockoff", of="pca", by=0.5, tasks=("T1-00", "T2-00"), says="harmless without a shift"),
        rate("false_flag", "knockoff", at_most=2 * ALPHA, tasks=FLAGS, says="finds no shift where there is none"),
    ),
    primary="alignment",
    better="higher",
    metrics=METRICS,
    contract=CONTRACT,
    accepts={
        "data": "a table of numbers (CSV, Parquet or .npy), rows are samples, at least 38 × 3 (12 % of the rows get "
        "a shift, of 0.5, 1 and 1.5 times the variance of the first component)"
    },
    own=own,
)
