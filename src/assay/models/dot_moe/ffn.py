"""A feed-forward layer whose neurons are cut into experts, of which each token uses a few."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assay.numerics.transport import round_balanced, sinkhorn

from .config import check_top_k
from .dense import DenseFFN, hidden


def capacities(d_ffn: int, n_experts: int) -> list[int]:
    """Sizes of the experts: equal, the first ``d_ffn % n_experts`` larger by one."""
    if not 2 <= n_experts <= d_ffn:
        raise ValueError(f"n_experts must be 2 to d_ffn, got n_experts={n_experts} and d_ffn={d_ffn}")
    small, more = divmod(d_ffn, n_experts)
    return [small + 1] * more + [small] * (n_experts - more)


@dataclass(frozen=True)
class Parts:
    """What a pass in training computed on the way; all of it is needed by the losses.

    Attributes
    ----------
    hidden
        (n, d_ffn) the neurons' values.
    chosen
        (n, E) 1 where a token uses an expert, the shared ones included.
    routing
        (n, E) the same with the gradient of the router's probabilities.
    logits, probabilities
        (n, E − n_shared) of the router, float32.
    cut
        (d_ffn, E) 1 where a neuron belongs to an expert.
    soft_cut
        (d_ffn, E) the transport plan that ``cut`` was rounded from; ``None`` where the cut is not learned.
    output
        (n, d).
    """

    hidden: Float[Tensor, "n d_ffn"]
    chosen: Float[Tensor, "n E"]
    routing: Float[Tensor, "n E"]
    logits: Float[Tensor, "n routed"]
    probabilities: Float[Tensor, "n routed"]
    cut: Float[Tensor, "d_ffn E"]
    soft_cut: Float[Tensor, "d_ffn E"] | None
    output: Float[Tensor, "n d"]


class DotMoEFFN(nn.Module):
    """A feed-forward layer cut into E experts, of which each token uses ``top_k``.

    The output is the plain sum of what the token's experts write, so that ``top_k = E`` is the dense layer with the
    same weights. In training mode all neurons are computed and those of experts that a token does not use are
    multiplied by 0, with gradients for cut (while it is learned), router and weights. In evaluation mode only the
    chosen slices are multiplied: an expert's neurons lie beside each other.

    Parameters
    ----------
    dense
        The layer to cut; its tensors become this layer's parameters, without a copy.
    n_experts, top_k, n_shared
        As in :class:`~assay.models.dot_moe.DotMoEConfig`.

    Attributes
    ----------
    assignment
        (d_ffn,) int64, the expert of each neuron, in the dense layer's order.
    router
        Linear layer (d → E − n_shared), no bias, computed in float32; zero until it is trained or set.
    experts
        E.

    Raises
    ------
    ValueError
        For numbers of experts that cannot be.
    """

    assignment: Tensor

    def __init__(self, dense: DenseFFN, n_experts: int, top_k: int, n_shared: int = 0) -> None:
        super().__init__()
        d_ffn, d = dense.up.shape
        check_top_k(top_k, n_experts, n_shared)
        self.sizes = capacities(d_ffn, n_experts)
        self.edges = list(accumulate(self.sizes, initial=0))
        self.experts, self.n_shared, self._top_k = n_experts, n_shared, top_k
        self.act = dense.act
        for name in ("up", "gate", "down", "up_bias", "gate_bias", "down_bias"):
            tensor = getattr(dense, name)
            self.register_parameter(name, None if tensor is None else nn.Parameter(tensor.detach().contiguous()))
        # Without torch's start at random, which would use the global generator.
        self.router = nn.utils.skip_init(
            nn.Linear, d, n_experts - n_shared, bias=False, device=dense.up.device, dtype=dense.up.dtype
        )
        nn.init.zeros_(self.router.weight)
        as_they_lie = [expert for expert, size in enumerate(self.sizes) for _ in range(size)]
        self.register_buffer("assignment", torch.tensor(as_they_lie, device=dense.up.device))
        self.register_parameter("affinity", None)
        self.tau, self.sinkhorn_iters = 1.0, 20
        self.keep_parts = False  # in training, in ``last``; else a pass leaves nothing behind
        self.last: Parts | None = None
        self._routed: Tensor | None = None

    @property
    def top_k(self) -> int:
        """How many experts each token uses; may be set, n_shared + 1 to E."""
        return self._top_k

    @top_k.setter
    def top_k(self, value: int) -> None:
        check_top_k(value, self.experts, self.n_shared)
        self._top_k = value

    def forward(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """The output for each token: the sum of what its experts write, and the bias."""
        # Trained in float32 within a model of half precision, it takes and gives that model's numbers.
        rows = x.reshape(-1, x.shape[-1]).to(self.up.dtype)
        if self.training or self.affinity is not None:
            parts = self.parts(rows)
            self.last = parts if self.keep_parts else None
            y = parts.output
        else:
            y = self._chosen_slices(rows)
        return y.view(x.shape).to(x.dtype)

    # The cut

    def learn_cut(self, affinity: Float[Tensor, "d_ffn E"], sinkhorn_iters: int = 20) -> None:
        """Begin to learn the cut from these affinities; the neurons are still in the dense layer's order."""
        self.affinity = nn.Parameter(affinity.to(self.up.device, torch.float32))
        self.sinkhorn_iters = sinkhorn_iters

    def set_cut(self, assignment: Int[Tensor, " d_ffn"]) -> None:
        """Give the neurons, which are in the dense layer's order, to experts for good: those of one side by side.

        Raises
        ------
        ValueError
            When an expert does not get as many neurons as it holds.
        """
        counts = torch.bincount(assignment.cpu(), minlength=self.experts).tolist()
        if counts != self.sizes:
            raise ValueError(f"the experts hold {self.sizes} neurons, and the assignment gives them {counts}")
        order = torch.argsort(assignment, stable=True).to(self.up.device)
        with torch.no_grad():
            for parameter in (self.up, self.gate, self.down, self.up_bias, self.gate_bias):
                if parameter is not None:
                    parameter.data = parameter.data[order]  # not in place: a dense layer may hold the same tensor
            self.assignment.copy_(assignment)
        self.affinity = None
        self.last = None

    def freeze_cut(self) -> None:
        """End the learning of the cut: keep the hard plan at the present tau."""
        if self.affinity is not None:
            with torch.no_grad():
                self.set_cut(self._plan()[0])

    def _plan(self) -> tuple[Tensor, Tensor]:
        """The expert of each neuron, and the soft plan that this was rounded from."""
        assert self.affinity is not None
        sizes = torch.tensor(self.sizes, device=self.affinity.device)
        soft = sinkhorn(self.affinity / self.tau, 1.0, sizes.float(), self.sinkhorn_iters)
        return round_balanced(soft, self.sizes), soft

    # Training

    def parts(self, x: Float[Tensor, "n d"]) -> Parts:
        """A pass over all neurons, with gradients for cut, router and weights."""
        soft_cut = None
        if self.affinity is None:
            own = torch.sort(self.assignment).values
        else:
            own, soft_cut = self._plan()
        cut = nn.functional.one_hot(own, self.experts).float()
        # Straight-through: the hard choice forward, the soft one's gradient backward.
        through = cut if soft_cut is None else cut + soft_cut - soft_cut.detach()
        logits = self._logits(x)
        probabilities = logits.softmax(dim=-1)
        some = torch.zeros_like(logits).scatter_(-1, self._best(logits), 1.0)
        shared = some.new_ones(len(x), self.n_shared)
        chosen = torch.cat([shared, some], dim=-1)
        routing = torch.cat([shared, some + probabilities - probabilities.detach()], dim=-1)
        values = hidden(x, self.act, self.up, self.up_bias, self.gate, self.gate_bias)
        output = (values * (routing @ through.T).to(values.dtype)) @ self.down
        if self.down_bias is not None:
            output = output + self.down_bias
        return Parts(values, chosen, routing, logits, probabilities, cut, soft_cut, output)

    def _logits(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x.float(), self.router.weight.float())

    def _best(self, logits: Tensor) -> Tensor:
        """The routed experts of each token, numbered from 0 after the shared ones."""
        return logits.topk(self._top_k - self.n_shared, dim=-1, sorted=False).indices

    # Evaluation

    def _chosen_slices(self, x: Tensor) -> Tensor:
        n = len(x)
        if self._top_k == self.experts:
            self._count(torch.full((self.experts,), n, device=x.device))
            y = self._all(x)
        elif n == 1:
            y = self._one_token(x)
        else:
            best = self._best(self._logits(x)).flatten() + self.n_shared
            counts = torch.bincount(best, minlength=self.experts)
            counts[: self.n_shared] = n
            self._count(counts)
            y = self._slice(x, 0, self.n_shared) if self.n_shared else torch.zeros_like(x)
            # Tokens sorted by expert, once; then each expert takes its stretch.
            order = torch.argsort(best, stable=True)
            tokens = order // (self._top_k - self.n_shared)
            ends = counts[self.n_shared :].cumsum(0).tolist()
            for expert, (start, end) in enumerate(pairwise([0, *ends]), start=self.n_shared):
                if end > start:
                    mine = tokens[start:end]
                    y.index_add_(0, mine, self._slice(x[mine], expert, expert + 1))
        return y if self.down_bias is None else y + self.down_bias

    def _all(self, x: Tensor) -> Tensor:
        """All neurons, summed in the dense layer's order, so that rounding too is the dense layer's, or nearly so."""
        values = hidden(x, self.act, self.up, self.up_bias, self.gate, self.gate_bias)
        place = torch.empty_like(self.assignment)
        place[torch.argsort(self.assignment, stable=True)] = torch.arange(len(place), device=place.device)
        return values[:, place] @ self.down[place]

    def _one_token(self, x: Tensor) -> Tensor:
        best = sorted((self._best(self._logits(x))[0] + self.n_shared).tolist())
        counts = torch.zeros(self.experts, dtype=torch.int64)
        counts[: self.n_shared] = 1
        counts[best] = 1
        self._count(counts)
        pieces = [self._slice(x, expert, expert + 1) for expert in best]
        if self.n_shared:
            pieces.append(self._slice(x, 0, self.n_shared))
        return sum(pieces[1:], start=pieces[0])

    def _slice(self, x: Tensor, first: int, end: int) -> Tensor:
        """What the experts from ``first`` to before ``end`` write for all tokens given."""
        at = slice(self.edges[first], self.edges[end])
        up_bias = None if self.up_bias is None else self.up_bias[at]
        gate = None if self.gate is None else self.gate[at]
        gate_bias = None if self.gate_bias is None else self.gate_bias[at]
        return hidden(x, self.act, self.up[at], up_bias, gate, gate_bias) @ self.down[at]

    def _count(self, counts: Tensor) -> None:
        self._routed = counts if self._routed is None else self._routed + counts.to(self._routed.device)

    def load(self) -> Float[Tensor, " E"]:
        """The share of the routed slots (tokens × top_k) that each expert had in evaluation; the shares sum to 1.

        Counted since the layer was made or :meth:`reset_load` was called.

        Raises
        ------
        ValueError
            When there was no token yet.
        """
        if self._routed is None:
            raise ValueError("no token has passed this layer in evaluation mode yet")
        return self._routed.float().cpu() / float(self._routed.sum())

    def reset_load(self) -> None:
        """Forget the counts that :meth:`load` is computed from."""
        self._routed = None

    def active_parameters(self) -> int:
        """How many parameters a token uses here on average over experts, the router included."""
        d_ffn = self.edges[-1]
        shared = self.edges[self.n_shared]
        routed = (d_ffn - shared) * (self._top_k - self.n_shared) / (self.experts - self.n_shared)
        a_neuron = sum(p[0].numel() for p in self._of_neurons())
        rest = self.router.weight.numel() + (0 if self.down_bias is None else self.down_bias.numel())
        return round((shared + routed) * a_neuron) + rest

    def _of_neurons(self) -> list[Tensor]:
        return [p for p in (self.up, self.gate, self.down, self.up_bias, self.gate_bias) if isinstance(p, nn.Parameter)]

    def extra_repr(self) -> str:
        """What print shows."""
        d_ffn, d = self.up.shape
        return f"d={d}, d_ffn={d_ffn}, experts={self.experts}, top_k={self._top_k}, n_shared={self.n_shared}"
