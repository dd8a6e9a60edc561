"""AlignNet: an image and a question in, code or a caption and then an answer out, one word at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from assay.errors import InputError
from assay.parts import net_files
from assay.parts.checkpoints import pick_device

from .align_data import BINS, NUMBERS, QUESTIONS, UNKNOWN, AlignItems

KIND = "alignnet"
MODES = ("answer", "caption", "code")
"""What is written before the answer: nothing, a sentence with the two numbers, or places and marks of the corners."""

WORDS = (*QUESTIONS, *(str(n) for n in NUMBERS), "?", *(f"at {i}" for i in range(BINS)), "triangle", "angles", "and")
"""All words; a number is one word, as it is for the tokenizers of large models."""

_INDEX = {word: i for i, word in enumerate(WORDS)}


@dataclass(frozen=True)
class AlignShape:
    """How large the network is.

    Attributes
    ----------
    size
        Pixels of an image's side; images of another size are refused.
    patch
        Squares of so many pixels are taken together first, their pixels side by side; 1 leaves the image as it is.
    channels
        Of the convolutions, each of which halves the image's side.
    width, layers, heads
        Of the decoder.
    """

    size: int = 96
    patch: int = 4
    channels: tuple[int, ...] = (64, 96)
    width: int = 64
    layers: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        for name, value in asdict(self).items():
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                    raise InputError(f"{name} must be whole and at least 1, got {value!r}")
        if not self.channels or self.width % self.heads or self.size % self.patch:
            raise InputError("channels must not be empty, heads must divide width, and patch must divide size")
        if self.size // self.patch < 2 ** len(self.channels):
            raise InputError(f"size must be at least {self.patch * 2 ** len(self.channels)}, got {self.size}")

    @property
    def side(self) -> int:
        """Cells along a side after the convolutions."""
        side = self.size // self.patch
        for _ in self.channels:
            side = (side + 1) // 2
        return side


@dataclass(frozen=True)
class Read:
    """What a learner wrote of some items.

    Attributes
    ----------
    answers
        [items] degrees; 0 where the word is no number.
    marks
        [items, 3] what the code says at the corners, -1 for x and 0 for no number; ``None`` without code.
    corners
        [items, 3, 2] columns and rows that the code says, -1 where it says none; ``None`` without code.
    numbers
        [items, 2] the two numbers of the caption; ``None`` without one.
    """

    answers: Int[np.ndarray, " items"]
    marks: Int[np.ndarray, "items 3"] | None = None
    corners: Int[np.ndarray, "items 3 2"] | None = None
    numbers: Int[np.ndarray, "items 2"] | None = None


def words_of(items: AlignItems, mode: str) -> Int[np.ndarray, "items words"]:
    """The words of each item: what is asked, what the mode writes, and the answer.

    Raises
    ------
    InputError
        For an unknown mode.
    """
    _mode(mode)
    table = np.zeros(180, dtype=np.int64)
    for n in NUMBERS:
        table[n] = _INDEX[str(n)]
    table[UNKNOWN] = _INDEX["?"]
    columns = [np.array([_INDEX[q] for q in QUESTIONS])[items.questions][:, None]]
    if mode == "code":
        corners = np.concatenate([items.corners + _INDEX["at 0"], table[items.marks][:, :, None]], axis=2)
        columns += [corners.reshape(len(items), 9)]
    if mode == "caption":
        numbers = table[np.sort(items.marks, axis=1)[:, 1:]]
        said = [np.full((len(items), 1), _INDEX[word]) for word in ("triangle", "angles", "and")]
        columns += [*said[:2], numbers[:, :1], said[2], numbers[:, 1:]]
    return np.concatenate([*columns, table[items.answers][:, None]], axis=1)


def _mode(mode: str) -> None:
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")


LENGTHS = {"answer": 1, "caption": 6, "code": 10}
"""Words that a mode writes, the answer with them."""


class AlignNet(nn.Module):
    """Convolutions over the image, and a decoder that looks at their cells and writes word after word.

    Parameters
    ----------
    mode
        ``answer``, ``caption`` or ``code``: what is written before the answer.
    shape
        How large it is.
    seed
        What its first weights are drawn with.

    Raises
    ------
    InputError
        For an unknown mode.

    Notes
    -----
    A small stand-in for a vision-language model, in "Synthesizing Multimodal Geometry Datasets from Scratch and
    Enabling Visual Alignment via Plotting Code", arXiv 2602.18745.

    Examples
    --------
    >>> from .align_data import align_items
    >>> items = align_items(2)
    >>> AlignNet("code").read(items.images, items.questions).marks.shape
    (2, 3)
    """

    def __init__(self, mode: str = "code", shape: AlignShape | None = None, *, seed: int = 0) -> None:
        super().__init__()
        _mode(mode)
        self.mode, self.shape = mode, shape or AlignShape()
        # PyTorch draws first weights from the global generator; what it drew is replaced below, and no trace stays.
        with torch.random.fork_rng(devices=[]):
            self._build()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weights in self.named_parameters():
                if name in ("place", "embedding", "position"):
                    weights.copy_(0.1 * torch.randn(weights.shape, generator=generator))
                elif weights.ndim > 1:
                    fan = math.prod(weights.shape[1:])
                    gain = 2.0 if weights.ndim == 4 else 1.0
                    weights.copy_(torch.randn(weights.shape, generator=generator) * math.sqrt(gain / fan))
                elif name.endswith("bias"):
                    weights.zero_()

    def _build(self) -> None:
        stages: list[nn.Module] = []
        for before, after in zip((self.shape.patch**2, *self.shape.channels), self.shape.channels, strict=False):
            stages += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        self.look = nn.Sequential(*stages)
        width = self.shape.width
        self.project = nn.Linear(self.shape.channels[-1], width)
        self.place = nn.Parameter(torch.empty(self.shape.side**2, width))
        self.embedding = nn.Parameter(torch.empty(len(WORDS), width))
        self.position = nn.Parameter(torch.empty(LENGTHS[self.mode], width))
        self.blocks = nn.ModuleList(_Block(width, self.shape.heads) for _ in range(self.shape.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(WORDS))

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.embedding.device

    def cells(self, images: UInt8[Tensor, "items height width"]) -> Float[Tensor, "items cells width"]:
        """What the decoder looks at: the image's cells, each with its place."""
        x = F.pixel_unshuffle(1 - images[:, None].float() / 255, self.shape.patch)
        return self.project(self.look(x).flatten(2).transpose(1, 2)) + self.place

    def forward(
        self, images: UInt8[Tensor, "items height width"], words: Int[Tensor, "items written"]
    ) -> Float[Tensor, "items written known"]:
        """Scores of the word behind each word.

        Parameters
        ----------
        images
            [items, height, width] grey levels as bytes.
        words
            [items, written] the question first.
        """
        return self.scores(self.cells(images), words)

    def scores(
        self, cells: Float[Tensor, "items cells width"], words: Int[Tensor, "items written"]
    ) -> Float[Tensor, "items written known"]:
        """The same from :meth:`cells`, so that an image is looked at once."""
        x = self.embedding[words] + self.position[: words.shape[1]]
        for block in self.blocks:
            x = block(x, cells)
        return self.head(self.norm(x))

    @torch.no_grad()
    def read(
        self, images: UInt8[np.ndarray, "items height width"], questions: Int[np.ndarray, " items"], *, batch: int = 256
    ) -> Read:
        """Write of each image what the mode says, and an answer; the likeliest word each time.

        Parameters
        ----------
        images
            [items, height, width] grey levels as bytes.
        questions
            [items] 0 for the third angle, 1 for the exterior one.
        batch
            Items at once.

        Raises
        ------
        InputError
            For images of another size than the network's, and questions that are none.
        """
        images, questions = np.asarray(images), np.asarray(questions)
        check_images(images, self.shape)
        if questions.shape != images.shape[:1] or not np.isin(questions, (0, 1)).all():
            raise InputError(f"questions must be 0 or 1 for each of {len(images)} images, got {questions!r:.60}")
        was, written = self.training, []
        self.eval()
        first = torch.tensor([_INDEX[q] for q in QUESTIONS], device=self.device)
        for start in range(0, len(images), batch):
            rows = slice(start, start + batch)
            cells = self.cells(torch.from_numpy(images[rows]).to(self.device))
            words = first[torch.from_numpy(questions[rows].astype(np.int64)).to(self.device)][:, None]
            while words.shape[1] <= LENGTHS[self.mode]:
                words = torch.cat([words, self.scores(cells, words)[:, -1].argmax(1)[:, None]], 1)
            written.append(words[:, 1:].cpu().numpy())
        self.train(was)
        return _understood(np.concatenate(written), self.mode)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write a folder: weights as safetensors, mode and size as JSON.

        Raises
        ------
        InputError
            When the folder is there and not empty.
        """
        net_files.save(folder, KIND, {"mode": self.mode, "shape": asdict(self.shape)}, self.state_dict(), overwrite)

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "auto") -> AlignNet:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            When it is no such folder, or damaged.
        """
        place = pick_device(device)
        state, tensors = net_files.load(folder, KIND)
        try:
            net = cls(state["mode"], AlignShape(**state["shape"]))
            net.load_state_dict(tensors)
        except (KeyError, TypeError, InputError, RuntimeError) as error:
            raise InputError(f"{folder} holds no such network: {str(error).splitlines()[0]}") from None
        return net.to(place).eval()


