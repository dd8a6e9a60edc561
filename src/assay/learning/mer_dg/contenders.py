"""The arms of the study: one network and one training loop, with different terms against over-fitting to a domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from .criterion import MERLoss
from .encoders import build_encoders, feature_dims
from .fusion import FusionClassifier
from .training import Recipe, Rows, outputs, own_randomness, train
from .views import Scaler, checked_views

IntArray = NDArray[np.int64]
FEATURES = 32


@dataclass(frozen=True)
class Given:
    """What an arm sees.

    Attributes
    ----------
    source
        Modality to (n, …) rows of the source; rows of NaN are absent.
    y, domains
        (n,) class and domain of each, whole numbers from 0.
    target
        Modality to (m, …) rows to classify.
    n_classes
        How many classes there are.
    encoder
        ``"mlp"`` or ``"cnn1d"``: what all arms use.
    """

    source: dict[str, NDArray[Any]]
    y: IntArray
    domains: IntArray
    target: dict[str, NDArray[Any]]
    n_classes: int
    encoder: str


@dataclass(frozen=True)
class Answer:
    """What an arm gives.

    Attributes
    ----------
    predicted
        (m,) class of each target row.
    source, target
        Features of each modality, where the arm has them.
    parameters, steps
        Of the training.
    """

    predicted: IntArray
    source: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    target: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    parameters: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Terms:
    """What an arm adds to plain fusion; the knob of each is one number.

    Attributes
    ----------
    lam, w_marg, w_spec, project
        Of the modality-entropy loss.
    vicreg
        Weight of VICReg's variance and covariance terms.
    modality_dropout, label_smoothing, weight_decay
        As the names say.
    only
        Train on this modality alone.
    """

    lam: float = 0.0
    w_marg: float = 1.0
    w_spec: float = 1.0
    project: tuple[int, int] | None = None
    vicreg: float = 0.0
    modality_dropout: float = 0.0
    label_smoothing: float = 0.0
    weight_decay: float = 0.0
    only: str = ""


def fused(given: Given, seed: int, epochs: int, terms: Terms) -> Answer:
    """Train a fusion classifier on the source and classify the target."""
    names = [terms.only] if terms.only else list(given.source)
    source, target = (checked_views({name: part[name] for name in names}) for part in (given.source, given.target))
    scaler, cpu = Scaler.fit(source), torch.device("cpu")
    rows = Rows.of(scaler(source), source.present, cpu)
    with own_randomness(seed, cpu):
        encoders = build_encoders(given.encoder, source.shapes, FEATURES)
        network = FusionClassifier(encoders, feature_dims(encoders, source.shapes), given.n_classes)
        penalty, learnt = _penalty(terms, network)
        trained = train(
            network,
            rows,
            torch.from_numpy(given.y),
            given.domains,
            Recipe(epochs, weight_decay=terms.weight_decay, modality_dropout=terms.modality_dropout),
            generator=torch.Generator().manual_seed(seed),
            base_loss=nn.CrossEntropyLoss(label_smoothing=terms.label_smoothing),
            penalty=penalty,
            penalty_parameters=learnt,
        )
    probabilities, features = outputs(network, Rows.of(scaler(target), target.present, cpu))
    return Answer(
        probabilities.argmax(axis=1),
        outputs(network, rows)[1],
        features,
        sum(p.numel() for p in network.parameters()),
        trained.steps,
    )


def _penalty(terms: Terms, network: FusionClassifier) -> tuple[Callable[..., Tensor] | None, list[nn.Parameter]]:
    if terms.lam:
        dims = network.dims if terms.project is not None else None
        loss = MERLoss(terms.lam, w_marg=terms.w_marg, w_spec=terms.w_spec, project=terms.project, dims=dims)
        return loss, list(loss.parameters())
    if terms.vicreg:
        return (
            lambda features, present: (
                terms.vicreg * sum(vicreg_terms(z[present[name]]) for name, z in features.items())
            ),
            [],
        )
    return None, []


def vicreg_terms(z: Tensor) -> Tensor:
    """VICReg's terms on one view: the floor under the standard deviations, and 1/25 of the squared covariances.

    Source: Bardes, Ponce and LeCun, ICLR 2022, arXiv 2105.04906; its weights for the two are 25 and 1.
    """
    n, d = z.shape
    if n < 2:
        return z.sum() * 0
    centred = z - z.mean(dim=0)
    covariance = centred.T @ centred / (n - 1)
    floor = torch.relu(1 - (covariance.diagonal() + 1e-4).sqrt()).mean()
    off_diagonal = covariance.square().sum() - covariance.diagonal().square().sum()
    return floor + 0.04 * off_diagonal / d


def linear(given: Given, seed: int) -> Answer:
    """Logistic regression on all columns of all modalities, standardised; absent ones are zero."""
    source, target = checked_views(given.source), checked_views(given.target)
    scaler = Scaler.fit(source)
    train_X, test_X = (
        np.concatenate([rows.reshape(len(rows), -1) for rows in scaler(views).values()], axis=1)
        for views in (source, target)
    )
    model = LogisticRegression(max_iter=200).fit(train_X, given.y)
    return Answer(model.predict(test_X), parameters=model.coef_.size + model.intercept_.size)
