"""The study of cprd: what a Bradley–Terry reward recovers from comparisons, at what rate, and what decides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit
from scipy.stats import spearmanr

from assay.errors import InputError
from assay.evidence.claim import at_least, at_most, higher, holds, lower, rate, slope, within
from assay.evidence.study import Arm, Budget, Proportion, Study, Task
from assay.numerics.laplacian import Graph

from . import contenders, samples
from .comparisons import BEST_OF_K, Comparisons
from .contenders import Campaign
from .fit import project
from .representation import quiet_fit
from .table import read_triplets

FloatArray = npt.NDArray[np.float64]

ITEMS = 12
SIZES = (500, 2000, 8000, 32_000, 128_000)
SPREADS = (0.2, 0.4, 0.8, 1.6, 3.2)
TESTS = 25  # tables in a cell of a test task
DRAWS = 100  # of the test, in the study
LEVEL = 0.05

QUICK = (Budget.QUICK, Budget.FULL, Budget.PAPER)
BT_TASKS = tuple(f"bt-{rows}" for rows in SIZES)
CYCLE_TASKS = tuple(f"cycles-{rows}" for rows in SIZES)
TEST_TASKS = ("test-bt", "test-cycles", "test-few-rows", "test-people")
TRAIN_TASKS = tuple(f"train-{what}" for what in samples.TRAIN)


@dataclass(frozen=True)
class Truth:
    """What only the score sees.

    Attributes
    ----------
    r
        (n, n) true probabilities.
    projection
        (n, n) those of the nearest Bradley–Terry model.
    rows
        How many rows the arm saw.
    """

    r: FloatArray
    projection: FloatArray
    rows: int


def load_pairs(seed: int, budget: Budget, rows: int, cycles: bool) -> tuple[Comparisons, Truth]:
    """Rows over all pairs of 12 items, answered by a truth that scores represent, or not."""
    rng = np.random.default_rng([seed, rows, cycles])
    truth = np.random.default_rng([seed, cycles])  # the same at every size
    r = samples.cyclic(truth, ITEMS) if cycles else samples.represented(truth, ITEMS)
    c = samples.drawn(rng, r, rows, samples.edges_of("complete", ITEMS))
    return c, Truth(r, contenders.matrix(project(r)), rows)


def load_densities(seed: int, budget: Budget, independent: bool) -> tuple[Comparisons, Truth]:
    """100 000 rows drawn from a table of chosen × rejected."""
    rng = np.random.default_rng([seed, 7, independent])
    n, rows = 10, 100_000
    table = samples.densities(rng, n, independent)
    counts = rng.multinomial(rows, table.ravel()).reshape(n, n)
    i, j = samples.edges_of("complete", n)
    c = samples.counted(n, i, j, counts[i, j], counts[i, j] + counts[j, i])
    with np.errstate(invalid="ignore"):
        r = table / (table + table.T)
    np.fill_diagonal(r, 0.5)
    return c, Truth(r, r, rows)


def score_pairs(output: Any, truth: Truth) -> dict[str, float]:
    """Errors of the probabilities over all pairs, and whether pairs are ordered as in truth."""
    p = checked(output, len(truth.r))
    a, b = np.triu_indices(len(truth.r), 1)
    mine, r = p[a, b], truth.r[a, b]
    right = np.where(mine == 0.5, 0.5, (mine > 0.5) == (r > 0.5))
    return {
        "error": float(np.abs(mine - r).mean()),
        "projection_error": float(np.abs(mine - truth.projection[a, b]).mean()),
        "ordering": float(right.mean()),
        "rows": truth.rows,
    }


def checked(output: Any, n: int) -> FloatArray:
    """The output as (n, n) probabilities."""
    p = np.asarray(output, dtype=np.float64)
    if p.shape != (n, n):
        raise ValueError(f"the output must be probabilities of shape ({n}, {n}), not {p.shape}")
    off = ~np.eye(n, dtype=bool)
    if not ((p[off] >= 0) & (p[off] <= 1)).all() or not np.allclose((p + p.T)[off], 1, atol=1e-6):
        raise ValueError("the output must hold probabilities with p[i, j] + p[j, i] = 1")
    return p


def load_graphs(seed: int, budget: Budget) -> tuple[list[Comparisons], tuple[FloatArray, list[FloatArray]]]:
    """Six graphs on 16 items with 1600 rows each, and in each the same scores; five draws of each."""
    rng = np.random.default_rng([seed, 3])
    s = 0.7 * rng.standard_normal(16)
    s -= s.mean()
    r = expit(s[:, None] - s)
    given = [
        samples.drawn_evenly(rng, r, 1600, samples.edges_of(graph, 16)) for graph in samples.GRAPHS for _ in range(5)
    ]
    spectra = []
    for graph in samples.GRAPHS:
        i, j = samples.edges_of(graph, 16)
        shape, weights = Graph(16, i, j), np.full(len(i), 1600 / len(i))
        spectra.append(np.array([shape.inverse(weights).trace[0], shape.second(weights).values[0]]))
    return given, (s, spectra)


def score_graphs(output: Any, hidden: tuple[FloatArray, list[FloatArray]]) -> dict[str, float]:
    """How the squared error of the scores goes with the connectivity of the six graphs."""
    s, spectra = hidden
    per = len(output) // len(spectra)
    errors = []
    for p in output:
        p = np.clip(checked(p, len(s)), 1e-9, 1 - 1e-9)
        found = np.log(p / (1 - p), where=~np.eye(len(s), dtype=bool), out=np.zeros_like(p)).mean(axis=1)
        errors.append(float(((found - s) ** 2).mean()))
    mse = np.array(errors).reshape(len(spectra), per).mean(axis=1)
    trace, second = np.array(spectra).T
    return {
        "graph_slope": float(np.polyfit(np.log(trace), np.log(mse), 1)[0]),
        "graph_rank": float(spearmanr(second, mse)[0]),
    }


def load_margins(seed: int, budget: Budget) -> tuple[list[Comparisons], list[FloatArray]]:
    """16 items at equal distances, 1600 rows over all pairs, at five spreads; twenty draws of each."""
    rng = np.random.default_rng([seed, 4])
    given, hidden = [], []
    for spread in SPREADS:
        s = np.linspace(-spread / 2, spread / 2, 16)
        r = expit(s[:, None] - s)
        for _ in range(20):
            given.append(samples.drawn(rng, r, 1600, samples.edges_of("complete", 16)))
            hidden.append(r)
    return given, hidden


def score_margins(output: Any, hidden: list[FloatArray]) -> dict[str, float]:
    """Pairs ordered rightly at each spread, and the least rise from one spread to the next."""
    ordering = []
    for p, r in zip(output, hidden, strict=True):
        a, b = np.triu_indices(len(r), 1)
        mine = checked(p, len(r))[a, b]
        ordering.append(float(np.where(mine == 0.5, 0.5, (mine > 0.5) == (r[a, b] > 0.5)).mean()))
    means = np.array(ordering).reshape(len(SPREADS), -1).mean(axis=1)
    named = {f"ordering_{spread:g}": float(mean) for spread, mean in zip(SPREADS, means, strict=True)}
    return named | {"least_rise": float(np.diff(means).min())}


def load_design(seed: int, budget: Budget) -> tuple[Campaign, FloatArray]:
    """300 pilot rows on a barbell of 16 items, and ten batches of 30 labels to buy."""
    rng = np.random.default_rng([seed, 5])
    r = samples.represented(rng, 16)
    i, j = samples.edges_of("barbell", 16)
    pilot = samples.drawn(rng, r, 300, (i, j))
    oracle = np.random.default_rng([seed, 6])

    def ask(a: npt.ArrayLike, b: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        return oracle.random(len(np.asarray(a))) < r[np.asarray(a), np.asarray(b)]

    pool = np.stack(samples.edges_of("complete", 16))
    return Campaign(pilot, ask, 10, 30, pool, np.stack([i, j])), r


def score_design(output: Any, r: FloatArray) -> dict[str, float]:
    """Mean error of the probabilities after the first batch, the second and the last."""
    a, b = np.triu_indices(len(r), 1)
    errors = [float(np.abs(checked(p, len(r))[a, b] - r[a, b]).mean()) for p in output]
    return {"error_1": errors[0], "error_2": errors[1], "error_10": errors[-1]}


def load_tests(seed: int, budget: Budget, kind: str) -> tuple[list[Comparisons], int]:
    """Tables to be tested."""
    given = []
    for table in range(TESTS):
        rng = np.random.default_rng([seed, 8, table, TEST_TASKS.index(kind)])
        if kind == "test-few-rows":
            c = samples.drawn(rng, samples.represented(rng, 30), 900, samples.edges_of("complete", 30))
        elif kind == "test-people":
            frame = samples.repeated(rng, samples.represented(rng, ITEMS), 1500)
            c = Comparisons.from_triplets(frame, cluster="person")
        else:
            r = samples.cyclic(rng, ITEMS) if kind == "test-cycles" else samples.represented(rng, ITEMS)
            c = samples.drawn(rng, r, 2000, samples.edges_of("complete", ITEMS))
        given.append(c)
    return given, TESTS


def score_tests(output: Any, count: int) -> dict[str, Any]:
    """How many of the tables were said not to be representable."""
    p = np.asarray(output, dtype=np.float64)
    if p.shape != (count,) or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"the output must be {count} p-values, one for each table")
    return {"rejected": Proportion(int((p < LEVEL).sum()), count)}


@dataclass(frozen=True)
class HeldOut:
    """Rows that no arm saw: (rows,) items, numbered as in the comparisons, −1 where an item is new."""

    chosen: npt.NDArray[np.int64]
    rejected: npt.NDArray[np.int64]
    n: int


def load_rows(seed: int, budget: Budget, frame: Callable[[], pd.DataFrame]) -> tuple[Comparisons, HeldOut]:
    """Half of the clusters (or rows) to fit, the other half to predict."""
    rows = frame()
    rng = np.random.default_rng([seed, 9])
    if "person" in rows:
        people = rows["person"].unique()
        fitted = rows["person"].isin(rng.permutation(people)[: len(people) // 2]).to_numpy()
    else:
        fitted = rng.permutation(len(rows)) < len(rows) // 2
    c = Comparisons.from_triplets(
        rows[fitted],
        cluster="person" if "person" in rows else None,
        context="context" if "context" in rows else None,
        weight="weight" if "weight" in rows else None,
    )
    if c.has_contexts:  # an item in a context is an item of its own
        c = _flat(c)
    held = rows[~fitted]
    names = _flat_names(held, "chosen"), _flat_names(held, "rejected")
    codes = [c.items.get_indexer(pd.Index(side, dtype=object)) for side in names]
    return c, HeldOut(codes[0], codes[1], len(c.items))


def _flat_names(rows: pd.DataFrame, column: str) -> list[Any]:
    if "context" not in rows:
        return list(rows[column])
    return [f"{x}\0{y}" for x, y in zip(rows["context"], rows[column], strict=True)]


def _flat(c: Comparisons) -> Comparisons:
    """Items of contexts as items, named "context NUL item"."""
    names = [f"{x}\0{y}" for x, y in c.labels]
    i, j = c.ends
    return replace(
        c, items=pd.Index(names, dtype=object), contexts=pd.Index([""]), has_contexts=False,
        table=pd.DataFrame({"x": 0, "i": i, "j": j, "w_ij": c.wins[0], "w_ji": c.wins[1]}),
    )  # fmt: skip


def score_rows(output: Any, held: HeldOut) -> dict[str, float]:
    """Log loss and accuracy on the rows held out; 1/2 for a pair with a new item."""
    p = checked(output, held.n)
    known = (held.chosen >= 0) & (held.rejected >= 0)
    said = np.where(known, p[held.chosen, held.rejected], 0.5)
    right = np.where(said == 0.5, 0.5, said > 0.5)
    return {"log_loss": float(-np.log(np.clip(said, 1e-6, 1)).mean()), "accuracy": float(right.mean())}


def load_brands(seed: int, budget: Budget) -> tuple[list[pd.DataFrame], list[bool]]:
    """Purchases of brands as rows, and choices between two journeys: which are picks of one of all?"""
    frames = [samples.brands(name).rename(columns={"purchase": "person"}) for name in samples.BRANDS]
    frames += [samples.train(what) for what in samples.TRAIN]
    rng = np.random.default_rng([seed, 10])
    half = [frame[frame["person"].isin(_half(frame["person"].unique(), rng))] for frame in frames]
    return half, [True] * len(samples.BRANDS) + [False] * len(samples.TRAIN)


def _half(values: npt.NDArray[Any], rng: np.random.Generator) -> npt.NDArray[Any]:
    return rng.permutation(values)[: len(values) // 2]


def score_brands(output: Any, truth: list[bool]) -> dict[str, bool]:
    """Whether exactly the picks of one of all were flagged."""
    return {"flagged": list(output) == truth}


def run_cprd(given: Any, seed: int, budget: Budget) -> Any:
    """Maximum likelihood; the test with drawn counts; labels by criterion A; flags."""
    if isinstance(given, Comparisons):
        return contenders.bradley_terry(given)
    if isinstance(given, Campaign):
        return contenders.label(given, seed, partial(contenders.pick_suggested, criterion="A"))
    if isinstance(given[0], pd.DataFrame):
        return [Comparisons.from_triplets(frame, cluster="person").warning == BEST_OF_K for frame in given]
    if len(given) == TESTS:
        return [contenders.drawn_test(c, seed, DRAWS) for c in given]
    return [contenders.bradley_terry(c) for c in given]


def run_matrix(given: Any, seed: int, budget: Budget, method: Callable[[Comparisons], FloatArray]) -> Any:
    """Another way from counts to probabilities."""
    return method(given) if isinstance(given, Comparisons) else [method(c) for c in given]


def run_test(given: Sequence[Comparisons], seed: int, budget: Budget) -> list[float]:
    """The chi-square law."""
    return [contenders.chi_square_test(c, seed, 0) for c in given]


def run_design(given: Campaign, seed: int, budget: Budget, pick: contenders.Pick) -> list[FloatArray]:
    """Another way to pick labels."""
    return contenders.label(given, seed, pick)


def _matrix_arm(name: str, role: Any, method: Callable[[Comparisons], FloatArray], what: str, tasks: Any) -> Arm:
    return Arm(name, partial(run_matrix, method=method), role, what, tasks)


def _design_arm(name: str, role: Any, pick: contenders.Pick, what: str) -> Arm:
    return Arm(name, partial(run_design, pick=pick), role, what, ("design",))


PAIR_TASKS = (*BT_TASKS, *CYCLE_TASKS)
ONE_SIZE = ("bt-2000", "cycles-2000")
PEER_TASKS = ("bt-2000", "bt-8000")
GEN_TASKS = ("independent", "dependent")

ARMS = (
    Arm("cprd", run_cprd, "method", "Bradley–Terry by maximum likelihood; its test; labels by criterion A"),
    _matrix_arm("choix", "baseline", contenders.choix, "choix.ilsr_pairwise, alpha 0", PEER_TASKS),
    _matrix_arm(
        "free-shares", "baseline", contenders.free_shares, "each pair's own share, (w + ½)/(n + 1)",
        (*PAIR_TASKS, *TRAIN_TASKS),
    ),
    _matrix_arm(
        "generative", "baseline", contenders.generative, "log a − log b of rows a_i b_j, fitted off the diagonal",
        (*ONE_SIZE, *GEN_TASKS, *TRAIN_TASKS),
    ),
    _matrix_arm(
        "margins", "trivial", contenders.margins, "log(times chosen / times rejected): nothing is fitted",
        (*ONE_SIZE, *GEN_TASKS, *TRAIN_TASKS, "margins"),
    ),
    _matrix_arm("coin", "trivial", contenders.coin, "1/2 for every pair", TRAIN_TASKS),
    Arm("chi-square", run_test, "baseline", "the deviance by the chi-square law", TEST_TASKS),
    _design_arm("suggest-D", "ablation", partial(contenders.pick_suggested, criterion="D"), "labels by criterion D"),
    _design_arm("same-pairs", "baseline", contenders.pick_same, "more labels of the pilot's pairs"),
    _design_arm("uniform", "trivial", contenders.pick_uniform, "labels of any pair at random"),
    _design_arm("closest", "baseline", contenders.pick_closest, "labels where the answer is least certain"),
)  # fmt: skip


def _tasks() -> tuple[Task, ...]:
    tasks = []
    for cycles, names in ((False, BT_TASKS), (True, CYCLE_TASKS)):
        what = "scores with random cycles added" if cycles else "a truth that scores represent"
        for rows, name in zip(SIZES, names, strict=True):
            budgets = tuple(Budget) if rows in (500, 2000) else QUICK
            load = partial(load_pairs, rows=rows, cycles=cycles)
            tasks.append(Task(name, load, score_pairs, f"12 items, {rows} rows: {what}", budgets=budgets))
    tasks += [
        Task("test-bt", partial(load_tests, kind="test-bt"), score_tests, "is it representable? 2000 rows, yes",
             control=True),
        Task("test-cycles", partial(load_tests, kind="test-cycles"), score_tests, "2000 rows, with cycles: no"),
        Task("test-few-rows", partial(load_tests, kind="test-few-rows"), score_tests,
             "30 items, two rows a pair: yes", control=True, budgets=QUICK),
        Task("test-people", partial(load_tests, kind="test-people"), score_tests,
             "each person answers one question three times, alike: yes", control=True, budgets=QUICK),
        Task("graphs", load_graphs, score_graphs, "1600 rows on six graphs of 16 items", budgets=QUICK),
        Task("margins", load_margins, score_margins, "16 items at five spreads", budgets=QUICK),
        Task("design", load_design, score_design, "300 rows on a barbell, then ten batches of 30 labels",
             budgets=QUICK),
        Task("independent", partial(load_densities, independent=True), score_pairs,
             "chosen and rejected independent, 100 000 rows", budgets=QUICK),
        Task("dependent", partial(load_densities, independent=False), score_pairs,
             "the same with some pairs more common than others", budgets=QUICK),
    ]  # fmt: skip
    for what, columns in samples.TRAIN.items():
        frame = partial(samples.train, what)
        line = f"train journeys by {' and '.join(columns)}: fitted to half of the people, scored on the others"
        tasks.append(Task(f"train-{what}", partial(load_rows, frame=frame), score_rows, line, budgets=QUICK))
    tasks.append(
        Task("brands", load_brands, score_brands, "rows of three brand data sets and three of pairs", budgets=QUICK)
    )
    return tuple(tasks)


CLAIMS = (
    slope("error", "cprd", on="rows", between=(-0.6, -0.4), tasks=BT_TASKS,
          says="recovers representable preferences at the rate n^-1/2"),
    at_most("projection_error", "cprd", 0.006, tasks="cycles-128000",
            says="else it converges to the nearest Bradley–Terry model"),
    at_least("error", "cprd", 0.08, tasks="cycles-128000", says="and not to the preferences"),
    lower("error", "cprd", than="free-shares", ratio=0.6, tasks=BT_TASKS,
          says="where scores represent the preferences they beat free shares at every size"),
    lower("error", "free-shares", than="cprd", tasks=CYCLE_TASKS[1:],
          says="where they do not, free shares are better from 2000 rows on"),
    rate("rejected", "cprd", at_most=0.11, tasks=("test-bt", "test-few-rows", "test-people"),
         says="the test rarely rejects what scores represent"),
    rate("rejected", "cprd", at_least=0.01, tasks=("test-bt", "test-people"), says="and does so at about its level"),
    rate("rejected", "cprd", at_least=0.95, tasks="test-cycles", says="the test finds cycles at 2000 rows"),
    rate("rejected", "chi-square", at_least=0.15, tasks=("test-few-rows", "test-people"),
         says="the chi-square law would mislead with few rows a pair and with people who repeat themselves"),
    at_least("graph_slope", "cprd", 0.8, tasks="graphs", says="the error follows the trace of the inverse Laplacian"),
    at_most("graph_slope", "cprd", 1.1, tasks="graphs", says="with an exponent of at most 1.1"),
    at_most("graph_rank", "cprd", -0.7, tasks="graphs", says="and falls with the second eigenvalue"),
    at_least("least_rise", "cprd", 0.0, tasks="margins", says="ordering gets easier with the margin"),
    lower("error_1", "cprd", than="same-pairs", tasks="design", says="suggested labels beat more of the same at once"),
    lower("error_10", "cprd", than="same-pairs", tasks="design", says="and after ten batches"),
    lower("error_2", "cprd", than="uniform", tasks="design", says="and random pairs after two batches"),
    at_most("error", "generative", 1.2, of="cprd", tasks="independent",
            says="the generative fit is as good where chosen and rejected are independent"),
    higher("error", "generative", than="cprd", ratio=5, tasks="dependent", says="and wrong where they are not"),
    higher("error", "margins", than="generative", ratio=2, tasks="independent",
           says="plain ratios of margins are wrong even then"),
    within("error", "cprd", of="choix", by=1e-6, tasks=PEER_TASKS, says="finds the same optimum as choix"),
    lower("log_loss", "cprd", than="free-shares", tasks=TRAIN_TASKS,
          says="scores predict new travellers better than free shares"),
    lower("log_loss", "cprd", than="margins", tasks=TRAIN_TASKS,
          says="scores predict new travellers better than ratios of margins"),
    holds("flagged", "cprd", tasks="brands", says="flags rows that pick one of all, and no others"),
)  # fmt: skip

METRICS = {
    "error": "mean |p − r| over all pairs",
    "projection_error": "mean |p − that of the nearest Bradley–Terry model| over all pairs",
    "ordering": "share of pairs ordered as in truth",
    "rows": "rows seen",
    "rejected": "tables with p < 0.05",
    "graph_slope": "slope of log squared error of the scores on log trace(pinv L), over six graphs",
    "graph_rank": "rank correlation of that error with λ₂ of L",
    "least_rise": "least rise of the share of pairs ordered rightly, from one spread to the next",
    "error_1": "mean |p − r| after the first batch of labels",
    "error_2": "after the second",
    "error_10": "after the tenth",
    "log_loss": "mean −log of the probability given to the choice, on rows held out",
    "accuracy": "rows held out predicted rightly (½ counts half)",
    "flagged": "whether exactly the picks of one of all were flagged",
} | {f"ordering_{spread:g}": f"pairs ordered rightly where scores spread over {spread:g}" for spread in SPREADS}

CONTRACT = """f(given, seed) -> p

