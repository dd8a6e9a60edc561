"""A catalogue with queries, like that of a model hub, made of the docstrings of installed packages.

Every public function and class of a package is one entry, the first sentence of its docstring its card, and other
sentences are queries that should lead to it. Origin: the packages themselves (numpy, scipy, pandas, scikit-learn, torch
BSD-3-Clause; matplotlib PSF-like), read where they are installed; other versions give slightly another table.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from assay.parts.cache import kept
from assay.parts.packages import need

# The public modules of each package below its top. By name, and with the switches for what is experimental: what
# happens to be imported already must not change the catalogue.
_MODULES = {
    "numpy": """
        char fft linalg ma polynomial polynomial.chebyshev polynomial.hermite polynomial.hermite_e
        polynomial.laguerre polynomial.legendre polynomial.polynomial random rec strings
    """,
    "scipy": """
        cluster.hierarchy cluster.vq constants datasets differentiate fft fftpack integrate interpolate io
        io.arff io.wavfile linalg linalg.blas linalg.interpolative linalg.lapack ndimage odr optimize
        optimize.elementwise signal signal.windows sparse sparse.csgraph sparse.linalg spatial spatial.distance
        spatial.transform special stats stats.contingency stats.mstats stats.qmc stats.sampling
    """,
    "pandas": """
        api.extensions api.indexers api.interchange api.types api.typing arrays io.formats.style io.json
        plotting tseries.frequencies tseries.holiday tseries.offsets
    """,
    "sklearn": """
        experimental.enable_halving_search_cv experimental.enable_iterative_imputer calibration cluster compose
        covariance cross_decomposition datasets decomposition discriminant_analysis dummy ensemble
        feature_extraction feature_extraction.image feature_extraction.text feature_selection frozen
        gaussian_process gaussian_process.kernels impute inspection isotonic kernel_approximation kernel_ridge
        linear_model manifold metrics metrics.cluster metrics.pairwise mixture model_selection multiclass
        multioutput naive_bayes neighbors neural_network pipeline preprocessing random_projection
        semi_supervised svm tree utils utils.class_weight utils.extmath utils.graph utils.metaestimators
        utils.multiclass utils.random utils.sparsefuncs utils.validation
    """,
    "torch": """
        autograd autograd.functional autograd.profiler backends.cuda backends.cudnn cuda distributions fft func
        futures jit library linalg masked multiprocessing nested nn nn.attention nn.functional nn.init nn.utils
        nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn nn.utils.stateless optim
        optim.lr_scheduler optim.swa_utils overrides profiler quasirandom random signal.windows sparse special
        utils.benchmark utils.checkpoint utils.data utils.dlpack
    """,
    "matplotlib": """
        animation artist axes axis backend_bases bezier category cbook cm collections colorbar colorizer colors
        container contour dates figure font_manager gridspec hatch image layout_engine legend legend_handler
        lines markers mathtext mlab offsetbox patches path patheffects projections.polar pyplot quiver rcsetup
        sankey scale spines stackplot streamplot style table texmanager text textpath ticker transforms tri
        type1font units widgets
    """,
}
PACKAGES = tuple(_MODULES)
COLUMNS = ["query", "id", "family", "domain", "card"]
_DISTRIBUTION = {"sklearn": "scikit-learn"}
_RECIPE = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]  # another reading makes another catalogue


def hub(packages: Sequence[str] = PACKAGES, min_queries: int = 3, max_per_family: int | None = None) -> pd.DataFrame:
    """The catalogue, one row for each query.

    Parameters
    ----------
    packages
        Names of installed packages to read, some of :data:`PACKAGES`.
    min_queries
        Entries with fewer queries are left out.
    max_per_family
        At most so many entries of each family, a choice that depends on their names alone.

    Returns
    -------
    DataFrame with ``query``, ``id`` (dotted name), ``family`` (its module), ``domain`` (its package) and ``card``
    ("name: first sentence"), in order of ``id`` and then as in the docstring. No query belongs to two ids or holds the
    name of its own.

    Raises
    ------
    ValueError
        When a package is none of these, or a number is below 1.
    MissingPart
        When a package is not installed.
    """
    unknown = [name for name in packages if name not in PACKAGES]
    if unknown or not packages:
        raise ValueError(f"packages must be some of {', '.join(PACKAGES)}, not {list(packages)}")
    if min_queries < 1 or (max_per_family is not None and max_per_family < 1):
        raise ValueError(f"min_queries and max_per_family must be at least 1, not {min_queries} and {max_per_family}")
    table = pd.concat([_of_package(name) for name in PACKAGES if name in packages], ignore_index=True)
    folded = table["query"].str.casefold()
    table = table[~folded.duplicated(keep=False)]
    table = table[table.groupby("id")["query"].transform("size") >= min_queries]
    if max_per_family is not None:
        ids = table[["id", "family"]].drop_duplicates()
        ids = ids.assign(rank=[hashlib.sha256(name.encode()).hexdigest() for name in ids["id"]]).sort_values("rank")
        table = table[table["id"].isin(ids.groupby("family").head(max_per_family)["id"])]
    return table.sort_values("id", kind="stable").reset_index(drop=True)


def digest(table: pd.DataFrame) -> str:
    """16 hex digits that name the content of a catalogue."""
    text = table[COLUMNS].to_json(orient="values")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _of_package(name: str) -> pd.DataFrame:
    need(name, "the catalogue of docstrings")
    version = importlib.metadata.version(_DISTRIBUTION.get(name, name))
    safe = re.sub(r"[^A-Za-z0-9._-]", "-", version)

    def make(folder: Path) -> None:
        rows = [row for key, thing in sorted(_callables(name).items()) for row in _rows(name, key, thing)]
        if not rows:
            raise ValueError(f"{name} has no docstrings here: does Python run with -OO?")
        pd.DataFrame(rows, columns=COLUMNS).to_json(folder / "table.jsonl", orient="records", lines=True)

    folder = kept(f"docstrings-{_RECIPE}-{name}-{safe}", make)
    return pd.read_json(folder / "table.jsonl", orient="records", lines=True, dtype=False)


def _rows(domain: str, key: str, thing: Any) -> Iterator[tuple[str, str, str, str, str]]:
    family, _, name = key.rpartition(".")
    first, *others = sentences(thing.__doc__) or [""]
    named = re.compile(rf"(?<!\w){re.escape(name.casefold())}(?!\w)")
    for query in dict.fromkeys(others):
        if query != first and _is_query(query) and not named.search(query.casefold()):
            yield query, key, family, domain, f"{name}: {first}"


def _is_query(sentence: str) -> bool:
    return (
        35 <= len(sentence) <= 260
        and len(sentence.split()) >= 6
        and sentence[0].isupper()
        and sentence.endswith((".", "!", "?"))
        and not re.search(r"[=\\{}\[\]<>`|#@*^~]| : |\w\(|::|__|\.\.\.|sphx_glr", sentence)
    )


def _callables(package: str) -> dict[str, Any]:
    """Public functions and classes by dotted name; what has several names comes under the shortest."""
    found: dict[int, tuple[str, Any]] = {}
    for path in (package, *(f"{package}.{part}" for part in _MODULES[package].split())):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, thing in _public(path):
                key = f"{path}.{name}"
                before = found.get(id(thing))
                if before is None or (key.count("."), key) < (before[0].count("."), before[0]):
                    found[id(thing)] = (key, thing)
    return dict(found.values())


def _public(path: str) -> Iterator[tuple[str, Any]]:
    """Functions and classes with a docstring that a module names as public or, if it names none, that it defines."""
    try:
        module = importlib.import_module(path)
    except ImportError:
        return  # other versions have other modules, and some of those ask for further packages
    named = getattr(module, "__all__", None)
    for name in sorted(named or dir(module)):
        try:
            thing = getattr(module, name)
        except (AttributeError, ImportError):
            continue  # announced, but experimental or for another system
        home = getattr(thing, "__module__", None) or path  # what is written in C may not say
        foreign = home.partition(".")[0].lstrip("_") not in (path.partition(".")[0], "builtins")
        if name.startswith("_") or foreign or (named is None and not f"{home}.".startswith(f"{path}.")):
            continue
        if isinstance(thing, type) and issubclass(thing, BaseException):
            continue
        if callable(thing) and isinstance(getattr(thing, "__doc__", None), str):
            yield name, thing


_SKIPPED = re.compile(r"(examples?|references?|see also|shape|attributes|methods)\s*:{0,2}", re.IGNORECASE)
_UNDERLINE = re.compile(r"[-=~^]{3,}")
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(\s*->.*)?")
_ITEM = re.compile(r"(?:[-*•]|\d+\.) |\*{0,2}[\w.]+ \([^)]*\): ")  # of a list, or of arguments: "dim (int): …"
_ENDS = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)\s+(?=[A-Z\"'(])")


def sentences(docstring: str) -> list[str]:
    """The sentences of prose in a docstring, without markup; those of its examples and references are left out."""
    found: list[str] = []
    for paragraph in _paragraphs(docstring):
        if found or not _SIGNATURE.fullmatch(paragraph):  # what is written in C begins with its signature
            found += _ENDS.split(_plain(paragraph))
    return found


def _plain(text: str) -> str:
    text = re.sub(r":\w+(?::\w+)?:`~?([^`<]*?)(?:\s*<[^`]*>)?`", r"\1", text)  # :func:`~torch.add`
    text = re.sub(r"`([^`<]+?)\s*<[^`]*>`_{1,2}", r"\1", text)  # links
    text = re.sub(r"`{1,2}([\w.+-]+)`{1,2}_?", r"\1", text)
    text = re.sub(r"\*{1,2}([\w-]+)\*{1,2}", r"\1", text)
    text = re.sub(r"\s*\[\w+\]_", "", text)  # citations
    item = _ITEM.match(text)
    return text[item.end() :] if item else text


def _paragraphs(docstring: str) -> Iterator[str]:
    """Runs of lines with one indentation, without headings, code, directives and the sections that hold no prose."""
    lines = inspect.cleandoc(docstring).split("\n")
    run: list[str] = []
    depth = 0
    section: int | None = None  # how far the heading of a section to skip is indented
    block: int | None = None  # how far the line is indented whose code or directive is being skipped
    for line, following in zip([*lines, ""], [*lines[1:], "", ""], strict=True):
        text, indent = line.strip(), len(line) - len(line.lstrip())
        heading = bool(_UNDERLINE.fullmatch(following.strip()) or re.fullmatch(r"\w+( \w+)?:{1,2}", text))
        if run and (not text or indent != depth or heading or _ITEM.match(text)):
            yield " ".join(" ".join(run).split())
            block = depth if run[-1].endswith("::") else block
            run = []
        if not text:
            continue
        depth = indent
        if block is not None and indent <= block:
            block = None
        if section is not None and indent <= section and heading:
            section = None
        if heading and _SKIPPED.fullmatch(text):
            section = indent
        if text.startswith(".. "):
            block = indent
        skipped = heading or section is not None or block is not None
        if not skipped and not _UNDERLINE.fullmatch(text) and not text.startswith((">>>", "... ", "|", "+-")):
            run.append(text)
