"""Experts among real language models: MiniLM fine-tuned on kinds of text, and LoRA adapters of SmolLM2."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.parts import minilm, smollm2, text
from assay.parts.lm_scoring import choice_accuracy
from assay.parts.text import Choice

from .lora import merge_lora
from .suites import Questions, State, class_means, embed_tokens, fine_tune, in_batches, write

TEXTS, TOKENS, STEPS, RATE, BATCH, LEAST = 480, 32, 120, 1e-4, 16, 10
"""Of MiniLM's experts: texts of a kind, tokens of a text, how they are fine-tuned, and texts that a class must have."""

RANK, LORA_STEPS, LORA_RATE, LORA_BATCH, LORA_TOKENS, PASSAGE, ASKED = 8, 30, 5e-4, 4, 96, 240, 40
"""Of SmolLM2's adapters; PASSAGE letters of a text are read, and ASKED questions of each kind are asked in the end."""


def minilm_network() -> nn.Module:
    """MiniLM without its pooler, which no one trains."""
    model, _ = minilm.load()
    return model


def kinds() -> dict[str, tuple[list[str], list[str]]]:
    """Texts and classes of each kind."""
    news, topics = text.newsgroups("train")
    large = {"comp": "computers", "rec": "leisure", "sci": "science", "talk": "debate"}
    chosen = [(t, large[c.split(".")[0]]) for t, c in zip(news, topics, strict=True) if c.split(".")[0] in large]
    films, ratings = text.sentiment("movie")
    clear = [(t, "good" if r > 0 else "bad") for t, r in zip(films, ratings, strict=True) if abs(r) >= 1]
    return {
        "news": ([t for t, _ in chosen], [c for _, c in chosen]),
        "films": ([t for t, _ in clear], [c for _, c in clear]),
        "reuters": text.reuters(8, "train"),
        "tweets": text.election_tweets(),
    }


def make_minilm_experts(seed: int, folder: Path, texts: int = TEXTS, steps: int = STEPS) -> None:
    """Fine-tune MiniLM on each kind of text into a folder."""
    network, tokenizer = minilm.load()
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_("pooler" not in name)
    experts, questions = [], []
    for all_texts, labels in kinds().values():
        rows = rng.permutation(len(all_texts))[:texts]
        counts = Counter(labels[i] for i in rows[np.arange(len(rows)) % 10 < 6])
        names = sorted(name for name, count in counts.items() if count >= LEAST)
        rows = rows[[labels[i] in names for i in rows]]
        y = torch.tensor([names.index(labels[i]) for i in rows])
        x = _tokens(tokenizer, [all_texts[i] for i in rows])
        part = torch.from_numpy(np.arange(len(rows)) % 10)
        train, tune, test = part < 6, (part >= 6) & (part < 7), part >= 7
        head = class_means(in_batches(network, embed_tokens, x[train]), y[train], len(names))
        network.train(False)  # without dropout, so that experts differ by their data alone
        experts.append(fine_tune(network, embed_tokens, x[train], y[train], head, steps, RATE, BATCH, generator))
        questions.append(Questions(head, (x[tune], y[tune]), (x[test], y[test])))
    base: State = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    write(folder, base, experts, questions)


