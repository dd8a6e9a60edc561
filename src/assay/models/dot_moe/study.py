"""The study of DOT-MoE: does a learned cut beat others, at the same router, training, text and active size?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.errors import InputError
from assay.evidence.claim import at_least, lower
from assay.evidence.fingerprint import file_fingerprint
from assay.evidence.shared import shared
from assay.evidence.study import Arm, Budget, Study, Task
from assay.parts import smollm2, text
from assay.parts.checkpoints import load_config, load_model, load_tokenizer, without_bars
from assay.parts.lm_scoring import choice_accuracy, perplexity, token_batches

from . import baselines
from .comparison import active_parameters, converted_layers
from .config import DotMoEConfig
from .conversion import convert_layer
from .dense import DenseFFN, sites
from .ffn import DotMoEFFN, capacities
from .global_stage import train_together
from .samples import keep_layers, kept_inputs, kept_layer, made_up_layer

EXPERTS, TOP_K = 8, 2
LENGTH = 128
"""Tokens in a row."""

LAYERS = (2, 14, 26)
POOL_ROWS, TRAIN_ROWS, TEST_ROWS = 63, 42, 14
"""Rows recorded to train on, rows of them that a seed trains on (5 376 tokens), and rows to test on (1 792)."""

LONG_LAYERS, LONG_ROWS = (14, 26), 400
"""Budget full: the same with 51 200 tokens to train on."""

STEPS, BATCH = 100, 256
LONG_STEPS, LONG_BATCH = 200, 384
SMOKE_STEPS = 5
"""On a user's model at budget smoke, which only shows that it runs."""

MODEL_ROWS, MODEL_STEPS, MODEL_BATCH, GLOBAL_STEPS = 100, 40, 256, 8
"""Budget full, the whole model: rows to train on, steps for each layer and of all together."""

PIQA = 80

Convert = Callable[[DenseFFN, Tensor, DotMoEConfig], DotMoEFFN]


@dataclass(frozen=True)
class Given:
    """What an arm sees of a layer.

    Attributes
    ----------
    x
        (n, d) float32, the layer's inputs.
    up, gate, down
        (d_ffn, d) float32; row i of ``down`` is what neuron i writes. No gate in a plain layer.
    n_experts, top_k
        How many experts of equal size, and how many of them a token may use.
    dense
        The layer, with its activation function: ``dense.output(x)`` is what is to be reproduced.
    steps, batch_tokens
        How long the study's own arms train.
    """

    x: Tensor
    dense: DenseFFN
    steps: int
    batch_tokens: int
    n_experts: int = EXPERTS
    top_k: int = TOP_K

    @property
    def up(self) -> Tensor:
        """The layer's up matrix."""
        return self.dense.up

    @property
    def gate(self) -> Tensor | None:
        """The layer's gate matrix."""
        return self.dense.gate

    @property
    def down(self) -> Tensor:
        """The layer's down matrix, neuron by neuron."""
        return self.dense.down


@dataclass(frozen=True)
class Hidden:
    """What only the score sees: inputs (n, d) of other text, and the layer."""

    x: Tensor
    dense: DenseFFN


class BestNeurons:
    """The ceiling's output: the score, which knows what the neurons say of the test text, chooses them."""


def load_made_up(seed: int, budget: Budget) -> tuple[Given, Hidden]:
    """A small layer, to see that everything runs."""
    dense, x = made_up_layer(seed, 1024)
    return Given(x[:768], dense, steps=20, batch_tokens=128), Hidden(x[768:], dense)


@dataclass(frozen=True)
class Source:
    """A model and a text: the study's own (``None``), or the user's."""

    model: Path | None = None
    data: Path | None = None

    def model_folder(self) -> Path:
        """Where the model is."""
        return self.model or smollm2.folder()

    def texts(self) -> list[str]:
        """The text, paragraph by paragraph."""
        if self.data is None:
            return text.boolq_passages()
        content = self.data.read_text(encoding="utf-8")
        return [part.strip() for part in content.split("\n\n" if "\n\n" in content else "\n") if part.strip()]

    def key(self) -> list[str]:
        """What it is, by content."""
        model = "smollm2" if self.model is None else file_fingerprint(self.model)
        return [model, "boolq" if self.data is None else file_fingerprint(self.data)]

    def rows(self) -> Tensor:
        """The text as rows of tokens."""
        return token_batches(load_tokenizer(self.model_folder()), self.texts(), LENGTH)

    def act(self) -> Any:
        """The activation function of its layers."""
        with without_bars():
            return _act(self.model_folder())


