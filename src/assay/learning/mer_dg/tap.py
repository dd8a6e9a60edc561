"""The loss in a training loop that exists already: forward hooks take the features out of any model."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from assay.errors import InputError

from .criterion import MERLoss

Select = str | int | Callable[[Any], Tensor]

WRAPPERS = ("module.", "_orig_mod.")
"""What DataParallel and torch.compile put before the names of a model's modules."""


class FeatureTap:
    """Takes the outputs of some modules at every forward of a model, and gives their loss.

    Parameters
    ----------
    model
        Any model, also one in DataParallel or DistributedDataParallel, or compiled. Make the tap before a compiled
        model runs for the first time: its graph does not notice hooks that come later.
    modules
        Of each modality the module whose output is its features, or that module's name in ``model.named_modules()``.
    loss
        Default ``MERLoss()``.
    select
        How to find the features (N, D) or (N, …, D) in a module's output where that is no tensor: a key, an attribute's
        name, a place in a tuple, or a function; or a mapping from modality to such.

    Attributes
    ----------
    features
        Modality to features of the last forward, with their graph.

    Raises
    ------
    KeyError
        If the model has no module of a name; the message lists names like it.

    Notes
    -----
    Where a model runs several times a step, or a module several times in a forward, the last one counts. Gradient
    checkpointing with ``use_reentrant=False`` is fine, also around the modules; the old ``use_reentrant=True`` gives
    outputs without a gradient, and :meth:`loss` refuses those.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> tap = FeatureTap(model, {"all": "0"}, loss=MERLoss(lam=0.1))
    >>> loss = model(torch.randn(16, 3)).square().mean() + tap.loss()
    >>> loss.backward()
    >>> tap.close()
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Mapping[str, str | nn.Module],
        loss: nn.Module | None = None,
        select: Select | Mapping[str, Select] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch module, got {type(model).__name__}")
        if not isinstance(modules, Mapping) or not modules:
            raise InputError("modules must be a mapping from modality to module or name, and not empty")
        if not (loss is None or callable(loss)):
            raise TypeError(f"loss must be a MERLoss or another function of the features, got {loss!r}")
        self.objective = MERLoss() if loss is None else loss
        self.modules = {str(name): _module(model, name, which) for name, which in modules.items()}
        selects = select if isinstance(select, Mapping) else dict.fromkeys(self.modules, select)
        unknown = sorted(set(selects) - set(self.modules))
        if unknown:
            raise InputError(f"select names {unknown[0]!r}, which is no modality; there are {', '.join(self.modules)}")
        # By device, since the replicas of DataParallel run the same hook, each with its share of the rows.
        self._taken: dict[str, dict[torch.device, tuple[Tensor, int]]] = {name: {} for name in self.modules}
        self._read = False
        self._warned: set[str] = set()
        self._handles = [model.register_forward_pre_hook(_Begin(self))]
        for name, module in self.modules.items():
            self._handles.append(module.register_forward_hook(_Take(self, name, selects.get(name))))

    @property
    def features(self) -> dict[str, Tensor]:
        """The features of the last forward by modality; those that did not run are left out."""
        found = {}
        for name, shares in self._taken.items():
            rows = [shares[device][0] for device in sorted(shares, key=_place)]
            if rows:
                found[name] = rows[0] if len(rows) == 1 else torch.cat([share.to(rows[0].device) for share in rows])
        return found

    def loss(self, present: Any = None) -> Tensor:
        """The loss of the last forward's features; ``present`` as in :class:`MERLoss`.

        A modality whose module did not run is left out; of the first time a warning tells.

        Raises
        ------
        RuntimeError
            Before the first forward, after :meth:`close`, if features carry no gradient though their module is being
            trained, or if they were changed in place since.
        ValueError
            If features are not finite, or differ in rows.
        """
        if not self._handles:
            raise RuntimeError("this tap is closed: its hooks are gone")
        features = self.features
        if not features:
            raise RuntimeError("no features yet: run the model forward before tap.loss()")
        self._read = True
        for name, module in self.modules.items():
            if any(share._version != version for share, version in self._taken[name].values()):
                raise RuntimeError(
                    f"the features of {name!r} were changed in place after their module gave them: tap what comes "
                    "after, or make that step not in place, as in ReLU(inplace=False)"
                )
            if name not in features:
                self._warn_absent(name)
            elif (
                torch.is_grad_enabled()
                and module.training
                and not features[name].requires_grad
                and any(parameter.requires_grad for parameter in module.parameters())
            ):
                raise RuntimeError(
                    f"the features of {name!r} carry no gradient, so that the loss would not act: was the model run "
                    "under torch.no_grad(), or its module inside a checkpoint with use_reentrant=True?"
                )
        return self.objective(features) if present is None else self.objective(features, present)

    def close(self) -> None:
        """Take the hooks out of the model, and forget the features."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clear(self) -> None:
        for shares in self._taken.values():
            shares.clear()
        self._read = False

    def _warn_absent(self, name: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            warnings.warn(f"the module of {name!r} did not run in the last forward: its loss is left out", stacklevel=3)


def _module(model: nn.Module, modality: str, which: str | nn.Module) -> nn.Module:
    named = dict(model.named_modules())
    if isinstance(which, nn.Module):
        if all(module is not which for module in named.values()):
            raise KeyError(f"the module given for {modality!r} is not in the model")
        return which
    if not isinstance(which, str):
        raise TypeError(f"the module of {modality!r} must be a torch module or a name, got {type(which).__name__}")
    plain = {_without_wrappers(name): module for name, module in named.items()}
    if which in named or _without_wrappers(which) in plain:
        return named.get(which, plain.get(_without_wrappers(which), model))
    near = difflib.get_close_matches(which, [*plain], n=5, cutoff=0.4) or [name for name in plain if name][:8]
    raise KeyError(f"the model has no module {which!r} (for {modality!r}); names like it: {', '.join(near)}")


def _place(device: torch.device) -> tuple[str, int]:
    return device.type, device.index or 0


def _without_wrappers(name: str) -> str:
    name = f"{name}."
    while name.startswith(WRAPPERS):
        name = name.partition(".")[2]
    return name.removesuffix(".")


class _Hook:
    """A hook that stays with its model: copies and files of the model have one that does nothing."""

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return _nothing

    def __reduce__(self) -> tuple[Callable[[], Callable[..., None]], tuple[()]]:
        return _idle, ()


class _Begin(_Hook):
    """Forget the features of the forward before."""

    def __init__(self, tap: FeatureTap) -> None:
        self.tap = tap

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if not getattr(module, "_is_replica", False):  # replicas share one tap and run at once
            self.tap._clear()


class _Take(_Hook):
    """Keep a module's output."""

    def __init__(self, tap: FeatureTap, name: str, select: Select | None) -> None:
        self.tap, self.name, self.select = tap, name, select

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self.tap._read:  # a new forward, of which only a part of the model knows
            self.tap._clear()
        features = selected(output, self.select, self.name)
        self.tap._taken[self.name][features.device] = (features, features._version)


def selected(output: Any, select: Select | None, name: str) -> Tensor:
    """The features in a module's output."""
    if callable(select):
        output = select(output)
    elif isinstance(select, str) and not isinstance(output, Mapping):
        output = getattr(output, select, None)
    elif select is not None:
        try:
            output = output[select]
        except (KeyError, IndexError, TypeError):
            output = None
    if not isinstance(output, Tensor):
        how = "no tensor" if select is None else f"no tensor at {select!r}"
        raise TypeError(
            f"the module of {name!r} gives {how} but {type(output).__name__}: say with select= where its features are"
        )
    return output


def _nothing(*_: Any) -> None:
    """The hook of a copy."""


def _idle() -> Callable[..., None]:
    return _nothing
