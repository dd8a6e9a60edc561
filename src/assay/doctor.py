"""What is there and what is not, with the exact line that installs it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

from packaging.requirements import Requirement

from assay import __version__
from assay.catalog import Card, cards
from assay.evidence.fingerprint import UNDECLARED, requirements
from assay.evidence.run import usable_cores
from assay.evidence.warm import THREAD_VARIABLES
from assay.parts.cache import cache_folder


def examine(card: Card | None = None) -> dict[str, Any]:
    """Findings about this machine and the packages of assay, or of one method and its study.

    Every missing package comes with the line that installs it.
    """
    import psutil

    of = [card] if card else list(cards().values())
    extras = list(dict.fromkeys(extra for c in of for extra in (*c.extras, *c.study_extras)))
    memory = psutil.virtual_memory()
    return {
        "assay": __version__,
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": usable_cores(),
        "memory": f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free",
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        "gpu": _gpu(),
        "cache": f"{cache_folder()} ({_writable()})",
        "packages": [_package(line, extra) for extra in ("", *extras) for line in _lines(extra)],
    }


def print_findings(findings: dict[str, Any]) -> None:
    """Print findings for people."""
    for name in ("assay", "python", "system", "cores", "memory", "gpu", "cache"):
        print(f"{name:<8} {findings[name]}")
    threads = ", ".join(f"{k}={v}" for k, v in findings["threads"].items())
    print(f"threads  one for each cell, by --threads{f'; your environment sets {threads}' if threads else ''}")
    missing = [p for p in findings["packages"] if not p["ok"]]
    for package in findings["packages"]:
        mark = "✓" if package["ok"] else "✗"
        extra = f" [{package['extra']}]" if package["extra"] else ""
        print(f"  {mark} {package['name']} {package['found']}{extra}")
    for package in missing:
        print(f"missing {package['name']}: {package['install']}")
    if not missing:
        print("everything is there")


def _lines(extra: str) -> list[str]:
    if extra:
        return requirements([extra])
    return [line for line in importlib.metadata.requires("assay") or [] if "extra ==" not in line]


def _package(line: str, extra: str) -> dict[str, Any]:
    wanted = Requirement(line.partition(";")[0])
    try:
        found = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        found = ""
    options = "--no-deps " if line in UNDECLARED.get(extra, ()) else ""
    return {
        "name": wanted.name,
        "wanted": str(wanted.specifier),
        "found": found or "not installed",
        "ok": bool(found) and wanted.specifier.contains(found, prereleases=True),
        "extra": extra,
        "install": f"{sys.executable} -m pip install {options}'{wanted}'",
    }


def _gpu() -> str:
    try:
        importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return "unknown: torch is not installed, and nothing here needs it"
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none that torch sees"


def _writable() -> str:
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    return "writable" if os.access(folder, os.W_OK) else "NOT writable: set ASSAY_CACHE"
