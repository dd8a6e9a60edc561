"""Parameters of the estimator checked at the door, and a fitted one on disk."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from assay.errors import InputError, one_line
from assay.parts import net_files

from .encoders import Residual, mlp
from .network import CURE
from .rows import Scale

if TYPE_CHECKING:
    from .discovery import CUREDiscovery

KIND = "cure"
WEIGHTS = ("see1", "see2", "supcon", "sup_weight", "entropy", "adjust", "scale")
ENCODERS = ("mlp", "residual")


def check(model: CUREDiscovery) -> None:
    """Refuse parameters that no fit could use."""
    if not isinstance(model.encoder, nn.Module) and model.encoder not in ENCODERS:
        raise InputError(f"encoder must be 'mlp', 'residual' or a torch.nn.Module, got {model.encoder!r}")
    for name, least in (("dim", 1), ("batch_size", 2), ("pretrain_epochs", 0)):
        _count(name, getattr(model, name), least)
    if model.patience is not None:
        _count("patience", model.patience, 1)
    epochs = model.epochs
    if not isinstance(epochs, tuple | list) or len(epochs) != 2:
        raise InputError(f"epochs must be two numbers, of stage 1 and of stage 2, got {epochs!r}")
    for value in epochs:
        _count("epochs", value, 0)
    for name, least in (("lr", 0.0), ("scale", 0.0)):
        if not (_is_real(getattr(model, name)) and getattr(model, name) > least):
            raise InputError(f"{name} must be a positive number, got {getattr(model, name)!r}")
    for name in ("see1", "see2", "supcon", "entropy", "adjust", "tol"):
        if not (_is_real(getattr(model, name)) and getattr(model, name) >= 0):
            raise InputError(f"{name} must be a finite number that is not negative, got {getattr(model, name)!r}")
    if not (_is_real(model.sup_weight) and 0 <= model.sup_weight <= 1):
        raise InputError(f"sup_weight must lie between 0 and 1, got {model.sup_weight!r}")


def check_classes(n_classes: Any, n_known: int, codes: NDArray[np.int64]) -> None:
    """Refuse a number of classes that these labels cannot have."""
    free = int((codes < 0).sum())
    if isinstance(n_classes, str) and n_classes == "auto":
        if n_known < 2 and free:
            raise InputError("n_classes='auto' needs at least two known classes to learn from, and y has one: give K")
        return
    if isinstance(n_classes, str):
        raise InputError(f"n_classes must be 'auto' or a whole number, got {n_classes!r}")
    _count("n_classes", n_classes, 1)
    if n_classes < n_known:
        raise InputError(f"n_classes must be at least {n_known}, the classes in y, got {n_classes}")
    if n_classes > len(codes):
        raise InputError(f"n_classes must be at most {len(codes)}, the rows, got {n_classes}")
    if n_classes - n_known > free:
        raise InputError(
            f"n_classes={n_classes} asks for {n_classes - n_known} new classes, and only {free} rows have no label"
        )


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def _count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")


def write(model: CUREDiscovery, folder: str | Path, overwrite: bool) -> Path:
    """Write a fitted estimator."""
    parameters = {name: value for name, value in model.get_params(deep=False).items() if name != "device"}
    own_encoder, own_augment = isinstance(model.encoder, nn.Module), callable(model.augment)
    parameters["encoder"] = None if own_encoder else model.encoder
    parameters["augment"] = None if own_augment else model.augment
    seed = model.random_state
    parameters["random_state"] = seed if seed is None or isinstance(seed, int | np.integer) else None
    state = {
        "parameters": parameters,
        "classes": model.classes_.tolist(),
        "n_known": len(model.known_classes_),
        "row_shape": list(model.row_shape_),
        "feature_names": list(model.feature_names_in_) if hasattr(model, "feature_names_in_") else None,
        "history": model.history_.to_dict("list"),
        "k_scores": model.k_scores_.to_dict("list") if hasattr(model, "k_scores_") else None,
    }
    tensors: dict[str, Any] = {f"net.{name}": value for name, value in model.net_.state_dict().items()}
    tensors["codes"], tensors["given"] = model.codes_, model.given_
    if model._scale_ is not None:
        for name in ("unit", "center", "spread"):
            tensors[f"scale.{name}"] = getattr(model._scale_, name)
    net_files.save(folder, KIND, state, tensors, overwrite)
    return Path(folder)


def read(cls: type[Any], folder: str | Path, encoder: nn.Module | None, augment: Any, device: str) -> Any:
    """Read what :func:`write` wrote, into an estimator of ``cls``."""
    state, tensors = net_files.load(folder, KIND)
    try:
        parameters = dict(state["parameters"])
        parameters["epochs"] = tuple(parameters["epochs"])
        own = parameters["encoder"] is None
        if own and encoder is None:
            raise InputError(f"{folder} was fitted with an encoder of your own: give it again as encoder=")
        if not own and encoder is not None:
            raise InputError(f"{folder} was fitted with encoder={parameters['encoder']!r}: give none")
        parameters["encoder"] = encoder if own else parameters["encoder"]
        parameters["augment"] = parameters["augment"] or augment or "auto"
        model = cls(**parameters, device=device)
        check(model)
        _restore(model, state, tensors)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"{folder} is damaged, or does not fit the encoder given: {one_line(error, 160)}") from None
    return model


def _restore(model: Any, state: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    weights = {name[4:]: value for name, value in tensors.items() if name.startswith("net.")}
    n_known, shape = int(state["n_known"]), tuple(state["row_shape"])
    prototypes = weights["head.prototypes"]
    n_classes, dim = prototypes.shape
    if n_classes != len(state["classes"]) or not 1 <= n_known <= n_classes:
        raise ValueError("its classes and prototypes differ in number")
    if isinstance(model.encoder, nn.Module):
        encoder = copy.deepcopy(model.encoder)
    elif model.encoder == "residual":
        encoder = Residual(weights["encoder.basis"])
    else:
        encoder = mlp(int(np.prod(shape)), dim)
    net = CURE(encoder, dim, n_known, **{name: getattr(model, name) for name in WEIGHTS})
    net.load_state_dict(weights)
    model.net_ = net.eval()
    scale = [tensors[f"scale.{name}"].numpy() for name in ("unit", "center", "spread") if f"scale.{name}" in tensors]
    model._scale_ = Scale(*scale) if scale else None
    model.classes_ = np.array(state["classes"])
    model.known_classes_ = model.classes_[:n_known]
    model.n_classes_ = n_classes
    model.row_shape_ = shape
    model.n_features_in_ = int(np.prod(shape))
    if state["feature_names"] is not None:
        model.feature_names_in_ = np.array(state["feature_names"], dtype=object)
    model.history_ = pd.DataFrame(state["history"])
    if state["k_scores"] is not None:
        model.k_scores_ = pd.DataFrame(state["k_scores"])
    model.codes_, model.given_ = tensors["codes"].numpy(), tensors["given"].numpy()
    if not 0 <= model.codes_.min() <= model.codes_.max() < n_classes or model.given_.shape != model.codes_.shape:
        raise ValueError("its labels are none of its classes")
    model.labels_ = model.classes_[model.codes_]
    model.empty_classes_ = model.classes_[np.setdiff1d(np.arange(n_known, n_classes), model.codes_)]
