"""Speed of the frame: the command line's start, and what the engine adds to a cell.

Side by side, in turns; prints ratios. Run as `python benchmarks/frame.py`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from assay.evidence.run import plan, run
from assay.evidence.storage import Storage
from assay.evidence.study import Arm, Study, Task

TURNS = 15
CELLS = 1000


def load(seed, budget):
    return seed, seed


def answer(given, seed, budget):
    return given


def score(output, hidden):
    return {"right": output == hidden}


def seconds(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def start_up():
    ours = [str(Path(sys.executable).with_name("assay")), "list"]
    peer = [sys.executable, "-c", "import typer, rich"]
    pairs = [(seconds(ours), seconds(peer)) for _ in range(TURNS)]
    ratio = statistics.median(a / b for a, b in pairs)
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"assay list {mine * 1000:.0f} ms, import typer, rich {theirs * 1000:.0f} ms: ratio {ratio:.2f} (at most 2)")


def cells_per_second():
    study = Study(
        name="trivial",
        tasks=(Task("t", load, score),),
        arms=(Arm("m", answer, "method"), Arm("b", answer, "baseline")),
        claims=(),
        primary="right",
        better="higher",
    )
    with tempfile.TemporaryDirectory() as folder, Storage(f"sqlite:///{folder}/x.db") as storage:
        start = time.perf_counter()
        records = run(plan(study, seeds=CELLS // 2), storage, jobs=2)
        took = time.perf_counter() - start
    assert len(records) == CELLS
    assert {record.status for record in records} == {"ok"}
    print(f"trivial cells, --jobs 2: {CELLS / took:.0f} a second, the start of processes included (at least 50)")


if __name__ == "__main__":
    start_up()
    cells_per_second()
