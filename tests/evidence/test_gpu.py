import collections
import dataclasses
import itertools
import os
import time

import hostile
import pytest

from assay.evidence import gpu
from assay.evidence.run import plan, run
from assay.evidence.storage import Storage
from assay.evidence.study import Arm, Study, Task


@pytest.fixture
def two_gpus(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    gpu.gpus.cache_clear()
    yield
    gpu.gpus.cache_clear()


def seen(given, seed, budget):
    start = time.time()
    time.sleep(0.2)
    return os.environ.get("CUDA_VISIBLE_DEVICES", ""), start, time.time()


def score(output, hidden):
    visible, start, end = output
    return {"several": "," in visible, "gpu": -1 if "," in visible else int(visible), "start": start, "end": end}


STUDY = Study(
    name="gpus", tasks=(Task("t", hostile.load, score),), arms=(Arm("m", seen, "method"),), claims=(),
    primary="gpu", better="lower", uses_gpu=True,
)  # fmt: skip


def test_each_cell_has_a_gpu_of_its_own(two_gpus, tmp_path):
    with Storage(f"sqlite:///{tmp_path}/x.db") as storage:
        records = run(plan(STUDY, seeds=8), storage, jobs=4)
    by_gpu = collections.defaultdict(list)
    for record in records:
        assert record.metrics["several"] is False
        by_gpu[record.metrics["gpu"]].append((record.metrics["start"], record.metrics["end"]))
    assert set(by_gpu) == {0, 3}
    for times in by_gpu.values():
        times.sort()
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(times))


def test_they_share_when_asked_or_when_the_study_uses_none(two_gpus, tmp_path):
    with Storage(f"sqlite:///{tmp_path}/x.db") as storage:
        asked = run(plan(STUDY, seeds=3), storage, jobs=2, share_gpu=True)
        none = run(plan(dataclasses.replace(STUDY, name="none", uses_gpu=False), seeds=3), storage, jobs=2)
    assert all(record.metrics["several"] for record in (*asked, *none))


def test_without_a_gpu_nothing_waits(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu.gpus.cache_clear()
    with gpu.one_gpu() as first, gpu.one_gpu() as second:
        assert (first, second) == ("", "")
    gpu.gpus.cache_clear()