def check_images(images: UInt8[np.ndarray, "items height width"], shape: AlignShape) -> None:
    """Refuse images of another kind or size."""
    if images.dtype != np.uint8 or images.ndim != 3 or not len(images):
        raise InputError(f"images must be bytes with three axes, got {images.dtype} of shape {images.shape}")
    if images.shape[1:] != (shape.size, shape.size):
        there = " × ".join(map(str, images.shape[1:]))
        raise InputError(f"images must have {shape.size} × {shape.size} pixels, got {there}")


def _numbers(words: Any) -> Any:
    """Degrees of words; -1 for x, 0 for no number."""
    table = np.zeros(len(WORDS), dtype=np.int64)
    for n in NUMBERS:
        table[_INDEX[str(n)]] = n
    table[_INDEX["?"]] = UNKNOWN
    return table[words]


def _understood(words: Any, mode: str) -> Read:
    answers = np.maximum(_numbers(words[:, -1]), 0)
    if mode == "code":
        written = words[:, :9].reshape(-1, 3, 3)
        corners = written[:, :, :2] - _INDEX["at 0"]
        corners = np.where((corners >= 0) & (corners < BINS), corners, -1)
        return Read(answers, marks=_numbers(written[:, :, 2]), corners=corners)
    if mode == "caption":
        return Read(answers, numbers=_numbers(words[:, [2, 4]]))
    return Read(answers)


class _Block(nn.Module):
    """Attention over the words so far, attention over the image's cells, and a bend; each added."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.out_own = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ask, self.offer, self.out_image = (
            nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width),
        )  # fmt: skip
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cells: Tensor) -> Tensor:
        q, k, v = self._split(self.own(self.norms[0](x)), 3)
        x = x + self.out_own(_joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        (q,), (k, v) = self._split(self.ask(self.norms[1](x)), 1), self._split(self.offer(cells), 2)
        x = x + self.out_image(_joined(F.scaled_dot_product_attention(q, k, v)))
        return x + self.down(F.gelu(self.up(self.norms[2](x))))

    def _split(self, x: Tensor, parts: int) -> Sequence[Tensor]:
        return x.view(x.shape[0], x.shape[1], parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def _joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)