given        Comparisons: .items; .table with i < j (positions in .items), w_ij (rows in which i was chosen), w_ji
returns      (n, n) probabilities that the row's item is preferred to the column's, p + p.T = 1 off the diagonal

"graphs" and "margins" give a list of Comparisons and want a list of such arrays; "test-…" want a p-value for each;
"design" gives .pilot, .ask(i, j), .batches, .size, .pool and wants the array after each batch; "brands" gives frames
and wants truth values.
"""

SEEDS = {Budget.SMOKE: 4, Budget.QUICK: 20, Budget.FULL: 100, Budget.PAPER: 200}


def own(paths: Mapping[str, Path]) -> Study:
    """Return the study on a user's rows: half (of the people, where they are named) is predicted from the rest."""
    if set(paths) != {"data"}:
        raise InputError(f"cprd takes rows of comparisons as data, got {', '.join(sorted(paths)) or 'nothing'}")
    path = Path(paths["data"])
    frame = own_rows(path)
    _need_recoverable(frame, path)
    names = ("cprd", "free-shares", "generative", "margins", "coin")
    others = {
        "coin": "scores predict held-out rows of yours better than a coin",
        "margins": "scores predict them better than ratios of margins",
        "free-shares": "scores predict them better than free shares",
    }
    return Study(
        name="cprd",
        tasks=(
            Task(
                "own",
                partial(load_rows, frame=partial(own_rows, path)),
                score_rows,
                f"{path.name}: {len(frame)} rows, half of the {'people' if 'person' in frame else 'rows'} held out",
            ),
        ),
        arms=tuple(replace(arm, tasks=None) for arm in ARMS if arm.name in names),
        claims=tuple(lower("log_loss", "cprd", than=other, says=says) for other, says in others.items()),
        primary="log_loss",
        better="lower",
        metrics=METRICS,
        seeds={Budget.SMOKE: 3, Budget.QUICK: 10, Budget.FULL: 40, Budget.PAPER: 40},
        contract=CONTRACT,
    )


