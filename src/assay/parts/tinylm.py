"""A small language model that is trained from nothing in seconds: for studies that need many training runs.

A decoder-only transformer over words with rotary positions. It reads a prompt and writes an answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from assay.errors import InputError, MissingPart
from assay.parts import net_files
from assay.parts.checkpoints import pick_device

try:
    import torch
    from jaxtyping import Bool, Float, Int
    from torch import Tensor, nn
    from torch.nn import functional as F
except ModuleNotFoundError as error:
    raise MissingPart(f"a small language model needs {error.name}", "python -m pip install 'assay[torch]'") from error

KIND = "tinylm"
PAD, SEP, END, UNKNOWN = range(4)
SPECIAL = ("<pad>", "<sep>", "<end>", "<unknown>")
"""What fills up, what stands between prompt and answer, what ends an answer, and any word that is not known."""

_WORD = re.compile(r"</?\w+>|'[^']*'|\w+|[<>=!|]+|[^\w\s]")


class Words:
    """Texts as numbers, a word each; tags, quoted texts and runs of comparison signs are words too.

    Parameters
    ----------
    known
        The words, in the order of their numbers, after the four special ones.

    Examples
    --------
    >>> words = Words.of(["SELECT a FROM t WHERE b >= 'x y'"])
    >>> words.text(words.numbers("SELECT b FROM t")), len(words)
    ('SELECT b FROM t', 12)
    """

    def __init__(self, known: Sequence[str]) -> None:
        names = (*SPECIAL, *known)
        if len(set(names)) != len(names) or not all(isinstance(w, str) and w for w in known):
            raise InputError("known must be different words that are not empty, without the special ones")
        self.names = names
        self._number = {word: number for number, word in enumerate(names)}

    @classmethod
    def of(cls, texts: Iterable[str]) -> Words:
        """All words of some texts, sorted."""
        return cls(sorted({word for text in texts for word in split(text)} - set(SPECIAL)))

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, text: str) -> list[int]:
        """The words of a text; one that is not known, and a special one, is ``<unknown>``."""
        found = (self._number.get(word, UNKNOWN) for word in split(text))
        return [number if number > UNKNOWN else UNKNOWN for number in found]

    def text(self, numbers: Iterable[int]) -> str:
        """Words with a space between them; special ones are left out, but ``<unknown>`` stays."""
        return " ".join(self.names[n] for n in numbers if n >= UNKNOWN)


def split(text: str) -> list[str]:
    """The words of a text.

    >>> split("<sql>SELECT a FROM t WHERE b<='x y'</sql>")
    ['<sql>', 'SELECT', 'a', 'FROM', 't', 'WHERE', 'b', '<=', "'x y'", '</sql>']
    """
    return _WORD.findall(text)


@dataclass(frozen=True)
class Shape:
    """How large the network is.

    Attributes
    ----------
    width
        Of a word's vector; a multiple of twice ``heads``.
    layers, heads
        Of attention.
    length
        The most words that prompt and answer may have together.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    length: int = 256

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.width % (2 * self.heads):
            raise InputError(f"width must be a multiple of twice heads ({2 * self.heads}), not {self.width}")


@dataclass(frozen=True)
class Written:
    """What a model wrote.

    Attributes
    ----------
    texts
        One an answer.
    ids
        [answers, words] prompts (filled up on the left), separator, and answers (filled up on the right).
    there
        [answers, words] what is not filling.
    answer
        [answers, words] what the model wrote, its ``<end>`` with it.
    ended
        Whether each answer came to its end.
    """

    texts: list[str]
    ids: Int[Tensor, "answers words"]
    there: Bool[Tensor, "answers words"]
    answer: Bool[Tensor, "answers words"]
    ended: list[bool]


