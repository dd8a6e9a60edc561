"""A user's target: a function named on the command line, or a Python file that a study is run on."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import InputError, one_line

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Outline:
    """What a target's file says without being run.

    Attributes
    ----------
    dim
        d.
    spread, root
        The start: standard deviation of the means, and size of the roots.
    has_gradient
        Whether it defines ``gradient``.
    """

    dim: int
    spread: float
    root: float
    has_gradient: bool


def named_function(text: str, folder: Path) -> Callable[..., Any]:
    """The function that ``module:function`` or ``FILE.py:function`` means; modules beside ``folder`` come first.

    Raises
    ------
    InputError
        When the text reads otherwise, there is no such module or function, or importing it fails.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise InputError(f"--target must read module:function or FILE.py:function, got {text!r}")
    file = folder / where if where.endswith(".py") else folder / (where.replace(".", "/") + ".py")
    if where.endswith(".py") or file.is_file():
        module = run_file(file)
    else:
        if not re.fullmatch(r"[\w.]+", where):
            raise InputError(f"--target must read module:function or FILE.py:function, got {text!r}")
        try:
            module = importlib.import_module(where)
        except Exception as error:
            raise InputError(f"--target {text}: {where} cannot be imported: {one_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(f"--target {text}: {where} has no function {name!r}")
    return function


def guarded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same function, whose own errors become an ``InputError`` that says where in it they arose."""

    def call(points: FloatArray) -> Any:
        try:
            return function(points)
        except InputError:
            raise
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise InputError(
                f"--target {name} fails on points of shape {points.shape}: {type(error).__name__}: {one_line(error)} "
                f"({Path(at.filename).name}, line {at.lineno})"
            ) from error

    return call


def outline(path: Path) -> Outline:
    """What a target's file says of itself, read without running it.

    It defines ``DIM = 3`` (a literal), ``def log_density(x)`` and, if there is one, ``def gradient(x)``; it may set
    ``INIT_SPREAD`` and ``INIT_ROOT``, which are 3 and 1 else.

    Raises
    ------
    InputError
        When it is no Python, or lacks one of these.
    """
    if path.suffix != ".py":
        raise InputError(f"{path.name} must be a Python file (.py) with DIM and log_density")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path.name} cannot be read as Python: {one_line(error)}") from None
    numbers: dict[str, Any] = {"INIT_SPREAD": 3.0, "INIT_ROOT": 1.0}
    names = set()
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            names.add(statement.name)
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name):
                names.add(target.id)
                if target.id in ("DIM", "INIT_SPREAD", "INIT_ROOT"):
                    numbers[target.id] = _literal(statement.value, target.id, path)  # type: ignore[attr-defined]
    if "log_density" not in names:
        raise InputError(f"{path.name} defines no log_density(x), (n, d) -> (n,)")
    dim = numbers.get("DIM")
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 1:
        raise InputError(f"{path.name} must set DIM, the number of parameters, to a whole number; it has {dim!r}")
    for name in ("INIT_SPREAD", "INIT_ROOT"):
        if not isinstance(numbers[name], int | float) or not 0 < numbers[name] < np.inf:
            raise InputError(f"{path.name}: {name} must be a positive number, not {numbers[name]!r}")
    return Outline(dim, float(numbers["INIT_SPREAD"]), float(numbers["INIT_ROOT"]), "gradient" in names)


def run_file(path: Path) -> ModuleType:
    """Run a Python file as a module, with its folder at the end of the path; ``InputError`` where that fails."""
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # for what it imports from beside it
    spec = importlib.util.spec_from_file_location(f"assay_target_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path.name} cannot be run: {type(error).__name__}: {one_line(error)}") from error
    return module


def _literal(value: ast.expr | None, name: str, path: Path) -> Any:
    try:
        return ast.literal_eval(value) if value is not None else None
    except ValueError:
        raise InputError(f"{path.name}: {name} must be a plain number, e.g. {name} = 3") from None
