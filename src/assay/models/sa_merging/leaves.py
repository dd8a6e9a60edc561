"""Stand-ins for the layers of a network, which read their weights when the signal passes and keep none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Read = Callable[[str], Tensor]
Factors = tuple[Tensor, ...]
"""Tensors that broadcast to a parameter's shape; their product is its sensitivity."""


class Signal:
    """One pass: where weights are read, and what is noted down of each parameter on the way."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.offsets: dict[str, float] = {}  # of gains that are stored as their distance from 1

    def start(self, read: Read) -> None:
        """Begin a pass over other weights."""
        self.read = read
        self.factors: dict[str, list[Factors]] = {}
        self.vectors: list[tuple[str, Tensor]] = []  # small parameters, whose gradients autograd collects

    def magnitude(self, name: str) -> Tensor:
        """|θ| of a parameter (|1 + θ| of a gain that is stored that way)."""
        return (self.read(name).to(self.device, self.dtype) + self.offsets.get(name, 0.0)).abs()

    def collect(self) -> dict[str, list[Factors]]:
        """All sensitivities, after the backward pass; a parameter that the signal did not reach has none."""
        for name, vector in self.vectors:
            if vector.grad is not None:
                self.factors.setdefault(name, []).append((vector.grad,))
        reached = {
            name: terms
            for name, terms in self.factors.items()
            if any(all(bool(factor.any()) for factor in factors) for factors in terms)
        }
        self.factors, self.vectors = {}, []
        return _together(reached)


def _together(terms: dict[str, list[Factors]]) -> dict[str, list[Factors]]:
    """The same in one piece of memory: kept small pieces between large freed ones would keep those from being used."""
    every = [factor for products in terms.values() for factors in products for factor in factors]
    if not every:
        return terms
    parts = iter(torch.cat([factor.reshape(-1) for factor in every]).split([factor.numel() for factor in every]))
    return {
        name: [tuple(next(parts).reshape(factor.shape) for factor in factors) for factors in products]
        for name, products in terms.items()
    }


class _Through(torch.autograd.Function):
    """y = |W| x + |b| for one position; the weights are read again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, leaf: MatrixLeaf) -> Tensor:
        ctx.leaf = leaf
        ctx.save_for_backward(x)
        return leaf.through(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.leaf.back(x.detach(), grad), None


class MatrixLeaf(nn.Module):
    """Stands for a linear or convolutional layer; a convolution sees the same values at every place.

    Parameters
    ----------
    weight, bias
        The names of its parameters; ``bias`` may be None.
    shape
        The weight's shape.
    transposed
        Whether the weight is (inputs, outputs), as in GPT-2.
    groups
        Of a convolution.
    """

    def __init__(
        self,
        signal: Signal,
        weight: str,
        bias: str | None,
        shape: tuple[int, ...],
        transposed: bool = False,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.signal, self.name, self.bias_name, self.transposed = signal, weight, bias, transposed
        self.groups, self.places = groups, len(shape) - 2
        self.outputs, self.inputs = (shape[1], shape[0]) if transposed else (shape[0], shape[1] * groups)
        self.weight = _no_weight(signal)

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """|W| x + |b|, of x with one position (all axes but the last are 1)."""
        if x.numel() != self.inputs:
            if x.dim() > 2 or self.inputs % x.numel():
                raise ValueError(f"{self.name} takes {self.inputs} values, and {x.numel()} come")
            # A flattened image enters: each channel stands for as many equal entries.
            x = x.reshape(1, -1).repeat_interleave(self.inputs // x.numel(), dim=1)
        return _Through.apply(x.reshape(-1), self).reshape(*x.shape[:-1], self.outputs)

    def _matrices(self) -> Tensor:
        """(groups, outputs, inputs of a group), magnitudes summed over a kernel's places."""
        weight = self.signal.magnitude(self.name)
        weight = weight.T if self.transposed else weight.flatten(2).sum(2) if self.places > 0 else weight
        return weight.reshape(self.groups, -1, weight.shape[1]) if self.groups > 1 else weight[None]

    def through(self, x: Tensor) -> Tensor:
        """Forward, for a flat x."""
        y = (self._matrices() @ x.reshape(self.groups, -1, 1)).reshape(-1)
        return y if self.bias_name is None else y + self.signal.magnitude(self.bias_name)

    def back(self, x: Tensor, grad: Tensor) -> Tensor:
        """Backward: notes the sensitivities down, returns the gradient of x."""
        per_group = self.outputs // self.groups
        if self.transposed:
            factors = (x[:, None], grad[None, :])
        else:
            entering = x.reshape(self.groups, 1, -1).expand(-1, per_group, -1).reshape(self.outputs, -1)
            entering = entering if self.groups > 1 else x[None, :]
            ones = (1,) * self.places
            factors = (grad.reshape(-1, 1, *ones), entering.reshape(*entering.shape, *ones))
        self.signal.factors.setdefault(self.name, []).append(factors)
        if self.bias_name is not None:
            self.signal.factors.setdefault(self.bias_name, []).append((grad,))
        return (self._matrices().mT @ grad.reshape(self.groups, -1, 1)).reshape(-1)


class NormLeaf(nn.Module):
    """Stands for a layer, RMS or batch norm: its gain times x, at a scale that is taken as constant."""

    def __init__(self, signal: Signal, module: nn.Module, prefix: str) -> None:
        super().__init__()
        self.signal, self.prefix = signal, prefix
        self.own = {name for name, _ in module.named_parameters(recurse=False)}
        self.batch = isinstance(module, nn.modules.batchnorm._BatchNorm)
        self.variance = self.batch and module.running_var is not None
        self.eps = getattr(module, "eps", 1e-5)
        self.weight = _no_weight(signal)
        if _stored_from_one(module):
            signal.offsets[f"{prefix}weight"] = 1.0

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """Its shift is not passed on; the sensitivity of that is the gradient of what leaves here."""
        signal = self.signal
        if self.variance:
            x = x / (signal.read(f"{self.prefix}running_var").to(x) + self.eps).sqrt()
        elif not self.batch:
            x = x / x.mean(-1, keepdim=True).detach().clamp_min(torch.finfo(x.dtype).tiny)
        if "weight" in self.own:
            gain = signal.magnitude(f"{self.prefix}weight").requires_grad_()
            signal.vectors.append((f"{self.prefix}weight", gain))
            x = x * gain
        if "bias" in self.own:
            shift = torch.zeros(x.shape[-1], dtype=x.dtype, device=x.device, requires_grad=True)
            signal.vectors.append((f"{self.prefix}bias", shift))
            x = x + shift
        return x


class EmbeddingLeaf(nn.Module):
    """Stands for an embedding. The signal enters behind it, so it adds zeros, for one position."""

    def __init__(self, signal: Signal, width: int) -> None:
        super().__init__()
        self.signal, self.width, self.weight = signal, width, _no_weight(signal)

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """(1, 1, width)."""
        return torch.zeros(1, 1, self.width, dtype=self.signal.dtype, device=self.signal.device)


class PatchLeaf(nn.Module):
    """Stands for the embeddings of an image: ones enter at the convolution that makes patches, for one patch."""

    def __init__(self, embeddings: nn.Module, convolution: MatrixLeaf) -> None:
        super().__init__()
        self.convolution = convolution
        for name, child in embeddings.named_children():
            self.add_module(name, child)  # networks look in here for a dtype

    def forward(self, *_: Any, **__: Any) -> Tensor:
        """(1, 1, width)."""
        signal = self.convolution.signal
        ones = torch.ones(1, 1, self.convolution.inputs, dtype=signal.dtype, device=signal.device)
        return self.convolution(ones.requires_grad_())  # else no gradient is asked for


class Same(nn.Module):
    """Stands for an activation, a dropout, a pooling: what comes passes."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        """Return x."""
        return x


def gate(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
    """Attention of one position: the values, times how strongly query and key meet in each head.

    Query is (1, heads, 1, d), key and value may have fewer heads. The gates have mean 1.
    """
    repeat = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
    meet = (query * key).mean(-1, keepdim=True)
    meet = meet / meet.mean().detach().clamp_min(torch.finfo(meet.dtype).tiny)
    return (meet * value).transpose(1, 2), None


def _no_weight(signal: Signal) -> Tensor:
    """Some networks ask a layer for its dtype or device before they call it."""
    return torch.empty(0, dtype=signal.dtype, device=signal.device)


def _stored_from_one(norm: nn.Module) -> bool:
    """Whether the gain is 1 + weight (as in Gemma): then the norm passes something on when its weight is 0."""
    if isinstance(norm, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm | nn.modules.batchnorm._BatchNorm):
        return False
    zeros = {name: torch.zeros(parameter.shape) for name, parameter in norm.named_parameters(recurse=False)}
    out = torch.func.functional_call(norm, zeros, (torch.ones(1, *norm.weight.shape),))
    return bool((out != 0).any())


_SAME = (
    nn.Dropout, nn.Flatten, nn.Identity, nn.modules.pooling._AvgPoolNd, nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd, nn.modules.pooling._AdaptiveMaxPoolNd,
)  # fmt: skip


def _matrix_leaf(signal: Signal, module: nn.Module, prefix: str) -> MatrixLeaf:
    return MatrixLeaf(
        signal,
        f"{prefix}weight",
        f"{prefix}bias" if getattr(module, "bias", None) is not None else None,
        tuple(module.weight.shape),
        transposed=type(module).__name__ == "Conv1D",
        groups=getattr(module, "groups", 1),
    )


def _is_convolution(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)


def stand_in(signal: Signal, module: nn.Module, prefix: str) -> nn.Module | None:
    """The stand-in for a module of a known kind, or None."""
    kind = type(module).__name__
    if isinstance(module, nn.Linear) or _is_convolution(module) or kind == "Conv1D":
        return _matrix_leaf(signal, module, prefix)
    if isinstance(module, nn.Embedding):
        return EmbeddingLeaf(signal, module.embedding_dim)
    if "Norm" in kind:
        return NormLeaf(signal, module, prefix) if getattr(module, "weight", None) is not None else Same()
    if "Embeddings" in kind:
        found = [(name, child) for name, child in module.named_modules() if _is_convolution(child)]
        if len(found) == 1:
            name, convolution = found[0]
            return PatchLeaf(module, _matrix_leaf(signal, convolution, f"{prefix}{name}."))
    activation = type(module).__module__ in ("transformers.activations", "torch.nn.modules.activation")
    if (activation and not isinstance(module, nn.MultiheadAttention)) or isinstance(module, _SAME):
        return Same()
    return None


def swap(signal: Signal, module: nn.Module, prefix: str = "") -> list[tuple[nn.Module, str, str]]:
    """Put stand-ins in place of all modules of a known kind below ``module``.

    Returns the parameters that stay, of modules of no known kind: module, its own name for it, full name.
    """
    rest = []
    for own, parameter in list(module.named_parameters(recurse=False)):
        rest.append((module, own, f"{prefix}{own}"))
        parameter.requires_grad_(False)
    for name, child in list(module.named_children()):
        new = stand_in(signal, child, f"{prefix}{name}.")
        if new is None:
            rest += swap(signal, child, f"{prefix}{name}.")
        else:
            setattr(module, name, new)
    for name, buffer in list(module.named_buffers(recurse=False)):
        # Rotary tables among them: a position 0 turns nothing, whatever the frequencies are.
        module.register_buffer(name, torch.zeros(buffer.shape, dtype=buffer.dtype, device=signal.device))
    return rest
