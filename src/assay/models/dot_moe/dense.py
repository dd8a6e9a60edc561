"""The dense feed-forward layers of a model: where they are, and their weights in one form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.errors import InputError

from .errors import UnsupportedModelError

# Names of (gate, up, down, activation) as modules of the layer use them; no gate in a plain layer.
GATED = ("gate_proj", "up_proj", "down_proj", "act_fn")
PLAIN = (("fc1", "fc2", "activation_fn"), ("c_fc", "c_proj", "act"))


@dataclass(frozen=True)
class DenseFFN:
    """A feed-forward layer: act(x gateᵀ + gate_bias) ⊙ (x upᵀ + up_bias), or act(x upᵀ + up_bias), times down + bias.

    Attributes
    ----------
    up, gate
        (d_ffn, d); no gate in a plain layer.
    down
        (d_ffn, d): row i is what neuron i writes.
    up_bias, gate_bias, down_bias
        (d_ffn,), (d_ffn,) and (d,), or ``None``.
    act
        The activation function.
    """

    up: Float[Tensor, "d_ffn d"]
    down: Float[Tensor, "d_ffn d"]
    act: Callable[[Tensor], Tensor]
    gate: Float[Tensor, "d_ffn d"] | None = None
    up_bias: Float[Tensor, " d_ffn"] | None = None
    gate_bias: Float[Tensor, " d_ffn"] | None = None
    down_bias: Float[Tensor, " d"] | None = None

    def hidden(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d_ffn"]:
        """What each neuron says of each token."""
        return hidden(x, self.act, self.up, self.up_bias, self.gate, self.gate_bias)

    def output(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The layer's output."""
        y = self.hidden(x) @ self.down
        return y if self.down_bias is None else y + self.down_bias

    def to(self, device: torch.device, dtype: torch.dtype) -> DenseFFN:
        """A copy of the weights on a device, in a precision; always new tensors."""

        def moved(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.detach().to(device=device, dtype=dtype, copy=True)

        up, down = moved(self.up), moved(self.down)
        assert up is not None
        assert down is not None
        return DenseFFN(
            up, down, self.act, moved(self.gate), moved(self.up_bias), moved(self.gate_bias), moved(self.down_bias)
        )


def hidden(
    x: Tensor,
    act: Callable[[Tensor], Tensor],
    up: Tensor,
    up_bias: Tensor | None,
    gate: Tensor | None,
    gate_bias: Tensor | None,
) -> Tensor:
    """The neurons' values for the rows of ``up`` (and ``gate``) that are given."""
    value = nn.functional.linear(x, up, up_bias)
    if gate is None:
        return act(value)
    return act(nn.functional.linear(x, gate, gate_bias)) * value


@dataclass(frozen=True)
class Site:
    """Where a dense feed-forward layer sits: its number, its parent module, and the parts that make it up there."""

    layer: int
    parent: nn.Module
    names: tuple[str, ...]
    """The attributes of the parent that a converted layer takes the place of; it goes to the first of them."""

    def dense(self) -> DenseFFN:
        """The weights, not copied."""
        if len(self.names) == 1:
            return _read(getattr(self.parent, self.names[0]))
        return _read(self.parent)

    def modules(self) -> tuple[nn.Module, ...]:
        """What is there now."""
        return tuple(getattr(self.parent, name) for name in self.names)

    def put(self, ffn: nn.Module) -> None:
        """Put a converted layer there; what follows it within the parent passes its output through."""
        for name, module in zip(self.names, (ffn, *(nn.Identity() for _ in self.names[1:])), strict=True):
            setattr(self.parent, name, module)

    def restore(self, modules: tuple[nn.Module, ...]) -> None:
        """Put back what :meth:`modules` gave."""
        for name, module in zip(self.names, modules, strict=True):
            setattr(self.parent, name, module)


def sites(model: nn.Module) -> list[Site]:
    """The feed-forward layers of a decoder, in order.

    Raises
    ------
    UnsupportedModelError
        When a decoder layer holds no feed-forward layer of a known kind; names the module class found there.
    """
    found = []
    for number, layer in enumerate(decoder_layers(model)):
        if _is_plain(layer, "fc1", "fc2"):  # OPT: the two matrices are the decoder layer's own
            found.append(Site(number, layer, ("fc1", "activation_fn", "fc2")))
            continue
        name = next((n for n in ("mlp", "feed_forward", "ffn") if isinstance(getattr(layer, n, None), nn.Module)), None)
        if name is None:
            raise UnsupportedModelError(
                f"layer {number} ({type(layer).__name__}) has no feed-forward layer of a known name; it holds "
                + ", ".join(f"{n} ({type(m).__name__})" for n, m in layer.named_children())
            )
        _check_kind(getattr(layer, name), number)
        found.append(Site(number, layer, (name,)))
    return found


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The list of a model's decoder layers: its longest list of modules of one class that is in no other list."""
    lists: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in lists)
        if isinstance(module, nn.ModuleList) and not inside and len({type(item) for item in module}) == 1:
            lists[name] = module
    if not lists:
        raise UnsupportedModelError(f"{type(model).__name__} has no list of decoder layers")
    return max(lists.values(), key=len)


