r"""How much each weight matters for the signal: the gradient of a pass of ones through absolute weights.

Every weight is replaced by its magnitude, every activation by the identity, and all ones enter at the embedding. With
:math:`R` the sum of the last hidden state, the sensitivity of a weight is :math:`\partial R/\partial|\theta|`. One
position is passed, so the sensitivity of a matrix is an outer product of two vectors, and nothing as large as the model
is held.

Only the order within a tensor counts for merging: a tensor's sensitivity is known up to a positive factor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.errors import InputError, one_line
from assay.parts.checkpoints import load_config

from .leaves import Factors, MatrixLeaf, Read, Signal, gate, stand_in, swap
from .weights import Source, Weights, open_weights

Connectivity = Literal["auto", "chain"] | Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]

_GATE = "assay_signal_gate"

Terms = list[Factors]
"""A sum of products of tensors that broadcast to the parameter's shape."""


class Unknown(ValueError):
    """The signal can't be passed through this network; the message says why."""


def sensitivity(
    model_or_arch: Source | Connectivity,
    state: Mapping[str, Tensor] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
) -> dict[str, Tensor]:
    """Sensitivity of the signal to each weight's magnitude, from the weights alone.

    Parameters
    ----------
    model_or_arch
        A module, a Hugging Face folder, ``"chain"`` (the matrices of ``state`` in their order), or a function from a
        state dict to sensitivities.
    state
        Weights by name; by default those of the module or the folder.
    dtype, device
        What the pass is computed in. Chains are computed in float64, since products of many layers grow.

    Returns
    -------
    dict
        Parameter name to a tensor of its shape, not negative. Parameters that the signal does not pass (embeddings,
        heads) have no entry.

    Raises
    ------
    ValueError
        If the signal can't be passed through the network.
    """
    if state is None:
        if isinstance(model_or_arch, str) and model_or_arch in ("auto", "chain"):
            raise InputError(f"state must be given for {model_or_arch!r}")
        weights = open_weights(model_or_arch, "the model")  # type: ignore[arg-type]
    else:
        weights = open_weights(state, "state")
        if isinstance(model_or_arch, nn.Module):
            weights.module = model_or_arch
        elif isinstance(model_or_arch, str | Path) and model_or_arch not in ("auto", "chain"):
            weights.folder = Path(model_or_arch)
    how = model_or_arch if callable(model_or_arch) and not isinstance(model_or_arch, nn.Module) else "auto"
    if isinstance(model_or_arch, str) and model_or_arch == "chain":
        how = "chain"
    sensed = signal_pass(weights, how, dtype, torch.device(device))(weights.read)
    return {name: dense(terms, weights.specs[name].shape) for name, terms in sensed.items()}


def dense(terms: Terms, shape: tuple[int, ...]) -> Tensor:
    """A sensitivity as one tensor of the parameter's shape."""
    total = torch.zeros(shape, dtype=terms[0][0].dtype, device=terms[0][0].device)
    for factors in terms:
        product = factors[0]
        for factor in factors[1:]:
            product = product * factor
        total += product
    return total


class SignalPass:
    """Passes the signal through weights of one architecture, again and again.

    Attributes
    ----------
    unknown
        Parameters of modules of no known kind; the signal passes them, but their sensitivity is not known.
    """

    def __init__(self, signal: Signal, run: Callable[[], Tensor], unknown: list[str], names: Mapping[str, str]) -> None:
        self.signal, self._run, self.unknown, self._names = signal, run, unknown, names
        self._refill: Callable[[], None] = lambda: None

    def __call__(self, read: Read) -> dict[str, Terms]:
        """The sensitivities of all parameters that the signal passes, by their names in the checkpoint."""
        self.signal.start(lambda name: read(self._names.get(name, name)))
        self._refill()
        with torch.enable_grad():
            total = self._run()
            if not bool(torch.isfinite(total)):
                raise Unknown("the signal grew beyond what numbers hold")
            total.backward()
        return {self._names.get(name, name): terms for name, terms in self.signal.collect().items()}

    def offset(self, name: str) -> float:
        """1 for a gain that is stored as its distance from 1, else 0."""
        return self._offsets.get(name, 0.0)

    @property
    def _offsets(self) -> dict[str, float]:
        return {self._names.get(name, name): value for name, value in self.signal.offsets.items()}


class GivenPass:
    """The user's own function as a pass."""

    unknown: Sequence[str] = ()

    def __init__(self, function: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]], weights: Weights) -> None:
        self._function, self._specs = function, weights.specs

    def __call__(self, read: Read) -> dict[str, Terms]:
        """What the function says of these weights."""
        given = self._function({name: read(name) for name in self._specs})
        for name, tensor in given.items():
            if name not in self._specs or tuple(tensor.shape) != self._specs[name].shape:
                raise InputError(
                    f"connectivity gave a tensor {name!r} of shape {tuple(tensor.shape)}: no such parameter"
                )
            if not bool(torch.isfinite(tensor).all()) or bool((tensor < 0).any()):
                raise InputError(f"connectivity gave a negative or infinite sensitivity for {name!r}")
        return {name: [(tensor,)] for name, tensor in given.items()}

    def offset(self, name: str) -> float:
        """Gains are taken as they are stored."""
        return 0.0


Sensing = SignalPass | GivenPass


