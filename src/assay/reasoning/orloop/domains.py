"""Six kinds of planning model, feasible and with an optimum, with named families of rows and a description."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from .model import LinearModel

INF = float("inf")


@dataclass
class Sheet:
    """Columns and rows while a model is being written down."""

    lo: list[float] = field(default_factory=list)
    up: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    cols: list[str] = field(default_factory=list)
    rows: list[tuple[str, dict[int, float], float, float]] = field(default_factory=list)

    def column(self, name: str, lo: float, up: float, cost: float = 0.0, whole: bool = False) -> int:
        """Add a column; return its index."""
        self.cols.append(name)
        self.lo.append(lo)
        self.up.append(up)
        self.cost.append(cost)
        self.whole.append(whole)
        return len(self.cols) - 1

    def row(self, name: str, entries: dict[int, float], lo: float = -INF, up: float = INF) -> None:
        """Add a row."""
        self.rows.append((name, entries, lo, up))

    def model(self, sense: str) -> LinearModel:
        """The model of what was written down."""
        i = [r for r, (_, entries, _, _) in enumerate(self.rows) for _ in entries]
        j = [c for _, entries, _, _ in self.rows for c in entries]
        a = [v for _, entries, _, _ in self.rows for v in entries.values()]
        return LinearModel.from_arrays(
            sp.csr_matrix((a, (i, j)), shape=(len(self.rows), len(self.cols))),
            [lo for _, _, lo, _ in self.rows],
            [up for _, _, _, up in self.rows],
            self.lo,
            self.up,
            self.cost,
            self.whole,
            sense,  # type: ignore[arg-type]
            [name for name, *_ in self.rows],
            self.cols,
        )


def transport(rng: np.random.Generator, milp: bool) -> LinearModel:
    """Suppliers, customers and lanes between them, at least cost."""
    s, d = int(rng.integers(3, 5)), int(rng.integers(4, 7))
    demand = np.round(rng.uniform(20, 50, d))
    supply = np.round(rng.dirichlet(np.full(s, 8.0)) * demand.sum() * 1.25)
    sheet = Sheet()
    x = [[sheet.column(f"ship_{i}_{j}", 0, 60, float(rng.integers(2, 20))) for j in range(d)] for i in range(s)]
    for i in range(s):
        sheet.row(f"supply_{i}", {x[i][j]: 1.0 for j in range(d)}, up=supply[i])
        sheet.row(f"minimum_{i}", {x[i][j]: 1.0 for j in range(d)}, lo=np.round(0.5 * supply[i]))
    for j in range(d):
        sheet.row(f"demand_{j}", {x[i][j]: 1.0 for i in range(s)}, lo=demand[j])
        sheet.row(f"dock_{j}", {x[i][j]: 1.0 for i in range(s)}, up=np.round(1.15 * demand[j]))
    if milp:
        for i in range(s):
            t = sheet.column(f"trucks_{i}", 0, 30, 15.0, True)
            sheet.row(f"fleet_{i}", {**{x[i][j]: 1.0 for j in range(d)}, t: -12.0}, up=0)
    return sheet.model("min")


def production(rng: np.random.Generator, milp: bool) -> LinearModel:
    """Products that compete for machines, with contracts and markets, at the largest profit."""
    p, r = int(rng.integers(5, 8)), int(rng.integers(4, 6))
    plan = np.round(rng.uniform(10, 25, p))
    use = np.round(rng.uniform(2, 7, (r, p)), 1)
    sheet = Sheet()
    x = [sheet.column(f"make_{k}", 0, 80, float(rng.integers(10, 60)), milp) for k in range(p)]
    for i in range(r):
        sheet.row(f"machine_{i}", {x[k]: use[i, k] for k in range(p)}, up=np.round(1.05 * use[i] @ plan))
        sheet.row(f"load_{i}", {x[k]: use[i, k] for k in range(p)}, lo=np.round(0.6 * use[i] @ plan))
    for k in range(p):
        sheet.row(f"contract_{k}", {x[k]: 1.0}, lo=np.round(0.6 * plan[k]))
        sheet.row(f"market_{k}", {x[k]: 1.0}, up=np.round(1.4 * plan[k]))
    return sheet.model("max")


def blending(rng: np.random.Generator, milp: bool) -> LinearModel:
    """Ingredients mixed into products that must reach a quality, at least cost."""
    n, p = int(rng.integers(4, 6)), int(rng.integers(3, 5))
    octane = np.round(rng.uniform(80, 100, n), 1)
    sulphur = np.round(rng.uniform(1.5, 4, n), 2)
    batch = np.round(rng.uniform(30, 60, p))
    mix = rng.dirichlet(np.full(n, 3.0), p)
    stock = np.round(1.2 * (mix * batch[:, None]).sum(axis=0) + 2)
    sheet = Sheet()
    x = [[sheet.column(f"blend_{i}_{k}", 0, 70, float(rng.integers(3, 15))) for k in range(p)] for i in range(n)]
    for k in range(p):
        sheet.row(f"batch_{k}", {x[i][k]: 1.0 for i in range(n)}, lo=batch[k], up=batch[k])
        low = np.floor(0.995 * float(mix[k] @ octane) * batch[k])
        sheet.row(f"octane_{k}", {x[i][k]: octane[i] for i in range(n)}, lo=low)
        most = np.ceil(1.05 * float(mix[k] @ sulphur) * batch[k])
        sheet.row(f"sulphur_{k}", {x[i][k]: sulphur[i] for i in range(n)}, up=most)
    for i in range(n):
        sheet.row(f"stock_{i}", {x[i][k]: 1.0 for k in range(p)}, up=stock[i])
    if milp:
        for i in range(n):
            drums = sheet.column(f"drums_{i}", 0, 40, 4.0, True)
            sheet.row(f"drum_{i}", {**{x[i][k]: 1.0 for k in range(p)}, drums: -8.0}, up=0)
    return sheet.model("min")


def inventory(rng: np.random.Generator, milp: bool) -> LinearModel:
    """Two items made and stored over some months, at least cost."""
    months, items = int(rng.integers(5, 7)), 2
    need = np.round(rng.uniform(15, 35, (items, months)))
    sheet = Sheet()
    make = [[sheet.column(f"make_{k}_{t}", 0, 70, float(rng.integers(3, 9))) for t in range(months)] for k in (0, 1)]
    keep = [[sheet.column(f"keep_{k}_{t}", 0, 40, 1.0) for t in range(months)] for k in range(items)]
    for t in range(months):
        for k in range(items):
            entries = {make[k][t]: 1.0, keep[k][t]: -1.0}
            if t:
                entries[keep[k][t - 1]] = 1.0
            sheet.row(f"balance_{k}_{t}", entries, lo=need[k, t], up=need[k, t])
        sheet.row(f"plant_{t}", {make[k][t]: 1.0 for k in range(items)}, up=np.round(1.2 * need.sum() / months))
        sheet.row(f"store_{t}", {keep[k][t]: 1.0 for k in range(items)}, up=45.0)
        sheet.row(f"work_{t}", {make[k][t]: 1.0 for k in range(items)}, lo=np.round(0.5 * need.sum() / months))
    if milp:
        for t in range(months):
            crews = sheet.column(f"crews_{t}", 0, 12, 20.0, True)
            sheet.row(f"crew_{t}", {**{make[k][t]: 1.0 for k in range(items)}, crews: -9.0}, up=0)
    return sheet.model("min")


def facility(rng: np.random.Generator, milp: bool) -> LinearModel:
    """Sites to open and customers to serve from them, at least cost."""
    sites, d = int(rng.integers(4, 6)), int(rng.integers(5, 8))
    demand = np.round(rng.uniform(10, 30, d))
    room = np.round(rng.uniform(0.8, 1.2, sites) * 2 * demand.sum() / sites)
    sheet = Sheet()
    size = [sheet.column(f"open_{i}", 0, 3 if milp else 1, float(rng.integers(60, 120)), milp) for i in range(sites)]
    x = [[sheet.column(f"serve_{i}_{j}", 0, 1, float(rng.integers(5, 40))) for j in range(d)] for i in range(sites)]
    for j in range(d):
        sheet.row(f"assign_{j}", {x[i][j]: 1.0 for i in range(sites)}, lo=1, up=1)
    for i in range(sites):
        sheet.row(f"room_{i}", {**{x[i][j]: demand[j] for j in range(d)}, size[i]: -room[i]}, up=0)
        sheet.row(f"throughput_{i}", {x[i][j]: demand[j] for j in range(d)}, up=np.round(0.9 * room[i]))
        sheet.row(f"share_{i}", {x[i][j]: demand[j] for j in range(d)}, lo=np.round(0.25 * room[i]))
    return sheet.model("min")


def scheduling(rng: np.random.Generator, milp: bool) -> LinearModel:
    """Shifts that cover the hours of a day, at least cost."""
    hours, shifts = 10, 8
    starts = [k % hours for k in rng.permutation(hours)[:shifts]]
    covers = np.array([[(h - s) % hours < 5 for s in starts] for h in range(hours)], dtype=float)
    plan = np.round(rng.uniform(3, 9, shifts))
    at_work = covers @ plan
    sheet = Sheet()
    x = [sheet.column(f"staff_{s}", 0, 25, float(rng.integers(8, 20)), milp) for s in range(shifts)]
    for h in range(hours):
        entries = {x[s]: 1.0 for s in range(shifts) if covers[h, s]}
        sheet.row(f"cover_{h}", entries, lo=np.floor(0.85 * at_work[h]))
        sheet.row(f"desks_{h}", entries, up=np.ceil(1.15 * at_work[h]) + 1)
    for s in range(shifts):
        sheet.row(f"pool_{s}", {x[s]: 1.0}, up=plan[s] + 3)
    sheet.row("wages_0", dict.fromkeys(x, 4.0), up=np.round(4.4 * plan.sum()))
    return sheet.model("min")


DOMAINS: dict[str, Callable[[np.random.Generator, bool], LinearModel]] = {
    "transport": transport,
    "production": production,
    "blending": blending,
    "inventory": inventory,
    "facility": facility,
    "scheduling": scheduling,
}

STORIES = {
    "transport": "Goods go from suppliers to customers at the least cost of the lanes. A row 'supply' says that what "
    "leaves a supplier is at most what it has; 'minimum' says that each supplier sells at least an agreed "
    "amount. A row 'demand' says that a customer gets at least what was ordered, and 'dock' that it "
    "cannot unload more than its dock takes. Where there are rows 'fleet', goods leave a supplier on "
    "whole trucks only: the load is at most the capacity of the trucks hired. All lanes carry amounts "
    "that are not negative and not above what one lane takes.",
    "production": "A plant chooses how many units of each product to make, for the largest profit. "
    "A row 'machine' says "
    "that the hours used on a machine are at most the hours it runs; 'load' says that each machine must "
    "be busy for at least some hours, because its crew is paid anyway. A row 'contract' says that at "
    "least the promised units of one product are made, and 'market' that at most what the market takes is "
    "made. In every row of machine hours each product has the hours that one unit needs, which are "
    "positive.",
    "blending": "Ingredients are mixed into products at the least cost. A row 'batch' says that the parts of a "
    "product add up to exactly its batch. A row 'octane' says that the octane, summed over the parts, is "
    "at least what the product must have; 'sulphur' says that the sulphur, summed in the same way, is at "
    "most what is allowed. A row 'stock' says that no more of an ingredient is used than there is. Where "
    "there are rows 'drum', ingredients come in whole drums: what is used is at most what the drums hold.",
    "inventory": "Two items are made and stored month by month at the least cost. A row 'balance' says that what is "
    "made, plus the stock of the month before, less the stock that is kept, is exactly the month's need. "
    "A row 'plant' says that both items together are at most what the plant makes in a month; 'work' says "
    "that they are at least what keeps the people busy. A row 'store' says that the stock of both items "
    "is at most what the store holds. Where there are rows 'crew', production is at most what the crews "
    "hired for the month can do.",
    "facility": "A company opens sites and serves its customers from them at the least cost. A row 'assign' says that "
    "the shares in which a customer is served add up to exactly one. A row 'room' says that the demand "
    "served from a site is at most the room of what was opened there. A row 'throughput' says that a site "
    "handles at most a fixed amount, however large it is, and 'share' that each site handles at least a "
    "fixed part, which was promised to its town. Demands and rooms are positive, and each share lies "
    "between zero and one.",
    "scheduling": "A call centre chooses how many people start in each shift, at the least wage. A shift covers five "
    "hours in a row. A row 'cover' says that the people at work in an hour are at least what the calls "
    "need; 'desks' says that they are at most the desks there are. A row 'pool' says that no more people "
    "start in a shift than are willing to, and 'wages' that the whole day costs at most its budget. In "
    "the rows of an hour each shift that covers it counts once, and the others do not count.",
}