def _tokens(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    found = tokenizer(list(texts), truncation=True, max_length=TOKENS, padding="max_length", return_tensors="pt")
    return found["input_ids"]


def smollm2_folder() -> Path:
    """The base of the adapters."""
    return smollm2.folder()


@dataclass(frozen=True)
class LoraQuestions:
    """Questions of each kind for the merged adapter."""

    asked: Mapping[str, list[Choice]]


def _all_choices() -> dict[str, list[Choice]]:
    yes_no = ("yes", "no")
    passages = [
        Choice(f"{q.passage[:PASSAGE]} Question: {q.question}?", yes_no, 0 if q.answer else 1) for q in text.boolq()
    ]
    films, ratings = text.sentiment("movie")
    liked = [
        Choice(f'Does this reviewer like the film? "{t[:PASSAGE]}"', yes_no, 0 if r > 0 else 1)
        for t, r in zip(films, ratings, strict=True)
        if abs(r) >= 1
    ]
    return {
        "boolq": passages,
        "piqa": text.choices("piqa"),
        "commonsenseqa": text.choices("commonsenseqa"),
        "films": liked,
    }


def _divided(seed: int) -> dict[str, tuple[list[Choice], list[Choice]]]:
    """For each kind: questions to train on, questions to ask."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, questions in _all_choices().items():
        order = rng.permutation(len(questions))
        found[name] = ([questions[i] for i in order[ASKED:]], [questions[i] for i in order[:ASKED]])
    return found


def lora_questions(seed: int, most: int = ASKED) -> LoraQuestions:
    """What the merged adapter is asked."""
    return LoraQuestions({name: asked[:most] for name, (_, asked) in _divided(seed).items()})


def make_adapters(seed: int, folder: Path, steps: int = LORA_STEPS) -> None:
    """Train a LoRA adapter on each kind of question into folders of its name."""
    import peft

    for name, (train, _) in _divided(seed).items():
        model, tokenizer = smollm2.load()
        config = peft.LoraConfig(
            r=RANK, lora_alpha=2 * RANK, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
            task_type="CAUSAL_LM",
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            adapted = peft.get_peft_model(model, config)
        adapted.eval()
        optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], LORA_RATE, weight_decay=0.0)
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            loss = _answer_loss(adapted, tokenizer, [train[i] for i in rng.integers(len(train), size=LORA_BATCH)])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        adapted.save_pretrained(folder / name)


def _answer_loss(model: Any, tokenizer: Any, questions: Sequence[Choice]) -> Tensor:
    """Cross-entropy of the right answers' tokens, asked as they will be asked in the end."""
    rows, starts = [], []
    for question in questions:
        asked = tokenizer(f"Question: {question.question}\nAnswer:")["input_ids"]
        answer = tokenizer(f" {question.options[question.answer]}")["input_ids"]
        asked = asked[-(LORA_TOKENS - len(answer)) :]
        rows.append(torch.tensor(asked + answer))
        starts.append(len(asked))
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    hidden = model.base_model.model.model(input_ids=ids).last_hidden_state
    losses = []
    for row, start, states in zip(rows, starts, hidden, strict=True):
        logits = model.base_model.model.lm_head(states[start - 1 : len(row) - 1])  # the head only where it counts
        losses.append(F.cross_entropy(logits, row[start:]))
    return torch.stack(losses).mean()


@dataclass(frozen=True)
class MergedAdapter:
    """A merged adapter's files as bytes (none for the base alone), and the share of ranks that it leaves out."""

    files: Mapping[str, bytes]
    ranks_out: float


def merged_adapter(base: Path, adapters: Sequence[Path], keep: float) -> MergedAdapter:
    """Merge adapters and count ranks."""
    with tempfile.TemporaryDirectory() as home:
        out = merge_lora(base, list(adapters), keep=keep, to=Path(home) / "merged", device="cpu")
        files = {path.name: path.read_bytes() for path in out.iterdir()}
        before = sum(_rank(adapter) for adapter in adapters)
        return MergedAdapter(files, 1 - _rank(out) / before)


def _rank(adapter: Path) -> int:
    from safetensors import safe_open

    with safe_open(adapter / "adapter_model.safetensors", "pt") as opened:
        return sum(opened.get_slice(name).get_shape()[0] for name in opened.keys() if "lora_A" in name)  # noqa: SIM118


def score_adapter(output: MergedAdapter, questions: LoraQuestions) -> Mapping[str, float]:
    """Mean accuracy over the kinds of questions."""
    import peft

    model, tokenizer = smollm2.load()
    if output.files:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in output.files.items():
                (Path(folder) / name).write_bytes(content)
            model = peft.PeftModel.from_pretrained(model, folder).merge_and_unload().eval()
    found = [choice_accuracy(model, tokenizer, asked) for asked in questions.asked.values()]
    return {"accuracy": float(np.mean(found)), "ranks_out": output.ranks_out}
