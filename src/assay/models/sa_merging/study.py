"""The study of saliency-aware merging: is it better than simple rules, and which of its parts does the work?"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from assay.errors import InputError
from assay.evidence.claim import at_least, higher
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts import docstring_hub
from assay.parts.checkpoints import load_model

from . import baselines, docstrings, language
from .merging import merge, shorten
from .own import load_own, read_suite, score_own
from .suites import State, Suite, accuracies, embed_tokens, read

SCALES = (0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
"""From these each arm's best scale is chosen on the tuning part, which breaks the rule that merging needs no data."""

SIZES = {
    Budget.SMOKE: docstrings.Size(sentences=12, families=4, hidden=96, base_steps=60),
    Budget.QUICK: docstrings.Size(sentences=48, families=20, hidden=512, base_steps=200),
    Budget.FULL: docstrings.Size(sentences=80, families=20, hidden=512, base_steps=300),
    Budget.PAPER: docstrings.Size(sentences=80, families=20, hidden=512, base_steps=300),
}
STEPS = {"docstrings-4": (4, 150, 3e-4), "docstrings-8": (8, 200, 8e-4)}
"""Experts, steps of fine-tuning, learning rate."""


@dataclass(frozen=True)
class Given:
    """What an arm sees: the base as a module and the experts' weights; for language models folders or adapters."""

    base: Any
    experts: Sequence[Any]


class OwnExperts:
    """The ceiling's output: each question is answered by its own expert."""


def load_docstrings(seed: int, budget: Budget, name: str) -> tuple[Given, Suite]:
    """Experts on docstrings, made once for all arms."""
    size = SIZES[budget]
    experts, steps, rate = STEPS[name]
    if budget is Budget.SMOKE:
        steps //= 3
    key = [docstring_hub.digest(docstrings.table(size)), repr(size)]
    kept = shared(["features", *key], partial(docstrings.features, size))
    base = shared(["base", *key, seed], partial(docstrings.make_base, kept, seed, size))
    folder = shared(
        ["experts", *key, seed, experts, steps, rate],
        partial(docstrings.make_experts, kept, base, seed, size, experts, steps, rate),
    )
    return _given(docstrings.load(folder, size))


def load_minilm(seed: int, budget: Budget) -> tuple[Given, Suite]:
    """MiniLM itself, fine-tuned on four kinds of text."""
    folder = shared(["minilm", seed], partial(language.make_minilm_experts, seed))
    return _given(read(folder, language.minilm_network(), embed_tokens))


def _given(suite: Suite) -> tuple[Given, Suite]:
    base = copy.deepcopy(suite.network)
    base.load_state_dict(suite.base)
    return Given(base, suite.experts), suite


def load_lora(seed: int, budget: Budget) -> tuple[Given, language.LoraQuestions]:
    """Four LoRA adapters of SmolLM2, each trained on another set of questions."""
    folder = shared(["lora", seed], partial(language.make_adapters, seed))
    adapters = sorted(path for path in folder.iterdir() if path.is_dir())
    return Given(language.smollm2_folder(), adapters), language.lora_questions(seed)


def score_update(output: State | OwnExperts, suite: Suite) -> Mapping[str, float]:
    """Accuracy as a share of the experts', at the output's own scale and at the best of several."""
    theirs = [accuracies(suite, expert, "test", [n])[0] for n, expert in enumerate(suite.experts)]
    if isinstance(output, OwnExperts):
        return {"accuracy": 1.0, "loss": sum(float(t[1]) for t in theirs) / len(theirs)}

    def share(scale: float, part: str) -> tuple[float, float]:
        state = {name: start + scale * output[name] for name, start in suite.base.items()}
        found = accuracies(suite, state, part)
        best = theirs if part == "test" else [(1.0, 0.0)] * len(theirs)
        ratio = sum(float(f[0] / b[0]) for f, b in zip(found, best, strict=True)) / len(found)
        return ratio, float(found[:, 1].mean())

    accuracy, loss = share(1.0, "test")
    changed = sum(int((t != 0).sum()) for t in output.values()) / sum(t.numel() for t in output.values())
    if changed == 0:
        return {"accuracy": accuracy, "loss": loss, "changed": 0.0}
    best = max(SCALES, key=lambda scale: share(scale, "tune")[0])
    tuned = share(best, "test")[0]
    return {
        "accuracy": accuracy, "loss": loss, "changed": changed, "best_scale": best, "accuracy_at_best_scale": tuned,
        "of_best_scale": accuracy / tuned,
    }  # fmt: skip


def _update(merged: nn.Module, base: nn.Module) -> State:
    start = base.state_dict()
    return {name: tensor - start[name] for name, tensor in merged.state_dict().items()}


def _ours(given: Given, seed: int, budget: Budget, **options: Any) -> State:
    return _update(merge(given.base, given.experts, device="cpu", **options), given.base)


