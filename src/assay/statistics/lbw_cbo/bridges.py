"""Log densities from elsewhere: functions of torch tensors, and Pyro models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from assay.errors import InputError, MissingPart
from assay.parts.packages import need

from . import checks

if TYPE_CHECKING:
    import torch

FloatArray = npt.NDArray[np.float64]
LogDensity = Callable[[FloatArray], FloatArray]

_INSTALL = "python -m pip install 'assay[statistics]'"


def log_density_from_torch(
    function: Callable[[torch.Tensor], torch.Tensor], device: str = "auto", batch_rows: int = 65536
) -> LogDensity:
    """Make a log density of arrays from one of torch tensors.

    Parameters
    ----------
    function
        (n, d) float64 tensor on the device -> (n,); no gradient is taken.
    device
        ``"auto"`` (a GPU where torch sees one), or the name of a torch device.
    batch_rows
        At most so many rows a call, so that memory stays bounded.

    Returns
    -------
    function
        (n, d) float64 array -> (n,) float64 array.

    Raises
    ------
    InputError
        When torch has no such device, or ``batch_rows`` is below 1.
    MissingPart
        When torch is not installed.
    """
    if not callable(function):
        raise TypeError(f"function must be a function of tensors, not a {type(function).__name__}")
    batch_rows = checks.whole(batch_rows, "batch_rows", 1)
    torch = need("torch", "a log density of tensors")
    from assay.parts.checkpoints import pick_device

    place = pick_device(device)

    def log_density(points: FloatArray) -> FloatArray:
        parts = [np.empty(0)]
        with torch.no_grad():
            for start in range(0, len(points), batch_rows):
                rows = torch.from_numpy(np.ascontiguousarray(points[start : start + batch_rows], dtype=np.float64))
                values = function(rows.to(place))
                if not isinstance(values, torch.Tensor) or values.shape != (len(rows),):
                    what = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
                    raise InputError(f"function must return a tensor ({len(rows)},) for {len(rows)} rows, got {what}")
                parts.append(values.double().cpu().numpy())
        return np.concatenate(parts)

    return log_density


def log_density_from_pyro(
    model: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[LogDensity, int, Callable[[npt.ArrayLike], dict[str, FloatArray]]]:
    """The posterior of a Pyro model as a log density on unconstrained space.

    Parameters
    ----------
    model
        A Pyro model with continuous latent sites only; it is traced once and evaluated vectorised over rows where that
        works, else row by row.
    args, kwargs
        What the model is called with: its data.

    Returns
    -------
    log_density
        (n, d) array -> (n,): minus Pyro's potential energy, which includes the Jacobian of the change of variables.
    dim
        d: the unconstrained numbers of all latent sites, in the order of the model's trace.
    unflatten
        (n, d) or (d,) -> the latent sites by name, back in their own space, (n, …) or (…).

    Raises
    ------
    MissingPart
        When pyro-ppl is not installed.
    InputError
        When the model has no latent site, or a discrete one.

    Notes
    -----
    Sites are laid out by ``pyro.infer.mcmc.util.initialize_model``. The global random state and Pyro's parameter store
    are left as they were.
    """
    try:
        import pyro
        import torch
        from pyro.infer.mcmc.util import initialize_model
    except ModuleNotFoundError as error:
        raise MissingPart(f"log_density_from_pyro needs {error.name}", _INSTALL) from error
    if not callable(model):
        raise TypeError(f"model must be a Pyro model, a function, not a {type(model).__name__}")
    with torch.random.fork_rng(devices=[]):  # a model draws when it is traced
        latent = [
            (name, site)
            for name, site in pyro.poutine.trace(model).get_trace(*args, **kwargs).nodes.items()
            if site["type"] == "sample" and not site["is_observed"] and not _structural(site)
        ]
        if not latent:
            raise InputError("model has no latent site: there is nothing to approximate")
        for name, site in latent:
            if site["fn"].support.is_discrete:
                raise InputError(f"the site {name!r} of model is discrete: marginalise it, or leave it out")
        initial, _, transforms, _ = initialize_model(model, args, kwargs)
    shapes = {name: initial[name].shape for name, _ in latent}
    dtypes = {name: initial[name].dtype for name, _ in latent}
    sizes = [int(np.prod(shape, dtype=int)) for shape in shapes.values()]
    ends = np.cumsum(sizes)
    dim = int(ends[-1])

    def sites(row: Any) -> dict[str, Any]:
        parts = zip(shapes.items(), ends - sizes, ends, strict=True)
        return {
            name: row[..., start:end].reshape((*row.shape[:-1], *shape)).to(dtypes[name])
            for (name, shape), start, end in parts
        }

    def inside(row: Any) -> dict[str, Any]:
        return {name: transforms[name].inv(u) if name in transforms else u for name, u in sites(row).items()}

    def one(row: Any) -> Any:
        # Pyro's own potential, without its enumeration of discrete sites, which torch cannot vectorise.
        outer, values = sites(row), inside(row)
        trace = pyro.poutine.trace(pyro.poutine.condition(model, values)).get_trace(*args, **kwargs)
        jacobians = [t.log_abs_det_jacobian(values[name], outer[name]).sum() for name, t in transforms.items()]
        return trace.log_prob_sum() - sum(jacobians)

    rowwise = [False]  # whether a model was found that torch cannot vectorise

    def log_density(points: FloatArray) -> FloatArray:
        rows = torch.from_numpy(np.ascontiguousarray(points, dtype=np.float64))
        # Pyro's checks of arguments look at values, which a vectorised model has not.
        with torch.no_grad(), torch.random.fork_rng(devices=[]), pyro.validation_enabled(False):
            if not rowwise[0]:
                try:
                    return torch.func.vmap(one)(rows).double().numpy()
                except (RuntimeError, ValueError):  # control flow on values, or an operation without a batched form
                    rowwise[0] = True
            return np.array([float(one(row)) for row in rows])

    def unflatten(points: npt.ArrayLike) -> dict[str, FloatArray]:
        rows = np.asarray(points, dtype=np.float64)
        if rows.ndim not in (1, 2) or rows.shape[-1] != dim:
            raise InputError(f"points must be (n, {dim}) or ({dim},), got shape {rows.shape}")
        with torch.no_grad():
            values = inside(torch.from_numpy(np.ascontiguousarray(rows)))
            return {name: value.double().numpy() for name, value in values.items()}

    return log_density, dim, unflatten


def _structural(site: Any) -> bool:
    """Whether a site of a trace is a plate or the like, not a random variable."""
    return type(site["fn"]).__name__ in ("_Subsample", "Unit")
