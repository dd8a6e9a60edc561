"""The network: an encoder to features, and a head from features to logits."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.errors import InputError, one_line

SLOPE = 0.2  # of the leaky rectifiers
CLIP = 4.0  # standard deviations


class Standardise(nn.Module):
    """Columns to mean 0 and standard deviation 1, cut off at ±4; constant columns become 0."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns, dtype=torch.float64))
        self.register_buffer("sd", torch.ones(columns, dtype=torch.float64))

    def learn(self, X: Float[Tensor, "rows columns"]) -> None:
        """Take mean and deviation of float64 rows; of very large numbers too."""
        largest = X.abs().amax(dim=0).clamp_min(torch.finfo(X.dtype).tiny)
        scaled = X / largest
        mean, sd = scaled.mean(dim=0), scaled.std(dim=0, correction=0)
        # Of a constant column rounding may leave a deviation that is no more than that.
        constant = sd <= 1e-12
        self.mean.copy_(mean * largest)
        self.sd.copy_(torch.where(constant, torch.full_like(sd, torch.inf), sd * largest))

    def forward(self, X: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
        """Standardised float32 rows."""
        # Halves, so that the difference of two numbers near the largest float is none too large.
        away = (X.double() / 2 - self.mean / 2) / (self.sd / 2)
        return away.clamp(-CLIP, CLIP).float()


class Network(nn.Module):
    """``head(encoder(x))``; anchors go in between, or in front of the encoder.

    Attributes
    ----------
    encoder
        Rows to features (n, d).
    head
        Features to logits (n, K).
    """

    def __init__(self, encoder: nn.Module, dim: int, head_hidden: int, classes: int) -> None:
        super().__init__()
        self.encoder = encoder
        layers: list[nn.Module] = [nn.LeakyReLU(SLOPE)]
        if head_hidden:
            layers += [nn.Linear(dim, head_hidden), nn.LeakyReLU(SLOPE)]
        self.head = nn.Sequential(*layers, nn.Linear(head_hidden or dim, classes))

    def forward(self, X: Tensor) -> Float[Tensor, "rows classes"]:
        """Logits of rows."""
        return self.head(self.encoder(X))


def perceptron(columns: int, hidden: Sequence[int]) -> nn.Module:
    """Linear layers of these widths with leaky rectifiers between them; the last width is that of the features."""
    layers: list[nn.Module] = []
    for before, after in zip((columns, *hidden[:-1]), hidden, strict=True):
        layers += [nn.Linear(before, after), nn.LeakyReLU(SLOPE)]
    return nn.Sequential(*layers[:-1])


def users_encoder(encoder: nn.Module, few: Tensor) -> tuple[nn.Module, int]:
    """A copy of a user's encoder, and the width of its features, tried on a few rows."""
    own = copy.deepcopy(encoder).to(few.device)
    training = own.training
    try:
        with torch.no_grad():
            Z = own.eval()(few)
    except Exception as error:
        raise InputError(f"encoder cannot take rows of shape {tuple(few.shape[1:])}: {one_line(error, 200)}") from error
    own.train(training)
    if not isinstance(Z, Tensor) or Z.ndim != 2 or len(Z) != len(few) or not Z.is_floating_point():
        found = f"shape {tuple(Z.shape)}" if isinstance(Z, Tensor) else type(Z).__name__
        raise InputError(f"encoder must return features (rows, d), one row each, got {found} for {len(few)} rows")
    return own, Z.shape[1]