def _rule(given: Given, seed: int, budget: Budget, rule: Callable[..., Any], **options: Any) -> State:
    return _update(rule(given.base, given.experts, device="cpu", **options), given.base)


def _dare(given: Given, seed: int, budget: Budget) -> State:
    rule = partial(baselines.dare, seed=seed)
    return _rule(given, seed, budget, rule)


def _deltas(given: Given) -> list[State]:
    start = given.base.state_dict()
    states = [load_model(e).state_dict() if isinstance(e, Path) else e for e in given.experts]
    return [{name: state[name].to(tensor) - tensor for name, tensor in start.items()} for state in states]


def _capped(given: Given, seed: int, budget: Budget, rule: Callable[..., Any], **options: Any) -> State:
    """A simple rule's update under the cap of the method."""
    update, deltas = _rule(given, seed, budget, rule, **options), _deltas(given)
    return {n: shorten(t, [float(d[n].double().norm()) for d in deltas]) for n, t in update.items()}


def no_consensus(given: Given, seed: int, budget: Budget) -> State:
    """Each expert is pruned by the sensitivities and its own update alone; then summed and capped all the same."""
    start = given.base.state_dict()
    alone = [merge(given.base, [expert], device="cpu").state_dict() for expert in given.experts]
    deltas = _deltas(given)
    return {
        name: shorten(
            torch.stack([state[name] - tensor for state in alone]).sum(0),
            [float(d[name].double().norm()) for d in deltas],
        )
        for name, tensor in start.items()
    }


def load_users(seed: int, budget: Budget, base: Path, judged: Any) -> tuple[Given, Any]:
    """A user's base and experts."""
    model, folders, suite = load_own(seed, budget, base, judged)
    return Given(model, folders), suite


def score_users(output: State | OwnExperts, suite: Any) -> Mapping[str, float]:
    """Quality on each expert's text as a share of the expert's own."""
    return score_own(None if isinstance(output, OwnExperts) else output, suite)


def nothing(given: Given, seed: int, budget: Budget) -> Any:
    """The base as it is."""
    if isinstance(given.base, Path):
        return language.MergedAdapter({}, 1.0)
    return {name: torch.zeros_like(tensor) for name, tensor in given.base.state_dict().items()}


def experts(given: Given, seed: int, budget: Budget) -> OwnExperts:
    """Every expert on its own."""
    return OwnExperts()


def sa_merging(given: Given, seed: int, budget: Budget) -> Any:
    """The method with its defaults: on modules an update, on adapters a merged adapter."""
    if isinstance(given.base, Path):
        return language.merged_adapter(given.base, given.experts, keep=0.5)
    return _ours(given, seed, budget)


def adapter_sum(given: Given, seed: int, budget: Budget) -> Any:
    """All components of all adapters."""
    return language.merged_adapter(given.base, given.experts, keep=1.0)


MODULES = ("docstrings-4", "docstrings-8", "minilm")
UNTUNED = ("average", "task-arithmetic", "ties", "dare")
FULL = (Budget.FULL, Budget.PAPER)


def _arm(name: str, run: Callable[..., Any], role: Any, what: str, tasks: tuple[str, ...] = MODULES) -> Arm:
    return Arm(name, run, role=role, what=what, tasks=tasks)


ARMS = (
    _arm("sa-merging", sa_merging, "method", "the method with its defaults", (*MODULES, "lora")),
    _arm("plain-sum", partial(_ours, combine="sum"), "ablation", "without the cap: the source's own sum"),
    _arm("source", partial(_ours, combine="sum", keep=0.1), "ablation", "the source's sum and share kept (0.1)"),
    _arm("no-consensus", no_consensus, "ablation", "each expert pruned without looking at the others"),
    _arm("no-sensitivity", partial(_ours, connectivity="none"), "ablation", "every sensitivity is 1"),
    _arm("one-shot", partial(_ours, rounds=1), "ablation", "all is dropped in one round"),
    _arm("capped-sum", partial(_capped, rule=baselines.task_arithmetic, scale=1.0), "ablation", "only the cap"),
    _arm(
        "capped-magnitude",
        partial(_capped, rule=baselines.magnitude, density=0.2),
        "ablation",
        "the largest updates, summed and capped",
    ),
    _arm("average", partial(_rule, rule=baselines.average), "trivial", "the experts' mean"),
    _arm("task-arithmetic", partial(_rule, rule=baselines.task_arithmetic), "baseline", "0.3 × the summed updates"),
    _arm("ties", partial(_rule, rule=baselines.ties), "baseline", "TIES, density 0.2, scale 1"),
    _arm("dare", _dare, "baseline", "DARE, density 0.1, scale 0.3"),
    _arm("magnitude", partial(_rule, rule=baselines.magnitude), "baseline", "the largest tenth of each update, summed"),
    _arm("base", nothing, "trivial", "the base as it is", (*MODULES, "lora")),
    _arm("experts", experts, "ceiling", "each expert on its own questions"),
    Arm("adapter-sum", adapter_sum, role="baseline", what="all adapters summed", tasks=("lora",)),
)  # fmt: skip

