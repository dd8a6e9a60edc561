"""The study of geocode: are the problems right, is each check needed, and are they deeper than templates?"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.evidence.claim import higher, rate
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Proportion, Study, Task

from .checks import GATES, oracle, verify
from .dataset import read_dataset
from .faults import FAULTS
from .making import KINDS, generate, generate_one
from .problem import Problem

PROBLEMS = {Budget.SMOKE: 4, Budget.QUICK: 125, Budget.FULL: 300, Budget.PAPER: 1000}
FAULTY = {Budget.SMOKE: 2, Budget.QUICK: 20, Budget.FULL: 60, Budget.PAPER: 200}


def load_size(seed: int, budget: Budget) -> tuple[int, int]:
    """How many problems to make; there is nothing hidden."""
    return PROBLEMS[budget], PROBLEMS[budget]


def run_generator(
    n: int, seed: int, budget: Budget, steps: tuple[int, int] = (2, 6), min_depth: int = 4,
    max_depth: int | None = None, skip: tuple[str, ...] = (),
) -> list[Problem]:  # fmt: skip
    """Problems of the generator with other settings, or with checks left out."""
    problems = []
    for i in range(n):
        rng = random.Random(f"study {seed} {i}")
        made: Problem | str = ""
        while not isinstance(made, Problem):
            made = generate_one(f"s{seed}-{i}", rng, steps, min_depth, KINDS, 0.5, skip, max_depth)
        problems.append(made)
    return problems


def score_problems(output: Any, hidden: int) -> Mapping[str, Any]:
    """Answers that another figure with the same givens contradicts, and how deep the problems are."""
    if not isinstance(output, Sequence) or len(output) != hidden or not all(isinstance(p, Problem) for p in output):
        raise ValueError(f"the output must be a list of {hidden} problems")
    return {
        "contradicted": Proportion(sum(bool(oracle(problem)) for problem in output), hidden),
        "sound": Proportion(sum(verify(problem).ok for problem in output), hidden),
        "depth": float(statistics.median(problem.depth for problem in output)),
        "entities": statistics.mean(len(p.coords) + len(p.scene.segments) + len(p.scene.circles) for p in output),
        "relations": statistics.mean(len(problem.seed.facts) + len(problem.seed.givens) for problem in output),
    }


def _faulty(seed: int, n: int, source: Path | None) -> list[tuple[str, Problem]]:
    sound = generate(n, seed=seed) if source is None else read_dataset(source)[:n]
    rng = random.Random(f"faults {seed}")
    items = [("", problem) for problem in sound]
    for name, fault in FAULTS.items():
        for problem in sound:
            broken = fault(problem, rng)
            if broken is not None:
                items.append((name, broken))
    rng.shuffle(items)
    return items


def load_faults(seed: int, budget: Budget, source: Path | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """Sound problems and problems with one fault each, as plain data; hidden is which fault."""
    n = FAULTY[budget]

    def make(folder: Path) -> None:
        lines = [json.dumps({"fault": name, **problem.to_dict()}) for name, problem in _faulty(seed, n, source)]
        (folder / "items.jsonl").write_text("\n".join(lines), encoding="utf-8")

    key = ["geocode faults", seed, n, "" if source is None else source.read_text(encoding="utf-8")]
    rows = [json.loads(line) for line in (shared(key, make) / "items.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{k: v for k, v in row.items() if k != "fault"} for row in rows], [row["fault"] for row in rows]


def run_checks(given: list[dict[str, Any]], seed: int, budget: Budget, without: tuple[str, ...] = ()) -> list[bool]:
    """Whether a problem is refused by the checks that are left; the checks run once for all arms."""

    def make(folder: Path) -> None:
        failed = [sorted(verify(Problem.from_dict(row)).detail) for row in given]
        (folder / "failed.json").write_text(json.dumps(failed), encoding="utf-8")

    folder = shared(["geocode checks", json.dumps(given, sort_keys=True)], make)
    failed = json.loads((folder / "failed.json").read_text(encoding="utf-8"))
    return [bool(set(names) - set(without)) for names in failed]


def score_faults(output: Any, hidden: list[str]) -> Mapping[str, Any]:
    """Faults that were noticed, in all and by kind, and sound problems that were refused."""
    if not isinstance(output, Sequence) or len(output) != len(hidden):
        raise ValueError(f"the output must be {len(hidden)} truth values, one a problem: is it refused?")
    flags = [bool(flag) for flag in output]
    good = [flag for flag, fault in zip(flags, hidden, strict=True) if not fault]
    bad = [flag for flag, fault in zip(flags, hidden, strict=True) if fault]
    metrics: dict[str, Any] = {
        "false_alarm": Proportion(sum(good), len(good)),
        "caught": Proportion(sum(bad), len(bad)),
    }
    metrics["caught_share"] = sum(bad) / len(bad)
    for name in FAULTS:
        of_kind = [flag for flag, fault in zip(flags, hidden, strict=True) if fault == name]
        if of_kind:
            metrics[name.replace(" ", "_")] = sum(of_kind) / len(of_kind)
    return metrics


CONTRACT = """f(given, seed) -> output

