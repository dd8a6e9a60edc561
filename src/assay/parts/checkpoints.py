"""Hugging Face checkpoints: loading that says plainly what is wrong, writing that is whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import InputError, one_line
from assay.parts.cache import full_disk_named
from assay.parts.packages import need

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Kind = Literal["causal-lm", "sequence-classification", "base"]
_AUTO_CLASS = {
    "causal-lm": "AutoModelForCausalLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "base": "AutoModel",
}
DTYPES = ("auto", "float32", "bfloat16", "float16")
_WHY = "loading a checkpoint"


def load_model(
    source: str | Path,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device = "auto",
    kind: Kind = "causal-lm",
) -> PreTrainedModel:
    """Load a Hugging Face model in evaluation mode from safetensors; code that comes with a checkpoint is never run.

    Parameters
    ----------
    source
        A folder, or the id of a model on the Hugging Face hub.
    dtype
        ``"float32"``, ``"bfloat16"``, ``"float16"`` or the torch dtype; ``"auto"`` and None keep the checkpoint's own.
    device
        ``"auto"`` (a GPU where torch sees one), or the name of a torch device.
    kind
        With a language-model head, with a classification head, or the bare network.

    Raises
    ------
    InputError
        When there is no such folder or model, when it is no checkpoint of this kind, holds quantised weights, no
        safetensors, an adapter, code of its own in place of a known architecture, lacks weights or has some of another
        shape than its config.json says.
    MissingPart
        When torch or transformers is not installed.
    """
    if kind not in _AUTO_CLASS:
        raise InputError(f"kind must be one of {', '.join(_AUTO_CLASS)}, not {kind!r}")
    wanted, place = as_dtype(dtype), pick_device(device)
    transformers = need("transformers", _WHY)
    config = load_config(source)
    where, folder = str(source), _as_folder(source)
    if folder is not None:
        _check_weight_files(folder)
    auto = getattr(transformers, _AUTO_CLASS[kind])
    if type(config) not in auto._model_mapping:
        raise InputError(f"{where} is a {config.model_type}: that architecture has no {kind} model in transformers")
    with _plain_errors(where, folder):
        model, report = auto.from_pretrained(
            folder or where,
            config=config,
            dtype=wanted,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
        )
    for key, *shapes in sorted(report["mismatched_keys"]):
        there, wanted_shape = (list(shape) for shape in shapes)
        raise InputError(f"{where}: {key} has the shape {there}, and by its config.json it should be {wanted_shape}")
    # A bare network may have a pooler that its checkpoint was trained without, and nobody misses it.
    absent = sorted(key for key in report["missing_keys"] if kind != "base" or "pooler" not in key)
    if absent:
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        raise InputError(f"{where} is no {kind} checkpoint: it has no weights for {', '.join(absent[:3])}{more}")
    return model.to(place).eval()


def load_config(source: str | Path) -> Any:
    """The configuration of a model, read with the checks of :func:`load_model` that need no weights."""
    transformers = need("transformers", _WHY)
    where, folder = str(source), _as_folder(source)
    if folder is not None:
        raw = _read_config(folder)
        known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
        if raw.get("model_type") not in known:
            own = "; the code that comes with it is not run" if "auto_map" in raw else ""
            raise InputError(
                f"{where}: transformers {transformers.__version__} does not know the architecture "
                f"{raw.get('model_type')!r} (config.json, model_type){own}"
            )
    with _plain_errors(where, folder):
        config = transformers.AutoConfig.from_pretrained(folder or where, trust_remote_code=False)
    quantised = getattr(config, "quantization_config", None)
    if quantised:
        name = quantised.get("quant_method") if isinstance(quantised, dict) else getattr(quantised, "quant_method", "")
        raise InputError(f"{where} holds quantised weights ({name}): give the checkpoint it was made from, unquantised")
    return config


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a folder or hub id.

    Raises
    ------
    InputError
        When there is none, only one that needs code of its own, or one without a vocabulary.
    """
    transformers = need("transformers", _WHY)
    where, folder = str(source), _as_folder(source)
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if folder is not None and not any((folder / name).is_file() for name in names):
        raise InputError(f"{where} holds no tokenizer (none of {', '.join(names)})")
    with _plain_errors(where, folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder or where, trust_remote_code=False)
    # Where only tokenizer_config.json is there, transformers makes one that knows nothing but special tokens.
    if not set(tokenizer.get_vocab()) - set(tokenizer.get_added_vocab()) - set(tokenizer.all_special_tokens) - {"▁"}:
        raise InputError(f"{where} holds no vocabulary for its tokenizer: a file like tokenizer.json is missing")
    return tokenizer


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """The torch device of that name; for ``"auto"`` the GPU where torch sees one, else the CPU.

    Raises
    ------
    InputError
        When torch knows no such device, or it is not there.
    """
    torch = need("torch", "picking a device")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device must be 'auto' or a device that torch can use, not {device!r}: {one_line(error, 120)}"
        ) from error
    return place


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype | Literal["auto"]:
    """The torch dtype of that name; ``"auto"`` for ``"auto"`` and None.

    Raises
    ------
    InputError
        When it is none of float32, bfloat16, float16 and auto.
    """
    torch = need("torch", _WHY)
    if dtype is None or (isinstance(dtype, str) and dtype == "auto"):
        return "auto"
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    return getattr(torch, name)


