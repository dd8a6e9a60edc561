"""The scikit-learn classifier that learns from rows in bags and the bags' class proportions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from assay.errors import InputError, one_line
from assay.parts import net_files
from assay.parts.checkpoints import pick_device

from . import settings
from .fitting import fit_network
from .losses import bag_means
from .network import Network, Standardise, perceptron, users_encoder
from .proportions import Bags, checked_bags, diversity, gap, identifiable, warn_of_weak
from .rows import as_rows, check_width, note_names
from .training import ROWS_AT_ONCE, BagData, in_pieces

FloatArray = NDArray[np.float64]

KIND = "llp-flow"


class LLPFlowClassifier(ClassifierMixin, BaseEstimator):
    r"""Classifier of single rows, learnt from bags of rows and the proportions of the classes in each bag.

    1. *Warm start*: passes over the bags on the bag loss, the cross-entropy between a bag's proportions and the mean
       prediction of its rows.
    2. *Flow*: anchors, points in feature space whose classes are known because we say so, start on rows of which the
       network predicts that class, and move until, weighted by the proportions, they look like each bag in turn
       (:class:`AnchorFlow`). The network stands still.
    3. *Training on both*: the bag loss plus ``lam_anchor`` times the cross-entropy at the anchors. Then 2 again.

    Parameters
    ----------
    classes
        Names and order of the classes; None takes the columns of the proportions, else 0, 1, …
    hidden
        Widths of the encoder's layers, the last that of the features; default (128, 32).
    head_hidden
        Width of the layer between features and logits; 0 for none; default 64.
    anchors_per_class
        A; default 30.
    outer
        How many times flow and training on both follow the warm start; 0 leaves it at that; default 2.
    epochs
        Passes over the bags in the warm start, and in each training on both; default (40, 20).
    flow_steps
        Steps in each flow; default 200.
    flow_lr
        Their size, in standard deviations of the features; default 0.05.
    lam_bag, lam_anchor
        Weights of the two losses; default 1 for both. With ``lam_anchor=0`` no anchors are made.
    class_term
        Weight in the flow of what the network says of the anchors; default 1.
    label_cost
        What it costs in the transport, beside the distance, to move a row to an anchor of another class than is
        predicted for it; default 0.
    anchor_start
        ``"predicted"`` (default): on rows of which the network predicts the anchor's class; ``"noise"``: a Gaussian
        cloud twice as wide as the features, the same for all classes.
    space
        Where anchors live: ``"features"`` (default), behind the encoder, or ``"input"``, in front of it.
    lr
        Of Adam; default 1e-3.
    validation_bags
        Share of the bags, 0 to below 1, that is held out, where there are at least 8: the pass with the lowest loss on
        them is kept. Default 0: none.
    class_weight
        None, ``"balanced"`` (the inverse of the mean proportions) or a dict of class to weight; in both losses.
    max_rows_per_bag
        The transport takes so many rows of a larger bag, drawn anew each time; default 512. The bag loss takes all.
    encoder
        A module from rows to features (N, d), which is copied and trained (frozen parameters stay frozen); rows may
        then have any shape, such as (n, C, H, W), and reach it as float32, unchanged. None is a perceptron on
        columns that are standardised and cut off at ±4.
    device
        ``"auto"`` (a GPU where torch sees one), or a torch device.
    verbose
        Whether a bar on the error output shows how far it is; default False.
    random_state
        Seed, or None.

    Attributes
    ----------
    classes_ : (K,)
    anchors_ : (K·A, d) float32
        In standardised input space with ``space="input"``. Not there without anchors.
    anchor_labels_ : (K·A,)
    history_ : dict of arrays
        ``bag`` and ``anchor``: losses of each step of training; ``transport`` and ``class``: of each step of the flow;
        ``validation``: of each pass.
    network_ : torch.nn.Module
    n_features_in_, feature_names_in_

    References
    ----------
    Rakotomamonjy, Vono, Ralaivola, "Particle Flow for Learning from Label Proportions", ICML 2026 (HAL 05063059).

    Examples
    --------
    >>> X = np.r_[np.zeros((40, 2)), np.ones((40, 2))] + np.random.default_rng(0).normal(0, 0.1, (80, 2))
    >>> bags = np.r_[np.repeat([0, 1], [30, 10]), np.repeat([0, 1], [10, 30])]
    >>> clf = LLPFlowClassifier(random_state=0).fit(X, bags, {0: 0.25, 1: 0.75})
    >>> clf.predict([[0.0, 0.0], [1.0, 1.0]])
    array([0, 1])
    """

    def __init__(
        self,
        classes: Any = None,
        *,
        hidden: tuple[int, ...] = (128, 32),
        head_hidden: int = 64,
        anchors_per_class: int = 30,
        outer: int = 2,
        epochs: tuple[int, int] = (40, 20),
        flow_steps: int = 200,
        flow_lr: float = 0.05,
        lam_bag: float = 1.0,
        lam_anchor: float = 1.0,
        class_term: float = 1.0,
        label_cost: float = 0.0,
        anchor_start: str = "predicted",
        space: str = "features",
        lr: float = 1e-3,
        validation_bags: float = 0.0,
        class_weight: str | Mapping[Any, float] | None = None,
        max_rows_per_bag: int = 512,
        encoder: nn.Module | None = None,
        device: str = "auto",
        verbose: bool = False,
        random_state: int | np.random.Generator | np.random.RandomState | None = None,
    ) -> None:
        self.classes = classes
        self.hidden = hidden
        self.head_hidden = head_hidden
        self.anchors_per_class = anchors_per_class
        self.outer = outer
        self.epochs = epochs
        self.flow_steps = flow_steps
        self.flow_lr = flow_lr
        self.lam_bag = lam_bag
        self.lam_anchor = lam_anchor
        self.class_term = class_term
        self.label_cost = label_cost
        self.anchor_start = anchor_start
        self.space = space
        self.lr = lr
        self.validation_bags = validation_bags
        self.class_weight = class_weight
        self.max_rows_per_bag = max_rows_per_bag
        self.encoder = encoder
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, proportions: Any = None, *, bags: Any = None) -> Self:
        """Learn: ``fit(X, bags, proportions)``, or with both by name, as in a pipeline.

        Parameters
        ----------
        X
            (n, d) numbers, array or DataFrame; with an ``encoder`` (n, …).
        y, bags
            (n,) the bag id of each row, by position: second in place, or by the name ``bags`` (a pipeline puts its own
            ``y``, None, in second place). Ids are numbers or words.
        proportions
            Of each bag: DataFrame (bags × classes) whose index is the ids; Series or dict of id to the shares, or to
            the share of the positive class; array (B, K) or (B,) whose row b is bag b.

        Raises
        ------
        InputError
            For a parameter out of range; rows that are not numbers or have NaN or infinity (it names the bag); as many
            bag ids as rows not there, or unknown ones; a bag without proportions; proportions that are negative, NaN or
            off a sum of 1 by more than 1e-3; fewer than 2 classes; one bag only, with anchors; an encoder that gives no
            features; a loss that became infinite.
        TypeError
            For sparse X.
        UserWarning
            Where the proportions cannot, or hardly, tell the classes apart; for a class that no bag has; for
            proportions without rows, which are ignored; for too few bags to hold any out.
        """
        if y is not None and bags is not None:
            raise InputError("bags must be given once: second in place, or by name")
        bags = y if bags is None else bags
        plan = settings.checked_plan(self)
        rows = as_rows(X, bags, any_shape=self.encoder is not None)
        own = checked_bags(X, bags, proportions, self.classes)
        if plan.with_anchors and len(own.ids) < 2:
            raise InputError("bags holds one bag only, and anchors need at least 2; lam_anchor=0 does without them")
        weights = settings.class_weights(self.class_weight, own)
        share = settings.checked_share(self.validation_bags, len(own.ids))
        device = pick_device(self.device)
        warn_of_weak(own)
        note_names(self, X, rows)
        self.classes_ = own.classes
        seeds = np.random.SeedSequence(settings.seed(self.random_state)).spawn(4)
        start, order, random, hold = (np.random.default_rng(seed) for seed in seeds)
        # Layers draw their start, and a user's encoder its dropout, from torch's own generator: what is done to it here
        # is undone behind.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(int(start.integers(2**63)))
            X_here = self._build(torch.as_tensor(rows), device, len(own.classes))
            whole = BagData.sort(X_here, own.index, own.proportions)
            data, held = _hold_out(whole, share, hold)
            weight = None if weights is None else torch.as_tensor(weights, dtype=torch.float32, device=device)
            try:
                flow, history = fit_network(self.network_, data, plan, order, random, held, weight)
                report = self._describe(own, whole)
            except BaseException:  # half a fit must not answer
                del self.network_, self.standardise_
                raise
        self.network_.eval()
        for name in ("anchors_", "anchor_labels_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if flow is not None:
            self.anchors_ = flow.anchors.cpu().numpy()
            self.anchor_labels_ = self.classes_[flow.labels.cpu().numpy()]
        self.history_ = history.arrays()
        self._report = report
        return self

    def _build(self, rows: Tensor, device: torch.device, classes: int) -> Tensor:
        """Make the network, and put the rows where and how it takes them."""
        if self.encoder is None:
            self.standardise_: nn.Module = Standardise(rows.shape[1])
            self.standardise_.learn(rows)
            self.standardise_.to(device)
            encoder, dim = perceptron(rows.shape[1], self.hidden), self.hidden[-1]
        else:
            self.standardise_ = nn.Identity()
            encoder, dim = users_encoder(self.encoder, rows[:2].to(device))
        self.network_ = Network(encoder, dim, self.head_hidden, classes).to(device)
        return self.standardise_(rows.to(device))

    def _describe(self, own: Bags, data: BagData) -> dict[str, Any]:
        predicted = in_pieces(self.network_, data.X).softmax(dim=1).double()
        if not predicted.isfinite().all():
            raise InputError("X has rows for which the encoder gives NaN or infinity")
        index, classes = data.index(), len(own.classes)
        means = bag_means(predicted, index, len(own.ids)).cpu().numpy()
        hard = torch.nn.functional.one_hot(predicted.argmax(dim=1), classes).double()
        counted = bag_means(hard, index, len(own.ids)).cpu().numpy()
        return {
            "bags": len(own.ids),
            "diversity": diversity(own.proportions),
            "gap": gap(own.proportions),
            "identifiable": identifiable(own.proportions),
            "bag_loss": float(-(own.proportions * np.log(means + 1e-7)).sum(axis=1).mean()),
            "least_bag_loss": float(-(own.proportions * np.log(own.proportions + 1e-7)).sum(axis=1).mean()),
            "bag_error": float(np.abs(means - own.proportions).mean()),
            "hard_error": float(np.abs(counted - own.proportions).mean()),
            "confidence": float(predicted.amax(dim=1).mean()),
        }

    def predict_proba(self, X: Any) -> FloatArray:
        """Probabilities (n, K) of the classes, in the order of ``classes_``."""
        return self._through(self.network_if_fitted(), X).softmax(dim=1).numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class (n,) of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def transform(self, X: Any) -> FloatArray:
        """Features (n, d) of rows: what the encoder gives, and where anchors live."""
        return self._through(self.network_if_fitted().encoder, X).numpy()

    def bag_score(self, X: Any, bags: Any, proportions: Any) -> float:
        """Mean absolute difference between predicted and given proportions, over bags and classes; lower is better.

        Needs no labels, so it can choose settings on bags that were held out (:class:`BagKFold`).
        """
        probs = self.predict_proba(X)
        own = checked_bags(X, bags, proportions, self.classes_)
        means = bag_means(torch.as_tensor(probs), torch.as_tensor(own.index), len(own.ids)).numpy()
        return float(np.abs(means - own.proportions).mean())

    def report(self) -> dict[str, Any]:
        """Whether the bags of the fit can be learnt from, and how well they were fitted.

        Returns
        -------
        dict
            ``bags``: how many. ``diversity``: the (K − 1)-th largest singular value of the proportions about their
            mean, over √B; 0 means that some mix of classes never varies. ``gap``: mean difference of two classes'
            shares. ``identifiable``: whether both are at least 0.02.

            ``bag_loss``: of the bags, and ``least_bag_loss``: what it cannot fall below. ``bag_error``: mean difference
            of predicted and given proportions; ``hard_error``: the same, of the shares of rows that are put into each
            class. ``confidence``: mean probability of a row's most probable class. Where ``hard_error`` is far above
            ``bag_error``, and ``confidence`` low, the proportions are met by probabilities that decide little.
        """
        check_is_fitted(self, "network_")
        return dict(self._report)

    def save(self, folder: str | Path, overwrite: bool = False) -> None:
        """Write the fitted classifier to a folder: weights as safetensors, the rest as JSON.

        Raises
        ------
        InputError
            With a user's encoder, whose code cannot be written; classes that are neither numbers nor words; a folder
            that is not empty (without ``overwrite``).
        """
        network = self.network_if_fitted()
        if self.encoder is not None:
            raise InputError("encoder is code of yours, which no file can hold: write network_.state_dict() yourself")
        classes = self.classes_.tolist()
        if not all(isinstance(c, str | int | float | bool) for c in classes):
            raise InputError(f"classes must be numbers or words to be written, got {classes!r}")
        state = {
            "parameters": settings.plain(self),
            "classes": classes,
            "columns": int(self.n_features_in_),
            "names": [str(name) for name in self.feature_names_in_] if hasattr(self, "feature_names_in_") else None,
            "report": self._report,
        }
        tensors: dict[str, Any] = {f"network.{name}": value for name, value in network.state_dict().items()}
        tensors |= {f"standardise.{name}": value for name, value in self.standardise_.state_dict().items()}
        tensors |= {f"history.{name}": value for name, value in self.history_.items()}
        if hasattr(self, "anchors_"):
            tensors |= {"anchors": self.anchors_}
        net_files.save(folder, KIND, state, tensors, overwrite)

    @classmethod
    def load(cls, folder: str | Path, device: str = "auto") -> Self:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            When it is no such folder, or damaged.
        """
        where = pick_device(device)
        state, tensors = net_files.load(folder, KIND)
        try:
            return cls._from(state, tensors, where)
        except (KeyError, TypeError, RuntimeError, AttributeError, IndexError, ValueError) as error:
            raise InputError(f"{folder} is damaged: {one_line(error, 200)}") from None

    @classmethod
    def _from(cls, state: dict[str, Any], tensors: dict[str, Tensor], device: torch.device) -> Self:
        parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in state["parameters"].items()}
        self = cls(**parameters)
        classes = np.asarray(state["classes"])
        same = classes.tolist() == state["classes"]  # numbers and words together would all become words
        self.classes_ = classes if same else np.array(state["classes"], dtype=object)
        self.n_features_in_ = int(state["columns"])
        if state["names"] is not None:
            self.feature_names_in_ = np.asarray(state["names"], dtype=object)

        def part(of: str) -> dict[str, Tensor]:
            return {name.removeprefix(of): value for name, value in tensors.items() if name.startswith(of)}

        self.standardise_ = Standardise(self.n_features_in_)
        self.standardise_.load_state_dict(part("standardise."))
        self.standardise_.to(device)
        with torch.random.fork_rng(devices=[]):
            encoder = perceptron(self.n_features_in_, self.hidden)
            self.network_ = Network(encoder, self.hidden[-1], self.head_hidden, len(self.classes_))
        self.network_.load_state_dict(part("network."))
        self.network_.to(device).eval()
        if "anchors" in tensors:
            self.anchors_ = tensors["anchors"].numpy()
            self.anchor_labels_ = np.repeat(self.classes_, self.anchors_per_class)
        self.history_ = {name: value.numpy() for name, value in part("history.").items()}
        self._report = state["report"]
        return self

    def network_if_fitted(self) -> Network:
        """The network; ``NotFittedError`` where there is none yet."""
        check_is_fitted(self, "network_")
        return self.network_

    def _through(self, module: nn.Module, X: Any) -> Tensor:
        """A module's output for rows, float64 on the CPU."""
        rows = as_rows(X, None, any_shape=self.encoder is not None)
        check_width(self, X, rows)
        device = next(self.network_.parameters()).device
        pieces = torch.as_tensor(rows).split(ROWS_AT_ONCE)
        out = torch.cat([in_pieces(module, self.standardise_(piece.to(device))).double().cpu() for piece in pieces])
        if not out.isfinite().all():
            raise InputError("X has rows for which the encoder gives NaN or infinity")
        return out


def _hold_out(data: BagData, share: float, random: np.random.Generator) -> tuple[BagData, BagData | None]:
    """Bags to train on, and bags to choose the pass on."""
    if share == 0:
        return data, None
    bags = len(data.proportions)
    count = min(max(1, round(share * bags)), bags - 2)
    shuffled = random.permutation(bags)
    return data.only(np.sort(shuffled[count:])), data.only(np.sort(shuffled[:count]))
