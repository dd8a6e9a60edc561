"""The settings of a conversion."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Init = Literal["activation", "weight", "random"]


@dataclass(frozen=True)
class DotMoEConfig:
    """Settings of a conversion, checked when made.

    Attributes
    ----------
    n_experts
        E, the number of equal experts that a layer's neurons are cut into, 2 to d_ffn.
    top_k
        k, how many experts each token uses, 1 to E.
    n_shared
        How many of the k are the same for all tokens; the router chooses the others. Below ``top_k``; 0 is the
        source's method. One shared expert helps much at k = 2.
    init
        Where the cut starts: ``"activation"`` (neurons that are strong on the same tokens), ``"weight"`` (neurons
        with like weights) or ``"random"``.
    learn_cut
        False keeps the cut where it starts and trains router and weights only.
    correction
        Score a move by its exact effect on the layer's error instead of its first-order effect: a neuron's move to
        another expert, and a token's to another expert. False is plain straight-through estimation, as in the source.
    fit_router
        Start the router at the ridge regression of what each expert would gain a token; False starts it at random.
    tau_start, tau_end, sinkhorn_iters
        Weight of the entropy in the soft plan, from start to end geometrically, and rounds of Sinkhorn.
    lr_affinity, lr_router, lr_weights
        Adam's step sizes; ``lr_weights=0`` leaves the dense weights as they are.
    steps, batch_tokens
        Steps of the layer stage, and tokens in each.
    balance, z_loss
        Weights of the load-balancing loss and of the router's z-loss.
    global_steps, lr_global, kl, ce
        The global stage: steps of ``batch_tokens`` tokens, step size, weights of KL(dense ‖ converted) and of the
        next-token loss.
    layers
        Numbers of the layers to convert; ``None`` for all.
    seed
        Seed of starts and order of the tokens.
    """

    n_experts: int = 8
    top_k: int = 2
    n_shared: int = 1
    init: Init = "activation"
    learn_cut: bool = True
    correction: bool = True
    fit_router: bool = True
    tau_start: float = 1.0
    tau_end: float = 0.1
    sinkhorn_iters: int = 20
    lr_affinity: float = 2e-2
    lr_router: float = 5e-3
    lr_weights: float = 2e-3
    steps: int = 300
    batch_tokens: int = 512
    balance: float = 1e-2
    z_loss: float = 1e-3
    global_steps: int = 0
    lr_global: float = 3e-4
    kl: float = 1.0
    ce: float = 1.0
    layers: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole = ("n_experts", "top_k", "n_shared", "sinkhorn_iters", "steps", "batch_tokens", "global_steps", "seed")
        for name in whole:
            _check_type(name, getattr(self, name), int, "a whole number")
        for name in ("learn_cut", "correction", "fit_router"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        rates = ("lr_affinity", "lr_router", "lr_weights", "lr_global")
        for name in (*rates, "tau_start", "tau_end", "balance", "z_loss", "kl", "ce"):
            _check_type(name, getattr(self, name), int | float, "a number")
        if self.n_experts < 2:
            raise ValueError(f"n_experts must be at least 2, got {self.n_experts}")
        check_top_k(self.top_k, self.n_experts, self.n_shared)
        for name in ("tau_start", "tau_end", "sinkhorn_iters", "batch_tokens"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {getattr(self, name)}")
        if self.tau_end > self.tau_start:
            raise ValueError(f"tau_end must be at most tau_start, got {self.tau_end} and {self.tau_start}")
        for name in (*rates, "steps", "global_steps", "balance", "z_loss", "kl", "ce", "seed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a finite number and not negative, got {value}")
        if self.init not in ("activation", "weight", "random"):
            raise ValueError(f"init must be 'activation', 'weight' or 'random', got {self.init!r}")
        if self.layers is not None:
            if isinstance(self.layers, str) or not isinstance(self.layers, Iterable):
                raise ValueError(f"layers must be several numbers, or None for all, got {self.layers!r}")
            for number in self.layers:
                _check_type("layers", number, int, "whole numbers")
            object.__setattr__(self, "layers", tuple(sorted(set(self.layers))))

    def as_dict(self) -> dict[str, Any]:
        """The settings as JSON can write them."""
        return asdict(self)


def _check_type(name: str, value: object, kind: Any, what: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{name} must be {what}, got {value!r}")


def check_top_k(top_k: int, n_experts: int, n_shared: int) -> None:
    """Raise ``ValueError`` where so many experts a token cannot be."""
    if not 1 <= top_k <= n_experts:
        raise ValueError(f"top_k must be 1 to n_experts, got top_k={top_k} and n_experts={n_experts}")
    if not 0 <= n_shared < top_k:
        raise ValueError(f"n_shared must be 0 or more and below top_k, got n_shared={n_shared} and top_k={top_k}")
