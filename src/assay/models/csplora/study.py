"""The study of csplora: does LoRA learn more where a probe puts its ranks, and does the probe's weighting matter?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from assay.errors import InputError
from assay.evidence.claim import at_least, at_most, holds, lower
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts import lm_scoring, minilm, smollm2, text
from assay.parts.checkpoints import load_config, load_tokenizer

from . import contenders
from .contenders import Given, Scaling, Setting, Trained
from .examples import Encoded, Rows, classes, collate, encode_labelled, encode_language, is_regression, read_rows
from .heads import head_parameters
from .plan import RankPlan
from .scores import ModuleScores
from .training import evaluate

QUICK_UP = (Budget.QUICK, Budget.FULL, Budget.PAPER)
FULL_UP = (Budget.FULL, Budget.PAPER)
PAPER = (Budget.PAPER,)

SETTINGS = {
    Budget.SMOKE: Setting(steps=3, head_steps=3, probe_steps=5),
    Budget.QUICK: Setting(steps=24, head_steps=16, probe_steps=8),
    Budget.FULL: Setting(steps=60, head_steps=20, probe_steps=20),
    Budget.PAPER: Setting(steps=300, head_steps=50, probe_steps=50),
}
"""The learning rate is the best of 3e-3, 6e-3 and 1.2e-2 for uniform LoRA on films and news together, at seed 0."""

LANGUAGE = {
    Budget.FULL: Setting(steps=12, rank=4, batch=8, probe_steps=6, lr=2e-3),
    Budget.PAPER: Setting(steps=300, rank=4, batch=16, probe_steps=50, lr=1e-3),
}

LENGTH = {Budget.SMOKE: 16, Budget.QUICK: 20, Budget.FULL: 24, Budget.PAPER: 64}
"""Tokens a text."""

ROWS = {Budget.SMOKE: (48, 32), Budget.QUICK: (2000, 160), Budget.FULL: (2000, 400), Budget.PAPER: (4000, 1000)}
"""Rows for training and for the score."""

OWN_LEAST = 60
"""Rows of a user's file: a third of them are for the score."""

BUDGETS = (4, 8, 16)
"""Ranks at which a plan is checked against its scores."""


@dataclass(frozen=True)
class Hidden:
    """What only the score sees: held-out rows in batches; for multiple choice also the questions."""

    batches: list[dict[str, Any]]
    choices: list[text.Choice]
    tokenizer: Any


# ---- the data ----------------------------------------------------------------------------------------------------


def movie_rows(seed: int) -> tuple[Rows, Rows]:
    """Sentences of film reviews, good or bad; those rated within 0.5 of neutral are left out."""
    texts, ratings = text.sentiment("movie")
    kept = [i for i, rating in enumerate(ratings) if abs(rating) > 0.5]
    rows = Rows([texts[i] for i in kept], ["good" if ratings[i] > 0 else "bad" for i in kept])
    return _split(rows, seed)


def reuters_rows(seed: int) -> tuple[Rows, Rows]:
    """News in 8 topics, in the data set's own split."""
    return Rows(*text.reuters(8, "train")).sample(10**6, seed), Rows(*text.reuters(8, "test")).sample(10**6, seed)


def newsgroups_rows(seed: int) -> tuple[Rows, Rows]:
    """Posts in 20 groups, in the data set's own split."""
    return Rows(*text.newsgroups("train")).sample(10**6, seed), Rows(*text.newsgroups("test")).sample(10**6, seed)


def own_rows(path: Path, seed: int) -> tuple[Rows, Rows]:
    """A user's rows."""
    return _split(read_rows(path, "text", "label"), seed)