task problems   given is a number n; the answer is a list of n assay.reasoning.geocode.Problem
task faults     given is a list of problems as plain data (Problem.from_dict reads one); some have a fault. The answer
                is a list of truth values: is the problem refused?
"""

METRICS = {
    "contradicted": "problems whose answer a second figure with the same givens contradicts (40 digits, no deduction)",
    "sound": "problems that pass all five checks",
    "depth": "median number of facts and givens that an answer rests on",
    "entities": "mean number of points, segments and circles",
    "relations": "mean number of facts and givens",
    "caught": "problems with a fault that are refused",
    "caught_share": "the same as a share",
    "false_alarm": "sound problems that are refused",
} | {name.replace(" ", "_"): f"of the fault '{name}', the share refused" for name in FAULTS}

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 3, Budget.FULL: 3, Budget.PAPER: 5}


def _check_arms() -> tuple[Arm, ...]:
    arms = [
        Arm(f"no-{name}", partial(run_checks, without=(name,)), "ablation", f"without the {name} check", ("faults",))
        for name in GATES
    ]
    everything = tuple(GATES)
    return (*arms, Arm("no-checks", partial(run_checks, without=everything), "trivial", "refuses nothing", ("faults",)))


def run_method(given: Any, seed: int, budget: Budget) -> Any:
    """Make problems, or check given ones, by the task."""
    return run_generator(given, seed, budget) if isinstance(given, int) else run_checks(given, seed, budget)


CHECK_CLAIMS = (
    rate("caught", "geocode", at_least=0.99, tasks="faults", pool=True, says="the checks notice the faults"),
    *(
        higher("caught_share", "geocode", than=f"no-{name}", tasks="faults", says=f"the {name} check is needed")
        for name in GATES
    ),
)


def own(brought: Mapping[str, Path]) -> Study:
    """The study of the checks on a user's data set of problems."""
    if set(brought) != {"data"}:
        raise InputError(f"geocode takes a data set of problems as data, got {', '.join(sorted(brought)) or 'nothing'}")
    path = Path(brought["data"])
    source = path / "train" / "metadata.jsonl" if path.is_dir() else path
    n = len(read_dataset(source))
    task = Task(
        "faults",
        partial(load_faults, source=source),
        score_faults,
        f"{n} problems of {path.name}, and faults put into them",
    )
    return Study(
        name="geocode", tasks=(task,), arms=(Arm("geocode", run_method, "method", "all five checks"), *_check_arms()),
        claims=CHECK_CLAIMS, primary="caught_share", better="higher", metrics=METRICS, seeds=SEEDS, contract=CONTRACT,
    )  # fmt: skip


STUDY = Study(
    name="geocode",
    tasks=(
        Task("problems", load_size, score_problems, "problems made, judged by figures that the maker has not seen"),
        Task("faults", load_faults, score_faults, "sound problems, and the same with one fault each"),
    ),
    arms=(
        Arm("geocode", run_method, "method", "all five checks"),
        Arm(
            "template", partial(run_generator, steps=(1, 3), min_depth=1, max_depth=3), "baseline",
            "one short chain, one to three constructions, answers at depth 1 to 3", ("problems",),
        ),
        Arm(
            "unchecked", partial(run_generator, skip=tuple(GATES)), "ablation", "the generator without checks",
            ("problems",),
        ),
        *_check_arms(),
    ),
    claims=(
        rate("contradicted", "geocode", at_most=0.01, tasks="problems", pool=True, says="shipped problems are right"),
        higher("depth", "geocode", than="template", ratio=2, tasks="problems", says="twice as deep as templates"),
        higher("sound", "geocode", than="unchecked", tasks="problems", says="the generator alone is not enough"),
        *CHECK_CLAIMS,
    ),
    primary="caught_share",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={"data": "problems as `assay use geocode make` writes them (.jsonl): faults are put into them"},
    own=own,
)  # fmt: skip
