"""Speed and memory of CarveRouter, side by side with a look-up among stored utterances: ``python benchmarks/carve.py``.

One process, one thread, the contenders in turns, medians of the runs, CPU seconds: on a shared machine the clock on the
wall counts others' work. The ratios count; seconds are the machine's.
The look-up is what routers of fixed routes do: cosine to every stored utterance, the best five vote.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from assay.models.carve import CarveRouter
from assay.models.carve.candidates import Candidates
from assay.models.carve.training import Anchor, train
from timing import line, seconds

D = 384  # of MiniLM
EACH = 10  # queries an id


def unit(n: int, rng: np.random.Generator) -> np.ndarray:
    rows = rng.normal(size=(n, D)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def known(n_ids: int, each: int = EACH, **parameters: object) -> tuple[CarveRouter, np.ndarray]:
    """A router that has seen ``each`` queries of each id, and those queries; untrained, for speed is the same."""
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(n_ids), each)
    X = unit(n_ids, rng)[ids] + 0.5 * unit(len(ids), rng)
    router = CarveRouter(epochs=0, device="cpu", random_state=0, **parameters)
    router.partial_fit(X, ids, ids % 10)
    return router.set_params(epochs=8), X


def look_up(X: np.ndarray, utterances: np.ndarray, owners: np.ndarray, n_ids: int) -> np.ndarray:
    """The id whose utterances among the five nearest have the largest sum of cosines."""
    cosines = X @ utterances.T
    best = np.argpartition(-cosines, 5, axis=1)[:, :5]
    votes = np.zeros((len(X), n_ids), dtype=np.float32)
    np.add.at(votes, (np.arange(len(X))[:, None], owners[best]), np.take_along_axis(cosines, best, axis=1))
    return votes.argmax(axis=1)


def routing() -> None:
    router, stored = known(2000)
    owners = np.repeat(np.arange(2000), EACH)
    stored = stored / np.linalg.norm(stored, axis=1, keepdims=True)
    queries = unit(1000, np.random.default_rng(1))
    taken = seconds(
        {
            "carve": lambda: router.predict(queries),
            "carve, 3 best": lambda: router.topk(queries, 3),
            "look-up": lambda: look_up(queries, stored, owners, 2000),
        },
        turns=7,
    )
    print("1 000 queries, 2 000 ids: " + ", ".join(f"{name} {1e3 * t:.0f} ms" for name, t in taken.items()))
    line("  routing 1 000 ready queries over 2 000 ids", 1e3 * taken["carve"], 50, "ms")
    line("  the same, three best ids", 1e3 * taken["carve, 3 best"], 50, "ms")
    line(f"  time / time of a look-up among {EACH} utterances an id", taken["carve"] / taken["look-up"], 1, "×")


def learning() -> None:
    router, _ = known(2000)
    rng = np.random.default_rng(2)
    X, ids = unit(1000, rng), np.repeat(np.arange(2000, 2100), 10)
    start = time.process_time()
    router.partial_fit(X, ids, ids % 10)
    line("partial_fit of 1 000 new pairs, 2 000 ids known", time.process_time() - start, 10, "s")


def step(n_ids: int, mix: tuple[float, float, float]) -> Callable[[], object]:
    rng = np.random.default_rng(3)
    vectors = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(n_ids, 256)).astype(np.float32)))
    projection = torch.from_numpy(rng.normal(size=(D, 256)).astype(np.float32) / D**0.5)
    anchor = Anchor(torch.ones(n_ids, dtype=torch.bool), vectors.clone(), projection.clone(), 10.0, 10.0)
    X, targets = torch.from_numpy(unit(64 * 20, rng)), rng.integers(0, n_ids, 64 * 20)
    candidates = Candidates(np.arange(n_ids), np.arange(n_ids) % 10, 64, mix, 32, rng)

    def work() -> object:
        return train(
            vectors, projection, X, targets, candidates, temperature=0.07, epochs=3, lr=1e-3, batch_size=64,
            hard_every=3, rng=rng, anchor=anchor,
        )  # fmt: skip

    return work


def steps() -> None:
    for mix, what in (((0.0, 0.5, 0.5), "without"), ((1 / 3, 1 / 3, 1 / 3), "with")):
        taken = seconds({"500": step(500, mix), "20 000": step(20_000, mix)}, turns=3)
        per_step = {name: 1e3 * t / 60 for name, t in taken.items()}
        print(f"a step, {what} mining: " + ", ".join(f"{name} ids {t:.1f} ms" for name, t in per_step.items()))
        line("  time of a step at 20 000 ids / at 500", per_step["20 000"] / per_step["500"], 3, "×")


def memory() -> None:
    sizes = {}
    with tempfile.TemporaryDirectory() as folder:
        for each in (EACH, 10 * EACH):
            router, X = known(500, each, replay=0.0)
            path = router.save(Path(folder) / str(each)) / "router.safetensors"
            sizes[each] = (path.stat().st_size, X.nbytes)
    grown = sizes[10 * EACH][0] / sizes[EACH][0]
    line("size without a buffer at ten times the training queries / at once", grown, 1.01, "×")
    kept, embeddings = (size / 2**20 for size in sizes[10 * EACH])
    print(f"  500 ids, {500 * 10 * EACH} queries: {kept:.1f} MiB; all their embeddings: {embeddings:.1f} MiB")


if __name__ == "__main__":
    torch.set_num_threads(1)
    routing()
    learning()
    steps()
    memory()