def signal_pass(weights: Weights, connectivity: Connectivity, dtype: torch.dtype, device: torch.device) -> Sensing:
    """The pass for an architecture; ``Unknown`` says why there is none."""
    if callable(connectivity):
        return GivenPass(connectivity, weights)
    if connectivity == "chain" or (weights.module is None and weights.folder is None):
        return _chain(weights, device)
    if weights.module is not None:
        skeleton = _without_weights(weights.module)
    else:
        assert weights.folder is not None
        skeleton = _from_config(weights.folder)
    if hasattr(skeleton, "base_model") and hasattr(skeleton, "config"):
        return _transformer(skeleton, weights, dtype, device)
    return _plain(skeleton, device)


def _chain(weights: Weights, device: torch.device) -> SignalPass:
    """The matrices of a state dict, one after another."""
    signal = Signal(torch.float64, device)
    leaves = []
    for name, spec in weights.specs.items():
        if len(spec.shape) >= 2 and spec.dtype.is_floating_point:
            bias = name.removesuffix("weight") + "bias" if name.endswith("weight") else None
            fits = bias in weights.specs and weights.specs[bias].shape == spec.shape[:1]
            leaves.append(MatrixLeaf(signal, name, bias if fits else None, spec.shape))
    if not leaves:
        raise Unknown("there is no matrix among the weights")
    for one, next_ in pairwise(leaves):
        if next_.inputs % one.outputs:
            raise Unknown(f"no chain: {one.name} gives {one.outputs} values, and {next_.name} takes {next_.inputs}")

    def run() -> Tensor:
        x = torch.ones(1, leaves[0].inputs, dtype=torch.float64, device=device, requires_grad=True)
        for leaf in leaves:
            x = leaf(x)
        return x.sum()

    return SignalPass(signal, run, [], {})


def _plain(skeleton: nn.Module, device: torch.device) -> SignalPass:
    """A network of torch's own layers: ones enter at its first layer."""
    signal = Signal(torch.float64, device)
    whole = stand_in(signal, skeleton, "")
    rest = [] if whole is not None else swap(signal, skeleton)
    network = (whole if whole is not None else skeleton).eval()
    if rest:
        raise Unknown(f"{rest[0][2]} belongs to a {type(rest[0][0]).__name__}, a module of no known kind")
    first = next((m for m in network.modules() if isinstance(m, MatrixLeaf)), None)
    if first is None:
        raise Unknown("it has no linear or convolutional layer")

    def run() -> Tensor:
        return network(torch.ones(1, first.inputs, dtype=torch.float64, device=device, requires_grad=True)).sum()

    return SignalPass(signal, _explained(run), [], {})


def _transformer(model: Any, weights: Weights, dtype: torch.dtype, device: torch.device) -> SignalPass:
    """A Hugging Face transformer: ones enter behind the embedding, for one position."""
    if getattr(model.config, "is_encoder_decoder", False):
        raise Unknown(f"{type(model).__name__} has an encoder and a decoder, which this pass does not know")
    names = _checkpoint_names(model, weights)
    _register_gate()
    model.config._attn_implementation = _GATE
    for module in model.modules():
        if getattr(module, "config", None) is not None and module.config is not model.config:
            module.config._attn_implementation = _GATE
    images = getattr(model, "main_input_name", "input_ids") == "pixel_values"
    width = 0 if images else model.get_input_embeddings().embedding_dim
    signal = Signal(dtype, device)
    rest = swap(signal, model)
    backbone = model.base_model.eval()

    def run() -> Tensor:
        if images:
            config = model.config
            side = config.image_size if isinstance(config.image_size, list | tuple) else [config.image_size] * 2
            entering = {"pixel_values": torch.ones(1, config.num_channels, *side, dtype=dtype, device=device)}
        else:
            ones = torch.ones(1, 1, width, dtype=dtype, device=device, requires_grad=True)
            entering = {"inputs_embeds": ones, "use_cache": False}
        return backbone(**entering).last_hidden_state.sum()

    sensing = SignalPass(signal, _explained(run), [names.get(full, full) for _, _, full in rest], names)

    def refill() -> None:
        for module, own, full in rest:
            value = signal.magnitude(full) if names.get(full, full) in weights.specs else None
            if value is not None:
                module.register_parameter(own, nn.Parameter(value, requires_grad=False))

    sensing._refill = refill
    return sensing


def _explained(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Whatever a network of unknown make raises becomes the reason why the signal can't be passed."""

    def explained() -> Tensor:
        try:
            return run()
        except MemoryError:
            raise
        except Exception as error:
            raise Unknown(f"the signal could not be passed ({type(error).__name__}: {one_line(error, 160)})") from error

    return explained


def _register_gate() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(_GATE, gate)
    AttentionMaskInterface.register(_GATE, lambda *_, **__: None)


def _without_weights(module: nn.Module) -> nn.Module:
    """The same network with its weights on the meta device, where they take no memory."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)


def _from_config(folder: Path) -> nn.Module:
    """The network that a folder's configuration describes, without weights."""
    import transformers

    config = load_config(folder)
    architectures = getattr(config, "architectures", None) or []
    cls = getattr(transformers, architectures[0], None) if architectures else None
    with torch.device("meta"):
        return cls(config) if cls is not None else transformers.AutoModel.from_config(config)


def _checkpoint_names(model: Any, weights: Weights) -> dict[str, str]:
    """A module's name for a parameter to the checkpoint's, where transformers renames while it loads."""
    if weights.module is not None:
        return {}
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    renamings = [rule for rule in get_model_conversion_mapping(model) if isinstance(rule, WeightRenaming)]
    ours = model.state_dict()
    names = {}
    for name in weights.specs:
        renamed, _ = rename_source_key(name, renamings, [], model.base_model_prefix, ours)
        if renamed in ours:
            names[renamed] = name
    return names
