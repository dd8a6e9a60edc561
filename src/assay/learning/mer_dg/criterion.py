"""The loss over all modalities, as a module to add to any training loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from assay.errors import InputError

from .closed_form import entropy_losses
from .gather import gathered
from .losses import LARGEST, check_not_negative, check_parameters, checked, mer, says_nothing

Features = Tensor | Sequence[Tensor] | Mapping[str, Tensor]


class MERLoss(nn.Module):
    """λ times the modality-entropy loss, summed over the modalities.

    Parameters
    ----------
    lam
        λ, not negative. With 0 nothing is computed. It depends on the scale of the base loss and on the encoder: 3 in
        the source (pre-trained video and audio backbones), 0.03 to 0.3 for small encoders trained from scratch.
    gamma, eps, w_marg, w_spec
        As in :func:`~assay.learning.mer_dg.mer_loss`.
    reduction
        ``"sum"`` or ``"mean"`` over the modalities.
    flatten
        What (N, …, D) features mean: with False the dimensions between are averaged first, since neighbouring frames
        are no independent samples; with True every position is a row.
    gather
        Where torch.distributed is initialised, use the rows of all processes, with gradient. Every process must then
        call the loss at the same steps, for the same modalities.
    project
        (hidden, out): the loss acts on a small learned head (linear, ReLU, linear) over each modality's features, as in
        the authors' code. Hand ``loss.parameters()`` to the optimiser too. Default: on the features themselves.
    dims
        With ``project``, the feature dimension D of each modality by name.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    It acts on what encoders give, before fusion and before any normalisation to the unit sphere: on unit vectors no
    standard deviation can reach γ = 1. Source: arXiv 2605.01967.

    Examples
    --------
    >>> features = {"video": torch.randn(8, 4), "audio": torch.randn(8, 4)}
    >>> loss = MERLoss(lam=0.1)(features)
    >>> loss.shape
    torch.Size([])
    """

    def __init__(
        self,
        lam: float = 0.1,
        gamma: float = 1.0,
        eps: float = 1e-4,
        w_marg: float = 1.0,
        w_spec: float = 1.0,
        reduction: Literal["sum", "mean"] = "sum",
        *,
        flatten: bool = False,
        gather: bool = False,
        project: tuple[int, int] | None = None,
        dims: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        check_not_negative("lam", lam)
        check_parameters(gamma, eps, w_marg, w_spec)
        if reduction not in ("sum", "mean"):
            raise InputError(f"reduction must be 'sum' or 'mean', got {reduction!r}")
        self.lam, self.gamma, self.eps, self.w_marg, self.w_spec = lam, gamma, eps, w_marg, w_spec
        self.reduction, self.flatten, self.gather = reduction, flatten, gather
        # A list, since a ModuleDict refuses some names that a modality may have.
        self.projected = _projected(project, dims)
        self.heads = nn.ModuleList(_head(dims[name], *project) for name in self.projected) if project and dims else None

    def forward(self, features: Features, present: Any = None) -> Float[Tensor, ""]:
        """λ · Σ (or mean) of the modalities' losses.

        Parameters
        ----------
        features
            One tensor (N, D) or (N, …, D), a sequence of them, or a mapping from names to them; the same N in all.
        present
            Which rows have the modality, bool (N,), in the same form as ``features`` (a sequence or mapping may hold
            ``None``, and a mapping may leave a name out: all rows). The other rows are left out of its loss.

        Raises
        ------
        ValueError
            If a feature is not finite, not floating, one-dimensional, or modalities differ in N; it names the modality.
        """
        named = by_name(features)
        if self.lam == 0:
            first = next(iter(named.values()))
            return torch.zeros((), device=first.device)
        terms = self.terms(features, present)
        total = sum(terms.values(), start=next(iter(terms.values())).new_zeros(()))
        return (self.lam if self.reduction == "sum" else self.lam / len(terms)) * total

    def terms(self, features: Features, present: Any = None) -> dict[str, Float[Tensor, ""]]:
        """The loss of each modality by name, without λ: for logs."""
        named = by_name(features)
        masks = _masks(named, features, present)
        n = {name: len(z) for name, z in named.items()}
        if len(set(n.values())) > 1:
            raise InputError(f"the modalities must have the same number of rows, got {n}")
        unknown = sorted(set(named) - set(self.projected)) if self.heads is not None else []
        if unknown:
            raise InputError(f"dims names no modality {unknown[0]!r}; it names {', '.join(self.projected)}")
        rows = {}
        for name, z in named.items():
            matrix = _rows(z, masks[name], self.flatten, name)
            if self.heads is not None:
                matrix = self.heads[self.projected.index(name)](matrix)
            matrix = matrix if matrix.dtype in LARGEST else matrix.float()
            rows[name] = gathered(matrix) if self.gather else matrix
        return _losses(rows, self.gamma, self.eps, self.w_marg, self.w_spec)

    def extra_repr(self) -> str:
        """What ``repr`` shows."""
        return f"lam={self.lam}, gamma={self.gamma}, eps={self.eps}, w_marg={self.w_marg}, w_spec={self.w_spec}"


def _losses(
    rows: Mapping[str, Tensor], gamma: float, eps: float, w_marg: float, w_spec: float
) -> dict[str, Float[Tensor, ""]]:
    """The loss of each modality, those of one shape together."""
    if torch.compiler.is_compiling():  # a compiler joins the steps of the plain formulas itself
        return {name: mer(z, gamma, eps, w_marg, w_spec) for name, z in rows.items()}
    losses: dict[str, Tensor] = {}
    alike: dict[Any, list[str]] = {}
    for name, z in rows.items():
        if says_nothing(z):
            losses[name] = mer(checked(z, _what(name)), gamma, eps, w_marg, w_spec)
        else:
            alike.setdefault((z.shape, z.dtype, z.device), []).append(name)
    for names in alike.values():
        stacked = torch.stack([rows[name] for name in names])
        values = entropy_losses(stacked, gamma, eps, w_marg, w_spec)
        # Looked at once, and here: of several processes that gathered the same rows all stop, or none.
        if not bool(torch.isfinite(values.detach()).all()):
            for name in names:
                checked(rows[name], _what(name))
        losses.update(zip(names, values.unbind(), strict=True))
    return {name: losses[name] for name in rows}


def _what(name: str) -> str:
    return f"the feature matrix of {name!r}"


def by_name(features: Features) -> dict[str, Tensor]:
    """The features as a mapping; those of a sequence are called by their number."""
    if isinstance(features, Tensor):
        return {"z": features}
    if isinstance(features, Mapping):
        named = {str(name): z for name, z in features.items()}
    elif isinstance(features, Sequence) and not isinstance(features, str | bytes):
        named = {str(place): z for place, z in enumerate(features)}
    else:
        raise InputError(f"features must be a tensor, a sequence or a mapping of them, got {type(features).__name__}")
    if not named:
        raise InputError("features are empty: give at least one modality")
    for name, z in named.items():
        if not isinstance(z, Tensor):
            raise InputError(f"the features of {name!r} must be a torch tensor, got {type(z).__name__}")
        if z.ndim < 2:
            raise InputError(f"the features of {name!r} must have shape (N, D) or (N, …, D), got {tuple(z.shape)}")
        if not z.is_floating_point():
            raise InputError(f"the features of {name!r} must hold floating-point numbers, got {z.dtype}")
    return named


def _masks(named: Mapping[str, Tensor], features: Features, present: Any) -> dict[str, Tensor | None]:
    if present is None:
        return dict.fromkeys(named)
    if isinstance(features, Tensor):
        given = {"z": present}
    elif isinstance(present, Mapping):
        given = {str(name): mask for name, mask in present.items()}
    elif isinstance(features, Mapping) or not isinstance(present, Sequence):
        form = "mapping" if isinstance(features, Mapping) else "sequence"
        raise InputError(f"present must be a {form} as features are, got {type(present).__name__}")
    else:
        given = {str(place): mask for place, mask in enumerate(present)}
    unknown = sorted(set(given) - set(named))
    if unknown:
        raise InputError(f"present names {unknown[0]!r}, which is no modality; there are {', '.join(named)}")
    masks: dict[str, Tensor | None] = {}
    for name, z in named.items():
        mask = given.get(name)
        if mask is not None:
            try:
                mask = torch.as_tensor(mask, device=z.device)
            except (TypeError, ValueError, RuntimeError):
                raise InputError(f"present[{name!r}] must be truth values, got {type(mask).__name__}") from None
            if mask.dtype != torch.bool or mask.shape != (len(z),):
                raise InputError(
                    f"present[{name!r}] must be {len(z)} truth values, got {mask.dtype} of shape {tuple(mask.shape)}"
                )
        masks[name] = mask
    return masks


def _rows(z: Tensor, mask: Tensor | None, flatten: bool, name: str) -> Float[Tensor, "n d"]:
    """The rows that have the modality, as a matrix."""
    if mask is not None:
        z = z[mask]
    if z.ndim == 2:
        return z
    between = z.shape[1:-1]
    if 0 in between:
        raise InputError(f"the features of {name!r} have shape {tuple(z.shape)}: nothing to average")
    wide = z if z.dtype == torch.float64 else z.float()
    return wide.reshape(-1, z.shape[-1]) if flatten else wide.flatten(1, -2).mean(dim=1)


def _projected(project: tuple[int, int] | None, dims: Mapping[str, int] | None) -> list[str]:
    if project is None:
        if dims is not None:
            raise InputError("dims are of use only with project=(hidden, out)")
        return []
    if not dims:
        raise InputError("project needs dims: the feature dimension of each modality by name")
    pair = isinstance(project, Sequence) and len(project) == 2
    if not pair or not all(isinstance(size, Integral) and size > 0 for size in (*project, *dims.values())):
        raise InputError(
            f"project must be (hidden, out) and dims positive whole numbers, got {project} and {dict(dims)}"
        )
    return list(dims)


def _head(dim: int, hidden: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, out))