@lru_cache(maxsize=2)
def _act(folder: Path) -> Any:
    from transformers.activations import ACT2FN

    config = load_config(folder)
    name = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    return ACT2FN[name or getattr(config, "activation_function", "gelu")]


def recorded_layers(source: Source, layers: Sequence[int], train_rows: int) -> Path:
    """Weights and inputs of the layers, recorded once for all cells; the test rows are the first of the text."""

    def make(folder: Path) -> None:
        ids = source.rows()
        with without_bars():
            model = load_model(source.model_folder(), "float32", "cpu")
        keep_layers(model, layers, ids[TEST_ROWS : TEST_ROWS + train_rows], ids[:TEST_ROWS], folder)

    return shared(["layers", *source.key(), list(layers), train_rows, TEST_ROWS, LENGTH], make)


def load_layer(
    seed: int, budget: Budget, source: Source, layers: tuple[int, ...], layer: int, long: bool
) -> tuple[Given, Hidden]:
    """A layer of the model: a seed trains on some of the recorded rows, and all are tested on the same others."""
    folder = recorded_layers(source, layers, LONG_ROWS if long else POOL_ROWS)
    dense = kept_layer(folder, layer, source.act())
    steps, batch_tokens = (LONG_STEPS, LONG_BATCH) if long else (STEPS, BATCH)
    steps = SMOKE_STEPS if budget is Budget.SMOKE else steps
    rows = None
    if not long:
        rows = torch.randperm(POOL_ROWS, generator=torch.Generator().manual_seed(seed))[:TRAIN_ROWS]
    x = kept_inputs(folder / "train", layer, rows, LENGTH)
    return Given(x, dense, steps, batch_tokens), Hidden(kept_inputs(folder / "test", layer), dense)


@torch.no_grad()
def score_layer(output: Any, hidden: Hidden) -> Mapping[str, float]:
    """Mean over tokens of ‖Ŷ − Y‖²/‖Y‖² on text that no arm saw; fails where a token uses too many neurons."""
    dense, y = hidden.dense, hidden.dense.output(hidden.x)
    load = float("nan")
    if isinstance(output, BestNeurons):
        keep = sum(capacities(len(dense.up), EXPERTS)[:TOP_K])
        guess = baselines.best_neurons(dense, hidden.x, keep)
        parameters = (2 if dense.gate is None else 3) * keep * y.shape[1]
    else:
        ffn = _checked(output, dense)
        guess, parameters = ffn(hidden.x), ffn.active_parameters()
        routed = ffn.load()[ffn.n_shared :]
        load = float(routed.max() * len(routed) / routed.sum())
    if not bool(torch.isfinite(guess).all()):
        raise ValueError("the converted layer writes NaN or infinity")
    error = ((guess - y).square().sum(dim=-1) / y.square().sum(dim=-1).clamp_min(1e-12)).mean()
    return {"error": float(error), "parameters": parameters} | ({} if load != load else {"load": load})


def _checked(output: Any, dense: DenseFFN) -> DotMoEFFN:
    """The layer that an arm gives, no larger than it may be; ``ValueError`` or ``TypeError`` says what is wrong."""
    if isinstance(output, DotMoEFFN):
        ffn = output.eval()
        slots, widest = ffn.top_k, max(ffn.sizes) * ffn.top_k
        if ffn.affinity is not None:
            raise ValueError("the cut must be frozen (set_cut or freeze_cut)")
    elif isinstance(output, Mapping):
        ffn = _from_mapping(output, dense)
        slots, widest = ffn.top_k, max(ffn.sizes) * ffn.top_k
    else:
        raise TypeError(f"the output must be a DotMoEFFN or a dictionary, got {type(output).__name__}")
    most = TOP_K * max(capacities(len(dense.up), EXPERTS))
    if widest > most:
        raise ValueError(f"a token may use {most} neurons; {slots} experts of {max(ffn.sizes)} are {widest}")
    return ffn