def check_formula(site: Site, d: int) -> None:
    """Raise ``UnsupportedModelError`` where a module does something else with its weights than this file thinks.

    ``InputError`` where what it computes is not finite.
    """
    if len(site.names) > 1:
        return  # the decoder layer itself; there is no module of its own to compare with
    (module,) = site.modules()
    dense = site.dense()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, 16, d, generator=generator).to(dense.up)
    with torch.no_grad():
        was_training = module.training
        theirs = module.eval()(x)
        module.train(was_training)
        ours = dense.output(x[0])
    scale = float(ours.float().abs().max())
    if not math.isfinite(scale):
        raise InputError(f"layer {site.layer} writes NaN or infinity: its weights are damaged")
    exact = dense.up.dtype in (torch.float32, torch.float64)
    if not isinstance(theirs, Tensor) or not torch.allclose(
        theirs[0].float(), ours.float(), atol=(1e-4 if exact else 3e-2) * max(scale, 1e-6), rtol=0
    ):
        raise UnsupportedModelError(
            f"layer {site.layer}: {type(module).__name__} has the weights of a feed-forward layer and computes "
            "something else with them"
        )


def _is_plain(module: nn.Module, first: str, second: str) -> bool:
    return isinstance(getattr(module, first, None), nn.Module) and isinstance(getattr(module, second, None), nn.Module)


def _check_kind(module: nn.Module, number: int) -> None:
    if type(module).__name__ == "DotMoEFFN":
        raise ValueError(f"layer {number} is converted already; give the dense model")
    gated = all(hasattr(module, name) for name in GATED)
    if not gated and not any(all(hasattr(module, name) for name in names) for names in PLAIN):
        children = ", ".join(name for name, _ in module.named_children()) or "nothing"
        raise UnsupportedModelError(
            f"layer {number}: {type(module).__name__} is no feed-forward layer of a known kind; it holds {children}, "
            "and known are gate_proj/up_proj/down_proj, fc1/fc2 and c_fc/c_proj"
        )


def _read(module: nn.Module) -> DenseFFN:
    if all(hasattr(module, name) for name in GATED):
        gate, up, down, act = (getattr(module, name) for name in GATED)
        (g, gb), (u, ub), (w, wb) = (_linear(part) for part in (gate, up, down))
        return DenseFFN(u, w.T, act, g, ub, gb, wb)
    names = next(names for names in PLAIN if all(hasattr(module, name) for name in names))
    first, second, act = (getattr(module, name) for name in names)
    (u, ub), (w, wb) = _linear(first), _linear(second)
    return DenseFFN(u, w.T, act, None, ub, None, wb)


def _linear(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight (out, in) and bias of a linear layer; ``TypeError`` where it is none, or quantised."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    name = type(module).__name__
    if name == "DotMoEFFN":
        raise ValueError("the model is converted already; give the dense model")
    if name not in ("Linear", "NonDynamicallyQuantizableLinear", "Conv1D"):
        raise TypeError(
            f"a feed-forward layer is made of {name}, not of plain linear layers: quantised weights and adapters "
            "cannot be cut; give the model in float32, bfloat16 or float16, adapters merged"
        )
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        raise TypeError(f"the weights of {name} must be floating-point numbers, not {getattr(weight, 'dtype', weight)}")
    return (weight.T if name == "Conv1D" else weight), bias