def _split(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    mixed = rows.sample(len(rows), seed)
    third = len(mixed) // 3
    return mixed.take(range(third, len(mixed))), mixed.take(range(third))


# ---- tasks -------------------------------------------------------------------------------------------------------


def load_classification(
    seed: int,
    budget: Budget,
    rows: Callable[[int], tuple[Rows, Rows]],
    name: str,
    change: Mapping[str, Any] | None = None,
    source: str | None = None,
) -> tuple[Given, Hidden]:
    """Texts with classes, for MiniLM (a tiny random network at budget smoke) or a user's model."""
    train, test = rows(seed)
    numbers = classes(Rows([], sorted({str(label) for label in [*(train.labels or ()), *(test.labels or ())]})))
    count, held = ROWS[budget]
    train, test = train.take(range(min(count, len(train)))), test.take(range(min(held, len(test))))
    own = source is not None
    if source is None:
        source = str(_tiny_bert() if budget is Budget.SMOKE else minilm.folder())
    tokenizer = load_tokenizer(source if own else minilm.folder())
    pad = contenders.pad_of(source, tokenizer)
    setting = replace(SETTINGS[budget], **(change or {}))
    length = LENGTH[budget]
    given = Given(
        source=source,
        labels=max(numbers.values()) + 1,
        train=encode_labelled(tokenizer, train, length, numbers),
        pad=pad,
        setting=setting,
        key=(name, seed, str(budget), _files(source), _content(train)),
    )
    return given, Hidden(_batched(encode_labelled(tokenizer, test, length, numbers), pad), [], None)


def load_choices(seed: int, budget: Budget, name: str) -> tuple[Given, Hidden]:
    """Questions and their right answers, for SmolLM2; the loss is that of the answer's tokens."""
    source = str(smollm2.folder())
    tokenizer = load_tokenizer(source)
    every = text.choices(name)
    order = np.random.default_rng(seed).permutation(len(every))
    held = 24 if budget is Budget.FULL else 300
    test, train = [every[i] for i in order[:held]], [every[i] for i in order[held:]]

    def encode(questions: list[text.Choice]) -> Encoded:
        rows = Rows([f"Question: {q.question}\nAnswer:" for q in questions], [q.options[q.answer] for q in questions])
        return encode_language(tokenizer, rows, 64)

    pad = contenders.pad_of(source, tokenizer)
    key = (name, seed, str(budget), _files(source), len(train))
    given = Given(source, 0, encode(train), pad, LANGUAGE[budget], key)
    return given, Hidden(_batched(encode(test), pad, 16), test, tokenizer)


def _content(rows: Rows) -> str:
    return hashlib.sha256(json.dumps([rows.texts, rows.labels]).encode()).hexdigest()[:16]


def _files(source: str) -> str:
    """What stands for a checkpoint's content in the key of shared work: names, sizes and times of its files."""
    files = sorted(path for path in Path(source).rglob("*") if path.is_file())
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(json.dumps([source, stats]).encode()).hexdigest()[:16]


def _batched(data: Encoded, pad: int, size: int = 64) -> list[dict[str, Any]]:
    """All rows in batches, those of like length together."""
    order = sorted(range(len(data)), key=lambda i: len(data.ids[i]))
    return [collate(data, order[start : start + size], pad) for start in range(0, len(order), size)]


def _tiny_bert() -> Path:
    def make(folder: Path) -> None:
        import torch
        from transformers import BertConfig, BertModel

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            config = BertConfig(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                max_position_embeddings=64,
            )  # fmt: skip
            BertModel(config).save_pretrained(folder)

    return shared("tiny bert", make)


def score(output: Any, hidden: Hidden) -> Mapping[str, Any]:
    """Held-out loss and accuracy of the model that an arm returns, and what the study's arms tell of themselves."""
    model = output.model if isinstance(output, Trained) else output
    if not callable(model) or not hasattr(model, "named_parameters"):
        raise ValueError(f"the output must be a model, got {type(model).__name__}")
    metrics: dict[str, Any] = dict(output.metrics) if isinstance(output, Trained) else {}
    metrics |= evaluate(model, hidden.batches)
    if hidden.choices:
        metrics["accuracy"] = 100 * lm_scoring.choice_accuracy(model, hidden.tokenizer, hidden.choices)
    return metrics


# ---- work that arms share ----------------------------------------------------------------------------------------


def head_of(given: Given, seed: int) -> Path | None:
    """The fitted head's weights; ``None`` for a language model."""

    def make(folder: Path) -> None:
        fitted = given.start(seed)
        head = {id(parameter) for parameter in head_parameters(fitted)}
        names = {name for name, parameter in fitted.named_parameters() if id(parameter) in head}
        contenders.save_weights(fitted, names, folder)

    return shared([*given.key, _sizes(given), seed, "head"], make) if given.labels else None


def started(given: Given, seed: int, head: Path | None) -> Any:
    """``given.start(seed)``, with the head fitted before."""
    model = given.model(seed)
    if head is not None:
        contenders.load_weights(model, head)
    return model


def probed(given: Given, seed: int, gamma: float = 2.0, again: bool = False) -> tuple[ModuleScores, float]:
    """The scores, and the CPU seconds of the probe; ``again``: on other batches."""
    head = head_of(given, seed)

    def make(folder: Path) -> None:
        scores, seconds = contenders.probed(given, started(given, seed, head), seed + (4 if again else 2), gamma=gamma)
        scores.save(folder / "scores.json")
        (folder / "seconds.json").write_text(json.dumps(seconds))

    folder = shared([*given.key, _sizes(given), seed, "probe", gamma, again], make)
    return ModuleScores.load(folder / "scores.json"), json.loads((folder / "seconds.json").read_text())


def trained(given: Given, seed: int, plan: RankPlan, scaling: Scaling = "constant") -> tuple[Any, float]:
    """The fine-tuned model and the CPU seconds a step took. Arms with the same ranks share it: it would be the same."""
    head = head_of(given, seed)

    def make(folder: Path) -> None:
        model = contenders.adapted(given, started(given, seed, head), plan, scaling)
        seconds = contenders.fine_tune(given, model, seed)
        contenders.save_weights(model, contenders.changed_names(model), folder)
        (folder / "seconds.json").write_text(json.dumps(seconds))

    key = [*given.key, _sizes(given), seed, "trained", list(plan.ranks.items()), scaling]
    folder = shared(key, make)
    model = contenders.adapted(given, started(given, seed, head), plan, scaling)
    contenders.load_weights(model, folder)
    return model, json.loads((folder / "seconds.json").read_text())


def _sizes(given: Given) -> list[Any]:
    return list(vars(given.setting).values())


# ---- arms --------------------------------------------------------------------------------------------------------


def run_csplora(given: Given, seed: int, budget: Budget) -> Trained:
    """The method; what is said of plan and probe is measured here too, for which it probes a second time."""
    scores, probe_seconds = probed(given, seed)
    rank = given.setting.rank
    plan = scores.plan(rank, budget="params")
    again, _ = probed(given, seed, again=True)
    model, seconds = trained(given, seed, plan)
    return Trained(
        model,
        _sizes_of(plan, given)
        | {
            "size_gap": contenders.size_gap(plan),
            "proportional": contenders.proportional(scores, BUDGETS),
            "probe_share": probe_seconds / (1000 * seconds),
            "spearman": _agreement(scores.relative(), again.relative()),
            "spearman_raw": _agreement(scores.scores, again.scores),
            "seed_distance": contenders.distance(plan, again.plan(rank, budget="params")),
        },
    )  # fmt: skip


def _agreement(scores: Mapping[str, float], other: Mapping[str, float]) -> float:
    return float(spearmanr([scores[name] for name in scores], [other[name] for name in scores]).statistic)


def run_plan(
    given: Given,
    seed: int,
    budget: Budget,
    make: Callable[[Given, int], RankPlan],
    scaling: Scaling = "constant",
) -> Trained:
    """LoRA with another plan of the same size."""
    plan = make(given, seed)
    model, _ = trained(given, seed, plan, scaling)
    return Trained(model, _sizes_of(plan, given))


def run_gamma_0(given: Given, seed: int, budget: Budget) -> Trained:
    """The method with all samples alike; how far its plan is from the method's is measured here."""
    plan = _csplora(given, seed, gamma=0.0)
    model, _ = trained(given, seed, plan)
    return Trained(model, _sizes_of(plan, given) | {"plan_distance": contenders.distance(plan, _csplora(given, seed))})


def run_peer(given: Given, seed: int, budget: Budget, peer: Callable[..., tuple[Any, float]]) -> Trained:
    """A method of PEFT that places rank itself."""
    model, _ = peer(given, started(given, seed, head_of(given, seed)), seed)
    adapters = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    return Trained(model, {"parameters": adapters, "steps": given.setting.steps})


def _sizes_of(plan: RankPlan, given: Given) -> dict[str, Any]:
    return {"parameters": plan.trainable_parameters, "steps": given.setting.steps}


def _csplora(given: Given, seed: int, gamma: float = 2.0, **options: Any) -> RankPlan:
    return probed(given, seed, gamma)[0].plan(given.setting.rank, budget="params", **options)


def _uniform(given: Given, seed: int) -> RankPlan:
    return contenders.uniform(given.model(seed), given.setting.rank)


def _shuffled(given: Given, seed: int) -> RankPlan:
    return contenders.shuffled(_csplora(given, seed), seed)


def _raw(given: Given, seed: int) -> RankPlan:
    return _csplora(given, seed, calibrate=False, smooth=False)


def _reversed(given: Given, seed: int) -> RankPlan:
    return contenders.reversed_plan(probed(given, seed)[0], given.setting.rank)


def _arms(classification: tuple[str, ...] | None) -> tuple[Arm, ...]:
    """The contenders; those that only explain or compare run on the tasks of ``classification`` (``None``: on all)."""

    def plan(make: Callable[[Given, int], RankPlan], scaling: Scaling = "constant") -> Any:
        return partial(run_plan, make=make, scaling=scaling)

    def more(name: str, run: Any, role: Any, what: str) -> Arm:
        return Arm(name, run, role, what, classification, FULL_UP)

    return (
        Arm("csplora", run_csplora, "method", "ranks by the probe, hard samples count more (γ = 2)"),
        Arm("uniform", plan(_uniform), "baseline", "the same rank everywhere"),
        Arm("gamma-0", run_gamma_0, "ablation", "ranks by the probe, all samples count the same", None, QUICK_UP),
        Arm("shuffled", plan(_shuffled), "trivial", "the plan's ranks, dealt at random", None, QUICK_UP),
        more("reversed", plan(_reversed), "ablation", "least rank where the probe would put most"),
        more("raw", plan(_raw), "ablation", "ranks by the scores as they are"),
        more("one-alpha", plan(_csplora, "source"), "ablation", "the plan with one alpha, as the source"),
        more("adalora", partial(run_peer, peer=contenders.adalora), "baseline", "PEFT's AdaLoRA"),
        more("eva", partial(run_peer, peer=contenders.eva), "baseline", "PEFT's EVA, ranks by inputs"),
    )


def _tasks() -> tuple[Task, ...]:
    def task(
        name: str,
        rows: Callable[[int], tuple[Rows, Rows]],
        what: str,
        budgets: tuple[Budget, ...],
        **change: Any,
    ) -> Task:
        return Task(
            name, partial(load_classification, rows=rows, name=name, change=change), score, what, budgets=budgets
        )

    flavours = [
        task(f"reuters-8-{name}", reuters_rows, f"the same, {what}", PAPER, **change)
        for name, what, change in (
            ("r4", "rank 4", {"rank": 4}),
            ("r8", "rank 8", {"rank": 8}),
            ("dora", "rank 4 with DoRA", {"rank": 4, "flavour": "dora"}),
            ("pissa", "rank 4, PiSSA's start", {"rank": 4, "flavour": "pissa", "lr": 1e-3}),
        )
    ]
    return (
        task("movie", movie_rows, "film reviews, good or bad; MiniLM, rank 2", QUICK_UP),
        task("reuters-8", reuters_rows, "news in 8 topics; MiniLM, rank 2", tuple(Budget)),
        task("newsgroups", newsgroups_rows, "posts in 20 groups; MiniLM, rank 2", FULL_UP),
        *flavours,
        *(
            Task(name, partial(load_choices, name=name), score, f"{what}; SmolLM2, rank 4", budgets=budgets)
            for name, what, budgets in (
                ("piqa", "how to do things", FULL_UP),
                ("commonsenseqa", "common sense", PAPER),
            )
        ),
    )


CHOICES = ("piqa", "commonsenseqa")
TASKS = _tasks()

CONTRACT = """f(given, seed) -> model

given.start(seed)          the model with a fitted head, where every arm starts
given.batches(steps, s)    batches of training rows, dictionaries for model(**batch) with labels
given.setting              steps, batch, rank, lr: the sizes that every arm keeps to
returns                    the trained model; model(input_ids=…, attention_mask=…).logits is scored
"""

METRICS = {
    "loss": "held-out cross-entropy in nats a sample (a token of the answer for a language model)",
    "accuracy": "held-out accuracy, %",
    "size_gap": "difference of the adapters' parameters from uniform LoRA's, as a share",
    "proportional": f"at ranks {', '.join(map(str, BUDGETS))} what is above the least rank follows the scores within 1",
    "probe_share": "CPU seconds of the probe over those of 1000 training steps",
    "plan_distance": "matrices whose rank differs between γ = 2 and γ = 0, on the same batches",
    "seed_distance": "matrices whose rank differs between probes on other batches",
    "spearman": "rank correlation of the calibrated scores between probes on other batches",
    "spearman_raw": "the same of the scores before calibration",
}

CLAIMS = (
    lower("loss", "csplora", than="uniform", pool=True, says="better than uniform at equal size"),
    lower("loss", "csplora", than="shuffled", pool=True, says="the placement matters"),
    lower("loss", "csplora", than="gamma-0", pool=True, says="hard samples help"),
    at_most("size_gap", "csplora", 0.02, says="same size"),
    holds("proportional", "csplora", says="one probe, many budgets"),
    at_most("probe_share", "csplora", 0.05, says="probe is cheap"),
    at_least("spearman", "csplora", 0.9, says="scores settle"),
)

SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 5, Budget.FULL: 4, Budget.PAPER: 5}


