"""Speed and memory of cprd against choix, and how both grow: ``python benchmarks/cprd.py``.

One process, one thread, the contenders in turns, medians of CPU seconds; large tables in child processes, for their
peak memory. The ratios count; seconds are the machine's.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from assay.alignment.cprd import Comparisons, efficiency, fit_bt, representable, suggest_pairs
from assay.alignment.cprd import use as command
from assay.alignment.cprd.samples import drawn, edges_of, represented
from timing import line, seconds


def rows_of(n: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random rows: (rows,) chosen and rejected."""
    rng = np.random.default_rng(seed)
    s = rng.standard_normal(n)
    a = rng.integers(0, n, rows)
    b = (a + rng.integers(1, n, rows)) % n
    first = rng.random(rows) < 1 / (1 + np.exp(s[b] - s[a]))
    return np.where(first, a, b), np.where(first, b, a)


def against_choix() -> None:
    try:
        import choix
    except ModuleNotFoundError:
        print("choix is not installed: python -m pip install choix")
        return
    chosen, rejected = rows_of(100, 10_000)
    frame = pd.DataFrame({"chosen": chosen, "rejected": rejected})
    data = list(zip(chosen.tolist(), rejected.tolist(), strict=True))

    def gradient(s: np.ndarray) -> float:
        p = 1 / (1 + np.exp(s[rejected] - s[chosen]))
        pull = np.bincount(chosen, 1 - p, 100) - np.bincount(rejected, 1 - p, 100)
        return float(np.abs(pull).max())

    ours = fit_bt(Comparisons.from_triplets(frame)).values
    # The loosest tolerance of choix that reaches the same gradient.
    for tol in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12):
        theirs = choix.ilsr_pairwise(100, data, alpha=0.0, tol=tol)
        if gradient(theirs) < 1e-8:
            break
    print(
        f"100 items × 10 000 rows: largest gradient {gradient(ours):.0e}, of choix {gradient(theirs):.0e} (tol {tol:g})"
    )
    times = seconds(
        {
            "cprd": lambda: fit_bt(Comparisons.from_triplets(frame)),
            "choix": lambda: choix.ilsr_pairwise(100, data, alpha=0.0, tol=tol),
        },
        turns=5,
    )
    line("  time of choix.ilsr_pairwise / time of counting and fitting", times["choix"] / times["cprd"], 3, "×", False)


def test_against_fits() -> None:
    rng = np.random.default_rng(0)
    c = drawn(rng, represented(rng, 30), 20_000, edges_of("complete", 30))
    fit = fit_bt(c)
    times = seconds({"fit": lambda: fit_bt(c), "test": lambda: representable(c, fit=fit)}, turns=5)
    line("30 items: time of a test with 200 draws / time of a fit", times["test"] / times["fit"], 300, "fits")


def growth() -> None:
    sizes = (50_000, 100_000, 200_000, 400_000)
    frames = {m: pd.DataFrame(np.stack(rows_of(5000, m), axis=1), columns=["chosen", "rejected"]) for m in sizes}
    tables = {m: Comparisons.from_triplets(frame) for m, frame in frames.items()}
    for c in tables.values():
        _ = c.ends
    times = seconds({str(m): lambda c=c: fit_bt(c) for m, c in tables.items()}, turns=2)
    slope = np.polyfit(np.log(sizes), np.log(list(times.values())), 1)[0]
    print("5000 items: " + ", ".join(f"{m} rows {1e3 * t:.0f} ms" for m, t in times.items()))
    line("  log-log slope of the fit's time on rows (1 is linear)", slope, 1.2, "")


def child(kind: str, folder: str) -> None:
    """What a child process does: a large table from file to report; prints seconds and peak memory."""
    out, start = Path(folder) / "out", time.perf_counter()
    cpu = time.process_time()
    steps: dict[str, float] = {}
    if kind == "functions":
        frame = pd.read_parquet(Path(folder) / "rows.parquet")
        c = Comparisons.from_triplets(frame)
        fit = fit_bt(c)
        steps["fit"] = time.perf_counter() - start
        efficiency(c, fit)
        steps["efficiency"] = time.perf_counter() - start
        suggest_pairs(c, 100, pool=pd.read_csv(Path(folder) / "pool.csv"), fit=fit)
    else:
        more = ["--suggest", "100", "--pool", str(Path(folder) / "pool.csv")] if kind == "large" else []
        more += ["--suggest", "10", "--context", "prompt"] if kind == "chats" else []
        name = "chats.jsonl" if kind == "chats" else "rows.csv"
        command.app([str(Path(folder) / name), "-o", str(out), *more], standalone_mode=False)
    took, peak = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": took, "cpu": time.process_time() - cpu, "gib": peak, **steps}))


def in_child(kind: str, folder: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, kind, folder], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def large() -> None:
    n, rows = 20_000, 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        names = np.array([f"model-{k:05d}" for k in range(n)])
        chosen, rejected = rows_of(n, rows)
        frame = pd.DataFrame({"chosen": names[chosen], "rejected": names[rejected]})
        frame.to_csv(Path(folder) / "rows.csv", index=False)
        frame.to_parquet(Path(folder) / "rows.parquet")
        del frame
        i, j = rows_of(n, 200_000, 1)
        pd.DataFrame({"i": names[i], "j": names[j]}).to_csv(Path(folder) / "pool.csv", index=False)
        for kind, what in (("functions", "fit, efficiency, suggest"), ("large", "assay use, with its report and pool")):
            took = in_child(kind, folder)
            print(f"20 000 items × 1 000 000 rows, {what}: " + ", ".join(f"{k} {v:.1f}" for k, v in took.items()))
            line("  CPU seconds, one thread", took["cpu"], 60, "s")
            line("  peak memory of the process", took["gib"], 1, "GiB")
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "chats.jsonl").open("w") as file:
            for k in range(100_000):
                ask = [{"role": "user", "content": f"Question {k}"}]
                said = [
                    [*ask, {"role": "assistant", "content": f"{word} {k} " + "words " * 60}] for word in ("Yes", "No")
                ]
                file.write(json.dumps({"prompt": ask, "chosen": said[0], "rejected": said[1]}) + "\n")
        took = in_child("chats", folder)
        print("100 000 rows of chats, nearly every text once: " + ", ".join(f"{k} {v:.1f}" for k, v in took.items()))
        line("  CPU seconds, one thread", took["cpu"], 60, "s")
        line("  peak memory of the process", took["gib"], 1, "GiB")


def main() -> None:
    with threadpool_limits(1):
        against_choix()
        test_against_fits()
        growth()
        large()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        child(sys.argv[1], sys.argv[2])
    else:
        main()
