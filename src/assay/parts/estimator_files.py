"""Fitted scikit-learn estimators as files, in the format of skops: reading one runs no code of its own."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from assay.errors import InputError, one_line
from assay.parts.archives import opened
from assay.parts.checkpoints import new_file
from assay.parts.packages import need

SUFFIX = ".skops"
MOST_BYTES = 8 * 2**30
_WHY = "an estimator's file"

# Where trusted classes and functions may come from, besides what skops trusts by itself. A file can have a class or a
# function that is trusted called with what it likes, so nothing that writes, fetches or runs may be among them.
_CLASSES = (
    "sklearn.calibration",
    "sklearn.cluster",
    "sklearn.compose",
    "sklearn.covariance",
    "sklearn.decomposition",
    "sklearn.ensemble",
    "sklearn.feature_extraction",
    "sklearn.feature_selection",
    "sklearn.gaussian_process",
    "sklearn.impute",
    "sklearn.isotonic",
    "sklearn.linear_model",
    "sklearn.metrics._dist_metrics",
    "sklearn.mixture",
    "sklearn.model_selection",
    "sklearn.multiclass",
    "sklearn.multioutput",
    "sklearn.neighbors",
    "sklearn.neural_network",
    "sklearn.pipeline",
    "sklearn.preprocessing",
    "sklearn.svm",
    "sklearn.tree",
    "sklearn._loss",
    "scipy.interpolate",
    "scipy.sparse",
)
_FUNCTIONS = ("sklearn.cluster._kmeans", "sklearn.feature_selection", "sklearn.metrics")
_ONES = (
    "functools.partial",  # of what is trusted itself
    "numpy.dtype",
    "numpy.mean",
    "numpy.median",
    "scipy._lib.array_api_compat.numpy._aliases.asarray",
    "sklearn.utils.validation.check_array",
)


def save(estimator: BaseEstimator, path: str | Path) -> None:
    """Write an estimator to a ``.skops`` file, whole or not at all.

    Parameters
    ----------
    estimator
        Of assay or scikit-learn, with nothing inside but such ones and arrays, numbers and text.
    path
        The file; one that is there is replaced.

    Raises
    ------
    InputError
        When the path does not end in ``.skops``, or the estimator holds something that :func:`load` would refuse.
    MissingPart
        When skops is not installed.
    """
    skops = need("skops.io", _WHY)
    target = Path(path)
    if target.suffix != SUFFIX:
        raise InputError(f"{target.name}: an estimator's file must end in {SUFFIX}")
    if not isinstance(estimator, BaseEstimator):
        raise TypeError(f"estimator must be a scikit-learn estimator, not a {type(estimator).__name__}")
    try:
        content = skops.dumps(estimator)
    except Exception as error:  # skops and what it walks through raise many kinds
        where = _unwritable(estimator, skops)
        raise InputError(f"{type(estimator).__name__} cannot be written{where}: {one_line(error)}") from error
    strange = _strange(skops.get_untrusted_types(data=content))
    if strange:
        raise InputError(
            f"{type(estimator).__name__} cannot be written, because it could not be read back: it holds "
            f"{', '.join(strange[:3])}, and only types of assay, scikit-learn, numpy and scipy are read"
        )
    with new_file(target) as new:
        new.write_bytes(content)


def load(path: str | Path) -> Any:
    """Read an estimator from a ``.skops`` file, whoever wrote it.

    Nothing in the file is run, and only classes of assay, scikit-learn, numpy and scipy that do no more than compute
    are built. The trees of forests and boosting are checked, for scikit-learn follows them unseen; other arrays are
    not. What a stranger's estimator predicts is as good as the stranger.

    Raises
    ------
    InputError
        When there is no such file, it is none or damaged, larger than 8 GiB unpacked, or holds other types; the message
        names them.
    MissingPart
        When skops is not installed.
    """
    skops = need("skops.io", _WHY)
    path = Path(path).expanduser()
    with opened(path, MOST_BYTES) as archive:
        if "schema.json" not in archive.namelist():
            raise InputError(f"{path.name} is no file of an estimator: it has no schema.json")
    try:
        names = skops.get_untrusted_types(file=path)
        strange = _strange(names)
        if not strange:
            estimator = skops.load(path, trusted=names)
    except MemoryError:
        raise
    except Exception as error:  # of a damaged file, skops raises what comes
        raise InputError(f"{path.name} is damaged, or of another version: {one_line(error)}") from error
    if strange:
        raise InputError(
            f"{path.name} is refused: it holds {', '.join(strange[:3])}, and only types of assay, scikit-learn, numpy "
            "and scipy that do no more than compute are read"
        )
    if not isinstance(estimator, BaseEstimator):
        raise InputError(f"{path.name} holds a {type(estimator).__name__}, and no estimator")
    _check_trees(estimator, math.inf, set(), path.name)
    return estimator


def _unwritable(estimator: BaseEstimator, skops: Any) -> str:
    for name, value in vars(estimator).items():
        try:
            skops.dumps(value)
        except Exception:
            return f", because of its {name}, a {type(value).__name__}"
    return ""


def _strange(names: list[str]) -> list[str]:
    return sorted(name for name in names if not _trusted(name))


def _trusted(name: str) -> bool:
    if name in _ONES:
        return True
    module, _, attribute = name.rpartition(".")
    ours = module.startswith("assay.")
    if any(part.startswith("__") or part == "tests" for part in module.split(".")):
        return False  # importing it might run something
    if not ours and not _under(module, (*_CLASSES, *_FUNCTIONS)):
        return False
    try:
        thing = getattr(importlib.import_module(module), attribute)
    except Exception:  # whatever its import raises, it is not there
        return False
    # Of what a module has imported from elsewhere, it is that place which counts.
    home = str(getattr(thing, "__module__", ""))
    if inspect.isclass(thing):
        if ours:
            return home.startswith("assay.") and (issubclass(thing, BaseEstimator) or dataclasses.is_dataclass(thing))
        return _under(home, _CLASSES)
    return inspect.isroutine(thing) and _under(home, _FUNCTIONS)


def _under(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _check_trees(held: Any, columns: float, seen: set[int], file: str) -> None:
    """Refuse trees that lead out of their own nodes, in a circle, or to a column that the rows do not have."""
    if id(held) in seen or isinstance(held, str | bytes | int | float | None):
        return
    seen.add(id(held))
    kind = type(held)
    if kind.__module__.startswith(("sklearn.tree._tree", "sklearn.ensemble._hist_gradient_boosting.predictor")):
        _check_tree(held, columns, file)
    elif isinstance(held, dict):
        for item in held.values():
            _check_trees(item, columns, seen, file)
    elif isinstance(held, list | tuple | set) or (isinstance(held, np.ndarray) and held.dtype.hasobject):
        for item in held.ravel() if isinstance(held, np.ndarray) else held:
            _check_trees(item, columns, seen, file)
    elif isinstance(held, BaseEstimator) or hasattr(held, "__dict__"):
        # Forests and boosting hand their rows on to their trees as they are; others check them again.
        own = getattr(held, "n_features_in_", math.inf)
        own = float(own) if isinstance(own, int | np.integer) else math.inf
        passes_on = kind.__module__.startswith(
            ("sklearn.tree", "sklearn.ensemble._forest", "sklearn.ensemble._gb", "sklearn.ensemble._hist")
        )
        for item in vars(held).values():
            _check_trees(item, min(columns, own) if passes_on else math.inf, seen, file)


def _check_tree(tree: Any, columns: float, file: str) -> None:
    nodes = tree.nodes if hasattr(tree, "nodes") else tree.__getstate__()["nodes"]
    if "left_child" in nodes.dtype.names:
        left, right, column = (nodes[name].astype(np.int64) for name in ("left_child", "right_child", "feature"))
        inner = left != -1
    else:
        left, right, column = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
        inner = nodes["is_leaf"] == 0
    number = np.arange(len(nodes))
    sound = (
        (left > number)
        & (right > number)
        & (left < len(nodes))
        & (right < len(nodes))
        & (column >= 0)
        & (column < columns)
    )
    if not len(nodes) or not sound[inner].all():
        raise InputError(f"{file} is damaged, or made to do harm: a tree in it leads nowhere")