def own_rows(path: Path) -> pd.DataFrame:
    """The user's rows: chosen, rejected, and if there are such context, weight and person."""
    return read_triplets(
        path, optional={"context": ("context", "prompt"), "weight": ("weight",), "person": ("person", "cluster")}
    )


MOST_ITEMS = 3000
LEAST_ROWS = 20


def _need_recoverable(frame: pd.DataFrame, path: Path) -> None:
    """Refuse rows of which nothing could be predicted."""
    c = Comparisons.from_triplets(
        frame, context="context" if "context" in frame else None, weight="weight" if "weight" in frame else None
    )
    if len(c.nodes) > MOST_ITEMS:
        raise InputError(
            f"{path.name} has {len(c.nodes)} items; this study takes at most {MOST_ITEMS}: give a part of it"
        )
    inside = float(c.n[quiet_fit(c).inside].sum())
    if inside < LEAST_ROWS:
        raise InputError(
            f"{path.name}: only {inside:g} of {c.n.sum():g} rows lie within components that have finite scores, "
            "and nothing "
            f"can be predicted from fewer than {LEAST_ROWS}; `assay use cprd {path.name}` says what can be "
            "learned instead"
        )


STUDY = Study(
    name="cprd",
    tasks=_tasks(),
    arms=ARMS,
    claims=CLAIMS,
    primary="error",
    better="lower",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={
        "data": "rows of comparisons (.csv, .tsv, .parquet or .jsonl) with the columns chosen and rejected, and if "
        "there are such context (or prompt), weight and person (or cluster); at least 20 rows within a component"
    },
    own=own,
)
