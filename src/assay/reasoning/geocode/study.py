"""The study of geocode: are problems right, each check needed, answers better after code, and tricks without reward?"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import InputError
from assay.evidence.asking import Asking
from assay.evidence.claim import at_least, higher, lower, rate
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Proportion, Study, Task
from assay.parts.chat import Chat

from .checks import GATES, oracle, verify
from .dataset import data_file, read_dataset
from .faults import FAULTS
from .grading import code_in, grade, reward_func
from .making import KINDS, generate, generate_one
from .problem import Problem
from .questions import Question, ask, question_of
from .scene import Scene
from .score import score_code
from .tricks import HONEST, attempts, generous_reward

PROBLEMS = {Budget.SMOKE: 3, Budget.QUICK: 93, Budget.FULL: 200, Budget.PAPER: 1000}
DEPTHS = {Budget.SMOKE: 3, Budget.QUICK: 20, Budget.FULL: 60, Budget.PAPER: 300}
FAULTY = {Budget.SMOKE: 2, Budget.QUICK: 12, Budget.FULL: 40, Budget.PAPER: 200}
TRICKED = {Budget.SMOKE: 3, Budget.QUICK: 20, Budget.FULL: 60, Budget.PAPER: 300}
ASKED = {Budget.SMOKE: 3, Budget.QUICK: 40, Budget.FULL: 60, Budget.PAPER: 300}
LESSONS = {Budget.SMOKE: 200, Budget.QUICK: 3000, Budget.FULL: 3000, Budget.PAPER: 30_000}
STEPS = {Budget.SMOKE: 10, Budget.QUICK: 600, Budget.FULL: 1500, Budget.PAPER: 15_000}
READ = 300
LEARNING = (Budget.QUICK, Budget.FULL, Budget.PAPER)
"""The budgets in which networks are trained; smoke has no time for that."""


# --- are the problems right, and how deep are they? -----------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """How many problems an arm shall make."""

    n: int


def load_size(seed: int, budget: Budget, sizes: Mapping[Budget, int]) -> tuple[Wanted, int]:
    """How many problems to make; there is nothing hidden."""
    return Wanted(sizes[budget]), sizes[budget]


def run_generator(
    given: Wanted, seed: int, budget: Budget, steps: tuple[int, int] = (2, 6), min_depth: int = 4,
    max_depth: int | None = None, skip: tuple[str, ...] = (),
) -> list[Problem]:  # fmt: skip
    """Problems of the generator with other settings, or with checks left out."""
    problems: list[Problem] = []
    for i in range(given.n):
        rng = random.Random(f"study {seed} {i}")
        made: Problem | str = ""
        while not isinstance(made, Problem):
            made = generate_one(f"s{seed}-{i}", rng, steps, min_depth, KINDS, 0.5, skip, max_depth)
        problems.append(made)
    return problems


def run_method_generator(given: Wanted, seed: int, budget: Budget) -> list[Problem]:
    """Problems of the generator as it is, made once for both tasks that ask for them."""
    most = PROBLEMS[budget]

    def make(folder: Path) -> None:
        made = run_generator(Wanted(most), seed, budget)
        (folder / "made.json").write_text(json.dumps([problem.to_dict() for problem in made]), encoding="utf-8")

    folder = shared(["geocode problems", seed, most], make)
    rows = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    return [Problem.from_dict(row) for row in rows[: given.n]]


def score_problems(output: Any, hidden: int) -> Mapping[str, Any]:
    """Answers that another figure with the same givens contradicts, and how deep the problems are."""
    if not isinstance(output, Sequence) or len(output) != hidden or not all(isinstance(p, Problem) for p in output):
        raise ValueError(f"the output must be a list of {hidden} problems")
    wrong, sound = sum(bool(oracle(problem)) for problem in output), sum(verify(problem).ok for problem in output)
    return {
        "good": sound / hidden,
        "contradicted": Proportion(wrong, hidden),
        "depth": float(statistics.median(problem.depth for problem in output)),
        "entities": statistics.mean(len(p.coords) + len(p.scene.segments) + len(p.scene.circles) for p in output),
        "relations": statistics.mean(len(problem.seed.facts) + len(problem.seed.givens) for problem in output),
    }


# --- is each check needed? ------------------------------------------------------------------------------------------


def _faulty(seed: int, n: int, source: Path | None) -> list[tuple[str, Problem]]:
    rng = random.Random(f"faults {seed}")
    if source is None:
        sound = generate(n, seed=seed)
    else:
        brought = read_dataset(source)
        sound = rng.sample(brought, min(n, len(brought)))
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
    metrics["good"] = metrics["caught_share"] = sum(bad) / len(bad)
    for name in FAULTS:
        of_kind = [flag for flag, fault in zip(flags, hidden, strict=True) if fault == name]
        if of_kind:
            metrics[name.replace(" ", "_")] = sum(of_kind) / len(of_kind)
    return metrics


# --- does code before the answer help? ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lesson:
    """Items to learn from (``AlignItems``), and images with questions to answer."""

    items: Any
    images: Any
    questions: Any


def load_alignment(seed: int, budget: Budget) -> tuple[Lesson, Any]:
    """Triangles to learn from and others to be read; drawn once for all arms."""
    from .align_data import AlignItems, align_items

    n = LESSONS[budget]

    def make(folder: Path) -> None:
        for name, value in vars(align_items(n + READ, seed=seed)).items():
            np.save(folder / f"{name}.npy", value)

    folder = shared(["geocode alignment", seed, n, READ], make)
    items = AlignItems(**{name: np.load(folder / f"{name}.npy") for name in AlignItems.__dataclass_fields__})
    test = items[n:]
    return Lesson(items[:n], test.images, test.questions), test


def run_learner(given: Lesson, seed: int, budget: Budget, mode: str = "code", shuffled: bool = False) -> Any:
    """A network that learns in a mode; ``shuffled`` gives each image the code of another."""
    from .align_data import AlignItems
    from .align_training import train_align

    items = given.items
    if shuffled:
        other = np.random.default_rng(seed).permutation(len(items))
        items = AlignItems(items.images, items.questions, items.corners[other], items.marks[other], items.answers)
    net = train_align(items, mode, steps=STEPS[budget], seed=seed % 2**31, device="cpu")
    return net.read(given.images, given.questions)


def run_typical(given: Lesson, seed: int, budget: Budget) -> Any:
    """The median answer to each question, without looking."""
    from .align_training import typical_answers

    return typical_answers(given.items, given.questions)


def score_alignment(output: Any, hidden: Any) -> Mapping[str, float]:
    """How well marks were read and questions answered."""
    from .align_net import Read
    from .align_training import score_read

    if not isinstance(output, Read):
        output = Read(np.asarray(output))
    found = dict(score_read(output, hidden).metrics())
    if "solved_read" in found and "solved_misread" in found:
        found["annotation_gain"] = found["solved_read"] - found["solved_misread"]
    return {"good": found["within"], **found}


# --- do tricks pay? -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Completions:
    """What was handed in for each problem, with the right answer and the drawing's code."""

    texts: tuple[tuple[str, ...], ...]
    answers: tuple[str, ...]
    scenes: tuple[str, ...]


