"""The estimator: from rows and labels with gaps to a class for every row."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from assay.errors import InputError
from assay.parts.checkpoints import pick_device
from assay.parts.training import generator

from . import settings
from .encoders import Residual, mlp, outputs, principal_basis, seeded
from .estimation import estimate_n_classes
from .labels import Labels, read_labels
from .network import CURE
from .rows import Scale, pixels, read_rows, standard
from .training import Loop, Watch, features_of, pretrain, train_stage1, train_stage2
from .views import Augment, view_by_name


class CUREDiscovery(ClassifierMixin, BaseEstimator):
    """Put every row into a known class or a discovered one.

    Parameters
    ----------
    n_classes
        All classes, known and new; ``"auto"`` estimates the number (needs two known classes).
    encoder
        ``"mlp"``: in → 256 → 128 → dim, pre-trained here on all rows. ``"residual"``: for rows that are features of
        another network already; it starts as they are (their first ``dim`` principal directions) and learns a change.
        Or a ``torch.nn.Module`` that maps rows to (batch, dim), pre-trained by you; it is copied, and yours stays as it
        is.
    dim
        Width of the features.
    augment
        How views are made: ``"tabular"``, ``"image"``, ``"auto"`` by the number of axes of X, or a function
        ``(batch, torch.Generator) -> batch``.
    epochs
        Passes of stage 1 (over labelled rows) and at most of stage 2 (over all).
    pretrain_epochs
        Passes of the pre-training of ``"mlp"``.
    batch_size
        Rows of a step, at least 2.
    lr
        Adam's step in both stages.
    see1, see2, supcon, sup_weight, entropy, adjust, scale
        See :class:`CURE`.
    tol, patience
        Stage 2 ends when at most the share ``tol`` of the rows changed class in each of ``patience`` passes in a row;
        no label is looked at. ``patience=None``: it never ends early.
    device
        ``"auto"`` for a GPU where there is one, or a name of torch's.
    random_state
        Seed of starts, batches and views. The same seed gives the same result on one machine.
    verbose
        Show bars on the error output.

    Attributes
    ----------
    labels_
        (n,) class of each row of ``fit``; rows with a label keep it.
    classes_
        (K,) all classes: known ones in order, then new ones (``"new-0"``, …, or the next whole numbers).
    codes_, given_
        (n,) place of each row's class in ``classes_``, and whether it was given.
    known_classes_, n_classes_
        The known ones, and K.
    empty_classes_
        New classes that no row of ``fit`` is in.
    prototypes_
        (K, dim) of length 1.
    history_
        A frame with a line a pass: the stage, the terms of the loss, the share of rows that changed class, and of
        unlabelled rows in the largest class.
    k_scores_
        With ``n_classes="auto"`` what :func:`estimate_n_classes` tried.
    net_
        The trained :class:`CURE`, on the CPU.

    Notes
    -----
    Source: "CURE: Consistency-under-Unified Semantic Regularization for Generalized Category Discovery", ICML 2026.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(90, 5)) + 8 * np.repeat(np.eye(5)[:3], 30, axis=0)
    >>> y = np.where(np.arange(90) % 2, -1, np.repeat([0, 1, -1], 30))
    >>> found = CUREDiscovery(3, pretrain_epochs=10, random_state=0).fit(X, y)
    >>> np.unique(found.labels_[60:]).tolist()
    [2]
    """

    def __init__(
        self,
        n_classes: int | str = "auto",
        encoder: str | nn.Module = "mlp",
        dim: int = 64,
        augment: str | Augment = "auto",
        epochs: tuple[int, int] = (1, 25),
        pretrain_epochs: int = 40,
        batch_size: int = 256,
        lr: float = 3e-3,
        see1: float = 0.1,
        see2: float = 0.1,
        supcon: float = 0.5,
        sup_weight: float = 0.35,
        entropy: float = 2.0,
        adjust: float = 1.0,
        scale: float = 10.0,
        tol: float = 1e-3,
        patience: int | None = 3,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.encoder = encoder
        self.dim = dim
        self.augment = augment
        self.epochs = epochs
        self.pretrain_epochs = pretrain_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.see1 = see1
        self.see2 = see2
        self.supcon = supcon
        self.sup_weight = sup_weight
        self.entropy = entropy
        self.adjust = adjust
        self.scale = scale
        self.tol = tol
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Discover classes.

        Parameters
        ----------
        X
            (n, d) array or frame, or images (n, h, w) or (n, c, h, w): finite numbers. With an encoder of your own
            whatever it takes, as float32.
        y
            (n,) strings or whole numbers; −1, None, NaN or NA where the class is unknown. Booleans count as 0 and 1.

        Raises
        ------
        InputError
            If an argument is out of range, X is not finite, no row has a label, the lengths differ, there are fewer
            rows than classes, the encoder's width is not ``dim``, or training diverged.
        TypeError
            If X or y is no array, frame or list.
        """
        settings.check(self)
        table, names = read_rows(X, at_least=2)
        labels = read_labels(y, X if hasattr(X, "__len__") else table)
        n_known = len(labels.known)
        settings.check_classes(self.n_classes, n_known, labels.codes)
        augment = view_by_name(self.augment, table.ndim)
        device = torch.device(pick_device(self.device))
        order = generator(self.random_state)
        seeds = torch.randint(2**31, (4,), generator=order).tolist()
        scale = self._scale(table)
        rows = _float32(table) if scale is None else scale(table)
        draws = torch.Generator(device).manual_seed(seeds[1])
        loop = Loop(self.batch_size, self.lr, order, draws, device, augment, self.verbose)
        with seeded(seeds[0], device):
            net = self._network(rows, n_known).to(device)
            history, scores = self._train(net, rows, labels.codes, loop, seeds[2:])

        net = net.cpu().eval()
        logits = outputs(net, net, rows, torch.device("cpu"))
        if not torch.isfinite(logits).all():
            raise InputError("lr or a weight of the loss is too large: training diverged to NaN or infinity")
        self._keep(net, scale, labels, names, table.shape[1:])
        if scores is not None:
            self.k_scores_ = scores
        elif hasattr(self, "k_scores_"):
            del self.k_scores_
        self.history_ = pd.DataFrame(history)
        codes = logits.argmax(dim=1).numpy()
        codes = np.where(labels.codes >= 0, labels.codes, codes)
        self.codes_, self.given_ = codes, labels.codes >= 0
        self.labels_ = self.classes_[codes]
        empty = np.setdiff1d(np.arange(n_known, net.n_classes), codes)
        self.empty_classes_ = self.classes_[empty]
        if len(empty):
            warnings.warn(
                f"{len(empty)} of {net.n_classes - n_known} new classes have no row: "
                f"{self.empty_classes_.tolist()[:5]}; n_classes may be too large",
                UserWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each row, (n,), by the nearest prototype; no views are made."""
        logits = self._logits(X)
        return self.classes_[logits.argmax(dim=1).numpy()]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Softmax of the scaled cosines, (n, K), in the order of ``classes_``."""
        return torch.softmax(self._logits(X).double(), dim=1).numpy()

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Features of length 1, (n, dim)."""
        rows = self._rows(X)
        return self._run(self.net_.features, rows).numpy()

    def save(self, folder: str | Path, overwrite: bool = False) -> Path:
        """Write a fitted estimator into a new folder: numbers as safetensors, the rest as JSON.

        An encoder or an ``augment`` of your own is not written as code: its weights are, and :meth:`load` wants the
        object again.

        Raises
        ------
        InputError
            If the folder is not empty and not to be overwritten.
        NotFittedError
            Before ``fit``.
        """
        self._check_fitted()
        return settings.write(self, folder, overwrite)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        encoder: nn.Module | None = None,
        augment: Augment | None = None,
        device: str = "auto",
    ) -> Self:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        folder
            The folder.
        encoder
            For one fitted with an encoder of your own: the same kind of module; its weights are taken from the folder,
            into a copy.
        augment
            For one fitted with a function of your own; only another ``fit`` needs it.
        device
            As in the constructor.

        Raises
        ------
        InputError
            If the folder holds none, is damaged, or needs an encoder.
        """
        return settings.read(cls, folder, encoder, augment, device)

    @property
    def prototypes_(self) -> NDArray[np.float32]:
        """(K, dim) prototypes of length 1."""
        self._check_fitted()
        return nn.functional.normalize(self.net_.head.prototypes.detach(), dim=1).numpy()

    def _train(
        self, net: CURE, rows: Tensor, y: NDArray[np.int64], loop: Loop, seeds: list[int]
    ) -> tuple[list[dict[str, Any]], pd.DataFrame | None]:
        """Pre-training, stage 1, the clustering, stage 2; a line a pass, and what the estimate of K tried."""
        history: list[dict[str, Any]] = []
        if self.encoder == "mlp":
            history += pretrain(net.encoder, net.dim, rows, loop, self.pretrain_epochs, seeds[0])
        net.place_known(features_of(net, rows, loop.device), y)
        history += train_stage1(net, rows, y, loop, self.epochs[0])
        Z = features_of(net, rows, loop.device)
        n_classes, scores = self.n_classes, None
        if n_classes == "auto":
            n_classes = net.n_known
            if (y < 0).any():
                n_classes, scores = estimate_n_classes(Z, y, random_state=seeds[1])
        net.begin_stage2(Z, n_classes, seeds[1], y)
        watch = Watch(y < 0, self.tol, self.patience)
        return history + train_stage2(net, rows, y, loop, self.epochs[1], watch), scores

    def _network(self, rows: Tensor, n_known: int) -> CURE:
        width = rows[0].numel()
        if self.encoder == "mlp":
            encoder, dim = mlp(width, self.dim), self.dim
        elif self.encoder == "residual":
            dim = min(self.dim, width)
            encoder = Residual(principal_basis(rows, dim))
        else:
            encoder, dim = copy.deepcopy(self.encoder), self.dim
        return CURE(encoder, dim, n_known, **{name: getattr(self, name) for name in settings.WEIGHTS})

    def _scale(self, table: NDArray[Any]) -> Scale | None:
        if isinstance(self.encoder, nn.Module):
            return None
        if table.ndim > 2:
            return pixels(table)
        return standard(table)

    def _keep(
        self, net: CURE, scale: Scale | None, labels: Labels, names: list[str] | None, shape: tuple[int, ...]
    ) -> None:
        self.net_, self._scale_ = net, scale
        self.known_classes_ = labels.known
        self.classes_ = labels.names(net.n_classes)
        self.n_classes_ = net.n_classes
        self.row_shape_ = shape
        self.n_features_in_ = int(shape[0]) if len(shape) == 1 else int(np.prod(shape))
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _rows(self, X: Any) -> Tensor:
        self._check_fitted()
        table, names = read_rows(X)
        known = getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and names != list(known):
            odd = next((name for name in names if name not in set(known)), names[0])
            raise InputError(f"X must have the columns of fit in their order; {odd!r} is new or elsewhere")
        if table.shape[1:] != tuple(self.row_shape_):
            raise InputError(f"X must have rows of shape {tuple(self.row_shape_)} as in fit, got {table.shape[1:]}")
        return _float32(table) if self._scale_ is None else self._scale_(table)

    def _logits(self, X: Any) -> Tensor:
        rows = self._rows(X)
        return self._run(self.net_, rows)

    def _run(self, call: Any, rows: Tensor) -> Tensor:
        device = torch.device(pick_device(self.device))
        self.net_.to(device)
        try:
            given = outputs(self.net_, call, rows, device)
        finally:
            self.net_.cpu()
        if not torch.isfinite(given).all():
            raise InputError("X has rows for which the encoder gives NaN or infinity: scale them as those of fit")
        return given

    def _check_fitted(self) -> None:
        if not hasattr(self, "net_"):
            raise NotFittedError("this CUREDiscovery is not fitted yet: call fit first")


def _float32(table: NDArray[Any]) -> Tensor:
    with np.errstate(over="ignore"):  # said below
        rows = np.array(table, dtype=np.float32, order="C")  # a copy: the caller's rows stay theirs
    if not np.isfinite(rows).all():
        raise InputError("X must fit into float32 for an encoder of your own: scale it")
    return torch.from_numpy(rows)
