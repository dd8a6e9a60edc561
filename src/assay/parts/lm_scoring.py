"""How well a causal language model predicts text and answers questions with options."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.errors import MissingPart
from assay.parts.packages import install_line
from assay.parts.text import Choice

try:
    import torch
    from jaxtyping import Int
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase
except ModuleNotFoundError as error:
    raise MissingPart(f"scoring language models needs {error.name}", install_line("transformers")) from error

MOST_LOGITS = 2**26  # logits at one time: 256 MiB in float32


def token_batches(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], length: int) -> Int[Tensor, "n length"]:
    """Join texts, each ended by the end-of-text token, and cut them into rows of ``length`` tokens.

    What is left after the last whole row is dropped.

    Raises
    ------
    ValueError
        When ``length`` is below 2, the tokenizer has no end-of-text token, or the texts do not fill one row.
    TypeError
        When ``texts`` is one string, or something in it is none.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be several strings, not one")
    if length < 2:
        raise ValueError(f"length must be at least 2 (a token and the one it predicts), not {length}")
    if tokenizer.eos_token_id is None:
        raise ValueError("the tokenizer has no end-of-text token (eos_token) to put between texts")
    texts = list(texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"texts[{place}] must be a string, not {type(text).__name__}")
    ids: list[int] = []
    for start in range(0, len(texts), 1000):
        # verbose=False: no warning about texts longer than the model's context, since they are cut here
        for row in tokenizer(texts[start : start + 1000], add_special_tokens=False, verbose=False)["input_ids"]:
            ids += [*row, tokenizer.eos_token_id]
    n = len(ids) // length
    if n == 0:
        raise ValueError(f"the texts have {len(ids)} tokens, less than one row of length={length}")
    return torch.tensor(ids[: n * length]).view(n, length)


@torch.inference_mode()
def perplexity(model: nn.Module, ids: Int[Tensor, "n length"], batch_size: int = 8) -> float:
    """``exp`` of the mean negative log-likelihood of each token after a row's first, given those before it.

    Runs where the model is; log-likelihoods are computed in float32 for a few positions at a time, so that memory does
    not grow with vocabulary times length.

    Raises
    ------
    ValueError
        When ``batch_size`` is below 1, ``ids`` has no row, rows of fewer than 2 tokens or of more than the model's
        context, or tokens that the model does not know.
    """
    _check_batch_size(batch_size)
    if ids.ndim != 2 or ids.shape[0] == 0 or ids.shape[1] < 2:
        raise ValueError(f"ids must be [n, length] with n >= 1 and length >= 2, not {list(ids.shape)}")
    context = _context(model)
    if context is not None and ids.shape[1] > context:
        raise ValueError(f"rows of ids have {ids.shape[1]} tokens, and the model's context is {context}")
    vocabulary = model.get_input_embeddings().weight.shape[0]
    if int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
        raise ValueError(
            f"ids must lie in 0 … {vocabulary - 1}, the model's vocabulary, not {int(ids.min())} … {int(ids.max())}"
        )
    was_training = model.training
    model.eval()
    try:
        total = 0.0
        nll = _nll_by_head if _head_gives_logits(model, ids[:1, :8]) else _nll_by_model
        for batch in ids.split(batch_size):
            total += nll(model, batch.to(model.device, torch.long))
    finally:
        model.train(was_training)
    with np.errstate(over="ignore"):  # infinity is the answer
        return float(np.exp(total / (ids.shape[0] * (ids.shape[1] - 1))))


def choice_accuracy(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, choices: Sequence[Choice], batch_size: int = 16
) -> float:
    """The share of questions whose right option has the highest score of :func:`option_scores`, the first of equals.

    Raises
    ------
    ValueError
        As :func:`option_scores`, and when a question's ``answer`` is none of its options.
    """
    for choice in choices:
        if not 0 <= choice.answer < len(choice.options):
            raise ValueError(f"answer must be 0 to {len(choice.options) - 1}, an option's number, not {choice.answer}")
    scores = option_scores(model, tokenizer, choices, batch_size)
    return float(np.mean([int(np.argmax(s)) == choice.answer for s, choice in zip(scores, choices, strict=True)]))