def _from_mapping(output: Mapping[str, Any], dense: DenseFFN) -> DotMoEFFN:
    """A user's cut: assignment and router, and the weights where they were trained."""
    unknown = set(output) - {"assignment", "router", "up", "gate", "down"}
    if unknown or not {"assignment", "router"} <= set(output):
        raise ValueError(
            f"the output must have assignment and router, may have up, gate and down; got {sorted(output)}"
        )
    tensors = {name: torch.as_tensor(output[name]) for name in output}
    for name in ("up", "gate", "down"):
        before = getattr(dense, name)
        if name in tensors and (before is None or tensors[name].shape != before.shape):
            raise ValueError(f"{name} must have shape {None if before is None else tuple(before.shape)}")
    weights = {name: tensors[name].float() for name in ("up", "gate", "down") if name in tensors}
    router = tensors["router"].float()
    if router.ndim != 2 or router.shape[1] != dense.up.shape[1] or not EXPERTS - TOP_K < len(router) <= EXPERTS:
        raise ValueError(
            f"router must have shape (experts that are routed, {dense.up.shape[1]}), got {tuple(router.shape)}"
        )
    ffn = DotMoEFFN(dataclasses.replace(dense, **weights), EXPERTS, TOP_K, EXPERTS - len(router))
    ffn.set_cut(tensors["assignment"].long())
    ffn.router.weight.copy_(router)
    return ffn.eval()


def run_arm(given: Any, seed: int, budget: Budget, contender: Convert, n_shared: int = 0) -> Any:
    """A contender on a layer, or on all layers of a model and then on the model."""
    config = DotMoEConfig(
        n_experts=EXPERTS, top_k=TOP_K, n_shared=n_shared, steps=given.steps, batch_tokens=given.batch_tokens, seed=seed
    )
    if isinstance(given, Given):
        return contender(given.dense, given.x, config)
    return _run_model(given, config, contender)


def run_best_neurons(given: Given, seed: int, budget: Budget) -> BestNeurons:
    """Nothing: the score does the work."""
    return BestNeurons()


# The whole model, budget full


@dataclass(frozen=True)
class GivenModel:
    """A whole model: the folder of its recorded layers, the rows of tokens, and how long to train."""

    folder: Path
    layers: tuple[int, ...]
    ids: Tensor
    steps: int
    batch_tokens: int
    global_steps: int


@dataclass(frozen=True)
class HiddenModel:
    """Rows of tokens of other text, by name."""

    ids: Mapping[str, Tensor]


def load_whole(seed: int, budget: Budget) -> tuple[GivenModel, HiddenModel]:
    """All layers of SmolLM2; perplexity on other passages and on news."""
    source, layers = Source(), tuple(range(30))
    folder = recorded_layers(source, layers, MODEL_ROWS)
    ids = source.rows()
    news = token_batches(load_tokenizer(source.model_folder()), text.xsum_documents()[:60], LENGTH)
    given = GivenModel(folder, layers, ids[TEST_ROWS : TEST_ROWS + MODEL_ROWS], MODEL_STEPS, MODEL_BATCH, GLOBAL_STEPS)
    return given, HiddenModel({"perplexity": ids[:TEST_ROWS], "news perplexity": news[:TEST_ROWS]})


def _run_model(given: GivenModel, config: DotMoEConfig, contender: Convert) -> dict[int, DotMoEFFN]:
    model, _ = smollm2.load()
    act = Source().act()
    found = {site.layer: site for site in sites(model)}
    originals = {layer: (found[layer], found[layer].modules()) for layer in given.layers}
    ffns = {}
    for layer in given.layers:
        mine = dataclasses.replace(config, seed=(config.seed + layer) % 2**32)
        x = kept_inputs(given.folder / "train", layer)
        ffns[layer] = contender(kept_layer(given.folder, layer, act), x, mine)
        found[layer].put(ffns[layer])
    together = dataclasses.replace(config, global_steps=given.global_steps)
    train_together(model, ffns, originals, given.ids, together)
    return ffns


def score_whole(output: dict[int, DotMoEFFN], hidden: HiddenModel) -> Mapping[str, float]:
    """Perplexities, accuracy on PIQA over the dense model's, and the parameters that a token uses."""
    model, tokenizer = smollm2.load()
    questions = text.choices("piqa")[:PIQA]
    dense = _dense_accuracy()
    for site in sites(model):
        site.put(output[site.layer])
    metrics: dict[str, float] = {name: perplexity(model, ids) for name, ids in hidden.ids.items()}
    metrics["retention"] = choice_accuracy(model, tokenizer, questions) / dense
    metrics["parameters"] = active_parameters(model)
    loads = [ffn.load()[ffn.n_shared :] for ffn in converted_layers(model).values()]
    metrics["load"] = max(float(load.max() * len(load) / load.sum()) for load in loads)
    return metrics