TASKS = (
    Task(
        "docstrings-4", partial(load_docstrings, name="docstrings-4"), score_update,
        "4 experts on docstrings, one a package, fine-tuned briefly (150 steps, rate 3e-4)",
    ),
    Task(
        "docstrings-8", partial(load_docstrings, name="docstrings-8"), score_update,
        "8 experts on docstrings, fine-tuned longer (200 steps, rate 8e-4), so that their updates overlap",
        budgets=(Budget.QUICK, *FULL),
    ),
    Task(
        "minilm", load_minilm, score_update,
        "MiniLM itself fine-tuned on news topics, film reviews, Reuters-8 and the authors of tweets",
        budgets=FULL,
    ),
    Task(
        "lora", load_lora, language.score_adapter,
        "4 LoRA adapters (rank 8) of SmolLM2-135M: BoolQ, PIQA, CommonsenseQA, film reviews", budgets=FULL,
    ),
)  # fmt: skip

CONTRACT = (
    "f(given, seed): given.base is a torch module and given.experts the experts' state dicts (on lora and your own "
    "models: folders); return the merged update (merged minus base) as a dictionary of tensors by name"
)

METRICS = {
    "accuracy": "mean over tasks of the merged model's accuracy as a share of the expert's; on lora plain accuracy",
    "loss": "mean cross-entropy on held-out text",
    "changed": "share of the base's numbers that merging changed",
    "best_scale": "the scale of the update that does best on the tuning part",
    "accuracy_at_best_scale": "accuracy with that scale, which needs data",
    "of_best_scale": "accuracy as a share of that at the best scale",
    "ranks_out": "share of the adapters' ranks that are left out",
}


def own(paths: Mapping[str, Path]) -> Study:
    """The rules on the user's base and experts: nothing is trained, and each seed draws other lines to judge by."""
    if set(paths) != {"model", "data"}:
        raise InputError("sa-merging takes a base as --model and a JSON file that names the experts as --data")
    judged = read_suite(paths["data"])
    task = Task(
        "yours", partial(load_users, base=paths["model"], judged=judged), score_users,
        f"{len(judged)} experts of {paths['model'].name}, each judged on its own text",
    )  # fmt: skip
    arms = tuple(dataclasses.replace(arm, tasks=None) for arm in ARMS if "docstrings-4" in (arm.tasks or ()))
    return Study(
        name="sa-merging",
        tasks=(task,),
        arms=arms,
        claims=(
            *(higher("accuracy", "sa-merging", than=n, says=f"sa-merging beats {n} on your experts") for n in UNTUNED),
            higher("accuracy", "sa-merging", than="no-sensitivity", says="connectivity helps on your experts"),
        ),
        primary="accuracy",
        better="higher",
        metrics={
            "accuracy": "quality on each expert's text as a share of the expert's (accuracy, or token probability)"
        },
        seeds=dict.fromkeys(Budget, 3),
        contract=CONTRACT,
    )


STUDY = Study(
    name="sa-merging",
    tasks=TASKS,
    arms=ARMS,
    claims=(
        higher("accuracy", "sa-merging", than=UNTUNED, tasks=MODULES, says="beats untuned data-free rules"),
        higher("accuracy", "source", than=UNTUNED, tasks=MODULES, says="the source's sum beats untuned rules too"),
        higher("accuracy", "sa-merging", than="no-consensus", tasks=MODULES, says="the parts matter: agreement"),
        higher("accuracy", "sa-merging", than="no-sensitivity", tasks=MODULES, says="the parts matter: connectivity"),
        higher("accuracy", "sa-merging", than="plain-sum", tasks=MODULES, says="the parts matter: the cap"),
        higher(
            "accuracy", "sa-merging", than=("capped-sum", "capped-magnitude"), tasks=MODULES,
            says="it is not the cap alone",
        ),
        higher("accuracy", "sa-merging", than="one-shot", tasks=MODULES, says="ten rounds beat one"),
        at_least("of_best_scale", "sa-merging", 0.97, tasks=MODULES, says="no tuning needed"),
        at_least("ranks_out", "sa-merging", 0.5, tasks="lora", says="a merged adapter leaves half of the ranks out"),
        at_least(
            "accuracy", "sa-merging", 0.97, of="adapter-sum", tasks="lora", says="and loses little by that"
        ),
    ),
    primary="accuracy",
    better="higher",
    metrics=METRICS,
    seeds={Budget.SMOKE: 3, Budget.QUICK: 5, Budget.FULL: 3, Budget.PAPER: 5},
    contract=CONTRACT,
    accepts={
        "model": "the base, a Hugging Face folder of a causal language model (with --data)",
        "data": 'a JSON file [{"model": EXPERT_FOLDER, "data": JSONL}, …]; a line of a JSONL is {"text": …} or '
        '{"question": …, "options": […], "answer": INDEX}',
    },
    own=own,
)  # fmt: skip
