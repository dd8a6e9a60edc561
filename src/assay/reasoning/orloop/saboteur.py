"""Feasible models made infeasible by a known error, and sets of such instances."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from assay.errors import InputError

from .actions import Action, apply
from .conflicts import iis
from .domains import DOMAINS, STORIES
from .model import LinearModel
from .solving import Solution, solve

ERRORS = "ABCDEFGHI"
SAME = 1e-6
"""Two objectives are the same within this, relative to 1 and their size."""


@dataclass(frozen=True)
class Instance:
    """A model with a known error.

    Attributes
    ----------
    id
        Short, the same for the same seed.
    model, original
        The model with the error, and without.
    culprits
        The names of the rows or columns that were changed or added.
    undo
        The edits that turn ``model`` into ``original``, one a culprit.
    error
        The kind, A to I.
    domain
        What it is about; ``"own"`` for a user's model.
    iis_rows
        A certified irreducible infeasible subsystem of ``model``.
    optimum
        The objective of ``original``.
    narrative
        What the families of rows mean, in words and without numbers.
    """

    id: str
    model: LinearModel
    original: LinearModel
    culprits: frozenset[str]
    undo: tuple[Action, ...]
    error: str
    domain: str
    iis_rows: tuple[str, ...]
    optimum: float
    narrative: str = ""


@dataclass(frozen=True)
class _Damage:
    """One change for the worse: an edit or an added row, and what takes it back."""

    culprit: str
    undo: Action
    edit: Action | None = None
    row: tuple[str, tuple[float, ...], float, float] | None = None

    def do(self, model: LinearModel) -> LinearModel:
        if self.row is not None:
            name, coefficients, lo, up = self.row
            return model.with_row(name, [coefficients], lo, up)
        assert self.edit is not None
        return apply(model, self.edit)


def instances_of(given: Any) -> list[Instance]:
    """Return one instance or several as a list; InputError for what holds none, or anything else."""
    found = [given] if isinstance(given, Instance) else list(given) if isinstance(given, Iterable) else []
    if not found or not all(isinstance(one, Instance) for one in found):
        raise InputError("instances must be an Instance or a list of them, not empty")
    return found


def same_objective(a: float | None, b: float) -> bool:
    """Whether two objectives are the same, within 1e-6 of 1 or their size."""
    return a is not None and abs(a - b) <= SAME * max(1.0, abs(b))


def sabotage(
    model: LinearModel,
    error: str,
    rng: np.random.Generator,
    *,
    chain: int = 0,
    domain: str = "own",
    narrative: str = "",
) -> Instance | None:
    """Put an error into a feasible model.

    Parameters
    ----------
    model
        With an optimum.
    error
        A: a row's direction; B: the size of a right-hand side, or an integer column made binary; C: half of a row's
        coefficients; D: an added row that contradicts others; E: two errors; F: a column's bound; G: three errors;
        H: as A, with a correct twin of the row beside it; I: another repair restores feasibility with another optimum.
    rng
        Source of chance.
    chain
        For D: through so many definitions, each a column and a row, the added row contradicts the others. They stand in
        the original too.
    domain, narrative
        Go into the instance.

    Returns
    -------
    Instance or None
        None where no such error makes this model infeasible in the way its kind demands.

    Raises
    ------
    InputError
        For an unknown kind, a chain of another kind than D, or a model without an optimum.
    """
    if error not in ERRORS or len(error) != 1:
        raise InputError(f"error must be one of {', '.join(ERRORS)}, not {error!r}")
    if isinstance(chain, bool) or not isinstance(chain, int) or chain < 0 or (chain and error != "D"):
        raise InputError(f"chain must be a whole number from 0, and 0 for other errors than D; got {chain!r}")
    solved = solve(model)
    if solved.status != "optimal":
        raise InputError(f"model must have an optimum to be sabotaged, and it is {solved.status}")
    return _sabotage(model, solved, error, rng, domain, narrative, chain)


def _sabotage(
    model: LinearModel,
    solved: Solution,
    error: str,
    rng: np.random.Generator,
    domain: str,
    narrative: str,
    chain: int = 0,
) -> Instance | None:
    original = _anonymous(model, rng)
    tries = 0
    for damages, base in _plans(original, error, rng):
        if chain:
            damages, base = _chained(base, damages[0], chain, rng)
        tries += 1
        if tries > 12:
            return None
        found = _accept(base, damages, error)
        if found is None:
            continue
        broken, rows = found
        order = rng.permutation(broken.shape[0])
        digest = hashlib.sha256("\n".join([error, *broken.row_names, *map(str, damages)]).encode()).hexdigest()[:10]
        return Instance(
            f"{domain}-{error}-{digest}",
            broken.rows(order),
            base,
            frozenset(d.culprit for d in damages),
            tuple(d.undo for d in damages),
            error,
            domain,
            rows,
            float(solved.objective),  # type: ignore[arg-type]
            narrative,
        )
    return None


def _plans(
    model: LinearModel, error: str, rng: np.random.Generator
) -> Iterator[tuple[tuple[_Damage, ...], LinearModel]]:
    """Damages that may do for this kind of error, each that makes the model infeasible on its own."""
    if error in "EG":
        flips = list(_working(model, "A", rng, 3))
        sizes = list(_working(model, "B", rng, 3)) + list(_working(model, "C", rng, 2))
        for one in flips:
            for two in sizes:
                if error == "E":
                    if one.culprit != two.culprit:
                        yield (one, two), model
                    continue
                for three in _working(model, "D", rng, 1):
                    if len({one.culprit, two.culprit}) == 2:
                        yield (one, two, three), model
    elif error == "H":
        for damage in _working(model, "A", rng, 3):
            row = model.row(damage.culprit)
            twin = _fresh_name(model, model.family[row], rng)
            base = model.with_row(twin, model.A[row], model.row_lo[row], model.row_up[row])
            yield (damage,), base
    elif error == "I":
        for kind in rng.permutation(list("ABCD")):
            for damage in _working(model, str(kind), rng, 2):
                yield (damage,), model
    else:
        for damage in _working(model, error, rng, 4):
            yield (damage,), model


def _chained(
    model: LinearModel, damage: _Damage, links: int, rng: np.random.Generator
) -> tuple[tuple[_Damage], LinearModel]:
    """The model with a chain of definitions of what an added row bounds, and that row at the end of the chain."""
    assert damage.row is not None
    name, coefficients, lo, up = damage.row
    n = model.shape[1]
    free = np.full(links, np.inf)
    base = replace(
        model,
        A=sp.hstack([model.A, sp.csr_matrix((model.shape[0], links))], format="csr"),
        col_lo=np.append(model.col_lo, -free),
        col_up=np.append(model.col_up, free),
        cost=np.append(model.cost, np.zeros(links)),
        integer=np.append(model.integer, np.zeros(links, dtype=bool)),
        col_names=(*model.col_names, *_fresh_columns(model, links, rng)),
    )
    for link in range(links):
        row = np.zeros(n + links)
        if link:
            row[n + link - 1] = 1
        else:
            row[:n] = coefficients
        row[n + link] = -1
        base = base.with_row(_fresh_name(base, "definition", rng), row, 0.0, 0.0)
    last = np.zeros(n + links)
    last[-1] = 1
    return (replace(damage, row=(name, tuple(map(float, last)), lo, up)),), base


def _working(model: LinearModel, kind: str, rng: np.random.Generator, most: int) -> Iterator[_Damage]:
    """Up to ``most`` single damages of a kind after which the model is infeasible."""
    found = 0
    for tries, damage in enumerate(_damages(model, kind, rng)):
        if found >= most or tries > 25:
            return
        if solve(damage.do(model), time_limit=2.0).status == "infeasible":
            found += 1
            yield damage


def _accept(base: LinearModel, damages: tuple[_Damage, ...], error: str) -> tuple[LinearModel, tuple[str, ...]] | None:
    """The broken model and its IIS, where it is what its kind of error demands."""
    broken = _all(base, damages)
    conflict = iis(broken, time_limit=5.0)
    culprits = {d.culprit for d in damages}
    if not conflict.certified or not conflict.rows:
        return None
    inside = culprits & set(conflict.rows)
    if error == "F":
        touched = broken.A[[broken.row(name) for name in conflict.rows]]
        if abs(touched[:, broken.col(damages[0].culprit)]).sum() == 0:
            return None
    elif error != "H" and not inside and not culprits & set(base.col_names):
        return None
    if error == "D" and len(conflict.rows) < 2:
        return None
    if error in "EG":
        left = list(damages)
        rows = conflict.rows
        while len(left) > 1:  # errors come to light one after the other
            shown = [d for d in left if d.culprit in rows or d.culprit in base.col_names]
            if not shown:
                return None
            left.remove(shown[0])
            rows = iis(_all(base, left), time_limit=5.0).rows
            if not rows or not any(d.culprit in rows or d.culprit in base.col_names for d in left):
                return None
    if error == "H":
        twins = [n for n in conflict.rows if n not in culprits]
        others = [broken.rows([i for i, n in enumerate(broken.row_names) if n != twin]) for twin in twins]
        if not any(solve(other, time_limit=2.0).status == "infeasible" for other in others):
            return None
    if error == "I" and not _other_repair(broken, base, conflict.rows, culprits):
        return None
    return broken, conflict.rows


def _other_repair(broken: LinearModel, base: LinearModel, rows: Sequence[str], culprits: set[str]) -> bool:
    optimum = solve(base).objective
    for name in rows:
        if name not in culprits:
            other = solve(apply(broken, Action("DROP", name)), time_limit=2.0)
            if other.status == "optimal" and abs(other.objective - optimum) > 1e-3:  # type: ignore[operator]
                return True
    return False


def _all(model: LinearModel, damages: Sequence[_Damage]) -> LinearModel:
    for damage in damages:
        model = damage.do(model)
    return model


def _damages(model: LinearModel, kind: str, rng: np.random.Generator) -> Iterator[_Damage]:
    m, n = model.shape
    lo, up = model.row_lo, model.row_up
    one_sided = np.isfinite(lo) != np.isfinite(up)
    if kind == "A":
        # A row that is tight in the optimum stays satisfied there when it is flipped: only the others can conflict.
        for row in rng.permutation(np.flatnonzero(one_sided)):
            flip = Action("FLIP", model.row_names[row])
            yield _Damage(flip.target, flip, flip)
    elif kind == "B":
        columns = np.flatnonzero(model.integer & (model.col_up > 1))
        for col in rng.permutation(columns)[:6]:
            name = model.col_names[col]
            bounds = (float(model.col_lo[col]), float(model.col_up[col]))
            yield _Damage(name, Action("SET_BOUNDS", name, bounds), Action("SET_TYPE", name, names=("binary",)))
        for row in rng.permutation(m):
            rhs = lo[row] if np.isfinite(lo[row]) else up[row]
            if (
                rhs == 0
                or not np.isfinite(rhs)
                or (np.isfinite(lo[row]) and np.isfinite(up[row]) and lo[row] != up[row])
            ):
                continue
            name = model.row_names[row]
            factor = float(rng.choice([0.1, 0.2, 5.0, 10.0]))
            yield _Damage(name, Action("SET_RHS", name, (float(rhs),)), Action("SET_RHS", name, (float(rhs * factor),)))
    elif kind == "C":
        for row in rng.permutation(m):
            at = slice(model.A.indptr[row], model.A.indptr[row + 1])
            cols, values = model.A.indices[at], model.A.data[at]
            if len(cols) < 2:
                continue
            some = np.sort(rng.choice(len(cols), (len(cols) + 1) // 2, replace=False))
            names = tuple(model.col_names[j] for j in cols[some])
            factor = float(rng.choice([-1.0, 10.0, 0.1]))
            name = model.row_names[row]
            yield _Damage(
                name,
                Action("SET_COEF", name, tuple(map(float, values[some])), names),
                Action("SET_COEF", name, tuple(map(float, values[some] * factor)), names),
            )
    elif kind == "D":
        for row in rng.permutation(np.flatnonzero(one_sided)):
            group = [row]
            mates = [i for i in range(m) if i != row and model.family[i] == model.family[row] != ""]
            if mates and rng.random() < 0.5:
                mate = int(rng.choice(mates))
                if np.isfinite(lo[mate]) == np.isfinite(lo[row]) and one_sided[mate]:
                    group.append(mate)
            total = np.asarray(model.A[group].sum(axis=0)).ravel()
            below = np.isfinite(up[row])
            bound = float((up if below else lo)[group].sum())
            past = bound + (0.5 * abs(bound) + 5) * (1 if below else -1)
            name = _fresh_name(model, model.family[row], rng)
            sides = (past, np.inf) if below else (-np.inf, past)
            yield _Damage(name, Action("DROP", name), row=(name, tuple(map(float, total)), *sides))
    elif kind == "F":
        equal = np.flatnonzero((lo == up) & np.isfinite(lo))
        columns = np.unique(model.A[equal].indices) if len(equal) else np.arange(n)
        for col in rng.permutation(columns):
            left, right = float(model.col_lo[col]), float(model.col_up[col])
            if not np.isfinite(right) or right <= left:
                continue
            name = model.col_names[col]
            for bounds in ((left, left + 0.1 * (right - left)), (left + 0.9 * (right - left), right)):
                yield _Damage(name, Action("SET_BOUNDS", name, (left, right)), Action("SET_BOUNDS", name, bounds))


def _anonymous(model: LinearModel, rng: np.random.Generator) -> LinearModel:
    """The model with rows named by family and six digits: the place of a row tells nothing."""
    numbers = rng.choice(900_000, model.shape[0], replace=False) + 100_000
    names = tuple(f"{family or 'row'}_{number}" for family, number in zip(model.family, numbers, strict=True))
    return replace(model, row_names=names, family=tuple(family or "row" for family in model.family))


def _fresh_columns(model: LinearModel, count: int, rng: np.random.Generator) -> list[str]:
    taken = set(model.col_names)
    numbers = rng.choice(900_000, count + len(taken), replace=False) + 100_000
    return [name for name in (f"total_{number}" for number in numbers) if name not in taken][:count]


def _fresh_name(model: LinearModel, family: str, rng: np.random.Generator) -> str:
    taken = set(model.row_names)
    while True:
        name = f"{family or 'row'}_{int(rng.integers(100_000, 1_000_000))}"
        if name not in taken:
            return name


def generate(
    n: int,
    *,
    domains: str | Sequence[str] = "all",
    errors: str = ERRORS,
    milp: bool = False,
    seed: int = 0,
    narrative_numbers: bool = False,
) -> list[Instance]:
    """Make instances with known errors; kinds of error and domains take turns.

    Parameters
    ----------
    n
        How many.
    domains
        ``"all"``, or some of transport, production, blending, inventory, facility and scheduling.
    errors
        Which kinds, as letters A to I.
    milp
        Whether models have integer columns.
    seed
        The same seed gives the same instances.
    narrative_numbers
        Whether the description tells the right-hand sides too: then it is a task of reading.

    Raises
    ------
    InputError
        For unknown domains or kinds, or a number that is not positive.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n must be a positive whole number, got {n!r}")
    chosen = list(DOMAINS) if isinstance(domains, str) and domains == "all" else list(domains)
    chosen = [domains] if isinstance(domains, str) and domains in DOMAINS else chosen
    for name in chosen:
        if name not in DOMAINS:
            raise InputError(f"domains holds {name!r}; it must be 'all' or some of {', '.join(DOMAINS)}")
    if not errors or any(kind not in ERRORS for kind in errors):
        raise InputError(f"errors must be letters of {ERRORS}, got {errors!r}")
    made: list[Instance] = []
    for i in range(n):
        rng = np.random.default_rng([seed, i, int(milp)])
        for attempt in range(400):
            # After many tries in one domain the next has its turn: not every kind of error fits every domain.
            domain = chosen[(i // len(errors) + i % len(errors) + attempt // 4) % len(chosen)]
            kind = errors[(i + attempt // (8 * len(chosen))) % len(errors)]
            model = DOMAINS[domain](rng, milp)
            solved = solve(model, time_limit=5.0)
            if solved.status != "optimal":
                continue
            one = _sabotage(model, solved, kind, rng, domain, STORIES[domain])
            if one is not None:
                made.append(replace(one, narrative=_with_numbers(one)) if narrative_numbers else one)
                break
        else:
            raise InputError(f"no instance of the kinds {errors} in {', '.join(chosen)} was found in 400 tries")
    return made


def _with_numbers(instance: Instance) -> str:
    base = instance.original
    lines = [
        f"{name}: {_number(lo)} to {_number(up)}"
        for name, lo, up in zip(base.row_names, base.row_lo, base.row_up, strict=True)
    ]
    return instance.narrative + "\nThe sides of the rows as planned:\n" + "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:g}" if np.isfinite(value) else "no limit"
