"""Speed of LLP-Flow, in turns and as ratios: `python benchmarks/llp_flow.py`.

The peer is plain supervised training of the same network on the same rows: what an epoch costs anyone. One process, one
thread, medians; milliseconds are the machine's.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from assay.learning.llp_flow import AnchorFlow, LLPFlowClassifier
from assay.learning.llp_flow.network import Network, perceptron
from assay.learning.llp_flow.training import BagData, Trainer
from timing import line, seconds

TURNS = 9
BAGS, SIZE, COLUMNS, CLASSES = 23, 50, 64, 10


def network() -> Network:
    torch.manual_seed(0)
    return Network(perceptron(COLUMNS, (128, 32)), 32, 64, CLASSES)


def bags(count: int, size: int, columns: int = COLUMNS) -> BagData:
    rng = np.random.default_rng(0)
    X = torch.as_tensor(rng.standard_normal((count * size, columns)), dtype=torch.float32)
    return BagData.sort(X, np.repeat(np.arange(count), size), rng.dirichlet(np.ones(CLASSES), count))


def supervised_epoch(net: Network, X: torch.Tensor, y: torch.Tensor, size: int) -> Callable[[], None]:
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)

    def epoch() -> None:
        net.train()
        order = torch.randperm(len(X))
        for at in order.split(size):
            loss = torch.nn.functional.cross_entropy(net(X[at]), y[at])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()

    return epoch


def passes() -> None:
    data = bags(BAGS, SIZE)
    y = torch.randint(CLASSES, (len(data.X),))
    trainer = Trainer(network(), data, 1e-3, np.random.default_rng(0))
    plain = supervised_epoch(network(), data.X, y, SIZE)
    took = seconds({"bags": trainer.one_pass, "supervised": plain}, 2 * TURNS)
    line(f"a pass over {BAGS} bags of {SIZE} / a supervised epoch", took["bags"] / took["supervised"], 1.2, "×")
    small = bags(BAGS * SIZE // 2, 2)
    trainer = Trainer(network(), small, 1e-3, np.random.default_rng(0))
    took = seconds({"bags": trainer.one_pass, "supervised": plain}, 2 * TURNS)
    line(f"a pass over {BAGS * SIZE // 2} bags of 2 / the same epoch", took["bags"] / took["supervised"], 3, "×")


def flow_step(n: int, per_class: int, classes: int) -> Callable[[], None]:
    rng = np.random.default_rng(0)
    Z, pi = rng.standard_normal((n, 32)), rng.dirichlet(np.full(classes, 5.0))
    flow = AnchorFlow(classes, per_class, 32, random_state=0)
    flow.init_from(rng.standard_normal((1000, 32)), rng.dirichlet(np.ones(classes), 1000))
    head = Network(torch.nn.Identity(), 32, 64, classes).head
    return lambda: flow.step(Z, pi, head)


def steps() -> None:
    for n, per_class, classes, bar in ((50, 30, 10, 6), (100, 100, 5, 25), (50, 200, 10, 60)):
        took = seconds({"step": flow_step(n, per_class, classes)}, 40)["step"]
        line(f"a step of the flow, {n} rows × {per_class * classes} anchors", 1e3 * took, bar, "ms")


def memory() -> None:
    n, per_class = 512, 200
    work = flow_step(n, per_class, CLASSES)
    work()
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    line(
        f"memory of a step, {n} × {per_class * CLASSES}, in cost matrices", peak / (8 * n * per_class * CLASSES), 8, "×"
    )


def growth() -> None:
    data = bags(40, 20)
    X, index = data.X.numpy().astype(np.float64), np.repeat(np.arange(40), 20)
    pi = data.proportions.numpy().astype(np.float64)
    pi /= pi.sum(axis=1, keepdims=True)

    def fit(**parameters: object) -> Callable[[], object]:
        clf = LLPFlowClassifier(outer=1, epochs=(0, 0), device="cpu", random_state=0, **parameters)
        return lambda: clf.fit(X, index, pi)

    counts = (50, 100, 200, 400)
    took = seconds({str(s): fit(flow_steps=s) for s in counts}, 3)
    print("flow steps: " + ", ".join(f"{s} {1e3 * took[str(s)]:.0f} ms" for s in counts))
    line("  log-log slope of time on flow_steps", slope(counts, took), 1.15, "")
    few, many = bags(20, 50), bags(160, 50)
    took = seconds({"20": lone_flow(few), "160": lone_flow(many)}, 3)
    line("  100 steps of the flow, 160 bags / 20 bags", took["160"] / took["20"], 1.3, "×")
    rows = (1000, 2000, 4000, 8000)
    took = seconds({str(n): one_pass(n // 50, COLUMNS) for n in rows}, 5)
    line("  log-log slope of a pass on rows", slope(rows, took), 1.15, "")
    columns = (64, 256, 1024)
    took = seconds({str(d): one_pass(20, d) for d in columns}, 5)
    line("  log-log slope of a pass on columns", slope(columns, took), 1.15, "")


def one_pass(count: int, columns: int) -> Callable[[], object]:
    net = Network(perceptron(columns, (128, 32)), 32, 64, CLASSES)
    return Trainer(net, bags(count, 50, columns), 1e-3, np.random.default_rng(0)).one_pass


def lone_flow(data: BagData) -> Callable[[], None]:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((len(data.X), 32))
    head = Network(torch.nn.Identity(), 32, 64, CLASSES).head
    pi = data.proportions.numpy()

    def run() -> None:
        flow = AnchorFlow(CLASSES, 30, 32, random_state=0).init_from(Z, np.ones((len(Z), CLASSES)))
        for _ in range(100):
            bag = int(rng.integers(len(pi)))
            flow.step(Z[data.starts[bag] : data.starts[bag + 1]], pi[bag], head)

    return run


def slope(sizes: tuple[int, ...], took: dict[str, float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log([took[str(s)] for s in sizes]), 1)[0])


if __name__ == "__main__":
    torch.set_num_threads(1)
    with threadpool_limits(1):
        passes()
        steps()
        memory()
        growth()