@torch.inference_mode()
def option_scores(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, choices: Sequence[Choice], batch_size: int = 16
) -> list[NDArray[np.float64]]:
    """Log-likelihood of each option after "Question: …\\nAnswer:", per byte of the option's UTF-8 text.

    Per byte, so that neither long options nor another tokenizer is at a disadvantage. Question and option together are
    cut at the front to the model's context where they are longer.

    Parameters
    ----------
    choices
        Questions with options, e.g. of :func:`assay.parts.text.choices`.
    batch_size
        Options in one forward pass, taken from all questions in order of length.

    Returns
    -------
    One array for each question with one score for each of its options.

    Raises
    ------
    ValueError
        When ``batch_size`` is below 1, there is no question, one has no option, or an option is empty.
    """
    _check_batch_size(batch_size)
    if not choices:
        raise ValueError("choices must hold at least one question")
    if any(not choice.options for choice in choices):
        raise ValueError("a question has no options")
    if any(not option.strip() for choice in choices for option in choice.options):
        raise ValueError("an option is empty: it has no likelihood")
    rows = [
        (c, o, *_tokens(model, tokenizer, choice.question, option))
        for c, choice in enumerate(choices)
        for o, option in enumerate(choice.options)
    ]
    rows.sort(key=lambda row: -len(row[2]))
    scores = [np.empty(len(choice.options)) for choice in choices]
    was_training = model.training
    model.eval()
    try:
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            for (c, o, *_), value in zip(
                batch, _option_log_likelihoods(model, [row[2:] for row in batch]), strict=True
            ):
                scores[c][o] = value / len(choices[c].options[o].strip().encode())
    finally:
        model.train(was_training)
    return scores


def _check_batch_size(batch_size: int) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")


def _context(model: Any) -> int | None:
    """The most tokens that the model was made for, where its configuration says so."""
    return getattr(model.config, "max_position_embeddings", None)


def _tokens(model: Any, tokenizer: Any, question: str, option: str) -> tuple[list[int], int]:
    """Tokens of question and option, and how many of them are the option's."""
    prompt = f"Question: {question.strip()}\nAnswer:"
    before, whole = (tokenizer(text, verbose=False)["input_ids"] for text in (prompt, f"{prompt} {option.strip()}"))
    if before and before[-1] == whole[-1] == tokenizer.eos_token_id:  # some tokenizers end each text
        before, whole = before[:-1], whole[:-1]
    context = _context(model) or len(whole)
    return whole[-context:], min(max(1, len(whole) - len(before)), context - 1)


def _option_log_likelihoods(model: Any, rows: list[tuple[list[int], int]]) -> list[float]:
    longest = max(len(tokens) for tokens, _ in rows)
    # Filled up at the end, where a causal model does not see it, so that positions stay what they are.
    ids = torch.tensor([[*tokens, *[0] * (longest - len(tokens))] for tokens, _ in rows], device=model.device)
    mask = torch.tensor([[1] * len(tokens) + [0] * (longest - len(tokens)) for tokens, _ in rows], device=model.device)
    first = min(len(tokens) - n for tokens, n in rows) - 1  # the first position that predicts a token of an option
    wanted = torch.arange(first, longest - 1, device=model.device)
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        logits = model(input_ids=ids, attention_mask=mask, logits_to_keep=wanted, use_cache=False).logits
    else:  # the last ones: an adapter may put tokens of its own before those of the text
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, -longest:][:, wanted]
    values = []
    for row, (tokens, n) in zip(logits, rows, strict=True):
        at = slice(len(tokens) - n - 1 - first, len(tokens) - 1 - first)
        target = torch.tensor(tokens[-n:], device=row.device)
        values.append(-float(nn.functional.cross_entropy(row[at].float(), target, reduction="sum")))
    return values


def _head_gives_logits(model: Any, ids: Tensor) -> bool:
    """Whether logits are the output head applied to the bare network's last layer: not where a model rescales them."""
    head, body = model.get_output_embeddings(), getattr(model, "base_model", None)
    if head is None or body is None or body is model:
        return False
    ids = ids.to(model.device)
    try:
        hidden = body(input_ids=ids, use_cache=False).last_hidden_state
        logits = model(input_ids=ids, use_cache=False).logits
    except (AttributeError, TypeError):
        return False
    return hidden.shape[:2] == logits.shape[:2] and torch.allclose(
        head(hidden).float(), logits.float(), atol=1e-4, rtol=1e-4
    )


def _nll_by_head(model: Any, ids: Tensor) -> float:
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1].flatten(0, 1)
    head, targets = model.get_output_embeddings(), ids[:, 1:].flatten()
    step = max(1, MOST_LOGITS // head.weight.shape[0])
    return sum(
        float(nn.functional.cross_entropy(head(h).float(), t, reduction="sum"))
        for h, t in zip(hidden.split(step), targets.split(step), strict=True)
    )


def _nll_by_model(model: Any, ids: Tensor) -> float:
    rows = max(1, MOST_LOGITS // (model.get_input_embeddings().weight.shape[0] * ids.shape[1]))
    total = 0.0
    for some in ids.split(rows):
        logits = model(input_ids=some, use_cache=False).logits[:, -ids.shape[1] :][:, :-1]
        total += float(
            nn.functional.cross_entropy(logits.flatten(0, 1).float(), some[:, 1:].flatten(), reduction="sum")
        )
    return total