def own(paths: Mapping[str, Path]) -> Study:
    """The study on a user's rows (with the columns text and label), on a user's model, or both."""
    source = str(paths.get("model", minilm.folder()))
    load_config(source)  # says what is wrong with a checkpoint
    if "data" in paths:
        path = Path(paths["data"])
        rows = read_rows(path, "text", "label")
        if is_regression(rows):
            raise InputError(f"{path.name}: the labels are numbers with fractions; this study needs classes")
        if len(rows) < OWN_LEAST:
            raise InputError(f"{path.name} has {len(rows)} rows; this study needs at least {OWN_LEAST}")
        found = classes(rows)
        name, what = path.stem, f"{path.name}: {len(rows)} rows in {len(found)} classes"
        wanted = ((name, partial(own_rows, path), what),)
    else:
        wanted = (
            ("movie", movie_rows, "film reviews, good or bad"),
            ("reuters-8", reuters_rows, "news in 8 topics"),
        )
    tasks = tuple(
        Task(
            name, partial(load_classification, rows=rows, name=name, source=source or str(minilm.folder())), score, what
        )
        for name, rows, what in wanted
    )
    return replace(STUDY, tasks=tasks, arms=_arms(None), accepts={}, own=None)


STUDY = Study(
    name="csplora",
    tasks=TASKS,
    arms=_arms(tuple(task.name for task in TASKS if task.name not in CHOICES)),
    claims=CLAIMS,
    primary="loss",
    better="lower",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={
        "model": "a Hugging Face folder that transformers can make a classifier of",
        "data": "rows of .jsonl, .csv or .parquet with the columns text and label (classes), at least 60",
    },
    own=own,
    uses_gpu=True,
)