def load_tricks(seed: int, budget: Budget) -> tuple[Completions, list[tuple[str, ...]]]:
    """Honest work with faults and tricks, in a random order; hidden is which is which."""
    n = TRICKED[budget]

    def make(folder: Path) -> None:
        made = [problem.to_dict() for problem in generate(n, seed=seed)]
        (folder / "made.json").write_text(json.dumps(made), encoding="utf-8")

    rows = json.loads((shared(["geocode tricks", seed, n], make) / "made.json").read_text(encoding="utf-8"))
    problems = [Problem.from_dict(row) for row in rows]
    texts, names = [], []
    for i, problem in enumerate(problems):
        rng = random.Random(f"tricks {seed} {i}")
        tried = list(attempts(problem, rng).items())
        rng.shuffle(tried)
        names.append(tuple(name for name, _ in tried))
        texts.append(tuple(text for _, text in tried))
    answers = tuple(problem.answer.text() for problem in problems)
    return Completions(tuple(texts), answers, tuple(problem.scene.to_json() for problem in problems)), names


def run_reward(given: Completions, seed: int, budget: Budget, generous: bool = False) -> list[list[float]]:
    """The reward of each completion."""
    rewards = []
    for texts, answer, code in zip(given.texts, given.answers, given.scenes, strict=True):
        gold = Scene.from_json(code)
        if generous:
            rewards.append(generous_reward(texts, answer, gold))
        else:
            rewards.append(reward_func(None, texts, [answer] * len(texts), [gold] * len(texts)))
    return rewards


def score_tricks(output: Any, hidden: list[tuple[str, ...]]) -> Mapping[str, Any]:
    """Problems in which a trick earns more than honest work."""
    if not isinstance(output, Sequence) or [len(row) for row in output] != [len(names) for names in hidden]:
        raise ValueError(f"the output must be {len(hidden)} lists, with a reward for each completion")
    won, margins = 0, []
    for row, names in zip(output, hidden, strict=True):
        rewards = dict(zip(names, map(float, row), strict=True))
        mine = rewards.pop(HONEST)
        margins.append(mine - max(rewards.values()))
        won += margins[-1] < -1e-9
    n = len(hidden)
    return {"good": 1 - won / n, "trick_won": Proportion(won, n), "trick_share": won / n, "margin": min(margins)}