def _dense_accuracy() -> float:
    def make(folder: Path) -> None:
        model, tokenizer = smollm2.load()
        (folder / "accuracy").write_text(repr(choice_accuracy(model, tokenizer, text.choices("piqa")[:PIQA])))

    return float((shared(["dense piqa", PIQA], make) / "accuracy").read_text())


# The study

SMOKE, QUICK, FULL = Budget.SMOKE, (Budget.QUICK, Budget.FULL, Budget.PAPER), (Budget.FULL, Budget.PAPER)


def _layer_task(source: Source, layers: tuple[int, ...], layer: int, long: bool = False, smoke: bool = False) -> Task:
    of = "SmolLM2" if source.model is None else source.model.name
    tokens = (LONG_ROWS if long else TRAIN_ROWS) * LENGTH
    return Task(
        f"long-{layer}" if long else f"layer-{layer}",
        partial(load_layer, source=source, layers=layers, layer=layer, long=long),
        score_layer,
        f"layer {layer} of {of}; {tokens} tokens to train on",
        budgets=FULL if long else tuple(Budget) if smoke else QUICK,
    )


LAYER_TASKS = tuple(_layer_task(Source(), LAYERS, layer) for layer in LAYERS)
LONG_TASKS = tuple(_layer_task(Source(), LONG_LAYERS, layer, long=True) for layer in LONG_LAYERS)
MADE_UP = Task("made-up", load_made_up, score_layer, "a small made-up layer with four topics", budgets=(SMOKE,))
WHOLE = Task("model", load_whole, score_whole, "all 30 layers of SmolLM2, then the model as a whole", budgets=FULL)
ON_LAYERS, ON_LONG = tuple(t.name for t in LAYER_TASKS), tuple(t.name for t in LONG_TASKS)


def _cut(init: str) -> Convert:
    return partial(_with_init, init=init)


def _with_init(dense: DenseFFN, x: Tensor, config: DotMoEConfig, init: str) -> DotMoEFFN:
    return baselines.with_cut(dense, x, dataclasses.replace(config, init=init))  # type: ignore[arg-type]


def _uncorrected(dense: DenseFFN, x: Tensor, config: DotMoEConfig) -> DotMoEFFN:
    return convert_layer(dense, x, dataclasses.replace(config, correction=False))