@contextlib.contextmanager
def new_folder(out: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder beside ``out`` that becomes ``out`` when the block ends well, and is removed when it fails.

    Parameters
    ----------
    out
        Where the folder shall be; folders above it are made. It may be there already, but empty.
    overwrite
        Replace what is there, and only when the block has ended well.

    Raises
    ------
    InputError
        When ``out`` is a file, a folder that is not empty and ``overwrite`` is false, or one that cannot be replaced:
        where a disk is mounted, or this process works.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as home:
    ...     with new_folder(Path(home) / "out") as folder:
    ...         _ = (folder / "a.txt").write_text("whole")
    ...     (Path(home) / "out" / "a.txt").read_text()
    'whole'
    """
    target = Path(out).expanduser().resolve()  # a link stays, and what it leads to is made
    _check_new_folder(target, overwrite)
    if target.is_mount() or target == Path.cwd():
        raise InputError(f"{out} cannot be replaced as a whole: give a new folder inside it")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The mode of a folder made by mkdir, not the private one of mkdtemp.
    home = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    folder = home / "new"
    try:
        folder.mkdir()
        with full_disk_named(target):
            yield folder
        _check_new_folder(target, overwrite)  # another process may have been quicker
        if target.exists():
            os.rename(target, home / "old")
        try:
            os.rename(folder, target)
        except OSError:
            if (home / "old").exists():
                os.rename(home / "old", target)
            raise
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def new_file(out: str | Path) -> Iterator[Path]:
    """A temporary path beside the file ``out`` that takes its place when the block ends well; removed when it fails.

    Raises
    ------
    InputError
        When ``out`` is a folder.
    """
    target = Path(out).expanduser().resolve()  # a link stays, and what it leads to is written
    if target.is_dir():
        raise InputError(f"{out} is a folder, and a file is to be written")
    target.parent.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with full_disk_named(target):
            yield home / target.name
        os.replace(home / target.name, target)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _check_new_folder(target: Path, overwrite: bool) -> None:
    if target.exists() and not target.is_dir():
        raise InputError(f"{target} is a file, and a folder is to be written")
    if target.is_dir() and any(target.iterdir()) and not overwrite:
        raise InputError(f"{target} exists and is not empty: give another folder")


def _as_folder(source: str | Path) -> Path | None:
    """The folder that is meant, or None for the id of a model on the hub (``name`` or ``owner/name``)."""
    if not str(source).strip():
        raise InputError("the name of the model's folder is empty")
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise InputError(f"{source} is a file; a checkpoint is a folder with config.json and *.safetensors")
    text = str(source)
    looks_like_path = isinstance(source, Path) or text.startswith(("/", ".", "~")) or text.count("/") > 1
    # "models/mine" where there is a folder models: asking the hub for it would only take time.
    if looks_like_path or ("/" in text and folder.parent.is_dir()):
        raise InputError(f"there is no folder {str(source)!r}")
    return None


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        if (folder / "adapter_config.json").is_file():
            raise InputError(
                f"{folder} is an adapter, not a model: merge it into its model first (peft: merge_and_unload)"
            )
        raise InputError(f"{folder} holds no config.json: it is no Hugging Face checkpoint")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path} is no JSON: {one_line(error, 120)}") from error
    if not isinstance(raw, dict):
        raise InputError(f"{path} must hold a JSON object, not a {type(raw).__name__}")
    return raw


def _check_weight_files(folder: Path) -> None:
    if (folder / "adapter_config.json").is_file():  # transformers would load it on top of whatever model it names
        raise InputError(f"{folder} holds a model and an adapter (adapter_config.json): move the adapter elsewhere")
    if any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
        raise InputError(
            f"{folder} holds pickled weights only, and loading those can run any code. Where you trust them, convert: "
            "AutoModel.from_pretrained(folder, use_safetensors=False).save_pretrained(new_folder), with the Auto class "
            "of the model's kind"
        )
    if any(folder.glob("*.gguf")):
        raise InputError(
            f"{folder} holds GGUF weights only: give the checkpoint they were made from, with *.safetensors"
        )
    raise InputError(f"{folder} holds no weights (*.safetensors)")


@contextlib.contextmanager
def _plain_errors(where: str, folder: Path | None) -> Iterator[None]:
    """Turn what transformers raises for a bad checkpoint into one sentence; running out of memory stays what it is."""
    torch = need("torch", _WHY)
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    bad = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, SafetensorError)
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (*bad, StrictDataclassError) as error:
        what = (
            f"{where} cannot be loaded"
            if folder
            else f"there is no folder {where}, nor can a model of that id be loaded"
        )
        raise InputError(f"{what}: {one_line(error)}") from error


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """No progress bars of transformers inside, for what loads in a moment."""
    logging = need("transformers", _WHY).utils.logging
    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
