"""The loop as a Gymnasium environment: look at the conflict, edit the model, solve it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from assay.errors import InputError, one_line

from .actions import EDITS, GRAMMAR, Action, ParseError, apply, parse_action
from .candidates import FEATURES, propose
from .conflicts import iis
from .model import LinearModel
from .saboteur import Instance, instances_of, same_objective
from .scoring import WITHIN, RewardSpec, Score, diagnosis_f1, reward_spec
from .solving import STATUSES, solve

LONGEST_VIEW = 16_000
CHARSET = "".join(chr(c) for c in range(32, 127)) + "\n"


@dataclass
class State:
    """A model on the way, what the solver says of it, and what is worked out from it once."""

    model: LinearModel
    status: str
    objective: float | None
    rows: tuple[str, ...]
    options: tuple[list[Action], NDArray[np.float32]] | None = None


class RecentStates(OrderedDict[Any, State]):
    """Solved states, of which the one that was longest not asked for makes room: memory does not grow with steps.

    Parameters
    ----------
    most
        At most so many.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def get(self, key: Any, default: Any = None) -> Any:
        """Return a state, which is then the most recent, or the default."""
        if key not in self:
            return default
        self.move_to_end(key)
        return self[key]

    def __setitem__(self, key: Any, state: State) -> None:
        super().__setitem__(key, state)
        if len(self) > self.most:
            self.popitem(last=False)