def _arms(short: tuple[str, ...], long: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> tuple[Arm, ...]:
    def arm(contender: Convert, n_shared: int = 0) -> Any:
        return partial(run_arm, contender=contender, n_shared=n_shared)

    return (
        Arm("dot-moe", arm(convert_layer), "method", "the cut learned", short),
        Arm("dot-shared", arm(convert_layer, 1), "ablation", "the cut learned, one of the two experts shared by all "
            "tokens: the library's default", short + long + whole),
        Arm("dot-uncorrected", arm(_uncorrected), "ablation", "without the correction of moves", short, (SMOKE, *FULL)),
        Arm("dot-plain", arm(baselines.plain), "ablation", "random starts, no correction: the source's version", short),
        Arm("act-kmeans", arm(_cut("activation")), "baseline", "the cut by clustering activations", short),
        Arm("cmoe-shared", arm(_cut("activation"), 1), "baseline", "the same with one expert shared (CMoE)",
            short + long + whole, (SMOKE, *FULL)),
        Arm("weight-kmeans", arm(_cut("weight")), "baseline", "the cut by clustering weights (MoEfication)", short,
            (SMOKE, *FULL)),
        Arm("random", arm(_cut("random")), "baseline", "a random cut (LLaMA-MoE)", short),
        Arm("prune", arm(baselines.pruned), "trivial", "the same neurons for all tokens, refitted and trained",
            short + long + whole),
        Arm("best-neurons", run_best_neurons, "ceiling", "each token's best neurons of the dense layer",
            short + long),
    )  # fmt: skip


CONTRACT = """f(given, seed) -> layer

given.x                     (n, d) float32: the layer's inputs on the text to train on
given.up, .gate, .down      (d_ffn, d) float32: its weights; row i of down is what neuron i writes. Maybe no gate
given.dense.output(x)       what the layer writes: to be reproduced
given.n_experts, .top_k     8 experts of d_ffn / 8 neurons, of which a token may use 2
returns                     {"assignment": (d_ffn,) the expert of each neuron, "router": (8 - s, d)} for s shared
                            experts, numbers 0 to s - 1, s = 0 or 1; with "up", "gate", "down" where they were trained.
                            Or an assay.models.dot_moe.DotMoEFFN
On the task "model" given has the folder of recorded layers, and a dictionary {layer: DotMoEFFN} is returned.
"""

METRICS = {
    "error": "mean over tokens of ‖Ŷ − Y‖²/‖Y‖² on text that was not trained on",
    "load": "the busiest routed expert's share of the tokens over an even share",
    "perplexity": "of the whole model, on other passages",
    "news perplexity": "of the whole model, on news (XSum)",
    "retention": "accuracy on PIQA over the dense model's",
}


def own(paths: Mapping[str, Path]) -> Study:
    """The study on three layers of a user's model, or on a user's text, or both."""
    source = Source(paths.get("model"), paths.get("data"))
    with without_bars():
        model = load_model(source.model_folder(), "float32", "cpu")
    found = sites(model)
    del model
    layers = tuple(sorted({round(share * (len(found) - 1)) for share in (0.1, 0.5, 0.9)}))
    try:
        rows = len(source.rows())
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{source.data or 'the text'} cannot be used: {error}") from error
    if rows < TEST_ROWS + POOL_ROWS:
        raise InputError(
            f"the text has {rows * LENGTH} tokens; this study needs {(TEST_ROWS + POOL_ROWS) * LENGTH} (some 40 kB)"
        )
    middle = layers[len(layers) // 2]  # the only one at budget smoke
    tasks = tuple(_layer_task(source, layers, layer, smoke=layer == middle) for layer in layers)
    names = tuple(task.name for task in tasks)
    others = ("random", "act-kmeans", "dot-plain")
    return Study(
        name="dot-moe",
        tasks=tasks,
        arms=_arms(names),
        claims=(
            *(
                lower("error", "dot-moe", than=o, pool=True, says=f"a learned cut beats {o} on your layers")
                for o in others
            ),
            lower("error", "dot-shared", than="prune", pool=True, says="experts beat pruning on your layers"),
        ),
        primary="error",
        better="lower",
        metrics=METRICS,
        seeds=SEEDS,
        contract=CONTRACT,
    )


SEEDS = {Budget.SMOKE: 3, Budget.QUICK: 3, Budget.FULL: 3, Budget.PAPER: 5}

STUDY = Study(
    name="dot-moe",
    tasks=(MADE_UP, *LAYER_TASKS, *LONG_TASKS, WHOLE),
    arms=_arms((MADE_UP.name, *ON_LAYERS), ON_LONG, (WHOLE.name,)),
    claims=(
        lower(
            "error",
            "dot-moe",
            than="random",
            ratio=0.9,
            tasks=ON_LAYERS,
            pool=True,
            says="a learned cut beats a random one",
        ),
        lower("error", "dot-moe", than="act-kmeans", tasks=ON_LAYERS, pool=True, says="a learned cut beats clustering"),
        lower(
            "error",
            "dot-moe",
            than="dot-plain",
            tasks=ON_LAYERS,
            pool=True,
            says="plain straight-through is not enough",
        ),
        lower(
            "error",
            "dot-moe",
            than="dot-uncorrected",
            tasks=ON_LAYERS,
            pool=True,
            says="the correction of moves is needed",
        ),
        lower(
            "error",
            "dot-shared",
            than="prune",
            tasks=ON_LONG,
            pool=True,
            says="experts beat pruning at the same active size",
        ),
        lower(
            "perplexity",
            "dot-shared",
            than="cmoe-shared",
            tasks=WHOLE.name,
            says="the whole model keeps more with a learned cut",
        ),
        at_least(
            "retention",
            "dot-shared",
            0.9,
            tasks=WHOLE.name,
            says="keeps 90 % of the dense model's accuracy at half the active parameters",
        ),
    ),
    primary="error",
    better="lower",
    metrics=METRICS,
    seeds=SEEDS,
    contract=CONTRACT,
    accepts={
        "model": "a Hugging Face folder of a dense causal language model; three of its layers are cut",
        "data": "a UTF-8 text of at least 10 000 tokens (some 40 kB), paragraphs between empty lines",
    },
    own=own,
)
