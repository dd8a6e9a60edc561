"""Memory and speed of saliency-aware merging, beside mergekit's TIES: ``python benchmarks/sa_merging.py``.

Peak memory is that of a process of its own for each run. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import transformers
from safetensors import safe_open

from assay.models.sa_merging import merge
from assay.models.sa_merging.connectivity import signal_pass
from assay.models.sa_merging.weights import open_weights

EXPERTS = (2, 4, 8)
MIB = 2**20


def make(folder: Path) -> int:
    """A random Llama of some 60 M parameters and eight experts, in bfloat16; returns its number of parameters."""
    config = transformers.LlamaConfig(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=12, num_attention_heads=9, num_key_value_heads=3,
        vocab_size=16384, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder / "base")
    for n in range(max(EXPERTS)):
        torch.manual_seed(n + 1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * torch.randn_like(parameter))
        model.save_pretrained(folder / f"expert{n}")
    return sum(p.numel() for p in model.parameters())


def ours(folder: Path, experts: int, rounds: int) -> None:
    merge(
        folder / "base", [folder / f"expert{n}" for n in range(experts)], out=folder / "merged", overwrite=True,
        rounds=rounds, device="cpu",
    )  # fmt: skip


def mergekits_ties(folder: Path, experts: int, rounds: int) -> None:
    """TIES of mergekit's own functions over the same files, tensor by tensor, written as one file."""
    from mergekit.merge_methods.generalized_task_arithmetic import get_mask
    from mergekit.sparsify import magnitude
    from safetensors.torch import save_file

    merged = {}
    with safe_open(folder / "base" / "model.safetensors", "pt") as opened:
        for name in opened.keys():  # noqa: SIM118
            base = opened.get_tensor(name)
            kept = []
            for n in range(experts):
                with safe_open(folder / f"expert{n}" / "model.safetensors", "pt") as expert:
                    kept.append(magnitude(expert.get_tensor(name).float() - base.float(), 0.2))
            deltas = torch.stack(kept)
            mask = get_mask(deltas, method="sum")
            merged[name] = (base + (deltas * mask).sum(0) / mask.sum(0).clamp_min(1)).to(base.dtype)
    save_file(merged, folder / "ties.safetensors")


def nothing(folder: Path, experts: int, rounds: int) -> None:
    """What the imports alone take."""


WORK = {f.__name__: f for f in (ours, mergekits_ties, nothing)}


def measured(work: str, folder: Path, experts: int, rounds: int = 10) -> tuple[float, float]:
    """CPU seconds and peak memory (MiB) of the work in a process of its own."""
    command = [sys.executable, __file__, work, str(folder), str(experts), str(rounds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def line(what: str, value: float, bar: float, unit: str) -> None:
    print(f"{what:<76} {value:8.2f} {unit:<9} ≤ {bar:<6g} {'met' if value <= bar else 'NOT MET'}", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        parameters = make(folder)
        idle = measured("nothing", folder, 2)[1]
        print(f"{parameters / 1e6:.0f} M parameters in bfloat16; the imports alone take {idle:.0f} MiB")
        # Memory does not depend on the rounds, once there are masks.
        results = {n: measured("ours", folder, n, rounds=2) for n in EXPERTS}
        for n, (seconds, peak) in results.items():
            print(f"  {n} experts, 2 rounds: {seconds:.1f} CPU-s, {peak:.0f} MiB ({peak - idle:.0f} above the imports)")
        peaks = [peak for _, peak in results.values()]
        line("peak memory, largest / smallest over 2, 4, 8 experts", max(peaks) / min(peaks), 1.15, "×")
        copies = (max(peaks) - idle) * MIB / (4 * parameters)
        line("peak memory above the imports, in copies of the base in float32", copies, 3, "copies")
        each = [seconds / n for n, (seconds, _) in results.items()]
        line("CPU time an expert, largest / smallest over 2, 4, 8 experts", max(each) / min(each), 1.5, "×")
        ten = measured("ours", folder, 4)
        ties = measured("mergekits_ties", folder, 4)
        line("CPU time, 10 rounds / mergekit's TIES on the same files, 4 experts", ten[0] / ties[0], 15, "×")
        line("peak memory / that of mergekit's functions, 4 experts", ten[1] / ties[1], 1.2, "×")
        line(
            "CPU time of 4 experts, 10 rounds, at the 134.5 M parameters of SmolLM2",
            ten[0] * 134.5e6 / parameters,
            60,
            "s",
        )
        pass_over_read(folder)


def pass_over_read(folder: Path) -> None:
    """One signal pass beside reading all its weights once."""
    weights = open_weights(folder / "base", "base")
    sensing = signal_pass(weights, "auto", torch.float32, torch.device("cpu"))
    reached = list(sensing(weights.read))
    times: dict[str, list[float]] = {"pass": [], "read": []}
    for _ in range(5):
        start = time.process_time()
        sensing(weights.read)
        times["pass"].append(time.process_time() - start)
        start = time.process_time()
        for name in reached:
            weights.read(name).float().abs().sum()
        times["read"].append(time.process_time() - start)
    line("one signal pass / reading its weights once", min(times["pass"]) / min(times["read"]), 3, "×")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        start = time.process_time()
        WORK[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB
        print(json.dumps([time.process_time() - start, peak]))
    else:
        main()