class RepairEnv(gymnasium.Env):
    """Repair one infeasible model, action by action.

    Parameters
    ----------
    instances
        One instance or several, of which each episode takes one by chance; ``reset(options={"instance": index})``
        takes a certain one.
    max_steps
        After so many actions the episode is cut off.
    reward
        ``"op"`` (the original optimum must come back), ``"composite"`` (feasibility counts as success), ``"outcome"``
        (feasibility alone) or a :class:`RewardSpec`. The sum over an episode is ``RewardSpec.total``.
    seed
        Of the choice of instances, where ``reset`` gets none.
    auto_submit
        Whether the first optimal solve ends the episode.
    time_limit
        Seconds a solve.
    cache
        Solved states, which several environments over the same instances may share; by default the most recent ones,
        64 for each instance.

    Raises
    ------
    InputError
        For no instances, or arguments out of range.

    Notes
    -----
    Solver-in-the-Loop Benchmarks for Self-Correction and Behavioral Rationality in Operations Research (ORLoopBench),
    arXiv 2601.21008.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}

    def __init__(
        self,
        instances: Instance | Sequence[Instance],
        *,
        max_steps: int = 50,
        reward: str | RewardSpec = "op",
        seed: int | None = None,
        auto_submit: bool = True,
        time_limit: float = 10.0,
        cache: MutableMapping[Any, State] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.instances = instances_of(instances)
        known: dict[str, Instance] = {}
        for one in self.instances:  # solved states are kept by id
            if known.setdefault(one.id, one).model is not one.model:
                raise InputError(f"instances holds two models with the id {one.id!r}")
        if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
            raise InputError(f"max_steps must be a positive whole number, got {max_steps!r}")
        self.max_steps, self.spec_reward = max_steps, reward_spec(reward)
        self.auto_submit, self.time_limit, self.render_mode = auto_submit, time_limit, render_mode
        self.cache = RecentStates(64 * len(self.instances)) if cache is None else cache
        self._seed = seed
        self.observation_space = spaces.Dict(
            {
                "text": spaces.Text(LONGEST_VIEW, min_length=0, charset=CHARSET),
                "status": spaces.Discrete(len(STATUSES)),
                "step": spaces.Box(0, max_steps, (1,), np.float32),
            }
        )
        self.action_space = spaces.Text(2000, min_length=0, charset=CHARSET)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin with an instance; return its view and, as info, its id, its status and the rows of its IIS."""
        if seed is None and self._seed is not None:
            seed, self._seed = self._seed, None
        super().reset(seed=seed)
        index = (options or {}).get("instance")
        if index is None:
            index = int(self.np_random.integers(len(self.instances)))
        if not isinstance(index, int | np.integer) or not 0 <= index < len(self.instances):
            raise InputError(f"options['instance'] must be from 0 to {len(self.instances) - 1}, got {index!r}")
        self.instance = self.instances[index]
        self.edits: tuple[Action, ...] = ()
        self.state = self._solved(())
        self.first_rows = self.state.rows
        self.named: tuple[str, ...] | None = None
        self.touched: list[str] = []
        self.history: list[str] = []
        self.steps = self.n_edits = self.bad = 0
        self.loyal, self.done = True, False
        return self._view(), self._info()

    def step(self, action: str | Action) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Do an action, given as text or as an :class:`Action`; what cannot be done changes nothing and costs."""
        if getattr(self, "done", True):
            raise InputError("the episode is over: call reset()")
        self.steps += 1
        given = parse_action(action) if not isinstance(action, Action) else action
        answer, error = "", ""
        if isinstance(given, ParseError):
            error = given.why
        else:
            try:
                answer = self._do(given)
            except (KeyError, ValueError) as problem:
                error = str(problem.args[0]) if problem.args else str(problem)
        if error:
            self.bad += 1
        self.history.append(f"{given if isinstance(given, Action) else '?'} -> {error or answer or self.state.status}")
        submitted = not error and isinstance(given, Action) and given.kind == "SUBMIT"
        terminated = submitted or (self.auto_submit and self.state.status == "optimal")
        truncated = not terminated and self.steps >= self.max_steps
        spec = self.spec_reward
        reward = -spec.w_steps - (spec.bad_action if error else 0.0)
        self.done = terminated or truncated
        if self.done:
            reward += spec.total(self.score(), self.bad) + spec.w_steps * self.steps + spec.bad_action * self.bad
        info = self._info()
        if error:
            info["error"] = error
        if answer:
            info["answer"] = answer
        return self._view(), float(reward), terminated, truncated, info

    def _do(self, action: Action) -> str:
        model = self.state.model
        if action.kind == "GET_IIS":
            return ", ".join(self.state.rows) or "none"
        if action.kind == "CHECK_SLACK":
            return self._slack(action.target)
        if action.kind == "DIAGNOSE":
            known = {*self.instance.model.row_names, *self.instance.model.col_names}
            for name in action.names:
                if name not in known:
                    raise KeyError(f"the model has no row or column {name!r}")
            self.named = action.names
            return "noted"
        if action.kind == "SUBMIT":
            return "submitted"
        if action.kind == "RESET":
            self.edits = ()
            self.state = self._solved(())
            return "the model is as it came"
        if action.kind not in EDITS:
            raise ValueError(f"there is no action {action.kind!r}")
        state = self._solved((*self.edits, action))  # raises where it cannot be done, before anything is noted down
        if action.kind not in ("SET_BOUNDS", "SET_TYPE"):
            self.loyal &= action.target in self.state.rows
        else:
            row_at = [model.row(name) for name in self.state.rows]
            self.loyal &= bool(abs(model.A[row_at][:, model.col(action.target)]).sum() > 0) if row_at else False
        self.n_edits += 1
        self.touched.append(action.target)
        self.edits = (*self.edits, action)
        self.state = state
        return ""

    def _slack(self, name: str) -> str:
        row = self.state.model.row(name)
        free = self.state.model.rows([i for i in range(self.state.model.shape[0]) if i != row])
        solved = solve(free, time_limit=self.time_limit)
        if solved.x is None:
            return f"without {name} the model is {solved.status}"
        value = float((self.state.model.A[row] @ solved.x)[0])
        lo, up = self.state.model.row_lo[row], self.state.model.row_up[row]
        return f"without {name} its left side is {value:g}; its sides are {lo:g} and {up:g}"

    def _solved(self, edits: tuple[Action, ...]) -> State:
        key = (self.instance.id, edits)
        found = self.cache.get(key)
        if found is None:
            before = self.cache.get((self.instance.id, edits[:-1])) if edits else None
            model = self.instance.model
            if before is not None:
                model = apply(before.model, edits[-1])
            else:
                for edit in edits:
                    model = apply(model, edit)
            solved = solve(model, time_limit=self.time_limit)
            rows = iis(model, time_limit=self.time_limit).rows if solved.status == "infeasible" else ()
            found = self.cache[key] = State(model, solved.status, solved.objective, rows)
        return found

    def candidates(self) -> list[Action]:
        """Plausible edits of the rows of the present IIS, at most 200."""
        return self._options()[0]

    def features(self, cands: Sequence[Action]) -> NDArray[np.float32]:
        """Return (k, 24) numbers that tell candidates apart; InputError for an action that is no candidate."""
        options, known = self._options()
        place = {action: i for i, action in enumerate(options)}
        for action in cands:
            if action not in place:
                raise InputError(f"cands holds {action}, which is none of candidates()")
        out = known[[place[action] for action in cands]].copy() if len(cands) else np.zeros((0, FEATURES), np.float32)
        if len(cands):
            out[:, 15] = [action.target in self.touched for action in cands]
            out[:, 17] = self.steps / 5
        return out

    def _options(self) -> tuple[list[Action], NDArray[np.float32]]:
        if self.state.options is None:
            self.state.options = propose(self.state.model, self.state.rows)
        return self.state.options

    def score(self) -> Score:
        """Return how things stand now, against the true culprits and the true optimum."""
        feasible = self.state.status == "optimal"
        optimal = feasible and same_objective(self.state.objective, self.instance.optimum)
        quick = self.n_edits <= WITHIN
        named = self.named if self.named is not None else tuple(self.touched)
        f1, precision, recall = diagnosis_f1(named, self.instance.culprits)
        seen = set(self.first_rows)
        return Score(
            feasible,
            feasible and quick,
            optimal,
            optimal and quick,
            f1,
            precision,
            recall,
            len(seen & set(named)) / len(seen) if seen else 0.0,
            self.steps,
            self.n_edits,
            self.loyal,
            self.state.model.same(self.instance.original),
        )

    def render(self) -> str:
        """Return the view as text."""
        return str(self._view()["text"])

    def _info(self) -> dict[str, Any]:
        return {"instance": self.instance.id, "status": self.state.status, "iis": list(self.state.rows)}

    def _view(self) -> dict[str, Any]:
        parts = [
            self.instance.narrative,
            f"Status: {self.state.status}. Step {self.steps} of {self.max_steps}.",
            "Rows in conflict:\n" + _some_rows(self.state.model, self.state.rows) if self.state.rows else "",
            _some_columns(self.state.model, self.state.rows),
            "So far:\n" + "\n".join(one_line(line, 400) for line in self.history[-10:]) if self.history else "",
        ]
        text = "\n\n".join(part for part in parts if part)
        clean = "".join(c if c in _KNOWN else "?" for c in text)[:LONGEST_VIEW]
        return {
            "text": clean,
            "status": np.int64(STATUSES.index(self.state.status)),  # type: ignore[arg-type]
            "step": np.array([self.steps], dtype=np.float32),
        }


_KNOWN = frozenset(CHARSET)


def row_text(model: LinearModel, name: str, most: int = 12) -> str:
    """Return a row as people write it: ``cap_3: 2 x1 + x2 <= 40``."""
    i = model.row(name)
    at = slice(model.A.indptr[i], model.A.indptr[i + 1])
    terms = [_term(a, model.col_names[j]) for j, a in zip(model.A.indices[at], model.A.data[at], strict=True)]
    left = " ".join(terms[:most]).removeprefix("+ ") or "0"
    left += f" + {len(terms) - most} more" if len(terms) > most else ""
    lo, up = model.row_lo[i], model.row_up[i]
    if lo == up:
        return f"{name}: {left} = {lo:g}"
    if not np.isfinite(lo):
        return f"{name}: {left} <= {up:g}"
    if not np.isfinite(up):
        return f"{name}: {left} >= {lo:g}"
    return f"{name}: {lo:g} <= {left} <= {up:g}"


def _some_rows(model: LinearModel, names: Sequence[str], most: int = 8000) -> str:
    """Rows as lines, as many as fit; the last line says how many more there are."""
    lines: list[str] = []
    room = most
    for name in names:
        line = row_text(model, name)
        room -= len(line) + 1
        if room < 0 and lines:
            return "\n".join([*lines, f"and {len(names) - len(lines)} more, which GET_IIS names"])
        lines.append(line)
    return "\n".join(lines)


def _some_columns(model: LinearModel, names: Sequence[str], most: int = 40) -> str:
    """Bounds and types of the columns of these rows, but for continuous ones from 0 on."""
    used = np.unique(model.A[[model.row(name) for name in names]].indices) if names else []
    odd = [j for j in used if model.col_lo[j] != 0 or np.isfinite(model.col_up[j]) or model.integer[j]]
    lines = [
        f"{model.col_lo[j]:g} <= {model.col_names[j]} <= {model.col_up[j]:g}" + (" integer" if model.integer[j] else "")
        for j in odd[:most]
    ]
    lines += [f"and {len(odd) - most} more"] if len(odd) > most else []
    return "Their columns (others are continuous, 0 or more):\n" + "\n".join(lines) if lines else ""


def _term(a: float, name: str) -> str:
    size = "" if abs(a) == 1 else f"{abs(a):g} "
    return f"{'-' if a < 0 else '+'} {size}{name}"


def prompt(env: RepairEnv) -> list[dict[str, str]]:
    """Return the present state as chat messages: the rules with the grammar, and the view."""
    rules = (
        "An optimisation model is infeasible because of a mistake in it. Find the row that is wrong and mend it, so "
        "that the model has the optimum that was meant; that it becomes feasible is not enough. Reply with one action "
        "on a line of its own. The actions are:\n" + GRAMMAR
    )
    return [{"role": "system", "content": rules}, {"role": "user", "content": env.render()}]
