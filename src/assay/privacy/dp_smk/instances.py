"""Problems to choose on: sites for people, a trap for greedy, questions of a questionnaire, contacts between places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from assay.errors import InputError
from assay.parts import cities, statsmodels_data
from assay.parts.frames import read_arrays, read_frame, suffix

from .feature_information import FeatureInformation
from .objectives import Coverage, FacilityLocation, GraphCut

FloatArray = npt.NDArray[np.float64]

EARTH_KM = 6371.0
REACH_KM = 400.0

QUESTIONS = {
    "lncoins": ((0.0, 4.7), 1.0),
    "idp": ((0.0, 1.0), 1.0),
    "lpi": ((0.0, 7.2), 2.0),
    "fmde": ((0.0, 8.3), 2.0),
    "physlm": ((0.0, 1.0), 2.0),
    "disea": ((0.0, 60.0), 4.0),
    "hlthg": ((0.0, 1.0), 1.0),
    "hlthf": ((0.0, 1.0), 1.0),
    "hlthp": ((0.0, 1.0), 1.0),
}
"""Of randhie: each column's public range, and its cost: 1 for a box to tick, 2 for a look at the plan's papers or an
answer to explain, 4 for a list of diseases."""


@dataclass(frozen=True)
class Instance:
    """A problem: an objective, costs (n,), a budget."""

    objective: Any
    costs: FloatArray
    budget: float


def kilometres(points: FloatArray, sites: FloatArray) -> FloatArray:
    """(points, sites) great-circle distances between (latitude, longitude) in degrees."""
    a, b = np.radians(points)[:, None, :], np.radians(sites)[None, :, :]
    half = np.sin((a - b) / 2) ** 2
    chord = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    return 2 * EARTH_KM * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0)))


def nearness(points: FloatArray, sites: FloatArray, reach_km: float) -> FloatArray:
    """(points, sites) 1 at a site, 0 from ``reach_km`` on, linear between; each row hangs on that point alone."""
    return np.maximum(0.0, 1.0 - kilometres(points, sites) / reach_km)


def contiguous_us() -> pd.DataFrame:
    """The cities of the US without Alaska and Hawaii."""
    us = cities.load("US")
    return us[~us["region"].isin(["AK", "HI"])].reset_index(drop=True)


def sites(rng: np.random.Generator, us: pd.DataFrame, people: int = 3000, n: int = 60) -> Instance:
    """Where to put sites for people who are drawn by the cities' populations, a budget of 5."""
    weight = us["population"].to_numpy() / us["population"].sum()
    where = us[["latitude", "longitude"]].to_numpy()
    home = where[rng.choice(len(us), people, p=weight)] + 0.1 * rng.standard_normal((people, 2))
    chosen = rng.choice(min(300, len(us)), n, replace=False)
    size = np.log(us["population"].to_numpy(dtype=float)[chosen])
    costs = 0.5 + 1.5 * (size - size.min()) / (size.max() - size.min())
    costs = costs * rng.choice([0.25, 1.0, 2.0], n)
    return Instance(FacilityLocation(nearness(home, where[chosen], REACH_KM)), costs, 5.0)


def trap(rng: np.random.Generator) -> Instance:
    """One item covers 2 000 people for the whole budget; 20 cheap ones, of 20 people each, have twice its density."""
    order = rng.permutation(21)
    reach = np.zeros((2400, 21))
    reach[:2000, order[0]] = 1
    for k, item in enumerate(order[1:]):
        reach[2000 + 20 * k : 2020 + 20 * k, item] = 1
    costs = np.full(21, 0.05)
    costs[order[0]] = 10.0
    return Instance(Coverage(reach), costs, 10.0)


def questions(rng: np.random.Generator, people: int | None = None) -> Instance:
    """Which questions tell who sees a physician more often than most; a random half of the people, a budget of 6."""
    table = statsmodels_data.load("randhie")
    rows = rng.choice(len(table), people or len(table) // 2, replace=False)
    table = table.iloc[np.sort(rows)]
    columns = []
    for name, ((low, high), _) in QUESTIONS.items():
        bins = 2 if high == 1.0 else 8
        columns.append(np.minimum((table[name].to_numpy() - low) / (high - low) * bins, bins - 1).astype(np.int64))
    n_values = [2 if high == 1.0 else 8 for (_, high), _ in QUESTIONS.values()]
    often = (table["mdvis"].to_numpy() > 1).astype(np.int64)  # 1 is the median of all
    objective = FeatureInformation(np.column_stack(columns), often, n_values, 2, labels=list(QUESTIONS))
    return Instance(objective, np.array([cost for _, cost in QUESTIONS.values()]), 6.0)


def contacts(rng: np.random.Generator, n: int = 16, edges: int = 600) -> Instance:
    """Which places to choose so that most private contacts cross: a cut, which more places can lower."""
    busy = rng.dirichlet(np.ones(n))
    pairs = rng.choice(n, (4 * edges, 2), p=busy)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    while len(pairs) < edges:
        more = rng.choice(n, (4 * edges, 2), p=busy)
        pairs = np.concatenate([pairs, more[more[:, 0] != more[:, 1]]])
    costs = rng.uniform(0.3, 1.5, n)
    return Instance(GraphCut(pairs[:edges], n), costs, 0.45 * float(costs.sum()))


def best_value(instance: Instance) -> float:
    """The optimum, by trying all sets: for at most 20 items."""
    n = len(instance.costs)
    if n > 20:
        raise InputError(f"trying all sets is for at most 20 items, got {n}")
    sets = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(float)
    sets = sets[sets @ instance.costs <= instance.budget * (1 + 1e-12)]
    if isinstance(instance.objective, GraphCut):
        joined = instance.objective.edges.toarray()
        return float(np.einsum("si,ij,sj->s", sets, joined, 1 - sets, optimize=True).max())
    return max(value_of(instance.objective, np.flatnonzero(chosen)) for chosen in sets)


def value_of(objective: Any, items: Any) -> float:
    """f of a set of positions."""
    state = objective.empty()
    for item in items:
        state = objective.add(state, int(item))
    return float(objective.value(state))


def read_instance(path: Path) -> Instance:
    """A user's problem.

    Parameters
    ----------
    path
        An ``.npz`` with ``similarity`` (people, items) in [0, 1], ``costs`` (items,) and ``budget``; or a table (CSV,
        TSV, Parquet, JSON lines) of people × items in [0, 1], where each item costs 1 and a quarter of them can be
        paid.

    Raises
    ------
    InputError
        When it is neither, or holds numbers that are unusable.
    """
    path = Path(path)
    if suffix(path) == ".npz":
        arrays = read_arrays(path)
        missing = [name for name in ("similarity", "costs", "budget") if name not in arrays]
        if missing:
            raise InputError(f"{path.name} must hold similarity, costs and budget, and has no {missing[0]}")
        similarity, costs, budget = arrays["similarity"], arrays["costs"], arrays["budget"]
        if budget.size != 1:
            raise InputError(f"{path.name}: budget must be one number, got the shape {budget.shape}")
        labels = None
        budget = float(budget.ravel()[0])
    else:
        frame = read_frame(path)
        words = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
        if words:
            raise InputError(f"{path.name}: the column {words[0]!r} holds no numbers; columns are items, rows people")
        similarity, labels = frame.to_numpy(dtype=np.float64), list(frame.columns)
        costs, budget = np.ones(frame.shape[1]), float(max(1, frame.shape[1] // 4))
    return Instance(FacilityLocation(similarity, labels), costs, budget)
