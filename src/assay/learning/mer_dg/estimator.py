"""A ready classifier for several modalities, in the manner of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from assay.errors import InputError, one_line
from assay.parts.checkpoints import pick_device
from assay.parts.supervision import aligned

from . import files
from .criterion import MERLoss
from .diagnosis import diagnosis
from .encoders import build_encoders, feature_dims
from .fusion import FusionClassifier
from .losses import check_not_negative, check_parameters, check_positive
from .selection import choose, folds
from .training import Recipe, Rows, Trained, outputs, own_randomness, train
from .views import Scaler, Views, checked_views, matched

IntArray = NDArray[np.int64]
Inputs = Mapping[str, ArrayLike]


class MultimodalDGClassifier(ClassifierMixin, BaseEstimator):
    """Classifier over several synchronised modalities, for recordings of people, rooms or devices not seen before.

    One encoder a modality, their features side by side, a small MLP, trained with cross-entropy and the
    modality-entropy loss.

    Parameters
    ----------
    encoders
        ``"mlp"`` (rows are flattened), ``"cnn1d"`` (rows are (channels, time)), or a mapping from modality to one of
        these or to a factory ``shape of a row -> nn.Module`` that gives (rows, features).
    feature_dim
        Features of each encoder that is built in.
    lam
        Weight of the modality-entropy loss, not negative; or ``"auto"``: the one of ``lams`` that is best on a source
        domain that was left out, never looking at anything but what ``fit`` is given. The smallest of equals.
    lams
        The candidates of ``"auto"``, which trains ``len(lams)`` times the number of domains (at most 10) networks more.
    base_loss
        ``base_loss(logits, targets) -> scalar``; default cross-entropy with ``class_weight`` and ``label_smoothing``.
    epochs, batch_size, lr, weight_decay
        Of Adam. An epoch takes about as many rows of each domain.
    modality_dropout
        Probability with which a modality of a row is left out of a training step, 0 ≤ p < 1.
    device
        ``"auto"`` is a GPU where there is one.
    random_state
        Starts, order, dropout: the same whole number gives the same model on one machine. Nothing global is seeded.
    verbose
        1 shows a bar on the error output.
    hidden, dropout
        Of the classifier's MLP.
    gamma, eps, w_marg, w_spec
        Of the modality-entropy loss.
    project
        (hidden, out): the loss acts on a learned head over each encoder's features, instead of on them.
    standardise
        Whether columns, or channels where a row is (channels, …), are standardised by their source mean and standard
        deviation. Switch it off for encoders that expect raw values.
    class_weight
        ``None``, ``"balanced"``, or a mapping from class to weight.
    label_smoothing
        Of the default base loss, 0 ≤ s < 1.
    early_stopping
        Keep the epoch with the best base loss on ``validation_fraction`` of the source rows, drawn at random, and stop
        after ``patience`` epochs without a better one. Otherwise the last epoch is kept.
    validation_fraction, patience
        Of early stopping.

    Attributes
    ----------
    classes_
        (k,) the classes, sorted.
    lam_
        The λ that was used.
    selection_
        With ``lam="auto"``: accuracy of each candidate on each left-out fold.
    network_
        The trained :class:`FusionClassifier`.
    modalities_, shapes_
        Names in order, and the shape of a row of each.
    history_
        Mean loss of each epoch, and with early stopping the validation loss.
    n_iter_
        Epochs trained.

    Notes
    -----
    ``X`` is a mapping from modality to an array (n, …). A modality that is absent in a row is a row of NaN there, or
    False in ``present``; it enters the fusion as zeros and is left out of that modality's loss. ``X`` being a mapping,
    scikit-learn's splitters and ``check_estimator`` do not apply; ``clone`` and ``set_params`` do.

    Source: Yarici and AlRegib, arXiv 2605.01967.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y, person = np.arange(60) % 2, np.arange(60) // 20
    >>> X = {"acc": rng.normal(size=(60, 4)) + y[:, None], "gyr": rng.normal(size=(60, 3))}
    >>> model = MultimodalDGClassifier(lam=0.1, epochs=5, random_state=0).fit(X, y, domains=person)
    >>> model.predict_proba(X).shape
    (60, 2)
    """

    def __init__(
        self,
        encoders: str | Mapping[str, Any] = "mlp",
        feature_dim: int = 32,
        lam: float | Literal["auto"] = "auto",
        lams: Sequence[float] = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0),
        base_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        epochs: int = 30,
        batch_size: int = 64,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        modality_dropout: float = 0.0,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        *,
        hidden: int = 64,
        dropout: float = 0.5,
        gamma: float = 1.0,
        eps: float = 1e-4,
        w_marg: float = 1.0,
        w_spec: float = 1.0,
        project: tuple[int, int] | None = None,
        standardise: bool = True,
        class_weight: Any = None,
        label_smoothing: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.15,
        patience: int = 5,
    ) -> None:
        self.encoders = encoders
        self.feature_dim = feature_dim
        self.lam = lam
        self.lams = lams
        self.base_loss = base_loss
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.modality_dropout = modality_dropout
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.hidden = hidden
        self.dropout = dropout
        self.gamma = gamma
        self.eps = eps
        self.w_marg = w_marg
        self.w_spec = w_spec
        self.project = project
        self.standardise = standardise
        self.class_weight = class_weight
        self.label_smoothing = label_smoothing
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience

    def fit(
        self, X: Inputs, y: ArrayLike, domains: ArrayLike | None = None, *, present: Mapping[str, Any] | None = None
    ) -> Self:
        """Train on source data.

        Parameters
        ----------
        X
            Modality to (n, …) numbers; rows of NaN are absent.
        y
            (n,) classes, at least two.
        domains
            (n,) who or what each row comes from: person, room, device. Batches are balanced over them, and
            ``lam="auto"`` leaves out one at a time; without two of them it takes random folds and warns.
        present
            Modality to (n,) truth values, in addition to NaN.

        Raises
        ------
        ValueError
            If an argument or parameter cannot be used; the message names it.
        """
        self._check_parameters()
        views = checked_views(X, present)
        classes, targets = _encoded_classes(y, X, len(views))
        groups = None if domains is None else _encoded("domains", domains, X, len(views))[1]
        if isinstance(self.class_weight, Mapping):
            unknown = [label for label in self.class_weight if label not in classes.tolist()]
            if unknown:
                raise InputError(f"class_weight names {unknown[0]!r}, which is no class of y")
        rng = _random_state(self.random_state)
        seed = int(rng.randint(2**31 - 1))
        shapes = views.shapes
        with own_randomness(seed, torch.device("cpu")):
            self._network(shapes, len(classes))  # says so at once where an encoder does not fit
        if isinstance(self.lam, str):
            held_out = folds(targets, groups, np.random.default_rng(seed))

            def accuracy(lam: float, held: IntArray) -> float:
                rest = np.delete(np.arange(len(targets)), held)
                network, scaler, _ = self._trained(
                    views.take(rest), targets[rest], None if groups is None else groups[rest], classes, lam, seed, False
                )
                part = views.take(held)
                probabilities, _ = outputs(network, self._rows(scaler, part))
                return float((probabilities.argmax(axis=1) == targets[held]).mean())

            self.lam_, self.selection_ = choose(self.lams, held_out, accuracy, bool(self.verbose))
        else:
            self.lam_ = float(self.lam)
            self.__dict__.pop("selection_", None)
        self.network_, self._scaler, trained = self._trained(
            views, targets, groups, classes, self.lam_, seed, bool(self.verbose)
        )
        self.classes_, self.shapes_, self.modalities_ = classes, shapes, tuple(shapes)
        self.history_ = {"loss": trained.losses} | ({"validation": trained.validation} if trained.validation else {})
        self.n_iter_ = len(trained.losses)
        return self

    def predict_proba(self, X: Inputs, *, present: Mapping[str, Any] | None = None) -> NDArray[np.float64]:
        """Probabilities (n, k) of the classes, in the order of ``classes_``."""
        return self._outputs(X, present)[0]

    def predict(self, X: Inputs, *, present: Mapping[str, Any] | None = None) -> NDArray[Any]:
        """The most probable class of each row, (n,)."""
        best = self.predict_proba(X, present=present).argmax(axis=1)
        return self.classes_[best]

    def transform(self, X: Inputs, *, present: Mapping[str, Any] | None = None) -> dict[str, NDArray[np.float32]]:
        """The features of each modality, (n, D), zeros where it is absent."""
        return self._outputs(X, present)[1]

    def diagnose(
        self, X: Inputs, y: ArrayLike, domains: ArrayLike | None = None, *, present: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """What each encoder's features hold, judged by linear probes on the frozen encoder.

        Parameters
        ----------
        X, y, domains, present
            As in :meth:`fit`; other rows than those of ``fit`` say more.

        Returns
        -------
        A row for each modality, of the rows that have it: ``rows``; ``rankme``, how many dimensions the features really
        use; ``probe_accuracy``, of a linear probe for the class, on each domain in turn when trained on the others (on
        random folds without domains), with ``probe_chance``, the share of the commonest class; and with domains
        ``domain_accuracy``, how well a linear probe tells domains on random folds, with ``domain_chance``. Where a
        probe cannot be trained its accuracy is that of chance.
        """
        views, (_, features) = self._checked(X, present), self._outputs(X, present)
        labels = _encoded("y", y, X, len(views))[1]
        groups = None if domains is None else _encoded("domains", domains, X, len(views))[1]
        return diagnosis(features, views.present, labels, groups, 0)

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write the classifier into a new folder, as safetensors and JSON.

        Encoders and a base loss of your own are not written: give those encoders again to :meth:`load`.
        """
        check_is_fitted(self)
        files.write(
            folder, self.get_params(deep=False), self.classes_, self.lam_, self.shapes_, self._scaler,
            self.network_.state_dict(), overwrite,
        )  # fmt: skip
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path, encoders: Mapping[str, Any] | None = None, device: str = "auto") -> Self:
        """Read a classifier that :meth:`save` wrote.

        Parameters
        ----------
        folder
            Where it lies.
        encoders
            The mapping of factories that it was fitted with; not for encoders that are built in.
        device
            Where it shall work.

        Raises
        ------
        ValueError
            If the folder holds none, it is damaged, or other encoders are needed.
        """
        state, classes, shapes, scaler, weights = files.read(folder)
        if state["own_encoders"] and encoders is None:
            raise InputError(f"{folder} was fitted with encoders of your own: give them, load(folder, encoders={{…}})")
        known = {name: state["parameters"][name] for name in cls().get_params() if name in state["parameters"]}
        known |= {"device": device} | ({"encoders": encoders} if encoders is not None else {})
        model = cls(**known)
        if isinstance(model.lams, list):
            model.lams = tuple(model.lams)
        if isinstance(model.project, list):
            model.project = (model.project[0], model.project[1])
        model._check_parameters()
        with own_randomness(0, torch.device("cpu")):
            network = model._network(shapes, len(classes))
        try:
            network.load_state_dict(weights)
        except RuntimeError as error:
            raise InputError(f"the network in {folder} does not fit its description: {error}") from None
        model.network_ = network.to(pick_device(device)).eval()
        model._scaler, model.classes_, model.lam_ = scaler, classes, float(state["lam"])
        model.shapes_, model.modalities_ = shapes, tuple(shapes)
        model.history_, model.n_iter_ = {}, 0
        return model

    def _network(self, shapes: Mapping[str, tuple[int, ...]], n_classes: int) -> FusionClassifier:
        encoders = build_encoders(self.encoders, shapes, self.feature_dim)
        return FusionClassifier(encoders, feature_dims(encoders, shapes), n_classes, self.hidden, self.dropout)

    def _rows(self, scaler: Scaler, views: Views) -> Rows:
        return Rows.of(scaler(views), views.present, pick_device(self.device))

    def _trained(
        self,
        views: Views,
        targets: IntArray,
        groups: IntArray | None,
        classes: NDArray[Any],
        lam: float,
        seed: int,
        show: bool,
    ) -> tuple[FusionClassifier, Scaler, Trained]:
        device = pick_device(self.device)
        groups = np.zeros(len(targets), dtype=np.int64) if groups is None else groups
        scaler = Scaler.fit(views, self.standardise)
        rows, labels = self._rows(scaler, views), torch.as_tensor(targets, device=device)
        generator = torch.Generator().manual_seed(seed)
        validation, used = None, torch.arange(len(targets))
        if self.early_stopping:
            held = torch.from_numpy(_held_out(targets, self.validation_fraction, seed))
            used = torch.from_numpy(np.delete(np.arange(len(targets)), held.numpy()))
            validation = (rows.take(held.to(device)), labels[held.to(device)])
        with own_randomness(seed, device):
            network = self._network(views.shapes, len(classes)).to(device)
            dims = network.dims if self.project is not None else None
            penalty = MERLoss(lam, self.gamma, self.eps, self.w_marg, self.w_spec, project=self.project, dims=dims).to(
                device
            )
            trained = train(
                network,
                rows.take(used.to(device)),
                labels[used.to(device)],
                groups[used.numpy()],
                Recipe(self.epochs, self.batch_size, self.lr, self.weight_decay, self.modality_dropout, self.patience),
                generator=generator,
                base_loss=self._base_loss(targets, classes, device),
                penalty=penalty if lam else None,
                penalty_parameters=list(penalty.parameters()),
                validation=validation,
                show=show,
            )
        return network, scaler, trained

    def _base_loss(
        self, targets: IntArray, classes: NDArray[Any], device: torch.device
    ) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        if self.base_loss is not None:
            return self.base_loss
        weight = None
        if self.class_weight is not None:
            numbers = np.arange(len(classes))
            if self.class_weight == "balanced":
                # A class that a fold lacks has no weight of its own.
                there = np.unique(targets)
                values = np.ones(len(classes))
                values[there] = compute_class_weight("balanced", classes=there, y=targets)
            else:
                values = np.array([float(self.class_weight.get(classes[k], 1.0)) for k in numbers])
            weight = torch.as_tensor(values, dtype=torch.float32, device=device)
        return torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=self.label_smoothing)

    def _checked(self, X: Inputs, present: Mapping[str, Any] | None) -> Views:
        check_is_fitted(self)
        return matched(checked_views(X, present), self.shapes_)

    def _outputs(
        self, X: Inputs, present: Mapping[str, Any] | None
    ) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float32]]]:
        views = self._checked(X, present)
        device = next(self.network_.parameters()).device
        return outputs(self.network_, Rows.of(self._scaler(views), views.present, device))

    def _check_parameters(self) -> None:
        for name in ("feature_dim", "epochs", "batch_size", "hidden", "patience"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not isinstance(self.device, str | torch.device):
            raise InputError(f"device must be 'auto' or a device that torch can use, not {self.device!r}")
        check_positive("lr", self.lr)
        check_not_negative("weight_decay", self.weight_decay)
        for name in ("modality_dropout", "dropout", "label_smoothing"):
            check_not_negative(name, getattr(self, name))
            if getattr(self, name) >= 1:
                raise InputError(f"{name} must be below 1, got {getattr(self, name)!r}")
        check_positive("validation_fraction", self.validation_fraction)
        if self.validation_fraction >= 1:
            raise InputError(f"validation_fraction must be below 1, got {self.validation_fraction!r}")
        check_parameters(self.gamma, self.eps, self.w_marg, self.w_spec)
        if isinstance(self.lam, str):
            if self.lam != "auto":
                raise InputError(f"lam must be 'auto' or a number, got {self.lam!r}")
            if isinstance(self.lams, str) or not hasattr(self.lams, "__len__") or not len(self.lams):
                raise InputError(f"lams must be a sequence of at least one candidate, got {self.lams!r}")
            for value in self.lams:
                check_not_negative("lams", value)
        else:
            check_not_negative("lam", self.lam)
        if self.base_loss is not None and not callable(self.base_loss):
            raise InputError(f"base_loss must be a function of logits and targets, got {self.base_loss!r}")
        weights = self.class_weight
        if not (
            weights is None or (isinstance(weights, str) and weights == "balanced") or isinstance(weights, Mapping)
        ):
            raise InputError(
                f"class_weight must be None, 'balanced' or a mapping from class to weight, got {weights!r}"
            )
        for label, weight in weights.items() if isinstance(weights, Mapping) else ():
            check_not_negative(f"class_weight[{label!r}]", weight)


def _encoded(name: str, values: Any, X: Inputs, n: int) -> tuple[NDArray[Any], IntArray]:
    """The different values, sorted, and of each row which it is."""
    column = aligned(
        name, values, next((rows for rows in X.values() if isinstance(rows, pd.DataFrame)), np.empty((n, 0)))
    )
    column = np.asarray(column)
    if column.ndim != 1:
        raise InputError(f"{name} must have one dimension, got shape {column.shape}")
    gaps = pd.isna(column)
    if gaps.any():
        raise InputError(f"{name} is missing in {gaps.sum()} rows, the first is row {np.flatnonzero(gaps)[0]}")
    if column.dtype.kind == "f" and not all(map(math.isfinite, column)):
        raise InputError(f"{name} holds infinity")
    try:
        unique, codes = np.unique(column, return_inverse=True)
    except TypeError:
        raise InputError(f"{name} mixes values that cannot be put in order, such as text and numbers") from None
    if unique.dtype.kind == "O" and not any(isinstance(value, str) for value in unique):
        unique = np.array(unique.tolist())  # numbers in an array of objects, as nullable columns give them
    return unique, codes.astype(np.int64)


def _encoded_classes(y: Any, X: Inputs, n: int) -> tuple[NDArray[Any], IntArray]:
    classes, targets = _encoded("y", y, X, n)
    try:
        check_classification_targets(classes if classes.dtype.kind != "O" else classes.astype(str))
    except (TypeError, ValueError) as error:
        raise InputError(f"y cannot be classes: {one_line(error, 200)}") from None
    if len(classes) < 2:
        raise InputError(f"y must hold at least two classes, all of it is {classes.tolist()[0]!r}")
    return classes, targets


def _random_state(random_state: Any) -> np.random.RandomState:
    try:
        return check_random_state(random_state)
    except ValueError as error:
        raise InputError(
            f"random_state must be None, a whole number from 0 to 2^32 - 1 or a RandomState: {one_line(error, 120)}"
        ) from None


def _held_out(targets: IntArray, fraction: float, seed: int) -> IntArray:
    """Rows for early stopping: that share of each class, at least one row in all, and one of each class stays."""
    rng = np.random.default_rng(seed)
    held = [
        rng.permutation(rows)[: min(round(fraction * len(rows)), len(rows) - 1)]
        for rows in (np.flatnonzero(targets == label) for label in np.unique(targets))
    ]
    chosen = np.concatenate(held)
    if not len(chosen):
        raise InputError(f"validation_fraction={fraction:g} leaves no row for early stopping in {len(targets)} rows")
    return np.sort(chosen)
