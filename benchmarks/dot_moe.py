"""Speed of converted layers and models against dense ones: ``python benchmarks/dot_moe.py [--model FOLDER]``.

E = 8 experts, k = 2. One process, one thread, the contenders in turns, medians. The ratios count; seconds are the
machine's; without ``--model`` the whole model is a random one of SmolLM2-135M's shape.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from assay.models.dot_moe import DenseFFN, DotMoEConfig, DotMoEFFN, convert_layer
from assay.models.dot_moe.dense import sites
from assay.parts.checkpoints import load_model

D, D_FFN = 576, 1536


def medians(contenders: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 2):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            if turn >= 2:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def line(what: str, ratio: float, bar: float) -> None:
    print(f"{what:<66} {ratio:6.2f} × (at most {bar:g}) {'met' if ratio <= bar else 'NOT MET'}")


def routed(ffn: DotMoEFFN) -> DotMoEFFN:
    """A router that uses all experts about equally, and the neurons as they lie."""
    ffn.router.weight.data = torch.randn(ffn.router.weight.shape, generator=torch.Generator().manual_seed(0))
    return ffn.eval()


def layers() -> None:
    for d, d_ffn in ((D, D_FFN), (2048, 8192)):
        g = torch.Generator().manual_seed(0)
        up, gate, down = (torch.randn(d_ffn, d, generator=g) / d**0.5 for _ in range(3))
        mlp = LlamaForCausalLM(
            LlamaConfig(hidden_size=d, intermediate_size=d_ffn, num_hidden_layers=1, vocab_size=8)
        ).model.layers[0].mlp  # fmt: skip
        for n_shared in (0, 1):
            ffn = routed(DotMoEFFN(DenseFFN(up, down, torch.nn.functional.silu, gate), 8, 2, n_shared))
            for tokens, bar in ((512, 0.45), (256, 0.45), (1, 0.5)):
                x = torch.randn(1, tokens, d, generator=g)
                turns = 200 if tokens == 1 else 25
                took = medians({"dense": lambda x=x, mlp=mlp: mlp(x), "moe": lambda x=x, ffn=ffn: ffn(x)}, turns)
                what = f"layer {d} × {d_ffn}, {n_shared} shared, {tokens} tokens, dense {1e3 * took['dense']:.2f} ms"
                line(what, took["moe"] / took["dense"], bar)


def decoding(folder: str | None) -> None:
    if folder is None:
        config = LlamaConfig(
            vocab_size=49152, hidden_size=D, intermediate_size=D_FFN, num_hidden_layers=30, num_attention_heads=9,
            num_key_value_heads=3, tie_word_embeddings=True,
        )  # fmt: skip
        dense = LlamaForCausalLM(config).eval()
    else:
        dense = load_model(folder, "float32", "cpu")
    converted = copy.deepcopy(dense)
    for site in sites(converted):
        site.put(routed(DotMoEFFN(site.dense(), 8, 2, 1)))
    prompt = torch.arange(64)[None]

    def decode(model: Any) -> Callable[[], None]:
        cache = model(prompt, use_cache=True).past_key_values
        token = torch.tensor([[5]])

        def step() -> None:
            model(token, past_key_values=cache, use_cache=True)

        return step

    took = medians({"dense": decode(dense), "moe": decode(converted)}, 30)
    line(f"whole model, one token, dense {1e3 * took['dense']:.1f} ms", took["moe"] / took["dense"], 0.85)


def conversion() -> None:
    g = torch.Generator().manual_seed(0)
    up, gate, down = (torch.randn(D_FFN, D, generator=g) / D**0.5 for _ in range(3))
    x = torch.randn(5376, D, generator=g)
    dense = DenseFFN(up, down, torch.nn.functional.silu, gate)
    start = time.process_time()
    with torch.enable_grad():
        convert_layer(dense, x, DotMoEConfig(steps=250, batch_tokens=384))
    took = time.process_time() - start
    print(f"one layer, 250 steps of 384 tokens: {took:.0f} CPU-s (at most 40) {'met' if took <= 40 else 'NOT MET'}")


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="folder of a dense model for the decoding")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    layers()
    decoding(arguments.model)
    conversion()


if __name__ == "__main__":
    main()
