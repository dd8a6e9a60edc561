"""Arms and tasks that a run must survive, and a driver for them; imported by the tests and by their processes."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path

from assay.errors import EndpointError, MissingPart
from assay.evidence.claim import higher
from assay.evidence.run import plan, run
from assay.evidence.shared import shared
from assay.evidence.storage import Storage
from assay.evidence.study import Arm, Study, Task


def note(line: str) -> None:
    """Append a line to the log, in one write, so that lines of several processes do not mix."""
    log = os.environ.get("HOSTILE_LOG")
    if log:
        with open(log, "a") as file:
            file.write(line + "\n")


def load(seed, budget):
    return {"seed": seed}, seed


def score(output, hidden):
    return {"value": float(output)}


def honest(given, seed, budget):
    note(f"honest {given['seed']}")
    return given["seed"] % 7 + seed % 3


def slow(given, seed, budget):
    note(f"slow {given['seed']}")
    time.sleep(0.1)
    return given["seed"] % 5


def raises(given, seed, budget):
    raise ZeroDivisionError("nothing to\ndivide by")


def leaves(given, seed, budget):
    sys.exit(4)


def dies(given, seed, budget):
    os._exit(3)


def crashes(given, seed, budget):
    ctypes.string_at(0)


def hangs(given, seed, budget):
    while True:
        time.sleep(60)


def eats(given, seed, budget):
    hoard = []
    while True:
        hoard.append(bytearray(50_000_000))


def shouts(given, seed, budget):
    print("x" * 1_000_000, flush=True)
    os.write(1, b"y" * 1_000_000)
    return 1.0


def says_nothing(given, seed, budget):
    return None


def lacks(given, seed, budget):
    if os.environ.get("HOSTILE_PART"):
        return 1.0
    raise MissingPart("lacks needs tea", "python -m pip install tea")


def offline(given, seed, budget):
    raise EndpointError("http://127.0.0.1:9 does not answer")


def uses_shared(given, seed, budget):
    folder = shared(["common", given["seed"]], make_common)
    return float((folder / "value").read_text())


def make_common(folder):
    note("shared made")
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    (folder / "value").write_text("42")


EVIL = {
    "raises": raises, "leaves": leaves, "dies": dies, "crashes": crashes, "hangs": hangs, "eats": eats,
    "shouts": shouts, "says-nothing": says_nothing, "lacks": lacks, "offline": offline,
}  # fmt: skip


def study(*arms: str, claims=()) -> Study:
    functions = {"honest": honest, "slow": slow, "uses-shared": uses_shared, "uses-too": uses_shared, **EVIL}
    return Study(
        name="hostile",
        tasks=(Task("t", load, score),),
        arms=(Arm("honest", honest, "method"), *(Arm(name, functions[name], "baseline") for name in arms)),
        claims=tuple(claims) or tuple(higher("value", "honest", than=arm) for arm in arms),
        primary="value",
        better="higher",
    )


if __name__ == "__main__":
    url, seeds, jobs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Storage(url) as storage:
        records = run(plan(study("slow"), "quick", seeds=seeds), storage, jobs=jobs)
    print(len(records), sum(r.status == "ok" for r in records))
    print(Path(url.removeprefix("sqlite:///")).name, file=sys.stderr)