# --- does a large model answer better when it writes code first? ----------------------------------------------------


class Later(Sequence[Any]):
    """A list that is made when it is first looked at: without a model nobody does."""

    def __init__(self, n: int, make: Callable[[], list[Any]]) -> None:
        self.n, self.make, self.made = n, make, []

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, at: Any) -> Any:
        self.made = self.made or self.make()
        return self.made[at]


def load_questions(seed: int, budget: Budget) -> tuple[Sequence[Question], Sequence[Problem]]:
    """Problems with some givens in the drawing alone, as images and texts."""
    n = ASKED[budget]
    problems = Later(n, partial(generate, n, visual_only=1.0, seed=seed))
    return Later(n, lambda: [question_of(problem) for problem in problems]), problems


def ask_model(chat: Chat, given: Sequence[Question], seed: int, budget: Budget, code: bool) -> list[str]:
    """What the user's model says, with or without code before the answer."""
    return ask(chat, given, code=code, seed=seed % 2**31)


def score_questions(output: Any, hidden: Sequence[Problem]) -> Mapping[str, float]:
    """Right answers, and how well the drawing was written down."""
    if not isinstance(output, Sequence) or len(output) != len(hidden) or not all(isinstance(t, str) for t in output):
        raise ValueError(f"the output must be {len(hidden)} texts, one a problem")
    right = statistics.mean(grade(text, problem.answer) for text, problem in zip(output, hidden, strict=True))
    code = statistics.mean(
        score_code(code_in(text), problem.scene).total for text, problem in zip(output, hidden, strict=True)
    )
    return {"good": right, "right": right, "code": code}


CONTRACT = """f(given, seed) -> output; choose a task with --task

problems, depth   given.n is a number; the answer is a list of so many assay.reasoning.geocode.Problem
faults            given is a list of problems as plain data (Problem.from_dict reads one); some have a fault. The
                  answer is a list of truth values: is the problem refused?
alignment         given.items are drawings with code and answers to learn from; the answer is a list of degrees, one for
                  each of given.images with given.questions
tricks            given.texts are completions of each problem, beside given.answers and given.scenes; the answer is a
                  list of rewards for each problem
questions         given is a list of images (PNG) with texts; the answer is a list of texts, each with \\boxed{answer}
"""

METRICS = {
    "good": "share of what is right: sound problems, faults caught, answers within 5°, honest work on top",
    "contradicted": "problems whose answer a second figure with the same givens contradicts (40 digits, no deduction)",
    "depth": "median number of facts and givens that an answer rests on",
    "entities": "mean number of points, segments and circles",
    "relations": "mean number of facts and givens",
    "caught": "problems with a fault that are refused",
    "caught_share": "the same as a share",
    "false_alarm": "sound problems that are refused",
    "exact": "answers that are right",
    "within": "answers that are right to 5°",
    "mean_error": "mean distance from the right answer, in degrees",
    "annotation": "drawings whose marks were all read right",
    "solved_read": "right answers where the marks were read right",
    "solved_misread": "right answers where they were not",
    "annotation_gain": "the difference of the two",
    "code": "mean score of the drawing code",
    "trick_won": "problems in which a trick earns more than honest work",
    "trick_share": "the same as a share",
    "margin": "by how much honest work earns more than the best trick, at the least",
    "right": "answers that are graded right",
} | {name.replace(" ", "_"): f"of the fault '{name}', the share refused" for name in FAULTS}

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 4, Budget.FULL: 5, Budget.PAPER: 5}


def _check_arms() -> tuple[Arm, ...]:
    arms = [
        Arm(f"no-{name}", partial(run_checks, without=(name,)), "ablation", f"without the {name} check", ("faults",))
        for name in GATES
    ]
    everything = tuple(GATES)
    return (*arms, Arm("no-checks", partial(run_checks, without=everything), "trivial", "refuses nothing", ("faults",)))