class TinyLM(nn.Module):
    """A decoder-only transformer over words: layer norm first, rotary positions, embedding and head tied.

    Parameters
    ----------
    words
        What it can read and write.
    shape
        How large it is.
    seed
        What its first weights are drawn with.

    Examples
    --------
    >>> model = TinyLM(Words.of(["one two three"]), Shape(width=16, layers=1, heads=2), seed=0)
    >>> losses = fit(model, [("one", "two three")], steps=60, batch=4, seed=0)
    >>> model.write(["one"]).texts
    ['two three']
    """

    def __init__(self, words: Words, shape: Shape | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.words, self.shape = words, shape or Shape()
        width, layers = self.shape.width, self.shape.layers
        self.embedding = nn.Parameter(torch.empty(len(words), width))
        self.blocks = nn.ModuleList(_Block(width, self.shape.heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weights in self.named_parameters():
                if weights.ndim == 2:
                    # What is added to the stream of vectors is scaled down by the number of additions.
                    scale = 1 / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else 1.0
                    weights.copy_(torch.randn(weights.shape, generator=generator) * scale / math.sqrt(width))

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.embedding.device

    def forward(
        self,
        ids: Int[Tensor, "batch words"],
        there: Bool[Tensor, "batch words"] | None = None,
        memory: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Float[Tensor, "batch words known"]:
        """Scores of the next word behind each word.

        Parameters
        ----------
        ids
            [batch, words] numbers of words; with ``memory`` only those that are new.
        there
            [batch, all words] which are no filling; all of them by default.
        memory
            Keys and values of earlier words, one pair a layer; an empty list is filled, a filled one grows.
        """
        known = memory[0][0].shape[2] if memory else 0
        total = known + ids.shape[1]
        if there is None:
            there = torch.ones(len(ids), total, dtype=torch.bool, device=ids.device)
        place = (there.long().cumsum(1) - 1).clamp(min=0)[:, known:]
        turn = _turns(place, self.shape.width // self.shape.heads)
        later = torch.ones(ids.shape[1], total, dtype=torch.bool, device=ids.device).tril(known)
        # What is filling sees itself: a softmax over nothing is NaN.
        own = torch.eye(total, dtype=torch.bool, device=ids.device)[known:]
        seen = ((later & there[:, None, :]) | own)[:, None]
        x = self.embedding[ids] * math.sqrt(self.shape.width)
        for place_, block in enumerate(self.blocks):
            x, kept = block(x, turn, seen, memory[place_] if known and memory else None)
            if memory is not None:
                memory[place_ : place_ + 1] = [kept]
        scores: Tensor = self.norm(x) @ self.embedding.T
        return scores

    @torch.no_grad()
    def write(
        self,
        prompts: Sequence[str],
        *,
        most: int = 96,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Written:
        """Write an answer to each prompt.

        Parameters
        ----------
        prompts
            Texts.
        most
            Words of an answer at most.
        temperature
            0 takes the likeliest word each time; 1 draws from the model's own distribution.
        generator
            On the model's device; what draws. Needed where ``temperature`` is not 0.

        Raises
        ------
        InputError
            Without a prompt, for a negative temperature or one without a generator, and where prompt and answer do
            not fit into the model's length.
        """
        if isinstance(prompts, str) or not prompts:
            raise InputError("prompts must be a list of at least one text")
        if not 0 <= temperature < math.inf or (temperature and generator is None):
            raise InputError(f"temperature must be 0, or positive with a generator; got {temperature}")
        asked = [[*self.words.numbers(prompt), SEP] for prompt in prompts]
        width = max(map(len, asked))
        if most < 1 or width + most > self.shape.length:
            raise InputError(
                f"a prompt of {width - 1} words and an answer of {most} do not fit into the model's {self.shape.length}"
            )
        ids = torch.tensor([[PAD] * (width - len(a)) + a for a in asked], device=self.device)
        there = ids != PAD
        answer = torch.zeros_like(there)
        memory: list[tuple[Tensor, Tensor]] = []
        scores = self(ids, there, memory)[:, -1]
        going = torch.ones(len(ids), dtype=torch.bool, device=self.device)
        for _ in range(most):
            scores[:, [PAD, SEP]] = -math.inf
            if temperature:
                chances = torch.softmax(scores.float() / temperature, dim=1)
                word = torch.multinomial(chances, 1, generator=generator)[:, 0]
            else:
                word = scores.argmax(1)
            word = torch.where(going, word, PAD)
            ids = torch.cat([ids, word[:, None]], 1)
            there, answer = (torch.cat([mask, going[:, None]], 1) for mask in (there, answer))
            going = going & (word != END)
            if not bool(going.any()):
                break
            scores = self(word[:, None], there, memory)[:, -1]
        texts = [self.words.text(row[mask].tolist()) for row, mask in zip(ids, answer, strict=True)]
        return Written(texts, ids, there, answer, (~going).tolist())

    def log_probs(
        self, ids: Int[Tensor, "batch words"], there: Bool[Tensor, "batch words"], temperature: float = 1.0
    ) -> Float[Tensor, "batch next"]:
        """Log-probability of each word but the first, given those before it, by the distribution that it is drawn from.

        Parameters
        ----------
        ids, there
            As in :class:`Written`.
        temperature
            At which the words were drawn.
        """
        scores = self(ids, there)[:, :-1].float() / temperature
        # Of what :meth:`write` never draws.
        scores[..., [PAD, SEP]] = -math.inf
        chosen = scores.gather(2, ids[:, 1:, None])[..., 0]
        return torch.where(there[:, 1:] & (ids[:, 1:] > SEP), chosen - scores.logsumexp(2), 0.0)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder: weights as safetensors, words and size as JSON.

        Raises
        ------
        InputError
            When the folder is there and not empty.
        """
        state = {"words": self.words.names[len(SPECIAL) :], "shape": asdict(self.shape)}
        net_files.save(folder, KIND, state, self.state_dict(), overwrite)

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "auto") -> TinyLM:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            When it is no such folder, or damaged.
        """
        place = pick_device(device)
        state, tensors = net_files.load(folder, KIND)
        try:
            model = cls(Words(state["words"]), Shape(**state["shape"]))
            model.load_state_dict(tensors)
        except (KeyError, TypeError, InputError, RuntimeError) as error:
            raise InputError(f"{folder} holds no such model: {str(error).splitlines()[0]}") from None
        return model.to(place)


def fit(
    model: TinyLM,
    pairs: Sequence[tuple[str, str]],
    *,
    steps: int,
    batch: int = 32,
    rate: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Teach a model to write the answer to each prompt, by Adam with a warm-up and a cosine's fall; only answers count.

    Parameters
    ----------
    model
        It is changed.
    pairs
        Prompts with their answers; batches are drawn from all of them, none again before each has been.
    steps
        Of Adam.
    batch
        Pairs a step.
    rate
        Of learning at its highest.
    seed
        What draws the batches.

    Returns
    -------
    list of float
        The loss of each step: nats a word.

    Raises
    ------
    InputError
        Without a pair, for a pair that does not fit into the model's length, and for counts that are not positive.
    """
    if not pairs or steps < 1 or batch < 1 or not 0 < rate < math.inf:
        raise InputError("fit needs at least one pair, and positive steps, batch and rate")
    rows = [[*model.words.numbers(p), SEP, *model.words.numbers(a), END] for p, a in pairs]
    starts = [len(model.words.numbers(p)) for p, _ in pairs]
    longest = max(map(len, rows))
    if longest > model.shape.length:
        raise InputError(f"a pair has {longest} words; the model reads {model.shape.length}")
    rng = np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    warm = max(1, min(20, steps // 10))
    losses, waiting = [], np.empty(0, dtype=int)
    for step in range(steps):
        if len(waiting) < batch:
            waiting = np.concatenate([waiting, *(rng.permutation(len(rows)) for _ in range(-(-batch // len(rows))))])
        picked, waiting = waiting[:batch], waiting[batch:]
        fall = 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, steps - warm)))
        for group in optimiser.param_groups:
            group["lr"] = rate * min((step + 1) / warm, 0.05 + 0.95 * fall)
        ids, counted = _batch([rows[i] for i in picked], [starts[i] for i in picked], model.device)
        scores = model(ids[:, :-1], ids[:, :-1] != PAD)
        loss = F.cross_entropy(scores[counted[:, 1:]].float(), ids[:, 1:][counted[:, 1:]])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


def _batch(rows: list[list[int]], starts: list[int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows filled up on the right, and which of their words are answers."""
    width = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows], device=device)
    place = torch.arange(width, device=device)
    first = torch.tensor(starts, device=device)[:, None]
    return ids, (place > first) & (ids != PAD)


class _Block(nn.Module):
    """Attention and two linear maps with a bend between them, each added to the stream of vectors."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = _linear(width, 3 * width)
        self.out = _linear(width, width)
        self.up = _linear(width, 4 * width)
        self.down = _linear(4 * width, width)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], seen: Tensor, memory: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, words, width = x.shape
        q, k, v = self.qkv(self.norm_a(x)).view(batch, words, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = _turned(q, turn), _turned(k, turn)
        if memory is not None:
            k, v = torch.cat([memory[0], k], 2), torch.cat([memory[1], v], 2)
        found = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + self.out(found.transpose(1, 2).reshape(batch, words, width))
        return x + self.down(F.gelu(self.up(self.norm_b(x)))), (k, v)


def _linear(inside: int, outside: int) -> nn.Module:
    """A linear map whose weights are not drawn yet: drawing them here would take from torch's global generator."""
    return nn.utils.skip_init(nn.Linear, inside, outside, bias=False)


def _turns(place: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles by which a vector at each place is turned, plane by plane."""
    speed = 1000.0 ** (-torch.arange(size // 2, device=place.device) / (size // 2))
    angle = (place[..., None] * speed)[:, None]
    return angle.cos(), angle.sin()


def _turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = turn
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def parameters(model: TinyLM) -> int:
    """How many numbers a model has learnt.

    >>> parameters(TinyLM(Words(["a"]), Shape(width=8, layers=1, heads=1)))
    856
    """
    return sum(weights.numel() for weights in model.parameters())


__all__ = ["Shape", "TinyLM", "Words", "Written", "fit", "parameters", "split"]
