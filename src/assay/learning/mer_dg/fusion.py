"""A classifier over several encoders: their features side by side, then a small network."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from assay.errors import InputError, one_line

from .losses import check_not_negative


class FusionClassifier(nn.Module):
    """Encoders, concatenation, and an MLP that classifies.

    Parameters
    ----------
    encoders
        Modality to a module that maps its rows (N, …) to features (N, D).
    dims
        Modality to D.
    n_classes
        Number of classes, at least 2.
    hidden
        Width of the hidden layer.
    dropout
        Probability of dropout after the hidden layer, 0 ≤ p < 1.

    Raises
    ------
    ValueError
        If encoders and dims do not name the same modalities, or a number is out of range.

    Examples
    --------
    >>> net = FusionClassifier({"a": nn.Linear(3, 4), "b": nn.Linear(2, 4)}, {"a": 4, "b": 4}, n_classes=5)
    >>> net({"a": torch.randn(6, 3), "b": torch.randn(6, 2)}).shape
    torch.Size([6, 5])
    """

    def __init__(
        self,
        encoders: Mapping[str, nn.Module],
        dims: Mapping[str, int],
        n_classes: int,
        hidden: int = 64,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if not encoders or set(encoders) != set(dims):
            raise InputError(f"encoders and dims must name the same modalities, got {list(encoders)} and {list(dims)}")
        for name, value, least in (
            ("n_classes", n_classes, 2),
            ("hidden", hidden, 1),
            *((f"dims[{k!r}]", d, 1) for k, d in dims.items()),
        ):
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
        check_not_negative("dropout", dropout)
        if dropout >= 1:
            raise InputError(f"dropout must be at least 0 and below 1, got {dropout!r}")
        self.modalities = tuple(encoders)
        self.dims = {name: dims[name] for name in self.modalities}
        # A list, since a ModuleDict refuses some names that a modality may have.
        self.encoders = nn.ModuleList(encoders[name] for name in self.modalities)
        self.head = nn.Sequential(
            nn.Linear(sum(dims.values()), hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, n_classes)
        )

    def forward(
        self, inputs: Mapping[str, Tensor], return_features: bool = False, present: Mapping[str, Tensor] | None = None
    ) -> Any:
        """Logits, and with ``return_features`` the features too.

        Parameters
        ----------
        inputs
            Modality to its rows (N, …). A modality that is left out is absent in all rows.
        return_features
            Also return the features of each modality, (N, D), with zeros where it is absent.
        present
            Modality to which rows have it, bool (N,); those left out are there in all rows. Absent rows are not
            encoded: their features are zeros.

        Returns
        -------
        Logits (N, n_classes); with ``return_features`` a pair of them and the mapping of features.

        Raises
        ------
        ValueError
            If no modality is there, one is unknown, or they differ in rows.
        """
        unknown = sorted(set(inputs) - set(self.modalities))
        if unknown or not inputs:
            raise InputError(f"inputs must name some of {', '.join(self.modalities)}, got {list(inputs)}")
        n = {name: len(rows) for name, rows in inputs.items()}
        if len(set(n.values())) > 1:
            raise InputError(f"the modalities must have the same number of rows, got {n}")
        features = self.features(inputs, present)
        logits = self.head(torch.cat([features[name] for name in self.modalities], dim=1))
        return (logits, features) if return_features else logits

    def features(
        self, inputs: Mapping[str, Tensor], present: Mapping[str, Tensor] | None = None
    ) -> dict[str, Float[Tensor, "n d"]]:
        """The features of each modality, zeros where it is absent."""
        present = present or {}
        found: dict[str, Tensor] = {}
        for name, encoder in zip(self.modalities, self.encoders, strict=True):
            if name in inputs:
                try:
                    found[name] = _encoded(encoder, inputs[name], present.get(name), self.dims[name])
                except ValueError as error:  # BatchNorm refuses a batch with one row of a modality
                    raise InputError(f"the encoder of {name!r} refuses its rows: {one_line(error, 160)}") from error
                if found[name].shape[1:] != (self.dims[name],):
                    raise InputError(
                        f"the encoder of {name!r} must give (rows, {self.dims[name]}) by dims, it gave "
                        f"{tuple(found[name].shape)}"
                    )
        some = next(iter(found.values()))
        return {
            name: found[name] if name in found else some.new_zeros((len(some), dim)) for name, dim in self.dims.items()
        }


def _encoded(encoder: nn.Module, rows: Tensor, mask: Bool[Tensor, " n"] | None, dim: int) -> Float[Tensor, "n d"]:
    if mask is None or bool(mask.all()):
        return encoder(rows)
    if not bool(mask.any()):
        return next(encoder.parameters(), torch.zeros(1, device=rows.device)).new_zeros((len(rows), dim))
    there = encoder(rows[mask])
    return there.new_zeros((len(rows), dim)).index_put((mask.nonzero()[:, 0],), there)