def run_method(given: Any, seed: int, budget: Budget) -> Any:
    """Make problems, check given ones, learn with code, or reward, by the task."""
    if isinstance(given, Wanted):
        return run_method_generator(given, seed, budget)
    if isinstance(given, Lesson):
        return run_learner(given, seed, budget)
    return run_reward(given, seed, budget) if isinstance(given, Completions) else run_checks(given, seed, budget)


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
    source = data_file(path)
    n = len(read_dataset(source))
    task = Task(
        "faults",
        partial(load_faults, source=source),
        score_faults,
        f"problems of {path.name} ({n}; by the budget not all are used), and faults put into them",
    )
    return Study(
        name="geocode", tasks=(task,), arms=(Arm("geocode", run_method, "method", "all five checks"), *_check_arms()),
        claims=CHECK_CLAIMS, primary="good", better="higher", metrics=METRICS, seeds=SEEDS, contract=CONTRACT,
    )  # fmt: skip


STUDY = Study(
    name="geocode",
    tasks=(
        Task(
            "problems", partial(load_size, sizes=PROBLEMS), score_problems,
            "problems made, judged by figures that the maker has not seen",
        ),
        Task("depth", partial(load_size, sizes=DEPTHS), score_problems, "the same with fewer problems, for depth"),
        Task("faults", load_faults, score_faults, "sound problems, and the same with one fault each"),
        Task(
            "alignment", load_alignment, score_alignment, "triangles whose angles stand in the image alone",
            budgets=LEARNING,
        ),
        Task("tricks", load_tricks, score_tricks, "honest work with faults among answers that try to earn without"),
        Task("questions", load_questions, score_questions, "images and texts for a model that sees images"),
    ),
    arms=(
        Arm(
            "geocode", run_method, "method",
            "the generator, all five checks, a network that writes code before the answer, and the reward",
            ("problems", "depth", "faults", "alignment", "tricks"),
        ),
        Arm(
            "template", partial(run_generator, steps=(1, 3), min_depth=1, max_depth=3), "baseline",
            "one short chain, one to three constructions, answers at depth 1 to 3", ("depth",),
        ),
        Arm(
            "unchecked", partial(run_generator, skip=tuple(GATES)), "ablation", "the generator without checks",
            ("depth",),
        ),
        *_check_arms(),
        Arm("answer", partial(run_learner, mode="answer"), "baseline", "a network that only answers", ("alignment",)),
        Arm(
            "caption", partial(run_learner, mode="caption"), "baseline",
            "a network that first writes a sentence with both numbers", ("alignment",), (Budget.FULL, Budget.PAPER),
        ),
        Arm(
            "other-code", partial(run_learner, shuffled=True), "ablation",
            "a network that learns with the code of other drawings", ("alignment",), (Budget.FULL, Budget.PAPER),
        ),
        Arm("typical", run_typical, "trivial", "the median answer to each question", ("alignment",)),
        Arm(
            "generous", partial(run_reward, generous=True), "baseline",
            "a reward for what is found, without a loss for what is made up", ("tricks",),
        ),
        Arm(
            "model-code", Asking(partial(ask_model, code=True)), "baseline",
            "your model, asked for code before the answer", ("questions",),
        ),
        Arm("model", Asking(partial(ask_model, code=False)), "baseline", "your model, asked to answer", ("questions",)),
    ),
    claims=(
        rate("contradicted", "geocode", at_most=0.01, tasks="problems", pool=True, says="shipped problems are right"),
        at_least("depth", "geocode", 2.0, of="template", tasks="depth", says="twice as deep as templates"),
        higher("relations", "geocode", than="template", tasks="depth", says="more facts and givens than templates"),
        higher("good", "geocode", than="unchecked", tasks="depth", says="the generator alone is not enough"),
        *CHECK_CLAIMS,
        higher(
            "within", "geocode", than="answer", tasks="alignment",
            says="code before the answer brings more answers within 5°",
        ),
        lower("mean_error", "geocode", than="answer", tasks="alignment", says="code before the answer lowers errors"),
        higher("within", "geocode", than="other-code", tasks="alignment", says="the code must be that of the drawing"),
        higher("within", "geocode", than="caption", tasks="alignment", says="code helps more than a caption"),
        at_least(
            "annotation_gain", "geocode", 0.0, tasks="alignment",
            says="drawings whose marks are read right are solved more often",
        ),
        rate("trick_won", "geocode", at_most=0.05, tasks="tricks", pool=True, says="tricks do not earn more than work"),
        lower("trick_share", "geocode", than="generous", tasks="tricks", says="a plain reward would be gamed"),
        higher(
            "right", "model-code", than="model", tasks="questions", says="your model answers better after code",
            needs="a model that sees images",
        ),
    ),
    primary="good",
    better="higher",
    metrics=METRICS,
    seeds=SEEDS,
    base_seed=4000,
    contract=CONTRACT,
    accepts={"data": "problems as `assay use geocode make` writes them: a folder or .jsonl; faults are put into them"},
    own=own,
)  # fmt: skip
